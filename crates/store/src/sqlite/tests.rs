//! SQLite itself: the suite, modes, locks, versions, and every failure in words.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use protocol::words::Lang;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use tempfile::TempDir;

use super::*;
use crate::{
    DATABASE,
    conformance::{self, batch, device, row},
};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Takes from this thread what lets root ignore modes. Each test has a thread of its own.
fn obey_modes() {
    let mut sets = capabilities(None).unwrap();
    sets.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH | CapabilitySet::FOWNER;
    set_capabilities(None, sets).unwrap();
}

fn one_row(no: u64, pos: Pos) -> Batch {
    batch(no, vec![device(1, Some(1), false), Op::Append(row(pos, 1, 1))])
}

/// Both languages name the place, and differ.
fn in_words(error: &StoreError, place: &Path) {
    let (ru, en) = (error.text(Lang::Ru), error.text(Lang::En));
    let place = place.canonicalize().unwrap_or_else(|_| place.to_owned());
    for text in [&ru, &en] {
        assert!(text.contains(place.to_str().unwrap()), "{text}");
    }
    assert_eq!(en, error.to_string());
    assert!(ru.chars().any(|c| ('а'..='я').contains(&c)), "{ru}");
}

#[test]
fn conforms() {
    conformance::run(|| {
        let dir = TempDir::new().unwrap();
        Box::new(move || Box::new(Sqlite::open(dir.path()).unwrap()))
    });
}

#[test]
fn the_directory_and_its_files_are_closed_to_others() {
    let dir = TempDir::new().unwrap();
    let state = dir.path().join("a/b");
    let mut store = Sqlite::open(&state).unwrap();
    store.commit(&[one_row(1, 1)]).unwrap();
    assert_eq!((mode(&dir.path().join("a")), mode(&state)), (0o700, 0o700));
    let files = |state: &Path| {
        let mut names: Vec<_> = fs::read_dir(state).unwrap().map(|e| e.unwrap().path()).collect();
        names.sort();
        names
    };
    assert_eq!(files(&state).len(), 4, "lock, database, -shm, -wal: {:?}", files(&state));
    for file in files(&state) {
        assert_eq!(mode(&file), 0o600, "{file:?}");
    }
    drop(store);
    assert_eq!(files(&state).len(), 2, "a clean end leaves no -wal");
    // What somebody opened up is closed again.
    set_mode(&state, 0o755);
    set_mode(&state.join(DATABASE), 0o644);
    let _store = Sqlite::open(&state).unwrap();
    assert_eq!((mode(&state), mode(&state.join(DATABASE))), (0o700, 0o600));
}

#[test]
fn a_shared_directory_is_not_taken_from_others() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("theirs"), "x").unwrap();
    set_mode(dir.path(), 0o1777);
    let error = Sqlite::open(dir.path()).unwrap_err();
    assert!(matches!(error, StoreError::NotPrivate { mode: 0o1777, .. }), "{error:?}");
    in_words(&error, dir.path());
    assert_eq!(mode(dir.path()), 0o1777);
    set_mode(dir.path(), 0o700);
    Sqlite::open(dir.path()).unwrap();
}

#[test]
fn a_second_gateway_is_told() {
    let dir = TempDir::new().unwrap();
    let first = Sqlite::open(dir.path()).unwrap();
    let error = Sqlite::open(dir.path()).unwrap_err();
    let StoreError::InUse { pid, .. } = &error else { panic!("{error:?}") };
    assert_eq!(*pid, Some(std::process::id()));
    in_words(&error, dir.path());
    let reader = first.reader().unwrap();
    drop(first);
    assert!(matches!(Sqlite::open(dir.path()), Err(StoreError::InUse { .. })), "a reader still reads");
    drop(reader);
    Sqlite::open(dir.path()).unwrap();
}

