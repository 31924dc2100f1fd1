//! What goes into the core and what comes out.

use protocol::{
    Millis,
    client::{ClientFrame, MediaPart},
    code::CloseCode,
    link::{FileRefused, FileTaken, FromAgent, InFile, MediaSource, ToAgent},
    problem::Problem,
    record::{Batch, DeviceNo, Loaded, Pos, Row},
    series::SpoolNo,
    words::Lang,
};

/// Number of a connection, given by the gateway, never reused within a process.
pub type ConnId = u64;
/// Number of an attachment of an agent, given by the gateway, never reused within a process.
pub type AgentId = u64;

/// Where a connection comes from.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// The socket's peer is loopback, and the request carried no forwarding header and no `Origin`.
    pub loopback: bool,
    /// The peer's address, for the lock-out of wrong logins.
    pub address: String,
    /// Token from `Authorization: Bearer` or, failing that, from `?token=`.
    pub token: Option<String>,
}

/// An agent as it attaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attach {
    /// Name and version, for logs.
    pub name: String,
    /// New for each agent process; fixed for embedded agents.
    pub instance: String,
    /// It lost its memory since it was last attached (an embedded agent that was started again): events that it acked
    /// and did not end come again, though the instance is the same.
    pub fresh: bool,
}

/// Something that happened.
#[derive(Debug)]
pub enum Input {
    /// A WebSocket connection is open; `hello` is awaited.
    Connected {
        /// Its number.
        conn: ConnId,
        /// Where from.
        origin: Origin,
    },
    /// A text frame came (decoded by [`protocol::client::decode`]), or something that is none: a [`Problem`].
    Frame {
        /// On which connection.
        conn: ConnId,
        /// Bytes of payload.
        bytes: usize,
        /// The frame.
        frame: Result<ClientFrame, Problem>,
    },
    /// A message over the transport's limit is announced. The gateway reads no more from this connection.
    TooLong {
        /// On which connection.
        conn: ConnId,
    },
    /// The pong for [`Action::Ping`].
    Pong {
        /// On which connection.
        conn: ConnId,
        /// Its nonce.
        nonce: u64,
    },
    /// The socket took bytes that [`Action::Send`] had handed over.
    Drained {
        /// On which connection.
        conn: ConnId,
        /// How many bytes of payload.
        bytes: usize,
    },
    /// The connection is gone; also after [`Action::Close`]. The last input of a connection.
    Closed {
        /// Which.
        conn: ConnId,
        /// The client's close code, if it sent one.
        code: Option<u16>,
    },
    /// Batches up to this number are on disk.
    Stored {
        /// Last batch of the group.
        upto: u64,
    },
    /// These batches are not on disk and never will be; neither will those that were given after them, until
    /// [`Action::StoreResume`].
    StoreFailed {
        /// First.
        from: u64,
        /// Last.
        upto: u64,
        /// Why, for the log.
        why: String,
    },
    /// Answer to [`Action::Load`]; `None`: the store does not know the device.
    Loaded {
        /// Device id.
        device: String,
        /// It.
        loaded: Result<Option<Loaded>, String>,
    },
    /// Answer to [`Action::Read`]: the rows found, in the order asked for.
    Rows {
        /// Device.
        device: DeviceNo,
        /// Ticket of the action.
        ticket: u64,
        /// Rows.
        rows: Result<Vec<Row>, String>,
    },
    /// Answer to [`Action::Assemble`].
    Assembled {
        /// Device.
        device: DeviceNo,
        /// Spool.
        spool: SpoolNo,
        /// The file, or what is wrong with it.
        done: Result<MediaDone, Problem>,
    },
    /// Answer to [`Action::TakeFile`].
    FileTaken {
        /// Device.
        device: DeviceNo,
        /// Ticket of the action.
        ticket: u64,
        /// The file, or why not.
        done: Result<FileTaken, FileRefused>,
    },
    /// Answer to [`Action::ReadFile`].
    FileRead {
        /// Device.
        device: DeviceNo,
        /// Ticket of the action.
        ticket: u64,
        /// The bytes.
        data: Result<Vec<u8>, String>,
    },
    /// An agent is there. A newer one replaces an older.
    AgentAttached {
        /// Its number.
        agent: AgentId,
        /// Who.
        attach: Attach,
    },
    /// Calls of the agent; what they cause shares one commit.
    FromAgent {
        /// Which.
        agent: AgentId,
        /// Calls, in order.
        calls: Vec<FromAgent>,
    },
    /// A byte came from the agent.
    AgentAlive {
        /// Which.
        agent: AgentId,
    },
    /// The agent's link is gone.
    AgentDetached {
        /// Which.
        agent: AgentId,
        /// The agent itself has ended: its bubbles are closed.
        ended: bool,
    },
    /// The deadline that the core asked for has come.
    Tick,
    /// The gateway is about to stop: no new sessions; every connection is closed with this code.
    Drain,
}

/// A file from a device, complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaDone {
    /// As the agent will see it (`path` is empty; `caption` and `filename` as the client sent them).
    pub file: InFile,
}

