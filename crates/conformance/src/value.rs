//! Frames as patterns: names that are filled in, values that are made, and what a frame is compared with.
//!
//! In what is sent: `${name}` is filled in; a string that begins with `$` is made: `$null`, `$absent`, `$repeat:N:TEXT`,
//! `$b64:WHAT`, `$hard:N`. In what is expected, a string that begins with `$` is a test ([`matches()`]).

use std::{borrow::Cow, collections::BTreeMap};

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use unicode_segmentation::UnicodeSegmentation;

/// Names and their values.
pub type Names = BTreeMap<String, Value>;

/// A PNG picture of one pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// What cannot be filled in or made; a fault of the case.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// No such name.
    #[error("nothing is called ${{{0}}}")]
    Unknown(String),
    /// Not something that can be made.
    #[error("{0:?} cannot be made")]
    Make(String),
    /// Not JSON.
    #[error("not JSON: {0}")]
    Json(String),
}

/// JSON with its names filled in.
///
/// # Errors
/// [`ValueError`].
pub fn fill(text: &str, names: &Names) -> Result<Value, ValueError> {
    let value: Value = serde_json::from_str(text).map_err(|e| ValueError::Json(e.to_string()))?;
    walk(value, &mut |text| fill_string(&text, names))
}

/// A plain text with its names filled in.
///
/// # Errors
/// [`ValueError::Unknown`].
pub fn fill_text(text: &str, names: &Names) -> Result<String, ValueError> {
    Ok(shown(&fill_string(text, names)?).into_owned())
}

fn walk(
    value: Value,
    each: &mut dyn FnMut(String) -> Result<Value, ValueError>,
) -> Result<Value, ValueError> {
    Ok(match value {
        Value::String(text) => each(text)?,
        Value::Array(list) => {
            Value::Array(list.into_iter().map(|v| walk(v, each)).collect::<Result<_, _>>()?)
        }
        Value::Object(map) => {
            let filled: Result<Map<String, Value>, ValueError> =
                map.into_iter().map(|(key, v)| Ok((key, walk(v, each)?))).collect();
            Value::Object(filled?)
        }
        other => other,
    })
}

fn fill_string(text: &str, names: &Names) -> Result<Value, ValueError> {
    let get = |name: &str| names.get(name).ok_or_else(|| ValueError::Unknown(name.into()));
    if let Some(name) = text.strip_prefix("${").and_then(|t| t.strip_suffix('}'))
        && !name.contains('}')
    {
        return get(name).cloned();
    }
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, tail)) = rest.split_once("${") {
        let (name, after) = tail.split_once('}').ok_or_else(|| ValueError::Unknown(tail.into()))?;
        out.push_str(before);
        out.push_str(&shown(get(name)?));
        rest = after;
    }
    out.push_str(rest);
    Ok(Value::String(out))
}

/// A value as text: a string without its quotes.
#[must_use]
pub fn shown(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        other => Cow::Owned(other.to_string()),
    }
}

/// Makes what is to be made; fields that are `$absent` are left out.
///
/// # Errors
/// [`ValueError::Make`].
pub fn make(value: Value) -> Result<Value, ValueError> {
    let mut made =
        walk(value, &mut |text| if text.starts_with('$') { make_one(&text) } else { Ok(text.into()) })?;
    drop_absent(&mut made);
    Ok(made)
}

fn drop_absent(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, v| v.as_str() != Some("$absent"));
            map.values_mut().for_each(drop_absent);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_absent),
        _ => {}
    }
}

fn make_one(text: &str) -> Result<Value, ValueError> {
    let wrong = || ValueError::Make(text.into());
    let (what, rest) = text.split_once(':').unwrap_or((text, ""));
    match what {
        "$null" => Ok(Value::Null),
        "$absent" => Ok(text.into()),
        "$repeat" => {
            let (count, piece) = rest.split_once(':').ok_or_else(wrong)?;
            Ok(piece.repeat(count.parse().map_err(|_| wrong())?).into())
        }
        "$hard" => Ok(hard(rest.parse().map_err(|_| wrong())?).into()),
        "$b64" => Ok(base64_simd::STANDARD.encode_to_string(bytes(rest).ok_or_else(wrong)?).into()),
        _ => Err(wrong()),
    }
}

