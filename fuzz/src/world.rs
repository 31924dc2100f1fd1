//! The core with everything around it in memory, driven by a script of lines that a person can write and a fuzzer can bend.
//!
//! ```text
//! +N          connection N (0-9) opens, from loopback      ~N          the same, through a proxy
//! N {json}    a text frame on connection N                 -N [code]   connection N is gone
//! !N          a message over the limit is announced on N   pN          N answers the last ping
//! dN          the socket of N took everything              t MS        time passes, deadlines come
//! s           what waits for the disk is stored            f           it cannot be stored
//! a demo      an embedded agent attaches (or echo, link)   x [ended]   the agent is gone
//! A {json}    a call of the agent                          k           the gateway is killed and starts again
//! drain       the gateway is about to stop
//! ```
//!
//! Checked all the time: what is sent goes to connections that are open, is a frame that a client can read, is under the
//! limit; a `seq` rises on its connection, is never given to two items, and is on disk before it is sent; positions and
//! batches rise.

use std::collections::{BTreeMap, HashMap, VecDeque};

use agent::{Agent, Demo, Echo, Flow};
use delivery::{Action, Attach, Core, Input, MediaDone, Origin};
use protocol::{
    Millis, client,
    client::MediaKind,
    limits,
    link::{FileRefused, FileTaken, FromAgent, InFile, MediaSource, ToAgent},
    record::{Batch, Op, Pos},
    series::SpoolNo,
    server::{self, ServerFrame},
};

use crate::disk::{Disk, settings};

/// Steps of one script line and what follows from it: an agent that answers itself for ever is a fault too.
const STEPS: usize = 100_000;

/// A connection as its client sees it.
#[derive(Default)]
struct Line {
    /// The core has not closed it.
    open: bool,
    seq: u64,
    unread: usize,
    nonce: Option<u64>,
}

enum Embedded {
    Demo(Box<Demo>),
    Echo(Box<Echo>),
    /// An agent on the link: it says what the script says.
    Link,
}

/// The core and its surroundings.
pub struct World {
    core: Core,
    now: Millis,
    disk: Disk,
    /// Handed to the disk, not yet stored.
    waiting: VecDeque<Batch>,
    /// The disk refuses everything after a failure until the core has taken note.
    failed_upto: Option<u64>,
    last_batch: u64,
    last_pos: Pos,
    lines: HashMap<u64, Line>,
    /// Script digit to connection.
    names: HashMap<u8, u64>,
    next_conn: u64,
    agent: Option<(u64, Embedded)>,
    next_agent: u64,
    spools: HashMap<SpoolNo, BTreeMap<u32, Vec<u8>>>,
    files: HashMap<String, Vec<u8>>,
    inputs: VecDeque<Input>,
    /// Item of each `seq` of a device, over its whole life.
    items: HashMap<(String, u64), String>,
    /// Device of a connection.
    of: HashMap<u64, String>,
    seed: u8,
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    /// An empty store, no connection, no agent.
    #[must_use]
    pub fn new() -> Self {
        let disk = Disk::default();
        let now = 1_800_000_000_000;
        Self {
            core: Core::new(settings(&disk, 0), now),
            now,
            disk,
            waiting: VecDeque::new(),
            failed_upto: None,
            last_batch: 0,
            last_pos: 0,
            lines: HashMap::new(),
            names: HashMap::new(),
            next_conn: 1,
            agent: None,
            next_agent: 1,
            spools: HashMap::new(),
            files: HashMap::new(),
            inputs: VecDeque::new(),
            items: HashMap::new(),
            of: HashMap::new(),
            seed: 0,
        }
    }

