//! A WebSocket proxy that makes a right server wrong: it stands between a client and the real gateway, and changes,
//! drops, adds or reorders what passes. Everything that a fault does not touch passes byte by byte, pings and their
//! payloads too, so that proofs of delivery still mean something.

use std::{io, net::SocketAddr, sync::Arc};

use conformance::frame::{self, CLOSE, FIN, Header, TEXT};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader, copy},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::Mutex,
};

/// Longest head of a request or an answer, bytes.
const HEAD: usize = 16 * 1024;
/// Longer messages of a client pass unseen: their bytes may never come.
const SEEN: u64 = 64 * 1024;
/// Frames that the proxy makes itself are masked with this, to the server.
const MASK: [u8; 4] = [7, 5, 3, 1];

/// Where something goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// From the client.
    Server,
    /// From the server.
    Client,
}

/// What passes.
#[derive(Clone, Debug, PartialEq)]
pub enum Msg {
    /// A text message that is a JSON object.
    Json(Value),
    /// A close frame.
    Close(Option<u16>),
}

/// Looks at what passes on one connection. `None`: it passes as it is; else this goes in its place.
pub type Mutant = Box<dyn FnMut(To, &Msg) -> Option<Vec<(To, Msg)>> + Send>;
/// Makes the mutant of a new connection.
pub type Fault = fn() -> Mutant;

/// Starts a proxy in front of `server` and gives its address. It runs until the runtime ends.
///
/// # Errors
/// No port is free.
pub async fn start(server: SocketAddr, fault: Fault) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            // A connection that fails has failed for its client, who tells about it.
            tokio::spawn(async move { drop(connection(client, server, fault()).await) });
        }
    });
    Ok(address)
}

/// Both directions of a connection.
struct Lines {
    mutant: Mutex<Mutant>,
    server: Mutex<OwnedWriteHalf>,
    client: Mutex<OwnedWriteHalf>,
}

async fn connection(client: TcpStream, server: SocketAddr, mutant: Mutant) -> io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (mut from_client, mut from_server) = (BufReader::new(from_client), BufReader::new(from_server));
    let lines = Arc::new(Lines {
        mutant: Mutex::new(mutant),
        server: Mutex::new(to_server),
        client: Mutex::new(to_client),
    });
    lines.server.lock().await.write_all(&head(&mut from_client).await?).await?;
    lines.client.lock().await.write_all(&head(&mut from_server).await?).await?;
    let up = async {
        let end = pump(from_client, To::Server, &lines).await;
        drop(lines.server.lock().await.shutdown().await);
        end
    };
    let down = async {
        let end = pump(from_server, To::Client, &lines).await;
        drop(lines.client.lock().await.shutdown().await);
        end
    };
    let (up, down) = tokio::join!(up, down);
    up.and(down)
}

/// A head of HTTP, with its empty line.
async fn head(from: &mut BufReader<OwnedReadHalf>) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD {
        head.push(from.read_u8().await?);
    }
    Ok(head)
}

async fn pump(mut from: BufReader<OwnedReadHalf>, to: To, lines: &Lines) -> io::Result<()> {
    while let Some(header) = frame::read_header(&mut from).await? {
        if to == To::Server && (header.len > SEEN || header.mask.is_none()) {
            let mut server = lines.server.lock().await;
            server.write_all(&header.bytes()).await?;
            copy(&mut (&mut from).take(header.len), &mut *server).await?;
            continue;
        }
        let mut payload = vec![0; usize::try_from(header.len).unwrap_or_default()];
        from.read_exact(&mut payload).await?;
        let Some(changed) = lines.look(&header, &payload, to).await else {
            let mut bytes = header.bytes();
            bytes.append(&mut payload);
            lines.write(to, &bytes).await?;
            continue;
        };
        for (to, msg) in changed {
            let mask = (to == To::Server).then_some(MASK);
            let bytes = match msg {
                Msg::Json(value) => frame::encode(FIN | TEXT, mask, value.to_string().as_bytes()),
                Msg::Close(code) => frame::encode(FIN | CLOSE, mask, &frame::close_payload(code)),
            };
            lines.write(to, &bytes).await?;
        }
    }
    Ok(())
}

impl Lines {
    /// What the mutant makes of a frame; `None`: nothing.
    async fn look(&self, header: &Header, payload: &[u8], to: To) -> Option<Vec<(To, Msg)>> {
        let mut clear = payload.to_vec();
        frame::apply_mask(header.mask, &mut clear);
        let msg = if header.first == FIN | TEXT {
            let value: Value = serde_json::from_slice(&clear).ok()?;
            Msg::Json(value.is_object().then_some(value)?)
        } else if header.first == FIN | CLOSE {
            Msg::Close(frame::close_code(&clear))
        } else {
            return None;
        };
        (self.mutant.lock().await)(to, &msg)
    }

    async fn write(&self, to: To, bytes: &[u8]) -> io::Result<()> {
        let half = if to == To::Server { &self.server } else { &self.client };
        half.lock().await.write_all(bytes).await
    }
}
