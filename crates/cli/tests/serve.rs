//! `serve` and `token` as processes: exit codes and words, signals, and a disk that does not do what it should.
//!
//! The disks are small file systems in a mount namespace of their own; without root the namespace comes with a user
//! namespace.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../gateway/tests/common/client.rs"]
mod client;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::SocketAddr,
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use client::{Client, Got, PATIENCE, TOKEN, get, hello};

const BINARY: &str = env!("CARGO_BIN_EXE_hermes-mobile");

/// A command without the variables of whoever runs the tests.
fn clean(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn hermes(arguments: &[&str]) -> Command {
    let mut command = clean(BINARY);
    command.args(arguments);
    command
}

/// Runs to the end.
fn output(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// A gateway as a process; killed if a test fails.
struct Gateway {
    child: Child,
    address: SocketAddr,
    /// Kept open, as a terminal or a log would be.
    _rest: BufReader<std::process::ChildStdout>,
}

impl Gateway {
    fn start(command: &mut Command) -> Self {
        let mut child = command.env("MOBILE_TOKEN", TOKEN).spawn().unwrap();
        let mut rest = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        rest.read_line(&mut line).unwrap();
        let Some(address) = line.trim().strip_prefix("listening on http://") else {
            let mut why = String::new();
            let _ = child.stderr.take().unwrap().read_to_string(&mut why);
            panic!("{line:?} {why}");
        };
        Self { address: address.parse().unwrap(), child, _rest: rest }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// Waits for its end: exit status and standard error.
    fn end(mut self) -> (std::process::ExitStatus, String) {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                let mut said = String::new();
                let _ = self.child.stderr.take().unwrap().read_to_string(&mut said);
                return (status, said);
            }
            assert!(started.elapsed() < PATIENCE, "does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command in a mount namespace in which `setup`, a shell script, has run; `$D` in both is `dir`.
fn on_a_disk_of_its_own(dir: &Path, setup: &str, arguments: &str) -> Command {
    let mut command = clean("unshare");
    let root = fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0);
    command.args(if root {
        ["--mount", "--"].as_slice()
    } else {
        ["--mount", "--map-root-user", "--"].as_slice()
    });
    command.args(["sh", "-ec", &format!("{setup}\nexec {BINARY} {arguments}")]).env("D", dir);
    command
}

#[test]
fn wrong_usage_and_configuration_end_with_2_and_name_what_is_allowed() {
    let state = tempfile::tempdir().unwrap();
    let dir = state.path().to_str().unwrap();
    for (arguments, variable, words) in [
        (vec!["serve", "--state", dir, "--port", "high"], ("X", ""), vec!["--port", "high", "0 to 65535"]),
        (vec!["serve", "--state", dir, "--agent", "x"], ("X", ""), vec!["--agent", "demo, echo, none"]),
        (
            vec!["serve", "--state", dir],
            ("MOBILE_EXTRA_TOKENS", "qa-1="),
            vec!["MOBILE_EXTRA_TOKENS", "no token"],
        ),
        (vec!["serve", "--state", dir], ("MOBILE_LOG", "a=b=c"), vec!["MOBILE_LOG", "debug"]),
        (vec!["serve", "--config", "/nonexistent.toml"], ("X", ""), vec!["/nonexistent.toml", "--config"]),
        (vec!["serve", "--what"], ("X", ""), vec!["--what"]),
        (vec!["frobnicate"], ("X", ""), vec!["frobnicate"]),
    ] {
        let (code, _, said) = output(hermes(&arguments).env(variable.0, variable.1));
        assert_eq!(code, Some(2), "{arguments:?}: {said}");
        for word in words {
            assert!(said.contains(word), "{word}: {said}");
        }
    }
    assert_eq!(fs::read_dir(state.path()).unwrap().count(), 0, "nothing was made");
}

#[test]
fn a_taken_port_ends_with_3_in_the_language_of_the_person() {
    let state = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let first =
        Gateway::start(&mut hermes(&["serve", "--port", "0", "--state", state.path().to_str().unwrap()]));
    let port = first.address.port().to_string();
    let again = ["serve", "--port", &port, "--state", other.path().to_str().unwrap()];
    let (code, _, said) = output(&mut hermes(&again));
    assert_eq!(code, Some(3));
    assert!(said.contains("cannot listen") && said.contains("--port"), "{said}");
    let (code, _, said) = output(hermes(&again).env("LANG", "ru_RU.UTF-8"));
    assert_eq!(code, Some(3));
    assert!(said.contains("Порт занят"), "{said}");
}

#[test]
fn a_second_gateway_on_the_same_state_ends_with_4() {
    let state = tempfile::tempdir().unwrap();
    let arguments = ["serve", "--port", "0", "--state", state.path().to_str().unwrap()];
    let first = Gateway::start(&mut hermes(&arguments));
    let (code, _, said) = output(&mut hermes(&arguments));
    assert_eq!(code, Some(4));
    assert!(said.contains(&format!("process {}", first.child.id())), "{said}");
}

#[test]
fn the_token_is_shown_by_its_command_and_by_nobody_else() {
    let state = tempfile::tempdir().unwrap();
    let dir = state.path().to_str().unwrap();
    let (code, token, said) = output(&mut hermes(&["token", "--state", dir]));
    assert_eq!((code, said.as_str()), (Some(0), ""));
    let token = token.trim();
    assert_eq!(token.len(), 32);
    let file = state.path().join("token");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    // Started without a terminal: the file is named, the token is not shown, whatever is logged.
    let port_file = state.path().join("port");
    let mut command =
        hermes(&["serve", "--port", "0", "--state", dir, "--port-file", port_file.to_str().unwrap()]);
    let mut child = command.env("MOBILE_LOG", "trace").spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    out.read_line(&mut first).unwrap();
    let address: SocketAddr = first.trim().strip_prefix("listening on http://").unwrap().parse().unwrap();
    assert_eq!(fs::read_to_string(&port_file).unwrap().trim(), address.port().to_string());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut client = Client::connect(address, &format!("/ws?token={token}"), &[]).await;
        client.send(r#"{"t":"hello","device":{"id":"d"}}"#);
        client.until(&[r#""t":"ready""#]).await;
        client.send(r#"{"t":"text","id":"1","text":"a private remark"}"#);
        client.until(&["You said", r#""final":true"#]).await;
        let wrong = "/ws?token=wrongwrong";
        let mut stranger = Client::connect(address, wrong, &[("Authorization", "Bearer badbadbad")]).await;
        stranger.send(r#"{"t":"hello","token":"worseworse","device":{"id":"d"}}"#);
        stranger.until(&["auth_failed"]).await;
    });
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    let (mut said, mut log) = (String::new(), String::new());
    out.read_to_string(&mut said).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(said.contains(file.to_str().unwrap()), "{said}");
    assert!(log.contains("connection opened"), "the log was on: {log}");
    for secret in [token, "wrongwrong", "badbadbad", "worseworse", "a private remark"] {
        assert!(!said.contains(secret) && !log.contains(secret), "{secret}: {said} {log}");
    }
}

#[test]
fn a_signal_drains_and_ends_with_0_and_a_second_one_ends_at_once() {
    let state = tempfile::tempdir().unwrap();
    let arguments = ["serve", "--port", "0", "--state", state.path().to_str().unwrap()];
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for signal in ["-TERM", "-INT"] {
        let gateway = Gateway::start(&mut hermes(&arguments));
        let mut device = runtime.block_on(Client::device(gateway.address, "d"));
        gateway.signal(signal);
        assert_eq!(runtime.block_on(device.closed()), Some(1012));
        let (status, said) = gateway.end();
        assert_eq!(status.code(), Some(0), "{said}");
    }
    // A client that never answers the close would keep the gateway for the whole time of a stop.
    let gateway = Gateway::start(hermes(&arguments).env("MOBILE_DRAIN_MS", "600000"));
    let mut stuck = std::net::TcpStream::connect(gateway.address).unwrap();
    write!(
        stuck,
        "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    .unwrap();
    stuck.read_exact(&mut [0; 12]).unwrap();
    gateway.signal("-TERM");
    let mut close = Vec::new();
    // Its close frame shows that the first signal has been taken.
    while !close.ends_with(&[0x88, 2, 0x03, 0xF4]) {
        let mut byte = [0];
        stuck.read_exact(&mut byte).unwrap();
        close.extend(byte);
    }
    gateway.signal("-TERM");
    let (status, said) = gateway.end();
    assert_eq!((status.code(), status.signal()), (Some(1), None), "{said}");
}

#[test]
fn near_the_limit_of_descriptors_new_connections_are_refused_in_words() {
    let state = tempfile::tempdir().unwrap();
    let dir = state.path().to_str().unwrap();
    // Soft 70 and hard 84: raised to 84, of which 64 are kept back, which leaves 20.
    let mut command = clean("prlimit");
    command.args(["--nofile=70:84", BINARY, "serve", "--port", "0", "--state", dir]);
    let gateway = Gateway::start(&mut command);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut devices = Vec::new();
        for number in 0..20 {
            devices.push(Client::device(gateway.address, &format!("d{number}")).await);
        }
        for _ in 0..3 {
            let refused = get(gateway.address, "/healthz").await;
            assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
            assert!(refused.contains("Retry-After:") && refused.contains("Слишком много"), "{refused}");
        }
        // Living connections do not notice, and there is room again when one goes.
        devices[0].send(r#"{"t":"ping","ts":7}"#);
        devices[0].until(&[r#""t":"pong""#]).await;
        let mut gone = devices.pop().unwrap();
        gone.out.send(wire::Out::Close(1000)).unwrap();
        gone.closed().await;
        let started = Instant::now();
        while !get(gateway.address, "/healthz").await.contains("200 OK") {
            assert!(started.elapsed() < PATIENCE);
        }
    });
    gateway.signal("-TERM");
    let (status, said) = gateway.end();
    assert_eq!(status.code(), Some(0));
    assert_eq!(said.matches("limit of open files").count(), 1, "logged once: {said}");
}

#[test]
fn a_state_directory_that_cannot_be_written_ends_with_4_and_says_what_to_do() {
    let state = tempfile::tempdir().unwrap();
    let mount = "mount -t tmpfs -o size=4m none \"$D\"; mount -o remount,ro \"$D\"";
    let (code, _, said) =
        output(&mut on_a_disk_of_its_own(state.path(), mount, "serve --port 0 --state \"$D\""));
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("read-only") && said.contains("another state directory"), "{said}");

    let inside = state.path().join("below/deep");
    let mut command = on_a_disk_of_its_own(state.path(), mount, "serve --port 0 --state \"$D/below/deep\"");
    let (code, _, said) = output(&mut command);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("read-only") && !inside.exists(), "{said}");

    let file = state.path().join("file");
    fs::write(&file, "x").unwrap();
    let (code, _, said) = output(&mut hermes(&["serve", "--port", "0", "--state", file.to_str().unwrap()]));
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains(file.to_str().unwrap()), "{said}");
}

#[test]
fn a_full_disk_at_start_ends_with_4_and_says_what_to_do() {
    let state = tempfile::tempdir().unwrap();
    let mount = "mount -t tmpfs -o size=64k none \"$D\"; head -c 1m /dev/zero >\"$D/filler\" 2>/dev/null || true; chmod 700 \"$D\"";
    let (code, _, said) =
        output(&mut on_a_disk_of_its_own(state.path(), mount, "serve --port 0 --state \"$D\""));
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("no space left") && said.contains("free some"), "{said}");
}

#[test]
fn a_damaged_store_ends_with_4_and_is_left_as_it_is() {
    let state = tempfile::tempdir().unwrap();
    let dir = state.path().to_str().unwrap();
    let arguments = ["serve", "--port", "0", "--state", dir];
    let gateway = Gateway::start(&mut hermes(&arguments));
    gateway.signal("-TERM");
    assert_eq!(gateway.end().0.code(), Some(0));
    let database = state.path().join("store.db");
    fs::write(&database, b"this was a database").unwrap();
    let (code, _, said) = output(&mut hermes(&arguments));
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("store.db"), "{said}");
    assert_eq!(fs::read(&database).unwrap(), b"this was a database");
}

#[test]
fn a_disk_that_fills_up_refuses_in_words_and_accepts_again_when_there_is_room() {
    let state = tempfile::tempdir().unwrap();
    let mount = "mount -t tmpfs -o size=4m none \"$D\"; chmod 700 \"$D\"";
    let gateway = Gateway::start(&mut on_a_disk_of_its_own(
        state.path(),
        mount,
        "serve --port 0 --agent echo --state \"$D\"",
    ));
    // The disk of that process, seen from here.
    let inside = format!("/proc/{}/root{}", gateway.child.id(), state.path().display());
    let filler = Path::new(&inside).join("filler");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut device = Client::device(gateway.address, "d").await;
        device.send(r#"{"t":"text","id":"1","text":"before"}"#);
        device.until(&["before", r#""final":true"#]).await;

        let full = fs::write(&filler, vec![0; 8 << 20]).unwrap_err();
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
        let long = "x".repeat(11_000);
        device.send(format!(r#"{{"t":"text","id":"2","text":"{long}"}}"#));
        device.until(&[r#""code":"internal""#]).await;
        let unready = get(gateway.address, "/readyz").await;
        assert!(unready.starts_with("HTTP/1.1 503 ") && unready.contains("no space left"), "{unready}");
        assert!(get(gateway.address, "/healthz").await.contains("200 OK"), "the process lives");

        fs::remove_file(&filler).unwrap();
        // Either the connection lived or the device comes back; then the same text, under its old id, is taken.
        let started = Instant::now();
        let mut answered = false;
        while !answered {
            assert!(started.elapsed() < PATIENCE, "never accepted again");
            let mut device = Client::connect(gateway.address, "/ws", &[]).await;
            device.send(hello("d"));
            device.until(&[r#""t":"ready""#]).await;
            device.send(format!(r#"{{"t":"text","id":"2","text":"{long}"}}"#));
            answered = loop {
                match device.next().await {
                    Got::Text(text) if text.contains("internal") => break false,
                    Got::Text(text) if text.contains("xxxx") && text.contains(r#""final":true"#) => {
                        break true;
                    }
                    Got::Text(_) => {}
                    Got::Closed(_) => break false,
                }
            };
        }
        assert!(get(gateway.address, "/readyz").await.contains("200 OK"));
    });
    gateway.signal("-TERM");
    let (status, said) = gateway.end();
    assert_eq!(status.code(), Some(0), "{said}");
    assert_eq!(said.matches("nothing can be stored").count(), 1, "said once, not for each text: {said}");
    assert!(said.contains("works again"), "{said}");
}
