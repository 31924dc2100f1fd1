//! Streamed replies: `/stream`, `/editfail`, `/fail`, `/die`.

use protocol::{
    Millis,
    link::{FromAgent, Outcome, TurnState},
};

use super::{
    Demo, Tag, Then, Work,
    jobs::{edit, send},
};

/// From one edit to the next.
const EDIT_MS: u64 = 20;

/// The reply of `/editfail`. Half of it is streamed.
pub(super) const EDITFAIL: &str = "This reply begins as a stream and its end comes as an ordinary message.";
/// The reply that `/fail` begins.
pub(super) const FAIL: &str = "This reply will not be";
/// What the device gets when it failed.
pub(super) const FAILED: &str = "This turn failed on purpose (/fail).\nЭтот ход прерван намеренно (/fail).";
/// The reply that `/die` begins.
pub(super) const DIE: &str = "This reply ends with its agent";

/// A reply that grows word by word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// `word1 word2 …`, so many.
    Words(usize),
    EditFail,
    Fail,
    Die,
}

impl Stream {
    /// How many words it would have.
    fn total(&self) -> usize {
        match self {
            Self::Words(n) => *n,
            Self::EditFail => EDITFAIL.split(' ').count(),
            Self::Fail => FAIL.split(' ').count(),
            Self::Die => DIE.split(' ').count(),
        }
    }

    /// Words `from` to `to`, counted from 0.
    fn text(&self, from: usize, to: usize) -> String {
        let fixed = |text: &str| text.split(' ').take(to).skip(from).collect::<Vec<_>>().join(" ");
        match self {
            Self::Words(_) => (from + 1..=to).map(|n| format!("word{n}")).collect::<Vec<_>>().join(" "),
            Self::EditFail => fixed(EDITFAIL),
            Self::Fail => fixed(FAIL),
            Self::Die => fixed(DIE),
        }
    }
}

impl Demo {
    /// Opens the bubble of a streamed reply.
    pub(super) fn open_stream(&mut self, event: u64, out: &mut Vec<FromAgent>) {
        let Some(job) = self.jobs.get_mut(&event) else { return };
        let Work::Stream(stream) = &job.work else { return };
        job.at = 1;
        let text = stream.text(0, 1);
        if *stream == Stream::Words(1) {
            self.finish(event, vec![], text, out);
            return;
        }
        let tag = Tag { device: job.device.clone(), event, then: Then::Open };
        let open = send(event, 1, &job.device, text, false);
        self.calls.send(tag, vec![open], out);
    }

    /// The bubble is open.
    pub(super) fn opened(&mut self, event: u64, message_id: String, now: Millis) {
        if let Some(job) = self.jobs.get_mut(&event) {
            job.bubble = Some(message_id);
            self.wake(event, now + EDIT_MS);
        }
    }

    /// The next word, or what comes in its place.
    pub(super) fn grow(&mut self, event: u64, now: Millis, out: &mut Vec<FromAgent>) {
        let Some(job) = self.jobs.get_mut(&event) else { return };
        let Work::Stream(stream) = &job.work else { return };
        let Some(bubble) = job.bubble.clone() else {
            // It was thinking before its first word.
            self.open_stream(event, out);
            return;
        };
        let (next, total, device) = (job.at + 1, stream.total(), job.device.clone());
        match stream {
            Stream::Fail if next == total => {
                self.drop_job(event);
                // The gateway closes the bubble when the turn fails.
                self.last(event, 2, &device, vec![], FAILED.to_owned(), &[(event, Outcome::Failed)], out);
                self.end(&device, TurnState::Failed, out);
            }
            Stream::Die if next == total => {
                out.push(FromAgent::Done { event, outcome: Outcome::Failed });
                self.died = true;
            }
            Stream::EditFail if next > total / 2 => {
                // No such message: it is refused, and `tail` goes on.
                let text = stream.text(0, next);
                let ghost = format!("{bubble}-gone");
                let tag = Tag { device: device.clone(), event, then: Then::Edit };
                self.calls.send(tag, vec![edit(&device, &ghost, text, false)], out);
            }
            _ if next >= total => {
                let text = stream.text(0, total);
                self.drop_job(event);
                let frames =
                    vec![edit(&device, &bubble, text, true), FromAgent::Done { event, outcome: Outcome::Ok }];
                self.calls.send(Tag { device: device.clone(), event, then: Then::Last }, frames, out);
                self.end(&device, TurnState::Off, out);
            }
            _ => {
                let text = stream.text(0, next);
                job.at = next;
                let tag = Tag { device: device.clone(), event, then: Then::Edit };
                self.calls.send(tag, vec![edit(&device, &bubble, text, false)], out);
                self.wake(event, now + EDIT_MS);
            }
        }
    }

    /// An edit was refused for good: the bubble is closed with what it shows, the rest comes as an ordinary message.
    pub(super) fn tail(&mut self, event: u64, out: &mut Vec<FromAgent>) {
        let Some(job) = self.jobs.get(&event) else { return };
        let (Work::Stream(stream), Some(bubble)) = (&job.work, &job.bubble) else { return };
        let shown = stream.text(0, job.at);
        let rest = stream.text(job.at, stream.total());
        let (device, bubble) = (job.device.clone(), bubble.clone());
        self.drop_job(event);
        let close = edit(&device, &bubble, shown, true);
        self.last(event, 2, &device, vec![close], rest, &[(event, Outcome::Ok)], out);
        self.end(&device, TurnState::Off, out);
    }
}
