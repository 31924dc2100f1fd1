//! The core: all devices, all connections, the agent. One input at a time; what it causes shares one batch.

mod agent;
mod conns;
mod devices;

use std::collections::{BTreeSet, HashMap, VecDeque};

use protocol::{
    Millis,
    client::{Deliver, Hello},
    code::{CloseCode, ErrorCode},
    link::{FromAgent, ToAgent},
    problem::Problem,
    record::{Batch, DeviceNo},
};
use session::{Map, rate::Logins};

use crate::{
    device::Device,
    gate::{Conn, Stage},
    io::{Action, AgentId, ConnId, Input, Settings},
    shared::{Ctx, Shared},
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
    Reload(DeviceNo),
    Agent,
}

/// A device whose records could not be written is loaded again after this, milliseconds.
const RELOAD_MS: u64 = 1_000;

/// The core. See the crate's documentation.
#[derive(Debug)]
pub struct Core {
    pub(crate) shared: Shared,
    pub(crate) devices: Map<DeviceNo, Box<Device>>,
    slots: HashMap<String, Slot>,
    /// In boxes, so that the free places of the map are small.
    pub(crate) conns: Map<ConnId, Box<Conn>>,
    timers: BTreeSet<(Millis, Timer)>,
    agent_timer: Option<Millis>,
    logins: Logins,
    next_device: DeviceNo,
    /// Batches under way and the devices that have a part in them.
    under_way: VecDeque<(u64, DeviceNo)>,
    /// Last batch that is known to have failed.
    failed_upto: u64,
    touched: Vec<DeviceNo>,
    /// Devices that are loaded again when their timer is over.
    reload: HashMap<DeviceNo, String>,
    /// Calls that name an event or a card of a device that may be being loaded.
    unplaced: Vec<(AgentId, FromAgent)>,
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
            devices: Map::default(),
            slots: HashMap::new(),
            conns: Map::default(),
            timers: BTreeSet::new(),
            agent_timer: None,
            under_way: VecDeque::new(),
            failed_upto: 0,
            touched: Vec::new(),
            reload: HashMap::new(),
            unplaced: Vec::new(),
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
            Input::Drained { conn, bytes } => self.drained(conn, bytes, now, out),
            Input::Closed { conn, code } => self.closed(conn, code, now, out),
            Input::Stored { upto } => self.stored(upto, now, out),
            Input::StoreFailed { from, upto, why } => self.store_failed(from, upto, &why, now, out),
            Input::Loaded { device, loaded } => {
                self.loaded(device, loaded, now, out);
                self.place_again(now, out);
            }
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
            Input::Drain => self.drain(now, out),
        }
        self.settle(now, out);
    }

    fn stored(&mut self, upto: u64, now: Millis, out: &mut Vec<Action>) {
        while let Some((batch, device)) = self.under_way.front().copied()
            && batch <= upto
        {
            self.under_way.pop_front();
            self.with_device(device, now, out, |device, _| device.stored(upto));
        }
    }

    fn store_failed(&mut self, from: u64, upto: u64, why: &str, now: Millis, out: &mut Vec<Action>) {
        if upto <= self.failed_upto {
            return;
        }
        // Until it is told to go on, the store refuses everything that follows a failure: what is under way has failed
        // with it, and later reports of that say nothing new.
        let upto = self.shared.batch_no.saturating_sub(1).max(upto);
        self.failed_upto = upto;
        out.push(Action::Log { warn: false, text: format!("the store failed: {why}") });
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
            self.refuse_conn(conn, &problem, CloseCode::Overloaded, now, out);
        }
        if device.told_online
            && let Some(agent) = &self.shared.agent
        {
            let frame = ToAgent::Presence { device: device.id().to_owned(), online: false };
            out.push(Action::ToAgent { agent: agent.id, frame });
        }
        // Not at once: what was being written would be tried, and fail, again and again. Who asks for it meanwhile waits.
        self.slots.insert(device.id().to_owned(), Slot::Loading(Vec::new()));
        self.timers.insert((now + RELOAD_MS, Timer::Reload(no)));
        self.reload.insert(no, std::mem::take(&mut device.state.info.id));
    }

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
                        self.refuse_conn(conn, &problem, CloseCode::Denied, now, out);
                    }
                }
                Timer::Device(no) => {
                    if let Some(device) = self.devices.get_mut(&no) {
                        device.timer = None;
                    }
                    self.with_device(no, now, out, Device::tick);
                    self.opened(no, now, out);
                }
                Timer::Reload(no) => {
                    if let Some(device) = self.reload.remove(&no) {
                        let since = now.saturating_sub(protocol::limits::REMEMBER_MS);
                        out.push(Action::Load { device, since });
                    }
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

    fn drain(&mut self, now: Millis, out: &mut Vec<Action>) {
        self.draining = true;
        let mut conns: Vec<ConnId> = self.conns.keys().copied().collect();
        conns.sort_unstable();
        for conn in conns {
            if !self.conns.get(&conn).is_some_and(|state| matches!(state.stage, Stage::Closing)) {
                self.close(conn, CloseCode::Restart, now, out);
            }
        }
    }

    /// Settles the devices that were touched, closes the batch, sets the timers.
    fn settle(&mut self, now: Millis, out: &mut Vec<Action>) {
        let touched = std::mem::take(&mut self.touched);
        for no in &touched {
            let Some(device) = self.devices.get_mut(no) else { continue };
            device.touched = false;
            let before = self.shared.ops.len();
            device.settle(&mut Ctx { now, shared: &mut self.shared, out });
            let appended = self.shared.ops.len() > before;
            if appended {
                self.under_way.push_back((self.shared.batch_no, *no));
            }
            if let Some(conn) = device.left.take()
                && let Some(state) = self.conns.get_mut(&conn)
            {
                state.stage = Stage::Closing;
            }
        }
        self.send_replies(now, out);
        if !self.shared.ops.is_empty() {
            let ops = std::mem::take(&mut self.shared.ops);
            let lazy = !std::mem::take(&mut self.shared.urgent);
            out.push(Action::Store(Batch { no: self.shared.batch_no, ops, lazy }));
            self.shared.batch_no += 1;
        }
        for no in touched {
            let Some(device) = self.devices.get_mut(&no) else { continue };
            if device.live.is_none() && std::mem::take(&mut device.told_online) {
                self.presence(no, false, out);
            }
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
