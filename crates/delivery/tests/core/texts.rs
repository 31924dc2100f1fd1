use serde_json::json;

use crate::play::{Play, texts};

#[test]
fn field_a_text_is_on_disk_before_the_agent_gets_it() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    play.hold_commits = true;
    play.say(conn, json!({"t": "text", "id": "q-1", "text": "hi"}));
    assert!(play.events().is_empty());
    play.commit();
    let event = play.events().remove(0);
    assert_eq!((event.id.as_str(), event.device.id.as_str(), event.redelivered), ("q-1", "a", false));
}

#[test]
fn field_the_same_id_is_one_text() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    play.got(conn);
    play.hold_commits = true;
    for _ in 0..3 {
        play.say(conn, json!({"t": "text", "id": "dup-1", "text": "remember 42"}));
    }
    play.commit();
    play.say(conn, json!({"t": "text", "id": "dup-1", "text": "remember 42"}));
    play.commit();
    assert_eq!(texts(&play.events()), ["remember 42"]);
    play.say(conn, json!({"t": "text", "id": "dup-1", "text": "something else"}));
    let got = play.got(conn);
    assert_eq!((got[0]["code"].as_str(), got[0]["id"].as_str()), (Some("bad_frame"), Some("dup-1")));
    assert!(got[0]["detail"].as_str().unwrap().contains("id already used"));
    play.say(conn, json!({"t": "text", "id": "dup-2", "text": "remember 42"}));
    play.commit();
    assert_eq!(texts(&play.events()), ["remember 42"], "the same words under another id are a new message");
}

#[test]
fn field_the_same_id_on_two_sockets_and_after_a_restart_is_one_text() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    play.say(conn, json!({"t": "text", "id": "1", "text": "x"}));
    let conn = play.hello("a");
    play.say(conn, json!({"t": "text", "id": "1", "text": "x"}));
    let events = play.events();
    assert_eq!(events.len(), 1);
    play.done(events[0].event);
    let mut play = play.crash();
    play.attach("j");
    let conn = play.hello("a");
    play.say(conn, json!({"t": "text", "id": "1", "text": "x"}));
    assert!(play.events().is_empty());
    play.advance(8 * 24 * 3600 * 1000);
    play.say(conn, json!({"t": "text", "id": "1", "text": "x"}));
    assert_eq!(play.events().len(), 1, "remembered seven days");
}

#[test]
fn a_pong_tells_that_what_came_before_is_on_disk() {
    let mut play = Play::new();
    let conn = play.hello("a");
    play.got(conn);
    play.say(conn, json!({"t": "ping", "ts": 0}));
    assert_eq!(play.got(conn).len(), 1, "with nothing on its way it comes at once");
    play.hold_commits = true;
    play.say(conn, json!({"t": "text", "id": "1", "text": "x"}));
    play.say(conn, json!({"t": "ping", "ts": 1}));
    assert!(play.got(conn).is_empty());
    play.commit();
    assert_eq!(play.got(conn), [json!({"t": "pong", "ts": 1})]);
    play.say(conn, json!({"t": "text", "id": "2", "text": "x"}));
    play.say(conn, json!({"t": "ping", "ts": 2}));
    play.fail();
    let got = play.got(conn);
    assert_eq!(
        (got[0]["id"].as_str(), got[1]["t"].as_str()),
        (Some("2"), Some("pong")),
        "the refusal comes first"
    );
}

#[test]
fn a_text_without_an_id_gets_one() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    play.say(conn, json!({"t": "text", "text": "x"}));
    play.say(conn, json!({"t": "text", "text": "x"}));
    let events = play.events();
    assert_eq!(events.len(), 2);
    assert!(events[0].id != events[1].id && !events[0].id.is_empty());
}

#[test]
fn field_input_waits_for_the_agent_and_comes_in_order() {
    let mut play = Play::new();
    let conn = play.hello("a");
    for number in 0..200 {
        play.say(conn, json!({"t": "text", "id": number.to_string(), "text": format!("{number}")}));
    }
    let mut play = play.crash();
    play.attach("i");
    let mut seen = Vec::new();
    loop {
        let events = play.events();
        if events.is_empty() {
            break;
        }
        for event in events {
            seen.extend(texts(std::slice::from_ref(&event)));
            play.ack(event.event);
        }
    }
    let expected: Vec<String> = (0..200).map(|number| number.to_string()).collect();
    assert_eq!(seen, expected);
}

#[test]
fn a_large_backlog_is_read_back_from_disk() {
    let mut play = Play::new();
    let conn = play.hello("a");
    let text = "y".repeat(11_000);
    for number in 0..150 {
        play.say(conn, json!({"t": "text", "id": number.to_string(), "text": format!("{number} {text}")}));
    }
    play.attach("i");
    let mut seen = Vec::new();
    loop {
        let events = play.events();
        if events.is_empty() {
            break;
        }
        for event in events {
            seen.push(
                texts(std::slice::from_ref(&event))[0].split(' ').next().unwrap().parse::<u32>().unwrap(),
            );
            play.ack(event.event);
            play.done(event.event);
        }
    }
    assert_eq!(seen, (0..150).collect::<Vec<u32>>());
}

