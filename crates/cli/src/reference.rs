//! The reference page: every command, exit code, setting and metric, made from the tables that the program itself uses.

use std::fmt::Write;

use clap::{Arg, ArgAction, Command};
use gateway::{
    config::{SETTINGS, Setting},
    metrics::{METRICS, Metric},
};
use protocol::words::Lang;

use crate::{exit::CODES, say};

const HEAD_EN: &str = "\
# Reference

Made from the program by `cargo run -p xtask -- gen`; `hermes-mobile config reference` prints it. What it all is for is
told in [Operating](operating.md).

";
const HEAD_RU: &str = "\
# Справочник

Составлен из самой программы: `cargo run -p xtask -- gen`; его печатает `hermes-mobile config reference`. Для чего всё
это, рассказано в [Эксплуатации](operating.ru.md).

";
const SETTINGS_EN: &str = "\
Every setting has a default. A TOML file (`--config FILE`, or `MOBILE_CONFIG`) may change it, a variable of the
environment wins over the file, a flag of `serve` wins over both. Unknown keys and unknown `MOBILE_*` variables are
warned about; a value that is not allowed stops the start in words, with exit code 2. Durations are in milliseconds,
sizes in bytes. A list is separated by commas in a variable, and a list in TOML.

| key in TOML | variable, flag | default | allowed | meaning |
|---|---|---|---|---|
";
const SETTINGS_RU: &str = "\
У каждой настройки есть значение по умолчанию. Его может изменить файл TOML (`--config FILE` или `MOBILE_CONFIG`),
переменная окружения важнее файла, ключ команды `serve` важнее обоих. О неизвестных ключах и неизвестных переменных
`MOBILE_*` шлюз предупреждает; недопустимое значение останавливает запуск с объяснением и кодом выхода 2. Время
задаётся в миллисекундах, размеры в байтах. Список в переменной пишется через запятую, в TOML это список.

| ключ в TOML | переменная, ключ команды | по умолчанию | допустимо | смысл |
|---|---|---|---|---|
";

const METRICS_EN: &str = "\
Exported at `/metrics`, in the Prometheus text format, or in that of OpenMetrics for who asks for it. No label holds an
id, a token or what people said. `kind` is `t` of a frame, `bad` for what could not be decoded, `other` for what is not
known.

| name | type | labels | meaning |
|---|---|---|---|
";
const METRICS_RU: &str = "\
Их отдаёт `/metrics` в текстовом формате Prometheus или, если о нём просят, в формате OpenMetrics. В метках не бывает
id, токенов и того, что сказали люди. `kind` — это `t` кадра, `bad` — то, что не удалось разобрать, `other` —
неизвестное.

| имя | тип | метки | смысл |
|---|---|---|---|
";

/// The page in a language.
pub(crate) fn page(command: &Command, lang: Lang) -> String {
    let mut page = say(lang, HEAD_RU, HEAD_EN).to_owned();
    page.push_str(say(lang, "## Команды\n", "## Commands\n"));
    for sub in command.get_subcommands() {
        one_command(&mut page, sub, command.get_name(), lang);
    }
    page.push_str(say(lang, "\n## Коды выхода\n\n", "\n## Exit codes\n\n"));
    page.push_str(say(lang, "| код | смысл |\n|---|---|\n", "| code | meaning |\n|---|---|\n"));
    for code in &CODES {
        // Writing into a String cannot fail, here and below.
        let _ = writeln!(page, "| {} | {} |", code.code, cell(code.text(lang)));
    }
    page.push_str(say(lang, "\n## Настройки\n\n", "\n## Settings\n\n"));
    page.push_str(say(lang, SETTINGS_RU, SETTINGS_EN));
    for setting in SETTINGS {
        one_setting(&mut page, setting, lang);
    }
    page.push_str(say(lang, "\n## Метрики\n\n", "\n## Metrics\n\n"));
    page.push_str(say(lang, METRICS_RU, METRICS_EN));
    for metric in METRICS {
        one_metric(&mut page, metric, lang);
    }
    page
}

/// A bar would end the cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// The half of a help text that is in this language: they are written `English / Russian`.
fn half(text: &str, lang: Lang) -> String {
    let (en, ru) = text.split_once(" / ").unwrap_or((text, text));
    match lang {
        Lang::En => en.to_owned(),
        Lang::Ru => ru.to_owned(),
    }
}

fn one_command(page: &mut String, command: &Command, parent: &str, lang: Lang) {
    let name = format!("{parent} {}", command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let _ = write!(page, "\n### {name}\n\n{}.\n", half(&about, lang));
    let args: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| !arg.is_hide_set() && !matches!(arg.get_action(), ArgAction::Help | ArgAction::Version))
        .collect();
    if !args.is_empty() {
        page.push_str(say(
            lang,
            "\n| аргумент | переменная | смысл |\n|---|---|---|\n",
            "\n| argument | variable | meaning |\n|---|---|---|\n",
        ));
    }
    for arg in args {
        let variable = arg.get_env().map(|env| format!("`{}`", env.to_string_lossy())).unwrap_or_default();
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(page, "| `{}` | {variable} | {} |", cell(&usage(arg)), cell(&half(&help, lang)));
    }
    for sub in command.get_subcommands() {
        one_command(page, sub, &name, lang);
    }
}

