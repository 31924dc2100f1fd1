//! The core: all devices, all connections, the agent. One input at a time; what it causes shares one batch.

use std::collections::{BTreeSet, HashMap, VecDeque};

use protocol::{
    Millis,
    client::{ClientFrame, Deliver, Hello},
    code::{CloseCode, ErrorCode},
    limits,
    link::{Answer, FromAgent, ToAgent, User},
    problem::Problem,
    record::{Batch, DeviceNo, Loaded},
    server::ServerFrame,
    words::Lang,
};
use session::{Credential, Identity, Right, rate::Logins};

use crate::{
    device::{Device, Who},
    gate::{self, Came, Conn, Stage},
    io::{Action, AgentId, Attach, ConnId, Input, Settings},
    shared::{AgentNow, Ctx, Shared, call_error},
};

/// What waits while a device is being loaded.
#[derive(Debug)]
enum Deferred {
    Hello(ConnId, Box<Hello>),
    Call(AgentId, FromAgent),
    Deliver(ConnId, Deliver),
}

#[derive(Debug)]
enum Slot {
    Loading(Vec<Deferred>),
    Here(DeviceNo),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Conn(ConnId),
    Device(DeviceNo),
    Agent,
}

/// The core. See the crate's documentation.
#[derive(Debug)]
pub struct Core {
    shared: Shared,
    devices: HashMap<DeviceNo, Box<Device>>,
    slots: HashMap<String, Slot>,
    conns: HashMap<ConnId, Conn>,
    timers: BTreeSet<(Millis, Timer)>,
    agent_timer: Option<Millis>,
    logins: Logins,
    next_device: DeviceNo,
    /// Batches under way and the devices that have a part in them.
    under_way: VecDeque<(u64, DeviceNo)>,
    touched: Vec<DeviceNo>,
    draining: bool,
}

impl Core {
    /// A core for a store that was just opened.
    #[must_use]
    pub fn new(settings: Settings, now: Millis) -> Self {
        Self {
            logins: Logins::new(settings.lockout_after, settings.lockout_ms),
            next_device: settings.next_device.max(1),
            shared: Shared::new(settings, now),
            devices: HashMap::new(),
            slots: HashMap::new(),
            conns: HashMap::new(),
            timers: BTreeSet::new(),
            agent_timer: None,
            under_way: VecDeque::new(),
            touched: Vec::new(),
            draining: false,
        }
    }

    /// Loads the devices that have something to do without being connected.
    pub fn start(&mut self, wake: Vec<String>, now: Millis, out: &mut Vec<Action>) {
        for device in wake {
            self.load(device, now, out);
        }
    }

    /// When [`Input::Tick`] is wanted.
    #[must_use]
    pub fn deadline(&self) -> Option<Millis> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Handles one input. `now` never runs backwards.
    pub fn handle(&mut self, input: Input, now: Millis, out: &mut Vec<Action>) {
        match input {
            Input::Connected { conn, origin } => self.connected(conn, origin, now, out),
            Input::Frame { conn, bytes, frame } => self.frame(conn, bytes, frame, now, out),
            Input::TooLong { conn } => self.too_long(conn, now, out),
            Input::Pong { conn, nonce } => {
                self.on_conn_device(conn, now, out, |device, ctx| device.pong(nonce, ctx))
            }
            Input::Drained { conn, bytes } => {
                self.on_conn_device(conn, now, out, |device, _| device.drained(bytes))
            }
            Input::Closed { conn, code } => self.closed(conn, code, now, out),
            Input::Stored { upto } => self.stored(upto, now, out),
            Input::StoreFailed { from, upto, why } => self.store_failed(from, upto, &why, now, out),
            Input::Loaded { device, loaded } => self.loaded(device, loaded, now, out),
            Input::Rows { device, ticket, rows } => {
                self.on_device(device, now, out, |device, ctx| device.rows(ticket, rows, ctx))
            }
            Input::Assembled { device, spool, done } => {
                self.on_device(device, now, out, |device, ctx| device.assembled(spool, done, ctx));
            }
            Input::FileTaken { device, ticket, done } => {
                self.on_device(device, now, out, |device, ctx| device.file_taken(ticket, done, ctx));
            }
            Input::FileRead { device, ticket, data } => {
                self.on_device(device, now, out, |device, ctx| device.file_read(ticket, data, ctx));
            }
            Input::AgentAttached { agent, attach } => self.attached(agent, attach, now, out),
            Input::FromAgent { agent, calls } => self.calls(agent, calls, now, out),
            Input::AgentAlive { agent } => self.alive(agent, now),
            Input::AgentDetached { agent, ended } => self.detached(agent, ended, now, out),
            Input::Tick => self.tick(now, out),
            Input::Drain => self.drain(out),
        }
        self.settle(now, out);
    }

