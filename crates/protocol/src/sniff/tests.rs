use proptest::prelude::*;

use super::*;

fn box_of(brand: &[u8], compatible: &[&[u8]]) -> Vec<u8> {
    let size = 16 + 4 * compatible.len() as u32;
    [&size.to_be_bytes()[..], b"ftyp", brand, &[0; 4], &compatible.concat(), b"\0\0\0\x08free"].concat()
}

fn wav(format: u16, channels: u16, rate: u32) -> Vec<u8> {
    let fmt = [&format.to_le_bytes()[..], &channels.to_le_bytes(), &rate.to_le_bytes(), &[0; 8]].concat();
    [b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0", &fmt[..], b"data\0\0\0\0"].concat()
}

fn extensible(format: u16) -> Vec<u8> {
    let mut bytes = wav(0xfffe, 2, 48_000);
    bytes.truncate(36);
    [
        &bytes[..],
        b"\x16\0\x20\0\x03\0\0\0",
        &format.to_le_bytes(),
        b"\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71data",
    ]
    .concat()
}

fn late_format(format: u16) -> Vec<u8> {
    let (start, rest) = (&wav(format, 1, 8_000)[..12], wav(format, 1, 8_000)[12..].to_vec());
    [start, b"JUNK\x05\0\0\0abcde\0", &rest].concat()
}

fn ogg_page(packet: &[u8]) -> Vec<u8> {
    [b"OggS\0\x02", &[0; 20][..], &[1, packet.len() as u8], packet].concat()
}

fn bmp() -> Vec<u8> {
    [b"BM\x3a\0\0\0", &[0; 4][..], b"\x36\0\0\0", b"\x28\0\0\0", &[0; 36]].concat()
}

#[test]
fn field_the_bytes_tell_what_a_file_is() {
    let webp_still = b"RIFF\x1a\0\0\0WEBPVP8L\x0d\0\0\0";
    let webp_moving = b"RIFF\x64\0\0\0WEBPVP8X\x0a\0\0\0\x02\0\0\0\0\0\0\0\0\0ANIM";
    let webm = [&b"\x1a\x45\xdf\xa3\x9f\x42\x86\x81\x01\x42\x82\x84webm"[..], &[0; 40]].concat();
    let docx = {
        let name = b"word/document.xml";
        [b"PK\x03\x04\x14\0\0\0\0\0", &[0; 16][..], &[name.len() as u8, 0, 0, 0], name, &[0; 60]].concat()
    };
    for (name, bytes, mime, extension) in [
        ("png", b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec(), "image/png", "png"),
        ("jpeg", b"\xff\xd8\xff\xe0\0\x10JFIF".to_vec(), "image/jpeg", "jpg"),
        ("gif", b"GIF89a\x01\0\x01\0".to_vec(), "image/gif", "gif"),
        ("webp", webp_still.to_vec(), "image/webp", "webp"),
        ("animated webp", webp_moving.to_vec(), "image/webp", "webp"),
        ("heic of a phone", box_of(b"heic", &[b"mif1", b"heic"]), "image/heic", "heic"),
        ("heic of another phone", box_of(b"mif1", &[b"mif1", b"heic", b"hevc"]), "image/heic", "heic"),
        ("avif", box_of(b"avif", &[b"mif1"]), "image/avif", "avif"),
        ("heif", box_of(b"mif1", &[b"mif1"]), "image/heif", "heif"),
        ("bmp", bmp(), "image/bmp", "bmp"),
        ("svg", b"<svg xmlns=\"http://www.w3.org/2000/svg\"/>".to_vec(), "image/svg+xml", "svg"),
        (
            "svg with a head",
            "\u{feff}<?xml version=\"1.0\"?>\n<!-- <html> -->\n<!DOCTYPE svg PUBLIC \"a\">\n<svg>"
                .as_bytes()
                .to_vec(),
            "image/svg+xml",
            "svg",
        ),
        ("mp4", box_of(b"isom", &[b"isom", b"avc1"]), "video/mp4", "mp4"),
        ("mp4 with a brand of next year", box_of(b"iso9", &[]), "video/mp4", "mp4"),
        ("mov", box_of(b"qt  ", &[]), "video/quicktime", "mov"),
        ("3gp", box_of(b"3gp5", &[]), "video/3gpp", "3gp"),
        ("m4a", box_of(b"M4A ", &[]), "audio/mp4", "m4a"),
        ("webm", webm, "video/webm", "webm"),
        ("opus", ogg_page(b"OpusHead\x01\x01"), "audio/ogg", "ogg"),
        ("vorbis", ogg_page(b"\x01vorbis\0\0\0\0"), "audio/ogg; codecs=vorbis", "ogg"),
        ("theora", ogg_page(b"\x80theora\x03"), "video/ogg", "ogv"),
        ("wav without samples", wav(1, 1, 16_000), "audio/wav", "wav"),
        ("wav of 8 kHz stereo", wav(1, 2, 8_000), "audio/wav", "wav"),
        ("wav of float samples", wav(3, 1, 48_000), "audio/wav; codecs=3", "wav"),
        ("wav of mu-law", wav(7, 1, 8_000), "audio/wav; codecs=7", "wav"),
        ("wav of floats in the extensible form", extensible(3), "audio/wav; codecs=3", "wav"),
        ("wav of integers in the extensible form", extensible(1), "audio/wav", "wav"),
        ("wav with a chunk before its format", late_format(3), "audio/wav; codecs=3", "wav"),
        ("wav without a format", b"RIFF\x24\0\0\0WAVEJUNK\xff\xff\xff\xff".to_vec(), "audio/wav", "wav"),
        ("mp3 with a tag", b"ID3\x04\0\0\0\0\0\0".to_vec(), "audio/mpeg", "mp3"),
        ("mp3", b"\xff\xfb\x90\x64\0\0".to_vec(), "audio/mpeg", "mp3"),
        ("aac", b"\xff\xf1\x50\x80\x02\x1f".to_vec(), "audio/aac", "aac"),
        ("flac", b"fLaC\0\0\0\x22".to_vec(), "audio/flac", "flac"),
        ("pdf", b"%PDF-1.7\n".to_vec(), "application/pdf", "pdf"),
        ("zip", b"PK\x03\x04\x14\0\0\0\0\0".to_vec(), "application/zip", "zip"),
        ("docx", docx, "application/vnd.openxmlformats-officedocument.wordprocessingml.document", "docx"),
        ("gzip", b"\x1f\x8b\x08\0\0\0\0\0".to_vec(), "application/gzip", "gz"),
        ("7z", b"7z\xbc\xaf\x27\x1c\0\x04".to_vec(), "application/x-7z-compressed", "7z"),
    ] {
        let sniffed = sniff(&bytes);
        assert_eq!(sniffed, Some(Sniffed { mime, extension }), "{name}");
        // A wrong name and a wrong declared type change nothing.
        assert_eq!(super::mime(sniffed, Some("text/x-wrong")), mime, "{name}");
        assert_eq!(super::extension(sniffed, Some("text/plain"), Some("x.exe")), extension, "{name}");
    }
}

#[test]
fn what_is_not_certain_is_left_to_the_client() {
    for text in [
        &b""[..],
        b"hello",
        b"GIFts are nice",
        b"BMW is a car, and this is a text about it, long enough",
        b"MZ is how Mozambique is written",
        b"ID3 is a tag",
        b"BZh is nothing",
        b"RIFF raff, street rat",
        b"#!/bin/sh\necho",
        b"<html><svg></svg></html>",
        b"<svgfoo/>",
        b"<?xml version=\"1.0\"?><rss/>",
        b"<!-- no end",
        b"%PD",
        "П\u{feff}".as_bytes(),
        b"\xff\xfe<\0s\0v\0g\0",
        b"\xff\xff\xff\xff",
    ] {
        assert_eq!(sniff(text), None, "{:?}", String::from_utf8_lossy(text));
    }
    assert_eq!(mime(None, Some(" text/plain; charset=utf-8")), "text/plain; charset=utf-8");
    assert_eq!(mime(None, None), "application/octet-stream");
    assert_eq!(mime(None, Some(" ")), "application/octet-stream");
}

#[test]
fn containers_of_sound_or_pictures_alike_keep_the_word_of_the_client() {
    let webm = Some(Sniffed { mime: "video/webm", extension: "webm" });
    for (declared, told) in [
        ("audio/webm;codecs=opus", "audio/webm"),
        ("AUDIO/WEBM", "audio/webm"),
        ("video/webm", "video/webm"),
        ("audio/mp4", "video/webm"),
        ("image/webm", "video/webm"),
        ("webm", "video/webm"),
    ] {
        assert_eq!(mime(webm, Some(declared)), told, "{declared}");
    }
    assert_eq!(mime(Some(Sniffed { mime: "image/png", extension: "png" }), Some("image/webp")), "image/png");
}

#[test]
fn an_extension_is_short_plain_and_harmless() {
    for (mime, filename, expected) in [
        (Some("text/plain; charset=utf-8"), Some("x.exe"), "txt"),
        (Some("APPLICATION/JSON"), None, "json"),
        (None, Some("report.CSV"), "csv"),
        (Some("x/unknown"), Some("main.rs"), "rs"),
        (None, Some("run.EXE"), "bin"),
        (None, Some("a.desktop"), "bin"),
        (None, Some("a.b/c"), "bin"),
        (None, Some("a."), "bin"),
        (None, Some("noextension"), "bin"),
        (None, Some("a.verylongone"), "bin"),
        (None, Some("a.файл"), "bin"),
        (None, Some("a.p\0g"), "bin"),
        (None, None, "bin"),
    ] {
        assert_eq!(extension(None, mime, filename), expected, "{mime:?} {filename:?}");
    }
}

#[test]
fn a_voice_message_is_what_it_declares() {
    let (opus, wave) = (ogg_page(b"OpusHead"), wav(1, 1, 8_000));
    for (bytes, ogg, wav) in [
        (&opus, true, false),
        (&wave, false, true),
        (&b"OggR".to_vec(), false, false),
        (&vec![], false, false),
    ] {
        assert_eq!(
            (is_voice(bytes, VoiceFormat::Ogg), is_voice(bytes, VoiceFormat::Wav)),
            (ogg, wav),
            "{bytes:?}"
        );
    }
}

proptest! {
    #[test]
    fn no_bytes_break_it(start in 0_usize..12, rest in prop::collection::vec(any::<u8>(), 0..600)) {
        let starts: [&[u8]; 12] = [
            b"", b"PK\x03\x04", b"OggS", b"RIFF\0\0\0\0", b"\0\0\0\x20ftyp", b"\0\0\0\x01ftypmif1", b"\x1a\x45\xdf\xa3", b"<svg", b"<!--",
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"BM", b"\xff\xfb",
        ];
        let bytes = [starts[start], &rest].concat();
        for end in [bytes.len(), bytes.len() / 2, starts[start].len()] {
            if let Some(sniffed) = sniff(&bytes[..end]) {
                let e = sniffed.extension;
                prop_assert!((1..=8).contains(&e.len()) && e.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()), "{}", e);
            }
        }
    }
}
