//! Media files beside the log: `media/` (what records name), `spool/` (parts and files that are not complete),
//! `media_out/` (where an agent on this host puts files to send).
//!
//! A file is written in `spool/`, synced, renamed into `media/`, and that directory synced. So every file in `media/` is
//! whole, and one that was reported is there after a power cut. `spool/` is emptied at start.

mod disk;
mod take;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use protocol::{
    client::{MediaKind, MediaPart, VoiceFormat},
    code::ErrorCode,
    limits,
    link::InFile,
    problem::Problem,
    series::SpoolNo,
    sniff,
    words::Say,
};
use sha2::{Digest, Sha256};

pub use disk::{Disk, NewFile, OsDisk};

use crate::{StoreError, dir};

/// So much of a file is looked at to tell what it is, bytes.
const HEAD: usize = 4096;
/// So many files may be open for parts that come in their order: each is a descriptor, and devices leave series open.
const WHOLE: usize = 64;

/// The media folders of a state directory. All calls may run side by side.
pub struct Files {
    disk: Arc<dyn Disk>,
    media: Arc<Path>,
    spool: PathBuf,
    media_out: PathBuf,
    spools: Mutex<HashMap<SpoolNo, Spool>>,
    /// Sources in `media_out` that were taken over and not yet removed.
    taken: Mutex<Vec<take::Source>>,
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Files").field("media", &self.media).finish_non_exhaustive()
    }
}

