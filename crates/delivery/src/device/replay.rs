//! What is stored and unproven is sent again after `ready`, in the order of its numbers, page by page. What arises
//! meanwhile is stored, and the replay comes to it; live frames go on when nothing is left.

use protocol::{
    code::CloseCode,
    record::{Body, Row},
    server::ServerFrame,
};
use session::cards;

use super::{
    Device, ReadFor,
    write::{FileSend, WINDOW, What, message_frames},
};
use crate::{io::Action, shared::Ctx};

/// Most records of one page of a replay.
const PAGE: usize = 16;

/// A replay under way.
#[derive(Debug)]
pub(super) struct Replay {
    /// First `seq` that was not read.
    pub(super) next: u64,
    pub(super) reading: bool,
    /// Records that the next page may have: few while they are large, so that a slow client holds little memory.
    pub(super) most: usize,
    /// The turn was shown before the replay...
    pub(super) shown: bool,
    /// ...and has changed since.
    pub(super) changed: bool,
}

impl Device {
    /// Reads the next page of the replay when the queue has run low, and ends the replay when nothing is left.
    pub(super) fn go_on_with_replay(&mut self, ctx: &mut Ctx<'_>) {
        let (Some(replay), Some(live)) = (&self.busy.replay, &self.live) else { return };
        if replay.reading || !self.busy.queue.is_empty() {
            return;
        }
        if self.outbox.ends_at(replay.next) {
            self.end_replay(ctx);
            return;
        }
        let (page, next) = self.outbox.replay(replay.next, replay.most, live.conn, self.committed);
        let Some(next) = next else { return };
        if let Some(replay) = &mut self.busy.replay {
            replay.next = next;
            replay.reading = !page.is_empty();
        }
        if page.is_empty() {
            if self.outbox.ends_at(next) {
                self.end_replay(ctx);
            }
            return;
        }
        let ticket = ctx.shared.number();
        ctx.out.push(Action::Read {
            device: self.no,
            ticket,
            positions: page.iter().map(|(_, item)| item.pos).collect(),
        });
        self.busy.reads.insert(ticket, ReadFor::Replay(page));
    }

    fn end_replay(&mut self, ctx: &mut Ctx<'_>) {
        let Some(replay) = self.busy.replay.take() else { return };
        let mut frames = Vec::new();
        match (replay.changed, replay.shown) {
            (true, true) => self.busy.turn.present_again(&mut frames),
            (true, false) => self.busy.turn.present(&mut frames),
            (false, _) => {}
        }
        self.push_frames(frames);
        for open in &mut self.busy.open {
            open.bubble.redraw();
        }
        self.queue_edits(ctx);
    }

    /// Rows that were asked for.
    pub(crate) fn rows(&mut self, ticket: u64, rows: Result<Vec<Row>, String>, ctx: &mut Ctx<'_>) {
        let Some(what) = self.busy.reads.remove(&ticket) else { return };
        let rows = match rows {
            Ok(rows) => rows,
            Err(why) => {
                ctx.warn(format!("stored records cannot be read: {why}"));
                // The connection ends, so that the device comes back and asks again.
                if matches!(what, ReadFor::Replay(_)) {
                    self.let_go(CloseCode::Overloaded, ctx);
                }
                return;
            }
        };
        match what {
            ReadFor::HandOver => self.bodies(rows, ctx),
            ReadFor::Replay(page) => {
                if let Some(replay) = &mut self.busy.replay {
                    replay.reading = false;
                }
                for (seq, item) in page {
                    // A row that is gone was older than what is kept.
                    if let Some(row) = rows.iter().find(|row| row.pos == item.pos) {
                        self.push_replayed(seq, row, ctx);
                    }
                }
                let full = self.busy.queue.bytes > WINDOW;
                if let Some(replay) = &mut self.busy.replay {
                    replay.most = if full { 1 } else { (replay.most * 2).min(PAGE) };
                }
            }
        }
    }

    fn push_replayed(&mut self, seq: u64, row: &Row, ctx: &mut Ctx<'_>) {
        let body = match Body::decode(&row.body) {
            Ok(body) => body,
            Err(why) => {
                ctx.warn(format!("a stored record cannot be read: {why}"));
                return;
            }
        };
        let frames = match body {
            Body::Message(mut message) => {
                if crate::mutants::is(crate::mutants::Mutant::ReplayNewId) {
                    message.id.push('r');
                }
                message_frames(&message, true, ctx.shared.settings.chunk_chars)
            }
            Body::Card(card) => {
                let prompt = cards::with_time_left(&card, ctx.now);
                vec![ServerFrame::Prompt(protocol::server::Prompt { seq: Some(seq), ..prompt })]
            }
            Body::CardDone { id, option_id, expired, reason, .. } => {
                let end = cards::End { option_id, expired, reason };
                vec![ServerFrame::PromptDone(end.frame(&id, Some(seq)))]
            }
            Body::File(record) => {
                self.busy.queue.push(0, What::File(Box::new(FileSend::new(record))));
                return;
            }
            Body::In(_) | Body::Bubble(_) | Body::CardTaken { .. } | Body::Delivered { .. } => return,
        };
        let frames = frames.iter().map(ServerFrame::encode).collect();
        self.busy.queue.push(0, What::Item { seq, frames });
    }
}
