//! One device: what it said and what it gets, whether or not it is connected. Loaded from the store at its first contact.

mod busy;
mod calls;
mod cards;
mod deliver;
mod link;
mod load;
mod messages;
mod replay;
mod said;
mod survey;
mod write;

pub(crate) use deliver::Who;

use std::collections::VecDeque;

use protocol::{
    Millis,
    client::{ClientFrame, HelloDevice},
    limits,
    link::{CallError, CallValue, DeviceInfo, FileRefused, FileTaken, FromAgent, User},
    problem::Problem,
    record::{DeviceNo, DeviceState, InBody, InRecord, Op, Pos},
    series::SpoolNo,
    server::ServerFrame,
    words::{Lang, Say},
};
use session::{bubble::Bubble, rate::Bucket, remember::Remembered};

use self::busy::Busy;
use crate::{
    io::{Action, AgentId, ConnId},
    outbox::{Item, Outbox},
    shared::Ctx,
};

/// So long after the link to the agent is lost nothing may stick, milliseconds (the protocol allows 5 s).
const CLEAR_AFTER_MS: u64 = 3_000;
/// So long after the link is lost the bubbles of an agent that does not come back are closed, milliseconds.
const CLOSE_AFTER_MS: u64 = 60_000;
/// An outage shorter than this is not told to the person, milliseconds.
const NOTICE_AFTER_MS: u64 = 5_000;
/// From this many replacements of a living connection within [`REPLACE_WINDOW_MS`] on, `ready` is held back.
const REPLACE_FREELY: usize = 3;
const REPLACE_WINDOW_MS: u64 = 10_000;
const REPLACE_PAUSE_MS: u64 = 2_000;

/// The connection of a device.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) conn: ConnId,
    /// `ready` was written.
    pub(crate) ready: bool,
    /// Bytes handed over that the socket has not taken.
    pub(crate) unsent: usize,
    pub(crate) lang: Lang,
    /// What the person calls themselves; the user's id stands in the device's state.
    user_name: Option<String>,
    /// The user comes from the token.
    proven: bool,
}

/// What happens when a batch is on disk.
#[derive(Debug)]
enum Effect {
    /// What the device said may go to the agent.
    Accepted { pos: Pos, id: String, hash: u128 },
    /// The device gets this answer.
    Answer(Box<ServerFrame>),
    /// What the gateway tells the agent may go to it.
    Told { pos: Pos },
    /// The agent may act on the answer that it took, unless its card has ended meanwhile.
    Taken { agent: AgentId, req: u64, event: Pos },
    /// The agent is asked about a card: behind the results that it has not got, so that it knows what it took.
    Ask { prompt_id: String },
    /// Who waits for the outcome of a delivery is told.
    Report { id: String, who: Who, outcome: deliver::Outcome },
    /// The agent gets its result.
    Result { agent: AgentId, req: u64, value: Option<CallValue> },
}

/// An open bubble: one piece of an agent's message.
#[derive(Debug)]
struct Open {
    /// The id the agent knows.
    of: String,
    piece: u32,
    /// Latest record of its state.
    pos: Pos,
    /// Batch of its first record.
    batch: u64,
    /// It comes from the store, and the agent has not gone on with it since.
    restored: bool,
    bubble: Bubble,
}

/// What a read of records was for.
#[derive(Debug)]
enum ReadFor {
    HandOver,
    Replay(Vec<(u64, Item)>),
}

/// What the device said and is not accepted yet, in order.
#[derive(Debug)]
enum Held {
    /// A file that is being put together.
    File(SpoolNo),
    /// What was said after it.
    Frame(ClientFrame),
}

/// A file of the agent's that is being taken over; the agent's further calls for this device wait behind it.
#[derive(Debug)]
struct Taking {
    ticket: u64,
    agent: AgentId,
    call: FromAgent,
}

