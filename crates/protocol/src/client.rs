//! Frames from a device. [`decode`] checks the whole envelope before anything is done with a frame.

mod fields;
mod read;

use serde_json::value::RawValue;

pub use self::read::decode;

/// A frame that a device sent, checked: every field has its type and keeps its limit.
#[derive(Debug)]
pub enum ClientFrame {
    /// The first frame.
    Hello(Box<Hello>),
    /// What a person typed.
    Text(Text),
    /// A part of a voice message or of a file.
    Media(MediaPart),
    /// An answer to a card.
    Prompt(PromptAnswer),
    /// Asks for a `pong` with the same value.
    Ping {
        /// Any JSON value up to 1 KiB.
        ts: Box<RawValue>,
    },
    /// A message to another device, from cron or a command line.
    Deliver(Deliver),
    /// A type this server does not know: ignored.
    Unknown {
        /// Its `t`.
        t: String,
    },
}

/// `hello`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Token, if it is given here. Wins over header and URL.
    pub token: Option<String>,
    /// The device; absent for a connection that only delivers.
    pub device: Option<HelloDevice>,
    /// `user.id`, checked like `device.id`.
    pub user_id: Option<String>,
    /// `user.name`, a label.
    pub user_name: Option<String>,
    /// Language tag.
    pub lang: Option<String>,
    /// What the client understands.
    pub features: Vec<String>,
    /// Where to resume.
    pub resume: Option<Resume>,
}

/// `hello.device`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelloDevice {
    /// Checked: see [`crate::id::valid_device_id`].
    pub id: String,
    /// Shown name.
    pub name: Option<String>,
    /// For instance `android`.
    pub platform: Option<String>,
    /// Version of the app.
    pub app_version: Option<String>,
}

/// `hello.resume`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resume {
    /// Epoch of the store.
    pub epoch: String,
    /// Last item the client has.
    pub seq: u64,
}

/// `text`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The client's id; without one there is no dedupe.
    pub id: Option<String>,
    /// 1–12,000 characters, not white space only.
    pub text: String,
}

/// What a series carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediaKind {
    /// A voice message (`audio` frame).
    Voice {
        /// The declared container, which the bytes must match.
        format: VoiceFormat,
        /// Hz, if told.
        sample_rate: Option<u32>,
        /// Length, if told.
        duration_ms: Option<u64>,
    },
    /// A picture.
    Image,
    /// A video.
    Video,
    /// Any file.
    Document,
    /// A music file, never a voice message.
    Audio,
}

/// Container of a voice message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoiceFormat {
    /// RIFF/WAVE.
    Wav,
    /// Ogg.
    Ogg,
}

/// One part of `media` or `audio`, its base64 decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaPart {
    /// Series id. A single part without an id gets one from the gateway (`None` here); several parts need one.
    pub id: Option<String>,
    /// Kind.
    pub kind: MediaKind,
    /// Declared MIME type (`None` for voice).
    pub mime: Option<String>,
    /// Declared name, already reduced by [`crate::id::clean_filename`].
    pub filename: Option<String>,
    /// Caption, at most 4,000 characters.
    pub caption: Option<String>,
    /// 0-based.
    pub part: u32,
    /// 1–2,048.
    pub parts: u32,
    /// Decoded bytes, not empty.
    pub data: Vec<u8>,
}

/// `prompt` from a device: the answer to a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptAnswer {
    /// Which card.
    pub prompt_id: String,
    /// Which option.
    pub option_id: String,
    /// Free answer.
    pub text: Option<String>,
}

/// `deliver`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deliver {
    /// The caller's id, remembered 7 days.
    pub id: String,
    /// Device id or `home`.
    pub target: String,
    /// What is said.
    pub text: String,
    /// `"offline":"queue"`: store it if the device is away.
    pub queue: bool,
}
