//! Why a frame was refused: code, field and what is allowed, for the developer; words for the person.

use crate::{code::ErrorCode, words::Say};

/// A refusal of one frame, or of a connection. Becomes an `error` frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code:?}: {detail}")]
pub struct Problem {
    /// The code the client acts on.
    pub code: ErrorCode,
    /// What a person is told; put into their language when the frame is written.
    pub say: Say,
    /// One English sentence for a developer: the field and what is allowed. Never holds a token or people's words.
    pub detail: String,
    /// The `id` of the frame it answers, when that had a valid one.
    pub id: Option<String>,
    /// With `rate_limited`: when to try again, milliseconds.
    pub retry_after_ms: Option<u64>,
    /// Set when the frame was a part of `audio` or `media` and its series ends with it: the series' id.
    pub ends_series: Option<String>,
    /// The frame was a `hello`, but not a valid one.
    pub in_hello: bool,
    /// It was no frame at all: binary, not JSON, not an object, or without a string `t`. Many in a row end a connection.
    pub rubbish: bool,
}

impl Problem {
    /// A refusal with the words that belong to its code.
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self {
            code,
            say: Say::for_code(code),
            detail: detail.into(),
            id: None,
            retry_after_ms: None,
            ends_series: None,
            in_hello: false,
            rubbish: false,
        }
    }
    /// A `bad_frame`.
    pub fn bad(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::BadFrame, detail)
    }
    /// Names the frame that is answered.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<Option<String>>) -> Self {
        self.id = id.into();
        self
    }
    /// Tells the person something more exact than the code does.
    #[must_use]
    pub fn saying(mut self, say: Say) -> Self {
        self.say = say;
        self
    }
}
