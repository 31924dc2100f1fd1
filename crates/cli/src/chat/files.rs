//! Files: those that are sent, and those that come.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use client::core::{File, FileKind, Request};
use protocol::{client::VoiceFormat, id::clean_filename, limits, sniff};

/// Most tries for a free name.
const NAMES: u32 = 10_000;

/// Why a file is not sent.
#[derive(Debug)]
pub(super) enum Unsendable {
    Read(io::Error),
    TooLarge,
    NoVoice,
}

/// Reads no more of a file than may be sent.
fn read(path: &str) -> Result<Vec<u8>, Unsendable> {
    let meta = fs::metadata(path).map_err(Unsendable::Read)?;
    if !meta.is_file() {
        return Err(Unsendable::Read(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")));
    }
    if meta.len() > limits::FILE_BYTES as u64 {
        return Err(Unsendable::TooLarge);
    }
    fs::read(path).map_err(Unsendable::Read)
}

/// A file as a request.
pub(super) fn file(path: &str, caption: Option<String>) -> Result<Request, Unsendable> {
    let bytes = read(path)?;
    let sniffed = sniff::sniff(bytes.get(..4096).unwrap_or(&bytes));
    let mime = sniffed.map_or("application/octet-stream", |s| s.mime).to_owned();
    let name = Path::new(path).file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(Request::File { kind: FileKind::of_mime(&mime), mime, filename: name, caption, bytes })
}

/// A voice message as a request.
pub(super) fn voice(path: &str) -> Result<Request, Unsendable> {
    let bytes = read(path)?;
    let format = [VoiceFormat::Wav, VoiceFormat::Ogg].into_iter().find(|f| sniff::is_voice(&bytes, *f));
    Ok(Request::Voice { format: format.ok_or(Unsendable::NoVoice)?, bytes })
}

/// Writes a file that came into `dir` under a name that is safe and free.
pub(super) fn save(dir: &Path, file: &File) -> io::Result<PathBuf> {
    fs::create_dir_all(dir)?;
    let extension = sniff::extension(
        sniff::sniff(file.bytes.get(..4096).unwrap_or(&file.bytes)),
        Some(&file.mime),
        Some(&file.filename),
    );
    let name = safe_name(&file.filename, &extension);
    let (stem, suffix) = match name.rfind('.') {
        Some(at) if at > 0 => name.split_at(at),
        _ => (name.as_str(), ""),
    };
    for number in 1..NAMES {
        let name = if number == 1 { name.clone() } else { format!("{stem} ({number}){suffix}") };
        let path = dir.join(name);
        // Never over another file, nor through a link.
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut out) => {
                out.write_all(&file.bytes)?;
                return Ok(path);
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "no free name"))
}

/// A name that is only a name on every system.
fn safe_name(filename: &str, extension: &str) -> String {
    let cleaned = clean_filename(filename).unwrap_or_default();
    let plain: String = cleaned
        .chars()
        .map(|c| {
            if c.is_control() || matches!(c, '/' | '\\' | ':' | '*' | '?' | '"' | '<' | '>' | '|') {
                '_'
            } else {
                c
            }
        })
        .collect();
    let plain = plain.trim_matches(|c: char| c == '.' || c.is_whitespace()).trim_start_matches('-');
    if plain.is_empty() {
        return format!("file.{extension}");
    }
    // Windows takes these for devices, whatever the extension.
    let stem = plain.split('.').next().unwrap_or_default().trim().to_ascii_lowercase();
    let device = ["con", "prn", "aux", "nul"].contains(&stem.as_str())
        || ["com", "lpt"].iter().any(|d| stem.strip_prefix(d).is_some_and(|n| n.len() == 1 && n != "0"));
    let plain = if device { format!("_{plain}") } else { plain.to_owned() };
    if plain.contains('.') { plain } else { format!("{plain}.{extension}") }
}

#[cfg(test)]
mod tests {
    use client::protocol::server::OutKind;

    use super::*;

    fn incoming(filename: &str, bytes: &[u8]) -> File {
        File {
            id: "f".into(),
            kind: OutKind::Document,
            mime: "text/plain".into(),
            filename: filename.into(),
            caption: None,
            bytes: bytes.into(),
            reply_to: None,
            redraw: false,
        }
    }

    #[test]
    fn names_stay_in_the_folder_and_nothing_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("in");
        for name in [
            "../../etc/passwd",
            "C:\\x\\y.png",
            "con",
            "-rf",
            "...",
            "",
            "a\nb.txt",
            "..",
            "/",
            "COM1.txt",
            "x/../..",
        ] {
            let path = save(&folder, &incoming(name, b"x")).unwrap();
            assert_eq!(path.parent(), Some(folder.as_path()), "{name:?}");
            assert!(path.is_file());
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            assert!(!name.starts_with(['.', '-']) && name != "con", "{name}");
        }
        let first = save(&folder, &incoming("отчёт.pdf", b"1")).unwrap();
        let second = save(&folder, &incoming("отчёт.pdf", b"2")).unwrap();
        assert_eq!(second.file_name().unwrap(), "отчёт (2).pdf");
        assert_eq!(fs::read(first).unwrap(), b"1");
    }

    #[test]
    fn what_is_sent_is_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.wav");
        fs::write(&path, b"not a voice message").unwrap();
        let path = path.to_str().unwrap();
        assert!(matches!(voice(path), Err(Unsendable::NoVoice)));
        assert!(matches!(file(path, None), Ok(Request::File { kind: FileKind::Document, .. })));
        assert!(matches!(file("/nowhere/at/all", None), Err(Unsendable::Read(_))));
        assert!(matches!(file(dir.path().to_str().unwrap(), None), Err(Unsendable::Read(_))));
    }
}
