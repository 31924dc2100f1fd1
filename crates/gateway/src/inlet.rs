//! The ways into the hub.
//!
//! There are two, so that nothing can wait in a circle. What comes from outside (connections, agents) passes a bounded
//! channel: when the hub or the disk is behind, senders wait and read no more from their sockets. What the hub itself
//! asked for (store, media) comes back over an unbounded one, whose length is bounded by what was asked. The hub never
//! waits for any of them.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::metrics::Snapshot;
use delivery::{AgentId, Attach, ConnId, Input, Origin};
use protocol::link::ToAgent;
use tokio::{
    sync::{
        OwnedSemaphorePermit,
        mpsc::{self, error::TrySendError},
        oneshot,
    },
    time::Instant,
};

/// Inputs that may wait for the hub.
const WAITING: usize = 1024;

/// From outside.
pub(crate) enum Outside {
    /// A connection is open.
    Connected {
        /// Its number.
        conn: ConnId,
        /// Where from.
        origin: Origin,
        /// Where its frames go.
        out: wire::Sender,
    },
    /// An agent is there.
    Attached {
        /// Its number.
        agent: AgentId,
        /// Who.
        attach: Attach,
        /// Where its frames go.
        frames: mpsc::UnboundedSender<ToAgent>,
    },
    /// A connection is over: the last of it.
    Closed {
        /// Its number.
        conn: ConnId,
        /// The client's close code, if it sent one.
        code: Option<u16>,
        /// Why.
        why: wire::Why,
    },
    /// Anything else.
    Input {
        /// It.
        input: Input,
        /// Dropped when the bytes of a large frame are out of memory.
        gate: Option<Gate>,
    },
}

/// From what the hub started itself, and questions to it.
#[derive(Debug)]
pub(crate) enum Inside {
    /// An answer.
    Input(Input),
    /// A step of a trim is done.
    Trimmed {
        /// It removed something, so there may be more.
        more: bool,
    },
    /// Somebody wants to know how things are.
    Look(oneshot::Sender<Snapshot>),
    /// Somebody wants to know whether the hub and the store answer.
    Probe(oneshot::Sender<()>),
    /// Stop: close every connection, at the latest by then.
    Drain(Instant),
}

/// Memory that a large frame holds. When it is dropped, the connection reads on.
#[derive(Debug)]
pub(crate) struct Gate {
    _permit: OwnedSemaphorePermit,
    _done: oneshot::Sender<()>,
}

impl Gate {
    /// A gate, and what resolves when it is dropped.
    pub(crate) fn new(permit: OwnedSemaphorePermit) -> (Self, oneshot::Receiver<()>) {
        let (done, wait) = oneshot::channel();
        (Self { _permit: permit, _done: done }, wait)
    }
}

/// The hub is gone: the gateway ends.
#[derive(Debug)]
pub(crate) struct HubGone;

/// Sends to the hub from outside.
#[derive(Clone)]
pub(crate) struct Inlet {
    outside: mpsc::Sender<Outside>,
    numbers: Arc<AtomicU64>,
}

impl Inlet {
    /// The inlet and the hub's ends: outside, inside and its sender.
    pub(crate) fn new()
    -> (Self, mpsc::Receiver<Outside>, mpsc::UnboundedSender<Inside>, mpsc::UnboundedReceiver<Inside>) {
        let (outside, hub_outside) = mpsc::channel(WAITING);
        let (inside, hub_inside) = mpsc::unbounded_channel();
        (Self { outside, numbers: Arc::new(AtomicU64::new(1)) }, hub_outside, inside, hub_inside)
    }

    /// A number for a connection or an agent, never given twice.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends; waits while the hub is behind.
    pub(crate) async fn send(&self, message: Outside) -> Result<(), HubGone> {
        self.outside.send(message).await.map_err(|_| HubGone)
    }

    /// Sends if the hub is not behind; else gives the message back, and [`Self::send`] waits. A hub that is gone takes
    /// everything: the process is about to end.
    pub(crate) fn try_send(&self, message: Outside) -> Option<Outside> {
        match self.outside.try_send(message) {
            Err(TrySendError::Full(message)) => Some(message),
            Ok(()) | Err(TrySendError::Closed(_)) => None,
        }
    }

    /// Sends an input.
    pub(crate) async fn input(&self, input: Input) -> Result<(), HubGone> {
        self.send(Outside::Input { input, gate: None }).await
    }
}
