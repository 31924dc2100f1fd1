//! Many devices on the project's own client, which connects again by itself; what happens to each is noted.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};
use client::{
    core::{Config, Device, Event},
    net::{self, Session},
};
use tokio::{sync::Notify, task::JoinSet, time::timeout};

use crate::{plain::PATIENCE, server::TOKEN};

/// So many devices connect at once.
const AT_ONCE: usize = 256;

/// What happened to one device.
#[derive(Debug, Default)]
struct Log {
    /// How often it was ready.
    ready: AtomicU32,
    /// When it was ready last, microseconds since the fleet's start.
    at: AtomicU64,
    /// Its text came back.
    echoed: AtomicU32,
}

#[derive(Debug)]
struct Shared {
    start: Instant,
    logs: Vec<Log>,
    /// `ready` of all devices together.
    ready: AtomicUsize,
    /// Texts that came back.
    echoed: AtomicUsize,
    /// Connections that ended.
    lost: AtomicUsize,
    /// What must never happen: refusals, errors, damaged frames, wrong sessions, wrong texts.
    wrong: AtomicUsize,
    /// A sample of it.
    example: std::sync::Mutex<String>,
    changed: Notify,
}

impl Shared {
    fn is_wrong(&self, what: String) {
        self.wrong.fetch_add(1, Ordering::Relaxed);
        if let Ok(mut example) = self.example.lock() {
            *example = what;
        }
    }
}

/// See the module.
pub(crate) struct Fleet {
    sessions: Vec<Session>,
    shared: Arc<Shared>,
}

impl Fleet {
    /// Connects so many devices and waits until each is ready.
    pub(crate) async fn connect(url: &str, many: usize) -> Result<Self> {
        let shared = Arc::new(Shared {
            start: Instant::now(),
            logs: (0..many).map(|_| Log::default()).collect(),
            ready: AtomicUsize::new(0),
            echoed: AtomicUsize::new(0),
            lost: AtomicUsize::new(0),
            wrong: AtomicUsize::new(0),
            example: std::sync::Mutex::default(),
            changed: Notify::new(),
        });
        let mut fleet = Self { sessions: Vec::with_capacity(many), shared };
        for number in 0..many {
            let mut config = Config::new(net::seed()?);
            config.token = Some(TOKEN.to_owned());
            config.device = Some(Device { id: name(number), name: None, platform: None, app_version: None });
            let (session, events) = net::start(config, url)?;
            tokio::spawn(watch(number, events, Arc::clone(&fleet.shared)));
            fleet.sessions.push(session);
            if (number + 1) % AT_ONCE == 0 || number + 1 == many {
                fleet.wait_for(PATIENCE, |shared| shared.ready.load(Ordering::Relaxed) > number).await?;
            }
        }
        fleet.check(0)?;
        Ok(fleet)
    }

    /// Waits until something is true of all that happened.
    async fn wait_for(&self, patience: Duration, done: impl Fn(&Shared) -> bool) -> Result<()> {
        let all = async {
            loop {
                let changed = self.shared.changed.notified();
                if done(&self.shared) {
                    return;
                }
                changed.await;
            }
        };
        if timeout(patience, all).await.is_err() {
            let ready = self.shared.ready.load(Ordering::Relaxed);
            bail!("only {ready} times ready after {patience:?}; {} wrong: {}", self.wrong(), self.example());
        }
        Ok(())
    }

    fn wrong(&self) -> usize {
        self.shared.wrong.load(Ordering::Relaxed)
    }

    fn example(&self) -> String {
        self.shared.example.lock().map(|example| example.clone()).unwrap_or_default()
    }

    /// Fails if anything went wrong, or if more connections were lost than were cut on purpose.
    pub(crate) fn check(&self, cuts: usize) -> Result<()> {
        ensure!(self.wrong() == 0, "{} things went wrong, for example {}", self.wrong(), self.example());
        let lost = self.shared.lost.load(Ordering::Relaxed);
        ensure!(lost == cuts, "{lost} connections were lost, {cuts} were cut");
        Ok(())
    }

    /// Every device says something and gets exactly that back.
    pub(crate) async fn say(&self) -> Result<()> {
        for (number, session) in self.sessions.iter().enumerate() {
            session.send_text(words(number)).await?;
        }
        self.wait_for(PATIENCE, |shared| shared.echoed.load(Ordering::Relaxed) >= shared.logs.len()).await?;
        let each = self.shared.logs.iter().all(|log| log.echoed.load(Ordering::Relaxed) == 1);
        ensure!(each, "some device got its text twice or not at all");
        Ok(())
    }

    /// After a cut of all connections at `cut`: waits until every device is ready once more, and returns after how many
    /// seconds 99 % were, and all.
    pub(crate) async fn again(&self, cut: Instant, patience: Duration) -> Result<(f64, f64)> {
        self.wait_for(patience, |shared| shared.ready.load(Ordering::Relaxed) >= 2 * shared.logs.len())
            .await?;
        let cut = cut.duration_since(self.shared.start);
        let mut times = Vec::with_capacity(self.shared.logs.len());
        for (number, log) in self.shared.logs.iter().enumerate() {
            let (ready, at) = (log.ready.load(Ordering::Relaxed), log.at.load(Ordering::Relaxed));
            ensure!(ready == 2, "{} was ready {ready} times, not twice", name(number));
            times.push(Duration::from_micros(at).saturating_sub(cut).as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        let at = |share: usize| times.get((times.len() * share).div_ceil(100).saturating_sub(1)).copied();
        match (at(99), at(100)) {
            (Some(most), Some(all)) => Ok((most, all)),
            _ => bail!("no devices"),
        }
    }

    /// Ends all connections in order.
    pub(crate) async fn close(self) {
        let mut closing = JoinSet::new();
        for session in self.sessions {
            closing.spawn(async move { session.close().await });
        }
        closing.join_all().await;
    }
}

fn name(number: usize) -> String {
    format!("device-{number}")
}

fn words(number: usize) -> String {
    format!("The words of device {number}.")
}

/// Notes what happens to a device.
async fn watch(number: usize, mut events: net::Events, shared: Arc<Shared>) {
    let Some(log) = shared.logs.get(number) else { return };
    while let Some(event) = events.next().await {
        match event {
            Event::Ready(ready) if ready.session == format!("mobile:{}", name(number)) => {
                let at = shared.start.elapsed().as_micros();
                log.at.store(u64::try_from(at).unwrap_or(u64::MAX), Ordering::Relaxed);
                log.ready.fetch_add(1, Ordering::Relaxed);
                shared.ready.fetch_add(1, Ordering::Relaxed);
            }
            Event::Message(message) if message.text == words(number) && message.last => {
                log.echoed.fetch_add(1, Ordering::Relaxed);
                shared.echoed.fetch_add(1, Ordering::Relaxed);
            }
            // A connection that was never ready is not lost: the attempt is repeated.
            Event::Offline { why: client::core::Why::Connect { .. } | client::core::Why::Late, .. } => {}
            Event::Offline { .. } => {
                shared.lost.fetch_add(1, Ordering::Relaxed);
            }
            Event::Connecting | Event::Accepted { .. } | Event::Stopped => {}
            other => shared.is_wrong(format!("{}: {other:?}", name(number))),
        }
        shared.changed.notify_one();
    }
}
