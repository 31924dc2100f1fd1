//! Base64 as media carries it.

use crate::problem::Problem;

/// Decodes a part: standard alphabet; ASCII white space, a `data:…;base64,` prefix (only if `first`) and missing padding are
/// accepted. The decoded size is bounded from the encoded length before memory is taken.
///
/// # Errors
/// `too_big` over `max` decoded bytes; `bad_frame` if it is empty, has a letter outside the alphabet, or wrong padding.
pub fn decode(encoded: &str, first: bool, max: usize) -> Result<Vec<u8>, Problem> {
    let _ = (encoded, first, max);
    todo!()
}

/// Encodes with padding.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let _ = bytes;
    todo!()
}

/// serde: bytes as a base64 string.
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
        super::decode(&text, true, crate::limits::FRAME_AFTER_READY).map_err(D::Error::custom)
    }
}
