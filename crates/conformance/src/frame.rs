//! WebSocket frames as bytes (RFC 6455, section 5.2), with no library between: a checker must see what a library hides
//! (pings, the order of everything) and send what it refuses (reserved bits, lengths without a payload).

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Bit of the first byte: the last fragment of a message.
pub const FIN: u8 = 0x80;
/// Opcode of a text frame.
pub const TEXT: u8 = 1;
/// Opcode of a binary frame.
pub const BINARY: u8 = 2;
/// Opcode of a close frame.
pub const CLOSE: u8 = 8;
/// Opcode of a ping.
pub const PING: u8 = 9;
/// Opcode of a pong.
pub const PONG: u8 = 10;

/// What stands before a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// FIN, reserved bits and opcode.
    pub first: u8,
    /// The mask, if the frame is masked.
    pub mask: Option<[u8; 4]>,
    /// Length of the payload, bytes.
    pub len: u64,
}

impl Header {
    /// The header as bytes, with the shortest form of the length.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let bit = if self.mask.is_some() { 0x80 } else { 0 };
        let mut out = vec![self.first];
        match (u8::try_from(self.len), u16::try_from(self.len)) {
            (Ok(len @ 0..=125), _) => out.push(bit | len),
            (_, Ok(len)) => {
                out.push(bit | 126);
                out.extend_from_slice(&len.to_be_bytes());
            }
            _ => {
                out.push(bit | 127);
                out.extend_from_slice(&self.len.to_be_bytes());
            }
        }
        out.extend_from_slice(self.mask.as_ref().map_or(&[][..], |mask| mask));
        out
    }
}

/// Reads a header; `None`: the stream ended before it.
///
/// # Errors
/// Those of the stream, also when it ends inside of the header.
pub async fn read_header<R: AsyncRead + Unpin>(from: &mut R) -> io::Result<Option<Header>> {
    let mut first = [0];
    if from.read(&mut first).await? == 0 {
        return Ok(None);
    }
    let second = from.read_u8().await?;
    let len = match second & 0x7f {
        126 => from.read_u16().await?.into(),
        127 => from.read_u64().await?,
        len => len.into(),
    };
    let mask = if second & 0x80 == 0 {
        None
    } else {
        let mut mask = [0; 4];
        from.read_exact(&mut mask).await?;
        Some(mask)
    };
    let [first] = first;
    Ok(Some(Header { first, mask, len }))
}

/// Masks a payload, or takes the mask away.
pub fn apply_mask(mask: Option<[u8; 4]>, payload: &mut [u8]) {
    let Some(mask) = mask else { return };
    for (byte, key) in payload.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= key;
    }
}

/// A whole frame.
#[must_use]
pub fn encode(first: u8, mask: Option<[u8; 4]>, payload: &[u8]) -> Vec<u8> {
    let len = u64::try_from(payload.len()).unwrap_or(u64::MAX);
    let mut out = Header { first, mask, len }.bytes();
    let start = out.len();
    out.extend_from_slice(payload);
    if let Some(rest) = out.get_mut(start..) {
        apply_mask(mask, rest);
    }
    out
}

/// The payload of a close frame.
#[must_use]
pub fn close_payload(code: Option<u16>) -> Vec<u8> {
    code.map_or_else(Vec::new, |code| code.to_be_bytes().to_vec())
}

/// The code in the payload of a close frame.
#[must_use]
pub fn close_code(payload: &[u8]) -> Option<u16> {
    payload.first_chunk().map(|code| u16::from_be_bytes(*code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_written_is_read_back() {
        for len in [0, 1, 125, 126, 65_535, 65_536] {
            for mask in [None, Some([1, 2, 3, 4])] {
                let payload: Vec<u8> = (0..len).map(|i: u32| i.to_le_bytes()[0]).collect();
                let bytes = encode(FIN | TEXT, mask, &payload);
                let mut from = bytes.as_slice();
                let header = read_header(&mut from).await.unwrap().unwrap();
                assert_eq!(header, Header { first: FIN | TEXT, mask, len: u64::from(len) });
                let mut rest = from.to_vec();
                apply_mask(mask, &mut rest);
                assert_eq!(rest, payload);
            }
        }
        assert_eq!(read_header(&mut [].as_slice()).await.unwrap(), None);
        assert!(read_header(&mut [0x81].as_slice()).await.is_err());
        assert_eq!(close_code(&close_payload(Some(1008))), Some(1008));
        assert_eq!(close_code(&close_payload(None)), None);
    }
}
