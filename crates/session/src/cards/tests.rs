use protocol::server::OptionStyle;

use super::*;

const NOW: Millis = 1_000_000;

fn option(id: &str) -> PromptOption {
    PromptOption { id: id.into(), label: id.into(), style: OptionStyle::Secondary, allow_text: id == "other" }
}

fn cards(kind: PromptKind, options: &[&str]) -> Cards {
    let prompt = Prompt {
        id: "p".into(),
        kind,
        text: "t".into(),
        command: None,
        description: None,
        options: options.iter().map(|id| option(id)).collect(),
        session: "mobile:d".into(),
        timeout_seconds: 60,
        seq: Some(1),
    };
    let mut cards = Cards::default();
    cards.open(CardRecord { prompt, deadline: NOW + 60_000, key: "k".into(), instance: "i".into() }, 1);
    cards
}

fn approval() -> Cards {
    cards(PromptKind::ExecApproval, &["once", "session", "deny"])
}

fn press(cards: &mut Cards, option_id: &str, event: Pos, now: Millis) -> Answered {
    let answer = PromptAnswer { prompt_id: "p".into(), option_id: option_id.into(), text: None };
    cards.answer(&answer, event, 5000, now)
}

fn offered(answered: Answered) -> String {
    match answered {
        Answered::Offer(outcome) => outcome.option_id.unwrap_or_default(),
        other => panic!("not offered: {other:?}"),
    }
}

#[test]
fn field_the_pressed_option_is_what_the_agent_gets() {
    let mut cards = approval();
    assert_eq!(offered(press(&mut cards, "session", 7, NOW)), "session");
    assert_eq!(press(&mut cards, "session", 8, NOW), Answered::Wait, "a retry");
    assert_eq!(cards.take(7), Some(("p".into(), "session".into(), true)));
    assert_eq!(cards.take(7), Some(("p".into(), "session".into(), false)), "taking again");
    assert_eq!(cards.taken_by(7).as_deref(), Some("p"));
    let end = End { option_id: Some("session".into()), ..End::default() };
    cards.close("p", end.clone(), NOW);
    assert_eq!(press(&mut cards, "session", 9, NOW), Answered::Again(end.frame("p", None)));
    assert_eq!(press(&mut cards, "deny", 9, NOW), Answered::Again(end.frame("p", None)), "the first stands");
}

#[test]
fn what_was_not_offered_is_the_refusal() {
    assert_eq!(offered(press(&mut approval(), "allow_all", 7, NOW)), "deny");
    assert_eq!(offered(press(&mut approval(), "always", 7, NOW)), "deny", "not on this card");
    let mut confirm = cards(PromptKind::SlashConfirm, &["once", "cancel"]);
    assert_eq!(offered(press(&mut confirm, "x", 7, NOW)), "cancel");
    let mut clarify = cards(PromptKind::Clarify, &["red", "other"]);
    assert!(matches!(press(&mut clarify, "blue", 7, NOW), Answered::Refused(_)));
    assert!(clarify.is_open("p"));
}

#[test]
fn a_refusal_overrides_an_approval_that_was_not_taken() {
    let mut cards = approval();
    offered(press(&mut cards, "once", 7, NOW));
    assert_eq!(press(&mut cards, "session", 8, NOW), Answered::Wait, "another approval does not");
    assert_eq!(offered(press(&mut cards, "deny", 9, NOW)), "deny");
    assert_eq!(cards.take(7), None, "withdrawn");
    assert_eq!(cards.take(9), Some(("p".into(), "deny".into(), true)));
}

#[test]
fn an_answer_that_is_not_taken_is_withdrawn() {
    let mut cards = approval();
    offered(press(&mut cards, "once", 7, NOW));
    assert_eq!(cards.deadline(), Some(NOW + 5000));
    assert_eq!(cards.offers().len(), 1);
    assert_eq!(cards.tick(NOW + 5000), [Due::Withdrawn { id: "p".into(), event: 7 }]);
    assert_eq!(cards.take(7), None, "never applied later");
    assert_eq!(offered(press(&mut cards, "once", 8, NOW + 6000)), "once", "the card is open");
}

#[test]
fn time_over_is_the_refusal() {
    let mut cards = approval();
    offered(press(&mut cards, "once", 7, NOW + 59_000));
    let due = cards.tick(NOW + 60_000);
    assert!(matches!(&due[..], [Due::Expired { outcome, .. }]
        if outcome.outcome == CardEnd::Expired && outcome.option_id.as_deref() == Some("deny")));
    cards.close("p", End { option_id: Some("deny".into()), expired: true, reason: None }, NOW + 60_000);
    assert_eq!(cards.take(7), None);
    assert!(matches!(press(&mut cards, "once", 8, NOW + 61_000), Answered::Again(done) if done.expired));
    cards.tick(NOW + 60_000 + limits::CARD_MEMORY_MS);
    assert_eq!(press(&mut cards, "once", 9, NOW), Answered::Unknown);
}

