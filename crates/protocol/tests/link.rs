//! The frames of the agent link: each op as JSON, read and written.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use hermes_mobile_protocol::{
    link::{
        Answer, CallError, CallResult, CallValue, CardEnd, CardOutcome, CardState, CommandItem, DeviceInfo,
        Event, FromAgent, InFile, MediaSource, ModelItem, Offline, Outcome, Said, ToAgent, TurnState, User,
        What,
    },
    server::{DeliverState, OptionStyle, OutKind, PromptKind, PromptOption},
};
use proptest::prelude::*;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// The value is written as this JSON, and read from it, also when a newer peer adds a field.
fn same<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: T, json: Value) {
    assert_eq!(serde_json::to_value(&value).unwrap(), json);
    // Through text, as it comes on the wire.
    assert_eq!(serde_json::from_str::<T>(&json.to_string()).unwrap(), value, "{json}");
    let mut newer = json;
    newer["field_of_next_year"] = json!({"a": [1]});
    assert_eq!(serde_json::from_value::<T>(newer).unwrap(), value);
}

#[test]
fn every_op_of_an_agent() {
    for (state, name) in [(TurnState::On, "on"), (TurnState::Off, "off"), (TurnState::Failed, "failed")] {
        same(FromAgent::Turn { device: "d".into(), state }, json!({"op":"turn","device":"d","state":name}));
    }
    same(
        FromAgent::Send {
            req: 1,
            key: "k".into(),
            device: "d".into(),
            text: "hi".into(),
            last: false,
            reply_to: Some("q".into()),
            offline: Offline::Fail,
        },
        json!({"op":"send","req":1,"key":"k","device":"d","text":"hi","final":false,"reply_to":"q","offline":"fail"}),
    );
    same(
        FromAgent::Edit {
            req: u64::MAX,
            device: "d".into(),
            message_id: "m".into(),
            text: String::new(),
            last: true,
        },
        json!({"op":"edit","req":u64::MAX,"device":"d","message_id":"m","text":"","final":true}),
    );
    same(
        FromAgent::Status { device: "d".into(), text: Some("reads".into()) },
        json!({"op":"status","device":"d","text":"reads"}),
    );
    same(
        FromAgent::Status { device: "d".into(), text: None },
        json!({"op":"status","device":"d","text":null}),
    );
    let file = |source| FromAgent::Media {
        req: 2,
        key: "k".into(),
        device: "d".into(),
        kind: OutKind::Voice,
        source,
        mime: Some("audio/ogg".into()),
        filename: Some("v.ogg".into()),
        caption: Some("c".into()),
        reply_to: None,
        offline: Offline::Queue,
    };
    same(
        file(MediaSource::Path("/x/v.ogg".into())),
        json!({"op":"media","req":2,"key":"k","device":"d","kind":"voice","path":"/x/v.ogg","mime":"audio/ogg","filename":"v.ogg",
            "caption":"c","offline":"queue"}),
    );
    same(
        file(MediaSource::Data(vec![0, 1, 2, 255])),
        json!({"op":"media","req":2,"key":"k","device":"d","kind":"voice","data":"AAEC/w==","mime":"audio/ogg","filename":"v.ogg",
            "caption":"c","offline":"queue"}),
    );
    same(
        FromAgent::Prompt {
            req: 3,
            key: "k".into(),
            device: "d".into(),
            kind: PromptKind::ExecApproval,
            text: "t".into(),
            command: Some("ls".into()),
            description: None,
            options: vec![
                PromptOption {
                    id: "once".into(),
                    label: "Once".into(),
                    style: OptionStyle::Primary,
                    allow_text: false,
                },
                PromptOption {
                    id: "other".into(),
                    label: "…".into(),
                    style: OptionStyle::Secondary,
                    allow_text: true,
                },
            ],
            deadline_seconds: 300,
        },
        json!({"op":"prompt","req":3,"key":"k","device":"d","kind":"exec_approval","text":"t","command":"ls","options":[
            {"id":"once","label":"Once","style":"primary"},{"id":"other","label":"…","style":"secondary","allow_text":true}],
            "deadline_seconds":300}),
    );
    same(
        FromAgent::PromptClose { req: 4, prompt_id: "p".into(), option_id: None, reason: "typed".into() },
        json!({"op":"prompt_close","req":4,"prompt_id":"p","reason":"typed"}),
    );
    same(FromAgent::Take { req: 5, event: 9 }, json!({"op":"take","req":5,"event":9}));
    same(
        FromAgent::Applied { event: 9, ok: true, option_id: "once".into(), reason: None },
        json!({"op":"applied","event":9,"ok":true,"option_id":"once"}),
    );
    same(FromAgent::Ack { event: 9 }, json!({"op":"ack","event":9}));
    for (outcome, name) in [(Outcome::Ok, "ok"), (Outcome::Failed, "failed")] {
        same(FromAgent::Done { event: 9, outcome }, json!({"op":"done","event":9,"outcome":name}));
    }
    same(
        FromAgent::Conversation { device: "d".into(), id: "c2".into() },
        json!({"op":"conversation","device":"d","id":"c2"}),
    );
    same(FromAgent::Device { req: 6, device: "d".into() }, json!({"op":"device","req":6,"device":"d"}));
}

