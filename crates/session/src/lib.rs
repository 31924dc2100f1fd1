//! The parts of one device's session, each without I/O and clock: who may come in, dedupe, cards, turn states, the
//! pacing of edits, the queue to the device.

mod access;

pub use access::{Access, Credential, Identity, Right};
