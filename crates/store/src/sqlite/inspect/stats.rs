//! How much of what is stored.

use std::{collections::BTreeMap, fs};

use protocol::{
    Millis,
    record::{Body, InBody},
};

use super::{Inspector, media_files, unsigned};
use crate::{StoreError, dir};

/// What a row of the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the kinds of `protocol::record::Body`, which describes them")]
pub enum Kind {
    Text,
    FileIn,
    CardOver,
    Message,
    Bubble,
    FileOut,
    Card,
    CardTaken,
    CardDone,
    Delivered,
    Unreadable,
}

impl Kind {
    /// Of a body; one that this version cannot read is a kind of its own.
    #[must_use]
    pub fn of(body: &[u8]) -> Self {
        match Body::decode(body) {
            Ok(Body::In(record)) => match record.what {
                InBody::Text { .. } => Self::Text,
                InBody::File { .. } => Self::FileIn,
                InBody::Card { .. } => Self::CardOver,
            },
            Ok(Body::Message(_)) => Self::Message,
            Ok(Body::Bubble(_)) => Self::Bubble,
            Ok(Body::File(_)) => Self::FileOut,
            Ok(Body::Card(_)) => Self::Card,
            Ok(Body::CardTaken { .. }) => Self::CardTaken,
            Ok(Body::CardDone { .. }) => Self::CardDone,
            Ok(Body::Delivered { .. }) => Self::Delivered,
            Err(_) => Self::Unreadable,
        }
    }

    /// One word, for programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::FileIn => "file_in",
            Self::CardOver => "card_over",
            Self::Message => "message",
            Self::Bubble => "bubble",
            Self::FileOut => "file_out",
            Self::Card => "card",
            Self::CardTaken => "card_taken",
            Self::CardDone => "card_done",
            Self::Delivered => "delivered",
            Self::Unreadable => "unreadable",
        }
    }
}

/// Rows of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// How many.
    pub count: u64,
    /// Bytes of their bodies and marks.
    pub bytes: u64,
}

/// What [`Inspector::stats`] counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Devices that ever came.
    pub devices: u64,
    /// Those with something unfinished: input that waits, open cards or bubbles.
    pub unfinished: u64,
    /// Rows by kind; a kind without rows is left out.
    pub rows: BTreeMap<Kind, Rows>,
    /// Time of the oldest row, and of the newest.
    pub oldest: Option<Millis>,
    /// See `oldest`.
    pub newest: Option<Millis>,
    /// Size of the database, bytes.
    pub database_bytes: u64,
    /// Size of its -wal file, bytes.
    pub wal_bytes: u64,
    /// Files in `media/`.
    pub files: u64,
    /// Their bytes.
    pub file_bytes: u64,
}

impl Inspector {
    /// Counts what is stored. Reads the whole log.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn stats(&self) -> Result<Stats, StoreError> {
        let mut stats = Stats {
            devices: self.number("SELECT count(*) FROM device")?,
            unfinished: self.number("SELECT count(*) FROM device WHERE wake = 1")?,
            ..Stats::default()
        };
        let sql = self.place.error("read");
        let mut select = self.db.prepare("SELECT at, length(mark), body FROM log").map_err(&sql)?;
        let mut found = select.query([]).map_err(&sql)?;
        while let Some(row) = found.next().map_err(&sql)? {
            let mut one = || -> rusqlite::Result<()> {
                let (at, mark) = (unsigned(row, 0)?, unsigned(row, 1)?);
                let body = row.get_ref(2)?.as_bytes().unwrap_or_default();
                let rows = stats.rows.entry(Kind::of(body)).or_default();
                rows.count += 1;
                rows.bytes += mark + body.len() as u64;
                stats.oldest = Some(stats.oldest.map_or(at, |oldest| oldest.min(at)));
                stats.newest = stats.newest.max(Some(at));
                Ok(())
            };
            one().map_err(&sql)?;
        }
        let bytes = |suffix: &str| {
            let path = self.state.join(format!("{}{suffix}", dir::DATABASE));
            fs::metadata(path).map(|meta| meta.len()).unwrap_or(0)
        };
        (stats.database_bytes, stats.wal_bytes) = (bytes(""), bytes("-wal"));
        let files = media_files(&self.media())?;
        (stats.files, stats.file_bytes) = (files.len() as u64, files.values().sum());
        Ok(stats)
    }
}
