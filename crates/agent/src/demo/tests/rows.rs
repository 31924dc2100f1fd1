use protocol::{
    link::{Answer, DeviceInfo, Event, FromAgent, Outcome, Said, ToAgent, TurnState, User, What},
    server::OutKind,
};
use sha2::{Digest, Sha256};

use super::gateway;
use crate::{
    Agent, Demo,
    demo::{
        BUSY, DEVICES, NEW,
        files::hex,
        stream::{DIE, EDITFAIL, FAIL, FAILED},
        table,
    },
    testing::{error, file},
};

fn turns(batches: &[Vec<FromAgent>]) -> Vec<TurnState> {
    let turn = |call: &FromAgent| match call {
        FromAgent::Turn { state, .. } => Some(*state),
        _ => None,
    };
    batches.iter().flatten().filter_map(turn).collect()
}

#[test]
fn any_other_text_is_said_back_after_thinking() {
    let mut gateway = gateway();
    for text in ["hello", "/foo", " /help", "привет 👋"] {
        gateway.batches.clear();
        let event = gateway.say("a", text);
        assert_eq!((gateway.acks(event), gateway.done(event)), (1, None));
        assert_eq!(turns(&gateway.batches), [TurnState::On]);
        gateway.run(299);
        assert_eq!(gateway.done(event), None);
        gateway.run(1);
        assert_eq!(gateway.texts("a").last().unwrap(), &format!("You said: {text}"));
        assert!(matches!(
            gateway.batch_of_done(event),
            [
                FromAgent::Send { last: true, .. },
                FromAgent::Done { .. },
                FromAgent::Turn { state: TurnState::Off, .. }
            ]
        ));
        gateway.assert_quiet();
    }
}

#[test]
fn texts_are_answered_in_order_and_show_one_turn() {
    let mut gateway = gateway();
    for n in 0..50 {
        gateway.say("a", &format!("t{n}"));
        gateway.say("b", "x");
    }
    gateway.run(300);
    let want: Vec<_> = (0..50).map(|n| format!("You said: t{n}")).collect();
    assert_eq!(gateway.texts("a"), want);
    assert_eq!(turns(&gateway.batches).len(), 4, "on and off, for two devices");
    gateway.assert_quiet();
}

#[test]
fn help_is_the_table() {
    let mut gateway = gateway();
    let event = gateway.say("a", "/help");
    assert_eq!(gateway.texts("a"), [table::help()]);
    assert_eq!(gateway.done(event), Some(Outcome::Ok));
    gateway.ask(7, What::Commands);
    assert_eq!(gateway.answers, [(7, Answer::Commands { commands: table::commands() })]);
    gateway.assert_quiet();
}

