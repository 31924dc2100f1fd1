//! The core of the gateway without sockets, files or clock: what happened goes in, what is to be done comes out. The
//! gateway moves the bytes, rows and timers; the simulation moves them in virtual time.

mod io;

pub use io::{Action, AgentId, Attach, ConnId, FileRefused, FileTaken, Input, MediaDone, Origin, Settings};
