use std::{os::unix::fs::MetadataExt, path::PathBuf};

use protocol::{
    link::InFile,
    record::{Batch, DeviceState, FileRecord, InRecord, Mark, MessageRecord, Op, Row},
    server::OutKind,
    words::Lang,
};

use super::*;
use crate::{Sqlite, Store, files::Files};

const FILE: &str = "00112233445566778899aabbccddeeff.txt";
const AT: u64 = 1_796_000_000_000;

fn text(id: &str) -> Body {
    let what = InBody::Text { text: "some words".to_owned() };
    Body::In(InRecord { id: id.to_owned(), user: protocol::link::User::default(), what })
}

fn reply(seq: u64, id: &str, to: &str) -> Body {
    Body::Message(MessageRecord {
        seq,
        id: id.to_owned(),
        text: "other words".to_owned(),
        reply_to: Some(to.to_owned()),
        edit: false,
        once: false,
    })
}

fn file(file: &str) -> Body {
    Body::File(FileRecord {
        seq: Some(9),
        id: "f9".to_owned(),
        kind: OutKind::Document,
        mime: "text/plain".to_owned(),
        filename: "words.txt".to_owned(),
        caption: None,
        file: file.to_owned(),
        bytes: 6,
        reply_to: None,
        once: false,
    })
}

fn row(pos: u64, device: u32, body: &Body) -> Op {
    let mark = Mark::In { id: u128::from(pos), content: 0 }.encode();
    Op::Append(Row { pos, device, at: AT + pos, mark, body: body.encode() })
}

fn device(no: u32, id: &str) -> Op {
    let state = DeviceState { seq: 9, proven: 1, done: 1, done_above: vec![5], ..DeviceState::default() };
    Op::Device { no, id: id.to_owned(), state: state.encode(), wake: no == 2 }
}

/// A state directory that a gateway holds: two devices, one with more rows than a block, one file.
struct World {
    dir: tempfile::TempDir,
    store: Sqlite,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Sqlite::open(&crate::prepare(&dir.path().join("state")).unwrap()).unwrap();
        Files::open(&dir.path().join("state")).unwrap();
        let mut ops = vec![
            device(1, "phone"),
            device(2, "desk"),
            row(1, 1, &text("q-1")),
            row(2, 1, &reply(1, "m1", "q-1")),
            row(3, 2, &text("q-1")),
            row(4, 1, &file(FILE)),
            row(5, 1, &text("q-2")),
            row(6, 1, &reply(2, "m2", "q-2")),
        ];
        ops.extend((7..7 + 1_100).map(|pos| row(pos, 2, &text(&format!("n{pos}")))));
        store.commit(&[Batch { no: 1, ops, lazy: false }]).unwrap();
        let world = Self { dir, store };
        fs::write(world.state().join("media").join(FILE), "abcdef").unwrap();
        fs::write(world.state().join("token"), "a-token-of-the-owner\n").unwrap();
        world
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    fn inspector(&self) -> Inspector {
        Inspector::open(&self.state()).unwrap()
    }

    fn damage(&self, sql: &str) -> Vec<Finding> {
        assert!(self.store.db.execute(sql, []).unwrap() > 0, "{sql}");
        self.inspector().check().unwrap().findings
    }
}

#[test]
fn a_sound_store_is_found_sound_while_the_gateway_writes() {
    let mut world = World::new();
    let looking = world.inspector();
    let report = looking.check().unwrap();
    assert_eq!(report.findings, []);
    assert_eq!((report.devices, report.rows, report.blocks, report.files), (2, 1_106, 2, 1));
    assert_eq!((report.orphans, report.orphan_bytes, report.more), (0, 0, 0));
    let more = vec![row(2_000, 1, &text("later"))];
    world.store.commit(&[Batch { no: 2, ops: more, lazy: false }]).unwrap();
    let report = looking.check().unwrap();
    assert_eq!((report.rows, report.sound()), (1_107, true));
    // Also after the old end was cut off, in the middle of a block, and with a file that nobody names any more.
    let state = DeviceState { live_from: Some(650), ..DeviceState::default() };
    let held = Op::Device { no: 2, id: "desk".to_owned(), state: state.encode(), wake: true };
    world.store.commit(&[Batch { no: 3, ops: vec![held], lazy: false }]).unwrap();
    assert_eq!(world.store.trim(AT + 700, 2_000).unwrap().len(), 649);
    let report = looking.check().unwrap();
    assert_eq!(report.findings, []);
    assert_eq!((report.rows, report.files, report.orphans, report.orphan_bytes), (458, 0, 1, 6));
}

