//! `demo`, the agent that shows and tests every feature with no network and nothing installed. Deterministic: what it
//! says follows from the event alone, and the keys of its calls are `e<event>/<n>`. So an event that comes again after
//! a restart is simply done again: a repeated call gets the first result, and a stream goes on in its bubble.
//!
//! Each event is a *job*; jobs run beside each other. A job ends with `done` in the same batch as its last words (one
//! commit); only files end after their result. What is said last stays in [`Calls`] until it has its result, and is
//! said again if the gateway could not do it.
//!
//! `/count` and the chosen model live in memory: after a restart they start again. The model is one for all devices,
//! because the `models` request names none.

mod ask;
mod cards;
mod files;
mod jobs;
mod long;
mod png;
mod stream;
mod table;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use protocol::{
    Millis,
    link::{
        Answer, CallError, CallResult, CallValue, CardOutcome, Event, FromAgent, Outcome, Said, ToAgent,
        TurnState, What,
    },
};

use crate::{
    Agent, Flow,
    calls::{Call, Calls},
    seen::Seen,
};
use ask::Card;
use files::Files;
use jobs::send;
use stream::Stream;
use table::Command;

/// It thinks so long before it replies to any other text, milliseconds.
const THINK_MS: u64 = 300;
/// Jobs of commands that may last, for each device.
const LASTING: usize = 64;
/// All jobs and held texts of a device.
const JOBS: usize = 10_000;
/// Devices remembered; beyond, those that were quiet longest are forgotten.
const DEVICES: usize = 20_000;
/// How long a question without buttons waits for its answer.
const QUESTION_MS: u64 = 24 * 3600 * 1000;
const QUESTION: &str = "What is your favourite colour? Your next message is the answer.\n\
                        Какой ваш любимый цвет? Следующее сообщение будет ответом.";
const NEW: &str = "A new conversation.\nНовый разговор.";
const BUSY: &str = "Too much is under way. Please wait, or send /new.\nСлишком много дел сразу. Подождите или отправьте /new.";

/// The demo agent.
#[derive(Debug)]
pub struct Demo {
    calls: Calls<Tag>,
    seen: Seen,
    devices: HashMap<String, Device>,
    /// By event.
    jobs: BTreeMap<u64, Job>,
    wakes: BTreeSet<(Millis, u64)>,
    /// Open cards: job and index.
    cards: HashMap<String, (u64, usize)>,
    /// Cards that ended lately and what took effect.
    ended: VecDeque<(String, String)>,
    /// The gateway's questions about cards that may yet become known: number and card.
    asked: Vec<(u64, String)>,
    model: String,
    died: bool,
}

/// What is remembered of a device.
#[derive(Debug, Default)]
struct Device {
    /// Messages in this conversation.
    count: u64,
    /// Work that shows as a turn.
    active: usize,
    jobs: BTreeSet<u64>,
    /// Outcomes of cards whose id is not known yet.
    early: Vec<(u64, CardOutcome)>,
    /// Answers "other, the text follows" that are not decided yet...
    deciding: BTreeSet<u64>,
    /// ...and the texts that wait for that.
    held: VecDeque<(u64, String)>,
    last: Millis,
}

/// What one event set going.
#[derive(Debug)]
struct Job {
    device: String,
    work: Work,
    /// Words shown, or files sent.
    at: usize,
    /// Message id of the streamed reply.
    bubble: Option<String>,
    /// It shows as a turn.
    active: bool,
    wake: Option<Millis>,
    lasting: bool,
}

#[derive(Debug)]
enum Work {
    /// Thinks, then says this.
    Say(String),
    Stream(Stream),
    Files(Files),
    Cards(Vec<Card>),
    /// Waits for the next text.
    Question,
}

/// What a call was for.
#[derive(Debug)]
struct Tag {
    device: String,
    /// The job's event, or the event that it answers.
    event: u64,
    then: Then,
}

