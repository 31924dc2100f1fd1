//! Lone surrogates in JSON text: `serde_json` refuses them, JavaScript makes them.

use std::borrow::Cow;

/// Bytes of a `\uXXXX` escape.
const ESCAPE: usize = 6;

/// Replaces every `\uD800`–`\uDFFF` escape that is not part of a pair by `\uFFFD`. Costs one scan when there is none.
/// Text that is not JSON is returned as it is or harmlessly changed: the parser refuses it afterwards.
#[must_use]
pub fn lone_surrogates(json: &str) -> Cow<'_, str> {
    let bytes = json.as_bytes();
    let mut out = String::new();
    // Everything before `copied` is in `out`, once something was replaced.
    let mut copied = 0;
    let mut at = 0;
    // `get` ends the search where a backslash stands before something that is not ASCII, which is not JSON.
    while let Some(offset) = json.get(at..).and_then(|rest| rest.find('\\')) {
        at += offset;
        match unit(bytes, at) {
            Some(0xD800..=0xDBFF) if matches!(unit(bytes, at + ESCAPE), Some(0xDC00..=0xDFFF)) => {
                at += 2 * ESCAPE
            }
            Some(0xD800..=0xDFFF) => {
                // An escape is ASCII, so both ends are character borders.
                out.push_str(json.get(copied..at).unwrap_or_default());
                out.push_str("\\ufffd");
                at += ESCAPE;
                copied = at;
            }
            Some(_) => at += ESCAPE,
            // Another escape: the character after the backslash belongs to it, also if it is a backslash.
            None => at += 2,
        }
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    out.push_str(json.get(copied..).unwrap_or_default());
    Cow::Owned(out)
}

/// The UTF-16 unit of a `\uXXXX` escape at `at`.
fn unit(bytes: &[u8], at: usize) -> Option<u32> {
    let escape = bytes.get(at..at.checked_add(ESCAPE)?)?;
    let (head, digits) = escape.split_at(2);
    if head != b"\\u" {
        return None;
    }
    digits.iter().try_fold(0, |value, digit| Some(value * 16 + char::from(*digit).to_digit(16)?))
}
