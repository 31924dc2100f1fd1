//! The hub: the one task that owns the core. Everything that happens comes here as an [`Input`]; what the core decides
//! is carried out here, in order. It never waits for a socket, a disk or an agent.

use std::{collections::HashMap, path::PathBuf, sync::Arc, time::Duration};

use delivery::{Action, AgentId, ConnId, Core, Input};
use protocol::{
    code::CloseCode,
    limits,
    link::{Said, ToAgent},
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};
use wire::Out;

use crate::{
    clock::Clock,
    disk::{Disk, MediaJob},
    health::Health,
    inlet::{Gate, Inside, Outside},
    metrics::{Metrics, Snapshot, close_code},
};

/// Inputs handled in one go before timers and answers get their turn.
const AT_ONCE: usize = 256;
/// A stop closes at most one connection in this time, so that not all of them come back in the same moment.
const CLOSE_STEP: Duration = Duration::from_millis(5);
/// Old rows and left-over files are looked for so often...
const HOUSEKEEPING: Duration = Duration::from_secs(60);
/// ...and so soon again while there is more to remove.
const TRIM_STEP: Duration = Duration::from_millis(200);
/// Rows are kept so much longer than they are remembered, milliseconds: nobody is just reading them then.
const TRIM_MARGIN: u64 = 3_600_000;

/// See the module.
pub(crate) struct Hub {
    pub(crate) core: Core,
    pub(crate) clock: Clock,
    pub(crate) disk: Disk,
    pub(crate) health: Arc<Health>,
    pub(crate) metrics: Arc<Metrics>,
    /// Folder of the files that devices sent, for the paths that an agent gets.
    pub(crate) media: PathBuf,
    pub(crate) state: State,
}

/// What the hub keeps beside the core.
#[derive(Default)]
pub(crate) struct State {
    conns: session::Map<ConnId, Conn>,
    agents: HashMap<AgentId, mpsc::UnboundedSender<ToAgent>>,
    actions: Vec<Action>,
    stop: Option<Stop>,
    /// When old rows and left-over files are looked for next.
    housekeeping: Option<Instant>,
}

/// A connection.
struct Conn {
    out: wire::Sender,
    /// The close code that it was given.
    closing: Option<u16>,
}

/// A stop under way.
struct Stop {
    /// Connections that are still to be told, in this order.
    queue: Vec<ConnId>,
    /// When the next one is.
    next: Instant,
    step: Duration,
    /// The core has been told.
    told: bool,
    deadline: Instant,
}

impl Hub {
    /// Starts the core: what waited before the start is loaded.
    pub(crate) fn begin(&mut self, wake: Vec<String>) {
        let mut actions = std::mem::take(&mut self.state.actions);
        self.core.start(wake, self.clock.now(), &mut actions);
        self.state.actions = actions;
        self.carry_out(None);
        self.health.set_started();
    }

