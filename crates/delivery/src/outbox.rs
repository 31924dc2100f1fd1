//! Items on their way to a device: which are unproven, which one a replay sends, what proves them.

use std::collections::BTreeMap;

use protocol::{
    Millis,
    record::{Pos, hash128},
};

use crate::io::ConnId;

/// Least time between two pings that prove items, milliseconds.
pub(crate) const PROVE_EVERY_MS: u64 = 1_000;
/// So many failures in a row on one item set it aside.
const SET_ASIDE_AFTER: u32 = 3;

/// An item that is not proven.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    /// Record that holds it.
    pub(crate) pos: Pos,
    /// Hash of the message, file or card id.
    pub(crate) id: u128,
    /// Batch that brings it to disk.
    pub(crate) batch: u64,
    /// Only for this connection, never replayed.
    pub(crate) once: Option<ConnId>,
}

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    items: BTreeMap<u64, Item>,
    /// Highest unproven `seq` of an id: the state that a replay sends.
    latest: BTreeMap<u128, u64>,
    /// Highest `seq` written to the present connection.
    sent: u64,
    flight: Option<(u64, u64)>,
    next_ping: Millis,
    blamed: Option<(u64, u32)>,
}

pub(crate) fn id_hash(id: &str) -> u128 {
    hash128(&[b"out", id.as_bytes()])
}

impl Outbox {
    pub(crate) fn add(&mut self, seq: u64, item: Item) {
        self.latest.insert(item.id, seq);
        self.items.insert(seq, item);
    }

    /// How many items are unproven.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Position of the oldest unproven item's record.
    pub(crate) fn first_pos(&self) -> Option<Pos> {
        self.items.values().next().map(|item| item.pos)
    }

    /// A new connection: nothing was sent on it.
    pub(crate) fn connected(&mut self, now: Millis) {
        self.sent = 0;
        self.flight = None;
        self.next_ping = now;
    }

    /// The connection is gone; `blames` when the client itself closed it with a code that says that it could not take
    /// something. Returns an item that has failed three times in a row and is set aside now.
    pub(crate) fn disconnected(&mut self, blames: bool) -> Option<(u64, Item)> {
        self.flight = None;
        if !blames {
            return None;
        }
        let oldest = self.items.keys().next().copied()?;
        let count = match self.blamed {
            Some((seq, count)) if seq == oldest => count + 1,
            _ => 1,
        };
        self.blamed = Some((oldest, count));
        if count < SET_ASIDE_AFTER {
            return None;
        }
        self.blamed = None;
        let item = self.items.get(&oldest).copied()?;
        Some((oldest, item))
    }

    /// The items from `from` on that a replay to `conn` sends, at most `most`, only such as are on disk. The second value is
    /// where the next call goes on; `None`: something is not on disk yet.
    pub(crate) fn replay(
        &self,
        from: u64,
        most: usize,
        conn: ConnId,
        committed: u64,
    ) -> (Vec<(u64, Item)>, Option<u64>) {
        let mut page = Vec::new();
        let mut next = from;
        for (seq, item) in self.items.range(from..) {
            if page.len() >= most {
                return (page, Some(next));
            }
            if item.batch > committed {
                let wait = page.is_empty();
                return (page, if wait { None } else { Some(next) });
            }
            next = seq + 1;
            let superseded = self.latest.get(&item.id).is_some_and(|latest| latest > seq)
                && !crate::mutants::is(crate::mutants::Mutant::OldStateReplayed);
            let once = item.once.filter(|_| !crate::mutants::is(crate::mutants::Mutant::OnceReplayed));
            if !superseded && once.is_none_or(|only| only == conn) {
                page.push((*seq, *item));
            }
        }
        (page, Some(next))
    }

    /// Whether nothing is left from `from` on.
    pub(crate) fn ends_at(&self, from: u64) -> bool {
        self.items.range(from..).next().is_none()
    }

    /// Whether an item is on disk (or proven already).
    pub(crate) fn is_stored(&self, seq: u64, committed: u64) -> bool {
        self.items.get(&seq).is_none_or(|item| item.batch <= committed)
    }

    /// The last of the oldest items that `conn` never gets, because they were only for an earlier connection.
    pub(crate) fn dead(&self, conn: ConnId) -> Option<u64> {
        let dead = |item: &&Item| item.once.is_some_and(|only| only != conn);
        self.items.iter().take_while(|(_, item)| dead(item)).last().map(|(seq, _)| *seq)
    }

    /// Whether the newest item of an id waits for the disk.
    pub(crate) fn waits(&self, id: u128, committed: u64) -> bool {
        self.latest.get(&id).and_then(|seq| self.items.get(seq)).is_some_and(|item| item.batch > committed)
    }

