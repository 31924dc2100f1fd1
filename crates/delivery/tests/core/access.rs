use delivery::Origin;
use serde_json::json;

use crate::play::{Play, TOKEN};

fn remote() -> Origin {
    Origin { address: "192.0.2.9".into(), ..Origin::default() }
}

fn denied(play: &mut Play, conn: u64, code: &str) {
    let got = play.got(conn);
    let last = got.last().unwrap();
    assert_eq!(
        (last["t"].as_str(), last["code"].as_str(), &last["fatal"]),
        (Some("error"), Some(code), &json!(true))
    );
    assert_eq!(play.closed.get(&conn), Some(&1008));
}

#[test]
fn ready_is_as_the_checklist_shows_it() {
    let mut play = Play::new();
    let conn = play.hello("qa-1");
    let ready = play.got(conn).remove(0);
    assert_eq!(ready["t"], "ready");
    assert_eq!(ready["v"], 1);
    assert_eq!(ready["session"], "mobile:qa-1");
    assert_eq!(ready["device"], json!({"id": "qa-1", "name": "qa-1"}));
    assert_eq!(ready["avatar_url"], "");
    assert_eq!(
        ready["capabilities"],
        json!({"text": true, "voice": true, "typing": true, "avatar_states": ["idle", "thinking", "speaking"],
            "media_in": ["image", "video", "document", "audio"],
            "media_out": ["image", "voice", "video", "document", "animation"],
            "prompts": ["exec_approval", "slash_confirm", "clarify"], "edit": true,
            "max_media_bytes": 8_388_608, "max_text_chars": 12_000})
    );
    assert!(ready.get("features").is_none(), "nothing of Part B is advertised");
    assert_eq!(ready["limits"]["frame_bytes"], 16 * 1024 * 1024);
}

#[test]
fn only_hello_may_be_first_and_it_must_come_in_time() {
    let mut play = Play::new();
    for first in ["{\"t\":\"text\",\"text\":\"hi\"}", "rubbish", "[]", "{\"t\":\"ping\"}"] {
        let conn = play.connect(remote());
        play.raw(conn, first);
        denied(&mut play, conn, "auth_required");
    }
    let conn = play.connect(remote());
    play.raw(conn, "{\"t\":\"hello\",\"token\":5}");
    denied(&mut play, conn, "bad_frame");
    let conn = play.connect(remote());
    play.advance(9_999);
    assert!(!play.closed.contains_key(&conn));
    play.advance(1);
    denied(&mut play, conn, "auth_required");
}

#[test]
fn tokens_and_devices_are_checked_in_order() {
    let mut play = Play::with(|settings| settings.access.allowed = vec!["ok".into(), "bound".into()]);
    for (token, device, code) in [
        ("wrong", "ok", "auth_failed"),
        ("", "ok", "auth_failed"),
        (TOKEN, "stranger", "auth_failed"),
        (TOKEN, "bound", "forbidden"),
        ("bound-token", "ok", "forbidden"),
    ] {
        let conn = play.connect(remote());
        play.say(conn, json!({"t": "hello", "token": token, "device": {"id": device}}));
        denied(&mut play, conn, code);
    }
    for (token, device) in [(TOKEN, "ok"), ("bound-token", "bound")] {
        let conn = play.connect(remote());
        play.say(conn, json!({"t": "hello", "token": token, "device": {"id": device}}));
        assert_eq!(play.got(conn)[0]["t"], "ready");
    }
}

#[test]
fn the_token_of_hello_wins_over_that_of_the_request() {
    let mut play = Play::new();
    let conn = play.connect(Origin { token: Some(TOKEN.into()), ..remote() });
    play.say(conn, json!({"t": "hello", "device": {"id": "a"}}));
    assert_eq!(play.got(conn)[0]["t"], "ready");
    let conn = play.connect(Origin { token: Some(TOKEN.into()), ..remote() });
    play.say(conn, json!({"t": "hello", "token": "wrong", "device": {"id": "a"}}));
    denied(&mut play, conn, "auth_failed");
}

