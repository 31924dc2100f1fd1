use serde_json::{Value, json};

use crate::play::Play;

/// Draws messages as a client does: by id, an edit replaces, a chunk appends.
pub(crate) fn draw(frames: &[Value]) -> Vec<(String, String, bool)> {
    let mut bubbles: Vec<(String, String, bool)> = Vec::new();
    for frame in frames.iter().filter(|frame| frame["t"] == "message") {
        let id = frame["id"].as_str().unwrap();
        let text = frame["text"].as_str().unwrap();
        let last = frame["final"] == json!(true);
        let redraw = frame["edit"] == json!(true) || frame["chunk"]["index"] == json!(0);
        match bubbles.iter_mut().find(|(known, ..)| known == id) {
            Some(bubble) if redraw => *bubble = (id.into(), text.into(), last),
            Some(bubble) => {
                bubble.1.push_str(text);
                bubble.2 = last;
            }
            None => bubbles.push((id.into(), text.into(), last)),
        }
    }
    bubbles
}

#[test]
fn a_message_is_on_disk_before_its_last_frame() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    play.got(conn);
    play.hold_commits = true;
    let req = play.call(json!({"op": "send", "key": "k", "device": "a", "text": "hello"}));
    assert!(play.got(conn).is_empty());
    assert!(play.result(req).is_none(), "no result before it is stored");
    play.commit();
    let got = play.got(conn);
    assert_eq!(got.len(), 1);
    assert_eq!(
        (
            got[0]["text"].as_str(),
            &got[0]["chunk"],
            &got[0]["final"],
            got[0]["seq"].as_u64(),
            got[0].get("edit")
        ),
        (Some("hello"), &json!({"index": 0, "total": 1}), &json!(true), Some(1), None)
    );
    assert_eq!(play.result(req).unwrap()["state"], "queued");
}

#[test]
fn a_long_message_goes_out_in_chunks_that_join() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    play.got(conn);
    let text: String = (0..3000).map(|number| format!("word{number} ")).collect();
    let id = play.send("a", "k", &text);
    let got = play.got(conn);
    let total = got.len() as u64;
    assert!(total > 5);
    for (index, frame) in got.iter().enumerate() {
        assert_eq!(frame["id"], json!(id));
        assert_eq!(frame["chunk"], json!({"index": index, "total": total}));
        assert_eq!(frame["final"], json!(index as u64 + 1 == total));
        assert_eq!(frame.get("seq").is_some(), index as u64 + 1 == total);
    }
    assert_eq!(draw(&got), [(id, text, true)]);
}

#[test]
fn field_a_repeated_send_makes_no_second_bubble() {
    let mut play = Play::new();
    play.pongs = false;
    play.attach("i");
    play.hello("a");
    let id = play.send("a", "k", "hello");
    assert_eq!(play.send("a", "k", "hello"), id);
    let mut play = play.crash();
    play.attach("i");
    assert_eq!(play.send("a", "k", "hello"), id, "also after a restart");
    let conn = play.hello("a");
    assert_eq!(draw(&play.got(conn)).len(), 1);
    assert_ne!(play.send("a", "another", "hello"), id);
}

#[test]
fn a_streamed_reply_is_one_bubble() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    play.got(conn);
    let req = play.call(json!({"op": "send", "key": "k", "device": "a", "text": "one", "final": false}));
    let id = play.result(req).unwrap()["message_id"].as_str().unwrap().to_owned();
    let mut text = "one".to_owned();
    for number in 0..200 {
        text.push_str(&format!(" word{number}"));
        play.call(json!({"op": "edit", "device": "a", "message_id": id, "text": text, "final": false}));
        play.advance(20);
    }
    play.call(json!({"op": "edit", "device": "a", "message_id": id, "text": text, "final": true}));
    play.advance(5000);
    let got: Vec<Value> = play.got_of(conn, "message");
    assert!(got.len() > 5, "it streams: {}", got.len());
    assert!(got.iter().all(|frame| frame["id"] == json!(id) && frame["edit"] == json!(true)));
    assert!(got.iter().all(|frame| frame["chunk"] == json!({"index": 0, "total": 1})));
    let finals = got.iter().filter(|frame| frame["final"] == json!(true)).count();
    assert_eq!((finals, got.last().unwrap()["final"].clone()), (1, json!(true)));
    assert!(got[..got.len() - 1].iter().all(|frame| frame.get("seq").is_none()));
    let bytes: usize = got.iter().map(|frame| frame["text"].as_str().unwrap().len()).sum();
    assert!(bytes <= 8 * text.len(), "{bytes} bytes for {}", text.len());
    assert_eq!(draw(&got), [(id, text, true)]);
}

