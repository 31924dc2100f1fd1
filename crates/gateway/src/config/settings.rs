//! What a setting is, and how values are understood.

use protocol::{id, words::Lang};

use super::{Config, Raw, Secret};

/// What is wrong with a value.
#[derive(Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It is not among what is allowed.
    NotAllowed,
    /// Something more exact.
    Because(Text),
}

/// A text in both languages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Both {
    /// English.
    pub en: &'static str,
    /// Russian.
    pub ru: &'static str,
}

impl Both {
    /// The text in a language.
    #[must_use]
    pub const fn text(self, lang: Lang) -> &'static str {
        match lang {
            Lang::En => self.en,
            Lang::Ru => self.ru,
        }
    }
}

/// A text in both languages that names a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// English.
    pub en: String,
    /// Russian.
    pub ru: String,
}

impl Text {
    /// The text in a language.
    #[must_use]
    pub fn text(&self, lang: Lang) -> &str {
        match lang {
            Lang::En => &self.en,
            Lang::Ru => &self.ru,
        }
    }
}

pub(crate) const fn both(en: &'static str, ru: &'static str) -> Both {
    Both { en, ru }
}

pub(super) fn because(en: impl Into<String>, ru: impl Into<String>) -> Wrong {
    Wrong::Because(Text { en: en.into(), ru: ru.into() })
}

/// One setting. The same name is used everywhere: `key` in the TOML file, `env` in the environment.
pub struct Setting {
    /// Key in the TOML file.
    pub key: &'static str,
    /// Environment variable.
    pub env: &'static str,
    /// Flag of `serve`, for the few that have one.
    pub flag: Option<&'static str>,
    /// Default, as one would write it; empty: none.
    pub default: &'static str,
    /// What is allowed, in words.
    pub allowed: Both,
    /// Whether the value must never be printed.
    pub secret: bool,
    /// What it means, one line.
    pub meaning: Both,
    /// Understands a value and puts it into the configuration.
    pub set: fn(&mut Config, &Raw) -> Result<(), Wrong>,
}

/// A setting without a flag, not secret.
pub(super) const fn setting(
    key: &'static str,
    env: &'static str,
    default: &'static str,
    allowed: Both,
    meaning: Both,
    set: fn(&mut Config, &Raw) -> Result<(), Wrong>,
) -> Setting {
    Setting { key, env, flag: None, default, allowed, secret: false, meaning, set }
}

impl Setting {
    pub(super) const fn flag(self, flag: &'static str) -> Self {
        Self { flag: Some(flag), ..self }
    }
    pub(super) const fn secret(self) -> Self {
        Self { secret: true, ..self }
    }
}

pub(super) fn number(raw: &Raw, low: u64, high: u64) -> Result<u64, Wrong> {
    let value: u64 = raw.one().and_then(|v| v.parse().ok()).ok_or(Wrong::NotAllowed)?;
    if (low..=high).contains(&value) { Ok(value) } else { Err(Wrong::NotAllowed) }
}

pub(super) fn small(raw: &Raw, low: u64, high: u32) -> Result<u32, Wrong> {
    number(raw, low, u64::from(high)).and_then(|v| u32::try_from(v).map_err(|_| Wrong::NotAllowed))
}

pub(super) fn size(raw: &Raw, low: u64, high: u64) -> Result<usize, Wrong> {
    number(raw, low, high).and_then(|v| usize::try_from(v).map_err(|_| Wrong::NotAllowed))
}

pub(super) fn on_off(raw: &Raw) -> Result<bool, Wrong> {
    match raw.one().map(str::to_ascii_lowercase).as_deref() {
        Some("on" | "1" | "true" | "yes") => Ok(true),
        Some("off" | "0" | "false" | "no") => Ok(false),
        _ => Err(Wrong::NotAllowed),
    }
}

pub(super) fn token(value: &str) -> Result<Secret, Wrong> {
    // What a header cannot carry could never be sent back by a client.
    if value.is_empty() || value.len() > 512 || !value.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(because(
            "a token must be 1 to 512 printable ASCII characters without spaces",
            "токен: от 1 до 512 печатных знаков ASCII без пробелов",
        ));
    }
    Ok(Secret::new(value))
}

pub(super) fn device(value: &str) -> Result<String, Wrong> {
    if id::valid_device_id(value) {
        Ok(value.to_owned())
    } else {
        Err(because(
            format!("the device id {value:?} {}", id::DEVICE_ID_RULE),
            format!(
                "id устройства {value:?}: от 1 до 128 знаков: буквы и цифры любого письма и . _ - ~ @ + :"
            ),
        ))
    }
}

pub(super) fn optional(raw: &Raw) -> Result<Option<&str>, Wrong> {
    Ok(Some(raw.one().ok_or(Wrong::NotAllowed)?).filter(|v| !v.is_empty()))
}
