//! The SQLite store on a machine that loses power at every sync and between them, runs out of space, or fails a sync.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver},
    },
    thread,
};

use hermes_mobile_powercut::{Cut, Image, Machine, Vfs};
use protocol::record::{Batch, DeviceNo, DeviceState, Loaded, Op, Pos, Row};
use rusqlite::{Connection, OpenFlags};
use store::{Memory, Options, Sqlite, Start, Store, StoreError};

const DB: &str = "/state/store.db";
const DEVICES: DeviceNo = 3;

fn open(vfs: &Vfs, sync: bool) -> Result<Sqlite, StoreError> {
    // Checkpoints come every few commits.
    let options = Options { vfs: Some(vfs.name().to_owned()), sync, checkpoint_pages: 12 };
    Sqlite::open_with(Path::new(DB), options)
}

/// One thing that the store is asked.
enum Step {
    Commit(Vec<Batch>),
    Trim(u64),
}

fn row(pos: Pos, device: DeviceNo, bytes: usize) -> Op {
    let body = (0..bytes).map(|i| (pos as usize * 31 + i) as u8).collect();
    Op::Append(Row { pos, device, at: pos, mark: pos.to_le_bytes().to_vec(), body })
}

fn state(no: DeviceNo, seq: u64, live_from: Option<Pos>) -> Op {
    let state = DeviceState { seq, live_from, ..DeviceState::default() }.encode();
    Op::Device { no, id: format!("d{no}"), state, wake: seq % 2 == 1 }
}

/// Commits of several batches of several rows, small and large, a full block among them, and trims.
fn workload() -> Vec<Step> {
    let mut steps = Vec::new();
    let (mut pos, mut no) = (0, 0);
    for round in 0..24u64 {
        let mut batches = Vec::new();
        for b in 0..=round % 3 {
            no += 1;
            let device = 1 + ((round + b) % u64::from(DEVICES)) as DeviceNo;
            let mut ops = vec![state(device, no, Some(pos + 1))];
            let rows = if (round, b) == (10, 0) { 530 } else { 1 + (round + b) % 4 };
            for r in 0..rows {
                pos += 1;
                let bytes = if rows > 500 { 10 } else { [20, 700, 40, 5000][((pos + r) % 4) as usize] };
                ops.push(row(pos, device, bytes));
            }
            batches.push(Batch { no, ops, lazy: false });
        }
        steps.push(Step::Commit(batches));
        if round % 8 == 7 {
            steps.push(Step::Trim(pos / 2));
        }
    }
    steps
}

fn apply(step: &Step, store: &mut dyn Store) -> Result<(), StoreError> {
    match step {
        Step::Commit(batches) => store.commit(batches),
        Step::Trim(before) => store.trim(*before, 60).map(|_| ()),
    }
}

/// Everything that can be asked of a store.
#[derive(Debug, PartialEq)]
struct Dump {
    next_pos: Pos,
    wake: Vec<String>,
    devices: Vec<Option<Loaded>>,
    rows: Vec<Row>,
}

fn dump(store: &mut dyn Store) -> Result<(Dump, Start), StoreError> {
    let start = store.start()?;
    let mut reader = store.reader()?;
    let devices = (1..=DEVICES).map(|no| reader.load(&format!("d{no}"), 0)).collect::<Result<_, _>>()?;
    // A store that lost its syncs may name any position.
    let end = start.next_pos.min(10_000) + 20;
    let rows = reader.read(&(1..end).collect::<Vec<_>>())?;
    Ok((Dump { next_pos: start.next_pos, wake: start.wake.clone(), devices, rows }, start))
}

/// What the store must hold after so many acknowledgements: 1 is the open store, then one for each step.
fn expected() -> Vec<Dump> {
    let mut memory = Memory::new("m", [0; 32]);
    let empty = || dump(&mut Memory::new("m", [0; 32])).unwrap().0;
    let mut dumps = vec![empty(), empty()];
    for step in workload() {
        apply(&step, &mut memory).unwrap();
        dumps.push(dump(&mut memory).unwrap().0);
    }
    dumps
}

