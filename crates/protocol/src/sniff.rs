//! What bytes are, whatever their name says.

use crate::client::VoiceFormat;

/// A certain finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sniffed {
    /// MIME type.
    pub mime: &'static str,
    /// Extension without the dot.
    pub extension: &'static str,
}

/// Looks at the first bytes (4 KiB are enough). `None`: not certain.
#[must_use]
pub fn sniff(head: &[u8]) -> Option<Sniffed> {
    let _ = head;
    todo!()
}

/// Whether the bytes are the container that a voice message declares.
#[must_use]
pub fn is_voice(head: &[u8], format: VoiceFormat) -> bool {
    let _ = (head, format);
    todo!()
}

/// The extension for a file: that of a certain sniff, else one that fits `mime`, else a harmless one of `filename`, else `bin`.
/// Only lower-case ASCII letters and digits, at most 8.
#[must_use]
pub fn extension(sniffed: Option<Sniffed>, mime: Option<&str>, filename: Option<&str>) -> String {
    let _ = (sniffed, mime, filename);
    todo!()
}
