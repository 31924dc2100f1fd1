//! The world: a clock that jumps from event to event, and everything that takes part.

use std::collections::{BTreeMap, BTreeSet};

use delivery::{Action, AgentId, ConnId, Core, Input, Settings};
use protocol::{Millis, limits, link::FromAgent, words::Lang};
use session::Access;
use store::Store;

use crate::{
    agents::{Effect, Offer, Proc},
    client::Client,
    disk::{Disk, Files},
    event::{Conn, Ev},
    ledger::Ledger,
    plan::{AgentKind, Plan},
    rng::Rng,
    senders::Delivery,
};

/// When a run begins: some day.
const START: Millis = 1_800_000_000_000;
/// After the trouble everything has this long to settle; the longest card of the demo agent is open for 5 minutes, and is
/// forgotten by the agent a minute later.
const SETTLE_MS: Millis = 400_000;
/// More events than this in one run: something runs in a circle.
const MOST_EVENTS: u64 = 200_000;
/// Ticks at one instant after which nothing has changed.
const MOST_TICKS: u32 = 8;

/// A running gateway.
pub(crate) struct Gateway {
    pub(crate) core: Core,
}

/// See the module.
pub(crate) struct World {
    pub(crate) rng: Rng,
    pub(crate) plan: Plan,
    pub(crate) now: Millis,
    heap: BTreeMap<(Millis, u64), Ev>,
    events: u64,
    pub(crate) gateway: Option<Gateway>,
    /// Number of the gateway's life.
    pub(crate) gen_no: u32,
    actions: Vec<Action>,
    pub(crate) disk: Disk,
    pub(crate) files: Files,
    pub(crate) last_file_job: Millis,
    last_report: Millis,
    pub(crate) ledger: Ledger,
    pub(crate) conns: BTreeMap<ConnId, Conn>,
    pub(crate) last_id: u64,
    pub(crate) clients: Vec<Client>,
    pub(crate) deliveries: Vec<Delivery>,
    pub(crate) agent: Option<Proc>,
    pub(crate) lives: u64,
    pub(crate) instance: u64,
    /// Calls without a result, of each link.
    pub(crate) calls: BTreeMap<(AgentId, u64), FromAgent>,
    pub(crate) offers: BTreeMap<u64, Offer>,
    pub(crate) effects: Vec<Effect>,
    /// Events that were told to an agent.
    pub(crate) handed: BTreeSet<u64>,
    /// Number of the last loss of the agent, until one is attached again.
    pub(crate) losses: u64,
    pub(crate) agent_lost: bool,
    /// On which connection a message that is never replayed was written.
    pub(crate) once: BTreeMap<(String, String), ConnId>,
    /// The trouble is over.
    pub(crate) mended: bool,
    pub(crate) disk_failed: bool,
    pub(crate) failure: Option<String>,
    trace: Option<Vec<String>>,
}

impl World {
    pub(crate) fn new(seed: u64, trace: bool) -> Self {
        let mut rng = Rng::new(seed);
        let plan = Plan::new(&mut rng);
        let mut clients: Vec<Client> =
            (0..plan.devices).map(|n| Client::new(format!("device-{n}"))).collect();
        if plan.chokes {
            // Chunks may be shorter than the whole.
            let part = if plan.agent == AgentKind::Scripted { "re:0-0" } else { "0-0" };
            if let Some(client) = clients.first_mut() {
                client.chokes_on = Some(part.to_owned());
            }
        }
        let mut world = Self {
            disk: Disk::new(rng.bytes()),
            rng,
            now: START,
            heap: BTreeMap::new(),
            events: 0,
            gateway: None,
            gen_no: 0,
            actions: Vec::new(),
            files: Files::default(),
            last_file_job: 0,
            last_report: 0,
            ledger: Ledger::default(),
            conns: BTreeMap::new(),
            last_id: 0,
            clients,
            deliveries: Vec::new(),
            agent: None,
            lives: 0,
            instance: 0,
            calls: BTreeMap::new(),
            offers: BTreeMap::new(),
            effects: Vec::new(),
            handed: BTreeSet::new(),
            losses: 0,
            agent_lost: true,
            once: BTreeMap::new(),
            mended: false,
            disk_failed: false,
            failure: None,
            trace: trace.then(Vec::new),
            plan,
        };
        world.begin();
        world
    }