#[test]
fn no_permission_in_words() {
    let dir = TempDir::new().unwrap();
    obey_modes();
    let state = dir.path().join("state");
    set_mode(dir.path(), 0o500);
    let error = Sqlite::open(&state).unwrap_err();
    assert!(matches!(error, StoreError::Permission { .. }), "{error:?}");
    in_words(&error, &state);
    set_mode(dir.path(), 0o700);

    Sqlite::open(&state).unwrap();
    set_mode(&state.join(DATABASE), 0);
    let error = Sqlite::open(&state).unwrap_err();
    assert!(matches!(error, StoreError::Permission { .. }), "a file without permission: {error:?}");
    in_words(&error, &state.join(DATABASE));
    set_mode(&state.join(DATABASE), 0o600);

    // A directory in which nothing can be made: no -wal, so the store cannot run.
    set_mode(&state, 0o500);
    let error = Sqlite::open(&state).and_then(|mut s| s.commit(&[one_row(1, 1)])).unwrap_err();
    assert!(
        matches!(error, StoreError::ReadOnly { .. } | StoreError::Permission { .. } | StoreError::Sql { .. }),
        "{error:?}"
    );
    in_words(&error, &state);
    set_mode(&state, 0o700);
    Sqlite::open(&state).unwrap().commit(&[one_row(1, 1)]).unwrap();
}

#[test]
fn a_directory_that_cannot_be_made() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("file"), "x").unwrap();
    let error = Sqlite::open(&dir.path().join("file/state")).unwrap_err();
    assert!(matches!(error, StoreError::Io { .. }), "{error:?}");
}

#[test]
fn a_newer_file_is_refused_and_left_alone() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join(DATABASE);
    drop(Sqlite::open(dir.path()).unwrap());
    Connection::open(&file).unwrap().pragma_update(None, "user_version", schema::FORMAT + 6).unwrap();
    let before = fs::read(&file).unwrap();
    let error = Sqlite::open(dir.path()).unwrap_err();
    let StoreError::Newer { found, known, .. } = error else { panic!("{error:?}") };
    assert_eq!((found, known), (schema::FORMAT + 6, schema::FORMAT));
    in_words(&error, &file);
    assert!(error.to_string().contains(&format!("format {found}")), "{error}");
    assert_eq!(fs::read(&file).unwrap(), before);
}

#[test]
fn a_file_of_another_program_is_refused_and_left_alone() {
    for application in [0, 77] {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join(DATABASE);
        let db = Connection::open(&file).unwrap();
        db.execute_batch("CREATE TABLE theirs(x); INSERT INTO theirs VALUES(1)").unwrap();
        db.pragma_update(None, "application_id", application).unwrap();
        drop(db);
        let before = fs::read(&file).unwrap();
        let error = Sqlite::open(dir.path()).unwrap_err();
        assert!(matches!(error, StoreError::NotOurs { found, .. } if found == application), "{error:?}");
        in_words(&error, &file);
        assert_eq!(fs::read(&file).unwrap(), before);
    }
}

#[test]
fn rubbish_in_place_of_the_database() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join(DATABASE);
    let rubbish = b"this is a text of more than a hundred bytes, put here by somebody who mistook the file for his notes ....".repeat(50);
    fs::write(&file, &rubbish).unwrap();
    let error = Sqlite::open(dir.path()).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
    in_words(&error, &file);
    assert_eq!(fs::read(&file).unwrap(), rubbish, "never deleted, never repaired");
}

#[test]
fn a_database_that_vanished_beside_its_wal() {
    let dir = TempDir::new().unwrap();
    let mut store = Sqlite::open(dir.path()).unwrap();
    store.commit(&[one_row(1, 1)]).unwrap();
    // As after a kill: the -wal is still there.
    let wal = fs::read(dir.path().join("store.db-wal")).unwrap();
    drop(store);
    fs::write(dir.path().join("store.db-wal"), &wal).unwrap();
    fs::write(dir.path().join(DATABASE), b"").unwrap();
    let error = Sqlite::open(dir.path()).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
    assert_eq!(fs::read(dir.path().join("store.db-wal")).unwrap(), wal);
}

