//! A device's socket that counts what it reads: bytes, and frames by kind, with their headers.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What one or many devices got.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Bytes of frames, headers included; the HTTP answer is not.
    pub(crate) bytes_in: AtomicU64,
    /// Data frames.
    pub(crate) data_in: AtomicU64,
    /// Pings.
    pub(crate) pings_in: AtomicU64,
    /// Data frames that were sent.
    pub(crate) data_out: AtomicU64,
}

impl Counts {
    /// A snapshot: bytes and data frames in, pings in, data frames out.
    pub(crate) fn now(&self) -> [u64; 4] {
        [&self.bytes_in, &self.data_in, &self.pings_in, &self.data_out].map(|n| n.load(Ordering::Relaxed))
    }
}

/// Where in the stream of a server we are.
#[derive(Debug)]
enum At {
    /// In the HTTP answer; so many bytes of the empty line at its end have come.
    Http(usize),
    /// In a frame's header.
    Header(Vec<u8>),
    /// In a payload, with so many bytes to come.
    Payload(u64),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Counted<IO> {
    io: IO,
    at: At,
    counts: Arc<Counts>,
}

impl<IO> Counted<IO> {
    pub(crate) fn new(io: IO, counts: Arc<Counts>) -> Self {
        Self { io, at: At::Http(0), counts }
    }

    fn scan(&mut self, mut bytes: &[u8]) {
        const EMPTY_LINE: &[u8] = b"\r\n\r\n";
        if !matches!(self.at, At::Http(_)) {
            self.counts.bytes_in.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        while let Some((first, rest)) = bytes.split_first() {
            match &mut self.at {
                At::Http(seen) => {
                    *seen = match EMPTY_LINE.get(*seen) {
                        Some(byte) if byte == first => *seen + 1,
                        _ => usize::from(*first == b'\r'),
                    };
                    bytes = rest;
                    if *seen == EMPTY_LINE.len() {
                        self.at = At::Header(Vec::new());
                        self.counts.bytes_in.fetch_add(rest.len() as u64, Ordering::Relaxed);
                    }
                }
                At::Header(head) => {
                    head.push(*first);
                    bytes = rest;
                    if let Some((opcode, length)) = header(head) {
                        match opcode {
                            0..=2 => self.counts.data_in.fetch_add(1, Ordering::Relaxed),
                            9 => self.counts.pings_in.fetch_add(1, Ordering::Relaxed),
                            _ => 0,
                        };
                        self.at = if length == 0 { At::Header(Vec::new()) } else { At::Payload(length) };
                    }
                }
                At::Payload(left) => {
                    let step = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                    *left -= step as u64;
                    bytes = bytes.get(step..).unwrap_or_default();
                    if *left == 0 {
                        self.at = At::Header(Vec::new());
                    }
                }
            }
        }
    }
}

/// Opcode and payload length of a header that is whole. A server masks nothing.
fn header(head: &[u8]) -> Option<(u8, u64)> {
    let opcode = head.first()? & 0x0f;
    let length = head.get(1)? & 0x7f;
    let length = match length {
        126 => u64::from(u16::from_be_bytes(head.get(2..4)?.try_into().ok()?)),
        127 => u64::from_be_bytes(head.get(2..10)?.try_into().ok()?),
        short => u64::from(short),
    };
    Some((opcode, length))
}

impl<IO: AsyncRead + Unpin> AsyncRead for Counted<IO> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
        this.scan(buf.filled().get(before..).unwrap_or_default());
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Counted<IO> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, buf)
    }
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_counted_however_the_stream_is_cut() {
        let mut stream = b"HTTP/1.1 101 Switching Protocols\r\nA: b\r\n\r\n".to_vec();
        let head = stream.len();
        stream.extend([0x81, 3, b'a', b'b', b'c', 0x89, 0, 0x82, 126, 1, 0]);
        stream.extend([7; 256]);
        stream.extend([0x89, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0x8a, 0]);
        for step in 1..stream.len() {
            let counts = Arc::new(Counts::default());
            let mut counted = Counted::new((), Arc::clone(&counts));
            for piece in stream.chunks(step) {
                counted.scan(piece);
            }
            assert_eq!(counts.now(), [(stream.len() - head) as u64, 2, 2, 0], "in pieces of {step}");
        }
    }
}
