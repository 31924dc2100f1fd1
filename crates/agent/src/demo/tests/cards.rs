use protocol::{
    link::{Answer, CardEnd, CardState, FromAgent, Outcome, Said, What},
    server::{OptionStyle, PromptKind},
};

use super::gateway;
use crate::{
    demo::{NEW, QUESTION},
    testing::{State, error, outcome_of},
};

#[test]
fn approve_reports_what_was_pressed() {
    for (option, reply) in [
        ("once", "approved: once"),
        ("session", "approved: session"),
        ("always", "approved: always"),
        ("deny", "denied"),
        ("allow_all", "denied"),
    ] {
        let mut gateway = gateway();
        let event = gateway.say("a", "/approve rm -rf /tmp/build");
        let FromAgent::Prompt { kind, command, options, deadline_seconds, .. } = &gateway.cards[0].frame
        else {
            panic!("{:?}", gateway.cards)
        };
        assert_eq!((*kind, command.as_deref()), (PromptKind::ExecApproval, Some("rm -rf /tmp/build")));
        assert_eq!(
            options.iter().map(|o| o.id.as_str()).collect::<Vec<_>>(),
            ["once", "session", "always", "deny"]
        );
        assert_eq!((options[0].style, options[3].style), (OptionStyle::Primary, OptionStyle::Danger));
        assert_eq!(*deadline_seconds, 300);
        assert_eq!(gateway.done(event), None);
        let answer = gateway.press(0, option, None);
        assert_eq!(gateway.texts("a"), [reply]);
        let took = if option == "allow_all" { "deny" } else { option };
        assert_eq!(gateway.cards[0].state, State::Done(took.into()));
        let batch = gateway.batch_of_done(event);
        assert!(matches!(batch.first(), Some(FromAgent::Applied { event: e, ok: true, .. }) if *e == answer));
        assert!(batch.iter().any(|c| matches!(c, FromAgent::Send { .. })));
        assert!(batch.contains(&FromAgent::Done { event: answer, outcome: Outcome::Ok }));
        gateway.assert_quiet();
    }
}

#[test]
fn a_time_limit_is_passed_on_and_its_end_reported() {
    let mut gateway = gateway();
    gateway.say("a", "/approve 5 ls");
    assert!(matches!(gateway.cards[0].frame, FromAgent::Prompt { deadline_seconds: 5, .. }));
    gateway.run(5_000);
    gateway.expire(0);
    assert_eq!(gateway.texts("a"), ["timed out"]);
    assert!(!gateway.batches.iter().flatten().any(|c| matches!(c, FromAgent::Take { .. })));
    gateway.assert_quiet();
}

#[test]
fn each_of_several_cards_is_reported_with_its_number() {
    let mut gateway = gateway();
    let event = gateway.say("a", "/cards 4");
    assert_eq!(gateway.cards.len(), 4);
    gateway.press(1, "once", None);
    gateway.press(3, "deny", None);
    gateway.expire(0);
    assert_eq!(gateway.done(event), None);
    gateway.press(2, "always", None);
    assert_eq!(
        gateway.texts("a"),
        ["CMD 2: approved: once", "CMD 4: denied", "CMD 1: timed out", "CMD 3: approved: always"]
    );
    gateway.assert_quiet();
}

#[test]
fn confirm_reports_what_was_pressed() {
    for (option, reply) in
        [("once", "confirmed: once"), ("always", "confirmed: always"), ("cancel", "cancelled")]
    {
        let mut gateway = gateway();
        gateway.say("a", "/confirm");
        assert!(matches!(gateway.cards[0].frame, FromAgent::Prompt { kind: PromptKind::SlashConfirm, .. }));
        gateway.press(0, option, None);
        assert_eq!(gateway.texts("a"), [reply]);
        gateway.assert_quiet();
    }
}

