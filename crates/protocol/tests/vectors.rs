//! Every line of `spec/vectors/*.jsonl`, read by the decoder that ships.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, fs, path::Path};

use hermes_mobile_protocol::{
    base64,
    client::{self, ClientFrame, MediaKind, MediaPart, VoiceFormat},
    problem::Problem,
    server,
    words::Lang,
};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    name: String,
    dir: String,
    frame: Option<Box<RawValue>>,
    raw: Option<String>,
    #[serde(default)]
    repeat: BTreeMap<String, (String, usize)>,
    expect: Box<RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refusal {
    code: String,
    field: Option<String>,
    id: Option<String>,
    #[serde(default)]
    fatal: bool,
    #[serde(default)]
    rubbish: bool,
    ends_series: Option<String>,
    detail: Option<String>,
    #[serde(default)]
    message: BTreeMap<String, String>,
}

fn lines(dir: &str) -> Vec<(String, String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/vectors");
    let mut out = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "jsonl") {
            continue;
        }
        let file = path.file_stem().unwrap().to_string_lossy().into_owned();
        for line in fs::read_to_string(&path).unwrap().lines() {
            let line: Line = serde_json::from_str(line).unwrap_or_else(|e| panic!("{file}: {e}: {line}"));
            if line.dir != dir {
                continue;
            }
            let repeated = |text: &str| {
                line.repeat.iter().fold(text.to_owned(), |text, (mark, (piece, count))| {
                    text.replace(mark, &piece.repeat(*count))
                })
            };
            let text = line.raw.as_deref().or(line.frame.as_ref().map(|f| f.get())).expect("frame or raw");
            let expect = serde_json::from_str(&repeated(line.expect.get())).unwrap();
            out.push((format!("{file}/{}", line.name), repeated(text), expect));
        }
    }
    out.sort_by(|a, b| a.0.cmp(&b.0));
    out
}

/// A decoded frame in the form that the vectors state.
fn shown(frame: &ClientFrame) -> Value {
    match frame {
        ClientFrame::Hello(h) => json!({
            "t": "hello", "token": h.token, "user_id": h.user_id, "user_name": h.user_name, "lang": h.lang,
            "features": h.features,
            "device": h.device.as_ref().map(|d| json!({
                "id": d.id, "name": d.name, "platform": d.platform, "app_version": d.app_version})),
            "resume": h.resume.as_ref().map(|r| json!({"epoch": r.epoch, "seq": r.seq})),
        }),
        ClientFrame::Text(t) => json!({"t": "text", "id": t.id, "text": t.text}),
        ClientFrame::Media(m) => media(m),
        ClientFrame::Prompt(p) => {
            json!({"t": "prompt", "prompt_id": p.prompt_id, "option_id": p.option_id, "text": p.text})
        }
        ClientFrame::Ping { ts } => {
            json!({"t": "ping", "ts": serde_json::from_str::<Value>(ts.get()).unwrap()})
        }
        ClientFrame::Deliver(d) => {
            json!({"t": "deliver", "id": d.id, "target": d.target, "text": d.text, "queue": d.queue})
        }
        ClientFrame::Unknown { t } => json!({"t": t, "unknown": true}),
    }
}

fn media(m: &MediaPart) -> Value {
    let kind = match m.kind {
        MediaKind::Voice { format, sample_rate, duration_ms } => {
            let format = if format == VoiceFormat::Wav { "wav" } else { "ogg" };
            return json!({"t": "audio", "id": m.id, "format": format, "sample_rate": sample_rate,
                "duration_ms": duration_ms, "part": m.part, "parts": m.parts, "data": base64::encode(&m.data)});
        }
        MediaKind::Image => "image",
        MediaKind::Video => "video",
        MediaKind::Document => "document",
        MediaKind::Audio => "audio",
    };
    json!({"t": "media", "id": m.id, "kind": kind, "mime": m.mime, "filename": m.filename, "caption": m.caption,
        "part": m.part, "parts": m.parts, "data": base64::encode(&m.data)})
}

fn refused(name: &str, problem: &Problem, expect: &Value) {
    let expect: Refusal = serde_json::from_value(expect.clone()).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(serde_json::to_value(problem.code).unwrap(), expect.code, "{name}: {problem:?}");
    if let Some(field) = &expect.field {
        assert!(problem.detail.starts_with(&format!("{field} ")), "{name}: {}", problem.detail);
    }
    if let Some(word) = &expect.detail {
        assert!(problem.detail.contains(word.as_str()), "{name}: {}", problem.detail);
    }
    assert_eq!(problem.id, expect.id, "{name}");
    assert_eq!(problem.in_hello, expect.fatal, "{name}");
    assert_eq!(problem.rubbish, expect.rubbish, "{name}");
    assert_eq!(problem.ends_series, expect.ends_series, "{name}");
    for (lang, message) in &expect.message {
        assert_eq!(problem.say.text(Lang::from_tag(lang).unwrap()), *message, "{name}");
    }
}

#[test]
fn every_frame_from_a_device_is_understood_or_refused_as_stated() {
    let lines = lines("in");
    assert!(lines.len() > 200, "{} vectors found", lines.len());
    for (name, text, expect) in lines {
        match (client::decode(&text), expect.get("ok")) {
            (Ok(frame), Some(ok)) => assert_eq!(shown(&frame), *ok, "{name}"),
            (Err(problem), None) => refused(&name, &problem, &expect),
            (Ok(frame), None) => panic!("{name}: accepted: {}", shown(&frame)),
            (Err(problem), Some(_)) => panic!("{name}: refused: {problem}"),
        }
    }
}

#[test]
fn every_frame_to_a_device_is_read_and_written_as_stated() {
    let lines = lines("out");
    assert!(lines.len() > 50, "{} vectors found", lines.len());
    for (name, text, expect) in lines {
        let read = server::decode(&text);
        if expect.get("unreadable") == Some(&json!(true)) {
            assert!(read.is_err(), "{name}: {read:?}");
            continue;
        }
        let frame = read.unwrap_or_else(|e| panic!("{name}: {e}"));
        let written: Option<Value> = frame.map(|f| serde_json::from_str(&f.encode()).unwrap());
        assert_eq!(written.as_ref().map_or(&Value::Null, |w| &w["t"]), &expect["ok"], "{name}");
        if name.starts_with("to_device/") {
            assert_eq!(written.unwrap(), serde_json::from_str::<Value>(&text).unwrap(), "{name}");
        }
    }
}

#[test]
fn every_frame_type_has_golden_and_hostile_vectors() {
    let all = lines("in");
    for t in ["hello", "text", "audio", "media", "prompt", "ping", "deliver"] {
        let of_type = |ok: bool| {
            all.iter()
                .filter(|(name, _, e)| name.starts_with(&format!("{t}/")) && e.get("ok").is_some() == ok)
                .count()
        };
        assert!(
            of_type(true) >= 3 && of_type(false) >= 3,
            "{t}: {} golden, {} hostile",
            of_type(true),
            of_type(false)
        );
    }
    let out = lines("out");
    for t in [
        "ready",
        "error",
        "message",
        "media",
        "prompt",
        "prompt_done",
        "avatar",
        "typing",
        "pong",
        "deliver_done",
    ] {
        assert!(out.iter().any(|(name, _, e)| name.starts_with("to_device/") && e["ok"] == t), "{t}");
    }
}
