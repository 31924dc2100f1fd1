//! Connections: from the first frame to the close, and what belongs to one without a device.

use std::collections::VecDeque;

use protocol::{
    Millis,
    client::{ClientFrame, Deliver, Hello},
    code::{CloseCode, ErrorCode},
    limits,
    link::{ToAgent, User},
    problem::Problem,
    record::DeviceNo,
    server::ServerFrame,
    words::Lang,
};
use session::Right;

use super::{Core, Deferred, Timer};
use crate::{
    gate::{self, Came, Conn, Greeting, Stage},
    io::{Action, ConnId},
    shared::Ctx,
};

/// A frame that waits for `ready` counts as so many bytes at least.
const LEAST_FRAME: usize = 16;

impl Core {
    pub(super) fn connected(
        &mut self,
        conn: ConnId,
        origin: crate::io::Origin,
        now: Millis,
        out: &mut Vec<Action>,
    ) {
        let state = Conn::new(origin, &self.shared.settings, now);
        self.conns.insert(conn, Box::new(state));
        if self.draining {
            self.close(conn, CloseCode::Restart, now, out);
        }
        self.set_conn_timer(conn);
    }

    /// The device whose connection this is.
    fn device_of_conn(&self, conn: ConnId) -> Option<DeviceNo> {
        let device = match &self.conns.get(&conn)?.stage {
            Stage::Open { device } => *device,
            Stage::Greeted(greeting) => self.here(&greeting.device)?,
            Stage::Hello { .. } | Stage::Sender | Stage::Closing => return None,
        };
        self.is_live(device, conn).then_some(device)
    }

    /// Closes a connection; its device has none from here on.
    pub(super) fn close(&mut self, conn: ConnId, code: CloseCode, now: Millis, out: &mut Vec<Action>) {
        if let Some(device) = self.device_of_conn(conn) {
            self.with_device(device, now, out, |device, ctx| device.closed(None, ctx));
        }
        if let Some(state) = self.conns.get_mut(&conn) {
            state.stage = Stage::Closing;
        }
        out.push(Action::Close { conn, code });
        self.set_conn_timer(conn);
    }

    pub(super) fn refuse_conn(
        &mut self,
        conn: ConnId,
        problem: &Problem,
        code: CloseCode,
        now: Millis,
        out: &mut Vec<Action>,
    ) {
        let lang = self.conns.get(&conn).map_or(self.shared.settings.lang, |state| state.lang);
        // Being locked out is not for ever.
        let fatal = code != CloseCode::Overloaded;
        out.push(Action::Send { conn, text: gate::error(problem, fatal, lang).encode() });
        self.close(conn, code, now, out);
    }

    pub(super) fn too_long(&mut self, conn: ConnId, now: Millis, out: &mut Vec<Action>) {
        let Some(state) = self.conns.get(&conn) else { return };
        let limit = match state.stage {
            Stage::Closing => return,
            Stage::Open { .. } | Stage::Sender => limits::FRAME_AFTER_READY,
            _ => limits::FRAME_BEFORE_READY,
        };
        let problem =
            Problem::new(ErrorCode::TooBig, format!("a message must be at most {limit} bytes here"));
        self.refuse_conn(conn, &problem, CloseCode::TooLarge, now, out);
    }

    pub(super) fn closed(&mut self, conn: ConnId, code: Option<u16>, now: Millis, out: &mut Vec<Action>) {
        let Some(state) = self.conns.get_mut(&conn) else { return };
        // Whole frames that came before the end still count, also those that wait for `ready`.
        if let Stage::Greeted(greeting) = &state.stage
            && !greeting.early.is_empty()
        {
            let device = greeting.device.clone();
            match self.here(&device) {
                Some(device) if self.is_live(device, conn) => self.flush_early(conn, device, now, out),
                Some(_) => {}
                None => {
                    if let Some(state) = self.conns.get_mut(&conn) {
                        state.gone = true;
                    }
                    return;
                }
            }
        }
        if let Some(device) = self.device_of_conn(conn) {
            self.with_device(device, now, out, |device, ctx| device.closed(code, ctx));
        }
        let Some(state) = self.conns.remove(&conn) else { return };
        if let Some(at) = state.timer {
            self.timers.remove(&(at, Timer::Conn(conn)));
        }
    }

