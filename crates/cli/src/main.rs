//! The command `hermes-mobile`; everything is in the library beside it, so that the pages of the documentation can be
//! made from it.

fn main() -> std::process::ExitCode {
    hermes_mobile::run()
}
