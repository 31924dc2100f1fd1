//! The cards of one device: open, answered, taken by the agent, done.
//!
//! `prompt_done` names what took effect. An answer is an offer to the agent that can be withdrawn until the agent takes
//! it; the gateway decides taking against withdrawal. Deadlines are absolute; time over is the refusal.

use std::collections::BTreeMap;

use protocol::{
    Millis,
    client::PromptAnswer,
    limits,
    link::{CardEnd, CardOutcome, CardState},
    problem::Problem,
    record::{CardRecord, Pos, hash128},
    server::{Prompt, PromptDone, PromptKind, PromptOption},
};

/// How a card ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// What took effect.
    pub option_id: Option<String>,
    /// Time was over.
    pub expired: bool,
    /// Why it ended elsewhere.
    pub reason: Option<String>,
}

impl End {
    /// The frame; `seq` only when it is sent as an item.
    #[must_use]
    pub fn frame(&self, id: &str, seq: Option<u64>) -> PromptDone {
        PromptDone {
            id: id.to_owned(),
            option_id: self.option_id.clone(),
            expired: self.expired,
            reason: self.reason.clone(),
            seq,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Offered to the agent until then.
    Answered {
        event: Pos,
        option_id: String,
        text: Option<String>,
        until: Millis,
    },
    /// The agent took it and has not said what took effect. `then` is a further answer, which waits for the agent's word.
    Taken {
        event: Pos,
        option_id: String,
        then: Option<(String, Option<String>)>,
        asked: bool,
        /// The agent that took it has lost its memory since.
        lost: bool,
    },
    Done {
        end: End,
        at: Millis,
    },
}

#[derive(Debug)]
struct Card {
    record: CardRecord,
    pos: Pos,
    state: State,
}

/// What an answer leads to.
#[derive(Debug, PartialEq, Eq)]
pub enum Answered {
    /// This device has no such card.
    Unknown,
    /// It is closed: the same `prompt_done` again.
    Again(PromptDone),
    /// The same answer is on its way already, or the first one stands.
    Wait,
    /// It was taken and not confirmed: the agent is asked how it stands.
    Ask,
    /// Offer this to the agent, as the event whose number was given.
    Offer(CardOutcome),
    /// Refused; the card stays open.
    Refused(Problem),
}

/// What time brings.
#[derive(Debug, PartialEq, Eq)]
pub enum Due {
    /// The agent did not take the answer in time: the card is open again. The event is void.
    Withdrawn {
        /// Card.
        id: String,
        /// Event.
        event: Pos,
    },
    /// Time is over; close it.
    Expired {
        /// Card.
        id: String,
        /// What the agent is told.
        outcome: CardOutcome,
    },
    /// Time is over for a card that was taken and not confirmed: ask the agent.
    Ask {
        /// Card.
        id: String,
    },
}

/// The cards of a device.
#[derive(Debug, Default)]
pub struct Cards {
    cards: BTreeMap<String, Card>,
}

impl Cards {
    /// No cards.
    #[must_use]
    pub const fn new() -> Self {
        Self { cards: BTreeMap::new() }
    }

    /// Whether none is open or remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cards.is_empty()
    }

    /// A card goes out, or comes back from the store.
    pub fn open(&mut self, record: CardRecord, pos: Pos) {
        self.cards.insert(record.prompt.id.clone(), Card { record, pos, state: State::Open });
    }

    /// The store says that the agent took an answer.
    pub fn restore_taken(&mut self, id: &str, event: Pos, option_id: String) {
        if let Some(card) = self.cards.get_mut(id) {
            card.state = State::Taken { event, option_id, then: None, asked: false, lost: false };
        }
    }

    /// The card has ended.
    pub fn close(&mut self, id: &str, end: End, at: Millis) {
        if let Some(card) = self.cards.get_mut(id) {
            card.state = State::Done { end, at };
        }
    }

    /// Whether it is not closed.
    #[must_use]
    pub fn is_open(&self, id: &str) -> bool {
        self.cards.get(id).is_some_and(|card| !matches!(card.state, State::Done { .. }))
    }

    /// Kind of a card.
    #[must_use]
    pub fn kind(&self, id: &str) -> Option<PromptKind> {
        self.cards.get(id).map(|card| card.record.prompt.kind)
    }

    /// Whether a card offers this option.
    #[must_use]
    pub fn has_option(&self, id: &str, option_id: &str) -> bool {
        self.cards
            .get(id)
            .is_some_and(|card| card.record.prompt.options.iter().any(|option| option.id == option_id))
    }

    /// Position of the oldest record that must be read to know the cards again.
    #[must_use]
    pub fn first_pos(&self) -> Option<Pos> {
        self.cards.values().map(|card| card.pos).min()
    }

    /// Whether any card is not closed.
    #[must_use]
    pub fn any_open(&self) -> bool {
        self.cards.values().any(|card| !matches!(card.state, State::Done { .. }))
    }

    /// How many cards are not closed.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.cards.values().filter(|card| !matches!(card.state, State::Done { .. })).count()
    }