    pub(super) fn is_live(&self, device: DeviceNo, conn: ConnId) -> bool {
        self.devices
            .get(&device)
            .and_then(|device| device.live.as_ref())
            .is_some_and(|live| live.conn == conn)
    }

    pub(super) fn frame(
        &mut self,
        conn: ConnId,
        bytes: usize,
        frame: Came,
        now: Millis,
        out: &mut Vec<Action>,
    ) {
        let Some(state) = self.conns.get_mut(&conn) else { return };
        match &mut state.stage {
            Stage::Closing => {}
            Stage::Hello { .. } => self.first_frame(conn, frame, now, out),
            Stage::Greeted(greeting) => {
                // A frame holds memory also when it is empty.
                greeting.bytes += bytes.max(LEAST_FRAME);
                if greeting.bytes > limits::PENDING_BEFORE_READY {
                    let limit = limits::PENDING_BEFORE_READY;
                    let problem = Problem::new(
                        ErrorCode::TooBig,
                        format!("at most {limit} bytes may be sent before ready"),
                    );
                    self.refuse_conn(conn, &problem, CloseCode::TooLarge, now, out);
                } else {
                    greeting.early.push_back(frame);
                }
            }
            Stage::Open { device } => {
                let device = *device;
                self.open_frame(conn, device, frame, now, out);
            }
            Stage::Sender => self.sender_frame(conn, frame, now, out),
        }
    }

    pub(super) fn open_frame(
        &mut self,
        conn: ConnId,
        device: DeviceNo,
        frame: Came,
        now: Millis,
        out: &mut Vec<Action>,
    ) {
        if !self.is_live(device, conn) {
            return;
        }
        match frame {
            Ok(ClientFrame::Deliver(deliver)) => self.deliver(conn, deliver, now, out),
            frame => self.with_device(device, now, out, |device, ctx| device.frame(frame, ctx)),
        }
    }

    pub(super) fn sender_frame(&mut self, conn: ConnId, frame: Came, now: Millis, out: &mut Vec<Action>) {
        let Some(state) = self.conns.get_mut(&conn) else { return };
        let lang = state.lang;
        let answer = match frame {
            Ok(ClientFrame::Deliver(deliver)) => {
                state.rubbish = 0;
                self.deliver(conn, deliver, now, out);
                return;
            }
            Ok(ClientFrame::Ping { ts }) => ServerFrame::Pong { ts },
            Ok(ClientFrame::Unknown { .. }) => return,
            Ok(frame) => {
                let id = match frame {
                    ClientFrame::Text(text) => text.id,
                    ClientFrame::Media(part) => part.id,
                    ClientFrame::Prompt(answer) => Some(answer.prompt_id),
                    _ => None,
                };
                let why = "a connection without device can only deliver and ping";
                gate::error(&Problem::new(ErrorCode::Forbidden, why).with_id(id), false, lang)
            }
            Err(problem) => {
                state.rubbish = if problem.rubbish { state.rubbish + 1 } else { 0 };
                if state.rubbish >= limits::BAD_FRAMES {
                    self.refuse_conn(conn, &problem, CloseCode::Rubbish, now, out);
                    return;
                }
                gate::error(&problem, false, lang)
            }
        };
        self.answer_conn(conn, &answer, now, out);
    }

    /// Answers on a connection, and counts what its socket has not taken: who asks and never reads is cut off.
    fn answer_conn(&mut self, conn: ConnId, frame: &ServerFrame, now: Millis, out: &mut Vec<Action>) {
        let Some(state) = self.conns.get_mut(&conn) else { return };
        if let Stage::Open { device } = state.stage {
            self.with_device(device, now, out, |device, ctx| device.answer(frame, ctx));
            return;
        }
        let text = frame.encode();
        state.unsent += text.len();
        let slow = state.unsent > self.shared.settings.queue_bytes;
        out.push(Action::Send { conn, text });
        if slow {
            self.close(conn, CloseCode::Overloaded, now, out);
        }
    }