#[test]
fn field_a_final_edit_twice_is_shown_once_and_a_later_edit_redraws() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    let id = play.send("a", "k", "hello");
    play.got(conn);
    for text in ["hello", "hello!", "hello!"] {
        let req =
            play.call(json!({"op": "edit", "device": "a", "message_id": id, "text": text, "final": true}));
        assert_eq!(play.result(req).unwrap()["ok"], json!(true));
    }
    let got = play.got(conn);
    assert_eq!(got.len(), 1);
    assert_eq!(
        (&got[0]["edit"], &got[0]["final"], got[0]["text"].as_str(), got[0]["seq"].as_u64()),
        (&json!(true), &json!(true), Some("hello!"), Some(2))
    );
    let req =
        play.call(json!({"op": "edit", "device": "a", "message_id": "no-such", "text": "x", "final": true}));
    assert_eq!(play.result(req).unwrap()["code"], "not_found");
}

#[test]
fn field_a_cut_in_the_middle_of_a_stream_goes_on_in_the_same_bubble() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    let req = play.call(json!({"op": "send", "key": "k", "device": "a", "text": "one", "final": false}));
    let id = play.result(req).unwrap()["message_id"].as_str().unwrap().to_owned();
    let mut all = play.got(conn);
    play.cut(conn);
    play.call(json!({"op": "edit", "device": "a", "message_id": id, "text": "one two", "final": false}));
    play.advance(1000);
    let conn = play.hello("a");
    let present = play.got(conn);
    assert_eq!(draw(&present), [(id.clone(), "one two".into(), false)], "the whole present text after ready");
    all.extend(present);
    play.call(json!({"op": "edit", "device": "a", "message_id": id, "text": "one two three", "final": true}));
    all.extend(play.got(conn));
    assert_eq!(draw(&all), [(id, "one two three".into(), true)]);
}

#[test]
fn field_no_bubble_stays_open_when_the_agent_dies() {
    for (how, wait) in [("ended", 0), ("lost", 60_000), ("failed", 0), ("another", 0)] {
        let mut play = Play::new();
        play.attach("i");
        let conn = play.hello("a");
        play.call(json!({"op": "turn", "device": "a", "state": "on"}));
        play.call(json!({"op": "send", "key": "k", "device": "a", "text": "half", "final": false}));
        match how {
            "ended" => play.detach(true),
            "lost" => play.detach(false),
            "failed" => {
                play.call(json!({"op": "turn", "device": "a", "state": "failed"}));
            }
            _ => play.attach("another"),
        }
        play.advance(wait);
        let bubbles = draw(&play.got(conn));
        assert_eq!(bubbles.len(), 1, "{how}");
        assert_eq!((bubbles[0].1.as_str(), bubbles[0].2), ("half", true), "{how}");
    }
}

#[test]
fn a_bubble_survives_a_crash_and_the_same_key_goes_on_in_it() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    let req = play.call(json!({"op": "send", "key": "k", "device": "a", "text": "one", "final": false}));
    let id = play.result(req).unwrap()["message_id"].as_str().unwrap().to_owned();
    play.call(json!({"op": "edit", "device": "a", "message_id": id, "text": "one two", "final": false}));
    play.advance(1500);
    let first = play.got(conn);
    let mut play = play.crash();
    play.attach_as("i", true);
    let conn = play.hello("a");
    let req = play.call(json!({"op": "send", "key": "k", "device": "a", "text": "one", "final": false}));
    assert_eq!(play.result(req).unwrap()["message_id"], json!(id));
    play.call(json!({"op": "edit", "device": "a", "message_id": id, "text": "one two three", "final": true}));
    let mut all = first;
    all.extend(play.got(conn));
    assert_eq!(draw(&all), [(id, "one two three".into(), true)]);
}

#[test]
fn another_life_of_the_agent_goes_on_with_the_reply_that_was_begun() {
    for last in [true, false] {
        let mut play = Play::new();
        play.attach_as("i", true);
        let conn = play.hello("a");
        let begun = json!({"op": "send", "key": "k", "device": "a", "text": "first half", "final": false});
        let req = play.call(begun.clone());
        let id = play.result(req).unwrap()["message_id"].as_str().unwrap().to_owned();
        play.detach(false);
        play.attach_as("i", true);
        let again = json!({"op": "send", "key": "k", "device": "a", "text": "second", "final": last});
        let req = play.call(again.clone());
        assert_eq!(play.result(req).unwrap()["message_id"], json!(id));
        // A repeat of either changes nothing.
        for call in [again, begun] {
            let req = play.call(call);
            assert_eq!(play.result(req).unwrap()["message_id"], json!(id));
        }
        play.advance(59_000);
        let got = play.got(conn);
        assert_eq!(draw(&got), [(id, "second".into(), last)], "what the new life says counts");
    }
}

