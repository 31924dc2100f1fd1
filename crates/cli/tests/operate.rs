//! What an operator uses, as processes: `config`, `completions`, `store`, `trace`, and what the service manager is told.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../gateway/tests/common/client.rs"]
mod client;

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    os::unix::{fs::PermissionsExt, net::UnixDatagram},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use client::{Client, PATIENCE, TOKEN};
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_hermes-mobile");

/// The command without the variables of whoever runs the tests.
fn hermes(arguments: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.env_clear().args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs to the end.
fn output(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn json(command: &mut Command) -> Value {
    let (_, out, said) = output(command);
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out} {said}"))
}

/// A gateway as a process; killed if a test fails.
struct Gateway {
    child: Child,
    address: SocketAddr,
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

    fn on(state: &Path) -> Self {
        let state = state.to_str().unwrap();
        Self::start(&mut hermes(&["serve", "--port", "0", "--agent", "echo", "--state", state]))
    }

    fn stop(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").arg(&pid).status().unwrap().success());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A state directory in which something was said, the gateway that still runs on it, and the id of its first reply.
fn busy() -> (tempfile::TempDir, Gateway, String) {
    let state = tempfile::tempdir().unwrap();
    let gateway = Gateway::on(state.path());
    let reply = tokio::runtime::Runtime::new().unwrap().block_on(async {
        let mut device = Client::device(gateway.address, "phone").await;
        device.send(r#"{"t":"text","id":"q-1","text":"private words"}"#);
        let reply = device.until(&["private words", r#""final":true"#]).await;
        device.send(
            r#"{"t":"media","id":"f-1","kind":"document","mime":"text/plain","filename":"private.txt","data":"QUJD","part":0,"parts":1}"#,
        );
        device.until(&["[document 3 bytes]", r#""final":true"#]).await;
        serde_json::from_str::<Value>(&reply).unwrap()["id"].as_str().unwrap().to_owned()
    });
    (state, gateway, reply)
}

#[test]
fn the_example_is_a_file_that_the_check_finds_right() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    for (lang, words) in [("en", "Port to listen on."), ("ru", "Порт, на котором слушать.")]
    {
        let (code, text, said) = output(&mut hermes(&["config", "example", "--lang", lang]));
        assert_eq!((code, said.as_str()), (Some(0), ""));
        assert!(text.contains(words) && text.contains("#port = 8787"), "{text}");
        fs::write(&file, text.replace("#port = 8787", "port = 9999")).unwrap();
        let (code, text, said) = output(
            hermes(&[
                "config",
                "check",
                "--config",
                file.to_str().unwrap(),
                "--agent",
                "echo",
                "--lang",
                lang,
            ])
            .env("HOME", dir.path())
            .env("MOBILE_TOKEN", "a-secret-of-the-owner")
            .env("MOBILE_CHUNK_LIMIT", "300"),
        );
        assert_eq!((code, said.as_str()), (Some(0), ""), "{text}");
        let line = |key: &str| {
            let line = text.lines().find(|line| line.starts_with(&format!("{key} = ")));
            line.unwrap_or_else(|| panic!("{key} in {text}")).split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(line("port"), format!("port = 9999 # {}", file.display()));
        assert_eq!(line("agent"), "agent = echo # --agent");
        assert_eq!(line("chunk_limit"), "chunk_limit = 300 # MOBILE_CHUNK_LIMIT");
        assert_eq!(line("token"), "token = *** # MOBILE_TOKEN");
        assert!(!text.contains("a-secret"), "{text}");
    }
    // By the variable as well as by the flag, and the person's own language.
    let (_, text, _) = output(hermes(&["config", "example"]).env("LANG", "ru_RU.UTF-8"));
    assert!(text.contains("Порт"), "{text}");
}

#[test]
fn the_check_ends_as_serve_would() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().to_str().unwrap();
    for (arguments, variable, words) in [
        (vec!["--port", "high"], ("X", ""), "--port"),
        (vec![], ("MOBILE_EXTRA_TOKENS", "qa-1="), "no token"),
        (vec![], ("MOBILE_LOG", "a=b=c"), "MOBILE_LOG"),
        (vec!["--state", ""], ("X", ""), "--state"),
        (vec!["--config", "/nonexistent.toml"], ("X", ""), "/nonexistent.toml"),
    ] {
        let run = |command: &str, more: &[&str]| {
            let mut all: Vec<&str> = command.split(' ').collect();
            all.extend(&arguments);
            all.extend(more);
            output(hermes(&all).env("HOME", home).env(variable.0, variable.1))
        };
        let (code, out, said) = run("config check", &[]);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{said}");
        assert!(said.contains(words), "{words}: {said}");
        assert_eq!(run("serve", &[]), (Some(2), String::new(), said.clone()), "the same words");
        let (code, out, _) = run("config check", &["--json"]);
        let value: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((code, &value["ok"]), (Some(2), &Value::Bool(false)));
        assert!(said.contains(value["error"].as_str().unwrap()));
    }
    let value = json(
        hermes(&["config", "check", "--json", "--lang", "ru"]).env("HOME", home).env("MOBILE_PROT", "1"),
    );
    assert_eq!(value["ok"], Value::Bool(true));
    let port = value["settings"].as_array().unwrap().iter().find(|s| s["key"] == "port").unwrap();
    assert_eq!((&port["value"], &port["source"]), (&"8787".into(), &"default".into()));
    assert!(value["warnings"][0].as_str().unwrap().contains("MOBILE_PROT неизвестна"), "{value}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was made");
}

#[test]
fn a_message_to_what_is_no_device_is_wrong_usage() {
    for target in ["a b", "", "*", "a/b"] {
        // Nothing listens there: it is refused before anybody is asked.
        let send = ["send", "--url", "127.0.0.1:1", "--token", "x", target, "text"];
        let (code, out, said) = output(&mut hermes(&send));
        assert_eq!((code, out.as_str()), (Some(2), ""), "{target:?}: {said}");
        assert!(said.contains("letters and digits"), "{said}");
        let (_, _, said) = output(hermes(&send).env("LANG", "ru_RU.UTF-8"));
        assert!(said.contains("это не id устройства"), "{said}");
    }
    let (code, ..) = output(&mut hermes(&["send", "--url", "127.0.0.1:1", "--token", "x", "home", "text"]));
    assert_eq!(code, Some(5), "home and device ids are tried");
}

#[test]
fn completions_are_what_the_shells_understand() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, script, said) = output(&mut hermes(&["completions", shell]));
        assert_eq!((code, said.as_str()), (Some(0), ""), "{shell}");
        for word in ["serve", "trace", "backup"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(output(&mut hermes(&["completions", "cmd"])).0, Some(2));
    // Bash itself: `hermes-mobile st` completes to `store`.
    let script = "source <(\"$B\" completions bash)\n\
                  COMP_WORDS=(hermes-mobile st) COMP_CWORD=1\n\
                  f=$(complete -p hermes-mobile); f=${f#*-F }; ${f%% *} hermes-mobile st hermes-mobile\necho \"${COMPREPLY[@]}\"";
    let bash = Command::new("bash").args(["-c", script]).env("B", BINARY).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&bash.stdout).trim(), "store", "{bash:?}");
}

#[test]
fn the_store_is_checked_and_counted_while_the_gateway_runs_and_while_it_does_not() {
    let (state, gateway, _) = busy();
    let dir = state.path().to_str().unwrap();
    let look = |what: &[&str]| json(hermes(what).args(["--state", dir, "--json"]).env("LANG", "ru_RU.UTF-8"));
    let check = |runs: bool| {
        let report = look(&["store", "check"]);
        assert_eq!((&report["sound"], &report["devices"]), (&true.into(), &1.into()), "{runs}: {report}");
        assert_eq!(report["orphan_files"], 0, "{report}");
        let stats = look(&["store", "stats"]);
        assert_eq!(stats["rows"]["text"]["count"], 1, "{stats}");
        assert_eq!(stats["rows"]["file_in"]["count"], 1, "{stats}");
        assert!(stats["rows"]["message"]["count"].as_u64().unwrap() >= 1, "{stats}");
        assert!(stats["oldest"].as_str().unwrap().starts_with("20") && stats["files"].as_u64() > Some(0));
    };
    check(true);
    let (code, text, said) = output(&mut hermes(&["store", "check", "--state", dir]));
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert!(text.contains("nothing is damaged"), "{text}");
    let (_, text, _) = output(&mut hermes(&["store", "stats", "--lang", "ru", "--state", dir]));
    assert!(text.contains("тексты с устройств") && !text.contains("private"), "{text}");
    gateway.stop();
    check(false);

    // What is damaged is said, with an exit code of its own.
    for file in fs::read_dir(state.path().join("media")).unwrap() {
        fs::remove_file(file.unwrap().path()).unwrap();
    }
    let (code, text, _) = output(&mut hermes(&["store", "check", "--state", dir]));
    assert_eq!(code, Some(1));
    assert!(text.contains("is not there") && text.contains("restore a backup"), "{text}");
    let (code, _, said) = output(&mut hermes(&["store", "stats", "--state", "/nonexistent"]));
    assert_eq!(code, Some(4));
    assert!(said.contains("there is no store in /nonexistent"), "{said}");
}

#[test]
fn a_backup_of_a_running_gateway_opens_and_serves() {
    let (state, gateway, _) = busy();
    let dir = state.path().to_str().unwrap();
    let place = tempfile::tempdir().unwrap();
    let copy = place.path().join("copy");
    let to = copy.to_str().unwrap();
    let (code, text, said) = output(&mut hermes(&["store", "backup", to, "--state", dir]));
    assert_eq!((code, said.as_str()), (Some(0), ""), "{text}");
    assert!(text.contains(to), "{text}");
    assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o700);
    let (code, _, said) = output(&mut hermes(&["store", "backup", to, "--state", dir, "--lang", "ru"]));
    assert_eq!(code, Some(4));
    assert!(said.contains("назовите другое место"), "{said}");

    let second = Gateway::on(&copy);
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        // What was said before the copy was made is known there: it is a repeat, and a new text is answered.
        let mut device = Client::device(second.address, "phone").await;
        device.send(r#"{"t":"text","id":"q-1","text":"other words"}"#);
        device.until(&["bad_frame"]).await;
        device.send(r#"{"t":"text","id":"q-2","text":"after the restore"}"#);
        device.until(&["after the restore", r#""final":true"#]).await;
    });
    second.stop();
    gateway.stop();
    let report = json(&mut hermes(&["store", "check", "--state", to, "--json"]));
    assert_eq!(report["sound"], true, "{report}");
}

#[test]
fn a_message_is_traced_by_each_of_its_ids_without_its_words() {
    let (state, gateway, reply) = busy();
    let dir = state.path().to_str().unwrap();
    let trace = |arguments: &[&str]| output(hermes(&["trace"]).args(arguments).args(["--state", dir]));
    let both = |id: &str| {
        let (code, text, said) = trace(&[id, "--device", "phone"]);
        assert_eq!((code, said.as_str()), (Some(0), ""), "{id}");
        assert!(!text.contains("private") && !text.contains("words"), "{text}");
        let (code, out, _) = trace(&[id, "--device", "phone", "--json"]);
        assert!(!out.contains("private"), "{out}");
        assert_eq!(code, Some(0));
        (text, serde_json::from_str::<Value>(&out).unwrap())
    };
    let events = |value: &Value| -> Vec<String> {
        let stations = value["devices"][0]["stations"].as_array().unwrap();
        stations.iter().map(|s| s["event"].as_str().unwrap().to_owned()).collect()
    };
    let (text, value) = both("q-1");
    assert!(text.contains("device phone") && text.contains("text accepted, on disk"), "{text}");
    assert_eq!(events(&value).first().map(String::as_str), Some("accepted"));
    let stations = value["devices"][0]["stations"].as_array().unwrap();
    assert!(stations[0]["at"].as_str().unwrap().ends_with('Z') && stations[0]["at_ms"].as_u64().is_some());
    let (text, value) = both(&reply);
    assert!(text.contains("message stored, seq "), "{text}");
    assert_eq!(events(&value), ["message"]);
    assert_eq!(events(&both("f-1").1).first().map(String::as_str), Some("accepted"));

    let (code, _, said) = trace(&["q-1", "--device", "nobody"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("nothing is kept of this id"), "{said}");
    gateway.stop();
    let (text, _) = both("q-1");
    assert!(text.contains("the agent has done with it"), "{text}");
    assert_eq!(events(&both(&reply).1), ["message"]);
    let (_, text, _) = trace(&["q-1", "--lang", "ru"]);
    assert!(text.contains("устройство phone") && text.contains("текст принят"), "{text}");
}

#[test]
fn the_service_manager_is_told_when_it_listens_works_and_stops() {
    let state = tempfile::tempdir().unwrap();
    let path = state.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let next = || {
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap().trim().to_owned()
    };
    let store = state.path().join("state");
    let arguments = ["serve", "--port", "0", "--state", store.to_str().unwrap()];
    let gateway =
        Gateway::start(hermes(&arguments).env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000"));
    assert_eq!(next(), "READY=1");
    for _ in 0..3 {
        assert_eq!(next(), "WATCHDOG=1");
    }
    // It listened when it said so.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    assert!(runtime.block_on(client::get(gateway.address, "/readyz")).contains("200 OK"));
    let pid = gateway.child.id().to_string();
    assert!(Command::new("kill").arg(&pid).status().unwrap().success());
    let last = loop {
        match next() {
            watchdog if watchdog == "WATCHDOG=1" => {}
            other => break other,
        }
    };
    assert_eq!(last, "STOPPING=1");
    drop(gateway);

    // Without a watchdog it is not fed, and without a service manager nothing is said or needed.
    let gateway = Gateway::start(hermes(&arguments).env("NOTIFY_SOCKET", &path));
    assert_eq!(next(), "READY=1");
    assert!(Command::new("kill").arg(gateway.child.id().to_string()).status().unwrap().success());
    assert_eq!(next(), "STOPPING=1");
    drop(gateway);
    Gateway::on(&store).stop();
}
