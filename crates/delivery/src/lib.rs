//! The core of the gateway without sockets, files or clock: what happened goes in, what is to be done comes out. The
//! gateway moves the bytes, rows and timers; the simulation moves them in virtual time.
//!
//! Where a frame goes: [`Core::handle`] finds the connection (`gate`) and its device (`device`); what was said is put
//! into the batch of this input and, when that is on disk, from the `inbox` to the agent; what the agent says becomes an
//! item of the `outbox`, waits in the device's queue for its batch, and is unproven until a pong proves it.

mod core;
mod device;
mod gate;
mod inbox;
mod io;
#[cfg(feature = "mutants")]
pub mod mutants;
#[cfg(not(feature = "mutants"))]
mod mutants;
mod outbox;
mod shared;
mod survey;

pub use self::core::Core;
pub use io::{Action, AgentId, Attach, ConnId, Input, MediaDone, Origin, Settings};
pub use survey::{AgentState, Counts, Survey};
