//! The disk, as the hub uses it: nothing here waits. Orders go to threads; their answers come back to the hub.
//!
//! Four threads: the store's writer and reader, and two for media files, so that a large upload being synced does not
//! hold up the parts of a file to somebody else. Each keeps the order of what it is given.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use delivery::{Input, MediaDone};
use protocol::{
    Millis,
    client::MediaPart,
    link::{FileRefused, MediaSource},
    record::{Batch, Body, DeviceNo, InBody, Op, Pos, Row},
    series::SpoolNo,
    server::OutKind,
};
use store::{Done, ReadThread, Store, StoreError, Writer, files::Files};
use tokio::{
    sync::{mpsc::UnboundedSender, oneshot},
    time::Instant,
};

use crate::{
    inlet::{Gate, Inside},
    run::StartError,
};

/// Batches that may be under way before the hub takes nothing new.
const BATCHES: usize = 4096;
/// Bytes of the same.
const BATCH_BYTES: usize = 64 * 1024 * 1024;
/// A writer that has not answered for so long hangs; a lazy batch waits a second, a slow disk some more.
const STUCK: Duration = Duration::from_secs(20);
/// Rows that one step of a trim removes.
const TRIM_ROWS: usize = 500;

/// Work on media files.
pub(crate) enum MediaJob {
    /// Keep a part. The gate opens when its bytes are out of memory.
    Spool { spool: SpoolNo, part: Box<MediaPart>, gate: Option<Gate> },
    /// Put a file together.
    Assemble { device: DeviceNo, spool: SpoolNo, head: Box<MediaPart> },
    /// Throw a spool away.
    Discard { spool: SpoolNo },
    /// Remove a file.
    Remove { file: String },
    /// Take over a file of the agent's.
    Take {
        device: DeviceNo,
        ticket: u64,
        source: MediaSource,
        mime: Option<String>,
        filename: Option<String>,
        kind: OutKind,
        now: Millis,
    },
    /// Read a piece of a file.
    Read { device: DeviceNo, ticket: u64, file: String, offset: u64, len: usize },
    /// Remove what an agent's files left behind.
    Tidy { now: Millis },
}

/// See the module.
pub(crate) struct Disk {
    writer: Writer,
    reader: ReadThread,
    /// From devices: parts, in order.
    incoming: MediaThread,
    /// From agents, and to devices.
    outgoing: MediaThread,
    media_dir: PathBuf,
    hub: UnboundedSender<Inside>,
    /// Batches under way, oldest first: number and bytes.
    under_way: VecDeque<(u64, usize)>,
    bytes: usize,
    /// When the writer last answered, or was given something to do after a rest.
    writing_since: Instant,
}

impl Disk {
    /// Starts the threads of a state directory. Their answers go to `hub`.
    ///
    /// # Errors
    /// The media folders cannot be used, or the system has no threads left.
    pub(crate) fn start(
        dir: &Path,
        store: Box<dyn Store>,
        hub: UnboundedSender<Inside>,
    ) -> Result<Self, StartError> {
        let files = Arc::new(Files::open(dir)?);
        let reader = ReadThread::spawn(store.reader()?)?;
        let outgoing = MediaThread::spawn("media-out", Arc::clone(&files), hub.clone())?;
        let (answers, trash) = (hub.clone(), outgoing.jobs.clone());
        let writer = Writer::spawn(store, move |done| {
            let message = match done {
                Done::Stored { upto } => Inside::Input(Input::Stored { upto }),
                Done::Failed { from, upto, why } => Inside::Input(Input::StoreFailed { from, upto, why }),
                Done::Trimmed(rows) => Inside::Trimmed { more: throw_away(rows, trash.as_ref()) },
            };
            // The hub is gone only when the process ends.
            let _ = answers.send(message);
        })?;
        Ok(Self {
            writer,
            reader,
            incoming: MediaThread::spawn("media-in", Arc::clone(&files), hub.clone())?,
            outgoing,
            media_dir: files.media_dir().to_path_buf(),
            hub,
            under_way: VecDeque::new(),
            bytes: 0,
            writing_since: Instant::now(),
        })
    }

    /// Absolute path of the folder with people's files.
    pub(crate) fn media_dir(&self) -> PathBuf {
        self.media_dir.clone()
    }

    /// Whether the hub may take more from outside.
    pub(crate) fn has_room(&self) -> bool {
        self.under_way.len() < BATCHES && self.bytes < BATCH_BYTES
    }

