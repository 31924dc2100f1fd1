//! The media folders on a real disk.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};

use protocol::{
    client::{self, ClientFrame},
    link::{FileRefused, FileTaken, MediaSource},
    record::hash64,
    server::OutKind,
};
use rustix::fs::CWD;
use tempfile::TempDir;

use super::*;

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89";

fn files() -> (TempDir, Files) {
    let dir = TempDir::new().unwrap();
    let files = Files::open(dir.path()).unwrap();
    (dir, files)
}

fn part(part: u32, parts: u32, data: &[u8]) -> MediaPart {
    MediaPart {
        id: Some("m1".to_owned()),
        kind: MediaKind::Document,
        mime: Some("text/plain".to_owned()),
        filename: Some("notes.txt".to_owned()),
        caption: Some("caption".to_owned()),
        part,
        parts,
        data: data.to_vec(),
    }
}

fn voice(format: VoiceFormat, data: &[u8]) -> MediaPart {
    let kind = MediaKind::Voice { format, sample_rate: None, duration_ms: Some(1200) };
    MediaPart { kind, mime: None, filename: None, caption: None, ..part(0, 1, data) }
}

fn in_dir(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}

fn take(files: &Files, path: &Path) -> Result<FileTaken, FileRefused> {
    let source = MediaSource::Path(path.to_str().unwrap().to_owned());
    files.take_file(&source, None, None, OutKind::Document, 0)
}

#[test]
fn parts_in_any_order_become_one_file() {
    let (dir, files) = files();
    for (no, data) in [(2, &b"ccc"[..]), (0, b"a"), (1, b"bb")] {
        files.spool(7, &part(no, 3, data)).unwrap();
    }
    let file = files.assemble(7, &part(0, 3, b"")).unwrap();
    let path = files.media_dir().join(&file.file);
    assert_eq!(fs::read(&path).unwrap(), b"abbccc");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    let (name, extension) = file.file.split_once('.').unwrap();
    assert_eq!((name.len(), extension), (32, "txt"));
    assert_eq!((file.kind.as_str(), file.mime.as_str(), file.bytes), ("document", "text/plain", 6));
    assert_eq!((file.filename.as_str(), file.caption.as_deref()), ("notes.txt", Some("caption")));
    assert_eq!(file.sha256, hex(&Sha256::digest(b"abbccc")));
    assert_eq!(file.path, None);
    assert_eq!(in_dir(&dir.path().join("spool")), 0);
    assert_eq!(files.read_at(&file.file, 1, 3).unwrap(), b"bbc");
    assert_eq!(files.read_at(&file.file, 4, 100).unwrap(), b"cc");
    assert_eq!(files.read_at(&file.file, 100, 100).unwrap(), b"");
    files.remove(&file.file).unwrap();
    files.remove(&file.file).unwrap();
    assert!(files.read_at(&file.file, 0, 1).is_err());
}

#[test]
fn every_order_of_the_parts_gives_the_same_file_and_leaves_nothing() {
    let (dir, files) = files();
    let data = [&b"one "[..], b"two ", b"three ", b"four"];
    for order in 0..24usize {
        let mut left: Vec<u32> = (0..4).collect();
        let picks = [order / 6, order / 2 % 3, order % 2, 0];
        for pick in picks {
            let no = left.remove(pick);
            files.spool(1, &part(no, 4, data[no as usize])).unwrap();
        }
        let file = files.assemble(1, &part(0, 4, b"")).unwrap();
        assert_eq!(fs::read(files.media_dir().join(&file.file)).unwrap(), b"one two three four", "{order}");
        assert_eq!(file.sha256, hex(&Sha256::digest(b"one two three four")));
        assert_eq!(in_dir(&dir.path().join("spool")), 0);
    }
}