#[derive(Debug)]
enum Then {
    /// The last words of something: nothing follows.
    Last,
    /// The bubble of a stream.
    Open,
    /// An edit that is not the last.
    Edit,
    /// The next file.
    File,
    /// A question without buttons.
    Question,
    /// A card: its index in the job.
    Card(usize),
    /// May this outcome of a card be acted on?
    Take(CardOutcome),
}

impl Default for Demo {
    fn default() -> Self {
        Self::new()
    }
}

impl Demo {
    /// An agent with an empty memory.
    #[must_use]
    pub fn new() -> Self {
        Self {
            calls: Calls::default(),
            seen: Seen::default(),
            devices: HashMap::new(),
            jobs: BTreeMap::new(),
            wakes: BTreeSet::new(),
            cards: HashMap::new(),
            ended: VecDeque::new(),
            asked: Vec::new(),
            model: table::FIRST_MODEL.to_owned(),
            died: false,
        }
    }

    fn event(&mut self, event: Event, now: Millis, out: &mut Vec<FromAgent>) {
        let (no, device) = (event.event, event.device.id);
        out.push(FromAgent::Ack { event: no });
        if !self.seen.add(no) {
            return;
        }
        if !self.devices.contains_key(&device) {
            self.forget_quiet();
        }
        let known = self.devices.entry(device.clone()).or_default();
        known.last = now;
        if !matches!(event.what, Said::Prompt { .. }) {
            known.count += 1;
        }
        match event.what {
            Said::Text { text } => self.text(no, &device, text, event.redelivered, now, out),
            Said::Voice { media } | Said::Media { media } => {
                self.at_once(no, &device, files::got(&media), out);
            }
            Said::Prompt { prompt } => self.card_event(no, &device, prompt, out),
        }
    }

    fn text(
        &mut self,
        event: u64,
        device: &str,
        text: String,
        redelivered: bool,
        now: Millis,
        out: &mut Vec<FromAgent>,
    ) {
        let command = table::read(&text);
        // What was taken on before a restart is not refused after it.
        if !redelivered && command != Command::New && self.busy(device, &command) {
            self.at_once(event, device, BUSY.to_owned(), out);
            return;
        }
        let work = match command {
            Command::Other => return self.other(event, device, text, now, out),
            Command::Help => return self.at_once(event, device, table::help(), out),
            Command::Wrong(reply) => return self.at_once(event, device, reply, out),
            Command::Long(n) => return self.at_once(event, device, long::long(n), out),
            Command::Count => {
                let count = self.devices.get(device).map_or(0, |d| d.count);
                return self.at_once(event, device, count.to_string(), out);
            }
            Command::Model(id) => {
                let reply = format!("model: {id}");
                self.model = id;
                return self.at_once(event, device, reply, out);
            }
            Command::New => return self.new_conversation(event, device, now, out),
            Command::Slow(s) => Work::Say(format!("done after {s} s")),
            Command::Stream(n) => Work::Stream(Stream::Words(n)),
            Command::EditFail => Work::Stream(Stream::EditFail),
            Command::Fail => Work::Stream(Stream::Fail),
            Command::Die => Work::Stream(Stream::Die),
            Command::Files(ref files) => Work::Files(files.clone()),
            Command::Cards(ref ask) => Work::Cards(ask.cards()),
            Command::AskOpen => Work::Question,
        };
        self.add_job(event, device, work, true);
        match command {
            Command::Slow(s) => {
                self.begin_job(event, out);
                let text = Some(format!("thinks for {s} s / думает {s} с"));
                out.push(FromAgent::Status { device: device.to_owned(), text });
                self.wake(event, now + s * 1000);
            }
            Command::Fail => {
                self.begin_job(event, out);
                self.wake(event, now + THINK_MS);
            }
            Command::Files(_) => self.files(event, out),
            Command::Cards(ask) => self.ask(event, &ask, now, out),
            Command::AskOpen => self.question(event, device, now, out),
            _ => {
                self.begin_job(event, out);
                self.open_stream(event, out);
            }
        }
    }

