//! What bytes are, whatever their name says.
//!
//! What phones and browsers send is told by its own marks here, strictly: a certain finding overrides what the client said, so two
//! letters at the beginning of a text must not make it a bitmap. Documents and archives are left to `infer`, and of its findings only
//! those are taken that rest on four bytes or more.

use crate::client::VoiceFormat;

/// A certain finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sniffed {
    /// MIME type.
    pub mime: &'static str,
    /// Extension without the dot.
    pub extension: &'static str,
}

const fn found(mime: &'static str, extension: &'static str) -> Option<Sniffed> {
    Some(Sniffed { mime, extension })
}

/// Looks at the first bytes (4 KiB are enough). `None`: not certain.
#[must_use]
pub fn sniff(head: &[u8]) -> Option<Sniffed> {
    let head = head.get(..4096).unwrap_or(head);
    by_first_bytes(head)
        .or_else(|| riff(head))
        .or_else(|| boxes(head))
        .or_else(|| ogg(head))
        .or_else(|| matroska(head))
        .or_else(|| bitmap(head))
        .or_else(|| mpeg_audio(head))
        .or_else(|| svg(head))
        .or_else(|| document(head))
}

/// Whether the bytes are the container that a voice message declares.
#[must_use]
pub fn is_voice(head: &[u8], format: VoiceFormat) -> bool {
    match format {
        VoiceFormat::Wav => head.starts_with(b"RIFF") && at(head, 8, b"WAVE"),
        VoiceFormat::Ogg => head.starts_with(b"OggS"),
    }
}

/// The MIME type of a file: a certain sniff wins over what the client declared, except that some containers hold sound
/// or pictures alike, and then the client's word for the same container stands (`audio/webm` for WebM). Neither: `application/octet-stream`.
#[must_use]
pub fn mime(sniffed: Option<Sniffed>, declared: Option<&str>) -> String {
    const EITHER: [&str; 5] = ["video/mp4", "video/webm", "video/x-matroska", "video/3gpp", "audio/ogg"];
    let declared = declared.map(str::trim).filter(|d| !d.is_empty());
    let Some(sniffed) = sniffed else {
        return declared.unwrap_or("application/octet-stream").to_owned();
    };
    if EITHER.contains(&sniffed.mime)
        && let Some(declared) = declared
        && let Some((sort, subtype)) = essence(declared).split_once('/')
        && (sort == "audio" || sort == "video")
        && sniffed.mime.split_once('/').is_some_and(|(_, s)| s == subtype)
    {
        return essence(declared);
    }
    sniffed.mime.to_owned()
}

/// The extension for a file: that of a certain sniff, else one that fits `mime`, else a harmless one of `filename`, else `bin`.
/// Only lower-case ASCII letters and digits, at most 8.
#[must_use]
pub fn extension(sniffed: Option<Sniffed>, mime: Option<&str>, filename: Option<&str>) -> String {
    if let Some(sniffed) = sniffed {
        return sniffed.extension.to_owned();
    }
    let by_mime = mime.map(essence).and_then(|m| TYPES.iter().find(|(mime, _)| *mime == m)).map(|(_, e)| *e);
    if let Some(extension) = by_mime {
        return extension.to_owned();
    }
    filename
        .and_then(|name| name.rsplit_once('.'))
        .map(|(_, extension)| extension.to_ascii_lowercase())
        .filter(|e| (1..=8).contains(&e.len()) && e.bytes().all(|b| b.is_ascii_alphanumeric()))
        .filter(|e| !HARMFUL.contains(&e.as_str()))
        .unwrap_or_else(|| "bin".to_owned())
}

/// Extensions that a desktop runs or follows when the file is opened.
const HARMFUL: [&str; 29] = [
    "exe", "com", "bat", "cmd", "scr", "pif", "msi", "msp", "dll", "cpl", "jar", "lnk", "reg", "hta", "vbs",
    "vbe", "jse", "wsf", "wsh", "ps1", "psm1", "desktop", "app", "scf", "inf", "url", "apk", "deb", "rpm",
];

