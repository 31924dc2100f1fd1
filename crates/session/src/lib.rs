//! The parts of one device's session, each without I/O and clock: who may come in, what is remembered, cards, turn
//! states, the pacing of edits.

pub mod access;
pub mod bubble;
pub mod cards;
pub mod rate;
pub mod remember;
pub mod turn;

pub use access::{Access, Credential, Identity, Right};