/// What is wrong with what a power cut left.
fn wrong(
    image: &Image,
    acknowledged: u64,
    expected: &[Dump],
    epoch: Option<&str>,
    go_on: bool,
) -> Option<String> {
    let machine = Machine::from_image(image);
    let vfs = Vfs::register(&machine);
    let look = || -> Result<(), String> {
        let mut store = open(&vfs, true).map_err(|e| format!("it cannot be opened: {e}"))?;
        let (found, start) = dump(&mut store).map_err(|e| format!("it cannot be read: {e}"))?;
        let acknowledged = acknowledged as usize;
        let whole = [acknowledged, acknowledged + 1];
        if !whole.iter().any(|n| expected.get(*n).is_some_and(|e| *e == found)) {
            return Err(match expected.iter().position(|e| *e == found) {
                Some(older) => {
                    format!("it lost what was acknowledged: it is that of {older}, not {acknowledged}")
                }
                None => "a batch is half there".to_owned(),
            });
        }
        if acknowledged > 0 && epoch.is_some_and(|e| e != start.epoch) {
            return Err("it is another store".to_owned());
        }
        let check = Connection::open_with_flags_and_vfs(DB, OpenFlags::SQLITE_OPEN_READ_WRITE, vfs.name())
            .and_then(|db| db.query_row("PRAGMA integrity_check", [], |r| r.get::<_, String>(0)));
        if check.as_deref() != Ok("ok") {
            return Err(format!("integrity: {check:?}"));
        }
        if !go_on {
            return Ok(());
        }
        // It goes on, and keeps that too.
        let more = [state(1, 1001, None), row(start.next_pos, 1, 100)];
        let more = Batch { no: 1, ops: more.to_vec(), lazy: false };
        store.commit(&[more]).map_err(|e| format!("it cannot go on: {e}"))?;
        drop(store);
        let mut store = open(&vfs, true).map_err(|e| format!("it cannot be opened again: {e}"))?;
        let (again, _) = dump(&mut store).map_err(|e| e.to_string())?;
        let kept = again.rows.len() == found.rows.len() + 1 && again.next_pos == found.next_pos + 1;
        if kept { Ok(()) } else { Err("it lost what came after the cut".to_owned()) }
    };
    look().err()
}

/// Looks at cuts on threads of their own, while the machine runs on.
struct Judges {
    threads: Vec<thread::JoinHandle<(usize, Vec<String>)>>,
}

impl Judges {
    fn start(machine: &Machine) -> (Self, Arc<Mutex<Option<String>>>) {
        let (send, cuts) = mpsc::sync_channel::<Cut>(64);
        let cuts = Arc::new(Mutex::new(cuts));
        let expected = Arc::new(expected());
        let epoch = Arc::new(Mutex::new(None::<String>));
        machine.watch(move |cut| send.send(cut).unwrap());
        let threads = (0..2)
            .map(|_| {
                let (cuts, expected, epoch) = (Arc::clone(&cuts), Arc::clone(&expected), Arc::clone(&epoch));
                thread::spawn(move || judge(&cuts, &expected, &epoch))
            })
            .collect();
        (Self { threads }, epoch)
    }

    /// How many cuts there were, and what was wrong.
    fn end(self, machine: &Machine) -> (usize, Vec<String>) {
        machine.unwatch();
        let mut all = (0, Vec::new());
        for thread in self.threads {
            let (looked, wrong) = thread.join().unwrap();
            all.0 += looked;
            all.1.extend(wrong);
        }
        all
    }
}

fn judge(
    cuts: &Mutex<Receiver<Cut>>,
    expected: &[Dump],
    epoch: &Mutex<Option<String>>,
) -> (usize, Vec<String>) {
    let (mut looked, mut all) = (0, Vec::new());
    loop {
        let next = cuts.lock().unwrap().recv();
        let Ok(cut) = next else { return (looked, all) };
        looked += 1;
        // What is broken is broken in most of the cuts that follow.
        if all.len() > 20 {
            continue;
        }
        let epoch = epoch.lock().unwrap().clone();
        if let Some(why) = wrong(&cut.image, cut.acknowledged, expected, epoch.as_deref(), cut.no % 3 == 0) {
            all.push(format!("cut {} ({}, seed {}): {why}", cut.no, cut.during, cut.seed));
        }
    }
}

