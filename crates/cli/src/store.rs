//! `hermes-mobile store`: what is kept, looked at from outside, also while a gateway runs on it.

use std::{path::PathBuf, process::ExitCode};

use ::store::{
    StoreError,
    inspect::{Copied, Inspector, Kind, Report, Stats},
};
use clap::Subcommand;
use protocol::words::Lang;
use serde_json::{Map, Value, json};

use crate::{Language, State, exit, fail, print, say, time::utc};

/// Arguments of `store`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Look for damage: database, chains, records, files / искать повреждения: база, цепочки, записи, файлы
    Check(Flags),
    /// Count devices, rows, bytes and files / посчитать устройства, записи, байты и файлы
    Stats(Flags),
    /// Copy everything into a new directory that a gateway can serve from / скопировать всё в новый каталог
    Backup(Backup),
}

/// Flags of every command that looks at a store.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    pub(crate) state: State,
    /// Print JSON / напечатать JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) language: Language,
}

#[derive(Debug, clap::Args)]
struct Backup {
    /// The new directory; must not exist, or be empty / новый каталог: его не должно быть, или он пуст
    dir: PathBuf,
    #[command(flatten)]
    flags: Flags,
}

/// How a look at the store ends when it cannot be made.
pub(crate) enum Failed {
    /// The configuration is wrong.
    Usage(String),
    /// The store.
    Store(StoreError),
}

impl From<StoreError> for Failed {
    fn from(e: StoreError) -> Self {
        Self::Store(e)
    }
}

impl Failed {
    pub(crate) fn end(&self, lang: Lang) -> ExitCode {
        match self {
            Self::Usage(why) => fail(exit::USAGE, why),
            Self::Store(e) => fail(exit::STATE, &e.text(lang)),
        }
    }
}

/// Opens the store that flags, variables, file and default name.
pub(crate) fn open(state: &State, lang: Lang) -> Result<Inspector, Failed> {
    let dir = state.dir().map_err(|e| Failed::Usage(e.text(lang)))?;
    Ok(Inspector::open(&dir)?)
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let (What::Check(flags) | What::Stats(flags) | What::Backup(Backup { flags, .. })) = &args.what;
    let lang = flags.language.get();
    let look = || -> Result<ExitCode, Failed> {
        let inspector = open(&flags.state, lang)?;
        Ok(match &args.what {
            What::Check(_) => {
                let report = inspector.check()?;
                let printed =
                    print(&shown(flags.json, report_json(&report, lang), || report_text(&report, lang)));
                if report.sound() { printed } else { ExitCode::from(exit::FAILURE) }
            }
            What::Stats(_) => {
                let stats = inspector.stats()?;
                print(&shown(flags.json, stats_json(&stats), || stats_text(&stats, lang)))
            }
            What::Backup(Backup { dir, .. }) => {
                let copied = inspector.backup(dir)?;
                let json = json!({
                    "dir": dir.display().to_string(), "rows": copied.rows, "files": copied.files,
                    "bytes": copied.bytes, "missing_files": copied.missing, "token": copied.token,
                });
                print(&shown(flags.json, json, || copied_text(dir.display().to_string(), &copied, lang)))
            }
        })
    };
    look().unwrap_or_else(|failed| failed.end(lang))
}

fn shown(as_json: bool, json: Value, text: impl FnOnce() -> String) -> String {
    if as_json { format!("{json:#}\n") } else { text() }
}

/// Lines of a name and a value, the values in one column.
fn table(lines: &[(&str, String)]) -> String {
    let width = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    lines.iter().map(|(name, value)| format!("{name:<width$}  {value}\n")).collect()
}

fn report_json(report: &Report, lang: Lang) -> Value {
    let findings: Vec<String> = report.findings.iter().map(|finding| finding.text(lang)).collect();
    json!({
        "sound": report.sound(), "devices": report.devices, "rows": report.rows, "blocks": report.blocks,
        "files": report.files, "orphan_files": report.orphans, "orphan_bytes": report.orphan_bytes,
        "findings": findings, "more_findings": report.more,
    })
}

