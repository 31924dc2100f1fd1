use delivery::Origin;
use serde_json::{Value, json};

use crate::play::{Play, TOKEN};

fn sender(play: &mut Play) -> u64 {
    let conn = play.connect(Origin { loopback: true, address: "127.0.0.1".into(), token: None });
    play.say(conn, json!({"t": "hello", "token": TOKEN}));
    assert_eq!(play.got(conn)[0]["t"], "ready");
    conn
}

fn deliver(play: &mut Play, conn: u64, id: &str, target: &str, text: &str, more: Value) -> Vec<Value> {
    let mut frame = json!({"t": "deliver", "id": id, "target": target, "text": text});
    frame.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    play.say(conn, frame);
    play.got(conn)
}

#[test]
fn field_deliver_is_done_when_the_devices_stack_has_it() {
    let mut play = Play::new();
    play.pongs = false;
    let phone = play.hello("qa-1");
    play.got(phone);
    let conn = sender(&mut play);
    assert!(deliver(&mut play, conn, "x", "qa-1", "hi", json!({})).is_empty(), "not proven yet");
    assert_eq!(play.got_of(phone, "message")[0]["text"], "hi");
    let (of, nonce) = play.pings.pop().unwrap();
    play.input(delivery::Input::Pong { conn: of, nonce });
    assert_eq!(
        play.got(conn),
        [json!({"t": "deliver_done", "id": "x", "target": "qa-1", "state": "delivered"})]
    );
    assert_eq!(
        deliver(&mut play, conn, "x", "qa-1", "hi", json!({}))[0]["state"],
        "delivered",
        "the first outcome again"
    );
    assert!(play.got_of(phone, "message").is_empty(), "nothing is shown twice");
    assert_eq!(deliver(&mut play, conn, "x", "qa-1", "other", json!({}))[0]["code"], "bad_frame");
    let mut play = play.crash();
    let conn = sender(&mut play);
    assert_eq!(
        deliver(&mut play, conn, "x", "qa-1", "hi", json!({}))[0]["state"],
        "delivered",
        "also after a restart"
    );
}

#[test]
fn field_an_offline_device_is_told_at_once_and_nothing_is_replayed() {
    let mut play = Play::new();
    let phone = play.hello("qa-1");
    play.cut(phone);
    let conn = sender(&mut play);
    for target in ["qa-1", "never-seen"] {
        let got = deliver(&mut play, conn, "x", target, "hi", json!({}));
        assert_eq!((got[0]["code"].as_str(), got[0]["id"].as_str()), (Some("device_offline"), Some("x")));
    }
    let phone = play.hello("qa-1");
    assert!(play.got_of(phone, "message").is_empty());
    assert_eq!(
        deliver(&mut play, conn, "x", "qa-1", "hi", json!({}))[0]["state"],
        "delivered",
        "offline is not remembered"
    );
}

#[test]
fn field_what_is_not_proven_in_time_is_offline_and_never_replayed() {
    let mut play = Play::new();
    play.pongs = false;
    let phone = play.hello("qa-1");
    let conn = sender(&mut play);
    deliver(&mut play, conn, "x", "qa-1", "hi", json!({}));
    play.advance(10_000);
    assert_eq!(play.got(conn)[0]["code"], "device_offline");
    play.cut(phone);
    let phone = play.hello("qa-1");
    assert!(play.got_of(phone, "message").is_empty());
    assert_eq!(
        deliver(&mut play, conn, "x", "qa-1", "hi", json!({}))[0]["code"],
        "device_offline",
        "the first outcome: it was written"
    );
    let mut play = play.crash();
    let phone = play.hello("qa-1");
    assert!(play.got_of(phone, "message").is_empty(), "not after a restart either");
}

#[test]
fn with_a_queue_it_waits_for_the_next_connect() {
    let mut play = Play::new();
    let phone = play.hello("qa-1");
    play.cut(phone);
    let conn = sender(&mut play);
    let mut got = deliver(&mut play, conn, "x", "qa-1", "hi", json!({"offline": "queue"}));
    play.advance(1);
    got.extend(play.got(conn));
    assert_eq!(got[0]["state"], "queued");
    let phone = play.hello("qa-1");
    assert_eq!(play.got_of(phone, "message")[0]["text"], "hi");
}

