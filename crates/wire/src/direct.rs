//! Small whole frames, without the library.
//!
//! Nearly every frame of a chat is one short text, whole in what one read gives, on a connection with nothing else under
//! way. The library would be made around the transport for it, with a buffer, and taken down again. Such a frame is read
//! and written here instead; whatever is longer, cut, masked wrongly or of another kind goes to the library, which judges
//! it.

/// A longer text is not copied, but handed to the library, bytes.
const LARGE_OUT: usize = 16 * 1024;
/// First bytes of a whole text, ping and pong.
pub(crate) const TEXT: u8 = 0x81;
const PING: u8 = 0x89;
pub(crate) const PONG: u8 = 0x8a;
/// Longest payload of a control frame.
const CONTROL: usize = 125;

/// Where the payload of a whole frame lies: first byte of the frame, its mask, start and end of the payload.
type Found = (u8, [u8; 4], usize, usize);

/// The whole, masked text or pong at the beginning of a stream, if there is one of at most `limit` bytes.
pub(crate) fn whole(stream: &[u8], limit: usize) -> Option<Found> {
    let (&first, rest) = stream.split_first()?;
    let (&second, rest) = rest.split_first()?;
    if !matches!(first, TEXT | PONG) || second & 0x80 == 0 {
        return None;
    }
    let (length, mask, start) = match second & 0x7f {
        126 => {
            let (length, rest) = rest.split_first_chunk::<2>()?;
            (usize::from(u16::from_be_bytes(*length)), rest.first_chunk::<4>()?, 8)
        }
        127 => return None,
        short => (usize::from(short), rest.first_chunk::<4>()?, 6),
    };
    // A long form of a short length, or a long control frame, is a fault.
    let fits = match start {
        8 => first == TEXT && length > CONTROL,
        _ => true,
    };
    (fits && length <= limit && stream.len() >= start + length).then_some((
        first,
        *mask,
        start,
        start + length,
    ))
}

/// The payload without its mask.
pub(crate) fn unmask(payload: &[u8], mask: [u8; 4]) -> Vec<u8> {
    let mut bytes = payload.to_vec();
    let (words, rest) = bytes.as_chunks_mut::<4>();
    for word in words {
        *word = (u32::from_ne_bytes(*word) ^ u32::from_ne_bytes(mask)).to_ne_bytes();
    }
    for (byte, mask) in rest.iter_mut().zip(mask) {
        *byte ^= mask;
    }
    bytes
}

/// Appends a text frame of a server. `false`: it is too long for here.
pub(crate) fn put_text(text: &str, out: &mut Vec<u8>) -> bool {
    match u16::try_from(text.len()) {
        Ok(length) if text.len() <= LARGE_OUT => {
            out.push(TEXT);
            match u8::try_from(length) {
                Ok(short) if text.len() <= CONTROL => out.push(short),
                _ => {
                    out.push(126);
                    out.extend_from_slice(&length.to_be_bytes());
                }
            }
            out.extend_from_slice(text.as_bytes());
            true
        }
        _ => false,
    }
}

/// Appends a ping of a server with a nonce, or an empty one.
pub(crate) fn put_ping(nonce: Option<u64>, out: &mut Vec<u8>) {
    out.push(PING);
    match nonce {
        Some(nonce) => {
            out.push(8);
            out.extend_from_slice(&nonce.to_be_bytes());
        }
        None => out.push(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
        let mask = [1, 2, 3, 4];
        let mut frame = vec![first];
        match payload.len() {
            short @ ..126 => frame.push(0x80 | short as u8),
            long => {
                frame.push(0x80 | 126);
                frame.extend((long as u16).to_be_bytes());
            }
        }
        frame.extend(mask);
        frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        frame
    }

    #[test]
    fn whole_texts_and_pongs_are_read() {
        for length in [0, 1, 3, 4, 125, 126, 127, 4000] {
            let payload: Vec<u8> = (0..length).map(|at| (at % 128) as u8).collect();
            for first in [TEXT, PONG] {
                let mut frame = masked(first, &payload);
                let whole_length = frame.len();
                frame.extend([9, 9, 9]);
                if first == PONG && length > 125 {
                    assert_eq!(whole(&frame, 10_000), None, "a long pong");
                    continue;
                }
                let (is, mask, start, end) = whole(&frame, 10_000).unwrap();
                assert_eq!((is, end), (first, whole_length));
                assert_eq!(unmask(&frame[start..end], mask), payload);
                assert_eq!(whole(&frame, length), Some((is, mask, start, end)));
                for cut in 0..whole_length {
                    assert_eq!(whole(&frame[..cut], 10_000), None, "{cut} of {whole_length} bytes");
                }
            }
        }
    }

    #[test]
    fn all_else_is_left_to_the_library() {
        let text = masked(TEXT, b"hello");
        assert!(whole(&text, 5).is_some());
        assert_eq!(whole(&text, 4), None, "too long");
        for first in [0x01, 0x80, 0x82, 0x88, 0x89, 0xc1, 0x91, 0x8b] {
            assert_eq!(whole(&masked(first, b"hello"), 100), None, "{first:x}");
        }
        let mut bare = text.clone();
        bare[1] &= 0x7f;
        assert_eq!(whole(&bare, 100), None, "not masked");
        let long_form = [&[TEXT, 0x80 | 126, 0, 5, 0, 0, 0, 0][..], b"hello"].concat();
        assert_eq!(whole(&long_form, 100), None, "a long form of a short length");
    }

    #[test]
    fn frames_of_a_server_have_the_shortest_header() {
        let put = |text: &str| {
            let mut out = Vec::new();
            assert!(put_text(text, &mut out));
            out
        };
        assert_eq!(put("ab"), [0x81, 2, b'a', b'b']);
        assert_eq!(put(&"x".repeat(125))[..2], [0x81, 125]);
        assert_eq!(put(&"x".repeat(126))[..4], [0x81, 126, 0, 126]);
        assert_eq!(put(&"x".repeat(LARGE_OUT)).len(), LARGE_OUT + 4);
        let mut out = Vec::new();
        assert!(!put_text(&"x".repeat(LARGE_OUT + 1), &mut out) && out.is_empty());
        put_ping(Some(1), &mut out);
        put_ping(None, &mut out);
        assert_eq!(out, [0x89, 8, 0, 0, 0, 0, 0, 0, 0, 1, 0x89, 0]);
    }
}
