//! Tools for tests: a [`proxy`] between a client and the real gateway that makes it wrong, and the [`faults`] that a
//! checker must find.

pub mod faults;
pub mod proxy;