/// Extensions for declared types that bytes do not tell.
const TYPES: [(&str, &str); 33] = [
    ("text/plain", "txt"),
    ("text/markdown", "md"),
    ("text/csv", "csv"),
    ("text/html", "html"),
    ("text/css", "css"),
    ("text/calendar", "ics"),
    ("text/vcard", "vcf"),
    ("text/x-python", "py"),
    ("text/javascript", "js"),
    ("text/xml", "xml"),
    ("application/xml", "xml"),
    ("application/json", "json"),
    ("application/yaml", "yaml"),
    ("application/toml", "toml"),
    ("application/sql", "sql"),
    ("application/pdf", "pdf"),
    ("application/zip", "zip"),
    ("application/gzip", "gz"),
    ("image/png", "png"),
    ("image/jpeg", "jpg"),
    ("image/gif", "gif"),
    ("image/webp", "webp"),
    ("image/heic", "heic"),
    ("image/svg+xml", "svg"),
    ("audio/ogg", "ogg"),
    ("audio/wav", "wav"),
    ("audio/mpeg", "mp3"),
    ("audio/mp4", "m4a"),
    ("audio/aac", "aac"),
    ("video/mp4", "mp4"),
    ("video/webm", "webm"),
    ("video/quicktime", "mov"),
    ("video/mpeg", "mpg"),
];

