//! WebSocket transport. The one crate that names the WebSocket library.
//!
//! ```text
//! any AsyncRead + AsyncWrite -> tap (headers seen first) -> library (masks, UTF-8, fragments) -> Socket::run -> In
//!                            <-                          <- library (frames)                  <- Socket::run <- Out
//! ```
//!
//! - [`handshake`] decides on an HTTP upgrade: headers in, headers or a status out.
//! - [`server`], [`connect`] and [`connect_over`] give a [`Socket`]; [`Socket::run`] moves frames both ways until the connection ends.
//! - No extension is offered or accepted: permessage-deflate is never on.

mod bucket;
mod client;
mod direct;
pub mod handshake;
mod queue;
mod scan;
mod socket;
mod tap;

use std::{io, time::Duration};

pub use client::{ConnectError, connect, connect_over};
pub use queue::{Outbound, Over, Sender, queue};
pub use socket::{Socket, server, server_after};

/// Largest message a client accepts, bytes: above everything that a server sends or is allowed to be sent.
pub const CLIENT_LIMIT: usize = 32 * 1024 * 1024;
/// Smallest burst of a byte rate, bytes: an 8 MiB file in 3 MB parts (11.2 MB of base64) passes at line speed.
pub const BURST: u64 = 16 * 1024 * 1024;

/// How a connection behaves.
#[derive(Clone, Debug)]
pub struct WireConfig {
    /// Largest incoming message, bytes of payload, all fragments together; raised by [`Out::Limit`].
    pub limit: usize,
    /// A ping goes out this often; zero: never.
    pub ping_every: Duration,
    /// The connection ends when no byte came for this long; zero: never.
    pub silence: Duration,
    /// The connection ends when the socket took no byte for this long although something waits.
    pub write_deadline: Duration,
    /// Above this rate (bytes a second, sustained) input is read more slowly; 0: no limit.
    pub bytes_per_second: u64,
    /// So many bytes pass at line speed before the rate counts; at least [`BURST`].
    pub burst: u64,
}

impl Default for WireConfig {
    /// The server's: 64 KiB before `ready`, a ping every 25 s, 75 s of silence, 15 s for a write, no byte rate
    /// (`docs/protocol.md`, Transport).
    fn default() -> Self {
        Self {
            limit: protocol::limits::FRAME_BEFORE_READY,
            ping_every: Duration::from_secs(25),
            silence: Duration::from_secs(75),
            write_deadline: Duration::from_secs(15),
            bytes_per_second: 0,
            burst: BURST,
        }
    }
}

impl WireConfig {
    /// A client's: the default with [`CLIENT_LIMIT`].
    #[must_use]
    pub fn client() -> Self {
        Self { limit: CLIENT_LIMIT, ..Self::default() }
    }
}

/// To be sent. Handled in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Out {
    /// A text message.
    Text(String),
    /// A binary message. The device protocol has none; echo and tests do.
    Binary(Vec<u8>),
    /// A ping whose payload is this nonce, 8 bytes big-endian; its pong comes back as [`In::Pong`].
    Ping(u64),
    /// From the next frame header on, incoming messages may have this many bytes of payload.
    Limit(usize),
    /// The last: what came before is written, then a close frame with this code (a code that must not be on the wire is
    /// left out), then the connection ends.
    Close(u16),
}

/// What happened. Borrowed data is the message itself: decode it before the future is made.
#[derive(Debug, PartialEq, Eq)]
pub enum In<'a> {
    /// A text message, valid UTF-8.
    Text(&'a str),
    /// A binary message.
    Binary(&'a [u8]),
    /// A pong with a payload of 8 bytes: the nonce of an [`Out::Ping`]. Other pongs only count as signs of life.
    Pong(u64),
    /// A message over the limit is announced, with this many bytes so far; nothing of it was kept and nothing more is
    /// read. Answer with an `error` and `Out::Close(1009)`; after 5 s without a close the socket closes itself.
    TooLong(u64),
    /// The socket took this many bytes of payload of [`Out::Text`] and [`Out::Binary`].
    Drained(usize),
    /// The connection is over for both directions. Always told, once, as the last.
    Closed {
        /// The peer's close code, if it closed first and gave one.
        code: Option<u16>,
        /// Why.
        why: Why,
    },
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The peer sent a close frame.
    Peer,
    /// [`Out::Close`], or the sender of [`Out`] is gone (closed with 1001).
    Local,
    /// The peer ended the stream without a close frame.
    Eof,
    /// The transport failed.
    Lost(io::ErrorKind),
    /// The peer broke RFC 6455 and was told so with this code: 1002 framing, 1007 UTF-8.
    Fault(u16),
    /// No byte came for [`WireConfig::silence`].
    Silent,
    /// The socket took nothing for [`WireConfig::write_deadline`].
    WriteStood,
}
