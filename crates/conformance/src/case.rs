//! The acceptance cases as they stand in `spec/checklist/*.toml`; its README describes the format.

use std::collections::{BTreeMap, BTreeSet};

use protocol::words::Lang;
use serde::Deserialize;
use serde_json::Value;

/// The files of `spec/checklist`, in the order in which they are run and printed.
pub const FILES: &[(&str, &str)] = &[
    ("points.toml", include_str!("../../../spec/checklist/points.toml")),
    ("table.toml", include_str!("../../../spec/checklist/table.toml")),
    ("access.toml", include_str!("../../../spec/checklist/access.toml")),
    ("transport.toml", include_str!("../../../spec/checklist/transport.toml")),
    ("texts.toml", include_str!("../../../spec/checklist/texts.toml")),
    ("replies.toml", include_str!("../../../spec/checklist/replies.toml")),
    ("media.toml", include_str!("../../../spec/checklist/media.toml")),
    ("cards.toml", include_str!("../../../spec/checklist/cards.toml")),
    ("deliver.toml", include_str!("../../../spec/checklist/deliver.toml")),
    ("part_b.toml", include_str!("../../../spec/checklist/part_b.toml")),
];
const GROUPS: &str = include_str!("../../../spec/checklist/groups.toml");
const ELSEWHERE: &str = include_str!("../../../spec/checklist/elsewhere.toml");

/// What is wrong with a file of cases.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// Not TOML, an unknown key, or a missing one.
    #[error("{file}: {why}")]
    File {
        /// Which file.
        file: String,
        /// What the reader says.
        why: String,
    },
    /// A step that cannot be carried out.
    #[error("case {case}, step {step}: {why}")]
    Step {
        /// Id of the case.
        case: String,
        /// From 1.
        step: usize,
        /// What is wrong.
        why: String,
    },
}

/// What a case says to a person, in one language.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Words {
    /// The rule in a few words.
    pub title: String,
    /// What is sent.
    pub send: String,
    /// What must come.
    pub expect: String,
    /// What is usually wrong when it does not.
    pub mistake: String,
}

/// What becomes of a case when the checker did not start the server itself.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Remote {
    /// It runs.
    #[default]
    Yes,
    /// It takes long with ordinary limits: only with `--slow`.
    Slow,
    /// It needs a server that is set up for it: only with `--spawn`.
    No,
}

/// One acceptance case.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Stable name.
    pub id: String,
    /// Which rule it holds: `point 1`, `table: ping/pong`, `A: hello`.
    pub from: String,
    /// What the server must be set up like, a name in `groups.toml`.
    #[serde(default = "default_group")]
    pub group: String,
    /// Where it runs besides `--spawn`.
    #[serde(default)]
    pub remote: Remote,
    /// The server must see the checker as a loopback peer.
    #[serde(default)]
    pub loopback: bool,
    /// A server of its own: the case restarts it, or changes what others see.
    #[serde(default)]
    pub own: bool,
    /// Part B: the feature that `ready.features` must list.
    pub offers: Option<String>,
    /// Russian.
    pub ru: Words,
    /// English.
    pub en: Words,
    /// What is done, in order.
    pub steps: Vec<Step>,
}

fn default_group() -> String {
    "default".into()
}

impl Case {
    /// The texts in a language.
    #[must_use]
    pub const fn words(&self, lang: Lang) -> &Words {
        match lang {
            Lang::Ru => &self.ru,
            Lang::En => &self.en,
        }
    }

    /// Names of outer values (`p.…`, `bound.…`, `limit.…`) that the steps use.
    #[must_use]
    pub fn uses(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        collect(&self.steps, &mut names);
        names
    }
}

fn collect(steps: &[Step], names: &mut BTreeSet<String>) {
    for step in steps {
        for text in step.texts() {
            let mut rest = text;
            while let Some((_, tail)) = rest.split_once("${") {
                let Some((name, after)) = tail.split_once('}') else { break };
                names.insert(name.to_owned());
                rest = after;
            }
        }
        collect(&step.steps, names);
    }
}

