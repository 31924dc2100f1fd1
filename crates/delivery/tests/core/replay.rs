use serde_json::json;

use crate::{play::Play, streams::draw};

#[test]
fn field_what_is_not_proven_is_sent_again_as_a_redraw() {
    let mut play = Play::new();
    play.pongs = false;
    play.attach("i");
    let conn = play.hello("a");
    let long = "word ".repeat(1000);
    let one = play.send("a", "1", "one");
    let two = play.send("a", "2", &long);
    play.cut(conn);
    let three = play.send("a", "3", "three");
    let conn = play.hello("a");
    let got = play.got_of(conn, "message");
    assert_eq!(draw(&got), [(one, "one".into(), true), (two, long, true), (three, "three".into(), true)]);
    assert!(got.iter().all(|frame| frame["edit"] == json!(true) && frame["chunk"]["total"] == json!(1)));
    let seqs: Vec<u64> = got.iter().map(|frame| frame["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, [1, 2, 3]);
}

#[test]
fn field_a_pong_proves_what_came_before_and_only_that() {
    let mut play = Play::new();
    play.pongs = false;
    play.attach("i");
    let conn = play.hello("a");
    play.send("a", "1", "one");
    assert_eq!(play.pings.len(), 1, "a ping right after the first item");
    let two = play.send("a", "2", "two");
    assert_eq!(play.pings.len(), 1, "one in flight");
    let (_, nonce) = play.pings[0];
    play.input(delivery::Input::Pong { conn, nonce: nonce + 1000 });
    play.input(delivery::Input::Pong { conn, nonce });
    assert_eq!(play.pings.len(), 1, "at most one a second");
    play.advance(1000);
    assert_eq!(play.pings.len(), 2);
    play.cut(conn);
    let mut play = play.crash();
    let conn = play.hello("a");
    let drawn = draw(&play.got(conn));
    // The cursor may be written a little later than the pong; what is sent again is a redraw.
    assert!(drawn.contains(&(two, "two".into(), true)));
    let again = play.hello("a");
    assert!(draw(&play.got(again)).is_empty(), "proven by the pong");
}

#[test]
fn field_a_reply_that_is_ready_while_the_phone_is_away_comes_at_the_next_connect() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    play.say(conn, json!({"t": "text", "id": "1", "text": "long work"}));
    play.cut(conn);
    play.advance(75 * 60_000);
    let id = play.send("a", "k", "done");
    let mut play = play.crash();
    let conn = play.hello("a");
    assert_eq!(draw(&play.got(conn)), [(id, "done".into(), true)]);
}

#[test]
fn field_seq_rises_over_connections_and_restarts() {
    let mut play = Play::new();
    let mut seqs = Vec::new();
    for round in 0..4 {
        play.attach(&format!("i{round}"));
        let conn = play.hello("a");
        play.send("a", &format!("{round}"), "x");
        seqs.extend(play.got_of(conn, "message").iter().map(|frame| frame["seq"].as_u64().unwrap()));
        play = play.crash();
    }
    let mut sorted = seqs.clone();
    sorted.sort_unstable();
    assert_eq!(seqs, sorted);
    assert!(seqs.len() >= 4);
}

#[test]
fn a_replay_sends_the_latest_state_of_a_message_only() {
    let mut play = Play::new();
    play.attach("i");
    let first = play.hello("a");
    play.cut(first);
    let id = play.send("a", "k", "draft");
    let other = play.send("a", "l", "other");
    play.call(json!({"op": "edit", "device": "a", "message_id": id, "text": "final", "final": true}));
    let conn = play.hello("a");
    assert_eq!(draw(&play.got(conn)), [(other, "other".into(), true), (id, "final".into(), true)]);
}

#[test]
fn field_live_frames_wait_until_the_replay_is_done() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    play.cut(conn);
    for number in 0..60 {
        play.send("a", &number.to_string(), &format!("{number} {}", "x".repeat(20_000)));
    }
    play.hold_sockets = true;
    let conn = play.hello("a");
    play.send("a", "live", "live");
    play.say(conn, json!({"t": "ping", "ts": 1}));
    let mut got = play.got(conn);
    assert!(got.iter().any(|frame| frame["t"] == "pong"), "an answer passes");
    assert!(!got.iter().any(|frame| frame["text"] == "live"));
    for _ in 0..60 {
        play.drain(conn);
        got.extend(play.got(conn));
    }
    let drawn = draw(&got);
    assert_eq!(drawn.len(), 61);
    assert_eq!(drawn[60].1, "live");
    let seqs: Vec<u64> = got.iter().filter_map(|frame| frame["seq"].as_u64()).collect();
    assert!(seqs.windows(2).all(|pair| pair[0] < pair[1]), "{seqs:?}");
}

#[test]
fn field_an_item_on_which_a_client_gives_up_three_times_is_set_aside() {
    let mut play = Play::new();
    play.pongs = false;
    play.attach("i");
    let conn = play.hello("a");
    play.cut(conn);
    let poison = play.send("a", "1", "poison");
    let good = play.send("a", "2", "good");
    for round in 0..3 {
        let conn = play.hello("a");
        let drawn = draw(&play.got(conn));
        assert!(drawn.iter().any(|(id, ..)| *id == poison), "round {round}");
        let cut = play.hello("b");
        play.cut(cut);
        play.cut_by_client(conn, 1009);
    }
    let conn = play.hello("a");
    let drawn = draw(&play.got(conn));
    assert!(!drawn.iter().any(|(id, ..)| *id == poison));
    assert_eq!(drawn.len(), 2, "the other one and a short notice");
    assert_eq!(drawn[0].0, good);
}

#[test]
fn a_changed_feature_list_keeps_the_cursor_and_unknown_features_are_ignored() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    play.send("a", "1", "one");
    play.got(conn);
    let conn = play.connect(delivery::Origin::default());
    play.say(
        conn,
        json!({"t": "hello", "token": crate::play::TOKEN, "device": {"id": "a"}, "features": ["ack", "x"], "resume": {"epoch": "e", "seq": 0}}),
    );
    let got = play.got(conn);
    assert_eq!(got.len(), 1, "proven items do not come again: {got:?}");
    assert!(got[0].get("features").is_none());
}
