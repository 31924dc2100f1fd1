//! Files from the server: puts parts together.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
};

use protocol::server::Media;

use super::event::File;

/// Most files that are open at a time.
const OPEN: usize = 16;
/// Most parts of one file.
const PARTS: u32 = 4_096;
/// So many finished ids are remembered.
const DONE: usize = 1_024;

#[derive(Debug)]
struct Open {
    head: Media,
    parts: HashMap<u32, Vec<u8>>,
    bytes: usize,
}

/// The files of a session.
#[derive(Debug)]
pub(super) struct Files {
    max: usize,
    open: HashMap<String, Open>,
    /// Open ids by age.
    order: VecDeque<String>,
    /// Finished ids with a hash of what they were.
    done: HashMap<String, u64>,
    done_order: VecDeque<String>,
    /// Ids of which further parts are ignored until part 0 comes again.
    ended: HashSet<String>,
}

impl Files {
    /// `max`: largest file, decoded bytes.
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            open: HashMap::new(),
            order: VecDeque::new(),
            done: HashMap::new(),
            done_order: VecDeque::new(),
            ended: HashSet::new(),
        }
    }

    /// The connection is gone: the server sends an unfinished file again from part 0.
    pub(super) fn cut(&mut self) {
        self.open.clear();
        self.order.clear();
        self.ended.clear();
    }

    /// Takes a part. `Ok(None)`: not complete yet, or the same file again.
    pub(super) fn take(&mut self, mut frame: Media) -> Result<Option<File>, String> {
        let id = frame.id.clone();
        let result = self.part(&mut frame);
        if result.is_err() {
            self.close(&id);
            if self.ended.len() >= DONE {
                self.ended.clear();
            }
            self.ended.insert(id);
        }
        result
    }

    fn part(&mut self, frame: &mut Media) -> Result<Option<File>, String> {
        let (part, parts) = (frame.part, frame.parts);
        if part >= parts || parts > PARTS {
            return Err(format!("media: part {part} of {parts}"));
        }
        if part == 0 {
            self.ended.remove(&frame.id);
            // Part 0 again, or of another file: it begins anew.
            if self.open.get(&frame.id).is_some_and(|o| o.parts.contains_key(&0) || o.head.parts != parts) {
                self.close(&frame.id);
            }
        } else if self.ended.contains(&frame.id)
            || (self.done.contains_key(&frame.id) && !self.open.contains_key(&frame.id))
        {
            // The rest of a refused file, or a part that comes twice after the end.
            return Ok(None);
        }
        let open_bytes = self.open.get(&frame.id).map_or(0, |o| o.bytes);
        let room = self.max.saturating_sub(open_bytes);
        let data = std::mem::take(&mut frame.data);
        let bytes =
            protocol::base64::decode(&data, part == 0, room).map_err(|e| format!("media: {}", e.detail))?;
        drop(data);
        if !self.open.contains_key(&frame.id) {
            if self.order.len() >= OPEN
                && let Some(oldest) = self.order.pop_front()
            {
                self.open.remove(&oldest);
            }
            self.order.push_back(frame.id.clone());
        }
        let open = self.open.entry(frame.id.clone()).or_insert_with(|| Open {
            head: frame.clone(),
            parts: HashMap::new(),
            bytes: 0,
        });
        if open.head.parts != parts {
            return Err("media: another number of parts".into());
        }
        if part == 0 {
            open.head = frame.clone();
        }
        if !open.parts.contains_key(&part) {
            open.bytes += bytes.len();
            open.parts.insert(part, bytes);
        }
        if open.parts.len() < usize::try_from(parts).unwrap_or(usize::MAX) {
            return Ok(None);
        }
        Ok(self.complete(&frame.id))
    }

    fn complete(&mut self, id: &str) -> Option<File> {
        let Open { head, mut parts, bytes } = self.close(id)?;
        let mut whole = Vec::with_capacity(bytes);
        for part in 0..head.parts {
            whole.append(&mut parts.remove(&part)?);
        }
        let mut hasher = DefaultHasher::new();
        (&whole, &head.mime, &head.filename, &head.caption).hash(&mut hasher);
        let hash = hasher.finish();
        let before = self.done.insert(id.to_owned(), hash);
        if before == Some(hash) {
            return None;
        }
        if before.is_none() {
            self.done_order.push_back(id.to_owned());
            if self.done_order.len() > DONE
                && let Some(oldest) = self.done_order.pop_front()
            {
                self.done.remove(&oldest);
            }
        }
        Some(File {
            id: head.id,
            kind: head.kind,
            mime: head.mime,
            filename: head.filename,
            caption: head.caption,
            bytes: whole,
            reply_to: head.reply_to,
            redraw: before.is_some(),
        })
    }

    fn close(&mut self, id: &str) -> Option<Open> {
        let open = self.open.remove(id)?;
        self.order.retain(|o| o != id);
        Some(open)
    }
}
