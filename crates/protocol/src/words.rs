//! What a person reads, in Russian and English. A third language is one more column here.

use crate::code::ErrorCode;

/// A language of the texts for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Lang {
    /// Russian, the language of the checklist and the default.
    #[default]
    Ru,
    /// English.
    En,
}

impl Lang {
    /// The language of a tag such as `en-GB`; `None` if there is no such translation.
    #[must_use]
    pub fn from_tag(tag: &str) -> Option<Self> {
        let primary = tag.split(['-', '_']).next().unwrap_or_default();
        if primary.eq_ignore_ascii_case("ru") {
            Some(Self::Ru)
        } else if primary.eq_ignore_ascii_case("en") {
            Some(Self::En)
        } else {
            None
        }
    }
}

/// One thing the gateway says to a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Say {
    /// Errors, one for each code.
    Code(ErrorCode),
    /// The text was empty.
    EmptyText,
    /// The text was too long.
    LongText,
    /// The caption of a file was too long.
    LongCaption,
    /// The file was too large.
    LargeFile,
    /// The file was empty.
    EmptyFile,
    /// The id was used for something else.
    IdUsed,
    /// The disk of the gateway is full or cannot be written.
    CannotStore,
    /// Notice: no agent is attached; what was said waits.
    AgentAway,
    /// Notice: what was said waited a day and was not handed over. Holds the beginning of it.
    Expired(String),
    /// Notice: the agent wanted to send a file that it may not send. Holds the name.
    FileRefused(String),
    /// Notice: a file of the agent's was too large to send. Holds the name.
    FileTooLarge(String),
    /// Notice: a file of the agent's is stored but cannot be read. Holds the name.
    FileLost(String),
    /// Notice: an item was set aside since the client ended the connection on it three times.
    SetAside,
}

impl Say {
    /// The words for a code.
    #[must_use]
    pub const fn for_code(code: ErrorCode) -> Self {
        Self::Code(code)
    }

