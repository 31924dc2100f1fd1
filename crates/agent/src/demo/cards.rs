//! Cards: `/approve`, `/cards`, `/confirm`, `/ask`; and the end of a conversation, `/new`.
//!
//! The event of a card is done when the card has ended. After a restart it comes again, the repeated `prompt` gets the
//! same card, and its outcome is matched by the card's id, whichever of the two comes first.

use protocol::{
    Millis,
    link::{Answer, CallError, CardEnd, CardOutcome, CardState, FromAgent, Outcome, TurnState},
    server::PromptKind,
};

use super::{
    Demo, Job, NEW, QUESTION_MS, Tag, Then, Work,
    ask::{Ask, At, Card, chosen, effective, report, text_follows},
};

/// The gateway tells when the time of a card is over. If that has not come so long after, the card is forgotten.
const GRACE_MS: u64 = 60_000;
/// Ended cards remembered, to tell the gateway what took effect.
const ENDED: usize = 4_096;
/// Outcomes of a device that wait for the id of their card, and questions of the gateway that do.
const EARLY: usize = 1_024;

const fn done(event: u64) -> FromAgent {
    FromAgent::Done { event, outcome: Outcome::Ok }
}

impl Demo {
    /// Shows the cards of a job.
    pub(super) fn ask(&mut self, event: u64, ask: &Ask, now: Millis, out: &mut Vec<FromAgent>) {
        let Some(Job { device, work: Work::Cards(cards), .. }) = self.jobs.get(&event) else { return };
        let (device, count) = (device.clone(), cards.len());
        self.begin(&device, out);
        for at in 0..count {
            let tag = Tag { device: device.clone(), event, then: Then::Card(at) };
            self.calls.send(tag, vec![ask.prompt(event, &device, at)], out);
        }
        // While a card waits for a person, nobody works.
        self.end(&device, TurnState::Off, out);
        self.wake(event, now + ask.seconds() * 1000 + GRACE_MS);
    }

    /// The card is there.
    pub(super) fn card_shown(
        &mut self,
        event: u64,
        at: usize,
        prompt_id: String,
        device: &str,
        now: Millis,
        out: &mut Vec<FromAgent>,
    ) {
        if let Some(card) = self.card(event, at) {
            card.at = At::Open(prompt_id.clone());
            self.cards.insert(prompt_id.clone(), (event, at));
            for (answer, outcome) in self.take_early(device, |o| o.prompt_id == prompt_id) {
                self.outcome(answer, device, outcome, out);
            }
        }
        self.settle_early(device, now, out);
    }

    /// No card came up: as if it had been refused.
    pub(super) fn card_refused(
        &mut self,
        event: u64,
        at: usize,
        device: &str,
        now: Millis,
        out: &mut Vec<FromAgent>,
    ) {
        if let Some(Job { work: Work::Cards(cards), .. }) = self.jobs.get(&event) {
            let n = cards.len() + 1 + at;
            let kind = cards.get(at).map_or(PromptKind::ExecApproval, |c| c.kind);
            let text = kind.refusal().map_or_else(|| chosen("—"), |refusal| report(kind, refusal, None));
            self.end_card((event, at), event, n, device, vec![], &text, vec![], Outcome::Failed, out);
            self.turn_failed(device, out);
        }
        self.settle_early(device, now, out);
    }

    /// The outcome of a card came.
    pub(super) fn card_event(
        &mut self,
        event: u64,
        device: &str,
        outcome: CardOutcome,
        out: &mut Vec<FromAgent>,
    ) {
        if self.cards.contains_key(&outcome.prompt_id) {
            self.outcome(event, device, outcome, out);
        } else if let Some(option_id) = self.ended(&outcome.prompt_id) {
            if outcome.outcome == CardEnd::Answered {
                let ok = outcome.option_id.as_ref() == Some(&option_id);
                let reason = (!ok).then(|| "answered before".to_owned());
                out.push(FromAgent::Applied { event, ok, option_id, reason });
            }
            out.push(done(event));
        } else if self.awaits_card(device)
            && let Some(device) = self.devices.get_mut(device)
            && device.early.len() < EARLY
        {
            if text_follows(&outcome) {
                device.deciding.insert(event);
            }
            device.early.push((event, outcome));
        } else {
            self.unknown(event, outcome, out);
        }
    }

    fn outcome(&mut self, event: u64, device: &str, outcome: CardOutcome, out: &mut Vec<FromAgent>) {
        let Some(&place) = self.cards.get(&outcome.prompt_id) else { return };
        if outcome.outcome == CardEnd::Expired {
            self.begin(device, out);
            self.end_card(place, event, 1, device, vec![], "timed out", vec![event], Outcome::Ok, out);
            self.end(device, TurnState::Off, out);
            return;
        }
        if text_follows(&outcome)
            && let Some(known) = self.devices.get_mut(device)
        {
            known.deciding.insert(event);
        }
        self.begin(device, out);
        let tag = Tag { device: device.to_owned(), event, then: Then::Take(outcome) };
        self.calls.send(tag, vec![FromAgent::Take { req: 0, event }], out);
    }

