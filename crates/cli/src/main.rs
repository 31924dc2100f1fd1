//! The command `hermes-mobile`. One file a subcommand.

mod serve;
mod token;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use protocol::words::Lang;

/// How the command ends. The table is part of the command's help.
pub(crate) mod exit {
    /// Something failed that none of the others names.
    pub(crate) const FAILURE: u8 = 1;
    /// Wrong usage or configuration; clap uses the same.
    pub(crate) const USAGE: u8 = 2;
    /// The address cannot be listened on.
    pub(crate) const LISTEN: u8 = 3;
    /// The state directory or what is in it cannot be used.
    pub(crate) const STATE: u8 = 4;
}

const EXIT_CODES: &str = "\
Exit codes / коды выхода:
  0  done / готово
  1  failure / ошибка
  2  wrong usage or configuration / неверные аргументы или настройки
  3  cannot listen on the address / нельзя слушать адрес
  4  the state directory cannot be used / каталог состояния нельзя использовать
With 2, 3 and 4 starting again helps only after what the message says was done.
При 2, 3 и 4 повторный запуск поможет только после того, что сказано в сообщении.";

/// A gateway between the apps of people and their AI agents / шлюз между приложениями людей и их ИИ-агентами
#[derive(Debug, Parser)]
#[command(name = "hermes-mobile", version, after_help = EXIT_CODES)]
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
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Serve(args) => serve::run(&args),
        Command::Token(args) => token::run(&args),
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

/// Says why the command fails, and with which code.
pub(crate) fn fail(code: u8, text: &str) -> ExitCode {
    eprintln!("hermes-mobile: {text}");
    ExitCode::from(code)
}
