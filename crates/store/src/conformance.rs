//! One suite for every backend. A case panics when a backend breaks a rule of [`Store`] or [`Reader`].
#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests, also when another crate runs them")]

use std::collections::BTreeMap;

use protocol::{
    Millis,
    record::{Batch, DeviceNo, DeviceState, Loaded, Op, Pos, Row},
};

use crate::{Store, StoreError};

/// Opens the store of one place, again and again; what was committed is still there.
pub type Open = Box<dyn Fn() -> Box<dyn Store>>;

/// Runs every case, each on a new place.
///
/// # Panics
/// When the backend breaks a rule.
pub fn run(place: impl Fn() -> Open) {
    for (name, case) in CASES {
        println!("conformance: {name}");
        case(&place());
    }
}

type Case = fn(&Open);

const CASES: &[(&str, Case)] = &[
    ("a new store is empty and has a name and a secret", new_store),
    ("epoch and secret stay over a reopen", same_life),
    ("rows come back in order, each on its device", order),
    ("a failed group leaves nothing, and the store goes on", all_or_nothing),
    ("rules on positions, devices and ids", rules),
    ("steps of a batch in any order", any_order),
    ("the last state of a group stands", last_state),
    ("horizons of a load", horizons),
    ("a clock that jumps hides nothing", clock),
    ("many rows, through blocks", many_rows),
    ("the wake list", wake),
    ("trim removes the old end, in steps", trim),
    ("trim keeps what a waking device needs", trim_floor),
    ("trim through blocks", trim_blocks),
    ("positions are never used again", positions),
    ("an unknown device", unknown_device),
    ("large bodies", large),
    ("readers see what is committed, while they are open", readers),
    ("everything is there after a reopen", reopen),
];

/// An encoded state.
#[must_use]
pub fn state(live_from: Option<Pos>, seq: u64) -> Vec<u8> {
    DeviceState { live_from, seq, ..DeviceState::default() }.encode()
}

/// A step that sets a device's state.
#[must_use]
pub fn device(no: DeviceNo, live_from: Option<Pos>, wake: bool) -> Op {
    Op::Device { no, id: format!("d{no}"), state: state(live_from, 0), wake }
}

/// A row whose mark and body tell its position.
#[must_use]
pub fn row(pos: Pos, device: DeviceNo, at: Millis) -> Row {
    Row {
        pos,
        device,
        at,
        mark: format!("mark {pos}").into_bytes(),
        body: format!("body {pos}").into_bytes(),
    }
}

/// A batch.
#[must_use]
pub fn batch(no: u64, ops: Vec<Op>) -> Batch {
    Batch { no, ops, lazy: false }
}

fn append(pos: Pos, device: DeviceNo, at: Millis) -> Op {
    Op::Append(row(pos, device, at))
}

fn load(store: &dyn Store, id: &str, since: Millis) -> Loaded {
    store.reader().unwrap().load(id, since).unwrap().unwrap()
}

fn marked(loaded: &Loaded) -> Vec<Pos> {
    for (pos, _, mark) in &loaded.marks {
        assert_eq!(mark, &row(*pos, 0, 0).mark);
    }
    loaded.marks.iter().map(|(pos, ..)| *pos).collect()
}

fn live(loaded: &Loaded) -> Vec<Pos> {
    for live in &loaded.live {
        assert_eq!(live, &row(live.pos, loaded.no, live.at));
    }
    loaded.live.iter().map(|r| r.pos).collect()
}

fn new_store(open: &Open) {
    let start = open().start().unwrap();
    assert_eq!((start.next_pos, start.next_device, start.wake.len()), (1, 1, 0));
    assert!(!start.epoch.is_empty());
    assert_ne!(start.secret, [0; 32]);
}

fn same_life(open: &Open) {
    let first = open().start().unwrap();
    assert_eq!(open().start().unwrap(), first);
}