    // --- connections -------------------------------------------------------------------------------------------

    fn connected(&mut self, conn: ConnId, origin: crate::io::Origin, now: Millis, out: &mut Vec<Action>) {
        let state = Conn::new(origin, &self.shared.settings, now);
        self.conns.insert(conn, state);
        if self.draining {
            self.close(conn, CloseCode::Restart, out);
        }
        self.set_conn_timer(conn);
    }

    fn close(&mut self, conn: ConnId, code: CloseCode, out: &mut Vec<Action>) {
        if let Some(state) = self.conns.get_mut(&conn) {
            state.stage = Stage::Closing;
        }
        out.push(Action::Close { conn, code });
        self.set_conn_timer(conn);
    }

    fn refuse_conn(&mut self, conn: ConnId, problem: &Problem, code: CloseCode, out: &mut Vec<Action>) {
        let lang = self.conns.get(&conn).map_or(self.shared.settings.lang, |state| state.lang);
        // Being locked out is not for ever.
        let fatal = code != CloseCode::Overloaded;
        out.push(Action::Send { conn, text: gate::error(problem, fatal, lang).encode() });
        self.close(conn, code, out);
    }

    fn too_long(&mut self, conn: ConnId, now: Millis, out: &mut Vec<Action>) {
        let Some(state) = self.conns.get(&conn) else { return };
        let limit = match state.stage {
            Stage::Closing => return,
            Stage::Open { .. } | Stage::Sender => limits::FRAME_AFTER_READY,
            _ => limits::FRAME_BEFORE_READY,
        };
        let problem =
            Problem::new(ErrorCode::TooBig, format!("a message must be at most {limit} bytes here"));
        if let Stage::Open { device } = state.stage {
            self.with_device(device, now, out, |device, ctx| device.closed(None, ctx));
        }
        self.refuse_conn(conn, &problem, CloseCode::TooLarge, out);
    }

    fn closed(&mut self, conn: ConnId, code: Option<u16>, now: Millis, out: &mut Vec<Action>) {
        let Some(state) = self.conns.remove(&conn) else { return };
        if let Some(at) = state.timer {
            self.timers.remove(&(at, Timer::Conn(conn)));
        }
        let device = match &state.stage {
            Stage::Open { device } => Some(*device),
            Stage::Greeted { device, .. } => self.here(device),
            _ => None,
        };
        if let Some(device) = device
            && self.is_live(device, conn)
        {
            self.with_device(device, now, out, |device, ctx| device.closed(code, ctx));
            self.presence(device, false, out);
        }
    }

    fn is_live(&self, device: DeviceNo, conn: ConnId) -> bool {
        self.devices
            .get(&device)
            .and_then(|device| device.live.as_ref())
            .is_some_and(|live| live.conn == conn)
    }

    fn frame(&mut self, conn: ConnId, bytes: usize, frame: Came, now: Millis, out: &mut Vec<Action>) {
        let Some(state) = self.conns.get_mut(&conn) else { return };
        match &mut state.stage {
            Stage::Closing => {}
            Stage::Hello { .. } => self.first_frame(conn, frame, now, out),
            Stage::Greeted { early, bytes: so_far, .. } => {
                *so_far += bytes;
                if *so_far > limits::PENDING_BEFORE_READY {
                    let limit = limits::PENDING_BEFORE_READY;
                    let problem = Problem::new(
                        ErrorCode::TooBig,
                        format!("at most {limit} bytes may be sent before ready"),
                    );
                    self.refuse_conn(conn, &problem, CloseCode::TooLarge, out);
                } else {
                    early.push_back(frame);
                }
            }
            Stage::Open { device } => {
                let device = *device;
                self.open_frame(conn, device, frame, now, out);
            }
            Stage::Sender => self.sender_frame(conn, frame, now, out),
        }
    }

