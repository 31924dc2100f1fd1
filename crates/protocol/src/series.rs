//! The open media series of one device: which parts are in, and every limit on them. Holds no bytes: the caller keeps
//! the parts (in a spool file) and is told what to do with them.

use std::{
    collections::BTreeMap,
    mem::{Discriminant, discriminant},
};

use crate::{
    Millis,
    client::{MediaKind, MediaPart},
    code::ErrorCode,
    limits,
    problem::Problem,
    words::Say,
};

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

/// Ended series that are remembered, so that their late parts are ignored. Over this the oldest is forgotten.
const ENDED: usize = 64;

/// The open series of one device.
///
/// A file in one part goes through here too, for its id: it is complete at once and never counts as open.
#[derive(Debug, Default)]
pub struct SeriesTable {
    open: BTreeMap<String, Open>,
    ended: BTreeMap<String, Ended>,
}

#[derive(Debug)]
struct Open {
    spool: SpoolNo,
    /// What [`Step::Complete`] will tell, as far as it is known.
    head: Box<MediaPart>,
    /// Bit per part that is in.
    seen: Vec<u64>,
    missing: u32,
    bytes: u64,
    last: Millis,
    /// The id belongs to a file that was complete before: this is a repeat, or a late double of its part 0. If nothing
    /// more comes, nobody needs to be told.
    again: bool,
}

#[derive(Debug)]
struct Ended {
    last: Millis,
    /// It ended since it was complete.
    complete: bool,
}

impl SeriesTable {
    /// A table without series.
    #[must_use]
    pub const fn new() -> Self {
        Self { open: BTreeMap::new(), ended: BTreeMap::new() }
    }

    /// Takes a part (its `id` is set). `next` is the number for a new spool, used if one is opened.
    ///
    /// A part 0 with another `parts` starts the series anew (its old spool is in `discard`). A refused part ends its series; further
    /// parts of that id are ignored until part 0 comes again.
    ///
    /// # Errors
    /// `too_big`: over 8 MiB in one file, over 8 open series, over 8 MiB open in all. `bad_frame`: another part than 0 that
    /// has another `parts` or another kind than its series. The series has ended.
    pub fn part(
        &mut self,
        part: &MediaPart,
        next: SpoolNo,
        now: Millis,
        discard: &mut Discard,
    ) -> Result<Step, Problem> {
        let Some(id) = part.id.as_deref() else {
            return Err(Problem::bad("id must be there"));
        };
        self.take(id, part, next, now, discard).map_err(|mut problem| {
            self.end(id, now, discard);
            problem.ends_series = part.id.clone();
            problem.with_id(part.id.clone())
        })
    }

    fn take(
        &mut self,
        id: &str,
        part: &MediaPart,
        next: SpoolNo,
        now: Millis,
        discard: &mut Discard,
    ) -> Result<Step, Problem> {
        let mut again = false;
        if let Some(ended) = self.ended.get_mut(id) {
            if part.part > 0 {
                ended.last = now;
                return Ok(Step::Ignore);
            }
            again = ended.complete;
            self.ended.remove(id);
        }
        if let Some(open) = self.open.get(id) {
            let fits = open.head.parts == part.parts && sort(&open.head.kind) == sort(&part.kind);
            if !fits && part.part > 0 {
                return Err(Problem::bad(
                    "parts and kind must be those of the series that is open under this id; part 0 starts it anew",
                ));
            }
            if !fits {
                discard.push(open.spool);
                self.open.remove(id);
            }
        }
        let size = part.data.len() as u64;
        if size > limits::FILE_BYTES as u64 {
            return Err(large_file());
        }
        if part.parts <= 1 {
            self.remember(id, now, true);
            return Ok(Step::Complete { spool: next, head: head_of(part), bytes: size });
        }
        let total = self.bytes();
        if !self.open.contains_key(id) {
            if self.open.len() >= limits::SERIES {
                return Err(Problem::new(
                    ErrorCode::TooBig,
                    format!("at most {} series may be open; finish one first", limits::SERIES),
                ));
            }
            self.open.insert(id.to_owned(), Open::new(part, next, now, again));
        }
        let Some(open) = self.open.get_mut(id) else {
            return Ok(Step::Ignore);
        };
        open.last = now;
        open.again = open.again && part.part == 0;
        if !open.mark(part.part) {
            return Ok(Step::Ignore);
        }
        if open.bytes + size > limits::FILE_BYTES as u64 {
            return Err(large_file());
        }
        if total + size > limits::SERIES_BYTES as u64 {
            return Err(Problem::new(
                ErrorCode::TooBig,
                format!("at most {} bytes may be in open series", limits::SERIES_BYTES),
            ));
        }
        open.bytes += size;
        open.learn(part);
        if open.missing > 0 {
            return Ok(Step::Keep { spool: open.spool });
        }
        let step = Step::Complete { spool: open.spool, head: open.head.clone(), bytes: open.bytes };
        self.open.remove(id);
        self.remember(id, now, true);
        Ok(step)
    }