/// One step. Exactly one of the actions is there; the others are options of it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Step {
    /// Which connection; `a` if nothing is said.
    pub on: Option<String>,

    /// Action: opens a connection. A path, or `?query` for the path of the address.
    pub connect: Option<String>,
    /// Action: opens if nothing is open, sends `hello` with these fields changed, and waits for `ready`.
    pub hello: Option<String>,
    /// Action: opens if nothing is open, and sends `hello` with these fields changed.
    pub greet: Option<String>,
    /// Action: sends this frame.
    pub send: Option<String>,
    /// Action: sends this text as a message, as it is.
    pub text: Option<String>,
    /// Action: sends one WebSocket frame, or a part of one.
    pub frame: Option<RawFrame>,
    /// Action: waits for a frame like this one; others in between are passed over, but for errors.
    pub expect: Option<String>,
    /// Action: waits for these frames in this order.
    pub order: Option<Vec<String>>,
    /// Action: after a ping and its pong, so many frames like this one have come (`is`, 0 if nothing is said).
    pub count: Option<String>,
    /// Action: what comes is from here on counted.
    pub mark: Option<bool>,
    /// Action: waits for a ping of the server.
    pub pinged: Option<bool>,
    /// Action: reads a whole message, in one or more chunks; its text is like this.
    pub message: Option<String>,
    /// Action: reads a streamed reply to its end; its text is like this.
    pub stream: Option<String>,
    /// Action: reads a file to its end; `{kind, mime, filename, caption, size, parts, sha256, sniffed}` are like this.
    pub file: Option<String>,
    /// Action: waits for the server's close frame with this code.
    pub closed: Option<u16>,
    /// Action: closes with this code.
    pub close: Option<u16>,
    /// Action: the line is cut.
    pub cut: Option<bool>,
    /// Action: from now on pings are (not) answered.
    pub deaf: Option<bool>,
    /// Action: stops (`term`, `kill`) the server and starts it again on the same state.
    pub restart: Option<String>,
    /// Action: time passes, milliseconds (a number, or `${limit.…}`).
    pub wait: Option<String>,
    /// Action: gives names to values.
    pub set: Option<BTreeMap<String, String>>,
    /// Action: these two texts are the same.
    pub same: Option<[String; 2]>,
    /// Action: carries out `steps` so often; `${i}` counts from 0.
    pub repeat: Option<usize>,
    /// Action: our own client library talks with the server.
    pub sdk: Option<String>,

    /// Of `connect`, `hello`, `greet`: request headers.
    pub headers: BTreeMap<String, String>,
    /// Of `hello`: the server must not be told that pings arrive.
    pub silent: bool,
    /// Of what waits: milliseconds, if not the usual patience (a number, or `${limit.…}`).
    pub within: Option<String>,
    /// Of what waits: not before so many milliseconds after what this connection sent last.
    pub after: Option<String>,
    /// Of `expect`: also frames that were passed over count, since the mark.
    pub anywhere: bool,
    /// Of `expect`: none of these may come before it.
    pub without: Vec<String>,
    /// Of `count`.
    pub is: usize,
    /// Of `repeat`.
    pub steps: Vec<Self>,
}

/// A WebSocket frame as a client library would not send it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawFrame {
    /// FIN, reserved bits and opcode.
    pub first: u8,
    /// The payload in hexadecimal.
    #[serde(default)]
    pub hex: String,
    /// The payload as so many letters `x`.
    #[serde(default)]
    pub letters: usize,
    /// The length in the header, if it is not that of the payload.
    pub len: Option<u64>,
    /// Whether it is masked.
    #[serde(default = "yes")]
    pub masked: bool,
}

const fn yes() -> bool {
    true
}

