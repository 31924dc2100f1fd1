//! Test only: a machine that loses power, to prove what the store promises: what it acknowledged is still there.
//!
//! [`Machine`] is a disk in memory that knows, for every file and every directory entry, what was synced and what was
//! only written. [`Machine::watch`] looks at it at every sync (before and after), and between them, and makes the
//! [`Image`]s that a power cut at that instant could leave: nothing of what was not synced, all of it, or any mixture
//! of its 512-byte sectors and directory entries, in any order. A test opens each image and looks for what was lost.
//!
//! The store gets the machine through [`Vfs`] (an SQLite file layer) and [`MediaDisk`] (the layer below media files).
//!
//! # Why `unsafe`
//! SQLite's file layer is a table of C functions that get raw pointers, and its WAL index is memory shared between
//! connections. There is no safe way to be one, and to test the real SQLite against a lost sync there is no other way
//! than to be one. All of it is in the module `vfs`; this crate is the only one of the workspace that allows it, and no
//! crate that ships depends on this one.

mod machine;
mod media;
mod vfs;

pub use machine::{Cut, Image, Machine};
pub use media::MediaDisk;
pub use vfs::Vfs;
