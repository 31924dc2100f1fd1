//! `chat` and `send` as processes, through pipes, against the gateway as a process.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

const BINARY: &str = env!("CARGO_BIN_EXE_hermes-mobile");
const PATIENCE: Duration = Duration::from_secs(30);

/// The command without the variables of whoever runs the tests.
fn hermes(dir: &Path) -> Command {
    let mut command = Command::new(BINARY);
    command.env_clear().env("MOBILE_STATE_DIR", dir.join("state")).env("MOBILE_LANG", "en").current_dir(dir);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A process whose output is read line by line as it comes.
struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    out: Receiver<String>,
    err: Receiver<String>,
}

fn reader(from: impl Read + Send + 'static) -> Receiver<String> {
    let (tx, rx) = channel();
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if tx.send(line).is_err() {
                return;
            }
        }
    });
    rx
}

impl Process {
    fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let out = reader(child.stdout.take().unwrap());
        let err = reader(child.stderr.take().unwrap());
        Self { stdin: child.stdin.take(), child, out, err }
    }
    fn say(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").unwrap();
        stdin.flush().unwrap();
    }
    /// Reads on until a line has these words.
    fn until(from: &Receiver<String>, words: &str) -> Vec<String> {
        let until = Instant::now() + PATIENCE;
        let mut lines = vec![];
        loop {
            match from.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    let found = line.contains(words);
                    lines.push(line);
                    if found {
                        return lines;
                    }
                }
                Err(_) => panic!("no {words:?} in {lines:#?}"),
            }
        }
    }
    fn shows(&self, words: &str) -> Vec<String> {
        Self::until(&self.out, words)
    }
    fn notes(&self, words: &str) {
        Self::until(&self.err, words);
    }
    /// Ends its input and waits for its end: exit code, what was left on standard output and standard error.
    fn end(mut self) -> (Option<i32>, Vec<String>, Vec<String>) {
        drop(self.stdin.take());
        let until = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "it does not end");
            thread::sleep(Duration::from_millis(10));
        };
        (status.code(), self.out.iter().collect(), self.err.iter().collect())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Gateway {
    _process: Process,
    url: String,
    port: String,
}

impl Gateway {
    fn start(dir: &Path, port: &str) -> Self {
        let process = Process::start(hermes(dir).args(["serve", "--port", port]));
        let first = process.shows("listening on").pop().unwrap();
        let address = first.rsplit('/').next().unwrap().to_owned();
        let port = address.rsplit(':').next().unwrap().to_owned();
        Self { _process: process, url: address, port }
    }
    fn new(dir: &Path) -> Self {
        Self::start(dir, "0")
    }
}

fn chat(dir: &Path, gateway: &Gateway, more: &[&str]) -> Process {
    Process::start(hermes(dir).args(["chat", &gateway.url]).args(more))
}

/// Runs to the end with this input.
fn run(command: &mut Command, input: &str) -> (Option<i32>, Vec<String>, Vec<String>) {
    let mut process = Process::start(command);
    // It may end without reading.
    let _ = process.stdin.as_mut().unwrap().write_all(input.as_bytes());
    process.end()
}

#[test]
fn one_line_in_one_reply_out() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = Gateway::new(dir.path());
    let (code, out, err) = run(hermes(dir.path()).args(["chat", &gateway.url]), "hi\n");
    assert_eq!((code, out), (Some(0), vec!["You said: hi".to_owned()]), "{err:?}");
    // A streamed reply is printed once, when it is complete.
    let (code, out, _) = run(hermes(dir.path()).args(["chat", &gateway.url]), "/stream 60\n");
    let words: Vec<String> = (1..=60).map(|n| format!("word{n}")).collect();
    assert_eq!((code, out), (Some(0), vec![words.join(" ")]));
}

#[test]
fn a_long_message_arrives_whole() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = Gateway::new(dir.path());
    let (code, out, _) = run(hermes(dir.path()).args(["chat", &gateway.url]), "/long 9000\n");
    assert_eq!((code, out.join("\n").chars().count()), (Some(0), 9_000));
}

