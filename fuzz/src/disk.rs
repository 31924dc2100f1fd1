//! The store of the fuzzed core: rows and device states in memory.

use std::collections::{BTreeMap, HashSet};

use delivery::Settings;
use protocol::{
    Millis, limits,
    record::{Batch, Body, DeviceNo, DeviceState, Loaded, Op, Pos, Row},
    words::Lang,
};

/// What is stored.
#[derive(Default)]
pub(crate) struct Disk {
    rows: Vec<Row>,
    devices: BTreeMap<DeviceNo, (String, Vec<u8>, bool)>,
    /// Numbers of items that are here.
    items: HashSet<(DeviceNo, u64)>,
}

impl Disk {
    /// Keeps a batch.
    pub(crate) fn commit(&mut self, batch: Batch) {
        for op in batch.ops {
            match op {
                Op::Device { no, id, state, wake } => {
                    self.devices.insert(no, (id, state, wake));
                }
                Op::Append(row) => {
                    if let Ok(body) = Body::decode(&row.body)
                        && let Some(seq) = seq_of(&body)
                    {
                        self.items.insert((row.device, seq));
                    }
                    self.rows.push(row);
                }
            }
        }
    }

    /// Position of the last row; 0 if there is none.
    #[must_use]
    pub(crate) fn last_pos(&self) -> Pos {
        self.rows.last().map_or(0, |row| row.pos)
    }

    /// Devices to be loaded at start.
    #[must_use]
    pub(crate) fn wake(&self) -> Vec<String> {
        self.devices.values().filter(|(_, _, wake)| *wake).map(|(id, _, _)| id.clone()).collect()
    }

    /// A row.
    #[must_use]
    pub(crate) fn row(&self, pos: Pos) -> Option<&Row> {
        self.rows.binary_search_by_key(&pos, |row| row.pos).ok().and_then(|at| self.rows.get(at))
    }

    /// Whether an item of a device is here.
    #[must_use]
    pub(crate) fn has(&self, device: &str, seq: u64) -> bool {
        self.number(device).is_some_and(|no| self.items.contains(&(no, seq)))
    }

    /// A device as a store gives it back.
    #[must_use]
    pub(crate) fn load(&self, device: &str, since: Millis) -> Option<Loaded> {
        let no = self.number(device)?;
        let (_, state, _) = self.devices.get(&no)?;
        let live_from = DeviceState::decode(state).ok().and_then(|state| state.live_from);
        let own = || self.rows.iter().filter(|row| row.device == no);
        let marks = own().rev().filter(|row| row.at >= since && !row.mark.is_empty());
        Some(Loaded {
            no,
            state: state.clone(),
            marks: marks.map(|row| (row.pos, row.at, row.mark.clone())).collect(),
            live: own().filter(|row| live_from.is_some_and(|from| row.pos >= from)).cloned().collect(),
        })
    }

    fn number(&self, device: &str) -> Option<DeviceNo> {
        self.devices.iter().find(|(_, (id, _, _))| id == device).map(|(no, _)| *no)
    }
}

fn seq_of(body: &Body) -> Option<u64> {
    match body {
        Body::Message(message) => Some(message.seq),
        Body::File(file) => file.seq,
        Body::Card(card) => card.prompt.seq,
        Body::CardDone { seq, .. } => Some(*seq),
        _ => None,
    }
}

/// The core's settings on this disk; `seed` is new for each of its lives.
#[must_use]
pub(crate) fn settings(disk: &Disk, seed: u8) -> Settings {
    Settings {
        lang: Lang::En,
        avatar_url: String::new(),
        chunk_chars: limits::CHUNK_CHARS,
        idle_after_ms: 1_500,
        home_device: Some("d0".to_owned()),
        hello_ms: limits::HELLO_MS,
        series_idle_ms: limits::SERIES_IDLE_MS,
        wait_ms: limits::WAIT_MS,
        take_ms: limits::TAKE_MS,
        deliver_ms: limits::DELIVER_MS,
        silent_ms: 20_000,
        queue_bytes: 4 << 20,
        frames_per_second: 50,
        frames_burst: 100,
        bytes_per_second: 0,
        lockout_after: 5,
        lockout_ms: 60_000,
        spool_bytes: 16 << 20,
        access: session::Access {
            owner: "tok".to_owned(),
            extra: vec![("bound".to_owned(), "btok".to_owned())],
            deliver: vec!["dtok".to_owned()],
            allowed: Vec::new(),
            deliver_loopback: true,
        },
        seed: [seed; 32],
        secret: [7; 32],
        epoch: "fuzz".to_owned(),
        next_pos: disk.last_pos() + 1,
        next_device: disk.devices.keys().next_back().map_or(1, |no| no + 1),
    }
}
