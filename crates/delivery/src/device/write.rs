//! What goes to the device, and in which order: the session's beginning, the replay, live frames, files in parts.
//!
//! One queue holds what is live. An entry whose item is not on disk yet holds back what follows. Large files go part by
//! part when the queue is empty, so that they delay another frame by at most one part. During a replay nothing is
//! queued: what arises is stored, and the replay comes to it.

use std::collections::VecDeque;

use protocol::{
    chunk,
    code::CloseCode,
    limits,
    record::{Body, FileRecord, MessageRecord},
    server::{Chunk, Media, Message, ServerFrame},
    words::Say,
};

use super::{Device, ReadFor, replay::Replay};
use crate::{gate, io::Action, outbox::id_hash, shared::Ctx};

/// So much may be handed over and not taken by the socket before the queue waits, bytes: enough to keep a fast line busy.
pub(super) const WINDOW: usize = 256 * 1024;

/// The live queue of a device.
#[derive(Debug, Default)]
pub(super) struct Queue {
    entries: VecDeque<Entry>,
    pub(super) bytes: usize,
}

#[derive(Debug)]
struct Entry {
    /// Batch that must be on disk first.
    wait: u64,
    what: What,
}

#[derive(Debug)]
pub(super) enum What {
    /// Something that is shown and gone.
    Frame(String),
    /// An item: its frames, the last of which carries `seq`.
    Item { seq: u64, frames: Vec<String> },
    /// The present text of an open bubble.
    Edit(String),
    /// A file.
    File(Box<FileSend>),
}

/// A file on its way.
#[derive(Debug)]
pub(super) struct FileSend {
    pub(super) record: FileRecord,
    next: u32,
    /// Ticket of the part that is being read.
    reading: Option<u64>,
    /// The part that was read, if it may not go yet.
    part: Option<Vec<u8>>,
}

impl FileSend {
    pub(super) fn new(record: FileRecord) -> Self {
        Self { record, next: 0, reading: None, part: None }
    }

    fn parts(&self) -> u32 {
        parts(self.record.bytes)
    }
}

/// How many parts a file of so many bytes has.
pub(super) fn parts(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(limits::PART_BYTES as u64)).unwrap_or(u32::MAX).max(1)
}

impl Queue {
    pub(super) const fn new() -> Self {
        Self { entries: VecDeque::new(), bytes: 0 }
    }

    pub(super) fn push(&mut self, wait: u64, what: What) {
        self.bytes += what.bytes();
        self.entries.push_back(Entry { wait, what });
    }

    fn pop(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.bytes = self.bytes.saturating_sub(entry.what.bytes());
        }
    }

    /// Forgets everything; the files that have no `seq` yet are returned.
    fn clear(&mut self) -> Vec<FileSend> {
        self.bytes = 0;
        let files = self.entries.drain(..).filter_map(|entry| match entry.what {
            What::File(file) if file.record.seq.is_none() => Some(*file),
            _ => None,
        });
        files.collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn has_edit(&self, id: &str) -> bool {
        self.entries.iter().any(|entry| matches!(&entry.what, What::Edit(of) if of == id))
    }

    /// A final text takes the place of an edit that was not sent.
    fn drop_edit(&mut self, id: &str) {
        self.entries.retain(|entry| !matches!(&entry.what, What::Edit(of) if of == id));
    }
}

impl What {
    fn bytes(&self) -> usize {
        match self {
            Self::Frame(frame) => frame.len(),
            Self::Item { frames, .. } => frames.iter().map(String::len).sum(),
            Self::Edit(_) | Self::File(_) => 0,
        }
    }
}

impl Device {
    /// Writes `ready` and what follows it: open cards, avatar and typing, the replay.
    pub(crate) fn open_session(&mut self, ctx: &mut Ctx<'_>) {
        self.ready_at = None;
        let ready = gate::ready(self.id(), self.state.info.name.as_deref(), &ctx.shared.settings);
        let Some(live) = &mut self.live else { return };
        live.ready = true;
        ctx.out.push(Action::Opened { conn: live.conn });
        self.answer(&ready, ctx);
        // A card that waits for the disk comes as an item when it is there.
        let cards = self.busy.cards.present(ctx.now).into_iter();
        let mut frames: Vec<ServerFrame> = cards
            .filter(|card| !self.outbox.waits(id_hash(&card.id), self.committed))
            .map(ServerFrame::Prompt)
            .collect();
        let cards = frames.len();
        self.busy.turn.present(&mut frames);
        let shown = frames.len() > cards;
        // Before the replay, and like it as fast as the socket takes them.
        for frame in frames {
            self.busy.queue.push(0, What::Frame(frame.encode()));
        }
        self.outbox.connected(ctx.now);
        self.pass_over_dead(ctx);
        let next = self.state.proven + 1;
        self.busy.replay = Some(Replay { next, reading: false, most: 1, shown, changed: false });
    }

