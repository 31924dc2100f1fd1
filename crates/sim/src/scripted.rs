//! An agent on a link that does everything an agent may do, at random: streams, edits, files, cards, late acks, calls
//! that are repeated, calls that make no sense. It keeps the rules of the link: it acts once on an event in one process, repeats
//! what got no result with the same key, and acts on an answered card only after a successful `take`.

use std::collections::BTreeMap;

use protocol::{
    Millis,
    link::{
        Answer, CallResult, CallValue, CardEnd, CardOutcome, CardState, Event, FromAgent, MediaSource,
        Offline, Outcome, Said, ToAgent, TurnState, What,
    },
    server::{OptionStyle, OutKind, PromptKind, PromptOption},
};

use crate::rng::Rng;

/// A call that may succeed later is repeated after this.
const AGAIN_MS: Millis = 500;
/// So long after the time of a card its event ends, whatever the gateway says.
const GRACE_MS: Millis = 60_000;

#[derive(Clone, Debug)]
enum Then {
    Nothing,
    /// The bubble of an event is open.
    Opened(u64),
    /// An edit is through: so many are left.
    Edited(u64, u64),
    /// The first text is through: edit it once more.
    Reworded(u64),
    /// A card of an event.
    Card(u64, u64),
    Take(u64, CardOutcome),
}

/// Calls that go together; the last one that has a number decides.
#[derive(Clone, Debug)]
struct Call {
    frames: Vec<FromAgent>,
    then: Then,
}

#[derive(Clone, Debug)]
enum Step {
    Say(Vec<FromAgent>),
    Call(Call),
    Style(u64, u64),
    /// Nothing more is expected of the card of this event.
    Forget(u64),
}

/// An event of this process.
#[derive(Debug)]
struct Job {
    device: String,
    id: String,
    bubble: Option<String>,
    edits: u64,
    fails: bool,
    done: bool,
}

/// A card of this process.
#[derive(Debug)]
struct Card {
    job: u64,
    applied: Option<String>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Scripted {
    rng: Rng,
    /// Number of the process.
    life: u64,
    /// Most words of a long reply.
    words: u64,
    jobs: BTreeMap<u64, Job>,
    calls: BTreeMap<u64, Call>,
    last_req: u64,
    steps: BTreeMap<(Millis, u64), Step>,
    last_step: u64,
    cards: BTreeMap<String, Card>,
}

impl Scripted {
    pub(crate) fn new(seed: u64, life: u64, words: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            life,
            words,
            jobs: BTreeMap::new(),
            calls: BTreeMap::new(),
            last_req: life << 32,
            steps: BTreeMap::new(),
            last_step: 0,
            cards: BTreeMap::new(),
        }
    }

    fn step(&mut self, at: Millis, step: Step) {
        self.last_step += 1;
        self.steps.insert((at, self.last_step), step);
    }

    /// Says frames, and remembers them until the last one that has a number has its result.
    fn call(&mut self, mut call: Call, out: &mut Vec<FromAgent>) {
        let mut last = None;
        for frame in &mut call.frames {
            if let Some(req) = req_of(frame) {
                self.last_req += 1;
                *req = self.last_req;
                last = Some(self.last_req);
            }
        }
        out.extend(call.frames.iter().cloned());
        match last {
            Some(req) => {
                self.calls.insert(req, call);
            }
            None => self.through(&call),
        }
    }

    /// A call is through: the events that it ended are done.
    fn through(&mut self, call: &Call) {
        for frame in &call.frames {
            if let FromAgent::Done { event, .. } = frame
                && let Some(job) = self.jobs.get_mut(event)
            {
                job.done = true;
            }
        }
    }

    fn text_of(&self, job: &Job) -> String {
        format!("re:{}:{}", job.id, self.life)
    }

    /// The link is back: what got no result is said again, and what it is done with, which has no result.
    pub(crate) fn reattached(&mut self, out: &mut Vec<FromAgent>) {
        for call in std::mem::take(&mut self.calls).into_values() {
            self.call(call, out);
        }
        for (event, job) in &self.jobs {
            if job.done {
                out.push(done(*event));
                let state = if job.fails { TurnState::Failed } else { TurnState::Off };
                out.push(FromAgent::Turn { device: job.device.clone(), state });
            }
        }
    }