    /// One line of the script and all that follows from it. Lines that mean nothing are passed over.
    pub fn step(&mut self, line: &str) {
        let mut chars = line.chars();
        let Some(first) = chars.next() else { return };
        let rest = chars.as_str();
        let digit = |text: &str| text.as_bytes().first().filter(|b| b.is_ascii_digit()).copied();
        match first {
            '+' | '~' => {
                if let Some(name) = digit(rest) {
                    self.connect(name, first == '+');
                }
            }
            '0'..='9' => {
                if let Some(conn) = self.conn(first as u8) {
                    let text = rest.trim_start();
                    self.inputs.push_back(Input::Frame {
                        conn,
                        bytes: text.len(),
                        frame: client::decode(text),
                    });
                }
            }
            '-' => {
                if let Some(name) = digit(rest)
                    && let Some(conn) = self.names.remove(&name)
                {
                    let code = rest.get(1..).and_then(|code| code.trim().parse().ok());
                    self.lines.remove(&conn);
                    self.inputs.push_back(Input::Closed { conn, code });
                }
            }
            '!' => {
                if let Some(conn) = digit(rest).and_then(|name| self.conn(name)) {
                    self.inputs.push_back(Input::TooLong { conn });
                }
            }
            'p' => {
                if let Some(conn) = digit(rest).and_then(|name| self.conn(name))
                    && let Some(nonce) = self.lines.get_mut(&conn).and_then(|line| line.nonce.take())
                {
                    self.inputs.push_back(Input::Pong { conn, nonce });
                }
            }
            'd' if digit(rest).is_some() => {
                if let Some(conn) = digit(rest).and_then(|name| self.conn(name))
                    && let Some(line) = self.lines.get_mut(&conn)
                {
                    let bytes = std::mem::take(&mut line.unread);
                    self.inputs.push_back(Input::Drained { conn, bytes });
                }
            }
            't' => self.pass(rest.trim().parse::<u32>().unwrap_or(0).into()),
            's' => self.store(),
            'f' => self.fail(),
            'a' => self.attach(rest.trim()),
            'x' => {
                if let Some((agent, _)) = self.agent.take() {
                    self.inputs.push_back(Input::AgentDetached { agent, ended: rest.trim() == "ended" });
                }
            }
            'A' => {
                if let (Some((agent, _)), Ok(call)) = (&self.agent, serde_json::from_str::<FromAgent>(rest)) {
                    self.inputs.push_back(Input::FromAgent { agent: *agent, calls: vec![call] });
                }
            }
            'k' => self.kill(),
            'd' => self.inputs.push_back(Input::Drain),
            _ => return,
        }
        self.settle();
    }

    /// Everything goes well from here on: what is left must come to an end.
    pub fn end(&mut self) {
        for name in b'0'..=b'9' {
            self.step(&format!("d{}", name as char));
            self.step(&format!("-{}", name as char));
        }
        self.store();
        self.settle();
        self.pass(60_000);
        self.settle();
    }

    fn conn(&self, name: u8) -> Option<u64> {
        self.names.get(&name).copied()
    }

    fn connect(&mut self, name: u8, loopback: bool) {
        // A name that is in use: its old connection stays half open and speaks no more.
        let conn = self.next_conn;
        self.next_conn += 1;
        self.names.insert(name, conn);
        self.lines.insert(conn, Line { open: true, ..Line::default() });
        let origin = Origin { loopback, address: "192.0.2.1".to_owned(), token: None };
        self.inputs.push_back(Input::Connected { conn, origin });
    }

    fn pass(&mut self, ms: u64) {
        let end = self.now + ms;
        // Deadline by deadline, as a timer would.
        for _ in 0..1_000 {
            self.settle();
            let agent = self.agent.as_ref().and_then(|(_, agent)| match agent {
                Embedded::Demo(agent) => agent.deadline(),
                Embedded::Echo(agent) => agent.deadline(),
                Embedded::Link => None,
            });
            let Some(at) = [self.core.deadline(), agent].into_iter().flatten().min().filter(|at| *at <= end)
            else {
                break;
            };
            self.now = self.now.max(at);
            if self.core.deadline().is_some_and(|at| at <= self.now) {
                self.inputs.push_back(Input::Tick);
            }
            if agent.is_some_and(|at| at <= self.now) {
                self.ask(None);
            }
        }
        self.now = self.now.max(end);
    }

    fn attach(&mut self, what: &str) {
        let agent = self.next_agent;
        self.next_agent += 1;
        let embedded = match what {
            "echo" => Embedded::Echo(Box::default()),
            "link" => Embedded::Link,
            _ => Embedded::Demo(Box::default()),
        };
        let instance = if what == "link" { format!("link-{agent}") } else { what.to_owned() };
        self.agent = Some((agent, embedded));
        let attach = Attach { name: "fuzz".to_owned(), instance, fresh: true };
        self.inputs.push_back(Input::AgentAttached { agent, attach });
    }

    /// Hands a frame to the embedded agent, or lets its deadline come.
    fn ask(&mut self, frame: Option<ToAgent>) {
        let Some((number, embedded)) = &mut self.agent else { return };
        let mut calls = Vec::new();
        let inner: &mut dyn Agent = match embedded {
            Embedded::Demo(agent) => agent.as_mut(),
            Embedded::Echo(agent) => agent.as_mut(),
            Embedded::Link => return,
        };
        let flow = match frame {
            Some(frame) => inner.handle(frame, self.now, &mut calls),
            None => inner.tick(self.now, &mut calls),
        };
        let agent = *number;
        if !calls.is_empty() {
            self.inputs.push_back(Input::FromAgent { agent, calls });
        }
        if flow == Flow::Ended {
            self.agent = None;
            self.inputs.push_back(Input::AgentDetached { agent, ended: true });
        }
    }

