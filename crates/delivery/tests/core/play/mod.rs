//! Plays the gateway around a core in virtual time: a store in memory that commits at once or when told, sockets that
//! take everything at once or when told, and an agent whose frames are kept for the test to look at.

use std::collections::{BTreeMap, HashMap, VecDeque};

use delivery::{Action, Attach, ConnId, Core, Input, MediaDone, Origin, Settings};
use protocol::{
    Millis,
    client::{self, MediaPart},
    link::{FileRefused, FileTaken, FromAgent, InFile, MediaSource, ToAgent},
    record::{Batch, DeviceNo, DeviceState, Loaded, Op, Pos, Row},
    words::Lang,
};
use serde_json::{Value, json};
use session::Access;

pub(crate) const TOKEN: &str = "owner-token";
pub(crate) const START: Millis = 1_800_000_000_000;

#[derive(Default)]
pub(crate) struct Disk {
    pub(crate) rows: BTreeMap<Pos, Row>,
    pub(crate) devices: HashMap<String, (DeviceNo, Vec<u8>, bool)>,
    pub(crate) files: HashMap<String, Vec<u8>>,
}

impl Disk {
    fn apply(&mut self, batch: &Batch) {
        for op in &batch.ops {
            match op {
                Op::Append(row) => {
                    assert!(
                        self.rows.insert(row.pos, row.clone()).is_none(),
                        "position {} used twice",
                        row.pos
                    );
                }
                Op::Device { no, id, state, wake } => {
                    self.devices.insert(id.clone(), (*no, state.clone(), *wake));
                }
            }
        }
    }

    pub(crate) fn load(&self, id: &str, since: Millis) -> Option<Loaded> {
        let (no, state, _) = self.devices.get(id)?.clone();
        let from = DeviceState::decode(&state).unwrap().live_from;
        let mine: Vec<&Row> = self.rows.values().filter(|row| row.device == no).collect();
        let marks = mine.iter().rev().filter(|row| row.at >= since && !row.mark.is_empty());
        let marks = marks.map(|row| (row.pos, row.at, row.mark.clone())).collect();
        let live = mine.iter().filter(|row| from.is_some_and(|from| row.pos >= from));
        let live = live.map(|row| (*row).clone()).collect();
        Some(Loaded { no, state, marks, live })
    }
}

pub(crate) struct Play {
    pub(crate) core: Core,
    pub(crate) now: Millis,
    pub(crate) disk: Disk,
    /// Commits wait for [`Play::commit`].
    pub(crate) hold_commits: bool,
    /// Sockets take nothing until [`Play::drain`].
    pub(crate) hold_sockets: bool,
    /// Pongs come by themselves.
    pub(crate) pongs: bool,
    pub(crate) waiting: VecDeque<Batch>,
    refusing: bool,
    conns: u64,
    pub(crate) sent: HashMap<ConnId, Vec<Value>>,
    undrained: HashMap<ConnId, usize>,
    pub(crate) pings: Vec<(ConnId, u64)>,
    pub(crate) closed: HashMap<ConnId, u16>,
    pub(crate) to_agent: Vec<ToAgent>,
    pub(crate) agent: Option<u64>,
    agents: u64,
    req: u64,
    spools: HashMap<u64, BTreeMap<u32, Vec<u8>>>,
    pub(crate) log: Vec<String>,
    pub(crate) refuse_files: bool,
    /// Files that devices sent stay in pieces until [`Play::assemble`].
    pub(crate) hold_assembled: bool,
    assembled: VecDeque<Input>,
    /// How often a device was asked for.
    pub(crate) loads: usize,
    /// Files of the agent's are never taken over.
    pub(crate) hold_files: bool,
}

pub(crate) fn settings(disk: &Disk) -> Settings {
    Settings {
        lang: Lang::Ru,
        avatar_url: String::new(),
        chunk_chars: 2000,
        idle_after_ms: 1500,
        home_device: Some("phone".into()),
        hello_ms: 10_000,
        series_idle_ms: 120_000,
        wait_ms: 24 * 3600 * 1000,
        take_ms: 5000,
        deliver_ms: 10_000,
        silent_ms: 25_000,
        queue_bytes: 4 * 1024 * 1024,
        frames_per_second: 0,
        frames_burst: 0,
        bytes_per_second: 0,
        lockout_after: 5,
        lockout_ms: 60_000,
        spool_bytes: 64 * 1024 * 1024,
        access: Access {
            owner: TOKEN.into(),
            extra: vec![("bound".into(), "bound-token".into())],
            deliver: vec!["deliver-token".into()],
            allowed: Vec::new(),
            deliver_loopback: true,
        },
        seed: [7; 32],
        secret: [9; 32],
        epoch: "e".into(),
        next_pos: disk.rows.keys().max().map_or(1, |pos| pos + 1),
        next_device: disk.devices.values().map(|(no, ..)| no + 1).max().unwrap_or(1),
    }
}

