//! Messages with a report: `deliver` from a command line or cron, and calls with `offline:"fail"`. Done only when the
//! device's stack has it; offline is said at once.

use protocol::{
    client::Deliver,
    code::ErrorCode,
    link::CallValue,
    problem::Problem,
    record::{Body, Mark, MessageRecord},
    server::{DeliverState, ServerFrame},
};

use super::{Device, Effect, messages::text_content};
use crate::{
    gate,
    io::{AgentId, ConnId},
    outbox::id_hash,
    shared::{Ctx, call_error},
};

/// Who waits for the outcome.
#[derive(Clone, Debug)]
pub(crate) enum Who {
    /// A connection.
    Conn { conn: ConnId, id: String, target: String, lang: protocol::words::Lang },
    /// The agent.
    Agent { agent: AgentId, req: u64 },
}

/// A message whose outcome somebody waits for.
#[derive(Debug)]
pub(super) struct Pending {
    /// Message id.
    pub(super) id: String,
    /// `None`: a large file that has no number yet.
    pub(super) seq: Option<u64>,
    pub(super) until: u64,
    pub(super) who: Who,
    /// It is stored for the next connect.
    pub(super) queue: bool,
}

/// In `ended`: not confirmed, or not known to be.
pub(super) const OFFLINE: u64 = 0;
/// In `ended`: the device has it.
const DELIVERED: u64 = 1;
/// In `ended`: stored for the next connect. Not on disk: the stored message itself tells it.
const QUEUED: u64 = 2;

/// How it ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    Delivered,
    Queued,
    Offline,
}

impl Device {
    /// A `deliver` frame for this device. `credential` keeps the ids of different tokens apart.
    pub(crate) fn deliver_frame(&mut self, deliver: Deliver, credential: &str, who: Who, ctx: &mut Ctx<'_>) {
        let key = format!("deliver/{credential}/{}", deliver.id);
        let id = ctx.shared.message_id(self.no, &key);
        self.deliver(&id, deliver.text, deliver.queue, who, ctx);
    }

    /// Sends a message and reports.
    pub(super) fn deliver(&mut self, id: &str, text: String, queue: bool, who: Who, ctx: &mut Ctx<'_>) {
        let hash = id_hash(id);
        let content = text_content(&text);
        if let Some(known) = self.given.get(hash) {
            if known == content {
                ctx.shared.counts.repeats_from_agents += 1;
                self.deliver_again(id, who);
            } else {
                id_used(&who, ctx);
            }
            return;
        }
        if !self.online() && !queue {
            report(id, &who, &Outcome::Offline, ctx);
            return;
        }
        let message = MessageRecord {
            seq: self.seq(),
            id: id.to_owned(),
            text,
            reply_to: None,
            edit: false,
            once: !queue,
        };
        let seq = message.seq;
        self.message_item(message, ctx);
        let until = if self.online() { ctx.now + ctx.shared.settings.deliver_ms } else { ctx.now };
        self.busy.pending.push(Pending { id: id.to_owned(), seq: Some(seq), until, who, queue });
    }

    /// The same id and text again: the first outcome.
    fn deliver_again(&mut self, id: &str, who: Who) {
        if let Some(first) = self.busy.pending.iter().find(|pending| pending.id == id) {
            let again =
                Pending { id: id.to_owned(), seq: first.seq, until: first.until, who, queue: first.queue };
            self.busy.pending.push(again);
            return;
        }
        let outcome = match self.ended.get(id_hash(id)) {
            Some(DELIVERED) => Outcome::Delivered,
            // A message that is stored for the next connect has no other end on disk.
            Some(QUEUED) | None => Outcome::Queued,
            Some(_) => Outcome::Offline,
        };
        // The outcome may still be on its way to the disk.
        self.after_last(Effect::Report { id: id.to_owned(), who, outcome });
    }

    /// A large file has got its number.
    pub(super) fn deliveries_got_seq(&mut self, id: &str, seq: u64) {
        for pending in self.busy.pending.iter_mut().filter(|pending| pending.id == id) {
            pending.seq = Some(seq);
        }
    }

    /// Everything up to `seq` is on the device.
    pub(super) fn deliveries_proven(&mut self, seq: u64, ctx: &mut Ctx<'_>) {
        self.end_deliveries(|pending| pending.seq.is_some_and(|of| of <= seq), &Outcome::Delivered, ctx);
    }

    /// The connection is gone: what is not proven is not delivered.
    pub(super) fn deliveries_lost(&mut self, ctx: &mut Ctx<'_>) {
        self.end_deliveries(|_| true, &Outcome::Offline, ctx);
    }

