//! The open media series of one device: which parts are in, and every limit on them. Holds no bytes: the caller keeps
//! the parts (in a spool file) and is told what to do with them.

use crate::{Millis, client::MediaPart, problem::Problem};

/// Number of a series, given by the caller, unique in the process.
pub type SpoolNo = u64;

/// What to do with a part.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing: it came before, or its series had ended.
    Ignore,
    /// Keep the bytes as this part of this spool.
    Keep {
        /// Spool.
        spool: SpoolNo,
    },
    /// Keep the bytes; then the file is complete: put the parts together in order.
    Complete {
        /// Spool.
        spool: SpoolNo,
        /// What the file is: kind, mime, filename, caption of part 0, else of the first part that has them; `data` is empty.
        head: Box<MediaPart>,
        /// Decoded bytes in all.
        bytes: u64,
    },
}

/// What the table asks for beside the step: spools to throw away.
pub type Discard = Vec<SpoolNo>;

/// The open series of one device.
#[derive(Debug, Default)]
pub struct SeriesTable {}

impl SeriesTable {
    /// Takes a part (its `id` is set). `next` is the number for a new spool, used if one is opened.
    ///
    /// A part 0 with another `parts` starts the series anew (its old spool is in `discard`). A refused part ends its series; further
    /// parts of that id are ignored until part 0 comes again.
    ///
    /// # Errors
    /// `too_big`: over 8 MiB in one file, over 8 open series, over 8 MiB open in all. The series has ended.
    pub fn part(&mut self, part: &MediaPart, next: SpoolNo, now: Millis, discard: &mut Discard) -> Result<Step, Problem> {
        let _ = (part, next, now, discard);
        todo!()
    }
    /// Ends a series whose part was refused before it got here ([`Problem::ends_series`]).
    pub fn end(&mut self, id: &str, now: Millis, discard: &mut Discard) {
        let _ = (id, now, discard);
        todo!()
    }
    /// Drops what has been idle too long: a `bad_frame` with the `id` for each.
    pub fn expire(&mut self, now: Millis, discard: &mut Discard) -> Vec<Problem> {
        let _ = (now, discard);
        todo!()
    }
    /// When [`Self::expire`] must be called next.
    #[must_use]
    pub fn deadline(&self) -> Option<Millis> {
        todo!()
    }
    /// Decoded bytes in open series.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        todo!()
    }
    /// Whether nothing is open or remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        todo!()
    }
}