fn order(open: &Open) {
    let mut store = open();
    let ops = vec![device(1, Some(1), false), device(2, Some(1), false), append(1, 1, 10), append(2, 2, 11)];
    store.commit(&[batch(1, ops), batch(2, vec![append(3, 1, 12)])]).unwrap();
    store.commit(&[batch(3, vec![append(5, 1, 13), append(9, 2, 14)])]).unwrap();
    let one = load(&*store, "d1", 0);
    assert_eq!((one.no, marked(&one), live(&one)), (1, vec![5, 3, 1], vec![1, 3, 5]));
    assert_eq!(one.marks.iter().map(|(_, at, _)| *at).collect::<Vec<_>>(), [13, 12, 10]);
    assert_eq!(one.state, state(Some(1), 0));
    let two = load(&*store, "d2", 0);
    assert_eq!((two.no, marked(&two), live(&two)), (2, vec![9, 2], vec![2, 9]));
    let rows = store.reader().unwrap().read(&[9, 4, 1, 3, 100]).unwrap();
    assert_eq!(rows, [row(9, 2, 14), row(1, 1, 10), row(3, 1, 12)]);
}

fn all_or_nothing(open: &Open) {
    let mut store = open();
    store.commit(&[batch(1, vec![device(1, Some(1), false), append(1, 1, 1)])]).unwrap();
    let good = batch(2, vec![append(2, 1, 2), device(1, None, true), device(2, None, true)]);
    let bad = batch(3, vec![append(3, 1, 2), append(4, 99, 2)]);
    assert!(matches!(store.commit(&[good.clone(), bad]), Err(StoreError::Invalid(_))));
    assert_eq!(live(&load(&*store, "d1", 0)), [1], "neither the bad batch nor its company");
    let start = store.start().unwrap();
    assert_eq!((start.next_pos, start.next_device, start.wake.len()), (2, 2, 0));
    store.commit(&[good]).unwrap();
    assert_eq!(marked(&load(&*store, "d1", 0)), [2, 1]);
    assert_eq!(store.start().unwrap().wake, ["d1", "d2"]);
}

fn rules(open: &Open) {
    let mut store = open();
    store.commit(&[batch(1, vec![device(1, None, false), append(5, 1, 1)])]).unwrap();
    let renamed = Op::Device { no: 1, id: "other".to_owned(), state: state(None, 0), wake: false };
    let renumbered = Op::Device { no: 2, id: "d1".to_owned(), state: state(None, 0), wake: false };
    for (what, ops) in [
        ("the same position", vec![append(5, 1, 1)]),
        ("a lower position", vec![append(4, 1, 1)]),
        ("falling positions", vec![append(7, 1, 1), append(6, 1, 1)]),
        ("a position that SQLite cannot hold", vec![append(Pos::MAX, 1, 1)]),
        ("a row of nobody", vec![append(6, 2, 1)]),
        ("another id", vec![renamed.clone()]),
        (
            "another id in the same batch",
            vec![
                device(3, None, false),
                Op::Device { no: 3, id: "d4".to_owned(), state: state(None, 0), wake: false },
            ],
        ),
        ("another number", vec![renumbered]),
    ] {
        let done = store.commit(&[batch(2, ops)]);
        assert!(matches!(done, Err(StoreError::Invalid(_))), "{what}: {done:?}");
    }
    store.commit(&[batch(3, vec![append(6, 1, 1)])]).unwrap();
}

fn any_order(open: &Open) {
    let mut store = open();
    store.commit(&[batch(1, vec![append(1, 1, 1), device(1, Some(1), false), append(2, 1, 1)])]).unwrap();
    assert_eq!(live(&load(&*store, "d1", 0)), [1, 2]);
    store.commit(&[]).unwrap();
    store.commit(&[batch(2, vec![])]).unwrap();
}

fn last_state(open: &Open) {
    let mut store = open();
    let set = |seq, wake| Op::Device { no: 1, id: "d1".to_owned(), state: state(None, seq), wake };
    store.commit(&[batch(1, vec![set(1, true)]), batch(2, vec![set(2, true), set(3, false)])]).unwrap();
    assert_eq!(load(&*store, "d1", 0).state, state(None, 3));
    assert_eq!(store.start().unwrap().wake, Vec::<String>::new());
    // Rows alone leave the state as it is.
    store.commit(&[batch(3, vec![append(1, 1, 1)])]).unwrap();
    assert_eq!(load(&*store, "d1", 0).state, state(None, 3));
}

