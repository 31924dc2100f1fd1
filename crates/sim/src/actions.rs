//! Carries out what the core decides, and checks it against what is on disk.

use delivery::{Action, ConnId, Input};
use protocol::{
    code::{CloseCode, ErrorCode},
    limits,
    server::{AvatarState, Media, Message, PromptDone, ServerFrame},
};

use crate::{
    event::{Down, Ev},
    ledger::{Note, What},
    world::World,
};

impl World {
    pub(crate) fn action(&mut self, action: Action) {
        let gen_no = self.gen_no;
        match action {
            Action::Opened { .. } | Action::Log { .. } => {}
            Action::Send { conn, text } => self.send(conn, &text),
            Action::Ping { conn, nonce } => self.ping(conn, nonce),
            Action::Close { conn, code } => self.close(conn, code),
            Action::Store(batch) => {
                let no = batch.no;
                if self.disk.submit(batch, self.now).is_some() {
                    let why = "refused after a failure".to_owned();
                    self.report(gen_no, Input::StoreFailed { from: no, upto: no, why });
                } else {
                    self.disk_look();
                }
            }
            Action::StoreResume { upto } => self.disk.resume(upto),
            Action::Load { device, since } => {
                let loaded = if self.fails(1) {
                    Err("cannot be read".to_owned())
                } else {
                    self.disk.load(&device, since)
                };
                let way = self.rng.below(5);
                self.at(way, Ev::Gate { gen_no, input: Input::Loaded { device, loaded } });
            }
            Action::Read { device, ticket, positions } => {
                let rows =
                    if self.fails(1) { Err("cannot be read".to_owned()) } else { self.disk.rows(&positions) };
                let way = self.rng.below(5);
                self.at(way, Ev::Gate { gen_no, input: Input::Rows { device, ticket, rows } });
            }
            Action::Spool { spool, part } => self.files.spool(spool, &part),
            Action::Assemble { device, spool, head } => {
                let fails = self.fails(5);
                let done = self.files.assemble(spool, &head, fails);
                self.file_job(Input::Assembled { device, spool, done });
            }
            Action::Discard { spool } => self.files.discard(spool),
            Action::Remove { file } => {
                let named = self
                    .ledger
                    .items
                    .values()
                    .any(|item| matches!(&item.what, What::File { file: of, .. } if *of == file));
                if named {
                    self.fail(format!("file {file} is removed though a record names it"));
                }
                self.files.media.remove(&file);
            }
            Action::TakeFile { device, ticket, source, filename, kind, .. } => {
                let fails = self.fails(10);
                let done = self.files.take(source, filename, kind, fails);
                self.file_job(Input::FileTaken { device, ticket, done });
            }
            Action::ReadFile { device, ticket, file, offset, len } => {
                let data = self.files.read(&file, offset, len);
                self.file_job(Input::FileRead { device, ticket, data });
            }
            Action::ToAgent { agent, frame } => self.tell_agent(agent, frame),
            Action::DetachAgent { agent } => self.detached(agent),
        }
    }

    /// While there is trouble, so many of a hundred things fail.
    fn fails(&mut self, percent: u64) -> bool {
        !self.mended && self.plan.full > 0 && self.rng.percent(percent)
    }

    /// Media jobs are answered in order.
    fn file_job(&mut self, input: Input) {
        let gen_no = self.gen_no;
        self.last_file_job = self.last_file_job.max(self.now) + self.rng.below(self.plan.disk_ms + 1);
        self.at_time(self.last_file_job, Ev::Gate { gen_no, input });
    }

