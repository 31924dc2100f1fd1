//! Start and stop of a gateway, each a named sequence.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use delivery::{Core, Settings};
use protocol::words::Lang;
use store::{Sqlite, Start, Store, StoreError};
use tokio::{
    net::{TcpListener, lookup_host},
    sync::{mpsc, oneshot},
    task::{JoinError, JoinHandle, spawn_blocking},
    time::{Instant, timeout, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    agents,
    clock::Clock,
    config::{Config, Secret},
    conn::Shared,
    disk::Disk,
    health::Health,
    http,
    hub::Hub,
    inlet::{Inlet, Inside},
    metrics::{Metrics, Timed},
    routes::{App, MetricsDoor, router},
    sockets::{Sockets, raise_descriptor_limit},
    token::{TokenError, owner_token, random, token_file},
};

/// What is left for the last things (agents, store) when the time for a stop is over.
const LAST: Duration = Duration::from_secs(5);

/// Why a gateway did not start. Each text says what to do; starting again without doing it changes nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {why}. {advice}")]
    Listen {
        /// Host and port as configured.
        address: String,
        /// What the system says.
        why: io::Error,
        /// What to do.
        advice: &'static str,
    },
    /// The state directory or the store in it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The system has no threads or the like.
    #[error("the gateway cannot start: {0}")]
    System(String),
}

impl StartError {
    /// The text in a language.
    #[must_use]
    pub fn text(&self, lang: Lang) -> String {
        match (self, lang) {
            (Self::Store(e), _) => e.text(lang),
            (_, Lang::En) => self.to_string(),
            (Self::Listen { address, why, .. }, Lang::Ru) => {
                let advice = match why.kind() {
                    io::ErrorKind::AddrInUse => {
                        "Порт занят другой программой (другим шлюзом?): остановите её или выберите другой порт: --port"
                    }
                    io::ErrorKind::PermissionDenied => {
                        "Для портов ниже 1024 нужны права: выберите другой: --port"
                    }
                    _ => "Проверьте --host и --port",
                };
                format!("нельзя слушать {address}: {why}. {advice}")
            }
            (Self::Token(e), Lang::Ru) => e.russian(),
            (Self::System(why), Lang::Ru) => format!("шлюз не может запуститься: {why}"),
        }
    }
}

/// A stop that did not go well. What was accepted is on disk all the same.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StopError {
    /// A part of the gateway failed; a bug.
    #[error("the gateway failed: {0}")]
    Failed(String),
    /// The store did not finish in time.
    #[error("the store did not finish within the time for a stop; what was accepted before is on disk")]
    Late,
}

/// The gateway.
#[derive(Debug)]
pub struct Gateway;

/// Asks a gateway to stop. Can be cloned and used from anywhere.
#[derive(Clone, Debug)]
pub struct Shutdown(CancellationToken);

impl Shutdown {
    /// Begins the stop; [`Running::join`] tells when it is complete. More calls change nothing.
    pub fn stop(&self) {
        self.0.cancel();
    }
}

/// Asks a gateway whether it works, for a watchdog. Can be cloned and used from anywhere.
#[derive(Clone, Debug)]
pub struct Probe(mpsc::UnboundedSender<Inside>);

impl Probe {
    /// Whether the hub and the store answer within this time. A store that fails answers; one that hangs does not.
    pub async fn answers(&self, within: Duration) -> bool {
        let (answer, answered) = oneshot::channel();
        self.0.send(Inside::Probe(answer)).is_ok() && timeout(within, answered).await.is_ok_and(|a| a.is_ok())
    }
}

/// A gateway that runs.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    state_dir: PathBuf,
    token: Secret,
    token_file: Option<PathBuf>,
    shutdown: Shutdown,
    probe: Probe,
    end: JoinHandle<Result<(), StopError>>,
}