fn horizons(open: &Open) {
    let mut store = open();
    let mut ops = vec![device(1, Some(4), false)];
    for pos in 1..=6 {
        ops.push(append(pos, 1, pos * 10));
    }
    let empty = Row { mark: Vec::new(), ..row(7, 1, 70) };
    ops.push(Op::Append(empty.clone()));
    store.commit(&[batch(1, ops)]).unwrap();
    let reader = &mut store.reader().unwrap();
    let mut positions = |since| {
        let loaded = reader.load("d1", since).unwrap().unwrap();
        (marked(&loaded), loaded.live.iter().map(|r| r.pos).collect::<Vec<_>>())
    };
    let live = vec![4, 5, 6, 7];
    assert_eq!(positions(30), (vec![6, 5, 4, 3], live.clone()), "the horizon itself is within");
    assert_eq!(positions(31), (vec![6, 5, 4], live.clone()));
    assert_eq!(positions(55), (vec![6], live.clone()), "the two horizons are independent");
    assert_eq!(positions(1000), (vec![], live));
    assert_eq!(reader.read(&[7]).unwrap(), [empty], "a row without a mark is a row like others");
    store.commit(&[batch(2, vec![device(1, None, false)])]).unwrap();
    assert_eq!(load(&*store, "d1", 0).live, []);
}

fn clock(open: &Open) {
    let mut store = open();
    store.commit(&[batch(1, vec![device(1, None, false)])]).unwrap();
    // A host without a clock starts in 1970, and later knows better; one row lies in the future.
    let at = |pos: Pos| match pos {
        1..=600 => 1_000_000,
        601..=1300 => 5,
        1301 => u64::from(u32::MAX) * 1000,
        _ => 1_000_100,
    };
    let ops: Vec<Op> = (1..=1400).map(|pos| append(pos, 1, at(pos))).collect();
    for ops in ops.chunks(70) {
        store.commit(&[batch(2, ops.to_vec())]).unwrap();
    }
    let expected: Vec<Pos> = (1..=1400).rev().filter(|pos| at(*pos) >= 1_000_000).collect();
    assert_eq!(marked(&load(&*store, "d1", 1_000_000)), expected);
}

/// Two devices whose rows are mixed, some without a mark; 1,300 and 700 rows.
fn fill(store: &mut dyn Store, live_from: Option<Pos>) {
    let ops = vec![device(1, live_from, false), device(2, None, false)];
    store.commit(&[batch(1, ops)]).unwrap();
    let ops: Vec<Op> = (1..=2000).map(|pos| append(pos, owner(pos), pos)).collect();
    for (i, ops) in ops.chunks(37).enumerate() {
        store.commit(&[batch(2 + i as u64, ops.to_vec())]).unwrap();
    }
}

fn owner(pos: Pos) -> DeviceNo {
    if pos % 20 < 13 { 1 } else { 2 }
}

fn rows_of(no: DeviceNo, from: Pos) -> Vec<Pos> {
    (from..=2000).filter(|pos| owner(*pos) == no).collect()
}

fn reversed(mut rows: Vec<Pos>) -> Vec<Pos> {
    rows.reverse();
    rows
}

fn many_rows(open: &Open) {
    let mut store = open();
    fill(&mut *store, Some(300));
    drop(store);
    let mut store = open();
    for since in [0, 1, 299, 300, 301, 800, 1500, 1999, 2000, 2001] {
        let loaded = load(&*store, "d1", since);
        assert_eq!(marked(&loaded), reversed(rows_of(1, since.max(1))), "since {since}");
        assert_eq!(live(&loaded), rows_of(1, 300), "since {since}");
        assert_eq!(marked(&load(&*store, "d2", since)), reversed(rows_of(2, since.max(1))), "since {since}");
    }
    // The chain goes on after a reopen.
    store.commit(&[batch(1, vec![append(2001, 2, 2001), device(1, Some(1990), false)])]).unwrap();
    let mut expected = vec![2001];
    expected.extend(reversed(rows_of(2, 1)));
    assert_eq!(marked(&load(&*store, "d2", 0)), expected);
    assert_eq!(live(&load(&*store, "d1", 5000)), rows_of(1, 1990));
}

