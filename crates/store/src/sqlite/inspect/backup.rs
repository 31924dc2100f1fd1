//! A copy of a state directory that opens and serves, taken while the gateway runs or not.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use protocol::record::{Body, Pos};

use super::{Inspector, file_of, unsigned};
use crate::{StoreError, dir};

/// What [`Inspector::backup`] copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Rows of the log.
    pub rows: u64,
    /// Media files.
    pub files: u64,
    /// Bytes of the database and the files.
    pub bytes: u64,
    /// Files that rows of the copy name and that were not there. A gateway says so to the device that wants one.
    pub missing: u64,
    /// Whether there was a token file, which is in the copy then.
    pub token: bool,
}

/// Removes what was begun, unless it was completed.
struct Draft {
    dir: PathBuf,
    done: bool,
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.done {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

impl Inspector {
    /// Copies the store as it is at one moment, the media files that it names and the token file into a directory that
    /// must not exist yet (or be empty). The copy is a state directory: a gateway started on it serves from it. It is
    /// made beside its place and moved there when it is whole and on disk, so what has the name is complete.
    ///
    /// What SQLite had deleted is not in the copy; neither are parts of unfinished files, nor what agents have put into
    /// `media_out` and nobody took yet.
    ///
    /// # Errors
    /// [`StoreError::Exists`] for a place that is taken; else what the system or SQLite said. Nothing is left then.
    pub fn backup(&self, to: &Path) -> Result<Copied, StoreError> {
        let taken = || StoreError::Exists { dir: to.to_owned() };
        match fs::read_dir(to) {
            Ok(mut entries) => {
                if entries.next().is_some() {
                    return Err(taken());
                }
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => return Err(taken()),
            Err(e) => return Err(StoreError::io("read", to, e)),
        }
        let mut draft = to.as_os_str().to_owned();
        draft.push(format!(".part-{}", std::process::id()));
        let mut draft = Draft { dir: PathBuf::from(draft), done: false };
        make_dir(&draft.dir)?;
        let mut copied = Copied::default();
        let database = draft.dir.join(dir::DATABASE);
        self.copy_database(&database)?;
        copied.bytes += fs::metadata(&database).map_err(|e| StoreError::io("read", &database, e))?.len();

        let media = draft.dir.join("media");
        make_dir(&media)?;
        let copy = Self::open(&draft.dir)?;
        copied.rows = copy.number("SELECT count(*) FROM log")?;
        for (file, pos) in copy.named()? {
            match copy_file(&self.media().join(&file), &media.join(&file)) {
                Ok(bytes) => {
                    copied.files += 1;
                    copied.bytes += bytes;
                }
                Err(e) if is_missing(&e) => copied.missing += u64::from(self.has_row(pos)?),
                Err(e) => return Err(e),
            }
        }
        drop(copy);
        match copy_file(&self.state.join("token"), &draft.dir.join("token")) {
            Ok(_) => copied.token = true,
            Err(e) if is_missing(&e) => {}
            Err(e) => return Err(e),
        }
        // Readers leave these behind; a copy does not need them.
        for suffix in ["-wal", "-shm"] {
            let _ = fs::remove_file(draft.dir.join(format!("{}{suffix}", dir::DATABASE)));
        }
        for made in [&media, &draft.dir] {
            dir::sync_dir(made).map_err(|e| StoreError::io("sync", made, e))?;
        }
        fs::rename(&draft.dir, to).map_err(|e| match e.kind() {
            io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotADirectory => taken(),
            _ => StoreError::io("move", &draft.dir, e),
        })?;
        draft.done = true;
        let parent = to.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        dir::sync_dir(parent).map_err(|e| StoreError::io("sync", parent, e))?;
        Ok(copied)
    }

    /// One statement, so one moment of the database.
    fn copy_database(&self, to: &Path) -> Result<(), StoreError> {
        // Made first, for its mode; SQLite fills an empty file.
        private().open(to).map_err(|e| StoreError::io("make", to, e))?;
        let name = to.to_str().ok_or_else(|| {
            StoreError::io("make", to, io::Error::new(io::ErrorKind::InvalidInput, "the name is not UTF-8"))
        })?;
        self.db.execute("VACUUM INTO ?1", [name]).map_err(|e| StoreError::sql("copy to", to, &e))?;
        File::open(to).and_then(|file| file.sync_all()).map_err(|e| StoreError::io("sync", to, e))
    }

    /// The files that rows name, each with one of these rows.
    fn named(&self) -> Result<BTreeMap<String, Pos>, StoreError> {
        let sql = self.place.error("read");
        let mut named = BTreeMap::new();
        let mut select = self.db.prepare("SELECT pos, body FROM log").map_err(&sql)?;
        let mut found = select.query([]).map_err(&sql)?;
        while let Some(row) = found.next().map_err(&sql)? {
            let pos = unsigned(row, 0).map_err(&sql)?;
            let body = row.get_ref(1).map_err(&sql)?.as_bytes().unwrap_or_default();
            if let Ok(body) = Body::decode(body)
                && let Some((file, _)) = file_of(&body)
                // A damaged record must not lead out of the folder.
                && Path::new(file).file_name().is_some_and(|name| name == file)
            {
                named.insert(file.to_owned(), pos);
            }
        }
        Ok(named)
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options
}

fn make_dir(dir: &Path) -> Result<(), StoreError> {
    DirBuilder::new().mode(0o700).create(dir).map_err(|e| StoreError::io("make", dir, e))
}

fn is_missing(error: &StoreError) -> bool {
    matches!(error, StoreError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

/// Copies a file with mode 0600 and syncs it. Returns its size.
fn copy_file(from: &Path, to: &Path) -> Result<u64, StoreError> {
    let mut source = File::open(from).map_err(|e| StoreError::io("read", from, e))?;
    let mut target = private().open(to).map_err(|e| StoreError::io("make", to, e))?;
    let bytes = io::copy(&mut source, &mut target).map_err(|e| StoreError::io("write", to, e))?;
    target.sync_all().map_err(|e| StoreError::io("sync", to, e))?;
    Ok(bytes)
}
