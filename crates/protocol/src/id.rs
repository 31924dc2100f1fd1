//! Ids: which ones are valid, and how the gateway makes its own.

use crate::{Millis, record::DeviceNo};

/// Whether `id` may be a `device.id` or `user.id`: 1–128 characters; letters and digits of any script and `. _ - ~ @ + :`;
/// not `*` alone.
#[must_use]
pub fn valid_device_id(id: &str) -> bool {
    let _ = id;
    todo!()
}

/// What [`valid_device_id`] allows, one English sentence for `detail`.
pub const DEVICE_ID_RULE: &str =
    "must be 1 to 128 characters: letters and digits of any script, and . _ - ~ @ + :";

/// Reduces a client's file name to what may be shown: its last component (`/` and `\`), control characters and bidi
/// overrides removed, at most 200 bytes without cutting a cluster and with the extension kept; `None` if nothing sensible is left.
#[must_use]
pub fn clean_filename(name: &str) -> Option<String> {
    let _ = name;
    todo!()
}

/// Makes ids that cannot be guessed and do not repeat: a keyed counter. The caller gives a fresh secret at each start.
#[derive(Debug)]
pub struct IdMaker {
    key: [u8; 32],
    next: u64,
}

impl IdMaker {
    /// A maker; `secret` must be new for every process.
    #[must_use]
    pub fn new(secret: [u8; 32]) -> Self {
        Self { key: secret, next: 0 }
    }
    /// A new id: `prefix` and 26 characters of lower-case base32.
    pub fn make(&mut self, prefix: &str) -> String {
        let _ = (prefix, &self.key, &mut self.next);
        todo!()
    }
}

/// Makes and reads card ids. A card id carries, sealed under the store's secret, whose card it is and when its time is
/// over, so that nothing has to be kept to answer for cards of other devices and of long ago.
#[derive(Debug, Clone)]
pub struct CardIds {
    key: [u8; 32],
}

/// What a card id tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardId {
    /// Whose.
    pub device: DeviceNo,
    /// Position of its record in the log, which makes it unique.
    pub pos: u64,
    /// When its time is over.
    pub deadline: Millis,
}

impl CardIds {
    /// With the store's secret.
    #[must_use]
    pub fn new(secret: [u8; 32]) -> Self {
        Self { key: secret }
    }
    /// The id of a card: not guessable (128 bits of MAC), ASCII, the same for the same card.
    #[must_use]
    pub fn make(&self, card: CardId) -> String {
        let _ = (card, &self.key);
        todo!()
    }
    /// Reads an id; `None` if this store did not make it.
    #[must_use]
    pub fn read(&self, id: &str) -> Option<CardId> {
        let _ = id;
        todo!()
    }
}
