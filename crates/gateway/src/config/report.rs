//! What an operator can read about the configuration: what is in force and why, and a file with everything in it.

use std::{fmt::Write, path::PathBuf};

use protocol::words::Lang;

use super::{Config, Raw, SETTINGS, Setting};

/// Which layer a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Compiled in; for the state directory also what the environment says about the home directory.
    Default,
    /// This TOML file.
    File(PathBuf),
    /// The setting's variable.
    Variable,
    /// The setting's flag.
    Flag,
}

impl Source {
    /// One word for programs: `default`, `file`, `variable`, `flag`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File(_) => "file",
            Self::Variable => "variable",
            Self::Flag => "flag",
        }
    }
}

/// A setting with the value that is in force.
#[derive(Clone)]
pub struct Value {
    /// Which setting.
    pub setting: &'static Setting,
    /// Where the value comes from.
    pub source: Source,
    /// As it was given; never to be printed as it is, since it may be a secret.
    pub(super) raw: Raw,
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Value").field("key", &self.setting.key).field("shown", &self.shown()).finish()
    }
}

/// What is shown in place of a secret.
const MASK: &str = "***";

impl Value {
    /// A setting that nobody has set.
    pub(super) fn of_default(setting: &'static Setting) -> Self {
        Self { setting, source: Source::Default, raw: Raw::One(setting.default.to_owned()) }
    }

    /// The value as it may be printed: a secret is `***` (once for each of a list), whatever its length; a list has
    /// commas. Empty: not set.
    #[must_use]
    pub fn shown(&self) -> String {
        match &self.raw {
            _ if self.setting.secret => vec![MASK; self.raw.items().len()].join(","),
            Raw::One(value) => value.trim().to_owned(),
            Raw::List(items) => items.join(","),
        }
    }
}

/// What stands in the example for the one default that is not a constant.
const EXAMPLE_STATE_DIR: &str = "/var/lib/hermes-mobile";

/// A TOML file with every setting: what it means, what is allowed, and its default as a commented-out line. Only
/// `state_dir` has an example instead, since its default is another one for each user.
#[must_use]
pub fn example(lang: Lang) -> String {
    let [head, allowed_is] = match lang {
        Lang::En => [
            "\
# Settings of hermes-mobile. Every line shows the default (state_dir: an example); remove the # to change it.
# A variable MOBILE_… wins over this file, a flag of `serve` over both. Durations are in milliseconds, sizes in bytes.
# If tokens stand in it, keep this file to yourself: chmod 600.
",
            "Allowed",
        ],
        Lang::Ru => [
            "\
# Настройки hermes-mobile. В каждой строке значение по умолчанию (у state_dir — пример); чтобы изменить, уберите #.
# Переменная MOBILE_… важнее этого файла, ключ команды `serve` важнее обоих. Время в миллисекундах, размеры в байтах.
# Если в файле есть токены, закройте его от других: chmod 600.
",
            "Допустимо",
        ],
    };
    let mut text = head.to_owned();
    for setting in SETTINGS {
        // Writing into a String cannot fail.
        let _ = write!(
            text,
            "\n# {}\n# {allowed_is}: {}\n#{} = {}\n",
            setting.meaning.text(lang),
            setting.allowed.text(lang),
            setting.key,
            toml_default(setting)
        );
    }
    text
}

/// The default as it is written in TOML.
fn toml_default(setting: &Setting) -> String {
    let is_list = (setting.set)(&mut Config::default(), &Raw::List(Vec::new())).is_ok();
    match setting.default {
        "" if setting.key == "state_dir" => format!("{EXAMPLE_STATE_DIR:?}"),
        "" if is_list => "[]".to_owned(),
        default if default.parse::<u64>().is_ok() => default.to_owned(),
        default => format!("{default:?}"),
    }
}
