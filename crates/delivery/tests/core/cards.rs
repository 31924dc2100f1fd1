use protocol::link::{CardEnd, Said, ToAgent};
use serde_json::{Value, json};

use crate::play::Play;

fn options(ids: &[&str]) -> Value {
    json!(ids.iter().map(|id| json!({"id": id, "label": id, "style": "secondary"})).collect::<Vec<_>>())
}

fn card(play: &mut Play, key: &str) -> String {
    let req = play.call(json!({"op": "prompt", "key": key, "device": "a", "kind": "exec_approval", "text": "run?",
        "command": "rm -rf /tmp/build", "options": options(&["once", "session", "deny"]), "deadline_seconds": 300}));
    play.result(req).unwrap()["prompt_id"].as_str().unwrap().to_owned()
}

fn press(play: &mut Play, conn: u64, id: &str, option: &str) {
    play.say(conn, json!({"t": "prompt", "prompt_id": id, "option_id": option}));
}

/// The event of an answer, and what was chosen.
fn answered(play: &mut Play) -> Option<(u64, String)> {
    play.events().into_iter().find_map(|event| match event.what {
        Said::Prompt { prompt } if prompt.outcome == CardEnd::Answered => {
            Some((event.event, prompt.option_id.unwrap()))
        }
        _ => None,
    })
}

fn take(play: &mut Play, event: u64) -> Value {
    let req = play.call(json!({"op": "take", "event": event}));
    play.result(req).unwrap()
}

fn apply(play: &mut Play, event: u64, option: &str) {
    play.call(json!({"op": "applied", "event": event, "ok": true, "option_id": option}));
}

fn start() -> (Play, u64) {
    let mut play = Play::new();
    play.attach("i");
    let conn = play.hello("a");
    play.got(conn);
    (play, conn)
}

#[test]
fn field_a_card_is_shown_answered_taken_and_done() {
    let (mut play, conn) = start();
    let id = card(&mut play, "k");
    let shown = play.got(conn).remove(0);
    assert_eq!(
        (shown["t"].as_str(), shown["id"].as_str(), shown["command"].as_str(), shown["session"].as_str()),
        (Some("prompt"), Some(id.as_str()), Some("rm -rf /tmp/build"), Some("mobile:a"))
    );
    assert_eq!((shown["timeout_seconds"].as_u64(), shown["seq"].as_u64()), (Some(300), Some(1)));
    press(&mut play, conn, &id, "once");
    let (event, option) = answered(&mut play).unwrap();
    assert_eq!(option, "once");
    assert!(play.got(conn).is_empty(), "nothing before the agent took it");
    assert_eq!(take(&mut play, event)["ok"], json!(true));
    assert!(play.got(conn).is_empty(), "nothing before it took effect");
    apply(&mut play, event, "once");
    let done = play.got(conn).remove(0);
    assert_eq!(
        (done["t"].as_str(), done["option_id"].as_str(), done.get("expired")),
        (Some("prompt_done"), Some("once"), None)
    );
    press(&mut play, conn, &id, "once");
    let again = play.got(conn).remove(0);
    assert_eq!(
        (again["option_id"].as_str(), again.get("seq")),
        (Some("once"), None),
        "the same answer, the same prompt_done"
    );
    press(&mut play, conn, &id, "deny");
    assert_eq!(play.got(conn).remove(0)["option_id"], "once", "the first stands");
    assert!(play.events().is_empty(), "never a message, never a second time");
}

#[test]
fn what_was_not_offered_is_the_refusal_and_prompt_done_says_so() {
    let (mut play, conn) = start();
    let id = card(&mut play, "k");
    press(&mut play, conn, &id, "разрешить_всё");
    let (event, option) = answered(&mut play).unwrap();
    assert_eq!(option, "deny");
    take(&mut play, event);
    apply(&mut play, event, "deny");
    assert_eq!(play.got_of(conn, "prompt_done")[0]["option_id"], "deny");
}

