//! SQLite: WAL, `synchronous=FULL`, one connection that writes and one for each reader.

mod block;
pub mod inspect;
mod reader;
mod schema;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use protocol::{
    Millis,
    record::{Batch, DeviceNo, DeviceState, Op, Pos, Row},
};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, params};

use crate::{Reader, Start, Store, StoreError, dir};

/// A reader may hold its snapshot for this long before the writer gives up a checkpoint or a lock.
const BUSY: Duration = Duration::from_secs(5);
/// The -wal file is cut back to this after a checkpoint, bytes.
const WAL_KEPT: u32 = 32 * 1024 * 1024;
/// Chain ends of so many devices are kept in memory; beyond that they are read again.
const LINKS: usize = 50_000;
/// Bodies that one step of [`Store::trim`] gives back, bytes; more only if a single row is larger.
const TRIM_BYTES: usize = 8 * 1024 * 1024;

/// How the file is opened. Only tests use another value than the default.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Options {
    /// SQLite file layer by name. With one, the directory is not touched otherwise: no lock, no modes.
    pub vfs: Option<String>,
    /// `synchronous=FULL`; without it a power cut loses what was committed.
    pub sync: bool,
    /// Pages in the -wal file after which the writer checkpoints.
    pub checkpoint_pages: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { vfs: None, sync: true, checkpoint_pages: 1000 }
    }
}

/// What writer and readers share. The lock goes with the last of them.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    options: Options,
    _lock: Option<dir::Lock>,
}

impl Place {
    fn connect(&self) -> Result<Connection, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let open = || -> rusqlite::Result<Connection> {
            let db = match &self.options.vfs {
                None => Connection::open_with_flags(&self.path, flags)?,
                Some(vfs) => Connection::open_with_flags_and_vfs(
                    &self.path,
                    flags | OpenFlags::SQLITE_OPEN_CREATE,
                    vfs.as_str(),
                )?,
            };
            db.busy_timeout(BUSY)?;
            db.pragma_update(None, "synchronous", if self.options.sync { "FULL" } else { "OFF" })?;
            db.pragma_update(None, "journal_size_limit", WAL_KEPT)?;
            db.pragma_update(None, "wal_autocheckpoint", self.options.checkpoint_pages)?;
            db.pragma_update(None, "temp_store", "MEMORY")?;
            db.set_prepared_statement_cache_capacity(32);
            Ok(db)
        };
        open().map_err(|e| self.error("open")(e))
    }

    fn error(&self, doing: &'static str) -> impl Fn(rusqlite::Error) -> StoreError + '_ {
        move |e| StoreError::sql(doing, &self.path, &e)
    }

    fn damaged(&self, why: impl Into<String>) -> StoreError {
        StoreError::Damaged { path: self.path.clone(), why: why.into() }
    }
}

/// End of a device's chain.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    /// Newest row; 0: none yet.
    head: Pos,
    /// Newest row of the newest block; 0: none yet.
    block: Pos,
    /// Rows above that block.
    tail: u32,
}

/// The SQLite backend's writing side. Close its readers first: the last connection tidies the -wal file up.
#[derive(Debug)]
pub struct Sqlite {
    db: Connection,
    place: Arc<Place>,
    links: HashMap<DeviceNo, Link>,
    /// Newest position ever committed.
    last: Pos,
}

impl Sqlite {
    /// Opens the store of a state directory; makes both if they are not there. Takes milliseconds, however much is stored.
    ///
    /// # Errors
    /// [`StoreError::InUse`] while another gateway has it; [`StoreError::Newer`], [`StoreError::NotOurs`],
    /// [`StoreError::Damaged`] without having touched the file; and what the system or SQLite said.
    pub fn open(state: &Path) -> Result<Self, StoreError> {
        let state = dir::prepare(state)?;
        let lock = dir::Lock::take(&state)?;
        let path = dir::prepare_database(&state)?;
        Self::connect(Place { path, options: Options::default(), _lock: Some(lock) })
    }

    /// Opens a database on a file layer of a test's own.
    ///
    /// # Errors
    /// As [`Self::open`].
    #[doc(hidden)]
    pub fn open_with(path: &Path, options: Options) -> Result<Self, StoreError> {
        Self::connect(Place { path: path.to_owned(), options, _lock: None })
    }

    fn connect(place: Place) -> Result<Self, StoreError> {
        let mut db = place.connect()?;
        schema::migrate(&mut db, &place.path)?;
        let mut store = Self { db, place: Arc::new(place), links: HashMap::new(), last: 0 };
        store.last = store.newest()?;
        Ok(store)
    }

    fn newest(&self) -> Result<Pos, StoreError> {
        let sql = self.place.error("read");
        let last: Option<Pos> = self
            .db
            .query_row("SELECT max(pos) FROM log", [], |r| r.get::<_, Option<i64>>(0))
            .map_err(&sql)?
            .map(i64::cast_unsigned);
        // The whole log may have been trimmed away.
        let trimmed = self
            .db
            .query_row("SELECT value FROM meta WHERE key = 'trimmed'", [], |r| r.get::<_, i64>(0))
            .optional()
            .map_err(&sql)?
            .map(i64::cast_unsigned);
        Ok(last.max(trimmed).unwrap_or(0))
    }
}

