//! The machine as the disk of media files.

use std::{
    io,
    path::{Path, PathBuf},
};

use store::files::{Disk, NewFile};

use crate::machine::{Machine, Refused};

/// A [`Disk`] on a [`Machine`].
#[derive(Clone, Default)]
pub struct MediaDisk(pub Machine);

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Missing => io::ErrorKind::NotFound.into(),
            Refused::Full => io::ErrorKind::StorageFull.into(),
            Refused::SyncFailed => Self::other("the sync failed"),
        }
    }
}

struct Open {
    machine: Machine,
    node: usize,
    path: PathBuf,
}

impl NewFile for Open {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        Ok(self.machine.write(self.node, self.machine.len(self.node), bytes)?)
    }
    fn sync(&mut self) -> io::Result<()> {
        Ok(self.machine.sync(self.node, &self.path)?)
    }
}

impl Disk for MediaDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        if self.0.exists(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let node = self.0.open(path, true)?;
        Ok(Box::new(Open { machine: self.0.clone(), node, path: path.to_owned() }))
    }
    fn read(&self, path: &Path, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let node = self.0.open(path, false)?;
        Ok(self.0.read(node, usize::try_from(offset).unwrap_or(usize::MAX), len))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Ok(self.0.rename(from, to)?)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        Ok(self.0.remove(path)?)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        Ok(self.0.list(dir))
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.sync_dir(dir);
        Ok(())
    }
}
