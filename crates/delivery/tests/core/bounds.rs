//! What abuse and large amounts must not do: loops, memory without bound, words that are lost or change places.

use delivery::{Action, Input, Origin};
use protocol::{base64, client, link::ToAgent};
use serde_json::{Value, json};

use crate::play::{Play, START, TOKEN, settings, texts};

/// Without a device, from loopback.
fn sender(play: &mut Play) -> u64 {
    let conn = play.connect(Origin { loopback: true, address: "127.0.0.1".into(), token: None });
    play.say(conn, json!({"t": "hello", "token": TOKEN}));
    play.got(conn);
    conn
}

fn deliver(play: &mut Play, conn: u64, id: &str, target: &str, text: &str) -> Vec<Value> {
    play.say(conn, json!({"t": "deliver", "id": id, "target": target, "text": text}));
    play.got(conn)
}

#[test]
fn a_replay_larger_than_the_queue_makes_no_reconnect_loop() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    play.cut(conn);
    for number in 0..24 {
        play.send("a", &number.to_string(), &"x".repeat(480_000));
    }
    let conn = play.hello("a");
    assert_eq!(play.closed.get(&conn), None);
    assert_eq!(play.got_of(conn, "message").len(), 24);
}

#[test]
fn a_client_that_reads_nothing_of_a_replay_holds_one_page() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    play.cut(conn);
    for number in 0..24 {
        play.send("a", &number.to_string(), &"x".repeat(480_000));
    }
    play.hold_sockets = true;
    let conn = play.hello("a");
    assert!(play.got_of(conn, "message").len() <= 2, "what the socket does not take is not read either");
}

#[test]
fn open_cards_larger_than_the_queue_make_no_reconnect_loop() {
    let mut play = Play::with(|settings| settings.queue_bytes = 1024 * 1024);
    play.attach("i");
    let conn = play.hello("a");
    for number in 0..40 {
        play.call(json!({"op": "prompt", "key": number.to_string(), "device": "a", "kind": "exec_approval",
            "text": "run?", "command": "x".repeat(60_000), "deadline_seconds": 300, "options": [
                {"id": "once", "label": "once", "style": "primary"}, {"id": "deny", "label": "deny", "style": "danger"}]}));
    }
    play.cut(conn);
    let conn = play.hello("a");
    assert_eq!(play.closed.get(&conn), None);
    let got = play.got(conn);
    assert_eq!(got[0]["t"], "ready");
    assert!(got[1..41].iter().all(|frame| frame["t"] == "prompt" && frame.get("seq").is_none()));
}

#[test]
fn who_asks_and_never_reads_is_cut_off() {
    let ping = json!({"t": "ping", "ts": "x".repeat(1000)});
    let forbidden = json!({"t": "deliver", "id": "x".repeat(128), "target": "a", "text": "hi"});
    for (device, frame) in [(None, ping), (Some("a"), forbidden)] {
        let mut play = Play::with(|settings| settings.access.deliver_loopback = false);
        play.hold_sockets = true;
        let conn = match device {
            None => sender(&mut play),
            Some(device) => play.local(device),
        };
        for _ in 0..20_000 {
            if play.closed.contains_key(&conn) {
                break;
            }
            play.say(conn, frame.clone());
        }
        assert_eq!(play.closed.get(&conn), Some(&1013), "{device:?}");
    }
    let mut play = Play::new();
    let conn = sender(&mut play);
    for _ in 0..6_000 {
        play.say(conn, json!({"t": "ping", "ts": "x".repeat(1000)}));
    }
    assert_eq!(play.closed.get(&conn), None, "who reads may ask for long");
}

#[test]
fn empty_frames_before_ready_are_bounded_too() {
    let mut play = Play::new();
    for _ in 0..3 {
        play.hello("a");
    }
    let conn = play.hello("a");
    for _ in 0..5_000 {
        if play.closed.contains_key(&conn) {
            break;
        }
        play.raw(conn, "");
    }
    assert_eq!(play.closed.get(&conn), Some(&1009));
}

#[test]
fn a_home_device_called_home_that_is_not_there_is_offline() {
    let mut play = Play::with(|settings| settings.home_device = Some("home".into()));
    let conn = sender(&mut play);
    assert_eq!(deliver(&mut play, conn, "x", "home", "hi")[0]["code"], "device_offline");
    let phone = play.hello("home");
    play.got(phone);
    assert_eq!(deliver(&mut play, conn, "y", "home", "hi")[0]["state"], "delivered");
}

