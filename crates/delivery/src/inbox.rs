//! What a device said and the agent has not ended: in order, stored before it is handed over, kept until done.

use std::collections::BTreeMap;

use protocol::{
    Millis,
    record::{DeviceState, InBody, InRecord, Pos},
};

/// Bodies are kept in memory up to this many bytes a device; what waits beyond is read again when its turn comes.
const BODY_BYTES: usize = 1024 * 1024;
/// So many events may be with the agent without an ack, a device.
pub(crate) const UNACKED: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Not on disk yet.
    Storing,
    /// On disk, for the agent.
    Waiting,
    /// With the agent, not acked.
    Handed,
    /// Acked, not done.
    Acked,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) at: Millis,
    pub(crate) stage: Stage,
    /// It was handed over before.
    pub(crate) again: bool,
    body: Option<InRecord>,
    /// The beginning of what was said, once the body is given up; `None` for what nobody said.
    excerpt: Option<String>,
    bytes: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Inbox {
    entries: BTreeMap<Pos, Entry>,
    /// Everything below is not `Waiting`.
    next: Pos,
    bytes: usize,
    unacked: usize,
}

/// What the inbox wants next.
#[derive(Debug)]
pub(crate) enum Next {
    Nothing,
    /// This body must be read first.
    Read(Pos),
    /// Hand this over.
    Hand(Pos, Box<InRecord>, Millis, bool),
}