    /// Plans everything that the seed decides beforehand.
    fn begin(&mut self) {
        let plan = self.plan.clone();
        self.note(|| format!("{plan:?}"));
        self.at(0, Ev::Restart);
        for device in 0..plan.devices {
            let at = self.rng.below(2_000);
            self.at(at, Ev::Connect { device });
            for _ in 0..plan.texts {
                let at = self.rng.below(plan.active);
                self.at(at, Ev::Say { device });
            }
            for _ in 0..plan.cuts {
                let at = self.rng.below(plan.active);
                self.at(at, Ev::CutFault { device });
            }
        }
        for _ in 0..plan.delivers {
            self.plan_delivery();
        }
        for _ in 0..plan.crashes {
            let at = self.rng.below(plan.active);
            self.at(at, Ev::Crash);
        }
        for _ in 0..plan.full {
            let at = self.rng.below(plan.active);
            self.at(at, Ev::Full);
        }
        for _ in 0..plan.agent_faults {
            let at = self.rng.below(plan.active);
            self.at(at, Ev::AgentFault);
        }
        self.at(self.rng.clone().below(1_500), Ev::AgentStart { same_instance: true });
        self.at(self.plan.mend_at(), Ev::Mend);
    }

    /// Something happens so many milliseconds from now.
    pub(crate) fn at(&mut self, delay: Millis, ev: Ev) {
        self.last_id += 1;
        self.heap.insert((self.now + delay, self.last_id), ev);
    }

