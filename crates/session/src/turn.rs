//! Avatar and typing of one device: states that cannot stick.
//!
//! A turn: `thinking` and `typing`; the messages; `typing stop` as soon as the turn is complete or failed; `speaking` if
//! anything was said; `idle` after a pause. A failed turn goes to `idle` at once, a new turn cancels the pause.

use protocol::{
    Millis,
    server::{AvatarState, ServerFrame, Typing},
};

/// A typing indicator that is not renewed may be cleared by the client after this, milliseconds.
pub const TYPING_TTL_MS: u64 = 12_000;
/// It is renewed this often while the agent works, milliseconds.
const TYPING_EVERY_MS: u64 = 8_000;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    Working {
        renew: Millis,
    },
    Speaking {
        until: Millis,
    },
}

/// The turn of one device.
#[derive(Debug, Default)]
pub struct Turn {
    state: State,
    said: bool,
    text: Option<String>,
}

impl Turn {
    /// No turn.
    #[must_use]
    pub const fn new() -> Self {
        Self { state: State::Idle, said: false, text: None }
    }

    /// Nothing is shown of it.
    #[must_use]
    pub const fn idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// The agent works on this device's behalf.
    #[must_use]
    pub const fn working(&self) -> bool {
        matches!(self.state, State::Working { .. })
    }

    /// The agent has begun.
    pub fn on(&mut self, now: Millis, out: &mut Vec<ServerFrame>) {
        if self.working() {
            return;
        }
        self.said = false;
        self.text = None;
        self.state = State::Working { renew: now + TYPING_EVERY_MS };
        out.push(avatar(AvatarState::Thinking));
        out.push(self.typing());
    }

    /// Something was said.
    pub fn said(&mut self) {
        self.said = true;
    }

    /// What the agent is doing.
    pub fn status(&mut self, text: Option<String>, now: Millis, out: &mut Vec<ServerFrame>) {
        if self.working() && self.text != text {
            self.text = text;
            self.state = State::Working { renew: now + TYPING_EVERY_MS };
            out.push(self.typing());
        }
    }

    /// The agent has finished; `pause` is the time before `idle`.
    pub fn off(&mut self, now: Millis, pause: u64, out: &mut Vec<ServerFrame>) {
        if !self.working() {
            return;
        }
        out.push(stop());
        if self.said {
            self.state = State::Speaking { until: now + pause };
            out.push(avatar(AvatarState::Speaking));
        } else {
            self.state = State::Idle;
            out.push(avatar(AvatarState::Idle));
        }
    }

    /// The agent has failed, is gone, or is silent: nothing may stick.
    pub fn clear(&mut self, out: &mut Vec<ServerFrame>) {
        if self.working() {
            out.push(stop());
        }
        if self.state != State::Idle {
            self.state = State::Idle;
            out.push(avatar(AvatarState::Idle));
        }
    }