    /// Any other text: it waits for the decision on a card, or answers a question, or gets the ordinary reply.
    fn other(&mut self, event: u64, device: &str, text: String, now: Millis, out: &mut Vec<FromAgent>) {
        if let Some(known) = self.devices.get_mut(device)
            && !known.deciding.is_empty()
        {
            known.held.push_back((event, text));
            return;
        }
        let Some(text) = self.answer(event, device, text, out) else { return };
        self.add_job(event, device, Work::Say(format!("You said: {text}")), false);
        self.begin_job(event, out);
        self.wake(event, now + THINK_MS);
    }

    fn question(&mut self, event: u64, device: &str, now: Millis, out: &mut Vec<FromAgent>) {
        self.begin(device, out);
        let tag = Tag { device: device.to_owned(), event, then: Then::Question };
        self.calls.send(tag, vec![send(event, 1, device, QUESTION.to_owned(), true)], out);
        self.end(device, TurnState::Off, out);
        self.wake(event, now + QUESTION_MS);
    }

    /// Replies without thinking.
    fn at_once(&mut self, event: u64, device: &str, text: String, out: &mut Vec<FromAgent>) {
        self.begin(device, out);
        self.last(event, 1, device, vec![], text, &[(event, Outcome::Ok)], out);
        self.end(device, TurnState::Off, out);
    }

    fn busy(&self, device: &str, command: &Command) -> bool {
        let Some(known) = self.devices.get(device) else { return false };
        let lasting = || known.jobs.iter().filter(|e| self.jobs.get(e).is_some_and(|j| j.lasting)).count();
        known.jobs.len() + known.held.len() >= JOBS
            || (*command != Command::Other && known.jobs.len() >= LASTING && lasting() >= LASTING)
    }

    /// Makes room: forgets the half of the idle devices that was quiet longest.
    fn forget_quiet(&mut self) {
        if self.devices.len() < DEVICES {
            return;
        }
        let idle = |d: &Device| {
            d.active == 0
                && d.jobs.is_empty()
                && d.early.is_empty()
                && d.deciding.is_empty()
                && d.held.is_empty()
        };
        let mut lasts: Vec<_> = self.devices.values().filter(|d| idle(d)).map(|d| d.last).collect();
        let middle = lasts.len() / 2;
        if lasts.is_empty() {
            return;
        }
        let (_, median, _) = lasts.select_nth_unstable(middle);
        let median = *median;
        self.devices.retain(|_, d| !idle(d) || d.last > median);
    }

    fn result(&mut self, result: CallResult, now: Millis, out: &mut Vec<FromAgent>) {
        let Some((call, done)) = self.calls.result(result) else { return };
        let event = call.tag.event;
        match (done, &call.tag.then) {
            (Ok(Some(CallValue::Message { message_id, .. })), Then::Open) => {
                self.opened(event, message_id, now)
            }
            (Ok(_), Then::File) => self.file_sent(event, out),
            (Ok(Some(CallValue::Prompt { prompt_id })), Then::Card(at)) => {
                self.card_shown(event, *at, prompt_id, &call.tag.device, now, out);
            }
            (Ok(_), Then::Take(outcome)) => self.taken(event, &call.tag.device, outcome.clone(), now, out),
            (Ok(_), Then::Last | Then::Edit | Then::Question) => {}
            // The next edit carries the whole text again.
            (Err(error), Then::Edit) if error.retryable => {}
            (Err(error), _) if error.retryable => {
                if let Some(call) = self.calls.retry(call, now) {
                    self.refused(call, &error, now, out);
                }
            }
            (Err(error), _) => self.refused(call, &error, now, out),
            (Ok(_), Then::Open | Then::Card(_)) => {
                let error = CallError { code: "internal".into(), message: "no id".into(), retryable: false };
                self.refused(call, &error, now, out);
            }
        }
        self.settle(out);
    }

