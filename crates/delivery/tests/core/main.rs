//! What the core does, in virtual time. One module for each part of the protocol; tests named `field_…` are faults that
//! people met.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod access;
mod bounds;
mod cards;
mod deliver;
mod media;
mod play;
mod presence;
mod replay;
mod store;
mod streams;
mod survey;
mod texts;