    pub(crate) fn handle(&mut self, frame: ToAgent, now: Millis, out: &mut Vec<FromAgent>) {
        match frame {
            ToAgent::Event(event) => self.event(*event, now, out),
            ToAgent::Result(result) => self.result(result, now, out),
            ToAgent::Request { req, what: What::Prompt { prompt_id } } => {
                let (state, option_id) = match self.cards.get(&prompt_id) {
                    Some(Card { applied: Some(option), .. }) => (CardState::Applied, Some(option.clone())),
                    Some(_) => (CardState::Open, None),
                    None => (CardState::Gone, None),
                };
                out.push(FromAgent::Answer { req, answer: Answer::Prompt { state, option_id } });
            }
            ToAgent::Request { .. } | ToAgent::Presence { .. } => {}
        }
    }

    fn event(&mut self, event: Event, now: Millis, out: &mut Vec<FromAgent>) {
        let no = event.event;
        if let Said::Prompt { prompt } = event.what {
            return self.outcome(no, prompt, now, out);
        }
        if let Some(job) = self.jobs.get(&no) {
            out.push(FromAgent::Ack { event: no });
            if job.done {
                out.push(done(no));
            }
            return;
        }
        let job =
            Job { device: event.device.id, id: event.id, bubble: None, edits: 0, fails: false, done: false };
        self.jobs.insert(no, job);
        let late = if self.rng.percent(30) { self.rng.below(4_000) } else { 0 };
        self.step(now + late, Step::Say(vec![FromAgent::Ack { event: no }]));
        let style = self.rng.below(13);
        let pause = if self.rng.percent(50) { 0 } else { self.rng.below(3_000) };
        self.step(now + pause, Step::Style(no, style));
    }

    /// Last words of an event: `done` shares their commit.
    fn finish(&mut self, no: u64, mut frames: Vec<FromAgent>, out: &mut Vec<FromAgent>) {
        frames.push(done(no));
        self.call(Call { frames, then: Then::Nothing }, out);
    }

    fn style(&mut self, no: u64, style: u64, now: Millis, out: &mut Vec<FromAgent>) {
        let Some(job) = self.jobs.get(&no) else { return };
        let (device, text) = (job.device.clone(), self.text_of(job));
        let key = |n: u64| format!("s{no}/{n}");
        let send = |n: u64, text: String| send(key(n), &device, text, true, Offline::Queue);
        let turn = |state| FromAgent::Turn { device: device.clone(), state };
        let say = send(1, text.clone());
        match style {
            0 => self.finish(no, vec![say], out),
            1 => {
                out.push(turn(TurnState::On));
                let status = FromAgent::Status { device: device.clone(), text: Some("reads".to_owned()) };
                out.push(status);
                let frames = vec![say, turn(TurnState::Off), done(no)];
                let at = now + self.rng.below(9_000);
                self.step(at, Step::Call(Call { frames, then: Then::Nothing }));
            }
            2..=4 => {
                out.push(turn(TurnState::On));
                let edits = self.rng.range(1, 12);
                if let Some(job) = self.jobs.get_mut(&no) {
                    job.edits = edits;
                    job.fails = style == 4;
                }
                let mut first = say;
                if let FromAgent::Send { last, .. } = &mut first {
                    *last = false;
                }
                self.call(Call { frames: vec![first], then: Then::Opened(no) }, out);
            }
            5 => {
                let (n, source) = (self.rng.range(1, 400), MediaSource::Data);
                let data = (0..n).map(|i| (i % 251) as u8).collect();
                let file = media(key(3), &device, source(data));
                self.finish(no, vec![say, send(2, format!("also {}", self.life)), file], out);
            }
            6 | 7 => {
                let seconds = self.rng.range(3, 40);
                self.call(Call { frames: vec![say], then: Then::Nothing }, out);
                let card = prompt(key(4), &device, style == 7, seconds);
                self.call(Call { frames: vec![card], then: Then::Card(no, seconds) }, out);
            }
            8 => self.call(Call { frames: vec![say], then: Then::Reworded(no) }, out),
            9 => self.finish(no, vec![say.clone(), say.clone(), say], out),
            10 => {
                let fail = self::send(key(9), &device, format!("fail {no}"), true, Offline::Fail);
                self.call(Call { frames: vec![fail], then: Then::Nothing }, out);
                self.finish(no, vec![say], out);
            }
            11 => {
                let steal = media(key(8), &device, MediaSource::Path("/etc/shadow".to_owned()));
                let nonsense = vec![
                    edit(&device, "no such message".to_owned(), "x".to_owned(), false),
                    FromAgent::Take { req: 0, event: 1 << 40 },
                    FromAgent::PromptClose {
                        req: 0,
                        prompt_id: "none".to_owned(),
                        option_id: None,
                        reason: "?".to_owned(),
                    },
                    FromAgent::Device { req: 0, device: device.clone() },
                    FromAgent::Device { req: 0, device: "nobody".to_owned() },
                    FromAgent::Applied {
                        event: 1 << 40,
                        ok: true,
                        option_id: "once".to_owned(),
                        reason: None,
                    },
                    steal,
                ];
                for frame in nonsense {
                    self.call(Call { frames: vec![frame], then: Then::Nothing }, out);
                }
                self.finish(no, vec![say], out);
            }
            _ => {
                // A long one, which is cut into chunks.
                let words: String = (0..self.rng.range(1, self.words)).map(|n| format!(" word{n}")).collect();
                self.finish(no, vec![send(1, text + &words)], out);
            }
        }
    }