#[test]
fn open_series_hold_few_descriptors() {
    let (dir, files) = files();
    let open = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = open();
    let series = WHOLE as u64 * 3;
    for no in 0..series {
        files.spool(no, &part(0, 2, b"a")).unwrap();
    }
    // Other tests of this process open files too.
    assert!(open() < before + WHOLE * 2, "{} of {before}", open());
    for no in 0..series {
        files.spool(no, &part(1, 2, b"b")).unwrap();
        let file = files.assemble(no, &part(0, 2, b"")).unwrap();
        assert_eq!(fs::read(files.media_dir().join(&file.file)).unwrap(), b"ab");
    }
    assert_eq!((in_dir(&dir.path().join("spool")), in_dir(files.media_dir())), (0, series as usize));
}

#[test]
fn what_the_bytes_are_wins_over_what_is_said() {
    let (_dir, files) = files();
    let part = MediaPart { filename: Some("dot.webp".to_owned()), ..part(0, 1, PNG) };
    files.spool(1, &part).unwrap();
    let file = files.assemble(1, &part).unwrap();
    assert_eq!(file.mime, "image/png");
    assert!(file.file.ends_with(".png"), "{}", file.file);
    assert_eq!(file.filename, "dot.webp", "only ever shown");
}

#[test]
fn a_voice_message_is_what_it_declares() {
    let (dir, files) = files();
    let ogg = [b"OggS\0\x02".as_slice(), &[0; 20], &[1, 19], b"OpusHead", &[0; 40]].concat();
    let wav =
        [b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0data\0\0\0\0"
            .as_slice()]
        .concat();
    for (format, data, fits, mime) in [
        (VoiceFormat::Ogg, &ogg, true, "audio/ogg"),
        (VoiceFormat::Wav, &wav, true, "audio/"),
        (VoiceFormat::Wav, &ogg, false, ""),
        (VoiceFormat::Ogg, &wav, false, ""),
    ] {
        let part = voice(format, data);
        files.spool(1, &part).unwrap();
        match files.assemble(1, &part) {
            Ok(file) => {
                assert!(fits, "{format:?}");
                assert!(file.mime.starts_with(mime), "{}", file.mime);
                assert_eq!((file.kind.as_str(), file.duration_ms), ("voice", Some(1200)));
            }
            Err(problem) => {
                assert!(!fits, "{format:?}: {problem}");
                assert_eq!((problem.code, problem.id.as_deref()), (ErrorCode::BadFrame, Some("m1")));
            }
        }
    }
    assert_eq!((in_dir(&dir.path().join("spool")), in_dir(files.media_dir())), (0, 2));
}

#[test]
fn size_is_bounded_again_when_the_parts_are_put_together() {
    let (dir, files) = files();
    let half = vec![1; limits::FILE_BYTES / 2];
    files.spool(1, &part(0, 2, &half)).unwrap();
    files.spool(1, &part(1, 2, &half)).unwrap();
    assert_eq!(files.assemble(1, &part(0, 2, b"")).unwrap().bytes, limits::FILE_BYTES as u64);
    files.spool(2, &part(0, 3, &half)).unwrap();
    files.spool(2, &part(1, 3, &half)).unwrap();
    files.spool(2, &part(2, 3, b"x")).unwrap();
    assert_eq!(files.assemble(2, &part(0, 3, b"")).unwrap_err().code, ErrorCode::TooBig);
    assert_eq!((in_dir(&dir.path().join("spool")), in_dir(files.media_dir())), (0, 1));
}

#[test]
fn a_part_that_was_not_kept_fails_the_file() {
    let (dir, files) = files();
    files.spool(1, &part(0, 2, b"a")).unwrap();
    assert_eq!(files.assemble(1, &part(0, 2, b"")).unwrap_err().code, ErrorCode::Internal);
    assert_eq!((in_dir(&dir.path().join("spool")), in_dir(files.media_dir())), (0, 0));
}

