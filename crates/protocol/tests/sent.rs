//! What a client writes by the types of the schema is what the server reads.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use hermes_mobile_protocol::{
    base64,
    client::{self, ClientFrame, MediaKind, VoiceFormat},
    code::ErrorCode,
    limits,
    schema::{
        SentAudio, SentDeliver, SentDevice, SentFormat, SentFrame, SentHello, SentKind, SentMedia,
        SentOffline, SentPing, SentPrompt, SentResume, SentText, SentUser,
    },
};
use proptest::{option, prelude::*};
use serde_json::json;

fn json(frame: &SentFrame) -> String {
    serde_json::to_string(frame).unwrap()
}

fn label() -> impl Strategy<Value = String> {
    prop::collection::vec(any::<char>(), 1..=20).prop_map(String::from_iter)
}

fn said() -> impl Strategy<Value = String> {
    prop::collection::vec(any::<char>(), 0..=40).prop_map(|c| format!("{}.", String::from_iter(c)))
}

const DEVICE_ID: &str = r"[\p{L}\p{Nd}._~@+:\-]{1,128}";

prop_compose! {
    fn hello()(
        token in option::of(any::<String>()), id in DEVICE_ID, name in option::of(label()), platform in option::of(label()),
        app_version in option::of(label()), user in option::of((option::of(DEVICE_ID), option::of(label()))), lang in option::of(label()),
        features in option::of(prop::collection::vec(label(), 0..5)), resume in option::of((label(), any::<u64>())), v in option::of(any::<u32>()),
    ) -> SentHello {
        SentHello {
            token, device: Some(SentDevice { id, name, platform, app_version }),
            user: user.map(|(id, name)| SentUser { id, name }), lang, features,
            resume: resume.map(|(epoch, seq)| SentResume { epoch, seq }), v,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn hello_is_read_as_it_was_written(sent in hello()) {
        let ClientFrame::Hello(read) = client::decode(&json(&SentFrame::Hello(sent.clone()))).unwrap() else { panic!() };
        prop_assert_eq!(read.token, sent.token);
        prop_assert_eq!(read.lang, sent.lang);
        prop_assert_eq!(read.features, sent.features.unwrap_or_default());
        let device = read.device.map(|d| SentDevice { id: d.id, name: d.name, platform: d.platform, app_version: d.app_version });
        prop_assert_eq!(device, sent.device);
        let user = sent.user.unwrap_or_default();
        prop_assert_eq!((read.user_id, read.user_name), (user.id, user.name));
        prop_assert_eq!(read.resume.map(|r| SentResume { epoch: r.epoch, seq: r.seq }), sent.resume);
    }

    #[test]
    fn texts_answers_and_deliveries_are_read_as_they_were_written(
        id in label(), text in said(), answer in option::of(said()), target in DEVICE_ID, queue in any::<bool>()
    ) {
        let sent = SentText { id: Some(id.clone()), text: text.clone() };
        let ClientFrame::Text(read) = client::decode(&json(&SentFrame::Text(sent.clone()))).unwrap() else { panic!() };
        prop_assert_eq!(SentText { id: read.id, text: read.text }, sent);

        let sent = SentPrompt { id: None, prompt_id: id.clone(), option_id: id.clone(), text: answer };
        let ClientFrame::Prompt(read) = client::decode(&json(&SentFrame::Prompt(sent.clone()))).unwrap() else { panic!() };
        prop_assert_eq!(SentPrompt { id: None, prompt_id: read.prompt_id, option_id: read.option_id, text: read.text }, sent);

        let sent = SentDeliver { id, target, text, offline: queue.then_some(SentOffline::Queue) };
        let ClientFrame::Deliver(read) = client::decode(&json(&SentFrame::Deliver(sent.clone()))).unwrap() else { panic!() };
        let offline = read.queue.then_some(SentOffline::Queue);
        prop_assert_eq!(SentDeliver { id: read.id, target: read.target, text: read.text, offline }, sent);
    }

    #[test]
    fn files_are_read_as_they_were_written(
        id in label(), bytes in prop::collection::vec(any::<u8>(), 1..300), caption in option::of(said()), which in 0_usize..4,
        (parts, part) in (1_u32..=2048).prop_flat_map(|parts| (Just(parts), 0..parts)),
    ) {
        let kinds = [
            (SentKind::Image, MediaKind::Image), (SentKind::Video, MediaKind::Video),
            (SentKind::Document, MediaKind::Document), (SentKind::Audio, MediaKind::Audio),
        ];
        let (kind, read_kind) = kinds[which].clone();
        let sent = SentMedia {
            id: Some(id.clone()), kind, mime: Some("a/b".into()), filename: Some("f.bin".into()), caption: caption.clone(),
            part: Some(part), parts: Some(parts), data: base64::encode(&bytes),
        };
        let ClientFrame::Media(read) = client::decode(&json(&SentFrame::Media(sent))).unwrap() else { panic!() };
        prop_assert_eq!((read.id, read.kind, read.part, read.parts), (Some(id), read_kind, part, parts));
        prop_assert_eq!((read.mime.as_deref(), read.filename.as_deref(), read.caption), (Some("a/b"), Some("f.bin"), caption));
        prop_assert_eq!(read.data, bytes);
    }

    #[test]
    fn pings_come_back(ts in ".{0,200}") {
        let sent = SentFrame::Ping(SentPing { id: None, ts: Some(json!(ts)) });
        let ClientFrame::Ping { ts: read } = client::decode(&json(&sent)).unwrap() else { panic!() };
        prop_assert_eq!(serde_json::from_str::<String>(read.get()).unwrap(), ts);
    }

    #[test]
    fn no_text_breaks_the_decoder(text in ".*") {
        let _ = client::decode(&text);
        let _ = hermes_mobile_protocol::server::decode(&text);
    }

    #[test]
    fn no_damage_to_a_frame_breaks_the_decoder(at in 0_usize..200, with in any::<char>(), sent in hello()) {
        let mut text = json(&SentFrame::Hello(sent));
        let at = text.floor_char_boundary(at.min(text.len() - 1));
        text.insert(at, with);
        let _ = client::decode(&text);
        text.truncate(at);
        prop_assert!(client::decode(&text).is_err());
    }
}

#[test]
fn voice_is_read_as_it_was_written() {
    let bytes = b"OggS\0\x02................".to_vec();
    let sent = SentAudio {
        id: None,
        format: SentFormat::Ogg,
        sample_rate: Some(48_000.0),
        duration_ms: Some(1_500.4),
        part: None,
        parts: None,
        data: base64::encode(&bytes),
    };
    let ClientFrame::Media(read) = client::decode(&json(&SentFrame::Audio(sent))).unwrap() else { panic!() };
    let kind =
        MediaKind::Voice { format: VoiceFormat::Ogg, sample_rate: Some(48_000), duration_ms: Some(1_500) };
    assert_eq!((read.kind, read.data, read.part, read.parts), (kind, bytes, 0, 1));
}

#[test]
fn field_the_limit_of_a_file_holds_at_n_and_n_plus_1() {
    for (size, accepted) in
        [(limits::FILE_BYTES - 1, true), (limits::FILE_BYTES, true), (limits::FILE_BYTES + 1, false)]
    {
        let data = base64::encode(&vec![7; size]);
        let frame = format!(r#"{{"t":"media","id":"m","kind":"document","data":"{data}"}}"#);
        assert!(frame.len() < limits::FRAME_AFTER_READY);
        match client::decode(&frame) {
            Ok(ClientFrame::Media(m)) => assert!(accepted && m.data.len() == size, "{size}"),
            Ok(other) => panic!("{other:?}"),
            Err(p) => {
                assert!(!accepted, "{size}: {p}");
                assert_eq!((p.code, p.ends_series.as_deref()), (ErrorCode::TooBig, Some("m")));
            }
        }
    }
}
