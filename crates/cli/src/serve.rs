//! `hermes-mobile serve`: the gateway as a process.

use std::{
    fs,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use gateway::{
    Config, Gateway, Running, StartError,
    config::{self, Loaded},
};
use protocol::words::Lang;
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::{exit, fail, lang, notify, say};

const HELP: &str = "\
Every other setting has a variable MOBILE_… and a key in the file; `hermes-mobile config example` lists them. A flag
wins over the variable, the variable over the file. Ctrl-C or SIGTERM stops the gateway; what was accepted is kept.
У остальных настроек есть переменные MOBILE_… и ключи в файле, их покажет `hermes-mobile config example`. Ключ команды
важнее переменной, переменная важнее файла. Ctrl-C или SIGTERM останавливает шлюз; принятое сохраняется.
Exit codes / коды выхода: hermes-mobile --help";

/// Flags of `serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    settings: Flags,
    /// Write the port to this file once the gateway listens / записать порт в файл
    #[arg(long, value_name = "FILE")]
    port_file: Option<PathBuf>,
}

/// Flags for settings. Each wins over its variable (`MOBILE_HOST` and so on) and the configuration file.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Address to listen on [default: 127.0.0.1] / адрес
    #[arg(long)]
    host: Option<String>,
    /// Port to listen on, 0: any free one [default: 8787] / порт
    #[arg(long)]
    port: Option<String>,
    /// Directory for everything that is kept [default: ~/.local/state/hermes-mobile] / каталог состояния
    #[arg(long, value_name = "DIR")]
    state: Option<String>,
    /// Configuration file, TOML / файл настроек
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Embedded agent: demo, echo, none [default: demo] / встроенный агент
    #[arg(long)]
    agent: Option<String>,
}

impl Flags {
    /// The configuration with these flags, the environment and the file; and what is to be logged.
    ///
    /// # Errors
    /// A text for the person, in this language.
    pub(crate) fn load(&self, lang: Lang) -> Result<(Loaded, EnvFilter), String> {
        let all =
            [("host", &self.host), ("port", &self.port), ("state_dir", &self.state), ("agent", &self.agent)];
        let flags: Vec<(&str, String)> =
            all.into_iter().filter_map(|(key, value)| Some((key, value.clone()?))).collect();
        let loaded =
            config::load(self.config.as_deref(), std::env::vars_os(), &flags).map_err(|e| e.text(lang))?;
        let filter = log_filter(&loaded.config.log, lang)?;
        Ok((loaded, filter))
    }
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let (loaded, filter) = match args.settings.load(lang()) {
        Ok(loaded) => loaded,
        Err(e) => return fail(exit::USAGE, &e),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
    for warning in &loaded.warnings {
        // The log is English, whoever reads it.
        tracing::warn!("{}", warning.en);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return fail(exit::FAILURE, &format!("the system gives no threads: {e}")),
    };
    runtime.block_on(serve(loaded.config, args.port_file.as_deref()))
}

fn log_filter(filter: &str, lang: Lang) -> Result<EnvFilter, String> {
    EnvFilter::try_new(filter).map_err(|e| {
        let allowed = config::SETTINGS.iter().find(|s| s.key == "log").map(|s| s.allowed.text(lang));
        format!("MOBILE_LOG: {filter:?}: {e}: {}", allowed.unwrap_or_default())
    })
}

async fn serve(config: Config, port_file: Option<&Path>) -> ExitCode {
    let agent = config.agent.name();
    // Before the gateway listens, so that an early signal is not the default's sudden death.
    let signals = Signals::new();
    let running = match Gateway::start(config).await {
        Ok(running) => running,
        Err(e) => {
            let code = match &e {
                StartError::Listen { .. } => exit::LISTEN,
                StartError::Store(_) | StartError::Token(_) => exit::STATE,
                _ => exit::FAILURE,
            };
            return fail(code, &e.text(lang()));
        }
    };
    let mut signals = match signals {
        Ok(signals) => signals,
        Err(e) => return fail(exit::FAILURE, &format!("signals cannot be handled: {e}")),
    };
    if let Some(path) = port_file
        && let Err(e) = write_port(path, running.address().port())
    {
        let next =
            say(lang(), "файл нельзя записать, укажите другой", "the file cannot be written, name another");
        return fail(exit::FAILURE, &format!("--port-file {}: {next}: {e}", path.display()));
    }
    greet(&running, agent);
    notify::tell(NotifyState::Ready);
    let watchdog = tokio::spawn(notify::watch(running.probe()));

    let shutdown = running.shutdown();
    let end = running.join();
    tokio::pin!(end);
    let ended = tokio::select! {
        ended = &mut end => ended,
        () = signals.next() => {
            notify::tell(NotifyState::Stopping);
            watchdog.abort();
            shutdown.stop();
            tokio::select! {
                ended = &mut end => ended,
                // Whoever asks twice means it. What was accepted is on disk.
                () = signals.next() => return fail(exit::FAILURE, "stopped at once"),
            }
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => fail(exit::FAILURE, &e.to_string()),
    }
}

/// What asks for a stop: SIGTERM, SIGINT, and the terminal going away.
struct Signals {
    all: [Signal; 3],
}

impl Signals {
    fn new() -> io::Result<Self> {
        let [a, b, c] = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
        Ok(Self { all: [a?, b?, c?] })
    }
    async fn next(&mut self) {
        let [terminate, interrupt, hangup] = &mut self.all;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

/// Whole or not at all, for whoever waits for the file.
fn write_port(path: &Path, port: u16) -> io::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    fs::write(&draft, format!("{port}\n"))?;
    fs::rename(&draft, path)
}

/// Says where the gateway is. The first line has a fixed form, for scripts; the token is shown on a terminal only.
fn greet(running: &Running, agent: &str) {
    let mut out = io::stdout().lock();
    let address = running.address();
    let shown = if out.is_terminal() { Some(running.token().reveal()) } else { None };
    let token = match (running.token_file(), shown) {
        (None, _) => "MOBILE_TOKEN".to_owned(),
        (Some(file), Some(token)) => format!("{token}  ({})", file.display()),
        (Some(file), None) => file.display().to_string(),
    };
    let token_in_example = match (running.token_file(), shown) {
        (Some(_), Some(token)) => token,
        _ => "<token>",
    };
    let state = running.state_dir().display();
    let [url, token_is, agent_is, state_is, example] = match lang() {
        Lang::Ru => [
            "адрес  ",
            "токен  ",
            "агент  ",
            "данные ",
            "Проверка (npm i -g wscat), вторая строка вводится после подключения:",
        ],
        Lang::En => [
            "address",
            "token  ",
            "agent  ",
            "state  ",
            "Try it (npm i -g wscat), the second line is typed once connected:",
        ],
    };
    let text = format!(
        "listening on http://{address}\n\
         {url}  ws://{address}/ws\n\
         {token_is}  {token}\n\
         {agent_is}  {agent}\n\
         {state_is}  {state}\n\
         {example}\n  \
         wscat -c ws://{address}/ws\n  \
         {{\"t\":\"hello\",\"token\":\"{token_in_example}\",\"device\":{{\"id\":\"qa-1\"}}}}\n"
    );
    // Nobody may be reading; the gateway runs all the same.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
