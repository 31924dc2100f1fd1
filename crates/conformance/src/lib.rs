//! Runs the acceptance cases of `spec/checklist` against any server.
//!
//! ```text
//! case (data) -> plan (which, where) -> run (steps) -> conn (what is waited for) -> socket (bytes)
//!                      |                    |
//!                   server (--spawn)     readers (rules about several frames)
//! ```
//!
//! - [`case`]: the data; [`profile`]: how an agent is made to do what a case is about.
//! - [`check`] runs them; [`Report`] says what was found: text, JSON, JUnit.
//! - [`frame`] and [`socket`]: a WebSocket on which nothing is hidden, also for tools that stand between two peers.

pub mod case;
mod conn;
pub mod frame;
mod plan;
pub mod profile;
mod readers;
mod report;
mod run;
mod server;
pub mod socket;
pub mod value;

pub use conn::Said;
pub use plan::{CheckError, Done, NotRun, Options, Outcome, Pool, Report, Target, check};
pub use report::Counts;
pub use run::Failure;
pub use server::{ServerError, Through};
