//! Taking over a file of the agent's.
//!
//! A path counts only inside `media_out`, and nothing below that folder may be a link: each step is opened from the
//! directory above it, without following links, and the file is read from that handle. So what is checked is what is read, whatever
//! the agent does to the folder meanwhile.
//!
//! The source is removed by [`Files::tidy`] a while later, not at once: an agent whose call got no result (the gateway
//! died before its commit) repeats it with the same path.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read},
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Component, Path},
    sync::PoisonError,
};

use protocol::{
    Millis, id, limits,
    link::{FileRefused, FileTaken, MediaSource},
    record::hash64,
    server::OutKind,
    sniff,
};
use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, openat, statat, unlinkat},
    io::Errno,
};

use super::Files;
use crate::StoreError;

/// A source that was taken over is removed after this, milliseconds.
const KEEP_SOURCE_MS: Millis = 60_000;

/// A source in `media_out` that was taken over, as it was then.
#[derive(Debug)]
pub(super) struct Source {
    parent: OwnedFd,
    name: Vec<u8>,
    stat: Stat,
    at: Millis,
}

impl Files {
    /// Takes a file over into `media/`, synced: at most 8 MiB, not empty, given inline or as an absolute path inside
    /// `media_out`.
    ///
    /// # Errors
    /// [`FileRefused`].
    pub fn take_file(
        &self,
        source: &MediaSource,
        mime: Option<&str>,
        filename: Option<&str>,
        kind: OutKind,
        now: Millis,
    ) -> Result<FileTaken, FileRefused> {
        let said = filename.and_then(id::clean_filename);
        match source {
            MediaSource::Data(data) => {
                let name = said.clone().unwrap_or_default();
                self.keep(data, mime, said, kind, name)
            }
            MediaSource::Path(path) => {
                let name = shown(path);
                let (mut file, source) = self.open_source(path, now)?;
                let mut data = Vec::new();
                // Bounded by what is read, not by what the size was: it may be growing.
                let most = limits::FILE_BYTES as u64 + 1;
                file.by_ref()
                    .take(most)
                    .read_to_end(&mut data)
                    .map_err(|e| FileRefused::Failed(e.to_string()))?;
                let filename = said.or_else(|| Some(name.clone()).filter(|n| !n.is_empty()));
                let taken = self.keep(&data, mime, filename, kind, name)?;
                self.taken.lock().unwrap_or_else(PoisonError::into_inner).push(source);
                Ok(taken)
            }
        }
    }

    /// Removes the sources in `media_out` that were taken over a minute or more ago and have not been changed since.
    pub fn tidy(&self, now: Millis) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.retain(|source| {
            if source.at.saturating_add(KEEP_SOURCE_MS) > now {
                return true;
            }
            let name = OsStr::from_bytes(&source.name);
            // A new file under the old name is another file.
            if statat(&source.parent, name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| unchanged(&stat, &source.stat))
            {
                let _ = unlinkat(&source.parent, name, AtFlags::empty());
            }
            false
        });
    }

    fn keep(
        &self,
        data: &[u8],
        mime: Option<&str>,
        filename: Option<String>,
        kind: OutKind,
        name: String,
    ) -> Result<FileTaken, FileRefused> {
        if data.len() > limits::FILE_BYTES {
            return Err(FileRefused::TooLarge { name });
        }
        if data.is_empty() {
            return Err(FileRefused::Empty);
        }
        let sniffed = sniff::sniff(data.get(..super::HEAD).unwrap_or(data));
        let extension = sniff::extension(sniffed, mime, filename.as_deref());
        let failed = |e: StoreError| FileRefused::Failed(e.to_string());
        let mut new = self.begin(false).map_err(failed)?;
        new.write(data).map_err(failed)?;
        Ok(FileTaken {
            file: new.finish(&extension).map_err(failed)?,
            bytes: data.len() as u64,
            mime: sniff::mime(sniffed, mime),
            filename: filename.unwrap_or_else(|| format!("{}.{extension}", label(kind))),
            content: hash64(&[data]),
        })
    }

    /// Opens a path of the agent's, step by step from `media_out`.
    fn open_source(&self, path: &str, now: Millis) -> Result<(File, Source), FileRefused> {
        let refused = || FileRefused::NotAllowed { name: shown(path) };
        let inside = Path::new(path).strip_prefix(&self.media_out).map_err(|_| refused())?;
        let mut steps = Vec::new();
        for step in inside.components() {
            let Component::Normal(step) = step else { return Err(refused()) };
            steps.push(step);
        }
        let name = steps.pop().ok_or_else(refused)?;
        let failed = |e: Errno| match e {
            Errno::NOENT => FileRefused::Missing,
            // A link where none may be (LOOP, or NOTDIR for a directory), a directory, a socket, no name at all.
            Errno::LOOP | Errno::NOTDIR | Errno::ISDIR | Errno::NXIO | Errno::INVAL | Errno::NAMETOOLONG => {
                refused()
            }
            e => FileRefused::Failed(io::Error::from(e).to_string()),
        };
        let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mut parent = openat(CWD, &self.media_out, directory, Mode::empty()).map_err(failed)?;
        for step in steps {
            parent = openat(&parent, step, directory, Mode::empty()).map_err(failed)?;
        }
        // NONBLOCK: opening a pipe would wait for its writer.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = openat(&parent, name, flags, Mode::empty()).map_err(failed)?;
        let stat = fstat(&file).map_err(failed)?;
        // A second name of a file may lie anywhere.
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_nlink > 1 {
            return Err(refused());
        }
        if u64::try_from(stat.st_size).is_ok_and(|size| size > limits::FILE_BYTES as u64) {
            return Err(FileRefused::TooLarge { name: shown(path) });
        }
        let name = name.as_bytes().to_vec();
        Ok((File::from(file), Source { parent, name, stat, at: now }))
    }
}

fn unchanged(a: &Stat, b: &Stat) -> bool {
    (a.st_dev, a.st_ino, a.st_size, a.st_mtime, a.st_mtime_nsec)
        == (b.st_dev, b.st_ino, b.st_size, b.st_mtime, b.st_mtime_nsec)
}

/// What the user may see of a path.
fn shown(path: &str) -> String {
    id::clean_filename(path).unwrap_or_default()
}

const fn label(kind: OutKind) -> &'static str {
    match kind {
        OutKind::Image => "image",
        OutKind::Voice => "voice",
        OutKind::Video => "video",
        OutKind::Document => "document",
        OutKind::Animation => "animation",
    }
}
