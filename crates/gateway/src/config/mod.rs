//! Configuration: defaults compiled in, then a TOML file, then `MOBILE_*` variables, then flags; the later one wins.
//!
//! Every setting is described once, in [`SETTINGS`]: names, default, what is allowed, what it means. Everything else
//! (the layers, the error texts, the printed reference) is made from that table.

mod report;
mod settings;
mod table;
#[cfg(test)]
mod tests;

use std::{
    ffi::{OsStr, OsString},
    fmt,
    path::{Path, PathBuf},
};

use protocol::words::Lang;

pub use report::{Source, Value, example};
pub(crate) use settings::both;
pub use settings::{Both, Setting, Text, Wrong};
pub use table::SETTINGS;

/// A token. Never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a token.
    pub fn new(token: impl Into<String>) -> Self {
        Self(token.into())
    }
    /// The token itself, to be compared or shown to its owner; not for logs.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Which embedded agent serves the devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AgentChoice {
    /// Shows every feature.
    #[default]
    Demo,
    /// Repeats what it is told.
    Echo,
    /// None: what devices say waits.
    None,
}

impl AgentChoice {
    /// Its name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Demo => "demo",
            Self::Echo => "echo",
            Self::None => "none",
        }
    }
}

/// The settings of a gateway. Each field is described in [`SETTINGS`] under the same name; durations are milliseconds.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "every field is described once, in SETTINGS")]
pub struct Config {
    pub host: String,
    pub port: u16,
    pub state_dir: PathBuf,
    pub agent: AgentChoice,
    pub token: Option<Secret>,
    pub extra_tokens: Vec<(String, Secret)>,
    pub deliver_tokens: Vec<Secret>,
    pub metrics_token: Option<Secret>,
    pub allowed_devices: Vec<String>,
    pub deliver_loopback: bool,
    pub trusted_proxies: Vec<crate::origin::Network>,
    pub home_device: Option<String>,
    pub avatar_url: String,
    pub lang: Lang,
    pub chunk_limit: usize,
    pub idle_after_ms: u64,
    pub rate_limits: bool,
    pub frames_per_second: u32,
    pub frames_burst: u32,
    pub bytes_per_second: u64,
    pub lockout_after: u32,
    pub lockout_ms: u64,
    pub ping_interval_ms: u64,
    pub silent_after_ms: u64,
    pub hello_timeout_ms: u64,
    pub series_idle_ms: u64,
    pub wait_ms: u64,
    pub take_ms: u64,
    pub deliver_ms: u64,
    pub agent_silent_ms: u64,
    pub write_timeout_ms: u64,
    pub queue_bytes: usize,
    pub spool_bytes: u64,
    pub inflight_bytes: usize,
    pub drain_ms: u64,
    pub log: String,
}

impl Default for Config {
    /// The defaults of [`SETTINGS`]. `state_dir` is empty: it has to be set, or found by [`load`].
    fn default() -> Self {
        let mut config = Self {
            host: String::new(),
            port: 0,
            state_dir: PathBuf::new(),
            agent: AgentChoice::Demo,
            token: None,
            extra_tokens: Vec::new(),
            deliver_tokens: Vec::new(),
            metrics_token: None,
            allowed_devices: Vec::new(),
            deliver_loopback: false,
            trusted_proxies: Vec::new(),
            home_device: None,
            avatar_url: String::new(),
            lang: Lang::Ru,
            chunk_limit: 0,
            idle_after_ms: 0,
            rate_limits: false,
            frames_per_second: 0,
            frames_burst: 0,
            bytes_per_second: 0,
            lockout_after: 0,
            lockout_ms: 0,
            ping_interval_ms: 0,
            silent_after_ms: 0,
            hello_timeout_ms: 0,
            series_idle_ms: 0,
            wait_ms: 0,
            take_ms: 0,
            deliver_ms: 0,
            agent_silent_ms: 0,
            write_timeout_ms: 0,
            queue_bytes: 0,
            spool_bytes: 0,
            inflight_bytes: 0,
            drain_ms: 0,
            log: String::new(),
        };
        for setting in SETTINGS {
            // A test proves that every default is one that its own setting allows; `state_dir` has none.
            let _ = (setting.set)(&mut config, &Raw::One(setting.default.to_owned()));
        }
        config
    }
}

