//! What is recorded of one message: where it has been, when, and not a word of it.

use std::collections::BTreeMap;

use protocol::{
    Millis,
    link::CardEnd,
    record::{Body, DeviceNo, DeviceState, InBody, Pos},
};
use rusqlite::params;

use super::{Inspector, Kind, unsigned};
use crate::StoreError;

/// What happened at a station.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The device said it and it was accepted: on disk, before the agent got it.
    Accepted {
        /// The agent has done with it (or it was dropped after its time); when is not recorded.
        done: bool,
    },
    /// The agent is told that the time of the card is over.
    TimeOver {
        /// See [`Event::Accepted`].
        done: bool,
    },
    /// A reply that is being written, as it was stored last.
    Streaming,
    /// The final state of a message, or a later edit.
    Message {
        /// A redraw.
        edit: bool,
    },
    /// A large file on its way to the device; it has no `seq` yet.
    FileOnItsWay,
    /// A file to the device.
    File,
    /// A card.
    Card,
    /// The agent took the answer of a card.
    CardTaken,
    /// A card ended.
    CardDone {
        /// Its time was over.
        expired: bool,
    },
    /// A delivery ended.
    Delivered {
        /// The device has it.
        ok: bool,
    },
}

impl Event {
    /// One word, for programs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Accepted { .. } => "accepted",
            Self::TimeOver { .. } => "time_over",
            Self::Streaming => "streaming",
            Self::Message { .. } => "message",
            Self::FileOnItsWay => "file_on_its_way",
            Self::File => "file",
            Self::Card => "card",
            Self::CardTaken => "card_taken",
            Self::CardDone { .. } => "card_done",
            Self::Delivered { .. } => "delivered",
        }
    }
}

/// One row of the log that belongs to the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Station {
    /// When it was stored.
    pub at: Millis,
    /// Its position in the log.
    pub pos: Pos,
    /// What kind of row it is.
    pub kind: Kind,
    /// The id that the row itself has: another one than was asked for if it is a reply.
    pub id: String,
    /// What happened.
    pub event: Event,
    /// Number of the item, for what goes to the device.
    pub seq: Option<u64>,
    /// Whether that number is proven to be on the device; when is not recorded.
    pub proven: Option<bool>,
}

/// What is recorded of a message on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Device id.
    pub device: String,
    /// Oldest first.
    pub stations: Vec<Station>,
}

/// What the state of a device tells of its rows.
struct Known {
    id: String,
    proven: u64,
    done: Pos,
    done_above: Vec<Pos>,
}

impl Inspector {
    /// Everything recorded of an id: a text's (the client's own), a message's, a file's or a card's, with the replies that
    /// name it. Several devices may have used the same id; `device` narrows it to one.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn trace(&self, id: &str, device: Option<&str>) -> Result<Vec<Trace>, StoreError> {
        let sql = self.place.error("read");
        let tx = self.db.unchecked_transaction().map_err(&sql)?;
        let devices = self.known(device)?;
        let mut traces: BTreeMap<DeviceNo, Trace> = BTreeMap::new();
        // Bodies are JSON, in which the id stands as it is encoded here; the look that decides comes after.
        let encoded = encoded(id);
        let mut select = tx
            .prepare("SELECT pos, device, at, body FROM log WHERE instr(body, ?1) > 0 ORDER BY pos")
            .map_err(&sql)?;
        let mut found = select.query(params![encoded]).map_err(&sql)?;
        while let Some(row) = found.next().map_err(&sql)? {
            let columns = || -> rusqlite::Result<(Pos, DeviceNo, Millis, Vec<u8>)> {
                Ok((unsigned(row, 0)?, row.get(1)?, unsigned(row, 2)?, row.get(3)?))
            };
            let (pos, no, at, bytes) = columns().map_err(&sql)?;
            let Some(known) = devices.get(&no) else { continue };
            let Ok(body) = Body::decode(&bytes) else { continue };
            if let Some((own, event, seq)) =
                station(&body, id, |pos| pos <= known.done || known.done_above.contains(&pos), pos)
            {
                let trace = traces
                    .entry(no)
                    .or_insert_with(|| Trace { device: known.id.clone(), stations: Vec::new() });
                let proven = seq.map(|seq| seq <= known.proven);
                trace.stations.push(Station { at, pos, kind: Kind::of(&bytes), id: own, event, seq, proven });
            }
        }
        Ok(traces.into_values().collect())
    }

    fn known(&self, only: Option<&str>) -> Result<BTreeMap<DeviceNo, Known>, StoreError> {
        let sql = self.place.error("read");
        let mut select =
            self.db.prepare("SELECT no, id, state FROM device WHERE ?1 IS NULL OR id = ?1").map_err(&sql)?;
        let rows = select
            .query_map([only], |r| {
                Ok((r.get::<_, DeviceNo>(0)?, r.get::<_, String>(1)?, r.get::<_, Vec<u8>>(2)?))
            })
            .map_err(&sql)?;
        let mut devices = BTreeMap::new();
        for row in rows {
            let (no, id, state) = row.map_err(&sql)?;
            let state = DeviceState::decode(&state)
                .map_err(|e| self.place.damaged(format!("state of device {no}: {e}")))?;
            let DeviceState { proven, done, done_above, .. } = state;
            devices.insert(no, Known { id, proven, done, done_above });
        }
        Ok(devices)
    }
}

/// An id as it stands inside a JSON string.
fn encoded(id: &str) -> Vec<u8> {
    let quoted = serde_json::to_string(id).unwrap_or_default();
    quoted.strip_prefix('"').and_then(|q| q.strip_suffix('"')).unwrap_or_default().as_bytes().to_vec()
}

/// What a record is to the message with this id: its own id, what happened, its `seq`. `None`: nothing.
fn station(
    body: &Body,
    id: &str,
    done: impl Fn(Pos) -> bool,
    pos: Pos,
) -> Option<(String, Event, Option<u64>)> {
    let replies = |reply_to: &Option<String>| reply_to.as_deref() == Some(id);
    let (own, concerns, event, seq) = match body {
        Body::In(record) => {
            let done = done(pos);
            let (concerns, event) = match &record.what {
                InBody::Card { card } if card.outcome == CardEnd::Expired => {
                    (card.prompt_id == id, Event::TimeOver { done })
                }
                InBody::Card { card } => (card.prompt_id == id, Event::Accepted { done }),
                InBody::Text { .. } | InBody::File { .. } => (false, Event::Accepted { done }),
            };
            (&record.id, concerns, event, None)
        }
        Body::Message(m) => (&m.id, replies(&m.reply_to), Event::Message { edit: m.edit }, Some(m.seq)),
        Body::Bubble(b) => (&b.id, b.of == id || replies(&b.reply_to), Event::Streaming, None),
        Body::File(f) => {
            let event = if f.seq.is_some() { Event::File } else { Event::FileOnItsWay };
            (&f.id, replies(&f.reply_to), event, f.seq)
        }
        Body::Card(c) => (&c.prompt.id, false, Event::Card, c.prompt.seq),
        Body::CardTaken { id, .. } => (id, false, Event::CardTaken, None),
        Body::CardDone { seq, id, expired, .. } => {
            (id, false, Event::CardDone { expired: *expired }, Some(*seq))
        }
        Body::Delivered { id, ok } => (id, false, Event::Delivered { ok: *ok }, None),
    };
    (own == id || concerns).then(|| (own.clone(), event, seq))
}