    /// Ids of the cards that are not closed, in the order in which they went out; of another instance only, if one is named.
    #[must_use]
    pub fn open_ids(&self, not_of: Option<&str>) -> Vec<String> {
        let mut open: Vec<&Card> = self
            .cards
            .values()
            .filter(|card| !matches!(card.state, State::Done { .. }))
            .filter(|card| not_of.is_none_or(|instance| card.record.instance != instance))
            .collect();
        open.sort_by_key(|card| card.pos);
        open.into_iter().map(|card| card.record.prompt.id.clone()).collect()
    }

    /// The open cards as a new connection sees them: with the seconds that are left, without `seq`.
    #[must_use]
    pub fn present(&self, now: Millis) -> Vec<Prompt> {
        self.open_ids(None)
            .iter()
            .filter_map(|id| self.cards.get(id))
            .map(|card| Prompt { seq: None, ..with_time_left(&card.record, now) })
            .collect()
    }

    /// An answer from the device. `event` is the number it gets if it is offered to the agent.
    pub fn answer(&mut self, answer: &PromptAnswer, event: Pos, take_ms: u64, now: Millis) -> Answered {
        let Some(card) = self.cards.get_mut(&answer.prompt_id) else { return Answered::Unknown };
        if let State::Done { end, .. } = &card.state {
            return Answered::Again(end.frame(&answer.prompt_id, None));
        }
        if now >= card.record.deadline && matches!(card.state, State::Open | State::Answered { .. }) {
            // The deadline's own tick closes it; this answer came too late.
            return Answered::Wait;
        }
        let prompt = &card.record.prompt;
        let refusal = prompt.kind.refusal();
        let Some(chosen) = prompt
            .options
            .iter()
            .find(|option| option.id == answer.option_id)
            .map(|option| option.id.clone())
            .or_else(|| refusal.map(str::to_owned))
        else {
            let known: Vec<&str> = prompt.options.iter().map(|option| option.id.as_str()).collect();
            return Answered::Refused(Problem::bad(format!(
                "option_id must be one of the card's options: {}",
                known.join(", ")
            )));
        };
        let free = prompt.options.iter().any(|option| option.id == chosen && option.allow_text);
        let text = answer.text.clone().filter(|text| free && !text.trim().is_empty());
        match &mut card.state {
            State::Answered { option_id, .. } => {
                let overrides = Some(chosen.as_str()) == refusal && Some(option_id.as_str()) != refusal;
                if !overrides {
                    return Answered::Wait;
                }
            }
            State::Taken { then, asked, .. } => {
                *then = Some((chosen, text));
                return if std::mem::replace(asked, true) { Answered::Wait } else { Answered::Ask };
            }
            State::Open | State::Done { .. } => {}
        }
        let outcome = CardOutcome {
            prompt_id: answer.prompt_id.clone(),
            kind: prompt.kind,
            outcome: CardEnd::Answered,
            option_id: Some(chosen.clone()),
            text: text.clone(),
        };
        card.state = State::Answered { event, option_id: chosen, text, until: now + take_ms };
        Answered::Offer(outcome)
    }

    /// Answers that are offered and not taken, for an agent that has just attached.
    #[must_use]
    pub fn offers(&self) -> Vec<(Pos, CardOutcome)> {
        let mut offers: Vec<(Pos, CardOutcome)> = self
            .cards
            .iter()
            .filter_map(|(id, card)| match &card.state {
                State::Answered { event, option_id, text, .. } => Some((
                    *event,
                    CardOutcome {
                        prompt_id: id.clone(),
                        kind: card.record.prompt.kind,
                        outcome: CardEnd::Answered,
                        option_id: Some(option_id.clone()),
                        text: text.clone(),
                    },
                )),
                _ => None,
            })
            .collect();
        offers.sort_by_key(|(event, _)| *event);
        offers
    }

