//! Client of the hermes-mobile device protocol.
//!
//! [`core`] is the whole client without I/O, runtime or clock: inputs go in, actions come out. [`net`] (feature `net`, on by
//! default) drives it on tokio and gives an async handle. [`url`] reads the addresses that people type.

pub mod core;
#[cfg(feature = "net")]
pub mod net;
pub mod url;

pub use protocol;
