//! The agent interface, and the embedded agents.

mod calls;
mod demo;
mod echo;
mod seen;
#[cfg(test)]
mod testing;

use protocol::{
    Millis,
    link::{FromAgent, ToAgent},
};

pub use demo::Demo;
pub use echo::Echo;

/// An agent in process. Without I/O and clock, so that the simulation runs what ships; it says what it wants through
/// the same calls as an agent on the link.
pub trait Agent: Send {
    /// Name and version, for logs.
    fn name(&self) -> &'static str;
    /// Handles one frame of the gateway's. Calls are appended to `out`; all calls of one `handle` share one commit.
    fn handle(&mut self, frame: ToAgent, now: Millis, out: &mut Vec<FromAgent>) -> Flow;
    /// Its time has come ([`Self::deadline`]).
    fn tick(&mut self, now: Millis, out: &mut Vec<FromAgent>) -> Flow;
    /// When [`Self::tick`] is wanted.
    fn deadline(&self) -> Option<Millis>;
}

/// Whether an agent goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It does.
    On,
    /// Its task ends now (`/die`); it is started again with an empty memory.
    Ended,
}