/// The bytes that have a name: `png`, `ogg`, `wav`, `text`, or `pattern:FROM-TO` (byte i is i mod 251).
#[must_use]
pub fn bytes(name: &str) -> Option<Vec<u8>> {
    if let Some(range) = name.strip_prefix("pattern:") {
        let (from, to) = range.split_once('-')?;
        let (from, to): (usize, usize) = (from.parse().ok()?, to.parse().ok()?);
        return Some((from..to).map(|i| u8::try_from(i % 251).unwrap_or_default()).collect());
    }
    match name {
        "png" => base64_simd::STANDARD.decode_to_vec(PNG).ok(),
        "text" => Some(b"A few plain words.\n".to_vec()),
        "wav" => Some(wav()),
        "ogg" => Some(ogg()),
        _ => None,
    }
}

/// A tenth of a second of silence, 8 kHz.
fn wav() -> Vec<u8> {
    let mut out = b"RIFF".to_vec();
    out.extend_from_slice(&836u32.to_le_bytes());
    out.extend_from_slice(b"WAVEfmt ");
    out.extend_from_slice(&16u32.to_le_bytes());
    for word in [1u16, 1, 8_000, 0, 8_000, 0, 1, 8] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(b"data");
    out.extend_from_slice(&800u32.to_le_bytes());
    out.resize(844, 128);
    out
}

/// One Ogg page with the head of an Opus stream.
fn ogg() -> Vec<u8> {
    let mut out = b"OggS\x00\x02".to_vec();
    out.extend_from_slice(&[0; 20]);
    out.extend_from_slice(&[1, 19]);
    out.extend_from_slice(b"OpusHead\x01\x01\x00\x00");
    out.extend_from_slice(&48_000u32.to_le_bytes());
    out.extend_from_slice(&[0; 3]);
    out
}

/// A text of so many characters that is hard to cut: families, flags, combining marks, long words, paragraphs.
#[must_use]
pub fn hard(chars: usize) -> String {
    const PIECES: [&str; 9] = [
        "A sentence of plain words, and one more. ",
        "Русские слова тоже здесь есть. ",
        "👩‍👩‍👧‍👦👨‍👩‍👧 ",
        "🇩🇪🇫🇷🇷🇺 ",
        "e\u{301}a\u{308}o\u{302}\u{323} ",
        "https://example.org/a/very/long/path/that/has/no/break/in/it?with=a&query=too#and-more ",
        "\n\n",
        "  two  spaces\tand a tab\n",
        "नमस्ते दुनिया। ",
    ];
    let mut out = String::new();
    let mut left = chars;
    for piece in PIECES.iter().cycle() {
        for cluster in piece.graphemes(true) {
            let length = cluster.chars().count();
            if length > left {
                // The last place is for something that is no white space.
                out.extend(std::iter::repeat_n('z', left));
                return out;
            }
            // The end of a text may not be white space: somebody may trim it before it is compared.
            let is_last = length == left;
            out.push_str(if is_last && cluster.trim().is_empty() { "z" } else { cluster });
            left -= length;
        }
    }
    out
}

/// SHA-256 in hexadecimal.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a frame is like a pattern. Values that the pattern names (`$=name`) are added to `names`, if all of it
/// matches.
///
/// An object has at least these fields; a list has at least these elements, in any order. A string with `$` in front:
/// `$any`, `$absent` (or null), `$string`, `$text` (not blank), `$whole`, `$number`, `$null`, `$=NAME`, `$not:TEXT`,
/// `$has:TEXT`, `$hasnot:TEXT`, `$starts:TEXT`, `$ends:TEXT`, `$min:N`, `$max:N`, `$chars:N` (that many), `$oneof:A|B`.
pub fn matches(pattern: &Value, value: &Value, names: &mut Names) -> bool {
    let mut found = Names::new();
    let ok = like(pattern, Some(value), &mut found);
    if ok {
        names.append(&mut found);
    }
    ok
}

fn like(pattern: &Value, value: Option<&Value>, found: &mut Names) -> bool {
    if let Some(test) = pattern.as_str().filter(|p| p.starts_with('$')) {
        return passes(test, value, found);
    }
    match (pattern, value) {
        (Value::Object(pattern), Some(Value::Object(value))) => {
            pattern.iter().all(|(key, p)| like(p, value.get(key), found))
        }
        (Value::Array(pattern), Some(Value::Array(value))) => {
            pattern.iter().all(|p| value.iter().any(|v| like(p, Some(v), found)))
        }
        (pattern, value) => Some(pattern) == value,
    }
}

