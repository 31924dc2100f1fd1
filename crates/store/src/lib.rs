//! What must outlive the process: the durable log ([`Store`], in memory and in SQLite), the threads that write and read
//! it, and the media files beside it.
//!
//! The log is append-only. The core numbers the rows; the store links the rows of one device backwards, so that a
//! device is loaded by walking its own chain and the start does not depend on how much is stored. What bodies and marks
//! mean is [`protocol::record`]'s business, with one exception: `live_from` of a device's state is read here.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod dir;
mod error;
pub mod files;
mod memory;
mod sqlite;
mod threads;

use protocol::{
    Millis,
    record::{Batch, DeviceNo, Loaded, Pos, Row},
};

pub use dir::{DATABASE, prepare};
pub use error::StoreError;
pub use memory::Memory;
#[doc(hidden)]
pub use sqlite::Options;
pub use sqlite::{Sqlite, inspect};
pub use threads::{Done, ReadThread, Writer};

/// What the gateway needs to know before anything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Random name of this store's life; a restored or new store has another.
    pub epoch: String,
    /// 32 random bytes made with the store; the same for its whole life.
    pub secret: [u8; 32],
    /// First free position: above every position ever used, also those of rows that were trimmed. At least 1.
    pub next_pos: Pos,
    /// First free device number. At least 1.
    pub next_device: DeviceNo,
    /// Ids of devices whose last state had `wake`, by their numbers.
    pub wake: Vec<String>,
}

/// The writing side. One at a time.
pub trait Store: Send {
    /// What the store holds now, for the start of the gateway.
    ///
    /// # Errors
    /// [`StoreError`].
    fn start(&mut self) -> Result<Start, StoreError>;
    /// Commits the batches in order, all or none, durably: when it returns `Ok`, a power cut loses none of them.
    /// The order of the steps inside one batch does not matter, except that positions rise.
    ///
    /// # Errors
    /// [`StoreError`]; then nothing of these batches is kept, and the store can be used on. [`StoreError::Invalid`] for
    /// a position that is not above every earlier one, a row of a device without a state, another id for a known
    /// number, another number for a known id.
    fn commit(&mut self, batches: &[Batch]) -> Result<(), StoreError>;
    /// Removes rows older than `before` from the old end of the log, and gives them back: at most `max`, and about 8 MiB.
    /// Stops at the first row that is younger, or that some device with `wake` needs (its `live_from`), so what is left has
    /// no holes. The caller removes the media files that they name and no younger row does.
    ///
    /// # Errors
    /// [`StoreError`]; then nothing was removed.
    fn trim(&mut self, before: Millis, max: usize) -> Result<Vec<Row>, StoreError>;
    /// A reader that sees what is committed, and nothing else.
    ///
    /// # Errors
    /// [`StoreError`].
    fn reader(&self) -> Result<Box<dyn Reader>, StoreError>;
}

/// The reading side; may run beside the writer.
pub trait Reader: Send {
    /// A device by id: its state, the marks (those that are not empty) of its rows not older than `since`, newest first,
    /// and its whole rows from `live_from` on, oldest first. `None`: never seen.
    ///
    /// # Errors
    /// [`StoreError`].
    fn load(&mut self, device: &str, since: Millis) -> Result<Option<Loaded>, StoreError>;
    /// Rows by position, in the order asked for; those that are gone are left out.
    ///
    /// # Errors
    /// [`StoreError`].
    fn read(&mut self, positions: &[Pos]) -> Result<Vec<Row>, StoreError>;
}

// The rules that every backend keeps, with one wording.

/// Positions rise and fit SQLite's signed numbers.
fn check_pos(last: Pos, pos: Pos) -> Result<(), StoreError> {
    if pos > last && i64::try_from(pos).is_ok() {
        Ok(())
    } else {
        Err(StoreError::Invalid(format!("position {pos} does not come after {last}")))
    }
}

fn unknown(no: DeviceNo) -> StoreError {
    StoreError::Invalid(format!("device {no} has no state"))
}

fn renamed(no: DeviceNo) -> StoreError {
    StoreError::Invalid(format!("device {no} has another id or number"))
}