/// `TEXT`, `--json`, `--state DIR`.
fn usage(arg: &Arg) -> String {
    let value = || {
        let names = arg.get_value_names().map(|names| names.iter().map(ToString::to_string).collect());
        let names: Vec<String> = names.unwrap_or_else(|| vec![arg.get_id().to_string().to_uppercase()]);
        names.join(" ")
    };
    match arg.get_long() {
        None => value(),
        Some(long) if arg.get_action().takes_values() => format!("--{long} {}", value()),
        Some(long) => format!("--{long}"),
    }
}

fn one_setting(page: &mut String, setting: &Setting, lang: Lang) {
    let names = match setting.flag {
        Some(flag) => format!("`{}`, `{flag}`", setting.env),
        None => format!("`{}`", setting.env),
    };
    let default = match setting.default {
        "" => say(lang, "нет", "none").to_owned(),
        default => format!("`{default}`"),
    };
    let _ = writeln!(
        page,
        "| `{}` | {names} | {} | {} | {} |",
        setting.key,
        cell(&default),
        cell(setting.allowed.text(lang)),
        cell(setting.meaning.text(lang))
    );
}

fn one_metric(page: &mut String, metric: &Metric, lang: Lang) {
    let labels: Vec<String> = metric
        .labels
        .iter()
        .map(|(label, values)| {
            let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
            if values.is_empty() { format!("`{label}`") } else { format!("`{label}`: {}", values.join(", ")) }
        })
        .collect();
    let _ = writeln!(
        page,
        "| `{}` | {} | {} | {} |",
        metric.name,
        metric.kind,
        labels.join("; "),
        cell(metric.help.text(lang))
    );
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Every text of a command and what is below it, with the place where it is.
    fn texts(command: &Command, at: &str, out: &mut Vec<(String, String)>) {
        let at = format!("{at} {}", command.get_name());
        out.push((at.clone(), command.get_about().map(ToString::to_string).unwrap_or_default()));
        for arg in command.get_arguments() {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            out.push((format!("{at} {}", arg.get_id()), help));
        }
        for sub in command.get_subcommands() {
            texts(sub, &at, out);
        }
    }

    #[test]
    fn every_help_text_is_in_both_languages() {
        let russian = |text: &str| text.chars().any(|c| ('а'..='я').contains(&c));
        let mut all = Vec::new();
        texts(&crate::Cli::command(), "", &mut all);
        assert!(all.len() > 40, "{all:?}");
        for (at, text) in all {
            let halves: Vec<&str> = text.split(" / ").collect();
            let [en, ru] = halves[..] else { panic!("{at}: not `English / Russian`: {text:?}") };
            assert!(!en.is_empty() && !russian(en) && russian(ru), "{at}: {text:?}");
        }
    }

    #[test]
    fn the_page_names_every_command_flag_code_and_setting_once() {
        for lang in [Lang::En, Lang::Ru] {
            let page = crate::reference(lang);
            let lines = |start: &str| page.lines().filter(|line| line.starts_with(start)).count();
            let mut commands = 0;
            let mut open: Vec<(String, Command)> = crate::Cli::command()
                .get_subcommands()
                .map(|c| ("hermes-mobile".to_owned(), c.clone()))
                .collect();
            while let Some((parent, command)) = open.pop() {
                let name = format!("{parent} {}", command.get_name());
                let heading = format!("### {name}");
                assert_eq!(page.lines().filter(|line| **line == heading).count(), 1, "{heading}");
                commands += 1;
                let part = page.split(&format!("{heading}\n")).nth(1).unwrap_or_default();
                let part = part.split("\n#").next().unwrap_or_default();
                for arg in command.get_arguments() {
                    assert!(
                        part.contains(&format!("| `{}` |", cell(&usage(arg)))),
                        "{name}: {}",
                        arg.get_id()
                    );
                }
                open.extend(command.get_subcommands().map(|c| (name.clone(), c.clone())));
            }
            // And nothing else.
            assert_eq!(lines("### "), commands);
            for code in &CODES {
                assert_eq!(lines(&format!("| {} | ", code.code)), 1, "{}", code.code);
            }
            for setting in SETTINGS {
                assert_eq!(lines(&format!("| `{}` | `{}`", setting.key, setting.env)), 1, "{}", setting.key);
            }
            let section = |name: &str| {
                let rest = page.split(&format!("\n## {name}\n")).nth(1).unwrap_or_default();
                rest.split("\n## ").next().unwrap_or_default()
            };
            let rows = |name| section(name).lines().filter(|line| line.starts_with("| `")).count();
            assert_eq!(rows(say(lang, "Настройки", "Settings")), SETTINGS.len());
            let metrics = say(lang, "Метрики", "Metrics");
            assert_eq!(rows(metrics), METRICS.len());
            for metric in METRICS {
                assert!(section(metrics).contains(&format!("| `{}` | {} | ", metric.name, metric.kind)));
            }
        }
    }
}
