//! The command `hermes-mobile`. One file a subcommand.

mod chat;
mod send;
mod serve;
mod target;
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
    /// The gateway cannot be reached, or does not answer.
    pub(crate) const CONNECT: u8 = 5;
    /// The gateway refuses this token or this device.
    pub(crate) const ACCESS: u8 = 6;
    /// The device that a message is for is not connected.
    pub(crate) const DEVICE_OFFLINE: u8 = 7;
}

const EXIT_CODES: &str = "\
Exit codes / коды выхода:
  0  done / готово
  1  failure / ошибка
  2  wrong usage or configuration / неверные аргументы или настройки
  3  cannot listen on the address / нельзя слушать адрес
  4  the state directory cannot be used / каталог состояния нельзя использовать
  5  the gateway cannot be reached / нет связи со шлюзом (chat, send)
  6  access denied / доступ запрещён (chat, send)
  7  device_offline: the device is not connected / устройство не на связи (send)
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
    /// Talk with the agent line by line / разговор с агентом построчно
    Chat(chat::Args),
    /// Send a message to a device / отправить сообщение на устройство
    Send(send::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Serve(args) => serve::run(&args),
        Command::Token(args) => token::run(&args),
        Command::Chat(args) => chat::run(&args),
        Command::Send(args) => send::run(&args),
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
