//! Cards between the agent and the device.

use protocol::{
    client::PromptAnswer,
    code::ErrorCode,
    id::CardId,
    link::{CallValue, Event, FromAgent, Said, ToAgent, What},
    problem::Problem,
    record::{Body, CardRecord, InBody, InRecord, Mark, Pos},
    server::{Prompt, PromptDone, ServerFrame},
};
use session::cards::{self, Answered, Due, End};

use super::{Device, Effect};
use crate::{
    inbox::Stage,
    io::AgentId,
    outbox::id_hash,
    shared::{Asked, Ctx, call_error, withdrawn},
};

/// Longest time a card may stay open, seconds: what is remembered for a repeated call.
const LONGEST_SECONDS: u64 = protocol::limits::REMEMBER_MS / 1000;

impl Device {
    pub(super) fn prompt_call(&mut self, agent: AgentId, call: FromAgent, ctx: &mut Ctx<'_>) {
        let FromAgent::Prompt {
            req, key, kind, text, command, description, options, deadline_seconds, ..
        } = call
        else {
            return;
        };
        let key_hash = cards::key_hash(&key);
        if let Some(id) = self.busy.card_keys.get(&key_hash).cloned() {
            ctx.shared.counts.repeats_from_agents += 1;
            self.busy.cards.reopen(&id);
            self.after_last(Effect::Result { agent, req, value: Some(CallValue::Prompt { prompt_id: id }) });
            return;
        }
        if let Err(why) = cards::check(kind, &text, command.as_deref(), description.as_deref(), &options) {
            ctx.result(agent, req, Err(call_error("bad_call", why, false)));
            return;
        }
        if !(1..=LONGEST_SECONDS).contains(&deadline_seconds) {
            let why = format!("deadline_seconds must be 1 to {LONGEST_SECONDS}");
            ctx.result(agent, req, Err(call_error("bad_call", why, false)));
            return;
        }
        let pos = ctx.shared.pos();
        let deadline = ctx.now + deadline_seconds * 1000;
        let id = ctx.shared.card_ids.make(CardId { device: self.no, pos, deadline });
        let seq = self.seq();
        let prompt = Prompt {
            id: id.clone(),
            kind,
            text,
            command,
            description,
            options,
            session: format!("mobile:{}", self.id()),
            timeout_seconds: deadline_seconds,
            seq: Some(seq),
        };
        let instance =
            ctx.shared.agent.as_ref().map_or_else(String::new, |agent| agent.attach.instance.clone());
        let record = CardRecord { prompt: prompt.clone(), deadline, key, instance };
        let mark = Mark::Card { key: key_hash, id: id.clone() };
        ctx.append_at(pos, self.no, &Body::Card(record.clone()), Some(&mark));
        self.item(seq, pos, id_hash(&id), false, ctx);
        self.busy.card_keys.insert(key_hash, id.clone());
        self.busy.cards.open(record, pos);
        self.busy.turn.said();
        self.push_item(seq, vec![ServerFrame::Prompt(prompt)], ctx);
        self.after_batch(
            Effect::Result { agent, req, value: Some(CallValue::Prompt { prompt_id: id }) },
            ctx,
        );
    }

    /// The device answers a card.
    pub(super) fn card_answer(&mut self, answer: &PromptAnswer, ctx: &mut Ctx<'_>) {
        let event = ctx.shared.offer();
        match self.busy.cards.answer(answer, event, ctx.shared.settings.take_ms, ctx.now) {
            Answered::Unknown => self.unknown_card(&answer.prompt_id, ctx),
            // Its end is not on disk: it comes as an item when it is.
            Answered::Again(done) if self.outbox.waits(id_hash(&done.id), self.committed) => {}
            Answered::Again(done) => self.answer(&ServerFrame::PromptDone(done), ctx),
            Answered::Wait => {}
            Answered::Refused(problem) => {
                self.refuse(&problem.with_id(Some(answer.prompt_id.clone())), ctx);
            }
            Answered::Ask => self.after_last(Effect::Ask { prompt_id: answer.prompt_id.clone() }),
            Answered::Offer(outcome) => {
                ctx.shared.events.insert(event, self.no);
                self.offer(event, outcome, ctx);
            }
        }
    }

