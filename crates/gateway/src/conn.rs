//! One connection: what the socket gives becomes inputs of the hub, and the hub's frames go out.

use std::{sync::Arc, time::Duration};

use delivery::{ConnId, Input, Origin};
use protocol::{
    client::{self, ClientFrame},
    problem::Problem,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{Semaphore, mpsc},
};
use wire::{In, WireConfig};

use crate::{
    config::Config,
    inlet::{Gate, Inlet, Outside},
};

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

/// Runs a connection to its end. `Closed` is the last input that it gives, and always given.
pub(crate) async fn run<IO: AsyncRead + AsyncWrite + Unpin>(io: IO, origin: Origin, shared: Shared) {
    let conn = shared.hub.number();
    tracing::debug!(conn, loopback = origin.loopback, "connection opened");
    let (out, outbound) = mpsc::unbounded_channel();
    // Should the hub be gone, `out` is dropped with the message, and the socket closes itself with 1001.
    let _ = shared.hub.send(Outside::Connected { conn, origin, out }).await;
    wire::server(io, shared.wire.clone())
        .run(outbound, |event| {
            // Decoded here, on the connection's own task, while the socket still lends its buffer.
            take(message(conn, event), shared.clone())
        })
        .await;
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

/// Hands a message to the hub. While this waits, the socket reads no more: so a part of a file is out of memory before
/// the next frame of its connection is read.
async fn take(message: Outside, shared: Shared) {
    let (input, media) = match message {
        Outside::Input { input, .. } => {
            let media = match &input {
                Input::Frame { frame: Ok(ClientFrame::Media(part)), .. } => part.data.len(),
                _ => 0,
            };
            (input, media)
        }
        other => {
            // A failure means that the hub is gone and the process is about to end; also below.
            let _ = shared.hub.send(other).await;
            return;
        }
    };
    if media == 0 {
        let _ = shared.hub.input(input).await;
        return;
    }
    let share = u32::try_from(media.min(shared.memory_bytes)).unwrap_or(u32::MAX);
    // Never closed.
    let Ok(permit) = shared.memory.acquire_many_owned(share).await else { return };
    let (gate, open) = Gate::new(permit);
    if shared.hub.send(Outside::Input { input, gate: Some(gate) }).await.is_ok() {
        // Resolves with an error when the gate is dropped, which is what is waited for.
        let _ = open.await;
    }
}
