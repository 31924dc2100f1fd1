//! The transport as the library sees it: counted, and stopped before a frame that is too long.

use std::{
    io::{self, IoSlice},
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{
    direct,
    scan::{Pass, Scan},
};

/// Largest single read under a byte rate, so that the pauses are short, bytes.
const STEP: usize = 64 * 1024;
/// Read at once while nothing else is held for the connection, bytes. On the stack, for the time of one call.
const PEEK: usize = 4 * 1024;

/// What [`Tap::poll_some`] found.
#[derive(Debug)]
pub(crate) enum Came {
    /// A small whole frame, taken out: its first byte, its payload.
    Frame(u8, Vec<u8>),
    /// Bytes for the library.
    Bytes,
    /// The end of the stream.
    End,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Tap<IO> {
    io: IO,
    pub(crate) scan: Scan,
    /// Read from the socket, not yet scanned.
    stash: Bytes,
    /// A large message has ended here: nothing passes until [`Tap::resume`].
    halted: bool,
    /// Handed over by [`Tap::send`] and not taken by the socket; goes before anything else.
    unsent: Bytes,
    /// Whether single reads are kept short.
    short: bool,
    /// Bytes that came from the socket.
    pub(crate) taken: u64,
    /// Bytes that the socket took.
    pub(crate) written: u64,
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Tap<IO> {
    /// `early` was read from `io` before.
    pub(crate) fn new(io: IO, scan: Scan, early: Bytes, short: bool) -> Self {
        Self { io, scan, stash: early, halted: false, unsent: Bytes::new(), short, taken: 0, written: 0 }
    }

    /// Goes on after the end of a large message.
    pub(crate) fn resume(&mut self) {
        self.halted = false;
    }

    /// A large message has ended; the library's buffer should go.
    pub(crate) fn halted(&self) -> bool {
        self.halted
    }

    /// Waits for bytes without a buffer that lives on. Only at the border of two messages.
    ///
    /// With a `limit`, a small whole frame ([`direct::whole`]) is taken out of the stream: its first byte and its payload.
    pub(crate) fn poll_some(&mut self, cx: &mut Context<'_>, limit: Option<usize>) -> Poll<io::Result<Came>> {
        let found = |stream: &[u8]| limit.and_then(|limit| direct::whole(stream, limit));
        if !self.stash.is_empty() {
            let Some((first, mask, start, end)) = found(&self.stash) else {
                return Poll::Ready(Ok(Came::Bytes));
            };
            let payload = direct::unmask(self.stash.get(start..end).unwrap_or_default(), mask);
            self.stash.advance(end);
            if self.stash.is_empty() {
                self.stash = Bytes::new();
            }
            return Poll::Ready(Ok(Came::Frame(first, payload)));
        }
        let mut space = [const { MaybeUninit::<u8>::uninit() }; PEEK];
        let mut buf = ReadBuf::uninit(&mut space);
        ready!(self.poll_io(cx, &mut buf))?;
        let stream = buf.filled();
        Poll::Ready(Ok(match found(stream) {
            _ if stream.is_empty() => Came::End,
            None => {
                self.stash = Bytes::copy_from_slice(stream);
                Came::Bytes
            }
            Some((first, mask, start, end)) => {
                let payload = direct::unmask(stream.get(start..end).unwrap_or_default(), mask);
                let rest = stream.get(end..).unwrap_or_default();
                if !rest.is_empty() {
                    self.stash = Bytes::copy_from_slice(rest);
                }
                Came::Frame(first, payload)
            }
        }))
    }

    /// Writes, in one go, frames that are whole; keeps what the socket does not take at once for [`Tap::poll_unsent`].
    pub(crate) fn send(&mut self, cx: &mut Context<'_>, mut frames: &[u8]) -> io::Result<()> {
        if self.poll_unsent(cx)?.is_ready() {
            while !frames.is_empty() {
                let Poll::Ready(took) = Pin::new(&mut self.io).poll_write(cx, frames)? else { break };
                if took == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
                self.written += took as u64;
                frames = frames.get(took..).unwrap_or_default();
            }
        }
        if !frames.is_empty() {
            self.unsent = [&self.unsent, frames].concat().into();
        }
        Ok(())
    }

    /// Writes what [`Tap::send`] kept.
    pub(crate) fn poll_unsent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            let took = ready!(Pin::new(&mut self.io).poll_write(cx, &self.unsent))?;
            if took == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += took as u64;
            self.unsent.advance(took);
            if self.unsent.is_empty() {
                self.unsent = Bytes::new();
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads and throws away. 0: the stream has ended.
    pub(crate) fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.scan.discard();
        if !self.stash.is_empty() {
            let stash = std::mem::take(&mut self.stash);
            self.scan.feed(&stash);
            return Poll::Ready(Ok(stash.len()));
        }
        let mut space = [const { MaybeUninit::<u8>::uninit() }; 4 * PEEK];
        let mut buf = ReadBuf::uninit(&mut space);
        ready!(self.poll_io(cx, &mut buf))?;
        self.scan.feed(buf.filled());
        Poll::Ready(Ok(buf.filled().len()))
    }

    /// One read of the socket.
    fn poll_io(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        if self.short && buf.remaining() > STEP {
            let mut part = ReadBuf::new(buf.initialize_unfilled_to(STEP));
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut part))?;
            let got = part.filled().len();
            buf.advance(got);
        } else {
            ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        }
        self.taken += (buf.filled().len() - before) as u64;
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncRead for Tap<IO> {
    /// Pending without a waker when [`Scan::too_long`] or [`Tap::halted`] say so: the owner asks both.
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.halted || this.scan.too_long().is_some() {
            return Poll::Pending;
        }
        let before = buf.filled().len();
        if this.stash.is_empty() {
            ready!(this.poll_io(cx, buf))?;
        } else {
            let step = this.stash.len().min(buf.remaining());
            buf.put_slice(&this.stash.split_to(step));
        }
        let fresh = buf.filled().get(before..).unwrap_or_default();
        let pass = match this.scan.feed(fresh) {
            Pass::All => fresh.len(),
            Pass::TooLong(pass) => pass,
            Pass::Large(pass) => {
                this.halted = true;
                let rest = fresh.get(pass..).unwrap_or_default();
                if !rest.is_empty() {
                    this.stash = [rest, &this.stash[..]].concat().into();
                }
                pass
            }
        };
        if pass == 0 && !fresh.is_empty() {
            // Nothing may pass, and an empty read would mean the end of the stream.
            buf.set_filled(before);
            return Poll::Pending;
        }
        buf.set_filled(before + pass);
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Tap<IO> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_unsent(cx))?;
        let took = ready!(Pin::new(&mut this.io).poll_write(cx, buf))?;
        this.written += took as u64;
        Poll::Ready(Ok(took))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_unsent(cx))?;
        let took = ready!(Pin::new(&mut this.io).poll_write_vectored(cx, bufs))?;
        this.written += took as u64;
        Poll::Ready(Ok(took))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_unsent(cx))?;
        Pin::new(&mut this.io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}
