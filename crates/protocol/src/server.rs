//! Frames to a device.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::IntoDeserializer};
use serde_json::value::RawValue;

use crate::code::ErrorCode;

/// A frame to a device. `t` names it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
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
    #[serde(default)]
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
    #[serde(deserialize_with = "known")]
    pub avatar_states: Vec<AvatarState>,
    /// Kinds of media to the server.
    pub media_in: Vec<String>,
    /// Kinds of media to the device.
    #[serde(deserialize_with = "known")]
    pub media_out: Vec<OutKind>,
    /// Kinds of cards.
    #[serde(deserialize_with = "known")]
    pub prompts: Vec<PromptKind>,
    /// Streamed replies.
    pub edit: bool,
    /// Largest file, decoded bytes.
    pub max_media_bytes: u64,
    /// Longest text, characters.
    pub max_text_chars: u64,
}

/// A list of names, without those that this version does not know: a newer server may have more.
fn known<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    let read = |name: String| {
        T::deserialize(IntoDeserializer::<serde::de::value::Error>::into_deserializer(name)).ok()
    };
    Ok(names.into_iter().filter_map(read).collect())
}

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            text: true,
            voice: true,
            typing: true,
            avatar_states: vec![AvatarState::Idle, AvatarState::Thinking, AvatarState::Speaking],
            media_in: ["image", "video", "document", "audio"].map(str::to_owned).to_vec(),
            media_out: vec![
                OutKind::Image,
                OutKind::Voice,
                OutKind::Video,
                OutKind::Document,
                OutKind::Animation,
            ],
            prompts: vec![PromptKind::ExecApproval, PromptKind::SlashConfirm, PromptKind::Clarify],
            edit: true,
            max_media_bytes: crate::limits::FILE_BYTES as u64,
            max_text_chars: crate::limits::TEXT_CHARS as u64,
        }
    }
}

/// `ready.limits`: names end in their unit. Read by a client, 0 also stands for what the server did not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
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
    /// The id of the text it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// Item number; on the last part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    // Stays the last field: `encode_with` relies on it.
    /// Base64 of this part.
    pub data: String,
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
    /// One that does harm or refuses.
    Danger,
    /// Another one. A style that a reader does not know is shown like this.
    #[serde(other)]
    Secondary,
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
        // Cannot fail: every map key is a string and no value has a serializer of its own that fails.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl Media {
    /// The frame as JSON text with `bytes` as its `data`, which is written once, straight into the text.
    /// What `self.data` holds is not used.
    #[must_use]
    pub fn encode_with(mut self, bytes: &[u8]) -> String {
        self.data.clear();
        let mut text = ServerFrame::Media(self).encode();
        // `data` is the last field: the text ends in `"data":""}`.
        text.truncate(text.len().saturating_sub(2));
        text.reserve_exact(bytes.len().div_ceil(3) * 4 + 2);
        crate::base64::append(bytes, &mut text);
        text.push_str("\"}");
        text
    }
}

/// A frame from a server that a client cannot read. A client ignores it, as it ignores an unknown type.
#[derive(Debug, thiserror::Error)]
#[error("the frame cannot be read: {0}")]
pub struct Unreadable(String);

/// Reads one frame from a server, for clients. `None`: a type that this version does not know, to be ignored.
/// Unknown fields are ignored, and an unknown `code` of an `error` is [`ErrorCode::Unknown`]: the client acts on `fatal`.
///
/// # Errors
/// When it is not JSON, not an object, has no string `t`, or a field of a known type does not fit.
pub fn decode(text: &str) -> Result<Option<ServerFrame>, Unreadable> {
    #[derive(Deserialize)]
    struct Tag<'a> {
        #[serde(borrow)]
        t: std::borrow::Cow<'a, str>,
    }
    // The tag is read first, then the fields straight into their type: serde's own tagged enums buffer every
    // field and cannot carry the raw value of a `pong`.
    fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Unreadable> {
        serde_json::from_str(text).map_err(|e| Unreadable(e.to_string()))
    }
    let text = crate::repair::lone_surrogates(text);
    let text = text.as_ref();
    Ok(Some(match read::<Tag<'_>>(text)?.t.as_ref() {
        "ready" => ServerFrame::Ready(read(text)?),
        "error" => ServerFrame::Error(read(text)?),
        "message" => ServerFrame::Message(read(text)?),
        "media" => ServerFrame::Media(read(text)?),
        "prompt" => ServerFrame::Prompt(read(text)?),
        "prompt_done" => ServerFrame::PromptDone(read(text)?),
        "avatar" => {
            #[derive(Deserialize)]
            struct Fields {
                state: AvatarState,
            }
            ServerFrame::Avatar { state: read::<Fields>(text)?.state }
        }
        "typing" => ServerFrame::Typing(read(text)?),
        "pong" => {
            #[derive(Deserialize)]
            struct Fields {
                #[serde(default)]
                ts: Box<RawValue>,
            }
            ServerFrame::Pong { ts: read::<Fields>(text)?.ts }
        }
        "deliver_done" => {
            #[derive(Deserialize)]
            struct Fields {
                id: String,
                target: String,
                state: DeliverState,
            }
            let Fields { id, target, state } = read(text)?;
            ServerFrame::DeliverDone { id, target, state }
        }
        _ => return Ok(None),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits;

    fn media() -> Media {
        Media {
            id: "a\"1".into(),
            kind: OutKind::Document,
            mime: "application/pdf".into(),
            filename: "ж\\.pdf".into(),
            caption: Some("two\nlines".into()),
            part: 0,
            parts: 2,
            last: false,
            size: 8_388_608,
            reply_to: Some("q".into()),
            seq: Some(3),
            data: String::new(),
        }
    }

    #[test]
    fn a_part_that_is_written_at_once_is_the_frame_with_its_base64() {
        for bytes in [&b""[..], b"\0", b"\0\x01", b"\0\x01\x02", &[0xA5; 1000]] {
            for plain in [false, true] {
                let mut frame = media();
                if plain {
                    (frame.caption, frame.reply_to, frame.seq) = (None, None, None);
                }
                frame.data = crate::base64::encode(bytes);
                assert_eq!(frame.clone().encode_with(bytes), ServerFrame::Media(frame).encode());
            }
        }
    }

    #[test]
    fn a_full_part_with_the_longest_of_all_fields_keeps_the_bound_of_frames_to_a_device() {
        let mut frame = media();
        frame.caption = Some("\u{1}".repeat(limits::CAPTION_CHARS));
        frame.filename = "\u{1}".repeat(limits::FILENAME_BYTES);
        let length = frame.encode_with(&vec![0xFF; limits::PART_BYTES]).len();
        assert!(length <= limits::FRAME_TO_DEVICE, "{length}");
    }

    #[test]
    fn our_own_capabilities_are_those_of_the_checklist() {
        assert_eq!(
            serde_json::to_string(&Capabilities::default()).unwrap(),
            r#"{"text":true,"voice":true,"typing":true,"avatar_states":["idle","thinking","speaking"],"media_in":["image","video","document","audio"],"media_out":["image","voice","video","document","animation"],"prompts":["exec_approval","slash_confirm","clarify"],"edit":true,"max_media_bytes":8388608,"max_text_chars":12000}"#
        );
    }
}
