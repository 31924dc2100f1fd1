//! `echo`, the agent for load tests: says what it hears.

use std::collections::{BTreeMap, BTreeSet};

use protocol::{
    Millis,
    limits::FILE_BYTES,
    link::{
        Answer, CallResult, CallValue, CardState, Event, FromAgent, InFile, MediaSource, Offline, Outcome,
        Said, ToAgent, What,
    },
    server::OutKind,
};

use crate::{Agent, Flow, calls::Calls, seen::Seen};

/// Most characters and frames of a `!stream`, and longest gap. What passes them is echoed like any other text.
const STREAM_CHARS: usize = 500_000;
const STREAM_FRAMES: usize = 10_000;
const STREAM_GAP_MS: u64 = 60_000;
/// Gap when none is named: as often as agents may edit.
const GAP_MS: u64 = 50;

/// The echo agent. Replies to a text with exactly that text, to a file with `<caption> [<kind> <bytes> bytes]`, and to
/// `!stream CHARS FRAMES [GAP_MS]` with a reply that grows by edits, to `!file BYTES` with a document. It shows no turn states. A text costs one batch:
/// ack, send and done share one commit.
///
/// It keeps nothing about a text but the calls without a result; doing a repeated text again is harmless, because its
/// key is the same.
#[derive(Debug, Default)]
pub struct Echo {
    calls: Calls<Tag>,
    /// Events that began a stream: a repeat would redraw its bubble.
    seen: Seen,
    streams: BTreeMap<u64, Stream>,
    wakes: BTreeSet<(Millis, u64)>,
}

#[derive(Debug)]
enum Tag {
    /// Says something final.
    Last,
    /// Opens the stream of this event.
    Open(u64),
}

#[derive(Debug)]
struct Stream {
    device: String,
    bubble: String,
    chars: usize,
    frames: usize,
    gap: u64,
    /// Frames shown.
    at: usize,
}

impl Stream {
    fn text(&self) -> String {
        let chars = self.chars as u64 * self.at as u64 / self.frames as u64;
        (b'a'..=b'z').cycle().zip(0..chars).map(|(letter, _)| char::from(letter)).collect()
    }
}

impl Echo {
    /// An agent with an empty memory.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn event(&mut self, event: Event, out: &mut Vec<FromAgent>) {
        let (no, device) = (event.event, event.device.id);
        out.push(FromAgent::Ack { event: no });
        match event.what {
            Said::Text { text } if let Some(bytes) = file_of(&text) => {
                let done = FromAgent::Done { event: no, outcome: Outcome::Ok };
                self.calls.send(Tag::Last, vec![document(no, device, bytes), done], out);
            }
            Said::Text { text } => match stream_of(&text) {
                Some(_) if !self.seen.add(no) => {}
                Some((chars, frames, gap)) => {
                    let stream = Stream { device, bubble: String::new(), chars, frames, gap, at: 1 };
                    let text = stream.text();
                    if frames == 1 {
                        self.say(no, stream.device, text, out);
                    } else {
                        let open = send(no, stream.device.clone(), text, false);
                        self.streams.insert(no, stream);
                        self.calls.send(Tag::Open(no), vec![open], out);
                    }
                }
                None => self.say(no, device, text, out),
            },
            Said::Voice { media } | Said::Media { media } => self.say(no, device, file_text(&media), out),
            // It shows no cards.
            Said::Prompt { .. } => out.push(FromAgent::Done { event: no, outcome: Outcome::Ok }),
        }
    }

    fn say(&mut self, event: u64, device: String, text: String, out: &mut Vec<FromAgent>) {
        let done = FromAgent::Done { event, outcome: Outcome::Ok };
        self.calls.send(Tag::Last, vec![send(event, device, text, true), done], out);
    }

    fn result(&mut self, result: CallResult, now: Millis, out: &mut Vec<FromAgent>) {
        let Some((call, done)) = self.calls.result(result) else { return };
        let refused = match (done, &call.tag) {
            (Ok(_), Tag::Last) => return,
            (Ok(Some(CallValue::Message { message_id, .. })), Tag::Open(event)) => {
                if let Some(stream) = self.streams.get_mut(event) {
                    stream.bubble = message_id;
                    self.wakes.insert((now + stream.gap, *event));
                }
                return;
            }
            // An opened bubble without an id cannot be edited.
            (Ok(_), Tag::Open(_)) => Some(call),
            (Err(error), _) if error.retryable => self.calls.retry(call, now),
            (Err(_), _) => Some(call),
        };
        let Some(call) = refused else { return };
        out.extend(call.give_up());
        if let Tag::Open(event) = call.tag {
            self.streams.remove(&event);
            out.push(FromAgent::Done { event, outcome: Outcome::Failed });
        }
    }

    /// The next edit of a stream.
    fn grow(&mut self, event: u64, now: Millis, out: &mut Vec<FromAgent>) {
        let Some(stream) = self.streams.get_mut(&event) else { return };
        stream.at += 1;
        let last = stream.at >= stream.frames;
        let mut edit = FromAgent::Edit {
            req: 0,
            device: stream.device.clone(),
            message_id: stream.bubble.clone(),
            text: stream.text(),
            last,
        };
        if last {
            self.streams.remove(&event);
            let done = FromAgent::Done { event, outcome: Outcome::Ok };
            self.calls.send(Tag::Last, vec![edit, done], out);
        } else {
            self.wakes.insert((now + stream.gap, event));
            // Its result does not matter: the next edit carries the whole text again.
            if let FromAgent::Edit { req, .. } = &mut edit {
                *req = self.calls.req();
            }
            out.push(edit);
        }
    }
}

