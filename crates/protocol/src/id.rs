//! Ids: which ones are valid, and how the gateway makes its own.

use unicode_segmentation::UnicodeSegmentation;

use crate::{Millis, limits, record::DeviceNo};

/// Whether `id` may be a `device.id` or `user.id`: 1–128 characters; letters and digits of any script and `. _ - ~ @ + :`;
/// not `*` alone.
#[must_use]
pub fn valid_device_id(id: &str) -> bool {
    let allowed = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '~' | '@' | '+' | ':');
    // `*` is not among the characters, alone or not.
    !id.is_empty() && id.chars().all(allowed) && id.chars().nth(limits::ID_CHARS).is_none()
}

/// What [`valid_device_id`] allows, one English sentence for `detail`.
pub const DEVICE_ID_RULE: &str =
    "must be 1 to 128 characters: letters and digits of any script, and . _ - ~ @ + :";

/// Longest extension that is kept when a name is shortened, bytes with the dot.
const EXTENSION_BYTES: usize = 16;

/// Reduces a client's file name to what may be shown: its last component (`/` and `\`), control characters and bidi
/// overrides removed, at most 200 bytes without cutting a cluster and with the extension kept; `None` if nothing sensible is left.
#[must_use]
pub fn clean_filename(name: &str) -> Option<String> {
    // The last component that is not empty, so that `folder/` still has a name.
    let component = name.rsplit(['/', '\\']).find(|part| !part.trim().is_empty())?;
    let clean: String = component.chars().filter(|c| !hidden(*c)).collect();
    let clean = clean.trim();
    if clean.chars().all(|c| c == '.' || c.is_whitespace()) {
        return None;
    }
    if clean.len() <= limits::FILENAME_BYTES {
        return Some(clean.to_owned());
    }
    let dot = clean.rfind('.').filter(|dot| *dot > 0 && clean.len() - dot <= EXTENSION_BYTES);
    let (stem, extension) = clean.split_at(dot.unwrap_or(clean.len()));
    // The cut may leave a space at the end.
    let stem = beginning(stem, limits::FILENAME_BYTES - extension.len());
    Some(format!("{stem}{extension}").trim().to_owned())
}

/// Characters that show nothing and can make a name look like another: controls, line and paragraph separators, direction marks
/// and overrides, the byte order mark.
fn hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// As much of the beginning of `text` as fits in `most` bytes without cutting a grapheme cluster; if not even one fits, without
/// cutting a character.
fn beginning(text: &str, most: usize) -> &str {
    let fitting = |end: usize, piece: &str| Some(end + piece.len()).filter(|end| *end <= most);
    let clusters = text.graphemes(true).try_fold(0, |end, piece| fitting(end, piece).ok_or(end));
    let (Ok(mut end) | Err(mut end)) = clusters;
    if end == 0 {
        end = text.floor_char_boundary(most);
    }
    text.get(..end).unwrap_or_default()
}

/// RFC 4648 base32 in lower case: letters that survive any channel, and no `:` or `%`.
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

fn base32(bytes: &[u8], out: &mut String) {
    let (mut bits, mut count) = (0u32, 0u32);
    let mut push = |five: u32| {
        if let Some(letter) = ALPHABET.get((five & 31) as usize) {
            out.push(char::from(*letter));
        }
    };
    for byte in bytes {
        bits = bits << 8 | u32::from(*byte);
        count += 8;
        while count >= 5 {
            count -= 5;
            push(bits >> count);
        }
    }
    if count > 0 {
        push(bits << (5 - count));
    }
}