    /// Runs until a stop is complete. Returns the disk, whose last batches are still to be flushed.
    pub(crate) async fn run(
        mut self,
        mut outside: mpsc::Receiver<Outside>,
        mut inside: mpsc::UnboundedReceiver<Inside>,
    ) -> Disk {
        let mut waiting = Vec::with_capacity(AT_ONCE);
        loop {
            // Asked each time round, so that no stream of inputs keeps a deadline from being kept.
            let now = self.clock.now();
            if self.core.deadline().is_some_and(|at| at <= now) {
                self.handle(Input::Tick, None);
            }
            self.keep_house();
            self.go_on_stopping();
            if self.stopped() {
                return self.disk;
            }
            let wake = self.wake();
            tokio::select! {
                biased;
                message = inside.recv() => {
                    let mut next = message;
                    for _ in 0..AT_ONCE {
                        match next {
                            Some(message) => self.take_inside(message),
                            None => break,
                        }
                        next = inside.try_recv().ok();
                    }
                    if let Some(message) = next {
                        self.take_inside(message);
                    }
                }
                // While the disk is behind, nothing new is taken: senders wait, and read no more from their sockets.
                _ = outside.recv_many(&mut waiting, AT_ONCE), if self.disk.has_room() => {
                    for message in waiting.drain(..) {
                        self.take_outside(message);
                    }
                }
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
        }
    }

    /// When the hub must look up without an input.
    fn wake(&self) -> Option<Instant> {
        let core = self.core.deadline().map(|at| self.clock.instant(at));
        let stop = self.state.stop.as_ref().map(|s| if s.queue.is_empty() { s.deadline } else { s.next });
        [core, stop, self.state.housekeeping].into_iter().flatten().min()
    }

    fn take_outside(&mut self, message: Outside) {
        match message {
            Outside::Connected { conn, origin, out } => {
                self.metrics.opened();
                self.state.conns.insert(conn, Conn { out, closing: None });
                if self.state.stop.is_some() {
                    self.send(conn, Out::Close(CloseCode::Restart as u16));
                }
                self.handle(Input::Connected { conn, origin }, None);
            }
            Outside::Attached { agent, attach, frames } => {
                self.state.agents.insert(agent, frames);
                self.handle(Input::AgentAttached { agent, attach }, None);
            }
            Outside::Closed { conn, code, why } => {
                let ordered = self.state.conns.get(&conn).and_then(|conn| conn.closing);
                self.metrics.closed(close_code(why, ordered, code));
                self.handle(Input::Closed { conn, code }, None);
            }
            Outside::Input { input, gate } => self.handle(input, gate),
        }
    }

    fn take_inside(&mut self, message: Inside) {
        match message {
            Inside::Input(input) => {
                match &input {
                    Input::Stored { upto } => {
                        self.disk.answered(*upto);
                        self.health.store_works();
                    }
                    Input::StoreFailed { upto, why, .. } => {
                        self.disk.answered(*upto);
                        self.health.store_fails(why);
                    }
                    _ => {}
                }
                self.handle(input, None);
            }
            Inside::Trimmed { more: true } => self.state.housekeeping = Some(Instant::now() + TRIM_STEP),
            Inside::Trimmed { more: false } => {}
            Inside::Look(answer) => {
                let (batches, batch_bytes) = self.disk.under_way();
                let survey = self.core.survey();
                // Who asked may have gone.
                let _ = answer.send(Snapshot { survey, batches, batch_bytes });
            }
            Inside::Probe(answer) => self.disk.probe(answer),
            Inside::Drain(deadline) => self.stop(deadline),
        }
    }

    /// Removes old rows, a small step at a time, and files that agents left behind. Looks now and then.
    fn keep_house(&mut self) {
        if self.state.stop.is_some() || self.state.housekeeping.is_some_and(|at| at > Instant::now()) {
            return;
        }
        self.state.housekeeping = Some(Instant::now() + HOUSEKEEPING);
        let now = self.clock.now();
        self.disk.trim(now.saturating_sub(limits::REMEMBER_MS + TRIM_MARGIN));
        self.disk.media(MediaJob::Tidy { now });
    }

    fn handle(&mut self, input: Input, gate: Option<Gate>) {
        self.metrics.input(&input);
        let gone = match &input {
            Input::Closed { conn, .. } => Some(*conn),
            Input::AgentDetached { agent, .. } => {
                self.state.agents.remove(agent);
                None
            }
            _ => None,
        };
        let mut actions = std::mem::take(&mut self.state.actions);
        self.core.handle(input, self.clock.now(), &mut actions);
        self.state.actions = actions;
        self.carry_out(gate);
        if let Some(conn) = gone {
            self.state.conns.remove(&conn);
        }
    }

    /// Carries out what the core decided. The gate goes with the bytes that it stands for; if they are not kept, it
    /// opens here.
    fn carry_out(&mut self, mut gate: Option<Gate>) {
        let mut actions = std::mem::take(&mut self.state.actions);
        for action in actions.drain(..) {
            match action {
                Action::Opened { conn } => self.send(conn, Out::Limit(limits::FRAME_AFTER_READY)),
                Action::Send { conn, text } => {
                    self.metrics.sent(&text);
                    self.send(conn, Out::Text(text));
                }
                Action::Ping { conn, nonce } => self.send(conn, Out::Ping(nonce)),
                Action::Close { conn, code } => self.send(conn, Out::Close(code as u16)),
                Action::Store(batch) => self.disk.store(batch),
                Action::StoreResume { upto } => self.disk.resume(upto),
                Action::Load { device, since } => self.disk.load(device, since),
                Action::Read { device, ticket, positions } => self.disk.read(device, ticket, positions),
                Action::Spool { spool, part } => {
                    self.disk.media(MediaJob::Spool { spool, part, gate: gate.take() });
                }
                Action::Assemble { device, spool, head } => {
                    self.disk.media(MediaJob::Assemble { device, spool, head });
                }
                Action::Discard { spool } => self.disk.media(MediaJob::Discard { spool }),
                Action::Remove { file } => self.disk.media(MediaJob::Remove { file }),
                Action::TakeFile { device, ticket, source, mime, filename, kind } => {
                    self.disk.media(MediaJob::Take {
                        device,
                        ticket,
                        source,
                        mime,
                        filename,
                        kind,
                        now: self.clock.now(),
                    });
                }
                Action::ReadFile { device, ticket, file, offset, len } => {
                    self.disk.media(MediaJob::Read { device, ticket, file, offset, len });
                }
                Action::ToAgent { agent, mut frame } => {
                    self.fill_paths(&mut frame);
                    if let Some(frames) = self.state.agents.get(&agent) {
                        // Its task may have ended; the core is told by `AgentDetached`.
                        let _ = frames.send(frame);
                    }
                }
                Action::DetachAgent { agent } => {
                    self.state.agents.remove(&agent);
                }
                Action::Log { warn: true, text } => tracing::warn!("{text}"),
                Action::Log { warn: false, text } => tracing::debug!("{text}"),
            }
        }
        self.state.actions = actions;
    }

    fn send(&mut self, conn: ConnId, out: Out) {
        if let Some(conn) = self.state.conns.get_mut(&conn) {
            if let Out::Close(code) = out {
                conn.closing.get_or_insert(code);
            }
            // The connection may be over; the core is told by `Closed`.
            let _ = conn.out.send(out);
        }
    }

    /// An agent on this host gets absolute paths; the core knows only names in the media folder.
    fn fill_paths(&self, frame: &mut ToAgent) {
        if let ToAgent::Event(event) = frame
            && let Said::Voice { media } | Said::Media { media } = &mut event.what
        {
            media.path = self.media.join(&media.file).to_str().map(str::to_owned);
        }
    }

    /// Begins a stop: connections are closed one after the other over the first half of the time, each served until its
    /// turn; then the core closes whatever is left.
    fn stop(&mut self, deadline: Instant) {
        if self.state.stop.is_some() {
            return;
        }
        self.health.set_stopping();
        let now = Instant::now();
        let queue: Vec<ConnId> = self.state.conns.keys().copied().collect();
        let half = deadline.saturating_duration_since(now) / 2;
        let fair = half.checked_div(u32::try_from(queue.len()).unwrap_or(u32::MAX)).unwrap_or_default();
        self.state.stop = Some(Stop { queue, next: now, step: fair.min(CLOSE_STEP), told: false, deadline });
    }

    fn go_on_stopping(&mut self) {
        let now = Instant::now();
        let mut closing = Vec::new();
        let Some(stop) = &mut self.state.stop else { return };
        while stop.next <= now
            && let Some(conn) = stop.queue.pop()
        {
            closing.push(conn);
            stop.next += stop.step;
        }
        let tell = stop.queue.is_empty() && !std::mem::replace(&mut stop.told, stop.queue.is_empty());
        for conn in closing {
            self.send(conn, Out::Close(CloseCode::Restart as u16));
        }
        if tell {
            self.handle(Input::Drain, None);
        }
    }

    fn stopped(&self) -> bool {
        self.state
            .stop
            .as_ref()
            .is_some_and(|s| s.told && (self.state.conns.is_empty() || s.deadline <= Instant::now()))
    }
}