    fn store(&mut self) {
        let batches = std::mem::take(&mut self.waiting);
        let upto = batches.back().map(|batch| batch.no);
        for batch in batches {
            self.disk.commit(batch);
        }
        if let Some(upto) = upto {
            self.inputs.push_back(Input::Stored { upto });
        }
    }

    fn fail(&mut self) {
        if let (Some(first), Some(last)) = (self.waiting.front(), self.waiting.back()) {
            let (from, upto) = (first.no, last.no);
            self.waiting.clear();
            self.failed_upto = Some(upto);
            self.inputs.push_back(Input::StoreFailed { from, upto, why: "the disk is full".to_owned() });
        }
    }

    /// The process ends; the next one starts on what is on disk.
    fn kill(&mut self) {
        self.inputs.clear();
        self.waiting.clear();
        self.failed_upto = None;
        self.lines.clear();
        self.names.clear();
        self.of.clear();
        self.spools.clear();
        self.agent = None;
        self.seed = self.seed.wrapping_add(1);
        self.last_batch = 0;
        self.last_pos = self.disk.last_pos();
        self.core = Core::new(settings(&self.disk, self.seed), self.now);
        let wake = self.disk.wake();
        let mut out = Vec::new();
        self.core.start(wake, self.now, &mut out);
        self.carry_out(out);
    }

