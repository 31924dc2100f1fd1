//! Messages: joins chunks, applies edits. One id is one bubble.

use std::collections::{BTreeMap, HashMap, VecDeque};

use protocol::server::Message;

use super::event::Bubble;

/// Most messages remembered for later edits.
const BUBBLES: usize = 512;
/// Most bytes of text in them.
const BYTES: usize = 16 * 1024 * 1024;
/// Longest message, bytes of text. A server of this protocol ends one at 700,000 bytes.
const LONGEST: usize = 4 * 1024 * 1024;
/// Most chunks of one message.
const CHUNKS: u32 = 65_536;

#[derive(Debug, Default)]
struct Open {
    chunks: BTreeMap<u32, String>,
    bytes: usize,
    last: bool,
    reply_to: Option<String>,
}

impl Open {
    fn text(&self) -> String {
        self.chunks.values().map(String::as_str).collect()
    }
}

/// The messages of a session. Outlives reconnects, so that a replay is a redraw.
#[derive(Debug, Default)]
pub(super) struct Bubbles {
    open: HashMap<String, Open>,
    /// Ids by age.
    order: VecDeque<String>,
    bytes: usize,
}

impl Bubbles {
    /// Takes a frame. `Ok(None)`: nothing changed.
    pub(super) fn take(&mut self, frame: Message) -> Result<Option<Bubble>, String> {
        let Message { id, text, chunk, last, edit, reply_to, seq: _ } = frame;
        if chunk.index >= chunk.total || chunk.total > CHUNKS {
            return Err(format!("message: chunk {} of {}", chunk.index, chunk.total));
        }
        let known = self.open.contains_key(&id);
        let bubble = self.open.entry(id.clone()).or_default();
        // An edit is the whole text; chunk 0 begins it anew (a replay of what was cut).
        let anew = edit || chunk.index == 0;
        let index = if edit { 0 } else { chunk.index };
        let dropped = if anew { bubble.bytes } else { bubble.chunks.get(&index).map_or(0, String::len) };
        if bubble.bytes - dropped + text.len() > LONGEST {
            if !known {
                self.open.remove(&id);
            }
            return Err("message: too long".into());
        }
        let same = known
            && bubble.last == last
            && if anew {
                bubble.bytes == text.len() && bubble.text() == text
            } else {
                bubble.chunks.get(&index) == Some(&text)
            };
        if same {
            return Ok(None);
        }
        self.bytes = self.bytes - dropped + text.len();
        bubble.bytes = bubble.bytes - dropped + text.len();
        if anew {
            bubble.chunks.clear();
        }
        bubble.chunks.insert(index, text);
        bubble.last = last;
        if reply_to.is_some() {
            bubble.reply_to = reply_to;
        }
        let told = Bubble {
            id: id.clone(),
            text: bubble.text(),
            last,
            redraw: known,
            reply_to: bubble.reply_to.clone(),
        };
        if !known {
            self.order.push_back(id);
        }
        self.forget();
        Ok(Some(told))
    }

    /// Drops the oldest beyond the bounds. An edit of one of them is the whole text and is told as a new bubble.
    fn forget(&mut self) {
        while (self.order.len() > BUBBLES || self.bytes > BYTES) && self.order.len() > 1 {
            let Some(id) = self.order.pop_front() else { return };
            if let Some(open) = self.open.remove(&id) {
                self.bytes -= open.bytes;
            }
        }
    }
}
