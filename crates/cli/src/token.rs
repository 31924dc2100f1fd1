//! `hermes-mobile token`: the owner's token on standard output, nothing else.

use std::{path::PathBuf, process::ExitCode};

use gateway::config;

use crate::{exit, fail, lang};

/// Flags of `token`, the same as those of `serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory for everything that is kept / каталог состояния
    #[arg(long, value_name = "DIR")]
    state: Option<String>,
    /// Configuration file, TOML / файл настроек
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let flags: Vec<(&str, String)> = args.state.iter().map(|dir| ("state_dir", dir.clone())).collect();
    let loaded = match config::load(args.config.as_deref(), std::env::vars_os(), &flags) {
        Ok(loaded) => loaded,
        Err(e) => return fail(exit::USAGE, &e.text(lang())),
    };
    match gateway::token_of(&loaded.config) {
        Ok(token) => {
            println!("{}", token.reveal());
            ExitCode::SUCCESS
        }
        Err(e) => fail(exit::STATE, &e.text(lang())),
    }
}