#[test]
fn the_first_outcome_stands_after_a_restart() {
    for (queue, confirmed, told) in
        [(true, true, "delivered"), (true, false, "queued"), (false, false, "offline")]
    {
        let mut play = Play::new();
        play.pongs = false;
        play.hello("qa-1");
        let conn = sender(&mut play);
        let more = if queue { json!({"offline": "queue"}) } else { json!({}) };
        deliver(&mut play, conn, "x", "qa-1", "hi", more);
        if confirmed {
            let (of, nonce) = play.pings.pop().unwrap();
            play.input(delivery::Input::Pong { conn: of, nonce });
            assert_eq!(play.got(conn)[0]["state"], "delivered");
        }
        let mut play = play.crash();
        // The device has it all by now.
        play.hello("qa-1");
        let conn = sender(&mut play);
        // Whatever the second call asks for.
        for more in [json!({}), json!({"offline": "queue"})] {
            let got = deliver(&mut play, conn, "x", "qa-1", "hi", more);
            let state = got[0].get("state").or(got[0].get("code")).unwrap();
            let expected = if told == "offline" { "device_offline" } else { told };
            assert_eq!(state, expected, "queue {queue}, confirmed {confirmed}");
        }
    }
}

#[test]
fn deliver_needs_the_right() {
    let mut play = Play::new();
    for (loopback, token, device, allowed) in [
        (false, TOKEN, Some("a"), false),
        (true, TOKEN, Some("a"), true),
        (true, "bound-token", Some("bound"), false),
        (false, "deliver-token", Some("a"), true),
        (false, "deliver-token", None, true),
    ] {
        let conn = play.connect(Origin { loopback, address: "192.0.2.7".into(), token: None });
        let mut hello = json!({"t": "hello", "token": token});
        if let Some(device) = device {
            hello["device"] = json!({"id": device});
        }
        play.say(conn, hello);
        assert_eq!(play.got(conn)[0]["t"], "ready");
        let got = deliver(&mut play, conn, "x", "nobody", "hi", json!({}));
        let code = if allowed { "device_offline" } else { "forbidden" };
        assert_eq!(got[0]["code"], code, "loopback {loopback} token {token}");
        play.cut(conn);
    }
    let conn = play.connect(Origin { address: "192.0.2.8".into(), ..Origin::default() });
    play.say(conn, json!({"t": "hello", "token": TOKEN}));
    assert_eq!(
        play.closed.get(&conn),
        Some(&1008),
        "without a device only with a deliver token or from loopback"
    );
    let mut play = Play::with(|settings| settings.access.deliver_loopback = false);
    let conn = play.local("a");
    play.got(conn);
    assert_eq!(deliver(&mut play, conn, "x", "a", "hi", json!({}))[0]["code"], "forbidden");
}

#[test]
fn a_deliver_token_opens_nobodys_conversation() {
    let mut play = Play::new();
    let phone = play.hello("a");
    play.got(phone);
    let conn = play.connect(Origin { address: "192.0.2.7".into(), ..Origin::default() });
    play.say(conn, json!({"t": "hello", "token": "deliver-token", "device": {"id": "a"}}));
    assert_eq!(play.got(conn)[0]["device"]["id"], "");
    assert!(play.got(phone).is_empty(), "nobody is replaced");
    play.say(conn, json!({"t": "text", "id": "1", "text": "hi"}));
    assert_eq!(play.got(conn)[0]["code"], "forbidden");
    assert_eq!(deliver(&mut play, conn, "x", "a", "hi", json!({}))[0]["state"], "delivered");
}

