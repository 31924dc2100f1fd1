use protocol::{
    link::{Answer, CardState, FromAgent, Outcome, What},
    server::OutKind,
};

use super::gateway;
use crate::testing::{State, error};

#[test]
fn a_repeat_is_only_acked() {
    let mut gateway = gateway();
    for text in ["hello", "/stream 3", "/approve ls", "/image", "/slow 1"] {
        let event = gateway.say("a", text);
        let before = gateway.batches.len();
        gateway.again(event);
        assert_eq!(gateway.batches[before..], [vec![FromAgent::Ack { event }]], "{text}");
    }
    gateway.run(2_000);
    assert_eq!((gateway.bubbles.len(), gateway.cards.len(), gateway.files.len()), (3, 1, 1));
}

#[test]
fn a_stream_goes_on_in_its_bubble_wherever_it_was_cut() {
    for at in 0..6 {
        let mut gateway = gateway();
        let event = gateway.say("a", "/stream 6");
        gateway.run(at * 20);
        gateway.restart();
        gateway.run(1_000);
        assert_eq!(gateway.bubbles.len(), 1);
        assert_eq!(gateway.texts("a"), ["word1 word2 word3 word4 word5 word6"]);
        assert_eq!(gateway.done(event), Some(Outcome::Ok));
        gateway.assert_quiet();
    }
}

#[test]
fn every_text_reply_comes_once_whenever_it_restarts() {
    for text in ["hello", "/editfail", "/slow 1", "/fail", "/long 500"] {
        for at in [0, 100, 310, 330, 350, 600, 1_500] {
            let mut gateway = gateway();
            gateway.say("a", text);
            gateway.run(at);
            gateway.restart();
            gateway.run(5_000);
            let once = gateway.bubbles.len();
            let mut undisturbed = super::gateway();
            undisturbed.say("a", text);
            undisturbed.run(5_000);
            assert_eq!(once, undisturbed.bubbles.len(), "{text} cut at {at}");
            assert_eq!(gateway.texts("a"), undisturbed.texts("a"), "{text} cut at {at}");
        }
    }
}

#[test]
fn files_come_once() {
    let mut gateway = gateway();
    gateway.hold = true;
    let event = gateway.say("a", "/pictures 4");
    gateway.hold = false;
    gateway.fail =
        Some((|c| matches!(c, FromAgent::Media { key, .. } if key.ends_with("/3")), error("internal", true)));
    gateway.pump();
    assert_eq!(gateway.files.len(), 2);
    gateway.restart();
    assert_eq!(gateway.files.len(), 4);
    assert!(gateway.files.iter().all(|f| matches!(f, FromAgent::Media { kind: OutKind::Image, .. })));
    assert_eq!(gateway.done(event), Some(Outcome::Ok));
    gateway.assert_quiet();
}

#[test]
fn an_open_card_is_the_same_card() {
    let mut gateway = gateway();
    let event = gateway.say("a", "/cards 2");
    gateway.restart();
    assert_eq!(gateway.cards.len(), 2);
    gateway.press(1, "session", None);
    gateway.restart();
    gateway.press(0, "once", None);
    assert_eq!(gateway.texts("a"), ["CMD 2: approved: session", "CMD 1: approved: once"]);
    // The first process reported card 2; this one does not know that it ended, and forgets it after its time.
    assert_eq!(gateway.done(event), None);
    gateway.run(400_000);
    assert_eq!(gateway.bubbles.len(), 2);
    gateway.assert_quiet();
}

#[test]
fn an_outcome_that_comes_before_the_card_s_id_waits_for_it() {
    for option in ["once", "deny"] {
        let mut gateway = gateway();
        gateway.say("a", "/approve ls");
        gateway.hold = true;
        // Answered; the agent ends before it sees the result of `take`.
        gateway.press(0, option, None);
        gateway.restart();
        assert!(gateway.texts("a").is_empty());
        gateway.hold = false;
        gateway.pump();
        let reply = if option == "deny" { "denied" } else { "approved: once" };
        assert_eq!(gateway.texts("a"), [reply]);
        assert_eq!(gateway.cards[0].state, State::Done(option.into()));
        gateway.assert_quiet();
    }
}

