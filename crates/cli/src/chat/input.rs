//! What a typed line means. A number is an answer only while exactly one card is open and nothing about it is in doubt;
//! everything else that could be meant in two ways is not sent, and the person is told how to say it.

use client::protocol::server::Prompt;
use protocol::words::Lang;

use crate::say;

/// On a terminal a card that came a moment ago cannot be what a finished line answers, milliseconds.
const TOO_QUICK_MS: u64 = 700;

/// What to do with a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Act {
    Nothing,
    Text(String),
    Answer {
        prompt_id: String,
        option_id: String,
        text: Option<String>,
    },
    SendFile {
        path: String,
        caption: Option<String>,
    },
    SendVoice {
        path: String,
    },
    Quit,
    /// Nothing is sent; this is said.
    Hint(String),
}

/// A card that is open.
#[derive(Debug)]
struct Open {
    /// Shown number.
    number: usize,
    prompt: Prompt,
    shown: u64,
    /// An answer is on its way.
    answered: bool,
}

/// The open cards.
#[derive(Debug)]
pub(super) struct Cards {
    open: Vec<Open>,
    last: usize,
    /// A card ended without our answer, and no line was typed since: a number may have been meant for it.
    ended: bool,
    /// A person types: give them the time to see a card.
    terminal: bool,
    lang: Lang,
}

impl Cards {
    pub(super) fn new(terminal: bool, lang: Lang) -> Self {
        Self { open: vec![], last: 0, ended: false, terminal, lang }
    }

    pub(super) fn any(&self) -> bool {
        !self.open.is_empty()
    }

    /// A card came. Its number, and whether it is new (the same id again is the same card).
    pub(super) fn show(&mut self, prompt: Prompt, now: u64) -> (usize, bool) {
        if let Some(open) = self.open.iter_mut().find(|o| o.prompt.id == prompt.id) {
            // After a reconnect: what was answered and had no result is sent again by the client itself.
            open.prompt = prompt;
            return (open.number, false);
        }
        self.last += 1;
        self.open.push(Open { number: self.last, prompt, shown: now, answered: false });
        (self.last, true)
    }

    /// A card ended: its number and the label of what took effect.
    pub(super) fn done(&mut self, id: &str, option: Option<&str>) -> Option<(usize, Option<String>)> {
        let at = self.open.iter().position(|o| o.prompt.id == id)?;
        let open = self.open.remove(at);
        self.ended |= !open.answered;
        let label = option.map(|option| {
            let known = open.prompt.options.iter().find(|o| o.id == option);
            known.map_or_else(|| option.to_owned(), |o| o.label.clone())
        });
        Some((open.number, label))
    }

    /// The answer to a card did not take effect: it may be answered again.
    pub(super) fn withdrawn(&mut self, id: &str) -> Option<usize> {
        let open = self.open.iter_mut().find(|o| o.prompt.id == id)?;
        open.answered = false;
        Some(open.number)
    }

    /// What a line means.
    pub(super) fn line(&mut self, line: &str, now: u64) -> Act {
        let trimmed = line.trim();
        let ended = std::mem::take(&mut self.ended);
        if trimmed.is_empty() {
            return Act::Nothing;
        }
        if is_number(trimmed) {
            return self.number(trimmed, ended, now);
        }
        if let Some(rest) = trimmed.strip_prefix("//")
            && (is_number(rest) || local(rest))
        {
            let text = if is_number(rest) { rest } else { trimmed.get(1..).unwrap_or(rest) };
            return Act::Text(text.to_owned());
        }
        let (command, rest) = trimmed.split_once(char::is_whitespace).unwrap_or((trimmed, ""));
        match (command, rest.trim()) {
            ("/quit", "") => Act::Quit,
            ("/card", rest) => self.card(rest),
            ("/send", "") => self.hint("/send ФАЙЛ [подпись]", "/send FILE [caption]"),
            ("/send", rest) => {
                let (path, caption) = path_and_rest(rest);
                Act::SendFile { path, caption }
            }
            // Without a file it is for the agent.
            ("/voice", rest) if !rest.is_empty() => Act::SendVoice { path: path_and_rest(rest).0 },
            _ => Act::Text(line.trim_end_matches(['\r', '\n']).to_owned()),
        }
    }

    fn hint(&self, ru: &'static str, en: &'static str) -> Act {
        Act::Hint(say(self.lang, ru, en).to_owned())
    }

