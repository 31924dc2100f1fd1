//! Lone surrogates in JSON text: `serde_json` refuses them, JavaScript makes them.

use std::borrow::Cow;

use memchr::memchr;

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
    while let Some(offset) = json.get(at..).and_then(|rest| memchr(b'\\', rest.as_bytes())) {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_without_lone_surrogates_is_not_copied() {
        for json in
            ["", "{}", r#"{"a":"\\ud800 \n \u00e9 \ud83d\ude00"}"#, "\\", "\\u", "\\ud8", "\\é", "\\u00é"]
        {
            assert!(matches!(lone_surrogates(json), Cow::Borrowed(same) if same == json), "{json}");
        }
    }

    #[test]
    fn field_lone_surrogates_become_replacement_characters() {
        for (json, expected) in [
            (r"\ud83d", r"\ufffd"),
            (r"\uD83D\uD83D\uDE00\uDE00", r"\ufffd\uD83D\uDE00\ufffd"),
            (r"\\\ud83d", r"\\\ufffd"),
            (r"a\udc00b", r"a\ufffdb"),
            (r"\ud83d\u0041", r"\ufffd\u0041"),
            (r"\ud83d\\ude00", r"\ufffd\\ude00"),
        ] {
            assert_eq!(lone_surrogates(json), expected);
        }
    }

    proptest! {
        /// UTF-16 as JavaScript writes it: the standard library's lossy decoder says what must come out.
        #[test]
        fn every_string_of_utf16_units_is_read_as_the_lossy_decoder_reads_it(
            units in prop::collection::vec(prop_oneof![0xD7F0_u16..0xE010, any::<u16>(), 0x5C..0x76_u16], 0..30)
        ) {
            let json: String = units.iter().map(|u| format!("\\u{u:04x}")).collect();
            let read: String = serde_json::from_str(&lone_surrogates(&format!("\"{json}\""))).unwrap();
            prop_assert_eq!(read, String::from_utf16_lossy(&units));
        }

        #[test]
        fn no_text_breaks_it(text in r#"(\\|u|d8|00|é|"|\\ud83d){0,20}"#) {
            let _ = lone_surrogates(&text);
        }
    }
}
