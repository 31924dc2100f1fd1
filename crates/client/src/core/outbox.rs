//! What is to be sent: in memory, bounded, in order. An item keeps its id on every retry.
//!
//! In plain version 1 nothing answers a text. The rule here: a `ping` is sent after items, and its `pong` shows that the
//! server handled what came before; an item is *accepted* when that pong is back and no error has named the item. Until
//! then every reconnect sends it again under the same id (the server knows ids for 7 days). An accepted item is kept for
//! [`super::Config::keep_ms`] more: a server that dies in between may not have it on disk, and a file may turn out to be
//! bad only after it was put together. Answers and `deliver`s end with their own result instead.

use std::collections::VecDeque;

use serde::Serialize;

use super::event::Request;

/// How far an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not sent on this connection, or not wholly.
    Waiting,
    /// Its last frame was handed over as frame number `frame` of this connection.
    Sent { frame: u64 },
    /// Accepted then; kept for a while.
    Accepted { at: u64 },
}

/// One thing to be sent.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) id: String,
    pub(super) request: Request,
    pub(super) stage: Stage,
    /// Next part of a file.
    pub(super) part: u32,
    pub(super) parts: u32,
    /// Decoded bytes of a part.
    part_bytes: usize,
    /// The app was told that it is accepted.
    pub(super) told: bool,
    /// Refusals that asked for a later try.
    pub(super) tries: u32,
    /// Connections in a row that the server ended with a complaint while this was the oldest in flight.
    pub(super) complaints: u32,
    /// Longest frame of it on this connection, bytes; 0: none was handed over.
    pub(super) longest: usize,
}

impl Item {
    pub(super) fn size(&self) -> usize {
        size(&self.request)
    }
    /// Whether a pong after it shows that it was taken.
    pub(super) fn by_pong(&self) -> bool {
        matches!(self.request, Request::Text(_) | Request::File { .. } | Request::Voice { .. })
    }
    /// Whether it may pass what waits before it. An answer may, so that a card does not wait for a long upload; but not
    /// one whose free answer is the next text.
    pub(super) fn may_pass(&self) -> bool {
        matches!(&self.request, Request::Answer { option_id, text, .. } if text.is_some() || option_id != "other")
    }
    pub(super) fn in_flight(&self) -> bool {
        self.longest > 0 && !matches!(self.stage, Stage::Accepted { .. })
    }
    /// Back to the beginning, under the same id.
    pub(super) fn again(&mut self) {
        self.stage = Stage::Waiting;
        self.part = 0;
    }

    /// The next frame, and how much of a file is sent with it.
    pub(super) fn frame(&mut self) -> (String, u64) {
        let id = self.id.as_str();
        let mut sent = 0;
        let frame = match &self.request {
            Request::Text(text) => json(&Text { t: "text", id, text }),
            Request::Answer { prompt_id, option_id, text } => {
                json(&Answer { t: "prompt", prompt_id, option_id, text: text.as_deref() })
            }
            Request::Deliver { target, text, queue } => {
                json(&Deliver { t: "deliver", id, target, text, offline: queue.then_some("queue") })
            }
            Request::File { kind, mime, filename, caption, bytes } => {
                let (data, end) = part(bytes, self.part, self.part_bytes);
                sent = end;
                let caption = if self.part == 0 { caption.as_deref() } else { None };
                json(&File {
                    t: "media",
                    id,
                    kind: kind.name(),
                    mime,
                    filename,
                    caption,
                    part: self.part,
                    parts: self.parts,
                    data,
                })
            }
            Request::Voice { format, bytes } => {
                let (data, end) = part(bytes, self.part, self.part_bytes);
                sent = end;
                let format = match format {
                    protocol::client::VoiceFormat::Wav => "wav",
                    protocol::client::VoiceFormat::Ogg => "ogg",
                };
                json(&Voice { t: "audio", id, format, part: self.part, parts: self.parts, data })
            }
        };
        self.part = self.part.saturating_add(1);
        self.longest = self.longest.max(frame.len());
        (frame, sent)
    }
}

/// Base64 of a part, and where it ends in the file.
fn part(bytes: &[u8], part: u32, part_bytes: usize) -> (String, u64) {
    let from = usize::try_from(part).unwrap_or(usize::MAX).saturating_mul(part_bytes).min(bytes.len());
    let to = from.saturating_add(part_bytes).min(bytes.len());
    let data = protocol::base64::encode(bytes.get(from..to).unwrap_or_default());
    (data, u64::try_from(to).unwrap_or(u64::MAX))
}

