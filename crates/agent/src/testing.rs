//! A gateway for tests, in virtual time: it keeps the rules of the link as far as an agent can see them, and asserts
//! those that the agent has to keep.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use protocol::{
    Millis,
    link::{
        Answer, CallError, CallResult, CallValue, CardEnd, CardOutcome, DeviceInfo, Event, FromAgent, InFile,
        MediaSource, Outcome, Said, ToAgent, TurnState, What,
    },
    server::{DeliverState, PromptKind},
};

use crate::{Agent, Flow};

type Which = fn(&FromAgent) -> bool;

/// A bubble.
#[derive(Clone, Debug)]
pub(crate) struct Bubble {
    pub(crate) id: String,
    pub(crate) device: String,
    /// Every text it had.
    pub(crate) texts: Vec<String>,
    pub(crate) closed: bool,
}

/// A card.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) id: String,
    pub(crate) frame: FromAgent,
    pub(crate) state: State,
    /// The answer that took effect.
    by: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Open,
    Answered(u64),
    Taken(u64),
    /// What took effect.
    Done(String),
    Closed,
}

struct Kept {
    event: Event,
    acks: usize,
    done: Option<Outcome>,
}

pub(crate) struct Gateway<A> {
    agent: A,
    make: fn() -> A,
    pub(crate) now: Millis,
    next: u64,
    events: BTreeMap<u64, Kept>,
    keys: HashMap<(String, String), CallValue>,
    reqs: HashSet<u64>,
    pub(crate) bubbles: Vec<Bubble>,
    pub(crate) files: Vec<FromAgent>,
    pub(crate) cards: Vec<Shown>,
    /// What the agent said in each `handle` or `tick`.
    pub(crate) batches: Vec<Vec<FromAgent>>,
    pub(crate) answers: Vec<(u64, Answer)>,
    turns: HashMap<String, TurnState>,
    results: VecDeque<CallResult>,
    /// Results wait until it is `false` again.
    pub(crate) hold: bool,
    /// Every batch fails, as with a full disk.
    pub(crate) down: bool,
    /// The next call for which this holds fails so.
    pub(crate) fail: Option<(Which, CallError)>,
    pub(crate) died: bool,
}

pub(crate) fn error(code: &str, retryable: bool) -> CallError {
    CallError { code: code.into(), message: "a test".into(), retryable }
}

impl<A: Agent> Gateway<A> {
    pub(crate) fn new(make: fn() -> A) -> Self {
        Self {
            agent: make(),
            make,
            now: 1_000_000,
            next: 0,
            events: BTreeMap::new(),
            keys: HashMap::new(),
            reqs: HashSet::new(),
            bubbles: Vec::new(),
            files: Vec::new(),
            cards: Vec::new(),
            batches: Vec::new(),
            answers: Vec::new(),
            turns: HashMap::new(),
            results: VecDeque::new(),
            hold: false,
            down: false,
            fail: None,
            died: false,
        }
    }

    // ---- what devices do ----

    pub(crate) fn say(&mut self, device: &str, text: &str) -> u64 {
        self.hear(device, Said::Text { text: text.into() })
    }

    pub(crate) fn hear(&mut self, device: &str, what: Said) -> u64 {
        self.next += 1;
        let event = Event {
            event: self.next,
            device: DeviceInfo { id: device.into(), online: true, ..DeviceInfo::default() },
            user: protocol::link::User { id: device.into(), ..protocol::link::User::default() },
            id: format!("id-{}", self.next),
            what,
            at: self.now,
            redelivered: false,
        };
        self.events.insert(self.next, Kept { event: event.clone(), acks: 0, done: None });
        self.give(ToAgent::Event(Box::new(event)));
        self.next
    }

    pub(crate) fn press(&mut self, at: usize, option: &str, text: Option<&str>) -> u64 {
        self.end(at, CardEnd::Answered, Some(option), text)
    }

    pub(crate) fn expire(&mut self, at: usize) -> u64 {
        self.end(at, CardEnd::Expired, None, None)
    }

    fn end(&mut self, at: usize, outcome: CardEnd, option: Option<&str>, text: Option<&str>) -> u64 {
        let card = &mut self.cards[at];
        let (kind, device) = match &card.frame {
            FromAgent::Prompt { kind, device, .. } => (*kind, device.clone()),
            other => panic!("{other:?}"),
        };
        if outcome == CardEnd::Expired {
            card.state = State::Done("expired".into());
        } else if matches!(card.state, State::Open | State::Answered(_)) {
            card.state = State::Answered(self.next + 1);
        }
        let prompt = outcome_of(&card.id, kind, outcome, option, text);
        self.hear(&device, Said::Prompt { prompt })
    }

    // ---- what the gateway does ----

