//! `hermes-mobile chat`: a conversation line by line, on a terminal or through pipes.

mod files;
mod input;
mod screen;

use std::{
    collections::HashSet,
    fmt::Write as _,
    io::{self, BufRead, IsTerminal, Read, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use client::{
    core::{Config, Device, Event, Failure, SubmitError},
    net::{self, Events, Session},
    url,
};
use protocol::{
    limits,
    server::{AvatarState, Prompt, PromptDone, PromptKind},
    words::Lang,
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use self::{
    files::Unsendable,
    input::{Act, Cards},
    screen::{Screen, clean, exact},
};
use crate::{
    exit, fail, say,
    target::{self, Target},
};

const HELP: &str = "\
A line is a message. Commands of the chat itself / команды самого чата:
  1, 2 …                     answer the open card / ответить на открытую карточку
  /card [CARD] OPTION [text] answer a card by number / ответить на карточку по номеру
  /send FILE [caption]       send a file / отправить файл
  /voice FILE                send a voice message, wav or ogg / голосовое сообщение
  /quit                      end / выйти
  //send …  //5              send it as text / отправить как текст
Everything else, such as /help or /new, goes to the agent / остальное получает агент.
Without a terminal each message is printed once, when it is complete; states go to standard error. A number that
comes before its card is an ordinary message: wait for the card before you write it.
Без терминала каждое сообщение печатается один раз, целиком; состояния идут в стандартный поток ошибок. Число,
посланное раньше карточки, — обычное сообщение: сначала дождитесь её.
Exit codes / коды выхода:
  0  ended, everything was sent / всё отправлено
  1  something was refused / что-то не принято
  2  wrong usage / неверные аргументы
  5  no connection, something was not sent / нет связи, отправлено не всё
  6  access denied, or replaced by another connection / доступ запрещён или занято другим";

/// Longest line that is read, bytes.
const LINE: u64 = 256 * 1024;
/// After the end of the agent's turn: it begins another at once if there is more for it to do.
const GRACE: Duration = Duration::from_secs(1);
/// While the agent says that it works.
const PATIENCE: Duration = Duration::from_secs(120);

/// Flags of `chat`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// Address of the gateway: ws://…, http://… or HOST:PORT / адрес шлюза
    #[arg(env = "MOBILE_URL", default_value = url::DEFAULT)]
    url: String,
    #[command(flatten)]
    gateway: Target,
    /// Device id: the conversation belongs to it / устройство, которому принадлежит разговор
    #[arg(long, default_value = "cli")]
    device: String,
    /// Name of the device, shown to others / имя устройства
    #[arg(long)]
    name: Option<String>,
    /// Folder for files that come / каталог для полученных файлов
    #[arg(long, value_name = "DIR", default_value = "hermes-mobile-media")]
    save: PathBuf,
    /// After the end of input wait so many seconds for replies; longer while the agent works / сколько секунд ждать ответов в конце
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    wait: u64,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let lang = args.gateway.language();
    if !protocol::id::valid_device_id(&args.device) {
        let rule = match lang {
            Lang::Ru => "должно быть 1–128 знаков: буквы и цифры любого письма и . _ - ~ @ + :",
            Lang::En => protocol::id::DEVICE_ID_RULE,
        };
        return fail(exit::USAGE, &format!("--device {:?}: {rule}", args.device));
    }
    let token = match args.gateway.token_for(&args.url, lang) {
        Ok(token) => token,
        Err(e) => return fail(exit::USAGE, &e),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return fail(exit::FAILURE, &e.to_string()),
    };
    let code = runtime.block_on(async {
        let seed = net::seed()?;
        let mut config = Config::new(seed);
        config.token = Some(token);
        config.lang = Some(say(lang, "ru", "en").into());
        config.device = Some(Device {
            id: args.device.clone(),
            name: args.name.clone(),
            platform: Some("cli".into()),
            app_version: Some(env!("CARGO_PKG_VERSION").into()),
        });
        let (session, events) = net::start(config, &args.url)?;
        Ok::<_, net::StartError>(Chat::new(args, lang, session).talk(events).await)
    });
    // The thread that reads standard input is not waited for: it ends with the process.
    runtime.shutdown_background();
    code.map_or_else(|e| fail(exit::USAGE, &target::unusable(&e, lang)), ExitCode::from)
}

/// Reads lines on a thread of its own: a terminal cannot be read without blocking.
fn lines() -> mpsc::Receiver<String> {
    let (tx, rx) = mpsc::channel(16);
    std::thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        loop {
            let mut line = vec![];
            match stdin.by_ref().take(LINE).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            if tx.blocking_send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
    rx
}

fn terminal_size() -> (usize, usize) {
    match terminal_size::terminal_size() {
        Some((width, height)) => (usize::from(width.0), usize::from(height.0)),
        None => (80, 24),
    }
}

struct Chat<'a> {
    args: &'a Args,
    lang: Lang,
    session: Session,
    screen: Screen,
    cards: Cards,
    terminal: bool,
    start: Instant,
    online: bool,
    /// The reason of the last state that was told, so that it is told once.
    told_offline: String,
    typing: bool,
    thinking: bool,
    /// Messages that are not final.
    open: HashSet<String>,
    /// Items without proof.
    unsettled: HashSet<String>,
    /// Texts and files without a final reply that names them. Many agents name none: then the end of a turn counts.
    unanswered: HashSet<String>,
    /// Something came since the last text was sent.
    replied: bool,
    refused_items: bool,
    /// Something happened then.
    active: Instant,
    /// Standard output is gone.
    broken: bool,
}

impl<'a> Chat<'a> {
    fn new(args: &'a Args, lang: Lang, session: Session) -> Self {
        let terminal = io::stdout().is_terminal();
        let now = Instant::now();
        Self {
            args,
            lang,
            session,
            screen: Screen::new(terminal.then(terminal_size)),
            cards: Cards::new(io::stdin().is_terminal(), lang),
            terminal,
            start: now,
            online: false,
            told_offline: String::new(),
            typing: false,
            thinking: false,
            open: HashSet::new(),
            unsettled: HashSet::new(),
            unanswered: HashSet::new(),
            replied: false,
            refused_items: false,
            active: now,
            broken: false,
        }
    }

    /// Until `/quit`, the end of input, or a refusal. Returns the exit code.
    async fn talk(mut self, mut events: Events) -> u8 {
        let mut lines = lines();
        let mut input = true;
        let mut refused = None;
        loop {
            let end = self.end();
            tokio::select! {
                // What has come is shown before the next line is looked at.
                biased;
                event = events.next() => match event {
                    Some(Event::Refused { code, error }) => {
                        refused = Some(if matches!(code, 1008 | 4001) { exit::ACCESS } else { exit::FAILURE });
                        let text = target::refused(code, error.as_ref(), &self.args.device, self.lang);
                        self.note(&text);
                        break;
                    }
                    Some(event) => self.event(event),
                    None => break,
                },
                line = lines.recv(), if input => match line {
                    Some(line) => {
                        if io::stdin().is_terminal() {
                            self.screen.typed();
                        }
                        if !self.line(&line).await {
                            break;
                        }
                    }
                    None => {
                        input = false;
                        self.active = Instant::now();
                    }
                },
                () = sleep_until(end), if !input => break,
            }
            if self.broken {
                break;
            }
        }
        let rest = self.screen.end();
        self.print(&rest);
        let unsent = self.unsettled.len();
        if unsent > 0 {
            let text = match self.lang {
                Lang::Ru => format!("не подтверждено сообщений: {unsent}; повторите позже"),
                Lang::En => format!("messages without confirmation: {unsent}; send them again later"),
            };
            self.note(&text);
        }
        self.session.close().await;
        match (refused, self.refused_items, unsent) {
            (Some(code), ..) => code,
            (None, true, _) => exit::FAILURE,
            (None, false, 0) => 0,
            (None, false, _) => exit::CONNECT,
        }
    }

    /// When the chat ends by itself once there is no more input.
    fn end(&self) -> Instant {
        let wait = Duration::from_secs(self.args.wait);
        let works = self.typing || self.thinking || !self.open.is_empty();
        self.active
            + if self.online && works {
                wait.max(PATIENCE)
            } else if self.unsettled.is_empty() && self.unanswered.is_empty() && !self.cards.any() {
                wait.min(GRACE)
            } else {
                wait
            }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn print(&mut self, text: &str) {
        let mut out = io::stdout().lock();
        if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
            self.broken = true;
        }
    }

    /// Part of the conversation.
    fn show(&mut self, text: &str) {
        let text = self.screen.line(text);
        self.print(&text);
    }

    /// About the conversation: beside it where standard output is no terminal.
    fn note(&mut self, text: &str) {
        let text = clean(text);
        if self.terminal {
            self.show(&format!("[{text}]"));
        } else {
            eprintln!("[{text}]");
        }
    }

    fn say(&mut self, ru: &'static str, en: &'static str) {
        self.note(say(self.lang, ru, en));
    }

    /// `false`: the person wants to leave.
    async fn line(&mut self, line: &str) -> bool {
        let (sent, waits_for_reply) = match self.cards.line(line, self.now()) {
            Act::Nothing => return true,
            Act::Quit => return false,
            Act::Hint(text) => {
                self.note(&text);
                return true;
            }
            Act::Text(text) => (self.session.send_text(text).await, true),
            Act::Answer { prompt_id, option_id, text } => {
                (self.session.answer(prompt_id, option_id, text).await, false)
            }
            Act::SendFile { path, caption } => match files::file(&path, caption) {
                Ok(request) => (self.session.submit(request, None).await, true),
                Err(why) => {
                    self.unsendable(&path, &why);
                    return true;
                }
            },
            Act::SendVoice { path } => match files::voice(&path) {
                Ok(request) => (self.session.submit(request, None).await, true),
                Err(why) => {
                    self.unsendable(&path, &why);
                    return true;
                }
            },
        };
        match sent {
            Ok(id) => {
                self.unsettled.insert(id.clone());
                if waits_for_reply {
                    self.unanswered.insert(id);
                    self.replied = false;
                }
                if !self.online && self.terminal {
                    self.say("нет связи: сообщение ждёт отправки", "no connection: the message waits");
                }
            }
            Err(error) => {
                self.refused_items |= error != SubmitError::Empty;
                self.note(&error.words(self.lang));
            }
        }
        self.active = Instant::now();
        true
    }

    fn unsendable(&mut self, path: &str, why: &Unsendable) {
        self.refused_items = true;
        let text = match why {
            Unsendable::Read(e) => {
                format!("{}: {e}", say(self.lang, "файл не прочитан", "the file cannot be read"))
            }
            Unsendable::TooLarge => SubmitError::LargeFile(limits::FILE_BYTES as u64).words(self.lang),
            Unsendable::NoVoice => say(
                self.lang,
                "голосовое сообщение должно быть WAV или Ogg; как обычный файл его отправит /send",
                "a voice message must be WAV or Ogg; /send sends it as an ordinary file",
            )
            .into(),
        };
        self.note(&format!("{path}: {text}"));
    }

    fn event(&mut self, event: Event) {
        if !matches!(event, Event::Connecting | Event::Offline { .. }) {
            self.active = Instant::now();
        }
        match event {
            Event::Ready(ready) => {
                self.online = true;
                self.told_offline.clear();
                let text = match self.lang {
                    Lang::Ru => format!("на связи: устройство {}", ready.device.id),
                    Lang::En => format!("connected as device {}", ready.device.id),
                };
                self.note(&text);
            }
            Event::Offline { retry_in, why } => {
                self.online = false;
                self.typing = false;
                self.thinking = false;
                let reason = target::offline(&why, self.lang);
                if self.told_offline != reason {
                    let seconds = retry_in.div_ceil(1000);
                    let text = match self.lang {
                        Lang::Ru => format!("{reason}; новая попытка через {seconds} с"),
                        Lang::En => format!("{reason}; trying again in {seconds} s"),
                    };
                    self.note(&text);
                    self.told_offline = reason;
                }
            }
            Event::Message(bubble) => {
                if bubble.last {
                    self.open.remove(&bubble.id);
                    self.answered(bubble.reply_to.as_deref());
                } else {
                    self.open.insert(bubble.id.clone());
                }
                self.screen.resize(self.terminal.then(terminal_size));
                let text = self.screen.bubble(&bubble);
                self.print(&text);
            }
            Event::Media(file) => {
                self.answered(file.reply_to.as_deref());
                self.media(&file);
            }
            Event::Card(card) => self.card(card),
            Event::CardDone(done) => self.card_done(&done),
            Event::Avatar(state) => {
                self.thinking = state == AvatarState::Thinking;
                self.turn();
            }
            Event::Typing(typing) => {
                self.typing = !typing.stop;
                self.turn();
            }
            Event::Accepted { id } => {
                self.unsettled.remove(&id);
            }
            Event::Failed { id, why } => self.failed(&id, &why),
            Event::Error(error) => self.note(&format!("{} ({})", error.message, error.name)),
            Event::Progress { sent, total, .. } if self.terminal && sent < total => {
                let text = format!("{} %", sent.saturating_mul(100) / total.max(1));
                self.note(&text);
            }
            Event::Connecting
            | Event::Refused { .. }
            | Event::Stopped
            | Event::Progress { .. }
            | Event::Delivered { .. }
            | Event::Damaged(_) => {}
        }
    }

    /// A final reply came.
    fn answered(&mut self, reply_to: Option<&str>) {
        self.replied = true;
        if let Some(id) = reply_to {
            self.unanswered.remove(id);
        }
    }

    /// The agent's state changed: if it has replied and rests, the turn is over.
    fn turn(&mut self) {
        if self.replied && !self.typing && !self.thinking {
            self.unanswered.clear();
        }
    }

    fn failed(&mut self, id: &str, why: &Failure) {
        self.unsettled.remove(id);
        self.unanswered.remove(id);
        let card = self.cards.withdrawn(id);
        self.refused_items |= card.is_none();
        let text = match why {
            Failure::Refused(error) => {
                let detail = error.detail.as_ref().map(|d| format!(" [{d}]")).unwrap_or_default();
                format!("{} ({}){detail}", error.message, error.name)
            }
            Failure::TooLarge | Failure::Complaint => say(
                self.lang,
                "шлюз не принимает это сообщение, больше оно отправлено не будет",
                "the gateway does not take this message, it will not be sent again",
            )
            .into(),
        };
        match card {
            Some(number) => {
                let what = say(self.lang, "карточка", "card");
                let again = say(
                    self.lang,
                    "ответ не принят, карточка открыта",
                    "the answer was not taken, the card stays open",
                );
                self.note(&format!("{what} {number}: {again}: {text}"));
            }
            None => self.note(&text),
        }
    }

    fn media(&mut self, file: &client::core::File) {
        let caption = file.caption.as_deref().map(|c| format!(" — {}", clean(c))).unwrap_or_default();
        let saved = files::save(&self.args.save, file).or_else(|first| {
            // The folder cannot be used: better somewhere than lost.
            let dir = std::env::temp_dir().join(format!("hermes-mobile-media-{}", std::process::id()));
            files::save(&dir, file).map_err(|_| first)
        });
        match saved {
            Ok(path) => {
                let what = say(self.lang, "файл", "file");
                let bytes = say(self.lang, "байт", "bytes");
                self.show(&format!(
                    "[{what}: {}, {} {bytes}]{caption}",
                    clean(&path.display().to_string()),
                    file.bytes.len()
                ));
            }
            Err(e) => {
                self.refused_items = true;
                let text = say(
                    self.lang,
                    "файл не сохранён (--save DIR)",
                    "the file could not be saved (--save DIR)",
                );
                self.note(&format!("{text}: {e}{caption}"));
            }
        }
    }

    fn card(&mut self, card: Prompt) {
        let text = card_text(&card, self.lang);
        let (number, new) = self.cards.show(card, self.now());
        if new {
            let word = say(self.lang, "Карточка", "Card");
            self.show(&format!("── {word} {number} {text}"));
        }
    }

    fn card_done(&mut self, done: &PromptDone) {
        self.unsettled.remove(&done.id);
        let Some((number, label)) = self.cards.done(&done.id, done.option_id.as_deref()) else { return };
        let mut text = format!("{} {number}: ", say(self.lang, "карточка", "card"));
        match label {
            Some(label) if done.expired => {
                let _ = write!(text, "{}: {label}", say(self.lang, "время вышло", "time is over"));
            }
            Some(label) => text.push_str(&label),
            None if done.expired => text.push_str(say(self.lang, "время вышло", "time is over")),
            None => text.push_str(say(self.lang, "закрыта", "closed")),
        }
        if let Some(reason) = &done.reason {
            let _ = write!(text, " ({reason})");
        }
        let text = clean(&text);
        self.show(&format!("[{text}]"));
    }
}

/// A card in words: the exact command, and numbers for its options.
fn card_text(card: &Prompt, lang: Lang) -> String {
    let kind = match card.kind {
        PromptKind::ExecApproval => say(lang, "(разрешение)", "(approval)"),
        PromptKind::SlashConfirm => say(lang, "(подтверждение)", "(confirmation)"),
        PromptKind::Clarify => say(lang, "(вопрос)", "(question)"),
    };
    let mut text = format!("{kind} ──\n{}", clean(&card.text));
    if let Some(command) = &card.command {
        let _ = write!(text, "\n{}:", say(lang, "Команда", "Command"));
        for line in exact(command).split('\n') {
            let _ = write!(text, "\n    {line}");
        }
    }
    if let Some(description) = &card.description {
        let _ = write!(text, "\n{}", clean(description));
    }
    for (i, option) in card.options.iter().enumerate() {
        let label = clean(&option.label).replace('\n', " ");
        let free = if option.allow_text {
            say(lang, " (ответ — следующей строкой)", " (the next line is the answer)")
        } else {
            ""
        };
        let _ = write!(text, "\n  {}) {label}{free}", i + 1);
    }
    let _ = match lang {
        Lang::Ru => write!(text, "\nОтвет — числом; осталось {} с", card.timeout_seconds),
        Lang::En => write!(text, "\nAnswer with a number; {} s left", card.timeout_seconds),
    };
    text
}