#[test]
fn field_an_unknown_card_is_expired_and_another_devices_is_forbidden() {
    let (mut play, conn) = start();
    press(&mut play, conn, "no-such", "once");
    assert_eq!(play.got(conn), [json!({"t": "prompt_done", "id": "no-such", "expired": true})]);
    let id = card(&mut play, "k");
    play.got(conn);
    let other = play.hello("b");
    play.got(other);
    press(&mut play, other, &id, "once");
    let error = play.got(other).remove(0);
    assert_eq!((error["code"].as_str(), error["id"].as_str()), (Some("forbidden"), Some(id.as_str())));
    press(&mut play, conn, &id, "deny");
    let (event, _) = answered(&mut play).unwrap();
    take(&mut play, event);
    apply(&mut play, event, "deny");
    press(&mut play, other, &id, "once");
    assert_eq!(play.got_of(other, "error")[0]["code"], "forbidden", "also after it closed");
    let mut play = play.crash();
    let other = play.hello("b");
    press(&mut play, other, &id, "once");
    assert_eq!(play.got_of(other, "error")[0]["code"], "forbidden", "also after a restart");
    play.advance(25 * 3600 * 1000);
    press(&mut play, other, &id, "once");
    assert_eq!(play.got_of(other, "prompt_done")[0]["expired"], json!(true), "forgotten a day later");
}

#[test]
fn field_prompt_done_comes_only_after_the_agent_took_the_choice() {
    let (mut play, conn) = start();
    let id = card(&mut play, "k");
    play.got(conn);
    press(&mut play, conn, &id, "once");
    let (event, _) = answered(&mut play).unwrap();
    play.advance(5000);
    let error = play.got(conn).remove(0);
    assert_eq!(
        (error["code"].as_str(), &error["fatal"], error["id"].as_str()),
        (Some("agent_offline"), &json!(false), Some(id.as_str()))
    );
    let late = take(&mut play, event);
    assert_eq!(
        (late["ok"].clone(), late["code"].as_str()),
        (json!(false), Some("withdrawn")),
        "the event is void"
    );
    apply(&mut play, event, "once");
    assert!(play.got(conn).is_empty());
    press(&mut play, conn, &id, "once");
    assert!(answered(&mut play).is_some(), "the card is open");
}

#[test]
fn field_an_answer_while_no_agent_is_there_is_told_and_never_sent_late() {
    let (mut play, conn) = start();
    let id = card(&mut play, "k");
    play.got(conn);
    play.detach(false);
    press(&mut play, conn, &id, "once");
    play.advance(5000);
    assert_eq!(play.got_of(conn, "error")[0]["code"], "agent_offline");
    play.attach("i");
    assert!(answered(&mut play).is_none());
    press(&mut play, conn, &id, "once");
    play.detach(false);
    play.advance(1000);
    play.attach("i");
    assert_eq!(answered(&mut play).unwrap().1, "once", "within five seconds it is offered again");
}

#[test]
fn a_refusal_overrides_an_approval_that_was_not_taken() {
    let (mut play, conn) = start();
    let id = card(&mut play, "k");
    press(&mut play, conn, &id, "once");
    let (first, _) = answered(&mut play).unwrap();
    press(&mut play, conn, &id, "deny");
    let (second, option) = answered(&mut play).unwrap();
    assert_eq!(option, "deny");
    assert_eq!(take(&mut play, first)["code"], "withdrawn");
    assert_eq!(take(&mut play, second)["ok"], json!(true));
}

#[test]
fn field_time_over_is_the_refusal_for_device_and_agent() {
    let (mut play, conn) = start();
    let id = card(&mut play, "k");
    play.got(conn);
    play.advance(300_000);
    let done = play.got_of(conn, "prompt_done").remove(0);
    assert_eq!((done["option_id"].as_str(), &done["expired"]), (Some("deny"), &json!(true)));
    let event = play.events().remove(0);
    assert!(
        matches!(&event.what, Said::Prompt { prompt } if prompt.outcome == CardEnd::Expired && prompt.prompt_id == id)
    );
    let mut play = play.crash();
    play.attach("j");
    assert_eq!(play.events().len(), 1, "told until it is acked and done");
    let conn = play.hello("a");
    play.got(conn);
    press(&mut play, conn, &id, "once");
    assert_eq!(play.got(conn).remove(0)["expired"], json!(true));
}

#[test]
fn field_a_card_survives_a_restart_of_the_gateway_and_its_time_runs_on() {
    let (mut play, conn) = start();
    let id = card(&mut play, "k");
    play.got(conn);
    let mut play = play.crash();
    play.now += 100_000;
    play.attach("i");
    let conn = play.hello("a");
    let got = play.got(conn);
    assert_eq!((got[0]["t"].as_str(), got[1]["t"].as_str()), (Some("ready"), Some("prompt")));
    assert_eq!((got[1]["timeout_seconds"].as_u64(), got[1].get("seq")), (Some(200), None));
    press(&mut play, conn, &id, "once");
    let (event, _) = answered(&mut play).unwrap();
    take(&mut play, event);
    apply(&mut play, event, "once");
    assert_eq!(play.got_of(conn, "prompt_done")[0]["option_id"], "once");
}