/// Runs the workload under watch; `fault` may break the machine first.
fn run(sync: bool, fault: impl Fn(&Machine)) -> (usize, Vec<String>) {
    let machine = Machine::default();
    fault(&machine);
    machine.put_empty(Path::new(DB));
    let vfs = Vfs::register(&machine);
    let (judges, epoch) = Judges::start(&machine);
    let mut store = open(&vfs, sync).unwrap();
    *epoch.lock().unwrap() = Some(store.start().unwrap().epoch);
    machine.acknowledge(1);
    // A reader beside the writer: the WAL index is shared, checkpoints meet a snapshot.
    let mut reader = store.reader().unwrap();
    for (i, step) in workload().iter().enumerate() {
        apply(step, &mut store).unwrap();
        machine.acknowledge(2 + i as u64);
        reader.load("d1", 0).unwrap();
    }
    drop(reader);
    drop(store);
    judges.end(&machine)
}

#[test]
fn what_was_acknowledged_outlives_a_cut_at_every_sync_and_between() {
    let (looked, wrong) = run(true, |_| {});
    assert!(looked > 500, "only {looked} cuts");
    assert!(wrong.is_empty(), "{} of {looked} cuts: {:#?}", wrong.len(), wrong.get(..wrong.len().min(5)));
    println!("{looked} cuts");
}

#[test]
fn without_syncs_the_same_test_finds_the_loss() {
    let lost = |wrong: &[String]| wrong.iter().any(|w| w.contains("lost what was acknowledged"));
    let (_, wrong) = run(false, |_| {});
    assert!(lost(&wrong), "synchronous=OFF: {wrong:?}");
    let (_, wrong) = run(true, Machine::ignore_file_syncs);
    assert!(!wrong.is_empty(), "files that are not synced");
    let (_, wrong) = run(true, Machine::ignore_dir_syncs);
    assert!(!wrong.is_empty(), "a -wal whose name is not synced");
}

#[test]
fn a_full_disk_at_any_byte_loses_nothing_and_the_store_goes_on() {
    let expected = expected();
    let mut failures = 0;
    for room in (0..400_000).step_by(15_001) {
        let machine = Machine::default();
        machine.put_empty(Path::new(DB));
        let vfs = Vfs::register(&machine);
        let mut store = open(&vfs, true).unwrap();
        machine.set_room(Some(room));
        for (i, step) in workload().iter().enumerate() {
            if let Err(error) = apply(step, &mut store) {
                failures += 1;
                assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
                machine.set_room(None);
                assert_eq!(dump(&mut store).unwrap().0, expected[1 + i], "nothing of it is kept");
                apply(step, &mut store).unwrap();
            }
            let image = machine.image(0);
            if i % 6 == 0 {
                assert_eq!(wrong(&image, 2 + i as u64, &expected, None, true), None, "room {room}, step {i}");
            }
        }
        assert_eq!(dump(&mut store).unwrap().0, *expected.last().unwrap());
    }
    assert!(failures > 12, "only {failures} runs met the full disk");
}

#[test]
fn a_sync_that_fails_loses_nothing_that_was_acknowledged() {
    let expected = expected();
    let mut failures = 0;
    for n in 0..60 {
        let machine = Machine::default();
        machine.put_empty(Path::new(DB));
        let vfs = Vfs::register(&machine);
        let mut store = open(&vfs, true).unwrap();
        machine.fail_sync_after(n);
        for (i, step) in workload().iter().enumerate() {
            if apply(step, &mut store).is_err() {
                failures += 1;
                assert_eq!(dump(&mut store).unwrap().0, expected[1 + i], "nothing of it is kept");
                apply(step, &mut store).unwrap();
            }
        }
        let steps = workload().len() as u64;
        assert_eq!(wrong(&machine.image(0), 1 + steps, &expected, None, true), None, "sync {n}");
    }
    assert!(failures > 15, "only {failures} commits met the failing sync");
}
