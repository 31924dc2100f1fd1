//! The gateway daemon: everything around the core that touches the world. One listener, one hub that owns the core, a
//! task for each connection, threads for the disk, a task for the embedded agent, and the clock.
//!
//! ```text
//! http -> routes -> conn ─┐            ┌─> disk (store writer, reader, media)
//!                 agents ─┼─> hub/core ┼─> conn
//!                   disk ─┘            └─> agents
//! ```
//!
//! [`Gateway::start`] is used by the binary and by tests alike.

mod agents;
mod clock;
pub mod config;
mod conn;
mod disk;
mod health;
mod http;
mod hub;
mod inlet;
pub mod metrics;
pub mod origin;
mod routes;
mod run;
mod sockets;
mod token;

pub use config::Config;
pub use run::{Gateway, Probe, Running, Shutdown, StartError, StopError, token_of};
pub use token::{TokenError, token_file};