    fn unknown_card(&mut self, id: &str, ctx: &mut Ctx<'_>) {
        let another = ctx.shared.card_ids.read(id).is_some_and(|card| {
            let remembered = card.deadline.saturating_add(protocol::limits::CARD_MEMORY_MS) > ctx.now;
            card.device != self.no && remembered
        });
        if another {
            let problem = Problem::new(ErrorCode::Forbidden, "prompt_id is a card of another device")
                .with_id(Some(id.to_owned()));
            self.refuse(&problem, ctx);
        } else {
            let done =
                PromptDone { id: id.to_owned(), option_id: None, expired: true, reason: None, seq: None };
            self.answer(&ServerFrame::PromptDone(done), ctx);
        }
    }

    fn offer(&mut self, event: Pos, outcome: protocol::link::CardOutcome, ctx: &mut Ctx<'_>) {
        let Some(agent) = ctx.shared.agent.as_ref().map(|agent| agent.id) else { return };
        let frame = ToAgent::Event(Box::new(Event {
            event,
            device: self.info(),
            user: self.user(),
            id: outcome.prompt_id.clone(),
            what: Said::Prompt { prompt: outcome },
            at: ctx.now,
            redelivered: false,
        }));
        ctx.tell_agent(agent, frame);
    }

    /// Answers that wait for an agent that has just attached.
    pub(super) fn offer_again(&mut self, ctx: &mut Ctx<'_>) {
        for (event, outcome) in self.busy.cards.offers() {
            self.offer(event, outcome, ctx);
        }
    }

    pub(super) fn ask_agent(&mut self, prompt_id: &str, ctx: &mut Ctx<'_>) {
        let Some(agent) = ctx.shared.agent.as_ref().map(|agent| agent.id) else { return };
        // Only the answer to the latest question counts: an earlier one may be older than what the agent took since.
        ctx.shared.asked.retain(|_, asked| asked.prompt_id != prompt_id);
        let req = ctx.shared.number();
        ctx.shared.asked.insert(req, Asked { device: self.no, prompt_id: prompt_id.to_owned() });
        ctx.tell_agent(
            agent,
            ToAgent::Request { req, what: What::Prompt { prompt_id: prompt_id.to_owned() } },
        );
    }

    /// The agent wants to act on an answer. On disk before it may.
    pub(super) fn take_call(&mut self, agent: AgentId, req: u64, event: Pos, ctx: &mut Ctx<'_>) {
        match self.busy.cards.take(event) {
            Some((id, option_id, true)) => {
                ctx.append(self.no, &Body::CardTaken { id, event, option_id }, None);
                self.after_batch(Effect::Taken { agent, req, event }, ctx);
            }
            Some((id, _, false)) => {
                self.after_last(Effect::Taken { agent, req, event });
                if self.busy.cards.asked().contains(&id) {
                    // What it answers to the earlier question, it answers before it knows that it took this.
                    ctx.shared.asked.retain(|_, asked| asked.prompt_id != id);
                    self.after_last(Effect::Ask { prompt_id: id });
                }
            }
            None if crate::mutants::is(crate::mutants::Mutant::WithdrawnTaken) => {
                ctx.result(agent, req, Ok(None))
            }
            None => ctx.result(agent, req, Err(withdrawn())),
        }
    }

    /// That the agent took an answer is on disk: it may act, unless the card has ended meanwhile (by its own word, for
    /// instance: a new conversation).
    pub(super) fn tell_taken(&self, agent: AgentId, req: u64, event: Pos, ctx: &mut Ctx<'_>) {
        let stands = self.busy.cards.taken_by(event).is_some();
        ctx.result(agent, req, if stands { Ok(None) } else { Err(withdrawn()) });
    }