impl Step {
    /// How many actions it has; one is right.
    fn actions(&self) -> usize {
        let texts = [
            self.connect.is_some(),
            self.hello.is_some(),
            self.greet.is_some(),
            self.send.is_some(),
            self.text.is_some(),
            self.frame.is_some(),
            self.expect.is_some(),
            self.order.is_some(),
            self.count.is_some(),
            self.mark.is_some(),
            self.pinged.is_some(),
            self.message.is_some(),
            self.stream.is_some(),
            self.file.is_some(),
            self.closed.is_some(),
            self.close.is_some(),
            self.cut.is_some(),
            self.deaf.is_some(),
            self.restart.is_some(),
            self.wait.is_some(),
            self.set.is_some(),
            self.same.is_some(),
            self.repeat.is_some(),
            self.sdk.is_some(),
        ];
        texts.iter().filter(|there| **there).count()
    }

    /// Everything in it that may hold `${…}`.
    fn texts(&self) -> impl Iterator<Item = &str> {
        let single = [
            &self.connect,
            &self.hello,
            &self.greet,
            &self.send,
            &self.text,
            &self.expect,
            &self.count,
            &self.message,
            &self.stream,
            &self.file,
            &self.wait,
            &self.within,
            &self.after,
            &self.sdk,
        ];
        single
            .into_iter()
            .flatten()
            .chain(self.order.iter().flatten())
            .chain(self.set.iter().flat_map(BTreeMap::values))
            .chain(self.same.iter().flatten())
            .chain(self.headers.values())
            .chain(&self.without)
            .map(String::as_str)
    }

    /// Everything in it that must be JSON.
    fn frames(&self) -> impl Iterator<Item = &str> {
        [
            &self.hello,
            &self.greet,
            &self.send,
            &self.expect,
            &self.count,
            &self.message,
            &self.stream,
            &self.file,
        ]
        .into_iter()
        .flatten()
        .chain(self.order.iter().flatten())
        .chain(&self.without)
        .map(String::as_str)
    }
}

/// A configuration that cases need.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// What it is for, Russian.
    pub ru: String,
    /// What it is for, English.
    pub en: String,
    /// Environment of the server.
    pub env: BTreeMap<String, String>,
    /// The limits that it sets, as `${limit.…}`; what is not named is the protocol's.
    #[serde(default)]
    pub limits: BTreeMap<String, u64>,
}

/// A rule that no case can hold, and the test in virtual time that does.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Elsewhere {
    /// Section of the protocol's page.
    pub from: String,
    /// The rule.
    pub rule: String,
    /// Why no case shows it.
    pub why: String,
    /// `file::function`, from the root of the repository.
    pub tests: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseFile {
    case: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ElsewhereFile {
    rule: Vec<Elsewhere>,
}

fn read<T: for<'a> Deserialize<'a>>(file: &str, text: &str) -> Result<T, CaseError> {
    toml::from_str(text).map_err(|e| CaseError::File { file: file.into(), why: e.to_string() })
}

/// All cases, checked.
///
/// # Errors
/// [`CaseError`]: a file that was built in is damaged.
pub fn cases() -> Result<Vec<Case>, CaseError> {
    let mut all = Vec::new();
    for (file, text) in FILES {
        all.extend(read::<CaseFile>(file, text)?.case);
    }
    for case in &all {
        check(case, &case.steps)?;
    }
    Ok(all)
}

fn check(case: &Case, steps: &[Step]) -> Result<(), CaseError> {
    for (at, step) in steps.iter().enumerate() {
        let wrong = |why: String| CaseError::Step { case: case.id.clone(), step: at + 1, why };
        if step.actions() != 1 {
            return Err(wrong(format!("{} actions", step.actions())));
        }
        for frame in step.frames() {
            serde_json::from_str::<Value>(frame).map_err(|e| wrong(format!("{frame}: {e}")))?;
        }
        check(case, &step.steps)?;
    }
    Ok(())
}

/// All configurations, by name.
///
/// # Errors
/// [`CaseError`].
pub fn groups() -> Result<BTreeMap<String, Group>, CaseError> {
    read("groups.toml", GROUPS)
}

/// The rules that are held elsewhere.
///
/// # Errors
/// [`CaseError`].
pub fn elsewhere() -> Result<Vec<Elsewhere>, CaseError> {
    Ok(read::<ElsewhereFile>("elsewhere.toml", ELSEWHERE)?.rule)
}
