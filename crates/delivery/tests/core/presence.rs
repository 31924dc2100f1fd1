use serde_json::{Value, json};

use crate::play::Play;

fn states(frames: &[Value]) -> Vec<String> {
    frames
        .iter()
        .filter_map(|frame| match frame["t"].as_str() {
            Some("avatar") => frame["state"].as_str().map(str::to_owned),
            Some("typing") if frame["stop"] == json!(true) => Some("stop".into()),
            Some("typing") => Some("typing".into()),
            Some("message") => Some("message".into()),
            _ => None,
        })
        .collect()
}

fn turn(play: &mut Play, state: &str) {
    play.call(json!({"op": "turn", "device": "a", "state": state}));
}

#[test]
fn field_a_turn_is_shown_in_order() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    play.got(conn);
    turn(&mut play, "on");
    play.hold_commits = true;
    play.call(json!({"op": "send", "key": "k", "device": "a", "text": "hi"}));
    turn(&mut play, "off");
    assert_eq!(states(&play.got(conn)), ["thinking", "typing"], "the stop waits for the message before it");
    play.commit();
    assert_eq!(states(&play.got(conn)), ["message", "stop", "speaking"]);
    play.advance(1500);
    assert_eq!(states(&play.got(conn)), ["idle"]);
}

#[test]
fn field_nothing_types_for_ever() {
    for (how, within) in [("failed", 0), ("ended", 0), ("lost", 5_000), ("silent", 25_000), ("another", 0)] {
        let mut play = Play::new();
        play.attach("i");
        let conn = play.hello("a");
        turn(&mut play, "on");
        play.got(conn);
        match how {
            "failed" => turn(&mut play, "failed"),
            "ended" => play.detach(true),
            "lost" => play.detach(false),
            "another" => play.attach("another"),
            _ => {}
        }
        play.advance(within);
        let got = states(&play.got(conn));
        assert_eq!(got.last().map(String::as_str), Some("idle"), "{how}: {got:?}");
        assert!(got.contains(&"stop".to_owned()), "{how}");
    }
}

#[test]
fn a_living_agent_may_think_for_long() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    turn(&mut play, "on");
    play.got(conn);
    for _ in 0..60 {
        play.advance(5_000);
        let agent = play.agent.unwrap();
        play.input(delivery::Input::AgentAlive { agent });
    }
    let got = states(&play.got(conn));
    assert!(got.iter().all(|state| state == "typing") && got.len() > 20, "renewed: {got:?}");
}

#[test]
fn a_new_connection_sees_the_present_state() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    turn(&mut play, "on");
    play.call(json!({"op": "status", "device": "a", "text": "reading"}));
    let got = play.got(conn);
    assert_eq!(got.last().unwrap()["text"], "reading");
    let conn = play.hello("a");
    let got = play.got(conn);
    assert_eq!(states(&got)[..2], ["thinking", "typing"]);
    assert_eq!(got[2]["text"], "reading");
    play.cut(conn);
    turn(&mut play, "off");
    play.advance(5000);
    let conn = play.hello("a");
    assert!(states(&play.got(conn)).is_empty(), "idle is not sent");
}

#[test]
fn the_order_after_ready() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    play.cut(conn);
    turn(&mut play, "on");
    play.send("a", "m", "missed");
    play.call(json!({"op": "prompt", "key": "p", "device": "a", "kind": "slash_confirm", "text": "sure?",
        "options": [{"id": "once", "label": "Yes", "style": "primary"}, {"id": "cancel", "label": "No", "style": "danger"}], "deadline_seconds": 60}));
    play.call(json!({"op": "send", "key": "s", "device": "a", "text": "streaming", "final": false}));
    let conn = play.hello("a");
    let got = play.got(conn);
    let order: Vec<(&str, bool)> =
        got.iter().map(|frame| (frame["t"].as_str().unwrap(), frame.get("seq").is_some())).collect();
    assert_eq!(
        order[..6],
        [
            ("ready", false),
            ("prompt", false),
            ("avatar", false),
            ("typing", false),
            ("message", true),
            ("prompt", true)
        ]
    );
    let rest: Vec<&str> = got[6..].iter().filter_map(|frame| frame["text"].as_str()).collect();
    assert_eq!(rest.last(), Some(&"streaming"), "the present text of what is streaming comes last");
    assert_eq!(got[1]["id"], got[5]["id"], "the same card, a redraw");
}

#[test]
fn the_agent_is_told_who_comes_and_goes() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    play.cut(conn);
    let presence: Vec<bool> = play
        .to_agent
        .iter()
        .filter_map(|frame| match frame {
            protocol::link::ToAgent::Presence { device, online } if device == "a" => Some(*online),
            _ => None,
        })
        .collect();
    assert_eq!(presence, [true, false]);
    let req = play.call(json!({"op": "device", "device": "a"}));
    assert_eq!(play.result(req).unwrap()["id"], "a");
    let req = play.call(json!({"op": "device", "device": "nobody"}));
    assert_eq!(play.result(req).unwrap()["code"], "not_found");
}

#[test]
fn a_state_that_changes_during_a_replay_does_not_stick() {
    for (change, expected) in [("clear", ["stop", "idle"]), ("off", ["stop", "speaking"])] {
        let mut play = Play::new();
        play.attach("i");
        let conn = play.hello("a");
        play.cut(conn);
        turn(&mut play, "on");
        play.hold_commits = true;
        play.call(json!({"op": "send", "key": "k", "device": "a", "text": "hi"}));
        // The replay waits for the message.
        let conn = play.hello("a");
        assert_eq!(states(&play.got(conn)), ["thinking", "typing"]);
        if change == "clear" {
            play.detach(true)
        } else {
            turn(&mut play, "off")
        }
        play.commit();
        let got = states(&play.got(conn));
        assert_eq!(got[got.len() - 2..], expected, "{change}: {got:?}");
    }
}
