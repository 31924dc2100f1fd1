//! The client's end against the echo server that the conformance suite drives.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use common::Ev;
use hermes_mobile_wire::{ConnectError, In, Out, Why, WireConfig, connect};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
};

/// Ends with the test.
struct Echo(Child, String);

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start() -> Echo {
    let mut child =
        Command::new(env!("CARGO_BIN_EXE_ws-echo")).stdout(Stdio::piped()).spawn().expect("the echo starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    Echo(child, line.trim().to_owned())
}

#[tokio::test]
async fn a_client_and_the_echo_exchange_messages_of_every_size_and_close() {
    let echo = start();
    let socket = connect(&echo.1, &[("x-test", "1")], WireConfig::client()).await.unwrap();
    let (out, outbound) = hermes_mobile_wire::queue();
    let (tell, mut events) = mpsc::unbounded_channel();
    let task = tokio::spawn(socket.run(outbound, move |event: In<'_>| {
        let _ = tell.send(Ev::from(event));
        std::future::ready(())
    }));
    let mut sent = 0;
    for length in [0, 1, 125, 126, 65_535, 65_536, 1 << 20, 16 << 20] {
        out.send(Out::Text("\u{44f}".repeat(length / 2))).unwrap();
        out.send(Out::Binary(vec![0xff; length])).unwrap();
        out.send(Out::Ping(length as u64)).unwrap();
        sent += length / 2 * 2 + length;
    }
    let mut drained = 0;
    let mut next = async || loop {
        match events.recv().await.unwrap() {
            Ev::Drained(bytes) => drained += bytes,
            // A pong may overtake the echo of what was sent before its ping.
            Ev::Pong(_) => {}
            event => return event,
        }
    };
    for length in [0, 1, 125, 126, 65_535, 65_536, 1 << 20, 16 << 20] {
        assert!(next().await == Ev::Text("\u{44f}".repeat(length / 2)), "text of {length}");
        assert!(next().await == Ev::Binary(vec![0xff; length]), "binary of {length}");
    }
    out.send(Out::Close(1000)).unwrap();
    assert_eq!(next().await, Ev::Closed(None, Why::Local));
    assert_eq!(drained, sent, "everything that was sent was told as drained");
    task.await.unwrap();
}

#[tokio::test]
async fn a_request_that_is_no_upgrade_gets_its_status() {
    let echo = start();
    let address = echo.1.trim_start_matches("ws://").trim_end_matches('/');
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), "426"),
        ("POST / HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), "405"),
        ("rubbish\r\n\r\n".to_owned(), "400"),
        (
            format!(
                "GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{key}Sec-WebSocket-Version: 12\r\n\r\n"
            ),
            "426",
        ),
    ] {
        let mut io = TcpStream::connect(address).await.unwrap();
        io.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        io.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer.split(' ').nth(1), Some(status), "{request}");
    }
    let wss = connect(&echo.1.replace("ws://", "wss://"), &[], WireConfig::client()).await;
    assert!(matches!(wss, Err(ConnectError::NoTls)));
}