#[test]
fn an_expiry_that_comes_before_the_card_s_id_waits_for_it() {
    let mut gateway = gateway();
    gateway.say("a", "/cards 2");
    gateway.hold = true;
    gateway.restart();
    gateway.expire(0);
    gateway.expire(1);
    assert!(gateway.texts("a").is_empty());
    gateway.hold = false;
    gateway.pump();
    assert_eq!(gateway.texts("a"), ["CMD 1: timed out", "CMD 2: timed out"]);
    gateway.assert_quiet();
}

#[test]
fn the_gateway_s_question_about_a_card_waits_for_its_id() {
    let mut gateway = gateway();
    gateway.say("a", "/approve ls");
    let id = gateway.cards[0].id.clone();
    gateway.hold = true;
    gateway.restart();
    gateway.ask(5, What::Prompt { prompt_id: id });
    gateway.ask(6, What::Prompt { prompt_id: "nobody's".into() });
    assert!(gateway.answers.is_empty());
    gateway.hold = false;
    gateway.pump();
    let stands = |state| Answer::Prompt { state, option_id: None };
    assert_eq!(gateway.answers, [(5, stands(CardState::Open)), (6, stands(CardState::Gone))]);
}

#[test]
fn a_question_waits_on() {
    let mut gateway = gateway();
    gateway.say("a", "/ask open");
    gateway.hold = true;
    gateway.restart();
    gateway.say("a", "blue");
    gateway.hold = false;
    gateway.pump();
    assert_eq!((gateway.bubbles.len(), gateway.texts("a")[1].as_str()), (2, "you chose: blue"));
    gateway.assert_quiet();
}

#[test]
fn an_answer_other_that_was_not_decided_keeps_its_text() {
    let mut gateway = gateway();
    gateway.say("a", "/ask");
    gateway.hold = true;
    gateway.press(0, "other", None);
    gateway.say("a", "grey");
    gateway.restart();
    gateway.run(1_000);
    gateway.hold = false;
    gateway.pump();
    gateway.run(1_000);
    assert_eq!(gateway.texts("a"), ["you chose: grey"]);
    gateway.assert_quiet();
}

#[test]
fn an_early_outcome_of_no_card_of_ours_is_closed_in_the_end() {
    let mut gateway = gateway();
    gateway.say("a", "/approve ls");
    gateway.say("a", "/approve pwd");
    gateway.press(0, "once", None);
    gateway.hold = true;
    gateway.restart();
    let stray = gateway.press(0, "once", None);
    assert_eq!(gateway.done(stray), None);
    gateway.hold = false;
    gateway.pump();
    assert_eq!(gateway.done(stray), Some(Outcome::Ok));
    gateway.press(1, "once", None);
    assert_eq!(gateway.texts("a"), ["approved: once", "approved: once"]);
    gateway.assert_quiet();
}

#[test]
fn a_new_conversation_is_begun_again() {
    let mut gateway = gateway();
    gateway.say("a", "/approve ls");
    gateway.down = true;
    gateway.say("a", "/slow 0");
    let new = gateway.say("a", "/new");
    gateway.down = false;
    gateway.restart();
    gateway.run(0);
    assert_eq!(gateway.done(new), Some(Outcome::Ok));
    assert_eq!(gateway.cards[0].state, State::Closed);
    gateway.assert_quiet();
}

#[test]
fn an_answer_other_that_was_applied_still_waits_for_its_text() {
    let mut gateway = gateway();
    gateway.say("a", "/ask");
    let pressed = gateway.press(0, "other", None);
    assert_eq!((gateway.done(pressed), &gateway.cards[0].state), (None, &State::Done("other".into())));
    gateway.hold = true;
    gateway.restart();
    gateway.say("a", "grey");
    gateway.hold = false;
    gateway.pump();
    assert_eq!(gateway.texts("a"), ["you chose: grey"]);
    gateway.assert_quiet();
}
