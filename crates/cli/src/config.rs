//! `hermes-mobile config`: the settings as an operator reads them.

use std::process::ExitCode;

use clap::Subcommand;
use gateway::config::{self, Loaded, Source, Value};
use protocol::words::Lang;
use serde_json::json;

use crate::{Language, exit, fail, print, say, serve::Flags};

/// Arguments of `config`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Print a file with every setting, its meaning and its default / напечатать файл со всеми настройками
    Example(Language),
    /// Check the settings that serve would use, and print them / проверить настройки, с которыми запустится serve
    Check(Check),
    /// Print the reference: commands, exit codes, settings, metrics / напечатать справочник
    Reference(Language),
}

/// Flags of `config check`: those of `serve`, and how to print.
#[derive(Debug, clap::Args)]
struct Check {
    #[command(flatten)]
    settings: Flags,
    /// Print JSON / напечатать JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    language: Language,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match &args.what {
        What::Example(language) => print(&config::example(language.get())),
        What::Reference(language) => print(&crate::reference(language.get())),
        What::Check(check) => run_check(check),
    }
}

fn run_check(check: &Check) -> ExitCode {
    let lang = check.language.get();
    match check.settings.load(lang) {
        Ok((loaded, _)) if check.json => print(&as_json(&loaded, lang)),
        Ok((loaded, _)) => {
            for warning in &loaded.warnings {
                eprintln!("hermes-mobile: {}", warning.text(lang));
            }
            print(&as_text(&loaded.values, lang))
        }
        Err(why) => {
            if check.json {
                let _ = print(&format!("{:#}\n", json!({ "ok": false, "error": why })));
            }
            fail(exit::USAGE, &why)
        }
    }
}

/// One line for each setting, as in a file, and where it comes from.
fn as_text(values: &[Value], lang: Lang) -> String {
    let lines: Vec<(String, String)> = values
        .iter()
        .map(|value| {
            let shown = match value.shown() {
                empty if empty.is_empty() => say(lang, "(не задано)", "(not set)").to_owned(),
                shown => shown,
            };
            (format!("{} = {shown}", value.setting.key), origin(value, lang))
        })
        .collect();
    let width = lines.iter().map(|(line, _)| line.chars().count()).max().unwrap_or(0).min(48);
    lines.iter().map(|(line, origin)| format!("{line:<width$}  # {origin}\n")).collect()
}

fn origin(value: &Value, lang: Lang) -> String {
    match &value.source {
        Source::Default => say(lang, "по умолчанию", "default").to_owned(),
        Source::File(path) => path.display().to_string(),
        Source::Variable => value.setting.env.to_owned(),
        Source::Flag => value.setting.flag.unwrap_or(value.setting.key).to_owned(),
    }
}

fn as_json(loaded: &Loaded, lang: Lang) -> String {
    let settings: Vec<_> = loaded
        .values
        .iter()
        .map(|value| {
            let file = match &value.source {
                Source::File(path) => Some(path.display().to_string()),
                _ => None,
            };
            json!({
                "key": value.setting.key,
                "variable": value.setting.env,
                "value": value.shown(),
                "source": value.source.name(),
                "file": file,
            })
        })
        .collect();
    let warnings: Vec<&str> = loaded.warnings.iter().map(|warning| warning.text(lang)).collect();
    format!("{:#}\n", json!({ "ok": true, "settings": settings, "warnings": warnings }))
}
