//! Chores of this repository: `cargo run -p xtask -- <chore>`.
//!
//! - `gen` writes what is derived: `spec/schema/*.json` from the types of the frames, `docs/reference.md` and its Russian
//!   twin from the tables of commands, exit codes, settings and metrics, `spec/checklist/coverage.md` from the
//!   acceptance cases.
//! - `check-gen` changes nothing, and ends with 1 when a file is not what `gen` would write.

mod coverage;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use protocol::words::Lang;

const USAGE: &str = "usage: cargo run -p xtask -- gen | check-gen";

fn main() -> anyhow::Result<ExitCode> {
    let root = repository();
    match std::env::args().nth(1).as_deref() {
        Some("gen") => {
            generate(&root)?;
            Ok(ExitCode::SUCCESS)
        }
        Some("check-gen") => {
            let drift = drift(&root)?;
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

/// The folder whose files are all made here.
const SCHEMAS: &str = "spec/schema";
const COVERAGE: &str = "spec/checklist/coverage.md";
const PAGES: [(&str, Lang); 2] = [("docs/reference.md", Lang::En), ("docs/reference.ru.md", Lang::Ru)];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The files as they must be: name and content.
fn wanted() -> anyhow::Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for (name, schema) in protocol::schema::all() {
        let text = serde_json::to_string_pretty(&schema).with_context(|| format!("schema {name}"))?;
        files.insert(format!("{SCHEMAS}/{name}.json"), text + "\n");
    }
    files.insert(COVERAGE.to_owned(), coverage::page()?);
    files.extend(PAGES.map(|(name, lang)| (name.to_owned(), cli::reference(lang))));
    Ok(files)
}

/// The files as they are: the pages, and whatever is in the folder of schemas.
fn present(root: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let pages = PAGES.iter().map(|(name, _)| *name);
    let mut names: Vec<String> = pages.chain([COVERAGE]).map(str::to_owned).collect();
    let folder = root.join(SCHEMAS);
    if folder.exists() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
            names.push(format!("{SCHEMAS}/{}", entry?.file_name().to_string_lossy()));
        }
    }
    let mut files = BTreeMap::new();
    for name in names {
        let path = root.join(&name);
        if path.exists() {
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {name}"))?;
            files.insert(name, text);
        }
    }
    Ok(files)
}

fn generate(root: &Path) -> anyhow::Result<()> {
    let wanted = wanted()?;
    for name in present(root)?.keys().filter(|name| !wanted.contains_key(*name)) {
        fs::remove_file(root.join(name)).with_context(|| format!("cannot remove {name}"))?;
    }
    for (name, text) in &wanted {
        let path = root.join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        fs::write(path, text).with_context(|| format!("cannot write {name}"))?;
    }
    Ok(())
}

/// What `gen` would change, one line a file.
fn drift(root: &Path) -> anyhow::Result<Vec<String>> {
    let (wanted, present) = (wanted()?, present(root)?);
    let changed = wanted.iter().filter(|(name, text)| present.get(*name) != Some(text)).map(|(name, _)| {
        format!(
            "{name}: {}",
            if present.contains_key(name) { "not what the program says" } else { "missing" }
        )
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
    fn what_is_committed_is_what_the_program_says() {
        assert_eq!(drift(&repository()).unwrap(), Vec::<String>::new(), "run: cargo run -p xtask -- gen");
    }

    #[test]
    fn every_kind_of_drift_is_told_and_mended() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert_eq!(drift(root).unwrap().len(), wanted().unwrap().len());
        generate(root).unwrap();
        assert_eq!(drift(root).unwrap(), Vec::<String>::new());
        let page = fs::read_to_string(root.join("docs/reference.md")).unwrap();
        fs::write(root.join("docs/reference.md"), page.replace("`MOBILE_PORT`", "`MOBILE_DOOR`")).unwrap();
        fs::remove_file(root.join("docs/reference.ru.md")).unwrap();
        fs::write(root.join("docs/other.md"), "not ours").unwrap();
        fs::write(root.join("spec/schema/client-text.json"), "{}").unwrap();
        fs::write(root.join("spec/schema/client-gone.json"), "{}").unwrap();
        fs::remove_file(root.join("spec/schema/server-pong.json")).unwrap();
        assert_eq!(
            drift(root).unwrap(),
            [
                "docs/reference.md: not what the program says",
                "docs/reference.ru.md: missing",
                "spec/schema/client-text.json: not what the program says",
                "spec/schema/server-pong.json: missing",
                "spec/schema/client-gone.json: no frame of this name"
            ]
        );
        generate(root).unwrap();
        assert_eq!(drift(root).unwrap(), Vec::<String>::new());
        assert!(root.join("docs/other.md").exists());
    }
}
