//! Small pictures, made here. PNG with stored (not compressed) deflate blocks needs no library.

/// Edge of a picture, pixels.
pub(super) const EDGE: u32 = 48;

/// Picture number `n`: bars that count to `n` on a colour of its own. The same number gives the same bytes.
pub(super) fn picture(n: usize) -> Vec<u8> {
    let hue = u8::try_from(n * 37 % 256).unwrap_or(0);
    let back = [hue, 255 - hue, 160];
    let mut raw = Vec::new();
    for y in 0..EDGE as usize {
        raw.push(0); // no filter
        for x in 0..EDGE as usize {
            // A bar is two pixels wide and stands on every fourth; more than eleven start a second row.
            let (bar, row) = (x / 4, y / 24);
            let on = x % 4 < 2 && y % 24 > 4 && row * 12 + bar < n;
            raw.extend_from_slice(if on { &[255; 3] } else { &back });
        }
    }
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut head = Vec::new();
    head.extend_from_slice(&EDGE.to_be_bytes());
    head.extend_from_slice(&EDGE.to_be_bytes());
    head.extend_from_slice(&[8, 2, 0, 0, 0]); // 8 bits, RGB, deflate, no filter method, not interlaced
    chunk(&mut png, *b"IHDR", &head);
    chunk(&mut png, *b"IDAT", &zlib(&raw));
    chunk(&mut png, *b"IEND", &[]);
    png
}

fn chunk(png: &mut Vec<u8>, name: [u8; 4], data: &[u8]) {
    // Bounded by EDGE.
    png.extend_from_slice(&u32::try_from(data.len()).unwrap_or(0).to_be_bytes());
    let mut body = name.to_vec();
    body.extend_from_slice(data);
    png.extend_from_slice(&body);
    png.extend_from_slice(&crc32(&body).to_be_bytes());
}

fn zlib(raw: &[u8]) -> Vec<u8> {
    let mut out = vec![0x78, 0x01];
    let mut blocks = raw.chunks(0xffff).peekable();
    while let Some(block) = blocks.next() {
        let len = u16::try_from(block.len()).unwrap_or(u16::MAX);
        out.push(u8::from(blocks.peek().is_none()));
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(&(!len).to_le_bytes());
        out.extend_from_slice(block);
    }
    out.extend_from_slice(&adler32(raw).to_be_bytes());
    out
}

pub(super) fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |c, _| if c & 1 == 1 { (c >> 1) ^ 0xedb8_8320 } else { c >> 1 })
    })
}

fn adler32(bytes: &[u8]) -> u32 {
    let (a, b) = bytes.iter().fold((1, 0), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65_521;
        (a, (b + a) % 65_521)
    });
    b << 16 | a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_standards() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(adler32(b"Wikipedia"), 0x11e6_0398);
    }

    #[test]
    fn pictures_differ() {
        let all: Vec<_> = (1..=20).map(picture).collect();
        for (i, one) in all.iter().enumerate() {
            assert!(all.iter().skip(i + 1).all(|other| other != one));
            assert_eq!(*one, picture(i + 1));
        }
    }
}