#[test]
fn every_answer_of_an_agent() {
    let answer = |answer| FromAgent::Answer { req: 7, answer };
    for (state, name) in
        [(CardState::Open, "open"), (CardState::Applied, "applied"), (CardState::Gone, "gone")]
    {
        same(
            answer(Answer::Prompt { state, option_id: Some("once".into()) }),
            json!({"op":"answer","req":7,"state":name,"option_id":"once"}),
        );
    }
    same(
        answer(Answer::Commands {
            commands: vec![CommandItem {
                name: "/x".into(),
                description: "d".into(),
                args: Some("N".into()),
            }],
        }),
        json!({"op":"answer","req":7,"commands":[{"name":"/x","description":"d","args":"N"}]}),
    );
    same(
        answer(Answer::Models {
            current: "a".into(),
            models: vec![ModelItem {
                id: "a".into(),
                provider: "p".into(),
                label: "A".into(),
                select: "/model a".into(),
            }],
        }),
        json!({"op":"answer","req":7,"current":"a","models":[{"id":"a","provider":"p","label":"A","select":"/model a"}]}),
    );
}

#[test]
fn what_an_agent_leaves_out_is_the_default() {
    let send: FromAgent =
        serde_json::from_value(json!({"op":"send","req":1,"key":"k","device":"d","text":"t"})).unwrap();
    let FromAgent::Send { last, reply_to, offline, .. } = send else { panic!() };
    assert_eq!((last, reply_to, offline), (true, None, Offline::Queue));
    let status: FromAgent = serde_json::from_value(json!({"op":"status","device":"d"})).unwrap();
    assert_eq!(status, FromAgent::Status { device: "d".into(), text: None });
    for broken in [
        json!({"op":"media","req":1,"key":"k","device":"d","kind":"image"}),
        json!({"op":"media","req":1,"key":"k","device":"d","kind":"image","data":"*"}),
        json!({"op":"media","req":1,"key":"k","device":"d","kind":"hologram","path":"/x"}),
        json!({"op":"send","req":-1,"key":"k","device":"d","text":"t"}),
        json!({"op":"answer","req":1}),
        json!({"op":"unknown"}),
        json!({}),
        json!([]),
    ] {
        assert!(serde_json::from_value::<FromAgent>(broken.clone()).is_err(), "{broken}");
    }
}

#[test]
fn every_result_is_flat() {
    let result = |ok, value, error| ToAgent::Result(CallResult { req: 1, ok, value, error });
    same(result(true, None, None), json!({"op":"result","req":1,"ok":true}));
    for (state, name) in [(DeliverState::Queued, "queued"), (DeliverState::Delivered, "delivered")] {
        same(
            result(true, Some(CallValue::Message { message_id: "m".into(), state }), None),
            json!({"op":"result","req":1,"ok":true,"message_id":"m","state":name}),
        );
    }
    same(
        result(true, Some(CallValue::Prompt { prompt_id: "p".into() }), None),
        json!({"op":"result","req":1,"ok":true,"prompt_id":"p"}),
    );
    same(
        result(
            true,
            Some(CallValue::Device(DeviceInfo { id: "d".into(), online: true, ..DeviceInfo::default() })),
            None,
        ),
        json!({"op":"result","req":1,"ok":true,"id":"d","online":true}),
    );
    let error = CallError { code: "withdrawn".into(), message: "m".into(), retryable: false };
    same(
        result(false, None, Some(error)),
        json!({"op":"result","req":1,"ok":false,"code":"withdrawn","message":"m","retryable":false}),
    );
}

