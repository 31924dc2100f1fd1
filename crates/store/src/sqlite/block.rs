//! A block: position, time and mark of up to 512 rows of one device, newest first, in few bytes.
//!
//! Each row: distance of its position to the row before (the first: to the block's own `last`), distance of its time
//! (zigzag), length of its mark, the mark. Numbers are LEB128.

use protocol::{Millis, record::Pos};

/// So many rows of a device make a block.
pub(super) const ROWS: u32 = 512;

/// What a block holds of a row.
pub(super) type Entry = (Pos, Millis, Vec<u8>);

/// Packs rows, newest first, their positions falling from `last`.
pub(super) fn pack(last: Pos, rows: &[Entry]) -> Vec<u8> {
    let mut out = Vec::with_capacity(rows.len() * 40);
    let (mut pos, mut at) = (last, 0u64);
    for (row_pos, row_at, mark) in rows {
        put(&mut out, pos.wrapping_sub(*row_pos));
        let step = row_at.wrapping_sub(at).cast_signed();
        put(&mut out, ((step << 1) ^ (step >> 63)).cast_unsigned());
        put(&mut out, mark.len() as u64);
        out.extend_from_slice(mark);
        (pos, at) = (*row_pos, *row_at);
    }
    out
}

/// Calls `each` for every row, newest first; `None` if the bytes are not what [`pack`] makes.
pub(super) fn unpack(last: Pos, mut bytes: &[u8], mut each: impl FnMut(Pos, Millis, &[u8])) -> Option<()> {
    let (mut pos, mut at) = (last, 0u64);
    while !bytes.is_empty() {
        pos = pos.checked_sub(take(&mut bytes)?)?;
        let step = take(&mut bytes)?;
        at = at.wrapping_add((step >> 1) ^ (step & 1).wrapping_neg());
        let len = usize::try_from(take(&mut bytes)?).ok()?;
        let (mark, rest) = bytes.split_at_checked(len)?;
        bytes = rest;
        each(pos, at, mark);
    }
    Some(())
}

fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut n = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        n |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(n);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpacks_what_it_packed() {
        let rows: Vec<Entry> = vec![
            (900, 1_800_000_000_000, vec![7; 300]),
            (899, 1_800_000_000_005, vec![]),
            (3, 0, vec![1]),
            (1, u64::MAX, vec![2, 3]),
        ];
        let bytes = pack(900, &rows);
        let mut got = Vec::new();
        unpack(900, &bytes, |p, a, m| got.push((p, a, m.to_vec()))).unwrap();
        assert_eq!(got, rows);
    }

    #[test]
    fn damaged_bytes_are_noticed_and_never_panic() {
        let bytes = pack(900, &[(900, 5, vec![9; 40]), (10, 4, vec![8; 40])]);
        for cut in 1..bytes.len() {
            // A cut between two rows gives fewer rows; everywhere else it is noticed.
            let mut rows = 0;
            let done = unpack(900, &bytes[..cut], |_, _, _| rows += 1);
            assert!(done.is_none() || rows == 1, "cut at {cut}");
        }
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0xff;
            let _ = unpack(900, &bad, |_, _, _| {});
        }
        assert!(unpack(5, &[9, 0, 0], |_, _, _| {}).is_none(), "below position 0");
        assert!(unpack(5, &[0xff; 11], |_, _, _| {}).is_none(), "a number that never ends");
    }
}
