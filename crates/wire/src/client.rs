//! Opening a connection as a client.

use std::{io, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::{Socket, WireConfig, handshake};

/// From the first packet to the end of the handshake.
const CONNECT_WITHIN: Duration = Duration::from_secs(15);
/// Longest head of an HTTP answer, bytes.
const HEAD: usize = 16 * 1024;
/// Most headers of an HTTP answer.
const HEADERS: usize = 64;

/// Why no connection was opened. Never holds the URL, which may carry a token.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Not `ws://host[:port]/path`.
    #[error("the address is not a WebSocket URL such as ws://127.0.0.1:8787/ws")]
    BadUrl,
    /// `wss://` is not built in.
    #[error("wss:// (TLS) is not supported by this build; use ws://, or a tunnel that ends TLS")]
    NoTls,
    /// A header name or value that HTTP does not allow.
    #[error("the header {0} cannot be sent")]
    BadHeader(String),
    /// The name is unknown, or nobody listens.
    #[error("cannot connect: {0}")]
    Unreachable(#[source] io::Error),
    /// No answer in 15 s.
    #[error("no answer within 15 seconds")]
    TimedOut,
    /// HTTP, but no WebSocket: the status.
    #[error("the server answered with HTTP status {0} instead of opening a WebSocket")]
    Refused(u16),
    /// What answered does not speak WebSocket as RFC 6455 asks.
    #[error("the server's answer is not a WebSocket handshake: {0}")]
    NotWebSocket(&'static str),
    /// The connection broke in the handshake.
    #[error("the connection broke during the handshake: {0}")]
    Lost(#[source] io::Error),
}

/// Opens `url` (`ws://` only) with additional request headers.
///
/// # Errors
/// [`ConnectError`]; 15 s are the most it takes.
pub async fn connect(
    url: &str,
    headers: &[(&str, &str)],
    config: WireConfig,
) -> Result<Socket<TcpStream>, ConnectError> {
    let uri: Uri = url.parse().map_err(|_| ConnectError::BadUrl)?;
    match uri.scheme_str() {
        Some("ws") => {}
        Some("wss") => return Err(ConnectError::NoTls),
        _ => return Err(ConnectError::BadUrl),
    }
    let host = uri.host().ok_or(ConnectError::BadUrl)?.trim_start_matches('[').trim_end_matches(']');
    let port = uri.port_u16().unwrap_or(80);
    let open = async {
        let io = TcpStream::connect((host, port)).await.map_err(ConnectError::Unreachable)?;
        // Small frames wait for nothing.
        io.set_nodelay(true).map_err(ConnectError::Lost)?;
        shake(io, &uri, headers, config).await
    };
    timeout(CONNECT_WITHIN, open).await.map_err(|_| ConnectError::TimedOut)?
}

/// As [`connect`], over a transport that the caller has opened: a socket with an own address, a counter of bytes, a
/// pipe in a test. `url` gives host and path of the request.
///
/// # Errors
/// [`ConnectError`]; 15 s are the most it takes.
pub async fn connect_over<IO: AsyncRead + AsyncWrite + Unpin>(
    io: IO,
    url: &str,
    headers: &[(&str, &str)],
    config: WireConfig,
) -> Result<Socket<IO>, ConnectError> {
    let uri: Uri = url.parse().map_err(|_| ConnectError::BadUrl)?;
    timeout(CONNECT_WITHIN, shake(io, &uri, headers, config)).await.map_err(|_| ConnectError::TimedOut)?
}

/// The handshake on an open transport.
async fn shake<IO: AsyncRead + AsyncWrite + Unpin>(
    mut io: IO,
    uri: &Uri,
    headers: &[(&str, &str)],
    config: WireConfig,
) -> Result<Socket<IO>, ConnectError> {
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce).map_err(|_| ConnectError::Lost(io::Error::other("no randomness")))?;
    let key = base64_simd::STANDARD.encode_to_string(nonce);
    io.write_all(request(uri, &key, headers)?.as_bytes()).await.map_err(ConnectError::Lost)?;
    io.flush().await.map_err(ConnectError::Lost)?;

    let mut buffer = BytesMut::with_capacity(1024);
    let end = loop {
        if let Some(end) = check(&buffer, &key)? {
            break end;
        }
        if buffer.len() >= HEAD {
            return Err(ConnectError::NotWebSocket("its head is too long"));
        }
        if io.read_buf(&mut buffer).await.map_err(ConnectError::Lost)? == 0 {
            return Err(ConnectError::Lost(io::ErrorKind::UnexpectedEof.into()));
        }
    };
    let early = Bytes::copy_from_slice(buffer.get(end..).unwrap_or_default());
    Ok(Socket::new(io, false, config, early))
}

/// The request's text.
fn request(uri: &Uri, key: &str, headers: &[(&str, &str)]) -> Result<String, ConnectError> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let host = uri.authority().ok_or(ConnectError::BadUrl)?.as_str();
    // What stands before `@` is for nobody but the server that was meant; we do not use it.
    let host = host.rsplit('@').next().unwrap_or(host);
    let mut text = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
    );
    for (name, value) in headers {
        let bad = || ConnectError::BadHeader((*name).to_owned());
        HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
        HeaderValue::from_str(value).map_err(|_| bad())?;
        text.push_str(name);
        text.push_str(": ");
        text.push_str(value);
        text.push_str("\r\n");
    }
    text.push_str("\r\n");
    Ok(text)
}

/// Checks the answer's head; `Some`: where it ends.
fn check(head: &[u8], key: &str) -> Result<Option<usize>, ConnectError> {
    let mut space = [httparse::EMPTY_HEADER; HEADERS];
    let mut answer = httparse::Response::new(&mut space);
    let end = match answer.parse(head) {
        Ok(httparse::Status::Complete(end)) => end,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(ConnectError::NotWebSocket("it is not HTTP/1.1")),
    };
    let status = answer.code.unwrap_or_default();
    if status != 101 {
        return Err(ConnectError::Refused(status));
    }
    let mut headers = HeaderMap::new();
    for field in answer.headers.iter() {
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(field.name.as_bytes()), HeaderValue::from_bytes(field.value))
        {
            headers.append(name, value);
        }
    }
    if !handshake::has_token(&headers, &header::UPGRADE, "websocket")
        || !handshake::has_token(&headers, &header::CONNECTION, "upgrade")
    {
        return Err(ConnectError::NotWebSocket("Upgrade and Connection do not say so"));
    }
    let accept = handshake::only(&headers, &header::SEC_WEBSOCKET_ACCEPT);
    if accept.is_none_or(|accept| accept.as_bytes() != handshake::accept_key(key.as_bytes()).as_bytes()) {
        return Err(ConnectError::NotWebSocket("Sec-WebSocket-Accept does not fit the key"));
    }
    if headers.contains_key(header::SEC_WEBSOCKET_EXTENSIONS) {
        return Err(ConnectError::NotWebSocket("it uses an extension that was not offered"));
    }
    Ok(Some(end))
}

#[cfg(test)]
mod tests;