#[test]
fn a_malformed_page_is_told_when_it_is_met() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join(DATABASE);
    let mut store = Sqlite::open(dir.path()).unwrap();
    for pos in 1..=400 {
        store.commit(&[one_row(pos, pos)]).unwrap();
    }
    drop(store);
    let mut bytes = fs::read(&file).unwrap();
    assert!(bytes.len() > 8 * 4096);
    // Every page but the first, so that the file still says that it is ours.
    for page in bytes.chunks_mut(4096).skip(1) {
        page[..64].fill(0xAA);
    }
    fs::write(&file, &bytes).unwrap();
    let error = Sqlite::open(dir.path())
        .and_then(|mut store| {
            store.start()?;
            store.reader()?.load("d1", 0)
        })
        .unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
    in_words(&error, &file);
    assert_eq!(fs::metadata(&file).unwrap().len(), bytes.len() as u64);
}

#[test]
fn a_chain_that_leaves_its_device_is_damage() {
    for wrong in ["prev = 3", "device = 2"] {
        let dir = TempDir::new().unwrap();
        let mut store = Sqlite::open(dir.path()).unwrap();
        for pos in 1..=4 {
            store.commit(&[one_row(pos, pos)]).unwrap();
        }
        store.db.execute_batch(&format!("UPDATE log SET {wrong} WHERE pos = 2")).unwrap();
        let error = store.reader().unwrap().load("d1", 0).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{wrong}: {error:?}");
    }
}

#[test]
fn a_full_disk_fails_in_words_and_the_store_goes_on_when_there_is_space() {
    let dir = TempDir::new().unwrap();
    let mut store = Sqlite::open(dir.path()).unwrap();
    store.commit(&[one_row(1, 1)]).unwrap();
    let pages: u32 = store.db.query_row("PRAGMA page_count", [], |r| r.get(0)).unwrap();
    store.db.pragma_update(None, "max_page_count", pages + 2).unwrap();
    let large = |pos| {
        let row = Row { body: vec![1; 100_000], ..row(pos, 1, 1) };
        batch(pos, vec![device(2, None, true), Op::Append(row)])
    };
    for _ in 0..3 {
        let error = store.commit(&[large(2)]).unwrap_err();
        assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
        in_words(&error, &dir.path().join(DATABASE));
    }
    assert_eq!(store.start().unwrap().wake, Vec::<String>::new(), "nothing of it is kept");
    store.commit(&[one_row(2, 2)]).unwrap();
    store.db.pragma_update(None, "max_page_count", 1_000_000).unwrap();
    store.commit(&[large(3)]).unwrap();
    drop(store);
    let store = Sqlite::open(dir.path()).unwrap();
    let live = store.reader().unwrap().load("d1", 0).unwrap().unwrap().live;
    assert_eq!(live.iter().map(|r| r.pos).collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn another_program_that_holds_the_database_is_told() {
    let dir = TempDir::new().unwrap();
    let mut store = Sqlite::open(dir.path()).unwrap();
    store.db.busy_timeout(Duration::ZERO).unwrap();
    let other = Connection::open(dir.path().join(DATABASE)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = store.commit(&[one_row(1, 1)]).unwrap_err();
    assert!(matches!(error, StoreError::Busy { .. }), "{error:?}");
    in_words(&error, &dir.path().join(DATABASE));
    other.execute_batch("ROLLBACK").unwrap();
    store.commit(&[one_row(1, 1)]).unwrap();
}

#[test]
fn the_settings_that_promise_durability_are_on() {
    let dir = TempDir::new().unwrap();
    let store = Sqlite::open(dir.path()).unwrap();
    let pragma = |name: &str| -> String {
        store
            .db
            .query_row(&format!("PRAGMA {name}"), [], |r| r.get::<_, rusqlite::types::Value>(0))
            .map(|v| format!("{v:?}"))
            .unwrap()
    };
    assert_eq!(pragma("journal_mode"), "Text(\"wal\")");
    assert_eq!(pragma("synchronous"), "Integer(2)");
    assert_eq!(pragma("application_id"), format!("Integer({})", schema::APPLICATION));
    assert_eq!(pragma("user_version"), format!("Integer({})", schema::FORMAT));
}