#[test]
fn field_deliver_frames_have_a_rate() {
    let mut play = Play::with(|settings| {
        settings.frames_per_second = 10;
        settings.frames_burst = 3;
    });
    let conn = sender(&mut play);
    for number in 0..3 {
        deliver(&mut play, conn, &number.to_string(), "nobody", "hi", json!({}));
    }
    let got = deliver(&mut play, conn, "4", "nobody", "hi", json!({}));
    assert_eq!((got[0]["code"].as_str(), got[0]["id"].as_str()), (Some("rate_limited"), Some("4")));
}

#[test]
fn a_report_for_a_connection_that_was_closed_goes_nowhere() {
    let mut play = Play::new();
    play.pongs = false;
    play.hello("qa-1");
    let conn = sender(&mut play);
    deliver(&mut play, conn, "x", "qa-1", "hi", json!({}));
    // The harness fails on a frame after the close.
    play.input(delivery::Input::Drain);
    play.advance(20_000);
    assert!(play.got(conn).is_empty());
}

#[test]
fn home_is_the_home_device_unless_a_device_has_that_name() {
    let mut play = Play::new();
    let phone = play.hello("phone");
    play.got(phone);
    let conn = sender(&mut play);
    assert_eq!(deliver(&mut play, conn, "x", "home", "hi", json!({}))[0]["state"], "delivered");
    assert_eq!(play.got_of(phone, "message").len(), 1);
    let home = play.hello("home");
    play.got(home);
    deliver(&mut play, conn, "y", "home", "hi", json!({}));
    assert_eq!(play.got_of(home, "message").len(), 1);
}

#[test]
fn a_connection_without_device_only_delivers_and_pings() {
    let mut play = Play::new();
    let conn = sender(&mut play);
    play.say(conn, json!({"t": "ping", "ts": [1, 2]}));
    play.say(conn, json!({"t": "text", "id": "x", "text": "hi"}));
    play.say(conn, json!({"t": "some-new-frame"}));
    let got = play.got(conn);
    assert_eq!(got[0], json!({"t": "pong", "ts": [1, 2]}));
    assert_eq!(
        (got.len(), got[1]["code"].as_str(), got[1]["id"].as_str()),
        (2, Some("forbidden"), Some("x"))
    );
}

#[test]
fn an_agents_call_that_must_not_wait_fails_when_nobody_is_there() {
    let mut play = Play::new();
    play.attach("i");
    let phone = play.hello("a");
    play.cut(phone);
    let req = play.call(json!({"op": "send", "key": "k", "device": "a", "text": "x", "offline": "fail"}));
    assert_eq!(play.result(req).unwrap()["code"], "device_offline");
    let _phone = play.hello("a");
    let req = play.call(json!({"op": "send", "key": "k", "device": "a", "text": "x", "offline": "fail"}));
    assert_eq!(play.result(req).unwrap()["state"], "delivered");
}

#[test]
fn an_outcome_is_on_disk_before_it_is_told() {
    let mut play = Play::new();
    play.pongs = false;
    play.hello("qa-1");
    let conn = sender(&mut play);
    deliver(&mut play, conn, "x", "qa-1", "hi", json!({}));
    let (of, nonce) = play.pings.pop().unwrap();
    play.hold_commits = true;
    play.input(delivery::Input::Pong { conn: of, nonce });
    assert!(play.got(conn).is_empty(), "after a crash now the same id would be offline");
    let again = sender(&mut play);
    assert!(deliver(&mut play, again, "x", "qa-1", "hi", json!({})).is_empty(), "nor is a second asker told");
    play.commit();
    for asker in [conn, again] {
        assert_eq!(play.got(asker)[0]["state"], "delivered");
    }
}

#[test]
fn a_message_that_is_never_replayed_holds_nothing_back() {
    let mut play = Play::new();
    play.pongs = false;
    let phone = play.hello("qa-1");
    let conn = sender(&mut play);
    deliver(&mut play, conn, "x", "qa-1", "hi", json!({}));
    play.cut(phone);
    let phone = play.hello("qa-1");
    assert!(play.got_of(phone, "message").is_empty());
    let state = protocol::record::DeviceState::decode(&play.disk.devices["qa-1"].1).unwrap();
    assert_eq!((state.proven, state.live_from), (state.seq, None));
}
