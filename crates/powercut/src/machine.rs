//! The disk: what programs see, and what would be left of it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// What a disk keeps or loses as a whole, bytes.
const SECTOR: usize = 512;

/// Files by name: what a power cut has left.
pub type Image = BTreeMap<PathBuf, Arc<Vec<u8>>>;

/// A moment at which the power may fail, and one of the things that can be left then.
#[derive(Clone, Debug)]
pub struct Cut {
    /// The how-manieth cut of its machine.
    pub no: u64,
    /// What was being done.
    pub during: String,
    /// Which of the possible images: 0 nothing unsynced, 1 all of it, else a mixture.
    pub seed: u64,
    /// Last number given to [`Machine::acknowledge`].
    pub acknowledged: u64,
    /// What is left.
    pub image: Image,
}

/// Faults of the machine or of the program, by choice of the test.
#[derive(Clone, Debug, Default)]
struct Faults {
    ignore_file_syncs: bool,
    ignore_dir_syncs: bool,
    /// Bytes that files may still grow by.
    room: Option<u64>,
    /// The sync after so many fails, and drops what it should have kept.
    failing_sync: Option<u64>,
}

type Sink = Box<dyn FnMut(Cut) + Send>;

#[derive(Default)]
struct Inner {
    nodes: Vec<Node>,
    names: BTreeMap<PathBuf, usize>,
    kept_names: BTreeMap<PathBuf, usize>,
    /// Changes of names that no directory sync has made durable.
    changes: Vec<Change>,
    faults: Faults,
    sink: Option<Sink>,
    cuts: u64,
    acknowledged: u64,
}

#[derive(Default)]
struct Node {
    now: Vec<u8>,
    kept: Arc<Vec<u8>>,
    /// What was done since the last sync.
    log: Vec<Write>,
}

enum Write {
    Data { at: usize, bytes: Vec<u8> },
    Length(usize),
}

/// A rename is a link and an unlink: harsher than any real file system, and the store needs no more.
enum Change {
    Link(PathBuf, usize),
    Unlink(PathBuf),
}

impl Change {
    fn path(&self) -> &Path {
        match self {
            Self::Link(path, _) | Self::Unlink(path) => path,
        }
    }
    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        match self {
            Self::Link(path, node) => names.insert(path.clone(), *node),
            Self::Unlink(path) => names.remove(path),
        };
    }
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Default)]
pub struct Machine {
    inner: Arc<Mutex<Inner>>,
}

/// Why an operation was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Missing,
    Full,
    SyncFailed,
}

impl Machine {
    /// A machine after the power came back.
    #[must_use]
    pub fn from_image(image: &Image) -> Self {
        let machine = Self::default();
        {
            let mut inner = machine.lock();
            for (path, bytes) in image {
                let node = inner.nodes.len();
                inner.nodes.push(Node { now: bytes.to_vec(), kept: Arc::clone(bytes), log: Vec::new() });
                inner.names.insert(path.clone(), node);
                inner.kept_names.insert(path.clone(), node);
            }
        }
        machine
    }

    /// Puts an empty file there, durably: what the store does before it lets SQLite open its database.
    pub fn put_empty(&self, path: &Path) {
        let mut inner = self.lock();
        let node = inner.nodes.len();
        inner.nodes.push(Node::default());
        inner.names.insert(path.to_owned(), node);
        inner.kept_names.insert(path.to_owned(), node);
    }

    /// Calls `sink` with what a power cut could leave: before each sync with nothing, all, and two mixtures of what is
    /// not synced; after it with nothing; at every other change with a mixture; at each acknowledgement with nothing.
    pub fn watch(&self, sink: impl FnMut(Cut) + Send + 'static) {
        self.lock().sink = Some(Box::new(sink));
    }

    /// Ends [`Self::watch`].
    pub fn unwatch(&self) {
        self.lock().sink = None;
    }

    /// The program has told somebody that everything up to `n` is kept.
    pub fn acknowledge(&self, n: u64) {
        let mut inner = self.lock();
        inner.acknowledged = n;
        inner.cut("acknowledged", &[0]);
    }

    /// From now on a sync of a file does nothing.
    pub fn ignore_file_syncs(&self) {
        self.lock().faults.ignore_file_syncs = true;
    }

    /// From now on a sync of a directory does nothing.
    pub fn ignore_dir_syncs(&self) {
        self.lock().faults.ignore_dir_syncs = true;
    }

    /// Files may grow by so many bytes in all; then the disk is full. `None`: no bound.
    pub fn set_room(&self, bytes: Option<u64>) {
        self.lock().faults.room = bytes;
    }

    /// The sync after `n` others fails, and what it should have kept is lost though files still show it (what Linux
    /// does with pages that could not be written).
    pub fn fail_sync_after(&self, n: u64) {
        self.lock().faults.failing_sync = Some(n);
    }

