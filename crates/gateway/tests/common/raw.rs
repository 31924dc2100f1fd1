//! A device that writes its own bytes: no WebSocket library on this side.
#![allow(clippy::panic, reason = "a test fails by panicking")]

use std::net::SocketAddr;

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::timeout,
};

use super::{PATIENCE, hello};

pub const FIN: u8 = 0x80;
pub const TEXT: u8 = 1;
pub const BINARY: u8 = 2;
pub const CLOSE: u8 = 8;
pub const PING: u8 = 9;
pub const PONG: u8 = 10;

/// Header of a masked frame with the shortest form of the length. The mask is zero: the payload stays as it is.
pub fn head(first: u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![first];
    match len {
        0..=125 => bytes.push(0x80 | len as u8),
        126..=0xffff => {
            bytes.push(0x80 | 126);
            bytes.extend_from_slice(&(len as u16).to_be_bytes());
        }
        _ => {
            bytes.push(0x80 | 127);
            bytes.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
    bytes.extend_from_slice(&[0; 4]);
    bytes
}

/// A masked frame.
pub fn frame(first: u8, payload: impl AsRef<[u8]>) -> Vec<u8> {
    let payload = payload.as_ref();
    let mut bytes = head(first, payload.len());
    bytes.extend_from_slice(payload);
    bytes
}

/// A request for an upgrade, with further header lines.
pub fn upgrade(path: &str, more: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
    )
}

/// A socket after its upgrade.
pub struct Raw {
    stream: BufReader<TcpStream>,
    /// The answer to the upgrade.
    pub answer: String,
}

impl Raw {
    pub async fn open(address: SocketAddr) -> Self {
        Self::open_with(address, upgrade("/ws", "")).await
    }

    /// Opens with this request, which must be accepted.
    pub async fn open_with(address: SocketAddr, request: impl AsRef<[u8]>) -> Self {
        Self::on(TcpStream::connect(address).await.unwrap(), request).await
    }

    pub async fn on(mut stream: TcpStream, request: impl AsRef<[u8]>) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.write_all(request.as_ref()).await.unwrap();
        let mut stream = BufReader::new(stream);
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(timeout(PATIENCE, stream.read_u8()).await.expect("answered").unwrap());
        }
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
        Self { stream, answer }
    }

    /// A device that is ready.
    pub async fn device(address: SocketAddr, id: &str) -> Self {
        let mut raw = Self::open(address).await;
        raw.text(&hello(id)).await;
        raw.until("ready").await;
        raw
    }

    pub async fn write(&mut self, bytes: &[u8]) {
        timeout(PATIENCE, self.stream.get_mut().write_all(bytes)).await.expect("taken").unwrap();
    }

    /// Writes what the server may be closing already.
    pub async fn try_write(&mut self, bytes: &[u8]) -> bool {
        timeout(PATIENCE, self.stream.get_mut().write_all(bytes)).await.expect("taken or refused").is_ok()
    }

    pub async fn text(&mut self, text: &str) {
        self.write(&frame(FIN | TEXT, text)).await;
    }

    /// The next frame, first byte and payload. `None`: a clean end of the stream.
    ///
    /// # Panics
    /// When the connection was reset.
    pub async fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        timeout(PATIENCE, async {
            let mut first = [0];
            if self.stream.read(&mut first).await.expect("no reset") == 0 {
                return None;
            }
            let second = self.stream.read_u8().await.unwrap();
            assert_eq!(second & 0x80, 0, "a server does not mask");
            let len = match second {
                126 => self.stream.read_u16().await.unwrap().into(),
                127 => self.stream.read_u64().await.unwrap(),
                len => len.into(),
            };
            let mut payload = vec![0; usize::try_from(len).unwrap()];
            self.stream.read_exact(&mut payload).await.unwrap();
            Some((first[0], payload))
        })
        .await
        .expect("something comes")
    }

    /// The next frame of the protocol. Pings of the server are answered.
    pub async fn json(&mut self) -> Value {
        loop {
            match self.next().await.expect("not over yet") {
                (first, payload) if first == FIN | TEXT => return serde_json::from_slice(&payload).unwrap(),
                (first, payload) if first == FIN | PING => {
                    let _ = self.try_write(&frame(FIN | PONG, payload)).await;
                }
                (first, payload) if first == FIN | CLOSE => panic!("closed: {payload:?}"),
                _ => {}
            }
        }
    }

    /// Reads until a frame of this type.
    pub async fn until(&mut self, t: &str) -> Value {
        loop {
            let frame = self.json().await;
            if frame["t"] == t {
                return frame;
            }
        }
    }

    /// Reads up to an error, which must have this code.
    pub async fn error(&mut self, code: &str, fatal: bool) -> Value {
        let error = self.until("error").await;
        assert_eq!((error["code"].as_str(), error["fatal"].as_bool()), (Some(code), Some(fatal)), "{error}");
        error
    }

    /// Asks for a sign that the connection lives and that everything before was handled.
    pub async fn ping(&mut self, ts: &str) {
        self.text(&serde_json::json!({"t": "ping", "ts": ts}).to_string()).await;
        while self.until("pong").await["ts"] != ts {}
    }

    /// Reads up to the close frame, then the end of the stream: nothing else may come, and no reset. Gives the code.
    pub async fn closed(&mut self) -> Option<u16> {
        let payload = loop {
            match self.next().await.expect("a close frame comes before the end") {
                (first, payload) if first == FIN | CLOSE => break payload,
                _ => {}
            }
        };
        assert_eq!(self.next().await, None, "nothing follows a close frame");
        payload.first_chunk().map(|code| u16::from_be_bytes(*code))
    }
}