    /// A call failed for good.
    fn refused(&mut self, call: Call<Tag>, error: &CallError, now: Millis, out: &mut Vec<FromAgent>) {
        let event = call.tag.event;
        match call.tag.then {
            Then::Last => {
                out.extend(call.give_up());
                self.turn_failed(&call.tag.device, out);
            }
            Then::Open | Then::Question => self.fail_job(event, out),
            Then::Edit => self.tail(event, out),
            Then::File => self.file_refused(event, error, out),
            Then::Card(at) => self.card_refused(event, at, &call.tag.device, now, out),
            Then::Take(outcome) => self.withdrawn(event, &call.tag.device, &outcome, error, now, out),
        }
    }

    /// Says again what the gateway could not do.
    fn say_again(&mut self, call: Call<Tag>, out: &mut Vec<FromAgent>) {
        let tag = &call.tag;
        match tag.then {
            Then::File => {
                let (event, tries) = (tag.event, call.tries());
                self.send_file(event, tries, out);
            }
            Then::Last | Then::Take(_) => self.calls.repeat(call, out),
            // Its job has ended in the meantime: a card must not come up in another conversation.
            _ if !self.jobs.contains_key(&tag.event) => {}
            _ => self.calls.repeat(call, out),
        }
    }

    /// The time of a job has come.
    fn woken(&mut self, event: u64, now: Millis, out: &mut Vec<FromAgent>) {
        let Some(job) = self.jobs.get_mut(&event) else { return };
        job.wake = None;
        match &job.work {
            Work::Say(text) => {
                let text = text.clone();
                self.finish(event, vec![], text, out);
            }
            Work::Stream(_) => self.grow(event, now, out),
            Work::Cards(_) | Work::Question => {
                // Nobody answers any more.
                for event in self.forget_cards(event) {
                    out.push(FromAgent::Done { event, outcome: Outcome::Ok });
                }
            }
            Work::Files(_) => {}
        }
    }

    fn flow(&self) -> Flow {
        if self.died { Flow::Ended } else { Flow::On }
    }
}

impl Agent for Demo {
    fn name(&self) -> &'static str {
        concat!("demo ", env!("CARGO_PKG_VERSION"))
    }

    fn handle(&mut self, frame: ToAgent, now: Millis, out: &mut Vec<FromAgent>) -> Flow {
        match frame {
            ToAgent::Event(event) => self.event(*event, now, out),
            ToAgent::Result(result) => self.result(result, now, out),
            ToAgent::Request { req, what } => match what {
                What::Commands => {
                    out.push(FromAgent::Answer {
                        req,
                        answer: Answer::Commands { commands: table::commands() },
                    });
                }
                What::Models => {
                    let answer = Answer::Models { current: self.model.clone(), models: table::models() };
                    out.push(FromAgent::Answer { req, answer });
                }
                What::Prompt { prompt_id } => self.card_request(req, prompt_id, out),
            },
            ToAgent::Presence { .. } => {}
        }
        self.flow()
    }

    fn tick(&mut self, now: Millis, out: &mut Vec<FromAgent>) -> Flow {
        let later = self.wakes.split_off(&(now + 1, 0));
        for (at, event) in std::mem::replace(&mut self.wakes, later) {
            if self.jobs.get(&event).is_some_and(|job| job.wake == Some(at)) {
                self.woken(event, now, out);
            }
            if self.died {
                return Flow::Ended;
            }
        }
        while let Some(call) = self.calls.due(now) {
            self.say_again(call, out);
        }
        self.flow()
    }

    fn deadline(&self) -> Option<Millis> {
        let wake = self.wakes.first().map(|(at, _)| *at);
        wake.into_iter().chain(self.calls.deadline()).min()
    }
}