    /// What would be left now; see [`Cut::seed`].
    #[must_use]
    pub fn image(&self, seed: u64) -> Image {
        self.lock().image(seed, seed)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // What files can be asked to do.

    /// Opens or makes a file.
    pub(crate) fn open(&self, path: &Path, create: bool) -> Result<usize, Refused> {
        let mut inner = self.lock();
        if let Some(node) = inner.names.get(path) {
            return Ok(*node);
        }
        if !create {
            return Err(Refused::Missing);
        }
        let node = inner.nodes.len();
        inner.nodes.push(Node::default());
        inner.names.insert(path.to_owned(), node);
        inner.changes.push(Change::Link(path.to_owned(), node));
        inner.cut("create", &[2]);
        Ok(node)
    }

    pub(crate) fn exists(&self, path: &Path) -> bool {
        self.lock().names.contains_key(path)
    }

    pub(crate) fn len(&self, node: usize) -> usize {
        self.lock().nodes.get(node).map_or(0, |n| n.now.len())
    }

    pub(crate) fn read(&self, node: usize, at: usize, len: usize) -> Vec<u8> {
        let inner = self.lock();
        let Some(node) = inner.nodes.get(node) else { return Vec::new() };
        let end = at.saturating_add(len).min(node.now.len());
        node.now.get(at..end).unwrap_or_default().to_vec()
    }

    pub(crate) fn write(&self, node: usize, at: usize, bytes: &[u8]) -> Result<(), Refused> {
        let mut inner = self.lock();
        let Inner { nodes, faults, .. } = &mut *inner;
        let Some(node) = nodes.get_mut(node) else { return Err(Refused::Missing) };
        let growth = (at + bytes.len()).saturating_sub(node.now.len()) as u64;
        if let Some(room) = &mut faults.room {
            *room = room.checked_sub(growth).ok_or(Refused::Full)?;
        }
        put(&mut node.now, at, bytes);
        node.log.push(Write::Data { at, bytes: bytes.to_vec() });
        inner.cut("write", &[2]);
        Ok(())
    }

    pub(crate) fn set_len(&self, node: usize, len: usize) {
        let mut inner = self.lock();
        if let Some(node) = inner.nodes.get_mut(node) {
            node.now.resize(len, 0);
            node.log.push(Write::Length(len));
        }
        inner.cut("truncate", &[2]);
    }

    /// `name`: only for [`Cut::during`].
    pub(crate) fn sync(&self, node: usize, name: &Path) -> Result<(), Refused> {
        let mut inner = self.lock();
        let name = name.display();
        inner.cut(&format!("before the sync of {name}"), &[0, 1, 2, 3]);
        let fails = match &mut inner.faults.failing_sync {
            Some(0) => true,
            Some(n) => {
                *n -= 1;
                false
            }
            None => false,
        };
        let ignored = inner.faults.ignore_file_syncs;
        if fails {
            inner.faults.failing_sync = None;
        }
        if let Some(node) = inner.nodes.get_mut(node)
            && !ignored
        {
            node.log.clear();
            if !fails {
                node.kept = Arc::new(node.now.clone());
            }
        }
        inner.cut(&format!("after the sync of {name}"), &[0]);
        if fails { Err(Refused::SyncFailed) } else { Ok(()) }
    }

    pub(crate) fn rename(&self, from: &Path, to: &Path) -> Result<(), Refused> {
        let mut inner = self.lock();
        let node = inner.names.remove(from).ok_or(Refused::Missing)?;
        inner.names.insert(to.to_owned(), node);
        inner.changes.push(Change::Link(to.to_owned(), node));
        inner.changes.push(Change::Unlink(from.to_owned()));
        inner.cut("rename", &[0, 1, 2, 3]);
        Ok(())
    }

    pub(crate) fn remove(&self, path: &Path) -> Result<(), Refused> {
        let mut inner = self.lock();
        inner.names.remove(path).ok_or(Refused::Missing)?;
        inner.changes.push(Change::Unlink(path.to_owned()));
        inner.cut("remove", &[0, 1, 2, 3]);
        Ok(())
    }

    pub(crate) fn list(&self, dir: &Path) -> Vec<PathBuf> {
        self.lock().names.keys().filter(|path| path.parent() == Some(dir)).cloned().collect()
    }

    pub(crate) fn sync_dir(&self, dir: &Path) {
        let mut inner = self.lock();
        inner.cut(&format!("before the sync of the directory {}", dir.display()), &[0, 1, 2, 3]);
        if !inner.faults.ignore_dir_syncs {
            let Inner { changes, kept_names, .. } = &mut *inner;
            changes.retain(|change| {
                let here = change.path().parent() == Some(dir);
                if here {
                    change.apply(kept_names);
                }
                !here
            });
        }
        inner.cut(&format!("after the sync of the directory {}", dir.display()), &[0]);
    }
}

impl Inner {
    fn cut(&mut self, during: &str, seeds: &[u64]) {
        let Some(mut sink) = self.sink.take() else { return };
        for seed in seeds {
            self.cuts += 1;
            let image = self.image(*seed, self.cuts);
            sink(Cut {
                no: self.cuts,
                during: during.to_owned(),
                seed: *seed,
                acknowledged: self.acknowledged,
                image,
            });
        }
        self.sink = Some(sink);
    }