    /// The connection is gone. `code` is the client's.
    pub(crate) fn closed(&mut self, code: Option<u16>, ctx: &mut Ctx<'_>) {
        let was_ready = self.online();
        self.live = None;
        self.ready_at = None;
        let queued = self.busy.queue.clear();
        self.busy.bulk.extend(queued);
        self.busy.replay = None;
        self.rubbish = 0;
        self.busy.reads.retain(|_, what| matches!(what, ReadFor::HandOver));
        self.deliveries_lost(ctx);
        for file in std::mem::take(&mut self.busy.bulk) {
            self.place_file(file, ctx);
        }
        if was_ready {
            let blames = matches!(code, Some(1002 | 1003 | 1007 | 1009 | 1011));
            if let Some((seq, _)) = self.outbox.disconnected(blames) {
                self.proven(seq, ctx);
                ctx.warn(format!(
                    "an item of a device was set aside: its client ended the connection on it three times (seq {seq})"
                ));
                self.notice(Say::SetAside, ctx);
            }
        }
    }

    /// The device ends its own connection.
    pub(super) fn let_go(&mut self, code: CloseCode, ctx: &mut Ctx<'_>) {
        let Some(conn) = self.live.as_ref().map(|live| live.conn) else { return };
        ctx.out.push(Action::Close { conn, code });
        self.closed(None, ctx);
        self.left = Some(conn);
    }

    /// The socket took bytes.
    pub(crate) fn drained(&mut self, bytes: usize) {
        if let Some(live) = &mut self.live {
            live.unsent = live.unsent.saturating_sub(bytes);
        }
    }

    /// A pong with a nonce of ours.
    pub(crate) fn pong(&mut self, nonce: u64, ctx: &mut Ctx<'_>) {
        if let Some(seq) = self.outbox.pong(nonce) {
            self.proven(seq, ctx);
            self.pass_over_dead(ctx);
        }
    }

    /// What is never replayed holds nothing back.
    fn pass_over_dead(&mut self, ctx: &mut Ctx<'_>) {
        let conn = self.live.as_ref().map(|live| live.conn);
        if let Some(dead) = conn.and_then(|conn| self.outbox.dead(conn)) {
            self.proven(dead, ctx);
        }
    }

    fn proven(&mut self, seq: u64, ctx: &mut Ctx<'_>) {
        if seq > self.state.proven {
            self.state.proven = seq;
            self.dirty = true;
            self.outbox.proven(seq);
            self.deliveries_proven(seq, ctx);
        }
    }

    /// Whether live frames go into the queue.
    fn takes_live(&self) -> bool {
        self.online() && self.busy.replay.is_none()
    }

    /// Live frames that are not items: states. During a replay they are dropped, and the present state is sent after it.
    pub(super) fn push_frames(&mut self, frames: Vec<ServerFrame>) {
        if self.takes_live() {
            for frame in frames {
                self.busy.queue.push(0, What::Frame(frame.encode()));
            }
        } else if let Some(replay) = &mut self.busy.replay {
            replay.changed = replay.changed || !frames.is_empty();
        }
    }

    /// The end of a card, a message, an edit: an item that the batch of this input brings to disk.
    pub(super) fn push_item(&mut self, seq: u64, frames: Vec<ServerFrame>, ctx: &Ctx<'_>) {
        if self.takes_live() {
            let frames = frames.iter().map(ServerFrame::encode).collect();
            self.busy.queue.push(ctx.shared.batch_no, What::Item { seq, frames });
        }
    }

    pub(super) fn push_message(&mut self, message: &MessageRecord, ctx: &Ctx<'_>) {
        self.busy.queue.drop_edit(&message.id);
        let frames = message_frames(message, message.edit, ctx.shared.settings.chunk_chars);
        self.push_item(message.seq, frames, ctx);
    }

    /// A file that the batch of this input brings to disk.
    pub(super) fn push_file(&mut self, file: FileSend, ctx: &Ctx<'_>) {
        if self.takes_live() {
            self.busy.queue.push(ctx.shared.batch_no, What::File(Box::new(file)));
        }
    }

    /// Whether a large file would get its `seq` only when its last part is due.
    pub(super) fn streams_files(&self) -> bool {
        self.takes_live()
    }

    /// Gives a file on its way its place among the items: it will be replayed from there.
    pub(super) fn place_file(&mut self, file: FileSend, ctx: &mut Ctx<'_>) {
        self.busy.unplaced.retain(|(id, _)| *id != file.record.id);
        self.dirty = true;
        if file.record.once || file.record.seq.is_some() {
            return;
        }
        let seq = self.seq();
        let record = FileRecord { seq: Some(seq), ..file.record };
        let pos = ctx.append(self.no, &Body::File(record.clone()), None);
        self.item(seq, pos, id_hash(&record.id), false, ctx);
    }