fn wake(open: &Open) {
    let mut store = open();
    let ops = (1..=4).map(|no| device(no, None, no % 2 == 0)).collect();
    store.commit(&[batch(1, ops)]).unwrap();
    assert_eq!(store.start().unwrap().wake, ["d2", "d4"]);
    store.commit(&[batch(2, vec![device(2, None, false), device(3, None, true)])]).unwrap();
    drop(store);
    let start = open().start().unwrap();
    assert_eq!((start.wake, start.next_device), (vec!["d3".to_owned(), "d4".to_owned()], 5));
}

fn trim(open: &Open) {
    let mut store = open();
    let mut ops = vec![device(1, Some(1), false), device(2, None, false)];
    for pos in 1..=10 {
        ops.push(append(pos, 1 + (pos % 2) as DeviceNo, pos * 10));
    }
    store.commit(&[batch(1, ops)]).unwrap();
    assert_eq!(store.trim(10, 100).unwrap(), [], "the horizon itself is kept");
    let first = store.trim(55, 3).unwrap();
    assert_eq!(first, [row(1, 2, 10), row(2, 1, 20), row(3, 2, 30)]);
    let second = store.trim(55, 3).unwrap();
    assert_eq!(second.iter().map(|r| r.pos).collect::<Vec<_>>(), [4, 5]);
    assert_eq!(store.trim(55, 3).unwrap(), []);
    let loaded = load(&*store, "d1", 0);
    assert_eq!((marked(&loaded), live(&loaded)), (vec![10, 8, 6], vec![6, 8, 10]));
    assert_eq!(store.reader().unwrap().read(&[5, 6]).unwrap().len(), 1);
    // A younger row in front holds the rest back.
    store.commit(&[batch(2, vec![append(11, 1, 1)])]).unwrap();
    assert_eq!(store.trim(55, 100).unwrap(), []);
}

fn trim_floor(open: &Open) {
    let mut store = open();
    let ops = vec![
        device(1, Some(4), true),
        device(2, Some(2), false),
        device(3, None, true),
        append(1, 1, 1),
        append(2, 2, 1),
        append(3, 3, 1),
        append(4, 1, 1),
        append(5, 3, 1),
    ];
    store.commit(&[batch(1, ops)]).unwrap();
    let gone: Vec<Pos> = store.trim(100, 100).unwrap().iter().map(|r| r.pos).collect();
    assert_eq!(gone, [1, 2, 3]);
    assert_eq!(live(&load(&*store, "d1", 0)), [4]);
    assert_eq!(load(&*store, "d2", 0).live, [], "what is gone is left out");
    store.commit(&[batch(2, vec![device(1, Some(4), false)])]).unwrap();
    assert_eq!(store.trim(100, 100).unwrap().len(), 2, "it does not wake any more");
}

fn trim_blocks(open: &Open) {
    let mut store = open();
    fill(&mut *store, Some(1));
    let mut gone = 0;
    // Ends inside a block of either device.
    loop {
        let rows = store.trim(1201, 97).unwrap();
        if rows.is_empty() {
            break;
        }
        for removed in rows {
            gone += 1;
            assert_eq!(removed, row(gone, owner(gone), gone));
        }
    }
    assert_eq!(gone, 1200);
    drop(store);
    let mut store = open();
    for no in [1, 2] {
        let loaded = load(&*store, &format!("d{no}"), 0);
        assert_eq!(marked(&loaded), reversed(rows_of(no, 1201)), "device {no}");
    }
    assert_eq!(live(&load(&*store, "d1", 5000)), rows_of(1, 1201));
    // All of it goes, and the devices begin new chains.
    while !store.trim(10_000, 500).unwrap().is_empty() {}
    assert_eq!(marked(&load(&*store, "d1", 0)), Vec::<Pos>::new());
    let ops: Vec<Op> = (2001..=3100).map(|pos| append(pos, 1, pos)).collect();
    store.commit(&[batch(1, ops)]).unwrap();
    assert_eq!(marked(&load(&*store, "d1", 0)), (2001..=3100).rev().collect::<Vec<_>>());
}

