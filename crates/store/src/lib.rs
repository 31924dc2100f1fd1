//! The durable log: a trait, a memory backend, SQLite, the writer thread, and one conformance suite for every backend.

use protocol::{
    Millis,
    record::{Batch, DeviceNo, Loaded, Pos, Row},
};

/// What the gateway needs to know before anything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Random name of this store's life; a restored or new store has another.
    pub epoch: String,
    /// 32 random bytes made with the store; the same for its whole life.
    pub secret: [u8; 32],
    /// First free position: above every position ever used, also those of rows that were trimmed.
    pub next_pos: Pos,
    /// First free device number.
    pub next_device: DeviceNo,
    /// Ids of devices whose last state had `wake`.
    pub wake: Vec<String>,
}

/// The writing side. One at a time.
pub trait Store: Send {
    /// What the store was when it was opened.
    ///
    /// # Errors
    /// [`StoreError`].
    fn start(&mut self) -> Result<Start, StoreError>;
    /// Commits the batches in order, all or none, durably: when it returns `Ok`, a power cut loses none of them.
    ///
    /// # Errors
    /// [`StoreError`]; then nothing of these batches is kept, and the store can be used on.
    fn commit(&mut self, batches: &[Batch]) -> Result<(), StoreError>;
    /// Removes rows older than `before` from the old end of the log, at most `max`, and says which media files (by the
    /// caller's rule `files`, which gets each row's body) are thereby unused.
    ///
    /// # Errors
    /// [`StoreError`].
    fn trim(&mut self, before: Millis, max: usize) -> Result<Vec<Row>, StoreError>;
    /// A reader that sees what is committed.
    ///
    /// # Errors
    /// [`StoreError`].
    fn reader(&self) -> Result<Box<dyn Reader>, StoreError>;
}

/// The reading side; may run beside the writer.
pub trait Reader: Send {
    /// A device by id, with marks of rows not older than `since`.
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

/// Why the store could not do it. The text tells an operator what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Placeholder until the backends are written.
    #[error("{0}")]
    Other(String),
}
