//! The owner's token, when the configuration has none: made once, kept in the state directory, readable by its owner only.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use crate::config::Secret;

/// Why there is no token. The text says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file is there and cannot be used.
    #[error(
        "the token file {path} cannot be used: {why}. Repair it, or remove it: a new token is then made and every app needs the new one"
    )]
    Unusable {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// It cannot be written.
    #[error(
        "the token file {path} cannot be written: {why}. Free space or give this user the right to write, or set MOBILE_TOKEN"
    )]
    Unwritable {
        /// Which.
        path: PathBuf,
        /// What the system says.
        why: io::Error,
    },
    /// The system gives no random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(String),
}

impl TokenError {
    pub(crate) fn russian(&self) -> String {
        match self {
            Self::Unusable { path, why } => format!(
                "файл токена {} нельзя использовать: {why}. Исправьте его или удалите: тогда будет создан новый токен, и он понадобится каждому приложению",
                path.display()
            ),
            Self::Unwritable { path, why } => format!(
                "файл токена {} нельзя записать: {why}. Освободите место или дайте права на запись, либо задайте MOBILE_TOKEN",
                path.display()
            ),
            Self::Random(why) => format!("система не даёт случайных чисел: {why}"),
        }
    }
}

/// Where the token is kept.
#[must_use]
pub fn token_file(state_dir: &Path) -> PathBuf {
    state_dir.join("token")
}

/// The token of a state directory (which must exist); made if there is none yet. Works beside a running gateway.
///
/// # Errors
/// [`TokenError`].
pub(crate) fn owner_token(state_dir: &Path) -> Result<Secret, TokenError> {
    let path = token_file(state_dir);
    match fs::read_to_string(&path) {
        Ok(text) => read(&path, &text),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let token = make()?;
            match write_new(state_dir, &path, &token) {
                Ok(()) => Ok(Secret::new(token)),
                // Another process was quicker; its token counts.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    let text = fs::read_to_string(&path)
                        .map_err(|e| TokenError::Unusable { path: path.clone(), why: e.to_string() })?;
                    read(&path, &text)
                }
                Err(why) => Err(TokenError::Unwritable { path, why }),
            }
        }
        Err(e) => Err(TokenError::Unusable { path, why: e.to_string() }),
    }
}

fn read(path: &Path, text: &str) -> Result<Secret, TokenError> {
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
        let why = "it holds no token (one line of printable characters)".to_owned();
        return Err(TokenError::Unusable { path: path.to_path_buf(), why });
    }
    let mode = fs::metadata(path).map(|m| m.mode()).unwrap_or(0o600);
    if mode & 0o077 != 0 {
        tracing::warn!(
            "other users of this machine could read {} (mode {:o}): closed to them",
            path.display(),
            mode & 0o777
        );
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o600));
    }
    Ok(Secret::new(token))
}

/// 160 random bits in letters and digits that can be typed.
fn make() -> Result<String, TokenError> {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let random: [u8; 32] = random()?;
    Ok(random.iter().filter_map(|b| ALPHABET.get(usize::from(b & 31))).map(|b| char::from(*b)).collect())
}

/// Fresh random bytes.
///
/// # Errors
/// [`TokenError::Random`].
pub(crate) fn random<const N: usize>() -> Result<[u8; N], TokenError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| TokenError::Random(e.to_string()))?;
    Ok(bytes)
}

/// Writes a file that must not be there yet: whole, synced, and readable by its owner only from the first moment.
fn write_new(dir: &Path, path: &Path, text: &str) -> io::Result<()> {
    let draft = dir.join(format!(".token.{}", std::process::id()));
    let _ = fs::remove_file(&draft);
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        writeln!(file, "{text}")?;
        file.sync_all()?;
        // A link, not a rename: it fails if the name is taken.
        fs::hard_link(&draft, path)?;
        File::open(dir)?.sync_all()
    };
    let done = write();
    let _ = fs::remove_file(&draft);
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn the_token_is_made_once_and_kept_private() {
        let base = tempfile::tempdir().unwrap();
        let token = owner_token(base.path()).unwrap();
        assert_eq!(token.reveal().len(), 32);
        let file = token_file(base.path());
        assert_eq!(mode(&file), 0o600);
        assert!(owner_token(base.path()).unwrap() == token, "kept");
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 1, "nothing else is left behind");

        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(owner_token(base.path()).unwrap() == token);
        assert_eq!(mode(&file), 0o600, "made private again");

        let other = tempfile::tempdir().unwrap();
        assert!(owner_token(other.path()).unwrap() != token);
    }

    #[test]
    fn a_token_file_without_a_token_is_refused_in_words() {
        let base = tempfile::tempdir().unwrap();
        fs::write(token_file(base.path()), "\n").unwrap();
        let text = owner_token(base.path()).unwrap_err().to_string();
        assert!(text.contains("holds no token") && text.contains("remove it"), "{text}");
    }
}
