//! Hand-written frames and a socket under test. No WebSocket library on this side.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{future::ready, io};

use hermes_mobile_wire::{In, Out, Why, WireConfig, server};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, DuplexStream},
    net::{TcpListener, TcpStream},
    sync::mpsc::{self, UnboundedReceiver},
    task::JoinHandle,
};

pub(crate) const FIN: u8 = 0x80;
pub(crate) const TEXT: u8 = 1;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;

/// An event, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ev {
    Text(String),
    Binary(Vec<u8>),
    Pong(u64),
    TooLong(u64),
    Drained(usize),
    Closed(Option<u16>, Why),
}

impl From<In<'_>> for Ev {
    fn from(event: In<'_>) -> Self {
        match event {
            In::Text(text) => Self::Text(text.to_owned()),
            In::Binary(data) => Self::Binary(data.to_vec()),
            In::Pong(nonce) => Self::Pong(nonce),
            In::TooLong(length) => Self::TooLong(length),
            In::Drained(bytes) => Self::Drained(bytes),
            In::Closed { code, why } => Self::Closed(code, why),
        }
    }
}

/// A peer and the server's end under test.
pub(crate) struct Pair<IO> {
    pub(crate) peer: IO,
    pub(crate) out: hermes_mobile_wire::Sender,
    pub(crate) events: UnboundedReceiver<Ev>,
    pub(crate) task: JoinHandle<()>,
}

impl<IO> Pair<IO> {
    /// The next event other than `Drained`.
    pub(crate) async fn event(&mut self) -> Ev {
        loop {
            match self.events.recv().await.expect("the socket tells its end before it goes") {
                Ev::Drained(_) => {}
                event => return event,
            }
        }
    }

    pub(crate) fn send(&self, out: Out) {
        self.out.send(out).expect("the socket is open");
    }
}

/// Runs a server's end on `io`.
pub(crate) fn run<P, IO>(peer: P, io: IO, config: WireConfig) -> Pair<P>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (out, outbound) = hermes_mobile_wire::queue();
    let (tell, events) = mpsc::unbounded_channel();
    let task = tokio::spawn(server(io, config).run(outbound, move |event: In<'_>| {
        let _ = tell.send(Ev::from(event));
        ready(())
    }));
    Pair { peer, out, events, task }
}

/// Over real sockets.
pub(crate) async fn over_tcp(config: WireConfig) -> Pair<TcpStream> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    peer.set_nodelay(true).unwrap();
    let (io, _) = listener.accept().await.unwrap();
    run(peer, io, config)
}

/// In memory, `buffer` bytes each way.
pub(crate) fn in_memory(config: WireConfig, buffer: usize) -> Pair<DuplexStream> {
    let (peer, io) = tokio::io::duplex(buffer);
    run(peer, io, config)
}

/// Header of a masked frame with the shortest form of the length. The mask is zero: the payload stays as it is.
pub(crate) fn head(first: u8, len: usize) -> Vec<u8> {
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

/// A masked frame; the mask is not zero.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [0x12, 0x34, 0x56, 0x78];
    let mut bytes = head(first, payload.len());
    let start = bytes.len() - 4;
    bytes[start..].copy_from_slice(&mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

/// Reads one frame of the server's: first byte and payload.
pub(crate) async fn read_frame<R: AsyncRead + Unpin>(peer: &mut R) -> io::Result<(u8, Vec<u8>)> {
    let first = peer.read_u8().await?;
    let second = peer.read_u8().await?;
    assert_eq!(second & 0x80, 0, "a server does not mask");
    let len = match second {
        126 => peer.read_u16().await?.into(),
        127 => peer.read_u64().await?,
        len => len.into(),
    };
    let mut payload = vec![0; usize::try_from(len).unwrap()];
    peer.read_exact(&mut payload).await?;
    Ok((first, payload))
}

/// Reads the server's close frame and then the end of the stream: nothing else may come. Gives the code.
pub(crate) async fn read_close<R: AsyncRead + Unpin>(peer: &mut R) -> Option<u16> {
    let (first, payload) = read_frame(peer).await.expect("a close frame");
    assert_eq!(first, FIN | CLOSE, "a close frame is next, not {payload:?}");
    let mut rest = Vec::new();
    peer.read_to_end(&mut rest).await.expect("a clean end, no reset");
    assert!(rest.is_empty(), "nothing follows a close frame: {rest:?}");
    payload.first_chunk().map(|code| u16::from_be_bytes(*code))
}