/// A MIME type without its parameters, in lower case.
fn essence(mime: &str) -> String {
    mime.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn at(head: &[u8], place: usize, mark: &[u8]) -> bool {
    head.get(place..).is_some_and(|rest| rest.starts_with(mark))
}

fn contains(head: &[u8], mark: &[u8]) -> bool {
    head.windows(mark.len()).any(|w| w == mark)
}

fn by_first_bytes(head: &[u8]) -> Option<Sniffed> {
    const MARKS: [(&[u8], &str, &str); 11] = [
        (b"\x89PNG\r\n\x1a\n", "image/png", "png"),
        (b"\xff\xd8\xff", "image/jpeg", "jpg"),
        (b"GIF87a", "image/gif", "gif"),
        (b"GIF89a", "image/gif", "gif"),
        (b"fLaC", "audio/flac", "flac"),
        (b"ID3", "audio/mpeg", "mp3"),
        (b"%PDF-", "application/pdf", "pdf"),
        (b"#!AMR", "audio/amr", "amr"),
        (b"\0\0\0\x0cJXL \r\n\x87\n", "image/jxl", "jxl"),
        (b"BZh91AY&SY", "application/x-bzip2", "bz2"),
        (b"MThd\0\0\0\x06", "audio/midi", "mid"),
    ];
    let (mark, mime, extension) = MARKS.iter().find(|(mark, ..)| head.starts_with(mark))?;
    // `ID3` alone could begin a text: the version and flags after it cannot.
    if *mark == b"ID3" && head.get(3).is_none_or(|version| *version >= 0x10) {
        return None;
    }
    found(mime, extension)
}

fn riff(head: &[u8]) -> Option<Sniffed> {
    if !head.starts_with(b"RIFF") {
        return None;
    }
    match head.get(8..12)? {
        // What is not plain samples is said (RFC 2361): not every player and not every speech recogniser knows it.
        b"WAVE" => match wave_format(head) {
            Some(3) => found("audio/wav; codecs=3", "wav"),
            Some(6) => found("audio/wav; codecs=6", "wav"),
            Some(7) => found("audio/wav; codecs=7", "wav"),
            _ => found("audio/wav", "wav"),
        },
        b"WEBP" => found("image/webp", "webp"),
        b"AVI " => found("video/x-msvideo", "avi"),
        _ => None,
    }
}

/// Format tag of a RIFF/WAVE file: 1 integers, 3 floating point, 6 A-law, 7 mu-law.
fn wave_format(head: &[u8]) -> Option<u16> {
    let mut rest = head.get(12..)?;
    // Recorders put chunks of their own before the one that tells.
    while !rest.starts_with(b"fmt ") {
        let size = u32::from_le_bytes(*rest.get(4..)?.first_chunk::<4>()?);
        // Chunks start at even places.
        rest = rest.get(usize::try_from(size).ok()?.checked_add(8)?.checked_next_multiple_of(2)?..)?;
    }
    let tag = |place: usize| rest.get(place..)?.first_chunk::<2>().map(|tag| u16::from_le_bytes(*tag));
    // The extensible form has the tag at the beginning of a longer name.
    tag(8).and_then(|format| if format == 0xfffe { tag(32) } else { Some(format) })
}

/// ISO base media files: the brand tells what they are.
fn boxes(head: &[u8]) -> Option<Sniffed> {
    if !at(head, 4, b"ftyp") {
        return None;
    }
    let size = u32::from_be_bytes(*head.first_chunk::<4>()?) as usize;
    let brand = head.get(8..12)?;
    let end = size.min(head.len());
    let compatible = |mark: &[u8]| head.get(16..end).is_some_and(|rest| rest.chunks(4).any(|b| b == mark));
    match brand {
        b"heic" | b"heix" | b"heim" | b"heis" | b"hevc" | b"hevx" => found("image/heic", "heic"),
        b"avif" | b"avis" => found("image/avif", "avif"),
        b"mif1" | b"msf1" if compatible(b"avif") => found("image/avif", "avif"),
        b"mif1" | b"msf1" if compatible(b"heic") || compatible(b"heix") => found("image/heic", "heic"),
        b"mif1" | b"msf1" => found("image/heif", "heif"),
        b"M4A " | b"M4B " => found("audio/mp4", "m4a"),
        b"qt  " => found("video/quicktime", "mov"),
        b"crx " => found("image/x-canon-cr3", "cr3"),
        [b'3', b'g', ..] => found("video/3gpp", "3gp"),
        _ if brand.iter().all(|b| b.is_ascii_graphic() || *b == b' ') => found("video/mp4", "mp4"),
        _ => None,
    }
}

fn ogg(head: &[u8]) -> Option<Sniffed> {
    if !head.starts_with(b"OggS") {
        return None;
    }
    // The first packet begins after the page header of 27 bytes and its segment table.
    let first = 27 + usize::from(*head.get(26).unwrap_or(&1));
    const CODECS: [(&[u8], &str, &str); 4] = [
        (b"\x80theora", "video/ogg", "ogv"),
        (b"\x01vorbis", "audio/ogg; codecs=vorbis", "ogg"),
        (b"Speex   ", "audio/ogg; codecs=speex", "ogg"),
        (b"\x7fFLAC", "audio/ogg; codecs=flac", "ogg"),
    ];
    match CODECS.iter().find(|(mark, ..)| at(head, first, mark)) {
        Some((_, mime, extension)) => found(mime, extension),
        // Opus, which voice messages are, and what is not known.
        None => found("audio/ogg", "ogg"),
    }
}

fn matroska(head: &[u8]) -> Option<Sniffed> {
    if !head.starts_with(&[0x1a, 0x45, 0xdf, 0xa3]) {
        return None;
    }
    let start = head.get(..256).unwrap_or(head);
    if contains(start, b"webm") {
        found("video/webm", "webm")
    } else if contains(start, b"matroska") {
        found("video/x-matroska", "mkv")
    } else {
        None
    }
}

/// A bitmap: `BM`, two reserved fields of zero, and a header of a size that exists.
fn bitmap(head: &[u8]) -> Option<Sniffed> {
    let header = u32::from_le_bytes(*head.get(14..)?.first_chunk::<4>()?);
    let is = head.starts_with(b"BM")
        && at(head, 6, &[0; 4])
        && matches!(header, 12 | 40 | 52 | 56 | 64 | 108 | 124);
    if is { found("image/bmp", "bmp") } else { None }
}

/// An MPEG audio frame without a tag before it: layer III, or AAC in ADTS.
fn mpeg_audio(head: &[u8]) -> Option<Sniffed> {
    let [0xff, second, third, ..] = head else { return None };
    let known_rate = (third >> 4) != 15 && ((third >> 2) & 3) != 3;
    match second {
        0xe2 | 0xe3 | 0xf2 | 0xf3 | 0xfa | 0xfb if known_rate => found("audio/mpeg", "mp3"),
        0xf0 | 0xf1 | 0xf8 | 0xf9 if ((third >> 2) & 15) < 13 => found("audio/aac", "aac"),
        _ => None,
    }
}

/// A picture that is text: `<svg` as the first element, after what XML allows before it.
fn svg(head: &[u8]) -> Option<Sniffed> {
    // The head may end within a character.
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(e) => std::str::from_utf8(head.get(..e.valid_up_to())?).ok()?,
    };
    let mut rest = text.trim_start_matches('\u{feff}').trim_start();
    loop {
        let end = if rest.starts_with("<?") {
            "?>"
        } else if rest.starts_with("<!--") {
            "-->"
        } else if rest.get(..9).is_some_and(|s| s.eq_ignore_ascii_case("<!doctype")) {
            ">"
        } else {
            break;
        };
        rest = rest.split_once(end)?.1.trim_start();
    }
    let after = rest.strip_prefix("<svg").or_else(|| rest.strip_prefix("<svg:svg"))?;
    let is = after.starts_with([' ', '\t', '\r', '\n', '>', '/', ':']);
    if is { found("image/svg+xml", "svg") } else { None }
}

fn document(head: &[u8]) -> Option<Sniffed> {
    const TAKEN: [&str; 27] = [
        "docx", "xlsx", "pptx", "doc", "xls", "ppt", "odt", "ods", "odp", "epub", "zip", "rar", "gz", "7z",
        "xz", "tar", "zst", "sqlite", "rtf", "psd", "jp2", "tif", "wmv", "flv", "aiff", "woff", "woff2",
    ];
    let kind = infer::get(head)?;
    TAKEN.contains(&kind.extension()).then(|| Sniffed { mime: kind.mime_type(), extension: kind.extension() })
}

#[cfg(test)]
mod tests;