#[test]
fn the_user_of_a_bound_token_is_not_what_hello_says() {
    let mut play = Play::new();
    play.attach("i");
    for (token, device, user, proven) in [(TOKEN, "a", "u", false), ("bound-token", "bound", "bound", true)] {
        let conn = play.connect(remote());
        play.say(
            conn,
            json!({"t": "hello", "token": token, "device": {"id": device}, "user": {"id": "u", "name": "U"}}),
        );
        play.say(conn, json!({"t": "text", "id": "1", "text": "hi"}));
        let event = play.events().remove(0);
        assert_eq!((event.user.id.as_str(), event.user.proven), (user, proven));
    }
}

#[test]
fn field_a_newer_connection_replaces_the_older() {
    let mut play = Play::new();
    let older = play.hello("a");
    play.got(older);
    let newer = play.hello("a");
    let got = play.got(older);
    assert_eq!((got[0]["code"].as_str(), &got[0]["fatal"]), (Some("replaced"), &json!(true)));
    assert_eq!(play.closed.get(&older), Some(&4001));
    assert_eq!(play.got(newer)[0]["t"], "ready");
    play.say(newer, json!({"t": "ping", "ts": 1}));
    assert_eq!(play.got(newer), [json!({"t": "pong", "ts": 1})]);
}

#[test]
fn field_two_clients_that_fight_are_slowed_down() {
    let mut play = Play::new();
    play.hello("a");
    for _ in 0..2 {
        let next = play.hello("a");
        assert_eq!(play.got(next)[0]["t"], "ready", "the first two replacements are free");
    }
    let last = play.hello("a");
    play.say(last, json!({"t": "ping", "ts": "early"}));
    assert!(play.got(last).is_empty(), "held back");
    play.advance(2000);
    let got = play.got(last);
    assert_eq!(got[0]["t"], "ready");
    assert_eq!(got[1], json!({"t": "pong", "ts": "early"}), "what came early is handled after ready");
    play.advance(10_000);
    let next = play.hello("a");
    assert_eq!(play.got(next)[0]["t"], "ready", "forgotten after ten seconds");
    assert!(play.closed.contains_key(&last));
}

#[test]
fn frames_before_ready_are_bounded() {
    let mut play = Play::new();
    for _ in 0..3 {
        play.hello("a");
    }
    let conn = play.hello("a");
    let text = "x".repeat(11_000);
    for number in 0..6 {
        play.say(conn, json!({"t": "text", "id": number.to_string(), "text": text}));
    }
    assert_eq!(play.closed.get(&conn), Some(&1009));
    assert_eq!(play.got(conn)[0]["code"], "too_big");
    play.attach("i");
    play.advance(5_000);
    let req = play.call(json!({"op": "device", "device": "a"}));
    assert_ne!(play.result(req).unwrap()["online"], json!(true), "nobody is connected");
    assert!(play.got(conn).is_empty(), "no ready on a closed connection");
}

#[test]
fn a_second_hello_is_a_bad_frame_and_the_session_lives() {
    let mut play = Play::new();
    let conn = play.hello("a");
    play.got(conn);
    play.say(conn, json!({"t": "hello", "token": TOKEN, "device": {"id": "b"}}));
    let got = play.got(conn);
    assert_eq!((got[0]["code"].as_str(), &got[0]["fatal"]), (Some("bad_frame"), &json!(false)));
    play.say(conn, json!({"t": "ping", "ts": null}));
    assert_eq!(play.got(conn)[0]["t"], "pong");
}

#[test]
fn field_a_lockout_is_checked_before_the_token() {
    let mut play = Play::new();
    for _ in 0..5 {
        let conn = play.connect(remote());
        play.say(conn, json!({"t": "hello", "token": "wrong", "device": {"id": "a"}}));
        denied(&mut play, conn, "auth_failed");
    }
    let conn = play.connect(remote());
    play.say(conn, json!({"t": "hello", "token": TOKEN, "device": {"id": "a"}}));
    let got = play.got(conn);
    assert_eq!((got[0]["code"].as_str(), &got[0]["fatal"]), (Some("rate_limited"), &json!(false)));
    assert!(got[0]["retry_after_ms"].as_u64().unwrap() > 0);
    assert_eq!(play.closed.get(&conn), Some(&1013));
    let other = play.hello("a");
    assert_eq!(play.got(other)[0]["t"], "ready", "another address is untouched");
    let local = play.connect(Origin { loopback: true, ..remote() });
    play.say(local, json!({"t": "hello", "token": TOKEN, "device": {"id": "b"}}));
    assert_eq!(play.got(local)[0]["t"], "ready", "a loopback peer is never locked out");
    play.advance(60_000);
    let conn = play.connect(remote());
    play.say(conn, json!({"t": "hello", "token": TOKEN, "device": {"id": "c"}}));
    assert_eq!(play.got(conn)[0]["t"], "ready");
}

