//! `docs/settings.md` and its Russian twin are made from the table of settings. `WRITE_PAGES=1` writes them anew.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{fmt::Write, fs, path::PathBuf};

use gateway::config::{SETTINGS, Setting};
use protocol::words::Lang;

/// Words of the page around the table.
struct Words {
    file: &'static str,
    lang: Lang,
    head: &'static str,
    none: &'static str,
}

const PAGES: [Words; 2] = [
    Words {
        file: "docs/settings.md",
        lang: Lang::En,
        head: "\
# Settings

Every setting has a default. A TOML file (`--config FILE`, or `MOBILE_CONFIG`) may change it, a variable of the
environment wins over the file, a flag of `serve` wins over both. Unknown keys and unknown `MOBILE_*` variables are
warned about; a value that is not allowed stops the start in words, with exit code 2. Durations are in milliseconds,
sizes in bytes. A list is separated by commas in a variable, and a list in TOML. This page is made from the table in
`crates/gateway/src/config`.

| key in TOML | variable, flag | default | allowed | meaning |
|---|---|---|---|---|
",
        none: "none",
    },
    Words {
        file: "docs/settings.ru.md",
        lang: Lang::Ru,
        head: "\
# Настройки

У каждой настройки есть значение по умолчанию. Его может изменить файл TOML (`--config FILE` или `MOBILE_CONFIG`),
переменная окружения важнее файла, ключ команды `serve` важнее обоих. О неизвестных ключах и неизвестных переменных
`MOBILE_*` шлюз предупреждает; недопустимое значение останавливает запуск с объяснением и кодом выхода 2. Время
задаётся в миллисекундах, размеры в байтах. Список в переменной пишется через запятую, в TOML это список. Страница
составлена по таблице из `crates/gateway/src/config`.

| ключ в TOML | переменная, ключ команды | по умолчанию | допустимо | смысл |
|---|---|---|---|---|
",
        none: "нет",
    },
];

/// A bar would end the cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn row(setting: &Setting, words: &Words) -> String {
    let names = match setting.flag {
        Some(flag) => format!("`{}`, `{flag}`", setting.env),
        None => format!("`{}`", setting.env),
    };
    let default =
        if setting.default.is_empty() { words.none.to_owned() } else { format!("`{}`", setting.default) };
    format!(
        "| `{}` | {names} | {} | {} | {} |\n",
        setting.key,
        cell(&default),
        cell(setting.allowed.text(words.lang)),
        cell(setting.meaning.text(words.lang))
    )
}

#[test]
fn the_pages_are_those_of_the_table() {
    for words in &PAGES {
        let mut page = words.head.to_owned();
        for setting in SETTINGS {
            write!(page, "{}", row(setting, words)).expect("a String takes everything");
        }
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(words.file);
        if std::env::var_os("WRITE_PAGES").is_some() {
            fs::write(&path, &page).expect("the page can be written");
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == page,
            "{} is old: WRITE_PAGES=1 cargo test -p hermes-mobile-testkit --test settings_page",
            words.file
        );
    }
}
