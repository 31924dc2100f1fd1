//! What is kept: the language between the state machines and the store. The store treats bodies and marks as bytes.
//!
//! One append-only log holds everything that devices and agents said. The core numbers the records ([`Pos`]); the
//! store links the records of one device backwards, so that a device is loaded by walking its own chain and no
//! secondary index is paid for on the hot path.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::{
    Millis,
    link::{CardOutcome, DeviceInfo, InFile, User},
    server::{OutKind, Prompt},
};

/// Position of a record in the log: rising, never reused. Also the `event` number of what a device said.
pub type Pos = u64;
/// Number of a device in this store, given at its first contact, from 1.
pub type DeviceNo = u32;

/// One row of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Position.
    pub pos: Pos,
    /// Device.
    pub device: DeviceNo,
    /// When.
    pub at: Millis,
    /// What must be remembered for 7 days without reading the body ([`Mark`], encoded); empty if nothing.
    pub mark: Vec<u8>,
    /// [`Body`], encoded.
    pub body: Vec<u8>,
}

/// The state of a device that is not in its records. Rewritten whole, in the same commit as the records it belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceState {
    /// What is known of it (`online` is not stored).
    pub info: DeviceInfo,
    /// Language of its person, a tag.
    #[serde(default)]
    pub lang: Option<String>,
    /// Last `seq` given.
    pub seq: u64,
    /// Everything up to this `seq` is proven to be on the device.
    pub proven: u64,
    /// Records from here on are needed to go on (open cards and bubbles, waiting input, unproven items);
    /// `None`: none is.
    pub live_from: Option<Pos>,
    /// What a device said, up to here, is done...
    pub done: Pos,
    /// ...and these too.
    #[serde(default)]
    pub done_above: Vec<Pos>,
}

/// One step of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Creates or rewrites the state of a device. `id` never changes for a number.
    Device {
        /// Number.
        no: DeviceNo,
        /// Device id.
        id: String,
        /// [`DeviceState`], encoded.
        state: Vec<u8>,
        /// Whether the gateway must load it at start (waiting input, open cards or bubbles).
        wake: bool,
    },
    /// Appends to the log.
    Append(Row),
}

/// What is written together: all of it or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Number, rising by one.
    pub no: u64,
    /// Steps.
    pub ops: Vec<Op>,
    /// May wait up to a second for company: nothing depends on it.
    pub lazy: bool,
}

/// A device as the store gives it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Number.
    pub no: DeviceNo,
    /// [`DeviceState`], encoded.
    pub state: Vec<u8>,
    /// Marks of the records younger than the horizon, newest first: position, time, mark.
    pub marks: Vec<(Pos, Millis, Vec<u8>)>,
    /// Records from `live_from` on, oldest first.
    pub live: Vec<Row>,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "r", rename_all = "snake_case")]
pub enum Body {
    /// A device said something (or a card's time was over, which the agent is told like something said).
    In(InRecord),
    /// Final state of a message, or a later edit of it: an item.
    Message(MessageRecord),
    /// State of a bubble that is still open. Not an item.
    Bubble(BubbleRecord),
    /// A file to the device. An item once it has a `seq`: a large file on its way is stored without one, and again with
    /// the `seq` when its last part is due.
    File(FileRecord),
    /// A card: an item.
    Card(CardRecord),
    /// The agent took the answer of a card.
    CardTaken {
        /// Card id.
        id: String,
        /// Event of the answer.
        event: u64,
        /// Option.
        option_id: String,
    },
    /// End of a card: an item.
    CardDone {
        /// Item number.
        seq: u64,
        /// Card id.
        id: String,
        /// What took effect.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        option_id: Option<String>,
        /// Time was over.
        #[serde(default)]
        expired: bool,
        /// Why it ended elsewhere.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// How a `deliver` (or a call with `offline:"fail"`) ended.
    Delivered {
        /// Message id.
        id: String,
        /// Outcome: whether the device's stack has it.
        ok: bool,
    },
}

/// What a device said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InRecord {
    /// The client's id, or the one the gateway gave.
    pub id: String,
    /// Who.
    pub user: User,
    /// What.
    #[serde(flatten)]
    pub what: InBody,
}

/// What was said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "in", rename_all = "snake_case")]
pub enum InBody {
    /// Text.
    Text {
        /// It.
        text: String,
    },
    /// A file or a voice message.
    File {
        /// It.
        file: InFile,
    },
    /// Outcome of a card.
    Card {
        /// It.
        card: CardOutcome,
    },
}

/// Final state of one bubble.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageRecord {
    /// Item number.
    pub seq: u64,
    /// Message id.
    pub id: String,
    /// Whole text.
    pub text: String,
    /// The id of the text it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// A redraw of a bubble that the device may have: sent with `edit:true`.
    #[serde(default)]
    pub edit: bool,
    /// Never replayed (`deliver` without a queue).
    #[serde(default)]
    pub once: bool,
}

/// An open bubble.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BubbleRecord {
    /// Message id of this piece.
    pub id: String,
    /// The id the agent knows.
    pub of: String,
    /// Which piece of the agent's message it is, from 0: one id does not hold more than
    /// [`crate::limits::MESSAGE_BYTES`].
    pub piece: u32,
    /// Whole text of this piece so far.
    pub text: String,
    /// The id of the text it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// Instance of the agent that opened it: another instance closes it.
    pub instance: String,
}

