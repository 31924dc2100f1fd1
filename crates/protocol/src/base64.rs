//! Base64 as media carries it.

use base64_simd::{Base64, STANDARD, STANDARD_NO_PAD};

use crate::{code::ErrorCode, problem::Problem, words::Say};

/// Decodes a part of a file. Only the `last` part may miss its padding: another that does was cut out of one long base64
/// text, and is not the base64 of its own bytes.
///
/// # Errors
/// Those of [`decode`].
pub(crate) fn decode_part(encoded: &str, first: bool, last: bool, max: usize) -> Result<Vec<u8>, Problem> {
    let decoded = decode(encoded, first, max)?;
    if !last && !decoded.len().is_multiple_of(3) && !encoded.trim_ascii_end().ends_with('=') {
        return Err(Problem::bad("data has no padding; each part must be the base64 of its own bytes"));
    }
    Ok(decoded)
}

/// Decodes: standard alphabet; ASCII white space, a `data:…;base64,` prefix (only if `first`) and missing padding are
/// accepted. The decoded size is bounded from the encoded length before memory is taken.
///
/// # Errors
/// `too_big` over `max` decoded bytes; `bad_frame` if it is empty, has a letter outside the alphabet, or wrong padding.
pub fn decode(encoded: &str, first: bool, max: usize) -> Result<Vec<u8>, Problem> {
    let body = if first { strip_prefix(encoded)? } else { encoded };
    let bytes = body.trim_ascii().as_bytes();
    let padding =
        bytes.iter().rev().filter(|b| !b.is_ascii_whitespace()).take(3).take_while(|b| **b == b'=').count();
    // Nearly always no white space is within; to look for it first would cost more than to decode.
    let dense = codec(bytes.len(), padding, max)
        .and_then(|codec| codec.decode_to_vec(bytes).map_err(|_| not_base64()));
    let spaces = match &dense {
        Ok(_) => 0,
        Err(_) => bytes.iter().filter(|b| b.is_ascii_whitespace()).count(),
    };
    if spaces == 0 {
        return dense;
    }
    let codec = codec(bytes.len() - spaces, padding, max)?;
    let letters: Vec<u8> = bytes.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect();
    codec.decode_to_vec(&letters).map_err(|_| not_base64())
}

/// The codec for so many letters, of which some at the end are padding.
fn codec(length: usize, padding: usize, max: usize) -> Result<Base64, Problem> {
    if length == 0 {
        return Err(
            Problem::bad("data is empty; it must be base64 of at least one byte").saying(Say::EmptyFile)
        );
    }
    let letters = length - padding;
    // Each letter is six bits; what is left over of the last byte must be zero and is no byte.
    let size = letters / 4 * 3 + (letters % 4) * 3 / 4;
    if size > max {
        return Err(Problem::new(
            ErrorCode::TooBig,
            format!("data decodes to {size} bytes; at most {max} are allowed"),
        )
        .saying(Say::LargeFile));
    }
    match (letters % 4, padding) {
        (0 | 2 | 3, 0) => Ok(STANDARD_NO_PAD),
        (2, 2) | (3, 1) => Ok(STANDARD),
        _ => Err(Problem::bad("data has a wrong length or wrong padding for base64")),
    }
}

fn not_base64() -> Problem {
    Problem::bad(
        "data is not base64: only the standard alphabet (A-Z a-z 0-9 + /) with = at the end is allowed",
    )
}

/// Cuts off `data:<type>;base64,` where there is one.
fn strip_prefix(encoded: &str) -> Result<&str, Problem> {
    let start = encoded.trim_ascii_start();
    if !start.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:")) {
        return Ok(encoded);
    }
    match start.split_once(',') {
        Some((head, body)) if ends_in_base64(head) => Ok(body),
        _ => Err(Problem::bad("data begins like a data: URL but not with data:<type>;base64,")),
    }
}

fn ends_in_base64(head: &str) -> bool {
    let mark = ";base64";
    head.len()
        .checked_sub(mark.len())
        .and_then(|at| head.get(at..))
        .is_some_and(|end| end.eq_ignore_ascii_case(mark))
}

/// Encodes with padding.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    STANDARD.encode_to_string(bytes)
}

/// Encodes with padding, to the end of `out`.
pub fn append(bytes: &[u8], out: &mut String) {
    STANDARD.encode_append(bytes, out);
}

/// serde: bytes as a base64 string. Empty is allowed here.
pub mod text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    /// Serialises.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::encode(bytes))
    }
    /// Deserialises.
    ///
    /// # Errors
    /// When it is not base64.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        if text.is_empty() {
            return Ok(Vec::new());
        }
        super::decode(&text, true, crate::limits::FRAME_AFTER_READY).map_err(|p| D::Error::custom(p.detail))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn field_the_bound_is_exact_and_looks_at_letters_only() {
        for (size, max, fits) in [(9, 9, true), (10, 9, false), (8, 9, true), (1, 1, true), (2, 1, false)] {
            let dense = encode(&vec![1; size]);
            let airy: String = dense.chars().flat_map(|c| [c, '\n', ' ']).collect();
            for text in
                [&dense, &airy, &dense.trim_end_matches('=').to_owned(), &format!("data:;base64,{dense}")]
            {
                let decoded = decode(text, true, max);
                assert_eq!(decoded.is_ok(), fits, "{text:?} at {max}");
                assert!(decoded.is_ok_and(|d| d.len() == size) || !fits);
            }
        }
        let long = decode(&"A".repeat(40), false, 8).unwrap_err();
        assert_eq!((long.code, long.say), (ErrorCode::TooBig, Say::LargeFile));
    }

    #[test]
    fn append_goes_on_after_what_is_there() {
        let mut out = "x".to_owned();
        append(&[0, 1, 2, 3], &mut out);
        assert_eq!(out, "xAAECAw==");
    }

    #[test]
    fn a_byte_field_may_be_empty_on_the_link() {
        #[derive(serde::Serialize, serde::Deserialize)]
        struct Holder(#[serde(with = "text")] Vec<u8>);
        for bytes in [vec![], vec![1, 2]] {
            let json = serde_json::to_string(&Holder(bytes.clone())).unwrap();
            assert_eq!(serde_json::from_str::<Holder>(&json).unwrap().0, bytes);
        }
        assert!(serde_json::from_str::<Holder>("\"A\"").is_err());
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(bytes in prop::collection::vec(any::<u8>(), 1..200)) {
            let text = encode(&bytes);
            prop_assert_eq!(decode(&text, true, 200).unwrap(), bytes.clone());
            prop_assert_eq!(decode(text.trim_end_matches('='), false, 200).unwrap(), bytes);
        }

        #[test]
        fn whatever_is_accepted_is_the_base64_of_what_came_out(text in "[A-Za-z0-9+/= \n_-]{0,40}") {
            if let Ok(bytes) = decode(&text, false, 100) {
                let dense: String = text.chars().filter(|c| !c.is_whitespace()).collect();
                let canonical = encode(&bytes);
                prop_assert!(dense == canonical || dense == canonical.trim_end_matches('='), "{:?}", dense);
            }
        }
    }
}