#[test]
fn every_damage_is_found_and_named() {
    let cases: [(&str, Finding); 12] = [
        ("DELETE FROM meta WHERE key = 'epoch'", Finding::Meta("epoch")),
        ("UPDATE device SET state = x'7b' WHERE no = 1", Finding::State(1)),
        ("UPDATE log SET prev = 1 WHERE pos = 5", Finding::Chain { device: 1, pos: 5 }),
        ("UPDATE log SET device = 7 WHERE pos = 6", Finding::Stray(6)),
        ("DELETE FROM log WHERE pos = 5", Finding::Chain { device: 1, pos: 6 }),
        ("UPDATE device SET head = 5 WHERE no = 1", Finding::End(1)),
        ("UPDATE device SET tail = 3 WHERE no = 1", Finding::End(1)),
        ("UPDATE block SET rows = x'ff' WHERE last = (SELECT min(last) FROM block)", Finding::Block(517)),
        ("UPDATE log SET at = 5 WHERE pos = 20", Finding::Block(517)),
        ("UPDATE log SET body = x'7b' WHERE pos = 600", Finding::Record(600)),
        ("UPDATE log SET mark = x'63' WHERE pos = 1106", Finding::Mark(1106)),
        (
            "UPDATE log SET body = replace(CAST(body AS TEXT), '\"bytes\":6', '\"bytes\":7') WHERE pos = 4",
            Finding::FileSize { pos: 4, file: FILE.to_owned() },
        ),
    ];
    for (sql, expected) in cases {
        let found = World::new().damage(sql);
        assert!(found.contains(&expected), "{sql}: {found:?}");
        for lang in [Lang::En, Lang::Ru] {
            assert!(!expected.text(lang).contains("words"));
        }
    }
}

#[test]
fn files_that_are_missing_or_of_another_size_are_found() {
    let world = World::new();
    let path = world.state().join("media").join(FILE);
    fs::write(&path, "abc").unwrap();
    assert_eq!(
        world.inspector().check().unwrap().findings,
        [Finding::FileSize { pos: 4, file: FILE.to_owned() }]
    );
    fs::remove_file(path).unwrap();
    assert_eq!(
        world.inspector().check().unwrap().findings,
        [Finding::NoFile { pos: 4, file: FILE.to_owned() }]
    );
}

#[test]
fn a_page_that_was_written_over_is_found() {
    let World { dir, store } = World::new();
    drop(store);
    let path = dir.path().join("state").join(dir::DATABASE);
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..middle + 4096].fill(0x5a);
    fs::write(&path, bytes).unwrap();
    // SQLite notices it in its own check, or cannot go on reading.
    match Inspector::open(&dir.path().join("state")).unwrap().check() {
        Ok(report) => {
            assert!(report.findings.iter().any(|f| matches!(f, Finding::Database(_))), "{report:?}")
        }
        Err(e) => assert!(matches!(e, StoreError::Damaged { .. }), "{e}"),
    }
}

#[test]
fn it_is_counted_what_is_stored() {
    let world = World::new();
    let stats = world.inspector().stats().unwrap();
    assert_eq!((stats.devices, stats.unfinished), (2, 1));
    let count = |kind| stats.rows.get(&kind).map_or(0, |rows| rows.count);
    assert_eq!((count(Kind::Text), count(Kind::Message), count(Kind::FileOut)), (1_103, 2, 1));
    assert_eq!(count(Kind::Unreadable), 0);
    assert_eq!((stats.oldest, stats.newest), (Some(AT + 1), Some(AT + 1_106)));
    assert_eq!((stats.files, stats.file_bytes), (1, 6));
    assert!(stats.wal_bytes > 0 && stats.rows.values().map(|rows| rows.bytes).sum::<u64>() > 1_000);
}

