//! Framing faults, over-long messages and the end of a connection, each with its close code, on raw bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{
    CLOSE, Ev, FIN, PING, PONG, Pair, TEXT, frame, head, in_memory, over_tcp, read_close, read_frame,
};
use hermes_mobile_wire::{Out, Why, WireConfig};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};

const SMALL: usize = protocol::limits::FRAME_BEFORE_READY;
const LARGE: usize = protocol::limits::FRAME_AFTER_READY;
const ERROR: &str = r#"{"t":"error","code":"too_big","fatal":true}"#;

/// Name, bytes, close code.
fn faults() -> Vec<(&'static str, Vec<u8>, u16)> {
    let unmasked = [&[FIN | TEXT, 2], b"hi".as_slice()].concat();
    let within = [frame(TEXT, b"a"), frame(FIN | TEXT, b"b")].concat();
    let cut = "\u{44f}".as_bytes().split_at(1).0;
    let mut long_16 = vec![FIN | TEXT, 0x80 | 126, 0, 125, 0, 0, 0, 0];
    long_16.resize(8 + 125, b'a');
    let mut long_64 = vec![FIN | TEXT, 0x80 | 127, 0, 0, 0, 0, 0, 0, 0, 126, 0, 0, 0, 0];
    long_64.resize(14 + 126, b'a');
    let mut bad_half = head(FIN | TEXT, 5000);
    bad_half.extend_from_slice(b"good, then \xff\xfe bad");
    vec![
        ("RSV1: a compressed frame", frame(FIN | 0x40 | TEXT, b"x"), 1002),
        ("RSV1 on a frame that is too long", head(FIN | 0x40 | TEXT, LARGE * 4), 1002),
        ("RSV2", frame(FIN | 0x20 | TEXT, b"x"), 1002),
        ("RSV3", frame(FIN | 0x10 | PING, b""), 1002),
        ("opcode 3", frame(FIN | 3, b""), 1002),
        ("opcode 7", frame(FIN | 7, b"x"), 1002),
        ("opcode 11", frame(FIN | 11, b""), 1002),
        ("opcode 15", frame(FIN | 15, b"x"), 1002),
        ("an unmasked frame", unmasked, 1002),
        ("a fragmented ping", frame(PING, b"x"), 1002),
        ("a fragmented close", frame(CLOSE, b""), 1002),
        ("a ping of 126 bytes", frame(FIN | PING, &[0; 126]), 1002),
        ("a pong of 70,000 bytes", head(FIN | PONG, 70_000), 1002),
        ("a close of 126 bytes", frame(FIN | CLOSE, &[3; 126]), 1002),
        ("a close of 1 byte", frame(FIN | CLOSE, &[3]), 1002),
        ("close code 1005", frame(FIN | CLOSE, &1005_u16.to_be_bytes()), 1002),
        ("close code 999", frame(FIN | CLOSE, &999_u16.to_be_bytes()), 1002),
        ("close code 65535", frame(FIN | CLOSE, &[255, 255]), 1002),
        ("a continuation of nothing", frame(FIN, b"x"), 1002),
        ("a new message within fragments", within, 1002),
        ("a length of 125 in 16 bits", long_16, 1002),
        ("a length of 126 in 64 bits", long_64, 1002),
        ("bad UTF-8", frame(FIN | TEXT, b"a\xffb"), 1007),
        ("bad UTF-8 in a frame that is not whole yet", bad_half, 1007),
        ("a surrogate in UTF-8", frame(FIN | TEXT, b"\xed\xa0\x80"), 1007),
        ("bad UTF-8 in a close reason", frame(FIN | CLOSE, b"\x03\xe8\xff"), 1007),
        ("a character cut by the end", frame(FIN | TEXT, cut), 1007),
        ("a character cut by an empty last fragment", [frame(TEXT, cut), frame(FIN, b"")].concat(), 1007),
    ]
}

/// Whole messages before the fault arrive; the fault closes with its code; nothing that follows is looked at.
async fn fault_closes<IO: AsyncRead + AsyncWrite + Unpin>(mut pair: Pair<IO>, bytes: &[u8], code: u16) {
    let all = [&frame(FIN | TEXT, b"before"), bytes, &frame(FIN | TEXT, b"after")].concat();
    let (mut read, mut write) = tokio::io::split(pair.peer);
    let talk = async {
        // The server may be gone before the last byte is taken.
        let _ = write.write_all(&all).await;
        let _ = write.flush().await;
    };
    let (_, got) = tokio::join!(talk, read_close(&mut read));
    assert_eq!(got, Some(code));
    drop((read, write));
    assert_eq!(pair.events.recv().await, Some(Ev::Text("before".into())));
    assert_eq!(pair.events.recv().await, Some(Ev::Closed(None, Why::Fault(code))));
    assert_eq!(pair.events.recv().await, None);
    pair.task.await.unwrap();
}