    /// The device is forgotten in memory: nothing is known of what was under way.
    pub(super) fn deliveries_given_up(&mut self, ctx: &mut Ctx<'_>) {
        for pending in std::mem::take(&mut self.busy.pending) {
            report(&pending.id, &pending.who, &Outcome::Offline, ctx);
        }
    }

    /// When a delivery is over. One that is queued is reported when it is on disk.
    pub(super) fn due_at(&self, pending: &Pending) -> Option<u64> {
        let stored = pending.seq.is_none_or(|seq| self.outbox.is_stored(seq, self.committed));
        (!pending.queue || stored).then_some(pending.until)
    }

    pub(super) fn delivery_ticks(&mut self, ctx: &mut Ctx<'_>) {
        let now = ctx.now;
        let due: Vec<String> = self
            .busy
            .pending
            .iter()
            .filter(|pending| self.due_at(pending).is_some_and(|at| now >= at))
            .map(|pending| pending.id.clone())
            .collect();
        self.end_deliveries(|pending| due.contains(&pending.id), &Outcome::Offline, ctx);
    }

    fn end_deliveries(&mut self, which: impl Fn(&Pending) -> bool, outcome: &Outcome, ctx: &mut Ctx<'_>) {
        if self.busy.pending.is_empty() {
            return;
        }
        let (end, keep): (Vec<Pending>, Vec<Pending>) =
            std::mem::take(&mut self.busy.pending).into_iter().partition(which);
        self.busy.pending = keep;
        for pending in end {
            let outcome = match outcome {
                Outcome::Offline if pending.queue => &Outcome::Queued,
                other => other,
            };
            let hash = id_hash(&pending.id);
            if self.ended.get(hash).is_none() && !matches!(outcome, Outcome::Queued) {
                let ok = matches!(outcome, Outcome::Delivered);
                self.ended.put(hash, u64::from(ok), ctx.now);
                let body = Body::Delivered { id: pending.id.clone(), ok };
                ctx.append(self.no, &body, Some(&Mark::Ended { id: hash, ok }));
            } else if self.ended.get(hash).is_none() {
                self.ended.put(hash, QUEUED, ctx.now);
            }
            // On disk first: the same id gets the same outcome also after a crash.
            let Pending { id, who, .. } = pending;
            self.after_batch(Effect::Report { id, who, outcome: *outcome }, ctx);
        }
    }
}

/// The outcome cannot be kept: nobody is told one that may be another later.
pub(super) fn not_kept(who: &Who, ctx: &mut Ctx<'_>) {
    match who {
        Who::Conn { conn, id, lang, .. } => {
            let problem = Problem::new(ErrorCode::Internal, "the gateway could not store the outcome")
                .saying(protocol::words::Say::CannotStore)
                .with_id(Some(id.clone()));
            ctx.shared.replies.push((*conn, gate::error(&problem, false, *lang)));
        }
        Who::Agent { agent, req } => ctx.result(*agent, *req, Err(super::cannot_store())),
    }
}

pub(super) fn report(message_id: &str, who: &Who, outcome: &Outcome, ctx: &mut Ctx<'_>) {
    let state = match outcome {
        Outcome::Delivered => Some(DeliverState::Delivered),
        Outcome::Queued => Some(DeliverState::Queued),
        Outcome::Offline => None,
    };
    match who {
        Who::Conn { conn, id, target, lang } => {
            let frame = match state {
                Some(state) => ServerFrame::DeliverDone { id: id.clone(), target: target.clone(), state },
                None => gate::error(
                    &Problem::new(
                        ErrorCode::DeviceOffline,
                        "the device is not connected, or did not confirm in time",
                    )
                    .with_id(Some(id.clone())),
                    false,
                    *lang,
                ),
            };
            ctx.shared.replies.push((*conn, frame));
        }
        Who::Agent { agent, req } => {
            let value = match state {
                Some(state) => Ok(Some(CallValue::Message { message_id: message_id.to_owned(), state })),
                None => Err(call_error(
                    "device_offline",
                    "the device is not connected, or did not confirm in time",
                    false,
                )),
            };
            ctx.result(*agent, *req, value);
        }
    }
}

fn id_used(who: &Who, ctx: &mut Ctx<'_>) {
    match who {
        Who::Conn { conn, id, lang, .. } => {
            let problem = Problem::bad("id already used for another text")
                .saying(protocol::words::Say::IdUsed)
                .with_id(Some(id.clone()));
            ctx.shared.replies.push((*conn, gate::error(&problem, false, *lang)));
        }
        Who::Agent { agent, req } => {
            ctx.result(*agent, *req, Err(call_error("bad_call", "key already used for another text", false)));
        }
    }
}