#[test]
fn models_are_listed_and_chosen() {
    let mut gateway = gateway();
    gateway.ask(1, What::Models);
    gateway.say("a", "/model demo-deep");
    gateway.ask(2, What::Models);
    gateway.say("a", "/model demo-none");
    gateway.ask(3, What::Models);
    let current: Vec<_> = gateway
        .answers
        .iter()
        .map(|(_, answer)| match answer {
            Answer::Models { current, models } if models.len() == 2 => current.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(current, ["demo-fast", "demo-deep", "demo-deep"]);
    assert_eq!(gateway.texts("a")[0], "model: demo-deep");
    assert!(gateway.texts("a")[1].contains("/model ID"));
    gateway.assert_quiet();
}

#[test]
fn stream_grows_word_by_word() {
    let mut gateway = gateway();
    let event = gateway.say("a", "/stream 5");
    for n in 1..5 {
        assert_eq!(gateway.bubbles[0].texts.len(), n);
        gateway.run(20);
    }
    let texts = &gateway.bubbles[0].texts;
    assert_eq!(
        *texts,
        [
            "word1",
            "word1 word2",
            "word1 word2 word3",
            "word1 word2 word3 word4",
            "word1 word2 word3 word4 word5"
        ]
    );
    assert!(matches!(
        gateway.batch_of_done(event),
        [
            FromAgent::Edit { last: true, .. },
            FromAgent::Done { .. },
            FromAgent::Turn { state: TurnState::Off, .. }
        ]
    ));
    gateway.assert_quiet();
    gateway.say("a", "/stream 1");
    assert_eq!(gateway.texts("a")[1], "word1");
    gateway.assert_quiet();
}

#[test]
fn a_stream_waits_for_its_id() {
    let mut gateway = gateway();
    gateway.hold = true;
    gateway.say("a", "/stream 3");
    gateway.run(10_000);
    assert_eq!(gateway.bubbles[0].texts, ["word1"]);
    gateway.hold = false;
    gateway.pump();
    gateway.run(40);
    assert_eq!(gateway.texts("a"), ["word1 word2 word3"]);
}

#[test]
fn long_is_one_message_of_that_length() {
    let mut gateway = gateway();
    gateway.say("a", "/long 12345");
    assert_eq!(gateway.bubbles.len(), 1);
    assert_eq!(gateway.texts("a")[0].chars().count(), 12_345);
    gateway.assert_quiet();
}

#[test]
fn slow_thinks_so_long() {
    let mut gateway = gateway();
    gateway.say("a", "/slow 5");
    gateway.run(4_999);
    assert!(gateway.texts("a").is_empty());
    gateway.say("a", "/count");
    assert_eq!(turns(&gateway.batches), [TurnState::On], "still at work");
    gateway.run(1);
    assert_eq!(gateway.texts("a"), ["2", "done after 5 s"]);
    assert_eq!(turns(&gateway.batches), [TurnState::On, TurnState::Off]);
    gateway.say("a", "/slow 0");
    gateway.run(0);
    assert_eq!(gateway.texts("a")[2], "done after 0 s");
    gateway.assert_quiet();
}

#[test]
fn count_is_of_this_device_and_conversation() {
    let mut gateway = gateway();
    gateway.say("a", "one");
    gateway.hear("a", Said::Media { media: file("image", "x.png", "image/png", None) });
    let event = gateway.say("a", "/count");
    gateway.again(event);
    gateway.say("b", "/count");
    gateway.run(300);
    gateway.say("a", "/new");
    gateway.say("a", "/count");
    assert_eq!(
        gateway.texts("a"),
        [
            "Got image x.png image/png 3 bytes sha256 ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            "3",
            "You said: one",
            NEW,
            "1"
        ]
    );
    assert_eq!(gateway.texts("b"), ["1"]);
    assert_eq!(gateway.acks(event), 2);
    assert!(
        gateway
            .batches
            .iter()
            .flatten()
            .any(|c| matches!(c, FromAgent::Conversation { device, .. } if device == "a"))
    );
    gateway.assert_quiet();
}

#[test]
fn a_file_or_voice_message_is_described() {
    let mut gateway = gateway();
    gateway.hear("a", Said::Voice { media: file("voice", "voice.ogg", "audio/ogg", None) });
    gateway
        .hear("a", Said::Media { media: file("document", "отчёт 1.pdf", "application/pdf", Some("/die")) });
    let sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(
        gateway.texts("a"),
        [
            format!("Got voice voice.ogg audio/ogg 3 bytes sha256 {sum}"),
            format!("Got document отчёт 1.pdf application/pdf 3 bytes sha256 {sum}"),
        ]
    );
    gateway.assert_quiet();
}

#[test]
fn pictures_come_in_order_one_after_another() {
    let mut gateway = gateway();
    gateway.hold = true;
    let event = gateway.say("a", "/pictures 3");
    let later = gateway.say("a", "/image");
    assert_eq!(gateway.files.len(), 1, "the next waits for the result");
    gateway.hold = false;
    gateway.pump();
    let names: Vec<_> = gateway
        .files
        .iter()
        .map(|f| match f {
            FromAgent::Media { filename: Some(name), kind: OutKind::Image, .. } => name.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(names, ["picture-1.png", "picture-2.png", "picture-3.png", "picture.png"]);
    assert_eq!((gateway.done(event), gateway.done(later)), (Some(Outcome::Ok), Some(Outcome::Ok)));
    gateway.assert_quiet();
}

#[test]
fn a_file_has_its_bytes_and_its_sum() {
    let mut gateway = gateway();
    for n in [1_usize, 251, 252, 700_001] {
        gateway.files.clear();
        gateway.say("a", &format!("/file {n}"));
        let [FromAgent::Media { source: protocol::link::MediaSource::Data(bytes), caption, kind, .. }] =
            &gateway.files[..]
        else {
            panic!("{:?}", gateway.files)
        };
        assert_eq!((bytes.len(), *kind), (n, OutKind::Document));
        assert!(bytes.iter().enumerate().all(|(i, b)| usize::from(*b) == i % 251));
        assert_eq!(caption.as_deref(), Some(format!("sha256 {}", hex(&Sha256::digest(bytes))).as_str()));
    }
    gateway.assert_quiet();
    assert_eq!(
        hex(&Sha256::digest(b"abc")),
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
}

#[test]
fn stealfile_is_refused_and_the_turn_ends() {
    let mut gateway = gateway();
    let event = gateway.say("a", "/stealfile");
    assert!(gateway.batches.iter().flatten().any(|c| matches!(c,
        FromAgent::Media { source: protocol::link::MediaSource::Path(path), .. } if path.starts_with('/'))));
    assert_eq!(gateway.done(event), Some(Outcome::Ok));
    assert!(gateway.files.is_empty() && gateway.bubbles.is_empty());
    assert_eq!(turns(&gateway.batches), [TurnState::On, TurnState::Off]);
    gateway.assert_quiet();
}

#[test]
fn editfail_closes_the_bubble_and_sends_the_tail() {
    let mut gateway = gateway();
    let event = gateway.say("a", "/editfail");
    gateway.run(1_000);
    let texts = gateway.texts("a");
    assert_eq!(texts.len(), 2);
    assert_eq!(texts.join(" "), EDITFAIL);
    assert_eq!(
        gateway.bubbles[0].texts.last(),
        gateway.bubbles[0].texts.iter().nth_back(1),
        "closed as it was"
    );
    assert_eq!(gateway.done(event), Some(Outcome::Ok));
    gateway.assert_quiet();
}

#[test]
fn fail_tells_the_device_and_nothing_sticks() {
    let mut gateway = gateway();
    let event = gateway.say("a", "/fail");
    assert_eq!(turns(&gateway.batches), [TurnState::On]);
    assert!(gateway.bubbles.is_empty(), "it thinks first");
    gateway.run(1_000);
    assert_eq!(gateway.texts("a"), [FAILED]);
    let begun = gateway.bubbles[0].texts.last().unwrap();
    assert!(FAIL.starts_with(begun.as_str()) && begun != FAIL);
    assert_eq!(gateway.done(event), Some(Outcome::Failed));
    assert_eq!(turns(&gateway.batches), [TurnState::On, TurnState::Failed]);
}

#[test]
fn die_ends_in_the_middle_of_a_reply_and_is_not_done_again() {
    let mut gateway = gateway();
    gateway.say("b", "/stream 100");
    let event = gateway.say("a", "/die");
    gateway.run(2_000);
    assert!(gateway.died);
    assert_eq!(gateway.done(event), Some(Outcome::Failed));
    let begun = gateway.bubbles[1].texts.last().unwrap();
    assert!(DIE.starts_with(begun.as_str()) && begun != DIE);
    gateway.bubbles[0].closed = false;
    gateway.restart();
    gateway.run(10_000);
    assert!(!gateway.died);
    assert_eq!((gateway.acks(event), gateway.bubbles.len()), (1, 2));
    assert!(gateway.texts("b")[0].ends_with("word100"), "another device's reply went on");
    gateway.say("a", "hello");
    gateway.run(300);
    assert_eq!(gateway.texts("a")[1], "You said: hello");
}

#[test]
fn a_wrong_argument_gets_the_row_of_the_table() {
    let mut gateway = gateway();
    for text in
        ["/stream", "/stream 0", "/long x", "/cards 21", "/approve", "/ask shut", "/file 8388609", "/slow -1"]
    {
        let event = gateway.say("a", text);
        let name = text.split(' ').next().unwrap();
        assert!(gateway.texts("a").last().unwrap().starts_with(&format!("Please write {name} ")), "{text}");
        assert_eq!(gateway.done(event), Some(Outcome::Ok));
    }
    gateway.assert_quiet();
}

#[test]
fn a_full_disk_delays_and_does_not_lose() {
    let mut gateway = gateway();
    let event = gateway.say("a", "hello");
    gateway.down = true;
    gateway.run(3_000);
    assert_eq!((gateway.texts("a").len(), gateway.done(event)), (0, None));
    gateway.down = false;
    gateway.run(500);
    assert_eq!(gateway.texts("a"), ["You said: hello"]);
    assert_eq!(gateway.done(event), Some(Outcome::Ok));
    gateway.run(60_000);
    assert_eq!(gateway.bubbles.len(), 1);
}

#[test]
fn twenty_repeats_then_the_turn_has_failed() {
    let mut gateway = gateway();
    for text in ["hello", "/stream 3", "/image", "/ask open"] {
        gateway.batches.clear();
        gateway.down = true;
        let event = gateway.say("a", text);
        gateway.run(300 + 19 * 500);
        let failed = |c: &FromAgent| matches!(c, FromAgent::Turn { state: TurnState::Failed, .. });
        assert!(!gateway.batches.iter().flatten().any(failed), "{text}");
        gateway.run(1_000);
        assert!(gateway.batches.iter().flatten().any(failed), "{text}");
        let done = FromAgent::Done { event, outcome: Outcome::Failed };
        assert_eq!(gateway.batches.iter().flatten().filter(|c| **c == done).count(), 1, "{text}");
        let said = gateway.batches.len();
        gateway.run(100_000);
        assert_eq!(gateway.batches.len(), said, "{text}: it is silent now");
        gateway.down = false;
    }
}

#[test]
fn an_edit_that_fails_costs_nothing_if_it_may_be_repeated() {
    let mut gateway = gateway();
    gateway.say("a", "/stream 4");
    gateway.fail = Some((|c| matches!(c, FromAgent::Edit { last: false, .. }), error("internal", true)));
    gateway.run(1_000);
    assert_eq!(gateway.bubbles.len(), 1);
    assert_eq!(gateway.texts("a"), ["word1 word2 word3 word4"]);
    gateway.say("a", "/stream 4");
    gateway.fail = Some((|c| matches!(c, FromAgent::Edit { last: true, .. }), error("internal", true)));
    gateway.run(1_000);
    assert_eq!(gateway.texts("a")[1], "word1 word2 word3 word4");
    gateway.assert_quiet();
}

#[test]
fn lasting_work_of_a_device_is_bounded() {
    let mut gateway = gateway();
    for _ in 0..64 {
        gateway.say("a", "/slow 3600");
    }
    gateway.say("a", "/approve ls");
    assert_eq!(gateway.texts("a"), [BUSY]);
    assert!(gateway.cards.is_empty());
    gateway.say("b", "/approve ls");
    gateway.say("a", "hello");
    gateway.run(300);
    assert_eq!((gateway.cards.len(), gateway.texts("a")[1].as_str()), (1, "You said: hello"));
}

#[test]
fn a_failure_does_not_hide_other_work() {
    let mut gateway = gateway();
    gateway.say("a", "/slow 2");
    gateway.say("a", "/fail");
    gateway.run(2_000);
    assert_eq!(turns(&gateway.batches), [TurnState::On, TurnState::Failed, TurnState::On, TurnState::Off]);
    assert_eq!(gateway.texts("a"), [FAILED, "done after 2 s"]);
}

#[test]
fn devices_that_were_quiet_longest_are_forgotten() {
    let mut demo = Demo::new();
    for n in 0..=DEVICES as u64 {
        let event = Event {
            event: n + 1,
            device: DeviceInfo { id: format!("d{n}"), ..DeviceInfo::default() },
            user: User::default(),
            id: "i".into(),
            what: Said::Text { text: if n == 0 { "/ask open" } else { "/count" }.into() },
            at: n,
            redelivered: false,
        };
        demo.handle(ToAgent::Event(Box::new(event)), n, &mut Vec::new());
    }
    assert!(demo.devices.len() <= DEVICES / 2 + 2, "{}", demo.devices.len());
    assert!(demo.devices.contains_key("d0"), "it waits for an answer");
    assert!(!demo.devices.contains_key("d1") && demo.devices.contains_key(&format!("d{DEVICES}")));
}
