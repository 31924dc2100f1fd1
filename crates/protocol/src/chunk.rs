//! Cutting a text into the chunks of a message, and a very long one into several messages.

/// Cuts `text` into chunks of at most `limit` characters: at the best break near the limit (paragraph, line, sentence,
/// word), else between grapheme clusters. A cluster is not cut: one longer than the limit is one longer chunk, and only
/// one over [`crate::limits::CLUSTER_CHARS`] is cut between characters. Joining the chunks gives `text` back.
/// An empty text is one empty chunk.
#[must_use]
pub fn chunks(text: &str, limit: usize) -> Vec<&str> {
    let _ = (text, limit);
    todo!()
}

/// Cuts `text` into pieces that are one message each: at most `max` bytes of encoded JSON
/// ([`encoded_len`]), at breaks as in [`chunks`]. A prefix that stays the same is cut the same way as long as the cut
/// lies well inside it, so that a streamed text does not move its finished pieces.
#[must_use]
pub fn pieces(text: &str, max: usize) -> Vec<&str> {
    let _ = (text, max);
    todo!()
}

/// Bytes that `text` takes as a JSON string, quotes included.
#[must_use]
pub fn encoded_len(text: &str) -> usize {
    let _ = text;
    todo!()
}