#[test]
fn discard_and_start_leave_no_spool() {
    let (dir, files) = files();
    for spool in 1..=2 {
        files.spool(spool, &part(0, 3, b"a")).unwrap();
        files.spool(spool, &part(2, 3, b"a")).unwrap();
    }
    let spool = dir.path().join("spool");
    files.discard(1);
    files.discard(99);
    assert_eq!(in_dir(&spool), 2);
    drop(files);
    let files = Files::open(dir.path()).unwrap();
    assert_eq!(in_dir(&spool), 0);
    files.spool(2, &part(0, 3, b"a")).unwrap();
}

#[test]
fn names_that_are_not_ours_lead_nowhere() {
    let (dir, files) = files();
    fs::write(dir.path().join("secret"), "x").unwrap();
    let name = "0123456789abcdef0123456789abcdef";
    for file in [
        "../secret",
        "",
        ".",
        "..",
        "secret",
        name,
        &format!("{name}.a/../../secret"),
        &format!("{name}."),
        &format!("{name}.ab/c"),
    ] {
        assert!(files.read_at(file, 0, 10).is_err(), "{file}");
        assert!(files.remove(file).is_err(), "{file}");
    }
    assert!(dir.path().join("secret").exists());
}

#[test]
fn the_folders_are_closed_to_others() {
    let (dir, files) = files();
    for name in ["media", "spool", "media_out"] {
        let mode = fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o700, "{name}");
    }
    drop(files);
    fs::remove_dir(dir.path().join("media")).unwrap();
    symlink("/", dir.path().join("media")).unwrap();
    assert!(Files::open(dir.path()).is_err(), "a link in place of a folder");
}

#[test]
fn a_file_of_the_agents_is_taken_over_once_it_is_safe() {
    let (_dir, files) = files();
    let out = files.media_out_dir().to_owned();
    fs::create_dir_all(out.join("a/b")).unwrap();
    for path in [out.join("chart.webp"), out.join("a/b/c.png")] {
        fs::write(&path, PNG).unwrap();
        let taken = take(&files, &path).unwrap();
        assert_eq!((taken.bytes, taken.mime.as_str()), (PNG.len() as u64, "image/png"));
        assert_eq!(taken.filename, path.file_name().unwrap().to_str().unwrap());
        assert_eq!(taken.content, hash64(&[PNG]));
        assert_eq!(fs::read(files.media_dir().join(&taken.file)).unwrap(), PNG);
        files.tidy(59_999);
        assert!(path.exists(), "a repeated call finds it");
        assert_eq!(take(&files, &path).unwrap().content, taken.content);
        files.tidy(60_000);
        assert!(!path.exists());
        files.tidy(60_000);
        assert_eq!(take(&files, &path), Err(FileRefused::Missing));
    }
}

#[test]
fn a_new_file_under_an_old_name_is_not_removed() {
    let (_dir, files) = files();
    let path = files.media_out_dir().join("chart.png");
    fs::write(&path, PNG).unwrap();
    take(&files, &path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, b"another, longer or shorter").unwrap();
    files.tidy(60_000);
    assert_eq!(fs::read(&path).unwrap(), b"another, longer or shorter");
}

#[test]
fn inline_files() {
    let (_dir, files) = files();
    let take = |data: &[u8], mime, name| {
        files.take_file(&MediaSource::Data(data.to_vec()), mime, name, OutKind::Image, 0)
    };
    let taken = take(PNG, Some("text/plain"), Some("../../x.txt")).unwrap();
    assert_eq!((taken.mime.as_str(), taken.filename.as_str()), ("image/png", "x.txt"));
    assert!(taken.file.ends_with(".png"));
    let taken = take(PNG, None, None).unwrap();
    assert_eq!(taken.filename, "image.png");
    let taken = take(b"\x01\x02\x03", None, None).unwrap();
    assert_eq!((taken.mime.as_str(), taken.filename.as_str()), ("application/octet-stream", "image.bin"));
    assert_eq!(take(b"", None, None), Err(FileRefused::Empty));
    let most = vec![1; limits::FILE_BYTES];
    assert_eq!(take(&most, None, None).unwrap().bytes, limits::FILE_BYTES as u64);
    let over = vec![1; limits::FILE_BYTES + 1];
    let refused = take(&over, None, Some("big.bin"));
    assert_eq!(refused, Err(FileRefused::TooLarge { name: "big.bin".to_owned() }));
}

