use protocol::{base64, link::Said};
use serde_json::{Value, json};

use crate::play::{Play, texts};

fn part(id: &str, data: &[u8], part: u32, parts: u32) -> Value {
    json!({"t": "media", "id": id, "kind": "image", "mime": "image/png", "filename": "dot.png", "caption": "dot",
        "data": base64::encode(data), "part": part, "parts": parts})
}

fn files(play: &mut Play) -> Vec<protocol::link::InFile> {
    play.events()
        .into_iter()
        .filter_map(|event| match event.what {
            Said::Media { media } | Said::Voice { media } => Some(media),
            _ => None,
        })
        .collect()
}

fn start() -> (Play, u64) {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    play.got(conn);
    (play, conn)
}

#[test]
fn a_picture_reaches_the_agent_as_a_file() {
    let (mut play, conn) = start();
    play.say(conn, part("mq-1", b"png", 0, 1));
    let file = files(&mut play).remove(0);
    assert_eq!(
        (file.kind.as_str(), file.filename.as_str(), file.caption.as_deref(), file.bytes),
        ("image", "dot.png", Some("dot"), 3)
    );
    play.say(conn, part("mq-1", b"png", 0, 1));
    assert!(files(&mut play).is_empty(), "the same id and content again");
    assert_eq!(play.disk.files.len(), 1, "the repeated upload is thrown away");
    play.say(conn, part("mq-1", b"other", 0, 1));
    assert_eq!(play.got_of(conn, "error")[0]["code"], "bad_frame");
    play.say(conn, json!({"t": "text", "id": "mq-1", "text": "x"}));
    assert_eq!(play.got_of(conn, "error")[0]["code"], "bad_frame", "one name space for text and media");
}

#[test]
fn parts_come_in_any_order_twice_and_over_a_reconnect() {
    let (mut play, conn) = start();
    play.say(conn, part("m", b"cc", 2, 3));
    play.say(conn, part("m", b"aa", 0, 3));
    play.say(conn, part("m", b"XX", 0, 3));
    let conn = play.hello("a");
    assert!(files(&mut play).is_empty());
    play.say(conn, part("m", b"bb", 1, 3));
    let file = files(&mut play).remove(0);
    assert_eq!(play.disk.files[&file.file], b"aabbcc");
}

#[test]
fn a_file_that_cannot_be_recorded_is_not_left_behind() {
    let (mut play, conn) = start();
    play.hold_commits = true;
    play.say(conn, part("m", b"png", 0, 1));
    assert_eq!(play.disk.files.len(), 1);
    play.fail();
    assert_eq!(play.got_of(conn, "error")[0]["code"], "internal");
    assert!(play.disk.files.is_empty());
}

#[test]
fn what_is_said_after_a_file_comes_after_it() {
    let (mut play, conn) = start();
    play.say(conn, part("m", b"png", 0, 1));
    play.say(conn, json!({"t": "text", "id": "t", "text": "what is this?"}));
    let events = play.events();
    assert_eq!(events.len(), 2);
    assert_eq!(texts(&events)[1], "what is this?");
}

#[test]
fn an_idle_series_is_dropped_and_told() {
    let (mut play, conn) = start();
    play.say(conn, part("m", b"aa", 0, 2));
    play.advance(119_000);
    assert!(play.got(conn).is_empty());
    play.advance(1_000);
    let error = play.got(conn).remove(0);
    assert_eq!((error["code"].as_str(), error["id"].as_str()), (Some("bad_frame"), Some("m")));
    play.say(conn, part("m", b"bb", 1, 2));
    assert!(files(&mut play).is_empty());
}

#[test]
fn a_refused_part_ends_its_series() {
    let (mut play, conn) = start();
    play.say(conn, part("m", b"aa", 0, 2));
    let mut bad = part("m", b"bb", 1, 2);
    bad["data"] = json!("###");
    play.say(conn, bad);
    assert_eq!(play.got(conn)[0]["code"], "bad_frame");
    play.say(conn, part("m", b"bb", 1, 2));
    assert!(files(&mut play).is_empty() && play.got(conn).is_empty(), "ignored until part 0 comes again");
    play.say(conn, part("m", b"aa", 0, 2));
    play.say(conn, part("m", b"bb", 1, 2));
    assert_eq!(files(&mut play).len(), 1);
}

#[test]
fn open_uploads_of_all_devices_are_bounded() {
    let mut play = Play::with(|settings| settings.spool_bytes = 1000);
    let (a, b) = (play.hello("a"), play.hello("b"));
    play.got(b);
    play.say(a, part("m", &[1; 900], 0, 2));
    play.say(b, part("m", &[1; 900], 0, 2));
    assert_eq!(play.got(b)[0]["code"], "too_big");
    play.advance(120_000);
    play.say(b, part("m", &[1; 900], 0, 2));
    assert!(play.got(b).is_empty(), "there is room again");
}

