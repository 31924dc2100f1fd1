//! Media files on a machine that loses power at every sync, of files and of directories.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use hermes_mobile_powercut::{Cut, Machine, MediaDisk};
use protocol::{
    client::{MediaKind, MediaPart},
    link::{FileRefused, MediaSource},
    server::OutKind,
};
use store::files::Files;

#[derive(Default)]
struct Seen {
    /// Names and contents that were acknowledged.
    acknowledged: Vec<(String, Vec<u8>)>,
    /// Contents that the program was told to keep, also those that are not done.
    told: Vec<Vec<u8>>,
    cuts: usize,
    wrong: Vec<String>,
}

impl Seen {
    fn look(&mut self, cut: &Cut) {
        self.cuts += 1;
        let at = format!("cut {} ({}, seed {})", cut.no, cut.during, cut.seed);
        for (name, content) in self.acknowledged.iter().take(cut.acknowledged as usize) {
            let file = cut.image.get(&Path::new("/state/media").join(name));
            if file.is_none_or(|f| **f != *content) {
                let left = file.map(|f| f.len());
                self.wrong
                    .push(format!("{at}: an acknowledged file has {left:?} bytes of {}", content.len()));
            }
        }
        for (path, content) in cut.image.iter().filter(|(path, _)| path.starts_with("/state/media")) {
            if !self.told.contains(content) {
                self.wrong.push(format!("{at}: {} is not whole", path.display()));
            }
        }
    }
}

fn content(n: usize, part: u32) -> Vec<u8> {
    (0..700 + 900 * n).map(|i| (i * 7 + n * 13 + part as usize) as u8).collect()
}

fn part(n: usize, part: u32, parts: u32) -> MediaPart {
    MediaPart {
        id: Some(format!("m{n}")),
        kind: MediaKind::Document,
        mime: Some("application/pdf".to_owned()),
        filename: None,
        caption: None,
        part,
        parts,
        data: content(n, part),
    }
}

fn run(fault: impl Fn(&Machine)) -> (usize, Vec<String>) {
    let machine = Machine::default();
    fault(&machine);
    let seen = Arc::new(Mutex::new(Seen::default()));
    let sink = Arc::clone(&seen);
    machine.watch(move |cut| sink.lock().unwrap().look(&cut));
    let files = Files::with_disk(Path::new("/state"), Arc::new(MediaDisk(machine.clone())));
    let keep = |name: &str, content: Vec<u8>| {
        let n = {
            let mut seen = seen.lock().unwrap();
            seen.acknowledged.push((name.to_owned(), content));
            seen.acknowledged.len()
        };
        machine.acknowledge(n as u64);
    };
    for n in 0..8 {
        // What a device sends, in parts.
        let parts = 1 + (n % 3) as u32;
        let whole: Vec<u8> = (0..parts).flat_map(|p| content(n, p)).collect();
        seen.lock().unwrap().told.push(whole.clone());
        for p in 0..parts {
            files.spool(n as u64, &part(n, p, parts)).unwrap();
        }
        let file = files.assemble(n as u64, &part(n, 0, parts)).unwrap();
        keep(&file.file, whole);
        // What an agent sends.
        let data = content(n, 99);
        seen.lock().unwrap().told.push(data.clone());
        let source = MediaSource::Data(data.clone());
        let taken = files.take_file(&source, None, None, OutKind::Document, 0).unwrap();
        keep(&taken.file, data);
        files.clear_spool().unwrap();
    }
    machine.unwatch();
    let mut seen = seen.lock().unwrap();
    (seen.cuts, std::mem::take(&mut seen.wrong))
}

#[test]
fn an_acknowledged_file_outlives_a_cut_at_every_sync_and_between() {
    let (cuts, wrong) = run(|_| {});
    assert!(cuts > 150, "only {cuts} cuts");
    assert!(wrong.is_empty(), "{:#?}", wrong.get(..wrong.len().min(5)));
}

#[test]
fn without_either_sync_the_same_test_finds_the_loss() {
    let lost = |wrong: &[String]| wrong.iter().any(|w| w.contains("an acknowledged file"));
    let (_, wrong) = run(Machine::ignore_file_syncs);
    assert!(lost(&wrong), "content that is not synced: {wrong:?}");
    let (_, wrong) = run(Machine::ignore_dir_syncs);
    assert!(lost(&wrong), "names that are not synced: {wrong:?}");
}

#[test]
fn a_full_disk_and_a_failing_sync_leave_nothing_behind() {
    let left = |machine: &Machine| machine.image(1).len();
    // 1,400 bytes of a file that is written at once; a part that came too early lies beside it until then.
    for (order, needed) in [([0, 1], 1_400), ([1, 0], 2_100)] {
        for room in (0..4_500).step_by(250) {
            let machine = Machine::default();
            let files = Files::with_disk(Path::new("/state"), Arc::new(MediaDisk(machine.clone())));
            machine.set_room(Some(room));
            let spooled = order.iter().all(|no| files.spool(1, &part(0, *no, 2)).is_ok());
            let done = files.assemble(1, &part(0, 0, 2));
            assert_eq!((spooled, done.is_ok()), (room >= 1_400, room >= needed), "{order:?}, room {room}");
            assert_eq!(left(&machine), usize::from(done.is_ok()), "{order:?}, room {room}");
            machine.set_room(None);
            files.spool(1, &part(0, 0, 1)).unwrap();
            files.assemble(1, &part(0, 0, 1)).unwrap();
        }
    }
    let machine = Machine::default();
    let files = Files::with_disk(Path::new("/state"), Arc::new(MediaDisk(machine.clone())));
    machine.fail_sync_after(0);
    let source = MediaSource::Data(content(0, 0));
    let refused = files.take_file(&source, None, None, OutKind::Document, 0);
    assert!(matches!(refused, Err(FileRefused::Failed(_))), "{refused:?}");
    assert_eq!(left(&machine), 0);
}
