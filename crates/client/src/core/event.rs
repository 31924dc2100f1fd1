//! What goes into the core, what it wants done, and what an app learns.

use protocol::{
    code::ErrorCode,
    server::{AvatarState, DeliverState, OutKind, Prompt, PromptDone, Ready, Typing},
    words::Lang,
};

/// Something that happened to the connection, or a wish of the app. Those about a connection concern the one of the last
/// [`Action::Connect`]; after [`Action::Close`] or [`Action::Drop`] the driver reports nothing more of it.
#[derive(Clone, Debug)]
pub enum Input {
    /// The app wants to be connected. Also ends a wait between two attempts, and tries again after [`Event::Refused`].
    Start,
    /// The WebSocket is open.
    Opened,
    /// It could not be opened.
    ConnectFailed {
        /// Status of the HTTP answer, if there was one that refused the upgrade.
        status: Option<u16>,
        /// For a developer, English; holds no token.
        detail: String,
    },
    /// A text frame came.
    Frame(String),
    /// Another sign of life came: a ping, a binary frame.
    Alive,
    /// The oldest frame of those handed over by [`Action::Send`] has been written.
    Sent,
    /// The connection is gone.
    Closed {
        /// The server's close code, if it sent one.
        code: Option<u16>,
    },
    /// The deadline that the core asked for has come.
    Tick,
    /// The app wants no connection any more.
    Stop,
}

/// Something to be done, in order.
#[derive(Clone, Debug)]
pub enum Action {
    /// Open a connection; answered by [`Input::Opened`] or [`Input::ConnectFailed`].
    Connect,
    /// Write a text frame. Answered by [`Input::Sent`], one for each, in order.
    Send(String),
    /// Write a close frame with this code after what was handed over before, and end the connection.
    Close(u16),
    /// End the connection, or the attempt, at once.
    Drop,
    /// Tell the app.
    Tell(Event),
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It could not be opened.
    Connect {
        /// Status of the HTTP answer that refused the upgrade.
        status: Option<u16>,
        /// For a developer, English.
        detail: String,
    },
    /// It was not open, or the server not ready, in time.
    Late,
    /// The server closed it.
    Closed {
        /// Its code.
        code: u16,
    },
    /// The line was cut.
    Cut,
    /// Nothing was heard from the server for too long.
    Silent,
}

/// An `error` frame as the client reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorInfo {
    /// The code, `None` if this client does not know it.
    pub code: Option<ErrorCode>,
    /// The code as it was written.
    pub name: String,
    /// For a person, in their language.
    pub message: String,
    /// The connection ends.
    pub fatal: bool,
    /// The frame it answers.
    pub id: Option<String>,
    /// For a developer.
    pub detail: Option<String>,
    /// With `rate_limited`, milliseconds.
    pub retry_after_ms: Option<u64>,
}

/// Why an item was given up. It is never sent again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server refused it.
    Refused(ErrorInfo),
    /// The server closed the connection with 1009 on it.
    TooLarge,
    /// The server ended three connections in a row with a complaint while this was the oldest in flight.
    Complaint,
}

/// A whole message, or what is there of it. `text` always is the whole text so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bubble {
    /// Message id: one bubble.
    pub id: String,
    /// The text.
    pub text: String,
    /// Nothing more is expected.
    pub last: bool,
    /// The app was told of this id before: draw the same bubble again.
    pub redraw: bool,
    /// Id of the text it answers, if the server said.
    pub reply_to: Option<String>,
}

/// A whole file.
#[derive(Clone, PartialEq, Eq)]
pub struct File {
    /// File id.
    pub id: String,
    /// Kind.
    pub kind: OutKind,
    /// MIME type.
    pub mime: String,
    /// Name as the server sent it: to show, never to be used as a path.
    pub filename: String,
    /// Caption.
    pub caption: Option<String>,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Id of the text it answers, if the server said.
    pub reply_to: Option<String>,
    /// The app was given another file under this id before.
    pub redraw: bool,
}

impl std::fmt::Debug for File {
    /// Without the bytes.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { id, kind, bytes, .. } = self;
        write!(f, "File({id}, {kind:?}, {} bytes)", bytes.len())
    }
}

/// What an app learns.
#[derive(Clone, Debug)]
pub enum Event {
    /// An attempt begins.
    Connecting,
    /// The session is open; what waited is on its way.
    Ready(Box<Ready>),
    /// There is no connection; the next attempt is planned.
    Offline {
        /// Milliseconds until then.
        retry_in: u64,
        /// Why.
        why: Why,
    },
    /// The server wants no further attempt. Final until the app starts anew.
    Refused {
        /// The close code, or the one that belongs to the fatal error; for an HTTP answer of 401 or 403 1008.
        code: u16,
        /// The fatal error, if there was one.
        error: Option<ErrorInfo>,
    },
    /// The app stopped the client.
    Stopped,
    /// A message, a further chunk or an edit of one.
    Message(Bubble),
    /// A file is complete.
    Media(File),
    /// A card; the same id again is the same card.
    Card(Prompt),
    /// A card has ended. Also told by the client itself when its time is long over and nothing came.
    CardDone(PromptDone),
    /// The avatar's state changed.
    Avatar(AvatarState),
    /// The typing indicator changed (`stop` clears it).
    Typing(Typing),
    /// The server refused something that is not (or no longer) in the outbox.
    Error(ErrorInfo),
    /// The server has taken a text or a file: a `pong` came back that was asked for after it, and no error named it. Told once an item.
    Accepted {
        /// Its id.
        id: String,
    },
    /// An item was given up. May follow [`Event::Accepted`] of a file that turned out to be bad.
    Failed {
        /// Its id; that of the card for an answer.
        id: String,
        /// Why.
        why: Failure,
    },
    /// So much of a file is written.
    Progress {
        /// Its id.
        id: String,
        /// Bytes written on this connection.
        sent: u64,
        /// Bytes in all.
        total: u64,
    },
    /// A `deliver` ended well.
    Delivered {
        /// Its id.
        id: String,
        /// The device.
        target: String,
        /// Outcome.
        state: DeliverState,
    },
    /// A frame that the client knows came damaged and was ignored; for a developer.
    Damaged(String),
}

