//! Servers that the checker starts itself.

use std::{
    collections::BTreeMap,
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use futures_util::future::BoxFuture;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::timeout,
};

/// A start, or a stop, takes at most so long.
const WITHIN: Duration = Duration::from_secs(30);

/// Puts something between the checker and a server: gets the server's address, gives the one to connect to.
pub type Through = Arc<dyn Fn(SocketAddr) -> BoxFuture<'static, io::Result<SocketAddr>> + Send + Sync>;

/// Why a server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The system refuses something.
    #[error("{what}: {why}")]
    Io {
        /// What was tried.
        what: String,
        /// Why not.
        #[source]
        why: io::Error,
    },
    /// It ended, or said nothing in 30 s; with the end of what it logged.
    #[error("{bin} does not start: {log}")]
    Start {
        /// The program.
        bin: String,
        /// Its last lines.
        log: String,
    },
    /// It does not end in 30 s.
    #[error("the server does not stop")]
    Stuck,
}

/// How a server is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// SIGTERM; it ends by itself.
    Term,
    /// SIGKILL.
    Kill,
}

/// A running `BIN serve` with a state directory of its own, which goes when it goes.
pub(crate) struct Server {
    bin: PathBuf,
    env: BTreeMap<String, String>,
    through: Option<Through>,
    state: TempDir,
    child: Child,
    address: SocketAddr,
    url: String,
}

fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> ServerError {
    let what = what.into();
    move |why| ServerError::Io { what, why }
}

impl Server {
    /// Starts `bin serve` on a free port with these variables; none of the caller's `MOBILE_…` is handed on.
    ///
    /// # Errors
    /// [`ServerError`].
    pub(crate) async fn start(
        bin: &Path,
        env: BTreeMap<String, String>,
        through: Option<Through>,
    ) -> Result<Self, ServerError> {
        let state = tempfile::tempdir().map_err(failed("a temporary directory"))?;
        let (child, address) = launch(bin, &env, state.path()).await?;
        let mut server = Self { bin: bin.into(), env, through, state, child, address, url: String::new() };
        server.url = server.reach().await?;
        Ok(server)
    }

    async fn reach(&self) -> Result<String, ServerError> {
        let address = match &self.through {
            Some(through) => {
                through(self.address).await.map_err(failed("what stands in front of the server"))?
            }
            None => self.address,
        };
        Ok(format!("ws://{address}/ws"))
    }

    /// Where it listens itself.
    #[must_use]
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The WebSocket address to use.
    #[must_use]
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Stops it and starts it again on the same state; the address changes.
    ///
    /// # Errors
    /// [`ServerError`].
    pub(crate) async fn restart(&mut self, stop: Stop) -> Result<(), ServerError> {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        match (stop, pid) {
            (Stop::Term, Some(pid)) => {
                kill_process(pid, Signal::TERM).map_err(|e| failed("SIGTERM")(e.into()))?;
                timeout(WITHIN, self.child.wait())
                    .await
                    .map_err(|_| ServerError::Stuck)?
                    .map_err(failed("wait"))?;
            }
            _ => self.child.kill().await.map_err(failed("SIGKILL"))?,
        }
        (self.child, self.address) = launch(&self.bin, &self.env, self.state.path()).await?;
        self.url = self.reach().await?;
        Ok(())
    }
}

/// Starts it and waits until it says where it listens.
async fn launch(
    bin: &Path,
    env: &BTreeMap<String, String>,
    state: &Path,
) -> Result<(Child, SocketAddr), ServerError> {
    let log = state.join("check.log");
    let errors = fs::File::create(&log).map_err(failed(log.display().to_string()))?;
    let inherited = std::env::vars_os().filter(|(name, _)| !name.to_string_lossy().starts_with("MOBILE_"));
    let mut child = Command::new(bin)
        .args(["serve", "--port", "0", "--state"])
        .arg(state.join("state"))
        .env_clear()
        .envs(inherited)
        .envs(env)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors)
        .kill_on_drop(true)
        .spawn()
        .map_err(failed(bin.display().to_string()))?;
    let address = match child.stdout.take() {
        Some(out) => timeout(WITHIN, listening(BufReader::new(out))).await.ok().flatten(),
        None => None,
    };
    let Some(address) = address else {
        let text = fs::read_to_string(&log).unwrap_or_default();
        let last: Vec<&str> = text.lines().rev().take(5).collect();
        let log = last.into_iter().rev().collect::<Vec<_>>().join("\n");
        return Err(ServerError::Start { bin: bin.display().to_string(), log });
    };
    Ok((child, address))
}

/// The address in the line `listening on http://ADDRESS`. What it says later is read and dropped.
async fn listening(out: BufReader<tokio::process::ChildStdout>) -> Option<SocketAddr> {
    let mut lines = out.lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let address = line.strip_prefix("listening on http://").and_then(|a| a.trim().parse().ok());
        if let Some(address) = address {
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Some(address);
        }
    }
    None
}