impl Running {
    /// Where it listens; the port is the real one, also when 0 was asked for.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
    /// Where its state is.
    #[must_use]
    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }
    /// The owner's token.
    #[must_use]
    pub const fn token(&self) -> &Secret {
        &self.token
    }
    /// The file that holds the token, if it is not from the configuration.
    #[must_use]
    pub fn token_file(&self) -> Option<&Path> {
        self.token_file.as_deref()
    }
    /// To stop it.
    #[must_use]
    pub fn shutdown(&self) -> Shutdown {
        self.shutdown.clone()
    }
    /// To ask whether it works.
    #[must_use]
    pub fn probe(&self) -> Probe {
        self.probe.clone()
    }
    /// Waits until it has stopped.
    ///
    /// # Errors
    /// [`StopError`].
    pub async fn join(self) -> Result<(), StopError> {
        self.end.await.unwrap_or_else(|e| Err(StopError::Failed(e.to_string())))
    }
}

impl Gateway {
    /// Starts a gateway on the running tokio runtime.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running then.
    pub async fn start(config: Config) -> Result<Running, StartError> {
        let descriptors = raise_descriptor_limit();
        // The state first: it is what two gateways must not share.
        let opened = open(&config).await?;
        let listener = listen(&config).await?;
        let address = listener.local_addr().map_err(|e| StartError::System(e.to_string()))?;
        let clock = Clock::start();
        let (inlet, outside, inside, from_inside) = Inlet::new();
        let metrics = Metrics::new();
        let store = Timed { store: opened.store, metrics: Arc::clone(&metrics) };
        let disk = Disk::start(&opened.dir, Box::new(store), inside.clone())?;
        let health = Arc::new(Health::default());
        let token = opened.token.clone();
        let core = Core::new(settings(&config, &token, opened.start.clone())?, clock.now());
        let mut hub = Hub {
            core,
            clock,
            media: disk.media_dir(),
            disk,
            health: Arc::clone(&health),
            metrics: Arc::clone(&metrics),
            state: crate::hub::State::default(),
        };
        hub.begin(opened.start.wake);
        let hub = tokio::spawn(hub.run(outside, from_inside));

        let stop = CancellationToken::new();
        let stop_agents = CancellationToken::new();
        let choice = config.agent;
        let agent = tokio::spawn(agents::keep(
            move || agents::make(choice),
            format!("embedded-{}", choice.name()),
            inlet.clone(),
            clock,
            stop_agents.clone(),
        ));
        let tasks = TaskTracker::new();
        let app = App {
            shared: Shared::new(inlet, &config),
            health,
            metrics: MetricsDoor { metrics, hub: inside.clone(), token: config.metrics_token.clone() },
            trusted: config.trusted_proxies.clone(),
            tasks: tasks.clone(),
        };
        let sockets = Sockets::new(descriptors);
        let accept =
            tokio::spawn(http::accept(listener, router(Arc::new(app)), sockets, stop.clone(), tasks.clone()));
        let probe = Probe(inside.clone());
        let parts = Parts { stop: stop.clone(), stop_agents, inside, hub, agent, accept, tasks };
        let end = tokio::spawn(parts.end(Duration::from_millis(config.drain_ms)));
        Ok(Running {
            address,
            token_file: config.token.is_none().then(|| token_file(&opened.dir)),
            state_dir: opened.dir,
            token,
            shutdown: Shutdown(stop),
            probe,
            end,
        })
    }
}

/// The owner's token of a configuration; made in its state directory if there is none yet. Needs no running gateway
/// and disturbs none.
///
/// # Errors
/// [`StartError::Store`], [`StartError::Token`].
pub fn token_of(config: &Config) -> Result<Secret, StartError> {
    match &config.token {
        Some(token) => Ok(token.clone()),
        None => Ok(owner_token(&store::prepare(&config.state_dir)?)?),
    }
}

/// The state directory, opened.
struct Opened {
    dir: PathBuf,
    store: Box<dyn Store>,
    start: Start,
    token: Secret,
}

/// Opens the state directory, on a thread that may wait for the disk.
async fn open(config: &Config) -> Result<Opened, StartError> {
    let dir = config.state_dir.clone();
    let token = config.token.clone();
    let open = move || -> Result<Opened, StartError> {
        let dir = store::prepare(&dir)?;
        let mut store = Sqlite::open(&dir)?;
        let start = store.start()?;
        // After the lock: a gateway that is refused makes nothing.
        let token = match token {
            Some(token) => token,
            None => owner_token(&dir)?,
        };
        Ok(Opened { dir, store: Box::new(store), start, token })
    };
    spawn_blocking(open).await.map_err(|e| StartError::System(e.to_string()))?
}

