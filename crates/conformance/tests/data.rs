//! The data of `spec/checklist` is whole: every file is built in, every name leads somewhere.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeSet, fs, path::Path};

use hermes_mobile_conformance::{
    case::{self, Case, Words},
    profile::{self, BUILT_IN, Profile},
};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn cases() -> Vec<Case> {
    case::cases().expect("the cases can be read")
}

#[test]
fn every_file_of_cases_is_built_in() {
    let built: BTreeSet<&str> = case::FILES.iter().map(|(name, _)| *name).collect();
    let there: BTreeSet<String> = fs::read_dir(Path::new(ROOT).join("spec/checklist"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".toml") && name != "groups.toml" && name != "elsewhere.toml")
        .collect();
    assert_eq!(built, there.iter().map(String::as_str).collect());
}

#[test]
fn every_case_has_its_own_name_and_a_group_and_words_in_two_languages() {
    let groups = case::groups().unwrap();
    let mut seen = BTreeSet::new();
    for case in cases() {
        assert!(seen.insert(case.id.clone()), "{} is there twice", case.id);
        assert!(groups.contains_key(&case.group), "{}: no group {}", case.id, case.group);
        assert!(!case.steps.is_empty(), "{} has no steps", case.id);
        let texts = |words: &Words| {
            [words.title.clone(), words.send.clone(), words.expect.clone(), words.mistake.clone()]
        };
        for (ru, en) in texts(&case.ru).iter().zip(texts(&case.en)) {
            assert!(!ru.trim().is_empty() && !en.trim().is_empty(), "{} lacks words", case.id);
            assert!(!en.replace("Пустое сообщение", "").chars().any(is_cyrillic), "{}: {en}", case.id);
        }
        assert!(case.ru.expect.chars().chain(case.ru.mistake.chars()).any(is_cyrillic), "{}", case.id);
    }
}

fn is_cyrillic(c: char) -> bool {
    ('а'..='я').contains(&c.to_ascii_lowercase())
}

#[test]
fn the_ten_points_and_every_row_of_the_table_have_cases() {
    let from: BTreeSet<String> = cases().into_iter().map(|case| case.from).collect();
    for point in 1..=10 {
        assert!(from.contains(&format!("point {point}")), "point {point}");
    }
    for row in [
        "ping/pong",
        "empty text",
        "text > 12,000 characters",
        "audio not wav/ogg",
        "invalid media kind",
        "answer to a foreign prompt_id",
        "answer to a card of a foreign device",
        "device.id taken by another token",
        "deliver not from cron",
        "media upload beyond the memory limit",
        "cron delivery offline",
    ] {
        assert!(from.contains(&format!("table: {row}")), "{row}");
    }
}

#[test]
fn profiles_set_only_what_cases_use_and_cases_use_only_what_is_described() {
    let keys: BTreeSet<String> = profile::keys().unwrap().into_keys().collect();
    let used: BTreeSet<String> = cases()
        .iter()
        .flat_map(Case::uses)
        .filter_map(|name| name.strip_prefix("p.").map(str::to_owned))
        .collect();
    assert_eq!(used, keys);
    for (name, _) in BUILT_IN {
        let profile = Profile::load(name).unwrap();
        assert!(profile.set.keys().all(|key| keys.contains(key)), "{name}");
    }
    let demo: BTreeSet<String> = Profile::load("demo").unwrap().set.into_keys().collect();
    assert_eq!(demo, keys, "the demo agent shows everything");
}

#[test]
fn every_test_that_holds_a_rule_elsewhere_exists() {
    let rules = case::elsewhere().unwrap();
    assert!(!rules.is_empty());
    for rule in rules {
        assert!(!rule.tests.is_empty(), "{}: no test", rule.rule);
        for test in rule.tests {
            let (file, name) = test.split_once("::").expect("file::function");
            let text = fs::read_to_string(Path::new(ROOT).join(file)).unwrap_or_default();
            assert!(is_test(&text, name), "{}: there is no test {test}", rule.rule);
        }
    }
}

/// Whether a source file has a test of this name: a function below a `#[test]` or inside of a `proptest!`.
fn is_test(text: &str, name: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.iter().enumerate().any(|(at, line)| {
        let found =
            line.trim_start_matches("async ").strip_prefix("fn ").and_then(|rest| rest.strip_prefix(name));
        found.is_some_and(|rest| rest.starts_with('('))
            && lines
                .iter()
                .take(at)
                .rev()
                .take(4)
                .any(|above| above.starts_with("#[test]") || above.starts_with("#[tokio::test"))
    })
}
