//! The client without I/O: inputs go in with the time, actions come out.
//!
//! States: idle → connecting → hello → online → waiting (offline, an attempt is planned) → connecting … and *ended*, which is final until the
//! app starts anew: after [`Input::Stop`], after a close with 1008, 4001, 1003 or 1009, and after a fatal error that no retry mends.
//!
//! The driver owns socket and clock: it feeds [`Client::handle`], carries the actions out in order, and sends
//! [`Input::Tick`] at [`Client::deadline`]. Time is milliseconds of any clock that does not run backwards.

pub mod backoff;
mod bubbles;
mod config;
mod decode;
pub mod event;
mod files;
mod link;
mod outbox;
mod presence;
#[cfg(test)]
mod tests;

use protocol::{
    code::{AfterClose, CloseCode, ErrorCode},
    id::IdMaker,
    limits,
    server::Ready,
};
use serde_json::json;

use self::{
    backoff::Backoff,
    bubbles::Bubbles,
    decode::Incoming,
    files::Files,
    link::Link,
    outbox::{Outbox, Stage},
    presence::Presence,
};
pub use self::{
    config::{Config, Device, RETRY_AFTER_CAP_MS, User},
    event::{Action, Bubble, ErrorInfo, Event, Failure, File, FileKind, Input, Request, SubmitError, Why},
};

/// So many bytes may be handed over and not yet written before the next frame waits.
const UNWRITTEN: usize = 256 * 1024;
/// Largest part of a file, decoded bytes.
const PART_CEILING: usize = 3_000_000;
/// Complaints of the server in a row that end an item; the server has the same rule for us.
const COMPLAINTS: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Connecting { until: u64 },
    Hello { until: u64 },
    Online { since: u64 },
    Waiting { until: u64 },
    Ended,
}

/// One device of one person, or a connection that only delivers.
#[derive(Debug)]
pub struct Client {
    config: Config,
    state: State,
    backoff: Backoff,
    ids: IdMaker,
    outbox: Outbox,
    bubbles: Bubbles,
    files: Files,
    presence: Presence,
    link: Link,
    /// Number of the last ping, never reused.
    pings: u64,
    /// Nothing is sent before this.
    paused_until: Option<u64>,
    /// The server asked not to come back before so long.
    retry_floor: u64,
    max_text_chars: u64,
    max_media_bytes: u64,
    part_bytes: usize,
}

