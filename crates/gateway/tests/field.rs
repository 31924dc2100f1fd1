//! Faults that were reported in the field, on a real gateway: sockets, proxies, slow clients, limits, texts, files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::{collections::HashMap, net::SocketAddr};

use common::{
    Client, Got, TOKEN, config, hello, http,
    raw::{FIN, PING, Raw, TEXT, frame, head, upgrade},
    start, stop,
};
use hermes_mobile_gateway::{Running, config::AgentChoice, origin::Network};
use protocol::base64;
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};

async fn gateway(state: &tempfile::TempDir) -> Running {
    let mut settings = config(state.path());
    settings.rate_limits = false;
    start(settings).await
}

async fn say(raw: &mut Raw, frame: Value) {
    raw.text(&frame.to_string()).await;
}

/// Everything that came in answer to what was said so far.
async fn answers(raw: &mut Raw) -> Vec<Value> {
    say(raw, json!({"t": "ping", "ts": "all handled"})).await;
    let mut got = Vec::new();
    loop {
        match raw.json().await {
            frame if frame["t"] == "pong" => return got,
            frame => got.push(frame),
        }
    }
}

/// The code of the only error among the answers, or nothing.
async fn refusal(raw: &mut Raw) -> Option<String> {
    let got = answers(raw).await;
    let errors: Vec<&Value> = got.iter().filter(|frame| frame["t"] == "error").collect();
    assert!(errors.len() <= 1, "{errors:?}");
    let error = errors.first()?;
    assert_eq!(error["fatal"], false, "{error}");
    assert!(!error["message"].as_str().unwrap().is_empty() && error["detail"].is_string(), "{error}");
    error["code"].as_str().map(str::to_owned)
}

/// The whole text of the next complete message.
async fn message(raw: &mut Raw) -> String {
    let mut text = String::new();
    loop {
        let chunk = raw.until("message").await;
        text.push_str(chunk["text"].as_str().unwrap());
        if chunk["final"] == true {
            return text;
        }
    }
}

#[tokio::test]
async fn field_pings_go_on_while_the_agent_works() {
    let state = tempfile::tempdir().unwrap();
    let mut settings = config(state.path());
    settings.agent = AgentChoice::Demo;
    settings.ping_interval_ms = 100;
    settings.silent_after_ms = 5_000;
    let running = start(settings).await;
    let mut raw = Raw::device(running.address(), "d").await;
    say(&mut raw, json!({"t": "text", "text": "/slow 1"})).await;
    let mut pings = 0;
    loop {
        let (first, payload) = raw.next().await.expect("not cut");
        if first == FIN | PING && payload.is_empty() {
            pings += 1;
        } else if first == FIN | TEXT && String::from_utf8(payload).unwrap().contains("done after 1 s") {
            break;
        }
    }
    assert!(pings >= 3, "{pings} pings in a second of silence: a proxy would cut such a line");
    drop(raw);
    stop(running).await;
}

#[tokio::test]
async fn field_a_half_open_socket_is_taken_over_at_once() {
    let state = tempfile::tempdir().unwrap();
    let running = gateway(&state).await;
    // Its peer never reads, answers nothing and says nothing: long before the silence is noticed.
    let mut asleep = Raw::device(running.address(), "d").await;
    let mut awake = Raw::device(running.address(), "d").await;
    say(&mut awake, json!({"t": "text", "text": "here I am"})).await;
    assert_eq!(message(&mut awake).await, "here I am");
    // Should it wake up after all, it is told not to come back.
    asleep.error("replaced", true).await;
    assert_eq!(asleep.closed().await, Some(4001));
    drop((awake, asleep));
    stop(running).await;
}

/// A client whose receive buffer holds little.
async fn narrow(at: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(at).await.unwrap()
}

