//! The reading side, and the walks along a device's chain.

use std::sync::Arc;

use protocol::{
    Millis,
    record::{DeviceNo, DeviceState, Loaded, Pos, Row},
};
use rusqlite::{Connection, OptionalExtension, types::Type};

use super::{
    Place,
    block::{self, Entry},
};
use crate::{Reader, StoreError};

/// A number that we wrote as `u64`.
pub(super) fn unsigned(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(i64::cast_unsigned)
}

/// A row of the log from the columns `pos, device, at, mark, body`.
pub(super) fn whole(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    Ok(Row {
        pos: unsigned(row, 0)?,
        device: row.get(1)?,
        at: unsigned(row, 2)?,
        mark: row.get(3)?,
        body: row.get(4)?,
    })
}

/// Follows a device's chain from `head` (newest first) down to, not including, `end`, or until a row is gone or lies
/// below `floor`. Reads no bodies.
pub(super) fn walk(
    db: &Connection,
    place: &Place,
    device: DeviceNo,
    head: Pos,
    end: Pos,
    floor: Pos,
) -> Result<Vec<Entry>, StoreError> {
    let sql = place.error("read");
    let mut select =
        db.prepare_cached("SELECT device, prev, at, mark FROM log WHERE pos = ?1").map_err(&sql)?;
    let mut rows = Vec::new();
    let mut pos = head;
    while pos > end && pos >= floor {
        let found = select
            .query_row([pos.cast_signed()], |r| {
                Ok((r.get::<_, DeviceNo>(0)?, unsigned(r, 1)?, unsigned(r, 2)?, r.get(3)?))
            })
            .optional()
            .map_err(&sql)?;
        let Some((owner, prev, at, mark)) = found else { break };
        // A chain that leaves its device or turns round would give one person's words to another, or never end.
        if owner != device || prev >= pos {
            return Err(place.damaged(format!("the chain of device {device} is broken at {pos}")));
        }
        rows.push((pos, at, mark));
        pos = prev;
    }
    Ok(rows)
}

/// A reading connection.
#[derive(Debug)]
pub(super) struct SqliteReader {
    db: Connection,
    place: Arc<Place>,
}

impl SqliteReader {
    pub(super) fn new(place: Arc<Place>) -> Result<Self, StoreError> {
        let db = place.connect()?;
        db.pragma_update(None, "query_only", true).map_err(place.error("open"))?;
        Ok(Self { db, place })
    }
}

impl Reader for SqliteReader {
    fn load(&mut self, device: &str, since: Millis) -> Result<Option<Loaded>, StoreError> {
        let place = &self.place;
        let sql = place.error("read");
        // One snapshot for all that follows.
        let tx = self.db.transaction().map_err(&sql)?;
        let known = tx
            .prepare_cached("SELECT no, head, block, state FROM device WHERE id = ?1")
            .and_then(|mut s| {
                s.query_row([device], |r| {
                    Ok((r.get::<_, DeviceNo>(0)?, unsigned(r, 1)?, unsigned(r, 2)?, r.get::<_, Vec<u8>>(3)?))
                })
                .optional()
            })
            .map_err(&sql)?;
        let Some((no, head, block, state)) = known else { return Ok(None) };
        let live_from = DeviceState::decode(&state)
            .map_err(|e| place.damaged(format!("state of device {no}: {e}")))?
            .live_from
            .unwrap_or(Pos::MAX);
        // Everything below the oldest row was trimmed.
        let floor = tx
            .prepare_cached("SELECT min(pos) FROM log")
            .and_then(|mut s| s.query_row([], |r| r.get::<_, Option<i64>>(0)))
            .map_err(&sql)?
            .map_or(Pos::MAX, i64::cast_unsigned);

        let mut marks = Vec::new();
        let mut live = Vec::new();
        let mut keep = |pos: Pos, at: Millis, mark: &[u8]| {
            if pos < floor {
                return;
            }
            if at >= since && !mark.is_empty() {
                marks.push((pos, at, mark.to_vec()));
            }
            if pos >= live_from {
                live.push(pos);
            }
        };
        for (pos, at, mark) in walk(&tx, place, no, head, block, floor)? {
            keep(pos, at, &mark);
        }
        walk_blocks(&tx, place, no, block, |last, peak| last >= live_from || peak >= since, &mut keep)?;
        live.reverse();
        let live = read(&tx, place, &live)?;
        Ok(Some(Loaded { no, state, marks, live }))
    }

    fn read(&mut self, positions: &[Pos]) -> Result<Vec<Row>, StoreError> {
        let tx = self.db.transaction().map_err(self.place.error("read"))?;
        read(&tx, &self.place, positions)
    }
}

/// Goes through a device's blocks, newest first, while `wanted(last, peak)`.
fn walk_blocks(
    db: &Connection,
    place: &Place,
    device: DeviceNo,
    newest: Pos,
    wanted: impl Fn(Pos, Millis) -> bool,
    keep: &mut impl FnMut(Pos, Millis, &[u8]),
) -> Result<(), StoreError> {
    let sql = place.error("read");
    let mut select =
        db.prepare_cached("SELECT device, prev, peak, rows FROM block WHERE last = ?1").map_err(&sql)?;
    let mut last = newest;
    while last > 0 {
        let mut found = select.query([last.cast_signed()]).map_err(&sql)?;
        let Some(row) = found.next().map_err(&sql)? else { break };
        let mut step = || -> rusqlite::Result<Option<Pos>> {
            let (owner, prev) = (row.get::<_, DeviceNo>(0)?, unsigned(row, 1)?);
            if !wanted(last, unsigned(row, 2)?) {
                return Ok(Some(0));
            }
            if owner != device || prev >= last {
                return Ok(None);
            }
            let bytes = row.get_ref(3)?;
            let bytes = bytes
                .as_blob()
                .map_err(|e| rusqlite::Error::FromSqlConversionFailure(3, Type::Blob, Box::new(e)))?;
            Ok(block::unpack(last, bytes, &mut *keep).map(|()| prev))
        };
        let prev = step().map_err(&sql)?;
        last = prev.ok_or_else(|| place.damaged(format!("block {last} of device {device}")))?;
    }
    Ok(())
}

/// Whole rows, in the order asked for.
fn read(db: &Connection, place: &Place, positions: &[Pos]) -> Result<Vec<Row>, StoreError> {
    let sql = place.error("read");
    let mut select =
        db.prepare_cached("SELECT pos, device, at, mark, body FROM log WHERE pos = ?1").map_err(&sql)?;
    let mut rows = Vec::with_capacity(positions.len());
    for pos in positions {
        rows.extend(select.query_row([pos.cast_signed()], whole).optional().map_err(&sql)?);
    }
    Ok(rows)
}
