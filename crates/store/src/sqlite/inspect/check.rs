//! Whether what is stored is whole: the database, the chains of the devices, the records, the files that they name.

use std::collections::{HashMap, HashSet};

use protocol::{
    record::{Body, DeviceNo, DeviceState, Mark, Pos},
    words::Lang,
};

use super::{Inspector, file_of, media_files, unsigned};
use crate::{StoreError, sqlite::block};

/// So many findings are listed; the rest is counted.
const LISTED: usize = 100;

/// Something that is not as it should be. No text holds what people said.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// What SQLite's own check says.
    Database(String),
    /// An entry that every store has is missing.
    Meta(&'static str),
    /// A device's state cannot be read.
    State(DeviceNo),
    /// The chain of a device breaks at this row: it does not name the row before it.
    Chain {
        /// Device.
        device: DeviceNo,
        /// Row.
        pos: Pos,
    },
    /// A device does not name its newest row, or its newest block.
    End(DeviceNo),
    /// A row of a device that there is not.
    Stray(Pos),
    /// A block is not what its rows say.
    Block(Pos),
    /// A record cannot be read.
    Record(Pos),
    /// A mark cannot be read.
    Mark(Pos),
    /// A file that a record names is not there.
    NoFile {
        /// Row.
        pos: Pos,
        /// Name in `media/`.
        file: String,
    },
    /// A file has not the size that its record says.
    FileSize {
        /// Row.
        pos: Pos,
        /// Name in `media/`.
        file: String,
    },
}

impl Finding {
    /// In words.
    #[must_use]
    pub fn text(&self, lang: Lang) -> String {
        let en = lang == Lang::En;
        match self {
            Self::Database(why) if en => format!("database: {why}"),
            Self::Database(why) => format!("база: {why}"),
            Self::Meta(key) if en => format!("the entry {key} is missing"),
            Self::Meta(key) => format!("нет записи {key}"),
            Self::State(no) if en => format!("device {no}: its state cannot be read"),
            Self::State(no) => format!("устройство {no}: состояние не читается"),
            Self::Chain { device, pos } if en => format!("device {device}: the chain breaks at row {pos}"),
            Self::Chain { device, pos } => format!("устройство {device}: цепочка рвётся на строке {pos}"),
            Self::End(no) if en => format!("device {no}: it does not name its newest row or block"),
            Self::End(no) => format!("устройство {no}: не названа его последняя строка или последний блок"),
            Self::Stray(pos) if en => format!("row {pos}: there is no such device"),
            Self::Stray(pos) => format!("строка {pos}: такого устройства нет"),
            Self::Block(pos) if en => format!("block {pos}: it is not what its rows say"),
            Self::Block(pos) => format!("блок {pos}: не то, что в его строках"),
            Self::Record(pos) if en => format!("row {pos}: the record cannot be read"),
            Self::Record(pos) => format!("строка {pos}: запись не читается"),
            Self::Mark(pos) if en => format!("row {pos}: the mark cannot be read"),
            Self::Mark(pos) => format!("строка {pos}: метка не читается"),
            Self::NoFile { pos, file } if en => format!("row {pos}: the file media/{file} is not there"),
            Self::NoFile { pos, file } => format!("строка {pos}: нет файла media/{file}"),
            Self::FileSize { pos, file } if en => {
                format!("row {pos}: the file media/{file} has another size")
            }
            Self::FileSize { pos, file } => format!("строка {pos}: у файла media/{file} другой размер"),
        }
    }
}

/// What [`Inspector::check`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Devices, rows and blocks that were looked at.
    pub devices: u64,
    /// See `devices`.
    pub rows: u64,
    /// See `devices`.
    pub blocks: u64,
    /// Different files that records name.
    pub files: u64,
    /// Files that no record names. While a gateway runs these may be files that are just being taken over.
    pub orphans: u64,
    /// Their bytes.
    pub orphan_bytes: u64,
    /// What is wrong, the first hundred.
    pub findings: Vec<Finding>,
    /// How much more is.
    pub more: u64,
}

impl Report {
    /// Whether nothing is wrong. Files that no record names are not: they take space and nothing else.
    #[must_use]
    pub fn sound(&self) -> bool {
        self.findings.is_empty()
    }

    fn found(&mut self, finding: Finding) {
        if self.findings.len() < LISTED {
            self.findings.push(finding);
        } else {
            self.more += 1;
        }
    }
}

/// A device as its row says it is.
struct Claim {
    head: Pos,
    block: Pos,
    tail: u64,
}

