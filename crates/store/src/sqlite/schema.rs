//! The format of the database: what marks a file as ours, the numbered steps to the newest format, and the refusal of
//! what this binary must not touch.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior, params};

use crate::StoreError;

/// `PRAGMA application_id` of our databases: "HMob".
pub(super) const APPLICATION: u32 = 0x484D_6F62;

/// One step: from format `index` to `index + 1`. Released steps never change; a new format is a new step at the end.
type Step = fn(&Connection) -> rusqlite::Result<()>;

const STEPS: &[Step] = &[first];

/// The newest format that this binary knows.
pub(super) const FORMAT: u32 = STEPS.len() as u32;

/// Format 1.
///
/// - `log` is appended to by rowid and has no secondary index: `prev` links the rows of one device backwards.
///   `body` is the last column, so that reading marks touches no overflow page.
/// - `block` holds, for each 512 rows of a device, their positions, times and marks in one piece, so that a device
///   with a million rows is loaded by reading two thousand blocks. `peak` is the newest time in this block and all
///   older ones of the device: where it is below the horizon, the walk may stop, whatever the clock did.
/// - `device.head` is its newest row, `block` its newest block, `tail` the number of rows above that block.
fn first(db: &Connection) -> rusqlite::Result<()> {
    db.execute_batch(
        "CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
         CREATE TABLE device(
             no INTEGER PRIMARY KEY, wake INTEGER NOT NULL, head INTEGER NOT NULL, block INTEGER NOT NULL,
             tail INTEGER NOT NULL, id TEXT NOT NULL UNIQUE, state BLOB NOT NULL);
         CREATE INDEX device_wake ON device(no) WHERE wake = 1;
         CREATE TABLE log(
             pos INTEGER PRIMARY KEY, device INTEGER NOT NULL, prev INTEGER NOT NULL, at INTEGER NOT NULL,
             mark BLOB NOT NULL, body BLOB NOT NULL);
         CREATE TABLE block(
             last INTEGER PRIMARY KEY, device INTEGER NOT NULL, prev INTEGER NOT NULL, peak INTEGER NOT NULL,
             rows BLOB NOT NULL);",
    )?;
    let mut random = [0u8; 48];
    getrandom::fill(&mut random).map_err(|e| rusqlite::Error::ToSqlConversionFailure(Box::new(e)))?;
    let (secret, epoch) = random.split_at(32);
    let epoch: String = epoch.iter().map(|b| format!("{b:02x}")).collect();
    let mut put = db.prepare("INSERT INTO meta(key, value) VALUES(?1, ?2)")?;
    put.execute(params!["secret", secret])?;
    put.execute(params!["epoch", epoch])?;
    Ok(())
}

/// The format of a database of ours; `None` for an empty one, which nobody has made his yet.
///
/// # Errors
/// [`StoreError::NotOurs`] and [`StoreError::Newer`]; else what SQLite said. Nothing is written.
pub(super) fn recognize(db: &Connection, path: &Path) -> Result<Option<u32>, StoreError> {
    let sql = |e| StoreError::sql("open", path, &e);
    let application: u32 = db.query_row("PRAGMA application_id", [], |r| r.get(0)).map_err(sql)?;
    let found: u32 = db.query_row("PRAGMA user_version", [], |r| r.get(0)).map_err(sql)?;
    let empty: bool =
        db.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |r| r.get(0)).map_err(sql)?;
    let new = empty && application == 0 && found == 0;
    if application != APPLICATION && !new {
        return Err(StoreError::NotOurs { path: path.to_owned(), found: application });
    }
    if found > FORMAT {
        return Err(StoreError::Newer { path: path.to_owned(), found, known: FORMAT });
    }
    Ok((!new).then_some(found))
}

/// Brings the database to [`FORMAT`], each step in a transaction of its own.
///
/// # Errors
/// [`StoreError::NotOurs`] and [`StoreError::Newer`], before anything is written; else what SQLite said.
pub(super) fn migrate(db: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let sql = |e| StoreError::sql("open", path, &e);
    let found = recognize(db, path)?.unwrap_or(0);
    db.pragma_update(None, "journal_mode", "WAL").map_err(sql)?;
    for (from, step) in STEPS.iter().enumerate().skip(found as usize) {
        let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sql)?;
        step(&tx)
            .and_then(|()| tx.pragma_update(None, "application_id", APPLICATION))
            .and_then(|()| tx.pragma_update(None, "user_version", from as u32 + 1))
            .and_then(|()| tx.commit())
            .map_err(sql)?;
    }
    Ok(())
}
