//! The parts of one device's session, each without I/O and clock: who may come in, what is remembered, cards, turn
//! states, the pacing of edits.

pub mod access;
pub mod bubble;
pub mod cards;
pub mod rate;
pub mod remember;
pub mod turn;

pub use access::{Access, Credential, Identity, Right};

/// A map by numbers or hashes of ours. Its hash takes a few instructions where that of the standard library takes a hundred,
/// which counts where several maps are asked for each frame. Not for keys that somebody outside chooses.
pub type Map<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;
