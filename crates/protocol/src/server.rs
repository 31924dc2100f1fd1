//! Frames to a device.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::code::ErrorCode;

/// A frame to a device. `t` names it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "t", rename_all = "snake_case")]
pub enum ServerFrame {
    /// The session is open.
    Ready(Box<Ready>),
    /// A refusal.
    Error(ErrorFrame),
    /// A message, a chunk of one, or an edit.
    Message(Message),
    /// A part of a file.
    Media(Media),
    /// A card.
    Prompt(Prompt),
    /// The end of a card.
    PromptDone(PromptDone),
    /// Avatar state.
    Avatar {
        /// State.
        state: AvatarState,
    },
    /// Typing indicator.
    Typing(Typing),
    /// Answer to `ping`.
    Pong {
        /// The value of the `ping`.
        #[schemars(with = "serde_json::Value")]
        ts: Box<RawValue>,
    },
    /// A `deliver` ended well.
    DeliverDone {
        /// The caller's id.
        id: String,
        /// The device it went to.
        target: String,
        /// Outcome.
        state: DeliverState,
    },
}

/// `ready`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Ready {
    /// Protocol version, 1.
    pub v: u32,
    /// `mobile:<device.id>`.
    pub session: String,
    /// The device.
    pub device: ReadyDevice,
    /// `MOBILE_AVATAR_URL`, `""` if unset.
    pub avatar_url: String,
    /// What this server can do.
    pub capabilities: Capabilities,
    /// Part B features that are on for this connection.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    /// Every limit, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
}

/// `ready.device`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ReadyDevice {
    /// Its id.
    pub id: String,
    /// Its name, the id if it has none.
    pub name: String,
}

/// `ready.capabilities`, as the checklist shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Capabilities {
    /// Text.
    pub text: bool,
    /// Voice messages.
    pub voice: bool,
    /// Typing.
    pub typing: bool,
    /// States.
    pub avatar_states: Vec<AvatarState>,
    /// Kinds of media to the server.
    pub media_in: Vec<String>,
    /// Kinds of media to the device.
    pub media_out: Vec<OutKind>,
    /// Kinds of cards.
    pub prompts: Vec<PromptKind>,
    /// Streamed replies.
    pub edit: bool,
    /// Largest file, decoded bytes.
    pub max_media_bytes: u64,
    /// Longest text, characters.
    pub max_text_chars: u64,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            text: true,
            voice: true,
            typing: true,
            avatar_states: vec![AvatarState::Idle, AvatarState::Thinking, AvatarState::Speaking],
            media_in: ["image", "video", "document", "audio"].map(str::to_owned).to_vec(),
            media_out: vec![OutKind::Image, OutKind::Voice, OutKind::Video, OutKind::Document, OutKind::Animation],
            prompts: vec![PromptKind::ExecApproval, PromptKind::SlashConfirm, PromptKind::Clarify],
            edit: true,
            max_media_bytes: crate::limits::FILE_BYTES as u64,
            max_text_chars: crate::limits::TEXT_CHARS as u64,
        }
    }
}

/// `ready.limits`: names end in their unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Limits {
    /// Largest message to the server, bytes.
    pub frame_bytes: u64,
    /// Largest frame to the device, bytes.
    pub frame_out_bytes: u64,
    /// Longest text, characters.
    pub text_chars: u64,
    /// Longest caption, characters.
    pub caption_chars: u64,
    /// Largest file, decoded bytes.
    pub file_bytes: u64,
    /// Most parts of a file.
    pub parts: u64,
    /// Most open series.
    pub series: u64,
    /// Most bytes in open series.
    pub series_bytes: u64,
    /// An idle series is dropped after so many milliseconds.
    pub series_idle_ms: u64,
    /// Size of a chunk, characters.
    pub chunk_chars: u64,
    /// Frames per second, sustained; 0 = unlimited.
    pub frames_per_second: u64,
    /// Bytes per second above which the server reads more slowly; 0 = unlimited.
    pub bytes_per_second: u64,
}