    /// The agent says what took effect.
    pub(super) fn applied_call(
        &mut self,
        event: Pos,
        ok: bool,
        option_id: String,
        reason: Option<String>,
        ctx: &mut Ctx<'_>,
    ) {
        let Some(id) = self.busy.cards.taken_by(event) else { return };
        ctx.shared.events.remove(&event);
        let reason = reason.map(|reason| match reason.char_indices().nth(protocol::limits::LABEL_CHARS) {
            // Told to the device as far as it fits; the agent has no call that could be refused here.
            Some((end, _)) => format!("{}…", &reason[..end]),
            None => reason,
        });
        let end = if ok && self.busy.cards.has_option(&id, &option_id) {
            End { option_id: Some(option_id), expired: false, reason }
        } else {
            let refusal = self.busy.cards.kind(&id).and_then(|kind| kind.refusal()).map(str::to_owned);
            End {
                option_id: refusal,
                expired: false,
                reason: Some(reason.unwrap_or_else(|| "failed".to_owned())),
            }
        };
        self.close_card(&id, end, ctx);
    }

    /// Ends a card: an item.
    pub(super) fn close_card(&mut self, id: &str, end: End, ctx: &mut Ctx<'_>) {
        let ended = &mut ctx.shared.counts;
        *match &end {
            End { expired: true, .. } => &mut ended.cards_expired,
            End { reason: Some(_), .. } => &mut ended.cards_elsewhere,
            End { .. } => &mut ended.cards_answered,
        } += 1;
        let seq = self.seq();
        let body = Body::CardDone {
            seq,
            id: id.to_owned(),
            option_id: end.option_id.clone(),
            expired: end.expired,
            reason: end.reason.clone(),
        };
        let pos = ctx.append(self.no, &body, None);
        self.item(seq, pos, id_hash(id), false, ctx);
        self.push_item(seq, vec![ServerFrame::PromptDone(end.frame(id, Some(seq)))], ctx);
        self.busy.cards.close(id, end, ctx.now);
    }

    /// Ends a card with its refusal, or with none where there is none.
    pub(super) fn close_refused(&mut self, id: &str, reason: &str, ctx: &mut Ctx<'_>) {
        let refusal = self.busy.cards.kind(id).and_then(|kind| kind.refusal()).map(str::to_owned);
        let expired = refusal.is_none();
        self.close_card(id, End { option_id: refusal, expired, reason: Some(reason.to_owned()) }, ctx);
    }

    pub(super) fn card_ticks(&mut self, ctx: &mut Ctx<'_>) {
        if self.busy.cards.deadline().is_none_or(|at| ctx.now < at) {
            return;
        }
        for due in self.busy.cards.tick(ctx.now) {
            match due {
                Due::Expired { .. } if crate::mutants::is(crate::mutants::Mutant::CardNeverExpires) => {}
                Due::Withdrawn { id, event } => {
                    ctx.shared.events.remove(&event);
                    let problem = Problem::new(
                        ErrorCode::AgentOffline,
                        "the agent did not take the answer; the card is still open",
                    )
                    .with_id(Some(id));
                    self.refuse(&problem, ctx);
                }
                Due::Ask { id } => self.after_last(Effect::Ask { prompt_id: id }),
                Due::Expired { id, outcome } => {
                    let option_id = outcome.option_id.clone();
                    self.close_card(&id, End { option_id, expired: true, reason: None }, ctx);
                    // The agent is told like of something said: kept until it is done.
                    let record = InRecord {
                        id: format!("expired:{id}"),
                        user: self.user(),
                        what: InBody::Card { card: outcome },
                    };
                    let body = Body::In(record.clone());
                    let pos = ctx.append(self.no, &body, None);
                    self.busy.inbox.add(pos, ctx.now, record, 256, Stage::Storing, false);
                    ctx.shared.events.insert(pos, self.no);
                    self.after_batch(Effect::Told { pos }, ctx);
                }
            }
        }
    }
}
