//! What an operator is told about the core.

use delivery::{AgentState, Counts};
use serde_json::json;

use crate::play::Play;

fn card(play: &mut Play, key: &str, seconds: u64) -> String {
    let req =
        play.call(json!({"op": "prompt", "key": key, "device": "a", "kind": "exec_approval", "text": "run?",
        "command": "ls", "options": [{"id": "once", "label": "once", "style": "primary"},
        {"id": "deny", "label": "deny", "style": "danger"}], "deadline_seconds": seconds}));
    play.result(req).unwrap()["prompt_id"].as_str().unwrap().to_owned()
}

#[test]
fn what_is_under_way_is_seen_and_what_happened_is_counted() {
    let mut play = Play::new();
    let nothing = play.core.survey();
    assert_eq!((nothing.agent, nothing.devices, nothing.online), (AgentState::Offline, 0, 0));
    assert_eq!(nothing.counts, Counts::default());
    play.attach("i");
    (play.hold_sockets, play.pongs) = (true, false);
    let conn = play.hello("a");
    let ready = play.core.survey();
    assert_eq!((ready.agent, ready.devices, ready.online), (AgentState::Online, 1, 1));
    assert!(ready.unsent_bytes > 0, "the socket has not taken ready yet");
    play.hold_sockets = false;
    play.drain(conn);
    assert_eq!(play.core.survey().unsent_bytes, 0);

    for _ in 0..3 {
        play.say(conn, json!({"t": "text", "id": "1", "text": "hello"}));
    }
    assert_eq!((play.core.survey().inputs, play.core.survey().counts.repeats_from_devices), (1, 2));
    let event = play.events()[0].event;
    play.done(event);
    assert_eq!(play.core.survey().inputs, 0);

    play.send("a", "k", "an answer");
    play.send("a", "k", "an answer");
    let survey = play.core.survey();
    assert_eq!((survey.unproven_items, survey.counts.repeats_from_agents), (1, 1));

    let answered = card(&mut play, "c1", 300);
    card(&mut play, "c2", 10);
    assert_eq!(play.core.survey().cards_open, 2);
    play.say(conn, json!({"t": "prompt", "prompt_id": answered, "option_id": "once"}));
    let event = play.events().last().unwrap().event;
    play.call(json!({"op": "take", "event": event}));
    play.call(json!({"op": "applied", "event": event, "ok": true, "option_id": "once"}));
    play.advance(10_000);
    let survey = play.core.survey();
    assert_eq!((survey.cards_open, survey.counts.cards_answered, survey.counts.cards_expired), (0, 1, 1));
    // Another process of the agent takes over: what the first one asked ends with it.
    card(&mut play, "c3", 300);
    play.attach("another");
    let survey = play.core.survey();
    assert_eq!((survey.cards_open, survey.counts.cards_elsewhere), (0, 1));
    assert_eq!((survey.agent, survey.counts.agents_attached), (AgentState::Online, 2));
    play.advance(30_000);
    assert_eq!(play.core.survey().agent, AgentState::Stalled);
    play.detach(true);
    play.cut(conn);
    let survey = play.core.survey();
    assert_eq!((survey.agent, survey.devices, survey.online), (AgentState::Offline, 1, 0));
    assert!(survey.unproven_items > 0, "nothing was proven");
}