#[test]
fn cards_by_number_and_numbers_as_chat() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = Gateway::new(dir.path());
    let mut chat = chat(dir.path(), &gateway, &[]);
    chat.say("1");
    chat.shows("You said: 1");
    chat.say("/approve rm -rf /tmp/build");
    let card = chat.shows("Answer with a number");
    assert!(card.iter().any(|l| l == "    rm -rf /tmp/build"), "the exact command: {card:#?}");
    chat.say("9");
    chat.notes("no such option");
    chat.say("1");
    chat.shows("approved: once");
    chat.say("2");
    chat.shows("You said: 2");

    chat.say("/cards 2");
    chat.shows("CMD 1");
    chat.shows("CMD 2");
    chat.shows("Answer with a number");
    chat.say("1");
    chat.notes("several cards are open");
    chat.say("/card 3 4");
    chat.shows("[card 3: ");
    chat.say("1");
    chat.shows("[card 2: ");

    chat.say("/approve 1 ls");
    chat.shows("time is over");
    chat.say("1");
    chat.notes("the card has closed");

    chat.say("/ask");
    chat.shows("the next line is the answer");
    chat.shows("Answer with a number");
    chat.say("4");
    chat.shows("[card 5: ");
    chat.say("purple");
    chat.shows("you chose: purple");
    chat.say("/quit");
    assert_eq!(chat.end().0, Some(0));
}

#[test]
fn files_both_ways() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = Gateway::new(dir.path());
    let bytes: Vec<u8> = (0..3_100_000u32).map(|i| u8::try_from(i % 253).unwrap()).collect();
    fs::write(dir.path().join("a file.bin"), bytes).unwrap();
    let mut chat = chat(dir.path(), &gateway, &["--save", "in"]);
    chat.say("/send \"a file.bin\" look");
    let got = chat.shows("Got document").pop().unwrap();
    assert!(got.contains("a file.bin application/octet-stream 3100000 bytes sha256"), "{got}");
    for round in ["", " (2)"] {
        chat.say("/file 2000000");
        let line = chat.shows("2000000 bytes]").pop().unwrap();
        let name = line.strip_prefix("[file: in/").unwrap().split(',').next().unwrap().to_owned();
        assert_eq!(name.contains(" (2)"), round == " (2)", "nothing is overwritten: {name}");
        let saved = fs::read(dir.path().join("in").join(name)).unwrap();
        assert!(
            saved.len() == 2_000_000 && saved.iter().zip(0usize..).all(|(b, i)| usize::from(*b) == i % 251)
        );
    }
    chat.say("/voice");
    chat.shows("bytes]");
    chat.say("/voice \"a file.bin\"");
    chat.notes("must be WAV or Ogg");
    chat.say("/send nowhere");
    chat.notes("cannot be read");
    chat.say("/quit");
    assert_eq!(chat.end().0, Some(1), "something was not sent");
}

#[test]
fn a_gateway_that_dies_loses_nothing_that_was_typed() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = Gateway::new(dir.path());
    let mut chat = chat(dir.path(), &gateway, &[]);
    chat.say("first");
    chat.shows("You said: first");
    let port = gateway.port.clone();
    // Killed, not stopped.
    drop(gateway);
    chat.notes("trying again");
    chat.say("second");
    chat.say("third");
    let again = Gateway::start(dir.path(), &port);
    let mut lines = chat.shows("You said: third");
    if !lines.iter().any(|l| l == "You said: second") {
        lines.extend(chat.shows("You said: second"));
    }
    // The agent in the gateway begins anew with it: it was given the two texts of after the restart, and this.
    chat.say("/count");
    lines.extend(chat.shows("3"));
    assert_eq!(lines.iter().filter(|l| l.starts_with("You said: ")).count(), 2, "each once: {lines:#?}");
    drop(again);
    chat.say("never");
    let (code, _, err) = chat.end();
    assert_eq!(code, Some(5));
    assert!(err.iter().any(|l| l.contains("messages without confirmation: 1")), "{err:#?}");
}