    /// Hands an event over once more.
    pub(crate) fn again(&mut self, event: u64) {
        let mut copy = self.events[&event].event.clone();
        copy.redelivered = true;
        self.give(ToAgent::Event(Box::new(copy)));
    }

    pub(crate) fn ask(&mut self, req: u64, what: What) {
        self.give(ToAgent::Request { req, what });
    }

    /// The agent starts with an empty memory; what it acked and did not end comes again.
    pub(crate) fn restart(&mut self) {
        self.agent = (self.make)();
        self.died = false;
        self.reqs.clear();
        self.results.clear();
        self.turns.clear();
        let open: Vec<u64> =
            self.events.iter().filter(|(_, k)| k.done.is_none()).map(|(no, _)| *no).collect();
        for no in open {
            self.again(no);
        }
    }

    /// Time passes.
    pub(crate) fn run(&mut self, ms: Millis) {
        let end = self.now + ms;
        while let Some(at) = self.agent.deadline().filter(|at| *at <= end)
            && !self.died
        {
            assert!(at >= self.now || self.died, "a deadline in the past");
            self.now = self.now.max(at);
            let mut out = Vec::new();
            let flow = self.agent.tick(self.now, &mut out);
            self.take(out, flow);
            self.pump();
        }
        self.now = end;
    }

    /// Gives held results.
    pub(crate) fn pump(&mut self) {
        while !self.hold
            && !self.died
            && let Some(result) = self.results.pop_front()
        {
            self.give(ToAgent::Result(result));
        }
    }

    fn give(&mut self, frame: ToAgent) {
        let mut out = Vec::new();
        let flow = self.agent.handle(frame, self.now, &mut out);
        self.take(out, flow);
        self.pump();
    }

    fn take(&mut self, batch: Vec<FromAgent>, flow: Flow) {
        for call in &batch {
            if let Some(result) = self.call(call) {
                assert!(self.reqs.insert(result.req), "call number {} twice", result.req);
                self.results.push_back(result);
            }
        }
        if !batch.is_empty() {
            self.batches.push(batch);
        }
        if flow == Flow::Ended {
            self.died = true;
            self.results.clear();
            self.bubbles.iter_mut().for_each(|b| b.closed = true);
        }
    }

    fn call(&mut self, call: &FromAgent) -> Option<CallResult> {
        let failing = self.fail.as_ref().is_some_and(|(which, _)| which(call));
        let failed = if self.down {
            Some(error("internal", true))
        } else if failing {
            self.fail.take().map(|(_, e)| e)
        } else {
            None
        };
        let req = match call {
            FromAgent::Send { req, .. }
            | FromAgent::Edit { req, .. }
            | FromAgent::Media { req, .. }
            | FromAgent::Prompt { req, .. }
            | FromAgent::PromptClose { req, .. }
            | FromAgent::Take { req, .. } => Some(*req),
            _ => None,
        };
        let done = match failed {
            Some(error) => Err(error),
            None => self.carry_out(call),
        };
        req.map(|req| match done {
            Ok(value) => CallResult { req, ok: true, value, error: None },
            Err(error) => CallResult { req, ok: false, value: None, error: Some(error) },
        })
    }

    fn keyed(&mut self, device: &str, key: &str, prefix: &str) -> (CallValue, bool) {
        let place = (device.to_owned(), key.to_owned());
        if let Some(first) = self.keys.get(&place) {
            return (first.clone(), false);
        }
        let id = format!("{prefix}{}", self.keys.len());
        let value = if prefix == "p" {
            CallValue::Prompt { prompt_id: id }
        } else {
            CallValue::Message { message_id: id, state: DeliverState::Queued }
        };
        self.keys.insert(place, value.clone());
        (value, true)
    }

