//! Which cases run, where, and what became of each.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use client::{net, url};
use futures_util::StreamExt;
use protocol::words::Lang;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::{
    case::{self, Case, CaseError, Group, Remote},
    conn::{Conn, Said, Watch},
    profile::{self, Profile, ProfileError},
    run::{self, Failure, World},
    server::{Server, ServerError, Through},
    socket::{OpenError, Socket},
    value::{self, Names},
};

/// So many cases run at once.
const AT_ONCE: usize = 16;
/// Devices that there are only once: cases that use them wait for each other.
const ONLY_ONE: &[&str] = &["bound.device", "home.device", "allowed.device"];
/// Names that come from outside of a case.
const OUTER: &[&str] = &["p.", "bound.", "deliver.", "home.", "allowed.", "limit.", "set."];

/// Why nothing could be checked.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The cases that are built in are damaged.
    #[error(transparent)]
    Case(#[from] CaseError),
    /// The profile cannot be used.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A server cannot be started.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The address cannot be used.
    #[error(transparent)]
    Url(#[from] url::UrlError),
    /// Nobody answers there.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// `hello` with the token was not answered by `ready`: what came.
    #[error("no ready: {}", .0.text(Lang::En))]
    Access(Box<Said>),
    /// The system gives no randomness.
    #[error("the system gives no random numbers")]
    NoRandom,
    /// No case has this name.
    #[error("there is no case {0}")]
    NoCase(String),
}

/// Why a case was not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotRun {
    /// It needs this flag.
    Flag(&'static str),
    /// It needs a server that is set up for it: only with `--spawn`. Which configuration.
    Spawn(String),
    /// It needs to know how the agent is made to do something: a key of the profile.
    Key(String),
    /// The server must be on this machine.
    Loopback,
}

impl NotRun {
    /// For a person.
    #[must_use]
    pub fn text(&self, lang: Lang) -> String {
        match (self, lang) {
            (Self::Flag(flag), Lang::Ru) => format!("нужен ключ {flag}"),
            (Self::Flag(flag), Lang::En) => format!("needs {flag}"),
            (Self::Spawn(group), Lang::Ru) => {
                format!("нужен особо настроенный сервер ({group}): --spawn")
            }
            (Self::Spawn(group), Lang::En) => format!("needs a server set up for it ({group}): --spawn"),
            (Self::Loopback, Lang::Ru) => "нужен сервер на этой же машине (адрес 127.0.0.1)".into(),
            (Self::Loopback, Lang::En) => "needs a server on this machine (address 127.0.0.1)".into(),
            (Self::Key(key), lang) => {
                let keys = profile::keys().unwrap_or_default();
                let meaning = keys.get(key).map_or("", |k| k.text(lang));
                let needs = if lang == Lang::Ru { "нужен ключ" } else { "needs" };
                format!("{needs} --set {key}=… ({meaning})")
            }
        }
    }
}

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server keeps the rule.
    Passed,
    /// It does not.
    Failed(Failure),
    /// Nothing is known.
    NotRun(NotRun),
    /// An optional feature (its name) that the server does not offer.
    NotOffered(String),
}

/// A case with its outcome.
#[derive(Clone, Debug)]
pub struct Done {
    /// The case.
    pub case: Arc<Case>,
    /// What became of it.
    pub outcome: Outcome,
    /// How long it took.
    pub time: Duration,
}

/// Everything that was found.
#[derive(Clone, Debug)]
pub struct Report {
    /// In the order of the files.
    pub done: Vec<Done>,
    /// How long all of it took.
    pub time: Duration,
}

impl Report {
    /// Ids of the cases that failed.
    #[must_use]
    pub fn failed(&self) -> Vec<&str> {
        let failed = self.done.iter().filter(|d| matches!(d.outcome, Outcome::Failed(_)));
        failed.map(|d| d.case.id.as_str()).collect()
    }
}

