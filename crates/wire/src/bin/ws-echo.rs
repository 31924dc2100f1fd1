//! Echo server for WebSocket conformance suites: every message comes back. The constructor, limits and buffers are those
//! of the gateway (after `ready`); only the HTTP head is read by hand here.
//!
//! Listens on 127.0.0.1, port 0, and prints `ws://127.0.0.1:PORT/` as its first line.

use std::{convert::Infallible, io, io::Write, time::Duration};

use hermes_mobile_wire::{In, Out, WireConfig, handshake, server};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

/// Longest request head, bytes.
const HEAD: usize = 16 * 1024;

#[tokio::main]
async fn main() -> io::Result<Infallible> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut out = io::stdout();
    writeln!(out, "ws://{}/", listener.local_addr()?)?;
    out.flush()?;
    loop {
        let (io, _) = listener.accept().await?;
        tokio::spawn(async move {
            if let Ok(Ok(Some(io))) = timeout(Duration::from_secs(10), open(io)).await {
                echo(io).await;
            }
        });
    }
}

/// Reads the request and answers it. `None`: it was refused.
async fn open(mut io: TcpStream) -> io::Result<Option<TcpStream>> {
    io.set_nodelay(true)?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD {
        // Byte by byte: what follows the head belongs to the stream of frames.
        head.push(io.read_u8().await?);
    }
    let (status, headers) = match answer(&head) {
        Ok(headers) => (http::StatusCode::SWITCHING_PROTOCOLS, headers),
        Err(refused) => (refused.status, refused.headers),
    };
    let mut text = format!("HTTP/1.1 {status}\r\n").into_bytes();
    for (name, value) in &headers {
        text.extend_from_slice(name.as_str().as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
    let open = status == http::StatusCode::SWITCHING_PROTOCOLS;
    text.extend_from_slice(if open { b"\r\n" } else { b"Content-Length: 0\r\nConnection: close\r\n\r\n" });
    io.write_all(&text).await?;
    Ok(open.then_some(io))
}

/// What the gateway would answer to this head.
fn answer(head: &[u8]) -> Result<HeaderMap, handshake::Refused> {
    let mut space = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut space);
    let parsed = request.parse(head).is_ok_and(|status| status.is_complete());
    let method = Method::from_bytes(request.method.unwrap_or_default().as_bytes()).unwrap_or(Method::GET);
    let version = if parsed && request.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
    let mut headers = HeaderMap::new();
    for field in request.headers.iter() {
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(field.name.as_bytes()), HeaderValue::from_bytes(field.value))
        {
            headers.append(name, value);
        }
    }
    handshake::upgrade(&method, version, &headers)
}

/// Sends every message back until the connection ends.
async fn echo(io: TcpStream) {
    let config = WireConfig { limit: protocol::limits::FRAME_AFTER_READY, ..WireConfig::default() };
    let (out, outbound) = hermes_mobile_wire::queue();
    let inbound = move |event: In<'_>| {
        let back = match event {
            In::Text(text) => Some(Out::Text(text.to_owned())),
            In::Binary(data) => Some(Out::Binary(data.to_vec())),
            In::TooLong(_) => Some(Out::Close(1009)),
            In::Pong(_) | In::Drained(_) | In::Closed { .. } => None,
        };
        // The receiver is gone only when the connection has ended.
        let _ = back.map(|back| out.send(back));
        std::future::ready(())
    };
    server(io, config).run(outbound, inbound).await;
}
