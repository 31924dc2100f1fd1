//! `check` as a process: exit codes, what a person, a program and a CI server read, and no token in any of it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Child, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};
use testkit::proxy::{self, Msg, Mutant};

const BINARY: &str = env!("CARGO_BIN_EXE_hermes-mobile");
const TOKEN: &str = "test-token-of-the-owner";

fn clean(arguments: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(arguments).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A gateway as a process, killed at the end.
struct Gateway {
    child: Child,
    address: SocketAddr,
    _rest: BufReader<ChildStdout>,
    _state: tempfile::TempDir,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Gateway {
    fn start() -> Self {
        let state = tempfile::tempdir().unwrap();
        let mut command = clean(&["serve", "--port", "0", "--state"]);
        command.arg(state.path().join("state")).env("MOBILE_TOKEN", TOKEN).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut rest = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        rest.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://").unwrap().parse().unwrap();
        Self { child, address, _rest: rest, _state: state }
    }
}

/// Exit code, standard output, standard error.
fn check(arguments: &[&str]) -> (i32, String, String) {
    let out = clean(&["check"]).args(arguments).output().unwrap();
    let (stdout, stderr) = (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap());
    assert!(!stdout.contains(TOKEN) && !stderr.contains(TOKEN), "the token is in {stdout}{stderr}");
    (out.status.code().unwrap(), stdout, stderr)
}

#[test]
fn every_end_has_its_exit_code_and_words() {
    let gateway = Gateway::start();
    let url = gateway.address.to_string();
    for (arguments, code, word) in [
        (&[url.as_str(), "--token", TOKEN, "--only", "ping"][..], 0, ""),
        (&[&url, "--token", "wrong", "--lang", "en"], 6, "--token"),
        (&["127.0.0.1:1", "--token", TOKEN, "--lang", "en"], 5, "cannot connect"),
        (&[], 2, "<URL>"),
        (&["ftp://x", "--token", TOKEN], 2, "ftp"),
        (&["--spawn", "/no/such/program", "--lang", "en"], 2, "no such program"),
        (&[&url, "--token", TOKEN, "--only", "no-such-case"], 2, "no-such-case"),
        (&[&url, "--token", TOKEN, "--profile", "nobody"], 2, "generic"),
        (&[&url, "--token", TOKEN, "--set", "nothing=x"], 2, "stream_reply"),
        (&[&url, "--token", TOKEN, "--bound-token", "half", "--lang", "en"], 2, "DEV=T"),
    ] {
        let (came, out, err) = check(arguments);
        assert_eq!(came, code, "{arguments:?}: {out}{err}");
        assert!(err.contains(word), "{arguments:?}: {err}");
    }
}

#[test]
fn a_case_that_needs_a_flag_names_it_and_is_no_failure() {
    let gateway = Gateway::start();
    let url = gateway.address.to_string();
    let (code, out, err) = check(&[
        &url,
        "--token",
        TOKEN,
        "--lang",
        "en",
        "--profile",
        "generic",
        "--only",
        "bound-token",
        "--only",
        "deliver-token",
        "--only",
        "hello-in-time",
        "--only",
        "lockout",
        "--only",
        "card",
        "--only",
        "b-ack",
    ]);
    assert_eq!(code, 0, "{out}{err}");
    for needs in ["--bound-token DEV=T", "--deliver-token T", "--slow", "--spawn", "--set approve="] {
        assert!(out.contains(&format!("needs {needs}")) || out.contains(needs), "{needs}: {out}");
    }
    assert!(out.contains("not offered (optional): 1"), "{out}");
    assert!(out.ends_with("0 passed, 0 failed, 5 skipped\n"), "{out}");
}

/// Answers a `ping` with an error.
fn wrong() -> Mutant {
    Box::new(|to, msg| match msg {
        Msg::Json(value) if value.get("t") == Some(&"pong".into()) => Some(vec![(
            to,
            Msg::Json(json!({"t": "error", "code": "internal", "message": "?", "fatal": false})),
        )]),
        _ => None,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_that_is_not_kept_is_told_in_every_form() {
    let gateway = Gateway::start();
    let url = proxy::start(gateway.address, wrong).await.unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("junit.xml").to_str().unwrap().to_owned();
    let run = move |arguments: &[&str]| {
        let common = [&url, "--token", TOKEN, "--only", "ping", "--only", "ready"];
        let all: Vec<String> = common.iter().chain(arguments).map(|text| (*text).to_owned()).collect();
        tokio::task::spawn_blocking(move || check(&all.iter().map(String::as_str).collect::<Vec<_>>()))
    };
    // Each language, with what was sent, what came, what was expected, and the typical mistake.
    for (lang, words) in [
        (
            "ru",
            [
                "- ping",
                "что послать: ping с ts 42",
                "ожидалось",
                "пришло",
                "частая ошибка",
                r#"> {"t":"ping""#,
            ],
        ),
        (
            "en",
            [
                "- ping",
                "what to send: ping with ts 42",
                "expected",
                "came",
                "typical mistake",
                r#"< {"code":"internal""#,
            ],
        ),
    ] {
        let (code, out, _) = run(&["--lang", lang]).await.unwrap();
        assert_eq!(code, 1, "{out}");
        for word in words {
            assert!(out.contains(word), "{word}: {out}");
        }
        assert!(out.ends_with("1 passed, 1 failed\n"), "{out}");
    }
    let (code, out, _) = run(&["--lang", "en", "--json", "--junit", &file]).await.unwrap();
    assert_eq!(code, 1);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&report["passed"], &report["failed"]), (&json!(1), &json!(1)));
    let failed = report["cases"].as_array().unwrap().iter().find(|case| case["outcome"] == "failed").unwrap();
    assert_eq!((&failed["id"], &failed["from"]), (&json!("ping"), &json!("table: ping/pong")));
    let junit = std::fs::read_to_string(&file).unwrap();
    assert!(junit.contains(r#"tests="2" failures="1" errors="0" skipped="0""#), "{junit}");
    assert!(junit.contains("<failure message=") && !junit.contains(TOKEN), "{junit}");
}