#[test]
fn refusals_end_with_6_and_say_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = Gateway::new(dir.path());
    let (code, out, err) = run(hermes(dir.path()).args(["chat", &gateway.url, "--token", "wrong"]), "hi\n");
    assert_eq!((code, out), (Some(6), vec![]));
    assert!(err.iter().any(|l| l.contains("auth_failed") && l.contains("hermes-mobile token")), "{err:#?}");
    let (code, _, err) =
        run(hermes(dir.path()).args(["send", "x", "hi", "--url", &gateway.url, "--token", "wrong"]), "");
    assert_eq!(code, Some(6), "{err:#?}");
    let ru = ["chat", &gateway.url, "--token", "wrong", "--lang", "ru"];
    let (_, _, err) = run(hermes(dir.path()).args(ru), "");
    assert!(err.iter().any(|l| l.contains("токен не подходит")), "{err:#?}");

    let first = chat(dir.path(), &gateway, &[]);
    first.notes("connected");
    let second = chat(dir.path(), &gateway, &[]);
    second.notes("connected");
    first.notes("another program connected");
    let (code, ..) = first.end();
    assert_eq!(code, Some(6));
    assert_eq!(second.end().0, Some(0));
}

#[test]
fn no_gateway_ends_with_5_and_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    // A port that nobody listens on.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("127.0.0.1:{port}");
    let (code, _, err) = run(hermes(dir.path()).args(["chat", &url, "--token", "t", "--wait", "1"]), "hi\n");
    assert_eq!(code, Some(5));
    assert!(err.iter().any(|l| l.contains("hermes-mobile serve")), "{err:#?}");
    let (code, out, err) =
        run(hermes(dir.path()).args(["send", "x", "hi", "--token", "t", "--url", &url]), "");
    assert_eq!((code, out), (Some(5), vec![]));
    assert!(err.iter().any(|l| l.contains("hermes-mobile serve")), "{err:#?}");
    // No token anywhere, and a foreign address: the local token stays here.
    let (code, _, err) = run(hermes(dir.path()).args(["chat", &url]), "");
    assert_eq!(code, Some(2));
    assert!(err.iter().any(|l| l.contains("no token")), "{err:#?}");
    let (code, _, err) = run(hermes(dir.path()).args(["chat", "ws://gateway.invalid/ws"]), "");
    assert_eq!(code, Some(2));
    assert!(err.iter().any(|l| l.contains("a token is needed")), "{err:#?}");
    let (code, ..) = run(hermes(dir.path()).args(["chat", "wss://127.0.0.1/ws", "--token", "t"]), "");
    assert_eq!(code, Some(2));
}

#[test]
fn send_says_what_became_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = Gateway::new(dir.path());
    let send = |more: &[&str], input: &str| {
        run(hermes(dir.path()).args(["send", "--url", &gateway.url]).args(more), input)
    };
    let (code, out, err) = send(&["phone", "hello"], "");
    assert_eq!((code, out), (Some(7), vec!["device_offline".to_owned()]));
    assert!(err.iter().any(|l| l.contains("device_offline") && l.contains("--queue")), "{err:#?}");

    let phone = chat(dir.path(), &gateway, &["--device", "phone"]);
    phone.notes("connected");
    assert_eq!(send(&["phone", "hello"], ""), (Some(0), vec!["delivered".into()], vec![]));
    phone.shows("hello");
    // The same id is shown once.
    for _ in 0..2 {
        assert_eq!(send(&["phone", "once", "--id", "nightly-1"], "").0, Some(0));
    }
    assert_eq!(send(&["phone", "-"], "from a pipe\n").0, Some(0));
    assert_eq!(phone.shows("from a pipe"), ["once", "from a pipe"]);
    let (code, _, err) = send(&["phone", "other", "--id", "nightly-1"], "");
    assert_eq!(code, Some(1), "{err:#?}");
    assert_eq!(phone.end().0, Some(0));

    assert_eq!(send(&["phone", "later", "--queue"], "").1, ["queued"]);
    let phone = chat(dir.path(), &gateway, &["--device", "phone"]);
    phone.shows("later");
    let (code, _, err) = send(&["phnoe", "later", "--queue"], "");
    assert_eq!(code, Some(7));
    assert!(err.iter().any(|l| l.contains("does not know")), "{err:#?}");
    assert_eq!(send(&["phone", " "], "").0, Some(2));
}
