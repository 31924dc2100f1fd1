//! The servers under measurement: each a process of its own, looked at from outside through `/proc`.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use serde::Serialize;

/// The token of every device here.
pub(crate) const TOKEN: &str = "bench-token-0123456789abcdef";
/// A server says within this where it listens.
const START: Duration = Duration::from_secs(30);

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// The gateway with the `echo` agent and an empty store.
    Gateway,
    /// The same over a store with many rows.
    GatewayFilled,
    /// The bare server on tokio-websockets.
    TokioWebsockets,
    /// The bare server on Python `websockets`.
    PythonWebsockets,
}

impl Kind {
    /// For a table.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::GatewayFilled => "gateway, filled",
            Self::TokioWebsockets => "tokio-websockets",
            Self::PythonWebsockets => "Python websockets",
        }
    }
}

/// Where the programs are.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) gateway: PathBuf,
    pub(crate) tokio_websockets: PathBuf,
    pub(crate) fill_store: PathBuf,
    pub(crate) python: PathBuf,
    pub(crate) python_script: PathBuf,
}

/// How a server is to be started.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) kind: Kind,
    /// The gateway's state directory.
    pub(crate) state: PathBuf,
    /// The gateway's agent.
    pub(crate) agent: &'static str,
    /// More settings of the gateway.
    pub(crate) settings: Vec<(&'static str, String)>,
}

/// A server that runs. Killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    port: u16,
}

impl Server {
    /// Starts a server on a port (0: any) and waits until it listens.
    pub(crate) fn start(programs: &Programs, setup: &Setup, port: u16) -> Result<Self> {
        let mut command = match setup.kind {
            Kind::Gateway | Kind::GatewayFilled => {
                let mut command = Command::new(&programs.gateway);
                command.args(["serve", "--port", &port.to_string(), "--agent", setup.agent, "--state"]);
                command.arg(&setup.state);
                command
            }
            Kind::TokioWebsockets => {
                let mut command = Command::new(&programs.tokio_websockets);
                command.arg(port.to_string());
                command
            }
            Kind::PythonWebsockets => {
                let mut command = Command::new(&programs.python);
                command.arg(&programs.python_script).arg(port.to_string());
                command
            }
        };
        // Nothing of the caller's own settings leaks in.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("MOBILE_") {
                command.env_remove(name);
            }
        }
        command.env("MOBILE_TOKEN", TOKEN).env("MOBILE_LOG", "warn").env("MOBILE_RATE_LIMITS", "off");
        command.envs(setup.settings.iter().map(|(name, value)| (name, value)));
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().to_string_lossy()))?;
        let Some(out) = child.stdout.take() else { bail!("no output of the server") };
        let mut server = Self { child, port };
        server.port = listening(out).with_context(|| format!("{} did not start", setup.kind.name()))?;
        Ok(server)
    }

    /// Where devices connect.
    pub(crate) fn url(&self) -> String {
        format!("ws://127.0.0.1:{}/ws", self.port)
    }

    /// Its port.
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// Processor time that it has used so far, user and system, in seconds.
    pub(crate) fn cpu_seconds(&self) -> Result<f64> {
        let stat = fs::read_to_string(self.proc("stat"))?;
        // The name in parentheses may hold anything; what follows it does not.
        let rest = stat.rsplit_once(')').context("/proc/PID/stat has no name")?.1;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // utime and stime are fields 14 and 15 of the line; the first one here is field 3.
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
        let (Some(user), Some(system)) = (ticks(11), ticks(12)) else { bail!("/proc/PID/stat is too short") };
        #[expect(clippy::cast_precision_loss, reason = "ticks of a bench fit many times")]
        Ok((user + system) as f64 / rustix::param::clock_ticks_per_second() as f64)
    }

    /// Anonymous memory that it holds, bytes (`RssAnon`).
    pub(crate) fn anonymous_bytes(&self) -> Result<u64> {
        let status = fs::read_to_string(self.proc("status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("no RssAnon")?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().context("RssAnon is no number")?;
        Ok(kib * 1024)
    }

    /// Ends it at once, as a crash would.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    fn proc(&self, file: &str) -> PathBuf {
        Path::new("/proc").join(self.child.id().to_string()).join(file)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have been killed before; then both say so, which changes nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for the line that names the port; what is printed later is read and thrown away.
fn listening(out: ChildStdout) -> Result<u16> {
    let (found, port) = mpsc::channel();
    thread::Builder::new().name("output".to_owned()).spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            let port = line.strip_prefix("listening on ").and_then(|address| address.rsplit_once(':'));
            if let Some(port) = port.and_then(|(_, port)| port.trim().parse::<u16>().ok()) {
                // Nobody waits any more only if the start was given up.
                let _ = found.send(port);
            }
        }
    })?;
    port.recv_timeout(START).context("no line `listening on …` came")
}