    fn edit_text(&self, job: &Job, left: u64) -> String {
        let words: String = (left..job.edits).map(|n| format!(" w{n}")).collect();
        self.text_of(job) + &words
    }

    /// The next edit of a stream, of which so many are left.
    fn plan_edit(&mut self, no: u64, left: u64, now: Millis) {
        let at = now + self.rng.range(1, 250);
        let Some(job) = self.jobs.get(&no) else { return };
        let Some(bubble) = job.bubble.clone() else { return };
        let (device, fails) = (job.device.clone(), job.fails);
        let text = self.edit_text(job, left);
        let turn = |state| FromAgent::Turn { device: device.clone(), state };
        let (frames, then) = if left > 0 {
            (vec![edit(&device, bubble, text, false)], Then::Edited(no, left - 1))
        } else if fails {
            (vec![turn(TurnState::Failed), done(no)], Then::Nothing)
        } else {
            (vec![edit(&device, bubble, text, true), turn(TurnState::Off), done(no)], Then::Nothing)
        };
        self.step(at, Step::Call(Call { frames, then }));
    }

    fn result(&mut self, result: CallResult, now: Millis, out: &mut Vec<FromAgent>) {
        let Some(call) = self.calls.remove(&result.req) else { return };
        if !result.ok {
            if result.error.is_some_and(|error| error.retryable) {
                self.step(now + AGAIN_MS, Step::Call(call));
            } else if let Then::Card(no, _) = call.then {
                self.finish(no, Vec::new(), out);
                out.push(done(no));
            }
            return;
        }
        self.through(&call);
        match (call.then, result.value) {
            (Then::Opened(no), Some(CallValue::Message { message_id, .. })) => {
                let Some(job) = self.jobs.get_mut(&no) else { return };
                job.bubble = Some(message_id);
                let edits = job.edits;
                self.plan_edit(no, edits - 1, now);
            }
            (Then::Edited(no, left), _) => self.plan_edit(no, left, now),
            (Then::Reworded(no), Some(CallValue::Message { message_id, .. })) => {
                let Some(job) = self.jobs.get_mut(&no) else { return };
                let text = format!("re:{}:{} reworded", job.id, self.life);
                let frame = edit(&job.device, message_id, text, true);
                self.finish(no, vec![frame], out);
            }
            (Then::Card(no, seconds), Some(CallValue::Prompt { prompt_id })) => {
                // A card that ended with an earlier process tells nothing any more.
                self.step(now + seconds * 1_000 + GRACE_MS, Step::Forget(no));
                self.cards.entry(prompt_id).or_insert(Card { job: no, applied: None });
            }
            (Then::Take(event, outcome), _) => self.take(event, outcome, out),
            _ => {}
        }
    }