    fn carry_out(&mut self, call: &FromAgent) -> Result<Option<CallValue>, CallError> {
        match call {
            FromAgent::Send { key, device, text, last, .. } => {
                let (value, new) = self.keyed(device, key, "m");
                let CallValue::Message { message_id: id, .. } = value.clone() else { panic!("{value:?}") };
                if new {
                    let texts = vec![text.clone()];
                    self.bubbles.push(Bubble { id, device: device.clone(), texts, closed: *last });
                } else {
                    let first = &self.bubbles.iter().find(|b| b.id == id).unwrap().texts[0];
                    assert_eq!(first, text, "a key says the same again");
                }
                Ok(Some(value))
            }
            FromAgent::Edit { message_id, text, last, .. } => {
                let Some(bubble) = self.bubbles.iter_mut().find(|b| b.id == *message_id) else {
                    return Err(error("not_found", false));
                };
                assert!(!bubble.closed, "an edit after the last");
                bubble.texts.push(text.clone());
                bubble.closed = *last;
                Ok(Some(CallValue::Message { message_id: message_id.clone(), state: DeliverState::Queued }))
            }
            FromAgent::Media { source: MediaSource::Path(_), .. } => Err(error("refused", false)),
            FromAgent::Media { key, device, .. } => {
                let (value, new) = self.keyed(device, key, "f");
                if new {
                    self.files.push(call.clone());
                }
                Ok(Some(value))
            }
            FromAgent::Prompt { key, device, options, .. } => {
                assert!(!options.is_empty());
                let (value, new) = self.keyed(device, key, "p");
                if let (true, CallValue::Prompt { prompt_id: id }) = (new, value.clone()) {
                    self.cards.push(Shown { id, frame: call.clone(), state: State::Open, by: None });
                }
                Ok(Some(value))
            }
            FromAgent::PromptClose { prompt_id, .. } => {
                if let Some(card) = self.cards.iter_mut().find(|c| c.id == *prompt_id) {
                    card.state = State::Closed;
                }
                Ok(None)
            }
            FromAgent::Take { event, .. } => {
                // Taking again what was taken or applied by the same answer is no harm.
                let mine = |c: &&mut Shown| {
                    c.by == Some(*event)
                        || matches!(c.state, State::Answered(e) | State::Taken(e) if e == *event)
                };
                let card = self.cards.iter_mut().find(mine).ok_or_else(|| error("withdrawn", false))?;
                if card.by.is_none() {
                    card.state = State::Taken(*event);
                }
                Ok(None)
            }
            FromAgent::Applied { event, ok, option_id, .. } => {
                if let Some(card) = self.cards.iter_mut().find(|c| c.state == State::Taken(*event))
                    && *ok
                {
                    card.state = State::Done(option_id.clone());
                    card.by = Some(*event);
                }
                Ok(None)
            }
            FromAgent::Ack { event } => {
                self.events.get_mut(event).unwrap().acks += 1;
                Ok(None)
            }
            FromAgent::Done { event, outcome } => {
                let kept = self.events.get_mut(event).unwrap();
                assert!(kept.acks > 0, "done before ack");
                kept.done = Some(*outcome);
                Ok(None)
            }
            FromAgent::Conversation { device, .. } => {
                for card in &mut self.cards {
                    if matches!(&card.frame, FromAgent::Prompt { device: d, .. } if d == device)
                        && !matches!(card.state, State::Done(_))
                    {
                        card.state = State::Closed;
                    }
                }
                Ok(None)
            }
            FromAgent::Turn { device, state } => {
                let before = self.turns.insert(device.clone(), *state);
                if *state != TurnState::Failed {
                    assert_ne!(before, Some(*state), "twice {state:?}");
                }
                Ok(None)
            }
            FromAgent::Answer { req, answer } => {
                self.answers.push((*req, answer.clone()));
                Ok(None)
            }
            FromAgent::Status { .. } | FromAgent::Device { .. } => Ok(None),
        }
    }

    // ---- what tests look at ----

    /// Last texts of all closed bubbles of a device.
    pub(crate) fn texts(&self, device: &str) -> Vec<String> {
        let of = self.bubbles.iter().filter(|b| b.device == device && b.closed);
        of.map(|b| b.texts.last().unwrap().clone()).collect()
    }

    pub(crate) fn done(&self, event: u64) -> Option<Outcome> {
        self.events[&event].done
    }

    pub(crate) fn acks(&self, event: u64) -> usize {
        self.events[&event].acks
    }

    /// Nothing sticks: every event is done, every bubble closed, no turn on.
    pub(crate) fn assert_quiet(&self) {
        let open: Vec<_> = self.events.values().filter(|k| k.done.is_none()).map(|k| &k.event).collect();
        assert!(open.is_empty(), "not done: {open:?}");
        assert!(self.bubbles.iter().all(|b| b.closed), "open: {:?}", self.bubbles);
        assert!(self.turns.values().all(|t| *t != TurnState::On), "{:?}", self.turns);
    }

    /// The batch in which an event was done.
    pub(crate) fn batch_of_done(&self, event: u64) -> &[FromAgent] {
        let ends = |call: &FromAgent| matches!(call, FromAgent::Done { event: e, .. } if *e == event);
        self.batches.iter().rev().find(|b| b.iter().any(ends)).unwrap()
    }
}

pub(crate) fn outcome_of(
    id: &str,
    kind: PromptKind,
    outcome: CardEnd,
    option: Option<&str>,
    text: Option<&str>,
) -> CardOutcome {
    CardOutcome {
        prompt_id: id.into(),
        kind,
        outcome,
        option_id: option.map(str::to_owned),
        text: text.map(str::to_owned),
    }
}

pub(crate) fn file(kind: &str, filename: &str, mime: &str, caption: Option<&str>) -> InFile {
    InFile {
        kind: kind.into(),
        file: "0001".into(),
        path: None,
        mime: mime.into(),
        filename: filename.into(),
        caption: caption.map(str::to_owned),
        bytes: 3,
        sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".into(),
        duration_ms: None,
    }
}