#[test]
fn every_request_and_presence() {
    same(
        ToAgent::Request { req: 1, what: What::Commands },
        json!({"op":"request","req":1,"what":"commands"}),
    );
    same(ToAgent::Request { req: 1, what: What::Models }, json!({"op":"request","req":1,"what":"models"}));
    same(
        ToAgent::Request { req: 1, what: What::Prompt { prompt_id: "p".into() } },
        json!({"op":"request","req":1,"what":"prompt","prompt_id":"p"}),
    );
    same(
        ToAgent::Presence { device: "d".into(), online: true },
        json!({"op":"presence","device":"d","online":true}),
    );
}

#[test]
fn every_kind_of_event() {
    let event = |what, redelivered| {
        ToAgent::Event(Box::new(Event {
            event: 5,
            device: DeviceInfo { id: "d".into(), name: Some("D".into()), ..DeviceInfo::default() },
            user: User { id: "u".into(), name: None, proven: true },
            id: "q".into(),
            what,
            at: 1_700_000_000_000,
            redelivered,
        }))
    };
    let head = |rest: Value| {
        let mut json = json!({"op":"event","event":5,"device":{"id":"d","name":"D","online":false},"user":{"id":"u","proven":true},
            "id":"q","at":1_700_000_000_000_u64});
        json.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        json
    };
    same(event(Said::Text { text: "hi".into() }, false), head(json!({"kind":"text","text":"hi"})));
    let media = InFile {
        kind: "voice".into(),
        file: "f.ogg".into(),
        path: Some("/media/f.ogg".into()),
        mime: "audio/ogg".into(),
        filename: "v.ogg".into(),
        caption: None,
        bytes: 10,
        sha256: "00".into(),
        duration_ms: Some(1),
    };
    let list = json!([{"kind":"voice","file":"f.ogg","path":"/media/f.ogg","mime":"audio/ogg","filename":"v.ogg","bytes":10,
        "sha256":"00","duration_ms":1}]);
    same(
        event(Said::Voice { media: media.clone() }, true),
        head(json!({"kind":"voice","media":list,"redelivered":true})),
    );
    same(event(Said::Media { media }, false), head(json!({"kind":"media","media":list})));
    for (outcome, name) in [(CardEnd::Answered, "answered"), (CardEnd::Expired, "expired")] {
        let prompt = CardOutcome {
            prompt_id: "p".into(),
            kind: PromptKind::Clarify,
            outcome,
            option_id: Some("other".into()),
            text: Some("x".into()),
        };
        same(
            event(Said::Prompt { prompt }, false),
            head(
                json!({"kind":"prompt","prompt":{"prompt_id":"p","kind":"clarify","outcome":name,"option_id":"other","text":"x"}}),
            ),
        );
    }
}

proptest! {
    #[test]
    fn any_bytes_and_words_come_through(data in prop::collection::vec(any::<u8>(), 0..100), text in any::<String>(), req in any::<u64>()) {
        let frame = FromAgent::Media {
            req, key: text.clone(), device: text.clone(), kind: OutKind::Image, source: MediaSource::Data(data),
            mime: None, filename: Some(text.clone()), caption: Some(text.clone()), reply_to: None, offline: Offline::Queue,
        };
        let json = serde_json::to_string(&frame).unwrap();
        prop_assert_eq!(serde_json::from_str::<FromAgent>(&json).unwrap(), frame);
    }

    #[test]
    fn no_text_breaks_the_reader(text in ".*", op in "(send|media|prompt|answer|turn)", field in "[a-z_]{1,9}", value in "(1|\"x\"|null|\\[\\]|\\{\\})") {
        let _ = serde_json::from_str::<FromAgent>(&text);
        let _ = serde_json::from_str::<FromAgent>(&format!(r#"{{"op":"{op}","req":1,"{field}":{value}}}"#));
    }
}
