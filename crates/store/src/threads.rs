//! The threads around a store: one that writes, in groups, and one that reads.
//!
//! Group commit: while a commit waits for the disk, batches gather; the next commit takes all of them. So a lone batch
//! waits for nobody, and under load one sync pays for many.

use std::{
    io,
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use protocol::{
    Millis,
    record::{Batch, Loaded, Op, Pos, Row},
};

use crate::{Reader, Store, StoreError};

/// A lazy batch waits so long for company.
const LAZY: Duration = Duration::from_secs(1);
/// A trim waits so long for the writer to be idle.
const TRIM_WAIT: Duration = Duration::from_secs(5);
/// A group is full with so many batches...
const GROUP_BATCHES: usize = 512;
/// ...or so many bytes of bodies and states.
const GROUP_BYTES: usize = 8 * 1024 * 1024;

/// What the writer reports. Batch numbers are reported in order, each exactly once.
#[derive(Debug)]
pub enum Done {
    /// All batches up to this number, from the last report on, are on disk.
    Stored {
        /// Last batch of the group.
        upto: u64,
    },
    /// These batches are not on disk and never will be, and neither will any later one until [`Writer::resume`].
    Failed {
        /// First.
        from: u64,
        /// Last.
        upto: u64,
        /// Why, for the log.
        why: String,
    },
    /// Answer to [`Writer::trim`]: the rows that were removed; empty: there is nothing (more) to trim now.
    Trimmed(Result<Vec<Row>, StoreError>),
}

enum Order {
    Batch(Batch),
    Trim { before: Millis, max: usize },
    Resume { upto: u64 },
}

/// Handle of the writing thread. Dropping it stops the thread as [`Writer::stop`] does.
#[derive(Debug)]
pub struct Writer {
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread. `done` is called on it, and must not wait for the writer.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn spawn(store: Box<dyn Store>, done: impl FnMut(Done) + Send + 'static) -> Result<Self, StoreError> {
        Self::spawn_with(store, LAZY, done)
    }

    fn spawn_with(
        store: Box<dyn Store>,
        lazy: Duration,
        done: impl FnMut(Done) + Send + 'static,
    ) -> Result<Self, StoreError> {
        let (orders, queue) = mpsc::channel();
        let worker = Worker { store, done, queue, lazy, group: Group::default(), trim: None, failed: None };
        let thread = spawn("store-write", move || worker.run())?;
        Ok(Self { orders: Some(orders), thread: Some(thread) })
    }

    /// Queues a batch. Never waits.
    ///
    /// # Errors
    /// [`StoreError::Stopped`]: the thread has died (a panic in `done`); the batch is not stored.
    pub fn submit(&self, batch: Batch) -> Result<(), StoreError> {
        self.send(Order::Batch(batch))
    }

    /// The owner knows that batches up to this number failed and builds on none of them: later ones are committed again,
    /// unless a later batch has failed meanwhile. Until then all are refused, since they may build on a failed one.
    ///
    /// # Errors
    /// [`StoreError::Stopped`].
    pub fn resume(&self, upto: u64) -> Result<(), StoreError> {
        self.send(Order::Resume { upto })
    }

    /// Asks for one [`Store::trim`], done when nothing is queued, or after 5 s. A newer request replaces one that waits.
    ///
    /// # Errors
    /// [`StoreError::Stopped`].
    pub fn trim(&self, before: Millis, max: usize) -> Result<(), StoreError> {
        self.send(Order::Trim { before, max })
    }

    /// Commits everything queued, also what is lazy, reports it, closes the store and ends the thread.
    pub fn stop(mut self) {
        self.end();
    }

    fn send(&self, order: Order) -> Result<(), StoreError> {
        let orders = self.orders.as_ref().ok_or(StoreError::Stopped)?;
        orders.send(order).map_err(|_| StoreError::Stopped)
    }

    fn end(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // A panic in `done` has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.end();
    }
}

/// Batches that will be committed together.
#[derive(Default)]
struct Group {
    batches: Vec<Batch>,
    bytes: usize,
    /// When the oldest batch came, if all are lazy.
    lazy_since: Option<Instant>,
}

impl Group {
    fn push(&mut self, batch: Batch) {
        if !batch.lazy {
            self.lazy_since = None;
        } else if self.batches.is_empty() {
            self.lazy_since = Some(Instant::now());
        }
        self.bytes += batch.ops.iter().map(size).sum::<usize>();
        self.batches.push(batch);
    }

    fn full(&self) -> bool {
        self.batches.len() >= GROUP_BATCHES || self.bytes >= GROUP_BYTES
    }
}

fn size(op: &Op) -> usize {
    match op {
        Op::Device { state, .. } => state.len(),
        Op::Append(row) => row.body.len() + row.mark.len(),
    }
}

struct Worker<F> {
    store: Box<dyn Store>,
    done: F,
    queue: Receiver<Order>,
    lazy: Duration,
    group: Group,
    trim: Option<(Instant, Millis, usize)>,
    /// The last batch that failed, and why, until the owner knows of it.
    failed: Option<(u64, String)>,
}

/// What the queue gave.
enum Next {
    Order(Order),
    /// Nothing within the time.
    Nothing,
    /// The handle is gone, and the queue is empty.
    End,
}

impl<F: FnMut(Done)> Worker<F> {
    fn run(mut self) {
        loop {
            match self.next() {
                Next::Order(Order::Batch(batch)) => {
                    self.group.push(batch);
                    if self.group.full() {
                        self.commit();
                    }
                }
                Next::Order(Order::Resume { upto }) => {
                    // What is gathered was built before the owner knew.
                    self.commit();
                    if self.failed.as_ref().is_some_and(|(last, _)| *last <= upto) {
                        self.failed = None;
                    }
                }
                Next::Order(Order::Trim { before, max }) => {
                    // The first request's time counts, so that a steady stream of requests cannot put it off.
                    let since = self.trim.map_or_else(Instant::now, |(since, ..)| since);
                    self.trim = Some((since, before, max));
                }
                Next::Nothing => {
                    let waits = self.group.lazy_since.is_some_and(|t| t.elapsed() < self.lazy);
                    if !waits {
                        self.commit();
                    }
                    self.run_trim();
                }
                Next::End => {
                    self.commit();
                    self.run_trim();
                    return;
                }
            }
            if self.trim.is_some_and(|(since, ..)| since.elapsed() > TRIM_WAIT) {
                self.commit();
                self.run_trim();
            }
        }
    }

    /// The next order: without waiting while there is something to do, else as long as it takes.
    fn next(&self) -> Next {
        let idle = self.group.batches.is_empty() && self.trim.is_none();
        let got = match self.group.lazy_since {
            Some(since) if self.trim.is_none() => {
                self.queue.recv_timeout(self.lazy.saturating_sub(since.elapsed()))
            }
            _ if idle => self.queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
            _ => self.queue.recv_timeout(Duration::ZERO),
        };
        match got {
            Ok(order) => Next::Order(order),
            Err(RecvTimeoutError::Timeout) => Next::Nothing,
            Err(RecvTimeoutError::Disconnected) => Next::End,
        }
    }

    fn commit(&mut self) {
        let Group { batches, .. } = std::mem::take(&mut self.group);
        let (Some(first), Some(last)) = (batches.first(), batches.last()) else { return };
        if self.failed.is_some() {
            self.fail(first.no, last.no, None);
            return;
        }
        match self.store.commit(&batches) {
            Ok(()) => (self.done)(Done::Stored { upto: last.no }),
            // A batch that breaks a rule must not take down what came before it.
            Err(StoreError::Invalid(_)) if batches.len() > 1 => {
                for batch in &batches {
                    if let Err(e) = self.store.commit(std::slice::from_ref(batch)) {
                        self.fail(batch.no, last.no, Some(e.to_string()));
                        return;
                    }
                    (self.done)(Done::Stored { upto: batch.no });
                }
            }
            Err(e) => self.fail(first.no, last.no, Some(e.to_string())),
        }
    }

    /// Reports a failure; without a reason of its own it is that of the failure before.
    fn fail(&mut self, from: u64, upto: u64, why: Option<String>) {
        let why = why.or_else(|| self.failed.take().map(|(_, why)| why)).unwrap_or_default();
        self.failed = Some((upto, why.clone()));
        (self.done)(Done::Failed { from, upto, why });
    }

    fn run_trim(&mut self) {
        if let Some((_, before, max)) = self.trim.take() {
            let done = Done::Trimmed(self.store.trim(before, max));
            (self.done)(done);
        }
    }
}

type Answer<T> = Box<dyn FnOnce(Result<T, StoreError>) + Send>;

enum Question {
    Load { device: String, since: Millis, answer: Answer<Option<Loaded>> },
    Read { positions: Vec<Pos>, answer: Answer<Vec<Row>> },
}

/// Handle of the reading thread. Dropping it answers what was asked and ends the thread.
#[derive(Debug)]
pub struct ReadThread {
    questions: Option<Sender<Question>>,
    thread: Option<JoinHandle<()>>,
}

impl ReadThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn spawn(mut reader: Box<dyn Reader>) -> Result<Self, StoreError> {
        let (questions, queue) = mpsc::channel();
        let thread = spawn("store-read", move || {
            for question in queue {
                match question {
                    Question::Load { device, since, answer } => answer(reader.load(&device, since)),
                    Question::Read { positions, answer } => answer(reader.read(&positions)),
                }
            }
        })?;
        Ok(Self { questions: Some(questions), thread: Some(thread) })
    }

    /// [`Reader::load`]; `answer` is called on the thread, or here with [`StoreError::Stopped`] if that has died.
    /// It sees every batch that was reported as stored before this call.
    pub fn load(
        &self,
        device: String,
        since: Millis,
        answer: impl FnOnce(Result<Option<Loaded>, StoreError>) + Send + 'static,
    ) {
        self.ask(Question::Load { device, since, answer: Box::new(answer) });
    }

    /// [`Reader::read`]; `answer` as for [`Self::load`].
    pub fn read(
        &self,
        positions: Vec<Pos>,
        answer: impl FnOnce(Result<Vec<Row>, StoreError>) + Send + 'static,
    ) {
        self.ask(Question::Read { positions, answer: Box::new(answer) });
    }

    /// Answers what was asked, then ends the thread and closes its connection.
    pub fn stop(mut self) {
        self.end();
    }

    fn ask(&self, question: Question) {
        let refused = match &self.questions {
            Some(questions) => questions.send(question).err().map(|e| e.0),
            None => Some(question),
        };
        match refused {
            Some(Question::Load { answer, .. }) => answer(Err(StoreError::Stopped)),
            Some(Question::Read { answer, .. }) => answer(Err(StoreError::Stopped)),
            None => {}
        }
    }

    fn end(&mut self) {
        self.questions = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for ReadThread {
    fn drop(&mut self) {
        self.end();
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StoreError> {
    let spawned: io::Result<_> = thread::Builder::new().name(name.to_owned()).spawn(run);
    spawned.map_err(|e| StoreError::io("start the thread", name.as_ref(), e))
}

#[cfg(test)]
mod tests;
