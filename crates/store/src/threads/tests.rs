//! Group commit, lazy batches, failures, trim and shutdown, on a store that tells what it was asked.

use std::sync::{Arc, Mutex};

use super::*;
use crate::{
    Memory, Start,
    conformance::{batch, device, row},
};

/// Records what is committed, waits for leave where the test wants it, fails on demand.
struct Probe {
    inner: Memory,
    seen: Arc<Mutex<Vec<Vec<u64>>>>,
    /// One token for each commit, if it is there.
    leave: Option<Receiver<()>>,
    entered: Sender<()>,
    fail: Arc<Mutex<bool>>,
}

impl Store for Probe {
    fn start(&mut self) -> Result<Start, StoreError> {
        self.inner.start()
    }
    fn commit(&mut self, batches: &[Batch]) -> Result<(), StoreError> {
        let _ = self.entered.send(());
        if let Some(leave) = &self.leave {
            leave.recv().unwrap();
        }
        self.seen.lock().unwrap().push(batches.iter().map(|b| b.no).collect());
        if *self.fail.lock().unwrap() {
            return Err(StoreError::Full { path: "/x".into() });
        }
        self.inner.commit(batches)
    }
    fn trim(&mut self, before: Millis, max: usize) -> Result<Vec<Row>, StoreError> {
        self.inner.trim(before, max)
    }
    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        self.inner.reader()
    }
}

struct Rig {
    writer: Writer,
    done: Receiver<Done>,
    seen: Arc<Mutex<Vec<Vec<u64>>>>,
    leave: Sender<()>,
    entered: Receiver<()>,
    fail: Arc<Mutex<bool>>,
    memory: Memory,
}

fn rig(gated: bool, lazy: Duration) -> Rig {
    let memory = Memory::new("m", [1; 32]);
    let (leave, gate) = mpsc::channel();
    let (entered, entered_rx) = mpsc::channel();
    let (seen, fail) = (Arc::default(), Arc::default());
    let probe = Probe {
        inner: memory.clone(),
        seen: Arc::clone(&seen),
        leave: gated.then_some(gate),
        entered,
        fail: Arc::clone(&fail),
    };
    let (send, done) = mpsc::channel();
    let writer = Writer::spawn_with(Box::new(probe), lazy, move |d| {
        let _ = send.send(d);
    })
    .unwrap();
    Rig { writer, done, seen, leave, entered: entered_rx, fail, memory }
}

const LONG: Duration = Duration::from_secs(3600);

impl Rig {
    fn submit(&self, no: u64, lazy: bool) {
        let ops = vec![device(1, None, false), Op::Append(row(no, 1, no))];
        self.writer.submit(Batch { lazy, ..batch(no, ops) }).unwrap();
    }
    /// The next report, as words.
    fn next(&self) -> String {
        match self.done.recv_timeout(Duration::from_secs(20)).unwrap() {
            Done::Stored { upto } => format!("stored {upto}"),
            Done::Failed { from, upto, why } => {
                assert!(!why.is_empty());
                format!("failed {from}-{upto}")
            }
            Done::Trimmed(rows) => format!("trimmed {}", rows.unwrap().len()),
        }
    }
    fn groups(&self) -> Vec<Vec<u64>> {
        self.seen.lock().unwrap().clone()
    }
}

#[test]
fn batches_that_come_during_a_commit_share_the_next_one() {
    let rig = rig(true, LONG);
    rig.submit(1, false);
    rig.entered.recv().unwrap();
    for no in 2..=50 {
        rig.submit(no, no % 2 == 0);
    }
    rig.leave.send(()).unwrap();
    rig.leave.send(()).unwrap();
    assert_eq!((rig.next(), rig.next()), ("stored 1".into(), "stored 50".into()));
    assert_eq!(rig.groups(), [vec![1], (2..=50).collect()]);
}

#[test]
fn a_group_is_bounded() {
    let rig = rig(true, LONG);
    rig.submit(1, false);
    rig.entered.recv().unwrap();
    for no in 2..=1 + GROUP_BATCHES as u64 + 3 {
        rig.submit(no, false);
    }
    let big = Row { body: vec![0; GROUP_BYTES], ..row(10_000, 1, 1) };
    rig.writer.submit(batch(1 + GROUP_BATCHES as u64 + 4, vec![Op::Append(big)])).unwrap();
    rig.writer.submit(batch(1 + GROUP_BATCHES as u64 + 5, vec![])).unwrap();
    for _ in 0..4 {
        rig.leave.send(()).unwrap();
    }
    rig.writer.stop();
    let sizes: Vec<usize> = rig.seen.lock().unwrap().iter().map(Vec::len).collect();
    assert_eq!(sizes, [1, GROUP_BATCHES, 4, 1]);
}

#[test]
fn a_lazy_batch_waits_for_company_and_goes_with_it() {
    let rig = rig(false, LONG);
    rig.submit(1, true);
    rig.submit(2, true);
    // Handled in order: when the trim is answered, the lazy batches have been taken and were left waiting.
    rig.writer.trim(0, 1).unwrap();
    assert_eq!(rig.next(), "trimmed 0");
    assert_eq!(rig.groups(), Vec::<Vec<u64>>::new());
    rig.submit(3, false);
    assert_eq!(rig.next(), "stored 3");
    assert_eq!(rig.groups(), [[1, 2, 3]]);
}

