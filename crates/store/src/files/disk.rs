//! The file operations whose order and syncs decide what a power cut leaves. The power-cut test puts its own disk here.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// A file that is being written.
pub trait NewFile: Send {
    /// Appends.
    ///
    /// # Errors
    /// What the system says.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Makes the content durable (not the file's name).
    ///
    /// # Errors
    /// What the system says.
    fn sync(&mut self) -> io::Result<()>;
}

/// A disk. Every path is one that the gateway made.
pub trait Disk: Send + Sync {
    /// Makes a file with mode 0600; it must not exist.
    ///
    /// # Errors
    /// What the system says.
    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>>;
    /// Reads at most `len` bytes from `offset`; fewer at the end of the file.
    ///
    /// # Errors
    /// What the system says.
    fn read(&self, path: &Path, offset: u64, len: usize) -> io::Result<Vec<u8>>;
    /// Gives a file another name, in one step.
    ///
    /// # Errors
    /// What the system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    ///
    /// # Errors
    /// What the system says.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// The files in a directory.
    ///
    /// # Errors
    /// What the system says.
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>>;
    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// What the system says.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
}

/// The real disk.
#[derive(Debug)]
pub struct OsDisk;

impl Disk for OsDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        Ok(Box::new(OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?))
    }

    fn read(&self, path: &Path, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(offset))?;
        let left = file.metadata()?.len().saturating_sub(offset);
        let mut bytes = Vec::with_capacity(len.min(usize::try_from(left).unwrap_or(usize::MAX)));
        file.take(len as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect()
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        crate::dir::sync_dir(dir)
    }
}

impl NewFile for File {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        Write::write_all(self, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}