#[test]
fn field_nothing_outside_media_out_is_read() {
    let (dir, files) = files();
    let out = files.media_out_dir().to_owned();
    let secret = dir.path().canonicalize().unwrap().join("secret.txt");
    fs::write(&secret, "secret").unwrap();
    symlink(&secret, out.join("link.txt")).unwrap();
    symlink(dir.path(), out.join("up")).unwrap();
    symlink(&out, out.join("round")).unwrap();
    fs::hard_link(&secret, out.join("hard.txt")).unwrap();
    fs::create_dir(out.join("folder")).unwrap();
    fs::write(out.join("folder/in.txt"), "x").unwrap();
    let pipe = out.join("pipe");
    rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(out.join("socket")).unwrap();
    let o = out.to_str().unwrap();
    for path in [
        secret.to_str().unwrap().to_owned(),
        "/etc/shadow".to_owned(),
        "/etc/passwd".to_owned(),
        "relative.txt".to_owned(),
        "media_out/folder/in.txt".to_owned(),
        "file:///etc/passwd".to_owned(),
        format!("file://{o}/folder/in.txt"),
        "https://example.org/x.png".to_owned(),
        format!("{o}/../secret.txt"),
        format!("{o}/folder/../folder/in.txt"),
        format!("{o}/link.txt"),
        format!("{o}/up/secret.txt"),
        format!("{o}/round/folder/in.txt"),
        format!("{o}/hard.txt"),
        format!("{o}/folder"),
        format!("{o}/pipe"),
        format!("{o}/socket"),
        o.to_owned(),
        format!("{o}/"),
        format!("{o}x/in.txt"),
        format!("{o}/in\0.txt"),
        format!("{o}/{}", "n".repeat(300)),
        String::new(),
    ] {
        let refused = take(&files, Path::new(&path));
        assert!(matches!(refused, Err(FileRefused::NotAllowed { .. })), "{path}: {refused:?}");
    }
    assert_eq!(in_dir(files.media_dir()), 0);
    let refused = take(&files, Path::new("/etc/shadow"));
    assert_eq!(refused, Err(FileRefused::NotAllowed { name: "shadow".to_owned() }));
    assert_eq!(take(&files, &out.join("none.txt")), Err(FileRefused::Missing));
    assert_eq!(take(&files, &out.join("none/x.txt")), Err(FileRefused::Missing));
    assert!(take(&files, &out.join("folder/in.txt")).is_ok());
}

#[test]
fn sizes_of_an_agents_file() {
    let (_dir, files) = files();
    let path = files.media_out_dir().join("x.bin");
    for (bytes, expected) in [
        (0, Some(FileRefused::Empty)),
        (limits::FILE_BYTES, None),
        (limits::FILE_BYTES + 1, Some(FileRefused::TooLarge { name: "x.bin".to_owned() })),
    ] {
        fs::write(&path, vec![3; bytes]).unwrap();
        assert_eq!(take(&files, &path).err(), expected, "{bytes}");
    }
}

/// Puts a file of one part together.
fn whole(files: &Files, part: &MediaPart) -> Result<InFile, Problem> {
    files.spool(1, part).unwrap();
    files.assemble(1, part)
}

/// A RIFF/WAVE file: format tag, channels, samples a second, bits a sample, bytes of samples.
fn wave(format: u16, channels: u16, rate: u32, bits: u16, samples: usize) -> Vec<u8> {
    let frame = channels * bits / 8;
    let fmt = [
        &format.to_le_bytes()[..],
        &channels.to_le_bytes(),
        &rate.to_le_bytes(),
        &(rate * u32::from(frame)).to_le_bytes(),
        &frame.to_le_bytes(),
        &bits.to_le_bytes(),
    ]
    .concat();
    let size = 36 + samples as u32;
    let data = [&(samples as u32).to_le_bytes()[..], &vec![0; samples]].concat();
    [b"RIFF", &size.to_le_bytes()[..], b"WAVEfmt \x10\0\0\0", &fmt, b"data", &data].concat()
}