#[test]
fn ask_takes_a_choice_a_free_answer_or_the_next_text() {
    let mut gateway = gateway();
    gateway.say("a", "/ask");
    let FromAgent::Prompt { options, kind: PromptKind::Clarify, .. } = &gateway.cards[0].frame else {
        panic!("{:?}", gateway.cards)
    };
    let allow: Vec<_> = options.iter().map(|o| (o.id.as_str(), o.allow_text)).collect();
    assert_eq!(allow, [("red", false), ("green", false), ("blue", false), ("other", true)]);
    gateway.press(0, "red", None);
    gateway.say("a", "/ask");
    gateway.press(1, "other", Some("grey"));
    gateway.say("a", "/ask");
    let pressed = gateway.press(2, "other", None);
    assert_eq!((gateway.done(pressed), &gateway.cards[2].state), (None, &State::Done("other".into())));
    gateway.say("a", "/count");
    gateway.say("b", "not mine");
    gateway.say("a", "dark grey");
    gateway.run(300);
    assert_eq!(gateway.texts("a"), ["you chose: red", "you chose: grey", "4", "you chose: dark grey"]);
    assert_eq!(gateway.texts("b"), ["You said: not mine"]);
    gateway.assert_quiet();
}

#[test]
fn a_text_waits_while_an_answer_other_is_not_decided() {
    let mut gateway = gateway();
    gateway.say("a", "/ask");
    gateway.hold = true;
    gateway.press(0, "other", None);
    let text = gateway.say("a", "grey");
    gateway.run(1_000);
    assert_eq!((gateway.acks(text), gateway.done(text)), (1, None));
    gateway.hold = false;
    gateway.pump();
    assert_eq!(gateway.texts("a"), ["you chose: grey"]);
    gateway.assert_quiet();
}

#[test]
fn an_open_question_takes_the_next_text() {
    let mut gateway = gateway();
    let event = gateway.say("a", "/ask open");
    assert_eq!(gateway.texts("a"), [QUESTION]);
    assert_eq!(gateway.done(event), None);
    gateway.say("a", "green");
    gateway.say("a", "again");
    gateway.run(300);
    assert_eq!(gateway.texts("a")[1..], ["you chose: green", "You said: again"]);
    gateway.assert_quiet();
}

#[test]
fn a_withdrawn_answer_leaves_the_card_open() {
    let mut gateway = gateway();
    let event = gateway.say("a", "/approve ls");
    gateway.fail = Some((|c| matches!(c, FromAgent::Take { .. }), error("withdrawn", false)));
    let first = gateway.press(0, "once", None);
    assert_eq!((gateway.done(first), gateway.done(event)), (Some(Outcome::Ok), None));
    assert!(gateway.texts("a").is_empty());
    gateway.ask(1, What::Prompt { prompt_id: gateway.cards[0].id.clone() });
    assert_eq!(gateway.answers, [(1, Answer::Prompt { state: CardState::Open, option_id: None })]);
    gateway.press(0, "deny", None);
    assert_eq!(gateway.texts("a"), ["denied"]);
    gateway.assert_quiet();
}

#[test]
fn of_two_answers_only_the_one_that_may_be_taken_counts() {
    let mut gateway = gateway();
    gateway.say("a", "/approve ls");
    gateway.hold = true;
    gateway.press(0, "once", None);
    // The gateway lets a refusal override: the first is withdrawn.
    gateway.fail = Some((|c| matches!(c, FromAgent::Take { .. }), error("withdrawn", false)));
    gateway.press(0, "deny", None);
    gateway.hold = false;
    gateway.pump();
    assert_eq!(gateway.texts("a"), ["approved: once"]);
    gateway.assert_quiet();
}

#[test]
fn what_took_effect_stands_when_it_is_asked_again() {
    let mut gateway = gateway();
    gateway.say("a", "/approve ls");
    gateway.press(0, "once", None);
    let again = gateway.press(0, "once", None);
    let other = gateway.press(0, "deny", None);
    let applied = |event| {
        gateway.batches.iter().flatten().find_map(|c| match c {
            FromAgent::Applied { event: e, ok, option_id, .. } if *e == event => {
                Some((*ok, option_id.as_str()))
            }
            _ => None,
        })
    };
    assert_eq!(applied(again), Some((true, "once")));
    assert_eq!(applied(other), Some((false, "once")));
    assert_eq!(gateway.texts("a"), ["approved: once"]);
    gateway.ask(9, What::Prompt { prompt_id: gateway.cards[0].id.clone() });
    let want = Answer::Prompt { state: CardState::Applied, option_id: Some("once".into()) };
    assert_eq!(gateway.answers, [(9, want)]);
    gateway.assert_quiet();
}