#[test]
fn a_backup_of_a_living_store_opens_and_holds_the_same() {
    let mut world = World::new();
    let to = world.dir.path().join("copy");
    let copied = world.inspector().backup(&to).unwrap();
    assert_eq!((copied.rows, copied.files, copied.missing, copied.token), (1_106, 1, 0, true));
    let mode = |path: PathBuf| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(to.clone()), mode(to.join("media"))), (0o700, 0o700));
    assert_eq!((mode(to.join(dir::DATABASE)), mode(to.join("token"))), (0o600, 0o600));
    assert_eq!(fs::read(to.join("media").join(FILE)).unwrap(), b"abcdef");
    let names: Vec<_> = fs::read_dir(world.dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "nothing else is left: {names:?}");

    // The original goes on, and the copy is another store from now on.
    world.store.commit(&[Batch { no: 2, ops: vec![row(2_000, 1, &text("later"))], lazy: false }]).unwrap();
    let mut copy = Sqlite::open(&to).unwrap();
    assert_eq!(copy.start().unwrap(), crate::Start { next_pos: 1_107, ..world.store.start().unwrap() });
    let load = |store: &Sqlite, id: &str| store.reader().unwrap().load(id, 0).unwrap().unwrap();
    assert_eq!(load(&copy, "desk"), load(&world.store, "desk"));
    copy.commit(&[Batch { no: 1, ops: vec![row(1_107, 1, &text("other"))], lazy: false }]).unwrap();
    assert_eq!(Inspector::open(&to).unwrap().check().unwrap().findings, []);
}

#[test]
fn a_backup_is_of_one_moment_however_much_is_written_meanwhile() {
    let World { dir, mut store } = World::new();
    let state = dir.path().join("state");
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let writer = std::thread::spawn(move || {
        // Two rows a commit, one for each device: a copy that has only one of them is torn.
        let mut pos = 2_000;
        while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            let ops = vec![row(pos, 1, &text("a")), row(pos + 1, 2, &text("b"))];
            store.commit(&[Batch { no: pos, ops, lazy: false }]).unwrap();
            pos += 2;
        }
        (store, pos)
    });
    let looking = Inspector::open(&state).unwrap();
    let mut sizes = Vec::new();
    while sizes.len() < 3 {
        let to = dir.path().join(format!("copy-{}", sizes.len()));
        let rows = looking.backup(&to).unwrap().rows;
        let report = Inspector::open(&to).unwrap().check().unwrap();
        assert_eq!((report.findings, report.rows), (Vec::new(), rows));
        assert_eq!((rows - 1_106) % 2, 0, "torn");
        assert!(looking.check().unwrap().sound());
        // The next copy is of a later moment.
        while looking.number("SELECT count(*) FROM log").unwrap() == rows {
            std::thread::yield_now();
        }
        sizes.push(rows);
    }
    assert!(sizes.is_sorted_by(|a, b| a < b), "{sizes:?}");
    drop(stop);
    let (store, pos) = writer.join().unwrap();
    assert_eq!(store.last, pos - 1, "the writer was never held up for good");
}

#[test]
fn a_backup_goes_to_a_free_place_or_nowhere() {
    let world = World::new();
    let taken = world.dir.path().join("taken");
    fs::create_dir(&taken).unwrap();
    fs::write(taken.join("x"), "y").unwrap();
    let file = world.dir.path().join("file");
    fs::write(&file, "y").unwrap();
    for place in [&taken, &file] {
        assert!(matches!(world.inspector().backup(place), Err(StoreError::Exists { .. })));
    }
    let nowhere = world.dir.path().join("no/such");
    assert!(matches!(world.inspector().backup(&nowhere), Err(StoreError::Io { .. })));
    fs::remove_file(taken.join("x")).unwrap();
    assert!(world.inspector().backup(&taken).is_ok(), "an empty directory is free");
    let parts = fs::read_dir(world.dir.path()).unwrap();
    assert!(parts.map(|e| e.unwrap().file_name()).all(|n| !n.to_string_lossy().contains(".part")));
    // A file that is gone is counted, and stops nothing.
    fs::remove_file(world.state().join("media").join(FILE)).unwrap();
    let copied = world.inspector().backup(&world.dir.path().join("third")).unwrap();
    assert_eq!((copied.files, copied.missing), (0, 1));
}