#[test]
fn field_a_deadline_that_passes_while_everything_is_down_is_kept() {
    let (mut play, _) = start();
    card(&mut play, "k");
    let mut play = play.crash();
    play.now += 400_000;
    play.attach("i");
    play.advance(1);
    assert!(matches!(&play.events()[0].what, Said::Prompt { prompt } if prompt.outcome == CardEnd::Expired));
    let conn = play.hello("a");
    assert!(!play.got(conn).iter().any(|frame| frame["t"] == "prompt" && frame.get("seq").is_none()));
}

#[test]
fn field_the_agent_restarts_with_a_card_open() {
    let (mut play, conn) = start();
    let id = card(&mut play, "k");
    play.got(conn);
    play.detach(false);
    play.attach("i");
    assert!(play.got(conn).is_empty(), "the same process: the card stays");
    play.detach(false);
    play.attach("another");
    let done = play.got_of(conn, "prompt_done").remove(0);
    assert_eq!(
        (done["option_id"].as_str(), done["reason"].as_str()),
        (Some("deny"), Some("agent_restarted"))
    );
    press(&mut play, conn, &id, "once");
    assert!(answered(&mut play).is_none());
}

#[test]
fn field_a_new_conversation_closes_the_old_ones_cards() {
    let (mut play, conn) = start();
    let first = card(&mut play, "1");
    let second = card(&mut play, "2");
    play.got(conn);
    play.call(json!({"op": "conversation", "device": "a", "id": "c2"}));
    let done = play.got_of(conn, "prompt_done");
    assert_eq!(done.len(), 2);
    assert!(done.iter().all(|done| done["reason"] == "new_conversation" && done["option_id"] == "deny"));
    let third = card(&mut play, "3");
    press(&mut play, conn, &first, "once");
    press(&mut play, conn, &second, "once");
    assert!(answered(&mut play).is_none(), "a late answer has no effect on the new one");
    press(&mut play, conn, &third, "once");
    assert!(answered(&mut play).is_some());
}

#[test]
fn an_answer_that_was_taken_as_its_card_ended_is_withdrawn() {
    let (mut play, conn) = start();
    let id = card(&mut play, "k");
    press(&mut play, conn, &id, "once");
    let (event, _) = answered(&mut play).unwrap();
    play.hold_commits = true;
    let req = play.call(json!({"op": "take", "event": event}));
    play.call(json!({"op": "conversation", "device": "a", "id": "c2"}));
    play.commit();
    assert_eq!(play.result(req).unwrap()["code"], "withdrawn");
    assert_eq!(play.got_of(conn, "prompt_done")[0]["option_id"], "deny");
}

#[test]
fn field_two_open_cards_are_told_apart() {
    let (mut play, conn) = start();
    let first = card(&mut play, "1");
    let second = card(&mut play, "2");
    assert_ne!(first, second);
    press(&mut play, conn, &second, "session");
    let event = play.events().remove(0);
    assert!(
        matches!(&event.what, Said::Prompt { prompt } if prompt.prompt_id == second && prompt.option_id.as_deref() == Some("session"))
    );
    assert_eq!(card(&mut play, "1"), first, "a repeated call gives the same card");
}

#[test]
fn field_no_card_goes_out_without_options_or_with_a_command_that_was_cut() {
    let (mut play, conn) = start();
    for call in [
        json!({"options": []}),
        json!({"options": options(&["once", "deny"]), "command": "x".repeat(64 * 1024 + 1)}),
        json!({"options": options(&["once", "deny"]), "deadline_seconds": 0}),
    ] {
        let mut full = json!({"op": "prompt", "key": "k", "device": "a", "kind": "exec_approval", "text": "t", "deadline_seconds": 60});
        full.as_object_mut().unwrap().extend(call.as_object().unwrap().clone());
        let req = play.call(full);
        assert_eq!(play.result(req).unwrap()["code"], "bad_call");
    }
    assert!(play.got(conn).is_empty());
}

