use protocol::{code::ErrorCode, server::*};

use super::{count::*, *};
use delivery::{AgentState, Input, Survey};
use protocol::code::CloseCode;

fn value(metrics: &Metrics, series: &str) -> String {
    let (text, _) = metrics.export(None, false);
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} in {text}")).to_owned()
}

#[test]
fn every_kind_and_code_that_the_encoder_writes_is_known() {
    let metrics = Metrics::new();
    let codes: Vec<ErrorCode> =
        ERRORS.iter().filter_map(|code| serde_json::from_str(&format!("\"{code}\"")).ok()).collect();
    // `other` is read as the code that nobody knows.
    assert_eq!(codes.iter().filter(|code| **code == ErrorCode::Unknown).count(), 1);
    for (code, name) in codes.iter().zip(ERRORS) {
        let error = ErrorFrame {
            code: *code,
            message: "\"quoted\"".to_owned(),
            fatal: false,
            id: None,
            detail: None,
            retry_after_ms: None,
        };
        let frame = ServerFrame::Error(error).encode();
        metrics.sent(&frame);
        assert_eq!(
            value(&metrics, &format!("hermes_mobile_errors_total{{code=\"{name}\"}}")),
            "1",
            "{frame}"
        );
    }
    let sent = [
        ServerFrame::Avatar { state: AvatarState::Idle },
        ServerFrame::Typing(Typing { stop: false, ttl_ms: None, text: None }),
        ServerFrame::Pong { ts: serde_json::value::to_raw_value(&1).unwrap() },
        ServerFrame::DeliverDone { id: "a".to_owned(), target: "b".to_owned(), state: DeliverState::Queued },
        ServerFrame::PromptDone(PromptDone {
            id: "c".to_owned(),
            option_id: None,
            expired: true,
            reason: None,
            seq: None,
        }),
    ];
    for frame in &sent {
        metrics.sent(&frame.encode());
    }
    for kind in ["avatar", "typing", "pong", "deliver_done", "prompt_done"] {
        assert_eq!(value(&metrics, &frames("out", kind)), "1", "{kind}");
    }
    metrics.sent("{\"t\":\"phase_of_the_moon\"}");
    metrics.sent("something else");
    assert_eq!(value(&metrics, &frames("out", "other")), "2");
}

fn frames(direction: &str, kind: &str) -> String {
    format!("hermes_mobile_frames_total{{direction=\"{direction}\",kind=\"{kind}\"}}")
}

#[test]
fn who_reads_while_the_hub_hangs_gets_what_is_known_without_it() {
    let metrics = Metrics::new();
    let survey = Survey {
        counts: delivery::Counts { cards_answered: 3, ..delivery::Counts::default() },
        agent: AgentState::Stalled,
        devices: 7,
        online: 5,
        cards_open: 2,
        unsent_bytes: 11,
        unproven_items: 13,
        inputs: 17,
    };
    let snapshot = Snapshot { survey, batches: 19, batch_bytes: 23 };
    let (text, _) = metrics.export(Some(&snapshot), false);
    assert!(text.contains("\nhermes_mobile_hub_up 1\n"), "{text}");
    // From here on it does not answer: its numbers stay as they were.
    for (series, expected) in [
        ("hermes_mobile_hub_up", "0"),
        ("hermes_mobile_devices", "7"),
        ("hermes_mobile_devices_online", "5"),
        ("hermes_mobile_cards_open", "2"),
        ("hermes_mobile_cards_ended_total{how=\"answered\"}", "3"),
        ("hermes_mobile_unsent_bytes", "11"),
        ("hermes_mobile_unproven_items", "13"),
        ("hermes_mobile_inputs_waiting", "17"),
        ("hermes_mobile_store_queue_batches", "19"),
        ("hermes_mobile_store_queue_bytes", "23"),
        ("hermes_mobile_agent_state{state=\"stalled\"}", "1"),
        ("hermes_mobile_agent_state{state=\"online\"}", "0"),
    ] {
        assert_eq!(value(&metrics, series), expected, "{series}");
    }
}

/// The schemas name every frame and code that there is.
#[test]
fn no_kind_of_frame_and_no_code_is_left_out() {
    for (name, _) in protocol::schema::all() {
        let Some((side, kind)) = name.split_once('-') else { continue };
        let known = match side {
            "client" => KINDS_IN,
            "server" => KINDS_OUT,
            _ => continue,
        };
        assert!(known.contains(&kind), "{name}");
    }
    use CloseCode::*;
    for code in [Normal, GoingAway, Rubbish, Denied, TooLarge, Restart, Overloaded, Replaced] {
        assert!(CLOSES.contains(&(code as u16).to_string().as_str()));
    }
}

#[test]
fn what_comes_from_devices_is_counted_by_kind_and_never_by_its_words() {
    let metrics = Metrics::new();
    let audio = r#"{"t":"audio","id":"v","format":"ogg","data":"T2dnUw=="}"#;
    let media = r#"{"t":"media","id":"m","kind":"image","mime":"image/png","filename":"a","data":"AAAA","part":0,"parts":1}"#;
    for text in [r#"{"t":"text","text":"secret words"}"#, audio, media, r#"{"t":"secret-kind"}"#, "secret"] {
        let frame = protocol::client::decode(text);
        metrics.input(&Input::Frame { conn: 1, bytes: text.len(), frame });
    }
    for kind in ["text", "audio", "media", "other", "bad"] {
        assert_eq!(value(&metrics, &frames("in", kind)), "1", "{kind}");
    }
    assert_eq!(value(&metrics, "hermes_mobile_media_bytes_total{direction=\"in\"}"), "7");
    assert!(!metrics.export(None, false).0.contains("secret"));
}

#[test]
fn a_connection_ends_once_with_the_code_that_ended_it() {
    use wire::Why;
    let metrics = Metrics::new();
    let ends = [
        (Why::Local, Some(1008), Some(1000), "1008"),
        (Why::Local, None, None, "1001"),
        (Why::Peer, None, Some(1000), "1000"),
        (Why::Peer, None, Some(4999), "other"),
        (Why::Peer, Some(1012), None, "none"),
        (Why::Eof, None, None, "none"),
        (Why::Silent, None, None, "none"),
        (Why::Fault(1007), None, None, "1007"),
        (Why::WriteStood, None, None, "1013"),
    ];
    for (why, ordered, theirs, _) in ends {
        metrics.opened();
        metrics.closed(close_code(why, ordered, theirs));
    }
    for (.., name) in ends {
        let expected = ends.iter().filter(|end| end.3 == name).count().to_string();
        let series = format!("hermes_mobile_connections_closed_total{{code=\"{name}\"}}");
        assert_eq!(value(&metrics, &series), expected, "{name}");
    }
    assert_eq!(value(&metrics, "hermes_mobile_connections"), "0");
}
