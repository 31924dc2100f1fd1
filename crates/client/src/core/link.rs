//! What the client knows of the present connection: what is not written yet, the ping in flight, when it last heard something.

use std::collections::VecDeque;

use super::{config::Config, event::Event};

#[derive(Debug)]
struct Ping {
    number: u64,
    /// Its own number among the frames of this connection.
    frame: u64,
}

#[derive(Debug)]
struct Unwritten {
    bytes: usize,
    progress: Option<Event>,
}

/// The present connection.
#[derive(Debug)]
pub(super) struct Link {
    /// Frames handed over.
    handed: u64,
    queue: VecDeque<Unwritten>,
    bytes: usize,
    ping: Option<Ping>,
    /// When a byte last came.
    pub(super) heard: u64,
}

impl Link {
    pub(super) fn new(now: u64) -> Self {
        Self { handed: 0, queue: VecDeque::new(), bytes: 0, ping: None, heard: now }
    }
    /// A frame is handed over; returns its number.
    pub(super) fn hand(&mut self, bytes: usize, progress: Option<Event>) -> u64 {
        let number = self.handed;
        self.handed += 1;
        self.bytes += bytes;
        self.queue.push_back(Unwritten { bytes, progress });
        number
    }
    /// The oldest frame has been written.
    pub(super) fn written(&mut self) -> Option<Event> {
        let first = self.queue.pop_front()?;
        self.bytes -= first.bytes;
        first.progress
    }
    pub(super) fn unwritten(&self) -> usize {
        self.bytes
    }
    pub(super) fn pinging(&self) -> bool {
        self.ping.is_some()
    }
    pub(super) fn ping(&mut self, number: u64, bytes: usize) {
        let frame = self.hand(bytes, None);
        self.ping = Some(Ping { number, frame });
    }
    /// A pong came: the number of its ping's frame, if it is the one in flight.
    pub(super) fn pong(&mut self, number: u64) -> Option<u64> {
        let ping = self.ping.take_if(|p| p.number == number)?;
        Some(ping.frame)
    }
    /// When [`Self::dead`] or [`Self::quiet`] may become true.
    pub(super) fn deadline(&self, config: &Config) -> Option<u64> {
        let quiet =
            (config.quiet_ms > 0 && self.ping.is_none()).then(|| self.heard.saturating_add(config.quiet_ms));
        let silent = (config.silent_ms > 0).then(|| self.heard.saturating_add(config.silent_ms));
        quiet.into_iter().chain(silent).min()
    }
    /// The server is not there any more.
    pub(super) fn dead(&self, config: &Config, now: u64) -> bool {
        config.silent_ms > 0 && self.heard.saturating_add(config.silent_ms) <= now
    }
    /// Time to ask whether it is there.
    pub(super) fn quiet(&self, config: &Config, now: u64) -> bool {
        config.quiet_ms > 0 && self.ping.is_none() && self.heard.saturating_add(config.quiet_ms) <= now
    }
}