impl Client {
    /// An idle client: [`Input::Start`] makes it connect.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let mut seed = 0u64;
        for (i, byte) in config.seed.iter().enumerate() {
            seed ^= u64::from(*byte) << (8 * (i % 8));
        }
        Self {
            state: State::Idle,
            backoff: Backoff::new(seed, config.backoff_ms, config.backoff_cap_ms),
            ids: IdMaker::new(config.seed),
            outbox: Outbox::new(config.outbox_items, config.outbox_bytes),
            bubbles: Bubbles::default(),
            files: Files::new(config.file_bytes),
            presence: Presence::new(config.typing_ms, config.avatar_ms),
            link: Link::new(0),
            pings: 0,
            paused_until: None,
            retry_floor: 0,
            max_text_chars: limits::TEXT_CHARS as u64,
            max_media_bytes: limits::FILE_BYTES as u64,
            part_bytes: config.part_bytes.clamp(1, PART_CEILING),
            config,
        }
    }

    /// Takes something to be sent and returns its id, which it keeps on every retry; it waits while there is no connection.
    /// `id`: the caller's own, else one is made.
    ///
    /// # Errors
    /// [`SubmitError`]: over a limit, or the outbox is full. Nothing was taken.
    pub fn submit(
        &mut self,
        request: Request,
        id: Option<String>,
        now: u64,
        out: &mut Vec<Action>,
    ) -> Result<String, SubmitError> {
        self.check(&request)?;
        let id = match (&request, id) {
            (Request::Answer { prompt_id, .. }, _) => prompt_id.clone(),
            (_, Some(id)) => id,
            (_, None) => self.ids.make("c"),
        };
        if id.is_empty() || id.chars().count() > limits::ID_CHARS {
            return Err(SubmitError::Id);
        }
        if let Some(at) = self.outbox.find(&id) {
            // A newer answer to a card takes the place of the older: after a reconnect only the newer may be sent.
            if !matches!(request, Request::Answer { .. }) {
                return Err(SubmitError::Id);
            }
            self.outbox.take(at);
        }
        if !self.outbox.push(id.clone(), request, self.part_bytes) {
            return Err(SubmitError::Full);
        }
        self.pump(now, out);
        Ok(id)
    }

    fn check(&self, request: &Request) -> Result<(), SubmitError> {
        let chars = |text: &str, max: u64| {
            let count = u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
            if count > max { Err(SubmitError::LongText(max)) } else { Ok(()) }
        };
        match request {
            Request::Text(text) | Request::Deliver { text, .. } => {
                if text.trim().is_empty() {
                    return Err(SubmitError::Empty);
                }
                chars(text, self.max_text_chars)
            }
            Request::Answer { text, .. } => chars(text.as_deref().unwrap_or_default(), self.max_text_chars),
            Request::File { bytes, .. } | Request::Voice { bytes, .. } => {
                if bytes.is_empty() {
                    return Err(SubmitError::EmptyFile);
                }
                if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > self.max_media_bytes {
                    return Err(SubmitError::LargeFile(self.max_media_bytes));
                }
                if let Request::File { caption: Some(caption), .. } = request {
                    chars(caption, limits::CAPTION_CHARS as u64)?;
                }
                Ok(())
            }
        }
    }

    /// How many items wait, or have neither proof nor result.
    #[must_use]
    pub fn unsettled(&self) -> usize {
        self.outbox.unsettled()
    }

    /// Whether the session is open.
    #[must_use]
    pub fn is_online(&self) -> bool {
        matches!(self.state, State::Online { .. })
    }

    /// When [`Input::Tick`] is due; never later than told, and earlier does no harm.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        let state = match self.state {
            State::Idle | State::Ended => None,
            State::Connecting { until } | State::Hello { until } | State::Waiting { until } => Some(until),
            State::Online { .. } => self.link.deadline(&self.config),
        };
        let kept = self.outbox.iter().filter_map(|i| match i.stage {
            Stage::Accepted { at } => Some(at.saturating_add(self.config.keep_ms)),
            _ => None,
        });
        kept.chain(state).chain(self.paused_until).chain(self.presence.deadline()).min()
    }

    /// Takes an input. `now` never runs backwards.
    pub fn handle(&mut self, input: Input, now: u64, out: &mut Vec<Action>) {
        match (input, self.state) {
            (Input::Start, State::Idle | State::Ended) => {
                self.backoff.reset();
                self.retry_floor = 0;
                self.connect(now, out);
            }
            (Input::Start, State::Waiting { .. }) => self.connect(now, out),
            (Input::Opened, State::Connecting { .. }) => {
                self.link = Link::new(now);
                self.state = State::Hello { until: now.saturating_add(self.config.ready_ms) };
                let hello = self.hello();
                self.link.hand(hello.len(), None);
                out.push(Action::Send(hello));
            }
            (Input::ConnectFailed { status: Some(401 | 403), .. }, State::Connecting { .. }) => {
                self.refused(CloseCode::Denied as u16, None, now, out);
            }
            (Input::ConnectFailed { status, detail }, State::Connecting { .. }) => {
                self.lost(Why::Connect { status, detail }, now, out);
            }
            (Input::Frame(text), State::Hello { .. } | State::Online { .. }) => {
                self.link.heard = now;
                match decode::decode(&text) {
                    Ok(frame) => self.frame(frame, now, out),
                    Err(detail) => out.push(Action::Tell(Event::Damaged(detail))),
                }
            }
            (Input::Alive, State::Hello { .. } | State::Online { .. }) => self.link.heard = now,
            (Input::Sent, State::Hello { .. } | State::Online { .. }) => {
                if let Some(progress) = self.link.written() {
                    out.push(Action::Tell(progress));
                }
                self.pump(now, out);
            }
            (
                Input::Closed { code },
                State::Connecting { .. } | State::Hello { .. } | State::Online { .. },
            ) => {
                self.closed(code, now, out);
            }
            (Input::Tick, _) => self.tick(now, out),
            (Input::Stop, state) => {
                match state {
                    State::Connecting { .. } => out.push(Action::Drop),
                    State::Hello { .. } | State::Online { .. } => {
                        out.push(Action::Close(CloseCode::Normal as u16))
                    }
                    State::Idle | State::Waiting { .. } | State::Ended => {}
                }
                if state != State::Ended {
                    self.down(now, out);
                    self.state = State::Ended;
                    out.push(Action::Tell(Event::Stopped));
                }
            }
            // What does not belong to this state is about a connection that is no more.
            _ => {}
        }
    }

    fn connect(&mut self, now: u64, out: &mut Vec<Action>) {
        self.state = State::Connecting { until: now.saturating_add(self.config.connect_ms) };
        out.push(Action::Tell(Event::Connecting));
        out.push(Action::Connect);
    }

    fn hello(&self) -> String {
        let mut hello = json!({ "t": "hello", "v": 1 });
        if let Some(token) = &self.config.token {
            hello["token"] = json!(token);
        }
        if let Some(device) = &self.config.device {
            let mut value = json!({ "id": device.id });
            for (name, label) in
                [("name", &device.name), ("platform", &device.platform), ("app_version", &device.app_version)]
            {
                if let Some(label) = label {
                    value[name] = json!(label);
                }
            }
            hello["device"] = value;
        }
        if let Some(user) = &self.config.user {
            let mut value = json!({});
            if let Some(id) = &user.id {
                value["id"] = json!(id);
            }
            if let Some(name) = &user.name {
                value["name"] = json!(name);
            }
            hello["user"] = value;
        }
        if let Some(lang) = &self.config.lang {
            hello["lang"] = json!(lang);
        }
        hello.to_string()
    }

    fn frame(&mut self, frame: Incoming, now: u64, out: &mut Vec<Action>) {
        let hello = matches!(self.state, State::Hello { .. });
        match frame {
            Incoming::Ready(ready) => {
                self.limits(&ready);
                if hello {
                    self.state = State::Online { since: now };
                    out.push(Action::Tell(Event::Ready(ready)));
                    self.pump(now, out);
                }
            }
            Incoming::Error(error) => self.error(error, now, out),
            // Before `ready` nothing else is due.
            _ if hello => {}
            Incoming::Message(message) => {
                out.extend(event_of(self.bubbles.take(message), Event::Message).map(Action::Tell))
            }
            Incoming::Media(media) => {
                out.extend(event_of(self.files.take(media), Event::Media).map(Action::Tell))
            }
            Incoming::Prompt(card) if card.options.is_empty() => {
                out.push(Action::Tell(Event::Damaged("prompt: no options".into())));
            }
            Incoming::Prompt(card) => out.push(Action::Tell(self.presence.card(card, now))),
            Incoming::PromptDone(done) => {
                if let Some(at) = self.outbox.find(&done.id) {
                    self.outbox.take(at);
                }
                out.push(Action::Tell(self.presence.card_done(done)));
                self.pump(now, out);
            }
            Incoming::Avatar(state) => out.extend(self.presence.avatar(state, now).map(Action::Tell)),
            Incoming::Typing(typing) => out.extend(self.presence.typing(typing, now).map(Action::Tell)),
            Incoming::Pong(Some(number)) => self.pong(number, now, out),
            Incoming::DeliverDone { id, target, state } => {
                if let Some(at) = self.outbox.find(&id) {
                    self.outbox.take(at);
                    out.push(Action::Tell(Event::Delivered { id, target, state }));
                    self.pump(now, out);
                }
            }
            Incoming::Pong(None) | Incoming::Unknown => {}
        }
    }

    /// What this server takes. What it does not say is as the protocol has it.
    fn limits(&mut self, ready: &Ready) {
        self.max_text_chars = ready.capabilities.max_text_chars.max(1);
        self.max_media_bytes = ready.capabilities.max_media_bytes;
        let frame = ready.limits.as_ref().map_or(limits::FRAME_AFTER_READY as u64, |l| l.frame_bytes);
        // Four letters for three bytes, and room for the other fields of the frame.
        let room = usize::try_from(frame / 4 * 3).unwrap_or(usize::MAX).saturating_sub(32 * 1024);
        self.part_bytes = self.config.part_bytes.min(PART_CEILING).min(room).max(1);
    }

    fn pong(&mut self, number: u64, now: u64, out: &mut Vec<Action>) {
        let Some(before) = self.link.pong(number) else { return };
        for item in self.outbox.iter_mut() {
            let proven = matches!(item.stage, Stage::Sent { frame } if frame < before);
            if proven && item.by_pong() {
                item.stage = Stage::Accepted { at: now };
                item.complaints = 0;
                if !std::mem::replace(&mut item.told, true) {
                    out.push(Action::Tell(Event::Accepted { id: item.id.clone() }));
                }
            }
        }
        self.pump(now, out);
    }

    fn error(&mut self, error: ErrorInfo, now: u64, out: &mut Vec<Action>) {
        use ErrorCode as Code;
        let later = matches!(error.code, Some(Code::RateLimited | Code::AgentOffline | Code::Internal));
        let asked = error.retry_after_ms.unwrap_or(0).min(RETRY_AFTER_CAP_MS);
        self.retry_floor = self.retry_floor.max(asked);
        if error.fatal && !later {
            out.push(Action::Close(CloseCode::Normal as u16));
            let code = match error.code {
                Some(Code::Replaced) => CloseCode::Replaced,
                Some(Code::TooBig) => CloseCode::TooLarge,
                Some(Code::BadFrame) if self.is_online() => CloseCode::Rubbish,
                _ => CloseCode::Denied,
            };
            self.refused(code as u16, Some(error), now, out);
            return;
        }
        let at = error.id.as_deref().and_then(|id| self.outbox.find(id));
        let Some((at, item)) = at.and_then(|at| Some((at, self.outbox.get_mut(at)?))) else {
            if error.code == Some(Code::RateLimited) && self.is_online() {
                self.paused_until = Some(self.paused_until.unwrap_or(0).max(now.saturating_add(asked)));
            }
            out.push(Action::Tell(Event::Error(error)));
            return;
        };
        // An answer that the agent did not take was withdrawn: the person decides again.
        let answer = matches!(item.request, Request::Answer { .. }) && error.code != Some(Code::RateLimited);
        if later && !answer {
            // Several parts of one file may be refused at once: that is one try.
            if item.stage != Stage::Waiting || item.part > 0 {
                item.again();
                item.tries += 1;
            }
            if item.tries <= self.config.tries {
                let tries = item.tries.min(16);
                let wait = if error.retry_after_ms.is_some() { asked } else { (1_000 << tries).min(30_000) };
                self.paused_until = Some(self.paused_until.unwrap_or(0).max(now.saturating_add(wait)));
                if error.code != Some(Code::RateLimited) {
                    out.push(Action::Tell(Event::Error(error)));
                }
                return;
            }
        }
        if let Some(item) = self.outbox.take(at) {
            out.push(Action::Tell(Event::Failed { id: item.id, why: Failure::Refused(error) }));
        }
        self.pump(now, out);
    }

    fn closed(&mut self, code: Option<u16>, now: u64, out: &mut Vec<Action>) {
        let Some(code) = code else {
            self.lost(Why::Cut, now, out);
            return;
        };
        let known = [CloseCode::Denied, CloseCode::Replaced, CloseCode::Rubbish, CloseCode::TooLarge];
        if let Some(known) = known.into_iter().find(|k| *k as u16 == code && k.after() == AfterClose::Stop) {
            self.refused(known as u16, None, now, out);
            return;
        }
        if matches!(code, 1002 | 1007 | 1011) {
            self.complaint(out);
        }
        self.lost(Why::Closed { code }, now, out);
    }

    /// The server ended the connection over what we sent. Without this, one such item makes a loop without an end.
    fn complaint(&mut self, out: &mut Vec<Action>) {
        let Some(at) = self.outbox.iter().position(outbox::Item::in_flight) else { return };
        let Some(item) = self.outbox.get_mut(at) else { return };
        item.complaints += 1;
        if item.complaints >= COMPLAINTS
            && let Some(item) = self.outbox.take(at)
        {
            out.push(Action::Tell(Event::Failed { id: item.id, why: Failure::Complaint }));
        }
    }

    fn refused(&mut self, code: u16, error: Option<ErrorInfo>, now: u64, out: &mut Vec<Action>) {
        if code == CloseCode::TooLarge as u16 {
            // The error has no id, since only the length was seen: it was the longest frame.
            let named = error.as_ref().and_then(|e| e.id.as_deref()).and_then(|id| self.outbox.find(id));
            let longest = || {
                let flying = self.outbox.iter().enumerate().filter(|(_, i)| i.in_flight());
                flying.max_by_key(|(_, i)| i.longest).map(|(at, _)| at)
            };
            if let Some(item) = named.or_else(longest).and_then(|at| self.outbox.take(at)) {
                out.push(Action::Tell(Event::Failed { id: item.id, why: Failure::TooLarge }));
            }
        }
        self.down(now, out);
        self.state = State::Ended;
        out.push(Action::Tell(Event::Refused { code, error }));
    }

    fn lost(&mut self, why: Why, now: u64, out: &mut Vec<Action>) {
        if let State::Online { since } = self.state
            && now.saturating_sub(since) >= self.config.steady_ms
        {
            self.backoff.reset();
        }
        self.down(now, out);
        let wait = self.backoff.wait().max(std::mem::take(&mut self.retry_floor));
        self.state = State::Waiting { until: now.saturating_add(wait) };
        out.push(Action::Tell(Event::Offline { retry_in: wait, why }));
    }

    /// No connection any more: what is not surely with the server is sent again on the next one, in its old order.
    fn down(&mut self, now: u64, out: &mut Vec<Action>) {
        self.outbox.forget(now.saturating_sub(self.config.keep_ms));
        for item in self.outbox.iter_mut() {
            item.again();
            item.longest = 0;
        }
        self.files.cut();
        out.extend(self.presence.cut().into_iter().map(Action::Tell));
        self.link = Link::new(now);
    }

    fn tick(&mut self, now: u64, out: &mut Vec<Action>) {
        out.extend(self.presence.expire(now).into_iter().map(Action::Tell));
        self.outbox.forget(now.saturating_sub(self.config.keep_ms));
        if self.paused_until.is_some_and(|t| t <= now) {
            self.paused_until = None;
        }
        match self.state {
            State::Connecting { until } | State::Hello { until } if until <= now => {
                out.push(Action::Drop);
                self.lost(Why::Late, now, out);
            }
            State::Waiting { until } if until <= now => self.connect(now, out),
            State::Online { .. } if self.link.dead(&self.config, now) => {
                out.push(Action::Drop);
                self.lost(Why::Silent, now, out);
            }
            State::Online { .. } => {
                if self.link.quiet(&self.config, now) {
                    self.ping(out);
                }
                self.pump(now, out);
            }
            _ => {}
        }
    }

    /// Hands over what may be sent now, and asks for proof of it.
    fn pump(&mut self, now: u64, out: &mut Vec<Action>) {
        if !self.is_online() {
            return;
        }
        let paused = self.paused_until.is_some_and(|t| t > now);
        while !paused && self.link.unwritten() < UNWRITTEN {
            let Some(item) = self.outbox.next(self.config.window) else { break };
            let (frame, sent) = item.frame();
            let progress = match &item.request {
                Request::File { bytes, .. } | Request::Voice { bytes, .. } => Some(Event::Progress {
                    id: item.id.clone(),
                    sent,
                    total: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
                }),
                _ => None,
            };
            let number = self.link.hand(frame.len(), progress);
            if item.part >= item.parts {
                item.stage = Stage::Sent { frame: number };
            }
            out.push(Action::Send(frame));
        }
        let unproven = |i: &outbox::Item| i.by_pong() && matches!(i.stage, Stage::Sent { .. });
        if !self.link.pinging() && self.outbox.iter().any(unproven) {
            self.ping(out);
        }
    }

    fn ping(&mut self, out: &mut Vec<Action>) {
        self.pings += 1;
        let frame = json!({ "t": "ping", "ts": self.pings }).to_string();
        self.link.ping(self.pings, frame.len());
        out.push(Action::Send(frame));
    }
}

fn event_of<T>(result: Result<Option<T>, String>, event: impl FnOnce(T) -> Event) -> Option<Event> {
    match result {
        Ok(item) => item.map(event),
        Err(detail) => Some(Event::Damaged(detail)),
    }
}
