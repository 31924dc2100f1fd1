//! What is kept is read back as it was.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use hermes_mobile_protocol::{
    link::{CardEnd, CardOutcome, DeviceInfo, InFile, User},
    record::{
        Body, BubbleRecord, CardRecord, DeviceState, FileRecord, InBody, InRecord, Mark, MessageRecord,
        hash64, hash128,
    },
    server::{OptionStyle, OutKind, Prompt, PromptKind, PromptOption},
};
use proptest::{option, prelude::*};

type Text = String;

fn words() -> impl Strategy<Value = Option<Text>> {
    option::of(any::<Text>())
}

prop_compose! {
    fn user()(id in any::<Text>(), name in words(), proven in any::<bool>()) -> User { User { id, name, proven } }
}
prop_compose! {
    fn in_file()(
        (kind, file, mime, filename, sha256) in any::<(Text, Text, Text, Text, Text)>(), path in words(), caption in words(),
        bytes in any::<u64>(), duration_ms in any::<Option<u64>>(),
    ) -> InFile { InFile { kind, file, path, mime, filename, caption, bytes, sha256, duration_ms } }
}
fn kind() -> impl Strategy<Value = PromptKind> {
    prop::sample::select(vec![PromptKind::ExecApproval, PromptKind::SlashConfirm, PromptKind::Clarify])
}
prop_compose! {
    fn outcome()(prompt_id in any::<Text>(), kind in kind(), answered in any::<bool>(), option_id in words(), text in words()) -> CardOutcome {
        let outcome = if answered { CardEnd::Answered } else { CardEnd::Expired };
        CardOutcome { prompt_id, kind, outcome, option_id, text }
    }
}
prop_compose! {
    fn option_of_card()(
        id in any::<Text>(), label in any::<Text>(), allow_text in any::<bool>(),
        style in prop::sample::select(vec![OptionStyle::Primary, OptionStyle::Secondary, OptionStyle::Danger]),
    ) -> PromptOption { PromptOption { id, label, style, allow_text } }
}
prop_compose! {
    fn prompt()(
        (id, text, session) in any::<(Text, Text, Text)>(), kind in kind(), command in words(), description in words(),
        options in prop::collection::vec(option_of_card(), 0..4), timeout_seconds in any::<u64>(), seq in any::<Option<u64>>(),
    ) -> Prompt { Prompt { id, kind, text, command, description, options, session, timeout_seconds, seq } }
}
prop_compose! {
    fn message()(
        seq in any::<u64>(), (id, text) in any::<(Text, Text)>(), reply_to in words(), edit in any::<bool>(), once in any::<bool>(),
    ) -> Body { Body::Message(MessageRecord { seq, id, text, reply_to, edit, once }) }
}
prop_compose! {
    fn bubble()((id, of, text, instance) in any::<(Text, Text, Text, Text)>(), piece in any::<u32>(), reply_to in words()) -> Body {
        Body::Bubble(BubbleRecord { id, of, piece, text, reply_to, instance })
    }
}
prop_compose! {
    fn file()(
        seq in any::<Option<u64>>(), (id, mime, filename, file) in any::<(Text, Text, Text, Text)>(), caption in words(),
        kind in prop::sample::select(vec![OutKind::Image, OutKind::Voice, OutKind::Video, OutKind::Document, OutKind::Animation]),
        bytes in any::<u64>(), reply_to in words(), once in any::<bool>(),
    ) -> Body { Body::File(FileRecord { seq, id, kind, mime, filename, caption, file, bytes, reply_to, once }) }
}

fn body() -> impl Strategy<Value = Body> {
    let said = prop_oneof![
        any::<Text>().prop_map(|text| InBody::Text { text }),
        in_file().prop_map(|file| InBody::File { file }),
        outcome().prop_map(|card| InBody::Card { card }),
    ];
    prop_oneof![
        (any::<Text>(), user(), said).prop_map(|(id, user, what)| Body::In(InRecord { id, user, what })),
        message(),
        bubble(),
        file(),
        (prompt(), any::<u64>(), any::<Text>(), any::<Text>()).prop_map(
            |(prompt, deadline, key, instance)| Body::Card(CardRecord { prompt, deadline, key, instance })
        ),
        (any::<Text>(), any::<u64>(), any::<Text>()).prop_map(|(id, event, option_id)| Body::CardTaken {
            id,
            event,
            option_id
        }),
        (any::<u64>(), any::<Text>(), words(), any::<bool>(), words()).prop_map(
            |(seq, id, option_id, expired, reason)| Body::CardDone { seq, id, option_id, expired, reason }
        ),
        (any::<Text>(), any::<bool>()).prop_map(|(id, ok)| Body::Delivered { id, ok }),
    ]
}

fn mark() -> impl Strategy<Value = Mark> {
    prop_oneof![
        any::<(u128, u64)>().prop_map(|(id, content)| Mark::In { id, content }),
        any::<(u128, u64, bool)>().prop_map(|(id, content, once)| Mark::Out { id, content, once }),
        any::<(u128, bool)>().prop_map(|(id, ok)| Mark::Ended { id, ok }),
        (any::<u128>(), any::<Text>()).prop_map(|(key, id)| Mark::Card { key, id }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn bodies_are_read_back(body in body()) {
        prop_assert_eq!(Body::decode(&body.encode()).unwrap(), body);
    }

    #[test]
    fn marks_are_read_back(mark in mark()) {
        prop_assert_eq!(Mark::decode(&mark.encode()), Some(mark));
    }

    #[test]
    fn device_states_are_read_back(
        (id, online) in any::<(Text, bool)>(), name in words(), platform in words(), app_version in words(), user_id in words(), lang in words(),
        (seq, proven, live_from, done) in any::<(u64, u64, Option<u64>, u64)>(), done_above in any::<Vec<u64>>(),
    ) {
        let info = DeviceInfo { id, name, platform, app_version, user_id, online };
        let state = DeviceState { info, lang, seq, proven, live_from, done, done_above };
        prop_assert_eq!(DeviceState::decode(&state.encode()).unwrap(), state);
    }

    #[test]
    fn damaged_bytes_are_told_and_break_nothing(body in body(), mark in mark(), cut in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let whole = body.encode();
        let at = cut.index(whole.len());
        prop_assert!(Body::decode(&whole[..at]).is_err());
        let mut changed = whole;
        changed[at] = byte;
        let _ = Body::decode(&changed);
        let _ = DeviceState::decode(&changed);
        let mark = mark.encode();
        let _ = Mark::decode(&mark[..cut.index(mark.len())]);
        let _ = Mark::decode(&changed);
    }
}

#[test]
fn hashes_keep_their_parts_apart_and_never_change() {
    assert_ne!(hash128(&[b"ab", b"c"]), hash128(&[b"a", b"bc"]));
    assert_ne!(hash64(&[b""]), hash64(&[]));
    // They are on disk: another value would forget every id of the last seven days.
    assert_eq!(hash64(&[b"text", b"hello"]), 16_812_057_450_893_132_813);
    assert_eq!(hash128(&[b"text", b"hello"]), 113_022_954_645_937_387_195_164_030_779_928_986_637);
}

#[test]
fn a_mark_of_a_later_version_is_not_remembered() {
    assert_eq!(Mark::decode(&[9; 40]), None);
    assert_eq!(Mark::decode(&[]), None);
}