/// A value as it was written, before it is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Raw {
    /// A single value, or a list separated by commas.
    One(String),
    /// A list (TOML only).
    List(Vec<String>),
}

impl Raw {
    /// As a single value, without white space at its ends.
    fn one(&self) -> Option<&str> {
        match self {
            Self::One(value) => Some(value.trim()),
            Self::List(_) => None,
        }
    }
    /// Nothing was given: an empty text or an empty list.
    fn is_blank(&self) -> bool {
        match self {
            Self::One(value) => value.trim().is_empty(),
            Self::List(items) => items.is_empty(),
        }
    }

    /// As a list; empty entries (a trailing comma) do not count.
    fn items(&self) -> Vec<&str> {
        let all: Vec<&str> = match self {
            Self::One(value) => value.split(',').collect(),
            Self::List(items) => items.iter().map(String::as_str).collect(),
        };
        all.into_iter().map(str::trim).filter(|item| !item.is_empty()).collect()
    }
}

/// Why the gateway does not start with this configuration. The text names the setting, its value (unless it is a
/// secret) and what is allowed. `Display` is English; [`ConfigError::text`] has both languages.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.text(Lang::En))]
#[non_exhaustive]
pub enum ConfigError {
    /// A value that is not allowed.
    Value {
        /// The variable, flag, or key and file.
        origin: String,
        /// The value; `None` for a secret.
        value: Option<String>,
        /// What is wrong with it, if there is more to say than that it is not allowed.
        why: Option<Text>,
        /// What is allowed.
        allowed: Both,
    },
    /// The file cannot be read.
    Unreadable {
        /// Which.
        path: String,
        /// Why.
        why: String,
    },
    /// The file is not TOML.
    Toml {
        /// Which.
        path: String,
        /// Where and what.
        why: String,
    },
    /// Two settings contradict each other.
    Together(Text),
    /// Nobody said where the state is, and there is no home directory to put it in.
    NoStateDir,
}

impl ConfigError {
    /// The text in a language.
    #[must_use]
    pub fn text(&self, lang: Lang) -> String {
        let say = |text: &Text| text.text(lang).to_owned();
        match self {
            Self::Value { origin, value, why, allowed } => {
                let why = why.as_ref().map_or_else(
                    || match lang {
                        Lang::En => "this value is not allowed".to_owned(),
                        Lang::Ru => "такое значение недопустимо".to_owned(),
                    },
                    say,
                );
                let value = value.as_ref().map(|value| format!("{value}: ")).unwrap_or_default();
                let allowed_is = match lang {
                    Lang::En => "Allowed",
                    Lang::Ru => "Допустимо",
                };
                format!("{origin}: {value}{why}. {allowed_is}: {}", allowed.text(lang))
            }
            Self::Unreadable { path, why } => match lang {
                Lang::En => {
                    format!("the configuration file {path} cannot be read: {why}. Check --config and MOBILE_CONFIG")
                }
                Lang::Ru => {
                    format!("файл настроек {path} нельзя прочитать: {why}. Проверьте --config и MOBILE_CONFIG")
                }
            },
            Self::Toml { path, why } => match lang {
                Lang::En => format!("the configuration file {path} is not valid TOML: {why}"),
                Lang::Ru => format!("файл настроек {path}: ошибка в TOML: {why}"),
            },
            Self::Together(text) => say(text),
            Self::NoStateDir => match lang {
                Lang::En => "no state directory: set --state DIR or MOBILE_STATE_DIR (there is neither XDG_STATE_HOME nor HOME)",
                Lang::Ru => "нет каталога состояния: задайте --state DIR или MOBILE_STATE_DIR (нет ни XDG_STATE_HOME, ни HOME)",
            }
            .to_owned(),
        }
    }
}

/// A configuration, and what an operator should be told about it.
#[derive(Debug)]
pub struct Loaded {
    /// It.
    pub config: Config,
    /// What is in force and where it comes from, one for each of [`SETTINGS`], in their order.
    pub values: Vec<Value>,
    /// Sentences: unknown keys and variables, and settings that are legal but unwise.
    pub warnings: Vec<Text>,
}

/// Variables that start with `MOBILE_` and are no settings of the gateway.
const OTHER_VARIABLES: [&str; 2] = ["MOBILE_CONFIG", "MOBILE_URL"];