/// A file to the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Item number, if it has one yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// File id.
    pub id: String,
    /// Kind.
    pub kind: OutKind,
    /// What the bytes are.
    pub mime: String,
    /// Name to show.
    pub filename: String,
    /// Caption.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caption: Option<String>,
    /// Name in the media folder.
    pub file: String,
    /// Size.
    pub bytes: u64,
    /// The id of the text it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// Never replayed.
    #[serde(default)]
    pub once: bool,
}

/// A card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardRecord {
    /// The frame; its `seq` is the item's number, its `timeout_seconds` the whole time.
    pub prompt: Prompt,
    /// Absolute end.
    pub deadline: Millis,
    /// Key of the call that made it.
    pub key: String,
    /// Instance of the agent that made it: another instance closes it.
    pub instance: String,
}

/// What is remembered of a record for 7 days without its body. Ids and keys are hashes ([`hash128`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Something a device said: for dedupe.
    In {
        /// Hash of the client's id.
        id: u128,
        /// Hash of kind and content.
        content: u64,
    },
    /// A message or file of the agent's. Its id follows from the key of the call, so that the id alone tells whether a call
    /// was made before.
    Out {
        /// Hash of the id.
        id: u128,
        /// Hash of the text or content: tells a repeated edit from a new one.
        content: u64,
        /// It is never replayed: unless its outcome is on disk too, nobody knows that it arrived.
        once: bool,
    },
    /// How a keyed delivery ended.
    Ended {
        /// Hash of the message id.
        id: u128,
        /// Whether the device has it.
        ok: bool,
    },
    /// A card: gives a repeated call its card.
    Card {
        /// Hash of the key.
        key: u128,
        /// Card id.
        id: String,
    },
}

/// 128 bits of BLAKE3.
#[must_use]
pub fn hash128(parts: &[&[u8]]) -> u128 {
    let bytes = hash(parts);
    u128::from_le_bytes(bytes[..16].try_into().unwrap_or_default())
}

/// 64 bits of BLAKE3.
#[must_use]
pub fn hash64(parts: &[&[u8]]) -> u64 {
    let bytes = hash(parts);
    u64::from_le_bytes(bytes[..8].try_into().unwrap_or_default())
}

/// Parts that are hashed in one piece have at most so many bytes with their lengths.
const SHORT: usize = 512;

fn hash(parts: &[&[u8]]) -> [u8; 32] {
    // Nearly all that is hashed is short: in one piece it takes half the time.
    let mut space = [0; SHORT];
    let mut room = space.as_mut_slice();
    for part in parts {
        let len = (part.len() as u64).to_le_bytes();
        for bytes in [&len[..], part] {
            let Some((here, rest)) = room.split_at_mut_checked(bytes.len()) else { return long_hash(parts) };
            here.copy_from_slice(bytes);
            room = rest;
        }
    }
    let left = room.len();
    *blake3::hash(space.get(..SHORT - left).unwrap_or_default()).as_bytes()
}

/// As [`hash`], for parts of any length.
fn long_hash(parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        // The length keeps ("ab","c") apart from ("a","bc").
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    *hasher.finalize().as_bytes()
}

/// A record or a state in the store that this version cannot read.
#[derive(Debug, thiserror::Error)]
#[error("the stored record cannot be read: {0}")]
pub struct Unreadable(pub String);

impl Body {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
    /// From bytes.
    ///
    /// # Errors
    /// [`Unreadable`] when they are not what this version writes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        serde_json::from_slice(bytes).map_err(|e| Unreadable(e.to_string()))
    }
}

impl DeviceState {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
    /// From bytes.
    ///
    /// # Errors
    /// [`Unreadable`] when they are not what this version writes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        serde_json::from_slice(bytes).map_err(|e| Unreadable(e.to_string()))
    }
}

impl Mark {
    /// As bytes: a tag, a hash, then what the tag asks for, little-endian.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (tag, hash, rest): (u8, u128, Cow<'_, [u8]>) = match self {
            Self::In { id, content } => (1, *id, content.to_le_bytes().to_vec().into()),
            Self::Out { id, content, once } => {
                let mut rest = content.to_le_bytes().to_vec();
                if *once {
                    rest.push(1);
                }
                (2, *id, rest.into())
            }
            Self::Ended { id, ok } => (3, *id, vec![u8::from(*ok)].into()),
            Self::Card { key, id } => (4, *key, id.as_bytes().into()),
        };
        let mut out = Vec::with_capacity(17 + rest.len());
        out.push(tag);
        out.extend_from_slice(&hash.to_le_bytes());
        out.extend_from_slice(&rest);
        out
    }
    /// From bytes; `None` for what this version does not know, which is then not remembered.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (tag, rest) = bytes.split_first()?;
        let (hash, rest) = rest.split_first_chunk::<16>()?;
        let hash = u128::from_le_bytes(*hash);
        match tag {
            1 => Some(Self::In { id: hash, content: u64::from_le_bytes(*rest.first_chunk()?) }),
            2 => {
                let content = u64::from_le_bytes(*rest.first_chunk()?);
                Some(Self::Out { id: hash, content, once: rest.get(8) == Some(&1) })
            }
            3 => Some(Self::Ended { id: hash, ok: *rest.first()? == 1 }),
            4 => Some(Self::Card { key: hash, id: String::from_utf8(rest.to_vec()).ok()? }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_parts_are_hashed_alike() {
        for length in [0, 1, 100, SHORT - 25, SHORT - 24, SHORT - 23, SHORT - 16, SHORT, 5_000] {
            let part = vec![7; length];
            let parts: [&[u8]; 3] = [b"", &part, b"x"];
            assert_eq!(hash(&parts), long_hash(&parts), "{length}");
        }
        assert_ne!(hash(&[b"ab", b"c"]), hash(&[b"a", b"bc"]));
    }
}