#[test]
fn one_id_holds_700_000_bytes_and_the_rest_goes_on_under_a_new_one() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    play.got(conn);
    let text = "слово ".repeat(80_000); // 880,000 bytes
    play.send("a", "k", &text);
    let bubbles = draw(&play.got(conn));
    assert_eq!(bubbles.len(), 2);
    assert!(bubbles.iter().all(|(_, text, last)| *last && text.len() <= 700_000));
    assert_eq!(bubbles.iter().map(|(_, text, _)| text.as_str()).collect::<String>(), text);

    let req = play.call(json!({"op": "send", "key": "s", "device": "a", "text": "a", "final": false}));
    let id = play.result(req).unwrap()["message_id"].as_str().unwrap().to_owned();
    for part in 1..=4 {
        let so_far = &text[..text.len() / 4 / 2 * 2 * part];
        play.call(json!({"op": "edit", "device": "a", "message_id": id, "text": so_far, "final": part == 4}));
        play.advance(1000);
    }
    let bubbles = draw(&play.got(conn));
    assert_eq!(bubbles.iter().map(|(_, text, _)| text.as_str()).collect::<String>(), text);
    assert!(bubbles.len() == 2 && bubbles[0].0 == id && bubbles.iter().all(|(_, _, last)| *last));

    let huge = "x".repeat(1024 * 1024 + 1);
    let req = play.call(json!({"op": "send", "key": "h", "device": "a", "text": huge}));
    assert_eq!(play.result(req).unwrap()["code"], "too_big");
}

#[test]
fn field_a_device_that_reads_nothing_is_cut_and_keeps_its_items() {
    let mut play = Play::with(|settings| settings.queue_bytes = 1_000_000);
    play.attach("i");
    let conn = play.hello("a");
    let other = play.hello("b");
    play.hold_sockets = true;
    play.got(other);
    for number in 0..200 {
        play.send("a", &number.to_string(), &"x".repeat(20_000));
        play.send("b", &number.to_string(), "y");
    }
    assert_eq!(play.closed.get(&conn), Some(&1013));
    assert_eq!(play.got_of(other, "message").len(), 200, "nobody else is delayed");
    play.hold_sockets = false;
    let conn = play.hello("a");
    assert_eq!(draw(&play.got(conn)).len(), 200, "the stored items wait for the reconnect");
}

#[test]
fn field_a_slow_device_gets_the_newest_edit_only() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    play.hold_sockets = true;
    let first = "x".repeat(300_000);
    let req = play.call(json!({"op": "send", "key": "k", "device": "a", "text": first, "final": false}));
    let id = play.result(req).unwrap()["message_id"].as_str().unwrap().to_owned();
    for number in 0..50 {
        play.advance(200);
        let text = format!("{first}{}", "y".repeat(number * 3000));
        play.call(json!({"op": "edit", "device": "a", "message_id": id, "text": text, "final": false}));
    }
    assert_eq!(play.got_of(conn, "message").len(), 1, "the socket takes nothing");
    play.drain(conn);
    play.advance(200);
    let got = play.got_of(conn, "message");
    assert_eq!(got.len(), 1);
    assert_eq!(got[0]["text"].as_str().unwrap().len(), 300_000 + 49 * 3000);
}

#[test]
fn a_bubble_that_waits_for_the_disk_wants_no_tick() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    play.got(conn);
    play.hold_commits = true;
    play.call(json!({"op": "send", "key": "k", "device": "a", "text": "so", "final": false}));
    // Each tick must change something, or the hub would run in circles until the commit.
    play.advance(500);
    assert!(play.got_of(conn, "message").is_empty());
    play.commit();
    assert_eq!(play.got_of(conn, "message").len(), 1);
}

#[test]
fn a_bubble_that_nobody_goes_on_with_after_a_restart_is_closed() {
    let mut play = Play::new();
    play.attach("i");
    play.hello("a");
    play.call(json!({"op": "send", "key": "k", "device": "a", "text": "so", "final": false}));
    play.hold_commits = true;
    // The failure of the turn is lost; the agent, which lives on, has said it.
    play.call(json!({"op": "turn", "device": "a", "state": "failed"}));
    let mut play = play.crash();
    play.attach("i");
    let conn = play.hello("a");
    assert_eq!(play.got_of(conn, "message")[0]["final"], json!(false));
    play.advance(60_000);
    let got = play.got_of(conn, "message");
    assert_eq!((got.len(), got[0]["final"].clone(), got[0]["text"].as_str()), (1, json!(true), Some("so")));
}
