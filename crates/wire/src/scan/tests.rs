use super::*;

/// A masked header with the shortest length.
fn head(first: u8, len: u64) -> Vec<u8> {
    let mut bytes = vec![first];
    match len {
        0..=125 => bytes.push(0x80 | u8::try_from(len).unwrap()),
        126..=0xffff => {
            bytes.push(0xfe);
            bytes.extend(u16::try_from(len).unwrap().to_be_bytes());
        }
        _ => {
            bytes.push(0xff);
            bytes.extend(len.to_be_bytes());
        }
    }
    bytes.extend([1, 2, 3, 4]);
    bytes
}

fn frame(first: u8, len: u64) -> Vec<u8> {
    let mut bytes = head(first, len);
    bytes.resize(bytes.len() + usize::try_from(len).unwrap(), 0xff);
    bytes
}

#[test]
fn borders_are_found_wherever_the_stream_is_cut() {
    let stream =
        [frame(0x81, 0), frame(0x01, 200), frame(0x89, 5), frame(0x00, 126), frame(0x80, 0), frame(0x88, 2)]
            .concat();
    for step in 1..stream.len() {
        let mut scan = Scan::new(true, 1000);
        for piece in stream.chunks(step) {
            assert!(!scan.closed());
            assert_eq!(scan.feed(piece), Pass::All);
        }
        assert!(scan.closed() && scan.at_border(), "step {step}");
    }
}

#[test]
fn the_header_of_a_message_that_is_too_long_never_passes_whole() {
    let good = frame(0x82, 1000);
    let stream = [good.clone(), head(0x82, 1001)].concat();
    for cut in 0..stream.len() {
        let (one, two) = stream.split_at(cut);
        let mut scan = Scan::new(true, 1000);
        let passed = match (scan.feed(one), scan.feed(two)) {
            (Pass::All, Pass::TooLong(pass)) => cut + pass,
            (Pass::TooLong(pass), Pass::All) => pass,
            other => panic!("cut at {cut}: {other:?}"),
        };
        assert!((good.len()..good.len() + 4).contains(&passed), "cut at {cut}: {passed} passed");
        assert_eq!(scan.too_long(), Some(1001));
        assert!(!scan.at_border());
    }
}

#[test]
fn a_close_behind_a_discarded_message_is_found() {
    let mut scan = Scan::new(true, 1000);
    assert_eq!(scan.feed(&frame(0x82, 70_000)), Pass::TooLong(0));
    assert_eq!(scan.feed(&[frame(0x82, 70_000), frame(0x88, 2)].concat()), Pass::All);
    assert!(scan.closed());
}

#[test]
fn a_large_message_ends_a_piece() {
    let mut scan = Scan::new(true, 1 << 20);
    let (large, small) = (frame(0x82, 65_537), frame(0x81, 3));
    let stream = [small.clone(), large.clone(), small.clone()].concat();
    let end = small.len() + large.len();
    assert_eq!(scan.feed(&stream), Pass::Large(end));
    assert!(scan.at_border());
    assert_eq!(scan.feed(&small), Pass::All);
    assert!(scan.at_border());
}

#[test]
fn what_the_library_refuses_is_left_to_it() {
    for bytes in [vec![0xc1, 0xff], vec![0x83, 0x80], vec![0x81, 0x7f], vec![0x80, 0xff]] {
        let mut scan = Scan::new(true, 10);
        let stream = [bytes.clone(), vec![0x7f; 40]].concat();
        assert_eq!(scan.feed(&stream), Pass::All, "{bytes:?}");
        assert!(scan.too_long().is_none() && !scan.at_border());
    }
    // A client takes unmasked frames only.
    let mut scan = Scan::new(false, 10);
    assert_eq!(scan.feed(&[0x81, 1, b'a']), Pass::All);
    assert!(scan.at_border());
    assert_eq!(scan.feed(&frame(0x81, 1)), Pass::All);
    assert!(!scan.at_border());
}