/// The servers of `--spawn`, one for each configuration, started when they are first needed. Several checks may share
/// them.
pub struct Pool {
    bin: PathBuf,
    names: Names,
    servers: Mutex<BTreeMap<String, Arc<Mutex<Option<Server>>>>>,
    /// Held by cases that use a device which there is only once.
    shared: Arc<Mutex<()>>,
}

impl Pool {
    /// Servers of this program.
    ///
    /// # Errors
    /// [`CheckError::NoRandom`].
    pub fn new(bin: &Path) -> Result<Self, CheckError> {
        let mut names = Names::new();
        for name in ["token", "bound.token", "deliver.token"] {
            names.insert(name.into(), random(16)?.into());
        }
        for (name, value) in [
            ("bound.device", "qa-bound"),
            ("home.device", "qa-home"),
            ("allowed.device", "qa-allowed"),
            ("set.avatar", AVATAR),
        ] {
            names.insert(name.into(), value.into());
        }
        Ok(Self { bin: bin.into(), names, servers: Mutex::default(), shared: Arc::default() })
    }

    fn env(&self, group: &Group) -> Result<BTreeMap<String, String>, CheckError> {
        let fill = |(key, text): (&String, &String)| {
            let filled = value::fill_text(text, &self.names);
            let wrong =
                |e: value::ValueError| CaseError::File { file: "groups.toml".into(), why: e.to_string() };
            Ok((key.clone(), filled.map_err(wrong)?))
        };
        group.env.iter().map(fill).collect()
    }

    /// Address of the shared server of a configuration.
    async fn address(&self, name: &str, group: &Group) -> Result<std::net::SocketAddr, CheckError> {
        let slot = Arc::clone(self.servers.lock().await.entry(name.into()).or_default());
        let mut slot = slot.lock().await;
        if let Some(server) = &*slot {
            return Ok(server.address());
        }
        let server = Server::start(&self.bin, self.env(group)?, None).await?;
        Ok(slot.insert(server).address())
    }
}

const AVATAR: &str = "https://example.org/avatar.png";

fn random(bytes: usize) -> Result<String, CheckError> {
    let seed = net::seed().map_err(|_| CheckError::NoRandom)?;
    Ok(seed.iter().take(bytes).map(|byte| format!("{byte:02x}")).collect())
}

/// Where the servers are.
#[derive(Clone)]
pub enum Target {
    /// Somebody's server.
    Url {
        /// As a person typed it.
        url: String,
        /// The token of `hello`.
        token: String,
    },
    /// Servers of our own.
    Spawn(Arc<Pool>),
}

/// What the checker may use.
#[derive(Clone)]
pub struct Options {
    /// How to make the agent do things.
    pub profile: Profile,
    /// Also what takes long.
    pub slow: bool,
    /// A device with a token of its own.
    pub bound: Option<(String, String)>,
    /// A token that may deliver.
    pub deliver_token: Option<String>,
    /// Only these cases; all, if empty.
    pub only: Vec<String>,
    /// Something between the checker and the servers that it starts.
    pub through: Option<Through>,
}

impl Options {
    /// Nothing but a profile.
    #[must_use]
    pub const fn new(profile: Profile) -> Self {
        Self { profile, slow: false, bound: None, deliver_token: None, only: vec![], through: None }
    }
}