#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) no: DeviceNo,
    pub(crate) state: DeviceState,
    /// The state differs from what is stored.
    dirty: bool,
    pub(crate) live: Option<Live>,
    /// A connection that the device has ended itself; the core is to know.
    pub(crate) left: Option<ConnId>,
    /// When `ready` is written; later than now only if replacements come too fast.
    pub(crate) ready_at: Option<Millis>,
    replaced: Vec<Millis>,
    frames: Bucket,
    rubbish: u32,
    /// Ids that were accepted, with the hash of their content.
    seen: Remembered,
    /// Ids that were given out, with the hash of their last content.
    given: Remembered,
    /// How keyed deliveries ended.
    ended: Remembered,
    /// What is under way.
    busy: Busy,
    outbox: Outbox,
    /// Last batch on disk that the device knows of, and the last that it has a part in.
    committed: u64,
    last_batch: u64,
    /// Last batch in which the device had more than input.
    last_hard: u64,
    /// Records of input in the batch of this input.
    inputs: usize,
    /// Hash of the instance of the agent that was here last.
    last_instance: Option<u64>,
    clear_at: Option<Millis>,
    close_at: Option<Millis>,
    /// When the bubbles that the agent has not gone on with since they were loaded are closed: what closed them may have
    /// been lost with a batch.
    forget_at: Option<Millis>,
    noticed_outage: u64,
    /// When it is told that the agent is away.
    notice_at: Option<Millis>,
    pub(crate) timer: Option<Millis>,
    /// The present input touched it.
    pub(crate) touched: bool,
    /// The agent was told that it is connected.
    pub(crate) told_online: bool,
}