/// Bytes of a request that are kept in memory.
pub(super) fn size(request: &Request) -> usize {
    match request {
        Request::Text(text) => text.len(),
        Request::File { mime, filename, caption, bytes, .. } => {
            mime.len() + filename.len() + caption.as_ref().map_or(0, String::len) + bytes.len()
        }
        Request::Voice { bytes, .. } => bytes.len(),
        Request::Answer { prompt_id, option_id, text } => {
            prompt_id.len() + option_id.len() + text.as_ref().map_or(0, String::len)
        }
        Request::Deliver { target, text, .. } => target.len() + text.len(),
    }
}

/// The items.
#[derive(Debug)]
pub(super) struct Outbox {
    /// In the order of submission, always.
    items: VecDeque<Item>,
    bytes: usize,
    max_items: usize,
    max_bytes: usize,
}

impl Outbox {
    pub(super) fn new(max_items: usize, max_bytes: usize) -> Self {
        Self { items: VecDeque::new(), bytes: 0, max_items, max_bytes }
    }

    /// Takes an item. `false`: there is no room.
    pub(super) fn push(&mut self, id: String, request: Request, part_bytes: usize) -> bool {
        let bytes = size(&request);
        while self.items.len() >= self.max_items || self.bytes.saturating_add(bytes) > self.max_bytes {
            // What was accepted is only kept for safety: it makes room.
            let Some(at) = self.items.iter().position(|i| matches!(i.stage, Stage::Accepted { .. })) else {
                return false;
            };
            self.take(at);
        }
        let length = match &request {
            Request::File { bytes, .. } | Request::Voice { bytes, .. } => bytes.len(),
            _ => 1,
        };
        let parts = u32::try_from(length.div_ceil(part_bytes.max(1))).unwrap_or(u32::MAX).max(1);
        self.bytes += bytes;
        self.items.push_back(Item {
            id,
            request,
            stage: Stage::Waiting,
            part: 0,
            parts,
            part_bytes,
            told: false,
            tries: 0,
            complaints: 0,
            longest: 0,
        });
        true
    }

    /// The item under this id: there is one at most.
    pub(super) fn find(&self, id: &str) -> Option<usize> {
        self.items.iter().position(|i| i.id == id)
    }
    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut Item> {
        self.items.get_mut(at)
    }
    pub(super) fn iter(&self) -> impl Iterator<Item = &Item> {
        self.items.iter()
    }
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Item> {
        self.items.iter_mut()
    }
    pub(super) fn take(&mut self, at: usize) -> Option<Item> {
        let item = self.items.remove(at)?;
        self.bytes -= item.size();
        Some(item)
    }

    /// The next item with a frame to send: an answer that may pass, else the first that waits, if fewer than `window` are in flight.
    pub(super) fn next(&mut self, window: usize) -> Option<&mut Item> {
        let waits = |i: &Item| i.stage == Stage::Waiting;
        let at = match self.items.iter().position(|i| waits(i) && i.may_pass()) {
            Some(at) => at,
            None => {
                let flying = self.items.iter().filter(|i| matches!(i.stage, Stage::Sent { .. })).count();
                if flying >= window {
                    return None;
                }
                self.items.iter().position(waits)?
            }
        };
        self.items.get_mut(at)
    }

    /// Items that are not done: waiting or without their proof or result.
    pub(super) fn unsettled(&self) -> usize {
        self.items.iter().filter(|i| !matches!(i.stage, Stage::Accepted { .. })).count()
    }

    /// Forgets what was accepted before `horizon`.
    pub(super) fn forget(&mut self, horizon: u64) {
        let old = |i: &Item| matches!(i.stage, Stage::Accepted { at } if at <= horizon);
        while let Some(at) = self.items.iter().position(old) {
            self.take(at);
        }
    }
}

/// A frame as JSON. These types have string keys and no failing parts, so an error cannot happen; an empty frame would
/// be refused by the server in words.
fn json(frame: &impl Serialize) -> String {
    serde_json::to_string(frame).unwrap_or_default()
}

#[derive(Serialize)]
struct Text<'a> {
    t: &'a str,
    id: &'a str,
    text: &'a str,
}

#[derive(Serialize)]
struct Answer<'a> {
    t: &'a str,
    prompt_id: &'a str,
    option_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
}

#[derive(Serialize)]
struct Deliver<'a> {
    t: &'a str,
    id: &'a str,
    target: &'a str,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    offline: Option<&'a str>,
}

#[derive(Serialize)]
struct File<'a> {
    t: &'a str,
    id: &'a str,
    kind: &'a str,
    mime: &'a str,
    filename: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    caption: Option<&'a str>,
    part: u32,
    parts: u32,
    data: String,
}

#[derive(Serialize)]
struct Voice<'a> {
    t: &'a str,
    id: &'a str,
    format: &'a str,
    part: u32,
    parts: u32,
    data: String,
}
