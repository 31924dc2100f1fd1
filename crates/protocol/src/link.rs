//! The agent link: what an agent and the gateway say to each other (`docs/agent-link.md`). The embedded agents use
//! the same values in process; the WebSocket side carries them as JSON.

use serde::{Deserialize, Serialize};

use crate::{
    Millis,
    server::{OutKind, PromptKind, PromptOption},
};

/// From an agent to the gateway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum FromAgent {
    /// The agent works, has finished, or failed. Drives avatar and typing.
    Turn {
        /// Device id.
        device: String,
        /// State.
        state: TurnState,
    },
    /// A message. `last: false` opens a streamed reply. A repeat of its key gets the first result and changes nothing; but
    /// while the reply is open, a `last: true` ends it with its text, and another life of the agent goes on with it.
    Send {
        /// Answered by exactly one result.
        req: u64,
        /// Makes the call idempotent: unique per device, remembered 7 days.
        key: String,
        /// Device id.
        device: String,
        /// Text.
        text: String,
        /// `final` on the wire.
        #[serde(rename = "final", default = "yes")]
        last: bool,
        /// Message id it answers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply_to: Option<String>,
        /// What to do when the device is away.
        #[serde(default)]
        offline: Offline,
    },
    /// The whole new text of a message.
    Edit {
        /// Call number.
        req: u64,
        /// Device id.
        device: String,
        /// As returned by `send`.
        message_id: String,
        /// Whole text.
        text: String,
        /// `final` on the wire.
        #[serde(rename = "final")]
        last: bool,
    },
    /// What the agent is doing, for the typing line.
    Status {
        /// Device id.
        device: String,
        /// `None` clears it.
        text: Option<String>,
    },
    /// A file.
    Media {
        /// Call number.
        req: u64,
        /// Idempotency key.
        key: String,
        /// Device id.
        device: String,
        /// Kind.
        kind: OutKind,
        /// Where the bytes are.
        #[serde(flatten)]
        source: MediaSource,
        /// Declared type; a certain sniff wins.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mime: Option<String>,
        /// Name to show.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filename: Option<String>,
        /// Caption.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        caption: Option<String>,
        /// Message id it answers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply_to: Option<String>,
        /// What to do when the device is away.
        #[serde(default)]
        offline: Offline,
    },
    /// A card.
    Prompt {
        /// Call number.
        req: u64,
        /// Idempotency key.
        key: String,
        /// Device id.
        device: String,
        /// Kind.
        kind: PromptKind,
        /// Shown.
        text: String,
        /// Exact command.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<String>,
        /// What it does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        /// Not empty.
        options: Vec<PromptOption>,
        /// Time limit.
        deadline_seconds: u64,
    },
    /// A card ended elsewhere.
    PromptClose {
        /// Call number.
        req: u64,
        /// Card.
        prompt_id: String,
        /// What took effect, if anything.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        option_id: Option<String>,
        /// Why.
        reason: String,
    },
    /// Asks whether an answered card may be acted on.
    Take {
        /// Call number.
        req: u64,
        /// Event of the answer.
        event: u64,
    },
    /// What took effect.
    Applied {
        /// Event of the answer.
        event: u64,
        /// Whether it took effect.
        ok: bool,
        /// Which option.
        option_id: String,
        /// Why not, or why another.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Taken: not lost unless this agent process dies.
    Ack {
        /// Event.
        event: u64,
    },
    /// Its turn has ended.
    Done {
        /// Event.
        event: u64,
        /// How.
        outcome: Outcome,
    },
    /// A new conversation began: cards of the old one close.
    Conversation {
        /// Device id.
        device: String,
        /// Its name, the agent's choice.
        id: String,
    },
    /// Answer to a [`ToAgent::Request`].
    Answer {
        /// Number of the request.
        req: u64,
        /// Answer.
        #[serde(flatten)]
        answer: Answer,
    },
    /// Asks what is known of a device.
    Device {
        /// Call number.
        req: u64,
        /// Device id.
        device: String,
    },
}

impl FromAgent {
    /// The number under which the call is answered; `None` for what has no result.
    #[must_use]
    pub const fn req(&self) -> Option<u64> {
        match self {
            Self::Send { req, .. }
            | Self::Edit { req, .. }
            | Self::Media { req, .. }
            | Self::Prompt { req, .. }
            | Self::PromptClose { req, .. }
            | Self::Take { req, .. }
            | Self::Device { req, .. } => Some(*req),
            _ => None,
        }
    }
}

const fn yes() -> bool {
    true
}

/// From the gateway to an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum ToAgent {
    /// What a device said. Stored before it is handed over.
    Event(Box<Event>),
    /// Answer to a call.
    Result(CallResult),
    /// Asks the agent.
    Request {
        /// Number of the request.
        req: u64,
        /// What is asked.
        #[serde(flatten)]
        what: What,
    },
    /// A device came or went.
    Presence {
        /// Device id.
        device: String,
        /// Connected now.
        online: bool,
    },
}

/// `turn.state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnState {
    /// Works.
    On,
    /// Has finished.
    Off,
    /// Has failed.
    Failed,
}

/// What a call does when the device is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Offline {
    /// Stored; goes out at the next connect.
    #[default]
    Queue,
    /// The call fails with `device_offline` and is never replayed.
    Fail,
}

/// Where the bytes of a file are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MediaSource {
    /// Absolute path inside the gateway's `media_out` folder; the gateway takes the file over.
    Path(String),
    /// Inline, base64 on the wire.
    Data(#[serde(with = "crate::base64::text")] Vec<u8>),
}