    fn send(&mut self, conn: ConnId, text: &str) {
        let Ok(Some(frame)) = protocol::server::decode(text) else {
            return self.fail(format!("a frame that no client can read: {text}"));
        };
        if text.len() > limits::FRAME_TO_DEVICE {
            return self.fail(format!("a frame of {} bytes", text.len()));
        }
        self.note(|| format!("< {conn}: {}", text.chars().take(300).collect::<String>()));
        let Some(c) = self.conns.get(&conn) else {
            return self.fail("a frame for a connection that never was");
        };
        let answer = matches!(
            frame,
            ServerFrame::Error(_) | ServerFrame::DeliverDone { .. } | ServerFrame::Pong { .. }
        );
        if (c.closing || !c.server) && !answer {
            return self.fail(format!("a frame on the closed connection {conn}"));
        }
        let sender = c.who.checked_sub(self.clients.len());
        let gone = c.closing || !c.server;
        let done = match sender {
            Some(delivery) => self.outcome_told(delivery, &frame),
            None if gone => Ok(()),
            None => self.written(conn, &frame),
        };
        self.check(done);
        if gone {
            return;
        }
        let bytes = text.len();
        let (now, way) = (self.now, self.rng.range(0, self.plan.way_ms));
        let Some(c) = self.conns.get_mut(&conn) else { return };
        c.unsent += bytes;
        c.free_at = c.free_at.max(now) + bytes as u64 / c.rate;
        c.last_down = c.last_down.max(c.free_at + way);
        let (taken, arrives, gen_no) = (c.free_at, c.last_down, self.gen_no);
        self.at_time(taken, Ev::Gate { gen_no, input: Input::Drained { conn, bytes } });
        self.at_time(arrives, Ev::Down { conn, what: Down::Frame(Box::new(frame)) });
    }

    /// Whether what is written to a device may be written now.
    fn written(&mut self, conn: ConnId, frame: &ServerFrame) -> Result<(), String> {
        let Some(c) = self.conns.get_mut(&conn) else { return Ok(()) };
        let device = self.clients.get(c.who).map(|client| client.id.clone()).unwrap_or_default();
        let seq = match frame {
            ServerFrame::Message(m) => m.seq,
            ServerFrame::Media(m) => m.seq,
            ServerFrame::Prompt(p) => p.seq,
            ServerFrame::PromptDone(d) => d.seq,
            _ => None,
        };
        if let Some(seq) = seq {
            if seq <= c.last_seq {
                return Err(format!("seq {seq} is written after {} on connection {conn}", c.last_seq));
            }
            c.last_seq = seq;
        }
        match frame {
            ServerFrame::Ready(_) => {
                c.ready_at = Some(self.now);
                let who = c.who;
                let second = self.conns.iter().find(|(id, o)| {
                    **id != conn && o.who == who && o.server && !o.closing && o.ready_at.is_some()
                });
                if let Some((id, _)) = second {
                    return Err(format!("{device} has two living connections, {id} and {conn}"));
                }
            }
            ServerFrame::Avatar { state } => c.avatar = *state,
            ServerFrame::Typing(typing) => c.typing = !typing.stop,
            ServerFrame::Message(m) => return self.message_written(conn, &device, m),
            ServerFrame::Media(m) => return self.media_written(conn, &device, m),
            ServerFrame::Prompt(p) => {
                if !self.ledger.cards.contains_key(&p.id) {
                    return Err(format!("card {} is written before it is on disk", p.id));
                }
                if let Some(seq) = p.seq {
                    self.item(conn, &device, seq, &p.id)?;
                }
            }
            ServerFrame::PromptDone(done) => return self.card_end_written(conn, &device, done),
            ServerFrame::Error(error) => {
                if error.code == ErrorCode::AgentOffline
                    && let Some(card) = &error.id
                {
                    for offer in self.offers.values_mut().filter(|offer| offer.card == *card) {
                        offer.void = true;
                    }
                }
            }
            ServerFrame::DeliverDone { .. } | ServerFrame::Pong { .. } => {}
        }
        Ok(())
    }

