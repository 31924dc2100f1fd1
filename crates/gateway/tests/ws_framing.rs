//! Framing faults on `/ws` itself, each with its close code, and requests that are no upgrade. Raw bytes only.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::net::SocketAddr;

use common::{
    Client, TOKEN, config, hello, http,
    raw::{BINARY, CLOSE, FIN, PING, PONG, Raw, TEXT, frame, head, upgrade},
    start, stop,
};
use hermes_mobile_gateway::Running;

const EARLY: usize = 64 * 1024;
const LATE: usize = 16 * 1024 * 1024;

/// Without a byte rate: some of these tests send more than passes at line speed.
async fn gateway(state: &tempfile::TempDir) -> Running {
    let mut settings = config(state.path());
    settings.rate_limits = false;
    start(settings).await
}

/// Another device, which must not notice anything.
struct Neighbour(Client);

impl Neighbour {
    async fn new(address: SocketAddr) -> Self {
        Self(Client::device(address, "neighbour").await)
    }

    async fn talks(&mut self, about: &str) {
        let text = serde_json::json!({"t": "text", "text": about}).to_string();
        self.0.send(text);
        let about = serde_json::json!(about).to_string();
        self.0.until(&[r#""t":"message""#, &about]).await;
    }
}

/// Name, bytes, close code.
fn faults() -> Vec<(&'static str, Vec<u8>, u16)> {
    let unmasked = [&[FIN | TEXT, 2], b"{}".as_slice()].concat();
    let within = [frame(TEXT, "{"), frame(FIN | TEXT, "}")].concat();
    let cut = "\u{44f}".as_bytes().split_at(1).0;
    let mut long_16 = vec![FIN | TEXT, 0x80 | 126, 0, 125, 0, 0, 0, 0];
    long_16.resize(8 + 125, b' ');
    let mut long_64 = vec![FIN | TEXT, 0x80 | 127, 0, 0, 0, 0, 0, 0, 0, 126, 0, 0, 0, 0];
    long_64.resize(14 + 126, b' ');
    let mut bad_half = head(FIN | TEXT, 5000);
    bad_half.extend_from_slice(b"good, then \xff\xfe bad");
    // What a deflated message that would inflate past every limit starts with.
    let inflates = frame(FIN | 0x40 | TEXT, [0xed, 0xc1, 0x01, 0x01, 0, 0, 0, 0x80, 0x90, 0xfe]);
    vec![
        ("a compressed frame that inflates past the limit", inflates, 1002),
        ("RSV1 on a frame that is too long", head(FIN | 0x40 | TEXT, LATE * 4), 1002),
        ("RSV2", frame(FIN | 0x20 | TEXT, "{}"), 1002),
        ("RSV3 on a ping", frame(FIN | 0x10 | PING, ""), 1002),
        ("opcode 3", frame(FIN | 3, ""), 1002),
        ("opcode 7", frame(FIN | 7, "x"), 1002),
        ("opcode 11", frame(FIN | 11, ""), 1002),
        ("opcode 15", frame(FIN | 15, "x"), 1002),
        ("an unmasked frame", unmasked, 1002),
        ("a fragmented ping", frame(PING, "x"), 1002),
        ("a fragmented pong", frame(PONG, "x"), 1002),
        ("a fragmented close", frame(CLOSE, ""), 1002),
        ("a ping of 126 bytes", frame(FIN | PING, [0; 126]), 1002),
        ("a pong of 126 bytes", frame(FIN | PONG, [0; 126]), 1002),
        ("a pong of 70,000 bytes", head(FIN | PONG, 70_000), 1002),
        ("a close of 126 bytes", frame(FIN | CLOSE, [3; 126]), 1002),
        ("a close of 1 byte", frame(FIN | CLOSE, [3]), 1002),
        ("close code 1005", frame(FIN | CLOSE, 1005_u16.to_be_bytes()), 1002),
        ("close code 999", frame(FIN | CLOSE, 999_u16.to_be_bytes()), 1002),
        ("a continuation of nothing", frame(FIN, "x"), 1002),
        ("a new message within fragments", within, 1002),
        ("a length of 125 in 16 bits", long_16, 1002),
        ("a length of 126 in 64 bits", long_64, 1002),
        ("bad UTF-8", frame(FIN | TEXT, b"a\xffb"), 1007),
        ("bad UTF-8 in a frame that is not whole yet", bad_half, 1007),
        ("a surrogate in UTF-8", frame(FIN | TEXT, b"\xed\xa0\x80"), 1007),
        ("an overlong form in UTF-8", frame(FIN | TEXT, b"\xc0\xaf"), 1007),
        ("bad UTF-8 in a close reason", frame(FIN | CLOSE, b"\x03\xe8\xff"), 1007),
        ("a character cut by the end", frame(FIN | TEXT, cut), 1007),
        ("a character cut by an empty last fragment", [frame(TEXT, cut), frame(FIN, "")].concat(), 1007),
    ]
}

#[tokio::test]
async fn field_each_framing_fault_ends_its_socket_with_its_code_and_nothing_else() {
    let state = tempfile::tempdir().unwrap();
    let running = gateway(&state).await;
    let at = running.address();
    let mut neighbour = Neighbour::new(at).await;
    for (name, bytes, code) in faults() {
        println!("{name}, before hello");
        let mut raw = Raw::open(at).await;
        // The server may be closing before all of it is taken.
        raw.try_write(&[&bytes[..], &frame(FIN | TEXT, hello("late"))].concat()).await;
        assert_eq!(raw.closed().await, Some(code));

        println!("{name}, after ready");
        let mut raw = Raw::device(at, "faulty").await;
        let before =
            frame(FIN | TEXT, serde_json::json!({"t": "text", "id": name, "text": name}).to_string());
        let after = frame(FIN | TEXT, r#"{"t":"text","id":"late","text":"must not be handled"}"#);
        raw.try_write(&[&before[..], &bytes, &after].concat()).await;
        assert_eq!(raw.closed().await, Some(code));
        neighbour.talks(name).await;
    }
    // The device is not punished for its line. Whole frames before a fault count; nothing behind it was taken, so the
    // id is free.
    let mut back = Client::device(at, "faulty").await;
    let mut missing: Vec<String> = faults().iter().map(|(name, ..)| format!(r#""text":"{name}""#)).collect();
    while !missing.is_empty() {
        let message = back.until(&[r#""t":"message""#]).await;
        missing.retain(|text| !message.contains(text));
    }
    back.send(r#"{"t":"text","id":"late","text":"another text"}"#);
    back.until(&[r#""t":"message""#, "another text"]).await;
    stop(running).await;
}

/// `hello` of exactly so many bytes.
fn padded_hello(id: &str, bytes: usize) -> String {
    let bare = format!(r#"{{"t":"hello","token":"{TOKEN}","device":{{"id":"{id}"}},"pad":""}}"#);
    bare.replace(r#""pad":"""#, &format!(r#""pad":"{}""#, "x".repeat(bytes - bare.len())))
}

async fn too_big(mut raw: Raw) {
    raw.error("too_big", true).await;
    assert_eq!(raw.closed().await, Some(1009));
}

#[tokio::test]
async fn field_the_limit_before_ready_holds_at_n_minus_1_n_and_n_plus_1() {
    let state = tempfile::tempdir().unwrap();
    let running = gateway(&state).await;
    let at = running.address();
    let mut neighbour = Neighbour::new(at).await;
    for bytes in [EARLY - 1, EARLY] {
        let text = padded_hello("d", bytes);
        assert_eq!(text.len(), bytes);
        let mut raw = Raw::open(at).await;
        raw.text(&text).await;
        raw.until("ready").await;
        // The same in fragments, the last of them empty.
        let (one, two) = text.as_bytes().split_at(1000);
        let mut raw = Raw::open(at).await;
        raw.write(&[frame(TEXT, one), frame(0, two), frame(FIN, "")].concat()).await;
        raw.until("ready").await;
    }
    // Refused by its header alone; nothing of it was sent.
    let mut raw = Raw::open(at).await;
    raw.write(&head(FIN | TEXT, EARLY + 1)).await;
    too_big(raw).await;
    // The whole of it, from a client that reads only afterwards.
    let mut raw = Raw::open(at).await;
    raw.write(&frame(FIN | TEXT, padded_hello("d", EARLY + 1))).await;
    too_big(raw).await;
    // In fragments.
    let mut raw = Raw::open(at).await;
    raw.write(&[frame(TEXT, vec![b' '; EARLY]), frame(0, " ")].concat()).await;
    too_big(raw).await;
    // A length of 62 bits.
    let mut raw = Raw::open(at).await;
    raw.write(&head(FIN | BINARY, 1 << 62)).await;
    too_big(raw).await;
    neighbour.talks("still here").await;
    stop(running).await;
}

#[tokio::test]
async fn field_the_limit_after_ready_holds_at_n_minus_1_n_and_n_plus_1() {
    let state = tempfile::tempdir().unwrap();
    let running = gateway(&state).await;
    let at = running.address();
    let mut neighbour = Neighbour::new(at).await;
    let mut raw = Raw::device(at, "d").await;
    for bytes in [EARLY + 1, LATE - 1, LATE] {
        let bare = r#"{"t":"later","pad":""}"#;
        let text = bare.replace(r#""""#, &format!(r#""{}""#, "x".repeat(bytes - bare.len())));
        assert_eq!(text.len(), bytes);
        raw.text(&text).await;
        raw.ping("an unknown frame is ignored, however long").await;
    }
    raw.write(&head(FIN | TEXT, LATE + 1)).await;
    too_big(raw).await;
    // A client that writes all of it before it reads still gets the error and the close frame.
    let mut raw = Raw::device(at, "d").await;
    raw.write(&head(FIN | TEXT, LATE + 4096)).await;
    let piece = vec![b'x'; 64 * 1024];
    for _ in 0..LATE / piece.len() {
        assert!(raw.try_write(&piece).await, "reset before all was written");
    }
    too_big(raw).await;
    neighbour.talks("still here").await;
    stop(running).await;
}

#[tokio::test]
async fn field_a_fragmented_message_that_never_ends_is_too_big() {
    let state = tempfile::tempdir().unwrap();
    let running = gateway(&state).await;
    let at = running.address();
    let mut neighbour = Neighbour::new(at).await;
    // Fragments that grow it, and fragments that are empty: many in one write.
    for (ready, fragments) in [
        (false, frame(0, [b' '; 4096])),
        (false, frame(0, "").repeat(EARLY + 1)),
        (true, frame(0, vec![b' '; 1024 * 1024])),
    ] {
        println!("ready {ready}, {} bytes at a time", fragments.len());
        let mut raw = if ready { Raw::device(at, "d").await } else { Raw::open(at).await };
        raw.write(&frame(TEXT, "{")).await;
        // Not read meanwhile: the server discards what still comes.
        for _ in 0..20 {
            assert!(raw.try_write(&fragments).await, "the end was not clean");
            // Control frames in between are no part of it.
            raw.try_write(&frame(FIN | PING, "")).await;
        }
        too_big(raw).await;
        neighbour.talks("still here").await;
    }
    stop(running).await;
}

#[tokio::test]
async fn field_a_binary_frame_is_a_bad_frame_and_twenty_in_a_row_end_the_connection() {
    let state = tempfile::tempdir().unwrap();
    let running = gateway(&state).await;
    let at = running.address();
    let mut neighbour = Neighbour::new(at).await;
    let mut raw = Raw::device(at, "d").await;
    let binary = frame(FIN | BINARY, br#"{"t":"text","id":"b","text":"never"}"#);
    for _ in 0..19 {
        raw.write(&binary).await;
        let error = raw.error("bad_frame", false).await;
        assert!(error["detail"].as_str().unwrap().contains("binary"), "{error}");
    }
    raw.ping("a good frame starts the count again").await;
    for _ in 0..19 {
        raw.write(&binary).await;
        raw.error("bad_frame", false).await;
    }
    raw.write(&binary).await;
    raw.error("bad_frame", true).await;
    assert_eq!(raw.closed().await, Some(1003));
    // Before ready it is no hello.
    raw = Raw::open(at).await;
    raw.write(&frame(FIN | BINARY, hello("d"))).await;
    raw.error("auth_required", true).await;
    assert_eq!(raw.closed().await, Some(1008));
    neighbour.talks("still here").await;
    drop(raw);
    stop(running).await;
}

#[tokio::test]
async fn field_the_error_and_the_close_frame_arrive_before_the_socket_goes() {
    let state = tempfile::tempdir().unwrap();
    let running = gateway(&state).await;
    let at = running.address();
    let rubbish = frame(FIN | TEXT, "rubbish").repeat(20);
    let oversize = head(FIN | TEXT, LATE + 1);
    let denied = frame(FIN | TEXT, r#"{"t":"hello","token":"wrong","device":{"id":"d"}}"#);
    // Behind each a megabyte that nobody reads: a careless close would be a reset, and destroy both.
    let more = frame(FIN | TEXT, format!(r#"{{"t":"later","pad":"{}"}}"#, "x".repeat(32 * 1024))).repeat(32);
    for (name, ready, bytes, error, code) in [
        ("denied", false, &denied, "auth_failed", 1008),
        ("no hello", false, &rubbish, "auth_required", 1008),
        ("rubbish", true, &rubbish, "bad_frame", 1003),
        ("too large", true, &oversize, "too_big", 1009),
    ] {
        println!("{name}");
        let mut raw = if ready { Raw::device(at, "d").await } else { Raw::open(at).await };
        raw.write(&[&bytes[..], &more].concat()).await;
        loop {
            let frame = raw.until("error").await;
            if frame["fatal"] == true {
                assert_eq!(frame["code"], error);
                break;
            }
        }
        assert_eq!(raw.closed().await, Some(code));
    }
    let mut older = Raw::device(at, "d").await;
    older.write(&more).await;
    let newer = Raw::device(at, "d").await;
    older.error("replaced", true).await;
    assert_eq!(older.closed().await, Some(4001));
    drop((older, newer));
    stop(running).await;
}

#[tokio::test]
async fn bad_upgrade_requests_are_answered_in_words() {
    let state = tempfile::tempdir().unwrap();
    let running = gateway(&state).await;
    let at = running.address();
    let good = upgrade("/ws", "");
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for (name, request, status, header) in [
        ("another method", good.replace("GET", "POST"), "405", "allow: get"),
        ("HEAD", good.replace("GET", "HEAD"), "405", "allow: get"),
        ("version 12", good.replace(": 13", ": 12"), "426", "sec-websocket-version: 13"),
        ("version 13, 8", good.replace(": 13", ": 13, 8"), "426", "sec-websocket-version: 13"),
        ("no version", good.replace("Sec-WebSocket-Version: 13\r\n", ""), "426", "sec-websocket-version: 13"),
        ("no key", good.replace(key, ""), "400", ""),
        ("a short key", good.replace("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZQ=="), "400", ""),
        ("a key that is no base64", good.replace("dGhlIHNhbXBsZSBub25jZQ==", "***"), "400", ""),
        ("two keys", good.replace(key, &key.repeat(2)), "400", ""),
        ("no Upgrade", good.replace("Upgrade: websocket\r\n", ""), "426", "upgrade: websocket"),
        (
            "Upgrade to something else",
            good.replace("Upgrade: websocket", "Upgrade: h2c"),
            "426",
            "upgrade: websocket",
        ),
        ("no Connection", good.replace("Connection: Upgrade\r\n", ""), "426", "upgrade: websocket"),
        ("HTTP/1.0", good.replace("HTTP/1.1", "HTTP/1.0"), "400", ""),
        ("another path", upgrade("/wss", ""), "404", ""),
        ("a path below", upgrade("/ws/", ""), "404", ""),
        ("the root", upgrade("/", ""), "200", ""),
    ] {
        // Closed after the answer, so that it can be read to its end.
        let request = request.replacen("\r\n", "\r\nConnection: close\r\nContent-Length: 0\r\n", 1);
        let answer = http(at, &request).await;
        assert_eq!(answer.split(' ').nth(1), Some(status), "{name}: {answer}");
        assert!(answer.to_ascii_lowercase().contains(header), "{name}: {answer}");
        assert!(!answer.contains("101"), "{name}");
    }
    // What is offered beside is not taken: no compression, no subprotocol.
    let offers = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\nSec-WebSocket-Protocol: chat\r\n";
    for path in ["/ws", "/mobile-ws", "/ws?a=b"] {
        let mut raw = Raw::open_with(at, upgrade(path, offers)).await;
        let answer = raw.answer.to_ascii_lowercase();
        assert!(answer.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{answer}");
        assert!(!answer.contains("extensions") && !answer.contains("protocol:"), "{answer}");
        raw.text(&hello("d")).await;
        raw.until("ready").await;
    }
    // Frames that came in one packet with the request are not lost.
    let both = [upgrade("/ws", "").as_bytes(), &frame(FIN | TEXT, hello("eager"))].concat();
    let mut raw = Raw::open_with(at, both).await;
    assert_eq!(raw.until("ready").await["device"]["id"], "eager");
    drop(raw);
    stop(running).await;
}
