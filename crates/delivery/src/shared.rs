//! What all devices share: settings, numbers, ids, the batch of the present input, the agent.

use std::collections::HashMap;

use protocol::{
    Millis,
    id::{CardIds, IdMaker},
    link::{CallError, CallResult, CallValue, ToAgent},
    record::{Body, DeviceNo, Mark, Op, Pos, Row, hash64, hash128},
    series::SpoolNo,
    server::ServerFrame,
};
use session::Map;

use crate::{
    io::{Action, AgentId, Attach, ConnId, Settings},
    survey::Counts,
};

/// The agent that is attached.
#[derive(Debug)]
pub(crate) struct AgentNow {
    pub(crate) id: AgentId,
    pub(crate) attach: Attach,
    /// When a byte last came from it.
    pub(crate) alive: Millis,
    /// Its silence has been acted on.
    pub(crate) stalled: bool,
}

/// A question to the agent about a card.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) device: DeviceNo,
    pub(crate) prompt_id: String,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) random: IdMaker,
    pub(crate) card_ids: CardIds,
    pub(crate) agent: Option<AgentNow>,
    /// Since when no agent is attached.
    pub(crate) away_since: Millis,
    /// Number of the present outage; each gets one notice a device.
    pub(crate) outage: u64,
    /// Which device an event belongs to.
    pub(crate) events: Map<Pos, DeviceNo>,
    pub(crate) asked: HashMap<u64, Asked>,
    /// Reports of deliveries for connections that may be gone by now.
    pub(crate) replies: Vec<(ConnId, ServerFrame)>,
    pub(crate) spool_bytes: u64,
    pub(crate) counts: Counts,
    next_pos: Pos,
    next_number: u64,
    /// Number that the batch of this input will have.
    pub(crate) batch_no: u64,
    pub(crate) ops: Vec<Op>,
    /// Something waits for this batch.
    pub(crate) urgent: bool,
}

impl Shared {
    pub(crate) fn new(settings: Settings, now: Millis) -> Self {
        Self {
            random: IdMaker::new(settings.seed),
            card_ids: CardIds::new(settings.secret),
            agent: None,
            away_since: now,
            outage: 1,
            events: Map::default(),
            asked: HashMap::new(),
            replies: Vec::new(),
            spool_bytes: 0,
            counts: Counts::default(),
            next_pos: settings.next_pos.max(1),
            next_number: 1,
            batch_no: 1,
            ops: Vec::new(),
            urgent: false,
            settings,
        }
    }

    pub(crate) fn pos(&mut self) -> Pos {
        let pos = self.next_pos;
        self.next_pos += 1;
        pos
    }

    /// The event number of an answer to a card. An answer is not stored before it is taken, so a position would be used
    /// again after a crash, and an agent that lives on would take the next text for a repeat of it. These numbers lie above all
    /// positions and are never used twice; they fit a double's 53 bits.
    pub(crate) fn offer(&mut self) -> Pos {
        let number = self.number().to_le_bytes();
        let random = hash64(&[b"offer", &self.settings.seed, &number]);
        (1 << 52) | (random & ((1 << 52) - 1))
    }

    /// A number for a ticket, a nonce, a spool or a request.
    pub(crate) fn number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    pub(crate) fn spool(&mut self) -> SpoolNo {
        self.number()
    }

    /// The id of the message that a call with this key makes: the same for a repeated call, in this process or a later
    /// one, and not to be guessed without the store's secret.
    pub(crate) fn message_id(&self, device: DeviceNo, key: &str) -> String {
        let hash = hash128(&[&self.settings.secret, &device.to_le_bytes(), key.as_bytes()]);
        format!("m{hash:032x}")
    }
}

/// What a method of a device works with.
pub(crate) struct Ctx<'a> {
    pub(crate) now: Millis,
    pub(crate) shared: &'a mut Shared,
    pub(crate) out: &'a mut Vec<Action>,
}

impl Ctx<'_> {
    /// Appends a record to the batch of this input.
    pub(crate) fn append(&mut self, device: DeviceNo, body: &Body, mark: Option<&Mark>) -> Pos {
        let pos = self.shared.pos();
        self.append_at(pos, device, body, mark);
        pos
    }

    pub(crate) fn append_at(&mut self, pos: Pos, device: DeviceNo, body: &Body, mark: Option<&Mark>) {
        self.shared.urgent = true;
        self.shared.ops.push(Op::Append(Row {
            pos,
            device,
            at: self.now,
            mark: mark.map(Mark::encode).unwrap_or_default(),
            body: body.encode(),
        }));
    }

    pub(crate) fn tell_agent(&mut self, agent: AgentId, frame: ToAgent) {
        // Results for an agent that is gone have nobody to read them.
        if self.shared.agent.as_ref().is_some_and(|now| now.id == agent) {
            self.out.push(Action::ToAgent { agent, frame });
        }
    }

    pub(crate) fn result(&mut self, agent: AgentId, req: u64, value: Result<Option<CallValue>, CallError>) {
        self.tell_agent(agent, ToAgent::Result(call_result(req, value)));
    }

    pub(crate) fn warn(&mut self, text: impl Into<String>) {
        self.out.push(Action::Log { warn: true, text: text.into() });
    }
}

pub(crate) fn call_result(req: u64, value: Result<Option<CallValue>, CallError>) -> CallResult {
    match value {
        Ok(value) => CallResult { req, ok: true, value, error: None },
        Err(error) => CallResult { req, ok: false, value: None, error: Some(error) },
    }
}

pub(crate) fn call_error(code: &str, message: impl Into<String>, retryable: bool) -> CallError {
    CallError { code: code.to_owned(), message: message.into(), retryable }
}

/// What an agent gets that wants to take an answer which does not stand any more.
pub(crate) fn withdrawn() -> CallError {
    call_error("withdrawn", "the answer was withdrawn; do nothing", false)
}
