//! The files are what they say, down to their structure.

use protocol::{
    link::{FromAgent, MediaSource},
    server::OutKind,
};

use super::gateway;
use crate::demo::png::{EDGE, crc32};

/// The file that a command sends: kind, type, name, bytes.
fn sent(command: &str) -> (OutKind, String, String, Vec<u8>) {
    let mut gateway = gateway();
    gateway.say("a", command);
    gateway.assert_quiet();
    match gateway.files.pop() {
        Some(FromAgent::Media {
            kind,
            source: MediaSource::Data(bytes),
            mime: Some(mime),
            filename: Some(name),
            caption: Some(caption),
            ..
        }) => {
            assert!(!caption.is_empty());
            (kind, mime, name, bytes)
        }
        other => panic!("{other:?}"),
    }
}

fn be32(bytes: &[u8]) -> usize {
    u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize
}

#[test]
fn image_is_png() {
    let (kind, mime, name, png) = sent("/image");
    assert_eq!((kind, mime.as_str(), name.as_str()), (OutKind::Image, "image/png", "picture.png"));
    let mut rest = png.strip_prefix(b"\x89PNG\r\n\x1a\n").unwrap();
    let mut chunks = Vec::new();
    while !rest.is_empty() {
        let len = be32(rest);
        let (body, after) = rest[4..].split_at(4 + len);
        assert_eq!(be32(after), crc32(body) as usize);
        chunks.push((body[..4].to_vec(), body[4..].to_vec()));
        rest = &after[4..];
    }
    let names: Vec<_> = chunks.iter().map(|(n, _)| n.as_slice()).collect();
    assert_eq!(names, [b"IHDR", b"IDAT", b"IEND"]);
    assert_eq!((be32(&chunks[0].1), be32(&chunks[0].1[4..])), (EDGE as usize, EDGE as usize));
    // One stored block: header, length and its complement, data, sum.
    let idat = &chunks[1].1;
    let len = usize::from(u16::from_le_bytes([idat[3], idat[4]]));
    assert_eq!((idat[0], idat[2], len), (0x78, 1, EDGE as usize * (EDGE as usize * 3 + 1)));
    assert_eq!(idat.len(), 2 + 5 + len + 4);
}

#[test]
fn voice_is_ogg_opus() {
    let (kind, mime, name, ogg) = sent("/voice");
    assert_eq!((kind, mime.as_str(), name.as_str()), (OutKind::Voice, "audio/ogg", "voice.ogg"));
    let sum = |page: &[u8]| {
        page.iter().enumerate().fold(0_u32, |crc, (i, byte)| {
            let byte = if (22..26).contains(&i) { 0 } else { *byte };
            (0..8).fold(crc ^ (u32::from(byte) << 24), |c, _| {
                if c >> 31 == 1 { (c << 1) ^ 0x04c1_1db7 } else { c << 1 }
            })
        })
    };
    let mut rest = ogg.as_slice();
    let mut pages = Vec::new();
    while !rest.is_empty() {
        assert!(rest.starts_with(b"OggS\0"));
        let segments = usize::from(rest[26]);
        let body: usize = rest[27..27 + segments].iter().map(|b| usize::from(*b)).sum();
        let (page, after) = rest.split_at(27 + segments + body);
        assert_eq!(u32::from_le_bytes(page[22..26].try_into().unwrap()), sum(page));
        pages.push((page[5], page[27 + segments..].to_vec()));
        rest = after;
    }
    assert!(pages[0].0 & 2 == 2 && pages[0].1.starts_with(b"OpusHead"));
    assert!(pages[1].1.starts_with(b"OpusTags"));
    assert!(pages.len() > 2 && pages.last().unwrap().0 & 4 == 4, "it has sound, and an end");
}

#[test]
fn video_is_mp4() {
    let (kind, mime, name, mp4) = sent("/video");
    assert_eq!((kind, mime.as_str(), name.as_str()), (OutKind::Video, "video/mp4", "video.mp4"));
    let mut rest = mp4.as_slice();
    let mut boxes = Vec::new();
    while !rest.is_empty() {
        let (one, after) = rest.split_at(be32(rest));
        boxes.push((one[4..8].to_vec(), one[8..].to_vec()));
        rest = after;
    }
    let find = |name: &[u8]| boxes.iter().find(|(n, _)| n == name).map(|(_, body)| body).unwrap();
    assert_eq!(boxes[0].0, b"ftyp");
    assert!(find(b"moov").windows(4).any(|w| w == b"avc1"));
    assert!(!find(b"mdat").is_empty());
}

#[test]
fn document_is_pdf() {
    let (kind, mime, name, pdf) = sent("/document");
    assert_eq!((kind, mime.as_str(), name.as_str()), (OutKind::Document, "application/pdf", "document.pdf"));
    let text = String::from_utf8(pdf).unwrap();
    assert!(text.starts_with("%PDF-1.4\n") && text.ends_with("%%EOF\n"));
    let start: usize = text.rsplit("startxref\n").next().unwrap().lines().next().unwrap().parse().unwrap();
    let table: Vec<_> = text[start..].lines().collect();
    assert_eq!(table[..2], ["xref", "0 6"]);
    for (n, line) in table[3..8].iter().enumerate() {
        let at: usize = line[..10].parse().unwrap();
        assert!(text[at..].starts_with(&format!("{} 0 obj\n", n + 1)));
    }
}

#[test]
fn animation_is_gif() {
    let (kind, mime, name, gif) = sent("/animation");
    assert_eq!((kind, mime.as_str(), name.as_str()), (OutKind::Animation, "image/gif", "animation.gif"));
    assert!(gif.starts_with(b"GIF89a"));
    let table = |flags: u8| if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) };
    let mut at = 13 + table(gif[10]);
    let mut pictures = 0;
    loop {
        match gif[at] {
            0x21 => at += 2,
            0x2c => {
                pictures += 1;
                at += 10 + table(gif[at + 9]) + 1;
            }
            0x3b => break,
            other => panic!("{other:#x} at {at}"),
        }
        while gif[at] != 0 {
            at += 1 + usize::from(gif[at]);
        }
        at += 1;
    }
    assert_eq!((pictures, at + 1), (4, gif.len()));
}