fn report_text(report: &Report, lang: Lang) -> String {
    let mut text = table(&[
        (say(lang, "устройств", "devices"), report.devices.to_string()),
        (say(lang, "записей", "rows"), report.rows.to_string()),
        (say(lang, "блоков", "blocks"), report.blocks.to_string()),
        (say(lang, "файлов, названных в записях", "files named by records"), report.files.to_string()),
        (
            say(lang, "файлов, не названных нигде", "files named by nobody"),
            format!("{} ({})", report.orphans, bytes(report.orphan_bytes, lang)),
        ),
    ]);
    for finding in &report.findings {
        text.push_str(&format!("{}\n", finding.text(lang)));
    }
    if report.more > 0 {
        text.push_str(&format!("{} {}\n", say(lang, "и ещё", "and more:"), report.more));
    }
    text.push_str(if report.sound() {
        say(lang, "повреждений нет\n", "nothing is damaged\n")
    } else {
        say(
            lang,
            "есть повреждения: остановите шлюз и восстановите копию; этот каталог не удаляйте\n",
            "there is damage: stop the gateway and restore a backup; keep this directory\n",
        )
    });
    text
}

/// The name of a kind of rows for a person.
const fn kind_name(kind: Kind, lang: Lang) -> &'static str {
    match kind {
        Kind::Text => say(lang, "тексты с устройств", "texts from devices"),
        Kind::FileIn => say(lang, "файлы и голос с устройств", "files and voice from devices"),
        Kind::CardOver => say(lang, "время карточек вышло", "cards whose time was over"),
        Kind::Message => say(lang, "сообщения", "messages"),
        Kind::Bubble => say(lang, "незаконченные ответы", "replies being written"),
        Kind::FileOut => say(lang, "файлы на устройства", "files to devices"),
        Kind::Card => say(lang, "карточки", "cards"),
        Kind::CardTaken => say(lang, "принятые ответы на карточки", "answers taken"),
        Kind::CardDone => say(lang, "завершённые карточки", "ends of cards"),
        Kind::Delivered => say(lang, "исходы доставок", "outcomes of deliveries"),
        Kind::Unreadable => say(lang, "нечитаемые", "unreadable"),
    }
}

fn bytes(count: u64, lang: Lang) -> String {
    format!("{count} {}", say(lang, "байт", "bytes"))
}

fn stats_json(stats: &Stats) -> Value {
    let rows: Map<String, Value> = stats
        .rows
        .iter()
        .map(|(kind, rows)| (kind.name().to_owned(), json!({ "count": rows.count, "bytes": rows.bytes })))
        .collect();
    json!({
        "devices": stats.devices, "unfinished_devices": stats.unfinished, "rows": rows,
        "oldest": stats.oldest.map(utc), "newest": stats.newest.map(utc),
        "database_bytes": stats.database_bytes, "wal_bytes": stats.wal_bytes,
        "files": stats.files, "file_bytes": stats.file_bytes,
    })
}

fn stats_text(stats: &Stats, lang: Lang) -> String {
    let nothing = || say(lang, "нет", "none").to_owned();
    let mut lines = vec![
        (say(lang, "устройств", "devices"), stats.devices.to_string()),
        (say(lang, "из них с незаконченным", "with something unfinished"), stats.unfinished.to_string()),
        (say(lang, "самая старая запись", "oldest row"), stats.oldest.map_or_else(nothing, utc)),
        (say(lang, "самая новая запись", "newest row"), stats.newest.map_or_else(nothing, utc)),
        (say(lang, "база", "database"), bytes(stats.database_bytes, lang)),
        (say(lang, "её -wal", "its -wal"), bytes(stats.wal_bytes, lang)),
        (say(lang, "файлов", "files"), format!("{} ({})", stats.files, bytes(stats.file_bytes, lang))),
    ];
    for (kind, rows) in &stats.rows {
        lines.push((kind_name(*kind, lang), format!("{} ({})", rows.count, bytes(rows.bytes, lang))));
    }
    table(&lines)
}

fn copied_text(dir: String, copied: &Copied, lang: Lang) -> String {
    let mut lines = vec![
        (say(lang, "копия", "copy"), dir),
        (say(lang, "записей", "rows"), copied.rows.to_string()),
        (say(lang, "файлов", "files"), copied.files.to_string()),
        (say(lang, "размер", "size"), bytes(copied.bytes, lang)),
    ];
    if copied.missing > 0 {
        let name = say(lang, "файлов не нашлось", "files not found");
        lines.push((name, copied.missing.to_string()));
    }
    table(&lines)
}