#[test]
fn a_lazy_batch_goes_alone_when_its_time_is_over() {
    let rig = rig(false, Duration::from_millis(5));
    rig.submit(1, true);
    assert_eq!(rig.next(), "stored 1");
}

#[test]
fn after_a_failure_nothing_is_stored_until_the_owner_knows_of_it() {
    let rig = rig(true, LONG);
    rig.submit(1, false);
    rig.entered.recv().unwrap();
    *rig.fail.lock().unwrap() = true;
    rig.submit(2, false);
    rig.submit(3, false);
    rig.leave.send(()).unwrap();
    assert_eq!((rig.next(), rig.next()), ("failed 1-1".into(), "failed 2-3".into()));
    *rig.fail.lock().unwrap() = false;
    // These were built by an owner who knew of the first failure only.
    rig.writer.resume(1).unwrap();
    rig.submit(4, false);
    assert_eq!(rig.next(), "failed 4-4");
    rig.writer.resume(3).unwrap();
    rig.submit(5, false);
    assert_eq!(rig.next(), "failed 5-5");
    rig.submit(6, true);
    rig.writer.resume(5).unwrap();
    assert_eq!(rig.next(), "failed 6-6");
    rig.writer.resume(6).unwrap();
    rig.submit(7, false);
    rig.leave.send(()).unwrap();
    assert_eq!(rig.next(), "stored 7");
    assert_eq!(rig.groups(), [[1], [7]], "what was refused was not tried");
    assert_eq!(rig.memory.clone().read(&[1, 2, 3, 4, 5, 6, 7]).unwrap(), [row(7, 1, 7)]);
}

#[test]
fn a_batch_that_breaks_a_rule_fails_with_what_follows_it() {
    let rig = rig(true, LONG);
    rig.submit(1, false);
    rig.entered.recv().unwrap();
    rig.submit(2, false);
    rig.writer.submit(batch(3, vec![Op::Append(row(3, 99, 1))])).unwrap();
    rig.submit(4, false);
    for _ in 0..4 {
        rig.leave.send(()).unwrap();
    }
    let reports: Vec<_> = (0..3).map(|_| rig.next()).collect();
    assert_eq!(reports, ["stored 1", "stored 2", "failed 3-4"]);
}

#[test]
fn stop_flushes_what_is_queued_and_what_is_lazy() {
    let rig = rig(false, LONG);
    for no in 1..=20 {
        rig.submit(no, no > 10);
    }
    rig.writer.trim(5, 100).unwrap();
    rig.writer.stop();
    let reports: Vec<Done> = rig.done.iter().collect();
    assert!(reports.iter().any(|d| matches!(d, Done::Stored { upto: 20 })), "{reports:?}");
    assert_eq!(rig.seen.lock().unwrap().concat(), (1..=20).collect::<Vec<_>>(), "in order, each once");
    assert_eq!(reports.iter().filter(|d| matches!(d, Done::Trimmed(Ok(_)))).count(), 1);
}

#[test]
fn a_trim_comes_after_what_was_queued_before_it() {
    let rig = rig(false, LONG);
    rig.submit(1, false);
    rig.submit(2, false);
    rig.writer.trim(2, 100).unwrap();
    loop {
        let report = rig.next();
        if report.starts_with("trimmed") {
            assert_eq!(report, "trimmed 1");
            break;
        }
    }
}

#[test]
fn a_dead_thread_is_told() {
    let (send, done) = mpsc::channel::<()>();
    let writer = Writer::spawn(Box::new(Memory::new("m", [1; 32])), move |_| {
        // Held until the thread ends.
        let _held = &send;
        std::panic::resume_unwind(Box::new("a fault of the caller's"));
    })
    .unwrap();
    writer.submit(batch(1, vec![])).unwrap();
    assert!(done.recv().is_err());
    // The queue closes as the thread unwinds.
    while writer.submit(batch(2, vec![])).is_ok() {
        thread::yield_now();
    }
    assert!(matches!(writer.trim(0, 1), Err(StoreError::Stopped)));
}

#[test]
fn the_reading_thread_answers_in_order_and_to_the_end() {
    let mut memory = Memory::new("m", [1; 32]);
    memory.commit(&[batch(1, vec![device(1, Some(1), false), Op::Append(row(1, 1, 1))])]).unwrap();
    let reader = ReadThread::spawn(memory.reader().unwrap()).unwrap();
    let (send, answers) = mpsc::channel();
    for i in 0..10 {
        let (a, b) = (send.clone(), send.clone());
        reader.load("d1".to_owned(), 0, move |got| a.send((i, got.unwrap().unwrap().live)).unwrap());
        reader.read(vec![1, 2], move |got| b.send((i, got.unwrap())).unwrap());
    }
    drop(send);
    reader.stop();
    let answers: Vec<_> = answers.iter().collect();
    assert_eq!(
        answers.iter().map(|a| a.0).collect::<Vec<_>>(),
        (0..10).flat_map(|i| [i, i]).collect::<Vec<_>>()
    );
    assert!(answers.iter().all(|a| a.1 == [row(1, 1, 1)]));
}