impl Store for Sqlite {
    fn start(&mut self) -> Result<Start, StoreError> {
        let read = || -> rusqlite::Result<_> {
            let db = &self.db;
            let meta = "SELECT value FROM meta WHERE key = ?1";
            let epoch: String = db.query_row(meta, ["epoch"], |r| r.get(0))?;
            let secret: [u8; 32] = db.query_row(meta, ["secret"], |r| r.get(0))?;
            let device: DeviceNo =
                db.query_row("SELECT coalesce(max(no), 0) + 1 FROM device", [], |r| r.get(0))?;
            let wake = db
                .prepare("SELECT id FROM device WHERE wake = 1 ORDER BY no")?
                .query_map([], |r| r.get(0))?
                .collect::<Result<_, _>>()?;
            Ok(Start { epoch, secret, next_pos: self.last + 1, next_device: device, wake })
        };
        read().map_err(self.place.error("read"))
    }

    fn commit(&mut self, batches: &[Batch]) -> Result<(), StoreError> {
        let place = &self.place;
        let sql = place.error("write");
        // Dropped without a commit it rolls back, so that the next commit finds a clean connection.
        let tx = self.db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(&sql)?;
        let mut group =
            Group { tx: &tx, place, known: &self.links, touched: BTreeMap::new(), last: self.last };
        for batch in batches {
            group.add(batch)?;
        }
        let (links, last) = group.finish()?;
        tx.commit().map_err(&sql)?;
        if self.links.len() > LINKS {
            self.links.clear();
        }
        self.links.extend(links);
        self.last = last;
        Ok(())
    }

    fn trim(&mut self, before: Millis, max: usize) -> Result<Vec<Row>, StoreError> {
        let place = &self.place;
        let sql = place.error("trim");
        let tx = self.db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(&sql)?;
        let floor = needed_from(&tx, place)?;
        let rows = old_rows(&tx, before, max, floor).map_err(&sql)?;
        let Some(end) = rows.last().map(|r| r.pos.cast_signed()) else { return Ok(rows) };
        let remove = || -> rusqlite::Result<()> {
            tx.execute("DELETE FROM log WHERE pos <= ?1", [end])?;
            tx.execute("DELETE FROM block WHERE last <= ?1", [end])?;
            // Positions are not used again, even when the newest row is gone.
            tx.execute("INSERT OR REPLACE INTO meta(key, value) VALUES('trimmed', ?1)", [end])?;
            Ok(())
        };
        remove().and_then(|()| tx.commit()).map_err(&sql)?;
        Ok(rows)
    }

    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        Ok(Box::new(reader::SqliteReader::new(Arc::clone(&self.place))?))
    }
}

/// The first row that a device which must go on at once still needs.
fn needed_from(tx: &Transaction<'_>, place: &Place) -> Result<Pos, StoreError> {
    let states = || -> rusqlite::Result<Vec<Vec<u8>>> {
        tx.prepare_cached("SELECT state FROM device WHERE wake = 1")?.query_map([], |r| r.get(0))?.collect()
    };
    let mut floor = Pos::MAX;
    for state in states().map_err(place.error("trim"))? {
        let state = DeviceState::decode(&state).map_err(|e| place.damaged(e.to_string()))?;
        floor = floor.min(state.live_from.unwrap_or(Pos::MAX));
    }
    Ok(floor)
}

fn old_rows(tx: &Transaction<'_>, before: Millis, max: usize, floor: Pos) -> rusqlite::Result<Vec<Row>> {
    let mut select =
        tx.prepare_cached("SELECT pos, device, at, mark, body FROM log ORDER BY pos LIMIT ?1")?;
    let mut found = select.query([i64::try_from(max).unwrap_or(i64::MAX)])?;
    let (mut rows, mut bytes) = (Vec::new(), 0);
    while let Some(row) = found.next()? {
        let row = reader::whole(row)?;
        bytes += row.body.len();
        if row.at >= before || row.pos >= floor || (bytes > TRIM_BYTES && !rows.is_empty()) {
            break;
        }
        rows.push(row);
    }
    Ok(rows)
}

/// A device that the transaction touches.
struct Touched<'a> {
    link: Link,
    /// Id, state, wake: the last ones given.
    state: Option<(&'a str, &'a [u8], bool)>,
}

/// One transaction over several batches. Device rows are written once, at its end.
struct Group<'a> {
    tx: &'a Transaction<'a>,
    place: &'a Place,
    known: &'a HashMap<DeviceNo, Link>,
    touched: BTreeMap<DeviceNo, Touched<'a>>,
    last: Pos,
}

