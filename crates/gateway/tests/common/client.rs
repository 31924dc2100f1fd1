//! A raw HTTP exchange, and a bare WebSocket client. Also used by the tests of the binary.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
    time::timeout,
};
use wire::{In, Out, WireConfig};

pub const TOKEN: &str = "test-token-of-the-owner";
/// Nothing here takes so long unless it is broken.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// One request, written as it is; the whole answer.
pub async fn http(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("answered").unwrap();
    String::from_utf8(answer).unwrap()
}

pub async fn get(address: SocketAddr, path: &str) -> String {
    http(address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).await
}

/// What came on a socket.
#[derive(Debug, PartialEq, Eq)]
pub enum Got {
    Text(String),
    Closed(Option<u16>),
}

pub struct Client {
    pub out: wire::Sender,
    pub got: mpsc::UnboundedReceiver<Got>,
}

impl Client {
    pub async fn connect(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Self {
        let url = format!("ws://{address}{path}");
        let socket = wire::connect(&url, headers, WireConfig::client()).await.unwrap();
        let (out, outbound) = wire::queue();
        let (tell, got) = mpsc::unbounded_channel();
        tokio::spawn(socket.run(outbound, move |event| {
            let got = match event {
                In::Text(text) => Some(Got::Text(text.to_owned())),
                In::Closed { code, .. } => Some(Got::Closed(code)),
                _ => None,
            };
            if let Some(got) = got {
                let _ = tell.send(got);
            }
            std::future::ready(())
        }));
        Self { out, got }
    }

    pub fn send(&self, text: impl Into<String>) {
        let _ = self.out.send(Out::Text(text.into()));
    }

    pub async fn next(&mut self) -> Got {
        timeout(PATIENCE, self.got.recv()).await.expect("something comes").expect("not over yet")
    }

    /// Reads until a frame holds all of `parts`, and returns it.
    pub async fn until(&mut self, parts: &[&str]) -> String {
        loop {
            match self.next().await {
                Got::Text(text) if parts.iter().all(|p| text.contains(p)) => return text,
                Got::Text(_) => {}
                Got::Closed(code) => panic!("closed with {code:?} before {parts:?} came"),
            }
        }
    }

    /// Reads until the close, and returns its code.
    pub async fn closed(&mut self) -> Option<u16> {
        loop {
            if let Got::Closed(code) = self.next().await {
                return code;
            }
        }
    }

    /// A device that is ready.
    pub async fn device(address: SocketAddr, id: &str) -> Self {
        let mut client = Self::connect(address, "/ws", &[]).await;
        client.send(hello(id));
        client.until(&[r#""t":"ready""#]).await;
        client
    }
}

pub fn hello(id: &str) -> String {
    format!(r#"{{"t":"hello","token":"{TOKEN}","device":{{"id":"{id}"}}}}"#)
}
