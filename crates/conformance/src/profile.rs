//! What an agent does when it is asked to: which text makes it show a card, a file, a streamed reply.

use std::{collections::BTreeMap, path::Path, time::Duration};

use protocol::words::Lang;
use serde::Deserialize;

/// The profiles that are built in: name, text.
pub const BUILT_IN: &[(&str, &str)] = &[
    ("demo", include_str!("../../../spec/checklist/profiles/demo.toml")),
    ("generic", include_str!("../../../spec/checklist/profiles/generic.toml")),
];
const KEYS: &str = include_str!("../../../spec/checklist/profiles/keys.toml");

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Neither a name nor a file.
    #[error("there is no profile {0:?} and no such file; built in are: demo, generic")]
    Unknown(String),
    /// Not as it must be.
    #[error("profile {0}: {1}")]
    Form(String, String),
    /// A key that no case uses.
    #[error("{0:?} is no key of a profile; the keys are: {1}")]
    Key(String, String),
}

/// How to make an agent do what a case is about.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// How long an answer may take, milliseconds.
    pub patience_ms: u64,
    /// `p.KEY` of the cases; the keys are described in `keys.toml`.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
}

/// What a key of a profile means.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// Russian.
    pub ru: String,
    /// English.
    pub en: String,
}

impl Key {
    /// The meaning in a language.
    #[must_use]
    pub fn text(&self, lang: Lang) -> &str {
        match lang {
            Lang::Ru => &self.ru,
            Lang::En => &self.en,
        }
    }
}

/// All keys with their meanings.
///
/// # Errors
/// [`ProfileError::Form`]: what was built in is damaged.
pub fn keys() -> Result<BTreeMap<String, Key>, ProfileError> {
    toml::from_str(KEYS).map_err(|e| ProfileError::Form("keys.toml".into(), e.to_string()))
}

impl Profile {
    /// A profile by its name or its file.
    ///
    /// # Errors
    /// [`ProfileError`].
    pub fn load(name: &str) -> Result<Self, ProfileError> {
        let text = match BUILT_IN.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => (*text).to_owned(),
            None => {
                std::fs::read_to_string(Path::new(name)).map_err(|_| ProfileError::Unknown(name.into()))?
            }
        };
        let profile: Self =
            toml::from_str(&text).map_err(|e| ProfileError::Form(name.into(), e.to_string()))?;
        for key in profile.set.keys() {
            known(key)?;
        }
        Ok(profile)
    }

    /// Sets a key.
    ///
    /// # Errors
    /// [`ProfileError::Key`].
    pub fn set(&mut self, key: &str, text: &str) -> Result<(), ProfileError> {
        known(key)?;
        self.set.insert(key.into(), text.into());
        Ok(())
    }

    /// How long an answer may take.
    #[must_use]
    pub const fn patience(&self) -> Duration {
        Duration::from_millis(self.patience_ms)
    }
}

fn known(key: &str) -> Result<(), ProfileError> {
    let keys = keys()?;
    if keys.contains_key(key) {
        return Ok(());
    }
    Err(ProfileError::Key(key.into(), keys.into_keys().collect::<Vec<_>>().join(", ")))
}
