//! A state directory as format 1 of the store wrote it. Every later version must open it and find the same in it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use hermes_mobile_store::{Sqlite, Store, files::Files, inspect::Inspector};
use protocol::{
    link::{InFile, User},
    record::{Batch, Body, DeviceState, InBody, InRecord, Mark, MessageRecord, Op, Row},
};

const AT: u64 = 1_796_000_000_000;
const MEDIA: &str = "00112233445566778899aabbccddeeff.txt";
/// More rows than one block holds, after the first five.
const MANY: u64 = 600;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/state-v1")
}

fn row(pos: u64, device: u32, mark: Option<Mark>, body: &str) -> Row {
    let mark = mark.map(|m| m.encode()).unwrap_or_default();
    Row { pos, device, at: AT + pos, mark, body: body.as_bytes().to_vec() }
}

/// The rows, their bodies as they are on disk.
fn rows() -> Vec<Row> {
    let said = |id, content| Some(Mark::In { id, content });
    let mut rows = vec![
        row(
            1,
            1,
            said(11, 12),
            r#"{"r":"in","id":"q-1","user":{"id":"anna","name":"Анна","proven":true},"in":"text","text":"Привет"}"#,
        ),
        row(
            2,
            1,
            Some(Mark::Out { id: 21, content: 22, once: false }),
            r#"{"r":"message","seq":1,"id":"m1","text":"Hello","edit":false,"once":false}"#,
        ),
        row(
            3,
            2,
            said(31, 32),
            r#"{"r":"in","id":"f-1","user":{"id":"desk","proven":false},"in":"file","file":{"kind":"document","file":"00112233445566778899aabbccddeeff.txt","mime":"text/plain","filename":"notes.txt","caption":"notes","bytes":6,"sha256":"5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"}}"#,
        ),
        row(4, 1, None, r#"{"r":"message","seq":2,"id":"m1","text":"Hello!","edit":true,"once":false}"#),
        row(5, 2, Some(Mark::Ended { id: 51, ok: true }), r#"{"r":"delivered","id":"m5","ok":true}"#),
    ];
    for pos in 6..6 + MANY {
        rows.push(row(pos, 2, said(u128::from(pos), pos), r#"{"r":"delivered","id":"","ok":true}"#));
    }
    rows
}

fn state(no: u32) -> &'static str {
    match no {
        1 => {
            r#"{"info":{"id":"phone","name":"Телефон","platform":"android","online":false},"lang":"ru","seq":2,"proven":1,"live_from":2,"done":1}"#
        }
        _ => {
            r#"{"info":{"id":"desk","online":false},"lang":null,"seq":0,"proven":0,"live_from":null,"done":3,"done_above":[]}"#
        }
    }
}

fn device(no: u32, id: &str, wake: bool) -> Op {
    Op::Device { no, id: id.to_owned(), state: state(no).as_bytes().to_vec(), wake }
}

/// Made once, when the format was released: `cargo test -p hermes-mobile-store --test fixture -- --ignored`.
#[test]
#[ignore = "makes the fixture; refuses to overwrite it"]
fn make() {
    let dir = fixture();
    assert!(!dir.exists(), "a released fixture never changes");
    let mut store = Sqlite::open(&dir).unwrap();
    let mut ops = vec![device(1, "phone", true), device(2, "desk", false)];
    ops.extend(rows().into_iter().map(Op::Append));
    store.commit(&[Batch { no: 1, ops, lazy: false }]).unwrap();
    drop(store);
    fs::create_dir(dir.join("media")).unwrap();
    fs::write(dir.join("media").join(MEDIA), "hello\n").unwrap();
    fs::remove_file(dir.join("lock")).unwrap();
}

#[test]
fn the_state_of_format_1_opens() {
    let dir = tempfile::tempdir().unwrap();
    fs::copy(fixture().join("store.db"), dir.path().join("store.db")).unwrap();
    fs::create_dir(dir.path().join("media")).unwrap();
    fs::copy(fixture().join("media").join(MEDIA), dir.path().join("media").join(MEDIA)).unwrap();

    let mut store = Sqlite::open(dir.path()).unwrap();
    let start = store.start().unwrap();
    assert_eq!((start.next_pos, start.next_device, start.wake), (6 + MANY, 3, vec!["phone".to_owned()]));
    assert_eq!((start.epoch.len(), start.secret == [0; 32]), (32, false));

    let mut reader = store.reader().unwrap();
    let all = reader.read(&(1..6 + MANY).collect::<Vec<_>>()).unwrap();
    assert_eq!(all, rows());
    let phone = reader.load("phone", 0).unwrap().unwrap();
    assert_eq!((phone.no, phone.live.iter().map(|r| r.pos).collect::<Vec<_>>()), (1, vec![2, 4]));
    let known = DeviceState::decode(&phone.state).unwrap();
    assert_eq!((known.seq, known.proven, known.live_from, known.done), (2, 1, Some(2), 1));
    assert_eq!((known.info.name.as_deref(), known.lang.as_deref()), (Some("Телефон"), Some("ru")));
    let desk = reader.load("desk", 0).unwrap().unwrap();
    assert_eq!(desk.marks.len() as u64, MANY + 2);
    assert_eq!(reader.load("desk", AT + 6 + MANY - 3).unwrap().unwrap().marks.len(), 3);

    // This version understands what is written there.
    let mark = |at: usize| Mark::decode(&all[at].mark);
    assert_eq!(mark(0), Some(Mark::In { id: 11, content: 12 }));
    assert_eq!(mark(1), Some(Mark::Out { id: 21, content: 22, once: false }));
    assert_eq!(mark(4), Some(Mark::Ended { id: 51, ok: true }));
    let body = |at: usize| Body::decode(&all[at].body).unwrap();
    let anna = User { id: "anna".to_owned(), name: Some("Анна".to_owned()), proven: true };
    let text = InBody::Text { text: "Привет".to_owned() };
    assert_eq!(body(0), Body::In(InRecord { id: "q-1".to_owned(), user: anna, what: text }));
    let Body::Message(MessageRecord { seq: 2, text, edit: true, .. }) = body(3) else { panic!() };
    assert_eq!(text, "Hello!");
    assert_eq!(body(4), Body::Delivered { id: "m5".to_owned(), ok: true });
    let Body::In(InRecord { what: InBody::File { file: InFile { file, bytes, .. } }, .. }) = body(2) else {
        panic!()
    };
    let files = Files::open(dir.path()).unwrap();
    assert_eq!(files.read_at(&file, 0, 100).unwrap(), b"hello\n");
    assert_eq!(bytes, 6);

    // And finds nothing wrong with it.
    let report = Inspector::open(dir.path()).unwrap().check().unwrap();
    assert_eq!((report.rows, report.blocks, report.findings), (5 + MANY, 1, Vec::new()));

    // And goes on with it.
    let more = row(6 + MANY, 1, None, "{}");
    store.commit(&[Batch { no: 1, ops: vec![Op::Append(more)], lazy: false }]).unwrap();
    assert_eq!(reader.load("phone", 0).unwrap().unwrap().live.len(), 3);
}