    /// The outcome of a card.
    fn outcome(&mut self, event: u64, outcome: CardOutcome, now: Millis, out: &mut Vec<FromAgent>) {
        if outcome.outcome == CardEnd::Expired {
            out.push(FromAgent::Ack { event });
            out.push(done(event));
            if let Some(card) = self.cards.get(&outcome.prompt_id) {
                let job = card.job;
                self.report(job, "expired", out);
            }
            return;
        }
        let late = if self.rng.percent(20) { self.rng.below(9_000) } else { 0 };
        let frames = vec![FromAgent::Take { req: 0, event }];
        self.step(now + late, Step::Call(Call { frames, then: Then::Take(event, outcome) }));
    }

    /// It may be acted on.
    fn take(&mut self, event: u64, outcome: CardOutcome, out: &mut Vec<FromAgent>) {
        let option_id = outcome.option_id.clone().unwrap_or_default();
        let card = self.cards.entry(outcome.prompt_id).or_insert(Card { job: 0, applied: None });
        card.applied = Some(option_id.clone());
        let job = card.job;
        out.push(FromAgent::Applied { event, ok: true, option_id: option_id.clone(), reason: None });
        out.push(done(event));
        self.report(job, &option_id, out);
    }

    fn report(&mut self, no: u64, what: &str, out: &mut Vec<FromAgent>) {
        let Some(job) = self.jobs.get(&no) else { return };
        let text = format!("card:{}:{what}", job.id);
        let frame = send(format!("s{no}/5"), &job.device, text, true, Offline::Queue);
        self.finish(no, vec![frame], out);
    }

    pub(crate) fn tick(&mut self, now: Millis, out: &mut Vec<FromAgent>) {
        while let Some(entry) = self.steps.first_entry()
            && entry.key().0 <= now
        {
            match entry.remove() {
                Step::Say(frames) => out.extend(frames),
                Step::Call(call) => self.call(call, out),
                Step::Style(no, style) => self.style(no, style, now, out),
                Step::Forget(no) => {
                    if self.jobs.get(&no).is_some_and(|job| !job.done) {
                        self.finish(no, Vec::new(), out);
                    }
                }
            }
        }
    }

    pub(crate) fn deadline(&self) -> Option<Millis> {
        self.steps.first_key_value().map(|((at, _), _)| *at)
    }
}

const fn done(event: u64) -> FromAgent {
    FromAgent::Done { event, outcome: Outcome::Ok }
}

fn send(key: String, device: &str, text: String, last: bool, offline: Offline) -> FromAgent {
    FromAgent::Send { req: 0, key, device: device.to_owned(), text, last, reply_to: None, offline }
}

fn edit(device: &str, message_id: String, text: String, last: bool) -> FromAgent {
    FromAgent::Edit { req: 0, device: device.to_owned(), message_id, text, last }
}

fn media(key: String, device: &str, source: MediaSource) -> FromAgent {
    FromAgent::Media {
        req: 0,
        key,
        device: device.to_owned(),
        kind: OutKind::Document,
        source,
        mime: None,
        filename: Some("file".to_owned()),
        caption: None,
        reply_to: None,
        offline: Offline::Queue,
    }
}

fn prompt(key: String, device: &str, clarify: bool, seconds: u64) -> FromAgent {
    let option = |id: &str| PromptOption {
        id: id.to_owned(),
        label: id.to_owned(),
        style: OptionStyle::Secondary,
        allow_text: false,
    };
    let (kind, options) = if clarify {
        (PromptKind::Clarify, ["red", "green"].map(option).to_vec())
    } else {
        (PromptKind::ExecApproval, ["once", "always", "deny"].map(option).to_vec())
    };
    FromAgent::Prompt {
        req: 0,
        key,
        device: device.to_owned(),
        kind,
        text: "May it?".to_owned(),
        command: (!clarify).then(|| "rm -rf /tmp/build".to_owned()),
        description: None,
        options,
        deadline_seconds: seconds,
    }
}

/// The number of a call.
pub(crate) fn req_of(frame: &mut FromAgent) -> Option<&mut u64> {
    match frame {
        FromAgent::Send { req, .. }
        | FromAgent::Edit { req, .. }
        | FromAgent::Media { req, .. }
        | FromAgent::Prompt { req, .. }
        | FromAgent::PromptClose { req, .. }
        | FromAgent::Take { req, .. }
        | FromAgent::Device { req, .. } => Some(req),
        _ => None,
    }
}