/// Puts the layers together. `env` is the environment; `flags` are pairs of a setting's key and the value given.
/// Without `file` the variable `MOBILE_CONFIG` names it; without that there is none.
///
/// # Errors
/// [`ConfigError`]; the gateway must not start then.
pub fn load(
    file: Option<&Path>,
    env: impl IntoIterator<Item = (OsString, OsString)>,
    flags: &[(&str, String)],
) -> Result<Loaded, ConfigError> {
    let env: Vec<(String, OsString)> =
        env.into_iter().filter_map(|(name, value)| Some((name.into_string().ok()?, value))).collect();
    let variable =
        |name: &str| env.iter().find(|(n, v)| n == name && !v.is_empty()).map(|(_, value)| value.as_os_str());
    let mut config = Config::default();
    let mut values: Vec<Value> = SETTINGS.iter().map(Value::of_default).collect();
    let mut warnings = Vec::new();

    let file = file.map(Path::to_path_buf).or_else(|| variable("MOBILE_CONFIG").map(PathBuf::from));
    if let Some(path) = file {
        from_file(&mut config, &mut values, &path, &mut warnings)?;
    }
    for (name, value) in &env {
        // An empty variable counts as not set: service files and compose files often pass empty ones on.
        if !name.starts_with("MOBILE_") || value.is_empty() || OTHER_VARIABLES.contains(&name.as_str()) {
            continue;
        }
        match values.iter_mut().find(|v| v.setting.env == name) {
            Some(slot) => {
                let raw = Raw::One(text_of(slot.setting, name, value)?);
                apply(&mut config, slot, name.clone(), Source::Variable, raw)?;
            }
            None => warnings.push(Text {
                en: format!("the variable {name} is not known and has no effect"),
                ru: format!("переменная {name} неизвестна и ни на что не влияет"),
            }),
        }
    }
    for (key, value) in flags {
        match values.iter_mut().find(|v| v.setting.key == *key) {
            Some(slot) => {
                let origin = slot.setting.flag.unwrap_or(slot.setting.key).to_owned();
                apply(&mut config, slot, origin, Source::Flag, Raw::One(value.clone()))?;
            }
            None => warnings.push(Text {
                en: format!("the flag for {key} is not known and has no effect"),
                ru: format!("ключ для {key} неизвестен и ни на что не влияет"),
            }),
        }
    }
    if config.state_dir.as_os_str().is_empty() {
        config.state_dir = default_state_dir(variable("XDG_STATE_HOME"), variable("HOME"))?;
        if let Some(slot) = values.iter_mut().find(|v| v.setting.key == "state_dir") {
            slot.raw = Raw::One(config.state_dir.display().to_string());
        }
    }
    check(&config, &mut warnings)?;
    Ok(Loaded { config, values, warnings })
}

fn text_of(setting: &Setting, name: &str, value: &OsStr) -> Result<String, ConfigError> {
    value.to_str().map(str::to_owned).ok_or_else(|| ConfigError::Value {
        origin: name.to_owned(),
        value: None,
        why: Some(Text {
            en: "the value is not UTF-8".to_owned(), ru: "значение не в UTF-8".to_owned()
        }),
        allowed: setting.allowed,
    })
}

/// Puts a value into the configuration; `origin` names it in an error.
fn apply(
    config: &mut Config,
    slot: &mut Value,
    origin: String,
    source: Source,
    raw: Raw,
) -> Result<(), ConfigError> {
    let setting = slot.setting;
    (setting.set)(config, &raw).map_err(|wrong| {
        let value = match &raw {
            _ if setting.secret => None,
            Raw::One(value) => Some(format!("{value:?}")),
            Raw::List(items) => Some(format!("{items:?}")),
        };
        let why = match wrong {
            Wrong::NotAllowed => None,
            Wrong::Because(why) => Some(why),
        };
        ConfigError::Value { origin, value, why, allowed: setting.allowed }
    })?;
    (slot.source, slot.raw) = (source, raw);
    Ok(())
}

