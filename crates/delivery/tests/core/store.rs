use serde_json::json;

use crate::{
    play::{Play, texts},
    streams::draw,
};

#[test]
fn a_text_that_cannot_be_stored_is_refused_in_words_and_the_session_lives() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    play.got(conn);
    play.hold_commits = true;
    play.say(conn, json!({"t": "text", "id": "1", "text": "x"}));
    play.fail();
    let error = play.got(conn).remove(0);
    assert_eq!(
        (error["code"].as_str(), error["id"].as_str(), &error["fatal"]),
        (Some("internal"), Some("1"), &json!(false))
    );
    assert!(error["message"].as_str().unwrap().contains("сохранить"));
    assert!(!play.closed.contains_key(&conn));
    play.mend();
    play.hold_commits = false;
    play.say(conn, json!({"t": "text", "id": "1", "text": "x"}));
    assert_eq!(texts(&play.events()), ["x"], "the id was not used up");
}

#[test]
fn a_message_that_cannot_be_stored_is_the_agents_to_repeat() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    play.send("a", "0", "before");
    play.got(conn);
    play.hold_commits = true;
    let req = play.call(json!({"op": "send", "key": "k", "device": "a", "text": "x"}));
    play.fail();
    let result = play.result(req).unwrap();
    assert_eq!((result["code"].as_str(), &result["retryable"]), (Some("internal"), &json!(true)));
    assert_eq!(play.closed.get(&conn), Some(&1013), "its memory is not what is on disk: it comes back");
    play.mend();
    play.hold_commits = false;
    let loads = play.loads;
    let conn = play.hello("a");
    assert_eq!((play.loads, play.got(conn).len()), (loads, 0), "what failed is not tried again at once");
    play.advance(1_000);
    let id = play.send("a", "k", "x");
    let got = play.got_of(conn, "message");
    assert_eq!(draw(&got), [(id, "x".into(), true)]);
    assert_eq!(got[0]["seq"], json!(2), "the number was never written, so it is not lost");
}

#[test]
fn what_a_dead_agent_said_while_the_device_was_not_there_is_its_next_lifes_to_say() {
    let mut play = Play::new();
    play.attach_as("i", true);
    play.hello("a");
    play.hold_commits = true;
    play.call(json!({"op": "send", "key": "0", "device": "a", "text": "x"}));
    play.fail();
    play.mend();
    play.hold_commits = false;
    // The device is being loaded again.
    play.call(json!({"op": "send", "key": "k", "device": "a", "text": "of the dead", "final": false}));
    play.detach(false);
    play.attach_as("i", true);
    let req = play.call(json!({"op": "send", "key": "k", "device": "a", "text": "of the living"}));
    play.advance(1_000);
    assert_eq!(play.result(req).unwrap()["ok"], json!(true));
    let conn = play.hello("a");
    let shown: Vec<_> = draw(&play.got(conn)).into_iter().map(|(_, text, _)| text).collect();
    assert_eq!(shown, ["of the living"]);
}

#[test]
fn an_answer_that_was_lost_with_the_disk_is_given_again() {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    play.say(conn, json!({"t": "text", "id": "1", "text": "question"}));
    let event = play.events().remove(0);
    play.hold_commits = true;
    // Answer and end of the turn share one commit.
    play.calls(vec![
        serde_json::from_value(
            json!({"op": "send", "req": 900, "key": "k", "device": "a", "text": "answer"}),
        )
        .unwrap(),
        serde_json::from_value(json!({"op": "done", "event": event.event, "outcome": "ok"})).unwrap(),
    ]);
    assert_eq!(play.waiting.len(), 1);
    let mut play = play.crash();
    play.attach("i");
    let again = play.events();
    assert_eq!(texts(&again), ["question"], "neither the answer nor the end is on disk");
    let conn = play.hello("a");
    play.send("a", "k", "answer");
    assert_eq!(draw(&play.got(conn)).len(), 1);
}

#[test]
fn proof_alone_makes_a_lazy_batch() {
    let mut play = Play::new();
    play.pongs = false;
    play.attach("i");
    play.hello("a");
    play.send("a", "k", "x");
    play.hold_commits = true;
    let (conn, nonce) = play.pings[0];
    play.input(delivery::Input::Pong { conn, nonce });
    assert!(play.waiting.iter().all(|batch| batch.lazy) && play.waiting.len() == 1);
}

#[test]
fn a_file_that_was_being_taken_over_when_the_disk_failed_is_the_agents_to_repeat() {
    let mut play = Play::new();
    play.attach("i");
    play.hello("a");
    play.send("a", "0", "before");
    play.hold_commits = true;
    play.hold_files = true;
    play.call(json!({"op": "send", "key": "1", "device": "a", "text": "x"}));
    let file = play.call(json!({"op": "media", "key": "2", "device": "a", "kind": "image", "data": "aGk="}));
    let behind = play.call(json!({"op": "send", "key": "3", "device": "a", "text": "y"}));
    play.fail();
    for req in [file, behind] {
        let result = play.result(req).unwrap();
        assert_eq!(result["retryable"], json!(true), "every call has its result");
    }
}