#[test]
fn a_further_answer_waits_for_the_agents_word() {
    let mut cards = approval();
    offered(press(&mut cards, "once", 7, NOW));
    cards.take(7);
    assert_eq!(press(&mut cards, "deny", 8, NOW + 10), Answered::Ask);
    assert_eq!(press(&mut cards, "deny", 9, NOW + 20), Answered::Wait, "asked once");
    let (end, then) = cards.stands("p", CardState::Open, None);
    assert_eq!(end, None);
    assert_eq!(then.map(|answer| answer.option_id).as_deref(), Some("deny"));
    offered(press(&mut cards, "once", 10, NOW + 30));
    cards.take(10);
    let (end, _) = cards.stands("p", CardState::Applied, None);
    assert_eq!(end.and_then(|end| end.option_id).as_deref(), Some("once"));
    assert!(
        cards.tick(NOW + 60_000).iter().all(|due| matches!(due, Due::Ask { .. })),
        "no expiry over the agent's head"
    );
}

#[test]
fn other_with_text_and_without() {
    let mut cards = cards(PromptKind::Clarify, &["red", "other"]);
    let answer = PromptAnswer { prompt_id: "p".into(), option_id: "other".into(), text: Some("teal".into()) };
    assert!(
        matches!(cards.answer(&answer, 7, 5000, NOW), Answered::Offer(o) if o.text.as_deref() == Some("teal"))
    );
}

#[test]
fn the_time_left_is_shown_and_never_zero() {
    let cards = approval();
    assert_eq!(cards.present(NOW + 30_500)[0].timeout_seconds, 30);
    assert_eq!(cards.present(NOW + 59_999)[0].timeout_seconds, 1);
    assert_eq!(cards.present(NOW)[0].seq, None);
    assert_eq!(cards.open_ids(Some("i")).len(), 0);
    assert_eq!(cards.open_ids(Some("another")).len(), 1);
}

#[test]
fn a_card_is_checked_before_it_goes_out() {
    let ok = [option("once"), option("deny")];
    assert_eq!(check(PromptKind::ExecApproval, "t", Some("rm"), None, &ok), Ok(()));
    assert!(check(PromptKind::ExecApproval, "t", None, None, &[]).is_err());
    assert!(check(PromptKind::ExecApproval, "t", None, None, &[option("once"), option("once")]).is_err());
    assert!(check(PromptKind::ExecApproval, "t", None, None, &[option("once")]).is_err(), "no way to refuse");
    assert!(check(PromptKind::ExecApproval, "t", None, None, &[option("allow"), option("deny")]).is_err());
    let command = "x".repeat(limits::CARD_COMMAND_BYTES);
    assert!(check(PromptKind::ExecApproval, "t", Some(&command), None, &ok).is_ok());
    assert!(check(PromptKind::ExecApproval, "t", Some(&(command + "x")), None, &ok).is_err(), "never cut");
    let many: Vec<PromptOption> = (0..21).map(|n| option(&n.to_string())).collect();
    assert!(check(PromptKind::Clarify, "t", None, None, &many[..20]).is_ok());
    assert!(check(PromptKind::Clarify, "t", None, None, &many).is_err());
}

#[test]
fn only_an_agent_that_has_lost_its_memory_opens_a_taken_card_again() {
    let mut cards = approval();
    offered(press(&mut cards, "once", 7, NOW));
    cards.take(7);
    cards.reopen("p");
    assert_eq!(cards.taken_by(7).as_deref(), Some("p"), "it is acting on the answer");
    cards.forgotten();
    cards.reopen("p");
    assert_eq!(cards.taken_by(7), None);
    offered(press(&mut cards, "once", 8, NOW));
    cards.take(8);
    cards.reopen("p");
    assert_eq!(cards.taken_by(8).as_deref(), Some("p"), "taken since");
}

#[test]
fn a_question_that_was_not_answered_is_known() {
    let mut cards = approval();
    offered(press(&mut cards, "once", 7, NOW));
    cards.take(7);
    assert!(cards.asked().is_empty());
    assert!(matches!(&cards.tick(NOW + 60_000)[..], [Due::Ask { .. }]));
    assert_eq!(cards.asked(), ["p"]);
    assert_eq!(cards.events().collect::<Vec<_>>(), [7]);
}
