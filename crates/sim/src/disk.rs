//! The disk: the real store in memory behind a writer that takes its time, fails, and loses at a crash what was not
//! committed; and the media folder, whose files are whole and synced once they have been reported.

use std::collections::{BTreeMap, VecDeque};

use delivery::MediaDone;
use protocol::{
    Millis,
    client::{MediaKind, MediaPart},
    code::ErrorCode,
    limits,
    link::{FileRefused, FileTaken, InFile, MediaSource},
    problem::Problem,
    record::{Batch, Row, hash64, hash128},
    series::SpoolNo,
    server::OutKind,
};
use store::{Memory, Store};

/// A lazy batch waits so long for company.
const LAZY_MS: Millis = 1_000;

/// What came of a group of batches.
pub(crate) enum Commit {
    Stored { batches: Vec<Batch> },
    Failed { from: u64, upto: u64 },
}

/// See the module.
pub(crate) struct Disk {
    pub(crate) store: Memory,
    queue: VecDeque<(Millis, Batch)>,
    committing: Option<Vec<Batch>>,
    /// The last failed batch, while the core is not known to know of it: everything is refused.
    refusing: Option<u64>,
    /// Commits fail until then.
    pub(crate) full_until: Millis,
}

impl Disk {
    pub(crate) fn new(secret: [u8; 32]) -> Self {
        Self {
            store: Memory::new("simulated", secret),
            queue: VecDeque::new(),
            committing: None,
            refusing: None,
            full_until: 0,
        }
    }

    /// Takes a batch. `Some`: it is refused at once.
    pub(crate) fn submit(&mut self, batch: Batch, now: Millis) -> Option<u64> {
        if self.refusing.is_some() {
            self.refusing = Some(batch.no);
            return Some(batch.no);
        }
        self.queue.push_back((now, batch));
        None
    }

    pub(crate) fn resume(&mut self, upto: u64) {
        if self.refusing.is_some_and(|last| last <= upto) {
            self.refusing = None;
        }
    }

    /// Begins a commit if there is something to commit. `Err`: look again then.
    pub(crate) fn begin(&mut self, now: Millis) -> Result<bool, Millis> {
        if self.committing.is_some() {
            return Ok(false);
        }
        let Some((since, _)) = self.queue.front() else { return Ok(false) };
        let due = *since + LAZY_MS;
        if self.queue.iter().all(|(_, batch)| batch.lazy) && now < due {
            return Err(due);
        }
        self.committing = Some(std::mem::take(&mut self.queue).into_iter().map(|(_, batch)| batch).collect());
        Ok(true)
    }

    /// The commit under way ends. `Err`: the store found a batch that breaks its rules.
    pub(crate) fn end(&mut self, now: Millis) -> Result<Option<Commit>, String> {
        let Some(batches) = self.committing.take() else { return Ok(None) };
        let (Some(from), Some(last)) = (batches.first().map(|b| b.no), batches.last().map(|b| b.no)) else {
            return Ok(None);
        };
        if now < self.full_until {
            // What was handed over behind it fails too: it may build on what failed.
            let upto = self.queue.back().map_or(last, |(_, batch)| batch.no);
            self.queue.clear();
            self.refusing = Some(upto);
            return Ok(Some(Commit::Failed { from, upto }));
        }
        self.store.commit(&batches).map_err(|e| format!("the store refused a batch: {e}"))?;
        Ok(Some(Commit::Stored { batches }))
    }

    /// The process dies. `durable`: the commit under way had just reached the disk.
    pub(crate) fn crash(&mut self, durable: bool) -> Result<Vec<Batch>, String> {
        self.queue.clear();
        self.refusing = None;
        let batches = self.committing.take().unwrap_or_default();
        if !durable {
            return Ok(Vec::new());
        }
        self.store.commit(&batches).map_err(|e| format!("the store refused a batch: {e}"))?;
        Ok(batches)
    }

    /// Nothing waits for the disk.
    pub(crate) fn idle(&self) -> bool {
        self.queue.is_empty() && self.committing.is_none() && self.refusing.is_none()
    }

