//! What the agent is doing: avatar, typing, open cards. Nothing here may stick: each state ends by itself at the latest.

use std::collections::HashMap;

use protocol::server::{AvatarState, Prompt, PromptDone, Typing};

use super::event::Event;

/// A card is given up on when its time has been over for so long and no `prompt_done` came, milliseconds.
const CARD_SLACK_MS: u64 = 10_000;
/// Most open cards remembered.
const CARDS: usize = 256;

#[derive(Debug)]
pub(super) struct Presence {
    typing_ms: u64,
    avatar_ms: u64,
    typing_until: Option<u64>,
    avatar: Option<(AvatarState, u64)>,
    /// Open cards and when they are given up on.
    cards: HashMap<String, u64>,
}

impl Presence {
    pub(super) fn new(typing_ms: u64, avatar_ms: u64) -> Self {
        Self { typing_ms, avatar_ms, typing_until: None, avatar: None, cards: HashMap::new() }
    }

    pub(super) fn typing(&mut self, typing: Typing, now: u64) -> Option<Event> {
        let was = self.typing_until.is_some();
        self.typing_until = if typing.stop {
            None
        } else {
            Some(now.saturating_add(typing.ttl_ms.unwrap_or(self.typing_ms).min(self.avatar_ms)))
        };
        // A repeated `typing` only moves the time, unless it says something.
        (was == typing.stop || typing.text.is_some()).then_some(Event::Typing(typing))
    }

    pub(super) fn avatar(&mut self, state: AvatarState, now: u64) -> Option<Event> {
        let was = self.avatar.map_or(AvatarState::Idle, |(state, _)| state);
        self.avatar = (state != AvatarState::Idle).then_some((state, now.saturating_add(self.avatar_ms)));
        (was != state).then_some(Event::Avatar(state))
    }

    pub(super) fn card(&mut self, card: Prompt, now: u64) -> Event {
        if self.cards.len() < CARDS {
            let until =
                now.saturating_add(card.timeout_seconds.saturating_mul(1000)).saturating_add(CARD_SLACK_MS);
            self.cards.insert(card.id.clone(), until);
        }
        Event::Card(card)
    }

    pub(super) fn card_done(&mut self, done: PromptDone) -> Event {
        self.cards.remove(&done.id);
        Event::CardDone(done)
    }

    /// The connection is gone: whatever the agent does now is not known.
    pub(super) fn cut(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        if self.typing_until.take().is_some() {
            events.push(Event::Typing(Typing { stop: true, ..Typing::default() }));
        }
        if self.avatar.take().is_some() {
            events.push(Event::Avatar(AvatarState::Idle));
        }
        events
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        let avatar = self.avatar.map(|(_, until)| until);
        self.cards.values().copied().chain(self.typing_until).chain(avatar).min()
    }

    pub(super) fn expire(&mut self, now: u64) -> Vec<Event> {
        let mut events = Vec::new();
        if self.typing_until.is_some_and(|t| t <= now) {
            self.typing_until = None;
            events.push(Event::Typing(Typing { stop: true, ..Typing::default() }));
        }
        if self.avatar.is_some_and(|(_, until)| until <= now) {
            self.avatar = None;
            events.push(Event::Avatar(AvatarState::Idle));
        }
        let mut over: Vec<String> =
            self.cards.iter().filter(|(_, until)| **until <= now).map(|(id, _)| id.clone()).collect();
        over.sort();
        for id in over {
            self.cards.remove(&id);
            events.push(Event::CardDone(PromptDone {
                id,
                option_id: None,
                expired: true,
                reason: None,
                seq: None,
            }));
        }
        events
    }
}
