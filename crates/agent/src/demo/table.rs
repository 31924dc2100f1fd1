//! The one list of commands: `/help`, the `commands` request and the reading of a text all use it.

use protocol::link::{CommandItem, ModelItem};

use super::{ask::Ask, files::Files};

/// Most words of `/stream`: at 20 ms a word, 40 seconds.
const STREAM_WORDS: u64 = 2_000;
/// Most characters of `/long`.
const LONG_CHARS: u64 = 200_000;
/// Longest time limit of a card, seconds.
const CARD_SECONDS: u64 = 86_400;
/// A card's time limit when none is named, seconds.
pub(super) const CARD_DEFAULT_SECONDS: u64 = 300;

/// What a text asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Nothing of the table: any other text.
    Other,
    Help,
    Stream(usize),
    Long(usize),
    Cards(Ask),
    AskOpen,
    New,
    Files(Files),
    Count,
    Slow(u64),
    EditFail,
    Fail,
    Die,
    Model(String),
    /// Its argument is not what the table says; the reply to it.
    Wrong(String),
}

/// How a command reads what follows its name.
enum Args {
    /// Nothing; what follows is ignored.
    None(fn() -> Command),
    /// A number in a range, both ends included.
    Number(u64, u64, fn(u64) -> Command),
    /// Anything; `None` if it does not fit.
    Text(fn(&str) -> Option<Command>),
}

struct Row {
    name: &'static str,
    /// As shown.
    shown: &'static str,
    en: &'static str,
    ru: &'static str,
    args: Args,
}

const fn row(name: &'static str, shown: &'static str, en: &'static str, ru: &'static str, args: Args) -> Row {
    Row { name, shown, en, ru, args }
}

static TABLE: &[Row] = &[
    row("/help", "", "this list", "этот список", Args::None(|| Command::Help)),
    row(
        "/stream",
        "N",
        "streams N words by edits (1 to 2000)",
        "ответ из N слов, растущий правками (от 1 до 2000)",
        Args::Number(1, STREAM_WORDS, |n| Command::Stream(size(n))),
    ),
    row(
        "/long",
        "N",
        "one reply of exactly N characters (1 to 200000)",
        "один ответ ровно из N символов (от 1 до 200000)",
        Args::Number(1, LONG_CHARS, |n| Command::Long(size(n))),
    ),
    row(
        "/approve",
        "[SECONDS] CMD",
        "an approval card for exactly CMD, with a time limit of 1 to 86400 seconds",
        "карточка подтверждения команды CMD со сроком от 1 до 86400 секунд",
        Args::Text(approve),
    ),
    row(
        "/cards",
        "N",
        "N approval cards at once (1 to 20)",
        "N карточек сразу (от 1 до 20)",
        Args::Number(1, 20, |n| Command::Cards(Ask::Many(size(n)))),
    ),
    row(
        "/confirm",
        "",
        "a card that confirms a command",
        "карточка подтверждения",
        Args::None(|| Command::Cards(Ask::Confirm)),
    ),
    row(
        "/ask",
        "[open]",
        "a question with choices; open: the next text is the answer",
        "вопрос с вариантами; open: ответом будет следующий текст",
        Args::Text(|rest| match rest.trim() {
            "" => Some(Command::Cards(Ask::Clarify)),
            "open" => Some(Command::AskOpen),
            _ => None,
        }),
    ),
    row(
        "/new",
        "",
        "a new conversation: open cards close, /count starts again",
        "новый разговор: открытые карточки закрываются, /count считает заново",
        Args::None(|| Command::New),
    ),
    row("/image", "", "sends a picture", "картинка", Args::None(|| Command::Files(Files::Image))),
    row(
        "/voice",
        "",
        "sends a voice message",
        "голосовое сообщение",
        Args::None(|| Command::Files(Files::Voice)),
    ),
    row("/video", "", "sends a video", "видео", Args::None(|| Command::Files(Files::Video))),
    row("/document", "", "sends a document", "документ", Args::None(|| Command::Files(Files::Document))),
    row("/animation", "", "sends an animation", "анимация", Args::None(|| Command::Files(Files::Animation))),
    row(
        "/pictures",
        "N",
        "N pictures in one reply (1 to 20)",
        "N картинок в одном ответе (от 1 до 20)",
        Args::Number(1, 20, |n| Command::Files(Files::Pictures(size(n)))),
    ),
    row(
        "/file",
        "N",
        "a document of N bytes (1 to 8388608)",
        "документ из N байтов (от 1 до 8388608)",
        Args::Number(1, protocol::limits::FILE_BYTES as u64, |n| Command::Files(Files::Bytes(size(n)))),
    ),
    row(
        "/stealfile",
        "",
        "tries to send a file that it must not send",
        "пробует отправить файл, который отправлять нельзя",
        Args::None(|| Command::Files(Files::Steal)),
    ),
    row(
        "/count",
        "",
        "how many messages it has received in this conversation",
        "сколько сообщений пришло в этом разговоре",
        Args::None(|| Command::Count),
    ),
    row(
        "/slow",
        "S",
        "thinks S seconds, then replies (0 to 3600)",
        "думает S секунд, потом отвечает (от 0 до 3600)",
        Args::Number(0, 3600, Command::Slow),
    ),
    row(
        "/editfail",
        "",
        "a streamed reply whose edit fails half way",
        "растущий ответ, правка которого не удаётся",
        Args::None(|| Command::EditFail),
    ),
    row(
        "/fail",
        "",
        "starts a reply, then fails",
        "начинает ответ и прерывается",
        Args::None(|| Command::Fail),
    ),
    row(
        "/die",
        "",
        "its task ends in the middle of a reply",
        "агент умирает посреди ответа",
        Args::None(|| Command::Die),
    ),
    row(
        "/model",
        "ID",
        "chooses a made-up model: demo-fast, demo-deep",
        "выбирает одну из двух выдуманных моделей: demo-fast, demo-deep",
        Args::Text(|rest| {
            let id = rest.trim();
            MODELS.iter().any(|(known, _)| *known == id).then(|| Command::Model(id.to_owned()))
        }),
    ),
];

