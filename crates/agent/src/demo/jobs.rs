//! Jobs, the turns that they show, and last words.

use protocol::{
    Millis,
    link::{FromAgent, Offline, Outcome, TurnState},
};

use super::{Demo, Job, Tag, Then, Work};

impl Demo {
    pub(super) fn add_job(&mut self, event: u64, device: &str, work: Work, lasting: bool) {
        self.devices.entry(device.to_owned()).or_default().jobs.insert(event);
        let device = device.to_owned();
        let job = Job { device, work, at: 0, bubble: None, active: false, wake: None, lasting };
        self.jobs.insert(event, job);
    }

    /// The job shows as a turn from now on.
    pub(super) fn begin_job(&mut self, event: u64, out: &mut Vec<FromAgent>) {
        if let Some(job) = self.jobs.get_mut(&event) {
            job.active = true;
            let device = job.device.clone();
            self.begin(&device, out);
        }
    }

    /// Forgets a job; its turn is the caller's to end.
    pub(super) fn drop_job(&mut self, event: u64) -> Option<Job> {
        let job = self.jobs.remove(&event)?;
        if let Some(at) = job.wake {
            self.wakes.remove(&(at, event));
        }
        if let Some(known) = self.devices.get_mut(&job.device) {
            known.jobs.remove(&event);
        }
        Some(job)
    }

    /// Ends a job without its reply.
    pub(super) fn fail_job(&mut self, event: u64, out: &mut Vec<FromAgent>) {
        let Some(job) = self.drop_job(event) else { return };
        out.push(FromAgent::Done { event, outcome: Outcome::Failed });
        if job.active {
            self.end(&job.device, TurnState::Failed, out);
        } else {
            self.turn_failed(&job.device, out);
        }
    }

    /// Ends a job with its reply.
    pub(super) fn finish(
        &mut self,
        event: u64,
        before: Vec<FromAgent>,
        text: String,
        out: &mut Vec<FromAgent>,
    ) {
        let Some(job) = self.drop_job(event) else { return };
        self.last(event, 1, &job.device, before, text, &[(event, Outcome::Ok)], out);
        self.end(&job.device, TurnState::Off, out);
    }

    /// Last words: `before`, a message, and the ends of events; said again together until they are done.
    #[expect(clippy::too_many_arguments, reason = "the parts of one batch")]
    pub(super) fn last(
        &mut self,
        event: u64,
        n: usize,
        device: &str,
        mut before: Vec<FromAgent>,
        text: String,
        done: &[(u64, Outcome)],
        out: &mut Vec<FromAgent>,
    ) {
        before.push(send(event, n, device, text, true));
        before.extend(done.iter().map(|&(event, outcome)| FromAgent::Done { event, outcome }));
        self.calls.send(Tag { device: device.to_owned(), event, then: Then::Last }, before, out);
    }

    pub(super) fn wake(&mut self, event: u64, at: Millis) {
        if let Some(job) = self.jobs.get_mut(&event) {
            if let Some(old) = job.wake.replace(at) {
                self.wakes.remove(&(old, event));
            }
            self.wakes.insert((at, event));
        }
    }

    /// Work begins that shows as a turn.
    pub(super) fn begin(&mut self, device: &str, out: &mut Vec<FromAgent>) {
        let known = self.devices.entry(device.to_owned()).or_default();
        known.active += 1;
        if known.active == 1 {
            out.push(FromAgent::Turn { device: device.to_owned(), state: TurnState::On });
        }
    }

    /// Such work ends. The turn is off with the last of it; a failure is told at once.
    pub(super) fn end(&mut self, device: &str, state: TurnState, out: &mut Vec<FromAgent>) {
        let Some(known) = self.devices.get_mut(device) else { return };
        known.active = known.active.saturating_sub(1);
        if state == TurnState::Failed {
            self.turn_failed(device, out);
        } else if known.active == 0 {
            out.push(FromAgent::Turn { device: device.to_owned(), state });
        }
    }

    pub(super) fn turn_failed(&mut self, device: &str, out: &mut Vec<FromAgent>) {
        out.push(FromAgent::Turn { device: device.to_owned(), state: TurnState::Failed });
        if self.devices.get(device).is_some_and(|d| d.active > 0) {
            out.push(FromAgent::Turn { device: device.to_owned(), state: TurnState::On });
        }
    }
}

/// A message; its number is filled in by [`crate::calls::Calls`].
pub(super) fn send(event: u64, n: usize, device: &str, text: String, last: bool) -> FromAgent {
    FromAgent::Send {
        req: 0,
        key: format!("e{event}/{n}"),
        device: device.to_owned(),
        text,
        last,
        reply_to: None,
        offline: Offline::Queue,
    }
}

/// An edit; its number is filled in by [`crate::calls::Calls`].
pub(super) fn edit(device: &str, message_id: &str, text: String, last: bool) -> FromAgent {
    FromAgent::Edit { req: 0, device: device.to_owned(), message_id: message_id.to_owned(), text, last }
}