#[test]
fn delivery_ids_belong_to_a_token_wherever_it_stands_in_the_settings() {
    let tokens = |order: [&'static str; 2]| {
        move |settings: &mut delivery::Settings| settings.access.deliver = order.map(String::from).into()
    };
    let from = |play: &mut Play, token: &str| {
        let conn = play.connect(Origin { address: "192.0.2.9".into(), ..Origin::default() });
        play.say(conn, json!({"t": "hello", "token": token}));
        play.got(conn);
        conn
    };
    let mut play = Play::with(tokens(["one", "two"]));
    play.hello("a");
    let (one, two) = (from(&mut play, "one"), from(&mut play, "two"));
    assert_eq!(deliver(&mut play, one, "x", "a", "from one")[0]["state"], "delivered");
    deliver(&mut play, two, "x", "a", "from two");
    play.advance(1_000);
    assert_eq!(play.got(two)[0]["state"], "delivered", "the next proof");
    let mut play = play.crash_with(tokens(["two", "one"]));
    let phone = play.hello("a");
    play.got(phone);
    let (one, two) = (from(&mut play, "one"), from(&mut play, "two"));
    assert_eq!(deliver(&mut play, one, "x", "a", "from one")[0]["state"], "delivered");
    assert_eq!(deliver(&mut play, two, "x", "a", "from two")[0]["state"], "delivered");
    assert!(play.got_of(phone, "message").is_empty(), "nothing is shown twice");
}

#[test]
fn a_queued_delivery_stays_queued_however_it_is_asked_for_again() {
    let mut play = Play::new();
    let phone = play.hello("a");
    play.cut(phone);
    let conn = sender(&mut play);
    let queue = json!({"t": "deliver", "id": "x", "target": "a", "text": "hi", "offline": "queue"});
    play.say(conn, queue);
    play.advance(1);
    assert_eq!(play.got(conn)[0]["state"], "queued");
    assert_eq!(deliver(&mut play, conn, "x", "a", "hi")[0]["state"], "queued", "not offline: it is stored");
    let mut play = play.crash();
    let conn = sender(&mut play);
    assert_eq!(deliver(&mut play, conn, "x", "a", "hi")[0]["state"], "queued", "also after a restart");
    let phone = play.hello("a");
    assert_eq!(play.got_of(phone, "message").len(), 1);
}

#[test]
fn a_text_between_two_files_stays_between_them() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    play.hold_assembled = true;
    let file =
        |id: &str| json!({"t": "media", "id": id, "kind": "document", "data": base64::encode(id.as_bytes())});
    play.say(conn, file("1"));
    play.say(conn, json!({"t": "text", "id": "2", "text": "two"}));
    play.say(conn, file("3"));
    play.say(conn, json!({"t": "text", "id": "4", "text": "four"}));
    for _ in 0..2 {
        play.assemble();
    }
    let order: Vec<String> = play.events().into_iter().map(|event| event.id).collect();
    assert_eq!(order, ["1", "2", "3", "4"]);
}

#[test]
fn what_was_sent_before_ready_counts_although_the_connection_ended() {
    // While the device is being loaded.
    let mut core = delivery::Core::new(settings(&Play::new().disk), START);
    let mut out = Vec::new();
    let frame = |frame: Value| {
        let text = frame.to_string();
        Input::Frame { conn: 1, bytes: text.len(), frame: client::decode(&text) }
    };
    for input in [
        Input::Connected { conn: 1, origin: Origin::default() },
        frame(json!({"t": "hello", "token": TOKEN, "device": {"id": "a"}})),
        frame(json!({"t": "text", "id": "1", "text": "hi"})),
        Input::Closed { conn: 1, code: Some(1000) },
    ] {
        core.handle(input, START, &mut out);
    }
    assert!(!out.iter().any(|action| matches!(action, Action::Store(_))), "not loaded yet");
    core.handle(Input::Loaded { device: "a".into(), loaded: Ok(None) }, START, &mut out);
    let stored = out.iter().filter(|action| matches!(action, Action::Store(_))).count();
    assert_eq!(stored, 1, "the text is stored");

    // While `ready` is held back.
    let mut play = Play::new();
    play.attach("i");
    for _ in 0..3 {
        play.hello("a");
    }
    let conn = play.hello("a");
    play.say(conn, json!({"t": "text", "id": "1", "text": "hi"}));
    play.cut(conn);
    assert_eq!(texts(&play.events()), ["hi"]);
}

#[test]
fn the_agent_is_told_of_every_end_of_a_connection() {
    let offline = |play: &mut Play| {
        let told = play.to_agent.iter().any(|frame| matches!(frame, ToAgent::Presence { online: false, .. }));
        play.to_agent.clear();
        told
    };
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    for _ in 0..20 {
        play.raw(conn, "rubbish");
    }
    assert_eq!(play.closed.get(&conn), Some(&1003));
    assert!(offline(&mut play), "1003");
    let conn = play.hello("a");
    play.input(Input::TooLong { conn });
    assert_eq!(play.closed.get(&conn), Some(&1009));
    assert!(offline(&mut play), "1009");
    let conn = play.hello("a");
    play.hold_commits = true;
    play.call(json!({"op": "send", "key": "k", "device": "a", "text": "x"}));
    play.fail();
    assert_eq!(play.closed.get(&conn), Some(&1013));
    assert!(offline(&mut play), "1013");
    play.mend();
    play.hold_commits = false;
    play.advance(1_000);
    let conn = play.hello("a");
    assert!(!offline(&mut play));
    play.cut(conn);
    assert!(offline(&mut play));
}
