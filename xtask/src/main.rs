//! Chores of this repository: `cargo run -p xtask -- <chore>`.
//!
//! - `gen` writes what is derived from the types: `spec/schema/*.json`.
//! - `check-gen` changes nothing, and ends with 1 when a file is not what `gen` would write.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;

const USAGE: &str = "usage: cargo run -p xtask -- gen | check-gen";

fn main() -> anyhow::Result<ExitCode> {
    let folder = schema_folder();
    match std::env::args().nth(1).as_deref() {
        Some("gen") => {
            generate(&folder)?;
            Ok(ExitCode::SUCCESS)
        }
        Some("check-gen") => {
            let drift = drift(&folder)?;
            for line in &drift {
                eprintln!("{line}");
            }
            if drift.is_empty() {
                return Ok(ExitCode::SUCCESS);
            }
            eprintln!("run: cargo run -p xtask -- gen");
            Ok(ExitCode::FAILURE)
        }
        _ => {
            eprintln!("{USAGE}");
            Ok(ExitCode::from(2))
        }
    }
}

fn schema_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../spec/schema")
}

/// The files as they must be: name and content.
fn wanted() -> anyhow::Result<BTreeMap<String, String>> {
    protocol::schema::all()
        .into_iter()
        .map(|(name, schema)| {
            let text = serde_json::to_string_pretty(&schema).with_context(|| format!("schema {name}"))?;
            Ok((format!("{name}.json"), text + "\n"))
        })
        .collect()
}

/// The files as they are; none if there is no folder.
fn present(folder: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    if !folder.exists() {
        return Ok(files);
    }
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        files.insert(path.file_name().unwrap_or_default().to_string_lossy().into_owned(), text);
    }
    Ok(files)
}

fn generate(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let wanted = wanted()?;
    for name in present(folder)?.keys().filter(|name| !wanted.contains_key(*name)) {
        fs::remove_file(folder.join(name)).with_context(|| format!("cannot remove {name}"))?;
    }
    for (name, text) in &wanted {
        fs::write(folder.join(name), text).with_context(|| format!("cannot write {name}"))?;
    }
    Ok(())
}

/// What `gen` would change, one line a file.
fn drift(folder: &Path) -> anyhow::Result<Vec<String>> {
    let (wanted, present) = (wanted()?, present(folder)?);
    let changed = wanted.iter().filter(|(name, text)| present.get(*name) != Some(text)).map(|(name, _)| {
        format!("{name}: {}", if present.contains_key(name) { "not what the types say" } else { "missing" })
    });
    let stale = present
        .keys()
        .filter(|name| !wanted.contains_key(*name))
        .map(|name| format!("{name}: no frame of this name"));
    Ok(changed.chain(stale).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_schemas_are_those_of_the_types() {
        assert_eq!(drift(&schema_folder()).unwrap(), Vec::<String>::new(), "run: cargo run -p xtask -- gen");
    }

    #[test]
    fn every_kind_of_drift_is_told_and_mended() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("schema");
        assert_eq!(drift(&folder).unwrap().len(), wanted().unwrap().len());
        generate(&folder).unwrap();
        assert_eq!(drift(&folder).unwrap(), Vec::<String>::new());
        fs::write(folder.join("client-text.json"), "{}").unwrap();
        fs::write(folder.join("client-gone.json"), "{}").unwrap();
        fs::remove_file(folder.join("server-pong.json")).unwrap();
        assert_eq!(
            drift(&folder).unwrap(),
            [
                "client-text.json: not what the types say",
                "server-pong.json: missing",
                "client-gone.json: no frame of this name"
            ]
        );
        generate(&folder).unwrap();
        assert_eq!(drift(&folder).unwrap(), Vec::<String>::new());
    }
}
