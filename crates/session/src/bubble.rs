//! One streamed reply while it is open: its text, and how often the device gets it.
//!
//! Agents may edit every 50 ms. A device gets an edit at most every 100 ms, and a plain client, which gets the whole
//! text each time, less often the longer the text is: all edits together and the final text are at most 7 times the
//! reply, so that with their envelopes a long reply stays below 8 bytes for each of its bytes. Edits that were not sent
//! collapse to the newest.

use protocol::Millis;

/// Least time between two edits to a device, milliseconds.
pub const EDIT_EVERY_MS: u64 = 100;
/// The state of an open bubble is stored at most this often, milliseconds.
pub const STORE_EVERY_MS: u64 = 1_000;
/// All edits that are not final may cost this many times the present text; the final one makes it 7. The protocol allows 8
/// without envelopes.
const EDIT_FACTOR: u64 = 6;

/// An open bubble.
#[derive(Debug)]
pub struct Bubble {
    /// Message id.
    pub id: String,
    /// Whole text so far.
    pub text: String,
    /// The id of the text it answers.
    pub reply_to: Option<String>,
    /// Instance of the agent that opened it.
    pub instance: String,
    /// The text has changed since it was last sent.
    fresh: bool,
    sent_bytes: u64,
    sent_at: Option<Millis>,
    stored_at: Millis,
    /// The text has changed since it was last stored.
    unstored: bool,
}

impl Bubble {
    /// A bubble whose first text is being stored at `now`.
    #[must_use]
    pub fn new(id: String, text: String, reply_to: Option<String>, instance: String, now: Millis) -> Self {
        Self {
            id,
            text,
            reply_to,
            instance,
            fresh: true,
            sent_bytes: 0,
            sent_at: None,
            stored_at: now,
            unstored: false,
        }
    }

    /// The whole new text.
    pub fn edit(&mut self, text: String) {
        if self.text != text {
            self.text = text;
            self.fresh = true;
            self.unstored = true;
        }
    }

    /// When the text may be sent: `None` if the device has it, or if the text must grow first.
    #[must_use]
    pub fn send_at(&self) -> Option<Millis> {
        if !self.fresh || self.text.is_empty() {
            return None;
        }
        let Some(sent_at) = self.sent_at else { return Some(0) };
        let size = self.text.len() as u64;
        (self.sent_bytes + size <= EDIT_FACTOR * size).then_some(sent_at + EDIT_EVERY_MS)
    }

    /// The present text was handed to the connection.
    pub fn sent(&mut self, now: Millis) {
        self.fresh = false;
        self.sent_at = Some(now);
        self.sent_bytes += self.text.len() as u64;
    }

    /// A new connection: it gets the whole present text at once, whatever the old one had.
    pub fn redraw(&mut self) {
        self.fresh = true;
        self.sent_at = None;
    }

    /// When the state should be stored.
    #[must_use]
    pub const fn store_at(&self) -> Option<Millis> {
        if self.unstored { Some(self.stored_at + STORE_EVERY_MS) } else { None }
    }

    /// The state is being stored.
    pub fn stored(&mut self, now: Millis) {
        self.unstored = false;
        self.stored_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(words: usize, every: Millis) -> (u64, u64) {
        let mut bubble = Bubble::new("m".into(), String::new(), None, String::new(), 0);
        let (mut bytes, mut frames, mut text) = (0, 0, String::new());
        for word in 0..words {
            let now = word as u64 * every;
            text.push_str("word ");
            bubble.edit(text.clone());
            if bubble.send_at().is_some_and(|at| at <= now) {
                bubble.sent(now);
                bytes += bubble.text.len() as u64;
                frames += 1;
            }
        }
        (bytes + text.len() as u64, frames + 1)
    }

    #[test]
    fn text_bytes_are_at_most_eight_times_the_reply() {
        for words in [1, 2, 10, 100, 1000, 5000] {
            for every in [1, 20, 50, 300] {
                let (bytes, _) = stream(words, every);
                assert!(bytes <= 8 * (words as u64 * 5), "{words} words every {every} ms: {bytes} bytes");
            }
        }
        let (_, frames) = stream(1000, 20);
        assert!(frames > 20, "it still streams: {frames} frames");
    }

    #[test]
    fn edits_are_100_ms_apart_and_collapse() {
        let mut bubble = Bubble::new("m".into(), "a".repeat(100), None, String::new(), 0);
        assert_eq!(bubble.send_at(), Some(0));
        bubble.sent(1000);
        assert_eq!(bubble.send_at(), None, "nothing new");
        bubble.edit("a".repeat(150));
        bubble.edit("a".repeat(200));
        assert_eq!(bubble.send_at(), Some(1100));
        bubble.sent(1100);
        assert_eq!(bubble.text.len(), 200);
        bubble.redraw();
        assert_eq!(bubble.send_at(), Some(0), "a new connection gets it at once");
    }

    #[test]
    fn the_state_is_stored_once_a_second() {
        let mut bubble = Bubble::new("m".into(), "a".into(), None, String::new(), 5000);
        assert_eq!(bubble.store_at(), None);
        bubble.edit("ab".into());
        assert_eq!(bubble.store_at(), Some(6000));
        bubble.stored(6000);
        assert_eq!(bubble.store_at(), None);
    }
}
