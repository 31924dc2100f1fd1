//! The bench: measures the gateway beside two bare reference servers, round after round, each server in turn, and writes a
//! table and `target/bench/report.json`. `docs/bench.md` says how to read them. Everything that comes back is checked; what
//! is wrong ends the run with an error.

mod counted;
mod fleet;
mod plain;
mod report;
mod scenario;
mod server;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use crate::{
    report::{Promise, Report},
    scenario::Values,
    server::{Kind, Programs, Setup},
};

/// Rows that a filled store has.
const ROWS: usize = 1_000_000;
/// Size of a file that is sent, bytes: near the largest, no multiple of anything.
const FILE: usize = 8_000_000;
/// Descriptors that the load tool needs besides its devices.
const DESCRIPTORS: u64 = 200;

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// Memory of devices that do nothing.
    Idle,
    /// Texts and their echoes.
    Chat,
    /// Files both ways.
    Media,
    /// A streamed reply.
    Stream,
    /// All devices come back after a restart.
    Storm,
}

/// Measures the gateway.
#[derive(Debug, Parser)]
struct Args {
    /// Small counts and one round, in about a minute: shows that everything works, not how fast it is.
    #[arg(long)]
    quick: bool,
    /// Rounds; medians are taken over them.
    #[arg(long)]
    rounds: Option<usize>,
    /// Only these measurements.
    #[arg(long, value_delimiter = ',')]
    only: Vec<What>,
    /// Without the reference servers.
    #[arg(long)]
    alone: bool,
    /// Folder of the release binaries; default: that of this program.
    #[arg(long)]
    bin: Option<PathBuf>,
    /// The Python that has `websockets` and `uvloop`.
    #[arg(long, default_value = ".venv/bin/python")]
    python: PathBuf,
    /// Where the report goes.
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

/// Counts of a run.
#[derive(Clone, Debug, serde::Serialize)]
struct Sizes {
    rounds: usize,
    idle: Vec<usize>,
    /// The references are measured with so many idle devices.
    idle_reference: usize,
    chat_devices: usize,
    chat_texts: usize,
    rows: usize,
    files: usize,
    file_bytes: usize,
    stream_chars: usize,
    storm: usize,
}

impl Sizes {
    fn full() -> Self {
        Self {
            rounds: 5,
            idle: vec![2_000, 10_000, 19_000],
            idle_reference: 10_000,
            chat_devices: 1_000,
            chat_texts: 50,
            rows: ROWS,
            files: 32,
            file_bytes: FILE,
            stream_chars: 4_000,
            storm: 10_000,
        }
    }

