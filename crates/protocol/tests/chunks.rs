//! Chunks and pieces: what holds for every text.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use hermes_mobile_protocol::{
    chunk::{chunks, encoded_len, pieces},
    limits,
};
use proptest::prelude::*;
use unicode_segmentation::UnicodeSegmentation;

/// Texts made of what makes cutting hard.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-zа-я]{1,9}",
        3 => Just(" ".to_owned()),
        1 => prop::sample::select(vec![
            "\n", "\n\n", "\r\n", "\r\n\r\n", ". ", "! ", "。", "\u{a0}", "👨‍👩‍👧‍👦", "e\u{301}\u{323}", "🇷🇺", "🇺", "👍🏽", "क्षि", "각", "\u{200d}",
            "\u{202e}", "\0", "\"", "\\", "```\ncode\n```\n", "https://example.org/a/b?c=d", "\u{2028}", "\t",
        ]).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..120).prop_map(|pieces| pieces.concat())
}

fn borders(text: &str) -> Vec<usize> {
    text.grapheme_indices(true).map(|(at, _)| at).chain([text.len()]).collect()
}

fn check(text: &str, parts: &[&str], limit: usize, size: impl Fn(&str) -> usize) {
    assert_eq!(parts.concat(), text);
    assert!(parts.iter().all(|p| !p.is_empty()) || text.is_empty());
    let borders = borders(text);
    let mut at = 0;
    for part in parts {
        at += part.len();
        assert!(borders.binary_search(&at).is_ok(), "a cut inside a cluster at {at} of {text:?}");
        assert!(size(part) <= limit || part.graphemes(true).count() == 1, "{part:?} is over {limit}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn field_chunks_join_keep_the_limit_and_cut_no_cluster(text in text(), limit in 0_usize..60) {
        check(&text, &chunks(&text, limit), limit.max(1), |p| p.chars().count());
    }

    #[test]
    fn pieces_join_keep_the_limit_and_cut_no_cluster(text in text(), max in 0_usize..200) {
        check(&text, &pieces(&text, max), max.max(3), encoded_len);
    }

    #[test]
    fn a_growing_text_keeps_its_finished_pieces(text in text(), more in text(), max in 10_usize..120) {
        let grown = format!("{text}{more}");
        let (before, after) = (pieces(&text, max), pieces(&grown, max));
        let finished = before.len() - 1;
        prop_assert_eq!(&before[..finished], &after[..finished]);
    }

    #[test]
    fn the_encoded_length_is_what_serde_json_writes(text in any::<String>()) {
        prop_assert_eq!(encoded_len(&text), serde_json::to_string(&text).unwrap().len());
    }
}

#[test]
fn the_best_break_near_the_limit_is_taken() {
    for (text, limit, expected) in [
        ("", 5, vec![""]),
        ("short", 5, vec!["short"]),
        ("one two three", 8, vec!["one two ", "three"]),
        ("aa bb. cc dd", 10, vec!["aa bb. ", "cc dd"]),
        ("aaa. bb\ncc dd", 12, vec!["aaa. bb\n", "cc dd"]),
        ("aaaa\n\nb\nc. d e", 12, vec!["aaaa\n\n", "b\nc. d e"]),
        ("aaaa\r\n\r\nbbbbbb", 10, vec!["aaaa\r\n\r\n", "bbbbbb"]),
        ("今日は。明日も。", 5, vec!["今日は。", "明日も。"]),
        // A break in the first half would make small chunks.
        ("a bcdefghij", 8, vec!["a bcdefg", "hij"]),
        ("1\u{a0}000\u{a0}000", 7, vec!["1\u{a0}000\u{a0}0", "00"]),
        ("abcdef", 2, vec!["ab", "cd", "ef"]),
    ] {
        assert_eq!(chunks(text, limit), expected, "{text:?} at {limit}");
    }
}

#[test]
fn field_limits_hold_at_n_minus_1_n_and_n_plus_1() {
    for (length, count) in [(1999, 1), (2000, 1), (2001, 2), (4000, 2), (4001, 3)] {
        assert_eq!(chunks(&"я".repeat(length), limits::CHUNK_CHARS).len(), count, "{length}");
    }
    for (length, count) in [(97, 1), (98, 1), (99, 2)] {
        assert_eq!(pieces(&"x".repeat(length), 100).len(), count, "{length}");
    }
}

#[test]
fn field_twelve_thousand_emoji_of_several_code_points() {
    let text = "👨‍👩‍👧‍👦".repeat(12_000);
    let parts = chunks(&text, limits::CHUNK_CHARS);
    check(&text, &parts, limits::CHUNK_CHARS, |p| p.chars().count());
    // 285 families of 7 characters fit into 2,000.
    assert_eq!(parts.len(), 12_000_usize.div_ceil(285));
}

#[test]
fn field_text_of_combining_marks() {
    // One cluster over the limit is one longer chunk.
    let text = format!("ab{}c", "\u{301}".repeat(10_000));
    assert_eq!(chunks(&text, 2_000).iter().map(|c| c.chars().count()).collect::<Vec<_>>(), [1, 10_001, 1]);
    // One without end is cut between characters, and its rest goes on like any text.
    let text = format!("ab{}c", "\u{301}".repeat(100_000));
    let parts = chunks(&text, 2_000);
    assert_eq!(parts.concat(), text);
    assert!(parts.iter().all(|p| p.chars().count() <= 2_000));
    assert_eq!(parts.len(), 1 + 100_001_usize.div_ceil(2_000));
}

#[test]
fn a_long_text_is_cut_in_linear_time() {
    // A walk that starts again from far back at every cut would take minutes here.
    let text = "слово и ещё слово, \u{301}👍🏽 ".repeat(8_000);
    let parts = chunks(&text, 10);
    assert_eq!(parts.concat(), text);
    assert!(parts.len() > 16_000);
    let marks = format!("a{}", "\u{301} ".repeat(60_000));
    assert_eq!(chunks(&marks, 1).concat(), marks);
}

#[test]
fn field_every_frame_of_a_long_message_keeps_the_bound_of_frames_to_a_device() {
    use hermes_mobile_protocol::server::{Chunk, Message, ServerFrame};
    for hard in ["\u{1}", "\"\\", "😀"] {
        // A little more than one message holds.
        let text = hard.repeat(limits::MESSAGE_BYTES * 11 / 10 / (encoded_len(hard) - 2));
        let pieces = pieces(&text, limits::MESSAGE_BYTES);
        assert_eq!(pieces.concat(), text);
        assert_eq!(pieces.len(), 2);
        for piece in pieces {
            let frame = ServerFrame::Message(Message {
                id: "x".repeat(128),
                text: piece.to_owned(),
                chunk: Chunk { index: u32::MAX, total: u32::MAX },
                last: false,
                edit: true,
                reply_to: Some("\u{1}".repeat(128)),
                seq: Some(u64::MAX),
            });
            let length = frame.encode().len();
            assert!(length <= limits::FRAME_TO_DEVICE, "{length}");
        }
    }
}
