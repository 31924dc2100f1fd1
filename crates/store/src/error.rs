//! Why the store could not do it, in words that tell an operator what to do next.

use std::{
    io,
    path::{Path, PathBuf},
};

use protocol::words::Lang;

/// Why the store could not do it. `Display` is English; [`StoreError::text`] has both languages.
///
/// No text holds a token or anything that people said.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another gateway holds the lock of this state directory.
    #[error(
        "another gateway{} is running on {}: stop it, or give this one another state directory",
        process(*.pid, Lang::En), .dir.display()
    )]
    InUse {
        /// The state directory.
        dir: PathBuf,
        /// The other's process id, when its lock file tells.
        pid: Option<u32>,
    },
    /// Another program (a backup, an SQLite shell) holds the database.
    #[error("{} is locked by another program: close it; nothing is lost", .path.display())]
    Busy {
        /// The database.
        path: PathBuf,
    },
    /// There is no store in this directory.
    #[error("there is no store in {}: name the state directory of a gateway that was started before (--state)", .dir.display())]
    Missing {
        /// The directory.
        dir: PathBuf,
    },
    /// The place for a copy is taken.
    #[error("{} is there already and is not an empty directory: name another place", .dir.display())]
    Exists {
        /// The place.
        dir: PathBuf,
    },
    /// The state directory may be entered by others and holds other things, so it is not simply closed to them.
    #[error(
        "{} is open to other users (mode {mode:o}) and holds other files: run `chmod 700` on it, or use a directory of its own",
        .dir.display()
    )]
    NotPrivate {
        /// The state directory.
        dir: PathBuf,
        /// Its mode bits.
        mode: u32,
    },
    /// The system forbids it.
    #[error("no permission to {doing} {}: it must belong to the user that runs the gateway", .path.display())]
    Permission {
        /// What was tried, a verb.
        doing: &'static str,
        /// On what.
        path: PathBuf,
    },
    /// The file system or the file cannot be written.
    #[error("{} cannot be written (read-only): mount it writable, or use another state directory", .path.display())]
    ReadOnly {
        /// What.
        path: PathBuf,
    },
    /// No space is left. The store goes on when there is some.
    #[error("no space left for {}: free some; the gateway then goes on by itself", .path.display())]
    Full {
        /// What could not grow.
        path: PathBuf,
    },
    /// The database is damaged. It is never deleted or repaired by the gateway.
    #[error(
        "{} is damaged ({why}): stop the gateway, move the file and its -wal and -shm away (keep them), and restore a backup or start anew",
        .path.display()
    )]
    Damaged {
        /// The database.
        path: PathBuf,
        /// How it was noticed.
        why: String,
    },
    /// A database, but of another program.
    #[error("{} is a database of another program (application id {found:#010x}): use another state directory", .path.display())]
    NotOurs {
        /// The database.
        path: PathBuf,
        /// Its application id.
        found: u32,
    },
    /// Written by a newer gateway.
    #[error(
        "{} has format {found}, this gateway knows up to {known}: start the newer gateway that wrote it, or restore the backup from before the upgrade",
        .path.display()
    )]
    Newer {
        /// The database.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format that this binary knows.
        known: u32,
    },
    /// Something else that the system refused.
    #[error("cannot {doing} {}: {source}. Check this path and the disk", .path.display())]
    Io {
        /// What was tried, a verb.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something else that SQLite refused.
    #[error("cannot {doing} {}: {why}", .path.display())]
    Sql {
        /// What was tried, a verb.
        doing: &'static str,
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        why: String,
    },
    /// The batch breaks a rule of the store: a fault of the program, never of the disk.
    #[error("the batch cannot be stored: {0}")]
    Invalid(String),
    /// The store's thread has ended.
    #[error("the store is stopped")]
    Stopped,
}

fn process(pid: Option<u32>, lang: Lang) -> String {
    match (pid, lang) {
        (None, _) => String::new(),
        (Some(pid), Lang::En) => format!(" (process {pid})"),
        (Some(pid), Lang::Ru) => format!(" (процесс {pid})"),
    }
}