    /// Commits a batch. Answered by `Stored` or `StoreFailed`.
    pub(crate) fn store(&mut self, batch: Batch) {
        if self.under_way.is_empty() {
            self.writing_since = Instant::now();
        }
        let no = batch.no;
        let bytes = batch.ops.iter().map(size).sum();
        self.under_way.push_back((no, bytes));
        self.bytes += bytes;
        if let Err(e) = self.writer.submit(batch) {
            self.answer(Input::StoreFailed { from: no, upto: no, why: e.to_string() });
        }
    }

    /// The writer has answered for the batches up to this number.
    pub(crate) fn answered(&mut self, upto: u64) {
        self.writing_since = Instant::now();
        while let Some((no, bytes)) = self.under_way.front().copied()
            && no <= upto
        {
            self.under_way.pop_front();
            self.bytes -= bytes;
        }
    }

    /// Batches that the writer has not answered for, and their bytes.
    pub(crate) fn under_way(&self) -> (usize, usize) {
        (self.under_way.len(), self.bytes)
    }

    /// Answers when the reader has answered, unless the writer has been silent for [`STUCK`] with something to write. A
    /// disk that fails at once answers too: the gateway can tell people so, and a restart would mend nothing.
    pub(crate) fn probe(&self, answer: oneshot::Sender<()>) {
        if !self.under_way.is_empty() && self.writing_since.elapsed() >= STUCK {
            // Dropped: no answer.
            return;
        }
        self.reader.read(Vec::new(), move |_| {
            let _ = answer.send(());
        });
    }

    /// The core knows of the failures up to this number.
    pub(crate) fn resume(&self, upto: u64) {
        // Fails only when the writer has died, which the next batch reports.
        let _ = self.writer.resume(upto);
    }

    /// Loads a device.
    pub(crate) fn load(&self, device: String, since: Millis) {
        let (hub, id) = (self.hub.clone(), device.clone());
        self.reader.load(device, since, move |loaded| {
            let loaded = loaded.map_err(|e| e.to_string());
            let _ = hub.send(Inside::Input(Input::Loaded { device: id, loaded }));
        });
    }

    /// Reads rows.
    pub(crate) fn read(&self, device: DeviceNo, ticket: u64, positions: Vec<Pos>) {
        let hub = self.hub.clone();
        self.reader.read(positions, move |rows| {
            let rows = rows.map_err(|e| e.to_string());
            let _ = hub.send(Inside::Input(Input::Rows { device, ticket, rows }));
        });
    }

    /// Gives a job to its thread.
    pub(crate) fn media(&self, job: MediaJob) {
        let thread = match &job {
            MediaJob::Spool { .. } | MediaJob::Assemble { .. } | MediaJob::Discard { .. } => &self.incoming,
            MediaJob::Remove { .. }
            | MediaJob::Take { .. }
            | MediaJob::Read { .. }
            | MediaJob::Tidy { .. } => &self.outgoing,
        };
        // Its thread is gone: everything that waits for an answer gets one.
        let Err(job) = thread.give(job) else { return };
        let why = || "the thread for media files has ended".to_owned();
        match job {
            MediaJob::Assemble { device, spool, .. } => self.answer(Input::Assembled {
                device,
                spool,
                done: Err(protocol::problem::Problem::new(protocol::code::ErrorCode::Internal, why())),
            }),
            MediaJob::Take { device, ticket, .. } => {
                self.answer(Input::FileTaken { device, ticket, done: Err(FileRefused::Failed(why())) });
            }
            MediaJob::Read { device, ticket, .. } => {
                self.answer(Input::FileRead { device, ticket, data: Err(why()) });
            }
            MediaJob::Spool { .. }
            | MediaJob::Discard { .. }
            | MediaJob::Remove { .. }
            | MediaJob::Tidy { .. } => {}
        }
    }

    /// Removes rows older than this, one small step; answered by `Trimmed`.
    pub(crate) fn trim(&self, before: Millis) {
        let _ = self.writer.trim(before, TRIM_ROWS);
    }

    fn answer(&self, input: Input) {
        let _ = self.hub.send(Inside::Input(input));
    }

    /// Writes what is under way and ends the threads. Waits for the disk.
    pub(crate) fn close(self) {
        self.reader.stop();
        self.writer.stop();
        self.incoming.stop();
        self.outgoing.stop();
    }
}

fn size(op: &Op) -> usize {
    match op {
        Op::Device { state, .. } => state.len(),
        Op::Append(row) => row.body.len() + row.mark.len(),
    }
}

