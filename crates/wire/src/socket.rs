//! One connection: frames both ways, limits, signs of life, the end.
//!
//! Reading and writing go on beside each other in one task. Between two messages, with nothing to write, the library's
//! stream does not exist and no buffer is held ([`Stage::Asleep`]).

mod end;
mod write;

use std::{
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures_util::Stream;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, Sleep, sleep_until},
};
use tokio_websockets::{
    ClientBuilder, CloseCode, Config, Error, Limits, Message, ServerBuilder, WebSocketStream,
    proto::ProtocolError,
};

use crate::{
    In, Outbound, Why, WireConfig,
    bucket::Bucket,
    direct,
    scan::Scan,
    tap::{Came, Tap},
};

/// A peer that sends pings and takes no pongs is not read beyond so many.
const PONGS: usize = 128;
/// An announced message that is too long must be answered with a close within this.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// A connection after its handshake.
#[derive(Debug)]
pub struct Socket<IO> {
    tap: Tap<IO>,
    server: bool,
    config: WireConfig,
}

/// The server's end of an upgraded connection (`serve` and the conformance echo use this alone). `io` gives the first
/// byte after the HTTP request.
pub fn server<IO: AsyncRead + AsyncWrite + Unpin>(io: IO, config: WireConfig) -> Socket<IO> {
    server_after(io, &[], config)
}

