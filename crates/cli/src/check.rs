//! `hermes-mobile check`: the acceptance checklist as a tool, for anybody's server.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use conformance::{CheckError, Options, Pool, Target as Servers, check, profile::Profile};
use protocol::words::Lang;

use crate::{exit, fail, say, target::Target};

const HELP: &str = "\
Runs the cases of spec/checklist: the ten points, the additional table, and the further rules of the protocol.
Выполняет случаи из spec/checklist: десять пунктов, таблицу «дополнительно» и остальные правила протокола.
Each failed case shows what was sent, what came, what was expected, and the typical mistake.
Каждый непройденный случай показывает, что послано, что пришло, что ожидалось, и частую ошибку.
A case that needs something says which flag it needs; it is not a failure. docs/check.md has more.
Случай, которому чего-то не хватает, говорит, какой нужен ключ; это не ошибка. Подробнее: docs/check.ru.md.
Exit codes / коды выхода:
  0  every case that could be run passes / все случаи, которые можно выполнить, пройдены
  1  a rule is not kept / правило нарушено
  2  wrong usage / неверные аргументы
  5  the server cannot be reached or started / нет связи с сервером или он не запускается
  6  hello was not accepted / hello не принят";

/// Flags of `check`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// Address of the server: ws://…, http://… or HOST:PORT / адрес сервера
    #[arg(required_unless_present = "spawn")]
    url: Option<String>,
    /// Start servers of this program itself, as each case needs them / запускать серверы этой программы
    #[arg(long, value_name = "BIN", conflicts_with_all = ["url", "profile", "set", "bound_token", "deliver_token", "slow"])]
    spawn: Option<PathBuf>,
    /// What is known of the agent: demo, generic, or a file / что известно об агенте: demo, generic или файл
    #[arg(long, default_value = "demo")]
    profile: String,
    /// Sets a key of the profile / задаёт ключ профиля
    #[arg(long, value_name = "KEY=TEXT")]
    set: Vec<String>,
    /// A device with a token of its own / устройство со своим токеном
    #[arg(long, value_name = "DEV=T")]
    bound_token: Option<String>,
    /// A token that may deliver / токен для доставки
    #[arg(long, value_name = "T")]
    deliver_token: Option<String>,
    /// Also what takes minutes / также то, что длится минуты
    #[arg(long)]
    slow: bool,
    /// Only this case; may be repeated / только этот случай, можно несколько
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// Show also what passed / показать и пройденное
    #[arg(long)]
    all: bool,
    /// Print JSON / вывести JSON
    #[arg(long)]
    json: bool,
    /// Also write JUnit XML to this file / записать ещё и JUnit XML в файл
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    #[command(flatten)]
    gateway: Target,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let lang = args.gateway.language();
    let options = match options(args, lang) {
        Ok(options) => options,
        Err(text) => return fail(exit::USAGE, &text),
    };
    let servers = match servers(args, lang) {
        Ok(servers) => servers,
        Err(text) => return fail(exit::USAGE, &text),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return fail(exit::FAILURE, &e.to_string()),
    };
    let report = match runtime.block_on(check(&servers, &options)) {
        Ok(report) => report,
        Err(e) => return fail(code(&e), &words(&e, lang)),
    };
    if let Some(file) = &args.junit
        && let Err(e) = fs::write(file, report.junit(lang))
    {
        return fail(exit::FAILURE, &format!("--junit {}: {e}", file.display()));
    }
    if args.json {
        println!("{:#}", report.json(lang));
    } else {
        print!("{}", report.text(lang, args.all));
    }
    let counts = report.counts();
    // Where the checker sets up the servers itself, nothing can be in the way of a case.
    let missed = args.spawn.is_some() && counts.not_run > 0;
    if counts.failed > 0 || missed { ExitCode::from(exit::FAILURE) } else { ExitCode::SUCCESS }
}

fn options(args: &Args, lang: Lang) -> Result<Options, String> {
    let mut profile = Profile::load(&args.profile).map_err(|e| e.to_string())?;
    for pair in &args.set {
        let (key, text) = halves(pair, "--set KEY=TEXT", lang)?;
        profile.set(&key, &text).map_err(|e| format!("--set: {e}"))?;
    }
    let mut options = Options::new(profile);
    options.slow = args.slow;
    options.only.clone_from(&args.only);
    options.bound =
        args.bound_token.as_deref().map(|pair| halves(pair, "--bound-token DEV=T", lang)).transpose()?;
    options.deliver_token.clone_from(&args.deliver_token);
    Ok(options)
}

/// Both halves of `KEY=VALUE`. The error does not repeat the text: it may hold a token.
fn halves(pair: &str, form: &str, lang: Lang) -> Result<(String, String), String> {
    match pair.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.is_empty() => Ok((key.into(), value.into())),
        _ => Err(format!("{}: {form}", say(lang, "нужно в виде", "must have the form"))),
    }
}

fn servers(args: &Args, lang: Lang) -> Result<Servers, String> {
    if let Some(bin) = &args.spawn {
        if !Path::new(bin).is_file() {
            let what = say(lang, "нет такой программы", "no such program");
            return Err(format!("--spawn {}: {what}", bin.display()));
        }
        return Ok(Servers::Spawn(Arc::new(Pool::new(bin).map_err(|e| e.to_string())?)));
    }
    let url = args.url.clone().unwrap_or_default();
    let token = args.gateway.token_for(&url, lang)?;
    Ok(Servers::Url { url, token })
}

const fn code(error: &CheckError) -> u8 {
    match error {
        CheckError::Access(_) => exit::ACCESS,
        CheckError::Open(_) | CheckError::Server(_) => exit::CONNECT,
        CheckError::Url(_) | CheckError::NoCase(_) | CheckError::Profile(_) => exit::USAGE,
        CheckError::Case(_) | CheckError::NoRandom => exit::FAILURE,
    }
}

fn words(error: &CheckError, lang: Lang) -> String {
    match (error, lang) {
        (CheckError::Access(came), Lang::Ru) => {
            format!("сервер не ответил ready на hello (пришло: {}); проверьте --token", came.text(lang))
        }
        (CheckError::Access(came), Lang::En) => {
            format!("the server did not answer hello with ready (came: {}); check --token", came.text(lang))
        }
        (CheckError::Open(e), Lang::Ru) => format!("не удалось подключиться: {e}"),
        (CheckError::Server(e), Lang::Ru) => format!("сервер не запускается: {e}"),
        (CheckError::NoCase(id), Lang::Ru) => format!("--only {id}: нет такого случая"),
        (CheckError::NoCase(id), Lang::En) => format!("--only {id}: there is no such case"),
        (error, _) => error.to_string(),
    }
}