    fn number(&mut self, typed: &str, ended: bool, now: u64) -> Act {
        let hint = match self.open.as_mut_slice() {
            [] if ended => Err((
                "карточка уже закрыта, ничего не отправлено; чтобы отправить число как сообщение, введите его ещё раз",
                "the card has closed, nothing was sent; to send the number as a message, type it again",
            )),
            [] => return Act::Text(typed.to_owned()),
            [one] if one.answered => Err((
                "ответ уже отправлен, ждём подтверждения; другой ответ: /card НОМЕР; число как сообщение: //ЧИСЛО",
                "the answer is on its way; another answer: /card NUMBER; a number as a message: //NUMBER",
            )),
            [one] if self.terminal && now < one.shown.saturating_add(TOO_QUICK_MS) => Err((
                "карточка только что появилась, ничего не отправлено; прочтите её и введите число ещё раз",
                "the card has only just come, nothing was sent; read it and type the number again",
            )),
            [one] => match answer(one, typed, None) {
                Some(act) => return act,
                None => Err((
                    "такого варианта у карточки нет, ничего не отправлено; число как сообщение: //ЧИСЛО",
                    "the card has no such option, nothing was sent; a number as a message: //NUMBER",
                )),
            },
            _ => Err((
                "открыто несколько карточек: /card КАРТОЧКА ВАРИАНТ; число как сообщение: //ЧИСЛО",
                "several cards are open: /card CARD OPTION; a number as a message: //NUMBER",
            )),
        };
        let Err((ru, en)): Result<(), _> = hint else { return Act::Nothing };
        self.hint(ru, en)
    }

    /// `/card OPTION`, `/card CARD OPTION [free answer]`.
    fn card(&mut self, rest: &str) -> Act {
        let mut words = rest.splitn(3, char::is_whitespace).map(str::trim);
        let (first, second, free) = (words.next().unwrap_or(""), words.next(), words.next());
        let act = match (second, self.open.as_mut_slice()) {
            (_, []) => return self.hint("открытых карточек нет", "no card is open"),
            (None, [one]) => answer(one, first, None),
            (None, _) => None,
            (Some(option), cards) => {
                let card = first.parse::<usize>().ok().and_then(|n| cards.iter_mut().find(|o| o.number == n));
                card.and_then(|card| answer(card, option, free.filter(|f| !f.is_empty())))
            }
        };
        act.unwrap_or_else(|| {
            self.hint(
                "так: /card ВАРИАНТ, а если карточек несколько — /card КАРТОЧКА ВАРИАНТ [ответ словами]",
                "use: /card OPTION, or with several cards /card CARD OPTION [answer in words]",
            )
        })
    }
}