#[test]
fn a_file_of_the_agents_goes_out_in_parts() {
    let (mut play, conn) = start();
    let bytes: Vec<u8> = (0..1_500_000u32).map(|n| (n % 251) as u8).collect();
    let data = base64::encode(&bytes);
    let req = play.call(json!({"op": "media", "key": "k", "device": "a", "kind": "document", "data": data, "filename": "f.bin", "caption": "c"}));
    assert_eq!(play.result(req).unwrap()["state"], "queued");
    let got = play.got_of(conn, "media");
    assert_eq!(got.len(), 3);
    let mut joined = Vec::new();
    for (number, frame) in got.iter().enumerate() {
        assert_eq!(
            (frame["part"].as_u64(), frame["parts"].as_u64(), frame["size"].as_u64()),
            (Some(number as u64), Some(3), Some(1_500_000))
        );
        assert_eq!((&frame["final"], frame.get("seq").is_some()), (&json!(number == 2), number == 2));
        joined.extend(base64::decode(frame["data"].as_str().unwrap(), true, 10_000_000).unwrap());
    }
    assert_eq!(joined, bytes);
    let req = play.call(json!({"op": "media", "key": "k", "device": "a", "kind": "document", "data": data, "filename": "f.bin"}));
    assert_eq!(play.result(req).unwrap()["ok"], json!(true));
    assert!(play.got(conn).is_empty(), "a repeated call sends nothing");
}

#[test]
fn parts_delay_another_frame_by_at_most_one_part() {
    let (mut play, conn) = start();
    play.hold_sockets = true;
    let data = base64::encode(&vec![7; 5_000_000]);
    play.call(json!({"op": "media", "key": "f", "device": "a", "kind": "document", "data": data}));
    assert_eq!(play.got_of(conn, "media").len(), 1);
    play.send("a", "t", "hello");
    play.drain(conn);
    let got = play.got(conn);
    assert_eq!(got[0]["text"], "hello");
    let mut media = got.iter().filter(|frame| frame["t"] == "media").count();
    let mut last = None;
    for _ in 0..20 {
        play.drain(conn);
        let got = play.got(conn);
        media += got.len();
        last = got.last().cloned().or(last);
    }
    let last = last.unwrap();
    assert_eq!(
        (media, &last["final"], last["seq"].as_u64()),
        (7, &json!(true), Some(2)),
        "numbered when its last part is written"
    );
}

#[test]
fn a_file_that_was_cut_comes_again_from_its_beginning() {
    let (mut play, conn) = start();
    play.hold_sockets = true;
    let data = base64::encode(&vec![7; 2_000_000]);
    play.call(json!({"op": "media", "key": "f", "device": "a", "kind": "document", "data": data}));
    let id = play.got(conn)[0]["id"].clone();
    play.cut(conn);
    play.hold_sockets = false;
    let conn = play.hello("a");
    let got = play.got_of(conn, "media");
    assert_eq!(got.iter().map(|frame| frame["part"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(got.iter().all(|frame| frame["id"] == id));
    assert_eq!(got[2]["seq"], json!(1));

    play.hold_sockets = true;
    play.call(json!({"op": "media", "key": "g", "device": "a", "kind": "document", "data": data}));
    let mut play = play.crash();
    let conn = play.hello("a");
    let got = play.got_of(conn, "media");
    assert_eq!(
        got.last().unwrap()["seq"],
        json!(2),
        "also after the gateway was killed in the middle: {}",
        got.len()
    );
}

#[test]
fn field_ten_pictures_arrive_once_each_in_order() {
    let (mut play, conn) = start();
    for number in 0..10u8 {
        let data = base64::encode(&[number; 100]);
        play.call(json!({"op": "media", "key": format!("{number}"), "device": "a", "kind": "image", "data": data, "filename": format!("{number}.png")}));
    }
    play.send("a", "t", "these are all");
    let got = play.got(conn);
    let names: Vec<&str> = got.iter().filter_map(|frame| frame["filename"].as_str()).collect();
    assert_eq!(
        names,
        ["0.png", "1.png", "2.png", "3.png", "4.png", "5.png", "6.png", "7.png", "8.png", "9.png"]
    );
    assert_eq!(got.last().unwrap()["text"], "these are all");
    let seqs: Vec<u64> = got.iter().map(|frame| frame["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=11).collect::<Vec<u64>>());
}

#[test]
fn field_a_file_from_elsewhere_is_refused_and_the_user_is_told() {
    let (mut play, conn) = start();
    let req = play
        .call(json!({"op": "media", "key": "k", "device": "a", "kind": "document", "path": "/etc/shadow"}));
    let result = play.result(req).unwrap();
    assert_eq!((result["code"].as_str(), &result["retryable"]), (Some("refused"), &json!(false)));
    assert!(play.got_of(conn, "message")[0]["text"].as_str().unwrap().contains("shadow"));
}

#[test]
fn a_stored_file_that_cannot_be_read_is_told_and_holds_up_nothing() {
    let (mut play, conn) = start();
    play.refuse_files = true;
    let data = base64::encode(&[1; 100]);
    play.call(json!({"op": "media", "key": "k", "device": "a", "kind": "document", "data": data, "filename": "lost.pdf"}));
    play.send("a", "t", "after");
    let got = play.got_of(conn, "message");
    assert!(got.iter().any(|frame| frame["text"].as_str().unwrap().contains("lost.pdf")));
    assert!(got.iter().any(|frame| frame["text"] == "after"));
}