    pub(crate) fn rows(&self, positions: &[u64]) -> Result<Vec<Row>, String> {
        let mut reader = self.store.reader().map_err(|e| e.to_string())?;
        reader.read(positions).map_err(|e| e.to_string())
    }

    pub(crate) fn load(
        &self,
        device: &str,
        since: Millis,
    ) -> Result<Option<protocol::record::Loaded>, String> {
        let mut reader = self.store.reader().map_err(|e| e.to_string())?;
        reader.load(device, since).map_err(|e| e.to_string())
    }
}

/// The media folder and the spool.
#[derive(Default)]
pub(crate) struct Files {
    pub(crate) media: BTreeMap<String, Vec<u8>>,
    spools: BTreeMap<SpoolNo, BTreeMap<u32, Vec<u8>>>,
    last: u64,
}

impl Files {
    pub(crate) fn spool(&mut self, spool: SpoolNo, part: &MediaPart) {
        self.spools.entry(spool).or_default().insert(part.part, part.data.clone());
    }

    pub(crate) fn discard(&mut self, spool: SpoolNo) {
        self.spools.remove(&spool);
    }

    /// The spool is emptied at a start.
    pub(crate) fn crash(&mut self) {
        self.spools.clear();
    }

    fn keep(&mut self, data: Vec<u8>) -> String {
        self.last += 1;
        let name = format!("f{}.bin", self.last);
        self.media.insert(name.clone(), data);
        name
    }

    pub(crate) fn assemble(
        &mut self,
        spool: SpoolNo,
        head: &MediaPart,
        fails: bool,
    ) -> Result<MediaDone, Problem> {
        let parts = self.spools.remove(&spool).unwrap_or_default();
        if fails || parts.len() != head.parts as usize {
            return Err(Problem::new(ErrorCode::Internal, "the disk failed"));
        }
        let data: Vec<u8> = parts.into_values().flatten().collect();
        let kind = match head.kind {
            MediaKind::Voice { .. } => "voice",
            MediaKind::Image => "image",
            MediaKind::Video => "video",
            MediaKind::Document => "document",
            MediaKind::Audio => "audio",
        };
        let sha256 = format!("{:032x}", hash128(&[&data]));
        let bytes = data.len() as u64;
        Ok(MediaDone {
            file: InFile {
                kind: kind.to_owned(),
                file: self.keep(data),
                path: None,
                mime: "application/octet-stream".to_owned(),
                filename: head.filename.clone().unwrap_or_default(),
                caption: head.caption.clone(),
                bytes,
                sha256,
                duration_ms: None,
            },
        })
    }

    pub(crate) fn take(
        &mut self,
        source: MediaSource,
        filename: Option<String>,
        kind: OutKind,
        fails: bool,
    ) -> Result<FileTaken, FileRefused> {
        let data = match source {
            MediaSource::Path(path) => {
                let name = path.rsplit('/').next().unwrap_or_default().to_owned();
                return Err(FileRefused::NotAllowed { name });
            }
            MediaSource::Data(data) if data.is_empty() => return Err(FileRefused::Empty),
            MediaSource::Data(data) if data.len() > limits::FILE_BYTES => {
                return Err(FileRefused::TooLarge { name: filename.unwrap_or_default() });
            }
            MediaSource::Data(_) if fails => return Err(FileRefused::Failed("no space".to_owned())),
            MediaSource::Data(data) => data,
        };
        Ok(FileTaken {
            bytes: data.len() as u64,
            mime: "application/octet-stream".to_owned(),
            filename: filename.unwrap_or_else(|| format!("{kind:?}")),
            content: hash64(&[&data]),
            file: self.keep(data),
        })
    }

    pub(crate) fn read(&self, file: &str, offset: u64, len: usize) -> Result<Vec<u8>, String> {
        let data = self.media.get(file).ok_or("no such file")?;
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(data.len());
        let to = from.saturating_add(len).min(data.len());
        Ok(data.get(from..to).unwrap_or_default().to_vec())
    }
}
