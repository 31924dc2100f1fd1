use protocol::link::{CardEnd, FromAgent, Outcome, Said, What};
use protocol::server::PromptKind;

use super::*;
use crate::testing::{Gateway, error, file, outcome_of};

#[test]
fn a_text_comes_back_in_one_batch() {
    let mut gateway = Gateway::new(Echo::new);
    for text in
        ["hello", " ", "!stream", "!stream 5", "!stream 5 6", "!stream 1 1 1 1", "!stream 1 1 60001", "/help"]
    {
        let event = gateway.say("a", text);
        assert_eq!(gateway.texts("a").last().unwrap(), text);
        assert!(matches!(
            gateway.batch_of_done(event),
            [FromAgent::Ack { .. }, FromAgent::Send { last: true, .. }, FromAgent::Done { .. }]
        ));
    }
    gateway.assert_quiet();
    assert_eq!(gateway.texts("a").len(), 8);
}

#[test]
fn a_file_is_described() {
    let mut gateway = Gateway::new(Echo::new);
    gateway.hear("a", Said::Media { media: file("image", "x.png", "image/png", Some("dot")) });
    gateway.hear("a", Said::Voice { media: file("voice", "v.ogg", "audio/ogg", None) });
    assert_eq!(gateway.texts("a"), ["dot [image 3 bytes]", "[voice 3 bytes]"]);
    gateway.assert_quiet();
}

#[test]
fn a_document_is_made_as_long_as_asked() {
    assert_eq!((file_of("!file 1"), file_of("!file 8388608")), (Some(1), Some(8_388_608)));
    for other in ["!file", "!file 0", "!file 8388609", "!file -1", "!file 1 1", "file 5"] {
        assert_eq!(file_of(other), None, "{other}");
    }
    for bytes in [1, 250, 251, 252, 1_000] {
        let FromAgent::Media { source: MediaSource::Data(data), .. } = document(7, "a".into(), bytes) else {
            panic!("bytes")
        };
        assert_eq!(data.len(), bytes);
        assert!(data.iter().enumerate().all(|(at, byte)| usize::from(*byte) == at % 251));
    }
}

#[test]
fn a_stream_grows_to_its_length() {
    let mut gateway = Gateway::new(Echo::new);
    let event = gateway.say("a", "!stream 1000 7 30");
    assert_eq!(gateway.bubbles[0].texts.len(), 1);
    gateway.run(5 * 30);
    assert_eq!((gateway.bubbles[0].texts.len(), gateway.done(event)), (6, None));
    gateway.run(30);
    let texts = &gateway.bubbles[0].texts;
    assert_eq!(texts.len(), 7);
    assert!(texts.windows(2).all(|w| w[1].starts_with(&w[0]) && w[1].len() > w[0].len()));
    assert_eq!(texts[6].len(), 1000);
    assert!(gateway.batch_of_done(event).iter().any(|c| matches!(c, FromAgent::Edit { last: true, .. })));
    gateway.assert_quiet();

    let event = gateway.say("a", "!stream 9 1");
    assert_eq!(gateway.texts("a")[1], "abcdefghi");
    assert_eq!(gateway.done(event), Some(Outcome::Ok));
}

#[test]
fn a_repeat_is_only_acked_and_a_restart_goes_on_in_the_same_bubble() {
    let mut gateway = Gateway::new(Echo::new);
    let event = gateway.say("a", "!stream 100 10 20");
    gateway.run(60);
    gateway.again(event);
    assert_eq!((gateway.acks(event), gateway.bubbles[0].texts.len()), (2, 4));
    gateway.restart();
    gateway.run(1_000);
    assert_eq!(gateway.bubbles.len(), 1);
    assert_eq!(gateway.texts("a")[0].len(), 100);
    gateway.assert_quiet();
    gateway.again(event);
    gateway.run(1_000);
    assert_eq!(gateway.bubbles.len(), 1);
}

#[test]
fn what_the_gateway_could_not_do_is_said_again_and_given_up_in_the_end() {
    let mut gateway = Gateway::new(Echo::new);
    let first = gateway.say("a", "one");
    gateway.fail = Some((|c| matches!(c, FromAgent::Send { .. }), error("internal", true)));
    let second = gateway.say("a", "two");
    assert_eq!(gateway.texts("a"), ["one"]);
    gateway.run(499);
    assert_eq!(gateway.texts("a"), ["one"]);
    gateway.run(1);
    assert_eq!(gateway.texts("a"), ["one", "two"]);
    assert_eq!((gateway.done(first), gateway.done(second)), (Some(Outcome::Ok), Some(Outcome::Ok)));

    gateway.fail = Some((|c| matches!(c, FromAgent::Send { .. }), error("too_big", false)));
    let third = gateway.say("a", "!stream 100 10");
    assert_eq!(gateway.done(third), Some(Outcome::Failed));
    gateway.run(60_000);
    assert_eq!(gateway.bubbles.len(), 2);
    gateway.assert_quiet();
}

#[test]
fn it_has_no_commands_and_no_cards() {
    let mut gateway = Gateway::new(Echo::new);
    gateway.ask(1, What::Commands);
    gateway.ask(2, What::Models);
    gateway.ask(3, What::Prompt { prompt_id: "p".into() });
    assert_eq!(gateway.answers[0], (1, Answer::Commands { commands: vec![] }));
    assert_eq!(gateway.answers[1], (2, Answer::Models { current: "echo".into(), models: vec![] }));
    assert_eq!(gateway.answers[2], (3, Answer::Prompt { state: CardState::Gone, option_id: None }));
    let prompt = outcome_of("p", PromptKind::Clarify, CardEnd::Answered, Some("red"), None);
    let event = gateway.hear("a", Said::Prompt { prompt });
    assert_eq!(gateway.done(event), Some(Outcome::Ok));
}
