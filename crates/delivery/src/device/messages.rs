//! What the agent says: messages, streamed replies, edits; and the gateway's own notices.
//!
//! One message id holds at most [`limits::MESSAGE_BYTES`] of encoded JSON. A longer text is cut into pieces with an id
//! each; the agent knows the first one.

use protocol::{
    chunk, limits,
    link::{CallError, CallValue},
    record::{Body, BubbleRecord, Mark, MessageRecord, hash64},
    server::DeliverState,
    words::Say,
};
use session::bubble::Bubble;

use super::{Device, Effect, Open};
use crate::{
    io::AgentId,
    outbox::id_hash,
    shared::{Ctx, call_error},
};

/// Content of a bubble that is open: no text has this hash.
const OPEN: u64 = 0;

/// What an agent asks to be said.
pub(super) struct Saying {
    pub(super) key: String,
    pub(super) text: String,
    pub(super) last: bool,
    pub(super) reply_to: Option<String>,
}

pub(super) fn text_content(text: &str) -> u64 {
    hash64(&[b"text", text.as_bytes()]).max(1)
}

impl Device {
    /// A message of the agent's, under the id that follows from its key; the result is to be given after the batch.
    pub(super) fn say(&mut self, id: &str, saying: &Saying, ctx: &mut Ctx<'_>) {
        self.busy.turn.said();
        if saying.last {
            self.set_final(id, &saying.text, saying.reply_to.as_deref(), ctx);
        } else {
            self.set_open(id, &saying.text, saying.reply_to.as_deref(), ctx);
        }
    }

    /// Whether a call with this key was made before.
    pub(super) fn said_before(&self, id: &str) -> bool {
        self.given.get(id_hash(id)).is_some()
    }

    /// A new text for a message.
    pub(super) fn edit(
        &mut self,
        id: &str,
        text: &str,
        last: bool,
        ctx: &mut Ctx<'_>,
    ) -> Result<(), CallError> {
        if !self.said_before(id) {
            return Err(call_error("not_found", "message_id is not a message of this device", false));
        }
        let open = self.busy.open.iter().find(|open| open.of == id);
        let reply_to = open.and_then(|open| open.bubble.reply_to.clone());
        if last || open.is_none() {
            self.set_final(id, text, reply_to.as_deref(), ctx);
        } else {
            self.set_open(id, text, reply_to.as_deref(), ctx);
        }
        Ok(())
    }

    /// The text is complete: every piece whose text is new becomes an item.
    fn set_final(&mut self, of: &str, text: &str, reply_to: Option<&str>, ctx: &mut Ctx<'_>) {
        let pieces = chunk::pieces(text, limits::MESSAGE_BYTES);
        let count = pieces.len();
        let mut before = false;
        for (piece, text) in pieces.into_iter().enumerate() {
            before |= self.set_piece(of, piece, text, reply_to, ctx);
        }
        // A message that is new has no more pieces than these.
        if before {
            self.empty_pieces_from(of, count, ctx);
        }
    }

    /// Pieces that an earlier, longer text had are emptied.
    fn empty_pieces_from(&mut self, of: &str, first: usize, ctx: &mut Ctx<'_>) {
        for piece in first.. {
            let known = self.given.get(id_hash(&self.piece_id(of, piece, ctx)));
            if known.is_none() {
                break;
            }
            self.set_piece(of, piece, "", None, ctx);
        }
    }

    fn piece_id(&self, of: &str, piece: usize, ctx: &Ctx<'_>) -> String {
        if piece == 0 { of.to_owned() } else { ctx.shared.message_id(self.no, &format!("{of}/{piece}")) }
    }

    /// One piece in its final state: nothing if the device has it so already. Whether there was this piece before.
    fn set_piece(
        &mut self,
        of: &str,
        piece: usize,
        text: &str,
        reply_to: Option<&str>,
        ctx: &mut Ctx<'_>,
    ) -> bool {
        let id = self.piece_id(of, piece, ctx);
        let (hash, content) = (id_hash(&id), text_content(text));
        let known = self.given.get(hash);
        if known == Some(content) {
            return true;
        }
        self.busy.open.retain(|open| open.bubble.id != id);
        let message = MessageRecord {
            seq: self.seq(),
            id,
            text: text.to_owned(),
            reply_to: reply_to.map(str::to_owned),
            edit: known.is_some(),
            once: false,
        };
        self.hashed_item(message, hash, content, ctx);
        known.is_some()
    }

    /// Stores a message as an item and sends it.
    pub(super) fn message_item(&mut self, message: MessageRecord, ctx: &mut Ctx<'_>) {
        let (hash, content) = (id_hash(&message.id), text_content(&message.text));
        self.hashed_item(message, hash, content, ctx);
    }