#[test]
fn a_card_that_is_not_known_is_closed() {
    let mut gateway = gateway();
    let prompt = outcome_of("nobody's", PromptKind::ExecApproval, CardEnd::Answered, Some("once"), None);
    let event = gateway.hear("a", Said::Prompt { prompt });
    assert_eq!(gateway.done(event), Some(Outcome::Ok));
    assert!(gateway.batch_of_done(event).iter().any(|c| matches!(c,
        FromAgent::PromptClose { prompt_id, option_id: Some(o), .. } if prompt_id == "nobody's" && o == "deny")));
    let prompt = outcome_of("nobody's", PromptKind::ExecApproval, CardEnd::Expired, None, None);
    let event = gateway.hear("a", Said::Prompt { prompt });
    assert_eq!(gateway.done(event), Some(Outcome::Ok));
    gateway.ask(1, What::Prompt { prompt_id: "nobody's".into() });
    assert_eq!(gateway.answers, [(1, Answer::Prompt { state: CardState::Gone, option_id: None })]);
    assert!(gateway.bubbles.is_empty());
}

#[test]
fn a_new_conversation_ends_cards_and_questions() {
    let mut gateway = gateway();
    let mut events =
        vec![gateway.say("a", "/cards 2"), gateway.say("a", "/ask open"), gateway.say("a", "/ask")];
    events.push(gateway.press(2, "other", None));
    let elsewhere = gateway.say("b", "/approve ls");
    let new = gateway.say("a", "/new");
    let batch = gateway.batch_of_done(new);
    for event in events {
        assert!(batch.contains(&FromAgent::Done { event, outcome: Outcome::Ok }), "{event}");
    }
    assert_eq!((&gateway.cards[0].state, &gateway.cards[3].state), (&State::Closed, &State::Open));
    gateway.ask(1, What::Prompt { prompt_id: gateway.cards[0].id.clone() });
    assert_eq!(gateway.answers, [(1, Answer::Prompt { state: CardState::Gone, option_id: None })]);
    gateway.say("a", "hello");
    gateway.run(300);
    assert_eq!(gateway.texts("a")[1..], [NEW, "You said: hello"]);
    gateway.press(3, "once", None);
    assert_eq!(gateway.texts("b"), ["approved: once"]);
    assert_eq!(gateway.done(elsewhere), Some(Outcome::Ok));
    gateway.assert_quiet();
}

#[test]
fn an_answer_under_way_when_the_conversation_ends_has_no_effect() {
    let mut gateway = gateway();
    gateway.say("a", "/approve ls");
    gateway.hold = true;
    let answer = gateway.press(0, "once", None);
    gateway.say("a", "/new");
    gateway.hold = false;
    gateway.pump();
    assert_eq!(gateway.texts("a"), [NEW]);
    assert!(gateway.batch_of_done(answer).iter().any(|c| matches!(c,
        FromAgent::Applied { ok: false, option_id, .. } if option_id == "deny")));
    gateway.assert_quiet();
}

#[test]
fn a_card_that_could_not_come_up_is_a_refusal() {
    let mut gateway = gateway();
    gateway.fail = Some((|c| matches!(c, FromAgent::Prompt { .. }), error("too_big", false)));
    let event = gateway.say("a", "/approve ls");
    assert_eq!(gateway.texts("a"), ["denied"]);
    assert_eq!(gateway.done(event), Some(Outcome::Failed));
    gateway.assert_quiet();
    // One that may come up later does.
    gateway.fail = Some((|c| matches!(c, FromAgent::Prompt { .. }), error("internal", true)));
    gateway.say("a", "/approve ls");
    assert!(gateway.cards.is_empty());
    gateway.run(500);
    gateway.press(0, "once", None);
    assert_eq!(gateway.texts("a"), ["denied", "approved: once"]);
    gateway.assert_quiet();
}

#[test]
fn a_repeated_card_does_not_come_up_in_the_next_conversation() {
    let mut gateway = gateway();
    gateway.fail = Some((|c| matches!(c, FromAgent::Prompt { .. }), error("internal", true)));
    gateway.say("a", "/approve ls");
    gateway.say("a", "/new");
    gateway.run(60_000);
    assert!(gateway.cards.is_empty());
    gateway.assert_quiet();
}

#[test]
fn a_card_without_an_end_is_forgotten_long_after_its_time() {
    let mut gateway = gateway();
    let event = gateway.say("a", "/approve 10 ls");
    gateway.run(69_999);
    assert_eq!(gateway.done(event), None);
    gateway.run(1);
    assert_eq!(gateway.done(event), Some(Outcome::Ok));
    assert!(gateway.bubbles.is_empty());
}