#[tokio::test]
async fn field_each_framing_fault_ends_its_socket_with_its_code_and_no_other() {
    let mut neighbour = over_tcp(WireConfig::default()).await;
    for (name, bytes, code) in faults() {
        println!("{name}, at once, over TCP");
        fault_closes(over_tcp(WireConfig::default()).await, &bytes, code).await;
        println!("{name}, byte by byte");
        fault_closes(in_memory(WireConfig::default(), 1), &bytes, code).await;
        neighbour.peer.write_all(&frame(FIN | TEXT, name.as_bytes())).await.unwrap();
        assert_eq!(neighbour.event().await, Ev::Text(name.into()));
    }
}

/// Reads `error`, then close 1009, then a clean end, while the peer goes on writing `more` bytes.
async fn too_long_is_told(mut pair: Pair<TcpStream>, announced: u64, more: usize) {
    assert_eq!(pair.event().await, Ev::TooLong(announced));
    pair.send(Out::Text(ERROR.into()));
    pair.send(Out::Close(1009));
    // A peer that reads only after it has written everything.
    let piece = vec![b'x'; 64 * 1024];
    for _ in 0..more / piece.len() {
        if pair.peer.write_all(&piece).await.is_err() {
            panic!("the connection was reset before {more} bytes were written");
        }
    }
    assert_eq!(read_frame(&mut pair.peer).await.unwrap(), (FIN | TEXT, ERROR.as_bytes().to_vec()));
    assert_eq!(read_close(&mut pair.peer).await, Some(1009));
    assert_eq!(pair.event().await, Ev::Closed(None, Why::Local));
    drop(pair.peer);
    pair.task.await.unwrap();
}

#[tokio::test]
async fn field_a_message_over_the_limit_is_refused_by_its_header_and_error_and_1009_arrive() {
    // The header alone; nothing of the message was sent.
    let mut pair = over_tcp(WireConfig::default()).await;
    pair.peer.write_all(&head(FIN | TEXT, SMALL + 1)).await.unwrap();
    too_long_is_told(pair, SMALL as u64 + 1, 0).await;

    // Behind a message in the same packet, and the peer sends all of it before it reads.
    let mut pair = over_tcp(WireConfig::default()).await;
    let both = [frame(FIN | TEXT, b"hello"), head(FIN | 2, 20 << 20)].concat();
    pair.peer.write_all(&both).await.unwrap();
    assert_eq!(pair.event().await, Ev::Text("hello".into()));
    too_long_is_told(pair, 20 << 20, 20 << 20).await;

    // A length of 62 bits.
    let mut pair = over_tcp(WireConfig::default()).await;
    pair.peer.write_all(&head(FIN | TEXT, 1 << 62)).await.unwrap();
    too_long_is_told(pair, 1 << 62, 1 << 20).await;
}

#[tokio::test]
async fn field_fragments_count_together_and_a_message_that_never_ends_is_too_long() {
    let mut pair = over_tcp(WireConfig::default()).await;
    let first = frame(TEXT, &vec![b'a'; SMALL]);
    let mixed = [first, frame(FIN | PING, b"still"), frame(0, b"b")].concat();
    pair.peer.write_all(&mixed).await.unwrap();
    assert_eq!(read_frame(&mut pair.peer).await.unwrap(), (FIN | PONG, b"still".to_vec()));
    too_long_is_told(pair, SMALL as u64 + 1, 0).await;

    // Empty fragments without end.
    let config = WireConfig { limit: 1000, ..WireConfig::default() };
    let mut pair = over_tcp(config).await;
    pair.peer.write_all(&[frame(TEXT, b"a"), frame(0, b"").repeat(1001)].concat()).await.unwrap();
    too_long_is_told(pair, 1, 0).await;
}

#[tokio::test]
async fn the_limit_holds_exactly_before_and_after_it_is_raised() {
    let mut pair = over_tcp(WireConfig::default()).await;
    let text = "a".repeat(SMALL);
    pair.peer.write_all(&frame(FIN | TEXT, text.as_bytes())).await.unwrap();
    assert_eq!(pair.event().await, Ev::Text(text.clone()));
    // The same in fragments, the last one empty.
    let (one, two) = text.as_bytes().split_at(1000);
    let parts = [frame(TEXT, one), frame(0, two), frame(FIN, b"")].concat();
    pair.peer.write_all(&parts).await.unwrap();
    assert_eq!(pair.event().await, Ev::Text(text));

    pair.send(Out::Limit(LARGE));
    pair.send(Out::Text("ready".into()));
    assert_eq!(read_frame(&mut pair.peer).await.unwrap(), (FIN | TEXT, b"ready".to_vec()));
    for length in [SMALL + 1, LARGE - 1, LARGE] {
        let text = "b".repeat(length);
        pair.peer.write_all(&frame(FIN | TEXT, text.as_bytes())).await.unwrap();
        assert!(pair.event().await == Ev::Text(text), "{length} bytes pass");
    }
    pair.peer.write_all(&head(FIN | TEXT, LARGE + 1)).await.unwrap();
    too_long_is_told(pair, LARGE as u64 + 1, 0).await;
}

