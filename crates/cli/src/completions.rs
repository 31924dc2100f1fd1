//! `hermes-mobile completions`: a script that completes this command in a shell.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

const HELP: &str = "\
For bash, in ~/.bashrc / для bash, в ~/.bashrc:
  source <(hermes-mobile completions bash)";

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// Shell / оболочка
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let mut command = crate::Cli::command();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "hermes-mobile", &mut script);
    crate::print(&String::from_utf8_lossy(&script))
}