/// Runs the cases.
///
/// # Errors
/// [`CheckError`]: nothing was checked.
pub async fn check(target: &Target, options: &Options) -> Result<Report, CheckError> {
    let began = Instant::now();
    let cases = case::cases()?;
    if let Some(unknown) = options.only.iter().find(|id| cases.iter().all(|case| case.id != **id)) {
        return Err(CheckError::NoCase(unknown.clone()));
    }
    let wanted = |case: &Case| options.only.is_empty() || options.only.contains(&case.id);
    let plan = Plan::new(target, options).await?;
    let features = plan.features().await?;
    let jobs = cases.into_iter().filter(|case| wanted(case)).enumerate().map(|(number, case)| {
        let (plan, features) = (&plan, &features);
        async move {
            let began = Instant::now();
            let case = Arc::new(case);
            let outcome = plan.outcome(number, &case, features).await?;
            Ok::<_, CheckError>((number, Done { case, outcome, time: began.elapsed() }))
        }
    });
    // A slow case holds up none behind it.
    let done: Vec<Result<(usize, Done), CheckError>> =
        futures_util::stream::iter(jobs).buffer_unordered(AT_ONCE).collect().await;
    let mut done = done.into_iter().collect::<Result<Vec<_>, _>>()?;
    done.sort_by_key(|(number, _)| *number);
    let done = done.into_iter().map(|(_, done)| done).collect();
    Ok(Report { done, time: began.elapsed() })
}

struct Plan<'a> {
    target: &'a Target,
    options: &'a Options,
    groups: BTreeMap<String, Group>,
    names: Names,
    run: String,
    shared: Arc<Mutex<()>>,
    /// What `through` gave for the shared servers.
    urls: Mutex<BTreeMap<String, String>>,
}

impl<'a> Plan<'a> {
    async fn new(target: &'a Target, options: &'a Options) -> Result<Self, CheckError> {
        let groups = case::groups()?;
        let mut names = Names::new();
        let mut urls = BTreeMap::new();
        let shared = match target {
            Target::Url { url, token } => {
                urls.insert("default".into(), url::websocket(url)?);
                names.insert("token".into(), token.clone().into());
                if let Some((device, token)) = &options.bound {
                    names.insert("bound.device".into(), device.clone().into());
                    names.insert("bound.token".into(), token.clone().into());
                }
                if let Some(token) = &options.deliver_token {
                    names.insert("deliver.token".into(), token.clone().into());
                }
                Arc::default()
            }
            Target::Spawn(pool) => {
                names.extend(pool.names.clone());
                Arc::clone(&pool.shared)
            }
        };
        for (key, text) in &options.profile.set {
            names.insert(format!("p.{key}"), text.clone().into());
        }
        let run = random(4)?;
        Ok(Self { target, options, groups, names, run, shared, urls: Mutex::new(urls) })
    }

    const fn spawns(&self) -> bool {
        matches!(self.target, Target::Spawn(_))
    }

    /// Address of a shared server.
    async fn url(&self, name: &str, group: &Group) -> Result<String, CheckError> {
        let mut urls = self.urls.lock().await;
        if let Some(url) = urls.get(name) {
            return Ok(url.clone());
        }
        let Target::Spawn(pool) = self.target else { return Err(CheckError::NoCase(name.into())) };
        let address = pool.address(name, group).await?;
        let address = match &self.options.through {
            Some(through) => through(address)
                .await
                .map_err(|why| ServerError::Io { what: "what stands in front of the server".into(), why })?,
            None => address,
        };
        let url = format!("ws://{address}/ws");
        urls.insert(name.into(), url.clone());
        Ok(url)
    }

    fn group(&self, case: &Case) -> Result<&Group, CheckError> {
        self.groups.get(&case.group).ok_or_else(|| {
            CaseError::File { file: "groups.toml".into(), why: format!("no group {}", case.group) }.into()
        })
    }

    /// Names for one case.
    fn names(&self, number: usize, group: &Group) -> Names {
        let mut names = self.names.clone();
        // Somebody's server has the protocol's own limits.
        let special = self.spawns().then_some(group);
        let limits = self.groups.get("default").into_iter().chain(special);
        for (key, value) in limits.flat_map(|group| &group.limits) {
            names.insert(format!("limit.{key}"), (*value).into());
        }
        names.insert("device".into(), format!("qa-{}-{number}", self.run).into());
        names.insert("run".into(), self.run.clone().into());
        // An address of the range that is for tests, another one for each case of each run.
        let seed = u32::from_str_radix(&self.run, 16).unwrap_or_default();
        let [a, b, ..] = seed.wrapping_add(u32::try_from(number).unwrap_or_default()).to_le_bytes();
        names.insert("ip".into(), format!("198.18.{b}.{a}").into());
        names
    }