#[test]
fn a_taken_card_is_asked_about_before_a_further_answer_counts() {
    let (mut play, conn) = start();
    let id = card(&mut play, "k");
    press(&mut play, conn, &id, "once");
    let (event, _) = answered(&mut play).unwrap();
    take(&mut play, event);
    let mut play = play.crash();
    play.attach("i");
    let conn = play.hello("a");
    press(&mut play, conn, &id, "deny");
    assert!(answered(&mut play).is_none());
    let req = play
        .to_agent
        .iter()
        .find_map(|frame| match frame {
            protocol::link::ToAgent::Request { req, .. } => Some(*req),
            _ => None,
        })
        .unwrap();
    play.calls(vec![serde_json::from_value(json!({"op": "answer", "req": req, "state": "open"})).unwrap()]);
    assert_eq!(answered(&mut play).unwrap().1, "deny");
}

#[test]
fn clarify_takes_a_free_answer_and_refuses_what_it_did_not_offer() {
    let (mut play, conn) = start();
    let req = play.call(json!({"op": "prompt", "key": "c", "device": "a", "kind": "clarify", "text": "which?",
        "options": [{"id": "red", "label": "Red", "style": "primary"}, {"id": "other", "label": "Other", "style": "secondary", "allow_text": true}],
        "deadline_seconds": 60}));
    let id = play.result(req).unwrap()["prompt_id"].as_str().unwrap().to_owned();
    let shown = play.got(conn).remove(0);
    assert_eq!(shown["options"][1]["allow_text"], json!(true));
    press(&mut play, conn, &id, "blue");
    assert_eq!(play.got(conn).remove(0)["code"], "bad_frame");
    play.say(conn, json!({"t": "prompt", "prompt_id": id, "option_id": "other", "text": "teal"}));
    let event = play.events().remove(0);
    assert!(matches!(&event.what, Said::Prompt { prompt } if prompt.text.as_deref() == Some("teal")));
}

#[test]
fn field_a_second_card_in_the_same_turn_works_and_no_answer_is_chat() {
    let (mut play, conn) = start();
    play.say(conn, json!({"t": "text", "id": "1", "text": "clean up"}));
    assert_eq!(play.events().len(), 1);
    play.call(json!({"op": "turn", "device": "a", "state": "on"}));
    play.got(conn);
    for (key, option) in [("first", "once"), ("second", "session"), ("third", "deny")] {
        let id = card(&mut play, key);
        assert_eq!(play.got_of(conn, "prompt")[0]["id"], json!(id), "{key}");
        press(&mut play, conn, &id, option);
        let events = play.events();
        assert_eq!(events.len(), 1, "{key}: the answer and nothing beside it");
        assert!(
            matches!(&events[0].what, Said::Prompt { prompt } if prompt.prompt_id == id && prompt.option_id.as_deref() == Some(option)),
            "{key}: {:?}",
            events[0].what
        );
        take(&mut play, events[0].event);
        apply(&mut play, events[0].event, option);
        let got = play.got(conn);
        assert_eq!(got.len(), 1, "{key}: {got:?}");
        assert_eq!((got[0]["t"].as_str(), got[0]["option_id"].as_str()), (Some("prompt_done"), Some(option)));
        play.ack(events[0].event);
        play.done(events[0].event);
    }
    // Words that look like an answer are words.
    card(&mut play, "fourth");
    play.say(conn, json!({"t": "text", "id": "2", "text": "once"}));
    let events = play.events();
    assert!(matches!(&events[0].what, Said::Text { text } if text == "once"), "{:?}", events[0].what);
    assert!(play.got_of(conn, "prompt_done").is_empty(), "the card stays open");
}

#[test]
fn once_means_once_a_second_press_does_not_overtake_the_take() {
    let (mut play, conn) = start();
    let id = card(&mut play, "k");
    press(&mut play, conn, &id, "once");
    let (event, _) = answered(&mut play).unwrap();
    play.hold_commits = true;
    let take = play.call(json!({"op": "take", "event": event}));
    press(&mut play, conn, &id, "once");
    let asked = |play: &Play| play.to_agent.iter().position(|f| matches!(f, ToAgent::Request { .. }));
    assert_eq!(asked(&play), None, "an agent that does not know that it took the answer would say: open");
    play.commit();
    let result =
        play.to_agent.iter().position(|f| matches!(f, ToAgent::Result(result) if result.req == take));
    assert!(result.is_some() && result < asked(&play), "first the result, then the question");
}