/// Removes the files that trimmed rows name last. Says whether there may be more to trim.
fn throw_away(rows: Result<Vec<Row>, StoreError>, trash: Option<&mpsc::Sender<MediaJob>>) -> bool {
    let rows = match rows {
        Ok(rows) => rows,
        Err(e) => {
            tracing::warn!("old rows could not be removed: {e}");
            return false;
        }
    };
    for file in rows.iter().filter_map(|row| file_of(&row.body)) {
        if let Some(trash) = trash {
            let _ = trash.send(MediaJob::Remove { file });
        }
    }
    !rows.is_empty()
}

/// The media file that nothing names any more once this row is gone. A file on its way to a device is recorded without
/// `seq` first, and again with it, unless it is never to be replayed: then the first row is often the only one.
fn file_of(body: &[u8]) -> Option<String> {
    match Body::decode(body).ok()? {
        Body::In(record) => match record.what {
            InBody::File { file } => Some(file.file),
            _ => None,
        },
        Body::File(record) if record.seq.is_some() || record.once => Some(record.file),
        _ => None,
    }
}

/// A thread for media files.
struct MediaThread {
    jobs: Option<mpsc::Sender<MediaJob>>,
    thread: JoinHandle<()>,
}

impl MediaThread {
    fn spawn(name: &str, files: Arc<Files>, hub: UnboundedSender<Inside>) -> Result<Self, StartError> {
        let (jobs, queue) = mpsc::channel();
        let run = move || {
            for job in queue {
                if let Some(answer) = work(&files, job) {
                    let _ = hub.send(Inside::Input(answer));
                }
            }
        };
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(run)
            .map_err(|e| StartError::System(format!("no thread for media files: {e}")))?;
        Ok(Self { jobs: Some(jobs), thread })
    }

    fn give(&self, job: MediaJob) -> Result<(), MediaJob> {
        match &self.jobs {
            Some(jobs) => jobs.send(job).map_err(|e| e.0),
            None => Err(job),
        }
    }

    fn stop(mut self) {
        self.jobs = None;
        let _ = self.thread.join();
    }
}

