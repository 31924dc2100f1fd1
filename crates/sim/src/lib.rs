//! Simulation of devices, core, store and agents in virtual time, with drops and crashes. The core that runs here is the one
//! that ships; only sockets, disk and clock are played.
//!
//! A seed decides everything: who takes part, what they say, what goes wrong and when. After a while the trouble ends, everybody
//! comes back, and everything must settle. What is checked stands where it can be seen: what is written to a device and told
//! to an agent in `actions` and `agents`, what a client draws in `client`, what is on disk in `ledger`, and what holds in
//! the end in `settled`.

mod actions;
mod agents;
mod client;
mod clients;
mod disk;
mod event;
mod ledger;
mod plan;
mod rng;
mod scripted;
mod senders;
mod settled;
mod world;

pub use delivery::mutants::Mutant;

/// Runs one seed. `Err`: what went wrong first.
///
/// # Errors
/// One English sentence: the promise that was broken.
pub fn run(seed: u64, mutant: Option<Mutant>) -> Result<(), String> {
    delivery::mutants::set(mutant);
    let (failure, _) = world::World::new(seed, false).run();
    delivery::mutants::set(None);
    failure.map_or(Ok(()), Err)
}

/// Runs one seed and tells everything that happens in it, a line each.
#[must_use]
pub fn trace(seed: u64, mutant: Option<Mutant>) -> Vec<String> {
    delivery::mutants::set(mutant);
    let (_, trace) = world::World::new(seed, true).run();
    delivery::mutants::set(None);
    trace
}
