//! The list of rules and what holds each: `spec/checklist/coverage.md`.

use std::fmt::Write as _;

use conformance::case::{Case, Remote, cases, elsewhere};

/// The page as it must be.
pub(crate) fn page() -> anyhow::Result<String> {
    let (cases, rules) = (cases()?, elsewhere()?);
    let mut out = String::from(
        "# What holds each rule\n\nMade by `cargo run -p xtask -- gen` from the files beside it. `point N` and `table: ROW` are the \
         acceptance checklist, `A:` and `B:` the parts of the protocol. *With*: `spawn` is `check --spawn` only, \
         `slow` also `check URL --slow`, nothing means any server.\n\n## Rules that show from outside\n\n\
         | rule of | case | what must come | with |\n|---|---|---|---|\n",
    );
    for case in &cases {
        let expect = case.en.expect.replace('<', "&lt;");
        row(&mut out, &[&case.from, &format!("`{}`", case.id), &expect, with(case)]);
    }
    writeln!(
        out,
        "\n{} cases.\n\n## Rules that do not\n\nThey cannot be seen from outside, or only after a long time. A test fails if one that \
         is named here does not exist.\n\n| rule of | rule | why no case shows it | tests |\n|---|---|---|---|",
        cases.len()
    )?;
    for rule in &rules {
        let tests: Vec<String> = rule.tests.iter().map(|test| format!("`{test}`")).collect();
        row(&mut out, &[&rule.from, &rule.rule, &rule.why, &tests.join("<br>")]);
    }
    Ok(out)
}

const fn with(case: &Case) -> &'static str {
    match (case.remote, case.offers.is_some()) {
        (_, true) => "its feature",
        (Remote::Yes, _) => "",
        (Remote::Slow, _) => "slow",
        (Remote::No, _) => "spawn",
    }
}

fn row(out: &mut String, cells: &[&str]) {
    for cell in cells {
        out.push_str("| ");
        out.push_str(&cell.replace('|', "\\|"));
        out.push(' ');
    }
    out.push_str("|\n");
}