    /// The text in a language.
    #[must_use]
    pub fn text(&self, lang: Lang) -> String {
        let (ru, en): (&str, &str) = match self {
            Self::Code(code) => match code {
                ErrorCode::AuthRequired => ("Сначала нужно представиться", "Sign in first"),
                ErrorCode::AuthFailed => ("Нет доступа", "No access"),
                ErrorCode::Forbidden => ("Это не разрешено", "Not allowed"),
                ErrorCode::Replaced => (
                    "Подключено другое приложение этого устройства",
                    "Another app of this device has connected",
                ),
                ErrorCode::BadFrame => (
                    "Приложение прислало непонятное сообщение",
                    "The app sent something that cannot be understood",
                ),
                ErrorCode::TooBig => ("Слишком большое сообщение", "Too large"),
                ErrorCode::UnsupportedFrame => {
                    ("Такой вид сообщения не поддерживается", "This kind of message is not supported")
                }
                ErrorCode::DeviceOffline => ("Устройство не в сети", "The device is offline"),
                ErrorCode::RateLimited => ("Слишком часто, подождите немного", "Too often, wait a moment"),
                ErrorCode::AgentOffline => ("Агент не отвечает", "The agent does not answer"),
                ErrorCode::Unknown => ("Сервер отказал", "The server refused"),
                ErrorCode::Internal => ("Ошибка сервера, попробуйте позже", "Server error, try again later"),
            },
            Self::EmptyText => ("Пустое сообщение", "Empty message"),
            Self::LongText => (
                "Слишком длинное сообщение: не больше 12 000 знаков",
                "The message is too long: at most 12,000 characters",
            ),
            Self::LongCaption => (
                "Слишком длинная подпись: не больше 4 000 знаков",
                "The caption is too long: at most 4,000 characters",
            ),
            Self::LargeFile => {
                ("Файл слишком большой: не больше 8 МиБ", "The file is too large: at most 8 MiB")
            }
            Self::EmptyFile => ("Файл пустой", "The file is empty"),
            Self::IdUsed => ("Этот номер сообщения уже занят", "This message id is already used"),
            Self::CannotStore => (
                "Сервер не может сохранить сообщение, попробуйте позже",
                "The server cannot store the message, try again later",
            ),
            Self::AgentAway => (
                "Агент сейчас не подключён. Сообщение сохранено и будет передано, когда он вернётся.",
                "The agent is not connected. The message is kept and will be handed over when it is back.",
            ),
            Self::SetAside => (
                "Одно сообщение не удалось показать в этом приложении. Оно осталось в истории.",
                "One message could not be shown in this app. It is kept in the history.",
            ),
            Self::Expired(what) => {
                return match lang {
                    Lang::Ru => format!("Агента не было больше суток, сообщение не передано: «{what}»"),
                    Lang::En => {
                        format!("The agent was away for more than a day; this was not handed over: “{what}”")
                    }
                };
            }
            Self::FileRefused(name) => {
                return match lang {
                    Lang::Ru => format!(
                        "Агент хотел отправить файл «{name}», но это запрещено: он лежит вне папки для отправки."
                    ),
                    Lang::En => format!(
                        "The agent wanted to send the file “{name}”; this was refused: it is outside the folder for sending."
                    ),
                };
            }
            Self::FileLost(name) => {
                return match lang {
                    Lang::Ru => format!("Файл «{name}» от агента не удалось прочитать на сервере."),
                    Lang::En => format!("The agent's file “{name}” could not be read on the server."),
                };
            }
            Self::FileTooLarge(name) => {
                return match lang {
                    Lang::Ru => format!("Агент хотел отправить файл «{name}», но он больше 8 МиБ."),
                    Lang::En => {
                        format!("The agent wanted to send the file “{name}”; it is larger than 8 MiB.")
                    }
                };
            }
        };
        match lang {
            Lang::Ru => ru,
            Lang::En => en,
        }
        .to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_say() -> Vec<Say> {
        let codes = [
            ErrorCode::AuthRequired,
            ErrorCode::AuthFailed,
            ErrorCode::Forbidden,
            ErrorCode::Replaced,
            ErrorCode::BadFrame,
            ErrorCode::TooBig,
            ErrorCode::UnsupportedFrame,
            ErrorCode::DeviceOffline,
            ErrorCode::RateLimited,
            ErrorCode::AgentOffline,
            ErrorCode::Internal,
            ErrorCode::Unknown,
        ];
        let mut all: Vec<Say> = codes.into_iter().map(Say::for_code).collect();
        all.extend([
            Say::EmptyText,
            Say::LongText,
            Say::LongCaption,
            Say::LargeFile,
            Say::EmptyFile,
            Say::IdUsed,
            Say::CannotStore,
            Say::AgentAway,
            Say::Expired("WHAT".into()),
            Say::FileRefused("WHAT".into()),
            Say::FileTooLarge("WHAT".into()),
            Say::FileLost("WHAT".into()),
            Say::SetAside,
        ]);
        // A new variant does not compile here until it is in the list above.
        for say in &all {
            match say {
                Say::Code(_)
                | Say::EmptyText
                | Say::LongText
                | Say::LongCaption
                | Say::LargeFile
                | Say::EmptyFile
                | Say::IdUsed
                | Say::CannotStore
                | Say::AgentAway
                | Say::Expired(_)
                | Say::FileRefused(_)
                | Say::FileTooLarge(_)
                | Say::FileLost(_)
                | Say::SetAside => {}
            }
        }
        all
    }

    #[test]
    fn everything_is_said_in_both_languages() {
        for say in every_say() {
            let (ru, en) = (say.text(Lang::Ru), say.text(Lang::En));
            assert!(ru.chars().any(|c| ('а'..='я').contains(&c)), "{say:?}: {ru}");
            assert!(en.chars().any(|c| c.is_ascii_lowercase()), "{say:?}: {en}");
            assert!(!en.chars().any(|c| ('а'..='я').contains(&c)), "{say:?}: {en}");
            let holds = matches!(
                say,
                Say::Expired(_) | Say::FileRefused(_) | Say::FileTooLarge(_) | Say::FileLost(_)
            );
            assert_eq!((ru.contains("WHAT"), en.contains("WHAT")), (holds, holds), "{say:?}");
        }
    }

    #[test]
    fn the_words_of_the_checklist_are_exact() {
        assert_eq!(Say::EmptyText.text(Lang::default()), "Пустое сообщение");
    }

    #[test]
    fn a_language_tag_is_read_by_its_first_part() {
        for (tag, lang) in [
            ("ru", Some(Lang::Ru)),
            ("RU_ru", Some(Lang::Ru)),
            ("en-GB", Some(Lang::En)),
            ("de", None),
            ("", None),
            ("english", None),
        ] {
            assert_eq!(Lang::from_tag(tag), lang, "{tag}");
        }
    }
}