    /// The agent takes the answer of this event: the card and the option, or `None` if it was withdrawn. Taking again is
    /// the same as taking.
    pub fn take(&mut self, event: Pos) -> Option<(String, String, bool)> {
        let (id, card) = self.cards.iter_mut().find(|(_, card)| match &card.state {
            State::Answered { event: of, .. } | State::Taken { event: of, .. } => *of == event,
            _ => false,
        })?;
        match &card.state {
            State::Answered { option_id, .. } => {
                let option_id = option_id.clone();
                card.state = State::Taken {
                    event,
                    option_id: option_id.clone(),
                    then: None,
                    asked: false,
                    lost: false,
                };
                Some((id.clone(), option_id, true))
            }
            State::Taken { option_id, .. } => Some((id.clone(), option_id.clone(), false)),
            _ => None,
        }
    }

    /// The card whose answer this event was, if the agent took it.
    #[must_use]
    pub fn taken_by(&self, event: Pos) -> Option<String> {
        self.cards
            .iter()
            .find(|(_, card)| matches!(&card.state, State::Taken { event: of, .. } if *of == event))
            .map(|(id, _)| id.clone())
    }

    /// The agent says how a taken card stands. Returns how it ended, or the answer that waited, to be treated now.
    pub fn stands(
        &mut self,
        id: &str,
        state: CardState,
        option: Option<String>,
    ) -> (Option<End>, Option<PromptAnswer>) {
        let Some(card) = self.cards.get_mut(id) else { return (None, None) };
        let State::Taken { option_id, then, .. } = &mut card.state else { return (None, None) };
        match state {
            CardState::Applied => {
                (Some(End { option_id: option.or_else(|| Some(option_id.clone())), ..End::default() }), None)
            }
            CardState::Gone => {
                (Some(End { reason: Some("gone".into()), expired: true, option_id: None }), None)
            }
            CardState::Open => {
                let then = then.take();
                card.state = State::Open;
                let answer =
                    then.map(|(option_id, text)| PromptAnswer { prompt_id: id.to_owned(), option_id, text });
                (None, answer)
            }
        }
    }

    /// Cards about which the agent was asked and has not said how they stand: the question may be lost with its link.
    #[must_use]
    pub fn asked(&self) -> Vec<String> {
        let asked = |card: &&Card| matches!(card.state, State::Taken { asked: true, .. });
        let mut asked: Vec<&Card> = self.cards.values().filter(asked).collect();
        asked.sort_by_key(|card| card.pos);
        asked.into_iter().map(|card| card.record.prompt.id.clone()).collect()
    }

    /// Events of the answers that are with the agent, or that it took.
    pub fn events(&self) -> impl Iterator<Item = Pos> {
        self.cards.values().filter_map(|card| match &card.state {
            State::Answered { event, .. } | State::Taken { event, .. } => Some(*event),
            State::Open | State::Done { .. } => None,
        })
    }

    /// The agent has lost its memory: it acts on no answer that it took before.
    pub fn forgotten(&mut self) {
        for card in self.cards.values_mut() {
            if let State::Taken { lost, .. } = &mut card.state {
                *lost = true;
            }
        }
    }

    /// The agent asks for the card again: if it has lost its memory since it took an answer, it is not acting on it.
    pub fn reopen(&mut self, id: &str) {
        if let Some(card) = self.cards.get_mut(id)
            && matches!(card.state, State::Taken { lost: true, .. })
        {
            card.state = State::Open;
        }
    }