/// Something to be done. Actions of one input are done in order.
#[derive(Debug)]
pub enum Action {
    /// The session is open: the transport's limit rises to [`protocol::limits::FRAME_AFTER_READY`].
    Opened {
        /// Which.
        conn: ConnId,
    },
    /// Write a text frame. Never waits: the core counts what [`Input::Drained`] has not reported.
    Send {
        /// On which connection.
        conn: ConnId,
        /// Encoded JSON.
        text: String,
    },
    /// Send a WebSocket ping whose payload is the nonce, 8 bytes big-endian, after what was handed over before.
    Ping {
        /// On which connection.
        conn: ConnId,
        /// Nonce.
        nonce: u64,
    },
    /// Write what was handed over, then a close frame, then end the connection.
    Close {
        /// Which.
        conn: ConnId,
        /// Code.
        code: CloseCode,
    },
    /// Commit, in order.
    Store(Batch),
    /// The core knows that batches up to this number failed: the store, which refuses everything after a failure, may go
    /// on, unless a later batch has failed meanwhile.
    StoreResume {
        /// Last failed batch that the core knows of.
        upto: u64,
    },
    /// Load a device, its marks since `since`.
    Load {
        /// Device id.
        device: String,
        /// Horizon.
        since: Millis,
    },
    /// Read records.
    Read {
        /// Device.
        device: DeviceNo,
        /// Returned with the answer.
        ticket: u64,
        /// Which.
        positions: Vec<Pos>,
    },
    /// Keep a part of a file; no sync needed.
    Spool {
        /// Spool.
        spool: SpoolNo,
        /// The part, with its bytes.
        part: Box<MediaPart>,
    },
    /// The file is complete: put its parts together in the media folder, sniff, hash, sync file and folder.
    Assemble {
        /// Device.
        device: DeviceNo,
        /// Spool; gone afterwards.
        spool: SpoolNo,
        /// What it is.
        head: Box<MediaPart>,
    },
    /// Throw a spool away.
    Discard {
        /// Spool.
        spool: SpoolNo,
    },
    /// Remove a file from the media folder that no record names (a repeated upload).
    Remove {
        /// Name in the media folder.
        file: String,
    },
    /// Take over a file of the agent's.
    TakeFile {
        /// Device.
        device: DeviceNo,
        /// Returned with the answer.
        ticket: u64,
        /// Where it is.
        source: MediaSource,
        /// What the agent says it is.
        mime: Option<String>,
        /// What the agent calls it.
        filename: Option<String>,
        /// Kind.
        kind: protocol::server::OutKind,
    },
    /// Read a piece of a file in the media folder.
    ReadFile {
        /// Device.
        device: DeviceNo,
        /// Returned with the answer.
        ticket: u64,
        /// Name in the media folder.
        file: String,
        /// Where.
        offset: u64,
        /// How much.
        len: usize,
    },
    /// Tell the agent.
    ToAgent {
        /// Which.
        agent: AgentId,
        /// What.
        frame: ToAgent,
    },
    /// The agent was replaced by a newer one, or is not wanted: end its link.
    DetachAgent {
        /// Which.
        agent: AgentId,
    },
    /// Something for the log: no token, nothing that people said.
    Log {
        /// Whether an operator should look.
        warn: bool,
        /// English.
        text: String,
    },
}

/// How the core is set up. Durations in milliseconds.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Language when `hello.lang` names none that there is (`MOBILE_LANG`).
    pub lang: Lang,
    /// `MOBILE_AVATAR_URL`.
    pub avatar_url: String,
    /// `MOBILE_CHUNK_LIMIT`, characters.
    pub chunk_chars: usize,
    /// `MOBILE_IDLE_AFTER_MS`.
    pub idle_after_ms: u64,
    /// `MOBILE_HOME_DEVICE`.
    pub home_device: Option<String>,
    /// First frame within this.
    pub hello_ms: u64,
    /// An idle series is dropped after this.
    pub series_idle_ms: u64,
    /// Input waits so long for an agent.
    pub wait_ms: u64,
    /// An answered card must be taken within this.
    pub take_ms: u64,
    /// A `deliver` must be proven within this.
    pub deliver_ms: u64,
    /// Silence of the agent after which states are cleared.
    pub silent_ms: u64,
    /// Most bytes queued for one device before its connection is closed with 1013.
    pub queue_bytes: usize,
    /// Frames per second for one device, and burst; 0 = no limit (`MOBILE_RATE_LIMITS=off`).
    pub frames_per_second: u32,
    /// Burst of the above.
    pub frames_burst: u32,
    /// Told in `ready.limits`; kept by the gateway, which reads more slowly. 0 = no limit.
    pub bytes_per_second: u64,
    /// Wrong logins of one address before it is locked out; 0 = never.
    pub lockout_after: u32,
    /// How long.
    pub lockout_ms: u64,
    /// Most bytes in open series of all devices.
    pub spool_bytes: u64,
    /// Who may do what.
    pub access: session::Access,
    /// Fresh randomness for ids.
    pub seed: [u8; 32],
    /// The store's own secret, the same for its whole life.
    pub secret: [u8; 32],
    /// Epoch of the store.
    pub epoch: String,
    /// First free position of the log.
    pub next_pos: Pos,
    /// First free device number.
    pub next_device: DeviceNo,
}