#[test]
fn the_stations_of_a_message_are_found_by_every_id_and_hold_no_words() {
    let world = World::new();
    let looking = world.inspector();
    let both = looking.trace("q-1", None).unwrap();
    let devices: Vec<&str> = both.iter().map(|t| t.device.as_str()).collect();
    assert_eq!(devices, ["phone", "desk"], "two devices used the same id");
    let [phone] = looking.trace("q-1", Some("phone")).unwrap().try_into().unwrap();
    assert_eq!(phone, both[0]);
    let [said, reply] = phone.stations.try_into().unwrap();
    assert_eq!((said.pos, said.at, said.event), (1, AT + 1, Event::Accepted { done: true }));
    assert_eq!((reply.id.as_str(), reply.seq, reply.proven), ("m1", Some(1), Some(true)));

    let [second] = looking.trace("q-2", None).unwrap().try_into().unwrap();
    assert_eq!(second.stations[0].event, Event::Accepted { done: true }, "done out of order");
    assert_eq!(second.stations[1].proven, Some(false));
    let waiting = looking.trace("n20", None).unwrap();
    assert_eq!(waiting[0].stations[0].event, Event::Accepted { done: false });
    let by_message = looking.trace("m2", None).unwrap();
    assert_eq!(by_message[0].stations, second.stations[1..]);
    assert_eq!(looking.trace("f9", None).unwrap()[0].stations[0].event, Event::File);
    for nothing in ["some words", "words", "q-", "", "m"] {
        assert_eq!(looking.trace(nothing, None).unwrap(), [], "{nothing:?}");
    }
    assert_eq!(looking.trace("q-1", Some("nobody")).unwrap(), []);
    assert!(!format!("{both:?}").contains("words"));
}

#[test]
fn what_is_no_store_is_said_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    for (path, make) in [("gone", false), ("empty", true)] {
        let path = dir.path().join(path);
        if make {
            fs::create_dir(&path).unwrap();
        }
        assert!(matches!(Inspector::open(&path), Err(StoreError::Missing { .. })));
        assert_eq!(path.exists(), make);
    }
    let empty = dir.path().join("empty");
    assert_eq!(fs::read_dir(&empty).unwrap().count(), 0, "nothing was made");
    fs::write(empty.join(dir::DATABASE), "not a database, but long enough to be looked at".repeat(50))
        .unwrap();
    assert!(matches!(Inspector::open(&empty), Err(StoreError::Damaged { .. })));
    let foreign = dir.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    let db = rusqlite::Connection::open(foreign.join(dir::DATABASE)).unwrap();
    db.execute_batch("PRAGMA application_id = 5; CREATE TABLE x(y)").unwrap();
    assert!(matches!(Inspector::open(&foreign), Err(StoreError::NotOurs { .. })));
}

#[test]
fn a_file_from_a_device_counts_as_named() {
    let mut world = World::new();
    let name = "ffeeddccbbaa99887766554433221100.bin";
    fs::write(world.state().join("media").join(name), "12345").unwrap();
    assert_eq!(world.inspector().check().unwrap().orphans, 1);
    let file = InFile {
        kind: "document".to_owned(),
        file: name.to_owned(),
        path: None,
        mime: "application/octet-stream".to_owned(),
        filename: "words.bin".to_owned(),
        caption: None,
        bytes: 5,
        sha256: String::new(),
        duration_ms: None,
    };
    let user = protocol::link::User::default();
    let body = Body::In(InRecord { id: "up".to_owned(), user, what: InBody::File { file } });
    world.store.commit(&[Batch { no: 2, ops: vec![row(2_000, 1, &body)], lazy: false }]).unwrap();
    let report = world.inspector().check().unwrap();
    assert_eq!((report.sound(), report.files, report.orphans), (true, 2, 0));
}
