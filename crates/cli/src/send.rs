//! `hermes-mobile send`: a message to a device, from a shell or from cron.

use std::{io::Read, process::ExitCode, time::Duration};

use client::{
    core::{Config, ErrorInfo, Event, Failure, Request},
    net, url,
};
use protocol::{code::ErrorCode, id, server::DeliverState, words::Lang};
use tokio::time::{Instant, timeout_at};

use crate::{
    exit, fail, say,
    target::{self, Target},
};

const HELP: &str = "\
Prints one word: delivered, queued or device_offline / печатает одно слово.
Exit codes / коды выхода:
  0  delivered, or queued with --queue / доставлено или поставлено в очередь
  1  refused for another reason / другой отказ
  2  wrong usage / неверные аргументы
  5  the gateway cannot be reached or does not answer / нет связи со шлюзом
  6  access denied / доступ запрещён
  7  device_offline: the device is not connected / устройство не на связи
With the same --id the same message is shown once, however often it is sent (7 days).
С тем же --id то же сообщение покажется один раз, сколько бы его ни посылали (7 дней).";

/// The gateway itself waits 10 s for the device's proof.
const LONGEST: Duration = Duration::from_secs(25);
/// Longest text read from standard input, bytes; the gateway's limit is 12,000 characters.
const STDIN_BYTES: u64 = 256 * 1024;

/// Flags of `send`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// Device id, or `home` / устройство или home
    target: String,
    /// What is said; `-` reads standard input / текст; `-` — из стандартного ввода
    text: String,
    /// Address of the gateway: ws://…, http://… or HOST:PORT / адрес шлюза
    #[arg(long, env = "MOBILE_URL", default_value = url::DEFAULT)]
    url: String,
    /// Store it if the device is not connected / сохранить, если устройство не на связи
    #[arg(long)]
    queue: bool,
    /// Id of the message; the same again is shown once [default: a new one] / id сообщения: повтор не покажется дважды
    #[arg(long)]
    id: Option<String>,
    #[command(flatten)]
    gateway: Target,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let lang = args.gateway.language();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return fail(exit::FAILURE, &e.to_string()),
    };
    match runtime.block_on(send(args, lang)) {
        Ok(word) => {
            println!("{word}");
            ExitCode::SUCCESS
        }
        Err(End { code, word, text }) => {
            if let Some(word) = word {
                println!("{word}");
            }
            fail(code, &text)
        }
    }
}

/// An end other than success.
struct End {
    code: u8,
    /// Printed on standard output.
    word: Option<&'static str>,
    text: String,
}

impl End {
    fn new(code: u8, text: impl Into<String>) -> Self {
        Self { code, word: None, text: text.into() }
    }
}

async fn send(args: &Args, lang: Lang) -> Result<&'static str, End> {
    if !id::valid_device_id(&args.target) {
        let rule = say(
            lang,
            "это не id устройства: от 1 до 128 знаков: буквы и цифры любого письма и . _ - ~ @ + :",
            "this is no device id: 1 to 128 characters: letters and digits of any script and . _ - ~ @ + :",
        );
        return Err(End::new(exit::USAGE, format!("{:?}: {rule}", args.target)));
    }
    let mut text = args.text.clone();
    if text == "-" {
        text.clear();
        let mut bytes = vec![];
        std::io::stdin()
            .take(STDIN_BYTES)
            .read_to_end(&mut bytes)
            .map_err(|e| End::new(exit::FAILURE, format!("stdin: {e}")))?;
        text.push_str(String::from_utf8_lossy(&bytes).trim_end());
    }
    let token = args.gateway.token_for(&args.url, lang).map_err(|e| End::new(exit::USAGE, e))?;
    let start = |e: net::StartError| End::new(exit::USAGE, target::unusable(&e, lang));
    let mut config = Config::new(net::seed().map_err(start)?);
    config.token = Some(token);
    config.lang = Some(say(lang, "ru", "en").into());
    let (session, mut events) = net::start(config, &args.url).map_err(start)?;
    let request = Request::Deliver { target: args.target.clone(), text, queue: args.queue };
    session.submit(request, args.id.clone()).await.map_err(|e| End::new(exit::USAGE, e.words(lang)))?;
    let until = Instant::now() + LONGEST;
    let mut ready = false;
    let end = loop {
        let Ok(Some(event)) = timeout_at(until, events.next()).await else {
            break Err(End::new(
                exit::CONNECT,
                say(
                    lang,
                    "шлюз не ответил вовремя; доставлено ли сообщение, неизвестно. Повтор с тем же --id не покажет его дважды",
                    "the gateway did not answer in time; whether it was delivered is not known. Sent again with the same --id it is not shown twice",
                ),
            ));
        };
        match event {
            Event::Ready(_) => ready = true,
            Event::Delivered { state: DeliverState::Delivered, .. } => break Ok("delivered"),
            Event::Delivered { state: DeliverState::Queued, .. } => break Ok("queued"),
            Event::Failed { why, .. } => break Err(failed(why, args, lang)),
            Event::Refused { code, error } => {
                break Err(End::new(exit::ACCESS, target::refused(code, error.as_ref(), "", lang)));
            }
            // Before anything was sent there is nothing to wait for; after it the client asks again under the same id.
            Event::Offline { why, .. } if !ready => {
                break Err(End::new(exit::CONNECT, target::offline(&why, lang)));
            }
            _ => {}
        }
    };
    session.close().await;
    end
}

fn failed(why: Failure, args: &Args, lang: Lang) -> End {
    match why {
        Failure::Refused(ErrorInfo { code: Some(ErrorCode::DeviceOffline), detail, .. }) => {
            let detail = detail.map(|d| format!(" [{d}]")).unwrap_or_default();
            let next = match (lang, args.target.as_str(), args.queue) {
                (Lang::Ru, "home", _) => "Проверьте MOBILE_HOME_DEVICE у шлюза или назовите устройство",
                (Lang::En, "home", _) => "Check MOBILE_HOME_DEVICE of the gateway, or name the device",
                (Lang::Ru, _, false) => "Если устройство уже подключалось, с --queue сообщение его дождётся",
                (Lang::En, _, false) => "If it has connected before, with --queue the message waits for it",
                (Lang::Ru, _, true) => {
                    "Шлюз не знает такого устройства: проверьте имя; оно должно подключиться хотя бы раз"
                }
                (Lang::En, _, true) => {
                    "The gateway does not know it: check the name; the device must have connected once"
                }
            };
            let (device, what) = (&args.target, say(lang, "устройство", "the device"));
            let away = say(lang, "не подтвердило сообщение", "has not confirmed the message");
            End {
                code: exit::DEVICE_OFFLINE,
                word: Some("device_offline"),
                text: format!("device_offline: {what} {device:?} {away}{detail}. {next}"),
            }
        }
        Failure::Refused(error) => {
            let code = if error.code == Some(ErrorCode::Forbidden) { exit::ACCESS } else { exit::FAILURE };
            let detail = error.detail.map(|d| format!(" [{d}]")).unwrap_or_default();
            End::new(code, format!("{} ({}){detail}", error.message, error.name))
        }
        Failure::TooLarge | Failure::Complaint => End::new(
            exit::FAILURE,
            say(lang, "шлюз не принимает это сообщение", "the gateway does not take this message"),
        ),
    }
}
