//! What is on disk, as an outsider reads it: the measure for everything that is written to a device or told to an agent.

use std::collections::{BTreeMap, BTreeSet};

use protocol::{
    Millis,
    limits::REMEMBER_MS,
    record::{Batch, Body, DeviceNo, InBody, Op, Pos},
};

/// Something a device said.
#[derive(Debug)]
pub(crate) struct In {
    pub(crate) device: String,
    pub(crate) id: String,
    /// The text, or the hash of the file.
    pub(crate) content: String,
    pub(crate) at: Millis,
    /// It is the end of a card's time.
    pub(crate) card: bool,
}

/// What an item is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum What {
    Message { text: String },
    File { file: String, bytes: u64 },
    Card,
    CardDone { option_id: Option<String>, expired: bool, reason: Option<String> },
}

/// An item.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) id: String,
    pub(crate) what: What,
    pub(crate) once: bool,
    /// When it was committed.
    pub(crate) at: Millis,
}

/// A card.
#[derive(Debug)]
pub(crate) struct Card {
    pub(crate) device: String,
    pub(crate) deadline: Millis,
    pub(crate) done: bool,
    /// Offers that are not to be taken any more, or that were taken.
    pub(crate) taken: Option<u64>,
}

/// What a commit brought that others want to know.
#[derive(Debug)]
pub(crate) enum Note {
    Accepted { device: String, id: String },
    CardDone { id: String, option_id: Option<String>, expired: bool, reason: Option<String> },
}

/// See the module. Devices by their ids.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    names: BTreeMap<DeviceNo, String>,
    pub(crate) ins: BTreeMap<Pos, In>,
    in_ids: BTreeMap<(String, String), (Pos, Millis)>,
    pub(crate) items: BTreeMap<(String, u64), Item>,
    /// Highest `seq` of a message, file or card.
    pub(crate) latest: BTreeMap<(String, String), u64>,
    pub(crate) bubbles: BTreeSet<(String, String)>,
    pub(crate) cards: BTreeMap<String, Card>,
    last_seq: BTreeMap<String, u64>,
}

impl Ledger {
    /// Takes what was committed.
    pub(crate) fn absorb(&mut self, batches: &[Batch], now: Millis) -> Result<Vec<Note>, String> {
        let mut notes = Vec::new();
        for batch in batches {
            for op in &batch.ops {
                if let Op::Device { no, id, .. } = op {
                    self.names.insert(*no, id.clone());
                }
            }
            for op in &batch.ops {
                let Op::Append(row) = op else { continue };
                let device =
                    self.names.get(&row.device).cloned().ok_or("a row of a device that has no state")?;
                let body = Body::decode(&row.body).map_err(|e| e.to_string())?;
                self.row(device, row.pos, row.at, body, now, &mut notes)?;
            }
        }
        Ok(notes)
    }

    fn row(
        &mut self,
        device: String,
        pos: Pos,
        at: Millis,
        body: Body,
        now: Millis,
        notes: &mut Vec<Note>,
    ) -> Result<(), String> {
        let (seq, id, what, once) = match body {
            Body::In(record) => {
                let (content, card) = match record.what {
                    InBody::Text { text } => (text, false),
                    InBody::File { file } => (file.sha256, false),
                    InBody::Card { card } => (card.prompt_id, true),
                };
                let key = (device.clone(), record.id.clone());
                if let Some((before, when)) = self.in_ids.insert(key, (pos, at))
                    && at < when + REMEMBER_MS
                {
                    return Err(format!("{} of {device} was accepted twice: {before} and {pos}", record.id));
                }
                notes.push(Note::Accepted { device: device.clone(), id: record.id.clone() });
                self.ins.insert(pos, In { device, id: record.id, content, at, card });
                return Ok(());
            }
            Body::Bubble(bubble) => {
                self.bubbles.insert((device, bubble.id));
                return Ok(());
            }
            Body::CardTaken { id, event, .. } => {
                if let Some(card) = self.cards.get_mut(&id) {
                    card.taken = Some(event);
                }
                return Ok(());
            }
            Body::Delivered { .. } => return Ok(()),
            Body::Message(m) => (m.seq, m.id, What::Message { text: m.text }, m.once),
            Body::File(f) => {
                let Some(seq) = f.seq else { return Ok(()) };
                (seq, f.id, What::File { file: f.file, bytes: f.bytes }, f.once)
            }
            Body::Card(card) => {
                let prompt = card.prompt;
                let open = Card { device: device.clone(), deadline: card.deadline, done: false, taken: None };
                self.cards.insert(prompt.id.clone(), open);
                (prompt.seq.ok_or("a stored card without seq")?, prompt.id, What::Card, false)
            }
            Body::CardDone { seq, id, option_id, expired, reason } => {
                let card = self.cards.get_mut(&id).ok_or("the end of a card that is not stored")?;
                if card.done {
                    return Err(format!("card {id} ended twice"));
                }
                card.done = true;
                let note = Note::CardDone {
                    id: id.clone(),
                    option_id: option_id.clone(),
                    expired,
                    reason: reason.clone(),
                };
                notes.push(note);
                (seq, id, What::CardDone { option_id, expired, reason }, false)
            }
        };
        let last = self.last_seq.entry(device.clone()).or_default();
        if seq <= *last {
            return Err(format!("seq {seq} of {device} is stored after {last}"));
        }
        *last = seq;
        self.latest.insert((device.clone(), id.clone()), seq);
        self.items.insert((device, seq), Item { id, what, once, at: now });
        Ok(())
    }
}