fn passes(test: &str, value: Option<&Value>, found: &mut Names) -> bool {
    let text = value.and_then(Value::as_str);
    if let Some(name) = test.strip_prefix("$=") {
        return value.is_some_and(|v| {
            found.insert(name.into(), v.clone());
            true
        });
    }
    let (what, argument) = test.split_once(':').unwrap_or((test, ""));
    let number = value.and_then(Value::as_f64);
    match what {
        "$any" => value.is_some(),
        "$absent" => value.is_none_or(Value::is_null),
        "$null" => value.is_some_and(Value::is_null),
        "$string" => text.is_some(),
        "$text" => text.is_some_and(|t| !t.trim().is_empty()),
        "$number" => number.is_some(),
        "$whole" => value.is_some_and(|v| v.is_u64() || v.is_i64()),
        "$not" => value.is_some_and(|v| shown(v) != argument),
        "$has" => text.is_some_and(|t| t.contains(argument)),
        "$hasnot" => text.is_some_and(|t| !t.contains(argument)),
        "$ends" => text.is_some_and(|t| t.ends_with(argument)),
        "$starts" => text.is_some_and(|t| t.starts_with(argument)),
        "$oneof" => text.is_some_and(|t| argument.split('|').any(|one| one == t)),
        "$chars" => text.is_some_and(|t| argument.parse() == Ok(t.chars().count())),
        "$min" => number.zip(argument.parse().ok()).is_some_and(|(n, least): (f64, f64)| n >= least),
        "$max" => number.zip(argument.parse().ok()).is_some_and(|(n, most): (f64, f64)| n <= most),
        // A value that begins with a dollar by itself.
        _ => text == Some(test),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn is(pattern: Value, value: Value) -> bool {
        matches(&pattern, &value, &mut Names::new())
    }

    #[test]
    fn patterns_say_what_must_be_there() {
        assert!(is(json!({"t": "error"}), json!({"t": "error", "code": "x"})));
        assert!(!is(json!({"t": "error", "code": "$absent"}), json!({"t": "error", "code": "x"})));
        assert!(is(json!({"id": "$absent"}), json!({"id": null})));
        assert!(is(json!(["b", "a"]), json!(["a", "b", "c"])));
        assert!(!is(json!(["d"]), json!(["a"])));
        assert!(!is(json!({"a": {"b": 1}}), json!({"a": {"b": 2}})));
        for (test, good, bad) in [
            ("$any", json!(false), json!({"other": 1})),
            ("$string", json!(""), json!(1)),
            ("$text", json!("x"), json!(" ")),
            ("$whole", json!(1), json!(1.5)),
            ("$number", json!(1.5), json!("1.5")),
            ("$null", json!(null), json!(0)),
            ("$not:deny", json!("once"), json!("deny")),
            ("$has:b", json!("abc"), json!("ac")),
            ("$hasnot:b", json!("ac"), json!("abc")),
            ("$ends:c", json!("abc"), json!("ab")),
            ("$starts:a", json!("abc"), json!("bc")),
            ("$oneof:a|b", json!("b"), json!("c")),
            ("$chars:2", json!("éё"), json!("abc")),
            ("$min:2", json!(2), json!(1)),
            ("$max:2", json!(2), json!(3)),
        ] {
            assert!(is(json!({"x": test}), json!({"x": good})), "{test}");
            let bad = if test == "$any" { bad } else { json!({ "x": bad }) };
            assert!(!is(json!({"x": test}), bad), "{test}");
        }
    }

    #[test]
    fn names_are_taken_only_from_a_whole_match() {
        let mut names = Names::new();
        assert!(!matches(&json!({"id": "$=card", "t": "x"}), &json!({"id": "c1", "t": "y"}), &mut names));
        assert!(names.is_empty());
        assert!(matches(&json!({"id": "$=card"}), &json!({"id": "c1"}), &mut names));
        assert_eq!(fill(r#"{"a":"${card}","b":"<${card}>"}"#, &names), Ok(json!({"a": "c1", "b": "<c1>"})));
        assert_eq!(fill(r#""${none}""#, &names), Err(ValueError::Unknown("none".into())));
        names.insert("n".into(), json!(7));
        assert_eq!(fill(r#"{"a":"${n}","b":"${n}0"}"#, &names), Ok(json!({"a": 7, "b": "70"})));
    }

    #[test]
    fn what_is_made_is_what_was_asked_for() {
        assert_eq!(
            make(json!({"a": "$absent", "b": "$null", "c": "$repeat:3:ab"})),
            Ok(json!({"b": null, "c": "ababab"}))
        );
        assert!(make(json!("$nonsense")).is_err());
        for chars in [1, 2, 3, 100, 1_999, 12_000] {
            assert_eq!(hard(chars).chars().count(), chars);
        }
        assert_eq!(bytes("pattern:250-253"), Some(vec![250, 0, 1]));
        assert_eq!(bytes("wav").map(|b| b.len()), Some(844));
        assert!(bytes("png").is_some_and(|b| b.starts_with(b"\x89PNG")));
        assert_eq!(bytes("nothing"), None);
    }
}