    /// When [`Self::tick`] is wanted.
    #[must_use]
    pub fn deadline(&self) -> Option<Millis> {
        self.cards
            .values()
            .filter_map(|card| match &card.state {
                State::Open => Some(card.record.deadline),
                State::Answered { until, .. } => Some(card.record.deadline.min(*until)),
                State::Taken { asked: false, .. } => Some(card.record.deadline),
                State::Taken { .. } => None,
                State::Done { at, .. } => Some(at + limits::CARD_MEMORY_MS),
            })
            .min()
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Millis) -> Vec<Due> {
        self.cards.retain(
            |_, card| !matches!(&card.state, State::Done { at, .. } if now >= at + limits::CARD_MEMORY_MS),
        );
        let mut due: Vec<(Pos, Due)> = Vec::new();
        for (id, card) in &mut self.cards {
            let over = now >= card.record.deadline;
            match &mut card.state {
                State::Answered { event, until, .. } if !over && now >= *until => {
                    due.push((card.pos, Due::Withdrawn { id: id.clone(), event: *event }));
                    card.state = State::Open;
                }
                State::Open | State::Answered { .. } if over => {
                    let kind = card.record.prompt.kind;
                    let outcome = CardOutcome {
                        prompt_id: id.clone(),
                        kind,
                        outcome: CardEnd::Expired,
                        option_id: kind.refusal().map(str::to_owned),
                        text: None,
                    };
                    due.push((card.pos, Due::Expired { id: id.clone(), outcome }));
                }
                State::Taken { asked, .. } if over && !*asked => {
                    *asked = true;
                    due.push((card.pos, Due::Ask { id: id.clone() }));
                }
                _ => {}
            }
        }
        due.sort_by_key(|(pos, _)| *pos);
        due.into_iter().map(|(_, due)| due).collect()
    }
}

/// The frame of a card with the seconds that are left, rounded up: an open card never says 0.
#[must_use]
pub fn with_time_left(record: &CardRecord, now: Millis) -> Prompt {
    let left = record.deadline.saturating_sub(now).div_ceil(1000);
    Prompt { timeout_seconds: left.max(1), ..record.prompt.clone() }
}

/// Hash under which a card is found by the key of its call.
#[must_use]
pub fn key_hash(key: &str) -> u128 {
    hash128(&[b"card", key.as_bytes()])
}

/// Checks a card before it goes out: no card without options, none with a command that was cut.
///
/// # Errors
/// One English sentence for the agent's developer: the field and what is allowed.
pub fn check(
    kind: PromptKind,
    text: &str,
    command: Option<&str>,
    description: Option<&str>,
    options: &[PromptOption],
) -> Result<(), String> {
    let long = |value: &str| value.chars().count() > limits::CARD_TEXT_CHARS;
    if long(text) || description.is_some_and(long) {
        return Err(format!("text and description must be at most {} characters", limits::CARD_TEXT_CHARS));
    }
    if command.is_some_and(|command| command.len() > limits::CARD_COMMAND_BYTES) {
        return Err(format!(
            "command must be at most {} bytes and is never cut; take this as deny",
            limits::CARD_COMMAND_BYTES
        ));
    }
    if options.is_empty() {
        return Err("options must not be empty".into());
    }
    for (index, option) in options.iter().enumerate() {
        let characters = option.id.chars().count();
        if !(1..=limits::ID_CHARS).contains(&characters) {
            return Err(format!("options[{index}].id must be 1 to {} characters", limits::ID_CHARS));
        }
        if option.label.trim().is_empty() || option.label.chars().count() > limits::LABEL_CHARS {
            return Err(format!("options[{index}].label must be 1 to {} characters", limits::LABEL_CHARS));
        }
        if options[..index].iter().any(|other| other.id == option.id) {
            return Err(format!("options[{index}].id stands twice"));
        }
    }
    let allowed: &[&str] = match kind {
        PromptKind::ExecApproval => &["once", "session", "always", "deny"],
        PromptKind::SlashConfirm => &["once", "always", "cancel"],
        PromptKind::Clarify => {
            let choices = options.iter().filter(|option| option.id != "other").count();
            return if (1..=limits::CLARIFY_CHOICES).contains(&choices) {
                Ok(())
            } else {
                Err(format!("a clarify card has 1 to {} choices beside other", limits::CLARIFY_CHOICES))
            };
        }
    };
    if let Some(option) = options.iter().find(|option| !allowed.contains(&option.id.as_str())) {
        return Err(format!("option {:?} is not one of {}", option.id, allowed.join(", ")));
    }
    if options.len() < 2 || !options.iter().any(|option| Some(option.id.as_str()) == kind.refusal()) {
        return Err(format!(
            "the card needs {:?} and at least one other option",
            kind.refusal().unwrap_or_default()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
