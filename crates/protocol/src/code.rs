//! Error codes and close codes, grouped by what a client should do.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `code` of an `error` frame. A client acts on `code` and `fatal` only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    // Access: do not retry.
    /// The first frame was not a `hello`, or none came in time.
    AuthRequired,
    /// The token is unknown, or the device is not allowed.
    AuthFailed,
    /// Known, but not allowed to do this.
    Forbidden,
    /// A newer connection of the same device took over.
    Replaced,
    // This frame: mend it before it is sent again.
    /// The frame does not have the form that the protocol asks for.
    BadFrame,
    /// A limit of size was passed.
    TooBig,
    /// A kind, format or field value that this server does not know.
    UnsupportedFrame,
    /// The target of a `deliver` could not be reached.
    DeviceOffline,
    // Later: the same frame may be sent again.
    /// Too many; `retry_after_ms` says when.
    RateLimited,
    /// No agent took it.
    AgentOffline,
    /// The gateway could not do it (a full disk, for instance); nothing was accepted.
    Internal,
    /// A code that this version does not know, read by a client; a server never sends it.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// What a client does after a connection has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterClose {
    /// Stop; tell the person.
    Stop,
    /// Connect again with back-off.
    Retry,
}

/// Close codes of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum CloseCode {
    /// An ordinary end.
    Normal = 1000,
    /// The server is going away.
    GoingAway = 1001,
    /// Only rubbish came.
    Rubbish = 1003,
    /// Access denied. Never retry.
    Denied = 1008,
    /// A message was longer than the transport's limit. Never send that item again.
    TooLarge = 1009,
    /// The server restarts.
    Restart = 1012,
    /// Overloaded, or the client reads too slowly.
    Overloaded = 1013,
    /// Replaced by a newer connection of the same device. Never retry.
    Replaced = 4001,
}

impl CloseCode {
    /// What a client should do after this close.
    #[must_use]
    pub const fn after(self) -> AfterClose {
        match self {
            Self::Denied | Self::Replaced | Self::Rubbish | Self::TooLarge => AfterClose::Stop,
            Self::Normal | Self::GoingAway | Self::Restart | Self::Overloaded => AfterClose::Retry,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_that_is_not_known_is_read_and_the_others_keep_their_names() {
        assert_eq!(serde_json::from_str::<ErrorCode>("\"moon_phase\"").unwrap(), ErrorCode::Unknown);
        assert_eq!(serde_json::to_string(&ErrorCode::AgentOffline).unwrap(), "\"agent_offline\"");
    }

    #[test]
    fn field_a_client_that_obeys_never_loops_on_a_refusal() {
        for code in [CloseCode::Denied, CloseCode::Replaced, CloseCode::Rubbish, CloseCode::TooLarge] {
            assert_eq!(code.after(), AfterClose::Stop);
        }
        for code in [CloseCode::Normal, CloseCode::GoingAway, CloseCode::Restart, CloseCode::Overloaded] {
            assert_eq!(code.after(), AfterClose::Retry);
        }
        assert_eq!(
            (CloseCode::Denied as u16, CloseCode::Replaced as u16, CloseCode::TooLarge as u16),
            (1008, 4001, 1009)
        );
    }
}