    /// The item of a frame with a `seq` is on disk and is not an old state of something.
    fn item(&self, conn: ConnId, device: &str, seq: u64, id: &str) -> Result<&What, String> {
        let item = self
            .ledger
            .items
            .get(&(device.to_owned(), seq))
            .ok_or_else(|| format!("item {seq} of {device} is written before it is on disk"))?;
        if item.id != id {
            return Err(format!("item {seq} of {device} is {} on disk and {id} on the wire", item.id));
        }
        let opened = self.conns.get(&conn).and_then(|c| c.ready_at).unwrap_or_default();
        let latest = self.ledger.latest.get(&(device.to_owned(), id.to_owned())).copied().unwrap_or(seq);
        let newer = self.ledger.items.get(&(device.to_owned(), latest));
        if latest > seq && newer.is_some_and(|newer| newer.at < opened) {
            return Err(format!("item {seq} of {device} is replayed though {latest} is newer"));
        }
        Ok(&item.what)
    }

    fn once(&mut self, conn: ConnId, device: &str, seq: u64, id: &str) -> Result<(), String> {
        let key = (device.to_owned(), seq);
        if self.ledger.items.get(&key).is_some_and(|item| item.once) {
            let first = *self.once.entry((device.to_owned(), id.to_owned())).or_insert(conn);
            if first != conn {
                return Err(format!("message {id} of {device} is written again though it is never replayed"));
            }
        }
        Ok(())
    }

    fn message_written(&mut self, conn: ConnId, device: &str, m: &Message) -> Result<(), String> {
        if let Some(c) = self.conns.get_mut(&conn) {
            *c.text_bytes.entry(m.id.clone()).or_default() += m.text.len();
        }
        if m.edit && (m.chunk.index, m.chunk.total) != (0, 1) {
            return Err(format!("message {}: an edit in chunks", m.id));
        }
        let Some(seq) = m.seq else {
            if m.last {
                return Err(format!("message {}: the last frame has no seq", m.id));
            }
            let key = (device.to_owned(), m.id.clone());
            if m.edit && !self.ledger.bubbles.contains(&key) {
                return Err(format!("message {} grows before it is on disk", m.id));
            }
            return Ok(());
        };
        if !m.last {
            return Err(format!("message {}: a frame with seq that is not the last", m.id));
        }
        let What::Message { text } = self.item(conn, device, seq, &m.id)? else {
            return Err(format!("item {seq} of {device} is no message"));
        };
        if m.chunk.total == 1 && *text != m.text {
            return Err(format!("item {seq} of {device} is {text:?} on disk and {:?} on the wire", m.text));
        }
        self.once(conn, device, seq, &m.id)
    }

    fn media_written(&mut self, conn: ConnId, device: &str, m: &Media) -> Result<(), String> {
        match m.seq {
            Some(seq) if m.last => {
                let What::File { bytes, .. } = self.item(conn, device, seq, &m.id)? else {
                    return Err(format!("item {seq} of {device} is no file"));
                };
                if *bytes != m.size {
                    return Err(format!("file {} has another size on disk", m.id));
                }
                self.once(conn, device, seq, &m.id)
            }
            None if !m.last => Ok(()),
            _ => Err(format!("file {}: part {} of {} has the seq {:?}", m.id, m.part, m.parts, m.seq)),
        }
    }

    fn card_end_written(&mut self, conn: ConnId, device: &str, done: &PromptDone) -> Result<(), String> {
        if let Some(seq) = done.seq {
            let What::CardDone { option_id, expired, reason } = self.item(conn, device, seq, &done.id)?
            else {
                return Err(format!("item {seq} of {device} is no end of a card"));
            };
            if (option_id, *expired, reason) != (&done.option_id, done.expired, &done.reason) {
                return Err(format!("the end of card {} is another on disk", done.id));
            }
        } else if self.ledger.cards.get(&done.id).is_some_and(|card| !card.done) {
            return Err(format!("the end of card {} is told before it is on disk", done.id));
        }
        Ok(())
    }