/// The first page of an Ogg stream that begins with this packet.
fn ogg(packet: &[u8]) -> Vec<u8> {
    [b"OggS\0\x02", &[0; 20][..], &[1, packet.len() as u8], packet].concat()
}

/// An ISO media file of this brand.
fn boxes(brand: &[u8; 4], compatible: &[u8; 4]) -> Vec<u8> {
    [b"\0\0\0\x18ftyp", &brand[..], b"\0\0\0\0mif1", compatible, b"\0\0\0\x08free"].concat()
}

#[test]
fn field_the_agent_is_told_what_the_bytes_are() {
    let (_dir, files) = files();
    let jpeg = b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01".to_vec();
    let moving = b"RIFF\x64\0\0\0WEBPVP8X\x0a\0\0\0\x02\0\0\0\0\0\0\0\0\0ANIM\x06\0\0\0".to_vec();
    let svg =
        "\u{feff}<?xml version=\"1.0\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\"/>".as_bytes().to_vec();
    for (name, said, bytes, mime, extension) in [
        ("png.webp", "image/webp", PNG.to_vec(), "image/png", "png"),
        ("jpeg.png", "image/png", jpeg, "image/jpeg", "jpg"),
        ("IMG_0001.jpg", "image/jpeg", boxes(b"heic", b"heic"), "image/heic", "heic"),
        ("burst.heic", "image/heic", boxes(b"mif1", b"heic"), "image/heic", "heic"),
        ("moving.png", "image/png", moving, "image/webp", "webp"),
        ("moving.jpg", "image/jpeg", b"GIF89a\x01\0\x01\0\0\0\0!".to_vec(), "image/gif", "gif"),
        ("drawing.png", "image/png", svg, "image/svg+xml", "svg"),
        ("clip.png", "image/png", boxes(b"isom", b"avc1"), "video/mp4", "mp4"),
    ] {
        let part = MediaPart {
            kind: MediaKind::Image,
            mime: Some(said.to_owned()),
            filename: Some(name.to_owned()),
            ..part(0, 1, &bytes)
        };
        let file = whole(&files, &part).unwrap();
        assert_eq!((file.mime.as_str(), file.filename.as_str()), (mime, name), "the name is only ever shown");
        assert_eq!(file.file.rsplit_once('.').unwrap().1, extension, "{name}");
        assert_eq!(fs::read(files.media_dir().join(&file.file)).unwrap(), bytes, "{name}");
        // The same file from an agent.
        let source = MediaSource::Data(bytes);
        let taken = files.take_file(&source, Some(said), Some(name), OutKind::Image, 0).unwrap();
        assert_eq!((taken.mime.as_str(), taken.filename.as_str()), (mime, name));
    }
}