    /// When [`Self::tick`] is wanted.
    #[must_use]
    pub const fn deadline(&self) -> Option<Millis> {
        match self.state {
            State::Idle => None,
            State::Working { renew } => Some(renew),
            State::Speaking { until } => Some(until),
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Millis, out: &mut Vec<ServerFrame>) {
        match self.state {
            State::Speaking { until } if now >= until => {
                self.state = State::Idle;
                out.push(avatar(AvatarState::Idle));
            }
            State::Working { renew } if now >= renew => {
                self.state = State::Working { renew: now + TYPING_EVERY_MS };
                out.push(self.typing());
            }
            _ => {}
        }
    }

    /// The present state for a connection that is new; nothing when idle.
    pub fn present(&self, out: &mut Vec<ServerFrame>) {
        match self.state {
            State::Idle => {}
            State::Working { .. } => {
                out.push(avatar(AvatarState::Thinking));
                out.push(self.typing());
            }
            State::Speaking { .. } => out.push(avatar(AvatarState::Speaking)),
        }
    }

    /// The present state for a connection that may show an older one.
    pub fn present_again(&self, out: &mut Vec<ServerFrame>) {
        if !self.working() {
            out.push(stop());
        }
        match self.state {
            State::Idle => out.push(avatar(AvatarState::Idle)),
            _ => self.present(out),
        }
    }

    fn typing(&self) -> ServerFrame {
        ServerFrame::Typing(Typing { stop: false, ttl_ms: Some(TYPING_TTL_MS), text: self.text.clone() })
    }
}

const fn avatar(state: AvatarState) -> ServerFrame {
    ServerFrame::Avatar { state }
}

const fn stop() -> ServerFrame {
    ServerFrame::Typing(Typing { stop: true, ttl_ms: None, text: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(frames: &[ServerFrame]) -> Vec<&'static str> {
        frames
            .iter()
            .map(|frame| match frame {
                ServerFrame::Avatar { state: AvatarState::Idle } => "idle",
                ServerFrame::Avatar { state: AvatarState::Thinking } => "thinking",
                ServerFrame::Avatar { state: AvatarState::Speaking } => "speaking",
                ServerFrame::Typing(Typing { stop: true, .. }) => "stop",
                ServerFrame::Typing(_) => "typing",
                _ => "other",
            })
            .collect()
    }

    #[test]
    fn a_turn_goes_through_its_states_in_order() {
        let (mut turn, mut out) = (Turn::default(), Vec::new());
        turn.on(0, &mut out);
        turn.on(1, &mut out);
        turn.said();
        turn.off(100, 1500, &mut out);
        assert_eq!(turn.deadline(), Some(1600));
        turn.tick(1599, &mut out);
        turn.tick(1600, &mut out);
        assert_eq!(names(&out), ["thinking", "typing", "stop", "speaking", "idle"]);
        assert_eq!(turn.deadline(), None);
    }

    #[test]
    fn a_failed_turn_is_idle_at_once_and_a_silent_one_does_not_speak() {
        let (mut turn, mut out) = (Turn::default(), Vec::new());
        turn.on(0, &mut out);
        turn.said();
        turn.clear(&mut out);
        turn.clear(&mut out);
        turn.on(10, &mut out);
        turn.off(20, 1500, &mut out);
        assert_eq!(names(&out), ["thinking", "typing", "stop", "idle", "thinking", "typing", "stop", "idle"]);
    }

    #[test]
    fn a_new_turn_cancels_the_pause() {
        let (mut turn, mut out) = (Turn::default(), Vec::new());
        turn.on(0, &mut out);
        turn.said();
        turn.off(10, 1500, &mut out);
        turn.on(500, &mut out);
        out.clear();
        turn.tick(1600, &mut out);
        assert!(out.is_empty(), "the old pause does not end the new turn");
    }

    #[test]
    fn typing_is_renewed_and_its_text_shown_once() {
        let (mut turn, mut out) = (Turn::default(), Vec::new());
        turn.on(0, &mut out);
        turn.status(Some("reading".into()), 10, &mut out);
        turn.status(Some("reading".into()), 20, &mut out);
        turn.tick(10 + TYPING_EVERY_MS, &mut out);
        assert_eq!(names(&out), ["thinking", "typing", "typing", "typing"]);
        out.clear();
        turn.present(&mut out);
        assert_eq!(names(&out), ["thinking", "typing"]);
    }

    #[test]
    fn an_older_state_on_the_device_is_ended() {
        let (mut turn, mut out) = (Turn::default(), Vec::new());
        turn.present_again(&mut out);
        turn.on(0, &mut Vec::new());
        turn.present_again(&mut out);
        turn.said();
        turn.off(10, 1500, &mut Vec::new());
        turn.present_again(&mut out);
        assert_eq!(names(&out), ["stop", "idle", "thinking", "typing", "stop", "speaking"]);
    }
}