#[tokio::test]
async fn field_a_device_that_reads_nothing_delays_nobody_and_loses_nothing() {
    const TEXTS: usize = 600;
    let state = tempfile::tempdir().unwrap();
    let mut settings = config(state.path());
    settings.rate_limits = false;
    settings.queue_bytes = 1024 * 1024;
    // Far away, so that it is the bound of the queue that acts, and a neighbour that waited for it would be noticed.
    settings.write_timeout_ms = 60_000;
    let running = start(settings).await;
    let at = running.address();
    let mut neighbour = Client::device(at, "neighbour").await;
    let mut stuck = Raw::on(narrow(at).await, upgrade("/ws", "")).await;
    stuck.text(&hello("stuck")).await;
    stuck.until("ready").await;
    let text = |number: usize| json!({"t": "text", "id": format!("{number}"), "text": format!("{number:04} {}", "x".repeat(11_000))});
    // Six megabytes of answers, and none is read.
    for number in 0..TEXTS {
        say(&mut stuck, text(number)).await;
        if number % 50 == 0 {
            neighbour.send(json!({"t": "text", "text": format!("between {number}")}).to_string());
            neighbour.until(&[r#""t":"message""#, &format!("between {number}\"")]).await;
        }
    }
    // What it would read now is what the kernel holds, and then that it was too slow.
    assert_eq!(stuck.closed().await, Some(1013));
    drop(stuck);
    // It comes back and repeats what has no answer, since it does not know what was accepted: each is answered in one
    // bubble. Should it be too slow again, it comes back once more.
    let mut bubbles: HashMap<String, String> = HashMap::new();
    let mut answered: HashMap<usize, String> = HashMap::new();
    while answered.len() < TEXTS {
        let mut back = Client::device(at, "stuck").await;
        for number in (0..TEXTS).filter(|number| !answered.contains_key(number)) {
            back.send(text(number).to_string());
        }
        while answered.len() < TEXTS {
            let frame: Value = match back.next().await {
                Got::Text(frame) => serde_json::from_str(&frame).unwrap(),
                Got::Closed(Some(1013)) => break,
                Got::Closed(code) => panic!("closed with {code:?}"),
            };
            assert!(frame["t"] != "error" || frame["fatal"] == true, "{frame}");
            if frame["t"] == "message" {
                let id = frame["id"].as_str().unwrap();
                let bubble = bubbles.entry(id.to_owned()).or_default();
                if frame["edit"] == true || frame["chunk"]["index"] == 0 {
                    bubble.clear();
                }
                bubble.push_str(frame["text"].as_str().unwrap());
                if frame["final"] == true {
                    assert_eq!(bubble.len(), 11_005);
                    let first = answered.entry(bubble[..4].parse().unwrap()).or_insert_with(|| id.to_owned());
                    assert_eq!(first, id, "a second bubble for one text");
                }
            }
        }
    }
    assert_eq!(bubbles.len(), TEXTS);
    stop(running).await;
}

fn part(id: &str, part: u64, parts: u64, data: &str) -> Value {
    json!({"t": "media", "id": id, "kind": "document", "mime": "text/plain", "filename": "a.txt", "part": part,
        "parts": parts, "data": data})
}

#[tokio::test]
async fn field_the_limits_that_ready_states_hold_at_n_minus_1_n_and_n_plus_1() {
    let state = tempfile::tempdir().unwrap();
    let running = gateway(&state).await;
    let mut raw = Raw::open(running.address()).await;
    raw.text(&hello("d")).await;
    let ready = raw.until("ready").await;
    let limit = |name: &str| ready["limits"][name].as_u64().unwrap();
    let size = |name: &str| usize::try_from(limit(name)).unwrap();
    assert_eq!(ready["capabilities"]["max_text_chars"], limit("text_chars"));
    assert_eq!(ready["capabilities"]["max_media_bytes"], limit("file_bytes"));
    assert_eq!(limit("frame_bytes"), 16 * 1024 * 1024, "held in the tests of framing");

    // Texts, in characters: the unit is neither bytes nor what looks like one sign.
    for (length, code) in [(-1, None), (0, None), (1, Some("too_big"))] {
        let text = "😀".repeat(size("text_chars").strict_add_signed(length));
        say(&mut raw, json!({"t": "text", "text": text})).await;
        if code.is_none() {
            assert!(message(&mut raw).await == text);
        }
        assert_eq!(refusal(&mut raw).await.as_deref(), code, "text {length}");
    }
    // Captions.
    for (length, code) in [(-1, None), (0, None), (1, Some("too_big"))] {
        let mut file = part(&format!("caption {length}"), 0, 1, "QUJD");
        let caption = "я".repeat(size("caption_chars").strict_add_signed(length));
        file["caption"] = json!(caption);
        say(&mut raw, file).await;
        if code.is_none() {
            assert!(message(&mut raw).await == format!("{caption} [document 3 bytes]"));
        }
        assert_eq!(refusal(&mut raw).await.as_deref(), code, "caption {length}");
    }
    // Files.
    for (length, code) in [(-1, None), (0, None), (1, Some("too_big"))] {
        let bytes = vec![b'a'; size("file_bytes").strict_add_signed(length)];
        say(&mut raw, part(&format!("file {length}"), 0, 1, &base64::encode(&bytes))).await;
        if code.is_none() {
            assert_eq!(message(&mut raw).await, format!("[document {} bytes]", bytes.len()));
        }
        assert_eq!(refusal(&mut raw).await.as_deref(), code, "file {length}");
    }
    // Parts of a file.
    for (more, code) in [(0, None), (1, Some("bad_frame"))] {
        say(&mut raw, part("parts", 1, limit("parts") + more, "QUJD")).await;
        assert_eq!(refusal(&mut raw).await.as_deref(), code, "parts {more}");
    }
    // Open series: that one was ended by its refusal.
    for number in 0..=limit("series") {
        say(&mut raw, part(&format!("series {number}"), 0, 2, "QUJD")).await;
        let expected = (number == limit("series")).then_some("too_big");
        assert_eq!(refusal(&mut raw).await.as_deref(), expected, "series {number}");
    }
    for number in 0..limit("series") {
        say(&mut raw, part(&format!("series {number}"), 1, 2, "QUJD")).await;
        message(&mut raw).await;
    }
    // Bytes in open series together.
    let half = base64::encode(&vec![b'a'; size("series_bytes") / 2]);
    for (name, data, code) in
        [("one", half.as_str(), None), ("two", &half, None), ("three", "QQ==", Some("too_big"))]
    {
        say(&mut raw, part(name, 0, 2, data)).await;
        assert_eq!(refusal(&mut raw).await.as_deref(), code, "{name}");
    }
    // Chunks.
    for (length, chunks) in [(-1, 1), (0, 1), (1, 2)] {
        let text = "б".repeat(size("chunk_chars").strict_add_signed(length));
        say(&mut raw, json!({"t": "text", "text": text})).await;
        let first = raw.until("message").await;
        assert_eq!(first["chunk"]["total"], chunks, "chunk {length}");
        while chunks > 1 && raw.until("message").await["final"] != true {}
    }
    drop(raw);
    stop(running).await;
}

#[tokio::test]
async fn field_over_a_fields_limit_the_socket_lives_and_over_the_transports_it_ends() {
    let state = tempfile::tempdir().unwrap();
    let running = gateway(&state).await;
    let mut raw = Raw::device(running.address(), "d").await;
    say(&mut raw, json!({"t": "text", "id": "long", "text": "x".repeat(12_001)})).await;
    let error = raw.error("too_big", false).await;
    assert_eq!((error["id"].as_str(), error["message"].is_string()), (Some("long"), true));
    // Only accepted ids count: shortened by its writer, it may be sent under the same one.
    say(&mut raw, json!({"t": "text", "id": "long", "text": "shorter"})).await;
    assert_eq!(message(&mut raw).await, "shorter");
    raw.write(&head(FIN | TEXT, 16 * 1024 * 1024 + 1)).await;
    raw.error("too_big", true).await;
    assert_eq!(raw.closed().await, Some(1009));
    // Without that item the device goes on, and nothing of ours sends it into a circle.
    raw = Raw::device(running.address(), "d").await;
    say(&mut raw, json!({"t": "text", "text": "back"})).await;
    while message(&mut raw).await != "back" {}
    drop(raw);
    stop(running).await;
}

/// A device that came with these header lines, and whether it may deliver.
async fn may_deliver(at: SocketAddr, headers: &str) -> bool {
    let mut raw = Raw::open_with(at, upgrade("/ws", headers)).await;
    raw.text(&hello("cron")).await;
    raw.until("ready").await;
    say(&mut raw, json!({"t": "deliver", "id": "x", "target": "nobody", "text": "hi"})).await;
    let error = raw.until("error").await;
    match error["code"].as_str() {
        Some("device_offline") => true,
        Some("forbidden") => false,
        _ => panic!("{error}"),
    }
}

#[tokio::test]
async fn field_behind_a_reverse_proxy_on_the_same_host_nobody_is_loopback() {
    let state = tempfile::tempdir().unwrap();
    let running = gateway(&state).await;
    let at = running.address();
    assert!(may_deliver(at, "").await, "a program on this host");
    for header in [
        "X-Forwarded-For: 203.0.113.9",
        "X-Forwarded-For: 127.0.0.1",
        "x-forwarded-proto: https",
        "Forwarded: for=127.0.0.1",
        "X-Real-IP: 127.0.0.1",
        "Via: 1.1 proxy",
        "CF-Connecting-IP: 127.0.0.1",
        "Origin: http://127.0.0.1:8787",
    ] {
        assert!(!may_deliver(at, &format!("{header}\r\n")).await, "{header}");
    }
    stop(running).await;
}

/// What a `hello` with this token gets, from this client behind the proxy on this host.
async fn through_proxy(at: SocketAddr, client: &str, token: &str) -> String {
    let mut raw = Raw::open_with(at, upgrade("/ws", &format!("X-Forwarded-For: {client}\r\n"))).await;
    say(&mut raw, json!({"t": "hello", "token": token, "device": {"id": "d"}})).await;
    let got = raw.json().await;
    got["code"].as_str().or(got["t"].as_str()).unwrap().to_owned()
}

#[tokio::test]
async fn field_one_abuser_behind_a_trusted_proxy_locks_nobody_else_out() {
    for trusted in [true, false] {
        let state = tempfile::tempdir().unwrap();
        let mut settings = config(state.path());
        settings.lockout_after = 3;
        if trusted {
            settings.trusted_proxies = vec![Network::parse("127.0.0.1").unwrap()];
        }
        let running = start(settings).await;
        let at = running.address();
        for number in 0..3 {
            // What the abuser writes into the header itself stands before what the proxy adds.
            let client = format!("10.0.0.{number}, 203.0.113.9");
            assert_eq!(through_proxy(at, &client, "wrong").await, "auth_failed");
        }
        assert_eq!(
            through_proxy(at, "203.0.113.9", TOKEN).await,
            "rate_limited",
            "before the token is looked at"
        );
        // The header of a proxy that is not trusted is no way out of a lockout, nor into one for somebody else.
        let other = if trusted { "ready" } else { "rate_limited" };
        assert_eq!(through_proxy(at, "203.0.113.10", TOKEN).await, other);
        Raw::device(at, "local").await;
        stop(running).await;
    }
}

#[tokio::test]
async fn field_rubbish_costs_its_frame_only_and_nothing_was_executed_first() {
    let state = tempfile::tempdir().unwrap();
    let running = gateway(&state).await;
    let mut raw = Raw::device(running.address(), "d").await;
    let digits = "7".repeat(400);
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    for text in [
        "[]".to_owned(),
        r#""x""#.to_owned(),
        "3".to_owned(),
        "null".to_owned(),
        "{}".to_owned(),
        r#"{"t":3}"#.to_owned(),
        r#"{"t":"text","id":"a","text":null}"#.to_owned(),
        r#"{"t":"text","id":7,"text":"a"}"#.to_owned(),
        format!(r#"{{"t":"text","id":{digits},"text":"a"}}"#),
        format!(r#"{{"t":"media","id":"a","kind":"image","data":"AAAA","part":{digits},"parts":1}}"#),
        r#"{"t":"text","id":"a","text":"one","text":"two"}"#.to_owned(),
        r#"{"t":"text","id":"b","id":"a","text":"one"}"#.to_owned(),
        format!("\u{feff}{}", r#"{"t":"text","id":"a","text":"behind a BOM"}"#),
        r#"{"t":"text","id":"a","text":"cut"#.to_owned(),
        r#"{"t":"text","id":"a","text":"one"}{"t":"text","id":"a","text":"two"}"#.to_owned(),
        deep.clone(),
        format!(r#"{{"t":"text","id":"a","text":{deep}}}"#),
    ] {
        raw.text(&text).await;
        assert_eq!(refusal(&mut raw).await.as_deref(), Some("bad_frame"), "{:.60}", text);
    }
    // The same in a field or a frame that is not known: ignored.
    for text in [
        format!(r#"{{"t":"later","x":{deep},"y":{digits},"z":1,"z":2}}"#),
        format!(r#"{{"t":"ping","ts":1,"x":{deep},"y":{digits},"z":1,"z":2}}"#),
    ] {
        raw.text(&text).await;
        assert_eq!(refusal(&mut raw).await, None, "{:.60}", text);
    }
    say(&mut raw, json!({"t": "text", "id": "a", "text": "the first that counts"})).await;
    assert_eq!(message(&mut raw).await, "the first that counts");
    assert!(answers(&mut raw).await.is_empty());
    drop(raw);
    stop(running).await;
}

#[tokio::test]
async fn field_hard_texts_come_back_whole() {
    let state = tempfile::tempdir().unwrap();
    let running = gateway(&state).await;
    let mut raw = Raw::device(running.address(), "d").await;
    for text in [
        "👨‍👩‍👧‍👦".repeat(12_000 / 7),
        format!("e{}", "\u{301}\u{323}".repeat(5_999)),
        "\u{202b}שלום\u{202c} \u{2067}مرحبا\u{2069} \u{202e}gnirts\u{202c} ".repeat(300),
        (0..0x20_u8).map(char::from).chain(['\u{7f}', '\u{85}', '\u{2028}', 'x']).collect(),
        "🇷🇺🇺🇸".repeat(3_000),
        "क्षि각👍🏽\r\n".repeat(1_000),
        "no break anywhere ".replace(' ', "_").repeat(600),
    ] {
        assert!(text.chars().count() <= 12_000);
        say(&mut raw, json!({"t": "text", "text": text})).await;
        assert!(message(&mut raw).await == text, "{:.20} …", text);
    }
    // Twelve thousand of these are more characters than a text may have: told, in the unit that is stated.
    say(&mut raw, json!({"t": "text", "id": "many", "text": "👨‍👩‍👧‍👦".repeat(12_000)})).await;
    assert_eq!(raw.error("too_big", false).await["id"], "many");
    // Lone surrogates, in valid JSON.
    for lone in [r"\ud83d", r"\ude00", r"\ude00\ud83d", r"\ud83d\ud83d"] {
        raw.text(&format!(r#"{{"t":"text","text":"hi {lone} there"}}"#)).await;
        let signs = "\u{fffd}".repeat(lone.len() / 6);
        assert_eq!(message(&mut raw).await, format!("hi {signs} there"));
    }
    // Whatever is replayed is not what closes the next connection.
    raw = Raw::device(running.address(), "d").await;
    say(&mut raw, json!({"t": "text", "text": "the end"})).await;
    while message_or_redraw(&mut raw).await != "the end" {}
    drop(raw);
    stop(running).await;
}

/// As [`message`], of a replay too: one frame with the whole text.
async fn message_or_redraw(raw: &mut Raw) -> String {
    let mut text = String::new();
    loop {
        let chunk = raw.until("message").await;
        if chunk["edit"] == true {
            text.clear();
        }
        text.push_str(chunk["text"].as_str().unwrap());
        if chunk["final"] == true {
            return text;
        }
    }
}

#[tokio::test]
async fn field_a_music_file_is_not_a_voice_message() {
    let state = tempfile::tempdir().unwrap();
    let running = gateway(&state).await;
    let mut raw = Raw::device(running.address(), "d").await;
    let opus = [b"OggS\0\x02".as_slice(), &[0; 20], &[1, 19], b"OpusHead\x01\x02", &[0; 9]].concat();
    let data = base64::encode(&opus);
    let file = json!({"t": "media", "id": "song", "kind": "audio", "mime": "audio/ogg", "filename": "song.ogg", "data": data});
    say(&mut raw, file).await;
    assert_eq!(message(&mut raw).await, format!("[audio {} bytes]", opus.len()));
    say(&mut raw, json!({"t": "audio", "id": "voice", "format": "ogg", "data": data})).await;
    assert_eq!(message(&mut raw).await, format!("[voice {} bytes]", opus.len()));
    drop(raw);
    stop(running).await;
}

#[tokio::test]
async fn field_no_rule_depends_on_the_clients_clock() {
    let state = tempfile::tempdir().unwrap();
    let running = gateway(&state).await;
    for (number, (date, stamp)) in
        [("Thu, 01 Jan 1970 00:00:00 GMT", 0_i64), ("Fri, 31 Dec 2100 23:59:59 GMT", 4_133_980_799_000)]
            .into_iter()
            .enumerate()
    {
        let mut raw = Raw::open_with(running.address(), upgrade("/ws", &format!("Date: {date}\r\n"))).await;
        let id = format!("d{number}");
        say(&mut raw, json!({"t": "hello", "token": TOKEN, "device": {"id": id, "time": stamp}, "ts": stamp, "at": date})).await;
        raw.until("ready").await;
        for _ in 0..2 {
            say(
                &mut raw,
                json!({"t": "text", "id": "1", "text": "what time is it?", "ts": stamp, "at": stamp}),
            )
            .await;
        }
        assert_eq!(message(&mut raw).await, "what time is it?");
        say(&mut raw, json!({"t": "ping", "ts": stamp})).await;
        assert_eq!(raw.json().await, json!({"t": "pong", "ts": stamp}), "once, and the time only comes back");
    }
    stop(running).await;
}

#[tokio::test]
async fn field_no_token_is_ever_in_an_answer() {
    const SECRET: &str = "a-secret-of-somebody";
    let state = tempfile::tempdir().unwrap();
    let running = gateway(&state).await;
    let at = running.address();
    for path in ["/", "/ws", "/mobile-ws", "/readyz", "/nothing"] {
        let request = format!(
            "GET {path}?token={SECRET} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\r\nConnection: close\r\n\r\n"
        );
        let answer = http(at, &request).await;
        assert!(!answer.contains(SECRET), "{answer}");
    }
    for first in [
        json!({"t": "hello", "device": {"id": "d"}}),
        json!({"t": "hello", "token": SECRET, "device": {"id": "d"}}),
        json!({"t": "hello", "token": SECRET, "device": {"id": SECRET.repeat(10)}}),
        json!({"t": "hello", "token": [SECRET], "device": {"id": "d"}}),
        json!([SECRET]),
    ] {
        let mut raw = Raw::open_with(at, upgrade(&format!("/ws?token={SECRET}"), "")).await;
        assert!(!raw.answer.contains(SECRET));
        say(&mut raw, first).await;
        let error = raw.until("error").await;
        assert!(!error.to_string().contains(SECRET), "{error}");
        assert_eq!(raw.closed().await, Some(1008));
    }
    let mut raw = Raw::device(at, "d").await;
    raw.write(&frame(FIN | TEXT, format!(r#"{{"t":"text","token":"{TOKEN}","text":5}}"#))).await;
    assert!(!raw.error("bad_frame", false).await.to_string().contains(TOKEN));
    drop(raw);
    stop(running).await;
}
