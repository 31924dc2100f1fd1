use proptest::prelude::*;

use super::*;
use crate::client::VoiceFormat;

fn part(id: &str, part: u32, parts: u32, data: usize) -> MediaPart {
    MediaPart {
        id: Some(id.into()),
        kind: MediaKind::Document,
        mime: None,
        filename: None,
        caption: None,
        part,
        parts,
        data: vec![1; data],
    }
}

/// A table with its clock, its spools and what it threw away.
#[derive(Default)]
struct Rig {
    table: SeriesTable,
    now: Millis,
    next: SpoolNo,
    discard: Discard,
}

impl Rig {
    fn put(&mut self, part: &MediaPart) -> Result<Step, Problem> {
        self.next += 1;
        self.table.part(part, self.next, self.now, &mut self.discard)
    }
    fn keep(&mut self, part: &MediaPart) -> SpoolNo {
        match self.put(part) {
            Ok(Step::Keep { spool }) => spool,
            other => panic!("{other:?}"),
        }
    }
    fn complete(&mut self, part: &MediaPart) -> (SpoolNo, MediaPart, u64) {
        match self.put(part) {
            Ok(Step::Complete { spool, head, bytes }) => (spool, *head, bytes),
            other => panic!("{other:?}"),
        }
    }
    fn refuse(&mut self, part: &MediaPart, code: ErrorCode) -> Problem {
        let problem = self.put(part).unwrap_err();
        assert_eq!(problem.code, code, "{problem}");
        assert_eq!((&problem.id, &problem.ends_series), (&part.id, &part.id));
        problem
    }
    fn ignore(&mut self, part: &MediaPart) {
        assert_eq!(self.put(part), Ok(Step::Ignore));
    }
    fn pass(&mut self, ms: Millis) -> Vec<Option<String>> {
        self.now += ms;
        self.table
            .expire(limits::SERIES_IDLE_MS, self.now, &mut self.discard)
            .into_iter()
            .map(|p| p.id)
            .collect()
    }
}

#[test]
fn a_file_in_one_part_is_complete_at_once_and_never_open() {
    let mut rig = Rig::default();
    let (spool, head, bytes) = rig.complete(&part("a", 0, 1, 5));
    assert_eq!((spool, bytes, head.data.len(), head.parts), (1, 5, 0, 1));
    assert_eq!(rig.table.bytes(), 0);
    // Also while the table is full.
    for n in 0..8 {
        rig.keep(&part(&format!("s{n}"), 0, 2, 1024 * 1024 - 1));
    }
    rig.complete(&part("b", 0, 1, limits::FILE_BYTES));
}

#[test]
fn parts_come_in_any_order_and_twice_and_the_first_stands() {
    let mut rig = Rig::default();
    let spool = rig.keep(&part("a", 2, 3, 10));
    assert_eq!(rig.keep(&part("a", 0, 3, 20)), spool);
    rig.ignore(&part("a", 2, 3, 11));
    rig.ignore(&part("a", 0, 3, 21));
    assert_eq!(rig.table.bytes(), 30);
    let (complete, _, bytes) = rig.complete(&part("a", 1, 3, 5));
    assert_eq!((complete, bytes, rig.table.bytes()), (spool, 35, 0));
    assert!(rig.discard.is_empty());
}

#[test]
fn what_the_file_is_comes_from_part_0_else_from_the_first_part_that_tells() {
    let told = |id: &str, n: u32, caption: &str, filename: Option<&str>| MediaPart {
        caption: Some(caption.into()),
        filename: filename.map(str::to_owned),
        ..part(id, n, 3, 1)
    };
    let mut rig = Rig::default();
    rig.keep(&told("a", 2, "late", None));
    rig.keep(&told("a", 0, "first", None));
    let (_, head, _) = rig.complete(&told("a", 1, "middle", Some("n")));
    assert_eq!((head.caption.as_deref(), head.filename.as_deref(), head.part), (Some("first"), Some("n"), 0));

    rig.keep(&told("b", 2, "late", Some("x")));
    rig.keep(&part("b", 0, 3, 1));
    let (_, head, _) = rig.complete(&told("b", 1, "middle", None));
    assert_eq!((head.caption.as_deref(), head.filename.as_deref()), (Some("late"), Some("x")));
}