    /// Reports go to the connections that are still there.
    pub(super) fn send_replies(&mut self, now: Millis, out: &mut Vec<Action>) {
        for (conn, frame) in std::mem::take(&mut self.shared.replies) {
            match self.conns.get(&conn).map(|state| &state.stage) {
                None | Some(Stage::Closing) => {}
                Some(Stage::Open { device }) if self.is_live(*device, conn) => {
                    let device = *device;
                    if let Some(device) = self.devices.get_mut(&device) {
                        device.answer(&frame, &mut Ctx { now, shared: &mut self.shared, out });
                    }
                }
                Some(Stage::Open { .. }) => {}
                Some(_) => {
                    let text = frame.encode();
                    if let Some(state) = self.conns.get_mut(&conn) {
                        state.unsent += text.len();
                    }
                    out.push(Action::Send { conn, text });
                }
            }
        }
    }

    /// The socket took bytes.
    pub(super) fn drained(&mut self, conn: ConnId, bytes: usize, now: Millis, out: &mut Vec<Action>) {
        if let Some(state) = self.conns.get_mut(&conn) {
            state.unsent = state.unsent.saturating_sub(bytes);
        }
        self.on_conn_device(conn, now, out, |device, _| device.drained(bytes));
    }

    pub(super) fn first_frame(&mut self, conn: ConnId, frame: Came, now: Millis, out: &mut Vec<Action>) {
        let hello = match frame {
            Ok(ClientFrame::Hello(hello)) => hello,
            Err(problem) if problem.in_hello => {
                self.refuse_conn(conn, &problem, CloseCode::Denied, now, out);
                return;
            }
            _ => {
                let problem = Problem::new(
                    ErrorCode::AuthRequired,
                    "the first frame must be a JSON object with t = hello",
                );
                self.refuse_conn(conn, &problem, CloseCode::Denied, now, out);
                return;
            }
        };
        let Some(state) = self.conns.get_mut(&conn) else { return };
        if let Some(lang) = hello.lang.as_deref().and_then(Lang::from_tag) {
            state.lang = lang;
        }
        // Neither address nor token is needed any more after this.
        let Some(origin) = state.origin.take() else { return };
        let crate::io::Origin { loopback, address, token } = *origin;
        if !loopback && let Some(left) = self.logins.locked(&address, now) {
            let mut problem = Problem::new(
                ErrorCode::RateLimited,
                "too many wrong tokens from this address: try again later",
            );
            problem.retry_after_ms = Some(left);
            self.refuse_conn(conn, &problem, CloseCode::Overloaded, now, out);
            return;
        }
        let who = match self.shared.settings.access.check(&hello, token.as_deref(), loopback) {
            Ok(who) => who,
            Err(problem) => {
                if !loopback && !self.shared.settings.access.knows(&hello, token.as_deref()) {
                    self.logins.count(&address, now);
                }
                self.refuse_conn(conn, &problem, CloseCode::Denied, now, out);
                return;
            }
        };
        state.credential = Some(who.credential.clone());
        state.delivers = who.deliver == Right::Yes;
        match who.device.clone() {
            None => {
                state.stage = Stage::Sender;
                out.push(Action::Opened { conn });
                let text = gate::ready("", None, &self.shared.settings).encode();
                out.push(Action::Send { conn, text });
            }
            Some(device) => {
                let greeting = Greeting { device: device.clone(), who, early: VecDeque::new(), bytes: 0 };
                state.stage = Stage::Greeted(Box::new(greeting));
                self.with_slot(device, Deferred::Hello(conn, hello), now, out);
            }
        }
        self.set_conn_timer(conn);
    }

