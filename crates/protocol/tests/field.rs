//! Faults that were reported in the field and concern every frame alike.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{fs, path::Path};

use hermes_mobile_protocol::{client, server};
use serde_json::Value;

/// A sign that stands in no vector, in place of what is put into a string.
const MARK: char = '\u{e123}';

/// Every copy of a frame in which one of its strings has a mark inside.
fn marked(frame: &Value) -> Vec<Value> {
    let mut out = Vec::new();
    let mut paths = vec![String::new()];
    while let Some(path) = paths.pop() {
        match frame.pointer(&path).unwrap() {
            Value::String(text) => {
                let middle = text.chars().count() / 2;
                let (one, two): (String, String) =
                    (text.chars().take(middle).collect(), text.chars().skip(middle).collect());
                let mut copy = frame.clone();
                *copy.pointer_mut(&path).unwrap() = Value::String(format!("{one}{MARK}{two}"));
                out.push(copy);
            }
            Value::Array(items) => paths.extend((0..items.len()).map(|index| format!("{path}/{index}"))),
            Value::Object(fields) => paths.extend(fields.keys().map(|name| format!("{path}/{name}"))),
            _ => {}
        }
    }
    out
}

#[test]
fn field_a_lone_surrogate_in_any_string_of_any_frame_is_read_as_a_replacement_sign() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/vectors");
    let (mut from_devices, mut to_devices) = (0, 0);
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "jsonl") {
            continue;
        }
        for line in fs::read_to_string(&path).unwrap().lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let (Some(frame), None) = (line.get("frame"), line.get("repeat")) else { continue };
            for copy in marked(frame) {
                let text = copy.to_string();
                for lone in [r"\ud83d", r"\uDE00", r"\udfff"] {
                    let (lone, sign) = (text.replace(MARK, lone), text.replace(MARK, r"\ufffd"));
                    if line["dir"] == "in" {
                        let (got, expected) = (client::decode(&lone), client::decode(&sign));
                        assert_eq!(format!("{got:?}"), format!("{expected:?}"), "{lone}");
                        assert!(!got.is_err_and(|p| p.detail.contains("JSON")), "{lone}");
                        from_devices += 1;
                    } else {
                        let (got, expected) = (server::decode(&lone), server::decode(&sign));
                        assert_eq!(format!("{got:?}"), format!("{expected:?}"), "{lone}");
                        // What is written again holds no such thing: it comes back from nowhere.
                        if let Ok(Some(frame)) = got {
                            assert!(serde_json::from_str::<Value>(&frame.encode()).is_ok(), "{lone}");
                        }
                        to_devices += 1;
                    }
                }
            }
        }
    }
    assert!(from_devices > 1_000 && to_devices > 500, "{from_devices} and {to_devices} frames were tried");
}