    fn hashed_item(&mut self, message: MessageRecord, hash: u128, content: u64, ctx: &mut Ctx<'_>) {
        self.given.put(hash, content, ctx.now);
        let mark = Mark::Out { id: hash, content, once: message.once };
        let body = Body::Message(message);
        let pos = ctx.append(self.no, &body, Some(&mark));
        if let Body::Message(message) = body {
            self.item(message.seq, pos, hash, message.once, ctx);
            self.push_message(&message, ctx);
        }
    }

    /// The text goes on growing: all pieces but the last are complete, the last is an open bubble.
    fn set_open(&mut self, of: &str, text: &str, reply_to: Option<&str>, ctx: &mut Ctx<'_>) {
        let pieces = chunk::pieces(text, limits::MESSAGE_BYTES);
        let Some((last, complete)) = pieces.split_last() else { return };
        for (piece, text) in complete.iter().enumerate() {
            self.set_piece(of, piece, text, reply_to, ctx);
        }
        let id = self.piece_id(of, complete.len(), ctx);
        if let Some(open) = self.busy.open.iter_mut().find(|open| open.bubble.id == id) {
            open.restored = false;
            open.bubble.edit((*last).to_owned());
        } else {
            let instance =
                ctx.shared.agent.as_ref().map_or_else(String::new, |agent| agent.attach.instance.clone());
            let piece = u32::try_from(complete.len()).unwrap_or(u32::MAX);
            let bubble =
                Bubble::new(id.clone(), (*last).to_owned(), reply_to.map(str::to_owned), instance, ctx.now);
            let hash = id_hash(&id);
            let first = self.given.get(hash).is_none();
            self.given.put(hash, OPEN, ctx.now);
            let mark = first.then_some(Mark::Out { id: hash, content: OPEN, once: false });
            let pos = ctx.append(self.no, &bubble_body(of, piece, &bubble), mark.as_ref());
            self.dirty = true;
            let batch = ctx.shared.batch_no;
            self.busy.open.push(Open { of: of.to_owned(), piece, pos, batch, restored: false, bubble });
        }
        self.empty_pieces_from(of, complete.len() + 1, ctx);
    }

    /// Stores the state of the bubbles whose time has come.
    pub(super) fn store_bubbles(&mut self, ctx: &mut Ctx<'_>) {
        if self.busy.open.is_empty() {
            return;
        }
        for open in &mut self.busy.open {
            if open.bubble.store_at().is_some_and(|at| ctx.now >= at) {
                open.bubble.stored(ctx.now);
                open.pos = ctx.append(self.no, &bubble_body(&open.of, open.piece, &open.bubble), None);
                self.dirty = true;
            }
        }
    }

    /// Closes open bubbles with their last text.
    pub(super) fn close_bubbles(&mut self, which: impl Fn(&Open) -> bool, ctx: &mut Ctx<'_>) {
        if self.busy.open.is_empty() {
            return;
        }
        let (close, keep): (Vec<Open>, Vec<Open>) =
            std::mem::take(&mut self.busy.open).into_iter().partition(which);
        self.busy.open = keep;
        for open in close {
            let message = MessageRecord {
                seq: self.seq(),
                id: open.bubble.id,
                text: open.bubble.text,
                reply_to: open.bubble.reply_to,
                edit: true,
                once: false,
            };
            self.message_item(message, ctx);
        }
    }

    /// The gateway itself says something to the person.
    pub(super) fn notice(&mut self, say: Say, ctx: &mut Ctx<'_>) {
        let text = say.text(self.lang(ctx));
        let key = format!("notice/{}", ctx.shared.pos());
        let id = ctx.shared.message_id(self.no, &key);
        let message = MessageRecord { seq: self.seq(), id, text, reply_to: None, edit: false, once: false };
        self.message_item(message, ctx);
    }

    /// The result of a call that made a message, after the batch.
    pub(super) fn message_result(&mut self, agent: AgentId, req: u64, message_id: String, ctx: &Ctx<'_>) {
        let value = Some(CallValue::Message { message_id, state: DeliverState::Queued });
        self.after_batch(Effect::Result { agent, req, value }, ctx);
    }
}

fn bubble_body(of: &str, piece: u32, bubble: &Bubble) -> Body {
    Body::Bubble(BubbleRecord {
        id: bubble.id.clone(),
        of: of.to_owned(),
        piece,
        text: bubble.text.clone(),
        reply_to: bubble.reply_to.clone(),
        instance: bubble.instance.clone(),
    })
}
