//! JSON Schema of every frame, derived from types. What a device may send is checked by [`crate::client`], which reads without these
//! types; here they stand as a client writes them, and tests hold the two together. Which characters an id may have is said in
//! words: patterns with classes of Unicode are not read by the validators of every language.

use std::collections::{BTreeMap, BTreeSet};

use schemars::{JsonSchema, generate::SchemaSettings};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{limits, server::ServerFrame};

/// A frame to the server, as a client writes it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "t", rename_all = "snake_case")]
pub enum SentFrame {
    /// The first frame of a connection.
    Hello(SentHello),
    /// What a person typed.
    Text(SentText),
    /// A voice message, or a part of one.
    Audio(SentAudio),
    /// A file, or a part of one.
    Media(SentMedia),
    /// The answer to a card.
    Prompt(SentPrompt),
    /// Asks for a `pong`.
    Ping(SentPing),
    /// A message to another device.
    Deliver(SentDeliver),
}

/// `hello`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SentHello {
    /// Wins over the token of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Absent only on a connection that does nothing but deliver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<SentDevice>,
    /// The person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<SentUser>,
    /// Language tag of the person; `ru` and `en` are spoken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limits::LABEL_CHARS))]
    pub lang: Option<String>,
    /// What the client understands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limits::FEATURES), inner(length(max = limits::LABEL_CHARS)))]
    pub features: Option<Vec<String>>,
    /// Where to resume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<SentResume>,
    /// Version of the protocol, 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v: Option<u32>,
}

/// `hello.device`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SentDevice {
    /// Letters and digits of any script, and `. _ - ~ @ + :`.
    #[schemars(length(min = 1, max = limits::ID_CHARS))]
    pub id: String,
    /// Name to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limits::LABEL_CHARS))]
    pub name: Option<String>,
    /// For instance `android`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limits::LABEL_CHARS))]
    pub platform: Option<String>,
    /// Version of the app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limits::LABEL_CHARS))]
    pub app_version: Option<String>,
}

/// `hello.user`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SentUser {
    /// Letters and digits of any script, and `. _ - ~ @ + :`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = limits::ID_CHARS))]
    pub id: Option<String>,
    /// A label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limits::LABEL_CHARS))]
    pub name: Option<String>,
}

/// `hello.resume`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SentResume {
    /// Epoch of the store, as `ready` or `resumed` told it.
    #[schemars(length(min = 1, max = limits::LABEL_CHARS))]
    pub epoch: String,
    /// Last item that the client has.
    pub seq: u64,
}

/// `text`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SentText {
    /// Makes it idempotent for 7 days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = limits::ID_CHARS))]
    pub id: Option<String>,
    /// Not white space only.
    #[schemars(length(min = 1, max = limits::TEXT_CHARS), regex(pattern = r"\S"))]
    pub text: String,
}

/// `audio.format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SentFormat {
    /// RIFF/WAVE.
    Wav,
    /// Ogg.
    Ogg,
}

/// `audio`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SentAudio {
    /// One id for all parts; may be absent for one part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = limits::ID_CHARS))]
    pub id: Option<String>,
    /// What the bytes are.
    pub format: SentFormat,
    /// Hz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub sample_rate: Option<f64>,
    /// Length in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub duration_ms: Option<f64>,
    /// From 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = limits::PARTS - 1))]
    pub part: Option<u32>,
    /// How many; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = limits::PARTS))]
    pub parts: Option<u32>,
    /// Base64 of this part's own bytes.
    #[schemars(length(min = 1))]
    pub data: String,
}

/// `media.kind` to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SentKind {
    /// A picture.
    Image,
    /// A video.
    Video,
    /// Any file.
    Document,
    /// A music file.
    Audio,
}

/// `media`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SentMedia {
    /// One id for all parts; may be absent for one part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = limits::ID_CHARS))]
    pub id: Option<String>,
    /// Kind.
    pub kind: SentKind,
    /// Type; what the bytes tell wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limits::LABEL_CHARS))]
    pub mime: Option<String>,
    /// Name to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    /// What the person wrote to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limits::CAPTION_CHARS))]
    pub caption: Option<String>,
    /// From 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = limits::PARTS - 1))]
    pub part: Option<u32>,
    /// How many; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = limits::PARTS))]
    pub parts: Option<u32>,
    /// Base64 of this part's own bytes.
    #[schemars(length(min = 1))]
    pub data: String,
}

