//! One connection: what the socket gives becomes inputs of the hub, and the hub's frames go out.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Bytes;
use delivery::{ConnId, Input, Origin};
use protocol::{
    client::{self, ClientFrame},
    problem::Problem,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::Semaphore,
};
use wire::{In, WireConfig};

use crate::{
    config::Config,
    inlet::{Gate, Inlet, Outside},
};

/// What the socket took is told to the hub in steps of so many bytes, not after each frame: far below what the hub lets be
/// under way.
const DRAINED: usize = 32 * 1024;

/// What every connection shares.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) hub: Inlet,
    /// Bytes of media that may be in memory, for the whole process.
    pub(crate) memory: Arc<Semaphore>,
    /// How many those are.
    pub(crate) memory_bytes: usize,
    pub(crate) wire: WireConfig,
}

impl Shared {
    pub(crate) fn new(hub: Inlet, config: &Config) -> Self {
        Self {
            hub,
            memory: Arc::new(Semaphore::new(config.inflight_bytes)),
            memory_bytes: config.inflight_bytes,
            wire: WireConfig {
                limit: protocol::limits::FRAME_BEFORE_READY,
                ping_every: Duration::from_millis(config.ping_interval_ms),
                silence: Duration::from_millis(config.silent_after_ms),
                write_deadline: Duration::from_millis(config.write_timeout_ms),
                bytes_per_second: if config.rate_limits { config.bytes_per_second } else { 0 },
                burst: wire::BURST,
            },
        }
    }
}

/// Tells the hub of a connection, and gives what runs it to its end. `Closed` is the last input that it gives, and always
/// given.
///
/// Two steps, so that the task of a connection holds what the second needs and nothing of the first. `held` is dropped with
/// it.
pub(crate) async fn open<IO, H>(
    io: IO,
    early: Bytes,
    origin: Origin,
    shared: Shared,
    held: H,
) -> impl Future<Output = ()>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let conn = shared.hub.number();
    tracing::debug!(conn, loopback = origin.loopback, "connection opened");
    let (out, outbound) = wire::queue();
    // Should the hub be gone, `out` is dropped with the message, and the socket closes itself with 1001.
    let _ = shared.hub.send(Outside::Connected { conn, origin, out }).await;
    let Shared { hub, memory, memory_bytes, wire } = shared;
    let mut drained = 0;
    wire::server_after(io, &early, wire).run(outbound, move |event| {
        let _ = &held;
        if let In::Drained(bytes) = event {
            drained += bytes;
            if drained < DRAINED {
                return Wait(None);
            }
            let input = Input::Drained { conn, bytes: std::mem::take(&mut drained) };
            return take(Outside::Input { input, gate: None }, &hub);
        }
        // Decoded here, on the connection's own task, while the socket still lends its buffer.
        match message(conn, event) {
            Outside::Input { input, .. } if media_bytes(&input) > 0 => {
                let share = media_bytes(&input).min(memory_bytes);
                Wait(Some(Box::pin(take_media(input, share, hub.clone(), Arc::clone(&memory)))))
            }
            message => take(message, &hub),
        }
    })
}

/// Until the hub has taken an input. Mostly it has at once; only else something is held.
struct Wait(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl Future for Wait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.0 {
            Some(waiting) => waiting.as_mut().poll(cx),
            None => Poll::Ready(()),
        }
    }
}

/// What an event of the socket means.
fn message(conn: ConnId, event: In<'_>) -> Outside {
    let input = match event {
        In::Text(text) => Input::Frame { conn, bytes: text.len(), frame: client::decode(text) },
        In::Binary(data) => {
            let mut problem = Problem::bad("frames are text: one JSON object in each; this one was binary");
            problem.rubbish = true;
            Input::Frame { conn, bytes: data.len(), frame: Err(problem) }
        }
        In::Pong(nonce) => Input::Pong { conn, nonce },
        In::TooLong(_) => Input::TooLong { conn },
        In::Drained(bytes) => Input::Drained { conn, bytes },
        In::Closed { code, why } => {
            tracing::debug!(conn, ?code, ?why, "connection closed");
            return Outside::Closed { conn, code, why };
        }
    };
    Outside::Input { input, gate: None }
}

/// Bytes of a part of a file.
fn media_bytes(input: &Input) -> usize {
    match input {
        Input::Frame { frame: Ok(ClientFrame::Media(part)), .. } => part.data.len(),
        _ => 0,
    }
}

/// Hands a message to the hub.
fn take(message: Outside, hub: &Inlet) -> Wait {
    Wait(hub.try_send(message).map(|message| {
        let hub = hub.clone();
        let waiting: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
            // A failure means that the hub is gone and the process is about to end.
            let _ = hub.send(message).await;
        });
        waiting
    }))
}

/// Hands a part of a file to the hub. While this waits, the socket reads no more: so the part is out of memory before the
/// next frame of its connection is read.
async fn take_media(input: Input, share: usize, hub: Inlet, memory: Arc<Semaphore>) {
    let share = u32::try_from(share).unwrap_or(u32::MAX);
    // Never closed.
    let Ok(permit) = memory.acquire_many_owned(share).await else { return };
    let (gate, open) = Gate::new(permit);
    if hub.send(Outside::Input { input, gate: Some(gate) }).await.is_ok() {
        // Resolves with an error when the gate is dropped, which is what is waited for.
        let _ = open.await;
    }
}
