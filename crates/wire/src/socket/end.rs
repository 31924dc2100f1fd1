//! The end of a connection: the close frame, and what keeps it from being lost.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::Instant,
};
use tokio_websockets::{CloseCode, Message};

use super::{Drive, Phase, Stage};
use crate::Why;

/// After our close frame, input is discarded so long and so far: closing the socket with unread input would reset the
/// connection and could destroy what was sent last.
const LINGER: Duration = Duration::from_secs(5);
const LINGER_BYTES: usize = 32 * 1024 * 1024;
/// The frames before a close and the close frame must be taken within this.
const CLOSE_WITHIN: Duration = Duration::from_secs(30);

impl<IO: AsyncRead + AsyncWrite + Unpin> Drive<IO> {
    /// Queues a close frame of ours and stops reading messages.
    pub(super) fn close(&mut self, code: Option<u16>, now: Instant) {
        let code = code.and_then(|code| CloseCode::try_from(code).ok()).filter(|code| !code.is_reserved());
        self.feed(Message::close(code, ""));
        if matches!(self.phase, Phase::Open) {
            self.phase = Phase::Ending(now + CLOSE_WITHIN);
        }
    }

    /// The peer ended it; a close frame is queued.
    pub(super) fn ended(&mut self, code: Option<u16>, why: Why, now: Instant) {
        self.tell(code, why);
        self.dirty = true;
        self.phase = Phase::Ending(now + CLOSE_WITHIN);
    }

    /// Nothing more can be done: the transport goes now.
    pub(super) fn over(&mut self, why: Why) {
        self.tell(None, why);
        self.stage = Stage::Gone;
        self.phase = Phase::Over;
        self.stood = None;
    }

    /// The first reason stands.
    pub(super) fn tell(&mut self, code: Option<u16>, why: Why) {
        if !self.told {
            (self.end, self.told) = (Some((code, why)), true);
        }
    }

    /// Flushes up to the close frame. Input is thrown away meanwhile: a peer that is stuck in writing would not read.
    pub(super) fn finish(&mut self, cx: &mut Context<'_>, now: Instant, until: Instant) -> bool {
        let discarding = match &mut self.stage {
            Stage::Awake(stream) => stream.get_mut().poll_discard(cx),
            Stage::Asleep(_) | Stage::Gone => Poll::Pending,
        };
        let flushed = self.flush(cx, now);
        if matches!(self.phase, Phase::Over) {
            return true;
        }
        if flushed || !self.dirty {
            // A peer that closed first ends the stream when it has our answer. Waiting for that spares the answer from
            // a reset, should the peer have sent something behind its close frame.
            let answer = !self.told;
            self.tell(None, Why::Local);
            self.sleep();
            self.phase = Phase::Lingering { until: now + LINGER, left: LINGER_BYTES, shut: false, answer };
            return true;
        }
        if now >= until {
            self.over(Why::WriteStood);
            return true;
        }
        // At the end of input (0 bytes) or after an error only the flush is left, and its own waker.
        matches!(discarding, Poll::Ready(Ok(1..)))
    }

    /// After the close frame: shuts down writing, discards input until the peer has closed as well.
    pub(super) fn linger(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        let Phase::Lingering { until, left, shut, answer } = &mut self.phase else { return false };
        let Stage::Asleep(tap) = &mut self.stage else {
            self.over(Why::Local);
            return true;
        };
        if !*shut {
            match Pin::new(&mut *tap).poll_shutdown(cx) {
                Poll::Ready(Ok(())) => *shut = true,
                Poll::Ready(Err(error)) => {
                    self.over(Why::Lost(error.kind()));
                    return true;
                }
                Poll::Pending => {}
            }
        }
        let got =
            if *shut && *answer && tap.scan.closed() { Poll::Ready(Ok(0)) } else { tap.poll_discard(cx) };
        match got {
            Poll::Pending if now < *until => return false,
            Poll::Ready(Ok(got @ 1..)) if got < *left && now < *until => *left -= got,
            // The end of input, an error, or enough.
            _ => self.over(Why::Local),
        }
        true
    }
}
