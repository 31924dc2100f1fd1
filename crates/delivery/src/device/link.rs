//! The device's side of the agent's coming and going, and of the hand-over.

use protocol::{
    link::{DeviceInfo, Event, Said, ToAgent},
    record::{Body, InBody, InRecord, Pos, Row, hash64},
};

use super::{CLEAR_AFTER_MS, CLOSE_AFTER_MS, Device, ReadFor};
use crate::{inbox::Next, io::Action, shared::Ctx};

impl Device {
    /// What the agent is told of this device.
    pub(super) fn info(&self) -> DeviceInfo {
        DeviceInfo { online: self.online(), ..self.state.info.clone() }
    }

    /// Every event that is not done, or whose card the agent is acting on, belongs to this device.
    pub(crate) fn register_events(&self, ctx: &mut Ctx<'_>) {
        for pos in self.busy.inbox.positions().chain(self.busy.cards.events()) {
            ctx.shared.events.insert(pos, self.no);
        }
    }

    /// An agent has attached.
    pub(crate) fn agent_here(&mut self, ctx: &mut Ctx<'_>) {
        let Some(agent) = ctx.shared.agent.as_ref() else { return };
        let (instance, fresh) = (agent.attach.instance.clone(), agent.attach.fresh);
        self.clear_at = None;
        self.close_at = None;
        self.notice_at = None;
        for id in self.busy.cards.open_ids(Some(&instance)) {
            self.close_refused(&id, "agent_restarted", ctx);
        }
        let hash = hash64(&[instance.as_bytes()]);
        let another = self.last_instance.is_some_and(|last| last != hash);
        self.close_bubbles(|open| open.bubble.instance != instance, ctx);
        if another || fresh {
            self.clear_turn(ctx);
        }
        if fresh {
            self.busy.cards.forgotten();
        }
        if fresh && !self.busy.open.is_empty() {
            // It may go on with them, or not.
            self.busy.open.iter_mut().for_each(|open| open.restored = true);
            self.forget_at = Some(ctx.now + CLOSE_AFTER_MS);
        }
        self.last_instance = Some(hash);
        self.busy.inbox.again(another || fresh);
        self.offer_again(ctx);
        for prompt_id in self.busy.cards.asked() {
            self.after_last(super::Effect::Ask { prompt_id });
        }
    }

    /// The agent's link is gone.
    pub(crate) fn agent_gone(&mut self, ended: bool, ctx: &mut Ctx<'_>) {
        if crate::mutants::is(crate::mutants::Mutant::TurnSticks) {
            self.clear_at = None;
        } else if ended {
            self.close_bubbles(|_| true, ctx);
            self.clear_turn(ctx);
        } else {
            if self.busy.turn.working() {
                self.clear_at = Some(ctx.now + CLEAR_AFTER_MS);
            }
            if !self.busy.open.is_empty() {
                self.close_at = Some(ctx.now + CLOSE_AFTER_MS);
            }
        }
        if self.busy.inbox.any_unacked() {
            self.note_outage(ctx);
        }
        self.busy.inbox.again(false);
        // Calls of an agent that is gone have nobody to answer; it repeats them when it is back.
        self.busy.calls.clear();
    }

    /// The agent is silent: no state may stick.
    pub(crate) fn clear_turn(&mut self, ctx: &mut Ctx<'_>) {
        let _ = ctx;
        if self.busy.turn.idle() {
            return;
        }
        let mut frames = Vec::new();
        self.busy.turn.clear(&mut frames);
        self.push_frames(frames);
    }

    /// Hands over what is on disk, in order.
    pub(super) fn hand_over(&mut self, ctx: &mut Ctx<'_>) {
        let Some(agent) = ctx.shared.agent.as_ref().map(|agent| agent.id) else { return };
        if self.busy.inbox.is_empty() {
            return;
        }
        loop {
            match self.busy.inbox.next() {
                Next::Nothing => return,
                Next::Read(pos) => {
                    if !self.busy.reads.values().any(|what| matches!(what, ReadFor::HandOver)) {
                        let ticket = ctx.shared.number();
                        self.busy.reads.insert(ticket, ReadFor::HandOver);
                        let positions = self.busy.inbox.positions_from(pos, crate::inbox::UNACKED);
                        ctx.out.push(Action::Read { device: self.no, ticket, positions });
                    }
                    return;
                }
                Next::Hand(pos, record, at, redelivered) => {
                    let InRecord { id, user, what } = *record;
                    let what = match what {
                        InBody::Text { text } => Said::Text { text },
                        InBody::File { file } if file.kind == "voice" => Said::Voice { media: file },
                        InBody::File { file } => Said::Media { media: file },
                        InBody::Card { card } => Said::Prompt { prompt: card },
                    };
                    let device = self.info();
                    let event = Event { event: pos, device, user, id, what, at, redelivered };
                    ctx.tell_agent(agent, ToAgent::Event(Box::new(event)));
                }
            }
        }
    }

    /// Bodies that were read for the hand-over.
    pub(super) fn bodies(&mut self, rows: Vec<Row>, ctx: &mut Ctx<'_>) {
        for row in rows {
            match Body::decode(&row.body) {
                Ok(Body::In(record)) => self.busy.inbox.body(row.pos, record),
                Ok(_) => {}
                Err(why) => ctx.warn(format!("a stored record cannot be read: {why}")),
            }
        }
    }

    /// An event is done.
    pub(crate) fn event_done(&mut self, pos: Pos, ctx: &mut Ctx<'_>) {
        ctx.shared.events.remove(&pos);
        if self.busy.inbox.done(pos, &mut self.state) {
            self.dirty = true;
        }
    }
}
