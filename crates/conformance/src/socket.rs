//! A WebSocket connection on which nothing is hidden.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Mutex, mpsc},
    task::JoinHandle,
    time::timeout,
};

use crate::frame::{self, BINARY, CLOSE, FIN, PING, PONG, TEXT};

/// From the first packet to the end of the handshake, and for one write.
const WITHIN: Duration = Duration::from_secs(20);
/// Longest head of an HTTP answer, bytes.
const HEAD: usize = 16 * 1024;
/// Longest payload that is read, bytes; no server may send so much.
const PAYLOAD: u64 = 32 * 1024 * 1024;
/// Frames of a client are masked; with what does not matter here.
const MASK: [u8; 4] = [0x5a, 0x17, 0xc3, 0x3e];

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// `wss://` is not built in.
    #[error("wss:// (TLS) is not supported by this build; use ws://, or a tunnel that ends TLS")]
    NoTls,
    /// Nobody listens, or the line broke.
    #[error("cannot connect: {0}")]
    Io(#[from] io::Error),
    /// No answer in 20 s.
    #[error("no answer to the upgrade within 20 seconds")]
    Late,
    /// Another HTTP status than 101: its first line.
    #[error("the upgrade was answered with: {0}")]
    Refused(String),
}

/// What came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Got {
    /// A whole text message.
    Text(String),
    /// A ping with this payload.
    Ping(Vec<u8>),
    /// A close frame with this code.
    Close(Option<u16>),
    /// Something that a server must not send.
    Fault(String),
    /// The stream is over; `true`: cleanly.
    End(bool),
}

/// An open connection. Dropped: the stream is cut, without a close frame.
#[derive(Debug)]
pub struct Socket {
    write: Arc<Mutex<OwnedWriteHalf>>,
    got: mpsc::UnboundedReceiver<Got>,
    deaf: Arc<AtomicBool>,
    reader: JoinHandle<()>,
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Socket {
    /// Opens `url` (`ws://host:port/path`) with further request headers.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn open(url: &str, headers: &[(String, String)], deaf: bool) -> Result<Self, OpenError> {
        let rest = url.strip_prefix("ws://").ok_or(OpenError::NoTls)?;
        let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
        let address = if authority.rsplit(']').next().unwrap_or_default().contains(':') {
            authority.to_owned()
        } else {
            format!("{authority}:80")
        };
        let mut request = format!(
            "GET {path} HTTP/1.1\r\nHost: {authority}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        );
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str("\r\n");
        let (stream, answer) =
            timeout(WITHIN, shake(&address, &request)).await.map_err(|_| OpenError::Late)??;
        let first = answer.lines().next().unwrap_or_default().to_owned();
        if !first.starts_with("HTTP/1.1 101") {
            return Err(OpenError::Refused(first));
        }
        let (read, write) = stream.into_split();
        let write = Arc::new(Mutex::new(write));
        let deaf = Arc::new(AtomicBool::new(deaf));
        let (tell, got) = mpsc::unbounded_channel();
        let reader = tokio::spawn(listen(BufReader::new(read), Arc::clone(&write), Arc::clone(&deaf), tell));
        Ok(Self { write, got, deaf, reader })
    }

    /// The next thing that comes; after [`Got::End`] never again. Cancel safe.
    pub async fn next(&mut self) -> Got {
        match self.got.recv().await {
            Some(got) => got,
            None => std::future::pending().await,
        }
    }

    /// Whether pings of the server stay without an answer from now on.
    pub fn set_deaf(&self, deaf: bool) {
        self.deaf.store(deaf, Ordering::Relaxed);
    }

    /// Writes a text message. A connection that is gone tells so by what is read.
    pub async fn text(&self, text: &str) {
        self.raw(&frame::encode(FIN | TEXT, Some(MASK), text.as_bytes())).await;
    }

    /// Writes one frame with this first byte.
    pub async fn frame(&self, first: u8, payload: &[u8]) {
        self.raw(&frame::encode(first, Some(MASK), payload)).await;
    }

    /// Writes bytes as they are.
    pub async fn raw(&self, bytes: &[u8]) {
        // What the server closed cannot be written to; the reader tells about it.
        let _ = timeout(WITHIN, write(&self.write, bytes)).await;
    }
}

async fn write(to: &Mutex<OwnedWriteHalf>, bytes: &[u8]) -> io::Result<()> {
    to.lock().await.write_all(bytes).await
}

/// Connects and upgrades; the answer's head.
async fn shake(address: &str, request: &str) -> io::Result<(TcpStream, String)> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD {
        // Byte by byte: what follows the head belongs to the frames.
        head.push(stream.read_u8().await?);
    }
    Ok((stream, String::from_utf8_lossy(&head).into_owned()))
}

/// Reads until the end, and answers pings.
async fn listen(
    mut read: BufReader<OwnedReadHalf>,
    to: Arc<Mutex<OwnedWriteHalf>>,
    deaf: Arc<AtomicBool>,
    tell: mpsc::UnboundedSender<Got>,
) {
    let mut message = Vec::new();
    let end = loop {
        let header = match frame::read_header(&mut read).await {
            Ok(Some(header)) => header,
            Ok(None) => break Got::End(true),
            Err(_) => break Got::End(false),
        };
        if header.len > PAYLOAD || header.mask.is_some() || header.first & 0x70 != 0 {
            let what = format!(
                "frame {:#04x}, masked {}, {} bytes",
                header.first,
                header.mask.is_some(),
                header.len
            );
            break Got::Fault(what);
        }
        let mut payload = vec![0; usize::try_from(header.len).unwrap_or_default()];
        if read.read_exact(&mut payload).await.is_err() {
            break Got::End(false);
        }
        let got = match (header.first & 0x0f, header.first & FIN != 0) {
            (PING, true) => {
                if !deaf.load(Ordering::Relaxed) {
                    // The pong comes after everything that was read before the ping, as with any library.
                    let _ = write(&to, &frame::encode(FIN | PONG, Some(MASK), &payload)).await;
                }
                Got::Ping(payload)
            }
            (PONG, true) => continue,
            (CLOSE, true) => {
                let code = frame::close_code(&payload);
                let _ = write(&to, &frame::encode(FIN | CLOSE, Some(MASK), &payload)).await;
                Got::Close(code)
            }
            (TEXT | 0, fin) => {
                message.append(&mut payload);
                if !fin {
                    continue;
                }
                match String::from_utf8(std::mem::take(&mut message)) {
                    Ok(text) => Got::Text(text),
                    Err(_) => break Got::Fault("text that is not UTF-8".into()),
                }
            }
            (BINARY, _) => Got::Fault("a binary message".into()),
            (opcode, _) => break Got::Fault(format!("opcode {opcode}")),
        };
        if tell.send(got).is_err() {
            return;
        }
    };
    let _ = tell.send(end);
}