impl Files {
    /// Makes the folders (mode 0700) of a state directory that [`crate::prepare`] has made, and empties the spool. Only
    /// the gateway that holds the store may call it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn open(state: &Path) -> Result<Self, StoreError> {
        let state = state.canonicalize().map_err(|e| StoreError::io("open", state, e))?;
        for name in ["media", "spool", "media_out"] {
            dir::prepare_sub(&state.join(name))?;
        }
        dir::sync_dir(&state).map_err(|e| StoreError::io("sync", &state, e))?;
        let files = Self::with_disk(&state, Arc::new(OsDisk));
        files.clear_spool()?;
        Ok(files)
    }

    /// On a disk of a test's own.
    #[doc(hidden)]
    #[must_use]
    pub fn with_disk(state: &Path, disk: Arc<dyn Disk>) -> Self {
        Self {
            disk,
            media: state.join("media").into(),
            spool: state.join("spool"),
            media_out: state.join("media_out"),
            spools: Mutex::default(),
            taken: Mutex::default(),
        }
    }

    /// Absolute path of the folder with the files that records name.
    #[must_use]
    pub fn media_dir(&self) -> &Path {
        &self.media
    }

    /// Absolute path of the folder from which an agent's files are taken.
    #[must_use]
    pub fn media_out_dir(&self) -> &Path {
        &self.media_out
    }

    /// Keeps a part. Not synced: series do not outlive the gateway. Parts that come in their order are written once, into
    /// the file that they become; others wait in files of their own.
    ///
    /// # Errors
    /// [`StoreError`]; [`Self::assemble`] of this spool then fails too.
    pub fn spool(&self, no: SpoolNo, part: &MediaPart) -> Result<(), StoreError> {
        let (mut spool, open) = {
            let mut spools = self.spools();
            let spool = spools.remove(&no).unwrap_or_default();
            (spool, spools.values().filter(|other| other.whole.is_some()).count())
        };
        spool.parts = part.parts;
        let kept = self.keep_part(no, &mut spool, part, open < WHOLE);
        self.spools().insert(no, spool);
        kept
    }

    fn keep_part(
        &self,
        no: SpoolNo,
        spool: &mut Spool,
        part: &MediaPart,
        may_open: bool,
    ) -> Result<(), StoreError> {
        if part.part == 0 && may_open {
            spool.whole = Some(self.begin(true)?);
        }
        if part.part == spool.next
            && let Some(mut whole) = spool.whole.take()
        {
            // Half a part must not be taken for a whole one: should this fail, there is no file and no part 0.
            whole.write(&part.data)?;
            spool.whole = Some(whole);
            spool.next += 1;
            return Ok(());
        }
        let path = self.part(no, part.part);
        let written = self.disk.create(&path).and_then(|mut file| file.write_all(&part.data));
        written.map_err(|e| {
            let _ = self.disk.remove(&path);
            StoreError::io("write", &path, e)
        })
    }

    fn spools(&self) -> MutexGuard<'_, HashMap<SpoolNo, Spool>> {
        self.spools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the parts of a spool together as a synced file in `media/`, and throws the spool away.
    ///
    /// # Errors
    /// `bad_frame` when a voice message is not what it declares or nothing is in it, `too_big` over 8 MiB, `internal`
    /// when the disk fails; the spool is gone in every case.
    pub fn assemble(&self, spool: SpoolNo, head: &MediaPart) -> Result<InFile, Problem> {
        let done = self.assemble_parts(spool, head);
        self.discard(spool);
        done.map_err(|p| if p.id.is_none() { p.with_id(head.id.clone()) } else { p })
    }

    fn assemble_parts(&self, spool: SpoolNo, head: &MediaPart) -> Result<InFile, Problem> {
        let begun = self.spools().get_mut(&spool).and_then(|spool| Some((spool.whole.take()?, spool.next)));
        let (mut new, next) = match begun {
            Some(begun) => begun,
            None => (self.begin(true).map_err(cannot_store)?, 0),
        };
        for part in next..head.parts {
            let path = self.part(spool, part);
            let data = self.disk.read(&path, 0, limits::FILE_BYTES + 1);
            new.write(&data.map_err(|e| cannot_store(StoreError::io("read", &path, e)))?)
                .map_err(cannot_store)?;
            if new.bytes > limits::FILE_BYTES as u64 {
                break;
            }
        }
        if new.bytes > limits::FILE_BYTES as u64 {
            let problem = Problem::new(ErrorCode::TooBig, "the file is larger than 8 MiB decoded");
            return Err(problem.saying(Say::LargeFile));
        }
        if new.bytes == 0 {
            return Err(Problem::bad("data: empty").saying(Say::EmptyFile));
        }
        let sniffed = sniff::sniff(&new.head);
        let (kind, mime, duration_ms) = match &head.kind {
            MediaKind::Voice { format, duration_ms, .. } => {
                if !sniff::is_voice(&new.head, *format) {
                    return Err(Problem::bad("data: the bytes are not what `format` says"));
                }
                let mime = match format {
                    VoiceFormat::Wav => "audio/wav",
                    VoiceFormat::Ogg => "audio/ogg",
                };
                ("voice", Some(mime), *duration_ms)
            }
            MediaKind::Image => ("image", head.mime.as_deref(), None),
            MediaKind::Video => ("video", head.mime.as_deref(), None),
            MediaKind::Document => ("document", head.mime.as_deref(), None),
            MediaKind::Audio => ("audio", head.mime.as_deref(), None),
        };
        let extension = sniff::extension(sniffed, mime, head.filename.as_deref());
        let filename = head.filename.clone().unwrap_or_else(|| format!("{kind}.{extension}"));
        let (bytes, sha256) = (new.bytes, new.sha256());
        Ok(InFile {
            kind: kind.to_owned(),
            file: new.finish(&extension).map_err(cannot_store)?,
            path: None,
            mime: sniff::mime(sniffed, mime),
            filename,
            caption: head.caption.clone(),
            bytes,
            sha256,
            duration_ms,
        })
    }

    /// Throws a spool away.
    pub fn discard(&self, spool: SpoolNo) {
        let Some(Spool { parts, next, .. }) = self.spools().remove(&spool) else { return };
        for part in next..parts {
            let _ = self.disk.remove(&self.part(spool, part));
        }
    }

    /// Reads a piece of a file in `media/`; fewer bytes at its end.
    ///
    /// # Errors
    /// [`StoreError`], also for a name that is not one of ours.
    pub fn read_at(&self, file: &str, offset: u64, len: usize) -> Result<Vec<u8>, StoreError> {
        let path = self.named(file)?;
        self.disk.read(&path, offset, len).map_err(|e| StoreError::io("read", &path, e))
    }

    /// Removes a file from `media/`. One that is gone already is no error.
    ///
    /// # Errors
    /// [`StoreError`], also for a name that is not one of ours.
    pub fn remove(&self, file: &str) -> Result<(), StoreError> {
        let path = self.named(file)?;
        match self.disk.remove(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(StoreError::io("remove", &path, e)),
            _ => Ok(()),
        }
    }

    /// Empties the spool: what a gateway that ended left there.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn clear_spool(&self) -> Result<(), StoreError> {
        for path in self.disk.list(&self.spool).map_err(|e| StoreError::io("read", &self.spool, e))? {
            self.disk.remove(&path).map_err(|e| StoreError::io("remove", &path, e))?;
        }
        Ok(())
    }

    fn part(&self, spool: SpoolNo, part: u32) -> PathBuf {
        self.spool.join(format!("{spool}-{part}"))
    }

    /// A record names a file by a name that we made; anything else (a damaged record) must not lead out of the folder.
    fn named(&self, file: &str) -> Result<PathBuf, StoreError> {
        let ours = file.split_once('.').is_some_and(|(name, ext)| {
            name.len() == 32
                && name.bytes().all(|b| b.is_ascii_hexdigit())
                && (1..=8).contains(&ext.len())
                && ext.bytes().all(|b| b.is_ascii_alphanumeric())
        });
        if ours {
            Ok(self.media.join(file))
        } else {
            Err(StoreError::io("use a name outside", &self.media, io::ErrorKind::InvalidInput.into()))
        }
    }

    /// Begins a file in the spool.
    fn begin(&self, hashed: bool) -> Result<New, StoreError> {
        let mut random = [0u8; 16];
        getrandom::fill(&mut random)
            .map_err(|e| StoreError::io("make a name in", &self.media, io::Error::other(e.to_string())))?;
        let name = hex(&random);
        let path = self.spool.join(&name);
        let file = self.disk.create(&path).map_err(|e| StoreError::io("write", &path, e))?;
        Ok(New {
            disk: Arc::clone(&self.disk),
            media: Arc::clone(&self.media),
            name,
            path,
            file,
            hash: hashed.then(Sha256::new),
            head: Vec::new(),
            bytes: 0,
            kept: false,
        })
    }
}