/// Id and label.
const MODELS: [(&str, &str); 2] = [("demo-fast", "Demo Fast"), ("demo-deep", "Demo Deep")];
/// The model in use at first.
pub(super) const FIRST_MODEL: &str = MODELS[0].0;

/// A number that the table has bounded far below `u32::MAX`.
fn size(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// Reads a text. The name of a command ends at the first white space, and one character of white space belongs to it.
pub(super) fn read(text: &str) -> Command {
    let (name, rest) = match text.split_once(char::is_whitespace) {
        Some((name, rest)) => (name, rest),
        None => (text, ""),
    };
    let Some(row) = TABLE.iter().find(|row| row.name == name) else { return Command::Other };
    let command = match row.args {
        Args::None(make) => Some(make()),
        Args::Number(low, high, make) => number(rest.trim()).filter(|n| (low..=high).contains(n)).map(make),
        Args::Text(make) => make(rest),
    };
    command.unwrap_or_else(|| {
        let Row { name, shown, en, ru, .. } = row;
        Command::Wrong(format!("Please write {name} {shown}: {en}.\nФормат: {name} {shown} — {ru}."))
    })
}

/// Digits only: no sign, no overflow.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// `CMD` or `SECONDS CMD`. Digits alone are a command; the command is kept to the byte.
fn approve(rest: &str) -> Option<Command> {
    let (seconds, command) = match rest.split_once(' ') {
        Some((first, after)) if !first.is_empty() && first.bytes().all(|b| b.is_ascii_digit()) => {
            (number(first).filter(|n| (1..=CARD_SECONDS).contains(n))?, after)
        }
        _ => (CARD_DEFAULT_SECONDS, rest),
    };
    (!command.trim().is_empty())
        .then(|| Command::Cards(Ask::Approve { command: command.to_owned(), seconds }))
}

/// The reply to `/help`.
pub(super) fn help() -> String {
    let mut text = String::from(
        "I am the demo agent of this gateway. Every other text gets \"You said: …\", every file a description.\n\
         Я демонстрационный агент этого шлюза. На другой текст отвечаю «You said: …», на файл — его описанием.\n",
    );
    for Row { name, shown, en, ru, .. } in TABLE {
        let space = if shown.is_empty() { "" } else { " " };
        text.push_str(&format!("\n{name}{space}{shown} — {en} / {ru}"));
    }
    text
}

/// The answer to the `commands` request.
pub(super) fn commands() -> Vec<CommandItem> {
    TABLE
        .iter()
        .map(|row| CommandItem {
            name: row.name.to_owned(),
            description: format!("{} / {}", row.en, row.ru),
            args: (!row.shown.is_empty()).then(|| row.shown.to_owned()),
        })
        .collect()
}

/// The answer to the `models` request.
pub(super) fn models() -> Vec<ModelItem> {
    MODELS
        .iter()
        .map(|(id, label)| ModelItem {
            id: (*id).to_owned(),
            provider: "demo".to_owned(),
            label: (*label).to_owned(),
            select: format!("/model {id}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_listed_once_in_both_languages() {
        let help = help();
        for item in commands() {
            let lines = help.lines().filter(|l| l.split([' ', '\n']).next() == Some(&item.name)).count();
            assert_eq!(lines, 1, "{}", item.name);
            assert!(item.description.chars().any(|c| ('а'..='я').contains(&c)), "{}", item.name);
            assert_ne!(read(&item.name), Command::Other, "{}", item.name);
        }
        assert_eq!(models().len(), 2);
        assert!(models().iter().all(|m| matches!(read(&m.select), Command::Model(id) if id == m.id)));
    }

    #[test]
    fn numbers_hold_at_their_ends() {
        for (name, low, high) in [
            ("/stream", 1, 2000),
            ("/long", 1, 200_000),
            ("/cards", 1, 20),
            ("/pictures", 1, 20),
            ("/file", 1, 8_388_608),
            ("/slow", 0_u64, 3600),
        ] {
            for n in [low, high] {
                let read = read(&format!("{name} {n}"));
                assert!(!matches!(read, Command::Wrong(_) | Command::Other), "{name} {n}: {read:?}");
            }
            for wrong in
                [format!("{}", high + 1), "-1".into(), "+1".into(), "x".into(), String::new(), "9".repeat(40)]
            {
                let read = read(&format!("{name} {wrong}"));
                assert!(matches!(&read, Command::Wrong(t) if t.contains(name)), "{name} {wrong}: {read:?}");
            }
            if let Some(below) = low.checked_sub(1) {
                assert!(matches!(read(&format!("{name} {below}")), Command::Wrong(_)));
            }
        }
    }

    #[test]
    fn a_command_to_approve_is_kept_to_the_byte() {
        let cases = [
            ("/approve rm -rf /tmp/x", "rm -rf /tmp/x", 300),
            ("/approve 7 zip a ", "zip a ", 7),
            ("/approve 7", "7", 300),
            ("/approve  two\nlines ", " two\nlines ", 300),
            ("/approve 86400 x", "x", 86_400),
            ("/approve 7x y", "7x y", 300),
        ];
        for (text, command, seconds) in cases {
            let want = Command::Cards(Ask::Approve { command: command.into(), seconds });
            assert_eq!(read(text), want, "{text}");
        }
        for text in ["/approve", "/approve ", "/approve 0 x", "/approve 86401 x", "/approve 5  "] {
            assert!(matches!(read(text), Command::Wrong(_)), "{text}");
        }
    }

    #[test]
    fn what_is_not_in_the_table_is_any_other_text() {
        for text in ["", "hello", "/foo", "/Help", " /help", "/helpme", "help", "//help"] {
            assert_eq!(read(text), Command::Other, "{text}");
        }
        assert_eq!(read("/help\n"), Command::Help);
        assert_eq!(read("/ask open"), Command::AskOpen);
        assert!(matches!(read("/ask shut"), Command::Wrong(_)));
        assert!(matches!(read("/model demo-huge"), Command::Wrong(_)));
    }
}