#[test]
fn field_voice_is_told_apart_by_its_content() {
    let (_dir, files) = files();
    let opus = ogg(b"OpusHead\x01\x01\x38\x01\x80\xbb\0\0\0\0\0");
    let vorbis = ogg(b"\x01vorbis\0\0\0\0\x01\x44\xac\0\0");
    let flac = ogg(b"\x7fFLAC\x01\0\0\x01fLaC");
    for (name, format, bytes, mime) in [
        ("Opus", VoiceFormat::Ogg, &opus, Some("audio/ogg")),
        ("Vorbis", VoiceFormat::Ogg, &vorbis, Some("audio/ogg; codecs=vorbis")),
        ("FLAC in Ogg", VoiceFormat::Ogg, &flac, Some("audio/ogg; codecs=flac")),
        ("no samples", VoiceFormat::Wav, &wave(1, 1, 16_000, 16, 0), Some("audio/wav")),
        ("8 kHz stereo", VoiceFormat::Wav, &wave(1, 2, 8_000, 16, 64), Some("audio/wav")),
        ("float samples", VoiceFormat::Wav, &wave(3, 1, 48_000, 32, 64), Some("audio/wav; codecs=3")),
        ("mu-law", VoiceFormat::Wav, &wave(7, 1, 8_000, 8, 64), Some("audio/wav; codecs=7")),
        ("Ogg said to be WAV", VoiceFormat::Wav, &opus, None),
        ("WAV said to be Ogg", VoiceFormat::Ogg, &wave(1, 1, 8_000, 16, 2), None),
        ("RIFF that is no WAVE", VoiceFormat::Wav, &b"RIFF\x04\0\0\0AVI LIST".to_vec(), None),
        ("text", VoiceFormat::Ogg, &b"Oggs are nice".to_vec(), None),
    ] {
        match (whole(&files, &voice(format, bytes)), mime) {
            (Ok(file), Some(mime)) => {
                assert_eq!((file.kind.as_str(), file.mime.as_str()), ("voice", mime), "{name}");
                let extension = if format == VoiceFormat::Ogg { ".ogg" } else { ".wav" };
                assert!(file.file.ends_with(extension), "{name}: {}", file.file);
            }
            (Err(problem), None) => assert_eq!(problem.code, ErrorCode::BadFrame, "{name}"),
            (got, _) => panic!("{name}: {got:?}"),
        }
    }
    // A file of music is a file, in the same container.
    let song = MediaPart { kind: MediaKind::Audio, mime: None, ..part(0, 1, &opus) };
    assert_eq!(whole(&files, &song).unwrap().kind, "audio");
}

#[test]
fn field_file_names_are_shown_sensibly_and_are_never_a_path() {
    let (dir, files) = files();
    let long = format!("{}.jpeg", "я".repeat(150));
    for (name, shown) in [
        ("../../etc/passwd", "passwd"),
        ("/etc/shadow", "shadow"),
        (r"C:\x\y.png", "y.png"),
        ("con", "con"),
        ("NUL.png", "NUL.png"),
        (&long, &format!("{}.jpeg", "я".repeat(97))),
        ("Отчёт за май.pdf", "Отчёт за май.pdf"),
        ("ａ／ｂ：ｃ.txt", "ａ／ｂ：ｃ.txt"),
        ("e\u{301}.txt", "e\u{301}.txt"),
        ("a\nb.txt", "ab.txt"),
        ("a\0.sh", "a.sh"),
        ("gpj\u{202e}exe.png", "gpjexe.png"),
        ("-rf.txt", "-rf.txt"),
        ("..", "image.png"),
        ("......", "image.png"),
        ("   ", "image.png"),
        ("", "image.png"),
    ] {
        // As it comes from a device, through the decoder that ships.
        let data = protocol::base64::encode(PNG);
        let frame =
            serde_json::json!({"t": "media", "id": "m", "kind": "image", "filename": name, "data": data});
        let Ok(ClientFrame::Media(part)) = client::decode(&frame.to_string()) else { panic!("{name:?}") };
        let file = whole(&files, &part).unwrap();
        assert_eq!(file.filename, shown, "{name:?}");
        assert!(shown.len() <= 200);
        let path = files.media_dir().join(&file.file);
        assert_eq!(path.parent(), Some(files.media_dir()), "{name:?}");
        assert_eq!(fs::read(&path).unwrap(), PNG, "{name:?}");
        assert!(file.file.len() == 36 && file.file.ends_with(".png"), "{name:?}: {}", file.file);
        // As it comes from an agent.
        let source = MediaSource::Data(PNG.to_vec());
        let taken = files.take_file(&source, None, Some(name), OutKind::Image, 0).unwrap();
        assert_eq!(taken.filename, shown, "{name:?}");
    }
    let made: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(made.len(), 3, "nothing beside the three folders: {made:?}");
}