/// `prompt` to the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SentPrompt {
    /// Comes back in an `error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = limits::ID_CHARS))]
    pub id: Option<String>,
    /// Which card.
    #[schemars(length(min = 1, max = limits::ID_CHARS))]
    pub prompt_id: String,
    /// Which option.
    #[schemars(length(min = 1, max = limits::ID_CHARS))]
    pub option_id: String,
    /// A free answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limits::TEXT_CHARS))]
    pub text: Option<String>,
}

/// `ping`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct SentPing {
    /// Comes back in an `error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = limits::ID_CHARS))]
    pub id: Option<String>,
    /// Any JSON of at most 1 KiB; comes back in the `pong`. Absent: `null` does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ts: Option<Value>,
}

/// `deliver.offline`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SentOffline {
    /// Store it if the device is away.
    Queue,
}

/// `deliver`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SentDeliver {
    /// Remembered 7 days.
    #[schemars(length(min = 1, max = limits::ID_CHARS))]
    pub id: String,
    /// A device id (letters and digits of any script, and `. _ - ~ @ + :`), or `home`.
    #[schemars(length(min = 1, max = limits::ID_CHARS))]
    pub target: String,
    /// Not white space only.
    #[schemars(length(min = 1, max = limits::TEXT_CHARS), regex(pattern = r"\S"))]
    pub text: String,
    /// Absent: the device must be there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offline: Option<SentOffline>,
}

/// One schema per frame: the name of its file without `.json`, and its content. `client-*` goes to the server, `server-*` to a device.
/// In the order of the names, each object's keys sorted, so that the same types give the same bytes.
#[must_use]
pub fn all() -> Vec<(String, Value)> {
    let generator = || SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut files = frames("client", &generator().into_root_schema_for::<SentFrame>().to_value());
    files.extend(frames("server", &generator().into_root_schema_for::<ServerFrame>().to_value()));
    files.sort_by(|(a, _), (b, _)| a.cmp(b));
    files
}

/// Takes the schema of a frame enum apart: one schema for each variant, with the definitions that it uses.
fn frames(side: &str, whole: &Value) -> Vec<(String, Value)> {
    let variants = whole.get("oneOf").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let file = |variant: &Value| {
        let t = variant.pointer("/properties/t/const").and_then(Value::as_str)?;
        let mut used = BTreeSet::new();
        definitions(variant, whole, &mut used);
        let mut schema = variant.as_object()?.clone();
        schema.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
        schema.insert(
            "title".into(),
            format!("{t} ({})", if side == "client" { "to the server" } else { "to a device" }).into(),
        );
        let defs: Map<String, Value> = used
            .iter()
            .filter_map(|name| Some((name.clone(), whole.get("$defs")?.get(name)?.clone())))
            .collect();
        if !defs.is_empty() {
            schema.insert("$defs".into(), defs.into());
        }
        Some((format!("{side}-{t}"), sorted(Value::Object(schema))))
    };
    variants.iter().filter_map(file).collect()
}

/// Notes the names of all definitions that a schema refers to, also through others.
fn definitions(schema: &Value, whole: &Value, used: &mut BTreeSet<String>) {
    match schema {
        Value::Object(map) => {
            let name = map.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix("#/$defs/"));
            if let Some(name) = name
                && used.insert(name.to_owned())
                && let Some(definition) = whole.get("$defs").and_then(|defs| defs.get(name))
            {
                definitions(definition, whole, used);
            }
            map.values().for_each(|value| definitions(value, whole, used));
        }
        Value::Array(list) => list.iter().for_each(|value| definitions(value, whole, used)),
        _ => {}
    }
}

/// The same value with all keys in order, also where a feature of `serde_json` keeps them as they came.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let ordered: BTreeMap<String, Value> = map.into_iter().map(|(k, v)| (k, sorted(v))).collect();
            Value::Object(ordered.into_iter().collect())
        }
        Value::Array(list) => Value::Array(list.into_iter().map(sorted).collect()),
        other => other,
    }
}