#[test]
fn the_length_of_a_voice_message_may_stand_in_any_part() {
    let voice = |n, duration_ms| MediaPart {
        kind: MediaKind::Voice { format: VoiceFormat::Ogg, sample_rate: None, duration_ms },
        ..part("v", n, 2, 1)
    };
    let mut rig = Rig::default();
    rig.keep(&voice(0, None));
    let (_, head, _) = rig.complete(&voice(1, Some(7)));
    assert_eq!(
        head.kind,
        MediaKind::Voice { format: VoiceFormat::Ogg, sample_rate: None, duration_ms: Some(7) }
    );
}

#[test]
fn part_0_with_another_count_or_kind_starts_anew() {
    let mut rig = Rig::default();
    let old = rig.keep(&part("a", 1, 3, 10));
    let new = rig.keep(&part("a", 0, 2, 4));
    assert_eq!((rig.discard.clone(), rig.table.bytes()), (vec![old], 4));
    assert_ne!(old, new);
    assert_eq!(rig.complete(&part("a", 1, 2, 1)).2, 5);

    let old = rig.keep(&part("b", 0, 2, 1));
    rig.keep(&MediaPart { kind: MediaKind::Image, ..part("b", 0, 2, 1) });
    assert_eq!(rig.discard.last(), Some(&old));
    // The whole file in one part takes the place of an open series.
    let open = rig.keep(&part("c", 1, 2, 1));
    assert_eq!(rig.complete(&part("c", 0, 1, 9)).2, 9);
    assert_eq!(rig.discard.last(), Some(&open));
}

#[test]
fn another_part_that_does_not_fit_ends_the_series_until_part_0_comes() {
    let mut rig = Rig::default();
    for wrong in [part("a", 1, 4, 1), MediaPart { kind: MediaKind::Image, ..part("a", 1, 3, 1) }] {
        let spool = rig.keep(&part("a", 0, 3, 10));
        rig.refuse(&wrong, ErrorCode::BadFrame);
        assert_eq!((rig.discard.pop(), rig.table.bytes()), (Some(spool), 0));
        rig.ignore(&part("a", 1, 3, 1));
        rig.ignore(&part("a", 2, 3, 1));
    }
    rig.keep(&part("a", 0, 3, 10));
    rig.keep(&part("a", 1, 3, 10));
    rig.complete(&part("a", 2, 3, 10));
}

#[test]
fn a_part_refused_elsewhere_ends_its_series() {
    let mut rig = Rig::default();
    let spool = rig.keep(&part("a", 0, 3, 10));
    rig.table.end("a", rig.now, &mut rig.discard);
    assert_eq!(rig.discard, [spool]);
    rig.ignore(&part("a", 1, 3, 1));
    // Also before its first part.
    rig.table.end("b", rig.now, &mut rig.discard);
    rig.ignore(&part("b", 1, 3, 1));
    rig.keep(&part("b", 0, 3, 1));
}

#[test]
fn field_the_limits_hold_at_n_and_n_plus_1() {
    let mib = 1024 * 1024;
    // One file.
    let mut rig = Rig::default();
    rig.keep(&part("a", 0, 3, 8 * mib - 1));
    let problem = rig.refuse(&part("a", 1, 3, 2), ErrorCode::TooBig);
    assert_eq!(problem.say, Say::LargeFile);
    rig.ignore(&part("a", 2, 3, 1));
    rig.keep(&part("a", 0, 2, 8 * mib - 1));
    assert_eq!(rig.complete(&part("a", 1, 2, 1)).2, 8 * mib as u64);

    // All open series together.
    let mut rig = Rig::default();
    rig.keep(&part("a", 0, 2, 4 * mib));
    rig.keep(&part("b", 0, 2, 4 * mib));
    rig.refuse(&part("c", 0, 2, 1), ErrorCode::TooBig);
    assert_eq!(rig.table.bytes(), 8 * mib as u64);
    rig.refuse(&part("b", 1, 2, 1), ErrorCode::TooBig);
    rig.complete(&part("a", 1, 2, 1));

    // Their number.
    let mut rig = Rig::default();
    for n in 0..limits::SERIES {
        rig.keep(&part(&format!("s{n}"), 0, 2, 1));
    }
    rig.refuse(&part("x", 0, 2, 1), ErrorCode::TooBig);
    rig.ignore(&part("x", 1, 2, 1));
    rig.complete(&part("s0", 1, 2, 1));
    rig.keep(&part("x", 0, 2, 1));
}

