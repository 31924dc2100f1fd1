//! A look at a store from outside, also while a gateway runs on it: no lock is taken, and nothing in it is changed.
//!
//! [`Inspector::check`] looks for damage, [`Inspector::stats`] counts, [`Inspector::backup`] makes a copy that opens and
//! serves, [`Inspector::trace`] finds what is recorded of one message.

mod backup;
mod check;
mod stats;
#[cfg(test)]
mod tests;
mod trace;

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use protocol::record::{Body, InBody, Pos};
use rusqlite::{Connection, OpenFlags};

pub use backup::Copied;
pub use check::{Finding, Report};
pub use stats::{Kind, Rows, Stats};
pub use trace::{Event, Station, Trace};

use super::{BUSY, Options, Place, reader::unsigned, schema};
use crate::{StoreError, dir};

/// A reading connection from outside the gateway.
#[derive(Debug)]
pub struct Inspector {
    db: Connection,
    place: Place,
    state: PathBuf,
}

impl Inspector {
    /// Opens the store of a state directory for reading. Makes nothing that was not there, except the -wal and -shm
    /// files by which SQLite's readers and writers know of each other.
    ///
    /// # Errors
    /// [`StoreError::Missing`] where there is no store; [`StoreError::NotOurs`], [`StoreError::Newer`],
    /// [`StoreError::Damaged`]; and what the system or SQLite said.
    pub fn open(state: &Path) -> Result<Self, StoreError> {
        let missing = || StoreError::Missing { dir: state.to_owned() };
        let state = match state.canonicalize() {
            Ok(dir) => dir,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(missing()),
            Err(e) => return Err(StoreError::io("open", state, e)),
        };
        let path = state.join(dir::DATABASE);
        match fs::metadata(&path) {
            Ok(meta) if meta.len() > 0 => {}
            Ok(_) => return Err(missing()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(missing()),
            Err(e) => return Err(StoreError::io("open", &path, e)),
        }
        // SQLite says of a file that it cannot open only that it cannot; this says why.
        fs::File::open(&path).map_err(|e| StoreError::io("open", &path, e))?;
        let place = Place { path, options: Options::default(), _lock: None };
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let open = || -> rusqlite::Result<Connection> {
            let db = Connection::open_with_flags(&place.path, flags)?;
            db.busy_timeout(BUSY)?;
            db.pragma_update(None, "temp_store", "MEMORY")?;
            Ok(db)
        };
        let db = open().map_err(place.error("open"))?;
        if schema::recognize(&db, &place.path)?.is_none() {
            return Err(missing());
        }
        Ok(Self { db, place, state })
    }

    /// The state directory, without links.
    #[must_use]
    pub fn state_dir(&self) -> &Path {
        &self.state
    }

    fn media(&self) -> PathBuf {
        self.state.join("media")
    }

    /// A number that a query gives.
    fn number(&self, sql: &str) -> Result<u64, StoreError> {
        self.db.query_row(sql, [], |r| unsigned(r, 0)).map_err(self.place.error("read"))
    }

    /// The oldest position that is still there; `Pos::MAX` when none is. Everything below it was trimmed.
    fn floor(&self) -> Result<Pos, StoreError> {
        let first: Option<i64> = self
            .db
            .query_row("SELECT min(pos) FROM log", [], |r| r.get(0))
            .map_err(self.place.error("read"))?;
        Ok(first.map_or(Pos::MAX, i64::cast_unsigned))
    }

    /// Whether the newest state of the store still has this row: another process may have trimmed it meanwhile.
    fn has_row(&self, pos: Pos) -> Result<bool, StoreError> {
        self.db
            .query_row("SELECT count(*) FROM log WHERE pos = ?1", [pos.cast_signed()], |r| unsigned(r, 0))
            .map(|n| n > 0)
            .map_err(self.place.error("read"))
    }
}

/// The media file that a record names, and its size.
fn file_of(body: &Body) -> Option<(&str, u64)> {
    match body {
        Body::In(record) => match &record.what {
            InBody::File { file } => Some((&file.file, file.bytes)),
            _ => None,
        },
        Body::File(record) => Some((&record.file, record.bytes)),
        _ => None,
    }
}

/// The files in `media/`: name and bytes. None if there is no such folder.
fn media_files(media: &Path) -> Result<BTreeMap<String, u64>, StoreError> {
    let fail = |e| StoreError::io("read", media, e);
    let list = match fs::read_dir(media) {
        Ok(list) => list,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(e) => return Err(fail(e)),
    };
    let mut files = BTreeMap::new();
    for entry in list {
        let entry = entry.map_err(fail)?;
        match entry.metadata() {
            Ok(meta) => {
                files.insert(entry.file_name().to_string_lossy().into_owned(), meta.len());
            }
            // Removed by the gateway between the list and the look.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(fail(e)),
        }
    }
    Ok(files)
}