    fn ping(&mut self, conn: ConnId, nonce: u64) {
        self.note(|| format!("< {conn}: ping {nonce}"));
        let way = self.rng.range(0, self.plan.way_ms);
        let Some(c) = self.conns.get_mut(&conn) else { return };
        if c.closing || !c.server {
            return self.fail(format!("a ping on the closed connection {conn}"));
        }
        c.last_down = c.last_down.max(c.free_at.max(self.now) + way);
        let arrives = c.last_down;
        self.at_time(arrives, Ev::Down { conn, what: Down::Ping(nonce) });
    }

    fn close(&mut self, conn: ConnId, code: CloseCode) {
        self.note(|| format!("< {conn}: close {code:?}"));
        let (way, flush) = (self.rng.range(0, self.plan.way_ms), self.rng.below(300));
        let now = self.now;
        let Some(c) = self.conns.get_mut(&conn) else { return };
        if c.closing || !c.server {
            return;
        }
        c.closing = true;
        c.free_at = c.free_at.max(now);
        c.last_down = c.last_down.max(c.free_at + way);
        // The close frame is flushed, or the wire gives up.
        let gone = (c.free_at + flush).min(now + 15_000);
        let arrives = c.last_down;
        self.at_time(arrives, Ev::Down { conn, what: Down::Close(code as u16) });
        self.at_time(gone, Ev::ServerLost { conn, code: None });
    }

    /// Something has reached the disk.
    pub(crate) fn committed(&mut self, note: Note) {
        match note {
            Note::Accepted { device, id } => {
                if let Some(client) = self.clients.iter_mut().find(|client| client.id == device)
                    && let Some(said) = client.said.iter_mut().find(|said| said.id == id)
                {
                    said.accepted = true;
                }
            }
            Note::CardDone { id, option_id, expired, reason } => {
                for offer in self.offers.values_mut().filter(|offer| offer.card == id) {
                    offer.void = true;
                }
                let done = self.card_end(&id, option_id.as_deref(), expired, reason.as_deref());
                self.check(done);
            }
        }
    }

    /// The end of a card names what took effect.
    fn card_end(
        &self,
        card: &str,
        option: Option<&str>,
        expired: bool,
        reason: Option<&str>,
    ) -> Result<(), String> {
        let effects: Vec<_> = self.effects.iter().filter(|effect| effect.card == card).collect();
        let living = self.agent.as_ref().map(|agent| agent.life);
        let named = |life: Option<u64>| {
            effects.iter().any(|effect| {
                life.is_none_or(|life| life == effect.life) && Some(effect.option.as_str()) == option
            })
        };
        if !expired && reason.is_none() && !named(None) {
            return Err(format!("card {card} ended with {option:?}, which nobody did"));
        }
        let done_by_living = effects.iter().any(|effect| Some(effect.life) == living);
        if done_by_living && (expired || !named(living)) {
            return Err(format!(
                "card {card} ended with {option:?}, expired {expired}, reason {reason:?}, but the agent did {effects:?}"
            ));
        }
        Ok(())
    }

    /// Nothing shows work of an agent that is gone.
    pub(crate) fn nothing_sticks(&mut self, loss: u64) {
        if self.agent_lost && loss == self.losses {
            self.nothing_works("gone");
        }
    }

    pub(crate) fn nothing_works(&mut self, why: &str) {
        if !self.disk.idle() || self.gateway.is_none() {
            return;
        }
        let now = self.now;
        let sticks = self.conns.iter().find(|(_, c)| {
            let shows = c.typing || c.avatar == AvatarState::Thinking;
            let open = c.server && !c.closing && c.ready_at.is_some_and(|at| at + 500 < now);
            // What waits in the socket cannot be taken back.
            shows && open && c.unsent == 0
        });
        if let Some((id, _)) = sticks {
            self.fail(format!("connection {id} still shows the work of an agent that is {why}"));
        }
    }
}