    /// When an open bubble's text should go out. Its first record comes before its first frame; the commit looks again.
    pub(super) fn edit_at(&self, open: &super::Open) -> Option<u64> {
        let waits = open.batch > self.committed || self.busy.queue.has_edit(&open.bubble.id);
        if waits { None } else { open.bubble.send_at() }
    }

    pub(super) fn queue_edits(&mut self, ctx: &Ctx<'_>) {
        let due = |open: &&super::Open| self.edit_at(open).is_some_and(|at| ctx.now >= at);
        let due: Vec<String> = self.busy.open.iter().filter(due).map(|open| open.bubble.id.clone()).collect();
        for id in due {
            self.busy.queue.push(0, What::Edit(id));
        }
    }

    /// Hands over what may go now.
    pub(super) fn pump(&mut self, ctx: &mut Ctx<'_>) {
        if !self.online() {
            return;
        }
        self.go_on_with_replay(ctx);
        if self.busy.replay.is_none() {
            self.queue_edits(ctx);
        }
        while self.may_send() {
            if !self.send_head(ctx) && !self.send_bulk(ctx) {
                break;
            }
            self.go_on_with_replay(ctx);
        }
        if crate::mutants::is(crate::mutants::Mutant::ProvenAtWrite) {
            self.proven(self.outbox.written(), ctx);
        }
        let Some(live) = &self.live else { return };
        // What a replay has read is bounded by its page. Closing on it would bring the same page again for ever.
        let queued = if self.busy.replay.is_some() { 0 } else { self.busy.queue.bytes };
        let (conn, waiting) = (live.conn, live.unsent + queued);
        if waiting > ctx.shared.settings.queue_bytes {
            self.let_go(CloseCode::Overloaded, ctx);
            return;
        }
        let nonce = ctx.shared.number();
        if self.outbox.ping(nonce, self.state.proven, ctx.now) {
            ctx.out.push(Action::Ping { conn, nonce });
        }
    }

    fn may_send(&self) -> bool {
        self.live.as_ref().is_some_and(|live| live.ready && live.unsent < WINDOW)
    }

    fn send(&mut self, text: String, ctx: &mut Ctx<'_>) {
        if let Some(live) = &mut self.live {
            live.unsent += text.len();
            ctx.out.push(Action::Send { conn: live.conn, text });
        }
    }

    /// Sends the head of the queue, or a part of it. `false`: it must wait.
    fn send_head(&mut self, ctx: &mut Ctx<'_>) -> bool {
        if self.busy.queue.is_empty() {
            return false;
        }
        let Some(head) = self.busy.queue.entries.front_mut() else { return false };
        if head.wait > self.committed && !crate::mutants::is(crate::mutants::Mutant::WrittenBeforeDisk) {
            return false;
        }
        match &mut head.what {
            What::Frame(frame) => {
                let frame = std::mem::take(frame);
                self.busy.queue.bytes = self.busy.queue.bytes.saturating_sub(frame.len());
                self.busy.queue.pop();
                self.send(frame, ctx);
            }
            What::Item { seq, frames } => {
                let (seq, frames) = (*seq, std::mem::take(frames));
                self.busy.queue.bytes =
                    self.busy.queue.bytes.saturating_sub(frames.iter().map(String::len).sum());
                self.busy.queue.pop();
                for frame in frames {
                    self.send(frame, ctx);
                }
                self.outbox.sent(seq);
            }
            What::Edit(id) => {
                let id = std::mem::take(id);
                self.busy.queue.pop();
                if let Some(open) = self.busy.open.iter_mut().find(|open| open.bubble.id == id) {
                    open.bubble.sent(ctx.now);
                    let frame = edit_frame(&open.bubble).encode();
                    self.send(frame, ctx);
                }
            }
            What::File(_) => return self.send_file_at_head(ctx),
        }
        true
    }

    fn send_file_at_head(&mut self, ctx: &mut Ctx<'_>) -> bool {
        let Some(Entry { what: What::File(file), .. }) = self.busy.queue.entries.front_mut() else {
            return false;
        };
        if file.record.seq.is_none() {
            // A large live file: it goes on behind everything else.
            if let Some(Entry { what: What::File(file), .. }) = self.busy.queue.entries.pop_front() {
                self.busy.bulk.push_back(*file);
            }
            return true;
        }
        let Some(data) = file.part.take() else {
            read_part(file, self.no, ctx);
            return false;
        };
        let seq = file.record.seq;
        let frame = part_frame(file, &data, seq);
        file.next += 1;
        if file.next >= file.parts() {
            self.busy.queue.pop();
            self.send(frame, ctx);
            self.outbox.sent(seq.unwrap_or_default());
        } else {
            self.send(frame, ctx);
        }
        true
    }