impl StoreError {
    /// The text in a language.
    #[must_use]
    pub fn text(&self, lang: Lang) -> String {
        if lang == Lang::En {
            return self.to_string();
        }
        match self {
            Self::InUse { dir, pid } => format!(
                "на {} уже работает другой шлюз{}: остановите его или задайте этому другой каталог состояния",
                dir.display(),
                process(*pid, lang)
            ),
            Self::Busy { path } => {
                format!("{} занят другой программой: закройте её; ничего не потеряно", path.display())
            }
            Self::Missing { dir } => format!(
                "в {} нет хранилища: назовите каталог состояния шлюза, который уже запускался (--state)",
                dir.display()
            ),
            Self::Exists { dir } => {
                format!("{} уже есть, и это не пустой каталог: назовите другое место", dir.display())
            }
            Self::NotPrivate { dir, mode } => format!(
                "каталог {} открыт другим пользователям (права {mode:o}) и содержит чужие файлы: выполните для него `chmod 700` или возьмите отдельный каталог",
                dir.display()
            ),
            Self::Permission { path, .. } => format!(
                "нет прав на {}: владельцем должен быть пользователь, от имени которого работает шлюз",
                path.display()
            ),
            Self::ReadOnly { path } => format!(
                "{} доступен только для чтения: смонтируйте его для записи или возьмите другой каталог состояния",
                path.display()
            ),
            Self::Full { path } => {
                format!("нет места для {}: освободите место, дальше шлюз продолжит сам", path.display())
            }
            Self::Damaged { path, why } => format!(
                "{} повреждён ({why}): остановите шлюз, уберите файл вместе с -wal и -shm в другое место (не удаляйте) и восстановите копию или начните заново",
                path.display()
            ),
            Self::NotOurs { path, found } => format!(
                "{} — база другой программы (application id {found:#010x}): возьмите другой каталог состояния",
                path.display()
            ),
            Self::Newer { path, found, known } => format!(
                "{}: формат {found}, этот шлюз знает форматы до {known}: запустите более новый шлюз, который его записал, или восстановите копию, сделанную до обновления",
                path.display()
            ),
            Self::Io { path, source, .. } => {
                format!("не удаётся работать с {}: {source}. Проверьте этот путь и диск", path.display())
            }
            Self::Sql { path, why, .. } => format!("ошибка базы, {}: {why}", path.display()),
            Self::Invalid(why) => format!("пакет нельзя сохранить: {why}"),
            Self::Stopped => "хранилище остановлено".to_owned(),
        }
    }

    /// From what the system said.
    pub(crate) fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::Permission { doing, path },
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { path },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Self::Full { path }
            }
            _ => Self::Io { doing, path, source },
        }
    }

    /// From what SQLite said.
    pub(crate) fn sql(doing: &'static str, path: &Path, error: &rusqlite::Error) -> Self {
        use rusqlite::{ErrorCode, ffi};
        let path = path.to_owned();
        let why = error.to_string();
        let rusqlite::Error::SqliteFailure(failure, _) = error else {
            return match error {
                // A value of another type than the schema says can only come from a damaged file.
                rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::IntegralValueOutOfRange(..)
                | rusqlite::Error::InvalidColumnType(..) => Self::Damaged { path, why },
                _ => Self::Sql { doing, path, why },
            };
        };
        match (failure.code, failure.extended_code) {
            (_, ffi::SQLITE_IOERR_SHMSIZE) | (ErrorCode::DiskFull, _) => Self::Full { path },
            (ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked, _) => Self::Busy { path },
            (ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase, _) => Self::Damaged { path, why },
            (ErrorCode::ReadOnly, _) => Self::ReadOnly { path },
            (ErrorCode::PermissionDenied, _) => Self::Permission { doing, path },
            (ErrorCode::ConstraintViolation | ErrorCode::TooBig, _) => Self::Invalid(why),
            _ => Self::Sql { doing, path, why },
        }
    }
}
