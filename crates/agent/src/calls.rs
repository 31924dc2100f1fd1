//! Calls whose result has not come, and those that are to be repeated.

use std::collections::{BTreeMap, HashMap};

use protocol::{
    Millis,
    link::{CallError, CallResult, CallValue, FromAgent, Outcome},
};

/// A call that may succeed later is repeated after this.
pub(crate) const AGAIN_MS: u64 = 500;
/// So many times at most.
pub(crate) const AGAIN_MOST: u32 = 20;

/// What came of a call.
pub(crate) type Returned = Result<Option<CallValue>, CallError>;

/// A call under way.
#[derive(Debug)]
pub(crate) struct Call<T> {
    /// What it was for.
    pub(crate) tag: T,
    /// What to say again; all of it, because it shared one commit. Empty where the caller makes it anew (files).
    pub(crate) frames: Vec<FromAgent>,
    tries: u32,
}

/// Book-keeping of calls; `T` says what a call was for.
#[derive(Debug)]
pub(crate) struct Calls<T> {
    last_req: u64,
    open: HashMap<u64, Call<T>>,
    again: BTreeMap<(Millis, u64), Call<T>>,
}

impl<T> Default for Calls<T> {
    fn default() -> Self {
        Self { last_req: 0, open: HashMap::new(), again: BTreeMap::new() }
    }
}

impl<T> Calls<T> {
    /// A fresh call number.
    pub(crate) fn req(&mut self) -> u64 {
        self.last_req += 1;
        self.last_req
    }

    /// Says `frames` and remembers them until the result of the last call among them has come. The numbers are
    /// filled in here.
    pub(crate) fn send(&mut self, tag: T, frames: Vec<FromAgent>, out: &mut Vec<FromAgent>) {
        self.put(Call { tag, frames, tries: 0 }, out);
    }

    /// Remembers a call that the caller says by itself, under `req`; `tries` as from [`Self::due`].
    pub(crate) fn track(&mut self, tag: T, req: u64, tries: u32) {
        self.open.insert(req, Call { tag, frames: Vec::new(), tries });
    }

    fn put(&mut self, mut call: Call<T>, out: &mut Vec<FromAgent>) {
        let mut last = None;
        for frame in &mut call.frames {
            if let Some(slot) = req_of(frame) {
                self.last_req += 1;
                *slot = self.last_req;
                last = Some(self.last_req);
            }
        }
        out.extend(call.frames.iter().cloned());
        if let Some(req) = last {
            self.open.insert(req, call);
        }
    }

    /// The call that `result` belongs to, and what came of it. `None` for a call that is not waited for.
    pub(crate) fn result(&mut self, result: CallResult) -> Option<(Call<T>, Returned)> {
        let call = self.open.remove(&result.req)?;
        let done = if result.ok {
            Ok(result.value)
        } else {
            Err(result.error.unwrap_or_else(|| CallError {
                code: "internal".into(),
                message: "no reason was given".into(),
                retryable: false,
            }))
        };
        Some((call, done))
    }

    /// Plans a repeat; gives the call back when it was repeated often enough.
    pub(crate) fn retry(&mut self, mut call: Call<T>, now: Millis) -> Option<Call<T>> {
        if call.tries >= AGAIN_MOST {
            return Some(call);
        }
        call.tries += 1;
        self.last_req += 1;
        self.again.insert((now + AGAIN_MS, self.last_req), call);
        None
    }

    /// Takes out a call whose repeat is due. [`Self::repeat`] says it again.
    pub(crate) fn due(&mut self, now: Millis) -> Option<Call<T>> {
        let first = self.again.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// Says a call from [`Self::due`] again, under new numbers and with the same keys.
    pub(crate) fn repeat(&mut self, call: Call<T>, out: &mut Vec<FromAgent>) {
        self.put(call, out);
    }

    /// When [`Self::due`] has something.
    pub(crate) fn deadline(&self) -> Option<Millis> {
        self.again.first_key_value().map(|((at, _), _)| *at)
    }

    /// The tags of all calls, also of those that wait to be repeated.
    pub(crate) fn tags(&self) -> impl Iterator<Item = &T> {
        self.open.values().chain(self.again.values()).map(|c| &c.tag)
    }
}

impl<T> Call<T> {
    /// How often it was repeated.
    pub(crate) fn tries(&self) -> u32 {
        self.tries
    }

    /// The events that this call would have ended, as failed.
    pub(crate) fn give_up(&self) -> impl Iterator<Item = FromAgent> + '_ {
        self.frames.iter().filter_map(|frame| match frame {
            FromAgent::Done { event, .. } => {
                Some(FromAgent::Done { event: *event, outcome: Outcome::Failed })
            }
            _ => None,
        })
    }
}

fn req_of(frame: &mut FromAgent) -> Option<&mut u64> {
    match frame {
        FromAgent::Send { req, .. }
        | FromAgent::Edit { req, .. }
        | FromAgent::Media { req, .. }
        | FromAgent::Prompt { req, .. }
        | FromAgent::PromptClose { req, .. }
        | FromAgent::Take { req, .. }
        | FromAgent::Device { req, .. } => Some(req),
        FromAgent::Turn { .. }
        | FromAgent::Status { .. }
        | FromAgent::Applied { .. }
        | FromAgent::Ack { .. }
        | FromAgent::Done { .. }
        | FromAgent::Conversation { .. }
        // Its number is the gateway's.
        | FromAgent::Answer { .. } => None,
    }
}