impl Device {
    /// A device that was never here.
    pub(crate) fn new(no: DeviceNo, id: String, ctx: &Ctx<'_>) -> Self {
        let settings = &ctx.shared.settings;
        Self {
            no,
            state: DeviceState { info: DeviceInfo { id, ..DeviceInfo::default() }, ..DeviceState::default() },
            dirty: false,
            live: None,
            left: None,
            ready_at: None,
            replaced: Vec::new(),
            frames: Bucket::new(settings.frames_per_second, settings.frames_burst, ctx.now),
            rubbish: 0,
            seen: Remembered::default(),
            given: Remembered::default(),
            ended: Remembered::default(),
            busy: Busy::default(),
            outbox: Outbox::default(),
            committed: 0,
            last_batch: 0,
            last_hard: 0,
            inputs: 0,
            last_instance: None,
            clear_at: None,
            close_at: None,
            forget_at: None,
            noticed_outage: 0,
            notice_at: None,
            timer: None,
            touched: false,
            told_online: false,
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.state.info.id
    }

    /// Whether a `ready` was written on a living connection.
    pub(crate) fn online(&self) -> bool {
        self.live.as_ref().is_some_and(|live| live.ready)
    }

    pub(crate) fn lang(&self, ctx: &Ctx<'_>) -> Lang {
        match &self.live {
            Some(live) => live.lang,
            None => self.state.lang.as_deref().and_then(Lang::from_tag).unwrap_or(ctx.shared.settings.lang),
        }
    }

    /// A connection's `hello` was accepted. `ready` is written at once, unless connections replace each other too fast.
    #[expect(clippy::too_many_arguments, reason = "one call, each value from another part of hello")]
    pub(crate) fn connected(
        &mut self,
        conn: ConnId,
        replaces: bool,
        device: Option<HelloDevice>,
        user: User,
        lang_tag: Option<String>,
        lang: Lang,
        ctx: &mut Ctx<'_>,
    ) {
        let info = DeviceInfo {
            id: self.id().to_owned(),
            name: device.as_ref().and_then(|device| device.name.clone()),
            platform: device.as_ref().and_then(|device| device.platform.clone()),
            app_version: device.and_then(|device| device.app_version),
            user_id: Some(user.id),
            online: false,
        };
        if self.state.info != info || self.state.lang != lang_tag || self.last_batch == 0 {
            self.state.info = info;
            self.state.lang = lang_tag;
            self.dirty = true;
        }
        self.live =
            Some(Live { conn, ready: false, unsent: 0, lang, user_name: user.name, proven: user.proven });
        if replaces {
            self.replaced.push(ctx.now);
        }
        self.replaced.retain(|at| ctx.now < at + REPLACE_WINDOW_MS);
        if replaces && self.replaced.len() >= REPLACE_FREELY {
            self.ready_at = Some(ctx.now + REPLACE_PAUSE_MS);
        } else {
            self.open_session(ctx);
        }
    }

    /// The device is about to be forgotten in memory: whoever waits for an answer is told.
    pub(crate) fn give_up(&mut self, ctx: &mut Ctx<'_>) {
        for (_, effect) in std::mem::take(&mut self.busy.effects) {
            match effect {
                Effect::Result { agent, req, .. } | Effect::Taken { agent, req, .. } => {
                    ctx.result(agent, req, Err(cannot_store()));
                }
                Effect::Report { who, .. } => deliver::not_kept(&who, ctx),
                _ => {}
            }
        }
        // Files that are being taken over are taken again when the call is repeated.
        let waiting = self.busy.taking.take().map(|taking| (taking.agent, taking.call));
        for (agent, call) in waiting.into_iter().chain(std::mem::take(&mut self.busy.calls)) {
            if let Some(req) = call.req() {
                ctx.result(agent, req, Err(cannot_store()));
            }
        }
        ctx.shared.spool_bytes = ctx.shared.spool_bytes.saturating_sub(self.busy.series.bytes());
        let spools: Vec<SpoolNo> = self.busy.series.clear();
        for spool in spools {
            ctx.out.push(Action::Discard { spool });
        }
        self.deliveries_given_up(ctx);
    }

    /// Sends an answer: past everything that waits.
    pub(crate) fn answer(&mut self, frame: &ServerFrame, ctx: &mut Ctx<'_>) {
        let Some(live) = &mut self.live else { return };
        let text = frame.encode();
        live.unsent += text.len();
        ctx.out.push(Action::Send { conn: live.conn, text });
    }

    /// Answers with a refusal.
    pub(crate) fn refuse(&mut self, problem: &Problem, ctx: &mut Ctx<'_>) {
        let lang = self.lang(ctx);
        self.answer(&crate::gate::error(problem, false, lang), ctx);
    }

    /// The next `seq`.
    fn seq(&mut self) -> u64 {
        self.state.seq += 1;
        self.dirty = true;
        self.state.seq
    }

    /// An item that the batch of this input brings to disk.
    fn item(&mut self, seq: u64, pos: Pos, id: u128, once: bool, ctx: &Ctx<'_>) {
        let once = once.then(|| self.live.as_ref().map_or(0, |live| live.conn));
        self.outbox.add(seq, Item { pos, id, batch: ctx.shared.batch_no, once });
    }

    /// After the batch of this input.
    fn after_batch(&mut self, effect: Effect, ctx: &Ctx<'_>) {
        self.busy.effects.push_back((ctx.shared.batch_no, effect));
    }

    /// After everything that this device has written so far: for a call that was made before.
    fn after_last(&mut self, effect: Effect) {
        let batch = self.last_batch.max(self.busy.effects.back().map_or(0, |(batch, _)| *batch));
        self.busy.effects.push_back((batch, effect));
    }

    /// Batches up to `upto` are on disk.
    pub(crate) fn stored(&mut self, upto: u64) {
        self.committed = self.committed.max(upto);
    }

    /// Batches of this device failed. `true`: only input was in them, and the device was told. `false`: what the device
    /// is in memory differs from what is on disk, and it must be loaded again.
    pub(crate) fn failed(&mut self, from: u64, upto: u64, ctx: &mut Ctx<'_>) -> bool {
        let only_input = self.last_hard < from;
        let (lost, kept): (VecDeque<_>, VecDeque<_>) =
            self.busy.effects.drain(..).partition(|(batch, _)| (from..=upto).contains(batch));
        self.busy.effects = kept;
        for (_, effect) in lost {
            match effect {
                Effect::Accepted { pos, id, hash } => {
                    if let Some(InRecord { what: InBody::File { file }, .. }) = self.busy.inbox.undo(pos) {
                        // Nobody names it; the client sends it again.
                        ctx.out.push(Action::Remove { file: file.file });
                    }
                    self.seen.forget(hash);
                    ctx.shared.events.remove(&pos);
                    let problem = Problem::new(
                        protocol::code::ErrorCode::Internal,
                        "the gateway could not store it; send it again later",
                    )
                    .saying(Say::CannotStore)
                    .with_id(Some(id));
                    self.refuse(&problem, ctx);
                }
                Effect::Told { .. } | Effect::Ask { .. } => {}
                Effect::Report { who, .. } => deliver::not_kept(&who, ctx),
                Effect::Answer(frame) => self.answer(&frame, ctx),
                Effect::Result { agent, req, .. } | Effect::Taken { agent, req, .. } => {
                    ctx.result(agent, req, Err(cannot_store()));
                }
            }
        }
        only_input
    }

    /// Runs what waited for the disk, hands over, writes; then puts the state into the batch if it has changed. Called
    /// after every input that touched the device.
    pub(crate) fn settle(&mut self, ctx: &mut Ctx<'_>) {
        self.run_effects(ctx);
        self.hand_over(ctx);
        self.pump(ctx);
        if !self.write_state(ctx) {
            // There is no batch of this input: what was to wait for it waits for the last one.
            if !self.busy.effects.is_empty() {
                let no = ctx.shared.batch_no;
                for (batch, _) in self.busy.effects.iter_mut().rev().take_while(|(batch, _)| *batch >= no) {
                    *batch = self.last_batch;
                }
            }
            self.run_effects(ctx);
        }
        self.busy.rest();
    }

    fn run_effects(&mut self, ctx: &mut Ctx<'_>) {
        while let Some((batch, effect)) = self.busy.effects.front()
            && (*batch <= self.committed
                || matches!(effect, Effect::Result { .. })
                    && crate::mutants::is(crate::mutants::Mutant::ConfirmedBeforeDisk))
        {
            match self.busy.effects.pop_front() {
                Some((_, Effect::Accepted { pos, .. })) => {
                    self.busy.inbox.stored(pos);
                    self.note_outage(ctx);
                }
                Some((_, Effect::Told { pos })) => self.busy.inbox.stored(pos),
                Some((_, Effect::Result { agent, req, value })) => ctx.result(agent, req, Ok(value)),
                Some((_, Effect::Taken { agent, req, event })) => self.tell_taken(agent, req, event, ctx),
                Some((_, Effect::Ask { prompt_id })) => self.ask_agent(&prompt_id, ctx),
                Some((_, Effect::Report { id, who, outcome })) => deliver::report(&id, &who, &outcome, ctx),
                Some((_, Effect::Answer(frame))) => self.answer(&frame, ctx),
                None => break,
            }
        }
    }

    /// Puts the state into the batch of this input if it belongs there. Whether the device has a part in that batch.
    fn write_state(&mut self, ctx: &mut Ctx<'_>) -> bool {
        let appended =
            ctx.shared.ops.iter().filter(|op| matches!(op, Op::Append(row) if row.device == self.no)).count();
        if appended == 0 && !self.dirty {
            return false;
        }
        if self.dirty || appended > self.inputs {
            self.last_hard = ctx.shared.batch_no;
        }
        self.dirty = false;
        self.inputs = 0;
        self.state.live_from = self.live_from();
        self.last_batch = ctx.shared.batch_no;
        ctx.shared.ops.push(Op::Device {
            no: self.no,
            id: self.id().to_owned(),
            state: self.state.encode(),
            wake: !self.busy.inbox.is_empty()
                || self.busy.cards.any_open()
                || !self.busy.open.is_empty()
                || !self.busy.unplaced.is_empty(),
        });
        true
    }

    /// The oldest record that is needed to go on after a restart.
    fn live_from(&self) -> Option<Pos> {
        [
            self.busy.inbox.first(),
            self.busy.cards.first_pos(),
            self.outbox.first_pos(),
            self.busy.open.iter().map(|open| open.pos).min(),
            self.busy.unplaced.iter().map(|(_, pos)| *pos).min(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// When [`Self::tick`] is wanted.
    pub(crate) fn deadline(&self, ctx: &Ctx<'_>) -> Option<Millis> {
        let settings = &ctx.shared.settings;
        let streaming = self.online() && self.busy.replay.is_none();
        let bubbles = self
            .busy
            .open
            .iter()
            .flat_map(|open| [open.bubble.store_at(), if streaming { self.edit_at(open) } else { None }]);
        let connected = self.online().then(|| self.outbox.ping_at(self.state.proven)).flatten();
        [
            self.ready_at,
            self.busy.turn.deadline(),
            self.busy.cards.deadline(),
            self.busy.series.deadline(settings.series_idle_ms),
            self.busy.inbox.expires(settings.wait_ms),
            self.notice_at,
            self.clear_at,
            self.close_at,
            self.forget_at,
            connected,
            self.busy.pending.iter().filter_map(|pending| self.due_at(pending)).min(),
        ]
        .into_iter()
        .chain(bubbles)
        .flatten()
        .min()
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, ctx: &mut Ctx<'_>) {
        let now = ctx.now;
        if self.ready_at.is_some_and(|at| now >= at) {
            self.open_session(ctx);
        }
        if self.clear_at.is_some_and(|at| now >= at) {
            self.clear_at = None;
            self.clear_turn(ctx);
        }
        if self.close_at.is_some_and(|at| now >= at) {
            self.close_at = None;
            self.close_bubbles(|_| true, ctx);
        }
        if self.forget_at.is_some_and(|at| now >= at) {
            self.forget_at = None;
            self.close_bubbles(|open| open.restored, ctx);
        }
        if self.busy.turn.deadline().is_some_and(|at| now >= at) {
            let mut frames = Vec::new();
            self.busy.turn.tick(now, &mut frames);
            self.push_frames(frames);
        }
        self.card_ticks(ctx);
        self.series_ticks(ctx);
        self.inbox_ticks(ctx);
        self.delivery_ticks(ctx);
        self.store_bubbles(ctx);
        self.forget_old(now);
    }

    fn forget_old(&mut self, now: Millis) {
        let horizon = now.saturating_sub(limits::REMEMBER_MS);
        self.seen.trim(horizon);
        self.given.trim(horizon);
        self.ended.trim(horizon);
    }

    /// One frame on an open session.
    pub(crate) fn frame(&mut self, frame: Result<ClientFrame, Problem>, ctx: &mut Ctx<'_>) {
        if let Err(retry_after) = self.frames.take(ctx.now) {
            let id = match &frame {
                Ok(ClientFrame::Text(text)) => text.id.clone(),
                Ok(ClientFrame::Media(part)) => part.id.clone(),
                Ok(ClientFrame::Prompt(answer)) => Some(answer.prompt_id.clone()),
                Ok(_) => None,
                Err(problem) => problem.id.clone(),
            };
            let mut problem =
                Problem::new(protocol::code::ErrorCode::RateLimited, "too many frames: send it again later")
                    .with_id(id);
            problem.retry_after_ms = Some(retry_after);
            self.refuse(&problem, ctx);
            return;
        }
        self.forget_old(ctx.now);
        match frame {
            Ok(frame) => {
                self.rubbish = 0;
                self.said(frame, ctx);
            }
            Err(problem) => self.bad(problem, ctx),
        }
    }

    /// Parts of a file were taken over, or not.
    pub(crate) fn file_taken(
        &mut self,
        ticket: u64,
        done: Result<FileTaken, FileRefused>,
        ctx: &mut Ctx<'_>,
    ) {
        let Some(taking) = self.busy.taking.take_if(|taking| taking.ticket == ticket) else {
            // The device was forgotten in memory meanwhile; the agent repeats the call.
            if let Ok(taken) = done {
                ctx.out.push(Action::Remove { file: taken.file });
            }
            return;
        };
        self.finish_media(taking.agent, taking.call, done, ctx);
        while self.busy.taking.is_none() {
            let Some((agent, call)) = self.busy.calls.pop_front() else { break };
            self.call_now(agent, call, ctx);
        }
    }
}

fn cannot_store() -> CallError {
    crate::shared::call_error("internal", "the gateway could not store it", true)
}
