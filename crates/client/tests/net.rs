//! The driver against a small scripted server over the wire.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use hermes_mobile_client::{
    core::{Config, Device, ErrorInfo, Event, Failure, FileKind, Request},
    net::{self, Events, Session},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};
use wire::{In, Out, WireConfig};

const LONG: Duration = Duration::from_secs(20);

/// A server on port 0; each connection is handed to the test.
struct Server {
    listener: TcpListener,
}

/// One connection on the server's side.
struct Conn {
    out: wire::Sender,
    frames: mpsc::UnboundedReceiver<Option<Value>>,
}

impl Server {
    async fn new() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").await.unwrap() }
    }
    fn url(&self) -> String {
        format!("ws://{}/ws", self.listener.local_addr().unwrap())
    }
    /// The next TCP connection, its HTTP request read.
    async fn tcp(&self) -> (TcpStream, String) {
        let (mut io, _) = timeout(LONG, self.listener.accept()).await.unwrap().unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(io.read_u8().await.unwrap());
        }
        (io, String::from_utf8(head).unwrap())
    }
    async fn accept(&self) -> Conn {
        let (mut io, head) = self.tcp().await;
        let mut headers = http::HeaderMap::new();
        for line in head.lines().skip(1).filter(|l| !l.is_empty()) {
            let (name, value) = line.split_once(':').unwrap();
            let name: http::HeaderName = name.parse().unwrap();
            headers.insert(name, value.trim().parse().unwrap());
        }
        let answer = wire::handshake::upgrade(&http::Method::GET, http::Version::HTTP_11, &headers).unwrap();
        let mut text = "HTTP/1.1 101 Switching Protocols\r\n".to_owned();
        for (name, value) in &answer {
            text.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
        }
        text.push_str("\r\n");
        io.write_all(text.as_bytes()).await.unwrap();
        let (out, out_rx) = wire::queue();
        let (tx, frames) = mpsc::unbounded_channel();
        let config = WireConfig { limit: 16 * 1024 * 1024, ..WireConfig::default() };
        tokio::spawn(wire::server(io, config).run(out_rx, move |event| {
            match event {
                In::Text(text) => drop(tx.send(Some(serde_json::from_str(text).unwrap()))),
                In::Closed { .. } => drop(tx.send(None)),
                _ => {}
            }
            std::future::ready(())
        }));
        Conn { out, frames }
    }
    /// A connection up to `ready`.
    async fn ready(&self) -> Conn {
        let mut conn = self.accept().await;
        assert_eq!(conn.frame().await["t"], "hello");
        conn.send(
            json!({"t":"ready","v":1,"session":"mobile:d1","device":{"id":"d1","name":"d1"},"avatar_url":""}),
        );
        conn
    }
}

impl Conn {
    async fn next(&mut self) -> Option<Value> {
        timeout(LONG, self.frames.recv()).await.unwrap().flatten()
    }
    async fn frame(&mut self) -> Value {
        self.next().await.expect("a frame")
    }
    /// The next frame that is no ping; pings are answered.
    async fn item(&mut self) -> Value {
        loop {
            let frame = self.frame().await;
            if frame["t"] != "ping" {
                return frame;
            }
            self.send(json!({"t":"pong","ts":frame["ts"]}));
        }
    }
    fn send(&self, frame: Value) {
        self.out.send(Out::Text(frame.to_string())).unwrap();
    }
    /// Closes, and waits until the client has taken it.
    async fn close(mut self, code: u16) {
        let _ = self.out.send(Out::Close(code));
        while self.next().await.is_some() {}
    }
}

fn config() -> Config {
    let mut config = Config::new(net::seed().unwrap());
    config.token = Some("t".into());
    config.device = Some(Device { id: "d1".into(), name: None, platform: None, app_version: None });
    config.backoff_ms = 10;
    config.backoff_cap_ms = 50;
    config
}

fn start(server: &Server) -> (Session, Events) {
    net::start(config(), &server.url()).unwrap()
}

async fn wait<T>(events: &mut Events, mut want: impl FnMut(Event) -> Option<T>) -> T {
    loop {
        let event = timeout(LONG, events.next()).await.expect("an event in time").expect("an event");
        if let Some(found) = want(event) {
            return found;
        }
    }
}

#[tokio::test]
async fn talks_and_resends_under_the_same_id() {
    let server = Server::new().await;
    let (session, mut events) = start(&server);
    let mut conn = server.ready().await;
    let id = session.send_text("hello").await.unwrap();
    let text = conn.frame().await;
    assert_eq!(text, json!({"t":"text","id":id,"text":"hello"}));
    // Gone before the pong: it comes again, on the next connection, under the same id.
    conn.close(1012).await;
    let mut conn = server.ready().await;
    assert_eq!(conn.item().await, text);
    let ping = conn.frame().await;
    conn.send(json!({"t":"pong","ts":ping["ts"]}));
    wait(&mut events, |e| matches!(e, Event::Accepted { id: told } if told == id).then_some(())).await;
    conn.send(json!({"t":"message","id":"m","text":"hi","chunk":{"index":0,"total":1},"final":true}));
    let text = wait(&mut events, |e| if let Event::Message(m) = e { Some(m.text) } else { None }).await;
    assert_eq!(text, "hi");
    assert_eq!(session.unsettled().await, 0);
    session.close().await;
    assert_eq!(conn.next().await, None);
    wait(&mut events, |e| matches!(e, Event::Stopped).then_some(())).await;
    assert!(events.next().await.is_none());
    assert!(session.send_text("late").await.is_err());
}