/// As [`server`], where `early` was read from the connection together with the HTTP request.
pub fn server_after<IO: AsyncRead + AsyncWrite + Unpin>(
    io: IO,
    early: &[u8],
    config: WireConfig,
) -> Socket<IO> {
    // A copy: even an empty piece would keep the whole buffer of the HTTP head in memory for the connection's life.
    Socket::new(io, true, config, Bytes::copy_from_slice(early))
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Socket<IO> {
    /// `early`: bytes of the stream that were read together with the handshake.
    pub(crate) fn new(io: IO, server: bool, config: WireConfig, early: Bytes) -> Self {
        let scan = Scan::new(server, config.limit);
        Self { tap: Tap::new(io, scan, early, config.bytes_per_second > 0), server, config }
    }

    /// Runs the connection to its end and drops the transport.
    ///
    /// `inbound` is called for one event at a time; while the future it gave is pending nothing more is read, while
    /// writing, pings and deadlines go on. That is the back-pressure: a full queue behind `inbound` slows this peer
    /// only. [`In::Closed`] is always the last event; the future of each event must end some time.
    ///
    /// Cancel safe in the sense that dropping the future drops the connection without a close frame.
    pub fn run<F, Fut>(self, mut outbound: Outbound, mut inbound: F) -> impl Future<Output = ()>
    where
        F: FnMut(In<'_>) -> Fut,
        Fut: Future<Output = ()>,
    {
        let now = Instant::now();
        let mut drive = Drive::new(self, now);
        // There is one of these futures for each connection. All that it needs is made before it and captured once; an
        // `async fn` would hold its arguments beside what is made of them.
        async move {
            let mut slot = pin!(None::<Fut>);
            let mut timer = pin!(sleep_until(drive.next(now)));
            poll_fn(|cx| drive.poll(cx, &mut outbound, &mut inbound, slot.as_mut(), timer.as_mut())).await;
        }
    }
}

/// What came.
enum Next {
    /// A small whole frame that the library has not seen: its first byte, its payload.
    Frame(u8, Vec<u8>),
    /// A message of the library's, or the end of the stream.
    Message(Option<Result<Message, Error>>),
}

/// The transport with or without the library around it.
enum Stage<IO> {
    /// No message is under way in either direction.
    Asleep(Tap<IO>),
    Awake(Box<WebSocketStream<Tap<IO>>>),
    Gone,
}

/// How far the connection is.
enum Phase {
    Open,
    /// A close frame is queued: flush until then.
    Ending(Instant),
    /// It is out: discard input.
    Lingering {
        until: Instant,
        left: usize,
        shut: bool,
        /// Our close frame was the first: the peer's answer ends it.
        answer: bool,
    },
    /// Only the last events are to be told.
    Over,
}

/// State of [`Socket::run`].
struct Drive<IO> {
    stage: Stage<IO>,
    phase: Phase,
    server: bool,
    config: WireConfig,
    bucket: Option<Bucket>,
    /// The last event, until it is told.
    end: Option<(Option<u16>, Why)>,
    told: bool,
    /// Fed since the last complete flush: payload bytes, frames.
    fed: (usize, usize),
    /// Something waits for a flush.
    dirty: bool,
    /// Pongs among it.
    pongs: usize,
    /// Payload bytes that the socket took and `inbound` was not told.
    drained: usize,
    /// Since when a flush stands.
    stood: Option<Instant>,
    /// Bytes written and read when last looked at.
    written: u64,
    taken: u64,
    /// When a byte came last, or reading was taken up again.
    heard: Instant,
    /// Whether the last round read.
    reading: bool,
    ping_at: Instant,
    /// A message is too long: told, and to be answered until then.
    answer: Option<Instant>,
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Drive<IO> {
    fn new(socket: Socket<IO>, now: Instant) -> Self {
        let Socket { tap, server, config } = socket;
        Self {
            bucket: Bucket::new(config.bytes_per_second, config.burst, now),
            ping_at: now + config.ping_every,
            stage: Stage::Asleep(tap),
            phase: Phase::Open,
            server,
            config,
            end: None,
            told: false,
            fed: (0, 0),
            dirty: false,
            pongs: 0,
            drained: 0,
            stood: None,
            written: 0,
            taken: 0,
            heard: now,
            reading: true,
            answer: None,
        }
    }

    /// Rounds until nothing moves.
    fn poll<F, Fut>(
        &mut self,
        cx: &mut Context<'_>,
        outbound: &mut Outbound,
        inbound: &mut F,
        mut slot: Pin<&mut Option<Fut>>,
        mut timer: Pin<&mut Sleep>,
    ) -> Poll<()>
    where
        F: FnMut(In<'_>) -> Fut,
        Fut: Future<Output = ()>,
    {
        loop {
            let now = Instant::now();
            let mut again = false;
            if let Some(running) = slot.as_mut().as_pin_mut()
                && running.poll(cx).is_ready()
            {
                slot.set(None);
                again = true;
            }
            match self.phase {
                Phase::Open => {
                    self.clocks(cx, now);
                    again |= self.write(cx, outbound, now);
                    again |= self.read(cx, inbound, slot.as_mut(), now);
                }
                Phase::Ending(until) => again |= self.finish(cx, now, until),
                Phase::Lingering { .. } => again |= self.linger(cx, now),
                Phase::Over => {}
            }
            if slot.is_none() {
                if self.drained > 0 {
                    slot.set(Some(inbound(In::Drained(std::mem::take(&mut self.drained)))));
                    again = true;
                } else if let Some((code, why)) = self.end.take() {
                    slot.set(Some(inbound(In::Closed { code, why })));
                    again = true;
                } else if matches!(self.phase, Phase::Over) {
                    return Poll::Ready(());
                }
            }
            if again {
                continue;
            }
            // Deadlines mostly move away (each byte moves one): the timer is only brought forward, and looks again
            // when it fires.
            let next = self.next(now);
            if timer.is_elapsed() || next < timer.deadline() {
                timer.as_mut().reset(next);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// The nearest deadline.
    fn next(&self, now: Instant) -> Instant {
        let mut next = now + Duration::from_secs(3600);
        let mut sooner = |at: Option<Instant>| next = at.map_or(next, |at| next.min(at));
        match self.phase {
            Phase::Open => {
                sooner((!self.config.ping_every.is_zero()).then_some(self.ping_at));
                sooner(
                    (self.reading && !self.config.silence.is_zero())
                        .then(|| self.heard + self.config.silence),
                );
                sooner(self.bucket.as_ref().and_then(|bucket| bucket.wait(now)));
                sooner(self.answer);
            }
            Phase::Ending(until) | Phase::Lingering { until, .. } => sooner(Some(until)),
            Phase::Over => {}
        }
        sooner(self.stood.map(|since| since + self.config.write_deadline));
        next
    }

    /// What is due while the connection is open.
    fn clocks(&mut self, cx: &mut Context<'_>, now: Instant) {
        if self.answer.is_some_and(|until| now >= until) {
            self.answer = None;
            self.close(Some(1009), now);
            return;
        }
        if self.reading && !self.config.silence.is_zero() && now >= self.heard + self.config.silence {
            // A last word for a peer that reads and never answers. Nobody waits for it to arrive.
            self.feed(Message::close(CloseCode::try_from(1001).ok(), ""));
            let _ = self.flush(&mut Context::from_waker(std::task::Waker::noop()), now);
            self.over(Why::Silent);
            return;
        }
        if !self.config.ping_every.is_zero() && now >= self.ping_at {
            self.ping_at = now + self.config.ping_every;
            // Empty, so that its pong is never taken for the answer to a nonce. Behind frames that stand it would say
            // nothing new.
            if !self.dirty {
                self.ping(cx);
            }
        }
    }

    /// Reads up to one event. True if something moved.
    fn read<F, Fut>(
        &mut self,
        cx: &mut Context<'_>,
        inbound: &mut F,
        mut slot: Pin<&mut Option<Fut>>,
        now: Instant,
    ) -> bool
    where
        F: FnMut(In<'_>) -> Fut,
    {
        let may = matches!(self.phase, Phase::Open)
            && slot.is_none()
            && self.answer.is_none()
            && !(self.dirty && self.pongs >= PONGS)
            && self.bucket.as_ref().is_none_or(|bucket| bucket.wait(now).is_none());
        if may && !self.reading {
            // While we did not look, silence was ours.
            self.heard = now;
        }
        self.reading = may;
        if !may {
            return false;
        }
        let event = self.poll_message(cx);
        self.count(now);
        match event {
            Poll::Ready(Next::Frame(direct::TEXT, payload)) => {
                self.text(&payload, inbound, slot, now);
                true
            }
            Poll::Ready(Next::Frame(_, payload)) => {
                pong(&payload, inbound, slot);
                true
            }
            Poll::Ready(Next::Message(event)) => {
                self.take(event, inbound, slot, now);
                true
            }
            Poll::Pending => {
                let dirty = self.dirty;
                let Stage::Awake(stream) = &mut self.stage else { return false };
                let tap = stream.get_mut();
                let halted = tap.halted();
                if let Some(length) = tap.scan.too_long() {
                    self.answer = Some(now + ANSWER_WITHIN);
                    slot.set(Some(inbound(In::TooLong(length))));
                    return true;
                }
                tap.resume();
                if tap.scan.at_border() && !dirty {
                    self.sleep();
                }
                halted
            }
        }
    }

    /// The next message, or the end of the stream.
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        // A client's frames are not looked for: those of a server have no mask.
        let limit = self.server.then_some(self.config.limit);
        if let Stage::Asleep(tap) = &mut self.stage {
            match ready!(tap.poll_some(cx, limit)) {
                Ok(Came::Frame(first, payload)) => return Poll::Ready(Next::Frame(first, payload)),
                Ok(Came::Bytes) => {}
                Ok(Came::End) => return Poll::Ready(Next::Message(None)),
                Err(error) => return Poll::Ready(Next::Message(Some(Err(Error::Io(error))))),
            }
        }
        match self.wake() {
            Some(stream) => Pin::new(stream).poll_next(cx).map(Next::Message),
            None => Poll::Ready(Next::Message(None)),
        }
    }

    /// A text message.
    fn text<F, Fut>(&mut self, payload: &[u8], inbound: &mut F, mut slot: Pin<&mut Option<Fut>>, now: Instant)
    where
        F: FnMut(In<'_>) -> Fut,
    {
        // Not the library's `as_text`: it believes a text that ends in an empty fragment without looking at a character
        // that was cut before it.
        match std::str::from_utf8(payload) {
            Ok(text) => slot.set(Some(inbound(In::Text(text)))),
            Err(_) => {
                self.close(Some(1007), now);
                self.ended(None, Why::Fault(1007), now);
            }
        }
    }

    /// Bytes that came since last time.
    fn count(&mut self, now: Instant) {
        let taken = match &self.stage {
            Stage::Asleep(tap) => tap.taken,
            Stage::Awake(stream) => stream.get_ref().taken,
            Stage::Gone => self.taken,
        };
        let fresh = taken.saturating_sub(self.taken);
        if fresh > 0 {
            (self.taken, self.heard) = (taken, now);
            if let Some(bucket) = &mut self.bucket {
                bucket.took(fresh, now);
            }
        }
    }

    /// Acts on what [`Self::poll_message`] gave.
    fn take<F, Fut>(
        &mut self,
        event: Option<Result<Message, Error>>,
        inbound: &mut F,
        mut slot: Pin<&mut Option<Fut>>,
        now: Instant,
    ) where
        F: FnMut(In<'_>) -> Fut,
    {
        let message = match event {
            None => return self.over(Why::Eof),
            Some(Err(Error::Protocol(fault))) => {
                let code = if matches!(fault, ProtocolError::InvalidUtf8) { 1007 } else { 1002 };
                return self.ended(None, Why::Fault(code), now);
            }
            // The tap stops such a frame before the library sees it.
            Some(Err(Error::PayloadTooLong { .. })) => return self.ended(None, Why::Fault(1009), now),
            Some(Err(error)) => return self.over(Why::Lost(kind(&error))),
            Some(Ok(message)) => message,
        };
        let payload: &[u8] = message.as_payload();
        if message.is_text() {
            self.text(payload, inbound, slot, now);
        } else if message.is_binary() {
            slot.set(Some(inbound(In::Binary(payload))));
        } else if message.is_ping() {
            // The library has queued the pong.
            self.dirty = true;
            self.pongs += 1;
        } else if message.is_pong() {
            pong(payload, inbound, slot);
        } else if message.is_close() {
            let code = payload.first_chunk::<2>().map(|code| u16::from_be_bytes(*code));
            self.ended(code, Why::Peer, now);
        }
    }

    /// The library around the transport.
    fn wake(&mut self) -> Option<&mut WebSocketStream<Tap<IO>>> {
        if let Stage::Asleep(_) = self.stage
            && let Stage::Asleep(tap) = std::mem::replace(&mut self.stage, Stage::Gone)
        {
            // We decide when to flush, and a message is one frame.
            let config = Config::default().flush_threshold(usize::MAX).frame_size(usize::MAX);
            let limits = Limits::default().max_payload_len(Some(self.config.limit));
            self.stage = Stage::Awake(Box::new(if self.server {
                ServerBuilder::new().config(config).limits(limits).serve(tap)
            } else {
                ClientBuilder::new().config(config).limits(limits).take_over(tap)
            }));
        }
        match &mut self.stage {
            Stage::Awake(stream) => Some(stream),
            Stage::Asleep(_) | Stage::Gone => None,
        }
    }

    /// Gives the library's buffers back. Only between messages, or at the end.
    fn sleep(&mut self) {
        if let Stage::Awake(_) = self.stage
            && let Stage::Awake(stream) = std::mem::replace(&mut self.stage, Stage::Gone)
        {
            self.stage = Stage::Asleep(stream.into_inner());
        }
    }
}

/// A pong with a nonce of ours, or another sign of life.
fn pong<F, Fut>(payload: &[u8], inbound: &mut F, mut slot: Pin<&mut Option<Fut>>)
where
    F: FnMut(In<'_>) -> Fut,
{
    if let Ok(nonce) = <[u8; 8]>::try_from(payload) {
        slot.set(Some(inbound(In::Pong(u64::from_be_bytes(nonce)))));
    }
}

/// For the log.
fn kind(error: &Error) -> io::ErrorKind {
    match error {
        Error::Io(error) => error.kind(),
        _ => io::ErrorKind::Other,
    }
}