    /// Something happens at this time.
    pub(crate) fn at_time(&mut self, time: Millis, ev: Ev) {
        self.last_id += 1;
        self.heap.insert((time.max(self.now), self.last_id), ev);
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    pub(crate) fn note(&mut self, what: impl FnOnce() -> String) {
        let now = self.now - START;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>9}.{:03}  {}", now / 1000, now % 1000, what()));
        }
    }

    pub(crate) fn fail(&mut self, what: impl Into<String>) {
        let what = what.into();
        self.note(|| format!("FAILED: {what}"));
        self.failure.get_or_insert(what);
    }

    pub(crate) fn check(&mut self, done: Result<(), String>) {
        if let Err(what) = done {
            self.fail(what);
        }
    }

    /// Runs to the end. What went wrong first, and the trace if one was wanted.
    pub(crate) fn run(mut self) -> (Option<String>, Vec<String>) {
        let mut ticks = (0, 0);
        while self.failure.is_none() {
            let core = self.gateway.as_ref().and_then(|gateway| gateway.core.deadline());
            let next = self.heap.first_key_value().map(|((at, _), _)| *at);
            if let Some(at) = core
                && next.is_none_or(|next| at <= next)
                && !(self.mended && at > self.end())
            {
                self.now = self.now.max(at);
                ticks = if ticks.0 == self.now { (self.now, ticks.1 + 1) } else { (self.now, 0) };
                if ticks.1 > MOST_TICKS {
                    self.fail("the core wants a tick at the same instant again and again");
                    break;
                }
                self.handle(Input::Tick);
                continue;
            }
            let Some(((at, _), ev)) = self.heap.pop_first() else { break };
            if self.mended && at > self.end() {
                break;
            }
            self.now = at;
            ticks = (0, 0);
            self.events += 1;
            if self.events > MOST_EVENTS {
                self.fail("there is no end of events");
                break;
            }
            self.happens(ev);
        }
        if self.failure.is_none() {
            self.settled();
        }
        (self.failure, self.trace.unwrap_or_default())
    }

    fn end(&self) -> Millis {
        START + self.plan.mend_at() + SETTLE_MS
    }

    fn happens(&mut self, ev: Ev) {
        match ev {
            Ev::Gate { gen_no, input } => {
                if let Input::Drained { conn, bytes } = &input
                    && let Some(c) = self.conns.get_mut(conn)
                {
                    c.unsent = c.unsent.saturating_sub(*bytes);
                }
                if gen_no == self.gen_no {
                    self.handle(input);
                }
            }
            Ev::Up { conn, text } => self.up(conn, &text),
            Ev::Pong { conn, nonce } => {
                if self.passes(conn) {
                    self.handle(Input::Pong { conn, nonce });
                }
            }
            Ev::Down { conn, what } => self.down(conn, what),
            Ev::ClientLost { conn } => self.client_lost(conn),
            Ev::ServerLost { conn, code } => self.server_lost(conn, code),
            Ev::Connect { device } => self.connect(device),
            Ev::Say { device } => self.say(device),
            Ev::Repeat { device, said } => self.repeat(device, said),
            Ev::Press { device, card, again } => self.press(device, &card, again),
            Ev::Deliver { delivery } => self.deliver(delivery),
            Ev::CutFault { device } => self.cut_fault(device),
            Ev::Crash => self.crash(),
            Ev::Restart => self.restart(),
            Ev::Full => {
                let long = self.rng.range(1, 3_000);
                self.note(|| format!("the disk is full for {long} ms"));
                self.disk.full_until = self.now + long;
            }
            Ev::DiskLook => self.disk_look(),
            Ev::CommitEnd { gen_no } => {
                if gen_no == self.gen_no {
                    self.commit_end();
                }
            }
            Ev::AgentFault => self.agent_fault(),
            Ev::AgentStart { same_instance } => self.agent_start(same_instance),
            Ev::AgentLink { life } => self.agent_link(life),
            Ev::ToAgent { link, frame } => self.agent_gets(link, *frame),
            Ev::FromAgent { link, calls } => self.agent_calls(link, calls),
            Ev::AgentGone { link, ended } => {
                if self.gateway.is_some() {
                    self.handle(Input::AgentDetached { agent: link, ended });
                    self.agent_noted_lost(link);
                }
            }
            Ev::AgentTick { life } => self.agent_tick(life),
            Ev::AgentAlive { link } => self.agent_alive(link),
            Ev::NothingSticks { loss } => self.nothing_sticks(loss),
            Ev::Silent { life } => self.silent(life),
            Ev::Mend => self.mend(),
        }
    }

    /// One input for the core, and what it causes.
    pub(crate) fn handle(&mut self, input: Input) {
        let Some(gateway) = &mut self.gateway else { return };
        if let Some(trace) = &mut self.trace {
            let now = self.now - START;
            let text: String = format!("{input:?}").chars().take(400).collect();
            trace.push(format!("{:>9}.{:03}  > {text}", now / 1000, now % 1000));
        }
        let mut actions = std::mem::take(&mut self.actions);
        gateway.core.handle(input, self.now, &mut actions);
        let mut written = Vec::new();
        for action in actions.drain(..) {
            if let Action::Send { conn, .. } = &action
                && !written.contains(conn)
            {
                written.push(*conn);
            }
            self.action(action);
        }
        self.actions = actions;
        for conn in written {
            let most = self.plan.queue_bytes;
            let over = |c: &&Conn| c.server && !c.closing && c.who < self.clients.len() && c.unsent > most;
            if let Some(c) = self.conns.get(&conn).filter(over) {
                let unsent = c.unsent;
                self.fail(format!("{unsent} bytes wait in the socket of connection {conn}, which lives"));
            }
        }
    }

    fn restart(&mut self) {
        if self.gateway.is_some() {
            return;
        }
        self.gen_no += 1;
        let gen_no = self.gen_no;
        self.note(|| format!("the gateway starts, life {gen_no}"));
        let start = match self.disk.store.start() {
            Ok(start) => start,
            Err(e) => return self.fail(format!("the store does not open: {e}")),
        };
        let settings = Settings {
            lang: Lang::En,
            avatar_url: String::new(),
            chunk_chars: self.plan.chunk_chars,
            idle_after_ms: 1_500,
            home_device: None,
            hello_ms: limits::HELLO_MS,
            series_idle_ms: limits::SERIES_IDLE_MS,
            wait_ms: limits::WAIT_MS,
            take_ms: limits::TAKE_MS,
            deliver_ms: limits::DELIVER_MS,
            silent_ms: 20_000,
            queue_bytes: self.plan.queue_bytes,
            frames_per_second: 0,
            frames_burst: 0,
            bytes_per_second: 0,
            lockout_after: 0,
            lockout_ms: 0,
            spool_bytes: 64 << 20,
            access: Access {
                owner: "owner".to_owned(),
                deliver: vec!["cron".to_owned()],
                ..Access::default()
            },
            seed: self.rng.bytes(),
            secret: start.secret,
            epoch: start.epoch,
            next_pos: start.next_pos,
            next_device: start.next_device,
        };
        let mut core = Core::new(settings, self.now);
        let mut actions = Vec::new();
        core.start(start.wake, self.now, &mut actions);
        self.gateway = Some(Gateway { core });
        for action in actions {
            self.action(action);
        }
        if self.plan.agent != AgentKind::Scripted && self.lives > 0 {
            self.at(0, Ev::AgentStart { same_instance: true });
        }
    }

    fn crash(&mut self) {
        if self.gateway.take().is_none() {
            return;
        }
        self.note(|| "the gateway dies".to_owned());
        let durable = self.rng.percent(50);
        match self.disk.crash(durable) {
            Ok(batches) => self.absorb(&batches),
            Err(what) => self.fail(what),
        }
        self.gen_no += 1;
        self.files.crash();
        self.last_file_job = 0;
        let conns: Vec<ConnId> = self.conns.iter().filter(|(_, c)| c.server).map(|(id, _)| *id).collect();
        for conn in conns {
            if let Some(c) = self.conns.get_mut(&conn) {
                c.server = false;
                c.cut = true;
            }
            let soon = self.rng.below(1_000);
            self.at(soon, Ev::ClientLost { conn });
        }
        self.agent_loses_gateway();
        let pause = if self.rng.percent(10) { self.rng.below(20_000) } else { self.rng.below(1_500) };
        self.at(pause, Ev::Restart);
    }

    /// The trouble ends: what is broken is mended, and everybody comes back.
    fn mend(&mut self) {
        self.mended = true;
        self.note(|| "the trouble ends".to_owned());
        self.disk.full_until = 0;
        self.plan.disk_ms = 5;
        self.plan.way_ms = 20;
        if self.gateway.is_none() {
            self.at(0, Ev::Restart);
        }
        for conn in self.conns.values_mut() {
            conn.rate = 10_000;
        }
        self.mend_agent();
    }

    // --- the disk ----------------------------------------------------------------------------------------------

    pub(crate) fn disk_look(&mut self) {
        if self.gateway.is_none() {
            return;
        }
        match self.disk.begin(self.now) {
            Ok(true) => {
                let long = self.rng.range(0, self.plan.disk_ms);
                let gen_no = self.gen_no;
                self.at(long, Ev::CommitEnd { gen_no });
            }
            Ok(false) => {}
            Err(later) => self.at_time(later, Ev::DiskLook),
        }
    }

    fn commit_end(&mut self) {
        let gen_no = self.gen_no;
        let input = match self.disk.end(self.now) {
            Ok(Some(crate::disk::Commit::Stored { batches })) => {
                self.absorb(&batches);
                let upto = batches.last().map_or(0, |batch| batch.no);
                Input::Stored { upto }
            }
            Ok(Some(crate::disk::Commit::Failed { from, upto })) => {
                self.disk_failed = true;
                Input::StoreFailed { from, upto, why: "no space".to_owned() }
            }
            Ok(None) => return,
            Err(what) => return self.fail(what),
        };
        self.report(gen_no, input);
        self.disk_look();
    }

    /// A report of the store reaches the hub a little later, in order.
    pub(crate) fn report(&mut self, gen_no: u32, input: Input) {
        self.last_report = self.last_report.max(self.now + self.rng.below(3));
        self.at_time(self.last_report, Ev::Gate { gen_no, input });
    }

    fn absorb(&mut self, batches: &[protocol::record::Batch]) {
        match self.ledger.absorb(batches, self.now) {
            Ok(notes) => {
                for note in notes {
                    self.committed(note);
                }
            }
            Err(what) => self.fail(what),
        }
    }
}