#[tokio::test]
async fn never_comes_back_after_1008() {
    let server = Server::new().await;
    let (session, mut events) = start(&server);
    let mut conn = server.accept().await;
    conn.frame().await;
    conn.send(json!({"t":"error","code":"auth_failed","message":"Нет доступа","fatal":true}));
    let _ = conn.out.send(Out::Close(1008));
    let (code, error) =
        wait(
            &mut events,
            |e| if let Event::Refused { code, error } = e { Some((code, error)) } else { None },
        )
        .await;
    assert_eq!(code, 1008);
    assert!(matches!(error, Some(ErrorInfo { message, .. }) if message == "Нет доступа"));
    assert!(
        timeout(Duration::from_millis(300), server.listener.accept()).await.is_err(),
        "a refused client stays away"
    );
    // Unless the app wants it.
    session.connect_now().await;
    server.ready().await;
}

#[tokio::test]
async fn a_file_arrives_whole_and_1009_ends_it_for_good() {
    let server = Server::new().await;
    let (session, mut events) = start(&server);
    let mut conn = server.ready().await;
    let bytes: Vec<u8> = (0..2_300_000u32).map(|i| u8::try_from(i % 251).unwrap()).collect();
    session.send_file(FileKind::Document, "application/x", "f.bin", None, bytes.clone()).await.unwrap();
    let mut whole = vec![];
    for part in 0..3 {
        let frame = conn.item().await;
        assert_eq!((&frame["part"], &frame["parts"]), (&json!(part), &json!(3)));
        whole.extend(
            hermes_mobile_client::protocol::base64::decode(
                frame["data"].as_str().unwrap(),
                part == 0,
                8_000_000,
            )
            .unwrap(),
        );
    }
    assert!(whole == bytes);
    let ping = conn.frame().await;
    conn.send(json!({"t":"pong","ts":ping["ts"]}));
    wait(&mut events, |e| matches!(e, Event::Accepted { .. }).then_some(())).await;

    let bad = session.submit(Request::Text("too much".into()), Some("bad".into())).await.unwrap();
    assert_eq!(conn.item().await["id"], bad);
    conn.close(1009).await;
    wait(&mut events, |e| {
        matches!(e, Event::Failed { id, why: Failure::TooLarge } if id == bad).then_some(())
    })
    .await;
    wait(&mut events, |e| matches!(e, Event::Refused { code: 1009, .. }).then_some(())).await;
    session.connect_now().await;
    let mut conn = server.ready().await;
    session.submit(Request::Text("next".into()), Some("next".into())).await.unwrap();
    // The file is sent again, since it was accepted a moment ago; the text that was too large is not.
    loop {
        let frame = conn.item().await;
        assert_ne!(frame["id"], bad);
        if frame["id"] == "next" {
            break;
        }
    }
}

#[tokio::test]
async fn a_web_server_is_no_gateway() {
    let server = Server::new().await;
    let (_session, mut events) = start(&server);
    let (mut io, _) = server.tcp().await;
    io.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    let why = wait(&mut events, |e| if let Event::Offline { why, .. } = e { Some(why) } else { None }).await;
    assert!(matches!(why, hermes_mobile_client::core::Why::Connect { status: Some(404), .. }));
    // It tries again.
    server.ready().await;
}

#[tokio::test]
async fn an_app_that_does_not_listen_delays_only_itself() {
    let server = Server::new().await;
    let (session, mut events) = start(&server);
    let mut conn = server.ready().await;
    for i in 0..500 {
        conn.send(json!({"t":"message","id":format!("m{i}"),"text":"x".repeat(10_000),"final":true}));
    }
    // Calls work although nobody reads events.
    let id = session.send_text("still here").await.unwrap();
    assert_eq!(conn.item().await["id"], id);
    for i in 0..500 {
        let id = wait(&mut events, |e| if let Event::Message(m) = e { Some(m.id) } else { None }).await;
        assert_eq!(id, format!("m{i}"));
    }
}

#[tokio::test]
async fn ends_when_nobody_holds_it() {
    let server = Server::new().await;
    let (session, events) = start(&server);
    let mut conn = server.ready().await;
    drop(events);
    session.send_text("a").await.unwrap();
    assert_eq!(conn.frame().await["t"], "text");
    drop(session);
    while conn.next().await.is_some() {}
}

#[tokio::test]
async fn addresses_that_cannot_be() {
    assert_eq!(net::start(config(), "wss://127.0.0.1/ws").err(), Some(net::StartError::NoTls));
    assert!(matches!(net::start(config(), "ftp://x").err(), Some(net::StartError::Url(_))));
}