fn positions(open: &Open) {
    let mut store = open();
    store.commit(&[batch(1, vec![device(7, None, false), append(41, 7, 1)])]).unwrap();
    assert_eq!(store.start().unwrap().next_pos, 42);
    assert_eq!(store.trim(100, 100).unwrap().len(), 1);
    drop(store);
    let mut store = open();
    let start = store.start().unwrap();
    assert_eq!((start.next_pos, start.next_device), (42, 8));
    assert!(matches!(store.commit(&[batch(2, vec![append(41, 7, 1)])]), Err(StoreError::Invalid(_))));
    store.commit(&[batch(3, vec![append(42, 7, 1)])]).unwrap();
    assert_eq!(marked(&load(&*store, "d7", 0)), [42]);
}

fn unknown_device(open: &Open) {
    let mut store = open();
    let mut reader = store.reader().unwrap();
    assert_eq!(reader.load("d1", 0).unwrap(), None);
    store.commit(&[batch(1, vec![device(1, None, false)])]).unwrap();
    for id in ["", "D1", "d", "d1 ", "d%", "1", "d1\0x"] {
        assert_eq!(reader.load(id, 0).unwrap(), None, "{id:?}");
    }
    let loaded = reader.load("d1", 0).unwrap().unwrap();
    assert_eq!((loaded.marks.len(), loaded.live.len()), (0, 0));
    assert_eq!(reader.read(&[1]).unwrap(), []);
    assert_eq!(reader.read(&[]).unwrap(), []);
    // Ids are told apart to the byte.
    let awkward = ["a:b", "a%b", "a", "a\u{301}", "\u{e1}", "А", "A"];
    let ops = awkward.iter().zip(10..).map(|(id, no)| Op::Device {
        no,
        id: (*id).to_owned(),
        state: state(None, u64::from(no)),
        wake: false,
    });
    store.commit(&[batch(2, ops.collect())]).unwrap();
    for (id, no) in awkward.iter().zip(10..) {
        assert_eq!(reader.load(id, 0).unwrap().unwrap().no, no, "{id:?}");
    }
}

fn large(open: &Open) {
    let mut store = open();
    let body: Vec<u8> = (0..1024 * 1024u32).map(|i| (i % 251) as u8).collect();
    let mut ops = vec![device(1, Some(1), false)];
    for pos in 1..=3 {
        ops.push(Op::Append(Row { body: body.clone(), ..row(pos, 1, pos) }));
    }
    ops.push(Op::Append(Row { body: Vec::new(), mark: vec![0; 5000], ..row(4, 1, 4) }));
    store.commit(&[batch(1, ops)]).unwrap();
    drop(store);
    let store = open();
    let loaded = load(&*store, "d1", 0);
    assert_eq!(loaded.live.len(), 4);
    assert!(loaded.live.iter().take(3).all(|r| r.body == body));
    assert_eq!(loaded.marks.first().unwrap().2, vec![0; 5000]);
}

fn readers(open: &Open) {
    let mut store = open();
    let (mut early, mut other) = (store.reader().unwrap(), store.reader().unwrap());
    let mut state = BTreeMap::new();
    for pos in 1..=20u64 {
        let no = 1 + (pos % 3) as DeviceNo;
        let bad = batch(pos, vec![device(no, Some(1), false), append(pos, no, pos), append(pos, no, pos)]);
        assert!(store.commit(&[bad]).is_err());
        for reader in [&mut early, &mut other] {
            assert_eq!(reader.read(&[pos]).unwrap(), [], "what failed is not seen");
        }
        store.commit(&[batch(pos, vec![device(no, Some(1), false), append(pos, no, pos)])]).unwrap();
        let rows: &mut Vec<Pos> = state.entry(no).or_default();
        rows.push(pos);
        for reader in [&mut early, &mut other] {
            assert_eq!(live(&reader.load(&format!("d{no}"), 0).unwrap().unwrap()), *rows);
        }
    }
}

fn reopen(open: &Open) {
    let mut before = 0;
    for round in 0..5u64 {
        let mut store = open();
        let start = store.start().unwrap();
        assert_eq!(start.next_pos, before + 1);
        for step in 0..3 {
            before += 1;
            store
                .commit(&[batch(step, vec![device(1, Some(1), round % 2 == 0), append(before, 1, before)])])
                .unwrap();
        }
        let loaded = load(&*store, "d1", 0);
        assert_eq!(live(&loaded), (1..=before).collect::<Vec<_>>());
    }
    let start = open().start().unwrap();
    assert_eq!((start.next_pos, start.wake), (16, vec!["d1".to_owned()]));
}
