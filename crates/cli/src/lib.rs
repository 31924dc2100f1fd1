//! The command `hermes-mobile`. One file a subcommand.

mod chat;
mod check;
mod completions;
mod config;
mod exit;
mod notify;
mod reference;
mod send;
mod serve;
mod store;
mod target;
mod time;
mod token;
mod trace;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::{CommandFactory, Parser, Subcommand};
use protocol::words::Lang;

/// A gateway between the apps of people and their AI agents / шлюз между приложениями людей и их ИИ-агентами
#[derive(Debug, Parser)]
#[command(name = "hermes-mobile", version, after_help = exit::help())]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway / запустить шлюз
    Serve(serve::Args),
    /// Print the owner's token, made if there is none yet / показать токен владельца (создаётся, если его нет)
    Token(token::Args),
    /// Talk with the agent line by line / разговор с агентом построчно
    Chat(chat::Args),
    /// Send a message to a device / отправить сообщение на устройство
    Send(send::Args),
    /// Check a server against the acceptance checklist / проверить сервер по чек-листу приёмки
    Check(check::Args),
    /// Settings: an example, a check, the reference / настройки: пример, проверка, справочник
    Config(config::Args),
    /// What is kept: check it, count it, back it up / хранилище: проверить, посчитать, скопировать
    Store(store::Args),
    /// Where a message has been, and when, without its words / где и когда побывало сообщение, без его слов
    Trace(trace::Args),
    /// Print completions for a shell / напечатать дополнения для оболочки
    Completions(completions::Args),
}

/// Runs the command that the process was started with.
#[must_use]
pub fn run() -> ExitCode {
    match Cli::parse().command {
        Command::Serve(args) => serve::run(&args),
        Command::Token(args) => token::run(&args),
        Command::Chat(args) => chat::run(&args),
        Command::Send(args) => send::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Config(args) => config::run(&args),
        Command::Store(args) => store::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Completions(args) => completions::run(&args),
    }
}

/// The reference page in a language: commands, exit codes, settings and metrics, in Markdown.
#[must_use]
pub fn reference(lang: Lang) -> String {
    reference::page(&Cli::command(), lang)
}

/// The flag for the language, for commands that say something to a person.
#[derive(Debug, clap::Args)]
pub(crate) struct Language {
    /// Language of all texts: ru, en / язык всех текстов: ru, en
    #[arg(long, value_parser = ["ru", "en"])]
    lang: Option<String>,
}

impl Language {
    /// The one asked for, else that of the person at this terminal.
    pub(crate) fn get(&self) -> Lang {
        self.lang.as_deref().and_then(Lang::from_tag).unwrap_or_else(lang)
    }
}

/// Flags that name a state directory on this machine.
#[derive(Debug, clap::Args)]
pub(crate) struct State {
    /// State directory of the gateway / каталог состояния шлюза
    #[arg(long, value_name = "DIR")]
    state: Option<String>,
    /// Configuration file of the gateway, TOML / файл настроек шлюза
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl State {
    /// The directory by flag, variable, file or default.
    ///
    /// # Errors
    /// A configuration that `serve` would refuse.
    pub(crate) fn dir(&self) -> Result<PathBuf, gateway::config::ConfigError> {
        let flags: Vec<(&str, String)> = self.state.iter().map(|dir| ("state_dir", dir.clone())).collect();
        let loaded = gateway::config::load(self.config.as_deref(), std::env::vars_os(), &flags)?;
        Ok(loaded.config.state_dir)
    }
}

/// Prints on standard output. Nobody may be reading any more (`| head`), which is no failure.
pub(crate) fn print(text: &str) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => fail(exit::FAILURE, &e.to_string()),
        _ => ExitCode::SUCCESS,
    }
}

/// The language of the person at this terminal: `MOBILE_LANG`, else the locale's if it is Russian, else English.
pub(crate) fn lang() -> Lang {
    let from = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    if let Some(lang) = from("MOBILE_LANG").and_then(|tag| Lang::from_tag(&tag)) {
        return lang;
    }
    let locale = ["LC_ALL", "LC_MESSAGES", "LANG"].into_iter().find_map(from);
    locale.and_then(|tag| Lang::from_tag(&tag)).unwrap_or(Lang::En)
}

/// One of two texts.
pub(crate) const fn say(lang: Lang, ru: &'static str, en: &'static str) -> &'static str {
    match lang {
        Lang::Ru => ru,
        Lang::En => en,
    }
}

/// Says why the command fails, and with which code.
pub(crate) fn fail(code: u8, text: &str) -> ExitCode {
    eprintln!("hermes-mobile: {text}");
    ExitCode::from(code)
}