/// A series whose parts are coming in.
#[derive(Default)]
struct Spool {
    parts: u32,
    /// The file, as far as its parts came in their order...
    whole: Option<New>,
    /// ...and the part that it waits for.
    next: u32,
}

/// A file on its way into `media/`. Dropped before [`New::finish`] it leaves nothing.
struct New {
    disk: Arc<dyn Disk>,
    media: Arc<Path>,
    name: String,
    path: PathBuf,
    file: Box<dyn NewFile>,
    /// Only of what a device sent: the agent is told.
    hash: Option<Sha256>,
    head: Vec<u8>,
    bytes: u64,
    kept: bool,
}

impl New {
    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.file.write_all(bytes).map_err(|e| StoreError::io("write", &self.path, e))?;
        if let Some(hash) = &mut self.hash {
            hash.update(bytes);
        }
        let room = HEAD - self.head.len();
        self.head.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Hex of the hash of what was written so far.
    fn sha256(&self) -> String {
        self.hash.clone().map(|hash| hex(&hash.finalize())).unwrap_or_default()
    }

    /// Makes it durable under its name in `media/`, which is returned.
    fn finish(mut self, extension: &str) -> Result<String, StoreError> {
        let (disk, media) = (Arc::clone(&self.disk), Arc::clone(&self.media));
        let file = format!("{}.{extension}", self.name);
        let path = media.join(&file);
        self.file.sync().map_err(|e| StoreError::io("sync", &self.path, e))?;
        disk.rename(&self.path, &path).map_err(|e| StoreError::io("move", &self.path, e))?;
        self.kept = true;
        disk.sync_dir(&media).map_err(|e| {
            // Nobody will name it.
            let _ = disk.remove(&path);
            StoreError::io("sync", &media, e)
        })?;
        Ok(file)
    }
}

impl Drop for New {
    fn drop(&mut self) {
        if !self.kept {
            let _ = self.disk.remove(&self.path);
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "taken by map_err")]
fn cannot_store(e: StoreError) -> Problem {
    Problem::new(ErrorCode::Internal, format!("the file was not stored: {e}")).saying(Say::CannotStore)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