    fn quick() -> Self {
        Self {
            rounds: 1,
            idle: vec![100],
            idle_reference: 100,
            chat_devices: 50,
            chat_texts: 40,
            rows: 1_000,
            files: 3,
            file_bytes: 2_000_000,
            stream_chars: 400,
            storm: 100,
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let run = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Into::into)
        .and_then(|runtime| runtime.block_on(run(&args)));
    match run {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench: {failure:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &Args) -> Result<()> {
    let mut sizes = if args.quick { Sizes::quick() } else { Sizes::full() };
    sizes.rounds = args.rounds.unwrap_or(sizes.rounds).max(1);
    let programs = programs(args)?;
    let most = sizes.idle.iter().copied().chain([sizes.storm, sizes.chat_devices]).max().unwrap_or(0);
    raise_descriptors(most as u64 + DESCRIPTORS)?;
    let scratch = tempfile::tempdir()?;
    let bench = Bench { args, sizes, programs, scratch: scratch.path() };
    let mut report = Report::default();
    report.run = json!(bench.sizes);
    bench.same_frames().await?;
    bench.measure(&mut report).await?;
    report.finish(PROMISES);
    let table = report.table();
    fs::create_dir_all(&args.out)?;
    fs::write(args.out.join("report.json"), serde_json::to_string_pretty(&report)? + "\n")?;
    fs::write(args.out.join("report.txt"), &table)?;
    println!("\n{table}");
    Ok(())
}

/// What the project promises of itself.
const PROMISES: &[Promise] = &[
    Promise {
        what: "memory of an idle device, of 10,000, bytes",
        scenario: "idle 10000",
        figure: "bytes a device",
        server: Kind::Gateway,
        under: None,
        most: 4096.0,
    },
    Promise {
        what: "the same of 2,000, through that of 10,000",
        scenario: "idle 2000",
        figure: "bytes a device",
        server: Kind::Gateway,
        under: Some(("idle 10000", Kind::Gateway)),
        most: 1.1,
    },
    Promise {
        what: "the same of 19,000, through that of 10,000",
        scenario: "idle 19000",
        figure: "bytes a device",
        server: Kind::Gateway,
        under: Some(("idle 10000", Kind::Gateway)),
        most: 1.1,
    },
    Promise {
        what: "CPU a message, on disk, through bare tokio-websockets in memory",
        scenario: "chat",
        figure: "CPU a message, µs",
        server: Kind::Gateway,
        under: Some(("chat", Kind::TokioWebsockets)),
        most: 2.5,
    },
    Promise {
        what: "the same with a million rows",
        scenario: "chat",
        figure: "CPU a message, µs",
        server: Kind::GatewayFilled,
        under: Some(("chat", Kind::TokioWebsockets)),
        most: 2.5,
    },
    Promise {
        what: "CPU a message, on disk, through bare Python websockets in memory",
        scenario: "chat",
        figure: "CPU a message, µs",
        server: Kind::Gateway,
        under: Some(("chat", Kind::PythonWebsockets)),
        most: 0.25,
    },
    Promise {
        what: "the same with a million rows",
        scenario: "chat",
        figure: "CPU a message, µs",
        server: Kind::GatewayFilled,
        under: Some(("chat", Kind::PythonWebsockets)),
        most: 0.25,
    },
    Promise {
        what: "CPU a GB of files to the server, s",
        scenario: "media",
        figure: "CPU a GB in, s",
        server: Kind::Gateway,
        under: None,
        most: 2.5,
    },
    Promise {
        what: "CPU a GB of files to the device, s",
        scenario: "media",
        figure: "CPU a GB out, s",
        server: Kind::Gateway,
        under: None,
        most: 2.5,
    },
    Promise {
        what: "bytes a character of a streamed reply, envelopes included",
        scenario: "stream",
        figure: "bytes a character",
        server: Kind::Gateway,
        under: None,
        most: 8.0,
    },
    Promise {
        what: "99 % of 10,000 ready again, through bare tokio-websockets",
        scenario: "storm",
        figure: "99 % ready again, s",
        server: Kind::Gateway,
        under: Some(("storm", Kind::TokioWebsockets)),
        most: 2.0,
    },
];

struct Bench<'a> {
    args: &'a Args,
    sizes: Sizes,
    programs: Programs,
    scratch: &'a Path,
}

impl Bench<'_> {
    fn wants(&self, what: What) -> bool {
        self.args.only.is_empty() || self.args.only.contains(&what)
    }

    /// The servers that are compared.
    fn kinds(&self) -> Vec<Kind> {
        let all = [Kind::Gateway, Kind::TokioWebsockets, Kind::PythonWebsockets];
        all.into_iter().take(if self.args.alone { 1 } else { all.len() }).collect()
    }

    /// A server over a state directory of its own.
    fn setup(&self, kind: Kind, agent: &'static str) -> Result<(Setup, tempfile::TempDir)> {
        let folder = tempfile::tempdir_in(self.scratch)?;
        let state = folder.path().join("state");
        Ok((Setup { kind, state, agent, settings: Vec::new() }, folder))
    }

    async fn same_frames(&self) -> Result<()> {
        let mut expected = None;
        for kind in self.kinds() {
            let (setup, _folder) = self.setup(kind, "echo")?;
            let frames = scenario::named(kind.name(), scenario::frames(&self.programs, &setup)).await?;
            match &expected {
                None => expected = Some(frames),
                Some(expected) => {
                    for (is, expected) in frames.iter().zip(expected) {
                        ensure!(is == expected, "{} sends {is}, the gateway {expected}", kind.name());
                    }
                }
            }
        }
        Ok(())
    }

    async fn measure(&self, report: &mut Report) -> Result<()> {
        let filled = self.scratch.join("filled");
        if self.wants(What::Chat) {
            self.fill(&filled)?;
        }
        for round in 1..=self.sizes.rounds {
            eprintln!("round {round} of {}", self.sizes.rounds);
            if self.wants(What::Idle) {
                self.idle(report).await?;
            }
            if self.wants(What::Chat) {
                self.chat(&filled, report).await?;
            }
            if self.wants(What::Media) {
                let (setup, _folder) = self.setup(Kind::Gateway, "echo")?;
                let (files, bytes) = (self.sizes.files, self.sizes.file_bytes);
                let run = scenario::upload(&self.programs, &setup, files, bytes);
                self.note(report, "media", Kind::Gateway, scenario::named("upload", run).await?);
                let (setup, _folder) = self.setup(Kind::Gateway, "echo")?;
                let run = scenario::download(&self.programs, &setup, files, bytes);
                self.note(report, "media", Kind::Gateway, scenario::named("download", run).await?);
            }
            if self.wants(What::Stream) {
                let (setup, _folder) = self.setup(Kind::Gateway, "echo")?;
                let run = scenario::stream(&self.programs, &setup, self.sizes.stream_chars);
                self.note(report, "stream", Kind::Gateway, scenario::named("stream", run).await?);
            }
            if self.wants(What::Storm) {
                for kind in self.kinds() {
                    let (setup, _folder) = self.setup(kind, "echo")?;
                    let run = scenario::storm(&self.programs, &setup, self.sizes.storm);
                    self.note(report, "storm", kind, scenario::named("storm", run).await?);
                }
            }
        }
        Ok(())
    }

    async fn idle(&self, report: &mut Report) -> Result<()> {
        for &devices in &self.sizes.idle {
            for kind in self.kinds() {
                if kind != Kind::Gateway && devices != self.sizes.idle_reference {
                    continue;
                }
                let (mut setup, _folder) = self.setup(kind, "echo")?;
                setup.settings.push(("MOBILE_PING_INTERVAL_MS", scenario::IDLE_PING.as_millis().to_string()));
                let run = scenario::idle(&self.programs, &setup, devices);
                let values = scenario::named("idle", run).await?;
                self.note(report, &format!("idle {devices}"), kind, values);
            }
        }
        Ok(())
    }

    async fn chat(&self, filled: &Path, report: &mut Report) -> Result<()> {
        for kind in self.kinds().into_iter().chain([Kind::GatewayFilled]) {
            let (mut setup, _folder) = self.setup(kind, "echo")?;
            if kind == Kind::GatewayFilled {
                // Texts have the same ids in every round: a copy knows none of them.
                copy(filled, &setup.state)?;
            }
            setup.settings.push(("MOBILE_PING_INTERVAL_MS", "25000".to_owned()));
            let run = scenario::chat(&self.programs, &setup, self.sizes.chat_devices, self.sizes.chat_texts);
            self.note(report, "chat", kind, scenario::named("chat", run).await?);
        }
        Ok(())
    }

    fn note(&self, report: &mut Report, scenario: &str, kind: Kind, values: Values) {
        let first = values.first().map(|(name, value)| format!("{name} {value:.2}")).unwrap_or_default();
        eprintln!("  {scenario}, {}: {first}", kind.name());
        report.add(scenario, kind, &values);
    }

    fn fill(&self, state: &Path) -> Result<()> {
        let done = Command::new(&self.programs.fill_store)
            .arg(state)
            .arg(self.sizes.rows.to_string())
            .stdout(Stdio::null())
            .status()
            .context("cannot run fill-store")?;
        ensure!(done.success(), "fill-store failed");
        Ok(())
    }
}

/// Copies a state directory.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()))?;
        } else {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

fn programs(args: &Args) -> Result<Programs> {
    let here = std::env::current_exe()?;
    let bin = args.bin.clone().or_else(|| here.parent().map(Path::to_path_buf)).unwrap_or_default();
    let programs = Programs {
        gateway: bin.join("hermes-mobile"),
        tokio_websockets: bin.join("ref-tokio-websockets"),
        fill_store: bin.join("fill-store"),
        python: args.python.clone(),
        python_script: Path::new(env!("CARGO_MANIFEST_DIR")).join("reference/ref_websockets.py"),
    };
    for program in [&programs.gateway, &programs.tokio_websockets, &programs.fill_store] {
        ensure!(program.is_file(), "{} is missing: `make bench` builds it", program.display());
    }
    Ok(programs)
}

/// Raises the limit of open files for this process and the servers that it starts.
fn raise_descriptors(needed: u64) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let allowed = limit.maximum.unwrap_or(u64::MAX);
    ensure!(
        allowed >= needed,
        "{needed} open files are needed and {allowed} allowed: raise the hard limit (ulimit -Hn), or use --quick"
    );
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(())
}