    /// Until nothing more follows. The disk is slow: only the script says when it is done.
    fn settle(&mut self) {
        for step in 0.. {
            let Some(input) = self.inputs.pop_front() else { break };
            assert!(step < STEPS, "it never comes to rest");
            let mut out = Vec::new();
            self.core.handle(input, self.now, &mut out);
            self.carry_out(out);
        }
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send { conn, text } => self.sent(conn, &text),
                Action::Ping { conn, nonce } => {
                    if let Some(line) = self.lines.get_mut(&conn) {
                        assert!(line.open, "a ping after the close");
                        line.nonce = Some(nonce);
                    }
                }
                Action::Close { conn, code } => {
                    if let Some(line) = self.lines.get_mut(&conn) {
                        assert!(line.open, "closed twice, now with {code:?}");
                        line.open = false;
                    }
                    self.inputs.push_back(Input::Closed { conn, code: None });
                }
                Action::Store(batch) => self.write(batch),
                Action::StoreResume { upto } => {
                    if self.failed_upto.is_some_and(|failed| failed <= upto) {
                        self.failed_upto = None;
                    }
                }
                Action::Load { device, since } => {
                    let loaded = Ok(self.disk.load(&device, since));
                    self.inputs.push_back(Input::Loaded { device, loaded });
                }
                Action::Read { device, ticket, positions } => {
                    let rows = positions.iter().filter_map(|pos| self.disk.row(*pos).cloned()).collect();
                    self.inputs.push_back(Input::Rows { device, ticket, rows: Ok(rows) });
                }
                Action::Spool { spool, part } => {
                    let old = self.spools.entry(spool).or_default().insert(part.part, part.data);
                    assert!(old.is_none(), "a part is spooled twice");
                }
                Action::Assemble { device, spool, head } => {
                    let parts = self.spools.remove(&spool).unwrap_or_default();
                    assert_eq!(parts.len(), head.parts as usize, "put together with holes");
                    let data: Vec<u8> = parts.into_values().flatten().collect();
                    let name = format!("in-{spool}");
                    let kind = match head.kind {
                        MediaKind::Voice { .. } => "voice",
                        MediaKind::Image => "image",
                        MediaKind::Video => "video",
                        MediaKind::Document => "document",
                        MediaKind::Audio => "audio",
                    };
                    let file = InFile {
                        kind: kind.to_owned(),
                        file: name.clone(),
                        path: None,
                        mime: head.mime.unwrap_or_default(),
                        filename: head.filename.unwrap_or_default(),
                        caption: head.caption,
                        bytes: data.len() as u64,
                        sha256: format!("{:x}", data.iter().map(|b| u64::from(*b)).sum::<u64>()),
                        duration_ms: None,
                    };
                    self.files.insert(name, data);
                    self.inputs.push_back(Input::Assembled { device, spool, done: Ok(MediaDone { file }) });
                }
                Action::Discard { spool } => {
                    self.spools.remove(&spool);
                }
                Action::Remove { file } => {
                    self.files.remove(&file);
                }
                Action::TakeFile { device, ticket, source, mime, filename, .. } => {
                    let done = self.take(source, mime, filename);
                    self.inputs.push_back(Input::FileTaken { device, ticket, done });
                }
                Action::ReadFile { device, ticket, file, offset, len } => {
                    let data = self.files.get(&file).ok_or_else(|| "gone".to_owned()).map(|data| {
                        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(data.len());
                        data[from..from.saturating_add(len).min(data.len())].to_vec()
                    });
                    self.inputs.push_back(Input::FileRead { device, ticket, data });
                }
                Action::ToAgent { agent, frame } => {
                    if self.agent.as_ref().is_some_and(|(number, _)| *number == agent) {
                        self.ask(Some(frame));
                    }
                }
                Action::DetachAgent { agent } => {
                    if self.agent.as_ref().is_some_and(|(number, _)| *number == agent) {
                        self.agent = None;
                    }
                    self.inputs.push_back(Input::AgentDetached { agent, ended: false });
                }
                Action::Opened { .. } | Action::Log { .. } => {}
            }
        }
    }

    fn sent(&mut self, conn: u64, text: &str) {
        assert!(text.len() <= limits::FRAME_TO_DEVICE, "a frame of {} bytes", text.len());
        let frame = match server::decode(text) {
            Ok(Some(frame)) => frame,
            other => panic!("a client cannot read {text}: {other:?}"),
        };
        let Some(line) = self.lines.get_mut(&conn) else { return };
        assert!(line.open, "a frame after the close: {text}");
        line.unread += text.len();
        let (seq, item) = match &frame {
            ServerFrame::Ready(ready) => {
                self.of.insert(conn, ready.device.id.clone());
                return;
            }
            ServerFrame::Message(message) => {
                assert!(message.seq.is_none() || message.last, "a number before the last frame");
                (message.seq, &message.id)
            }
            ServerFrame::Media(media) => {
                assert!(media.seq.is_none() || media.last, "a number before the last part");
                (media.seq, &media.id)
            }
            ServerFrame::Prompt(prompt) => {
                assert!(!prompt.options.is_empty(), "a card without options");
                (prompt.seq, &prompt.id)
            }
            ServerFrame::PromptDone(done) => (done.seq, &done.id),
            _ => return,
        };
        let Some(seq) = seq else { return };
        assert!(seq > line.seq, "seq {seq} after {}", line.seq);
        line.seq = seq;
        let Some(device) = self.of.get(&conn) else { panic!("an item before ready") };
        let known = self.items.entry((device.clone(), seq)).or_insert_with(|| item.clone());
        assert_eq!(known, item, "seq {seq} was given twice");
        assert!(self.disk.has(device, seq), "seq {seq} is on the wire and not on disk");
    }

    fn write(&mut self, batch: Batch) {
        assert_eq!(batch.no, self.last_batch + 1, "a batch is missing");
        self.last_batch = batch.no;
        for op in &batch.ops {
            if let Op::Append(row) = op {
                assert!(row.pos > self.last_pos, "position {} after {}", row.pos, self.last_pos);
                self.last_pos = row.pos;
            }
        }
        if self.failed_upto.is_some() {
            let no = batch.no;
            self.failed_upto = Some(no);
            self.inputs.push_back(Input::StoreFailed {
                from: no,
                upto: no,
                why: "the disk is full".to_owned(),
            });
        } else {
            self.waiting.push_back(batch);
        }
    }

    fn take(
        &mut self,
        source: MediaSource,
        mime: Option<String>,
        filename: Option<String>,
    ) -> Result<FileTaken, FileRefused> {
        let data = match source {
            MediaSource::Data(data) if data.is_empty() => return Err(FileRefused::Empty),
            MediaSource::Data(data) if data.len() > limits::FILE_BYTES => {
                return Err(FileRefused::TooLarge { name: "large".to_owned() });
            }
            MediaSource::Data(data) => data,
            MediaSource::Path(_) => return Err(FileRefused::NotAllowed { name: "secret".to_owned() }),
        };
        let file = format!("out-{}", self.files.len());
        let taken = FileTaken {
            file: file.clone(),
            bytes: data.len() as u64,
            mime: mime.unwrap_or_else(|| "application/octet-stream".to_owned()),
            filename: filename.unwrap_or_else(|| "file".to_owned()),
            content: protocol::record::hash64(&[&data]),
        };
        self.files.insert(file, data);
        Ok(taken)
    }
}
