//! Lone surrogates in JSON text: `serde_json` refuses them, JavaScript makes them.

use std::borrow::Cow;

/// Replaces every `\uD800`–`\uDFFF` escape that is not part of a pair by `\uFFFD`. Costs one scan when there is none.
/// Text that is not JSON is returned as it is or harmlessly changed: the parser refuses it afterwards.
#[must_use]
pub fn lone_surrogates(json: &str) -> Cow<'_, str> {
    let _ = json;
    todo!()
}