#[test]
fn an_idle_series_is_dropped_with_a_word_and_its_late_parts_are_ignored() {
    let mut rig = Rig::default();
    let spool = rig.keep(&part("a", 0, 3, 10));
    assert_eq!(rig.table.deadline(limits::SERIES_IDLE_MS), Some(limits::SERIES_IDLE_MS));
    assert!(rig.pass(limits::SERIES_IDLE_MS - 1).is_empty());
    // A part, also a repeated one, starts the time again.
    rig.ignore(&part("a", 0, 3, 10));
    assert!(rig.pass(limits::SERIES_IDLE_MS - 1).is_empty());
    assert_eq!(rig.pass(1), [Some("a".to_owned())]);
    assert_eq!(rig.discard, [spool]);
    rig.ignore(&part("a", 1, 3, 10));
    // Nothing is remembered for ever.
    assert!(rig.pass(limits::SERIES_IDLE_MS).is_empty());
    assert!(rig.table.is_empty());
    assert_eq!(rig.table.deadline(limits::SERIES_IDLE_MS), None);
}

#[test]
fn a_late_double_of_part_0_of_a_complete_file_troubles_nobody() {
    let mut rig = Rig::default();
    rig.keep(&part("a", 0, 2, 1));
    rig.complete(&part("a", 1, 2, 1));
    rig.ignore(&part("a", 1, 2, 1));
    let spool = rig.keep(&part("a", 0, 2, 1));
    assert!(rig.pass(limits::SERIES_IDLE_MS).is_empty());
    assert_eq!(rig.discard, [spool]);
    // A whole repeat is complete again: the caller compares the content.
    rig.keep(&part("a", 0, 2, 1));
    rig.complete(&part("a", 1, 2, 1));
    // A repeat that stops half way is told like any series.
    rig.keep(&part("a", 0, 3, 1));
    rig.keep(&part("a", 1, 3, 1));
    assert_eq!(rig.pass(limits::SERIES_IDLE_MS), [Some("a".to_owned())]);
}

#[test]
fn memory_of_ended_series_is_bounded() {
    let mut rig = Rig::default();
    for n in 0..10_000 {
        rig.now += 1;
        rig.complete(&part(&format!("{n}"), 0, 1, 1));
    }
    assert_eq!(rig.table.ended.len(), ENDED);
    rig.ignore(&part("9999", 1, 2, 1));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Whatever comes: the bounds hold, every spool that was opened ends exactly once, and the bytes are those kept.
    #[test]
    fn the_bounds_hold_and_every_spool_ends_once(
        steps in prop::collection::vec((0_u8..12, 0_u32..4, 1_u32..5, 0_usize..4, 0_u64..50_000), 0..200)
    ) {
        let mut rig = Rig::default();
        let mut kept: BTreeMap<SpoolNo, u64> = BTreeMap::new();
        let mut ended: Vec<SpoolNo> = Vec::new();
        for (id, number, parts, size, wait) in steps {
            rig.now += wait;
            let piece = part(&id.to_string(), number % parts, parts, [1, 3 << 20, 5 << 20, 9 << 20][size]);
            rig.table.expire(limits::SERIES_IDLE_MS, rig.now, &mut rig.discard);
            match rig.put(&piece) {
                Ok(Step::Keep { spool }) => *kept.entry(spool).or_default() += piece.data.len() as u64,
                Ok(Step::Complete { spool, bytes, .. }) => {
                    let before = kept.remove(&spool).unwrap_or_default();
                    prop_assert_eq!(before + piece.data.len() as u64, bytes);
                    prop_assert!(bytes <= limits::FILE_BYTES as u64);
                    ended.push(spool);
                }
                Ok(Step::Ignore) | Err(_) => {}
            }
            for spool in rig.discard.drain(..) {
                kept.remove(&spool);
                ended.push(spool);
            }
            prop_assert_eq!(rig.table.bytes(), kept.values().sum::<u64>());
            prop_assert!(rig.table.bytes() <= limits::SERIES_BYTES as u64);
            prop_assert!(rig.table.open.len() <= limits::SERIES);
        }
        let all = ended.len();
        ended.sort_unstable();
        ended.dedup();
        prop_assert_eq!(ended.len(), all);
    }
}
