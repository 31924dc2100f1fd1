//! The page for operators names every setting, with the default that it has.

use std::{fs, path::Path};

use hermes_mobile_gateway::config::{SETTINGS, Setting};

/// The line of the tables that belongs to a setting: `| variable | default | …`.
fn row(setting: &Setting, none: &str) -> String {
    let default = if setting.default.is_empty() { none.to_owned() } else { format!("`{}`", setting.default) };
    format!("| `{}` | {default} | ", setting.env)
}

/// What a page lacks, or has twice.
fn wrong(page: &str, none: &str) -> Vec<String> {
    let rows = |setting: &Setting| page.lines().filter(|line| line.starts_with(&row(setting, none))).count();
    let flag = |setting: &Setting| setting.flag.is_none_or(|flag| page.contains(&format!("`{flag}`")));
    SETTINGS
        .iter()
        .filter(|setting| rows(setting) != 1 || !flag(setting))
        .map(|setting| format!("{} lines {:?}, flag {:?}", rows(setting), row(setting, none), setting.flag))
        .collect()
}

#[test]
fn every_setting_stands_once_on_the_page_for_operators() {
    for (file, none) in [("operating.md", "none"), ("operating.ru.md", "нет")] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(file);
        let page = fs::read_to_string(&path).unwrap();
        assert_eq!(wrong(&page, none), Vec::<String>::new(), "docs/{file}");
        // The test sees what is missing and what is old.
        let gone = page.replace("| `MOBILE_PORT` |", "| `MOBILE_DOOR` |");
        assert_eq!(wrong(&gone, none).len(), 1, "docs/{file}");
        let old = page.replace("| `MOBILE_PORT` | `8787` |", "| `MOBILE_PORT` | `8788` |");
        assert_eq!(wrong(&old, none).len(), 1, "docs/{file}");
    }
}
