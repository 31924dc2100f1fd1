//! The state directory: made, closed to other users, and held by one gateway at a time.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use crate::StoreError;

/// Name of the database in the state directory.
pub const DATABASE: &str = "store.db";
const LOCK: &str = "lock";

/// Makes the state directory (and what leads to it) with mode 0700 if it is not there, and closes it to other users if
/// it is ours. Returns its path without links.
///
/// # Errors
/// [`StoreError::NotPrivate`] for a directory that others may enter and that holds other things than a store: a
/// gateway told to keep its state in a shared directory must not lock everybody out of that. Else what the system said.
pub fn prepare(dir: &Path) -> Result<PathBuf, StoreError> {
    let fail = |doing| move |e| StoreError::io(doing, dir, e);
    if !dir.is_dir() {
        let made: Vec<_> = dir.ancestors().take_while(|a| !a.as_os_str().is_empty() && !a.exists()).collect();
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(fail("make"))?;
        // The entry of each new directory must outlive a power cut, or all that is kept in it is lost.
        for made in made {
            let parent = made.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            sync_dir(parent).map_err(fail("sync the directory of"))?;
        }
    }
    let dir = &dir.canonicalize().map_err(fail("open"))?;
    let mode = fs::metadata(dir).map_err(fail("open"))?.mode() & 0o7777;
    if mode & 0o077 != 0 {
        let ours = dir.join(DATABASE).exists() || fs::read_dir(dir).map_err(fail("read"))?.next().is_none();
        if !ours {
            return Err(StoreError::NotPrivate { dir: dir.clone(), mode });
        }
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).map_err(fail("close to others"))?;
    }
    Ok(dir.clone())
}

/// Makes a subdirectory with mode 0700, or closes it to others.
pub(crate) fn prepare_sub(dir: &Path) -> Result<(), StoreError> {
    let fail = |e| StoreError::io("make", dir, e);
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            // A link here would put people's files somewhere else.
            if !fs::symlink_metadata(dir).map_err(fail)?.is_dir() {
                return Err(StoreError::io("use", dir, std::io::ErrorKind::NotADirectory.into()));
            }
            fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).map_err(fail)?;
        }
        Err(e) => return Err(fail(e)),
    }
    Ok(())
}

/// Held as long as a gateway uses the directory; the system lets go of it when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock of a state directory.
    pub(crate) fn take(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join(LOCK);
        let fail = |doing| {
            let path = path.clone();
            move |e| StoreError::io(doing, &path, e)
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(fail("open"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                // The number is a help for the operator only; without it the message still says what is wrong.
                let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
                return Err(StoreError::InUse { dir: dir.to_owned(), pid });
            }
            Err(TryLockError::Error(e)) => return Err(fail("lock")(e)),
        }
        // A full disk must not keep a gateway from starting to read, so the number may stay out.
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| write!(file, "{}", std::process::id()));
        Ok(Self { _file: file })
    }
}

/// Makes the database file with mode 0600 and its directory entry durable, or closes it (and its companions) to others.
pub(crate) fn prepare_database(dir: &Path) -> Result<PathBuf, StoreError> {
    let path = dir.join(DATABASE);
    let with = |suffix: &str| dir.join(format!("{DATABASE}{suffix}"));
    let size = |path: &Path| fs::metadata(path).map(|m| m.len()).unwrap_or(0);
    if size(&path) == 0 && size(&with("-wal")) > 0 {
        // Opened as it is, SQLite would take this for a new store and throw the -wal away.
        return Err(StoreError::Damaged {
            path,
            why: "its -wal file is here, but the database itself is missing or empty".to_owned(),
        });
    }
    let fail = |doing| {
        let path = path.clone();
        move |e| StoreError::io(doing, &path, e)
    };
    if path.exists() {
        for path in [path.clone(), with("-wal"), with("-shm"), with("-journal")] {
            let Ok(meta) = fs::metadata(&path) else { continue };
            if meta.mode() & 0o077 != 0 {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
                    .map_err(fail("close to others"))?;
            }
        }
        // SQLite says of a file that it cannot open only that it cannot; this says why.
        OpenOptions::new().read(true).write(true).open(&path).map_err(fail("open"))?;
    } else {
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(fail("make"))?;
        sync_dir(dir).map_err(fail("sync the directory of"))?;
    }
    Ok(path)
}

/// Makes the entries of a directory durable.
pub(crate) fn sync_dir(dir: &Path) -> std::io::Result<()> {
    File::open(dir)?.sync_all()
}