/// A file of the agent's, taken over into the media folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileTaken {
    /// Name in the media folder, synced.
    pub file: String,
    /// Bytes.
    pub bytes: u64,
    /// A certain sniff, else what the agent said, else `application/octet-stream`.
    pub mime: String,
    /// Name to show: what the agent said, cleaned, else the source's name, else one made from the kind.
    pub filename: String,
    /// Hash of the content ([`crate::record::hash64`]).
    pub content: u64,
}

/// Why a file of the agent's was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileRefused {
    /// Outside `media_out`, a link, a URL, not a regular file. The name is shown to the user.
    NotAllowed {
        /// Last component, cleaned.
        name: String,
    },
    /// Larger than 8 MiB.
    TooLarge {
        /// Last component, cleaned.
        name: String,
    },
    /// Empty.
    Empty,
    /// Not there.
    Missing,
    /// The disk is full or cannot be read or written.
    Failed(String),
}

/// `done.outcome`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Done.
    Ok,
    /// Failed; the agent has told the user.
    Failed,
}

/// Result of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallResult {
    /// Number of the call.
    pub req: u64,
    /// Whether it was done.
    pub ok: bool,
    /// Value on success.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub value: Option<CallValue>,
    /// Error on failure.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub error: Option<CallError>,
}

/// What a successful call returns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CallValue {
    /// `send`, `media`.
    Message {
        /// Message or file id.
        message_id: String,
        /// Stored, or on the device already.
        state: crate::server::DeliverState,
    },
    /// `prompt`.
    Prompt {
        /// Card id.
        prompt_id: String,
    },
    /// `device`.
    Device(DeviceInfo),
}

/// Why a call was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallError {
    /// `bad_call` `too_big` `not_found` `device_offline` `withdrawn` `refused` `internal`.
    pub code: String,
    /// English, for the developer of the agent.
    pub message: String,
    /// The same call may succeed later.
    pub retryable: bool,
}

/// What is known of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// Device id.
    pub id: String,
    /// Shown name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// For instance `android`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// Version of the app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_version: Option<String>,
    /// User id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// Connected now; not stored.
    #[serde(default)]
    pub online: bool,
}

/// Who spoke.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// User id.
    pub id: String,
    /// A label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The id comes from a token bound to this user, not from what the client says.
    #[serde(default)]
    pub proven: bool,
}

/// What a device said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Number, never changes.
    pub event: u64,
    /// From which device.
    pub device: DeviceInfo,
    /// Who.
    pub user: User,
    /// The client's id of it.
    pub id: String,
    /// What.
    #[serde(flatten)]
    pub what: Said,
    /// When the gateway accepted it.
    pub at: Millis,
    /// It was handed over before, perhaps to an earlier process of the agent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub redelivered: bool,
}

/// What was said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Said {
    /// Text.
    Text {
        /// It.
        text: String,
    },
    /// A voice message.
    Voice {
        /// The file; a list of one on the wire.
        #[serde(with = "list_of_one")]
        media: InFile,
    },
    /// A file.
    Media {
        /// The file; a list of one on the wire.
        #[serde(with = "list_of_one")]
        media: InFile,
    },
    /// A card was answered, or its time is over.
    Prompt {
        /// Outcome.
        prompt: CardOutcome,
    },
}

/// serde: one value as a list of one. An event carries one file; the list leaves room for more.
mod list_of_one {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer, T: Serialize>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        [value].serialize(serializer)
    }
    pub(super) fn deserialize<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        <[T; 1]>::deserialize(deserializer).map(|[value]| value)
    }
}

/// A file from a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFile {
    /// `image` `video` `document` `audio` `voice`.
    pub kind: String,
    /// Name of the file in the gateway's media folder; made by the gateway.
    pub file: String,
    /// Absolute path, filled in at hand-over to an agent on the same host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// What the bytes are, or what the client said if the bytes do not tell.
    pub mime: String,
    /// Name to show; never a path.
    pub filename: String,
    /// Caption.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caption: Option<String>,
    /// Size.
    pub bytes: u64,
    /// Hex.
    pub sha256: String,
    /// Length of a voice message, if the client told it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

/// Outcome of a card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardOutcome {
    /// Card.
    pub prompt_id: String,
    /// Kind.
    pub kind: PromptKind,
    /// Answered or time over.
    pub outcome: CardEnd,
    /// The option pressed; the refusal when time is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub option_id: Option<String>,
    /// Free answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// `prompt.outcome`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CardEnd {
    /// A person pressed an option.
    Answered,
    /// Nobody did in time.
    Expired,
}

/// What the gateway asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum What {
    /// The command list.
    Commands,
    /// The model list.
    Models,
    /// How a card stands that was taken and not confirmed.
    Prompt {
        /// Card.
        prompt_id: String,
    },
}

/// Answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Answer {
    /// How a card stands.
    Prompt {
        /// State.
        state: CardState,
        /// What took effect.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        option_id: Option<String>,
    },
    /// Commands.
    Commands {
        /// Rows.
        commands: Vec<CommandItem>,
    },
    /// Models.
    Models {
        /// The one in use.
        current: String,
        /// Rows.
        models: Vec<ModelItem>,
    },
}

/// How a card stands with the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CardState {
    /// Not acted on: it may be answered again.
    Open,
    /// Acted on.
    Applied,
    /// The agent does not know it any more.
    Gone,
}

/// One command of the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandItem {
    /// With the slash.
    pub name: String,
    /// What it does.
    pub description: String,
    /// Arguments, as shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<String>,
}

/// One model of the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelItem {
    /// Id.
    pub id: String,
    /// Provider.
    pub provider: String,
    /// Shown.
    pub label: String,
    /// What a client sends as text to choose it.
    pub select: String,
}