    fn image(&self, seed: u64, salt: u64) -> Image {
        let mut chance = Chance::new(seed, salt);
        let mut names = self.kept_names.clone();
        for change in &self.changes {
            if chance.keeps() {
                change.apply(&mut names);
            }
        }
        names
            .into_iter()
            .filter_map(|(path, node)| Some((path, self.nodes.get(node)?.left(&mut chance))))
            .collect()
    }
}

impl Node {
    fn left(&self, chance: &mut Chance) -> Arc<Vec<u8>> {
        if self.log.is_empty() || matches!(chance, Chance::Nothing) {
            return Arc::clone(&self.kept);
        }
        let mut bytes = self.kept.to_vec();
        for write in &self.log {
            match write {
                Write::Data { at, bytes: data } => {
                    let mut at = *at;
                    let mut rest = data.as_slice();
                    while !rest.is_empty() {
                        let (piece, after) = rest.split_at(rest.len().min(SECTOR - at % SECTOR));
                        if chance.keeps() {
                            put(&mut bytes, at, piece);
                        }
                        at += piece.len();
                        rest = after;
                    }
                }
                Write::Length(len) => {
                    if chance.keeps() {
                        bytes.resize(*len, 0);
                    }
                }
            }
        }
        Arc::new(bytes)
    }
}

fn put(bytes: &mut Vec<u8>, at: usize, data: &[u8]) {
    if bytes.len() < at + data.len() {
        bytes.resize(at + data.len(), 0);
    }
    if let Some(place) = bytes.get_mut(at..at + data.len()) {
        place.copy_from_slice(data);
    }
}

/// Whether what was not synced survives.
enum Chance {
    Nothing,
    All,
    /// Of 256; state of the generator (SplitMix64).
    Some(u64, u64),
}

impl Chance {
    fn new(seed: u64, salt: u64) -> Self {
        match seed {
            0 => Self::Nothing,
            1 => Self::All,
            seed => {
                let mut start = Self::Some(128, seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ salt);
                // Sometimes nearly all is kept, sometimes nearly nothing.
                let odds = [16, 128, 240];
                let odds = odds.get(start.next() as usize % odds.len()).copied().unwrap_or(128);
                if let Self::Some(old, _) = &mut start {
                    *old = odds;
                }
                start
            }
        }
    }

    fn next(&mut self) -> u64 {
        let Self::Some(_, state) = self else { return 0 };
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn keeps(&mut self) -> bool {
        match self {
            Self::Nothing => false,
            Self::All => true,
            Self::Some(odds, _) => {
                let odds = *odds;
                self.next() % 256 < odds
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_synced_survives_and_what_is_not_may_be_torn() {
        let machine = Machine::default();
        let path = Path::new("/d/f");
        let node = machine.open(path, true).unwrap();
        machine.write(node, 0, &[1; 2048]).unwrap();
        machine.sync(node, path).unwrap();
        assert!(machine.image(0).is_empty(), "the name is not synced");
        machine.sync_dir(Path::new("/d"));
        assert_eq!(**machine.image(0).get(path).unwrap(), [1; 2048]);
        machine.write(node, 256, &[2; 1024]).unwrap();
        machine.set_len(node, 1500);
        assert_eq!(**machine.image(0).get(path).unwrap(), [1; 2048]);
        assert_eq!(machine.image(1).get(path).unwrap().len(), 1500);
        let torn = (2..200).map(|seed| machine.image(seed)).any(|image| {
            let bytes = image.get(path).unwrap();
            bytes[256..512] == [1; 256] && bytes[512..1024] == [2; 512] && bytes[1024..1280] == [1; 256]
        });
        assert!(torn, "a middle sector without its neighbours");
    }

    #[test]
    fn names_survive_with_their_directory() {
        let machine = Machine::default();
        let (from, to) = (Path::new("/a/f"), Path::new("/b/f"));
        let node = machine.open(from, true).unwrap();
        machine.sync(node, from).unwrap();
        machine.rename(from, to).unwrap();
        machine.sync_dir(Path::new("/a"));
        assert!(machine.image(0).is_empty());
        machine.sync_dir(Path::new("/b"));
        assert_eq!(machine.image(0).keys().collect::<Vec<_>>(), [to]);
        machine.remove(to).unwrap();
        assert_eq!(machine.image(0).len(), 1);
        assert_eq!(machine.image(1).len(), 0);
    }
}