/// Reads what [`base32`] wrote; `None` for anything that it does not write.
fn from_base32<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != (N * 8).div_ceil(5) {
        return None;
    }
    let mut out = [0; N];
    let mut rest = out.iter_mut();
    let (mut bits, mut count) = (0u32, 0u32);
    for letter in text.bytes() {
        let five = ALPHABET.iter().position(|a| *a == letter)?;
        bits = bits << 5 | five as u32;
        count += 5;
        if count >= 8 {
            count -= 8;
            *rest.next()? = (bits >> count) as u8;
        }
        bits &= (1 << count) - 1;
    }
    // Left-over bits that are not zero would be a second way to write the same id.
    (bits == 0).then_some(out)
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
        let hash = blake3::keyed_hash(&self.key, &self.next.to_le_bytes());
        self.next += 1;
        let mut id = String::with_capacity(prefix.len() + 26);
        id.push_str(prefix);
        // 128 bits: 26 letters.
        let (head, _) = hash.as_bytes().split_at(16);
        base32(head, &mut id);
        id
    }
}

/// Makes and reads card ids. A card id carries, sealed under the store's secret, whose card it is and when its time is
/// over, so that nothing has to be kept to answer for cards of other devices and of long ago.
#[derive(Clone)]
pub struct CardIds {
    mac: [u8; 32],
    cover: [u8; 32],
}

impl std::fmt::Debug for CardIds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The keys are never printed.
        f.debug_struct("CardIds").finish_non_exhaustive()
    }
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

/// Bytes of device, position and deadline.
const CARD_BYTES: usize = 4 + 8 + 8;
/// Bytes of the MAC.
const MAC_BYTES: usize = 16;
/// What a card id begins with.
const CARD_PREFIX: &str = "c";

impl CardIds {
    /// With the store's secret.
    #[must_use]
    pub fn new(secret: [u8; 32]) -> Self {
        // The context strings keep these keys apart from any other use of the secret. They never change: ids outlive processes.
        Self {
            mac: blake3::derive_key("hermes-mobile card ids 1 mac", &secret),
            cover: blake3::derive_key("hermes-mobile card ids 1 cover", &secret),
        }
    }
    /// The id of a card: not guessable (128 bits of MAC), ASCII, the same for the same card.
    #[must_use]
    pub fn make(&self, card: CardId) -> String {
        let mut sealed = [0; MAC_BYTES + CARD_BYTES];
        let (mac, body) = sealed.split_at_mut(MAC_BYTES);
        let (device, rest) = body.split_at_mut(4);
        let (pos, deadline) = rest.split_at_mut(8);
        device.copy_from_slice(&card.device.to_le_bytes());
        pos.copy_from_slice(&card.pos.to_le_bytes());
        deadline.copy_from_slice(&card.deadline.to_le_bytes());
        mac.copy_from_slice(&self.mac_of(body));
        self.cover(mac, body);
        let mut id = String::with_capacity(CARD_PREFIX.len() + 58);
        id.push_str(CARD_PREFIX);
        base32(&sealed, &mut id);
        id
    }
    /// Reads an id; `None` if this store did not make it.
    #[must_use]
    pub fn read(&self, id: &str) -> Option<CardId> {
        let mut sealed: [u8; MAC_BYTES + CARD_BYTES] = from_base32(id.strip_prefix(CARD_PREFIX)?)?;
        let (mac, body) = sealed.split_at_mut(MAC_BYTES);
        self.cover(mac, body);
        // Without an early end, so that the time tells nothing about how much of it was right.
        let wrong = self.mac_of(body).iter().zip(mac.iter()).fold(0, |wrong, (a, b)| wrong | (a ^ b));
        if wrong != 0 {
            return None;
        }
        let (device, rest) = body.split_first_chunk::<4>()?;
        let (pos, rest) = rest.split_first_chunk::<8>()?;
        Some(CardId {
            device: DeviceNo::from_le_bytes(*device),
            pos: u64::from_le_bytes(*pos),
            deadline: Millis::from_le_bytes(*rest.first_chunk::<8>()?),
        })
    }

    fn mac_of(&self, body: &[u8]) -> [u8; MAC_BYTES] {
        let mut mac = [0; MAC_BYTES];
        blake3::Hasher::new_keyed(&self.mac).update(body).finalize_xof().fill(&mut mac);
        mac
    }