/// Kind of a file to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A picture.
    Image,
    /// A video.
    Video,
    /// Any file.
    Document,
    /// A music file, never a voice message.
    Audio,
}

impl FileKind {
    /// Its name in a frame.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Video => "video",
            Self::Document => "document",
            Self::Audio => "audio",
        }
    }
    /// The kind that fits a MIME type.
    #[must_use]
    pub fn of_mime(mime: &str) -> Self {
        match mime.split('/').next() {
            Some("image") => Self::Image,
            Some("video") => Self::Video,
            Some("audio") => Self::Audio,
            _ => Self::Document,
        }
    }
}

/// Something to send.
#[derive(Clone, PartialEq, Eq)]
pub enum Request {
    /// A text.
    Text(String),
    /// A file.
    File {
        /// Kind.
        kind: FileKind,
        /// MIME type.
        mime: String,
        /// Name.
        filename: String,
        /// Caption.
        caption: Option<String>,
        /// Bytes.
        bytes: Vec<u8>,
    },
    /// A voice message.
    Voice {
        /// Container, which the bytes must match.
        format: protocol::client::VoiceFormat,
        /// Bytes.
        bytes: Vec<u8>,
    },
    /// The answer to a card. Its id in events is the card's.
    Answer {
        /// Which card.
        prompt_id: String,
        /// Which option.
        option_id: String,
        /// Free answer.
        text: Option<String>,
    },
    /// A message to another device.
    Deliver {
        /// Device id or `home`.
        target: String,
        /// What is said.
        text: String,
        /// Store it if the device is away.
        queue: bool,
    },
}

impl std::fmt::Debug for Request {
    /// Without what people said.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Text(_) => "Text",
            Self::File { .. } => "File",
            Self::Voice { .. } => "Voice",
            Self::Answer { .. } => "Answer",
            Self::Deliver { .. } => "Deliver",
        })
    }
}

/// Why something was not taken into the outbox. Nothing of it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// White space only.
    #[error("the text is empty")]
    Empty,
    /// Over the server's limit.
    #[error("longer than the server takes: at most {0} characters")]
    LongText(u64),
    /// Over the server's limit.
    #[error("larger than the server takes: at most {0} bytes")]
    LargeFile(u64),
    /// No bytes.
    #[error("the file is empty")]
    EmptyFile,
    /// Too much waits.
    #[error("the outbox is full: too much waits to be sent")]
    Full,
    /// The id is not 1–128 characters, or something under it still waits.
    #[error("this id cannot be used: 1 to 128 characters, not one that is still being sent")]
    Id,
    /// The client has ended.
    #[error("the client has ended")]
    Ended,
}

impl SubmitError {
    /// For a person.
    #[must_use]
    pub fn words(self, lang: Lang) -> String {
        match (self, lang) {
            (Self::Empty, Lang::Ru) => "Пустое сообщение не отправляется".into(),
            (Self::Empty, Lang::En) => "An empty message is not sent".into(),
            (Self::LongText(n), Lang::Ru) => {
                format!("Слишком длинное сообщение: не больше {n} знаков. Сократите его или разделите")
            }
            (Self::LongText(n), Lang::En) => {
                format!("The message is too long: at most {n} characters. Shorten or split it")
            }
            (Self::LargeFile(n), Lang::Ru) => format!("Файл слишком большой: не больше {n} байт"),
            (Self::LargeFile(n), Lang::En) => format!("The file is too large: at most {n} bytes"),
            (Self::EmptyFile, Lang::Ru) => "Файл пустой".into(),
            (Self::EmptyFile, Lang::En) => "The file is empty".into(),
            (Self::Full, Lang::Ru) => {
                "Слишком много сообщений ждёт отправки: дождитесь связи и повторите".into()
            }
            (Self::Full, Lang::En) => {
                "Too much is waiting to be sent: wait for the connection and try again".into()
            }
            (Self::Id, Lang::Ru) => {
                "Такой номер сообщения использовать нельзя: от 1 до 128 знаков и не занят".into()
            }
            (Self::Id, Lang::En) => {
                "This message id cannot be used: 1 to 128 characters, and not in use".into()
            }
            (Self::Ended, Lang::Ru) => "Связь завершена, отправить нельзя".into(),
            (Self::Ended, Lang::En) => "The connection has been ended, nothing can be sent".into(),
        }
    }
}