    fn open_frame(
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

    fn sender_frame(&mut self, conn: ConnId, frame: Came, now: Millis, out: &mut Vec<Action>) {
        let Some(state) = self.conns.get_mut(&conn) else { return };
        let lang = state.lang;
        let mut reply = |problem: &Problem| {
            out.push(Action::Send { conn, text: gate::error(problem, false, lang).encode() });
        };
        match frame {
            Ok(ClientFrame::Deliver(deliver)) => {
                state.rubbish = 0;
                self.deliver(conn, deliver, now, out);
            }
            Ok(ClientFrame::Ping { ts }) => {
                out.push(Action::Send { conn, text: ServerFrame::Pong { ts }.encode() });
            }
            Ok(ClientFrame::Unknown { .. }) => {}
            Ok(_) => reply(&Problem::new(
                ErrorCode::Forbidden,
                "a connection without device can only deliver and ping",
            )),
            Err(problem) => {
                state.rubbish = if problem.rubbish { state.rubbish + 1 } else { 0 };
                if state.rubbish >= limits::BAD_FRAMES {
                    self.refuse_conn(conn, &problem, CloseCode::Rubbish, out);
                } else {
                    reply(&problem);
                }
            }
        }
    }

    fn first_frame(&mut self, conn: ConnId, frame: Came, now: Millis, out: &mut Vec<Action>) {
        let hello = match frame {
            Ok(ClientFrame::Hello(hello)) => hello,
            Err(problem) if problem.in_hello => {
                self.refuse_conn(conn, &problem, CloseCode::Denied, out);
                return;
            }
            _ => {
                let problem = Problem::new(
                    ErrorCode::AuthRequired,
                    "the first frame must be a JSON object with t = hello",
                );
                self.refuse_conn(conn, &problem, CloseCode::Denied, out);
                return;
            }
        };
        let Some(state) = self.conns.get_mut(&conn) else { return };
        if let Some(lang) = hello.lang.as_deref().and_then(Lang::from_tag) {
            state.lang = lang;
        }
        let loopback = state.origin.loopback;
        let address = state.origin.address.clone();
        if !loopback && let Some(left) = self.logins.locked(&address, now) {
            let mut problem = Problem::new(
                ErrorCode::RateLimited,
                "too many wrong tokens from this address: try again later",
            );
            problem.retry_after_ms = Some(left);
            self.refuse_conn(conn, &problem, CloseCode::Overloaded, out);
            return;
        }
        let who = match self.shared.settings.access.check(&hello, state.origin.token.as_deref(), loopback) {
            Ok(who) => who,
            Err(problem) => {
                if !loopback && problem.code == ErrorCode::AuthFailed {
                    self.logins.count(&address, now);
                }
                self.refuse_conn(conn, &problem, CloseCode::Denied, out);
                return;
            }
        };
        // The token is not needed any more.
        state.origin.token = None;
        match who.device.clone() {
            None => {
                state.who = Some(who);
                state.stage = Stage::Sender;
                out.push(Action::Opened { conn });
                let text = gate::ready("", None, &self.shared.settings).encode();
                out.push(Action::Send { conn, text });
            }
            Some(device) => {
                state.who = Some(who);
                state.stage = Stage::Greeted { device: device.clone(), early: VecDeque::new(), bytes: 0 };
                self.with_slot(device, Deferred::Hello(conn, hello), now, out);
            }
        }
        self.set_conn_timer(conn);
    }

    /// A `hello` was accepted and its device is here.
    fn greet(&mut self, conn: ConnId, hello: &Hello, device: DeviceNo, now: Millis, out: &mut Vec<Action>) {
        let Some(state) = self.conns.get(&conn) else { return };
        let (Stage::Greeted { .. }, Some(who)) = (&state.stage, &state.who) else { return };
        let (who, lang) = (who.clone(), state.lang);
        let user = User { id: who.user.clone(), name: hello.user_name.clone(), proven: who.proven };
        let older = self.devices.get(&device).and_then(|device| device.live.as_ref()).map(|live| live.conn);
        if let Some(older) = older {
            // Whole frames that the older one had sent before its own `ready` still count.
            let problem =
                Problem::new(ErrorCode::Replaced, "a newer connection of this device has taken over");
            self.flush_early(older, device, now, out);
            self.with_device(device, now, out, |device, ctx| device.closed(None, ctx));
            self.refuse_conn(older, &problem, CloseCode::Replaced, out);
        }
        let hello_device = hello.device.clone();
        self.with_device(device, now, out, |device, ctx| {
            device.connected(conn, older.is_some(), hello_device, user, hello.lang.clone(), lang, ctx);
        });
        self.opened(device, now, out);
    }

    /// Frames that were sent before `ready` by a connection that will never get one.
    fn flush_early(&mut self, conn: ConnId, device: DeviceNo, now: Millis, out: &mut Vec<Action>) {
        let Some(state) = self.conns.get_mut(&conn) else { return };
        if let Stage::Greeted { early, .. } = &mut state.stage {
            for frame in std::mem::take(early) {
                if let Ok(ClientFrame::Deliver(deliver)) = frame {
                    self.deliver(conn, deliver, now, out);
                } else {
                    self.with_device(device, now, out, |device, ctx| device.frame(frame, ctx));
                }
            }
        }
    }

    /// If `ready` has been written for the device's connection, the connection is open and what came early is handled.
    fn opened(&mut self, device: DeviceNo, now: Millis, out: &mut Vec<Action>) {
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
        let Stage::Greeted { early, .. } = &mut state.stage else { return };
        let early = std::mem::take(early);
        state.stage = Stage::Open { device };
        self.presence(device, true, out);
        for frame in early {
            self.open_frame(conn, device, frame, now, out);
        }
    }

    fn presence(&self, device: DeviceNo, online: bool, out: &mut Vec<Action>) {
        if let (Some(agent), Some(device)) = (&self.shared.agent, self.devices.get(&device)) {
            let frame = ToAgent::Presence { device: device.id.clone(), online };
            out.push(Action::ToAgent { agent: agent.id, frame });
        }
    }

    // --- deliver -----------------------------------------------------------------------------------------------

    fn deliver(&mut self, conn: ConnId, mut deliver: Deliver, now: Millis, out: &mut Vec<Action>) {
        let Some(state) = self.conns.get(&conn) else { return };
        let lang = state.lang;
        let mut reply = |problem: Problem| {
            let problem = problem.with_id(Some(deliver.id.clone()));
            out.push(Action::Send { conn, text: gate::error(&problem, false, lang).encode() });
        };
        if !state.who.as_ref().is_some_and(|who| who.deliver == Right::Yes) {
            reply(Problem::new(
                ErrorCode::Forbidden,
                "deliver is allowed from a loopback peer or with a deliver token",
            ));
            return;
        }
        if deliver.target == "home" && !self.slots.contains_key("home") {
            match &self.shared.settings.home_device {
                Some(home) => deliver.target.clone_from(home),
                None => {
                    reply(Problem::bad("target is home, and MOBILE_HOME_DEVICE is not set"));
                    return;
                }
            }
        }
        self.with_slot(deliver.target.clone(), Deferred::Deliver(conn, deliver), now, out);
    }

    // --- devices -----------------------------------------------------------------------------------------------

    fn here(&self, id: &str) -> Option<DeviceNo> {
        match self.slots.get(id) {
            Some(Slot::Here(no)) => Some(*no),
            _ => None,
        }
    }

    fn load(&mut self, device: String, now: Millis, out: &mut Vec<Action>) {
        if !self.slots.contains_key(&device) {
            self.slots.insert(device.clone(), Slot::Loading(Vec::new()));
            out.push(Action::Load { device, since: now.saturating_sub(limits::REMEMBER_MS) });
        }
    }

    /// Does it when the device is here.
    fn with_slot(&mut self, device: String, what: Deferred, now: Millis, out: &mut Vec<Action>) {
        match self.slots.get_mut(&device) {
            Some(Slot::Here(no)) => {
                let no = *no;
                self.deferred(no, what, now, out);
            }
            Some(Slot::Loading(waiting)) => waiting.push(what),
            None => {
                self.load(device.clone(), now, out);
                if let Some(Slot::Loading(waiting)) = self.slots.get_mut(&device) {
                    waiting.push(what);
                }
            }
        }
    }

    fn deferred(&mut self, device: DeviceNo, what: Deferred, now: Millis, out: &mut Vec<Action>) {
        match what {
            Deferred::Hello(conn, hello) => self.greet(conn, &hello, device, now, out),
            Deferred::Call(agent, call) => {
                self.with_device(device, now, out, |device, ctx| device.call(agent, call, ctx))
            }
            Deferred::Deliver(conn, deliver) => {
                let Some(state) = self.conns.get(&conn) else { return };
                let credential = state.who.as_ref().map_or_else(String::new, credential_name);
                let who = Who::Conn {
                    conn,
                    id: deliver.id.clone(),
                    target: deliver.target.clone(),
                    lang: state.lang,
                };
                self.with_device(device, now, out, |device, ctx| {
                    device.deliver_frame(deliver, &credential, who, ctx)
                });
            }
        }
    }

    fn loaded(
        &mut self,
        id: String,
        loaded: Result<Option<Loaded>, String>,
        now: Millis,
        out: &mut Vec<Action>,
    ) {
        let Some(Slot::Loading(waiting)) = self.slots.get_mut(&id) else { return };
        let waiting = std::mem::take(waiting);
        let mut ctx = Ctx { now, shared: &mut self.shared, out };
        let device = match loaded {
            Ok(Some(loaded)) => Device::load(id.clone(), &loaded, &mut ctx).map(Some),
            Ok(None) => Ok(None),
            Err(why) => Err(why),
        };
        let device = match device {
            Ok(Some(device)) => device,
            Ok(None) if waiting.iter().any(|what| matches!(what, Deferred::Hello(..))) => {
                let no = self.next_device;
                self.next_device += 1;
                Device::new(no, id.clone(), &ctx)
            }
            Ok(None) => {
                self.slots.remove(&id);
                for what in waiting {
                    self.nobody(what, "no device with this id has ever connected", out);
                }
                return;
            }
            Err(why) => {
                self.slots.remove(&id);
                out.push(Action::Log { warn: true, text: format!("a device cannot be loaded: {why}") });
                for what in waiting {
                    self.not_loaded(what, out);
                }
                return;
            }
        };
        let no = device.no;
        self.devices.insert(no, Box::new(device));
        self.slots.insert(id, Slot::Here(no));
        self.with_device(no, now, out, |device, ctx| {
            device.register_events(ctx);
            if ctx.shared.agent.is_some() {
                device.agent_here(ctx);
            } else {
                device.note_outage(ctx);
            }
        });
        for what in waiting {
            self.deferred(no, what, now, out);
        }
    }

    /// The device of a call or a delivery does not exist.
    fn nobody(&mut self, what: Deferred, why: &str, out: &mut Vec<Action>) {
        match what {
            Deferred::Hello(..) => {}
            Deferred::Call(agent, call) => {
                if let Some(req) = req_of(&call) {
                    let frame = ToAgent::Result(crate::shared::call_result(
                        req,
                        Err(call_error("not_found", why, false)),
                    ));
                    out.push(Action::ToAgent { agent, frame });
                }
            }
            Deferred::Deliver(conn, deliver) => {
                let Some(state) = self.conns.get(&conn) else { return };
                let problem = Problem::new(ErrorCode::DeviceOffline, why).with_id(Some(deliver.id));
                out.push(Action::Send { conn, text: gate::error(&problem, false, state.lang).encode() });
            }
        }
    }

    /// The store could not give the device.
    fn not_loaded(&mut self, what: Deferred, out: &mut Vec<Action>) {
        let why = "the gateway cannot read its store";
        match what {
            Deferred::Hello(conn, _) => {
                let problem = Problem::new(ErrorCode::Internal, why);
                self.refuse_conn(conn, &problem, CloseCode::Overloaded, out);
            }
            Deferred::Call(agent, call) => {
                if let Some(req) = req_of(&call) {
                    let frame = ToAgent::Result(crate::shared::call_result(
                        req,
                        Err(call_error("internal", why, true)),
                    ));
                    out.push(Action::ToAgent { agent, frame });
                }
            }
            Deferred::Deliver(conn, deliver) => {
                let Some(state) = self.conns.get(&conn) else { return };
                let problem = Problem::new(ErrorCode::Internal, why).with_id(Some(deliver.id));
                out.push(Action::Send { conn, text: gate::error(&problem, false, state.lang).encode() });
            }
        }
    }

    fn with_device(
        &mut self,
        no: DeviceNo,
        now: Millis,
        out: &mut Vec<Action>,
        f: impl FnOnce(&mut Device, &mut Ctx<'_>),
    ) {
        if let Some(device) = self.devices.get_mut(&no) {
            f(device, &mut Ctx { now, shared: &mut self.shared, out });
            if !self.touched.contains(&no) {
                self.touched.push(no);
            }
        }
    }

    fn on_device(
        &mut self,
        no: DeviceNo,
        now: Millis,
        out: &mut Vec<Action>,
        f: impl FnOnce(&mut Device, &mut Ctx<'_>),
    ) {
        self.with_device(no, now, out, f);
    }

    fn on_conn_device(
        &mut self,
        conn: ConnId,
        now: Millis,
        out: &mut Vec<Action>,
        f: impl FnOnce(&mut Device, &mut Ctx<'_>),
    ) {
        let Some(Stage::Open { device }) = self.conns.get(&conn).map(|state| &state.stage) else { return };
        let device = *device;
        if self.is_live(device, conn) {
            self.with_device(device, now, out, f);
        }
    }

    // --- the store ---------------------------------------------------------------------------------------------

    fn stored(&mut self, upto: u64, now: Millis, out: &mut Vec<Action>) {
        while let Some((batch, device)) = self.under_way.front().copied()
            && batch <= upto
        {
            self.under_way.pop_front();
            self.with_device(device, now, out, |device, _| device.stored(upto));
        }
    }

    fn store_failed(&mut self, from: u64, upto: u64, why: &str, now: Millis, out: &mut Vec<Action>) {
        out.push(Action::Log { warn: true, text: format!("the store failed: {why}") });
        let mut hit: Vec<DeviceNo> = Vec::new();
        self.under_way.retain(|(batch, device)| {
            let failed = (from..=upto).contains(batch);
            if failed && !hit.contains(device) {
                hit.push(*device);
            }
            !failed
        });
        for no in hit {
            let mut sound = true;
            self.with_device(no, now, out, |device, ctx| sound = device.failed(from, upto, ctx));
            if !sound {
                self.unload(no, now, out);
            }
        }
        out.push(Action::StoreResume { upto });
    }

    /// What a device is in memory differs from what is on disk: it is forgotten, as in a crash, and loaded again.
    fn unload(&mut self, no: DeviceNo, now: Millis, out: &mut Vec<Action>) {
        let Some(mut device) = self.devices.remove(&no) else { return };
        self.touched.retain(|touched| *touched != no);
        if let Some(at) = device.timer {
            self.timers.remove(&(at, Timer::Device(no)));
        }
        self.shared.events.retain(|_, of| *of != no);
        device.give_up(&mut Ctx { now, shared: &mut self.shared, out });
        if let Some(live) = &device.live {
            let problem = Problem::new(ErrorCode::Internal, "the gateway could not write to its disk")
                .saying(protocol::words::Say::CannotStore);
            let conn = live.conn;
            self.refuse_conn(conn, &problem, CloseCode::Overloaded, out);
        }
        let id = device.id.clone();
        self.slots.remove(&id);
        self.load(id, now, out);
    }

    // --- the agent ---------------------------------------------------------------------------------------------

    fn attached(&mut self, agent: AgentId, attach: Attach, now: Millis, out: &mut Vec<Action>) {
        if let Some(older) = self.shared.agent.take() {
            out.push(Action::DetachAgent { agent: older.id });
            self.on_all(now, out, |device, ctx| device.agent_gone(false, ctx));
        }
        self.shared.asked.clear();
        self.shared.agent = Some(AgentNow { id: agent, attach, alive: now, stalled: false });
        self.on_all(now, out, Device::agent_here);
        self.set_agent_timer();
    }

    fn detached(&mut self, agent: AgentId, ended: bool, now: Millis, out: &mut Vec<Action>) {
        if self.shared.agent.as_ref().is_none_or(|now| now.id != agent) {
            return;
        }
        self.shared.agent = None;
        self.shared.away_since = now;
        self.shared.outage += 1;
        self.shared.asked.clear();
        self.on_all(now, out, |device, ctx| device.agent_gone(ended, ctx));
        self.set_agent_timer();
    }

    fn alive(&mut self, agent: AgentId, now: Millis) {
        if let Some(state) = self.shared.agent.as_mut().filter(|state| state.id == agent) {
            state.alive = now;
            state.stalled = false;
        }
        self.set_agent_timer();
    }

    fn on_all(&mut self, now: Millis, out: &mut Vec<Action>, f: impl Fn(&mut Device, &mut Ctx<'_>)) {
        let mut all: Vec<DeviceNo> = self.devices.keys().copied().collect();
        all.sort_unstable();
        for no in all {
            self.with_device(no, now, out, &f);
        }
    }

    fn calls(&mut self, agent: AgentId, calls: Vec<FromAgent>, now: Millis, out: &mut Vec<Action>) {
        if self.shared.agent.as_ref().is_none_or(|now| now.id != agent) {
            return;
        }
        self.alive(agent, now);
        for call in calls {
            if let FromAgent::Answer { req, answer } = call {
                if let (Some(asked), Answer::Prompt { state, option_id }) =
                    (self.shared.asked.remove(&req), answer)
                {
                    self.with_device(asked.device, now, out, |device, ctx| {
                        device.card_stands(&asked.prompt_id, state, option_id, ctx);
                    });
                }
                continue;
            }
            match self.device_of(&call) {
                Ok(Some(no)) => self.with_device(no, now, out, |device, ctx| device.call(agent, call, ctx)),
                Ok(None) => self.nobody(Deferred::Call(agent, call), "event or prompt_id is not known", out),
                Err(id) => self.with_slot(id, Deferred::Call(agent, call), now, out),
            }
        }
    }

    /// The device of a call: by number, or by an id that is not here yet.
    fn device_of(&self, call: &FromAgent) -> Result<Option<DeviceNo>, String> {
        match call {
            FromAgent::Turn { device, .. }
            | FromAgent::Send { device, .. }
            | FromAgent::Edit { device, .. }
            | FromAgent::Status { device, .. }
            | FromAgent::Media { device, .. }
            | FromAgent::Prompt { device, .. }
            | FromAgent::Conversation { device, .. }
            | FromAgent::Device { device, .. } => {
                self.here(device).map_or_else(|| Err(device.clone()), |no| Ok(Some(no)))
            }
            FromAgent::Take { event, .. }
            | FromAgent::Applied { event, .. }
            | FromAgent::Ack { event }
            | FromAgent::Done { event, .. } => Ok(self.shared.events.get(event).copied()),
            FromAgent::PromptClose { prompt_id, .. } => {
                Ok(self.shared.card_ids.read(prompt_id).map(|card| card.device))
            }
            FromAgent::Answer { .. } => Ok(None),
        }
    }

    // --- time --------------------------------------------------------------------------------------------------

    fn tick(&mut self, now: Millis, out: &mut Vec<Action>) {
        while let Some((at, timer)) = self.timers.first().copied()
            && at <= now
        {
            self.timers.pop_first();
            match timer {
                Timer::Conn(conn) => {
                    if let Some(state) = self.conns.get_mut(&conn) {
                        state.timer = None;
                        let problem = Problem::new(ErrorCode::AuthRequired, "no hello came in time");
                        self.refuse_conn(conn, &problem, CloseCode::Denied, out);
                    }
                }
                Timer::Device(no) => {
                    if let Some(device) = self.devices.get_mut(&no) {
                        device.timer = None;
                    }
                    self.with_device(no, now, out, Device::tick);
                    self.opened(no, now, out);
                }
                Timer::Agent => {
                    self.agent_timer = None;
                    if let Some(agent) = &mut self.shared.agent {
                        agent.stalled = true;
                        self.on_all(now, out, Device::clear_turn);
                    }
                }
            }
        }
    }

    fn set_conn_timer(&mut self, conn: ConnId) {
        let Some(state) = self.conns.get_mut(&conn) else { return };
        let deadline = state.deadline();
        set_timer(&mut self.timers, &mut state.timer, deadline, Timer::Conn(conn));
    }

    fn set_agent_timer(&mut self) {
        let silent = self.shared.settings.silent_ms;
        let deadline =
            self.shared.agent.as_ref().filter(|agent| !agent.stalled).map(|agent| agent.alive + silent);
        set_timer(&mut self.timers, &mut self.agent_timer, deadline, Timer::Agent);
    }

    fn drain(&mut self, out: &mut Vec<Action>) {
        self.draining = true;
        let mut conns: Vec<ConnId> = self.conns.keys().copied().collect();
        conns.sort_unstable();
        for conn in conns {
            self.close(conn, CloseCode::Restart, out);
        }
    }

    // --- the end of every input --------------------------------------------------------------------------------

    /// Settles the devices that were touched, closes the batch, sets the timers.
    fn settle(&mut self, now: Millis, out: &mut Vec<Action>) {
        let touched = std::mem::take(&mut self.touched);
        for no in &touched {
            let Some(device) = self.devices.get_mut(no) else { continue };
            let before = self.shared.ops.len();
            let was_live = device.live.as_ref().map(|live| live.conn);
            device.settle(&mut Ctx { now, shared: &mut self.shared, out });
            let appended = self.shared.ops.len() > before;
            if appended {
                self.under_way.push_back((self.shared.batch_no, *no));
            }
            // Too slow: the device has let go of its connection.
            if let Some(conn) = was_live
                && device.live.is_none()
                && let Some(state) = self.conns.get_mut(&conn)
            {
                state.stage = Stage::Closing;
            }
        }
        if !self.shared.ops.is_empty() {
            let ops = std::mem::take(&mut self.shared.ops);
            let lazy = !std::mem::take(&mut self.shared.urgent);
            out.push(Action::Store(Batch { no: self.shared.batch_no, ops, lazy }));
            self.shared.batch_no += 1;
        }
        for no in touched {
            let Some(device) = self.devices.get_mut(&no) else { continue };
            let deadline = device.deadline(&Ctx { now, shared: &mut self.shared, out });
            set_timer(&mut self.timers, &mut device.timer, deadline, Timer::Device(no));
        }
    }
}

fn set_timer(
    timers: &mut BTreeSet<(Millis, Timer)>,
    present: &mut Option<Millis>,
    deadline: Option<Millis>,
    timer: Timer,
) {
    if *present == deadline {
        return;
    }
    if let Some(at) = present.take() {
        timers.remove(&(at, timer));
    }
    if let Some(at) = deadline {
        timers.insert((at, timer));
        *present = Some(at);
    }
}

fn credential_name(who: &Identity) -> String {
    match &who.credential {
        Credential::Owner => "owner".to_owned(),
        Credential::Device => "device".to_owned(),
        Credential::Deliver(number) => format!("deliver{number}"),
    }
}

const fn req_of(call: &FromAgent) -> Option<u64> {
    match call {
        FromAgent::Send { req, .. }
        | FromAgent::Edit { req, .. }
        | FromAgent::Media { req, .. }
        | FromAgent::Prompt { req, .. }
        | FromAgent::PromptClose { req, .. }
        | FromAgent::Take { req, .. }
        | FromAgent::Device { req, .. } => Some(*req),
        _ => None,
    }
}
