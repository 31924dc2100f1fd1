//! What happens in the world, and what connections are.

use std::collections::BTreeMap;

use delivery::{AgentId, ConnId, Input};
use protocol::{
    Millis,
    link::{FromAgent, ToAgent},
    server::{AvatarState, ServerFrame},
};

/// What goes to a client.
pub(crate) enum Down {
    Frame(Box<ServerFrame>),
    Ping(u64),
    Close(u16),
}

/// What happens next.
pub(crate) enum Ev {
    /// Something reaches the hub of this life of the gateway.
    Gate {
        gen_no: u32,
        input: Input,
    },
    Up {
        conn: ConnId,
        text: String,
    },
    Pong {
        conn: ConnId,
        nonce: u64,
    },
    Down {
        conn: ConnId,
        what: Down,
    },
    /// The client notices that its connection is gone.
    ClientLost {
        conn: ConnId,
    },
    /// The gateway does.
    ServerLost {
        conn: ConnId,
        code: Option<u16>,
    },
    Connect {
        device: usize,
    },
    Say {
        device: usize,
    },
    Repeat {
        device: usize,
        said: usize,
    },
    Press {
        device: usize,
        card: String,
        again: bool,
    },
    Deliver {
        delivery: usize,
    },
    CutFault {
        device: usize,
    },
    Crash,
    Restart,
    Full,
    DiskLook,
    CommitEnd {
        gen_no: u32,
    },
    AgentFault,
    AgentStart {
        same_instance: bool,
    },
    AgentLink {
        life: u64,
    },
    ToAgent {
        link: AgentId,
        frame: Box<ToAgent>,
    },
    FromAgent {
        link: AgentId,
        calls: Vec<FromAgent>,
    },
    AgentGone {
        link: AgentId,
        ended: bool,
    },
    AgentTick {
        life: u64,
    },
    AgentAlive {
        link: AgentId,
    },
    /// Since this loss of the agent nothing may show that it works.
    NothingSticks {
        loss: u64,
    },
    /// The agent may have been silent for so long that nothing may show that it works.
    Silent {
        life: u64,
    },
    /// The trouble ends.
    Mend,
}

/// A connection.
pub(crate) struct Conn {
    /// Device, or delivery beyond them.
    pub(crate) who: usize,
    /// The gateway has it.
    pub(crate) server: bool,
    /// The client has it.
    pub(crate) client: bool,
    /// Nothing passes any more.
    pub(crate) cut: bool,
    /// The gateway is closing it.
    pub(crate) closing: bool,
    pub(crate) ready_at: Option<Millis>,
    pub(crate) unsent: usize,
    /// When the socket has taken what was handed over.
    pub(crate) free_at: Millis,
    pub(crate) last_down: Millis,
    pub(crate) last_up: Millis,
    pub(crate) last_seq: u64,
    pub(crate) avatar: AvatarState,
    pub(crate) typing: bool,
    /// Bytes for each millisecond.
    pub(crate) rate: u64,
    /// Text bytes of each message.
    pub(crate) text_bytes: BTreeMap<String, usize>,
}