#[test]
fn a_card_and_its_end_are_on_disk_before_they_are_shown() {
    let (mut play, conn) = start();
    play.hold_commits = true;
    play.call(json!({"op": "prompt", "key": "k", "device": "a", "kind": "exec_approval", "text": "run?",
        "command": "ls", "options": options(&["once", "deny"]), "deadline_seconds": 300}));
    play.cut(conn);
    let conn = play.hello("a");
    assert!(play.got_of(conn, "prompt").is_empty(), "a crash now would leave a card that nobody knows");
    play.commit();
    let id = play.got_of(conn, "prompt")[0]["id"].as_str().unwrap().to_owned();
    play.hold_commits = false;
    press(&mut play, conn, &id, "once");
    let (event, _) = answered(&mut play).unwrap();
    take(&mut play, event);
    play.hold_commits = true;
    apply(&mut play, event, "once");
    press(&mut play, conn, &id, "once");
    assert!(play.got_of(conn, "prompt_done").is_empty());
    play.commit();
    assert_eq!(play.got_of(conn, "prompt_done").len(), 1);
}

#[test]
fn a_card_whose_question_was_lost_with_the_link_does_not_stay_open() {
    let (mut play, conn) = start();
    let id = card(&mut play, "k");
    press(&mut play, conn, &id, "once");
    let (event, _) = answered(&mut play).unwrap();
    take(&mut play, event);
    play.detach(false);
    // Its time is over while nobody can be asked.
    play.advance(301_000);
    play.to_agent.clear();
    play.attach("i");
    let req = play.to_agent.iter().find_map(|frame| match frame {
        ToAgent::Request { req, .. } => Some(*req),
        _ => None,
    });
    let req = req.expect("asked again");
    play.calls(vec![
        serde_json::from_value(json!({"op": "answer", "req": req, "state": "applied", "option_id": "once"}))
            .unwrap(),
    ]);
    assert_eq!(play.got_of(conn, "prompt_done")[0]["option_id"], "once");
}

#[test]
fn what_took_effect_is_known_also_after_a_restart_of_the_gateway() {
    let (mut play, conn) = start();
    let id = card(&mut play, "k");
    press(&mut play, conn, &id, "once");
    let (event, _) = answered(&mut play).unwrap();
    take(&mut play, event);
    let mut play = play.crash();
    play.attach("i");
    let conn = play.hello("a");
    apply(&mut play, event, "once");
    assert_eq!(play.got_of(conn, "prompt_done")[0]["option_id"], "once");
}

#[test]
fn the_number_of_an_answer_is_never_that_of_a_text() {
    let (mut play, conn) = start();
    let id = card(&mut play, "k");
    press(&mut play, conn, &id, "once");
    let (answer, _) = answered(&mut play).unwrap();
    // The answer was not stored: a position would be given again now, to an agent that remembers it.
    let mut play = play.crash();
    play.attach("i");
    let conn = play.hello("a");
    play.say(conn, json!({"t": "text", "id": "1", "text": "hi"}));
    assert!(play.events().iter().all(|event| event.event != answer));
}

#[test]
fn a_new_process_that_took_an_answer_itself_is_acting_on_it() {
    let (mut play, conn) = start();
    let id = card(&mut play, "k");
    press(&mut play, conn, &id, "once");
    play.detach(true);
    play.to_agent.clear();
    play.attach_as("i", true);
    let (event, _) = answered(&mut play).unwrap();
    take(&mut play, event);
    assert_eq!(card(&mut play, "k"), id);
    apply(&mut play, event, "once");
    assert_eq!(play.got_of(conn, "prompt_done")[0]["option_id"], "once", "its own repeat undid nothing");
}

#[test]
fn an_agent_that_takes_again_is_asked_again() {
    let (mut play, conn) = start();
    let id = card(&mut play, "k");
    press(&mut play, conn, &id, "once");
    let (event, _) = answered(&mut play).unwrap();
    take(&mut play, event);
    // The result is lost with the link; a second press makes the gateway ask.
    play.detach(false);
    press(&mut play, conn, &id, "session");
    play.to_agent.clear();
    play.attach("i");
    let requests = |play: &Play| -> Vec<u64> {
        let req = |frame: &ToAgent| match frame {
            ToAgent::Request { req, .. } => Some(*req),
            _ => None,
        };
        play.to_agent.iter().filter_map(req).collect()
    };
    let early = requests(&play);
    take(&mut play, event);
    let stands = |req: u64, state: &str| {
        vec![serde_json::from_value(json!({"op": "answer", "req": req, "state": state})).unwrap()]
    };
    play.calls(stands(early[0], "open"));
    assert!(answered(&mut play).is_none(), "it said so before it knew that it may act");
    let late = *requests(&play).last().unwrap();
    assert_ne!(late, early[0]);
    play.calls(stands(late, "applied"));
    assert_eq!(play.got_of(conn, "prompt_done")[0]["option_id"], "once");
}
