//! The writing side: what waits is gathered, then written in one go.

use std::{
    cell::Cell,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::Sink;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::Instant,
};
use tokio_websockets::Message;

use super::{Drive, Phase, Stage, kind};
use crate::{Out, Outbound, Why, direct};

/// Frames are gathered up to so many bytes or frames, then flushed together.
const BATCH_BYTES: usize = 64 * 1024;
const BATCH_FRAMES: usize = 64;

thread_local! {
    /// Where small frames are put together, empty between two uses. One for each thread, not for each connection.
    static FRAMES: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Drive<IO> {
    /// An empty ping, so that its pong is never taken for the answer to a nonce.
    pub(super) fn ping(&mut self, cx: &mut Context<'_>) {
        if self.direct() {
            let mut ping = FRAMES.take();
            direct::put_ping(None, &mut ping);
            self.send(cx, &mut ping);
            FRAMES.set(ping);
        } else {
            self.feed(Message::ping(Bytes::new()));
        }
    }

    /// Feeds what waits and flushes. True if something moved that others should look at.
    pub(super) fn write(&mut self, cx: &mut Context<'_>, outbound: &mut Outbound, now: Instant) -> bool {
        let mut moved = false;
        // Frames that need no library, in one piece.
        let mut frames = FRAMES.take();
        while matches!(self.phase, Phase::Open) && self.fed.0 < BATCH_BYTES && self.fed.1 < BATCH_FRAMES {
            let message = match outbound.poll_recv(cx) {
                Poll::Pending => break,
                Poll::Ready(Some(Out::Text(text)))
                    if self.direct() && direct::put_text(&text, &mut frames) =>
                {
                    self.fed.0 += text.len();
                    self.fed.1 += 1;
                    moved = true;
                    continue;
                }
                Poll::Ready(Some(Out::Ping(nonce))) if self.direct() => {
                    direct::put_ping(Some(nonce), &mut frames);
                    self.fed.1 += 1;
                    moved = true;
                    continue;
                }
                Poll::Ready(Some(Out::Text(text))) => {
                    self.fed.0 += text.len();
                    Message::text(text)
                }
                Poll::Ready(Some(Out::Binary(data))) => {
                    self.fed.0 += data.len();
                    Message::binary(data)
                }
                Poll::Ready(Some(Out::Ping(nonce))) => Message::ping(nonce.to_be_bytes().to_vec()),
                Poll::Ready(Some(Out::Limit(limit))) => {
                    self.config.limit = limit;
                    match &mut self.stage {
                        Stage::Asleep(tap) => tap.scan.set_limit(limit),
                        Stage::Awake(stream) => {
                            stream.limits_mut().set_max_payload_len(Some(limit));
                            stream.get_mut().scan.set_limit(limit);
                        }
                        Stage::Gone => {}
                    }
                    continue;
                }
                Poll::Ready(Some(Out::Close(code))) => {
                    self.send(cx, &mut frames);
                    self.close(Some(code), now);
                    break;
                }
                Poll::Ready(None) => {
                    self.send(cx, &mut frames);
                    self.close(Some(1001), now);
                    break;
                }
            };
            self.send(cx, &mut frames);
            self.feed(message);
            self.fed.1 += 1;
            moved = true;
        }
        self.send(cx, &mut frames);
        FRAMES.set(frames);
        if matches!(self.phase, Phase::Open) { moved | self.flush(cx, now) } else { true }
    }

    /// Whether a small frame may be written without the library: a server masks nothing, and nothing of the library's is
    /// on its way.
    pub(super) fn direct(&self) -> bool {
        self.server && matches!(self.stage, Stage::Asleep(_))
    }

    /// Writes frames without the library. Called before the library gets anything: their order stays.
    pub(super) fn send(&mut self, cx: &mut Context<'_>, frames: &mut Vec<u8>) {
        if frames.is_empty() {
            return;
        }
        if let Stage::Asleep(tap) = &mut self.stage {
            match tap.send(cx, frames) {
                // The flush says whether all of it is out.
                Ok(()) => self.dirty = true,
                Err(error) => self.over(Why::Lost(error.kind())),
            }
        }
        frames.clear();
    }

    /// Gives a message to the library.
    pub(super) fn feed(&mut self, message: Message) {
        let Some(stream) = self.wake() else { return };
        // Refused only when a close frame is queued already; then that is what has to be flushed.
        let _ = Pin::new(stream).start_send(message);
        self.dirty = true;
    }

    /// Writes what the library holds. True if all of it is out.
    pub(super) fn flush(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        if !self.dirty {
            return false;
        }
        let (flushed, written) = match &mut self.stage {
            Stage::Awake(stream) => {
                let flushed = Pin::new(&mut **stream).poll_flush(cx).map_err(|error| kind(&error));
                (flushed, stream.get_ref().written)
            }
            Stage::Asleep(tap) => (tap.poll_unsent(cx).map_err(|error| error.kind()), tap.written),
            Stage::Gone => return false,
        };
        match flushed {
            Poll::Ready(Ok(())) => {
                self.drained += std::mem::take(&mut self.fed).0;
                (self.dirty, self.pongs, self.stood) = (false, 0, None);
                true
            }
            Poll::Ready(Err(kind)) => {
                self.over(Why::Lost(kind));
                true
            }
            Poll::Pending => {
                if self.stood.is_none() || written != self.written {
                    (self.stood, self.written) = (Some(now), written);
                } else if self.stood.is_some_and(|since| now >= since + self.config.write_deadline) {
                    self.over(Why::WriteStood);
                    return true;
                }
                false
            }
        }
    }
}