    /// The features that the server offers when it is asked for all.
    async fn features(&self) -> Result<Vec<String>, CheckError> {
        let group = self.groups.get("default").cloned().unwrap_or(Group {
            ru: String::new(),
            en: String::new(),
            env: BTreeMap::new(),
            limits: BTreeMap::new(),
        });
        let url = self.url("default", &group).await?;
        let began = tokio::time::Instant::now();
        let mut conn = Conn::new("a", Socket::open(&url, &[], false).await?, began);
        let all = ["ack", "resume", "delta", "media_url", "agent_status", "history", "catalog"];
        let token = self.names.get("token").cloned().unwrap_or_default();
        let device = format!("qa-{}", self.run);
        let hello = json!({"t": "hello", "token": token, "device": {"id": device}, "features": all});
        let mut lines = vec![];
        conn.send(&hello.to_string(), &mut lines).await;
        let watch = Watch::within(self.options.profile.patience());
        let came = conn.expect(&json!({"t": "ready"}), &watch, &mut Names::new(), &mut lines).await;
        let ready = came.map_err(|unmet| CheckError::Access(Box::new(unmet.came)))?.value;
        let offered = ready.get("features").and_then(Value::as_array).cloned().unwrap_or_default();
        Ok(offered.iter().filter_map(Value::as_str).map(str::to_owned).collect())
    }

    /// Why a case cannot run here.
    async fn obstacle(&self, case: &Case, names: &Names) -> Option<NotRun> {
        if !self.spawns() {
            match case.remote {
                Remote::No => return Some(NotRun::Spawn(case.group.clone())),
                Remote::Slow if !self.options.slow => return Some(NotRun::Flag("--slow")),
                _ => {}
            }
            let urls = self.urls.lock().await;
            if case.loopback && !urls.values().all(|url| client::url::is_local(url)) {
                return Some(NotRun::Loopback);
            }
        }
        let missing = case
            .uses()
            .into_iter()
            .find(|name| OUTER.iter().any(|prefix| name.starts_with(prefix)) && !names.contains_key(name))?;
        Some(match missing.split_once('.') {
            Some(("bound", _)) => NotRun::Flag("--bound-token DEV=T"),
            Some(("deliver", _)) => NotRun::Flag("--deliver-token T"),
            Some(("p", key)) => NotRun::Key(key.into()),
            _ => NotRun::Spawn(case.group.clone()),
        })
    }

    async fn outcome(&self, number: usize, case: &Case, features: &[String]) -> Result<Outcome, CheckError> {
        let group = self.group(case)?;
        let names = self.names(number, group);
        if let Some(feature) = case.offers.as_ref().filter(|f| !features.contains(f)) {
            return Ok(Outcome::NotOffered(feature.clone()));
        }
        if let Some(why) = self.obstacle(case, &names).await {
            return Ok(Outcome::NotRun(why));
        }
        let once = case.uses().iter().any(|name| ONLY_ONE.contains(&name.as_str()));
        let _held = if once { Some(self.shared.lock().await) } else { None };
        let mut world =
            World { url: String::new(), names, patience: self.options.profile.patience(), server: None };
        match (self.target, case.own) {
            (Target::Spawn(pool), true) => {
                let server = Server::start(&pool.bin, pool.env(group)?, self.options.through.clone()).await?;
                world.url = server.url().to_owned();
                world.server = Some(Arc::new(Mutex::new(server)));
            }
            (Target::Spawn(_), false) => world.url = self.url(&case.group, group).await?,
            (Target::Url { .. }, _) => world.url = self.url("default", group).await?,
        }
        Ok(match run::run(case, &world).await {
            Ok(()) => Outcome::Passed,
            Err(failure) => Outcome::Failed(failure),
        })
    }
}