fn from_file(
    config: &mut Config,
    values: &mut [Value],
    path: &Path,
    warnings: &mut Vec<Text>,
) -> Result<(), ConfigError> {
    let shown = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|e| ConfigError::Unreadable { path: shown.clone(), why: e.to_string() })?;
    let table: toml::Table = text.parse().map_err(|e: toml::de::Error| ConfigError::Toml {
        path: shown.clone(),
        why: e.to_string().trim_end().to_owned(),
    })?;
    for (key, value) in &table {
        let Some(slot) = values.iter_mut().find(|v| v.setting.key == key) else {
            warnings.push(Text {
                en: format!("{shown}: the key {key} is not known and has no effect"),
                ru: format!("{shown}: ключ {key} неизвестен и ни на что не влияет"),
            });
            continue;
        };
        let origin = format!("{shown}: {key}");
        let Some(raw) = raw_of(value) else {
            return Err(ConfigError::Value {
                origin,
                value: None,
                why: Some(Text {
                    en: "the value must be a string, a number, true or false, or a list of strings"
                        .to_owned(),
                    ru: "значением должна быть строка, число, true или false, или список строк".to_owned(),
                }),
                allowed: slot.setting.allowed,
            });
        };
        apply(config, slot, origin, Source::File(path.to_path_buf()), raw)?;
    }
    Ok(())
}

fn raw_of(value: &toml::Value) -> Option<Raw> {
    let scalar = |value: &toml::Value| match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Boolean(flag) => Some(if *flag { "on" } else { "off" }.to_owned()),
        _ => None,
    };
    match value {
        toml::Value::Array(items) => Some(Raw::List(items.iter().map(scalar).collect::<Option<_>>()?)),
        other => scalar(other).map(Raw::One),
    }
}

fn default_state_dir(xdg: Option<&OsStr>, home: Option<&OsStr>) -> Result<PathBuf, ConfigError> {
    // The XDG rule: a relative path there is to be ignored.
    let xdg = xdg.map(PathBuf::from).filter(|p| p.is_absolute());
    let base = xdg.or_else(|| home.map(|h| Path::new(h).join(".local/state")));
    base.map(|b| b.join("hermes-mobile")).ok_or(ConfigError::NoStateDir)
}

/// What no single setting can see.
fn check(config: &Config, warnings: &mut Vec<Text>) -> Result<(), ConfigError> {
    if config.silent_after_ms <= config.ping_interval_ms {
        let (silent, ping) = (config.silent_after_ms, config.ping_interval_ms);
        return Err(ConfigError::Together(Text {
            en: format!(
                "MOBILE_SILENT_AFTER_MS ({silent}) must be longer than MOBILE_PING_INTERVAL_MS ({ping}): else living connections are closed before they are asked"
            ),
            ru: format!(
                "MOBILE_SILENT_AFTER_MS ({silent}) должно быть больше MOBILE_PING_INTERVAL_MS ({ping}): иначе живые соединения закроются раньше, чем их спросят"
            ),
        }));
    }
    let mut all: Vec<(&str, &Secret)> = Vec::new();
    all.extend(config.token.iter().map(|t| ("MOBILE_TOKEN", t)));
    all.extend(config.extra_tokens.iter().map(|(_, t)| ("MOBILE_EXTRA_TOKENS", t)));
    all.extend(config.deliver_tokens.iter().map(|t| ("MOBILE_DELIVER_TOKENS", t)));
    all.extend(config.metrics_token.iter().map(|t| ("MOBILE_METRICS_TOKEN", t)));
    for (index, (name, token)) in all.iter().enumerate() {
        if let Some((other, _)) = all.iter().skip(index + 1).find(|(_, t)| t == token) {
            return Err(ConfigError::Together(Text {
                en: format!(
                    "the same token is given twice ({name} and {other}): each token must say who it is"
                ),
                ru: format!(
                    "один и тот же токен указан дважды ({name} и {other}): по токену должно быть видно, кто это"
                ),
            }));
        }
        if token.reveal().chars().count() < SHORT_TOKEN {
            warnings.push(Text {
                en: format!("a token in {name} is shorter than {SHORT_TOKEN} characters and may be guessed"),
                ru: format!("токен в {name} короче {SHORT_TOKEN} знаков, его могут подобрать"),
            });
        }
    }
    Ok(())
}

/// A token shorter than this (characters) is accepted and warned about.
const SHORT_TOKEN: usize = 16;