    /// The answer is ours to act on.
    pub(super) fn taken(
        &mut self,
        event: u64,
        device: &str,
        outcome: CardOutcome,
        now: Millis,
        out: &mut Vec<FromAgent>,
    ) {
        let option_id = effective(&outcome);
        if let Some(&place) = self.cards.get(&outcome.prompt_id) {
            self.ended.push_back((outcome.prompt_id.clone(), option_id.clone()));
            if self.ended.len() > ENDED {
                self.ended.pop_front();
            }
            let applied = FromAgent::Applied { event, ok: true, option_id: option_id.clone(), reason: None };
            if text_follows(&outcome) {
                out.push(applied);
                self.cards.remove(&outcome.prompt_id);
                if let Some(card) = self.card(place.0, place.1) {
                    card.at = At::Waiting(event);
                }
                self.wake(place.0, now + QUESTION_MS);
            } else {
                let text = report(outcome.kind, &option_id, outcome.text.as_deref());
                self.end_card(place, event, 1, device, vec![applied], &text, vec![event], Outcome::Ok, out);
            }
        } else {
            // Its conversation has ended, or another answer came first.
            let stood = self.ended(&outcome.prompt_id);
            let option_id = stood.or_else(|| outcome.kind.refusal().map(str::to_owned)).unwrap_or_default();
            let reason = Some("the card is closed".to_owned());
            out.push(FromAgent::Applied { event, ok: false, option_id, reason });
            out.push(done(event));
        }
        self.end(device, TurnState::Off, out);
        self.decided(event, device, now, out);
    }

    /// The answer must not be acted on. The card stays open, unless the gateway does not know it any more.
    pub(super) fn withdrawn(
        &mut self,
        event: u64,
        device: &str,
        outcome: &CardOutcome,
        error: &CallError,
        now: Millis,
        out: &mut Vec<FromAgent>,
    ) {
        out.push(done(event));
        if error.code == "not_found"
            && let Some((job, at)) = self.cards.remove(&outcome.prompt_id)
        {
            if let Some(card) = self.card(job, at) {
                card.at = At::Ended;
            }
            if self.all_ended(job) {
                self.drop_job(job);
                out.push(done(job));
            }
        }
        self.end(device, TurnState::Off, out);
        self.decided(event, device, now, out);
    }

    /// Ends a card: `before`, the report under the key `e<event>/<n>`, and the ends of events, one commit. The last card
    /// of a job ends it with `outcome`.
    #[expect(clippy::too_many_arguments, reason = "the parts of one batch")]
    fn end_card(
        &mut self,
        (job, at): (u64, usize),
        event: u64,
        n: usize,
        device: &str,
        before: Vec<FromAgent>,
        text: &str,
        events: Vec<u64>,
        outcome: Outcome,
        out: &mut Vec<FromAgent>,
    ) {
        let Some(card) = self.card(job, at) else { return };
        let text = format!("{}{text}", card.label);
        if let At::Open(id) = std::mem::replace(&mut card.at, At::Ended) {
            self.cards.remove(&id);
        }
        let mut ends: Vec<_> = events.into_iter().map(|e| (e, Outcome::Ok)).collect();
        if self.all_ended(job) {
            self.drop_job(job);
            ends.push((job, outcome));
        }
        self.last(event, n, device, before, text, &ends, out);
    }

    /// Gives `text` to the oldest question of the device that waits for one; gives it back if none does.
    pub(super) fn answer(
        &mut self,
        event: u64,
        device: &str,
        text: String,
        out: &mut Vec<FromAgent>,
    ) -> Option<String> {
        let Some(known) = self.devices.get(device) else { return Some(text) };
        let waiting = known.jobs.iter().find_map(|&no| match &self.jobs.get(&no)?.work {
            Work::Question => Some((no, None)),
            Work::Cards(cards) => cards.iter().enumerate().find_map(|(at, card)| match card.at {
                At::Waiting(by) => Some((no, Some((at, by)))),
                _ => None,
            }),
            _ => None,
        });
        let Some((job, card)) = waiting else { return Some(text) };
        let text = chosen(&text);
        self.begin(device, out);
        if let Some((at, by)) = card {
            self.end_card((job, at), event, 1, device, vec![], &text, vec![event, by], Outcome::Ok, out);
        } else {
            self.drop_job(job);
            let ends = [(event, Outcome::Ok), (job, Outcome::Ok)];
            self.last(event, 1, device, vec![], text, &ends, out);
        }
        self.end(device, TurnState::Off, out);
        None
    }

    /// `/new`: the cards and questions of the old conversation are forgotten, their events done with it.
    pub(super) fn new_conversation(
        &mut self,
        event: u64,
        device: &str,
        now: Millis,
        out: &mut Vec<FromAgent>,
    ) {
        let Some(known) = self.devices.get_mut(device) else { return };
        known.count = 0;
        let old: Vec<u64> = known.jobs.iter().copied().collect();
        let mut ends = Vec::new();
        for (early, _) in self.take_early(device, |_| true) {
            ends.push((early, Outcome::Ok));
        }
        for job in old {
            if matches!(self.jobs.get(&job), Some(j) if matches!(j.work, Work::Cards(_) | Work::Question)) {
                ends.extend(self.forget_cards(job).into_iter().map(|e| (e, Outcome::Ok)));
            }
        }
        ends.push((event, Outcome::Ok));
        let before = FromAgent::Conversation { device: device.to_owned(), id: format!("c{event}") };
        self.begin(device, out);
        self.last(event, 1, device, vec![before], NEW.to_owned(), &ends, out);
        self.end(device, TurnState::Off, out);
        for (early, _) in ends {
            self.decided(early, device, now, out);
        }
    }