#[test]
fn field_what_was_not_acked_comes_again_and_what_was_not_done_after_a_new_process() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    for id in ["1", "2", "3"] {
        play.say(conn, json!({"t": "text", "id": id, "text": id}));
    }
    let events = play.events();
    play.ack(events[0].event);
    play.ack(events[1].event);
    play.done(events[1].event);
    play.detach(false);
    play.attach("i");
    let again = play.events();
    assert_eq!((texts(&again), again[0].redelivered), (vec!["3".to_owned()], true), "the same process");
    play.detach(false);
    play.attach("another");
    assert_eq!(texts(&play.events()), ["1", "3"], "a new process");
    let mut play = play.crash();
    play.attach("third");
    assert_eq!(texts(&play.events()), ["1", "3"], "after a restart of the gateway");
}

#[test]
fn field_interrupted_input_comes_before_new_input() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    play.say(conn, json!({"t": "text", "id": "1", "text": "old"}));
    let mut play = play.crash();
    let conn = play.hello("a");
    play.say(conn, json!({"t": "text", "id": "2", "text": "new"}));
    play.attach("j");
    assert_eq!(texts(&play.events()), ["old", "new"]);
}

#[test]
fn field_old_input_is_not_run_again_and_its_person_is_told() {
    let mut play = Play::new();
    let conn = play.hello("a");
    play.say(conn, json!({"t": "text", "id": "1", "text": "buy milk"}));
    let mut play = play.crash();
    play.now += 25 * 3600 * 1000;
    play.advance(1);
    play.attach("i");
    assert!(play.events().is_empty());
    let conn = play.hello("a");
    let notices = play.got_of(conn, "message");
    assert!(
        notices.iter().any(|notice| notice["text"].as_str().unwrap().contains("buy milk")),
        "{notices:?}"
    );
}

#[test]
fn a_person_is_told_once_an_outage_that_the_agent_is_away() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    play.detach(false);
    play.say(conn, json!({"t": "text", "id": "1", "text": "x"}));
    play.say(conn, json!({"t": "text", "id": "2", "text": "x"}));
    play.got(conn);
    play.advance(4_000);
    assert!(play.got_of(conn, "message").is_empty(), "a short outage is not told");
    play.advance(60_000);
    assert_eq!(play.got_of(conn, "message").len(), 1);
    play.attach("i");
    play.detach(false);
    play.say(conn, json!({"t": "text", "id": "3", "text": "x"}));
    play.advance(60_000);
    assert_eq!(play.got_of(conn, "message").len(), 1, "another outage, another notice");
}

#[test]
fn a_text_long_after_the_agent_went_away_is_told_of_too() {
    let mut play = Play::new();
    play.advance(60_000);
    let conn = play.hello("a");
    play.got(conn);
    play.hold_commits = true;
    play.say(conn, json!({"t": "text", "id": "1", "text": "x"}));
    play.advance(10);
    play.commit();
    play.advance(10);
    play.commit();
    assert_eq!(play.got_of(conn, "message").len(), 1, "also when the disk is slow");
}

#[test]
fn field_commands_are_the_agents() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    for (number, text) in ["/new", "/stop", "/approve"].iter().enumerate() {
        play.say(conn, json!({"t": "text", "id": number.to_string(), "text": text}));
    }
    assert_eq!(texts(&play.events()), ["/new", "/stop", "/approve"]);
}

#[test]
fn field_a_lone_surrogate_costs_nothing() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    play.raw(conn, r#"{"t":"text","id":"s","text":"hi \ud83d there"}"#);
    assert_eq!(texts(&play.events()), ["hi \u{fffd} there"]);
    assert!(!play.closed.contains_key(&conn));
}

#[test]
fn field_two_devices_never_share_anything() {
    let mut play = Play::new();
    play.attach("i");
    let names = ["a", "A", "а", "a:1", "a.1"];
    let conns: Vec<u64> = names.iter().map(|name| play.hello(name)).collect();
    for conn in &conns {
        play.got(*conn);
        play.say(*conn, json!({"t": "text", "id": "1", "text": "x"}));
    }
    let devices: Vec<String> = play.events().into_iter().map(|event| event.device.id).collect();
    assert_eq!(devices, names);
    play.send("a", "k", "only for a");
    for (name, conn) in names.iter().zip(conns) {
        assert_eq!(play.got_of(conn, "message").len(), usize::from(*name == "a"), "{name}");
    }
}

#[test]
fn what_the_agent_says_while_its_device_is_being_loaded_is_not_lost() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    play.say(conn, json!({"t": "text", "id": "1", "text": "hi"}));
    let event = play.events().remove(0).event;
    // The gateway restarts; the agent is back before the device is.
    let mut core = delivery::Core::new(crate::play::settings(&play.disk), play.now);
    let mut out = Vec::new();
    core.start(vec!["a".into()], play.now, &mut out);
    let attach = delivery::Attach { name: "test".into(), instance: "i".into(), fresh: false };
    core.handle(delivery::Input::AgentAttached { agent: 1, attach }, play.now, &mut out);
    let calls = vec![protocol::link::FromAgent::Done { event, outcome: protocol::link::Outcome::Ok }];
    core.handle(delivery::Input::FromAgent { agent: 1, calls }, play.now, &mut out);
    out.clear();
    let loaded = Ok(play.disk.load("a", 0));
    core.handle(delivery::Input::Loaded { device: "a".into(), loaded }, play.now, &mut out);
    let state = out.iter().find_map(|action| match action {
        delivery::Action::Store(batch) => batch.ops.iter().find_map(|op| match op {
            protocol::record::Op::Device { state, .. } => protocol::record::DeviceState::decode(state).ok(),
            protocol::record::Op::Append(_) => None,
        }),
        _ => None,
    });
    assert_eq!(state.unwrap().done, event, "its event is done");
}