#[tokio::test]
async fn large_and_small_messages_in_one_stream_arrive_in_order() {
    let config = WireConfig { limit: LARGE, ..WireConfig::default() };
    for buffer in [7, 4096, 1 << 20] {
        let mut pair = in_memory(config.clone(), buffer);
        let mut stream = Vec::new();
        let mut texts = Vec::new();
        for number in 0..40_usize {
            let length = if number % 4 == 1 { 70_000 + number } else { number };
            let text: String = format!("{number} ").repeat(length).chars().take(length).collect();
            stream.extend(frame(FIN | TEXT, text.as_bytes()));
            texts.push(text);
        }
        let (mut read, mut write) = tokio::io::split(pair.peer);
        let writer = tokio::spawn(async move {
            write.write_all(&stream).await.unwrap();
            write
        });
        for text in texts {
            assert!(pair.events.recv().await == Some(Ev::Text(text)));
        }
        let write = writer.await.unwrap();
        pair.out.send(Out::Close(1000)).unwrap();
        assert_eq!(read_close(&mut read).await, Some(1000));
        drop((read, write));
        pair.task.await.unwrap();
    }
}

#[tokio::test]
async fn a_ping_between_fragments_is_answered_before_the_message_ends() {
    let mut pair = over_tcp(WireConfig::default()).await;
    pair.peer.write_all(&[frame(TEXT, b"one "), frame(FIN | PING, b"now")].concat()).await.unwrap();
    assert_eq!(read_frame(&mut pair.peer).await.unwrap(), (FIN | PONG, b"now".to_vec()));
    let rest = [frame(0, b"two "), frame(FIN | PONG, &7_u64.to_be_bytes()), frame(FIN, b"three")].concat();
    pair.peer.write_all(&rest).await.unwrap();
    assert_eq!(pair.event().await, Ev::Pong(7));
    assert_eq!(pair.event().await, Ev::Text("one two three".into()));
}

#[tokio::test]
async fn only_a_pong_of_eight_bytes_is_a_nonce() {
    let mut pair = over_tcp(WireConfig::default()).await;
    pair.send(Out::Ping(0x0102_0304_0506_0708));
    assert_eq!(read_frame(&mut pair.peer).await.unwrap(), (FIN | PING, vec![1, 2, 3, 4, 5, 6, 7, 8]));
    for payload in [&[][..], &[1; 7], &[1; 9]] {
        pair.peer.write_all(&frame(FIN | PONG, payload)).await.unwrap();
    }
    pair.peer.write_all(&frame(FIN | PONG, &[1, 2, 3, 4, 5, 6, 7, 8])).await.unwrap();
    assert_eq!(pair.event().await, Ev::Pong(0x0102_0304_0506_0708));
}

#[tokio::test]
async fn everything_before_a_close_is_written_although_the_peer_is_busy_writing() {
    let mut pair = over_tcp(WireConfig::default()).await;
    for number in 0..400 {
        pair.send(Out::Text(format!("{number:0>20000}")));
    }
    pair.send(Out::Close(4001));
    // 20 MB of messages from a peer that does not read yet.
    let busy = frame(FIN | TEXT, &vec![b'a'; 50_000]);
    for _ in 0..400 {
        pair.peer.write_all(&busy).await.unwrap();
    }
    for number in 0..400 {
        let (first, payload) = read_frame(&mut pair.peer).await.unwrap();
        assert_eq!((first, String::from_utf8(payload).unwrap()), (FIN | TEXT, format!("{number:0>20000}")));
    }
    assert_eq!(read_close(&mut pair.peer).await, Some(4001));
}

#[tokio::test]
async fn the_peers_close_code_is_told_and_echoed() {
    for (payload, code) in
        [(&[][..], None), (&[0x03, 0xe9][..], Some(1001)), (b"\x03\xf0too big for me", Some(1008))]
    {
        let mut pair = over_tcp(WireConfig::default()).await;
        // What stands behind the close frame is not read, and does not destroy the answer.
        let all = [frame(FIN | CLOSE, payload), frame(FIN | TEXT, b"late").repeat(1000)].concat();
        pair.peer.write_all(&all).await.unwrap();
        assert_eq!(pair.event().await, Ev::Closed(code, Why::Peer));
        assert_eq!(read_close(&mut pair.peer).await, code);
        drop(pair.peer);
        pair.task.await.unwrap();
    }
}

#[tokio::test]
async fn a_stream_that_ends_without_a_close_is_told_as_such() {
    let mut pair = over_tcp(WireConfig::default()).await;
    pair.peer.write_all(&frame(FIN | TEXT, b"bye")).await.unwrap();
    drop(pair.peer);
    assert_eq!(pair.events.recv().await, Some(Ev::Text("bye".into())));
    assert_eq!(pair.events.recv().await, Some(Ev::Closed(None, Why::Eof)));
    pair.task.await.unwrap();

    let mut pair = over_tcp(WireConfig::default()).await;
    drop(pair.out);
    assert_eq!(read_close(&mut pair.peer).await, Some(1001));
    assert_eq!(pair.events.recv().await, Some(Ev::Closed(None, Why::Local)));
}