    /// Forgets a job that waits for a person; the events that end with it.
    pub(super) fn forget_cards(&mut self, event: u64) -> Vec<u64> {
        let mut ends = vec![event];
        if let Some(Job { work: Work::Cards(cards), .. }) = self.drop_job(event) {
            for card in cards {
                match card.at {
                    At::Open(id) => {
                        self.cards.remove(&id);
                    }
                    At::Waiting(by) => ends.push(by),
                    At::Asked | At::Ended => {}
                }
            }
        }
        ends
    }

    /// The gateway asks how a card stands.
    pub(super) fn card_request(&mut self, req: u64, prompt_id: String, out: &mut Vec<FromAgent>) {
        self.asked.push((req, prompt_id));
        if self.asked.len() > EARLY {
            let (req, _) = self.asked.remove(0);
            out.push(stands(req, CardState::Gone, None));
        }
        self.settle(out);
    }

    /// Answers what the gateway asked, as far as it can be known now: while a `prompt` has no result, its card may be
    /// the one that is asked for.
    pub(super) fn settle(&mut self, out: &mut Vec<FromAgent>) {
        if self.asked.is_empty() {
            return;
        }
        let waits = self.calls.tags().any(|t| matches!(t.then, Then::Card(_)));
        for (req, id) in std::mem::take(&mut self.asked) {
            if let Some(option_id) = self.ended(&id) {
                out.push(stands(req, CardState::Applied, Some(option_id)));
            } else if self.cards.contains_key(&id) {
                out.push(stands(req, CardState::Open, None));
            } else if waits {
                self.asked.push((req, id));
            } else {
                out.push(stands(req, CardState::Gone, None));
            }
        }
    }

    /// Outcomes that still wait when no `prompt` of the device does belong to no card of ours.
    fn settle_early(&mut self, device: &str, now: Millis, out: &mut Vec<FromAgent>) {
        if self.awaits_card(device) {
            return;
        }
        for (event, outcome) in self.take_early(device, |_| true) {
            self.unknown(event, outcome, out);
            self.decided(event, device, now, out);
        }
    }

    /// Whether a card of the device has no id yet.
    fn awaits_card(&self, device: &str) -> bool {
        self.calls.tags().any(|t| matches!(t.then, Then::Card(_)) && t.device == device)
    }

    /// A card that this memory does not hold is closed, so that it does not stay open for ever.
    fn unknown(&mut self, event: u64, outcome: CardOutcome, out: &mut Vec<FromAgent>) {
        if outcome.outcome == CardEnd::Answered {
            out.push(FromAgent::PromptClose {
                req: self.calls.req(),
                prompt_id: outcome.prompt_id,
                option_id: outcome.kind.refusal().map(str::to_owned),
                reason: "the agent does not know this card".to_owned(),
            });
        }
        out.push(done(event));
    }

    /// An answer is decided: texts that waited for that go on.
    fn decided(&mut self, event: u64, device: &str, now: Millis, out: &mut Vec<FromAgent>) {
        if let Some(known) = self.devices.get_mut(device) {
            known.deciding.remove(&event);
        }
        while let Some(known) = self.devices.get_mut(device)
            && known.deciding.is_empty()
            && let Some((event, text)) = known.held.pop_front()
        {
            self.other(event, device, text, now, out);
        }
    }

    fn take_early(
        &mut self,
        device: &str,
        mut which: impl FnMut(&CardOutcome) -> bool,
    ) -> Vec<(u64, CardOutcome)> {
        let Some(known) = self.devices.get_mut(device) else { return Vec::new() };
        let (taken, left) = std::mem::take(&mut known.early).into_iter().partition(|(_, o)| which(o));
        known.early = left;
        taken
    }

    fn card(&mut self, job: u64, at: usize) -> Option<&mut Card> {
        match &mut self.jobs.get_mut(&job)?.work {
            Work::Cards(cards) => cards.get_mut(at),
            _ => None,
        }
    }

    fn all_ended(&self, job: u64) -> bool {
        matches!(self.jobs.get(&job), Some(Job { work: Work::Cards(cards), .. })
            if cards.iter().all(|c| c.at == At::Ended))
    }

    fn ended(&self, prompt_id: &str) -> Option<String> {
        self.ended.iter().rev().find(|(id, _)| id == prompt_id).map(|(_, option)| option.clone())
    }
}

fn stands(req: u64, state: CardState, option_id: Option<String>) -> FromAgent {
    FromAgent::Answer { req, answer: Answer::Prompt { state, option_id } }
}