    /// Sends a part of the first large file. `false`: nothing may go now.
    fn send_bulk(&mut self, ctx: &mut Ctx<'_>) -> bool {
        if self.busy.bulk.is_empty() {
            return false;
        }
        let Some(file) = self.busy.bulk.front_mut() else { return false };
        let Some(data) = file.part.take() else {
            read_part(file, self.no, ctx);
            return false;
        };
        if file.next + 1 < file.parts() {
            let frame = part_frame(file, &data, None);
            file.next += 1;
            self.send(frame, ctx);
            return true;
        }
        // The last part: the file gets its place among the items, and the part goes when that is on disk.
        let Some(mut file) = self.busy.bulk.pop_front() else { return false };
        let seq = self.seq();
        file.record.seq = Some(seq);
        let (once, id) = (file.record.once, file.record.id.clone());
        self.busy.unplaced.retain(|(unplaced, _)| *unplaced != id);
        let pos = ctx.append(self.no, &Body::File(file.record.clone()), None);
        self.item(seq, pos, id_hash(&id), once, ctx);
        let frame = part_frame(&file, &data, Some(seq));
        self.busy.queue.push(ctx.shared.batch_no, What::Item { seq, frames: vec![frame] });
        self.deliveries_got_seq(&id, seq);
        true
    }

    /// A part of a file was read.
    pub(crate) fn file_read(&mut self, ticket: u64, data: Result<Vec<u8>, String>, ctx: &mut Ctx<'_>) {
        let work = &mut *self.busy;
        let queued = work.queue.entries.iter_mut().filter_map(|entry| match &mut entry.what {
            What::File(file) => Some(file.as_mut()),
            _ => None,
        });
        let Some(file) = queued.chain(work.bulk.iter_mut()).find(|file| file.reading == Some(ticket)) else {
            return;
        };
        file.reading = None;
        match data {
            Ok(data) => file.part = Some(data),
            Err(why) => {
                let name = file.record.filename.clone();
                let id = file.record.id.clone();
                ctx.warn(format!("a stored file cannot be read: {why}"));
                self.busy
                    .queue
                    .entries
                    .retain(|entry| !matches!(&entry.what, What::File(file) if file.record.id == id));
                self.busy.bulk.retain(|file| file.record.id != id);
                self.busy.unplaced.retain(|(unplaced, _)| *unplaced != id);
                self.notice(Say::FileLost(name), ctx);
            }
        }
    }
}

fn read_part(file: &mut FileSend, device: u32, ctx: &mut Ctx<'_>) {
    if file.reading.is_some() {
        return;
    }
    let ticket = ctx.shared.number();
    file.reading = Some(ticket);
    let offset = u64::from(file.next) * limits::PART_BYTES as u64;
    let left = file.record.bytes.saturating_sub(offset);
    let len = usize::try_from(left).unwrap_or(usize::MAX).min(limits::PART_BYTES);
    ctx.out.push(Action::ReadFile { device, ticket, file: file.record.file.clone(), offset, len });
}

fn part_frame(file: &FileSend, data: &[u8], seq: Option<u64>) -> String {
    let record = &file.record;
    let parts = file.parts();
    let last = file.next + 1 >= parts;
    let media = Media {
        id: record.id.clone(),
        kind: record.kind,
        mime: record.mime.clone(),
        filename: record.filename.clone(),
        caption: record.caption.clone(),
        part: file.next,
        parts,
        last,
        size: record.bytes,
        data: String::new(),
        reply_to: record.reply_to.clone(),
        seq: if last { seq } else { None },
    };
    media.encode_with(data)
}

fn edit_frame(bubble: &session::bubble::Bubble) -> ServerFrame {
    ServerFrame::Message(Message {
        id: bubble.id.clone(),
        text: bubble.text.clone(),
        chunk: Chunk { index: 0, total: 1 },
        last: false,
        edit: true,
        reply_to: bubble.reply_to.clone(),
        seq: None,
    })
}

/// The frames of a message: chunks, or one redraw with the whole text.
pub(super) fn message_frames(message: &MessageRecord, redraw: bool, chunk_chars: usize) -> Vec<ServerFrame> {
    let texts = if redraw { vec![message.text.as_str()] } else { chunk::chunks(&message.text, chunk_chars) };
    let total = u32::try_from(texts.len()).unwrap_or(u32::MAX);
    texts
        .into_iter()
        .zip(0..)
        .map(|(text, index)| {
            let last = index + 1 == total;
            ServerFrame::Message(Message {
                id: message.id.clone(),
                text: text.to_owned(),
                chunk: Chunk { index, total },
                last,
                edit: redraw,
                reply_to: message.reply_to.clone(),
                seq: last.then_some(message.seq),
            })
        })
        .collect()
}