impl Inbox {
    pub(crate) const fn new() -> Self {
        Self { entries: BTreeMap::new(), next: 0, bytes: 0, unacked: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn first(&self) -> Option<Pos> {
        self.entries.keys().next().copied()
    }

    pub(crate) fn add(
        &mut self,
        pos: Pos,
        at: Millis,
        body: InRecord,
        bytes: usize,
        stage: Stage,
        again: bool,
    ) {
        let keep = self.bytes + bytes <= BODY_BYTES;
        if keep {
            self.bytes += bytes;
        }
        let excerpt = if keep { None } else { excerpt(&body) };
        self.entries.insert(pos, Entry { at, stage, again, body: keep.then_some(body), excerpt, bytes });
        if stage == Stage::Waiting {
            self.next = self.next.min(pos);
        }
    }

    /// It is on disk now.
    pub(crate) fn stored(&mut self, pos: Pos) {
        if let Some(entry) = self.entries.get_mut(&pos)
            && entry.stage == Stage::Storing
        {
            entry.stage = Stage::Waiting;
            self.next = self.next.min(pos);
        }
    }

    /// It is not on disk and never will be.
    pub(crate) fn undo(&mut self, pos: Pos) -> Option<InRecord> {
        self.remove(pos).and_then(|entry| entry.body)
    }

    fn remove(&mut self, pos: Pos) -> Option<Entry> {
        let entry = self.entries.remove(&pos)?;
        if entry.body.is_some() {
            self.bytes = self.bytes.saturating_sub(entry.bytes);
        }
        if entry.stage == Stage::Handed {
            self.unacked -= 1;
        }
        Some(entry)
    }

    /// The next event to hand over. In order: one that is not on disk yet, or not in memory, holds back what follows.
    pub(crate) fn next(&mut self) -> Next {
        if self.unacked >= UNACKED {
            return Next::Nothing;
        }
        for (pos, entry) in self.entries.range_mut(self.next..) {
            match entry.stage {
                Stage::Storing => return Next::Nothing,
                Stage::Waiting => {
                    let Some(body) = entry.body.clone() else { return Next::Read(*pos) };
                    entry.stage = Stage::Handed;
                    self.unacked += 1;
                    self.next = *pos + 1;
                    let again = std::mem::replace(&mut entry.again, true);
                    return Next::Hand(*pos, Box::new(body), entry.at, again);
                }
                Stage::Handed | Stage::Acked => {}
            }
        }
        self.next = Pos::MAX;
        Next::Nothing
    }

    /// A body that was asked for.
    pub(crate) fn body(&mut self, pos: Pos, body: InRecord) {
        if let Some(entry) = self.entries.get_mut(&pos)
            && entry.body.is_none()
        {
            self.bytes += entry.bytes;
            entry.body = Some(body);
        }
    }

    pub(crate) fn ack(&mut self, pos: Pos) {
        if let Some(entry) = self.entries.get_mut(&pos)
            && entry.stage == Stage::Handed
        {
            entry.stage = Stage::Acked;
            self.unacked -= 1;
            if let Some(body) = entry.body.take() {
                entry.excerpt = excerpt(&body);
                self.bytes = self.bytes.saturating_sub(entry.bytes);
            }
        }
    }

    /// It is done: moves the cursors of `state`. Whether it was known.
    pub(crate) fn done(&mut self, pos: Pos, state: &mut DeviceState) -> bool {
        if self.remove(pos).is_none() {
            return false;
        }
        state.done_above.push(pos);
        state.done_above.sort_unstable();
        match self.first() {
            Some(first) => state.done = state.done.max(first - 1),
            None => state.done = state.done_above.last().copied().unwrap_or(state.done).max(state.done),
        }
        let done = state.done;
        state.done_above.retain(|above| *above > done);
        true
    }

    /// Another process of the agent: everything that is not done is handed over again. The same process: what it did
    /// not ack.
    pub(crate) fn again(&mut self, all: bool) {
        for entry in self.entries.values_mut() {
            if entry.stage == Stage::Handed || (all && entry.stage == Stage::Acked) {
                entry.stage = Stage::Waiting;
            }
        }
        self.unacked = 0;
        self.next = 0;
    }

    /// When the oldest one that waits has waited too long.
    pub(crate) fn expires(&self, wait_ms: u64) -> Option<Millis> {
        self.waiting().map(|(_, entry)| entry.at + wait_ms).min()
    }

    /// Those that have waited too long.
    pub(crate) fn expired(&self, wait_ms: u64, now: Millis) -> Vec<Pos> {
        self.waiting().filter(|(_, entry)| now >= entry.at + wait_ms).map(|(pos, _)| *pos).collect()
    }

    /// Whether something waits for an agent.
    pub(crate) fn any_waiting(&self) -> bool {
        self.waiting().next().is_some()
    }

    /// Positions of everything that is not done.
    pub(crate) fn positions(&self) -> impl Iterator<Item = Pos> {
        self.entries.keys().copied()
    }

    /// Positions from `from` on that wait without a body in memory, at most `most`.
    pub(crate) fn positions_from(&self, from: Pos, most: usize) -> Vec<Pos> {
        let without = self.entries.range(from..).filter(|(_, entry)| entry.body.is_none());
        without.filter(|(_, entry)| entry.stage == Stage::Waiting).map(|(pos, _)| *pos).take(most).collect()
    }

    /// Whether something has not been acked.
    pub(crate) fn any_unacked(&self) -> bool {
        self.unacked > 0 || self.any_waiting()
    }

    /// The beginning of what was said; `None` for what nobody said.
    pub(crate) fn excerpt(&self, pos: Pos) -> Option<String> {
        let entry = self.entries.get(&pos)?;
        entry.body.as_ref().map_or_else(|| entry.excerpt.clone(), excerpt)
    }

    fn waiting(&self) -> impl Iterator<Item = (&Pos, &Entry)> {
        let next = self.next;
        self.entries.range(next..).filter(|(_, entry)| entry.stage == Stage::Waiting)
    }
}

/// The beginning of what was said, for a notice to the one who said it.
fn excerpt(record: &InRecord) -> Option<String> {
    const CHARS: usize = 60;
    let text = match &record.what {
        InBody::Text { text } => text,
        InBody::File { file } => &file.filename,
        InBody::Card { .. } => return None,
    };
    Some(match text.char_indices().nth(CHARS) {
        Some((end, _)) => [text.get(..end).unwrap_or_default(), "…"].concat(),
        None => text.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: &str) -> InRecord {
        InRecord { id: id.into(), user: Default::default(), what: InBody::Text { text: id.into() } }
    }

    fn hand(inbox: &mut Inbox) -> Option<(Pos, bool)> {
        match inbox.next() {
            Next::Hand(pos, _, _, again) => Some((pos, again)),
            _ => None,
        }
    }

    #[test]
    fn nothing_is_handed_over_before_it_is_stored_and_all_in_order() {
        let mut inbox = Inbox::default();
        inbox.add(1, 0, record("a"), 10, Stage::Storing, false);
        inbox.add(2, 0, record("b"), 10, Stage::Storing, false);
        inbox.stored(2);
        assert_eq!(hand(&mut inbox), None, "the first is not on disk");
        inbox.stored(1);
        assert_eq!(hand(&mut inbox), Some((1, false)));
        assert_eq!(hand(&mut inbox), Some((2, false)));
        assert_eq!(hand(&mut inbox), None);
    }

    #[test]
    fn what_was_not_done_comes_again() {
        let mut inbox = Inbox::default();
        for pos in 1..=3 {
            inbox.add(pos, 0, record("x"), 10, Stage::Waiting, false);
            hand(&mut inbox);
        }
        inbox.ack(1);
        inbox.ack(2);
        let mut state = DeviceState::default();
        assert!(inbox.done(2, &mut state));
        assert_eq!((state.done, state.done_above.clone()), (0, vec![2]));
        inbox.again(false);
        assert_eq!(hand(&mut inbox), Some((3, true)), "the same process: what it did not ack");
        inbox.again(true);
        // The body of an acked event was given up; it is read again.
        assert!(matches!(inbox.next(), Next::Read(1)));
        inbox.body(1, record("x"));
        assert_eq!((hand(&mut inbox), hand(&mut inbox)), (Some((1, true)), Some((3, true))));
        inbox.done(1, &mut state);
        assert_eq!((state.done, state.done_above.len()), (2, 0));
        inbox.done(3, &mut state);
        assert_eq!((state.done, inbox.is_empty()), (3, true));
    }

    #[test]
    fn bodies_beyond_the_bound_are_read_when_their_turn_comes() {
        let mut inbox = Inbox::default();
        inbox.add(1, 0, record("a"), BODY_BYTES, Stage::Waiting, false);
        inbox.add(2, 5, record("b"), 1, Stage::Waiting, false);
        assert_eq!(inbox.expires(100), Some(100));
        assert_eq!(hand(&mut inbox), Some((1, false)));
        assert!(matches!(inbox.next(), Next::Read(2)));
        assert_eq!(inbox.expired(100, 105), [2], "what is with the agent does not expire");
    }

    #[test]
    fn an_agent_that_acks_nothing_gets_a_window() {
        let mut inbox = Inbox::default();
        for pos in 1..=200 {
            inbox.add(pos, 0, record("x"), 1, Stage::Waiting, false);
        }
        assert_eq!(std::iter::from_fn(|| hand(&mut inbox)).count(), UNACKED);
        inbox.ack(1);
        assert_eq!(hand(&mut inbox), Some((UNACKED as Pos + 1, false)));
    }
}