/// A device as the log says it is.
#[derive(Default)]
struct Seen {
    head: Pos,
    block: Pos,
    tail: u64,
}

impl Inspector {
    /// Reads everything and compares it. The rows are read from one snapshot, so a gateway that goes on writing
    /// disturbs nothing; its -wal file grows meanwhile.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be read at all; what is merely wrong is in the report.
    pub fn check(&self) -> Result<Report, StoreError> {
        let mut report = Report::default();
        let tx = self.db.unchecked_transaction().map_err(self.place.error("read"))?;
        self.check_database(&mut report)?;
        let claims = self.check_devices(&mut report)?;
        let mut seen = HashMap::new();
        let named = self.check_log(&claims, &mut seen, &mut report)?;
        self.check_blocks(&claims, &mut seen, &mut report)?;
        self.check_ends(&claims, &seen, &mut report)?;
        // From here on the newest state counts: a file may go while its row goes.
        tx.commit().map_err(self.place.error("read"))?;
        self.check_files(&named, &mut report)?;
        Ok(report)
    }

    fn check_database(&self, report: &mut Report) -> Result<(), StoreError> {
        let sql = self.place.error("read");
        let mut select = self.db.prepare("PRAGMA integrity_check").map_err(&sql)?;
        let lines = select.query_map([], |r| r.get::<_, String>(0)).map_err(&sql)?;
        for line in lines {
            let line = line.map_err(&sql)?;
            if line != "ok" {
                report.found(Finding::Database(line));
            }
        }
        for key in ["epoch", "secret"] {
            let is = self.db.query_row("SELECT count(*) FROM meta WHERE key = ?1", [key], |r| unsigned(r, 0));
            if is.map_err(&sql)? == 0 {
                report.found(Finding::Meta(key));
            }
        }
        Ok(())
    }

    fn check_devices(&self, report: &mut Report) -> Result<HashMap<DeviceNo, Claim>, StoreError> {
        let sql = self.place.error("read");
        let mut select =
            self.db.prepare("SELECT no, head, block, tail, state FROM device ORDER BY no").map_err(&sql)?;
        let rows = select
            .query_map([], |r| {
                let claim = Claim { head: unsigned(r, 1)?, block: unsigned(r, 2)?, tail: unsigned(r, 3)? };
                Ok((r.get::<_, DeviceNo>(0)?, claim, r.get::<_, Vec<u8>>(4)?))
            })
            .map_err(&sql)?;
        let mut claims = HashMap::new();
        for row in rows {
            let (no, claim, state) = row.map_err(&sql)?;
            report.devices += 1;
            if DeviceState::decode(&state).is_err() {
                report.found(Finding::State(no));
            }
            claims.insert(no, claim);
        }
        Ok(claims)
    }

    /// Every row, oldest first: each must name the one of its device that came before it. Returns the files that are
    /// named, with one row that does and the size that it says.
    fn check_log(
        &self,
        claims: &HashMap<DeviceNo, Claim>,
        seen: &mut HashMap<DeviceNo, Seen>,
        report: &mut Report,
    ) -> Result<HashMap<String, (Pos, u64)>, StoreError> {
        let sql = self.place.error("read");
        let floor = self.floor()?;
        let mut named = HashMap::new();
        let mut select =
            self.db.prepare("SELECT pos, device, prev, mark, body FROM log ORDER BY pos").map_err(&sql)?;
        let mut found = select.query([]).map_err(&sql)?;
        while let Some(row) = found.next().map_err(&sql)? {
            let columns = || -> rusqlite::Result<(Pos, DeviceNo, Pos)> {
                Ok((unsigned(row, 0)?, row.get(1)?, unsigned(row, 2)?))
            };
            let (pos, device, prev) = columns().map_err(&sql)?;
            report.rows += 1;
            match claims.get(&device) {
                None => report.found(Finding::Stray(pos)),
                Some(claim) => {
                    let seen = seen.entry(device).or_default();
                    // Older ones were trimmed.
                    if prev != seen.head && !(seen.head == 0 && prev < floor) {
                        report.found(Finding::Chain { device, pos });
                    }
                    seen.head = pos;
                    seen.tail += u64::from(pos > claim.block);
                }
            }
            let bytes = |column| row.get_ref(column).ok().and_then(|v| v.as_bytes().ok());
            match bytes(3) {
                Some([]) => {}
                Some(mark) if Mark::decode(mark).is_some() => {}
                _ => report.found(Finding::Mark(pos)),
            }
            match bytes(4).map(Body::decode) {
                Some(Ok(body)) => {
                    if let Some((file, bytes)) = file_of(&body) {
                        named.insert(file.to_owned(), (pos, bytes));
                    }
                }
                _ => report.found(Finding::Record(pos)),
            }
        }
        report.files = named.len() as u64;
        Ok(named)
    }