impl Agent for Echo {
    fn name(&self) -> &'static str {
        concat!("echo ", env!("CARGO_PKG_VERSION"))
    }

    fn handle(&mut self, frame: ToAgent, now: Millis, out: &mut Vec<FromAgent>) -> Flow {
        match frame {
            ToAgent::Event(event) => self.event(*event, out),
            ToAgent::Result(result) => self.result(result, now, out),
            ToAgent::Request { req, what } => out.push(FromAgent::Answer {
                req,
                answer: match what {
                    What::Commands => Answer::Commands { commands: Vec::new() },
                    What::Models => Answer::Models { current: "echo".into(), models: Vec::new() },
                    What::Prompt { .. } => Answer::Prompt { state: CardState::Gone, option_id: None },
                },
            }),
            ToAgent::Presence { .. } => {}
        }
        Flow::On
    }

    fn tick(&mut self, now: Millis, out: &mut Vec<FromAgent>) -> Flow {
        let later = self.wakes.split_off(&(now + 1, 0));
        for (_, event) in std::mem::replace(&mut self.wakes, later) {
            self.grow(event, now, out);
        }
        while let Some(call) = self.calls.due(now) {
            self.calls.repeat(call, out);
        }
        Flow::On
    }

    fn deadline(&self) -> Option<Millis> {
        let wake = self.wakes.first().map(|(at, _)| *at);
        wake.into_iter().chain(self.calls.deadline()).min()
    }
}

fn send(event: u64, device: String, text: String, last: bool) -> FromAgent {
    let key = format!("e{event}/1");
    FromAgent::Send { req: 0, key, device, text, last, reply_to: None, offline: Offline::Queue }
}

/// Reads `!file BYTES`; `None` for everything else, also for numbers out of range.
fn file_of(text: &str) -> Option<usize> {
    let bytes = text.strip_prefix("!file ")?.parse().ok()?;
    (1..=FILE_BYTES).contains(&bytes).then_some(bytes)
}

/// A document in which byte i is i mod 251.
fn document(event: u64, device: String, bytes: usize) -> FromAgent {
    let cycle: Vec<u8> = (0..=250).collect();
    let mut data = cycle.repeat(bytes.div_ceil(cycle.len()));
    data.truncate(bytes);
    FromAgent::Media {
        req: 0,
        key: format!("e{event}/1"),
        device,
        kind: OutKind::Document,
        source: MediaSource::Data(data),
        mime: Some("application/octet-stream".to_owned()),
        filename: Some(format!("file-{bytes}.bin")),
        caption: None,
        reply_to: None,
        offline: Offline::Queue,
    }
}

/// The reply to a file.
fn file_text(file: &InFile) -> String {
    let size = format!("[{} {} bytes]", file.kind, file.bytes);
    match file.caption.as_deref() {
        Some(caption) if !caption.is_empty() => format!("{caption} {size}"),
        _ => size,
    }
}

/// Reads `!stream CHARS FRAMES [GAP_MS]`; `None` for everything else, also for numbers out of range.
fn stream_of(text: &str) -> Option<(usize, usize, u64)> {
    let mut words = text.strip_prefix("!stream ")?.split_ascii_whitespace();
    let chars: usize = words.next()?.parse().ok()?;
    let frames: usize = words.next()?.parse().ok()?;
    let gap: u64 = words.next().map_or(Some(GAP_MS), |w| w.parse().ok())?;
    let fits = (1..=STREAM_CHARS).contains(&chars)
        && (1..=STREAM_FRAMES.min(chars)).contains(&frames)
        && gap <= STREAM_GAP_MS
        && words.next().is_none();
    // At least a millisecond, so that a stream is never one heap of frames.
    fits.then_some((chars, frames, gap.max(1)))
}

#[cfg(test)]
mod tests;