fn answer(card: &mut Open, option: &str, text: Option<&str>) -> Option<Act> {
    let number: usize = option.parse().ok()?;
    let option = card.prompt.options.get(number.checked_sub(1)?)?;
    card.answered = true;
    Some(Act::Answer {
        prompt_id: card.prompt.id.clone(),
        option_id: option.id.clone(),
        text: text.filter(|_| option.allow_text).map(str::to_owned),
    })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Whether the text behind a slash is a command of ours.
fn local(command: &str) -> bool {
    ["quit", "card", "send", "voice"].contains(&command.split_whitespace().next().unwrap_or_default())
}

/// A path, in quotes if it has spaces, and what follows. A whole line that is a file is that file.
fn path_and_rest(rest: &str) -> (String, Option<String>) {
    for quote in ['"', '\''] {
        if let Some((path, caption)) = rest.strip_prefix(quote).and_then(|r| r.split_once(quote)) {
            return (path.to_owned(), Some(caption.trim().to_owned()).filter(|c| !c.is_empty()));
        }
    }
    if std::path::Path::new(rest).is_file() {
        return (rest.to_owned(), None);
    }
    match rest.split_once(char::is_whitespace) {
        Some((path, caption)) => (path.to_owned(), Some(caption.trim().to_owned()).filter(|c| !c.is_empty())),
        None => (rest.to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use client::protocol::server::{OptionStyle, PromptKind, PromptOption};

    use super::*;

    fn card(id: &str) -> Prompt {
        let option = |id: &str, allow_text| PromptOption {
            id: id.into(),
            label: format!("label {id}"),
            style: OptionStyle::Primary,
            allow_text,
        };
        Prompt {
            id: id.into(),
            kind: PromptKind::ExecApproval,
            text: "?".into(),
            command: None,
            description: None,
            options: vec![option("once", false), option("deny", false), option("other", true)],
            session: String::new(),
            timeout_seconds: 60,
            seq: None,
        }
    }

    fn answer_of(card: &str, option: &str) -> Act {
        Act::Answer { prompt_id: card.into(), option_id: option.into(), text: None }
    }

    fn is_hint(act: &Act) -> bool {
        matches!(act, Act::Hint(_))
    }

    #[test]
    fn a_number_is_text_when_no_card_is_open() {
        let mut cards = Cards::new(true, Lang::En);
        assert_eq!(cards.line("1", 0), Act::Text("1".into()));
        assert_eq!(cards.line(" 42 \n", 0), Act::Text("42".into()));
    }

    #[test]
    fn a_number_answers_the_only_card() {
        let mut cards = Cards::new(true, Lang::En);
        cards.show(card("a"), 0);
        assert!(is_hint(&cards.line("1", 100)), "typed before the card could be read");
        assert!(is_hint(&cards.line("4", 5_000)), "no such option");
        assert!(is_hint(&cards.line("0", 5_000)));
        assert_eq!(cards.line("2", 5_000), answer_of("a", "deny"));
        assert!(is_hint(&cards.line("1", 5_000)), "an answer is on its way");
        assert_eq!(cards.line("//7", 5_000), Act::Text("7".into()));
        assert_eq!(cards.line("yes 1", 5_000), Act::Text("yes 1".into()));
        // Not confirmed: again.
        assert_eq!(cards.withdrawn("a"), Some(1));
        assert_eq!(cards.line("1", 5_000), answer_of("a", "once"));
        assert_eq!(cards.done("a", Some("once")), Some((1, Some("label once".into()))));
        assert_eq!(cards.line("1", 6_000), Act::Text("1".into()), "answered and done: chat again");
    }

    #[test]
    fn a_number_for_a_card_that_has_just_ended_is_not_chat() {
        let mut cards = Cards::new(false, Lang::En);
        cards.show(card("a"), 0);
        cards.done("a", None);
        assert!(is_hint(&cards.line("1", 10)));
        assert_eq!(cards.line("1", 10), Act::Text("1".into()), "said again it is meant");
        cards.show(card("b"), 0);
        cards.done("b", None);
        assert_eq!(cards.line("hello", 10), Act::Text("hello".into()));
        assert_eq!(cards.line("1", 10), Act::Text("1".into()));
    }

    #[test]
    fn several_cards_need_the_card_named() {
        let mut cards = Cards::new(false, Lang::En);
        assert!(is_hint(&cards.line("/card 1", 0)));
        cards.show(card("a"), 0);
        assert_eq!(cards.show(card("b"), 0), (2, true));
        assert_eq!(cards.show(card("b"), 9), (2, false));
        assert!(is_hint(&cards.line("1", 10)));
        assert!(is_hint(&cards.line("/card 1", 10)));
        assert!(is_hint(&cards.line("/card 3 1", 10)));
        assert_eq!(cards.line("/card 2 1", 10), answer_of("b", "once"));
        assert_eq!(
            cards.line("/card 1 3 in my own words", 10),
            Act::Answer {
                prompt_id: "a".into(),
                option_id: "other".into(),
                text: Some("in my own words".into())
            }
        );
    }

    #[test]
    fn commands_of_ours_and_of_the_agent() {
        let mut cards = Cards::new(false, Lang::En);
        let mut line = |text: &str| cards.line(text, 0);
        assert_eq!(line("/quit"), Act::Quit);
        assert_eq!(line("/new"), Act::Text("/new".into()));
        assert_eq!(line("/cards 3"), Act::Text("/cards 3".into()));
        assert_eq!(line("/voice"), Act::Text("/voice".into()));
        assert_eq!(line("//send x"), Act::Text("/send x".into()));
        assert_eq!(line("// a comment"), Act::Text("// a comment".into()));
        assert_eq!(line("  indented"), Act::Text("  indented".into()));
        assert!(is_hint(&line("/send")));
        assert_eq!(line("/send a.png"), Act::SendFile { path: "a.png".into(), caption: None });
        assert_eq!(
            line("/send a.png look at it"),
            Act::SendFile { path: "a.png".into(), caption: Some("look at it".into()) }
        );
        assert_eq!(
            line("/send \"a b.png\" hi"),
            Act::SendFile { path: "a b.png".into(), caption: Some("hi".into()) }
        );
        assert_eq!(line("/voice 'a b.ogg'"), Act::SendVoice { path: "a b.ogg".into() });
        assert_eq!(line(" \r\n"), Act::Nothing);
    }
}