    /// Ends a series whose part was refused before it got here ([`Problem::ends_series`]).
    pub fn end(&mut self, id: &str, now: Millis, discard: &mut Discard) {
        if let Some(open) = self.open.remove(id) {
            discard.push(open.spool);
        }
        self.remember(id, now, false);
    }

    /// Drops what got no part for `idle_ms` milliseconds: a `bad_frame` with the `id` for each.
    pub fn expire(&mut self, idle_ms: u64, now: Millis, discard: &mut Discard) -> Vec<Problem> {
        let over = |last: Millis| now.saturating_sub(last) >= idle_ms;
        self.ended.retain(|_, ended| !over(ended.last));
        let mut idle: Vec<(String, bool)> = self
            .open
            .iter()
            .filter(|(_, open)| over(open.last))
            .map(|(id, open)| (id.clone(), open.again))
            .collect();
        idle.sort();
        let mut problems = Vec::new();
        for (id, again) in idle {
            self.end(&id, now, discard);
            if !again {
                let detail = format!(
                    "no part came for {} s; the file was dropped, send it again",
                    idle_ms.div_ceil(1000)
                );
                problems.push(Problem::bad(detail).with_id(id));
            }
        }
        problems
    }

    /// When [`Self::expire`] must be called next.
    #[must_use]
    pub fn deadline(&self, idle_ms: u64) -> Option<Millis> {
        let open = self.open.values().map(|o| o.last);
        let ended = self.ended.values().map(|e| e.last);
        open.chain(ended).min().map(|last| last.saturating_add(idle_ms))
    }

    /// Forgets everything; returns the spools to throw away.
    pub fn clear(&mut self) -> Discard {
        self.ended.clear();
        std::mem::take(&mut self.open).into_values().map(|open| open.spool).collect()
    }

    /// Decoded bytes in open series.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.open.values().map(|o| o.bytes).sum()
    }

    /// Whether nothing is open or remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.ended.is_empty()
    }

    fn remember(&mut self, id: &str, now: Millis, complete: bool) {
        if self.ended.len() >= ENDED && !self.ended.contains_key(id) {
            let oldest =
                self.ended.iter().min_by_key(|(id, ended)| (ended.last, *id)).map(|(id, _)| id.clone());
            if let Some(oldest) = oldest {
                self.ended.remove(&oldest);
            }
        }
        self.ended.insert(id.to_owned(), Ended { last: now, complete });
    }
}

impl Open {
    fn new(part: &MediaPart, spool: SpoolNo, now: Millis, again: bool) -> Self {
        let words = (part.parts as usize).div_ceil(64);
        Self {
            spool,
            head: head_of(part),
            seen: vec![0; words],
            missing: part.parts,
            bytes: 0,
            last: now,
            again,
        }
    }

    /// Notes that a part is in. `false` if it was, or cannot be.
    fn mark(&mut self, part: u32) -> bool {
        let bit = 1_u64 << (part % 64);
        match self.seen.get_mut((part / 64) as usize) {
            Some(word) if *word & bit == 0 => {
                *word |= bit;
                self.missing = self.missing.saturating_sub(1);
                true
            }
            _ => false,
        }
    }

    /// Takes what a part tells of the file: part 0 wins, else the first that tells it.
    fn learn(&mut self, part: &MediaPart) {
        let wins = part.part == 0;
        take(&mut self.head.mime, part.mime.as_ref(), wins);
        take(&mut self.head.filename, part.filename.as_ref(), wins);
        take(&mut self.head.caption, part.caption.as_ref(), wins);
        if let (
            MediaKind::Voice { sample_rate, duration_ms, .. },
            MediaKind::Voice { sample_rate: rate, duration_ms: duration, .. },
        ) = (&mut self.head.kind, &part.kind)
        {
            take(sample_rate, rate.as_ref(), wins);
            take(duration_ms, duration.as_ref(), wins);
        }
    }
}

fn take<T: Clone>(known: &mut Option<T>, told: Option<&T>, wins: bool) {
    if told.is_some() && (wins || known.is_none()) {
        *known = told.cloned();
    }
}

/// What a part tells of its file, without its bytes.
fn head_of(part: &MediaPart) -> Box<MediaPart> {
    Box::new(MediaPart {
        id: part.id.clone(),
        kind: part.kind.clone(),
        mime: part.mime.clone(),
        filename: part.filename.clone(),
        caption: part.caption.clone(),
        part: 0,
        parts: part.parts,
        data: Vec::new(),
    })
}

/// What must be the same in all parts.
fn sort(kind: &MediaKind) -> (Discriminant<MediaKind>, Option<crate::client::VoiceFormat>) {
    let format = match kind {
        MediaKind::Voice { format, .. } => Some(*format),
        _ => None,
    };
    (discriminant(kind), format)
}

fn large_file() -> Problem {
    Problem::new(ErrorCode::TooBig, format!("a file must be at most {} bytes", limits::FILE_BYTES))
        .saying(Say::LargeFile)
}

#[cfg(test)]
mod tests;