/// One job.
fn work(files: &Files, job: MediaJob) -> Option<Input> {
    match job {
        MediaJob::Spool { spool, part, gate } => {
            if let Err(e) = files.spool(spool, &part) {
                // The file cannot be put together then, and its device is told.
                tracing::warn!("a part of a file could not be kept: {e}");
            }
            drop(part);
            drop(gate);
            None
        }
        MediaJob::Assemble { device, spool, head } => {
            let done = files.assemble(spool, &head).map(|file| MediaDone { file });
            Some(Input::Assembled { device, spool, done })
        }
        MediaJob::Discard { spool } => {
            files.discard(spool);
            None
        }
        MediaJob::Remove { file } => {
            if let Err(e) = files.remove(&file) {
                tracing::warn!("a media file could not be removed: {e}");
            }
            None
        }
        MediaJob::Take { device, ticket, source, mime, filename, kind, now } => {
            let done = files.take_file(&source, mime.as_deref(), filename.as_deref(), kind, now);
            Some(Input::FileTaken { device, ticket, done })
        }
        MediaJob::Read { device, ticket, file, offset, len } => {
            let data = files.read_at(&file, offset, len).map_err(|e| e.to_string());
            Some(Input::FileRead { device, ticket, data })
        }
        MediaJob::Tidy { now } => {
            files.tidy(now);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::record::FileRecord;
    use store::Memory;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::*;

    fn disk() -> (tempfile::TempDir, Disk, UnboundedReceiver<Inside>) {
        let dir = tempfile::tempdir().unwrap();
        let (hub, answers) = unbounded_channel();
        let store = Memory::new("epoch", [0; 32]);
        let disk = Disk::start(dir.path(), Box::new(store), hub).unwrap();
        (dir, disk, answers)
    }

    fn row(pos: Pos, at: Millis, body: &Body) -> Op {
        Op::Append(Row { pos, device: 1, at, mark: Vec::new(), body: body.encode() })
    }

    async fn take(disk: &Disk, answers: &mut UnboundedReceiver<Inside>) -> protocol::link::FileTaken {
        let source = MediaSource::Data(b"some bytes".to_vec());
        let kind = OutKind::Document;
        disk.media(MediaJob::Take { device: 1, ticket: 1, source, mime: None, filename: None, kind, now: 1 });
        match answers.recv().await {
            Some(Inside::Input(Input::FileTaken { done: Ok(taken), .. })) => taken,
            _ => panic!("the file is taken over"),
        }
    }

    #[tokio::test]
    async fn old_rows_go_and_take_their_files_along() {
        let (_dir, mut disk, mut answers) = disk();
        let mut made = Vec::new();
        for _ in 0..3 {
            made.push(take(&disk, &mut answers).await.file);
        }
        let record = |file: &str, seq: Option<u64>| {
            Body::File(FileRecord {
                seq,
                id: "f".to_owned(),
                kind: OutKind::Document,
                mime: "text/plain".to_owned(),
                filename: "f.txt".to_owned(),
                caption: None,
                file: file.to_owned(),
                bytes: 10,
                reply_to: None,
                once: false,
            })
        };
        let device = Op::Device {
            no: 1,
            id: "d".to_owned(),
            state: protocol::record::DeviceState::default().encode(),
            wake: false,
        };
        let ops = vec![
            device,
            row(1, 1_000, &record(&made[0], Some(1))),
            // On its way for long: recorded again, with its place, when it is complete.
            row(2, 1_000, &record(&made[1], None)),
            row(3, 9_000, &record(&made[1], Some(2))),
            row(4, 9_000, &record(&made[2], Some(3))),
        ];
        disk.store(Batch { no: 1, ops, lazy: false });
        assert!(matches!(answers.recv().await, Some(Inside::Input(Input::Stored { upto: 1 }))));
        disk.answered(1);
        let made: Vec<_> = made.iter().map(|file| disk.media_dir().join(file)).collect();
        assert!(made.iter().all(|file| file.exists()));
        for more in [true, false] {
            disk.trim(5_000);
            assert!(matches!(answers.recv().await, Some(Inside::Trimmed { more: is }) if is == more));
        }
        disk.close();
        assert_eq!(made.iter().map(|file| file.exists()).collect::<Vec<_>>(), [false, true, true]);
    }

    #[tokio::test]
    async fn there_is_no_room_while_too_much_is_under_way() {
        let (_dir, mut disk, _answers) = disk();
        assert!(disk.has_room());
        let large = Row { pos: 1, device: 1, at: 1, mark: Vec::new(), body: vec![0; BATCH_BYTES] };
        disk.store(Batch { no: 1, ops: vec![Op::Append(large)], lazy: false });
        assert!(!disk.has_room());
        disk.answered(1);
        assert!(disk.has_room());
        for no in 2..2 + BATCHES as u64 {
            assert!(disk.has_room());
            disk.store(Batch { no, ops: Vec::new(), lazy: true });
        }
        assert!(!disk.has_room());
        disk.answered(2);
        assert!(disk.has_room());
    }

    /// Says that a commit has begun, and hangs in it until it is told to go on.
    struct Hanging(Memory, mpsc::Sender<()>, mpsc::Receiver<()>);

    impl Store for Hanging {
        fn start(&mut self) -> Result<store::Start, StoreError> {
            self.0.start()
        }
        fn commit(&mut self, batches: &[Batch]) -> Result<(), StoreError> {
            let _ = self.1.send(());
            let _ = self.2.recv();
            self.0.commit(batches)
        }
        fn trim(&mut self, before: Millis, max: usize) -> Result<Vec<Row>, StoreError> {
            self.0.trim(before, max)
        }
        fn reader(&self) -> Result<Box<dyn store::Reader>, StoreError> {
            self.0.reader()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_is_answered_unless_the_writer_hangs() {
        let dir = tempfile::tempdir().unwrap();
        let (hub, mut answers) = unbounded_channel();
        let (begins, begun) = mpsc::channel();
        let (go_on, waits) = mpsc::channel();
        let store = Hanging(Memory::new("epoch", [0; 32]), begins, waits);
        let mut disk = Disk::start(dir.path(), Box::new(store), hub).unwrap();
        let probe = |disk: &Disk| {
            let (answer, answered) = oneshot::channel();
            disk.probe(answer);
            answered
        };
        assert!(probe(&disk).await.is_ok(), "nothing to write");
        // Being idle for long is not hanging.
        tokio::time::advance(STUCK * 2).await;
        disk.store(Batch { no: 1, ops: Vec::new(), lazy: false });
        assert!(probe(&disk).await.is_ok(), "just begun");
        tokio::time::advance(STUCK).await;
        assert!(probe(&disk).await.is_err(), "it hangs");
        // Else both batches might share one commit.
        begun.recv().unwrap();
        // More work is no sign of life.
        disk.store(Batch { no: 2, ops: Vec::new(), lazy: false });
        assert!(probe(&disk).await.is_err());
        for no in 1..=2 {
            go_on.send(()).unwrap();
            assert!(
                matches!(answers.recv().await, Some(Inside::Input(Input::Stored { upto })) if upto == no)
            );
            disk.answered(no);
            assert!(probe(&disk).await.is_ok(), "it goes on");
        }
    }
}