/// `error`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorFrame {
    /// What the client acts on.
    pub code: ErrorCode,
    /// For a person, in their language.
    pub message: String,
    /// The connection will be closed.
    pub fatal: bool,
    /// The frame it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// For a developer, English.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// With `rate_limited`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

/// `message`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Message {
    /// Message id: one bubble.
    pub id: String,
    /// The chunk's text, or the whole text of an edit.
    pub text: String,
    /// Which chunk.
    pub chunk: Chunk,
    /// The last frame of this message.
    #[serde(rename = "final")]
    pub last: bool,
    /// The whole text so far: redraw.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub edit: bool,
    /// The id of the text it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// Item number; on the last frame of an item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
}

/// `message.chunk`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Chunk {
    /// From 0.
    pub index: u32,
    /// How many.
    pub total: u32,
}

/// Kind of a file to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutKind {
    /// A picture.
    Image,
    /// A voice message.
    Voice,
    /// A video.
    Video,
    /// A file.
    Document,
    /// A moving picture without sound.
    Animation,
}

/// `media` to a device: one part of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Media {
    /// File id.
    pub id: String,
    /// Kind.
    pub kind: OutKind,
    /// MIME type of the bytes.
    pub mime: String,
    /// Name to show.
    pub filename: String,
    /// Caption.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caption: Option<String>,
    /// From 0.
    pub part: u32,
    /// How many.
    pub parts: u32,
    /// The last part.
    #[serde(rename = "final")]
    pub last: bool,
    /// Bytes of the whole file.
    pub size: u64,
    /// Base64 of this part.
    pub data: String,
    /// The id of the text it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// Item number; on the last part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
}

/// Kind of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PromptKind {
    /// Approve a command.
    ExecApproval,
    /// Confirm a slash command.
    SlashConfirm,
    /// A question with choices.
    Clarify,
}

impl PromptKind {
    /// The option that refuses. `None` for a question, which has none.
    #[must_use]
    pub const fn refusal(self) -> Option<&'static str> {
        match self {
            Self::ExecApproval => Some("deny"),
            Self::SlashConfirm => Some("cancel"),
            Self::Clarify => None,
        }
    }
}

/// How an option looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OptionStyle {
    /// The expected one.
    Primary,
    /// Another one.
    Secondary,
    /// One that does harm or refuses.
    Danger,
}

/// One option of a card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PromptOption {
    /// What the answer names.
    pub id: String,
    /// Shown.
    pub label: String,
    /// Look.
    pub style: OptionStyle,
    /// A free answer may come with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_text: bool,
}

/// `prompt` to a device: a card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Prompt {
    /// Card id, unguessable.
    pub id: String,
    /// Kind.
    pub kind: PromptKind,
    /// Shown.
    pub text: String,
    /// The exact command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// What the command does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Never empty.
    pub options: Vec<PromptOption>,
    /// `mobile:<device.id>`.
    pub session: String,
    /// Seconds that are left.
    pub timeout_seconds: u64,
    /// Item number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
}

/// `prompt_done`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PromptDone {
    /// Card id.
    pub id: String,
    /// What took effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub option_id: Option<String>,
    /// Time was over, or the card is unknown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expired: bool,
    /// Why it ended elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Item number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
}

/// `avatar.state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AvatarState {
    /// Nothing happens.
    Idle,
    /// The agent works.
    Thinking,
    /// The reply has come.
    Speaking,
}

/// `typing`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Typing {
    /// Clear the indicator now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stop: bool,
    /// The indicator may be cleared by itself after so many milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// What the agent is doing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// Outcome of a `deliver`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeliverState {
    /// The device's stack has it.
    Delivered,
    /// It is stored and goes out at the next connect.
    Queued,
}

impl ServerFrame {
    /// The frame as JSON text.
    #[must_use]
    pub fn encode(&self) -> String {
        todo!()
    }
}
