//! The hermes-mobile device protocol without I/O, runtime or clock: frames both ways, limits, codes, ids,
//! chunking, media series; the agent link's frames; and the records in which both are kept.

pub mod base64;
pub mod chunk;
pub mod client;
pub mod code;
pub mod id;
pub mod limits;
pub mod link;
pub mod problem;
pub mod record;
pub mod repair;
pub mod schema;
pub mod series;
pub mod server;
pub mod sniff;
pub mod words;

/// Milliseconds since the Unix epoch by the gateway's own clock, which never runs backwards within a process.
/// No rule of the protocol depends on a client's clock.
pub type Millis = u64;