#[test]
fn field_twenty_pieces_of_rubbish_end_a_connection_and_a_good_frame_forgives() {
    let mut play = Play::new();
    let conn = play.hello("a");
    play.got(conn);
    for _ in 0..19 {
        play.raw(conn, "{not json");
    }
    play.say(conn, json!({"t": "ping", "ts": 1}));
    for _ in 0..19 {
        play.raw(conn, "[]");
    }
    assert!(!play.closed.contains_key(&conn));
    assert!(play.got_of(conn, "error").iter().all(|error| error["fatal"] == json!(false)));
    play.raw(conn, "3");
    assert_eq!(play.closed.get(&conn), Some(&1003));
    assert_eq!(play.got(conn).last().unwrap()["fatal"], json!(true));
}

#[test]
fn a_refused_text_is_not_rubbish() {
    let mut play = Play::new();
    let conn = play.hello("a");
    for _ in 0..40 {
        play.say(conn, json!({"t": "text", "id": "z", "text": " "}));
    }
    assert!(!play.closed.contains_key(&conn));
}

#[test]
fn errors_speak_the_persons_language() {
    let mut play = Play::new();
    for (lang, message) in [
        (json!(null), "Пустое сообщение"),
        (json!("ru-RU"), "Пустое сообщение"),
        (json!("en"), "Empty message"),
        (json!("fr"), "Пустое сообщение"),
    ] {
        let conn = play.connect(remote());
        play.say(conn, json!({"t": "hello", "token": TOKEN, "device": {"id": "a"}, "lang": lang}));
        play.say(conn, json!({"t": "text", "id": "z", "text": " "}));
        let got = play.got_of(conn, "error").remove(0);
        assert_eq!((got["message"].as_str(), got["id"].as_str()), (Some(message), Some("z")));
        play.cut(conn);
    }
}

#[test]
fn a_frame_rate_names_the_frame_and_when_to_come_back() {
    let mut play = Play::with(|settings| {
        settings.frames_per_second = 10;
        settings.frames_burst = 3;
    });
    let conn = play.hello("a");
    play.got(conn);
    for number in 0..4 {
        play.say(conn, json!({"t": "text", "id": number.to_string(), "text": "hi"}));
    }
    let errors = play.got_of(conn, "error");
    assert_eq!(errors.len(), 1);
    assert_eq!((errors[0]["code"].as_str(), errors[0]["id"].as_str()), (Some("rate_limited"), Some("3")));
    let wait = errors[0]["retry_after_ms"].as_u64().unwrap();
    play.advance(wait);
    play.say(conn, json!({"t": "text", "id": "3", "text": "hi"}));
    assert!(play.got_of(conn, "error").is_empty(), "a refused id may be tried again");
}

#[test]
fn field_an_over_long_message_is_told_and_closed() {
    let mut play = Play::new();
    let conn = play.hello("a");
    play.got(conn);
    play.input(delivery::Input::TooLong { conn });
    let got = play.got(conn);
    assert_eq!((got[0]["code"].as_str(), &got[0]["fatal"]), (Some("too_big"), &json!(true)));
    assert_eq!(play.closed.get(&conn), Some(&1009));
    let again = play.hello("a");
    assert_eq!(play.got(again)[0]["t"], "ready");
}

#[test]
fn a_drain_closes_with_restart() {
    let mut play = Play::new();
    let conn = play.hello("a");
    play.input(delivery::Input::Drain);
    assert_eq!(play.closed.get(&conn), Some(&1012));
    let late = play.connect(remote());
    assert_eq!(play.closed.get(&late), Some(&1012));
}