    /// A `hello` was accepted and its device is here.
    pub(super) fn greet(
        &mut self,
        conn: ConnId,
        hello: &Hello,
        device: DeviceNo,
        now: Millis,
        out: &mut Vec<Action>,
    ) {
        let Some(state) = self.conns.get(&conn) else { return };
        let Stage::Greeted(greeting) = &state.stage else { return };
        let (who, lang) = (greeting.who.clone(), state.lang);
        let user = User { id: who.user.clone(), name: hello.user_name.clone(), proven: who.proven };
        let older = self.devices.get(&device).and_then(|device| device.live.as_ref()).map(|live| live.conn);
        if let Some(older) = older {
            // Whole frames that the older one had sent before its own `ready` still count.
            let problem =
                Problem::new(ErrorCode::Replaced, "a newer connection of this device has taken over");
            self.flush_early(older, device, now, out);
            if self.is_live(device, older) {
                self.refuse_conn(older, &problem, CloseCode::Replaced, now, out);
            }
        }
        let hello_device = hello.device.clone();
        self.with_device(device, now, out, |device, ctx| {
            device.connected(conn, older.is_some(), hello_device, user, hello.lang.clone(), lang, ctx);
        });
        self.opened(device, now, out);
        if self.conns.get(&conn).is_some_and(|state| state.gone) {
            self.closed(conn, None, now, out);
        }
    }

    /// Frames that were sent before `ready` by a connection that will never get one.
    pub(super) fn flush_early(&mut self, conn: ConnId, device: DeviceNo, now: Millis, out: &mut Vec<Action>) {
        let Some(state) = self.conns.get_mut(&conn) else { return };
        if let Stage::Greeted(greeting) = &mut state.stage {
            for frame in std::mem::take(&mut greeting.early) {
                if let Ok(ClientFrame::Deliver(deliver)) = frame {
                    self.deliver(conn, deliver, now, out);
                } else {
                    self.with_device(device, now, out, |device, ctx| device.frame(frame, ctx));
                }
            }
        }
    }

    /// If `ready` has been written for the device's connection, the connection is open and what came early is handled.
    pub(super) fn opened(&mut self, device: DeviceNo, now: Millis, out: &mut Vec<Action>) {
        let Some(conn) = self
            .devices
            .get(&device)
            .and_then(|device| device.live.as_ref())
            .filter(|live| live.ready)
            .map(|live| live.conn)
        else {
            return;
        };
        let Some(state) = self.conns.get_mut(&conn) else { return };
        let Stage::Greeted(greeting) = &mut state.stage else { return };
        let early = std::mem::take(&mut greeting.early);
        state.stage = Stage::Open { device };
        self.presence(device, true, out);
        if let Some(device) = self.devices.get_mut(&device) {
            device.told_online = true;
        }
        for frame in early {
            self.open_frame(conn, device, frame, now, out);
        }
    }

    pub(super) fn presence(&self, device: DeviceNo, online: bool, out: &mut Vec<Action>) {
        if let (Some(agent), Some(device)) = (&self.shared.agent, self.devices.get(&device)) {
            let frame = ToAgent::Presence { device: device.id().to_owned(), online };
            out.push(Action::ToAgent { agent: agent.id, frame });
        }
    }

    pub(super) fn deliver(&mut self, conn: ConnId, deliver: Deliver, now: Millis, out: &mut Vec<Action>) {
        let Some(state) = self.conns.get_mut(&conn) else { return };
        let lang = state.lang;
        let rate = state.frames.take(now);
        let problem = if let Err(retry_after) = rate {
            let mut problem = Problem::new(ErrorCode::RateLimited, "too many frames: send it again later");
            problem.retry_after_ms = Some(retry_after);
            problem
        } else if state.delivers {
            self.deliver_to(conn, deliver, now, out);
            return;
        } else {
            let why = "deliver is allowed from a loopback peer or with a deliver token";
            Problem::new(ErrorCode::Forbidden, why)
        };
        self.answer_conn(conn, &gate::error(&problem.with_id(Some(deliver.id)), false, lang), now, out);
    }

    pub(super) fn deliver_to(&mut self, conn: ConnId, deliver: Deliver, now: Millis, out: &mut Vec<Action>) {
        self.with_slot(deliver.target.clone(), Deferred::Deliver(conn, deliver), now, out);
    }
}