async fn listen(config: &Config) -> Result<TcpListener, StartError> {
    let fail = |why: io::Error| {
        let advice = match why.kind() {
            io::ErrorKind::AddrInUse => {
                "Another program (another gateway?) has this port: stop it, or choose another with --port"
            }
            io::ErrorKind::PermissionDenied => {
                "Ports below 1024 need a privilege: choose another with --port"
            }
            _ => "Check --host and --port",
        };
        StartError::Listen { address: format!("{}:{}", config.host, config.port), why, advice }
    };
    let addresses: Vec<SocketAddr> =
        lookup_host((config.host.as_str(), config.port)).await.map_err(fail)?.collect();
    TcpListener::bind(addresses.as_slice()).await.map_err(fail)
}

/// The core's settings.
fn settings(config: &Config, token: &Secret, start: Start) -> Result<Settings, StartError> {
    let reveal = |secret: &Secret| secret.reveal().to_owned();
    let limited = |limit: u32| if config.rate_limits { limit } else { 0 };
    Ok(Settings {
        lang: config.lang,
        avatar_url: config.avatar_url.clone(),
        chunk_chars: config.chunk_limit,
        idle_after_ms: config.idle_after_ms,
        home_device: config.home_device.clone(),
        hello_ms: config.hello_timeout_ms,
        series_idle_ms: config.series_idle_ms,
        wait_ms: config.wait_ms,
        take_ms: config.take_ms,
        deliver_ms: config.deliver_ms,
        silent_ms: config.agent_silent_ms,
        queue_bytes: config.queue_bytes,
        frames_per_second: limited(config.frames_per_second),
        frames_burst: config.frames_burst,
        bytes_per_second: if config.rate_limits { config.bytes_per_second } else { 0 },
        lockout_after: limited(config.lockout_after),
        lockout_ms: config.lockout_ms,
        spool_bytes: config.spool_bytes,
        access: session::Access {
            owner: reveal(token),
            extra: config.extra_tokens.iter().map(|(device, t)| (device.clone(), reveal(t))).collect(),
            deliver: config.deliver_tokens.iter().map(reveal).collect(),
            allowed: config.allowed_devices.clone(),
            deliver_loopback: config.deliver_loopback,
        },
        seed: random()?,
        secret: start.secret,
        epoch: start.epoch,
        next_pos: start.next_pos,
        next_device: start.next_device,
    })
}

/// What a stop has to bring to an end.
struct Parts {
    stop: CancellationToken,
    stop_agents: CancellationToken,
    inside: mpsc::UnboundedSender<Inside>,
    hub: JoinHandle<Disk>,
    agent: JoinHandle<()>,
    accept: JoinHandle<()>,
    tasks: TaskTracker,
}

impl Parts {
    /// Waits for the stop, then: no new connections; the open ones told to come back (1012), spread out; the agent
    /// stopped; the store flushed.
    async fn end(mut self, time: Duration) -> Result<(), StopError> {
        let failed = |e: JoinError| StopError::Failed(e.to_string());
        tokio::select! {
            () = self.stop.cancelled() => {}
            // The hub ends only after a stop; without one it has failed, and the rest is useless.
            ended = &mut self.hub => {
                self.stop.cancel();
                self.stop_agents.cancel();
                return Err(ended.err().map_or_else(|| StopError::Failed("the hub ended".to_owned()), failed));
            }
        }
        let deadline = Instant::now() + time;
        tracing::info!("stopping: connections are closed");
        let _ = self.accept.await;
        let _ = self.inside.send(Inside::Drain(deadline));
        let disk = self.hub.await.map_err(failed)?;
        // Sockets still on their way out (a client that does not answer the close) get what is left of the time.
        self.tasks.close();
        let _ = timeout_at(deadline, self.tasks.wait()).await;
        self.stop_agents.cancel();
        let _ = timeout_at(deadline + LAST, self.agent).await;
        let flushed = timeout_at(deadline + LAST, spawn_blocking(move || disk.close())).await;
        match flushed {
            Ok(done) => done.map_err(failed),
            Err(_) => Err(StopError::Late),
        }
    }
}