    /// The last frame of an item was handed to the connection.
    pub(crate) fn sent(&mut self, seq: u64) {
        self.sent = self.sent.max(seq);
    }

    /// Highest `seq` handed to the present connection.
    pub(crate) const fn written(&self) -> u64 {
        self.sent
    }

    /// A ping is due: gives it this nonce.
    pub(crate) fn ping(&mut self, nonce: u64, proven: u64, now: Millis) -> bool {
        if self.flight.is_some() || self.sent <= proven || now < self.next_ping {
            return false;
        }
        self.flight = Some((nonce, self.sent));
        self.next_ping = now + PROVE_EVERY_MS;
        true
    }

    /// When the next ping may go, if one is wanted.
    pub(crate) fn ping_at(&self, proven: u64) -> Option<Millis> {
        (self.flight.is_none() && self.sent > proven).then_some(self.next_ping)
    }

    /// The pong of this nonce came: everything up to the returned `seq` is proven.
    pub(crate) fn pong(&mut self, nonce: u64) -> Option<u64> {
        let (expected, seq) = self.flight?;
        if expected != nonce {
            return None;
        }
        self.flight = None;
        Some(seq)
    }

    /// Everything up to `seq` is proven.
    pub(crate) fn proven(&mut self, seq: u64) {
        let rest = self.items.split_off(&(seq + 1));
        for (seq, item) in std::mem::replace(&mut self.items, rest) {
            if self.latest.get(&item.id) == Some(&seq) {
                self.latest.remove(&item.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(id: &str, pos: Pos) -> Item {
        Item { pos, id: id_hash(id), batch: pos, once: None }
    }

    fn seqs(page: &[(u64, Item)]) -> Vec<u64> {
        page.iter().map(|(seq, _)| *seq).collect()
    }

    #[test]
    fn a_replay_sends_only_the_latest_state_and_only_what_is_on_disk() {
        let mut outbox = Outbox::default();
        outbox.add(1, item("a", 1));
        outbox.add(2, item("b", 2));
        outbox.add(3, item("a", 3));
        outbox.add(4, Item { once: Some(7), ..item("c", 4) });
        let (page, next) = outbox.replay(0, 10, 8, 3);
        assert_eq!((seqs(&page), next), (vec![2, 3], Some(4)), "4 is not on disk");
        assert_eq!(outbox.replay(4, 10, 8, 3).1, None);
        assert_eq!(seqs(&outbox.replay(4, 10, 8, 4).0), [0; 0], "not this connection's");
        assert_eq!(seqs(&outbox.replay(4, 10, 7, 4).0), [4]);
        outbox.proven(3);
        assert_eq!(outbox.first_pos(), Some(4));
    }

    #[test]
    fn a_page_is_bounded_and_goes_on() {
        let mut outbox = Outbox::default();
        for seq in 1..=5 {
            outbox.add(seq, item(&seq.to_string(), seq));
        }
        let (page, next) = outbox.replay(0, 2, 1, 9);
        assert_eq!((seqs(&page), next), (vec![1, 2], Some(3)));
        let (page, next) = outbox.replay(3, 9, 1, 9);
        assert_eq!((seqs(&page), next), (vec![3, 4, 5], Some(6)));
        assert!(outbox.ends_at(6));
    }

    #[test]
    fn one_ping_is_in_flight_and_at_most_one_a_second() {
        let mut outbox = Outbox::default();
        outbox.connected(0);
        assert!(!outbox.ping(1, 0, 0), "nothing was sent");
        outbox.sent(5);
        assert!(outbox.ping(1, 0, 0));
        outbox.sent(6);
        assert!(!outbox.ping(2, 0, 5000), "one is in flight");
        assert_eq!(outbox.pong(9), None, "a foreign nonce");
        assert_eq!(outbox.pong(1), Some(5));
        assert_eq!(outbox.ping_at(5), Some(PROVE_EVERY_MS));
        assert!(!outbox.ping(3, 5, 999));
        assert!(outbox.ping(3, 5, 1000));
        outbox.disconnected(false);
        assert_eq!(outbox.pong(3), None, "an old connection's pong proves nothing");
    }

    #[test]
    fn an_item_that_ends_the_connection_three_times_is_set_aside() {
        let mut outbox = Outbox::default();
        outbox.add(1, item("a", 1));
        outbox.add(2, item("b", 2));
        assert!(outbox.disconnected(true).is_none());
        assert!(outbox.disconnected(false).is_none(), "a cut line never counts");
        assert!(outbox.disconnected(true).is_none());
        assert_eq!(outbox.disconnected(true).map(|(seq, _)| seq), Some(1));
        outbox.proven(1);
        assert!(outbox.disconnected(true).is_none(), "the next one starts from zero");
    }
}