impl<'a> Group<'a> {
    fn add(&mut self, batch: &'a Batch) -> Result<(), StoreError> {
        // States first: a batch may bring a device and its first rows in any order.
        for op in &batch.ops {
            if let Op::Device { no, id, state, wake } = op {
                let link = self.link(*no)?.unwrap_or_default();
                let touched = self.touched.entry(*no).or_insert(Touched { link, state: None });
                if touched.state.is_some_and(|(other, ..)| other != id) {
                    return Err(crate::renamed(*no));
                }
                touched.state = Some((id, state, *wake));
            }
        }
        for op in &batch.ops {
            if let Op::Append(row) = op {
                self.append(row)?;
            }
        }
        Ok(())
    }

    fn link(&self, no: DeviceNo) -> Result<Option<Link>, StoreError> {
        if let Some(touched) = self.touched.get(&no) {
            return Ok(Some(touched.link));
        }
        if let Some(link) = self.known.get(&no) {
            return Ok(Some(*link));
        }
        let select = || -> rusqlite::Result<Option<Link>> {
            self.tx
                .prepare_cached("SELECT head, block, tail FROM device WHERE no = ?1")?
                .query_row([no], |r| {
                    Ok(Link {
                        head: reader::unsigned(r, 0)?,
                        block: reader::unsigned(r, 1)?,
                        tail: r.get(2)?,
                    })
                })
                .optional()
        };
        select().map_err(self.place.error("read"))
    }

    fn append(&mut self, row: &Row) -> Result<(), StoreError> {
        crate::check_pos(self.last, row.pos)?;
        let mut link = self.link(row.device)?.ok_or_else(|| crate::unknown(row.device))?;
        let insert = || -> rusqlite::Result<()> {
            self.tx
                .prepare_cached(
                    "INSERT INTO log(pos, device, prev, at, mark, body) VALUES(?1,?2,?3,?4,?5,?6)",
                )?
                .execute(params![
                    row.pos.cast_signed(),
                    row.device,
                    link.head.cast_signed(),
                    row.at.cast_signed(),
                    row.mark,
                    row.body
                ])?;
            Ok(())
        };
        insert().map_err(self.place.error("write"))?;
        self.last = row.pos;
        link.head = row.pos;
        link.tail += 1;
        if link.tail >= block::ROWS {
            self.close_block(row.device, &mut link)?;
        }
        self.touched.entry(row.device).or_insert(Touched { link, state: None }).link = link;
        Ok(())
    }

    /// Puts the rows above the newest block into a block of their own.
    fn close_block(&self, device: DeviceNo, link: &mut Link) -> Result<(), StoreError> {
        let rows = reader::walk(self.tx, self.place, device, link.head, link.block, 0)?;
        let older: Millis = self
            .tx
            .prepare_cached("SELECT peak FROM block WHERE last = ?1")
            .and_then(|mut s| s.query_row([link.block.cast_signed()], |r| reader::unsigned(r, 0)).optional())
            .map_err(self.place.error("read"))?
            .unwrap_or(0);
        let peak = rows.iter().map(|(_, at, _)| *at).fold(older, Millis::max);
        self.tx
            .prepare_cached("INSERT INTO block(last, device, prev, peak, rows) VALUES(?1,?2,?3,?4,?5)")
            .and_then(|mut s| {
                s.execute(params![
                    link.head.cast_signed(),
                    device,
                    link.block.cast_signed(),
                    peak.cast_signed(),
                    block::pack(link.head, &rows)
                ])
            })
            .map_err(self.place.error("write"))?;
        (link.block, link.tail) = (link.head, 0);
        Ok(())
    }

    /// Writes the device rows; returns the new ends of their chains, and the newest position.
    fn finish(self) -> Result<(Vec<(DeviceNo, Link)>, Pos), StoreError> {
        let sql = self.place.error("write");
        for (no, Touched { link, state }) in &self.touched {
            let (head, block) = (link.head.cast_signed(), link.block.cast_signed());
            let changed = match state {
                None => self
                    .tx
                    .prepare_cached("UPDATE device SET head = ?2, block = ?3, tail = ?4 WHERE no = ?1")
                    .and_then(|mut s| s.execute(params![no, head, block, link.tail])),
                Some((id, state, wake)) => self
                    .tx
                    .prepare_cached(
                        "INSERT INTO device(no, head, block, tail, id, state, wake) VALUES(?1,?2,?3,?4,?5,?6,?7)
                         ON CONFLICT(no) DO UPDATE SET head = excluded.head, block = excluded.block,
                             tail = excluded.tail, state = excluded.state, wake = excluded.wake
                         WHERE id = excluded.id",
                    )
                    .and_then(|mut s| s.execute(params![no, head, block, link.tail, id, state, wake])),
            };
            if changed.map_err(&sql)? != 1 {
                return Err(crate::renamed(*no));
            }
        }
        Ok((self.touched.iter().map(|(no, t)| (*no, t.link)).collect(), self.last))
    }
}
