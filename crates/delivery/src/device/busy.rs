//! What a device has only while something is under way. Most devices are idle most of the time: then none of it is there.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::{Deref, DerefMut},
};

use protocol::{
    link::FromAgent,
    record::Pos,
    series::{SeriesTable, SpoolNo},
};
use session::{cards::Cards, turn::Turn};

use super::{
    Effect, Held, Open, ReadFor, Taking,
    deliver::Pending,
    replay::Replay,
    write::{FileSend, Queue},
};
use crate::{inbox::Inbox, io::AgentId};

/// What is under way. Its default is: nothing.
#[derive(Debug)]
pub(super) struct Work {
    /// Cards by the hash of their call's key.
    pub(super) card_keys: BTreeMap<u128, String>,
    pub(super) series: SeriesTable,
    /// Files being put together, and what the device said after each: it waits, so that the order stays.
    pub(super) assembling: BTreeMap<SpoolNo, Option<String>>,
    pub(super) held: VecDeque<Held>,
    pub(super) cards: Cards,
    pub(super) turn: Turn,
    pub(super) open: Vec<Open>,
    pub(super) inbox: Inbox,
    pub(super) queue: Queue,
    pub(super) replay: Option<Replay>,
    /// Large files on their way, part by part behind everything else.
    pub(super) bulk: VecDeque<FileSend>,
    /// Ids and records of files that have no `seq` yet.
    pub(super) unplaced: Vec<(String, Pos)>,
    pub(super) pending: Vec<Pending>,
    pub(super) reads: BTreeMap<u64, ReadFor>,
    pub(super) taking: Option<Taking>,
    pub(super) calls: VecDeque<(AgentId, FromAgent)>,
    /// What waits for the batch of that number.
    pub(super) effects: VecDeque<(u64, Effect)>,
}

impl Work {
    const NOTHING: Self = Self {
        card_keys: BTreeMap::new(),
        series: SeriesTable::new(),
        assembling: BTreeMap::new(),
        held: VecDeque::new(),
        cards: Cards::new(),
        turn: Turn::new(),
        open: Vec::new(),
        inbox: Inbox::new(),
        queue: Queue::new(),
        replay: None,
        bulk: VecDeque::new(),
        unplaced: Vec::new(),
        pending: Vec::new(),
        reads: BTreeMap::new(),
        taking: None,
        calls: VecDeque::new(),
        effects: VecDeque::new(),
    };

    fn is_nothing(&self) -> bool {
        self.card_keys.is_empty()
            && self.series.is_empty()
            && self.assembling.is_empty()
            && self.held.is_empty()
            && self.cards.is_empty()
            && self.turn.idle()
            && self.open.is_empty()
            && self.inbox.is_empty()
            && self.queue.is_empty()
            && self.replay.is_none()
            && self.bulk.is_empty()
            && self.unplaced.is_empty()
            && self.pending.is_empty()
            && self.reads.is_empty()
            && self.taking.is_none()
            && self.calls.is_empty()
            && self.effects.is_empty()
    }
}

static NOTHING: Work = Work::NOTHING;

/// The work of a device, in a box that is made when something is put into it.
#[derive(Debug, Default)]
pub(super) struct Busy(Option<Box<Work>>);

impl Busy {
    /// Gives the box back if nothing is in it.
    pub(super) fn rest(&mut self) {
        if self.0.as_ref().is_some_and(|work| work.is_nothing()) {
            self.0 = None;
        }
    }
}

impl Deref for Busy {
    type Target = Work;

    fn deref(&self) -> &Work {
        self.0.as_deref().unwrap_or(&NOTHING)
    }
}

impl DerefMut for Busy {
    fn deref_mut(&mut self) -> &mut Work {
        self.0.get_or_insert_with(|| Box::new(Work::NOTHING))
    }
}
