//! Reads frames of a server, more leniently than they are written: what a newer or another server leaves out or adds
//! costs as little as possible.

use protocol::server::{
    AvatarState, Capabilities, DeliverState, Media, Message, Prompt, PromptDone, Ready, Typing,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::event::ErrorInfo;

/// A frame of the server.
#[derive(Debug)]
pub(super) enum Incoming {
    Ready(Box<Ready>),
    Error(ErrorInfo),
    Message(Message),
    Media(Media),
    Prompt(Prompt),
    PromptDone(PromptDone),
    Avatar(AvatarState),
    Typing(Typing),
    /// The number of our ping, if it is one of ours.
    Pong(Option<u64>),
    DeliverDone {
        id: String,
        target: String,
        state: DeliverState,
    },
    /// A type this client does not know.
    Unknown,
}

/// Reads one text frame. An error is for a developer.
pub(super) fn decode(text: &str) -> Result<Incoming, String> {
    let repaired = protocol::repair::lone_surrogates(text);
    let value: Value = serde_json::from_str(&repaired).map_err(|e| format!("not JSON: {e}"))?;
    let Value::Object(mut map) = value else {
        return Err("a frame that is not an object".into());
    };
    let Some(Value::String(t)) = map.remove("t") else {
        return Err("a frame without a string t".into());
    };
    let pong = if t == "pong" { Some(map.get("ts").and_then(Value::as_u64)) } else { None };
    if let Some(number) = pong {
        return Ok(Incoming::Pong(number));
    }
    strip_nulls(&mut map);
    let known = match t.as_str() {
        "ready" => typed(&t, fill_ready(map)).map(|r| Incoming::Ready(Box::new(r))),
        "error" => Ok(Incoming::Error(error(&map))),
        "message" => typed(&t, fill_message(map)).map(Incoming::Message),
        "media" => {
            map.entry("filename").or_insert_with(|| json!(""));
            map.entry("final").or_insert_with(|| json!(false));
            typed(&t, map).map(Incoming::Media)
        }
        "prompt" => typed(&t, fill_prompt(map)).map(Incoming::Prompt),
        "prompt_done" => typed(&t, map).map(Incoming::PromptDone),
        "avatar" => typed(&t, map).map(|Avatar { state }| Incoming::Avatar(state)),
        "typing" => typed(&t, map).map(Incoming::Typing),
        "deliver_done" => typed(&t, map).map(|DeliverDone { id, target, state }| Incoming::DeliverDone {
            id,
            target,
            state,
        }),
        _ => Ok(Incoming::Unknown),
    };
    known.map_err(|e| e.to_string())
}

#[derive(serde::Deserialize)]
struct Avatar {
    state: AvatarState,
}

#[derive(serde::Deserialize)]
struct DeliverDone {
    id: String,
    target: String,
    state: DeliverState,
}

fn typed<T: DeserializeOwned>(t: &str, map: Map<String, Value>) -> Result<T, String> {
    serde_json::from_value(Value::Object(map)).map_err(|e| format!("{t}: {e}"))
}

/// `null` means absent.
fn strip_nulls(map: &mut Map<String, Value>) {
    map.retain(|_, v| !v.is_null());
    for value in map.values_mut() {
        match value {
            Value::Object(inner) => strip_nulls(inner),
            Value::Array(items) => items.iter_mut().for_each(|item| {
                if let Value::Object(inner) = item {
                    strip_nulls(inner);
                }
            }),
            _ => {}
        }
    }
}

/// What a connection that only delivers, or another server, may leave out of `ready`. Names that this client does not
/// know are taken out of the lists of capabilities.
fn fill_ready(mut map: Map<String, Value>) -> Map<String, Value> {
    map.entry("v").or_insert_with(|| json!(1));
    map.entry("session").or_insert_with(|| json!(""));
    map.entry("avatar_url").or_insert_with(|| json!(""));
    let device = map.entry("device").or_insert_with(|| json!({}));
    if let Value::Object(device) = device {
        let id = device.entry("id").or_insert_with(|| json!("")).clone();
        device.entry("name").or_insert(id);
    }
    let mut capabilities = serde_json::to_value(Capabilities::default()).unwrap_or_default();
    if let (Value::Object(all), Some(Value::Object(given))) = (&mut capabilities, map.remove("capabilities"))
    {
        for (name, value) in given {
            let value = match (all.get(&name), value) {
                (Some(Value::Array(known)), Value::Array(items)) if name != "media_in" => {
                    Value::Array(items.into_iter().filter(|item| known.contains(item)).collect())
                }
                (_, value) => value,
            };
            all.insert(name, value);
        }
    }
    map.insert("capabilities".into(), capabilities);
    // Limits are read by name: another set of them must not cost the session.
    if map
        .get("limits")
        .is_some_and(|l| serde_json::from_value::<protocol::server::Limits>(l.clone()).is_err())
    {
        map.remove("limits");
    }
    map
}

fn fill_message(mut map: Map<String, Value>) -> Map<String, Value> {
    let chunk = map.entry("chunk").or_insert_with(|| json!({"index": 0, "total": 1}));
    let at_end =
        match (chunk.get("index").and_then(Value::as_u64), chunk.get("total").and_then(Value::as_u64)) {
            (Some(index), Some(total)) => index.checked_add(1).is_some_and(|n| n >= total),
            _ => true,
        };
    let edit = map.get("edit").and_then(Value::as_bool).unwrap_or(false);
    map.entry("final").or_insert_with(|| json!(at_end && !edit));
    map
}

fn fill_prompt(mut map: Map<String, Value>) -> Map<String, Value> {
    map.entry("text").or_insert_with(|| json!(""));
    map.entry("session").or_insert_with(|| json!(""));
    if let Some(Value::Array(options)) = map.get_mut("options") {
        for option in options.iter_mut().filter_map(Value::as_object_mut) {
            // A look that this client does not know is no reason to lose a card.
            let known = option
                .get("style")
                .and_then(Value::as_str)
                .is_some_and(|s| matches!(s, "primary" | "secondary" | "danger"));
            if !known {
                option.insert("style".into(), json!("secondary"));
            }
        }
    }
    map
}

/// An `error` is understood whatever it lacks: `fatal` decides what the client does next.
fn error(map: &Map<String, Value>) -> ErrorInfo {
    let text = |name: &str| map.get(name).and_then(Value::as_str).map(str::to_owned);
    let name = text("code").unwrap_or_default();
    ErrorInfo {
        code: serde_json::from_value(json!(name)).ok(),
        name,
        message: text("message").unwrap_or_default(),
        fatal: map.get("fatal").and_then(Value::as_bool).unwrap_or(false),
        id: text("id"),
        detail: text("detail"),
        retry_after_ms: map.get("retry_after_ms").and_then(Value::as_u64),
    }
}