impl Play {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Settings)) -> Self {
        Self::on(Disk::default(), START, change)
    }

    fn on(disk: Disk, now: Millis, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = settings(&disk);
        change(&mut settings);
        let mut play = Self {
            core: Core::new(settings, now),
            now,
            disk,
            hold_commits: false,
            hold_sockets: false,
            pongs: true,
            waiting: VecDeque::new(),
            refusing: false,
            conns: 0,
            sent: HashMap::new(),
            undrained: HashMap::new(),
            pings: Vec::new(),
            closed: HashMap::new(),
            to_agent: Vec::new(),
            agent: None,
            agents: 0,
            req: 0,
            spools: HashMap::new(),
            log: Vec::new(),
            refuse_files: false,
            hold_assembled: false,
            assembled: VecDeque::new(),
            loads: 0,
            hold_files: false,
        };
        let mut wake: Vec<String> =
            play.disk.devices.iter().filter(|(_, (_, _, wake))| *wake).map(|(id, _)| id.clone()).collect();
        wake.sort();
        let mut out = Vec::new();
        play.core.start(wake, now, &mut out);
        play.act(out);
        play
    }

    /// The gateway is killed and started again: what was not committed is lost.
    pub(crate) fn crash(self) -> Self {
        self.crash_with(|_| {})
    }

    /// The same, and started with other settings.
    pub(crate) fn crash_with(self, change: impl FnOnce(&mut Settings)) -> Self {
        Self::on(self.disk, self.now, change)
    }

    pub(crate) fn input(&mut self, input: Input) {
        let mut out = Vec::new();
        self.core.handle(input, self.now, &mut out);
        self.act(out);
    }

    fn act(&mut self, actions: Vec<Action>) {
        let mut inputs = VecDeque::new();
        for action in actions {
            self.one(action, &mut inputs);
        }
        while let Some(input) = inputs.pop_front() {
            let mut out = Vec::new();
            self.core.handle(input, self.now, &mut out);
            for action in out {
                self.one(action, &mut inputs);
            }
        }
    }

    fn one(&mut self, action: Action, inputs: &mut VecDeque<Input>) {
        match action {
            Action::Opened { .. } => {}
            Action::Send { conn, text } => {
                assert!(text.len() <= protocol::limits::FRAME_TO_DEVICE, "a frame of {} bytes", text.len());
                assert!(!self.closed.contains_key(&conn), "sent after close: {text}");
                self.sent.entry(conn).or_default().push(serde_json::from_str(&text).unwrap());
                if self.hold_sockets {
                    *self.undrained.entry(conn).or_default() += text.len();
                } else {
                    inputs.push_back(Input::Drained { conn, bytes: text.len() });
                }
            }
            Action::Ping { conn, nonce } => {
                if self.pongs && !self.hold_sockets {
                    inputs.push_back(Input::Pong { conn, nonce });
                } else {
                    self.pings.push((conn, nonce));
                }
            }
            Action::Close { conn, code } => {
                self.closed.insert(conn, code as u16);
                inputs.push_back(Input::Closed { conn, code: None });
            }
            Action::Store(batch) => {
                if self.refusing {
                    inputs.push_back(Input::StoreFailed {
                        from: batch.no,
                        upto: batch.no,
                        why: "full".into(),
                    });
                } else if self.hold_commits {
                    self.waiting.push_back(batch);
                } else {
                    self.disk.apply(&batch);
                    inputs.push_back(Input::Stored { upto: batch.no });
                }
            }
            Action::StoreResume { .. } => {}
            Action::Load { device, since } => {
                self.loads += 1;
                let loaded = Ok(self.disk.load(&device, since));
                inputs.push_back(Input::Loaded { device, loaded });
            }
            Action::Read { device, ticket, positions } => {
                let rows = positions.iter().filter_map(|pos| self.disk.rows.get(pos).cloned()).collect();
                inputs.push_back(Input::Rows { device, ticket, rows: Ok(rows) });
            }
            Action::Spool { spool, part } => {
                self.spools.entry(spool).or_default().insert(part.part, part.data);
            }
            Action::Assemble { device, spool, head } => {
                let data: Vec<u8> = self.spools.remove(&spool).unwrap().into_values().flatten().collect();
                let file = format!("in{spool}.bin");
                let done = Ok(MediaDone { file: in_file(&file, &head, &data) });
                self.disk.files.insert(file, data);
                let input = Input::Assembled { device, spool, done };
                if self.hold_assembled { &mut self.assembled } else { inputs }.push_back(input);
            }
            Action::Discard { spool } => {
                self.spools.remove(&spool);
            }
            Action::Remove { file } => {
                self.disk.files.remove(&file);
            }
            Action::TakeFile { .. } if self.hold_files => {}
            Action::TakeFile { device, ticket, source, mime, filename, .. } => {
                let done = match source {
                    MediaSource::Data(data) => {
                        let file = format!("out{ticket}.bin");
                        let content = protocol::record::hash64(&[&data]);
                        let bytes = data.len() as u64;
                        self.disk.files.insert(file.clone(), data);
                        let mime = mime.unwrap_or_else(|| "application/octet-stream".into());
                        Ok(FileTaken {
                            file,
                            bytes,
                            mime,
                            filename: filename.unwrap_or_else(|| "file".into()),
                            content,
                        })
                    }
                    MediaSource::Path(_) => Err(FileRefused::NotAllowed { name: "shadow".into() }),
                };
                inputs.push_back(Input::FileTaken { device, ticket, done });
            }
            Action::ReadFile { device, ticket, file, offset, len } => {
                let data = match self.disk.files.get(&file) {
                    Some(data) if !self.refuse_files => {
                        Ok(data[offset as usize..(offset as usize + len).min(data.len())].to_vec())
                    }
                    _ => Err("gone".into()),
                };
                inputs.push_back(Input::FileRead { device, ticket, data });
            }
            Action::ToAgent { agent, frame } => {
                if Some(agent) == self.agent {
                    self.to_agent.push(frame);
                }
            }
            Action::DetachAgent { agent } => {
                if Some(agent) == self.agent {
                    self.agent = None;
                }
            }
            Action::Log { text, .. } => self.log.push(text),
        }
    }

    /// Commits what waits.
    pub(crate) fn commit(&mut self) {
        while let Some(batch) = self.waiting.pop_front() {
            self.disk.apply(&batch);
            self.input(Input::Stored { upto: batch.no });
        }
    }

    /// What waits to be committed fails, and so does everything until [`Play::mend`].
    pub(crate) fn fail(&mut self) {
        self.refusing = true;
        if let (Some(first), Some(last)) = (self.waiting.front(), self.waiting.back()) {
            let (from, upto) = (first.no, last.no);
            self.waiting.clear();
            self.input(Input::StoreFailed { from, upto, why: "full".into() });
        }
    }

    /// The next file is put together.
    pub(crate) fn assemble(&mut self) {
        if let Some(input) = self.assembled.pop_front() {
            self.input(input);
        }
    }

    pub(crate) fn mend(&mut self) {
        self.refusing = false;
    }

    /// The socket takes what it has.
    pub(crate) fn drain(&mut self, conn: ConnId) {
        if let Some(bytes) = self.undrained.remove(&conn) {
            self.input(Input::Drained { conn, bytes });
        }
    }

    pub(crate) fn advance(&mut self, ms: u64) {
        let end = self.now + ms;
        while let Some(at) = self.core.deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            let before = self.core.deadline();
            self.input(Input::Tick);
            assert!(self.core.deadline() != before || before > Some(self.now), "a tick changes nothing");
        }
        self.now = end;
    }

    pub(crate) fn connect(&mut self, origin: Origin) -> ConnId {
        self.conns += 1;
        let conn = self.conns;
        self.input(Input::Connected { conn, origin });
        conn
    }

    pub(crate) fn say(&mut self, conn: ConnId, frame: Value) {
        self.raw(conn, &frame.to_string());
    }

    pub(crate) fn raw(&mut self, conn: ConnId, text: &str) {
        self.input(Input::Frame { conn, bytes: text.len(), frame: client::decode(text) });
    }

    pub(crate) fn hello(&mut self, device: &str) -> ConnId {
        let conn = self.connect(Origin { address: "192.0.2.1".into(), ..Origin::default() });
        self.say(conn, json!({"t": "hello", "token": TOKEN, "device": {"id": device}}));
        conn
    }

    pub(crate) fn local(&mut self, device: &str) -> ConnId {
        let conn = self.connect(Origin { loopback: true, address: "127.0.0.1".into(), token: None });
        self.say(conn, json!({"t": "hello", "token": TOKEN, "device": {"id": device}}));
        conn
    }

    pub(crate) fn cut(&mut self, conn: ConnId) {
        self.input(Input::Closed { conn, code: None });
    }

    pub(crate) fn cut_by_client(&mut self, conn: ConnId, code: u16) {
        self.input(Input::Closed { conn, code: Some(code) });
    }

    /// Frames that the connection has got since the last call.
    pub(crate) fn got(&mut self, conn: ConnId) -> Vec<Value> {
        self.sent.remove(&conn).unwrap_or_default()
    }

    /// Of one type.
    pub(crate) fn got_of(&mut self, conn: ConnId, t: &str) -> Vec<Value> {
        self.got(conn).into_iter().filter(|frame| frame["t"] == t).collect()
    }

    pub(crate) fn attach(&mut self, instance: &str) {
        self.attach_as(instance, false);
    }

    pub(crate) fn attach_as(&mut self, instance: &str, fresh: bool) {
        self.agents += 1;
        self.agent = Some(self.agents);
        let attach = Attach { name: "test".into(), instance: instance.into(), fresh };
        self.input(Input::AgentAttached { agent: self.agents, attach });
    }

    pub(crate) fn detach(&mut self, ended: bool) {
        if let Some(agent) = self.agent.take() {
            self.input(Input::AgentDetached { agent, ended });
        }
    }

    pub(crate) fn calls(&mut self, calls: Vec<FromAgent>) {
        let agent = self.agent.unwrap();
        self.input(Input::FromAgent { agent, calls });
    }

    /// A call as JSON, `req` filled in; its number.
    pub(crate) fn call(&mut self, mut call: Value) -> u64 {
        self.req += 1;
        call["req"] = json!(self.req);
        let call: FromAgent = serde_json::from_value(call).unwrap();
        self.calls(vec![call]);
        self.req
    }

    pub(crate) fn result(&self, req: u64) -> Option<Value> {
        self.to_agent.iter().find_map(|frame| match frame {
            ToAgent::Result(result) if result.req == req => Some(serde_json::to_value(result).unwrap()),
            _ => None,
        })
    }

    pub(crate) fn send(&mut self, device: &str, key: &str, text: &str) -> String {
        let req = self.call(json!({"op": "send", "key": key, "device": device, "text": text}));
        self.result(req).unwrap()["message_id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn events(&mut self) -> Vec<protocol::link::Event> {
        let (events, rest) = std::mem::take(&mut self.to_agent)
            .into_iter()
            .partition(|frame| matches!(frame, ToAgent::Event(_)));
        self.to_agent = rest;
        let events: Vec<ToAgent> = events;
        events
            .into_iter()
            .filter_map(|frame| match frame {
                ToAgent::Event(event) => Some(*event),
                _ => None,
            })
            .collect()
    }

    pub(crate) fn ack(&mut self, event: u64) {
        self.calls(vec![FromAgent::Ack { event }]);
    }

    pub(crate) fn done(&mut self, event: u64) {
        self.calls(vec![FromAgent::Done { event, outcome: protocol::link::Outcome::Ok }]);
    }
}

fn in_file(file: &str, head: &MediaPart, data: &[u8]) -> InFile {
    InFile {
        kind: match head.kind {
            client::MediaKind::Voice { .. } => "voice",
            client::MediaKind::Image => "image",
            client::MediaKind::Video => "video",
            client::MediaKind::Document => "document",
            client::MediaKind::Audio => "audio",
        }
        .into(),
        file: file.into(),
        path: None,
        mime: head.mime.clone().unwrap_or_default(),
        filename: head.filename.clone().unwrap_or_default(),
        caption: head.caption.clone(),
        bytes: data.len() as u64,
        sha256: format!("{:x}", protocol::record::hash64(&[data])),
        duration_ms: None,
    }
}

/// The words of events.
pub(crate) fn texts(events: &[protocol::link::Event]) -> Vec<String> {
    events
        .iter()
        .map(|event| match &event.what {
            protocol::link::Said::Text { text } => text.clone(),
            other => format!("{other:?}"),
        })
        .collect()
}