    /// Every block: it must name the one before it, and hold what its rows say.
    fn check_blocks(
        &self,
        claims: &HashMap<DeviceNo, Claim>,
        seen: &mut HashMap<DeviceNo, Seen>,
        report: &mut Report,
    ) -> Result<(), StoreError> {
        let sql = self.place.error("read");
        let floor = self.floor()?;
        let mut one = self.db.prepare("SELECT device, at, mark FROM log WHERE pos = ?1").map_err(&sql)?;
        let mut select =
            self.db.prepare("SELECT last, device, prev, rows FROM block ORDER BY last").map_err(&sql)?;
        let mut found = select.query([]).map_err(&sql)?;
        while let Some(row) = found.next().map_err(&sql)? {
            let columns = || -> rusqlite::Result<(Pos, DeviceNo, Pos, Vec<u8>)> {
                Ok((unsigned(row, 0)?, row.get(1)?, unsigned(row, 2)?, row.get(3)?))
            };
            let (last, device, prev, bytes) = columns().map_err(&sql)?;
            report.blocks += 1;
            let mut entries = Vec::new();
            let whole = block::unpack(last, &bytes, |pos, at, mark| entries.push((pos, at, mark.to_vec())));
            let mut sound = whole.is_some() && claims.contains_key(&device);
            for (pos, at, mark) in entries.iter().filter(|(pos, ..)| *pos >= floor) {
                let same = one.query_row([pos.cast_signed()], |r| {
                    Ok(r.get::<_, DeviceNo>(0)? == device
                        && unsigned(r, 1)? == *at
                        && r.get_ref(2)?.as_bytes().is_ok_and(|m| m == mark.as_slice()))
                });
                sound &= match same {
                    Ok(same) => same,
                    Err(rusqlite::Error::QueryReturnedNoRows) => false,
                    Err(e) => return Err(sql(e)),
                };
            }
            let seen = seen.entry(device).or_default();
            // Older ones were trimmed.
            sound &= prev == seen.block || (seen.block == 0 && prev < floor);
            seen.block = last;
            if !sound {
                report.found(Finding::Block(last));
            }
        }
        Ok(())
    }

    /// Every device must name the ends that its chain has.
    fn check_ends(
        &self,
        claims: &HashMap<DeviceNo, Claim>,
        seen: &HashMap<DeviceNo, Seen>,
        report: &mut Report,
    ) -> Result<(), StoreError> {
        let floor = self.floor()?;
        let nothing = Seen::default();
        let mut devices: Vec<_> = claims.iter().collect();
        devices.sort_by_key(|(no, _)| **no);
        for (no, claim) in devices {
            let seen = seen.get(no).unwrap_or(&nothing);
            // The end itself may have been trimmed.
            let ends = |claimed: Pos, found: Pos| claimed == found || (found == 0 && claimed < floor);
            let counted = claim.tail == seen.tail || (claim.block < floor && seen.tail < claim.tail);
            if !ends(claim.head, seen.head) || !ends(claim.block, seen.block) || !counted {
                report.found(Finding::End(*no));
            }
        }
        Ok(())
    }

    fn check_files(
        &self,
        named: &HashMap<String, (Pos, u64)>,
        report: &mut Report,
    ) -> Result<(), StoreError> {
        let files = media_files(&self.media())?;
        let mut wrong: Vec<(Pos, Finding)> = Vec::new();
        for (file, (pos, bytes)) in named {
            let (pos, file) = (*pos, file.clone());
            match files.get(&file) {
                Some(size) if size == bytes => {}
                Some(_) => wrong.push((pos, Finding::FileSize { pos, file })),
                None => wrong.push((pos, Finding::NoFile { pos, file })),
            }
        }
        wrong.sort_by_key(|(pos, _)| *pos);
        for (pos, finding) in wrong {
            if self.has_row(pos)? {
                report.found(finding);
            }
        }
        let known: HashSet<&String> = named.keys().collect();
        for (_, bytes) in files.iter().filter(|(file, _)| !known.contains(file)) {
            report.orphans += 1;
            report.orphan_bytes += bytes;
        }
        Ok(())
    }
}