    /// Covers or uncovers the body, by a key stream that depends on the MAC.
    fn cover(&self, mac: &[u8], body: &mut [u8]) {
        let mut stream = [0; CARD_BYTES];
        blake3::Hasher::new_keyed(&self.cover).update(mac).finalize_xof().fill(&mut stream);
        for (byte, key) in body.iter_mut().zip(stream) {
            *byte ^= key;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn long_names_are_cut_between_clusters_and_keep_their_extension() {
        let family = "👨‍👩‍👧‍👦";
        let name = clean_filename(&format!("{}.jpeg", family.repeat(20))).unwrap();
        // 25 bytes each: 7 fit into 200 - 5.
        assert_eq!(name, format!("{}.jpeg", family.repeat(7)));
        // What looks like an extension but is too long is none.
        assert_eq!(clean_filename(&format!("a.{}", "b".repeat(300))).unwrap().len(), limits::FILENAME_BYTES);
        // One endless cluster is cut between characters.
        let marks = clean_filename(&format!("a{}", "\u{301}".repeat(300))).unwrap();
        assert!((199..=200).contains(&marks.len()));
    }

    #[test]
    fn ids_are_new_each_time_and_for_each_secret() {
        let (mut one, mut two) = (IdMaker::new([1; 32]), IdMaker::new([2; 32]));
        let ids: HashSet<String> = (0..1000).flat_map(|_| [one.make("m"), two.make("m")]).collect();
        assert_eq!(ids.len(), 2000);
        assert!(ids.iter().all(|id| {
            id.len() == 27 && id.starts_with('m') && id.bytes().all(|b| ALPHABET.contains(&b))
        }));
    }

    #[test]
    fn a_card_id_is_read_only_by_its_own_store() {
        let (ours, theirs) = (CardIds::new([1; 32]), CardIds::new([2; 32]));
        let card = CardId { device: 7, pos: 1 << 40, deadline: 1_800_000_000_000 };
        let id = ours.make(card);
        assert_eq!(id, ours.make(card));
        assert_eq!(ours.read(&id), Some(card));
        assert_eq!(theirs.read(&id), None);
        assert!(id.len() <= limits::ID_CHARS && id.is_ascii());
        for other in ["", "c", "no-such", &id[1..], &format!("{id}a"), &id.to_uppercase()] {
            assert_eq!(ours.read(other), None, "{other}");
        }
    }

    #[test]
    fn a_card_id_with_any_letter_changed_is_unknown() {
        let cards = CardIds::new([1; 32]);
        let id = cards.make(CardId { device: 1, pos: 2, deadline: 3 });
        for at in 1..id.len() {
            for letter in ALPHABET.iter().copied().map(char::from).filter(|l| !id[at..].starts_with(*l)) {
                let mut changed = id.clone();
                changed.replace_range(at..=at, letter.to_string().as_str());
                assert_eq!(cards.read(&changed), None, "{changed}");
            }
        }
    }

    proptest! {
        #[test]
        fn base32_is_read_back(bytes in any::<[u8; 36]>()) {
            let mut text = String::new();
            base32(&bytes, &mut text);
            prop_assert_eq!(from_base32::<36>(&text), Some(bytes));
        }

        #[test]
        fn card_ids_are_read_back(device in any::<u32>(), pos in any::<u64>(), deadline in any::<u64>()) {
            let (cards, card) = (CardIds::new([9; 32]), CardId { device, pos, deadline });
            prop_assert_eq!(cards.read(&cards.make(card)), Some(card));
        }

        #[test]
        fn a_clean_filename_is_one_component_that_fits_and_stays(name in r#"([a-zé/\\. \u{0}\u{202e}-]|👍🏽|.){0,260}"#) {
            if let Some(clean) = clean_filename(&name) {
                prop_assert!(clean.len() <= limits::FILENAME_BYTES);
                let unwanted = ['/', '\\', '\0', '\u{202e}', '\n'];
                prop_assert!(!clean.contains(unwanted));
                prop_assert!(clean != "." && clean != ".." && !clean.is_empty());
                prop_assert_eq!(clean_filename(&clean), Some(clean.clone()));
            }
        }
    }
}
