//! Runs one case.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use client::{
    core::{Config, Device, Event},
    net,
};
use protocol::limits;
use serde_json::{Value, json};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep, timeout_at},
};

use crate::{
    case::{Case, RawFrame, Step},
    conn::{Conn, Said, Transcript, Unmet, Watch, cut, short},
    frame::Header,
    readers,
    server::{Server, Stop},
    socket::Socket,
    value::{self, Names, ValueError, matches},
};

/// So many lines of what was sent and came are shown.
const LINES: usize = 12;
/// So many characters of each.
const LINE_CHARS: usize = 300;

/// What a case runs against.
#[derive(Clone)]
pub(crate) struct World {
    /// WebSocket address; changes with a restart.
    pub(crate) url: String,
    /// `token`, `device`, `p.…`, `bound.…`, `limit.…`.
    pub(crate) names: Names,
    /// How long something may take that is expected.
    pub(crate) patience: Duration,
    /// The server, when it is the case's own.
    pub(crate) server: Option<Arc<Mutex<Server>>>,
}

/// Why a case failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which step, from 1; inside of a repetition `2.1`.
    pub step: String,
    /// What should have come.
    pub expected: Said,
    /// What came instead.
    pub came: Said,
    /// The last lines sent (`>`) and received (`<`), shortened, without tokens.
    pub lines: Vec<String>,
}

/// Runs a case to its end or its first unmet step.
pub(crate) async fn run(case: &Case, world: &World) -> Result<(), Failure> {
    let mut run = Run {
        url: world.url.clone(),
        names: world.names.clone(),
        conns: BTreeMap::new(),
        lines: vec![],
        world,
    };
    match run.steps(&case.steps, "").await {
        Ok(()) => Ok(()),
        Err((step, unmet)) => Err(run.failure(step, unmet)),
    }
}

struct Run<'a> {
    url: String,
    names: Names,
    conns: BTreeMap<String, Conn>,
    lines: Transcript,
    world: &'a World,
}

impl From<ValueError> for Unmet {
    fn from(error: ValueError) -> Self {
        Self::new(
            Said::both("случай, который можно выполнить", "a case that can be carried out"),
            error.to_string(),
        )
    }
}

impl Run<'_> {
    fn failure(&self, step: String, unmet: Unmet) -> Failure {
        let secrets: Vec<String> = self
            .names
            .iter()
            .filter(|(name, _)| name.ends_with("token"))
            .map(|(_, value)| value::shown(value).into_owned())
            .filter(|secret| !secret.is_empty())
            .collect();
        let clean = |text: String| secrets.iter().fold(text, |text, secret| text.replace(secret, "…"));
        let several = self.conns.len() > 1;
        let lines = self.lines.iter().skip(self.lines.len().saturating_sub(LINES));
        let lines = lines.map(|(conn, direction, text)| {
            let who = if several { format!("{conn} ") } else { String::new() };
            clean(format!("{who}{direction} {}", cut(text, LINE_CHARS)))
        });
        let lines = lines.collect();
        Failure { step, expected: unmet.expected.map(clean), came: unmet.came.map(clean), lines }
    }

    async fn steps(&mut self, steps: &[Step], prefix: &str) -> Result<(), (String, Unmet)> {
        for (at, step) in steps.iter().enumerate() {
            let number = format!("{prefix}{}", at + 1);
            if let Some(times) = step.repeat {
                let outer = self.names.get("i").cloned();
                for i in 0..times {
                    self.names.insert("i".into(), i.into());
                    Box::pin(self.steps(&step.steps, &format!("{number}."))).await?;
                }
                self.names.extend(outer.map(|i| ("i".to_owned(), i)));
            } else {
                self.step(step).await.map_err(|unmet| (number, unmet))?;
            }
        }
        Ok(())
    }

    fn fill(&self, text: &str) -> Result<Value, Unmet> {
        Ok(value::fill(text, &self.names)?)
    }

    fn millis(&self, text: Option<&String>) -> Result<Option<Duration>, Unmet> {
        let Some(text) = text else { return Ok(None) };
        let filled = value::fill_text(text, &self.names)?;
        let millis =
            filled.parse().map_err(|_| Unmet::new(Said::both("миллисекунды", "milliseconds"), filled))?;
        Ok(Some(Duration::from_millis(millis)))
    }

    fn until(&self, step: &Step) -> Result<Instant, Unmet> {
        Ok(Instant::now() + self.millis(step.within.as_ref())?.unwrap_or(self.world.patience))
    }

    async fn step(&mut self, step: &Step) -> Result<(), Unmet> {
        let name = step.on.as_deref().unwrap_or("a");
        if let Some(values) = &step.set {
            for (key, text) in values {
                let made = value::make(Value::String(value::fill_text(text, &self.names)?))?;
                self.names.insert(key.clone(), made);
            }
        } else if let Some([left, right]) = &step.same {
            let (left, right) = (value::fill_text(left, &self.names)?, value::fill_text(right, &self.names)?);
            if left != right {
                return Err(Unmet::new(right, left));
            }
        } else if let Some(path) = &step.connect {
            self.open(name, path, step).await?;
        } else if let Some(changes) = step.hello.as_ref().or(step.greet.as_ref()) {
            if !self.conns.contains_key(name) {
                self.open(name, "", step).await?;
            }
            let hello = self.hello(name, changes)?;
            let conn = conn(&mut self.conns, name)?;
            conn.send(&hello, &mut self.lines).await;
            if step.hello.is_some() {
                let watch = Watch::within(self.world.patience);
                conn.expect(&json!({"t": "ready"}), &watch, &mut self.names, &mut self.lines).await?;
                conn.set_mark();
            }
        } else if let Some(restart) = &step.restart {
            self.restart(restart).await?;
        } else if let Some(time) = &step.wait {
            if let Some(time) = self.millis(Some(time))? {
                sleep(time).await;
            }
        } else if let Some(what) = &step.sdk {
            let text = value::fill_text(what, &self.names)?;
            self.sdk(&text).await?;
        } else if step.cut.is_some() {
            self.conns.remove(name);
            self.lines.push((name.into(), ">", "(cut)".into()));
        } else if let Some(code) = step.close {
            let until = self.until(step)?;
            if let Some(mut conn) = self.conns.remove(name) {
                conn.close(code, until, &mut self.lines).await;
            }
        } else {
            self.on_conn(name, step).await?;
        }
        Ok(())
    }

    /// The steps that need an open connection.
    async fn on_conn(&mut self, name: &str, step: &Step) -> Result<(), Unmet> {
        let until = self.until(step)?;
        let earliest = self.millis(step.after.as_ref())?;
        let without: Vec<Value> =
            step.without.iter().map(|text| self.fill(text)).collect::<Result<_, Unmet>>()?;
        let lines = &mut self.lines;
        let names = &mut self.names;
        let conn = conn(&mut self.conns, name)?;
        if let Some(frame) = &step.send {
            let text = value::make(value::fill(frame, names)?)?.to_string();
            conn.send(&text, lines).await;
        } else if let Some(text) = &step.text {
            let text = value::fill_text(text, names)?;
            conn.send(&text, lines).await;
        } else if let Some(frame) = &step.frame {
            let bytes = raw(frame)?;
            lines.push((name.into(), ">", format!("(frame {:#04x}, {} bytes)", frame.first, bytes.len())));
            conn.socket.raw(&bytes).await;
        } else if let Some(pattern) = &step.expect {
            let pattern = value::fill(pattern, names)?;
            let watch = Watch { until, without: &without, anywhere: step.anywhere };
            conn.expect(&pattern, &watch, names, lines).await?;
        } else if let Some(patterns) = &step.order {
            let patterns: Vec<Value> =
                patterns.iter().map(|text| value::fill(text, names)).collect::<Result<_, _>>()?;
            conn.order(&patterns, until, names, lines).await?;
        } else if let Some(pattern) = &step.count {
            let pattern = value::fill(pattern, names)?;
            let found = conn.count(&pattern, until, lines).await?;
            if found.len() != step.is {
                let list: Vec<String> = found.iter().map(short).collect();
                let (wanted, list) = (short(&pattern), list.join(" "));
                return Err(Unmet::new(
                    Said::both(
                        format!("таких кадров — {}: {wanted}", step.is),
                        format!("{} frames like {wanted}", step.is),
                    ),
                    Said::both(
                        format!("их {}: {list}", found.len()),
                        format!("{} of them: {list}", found.len()),
                    ),
                ));
            }
        } else if step.mark.is_some() {
            conn.set_mark();
        } else if step.pinged.is_some() {
            conn.pinged(until, lines).await?;
        } else if let Some(code) = step.closed {
            conn.closed(code, until, lines).await?;
        } else if let Some(deaf) = step.deaf {
            conn.socket.set_deaf(deaf);
        } else {
            let (read, pattern) = if let Some(pattern) = &step.message {
                let chunk =
                    names.get("limit.chunk").and_then(Value::as_u64).unwrap_or(limits::CHUNK_CHARS as u64);
                let most = usize::try_from(chunk).unwrap_or(limits::CHUNK_CHARS);
                (readers::message(conn, most, until, lines).await?, pattern)
            } else if let Some(pattern) = &step.stream {
                (readers::stream(conn, until, lines).await?, pattern)
            } else if let Some(pattern) = &step.file {
                (readers::file(conn, until, lines).await?, pattern)
            } else {
                return Err(Unmet::new(Said::both("шаг с действием", "a step with an action"), "—"));
            };
            let pattern = value::fill(pattern, names)?;
            if !matches(&pattern, &read, names) {
                return Err(Unmet::new(short(&pattern), short(&read)));
            }
        }
        let Some(earliest) = earliest else { return Ok(()) };
        // The server's clock starts after what was sent last.
        let passed = conn.since.elapsed();
        if passed >= earliest {
            return Ok(());
        }
        Err(Unmet::new(
            Said::both(
                format!("не раньше {} мс", earliest.as_millis()),
                format!("not before {} ms", earliest.as_millis()),
            ),
            Said::both(
                format!("пришло через {} мс", passed.as_millis()),
                format!("it came after {} ms", passed.as_millis()),
            ),
        ))
    }

    async fn open(&mut self, name: &str, path: &str, step: &Step) -> Result<(), Unmet> {
        let path = value::fill_text(path, &self.names)?;
        let url = match path.chars().next() {
            None => self.url.clone(),
            Some('?') => format!("{}{path}", self.url),
            Some(_) => {
                let host = self.url.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
                format!("{host}{path}")
            }
        };
        let mut headers = vec![];
        for (key, text) in &step.headers {
            headers.push((key.clone(), value::fill_text(text, &self.names)?));
        }
        let began = Instant::now();
        let socket = Socket::open(&url, &headers, step.silent).await;
        let socket = socket
            .map_err(|e| Unmet::new(Said::both("открытый WebSocket", "an open WebSocket"), e.to_string()))?;
        self.lines.push((name.into(), ">", format!("(connect {path})")));
        self.conns.insert(name.into(), Conn::new(name, socket, began));
        Ok(())
    }

    /// The `hello` of a connection: the usual one with these fields instead.
    fn hello(&self, name: &str, changes: &str) -> Result<String, Unmet> {
        let device = if name == "a" { "${device}".to_owned() } else { format!("${{device}}-{name}") };
        let mut hello =
            self.fill(&json!({"t": "hello", "token": "${token}", "device": {"id": device}}).to_string())?;
        if let (Some(hello), Value::Object(changes)) = (hello.as_object_mut(), self.fill(changes)?) {
            hello.extend(changes);
        }
        Ok(value::make(hello)?.to_string())
    }

    async fn restart(&mut self, how: &str) -> Result<(), Unmet> {
        let Some(server) = &self.world.server else {
            return Err(Unmet::new(
                Said::both("свой сервер случая", "a server of this case"),
                Said::both("его нет", "there is none"),
            ));
        };
        let stop = if how == "kill" { Stop::Kill } else { Stop::Term };
        let mut server = server.lock().await;
        self.lines.push(("server".into(), ">", format!("(restart: {how})")));
        server.restart(stop).await.map_err(|e| {
            Unmet::new(Said::both("сервер запускается снова", "the server starts again"), e.to_string())
        })?;
        self.url = server.url().to_owned();
        Ok(())
    }

    /// Our own client library says something and gets an answer: it checks the handshake as any library does.
    async fn sdk(&mut self, text: &str) -> Result<(), Unmet> {
        let until = Instant::now() + self.world.patience;
        let failed = |why: String| {
            Unmet::new(
                Said::both("библиотека клиента получает ответ", "the client library gets an answer"),
                why,
            )
        };
        let seed = net::seed().map_err(|e| failed(e.to_string()))?;
        let mut config = Config::new(seed);
        config.token = self.names.get("token").map(|token| value::shown(token).into_owned());
        let id = value::fill_text("${device}", &self.names)?;
        config.device = Some(Device { id, name: None, platform: None, app_version: None });
        let (session, mut events) = net::start(config, &self.url).map_err(|e| failed(e.to_string()))?;
        session.send_text(text).await.map_err(|e| failed(format!("{e:?}")))?;
        let end = loop {
            match timeout_at(until, events.next()).await {
                Ok(Some(Event::Message(bubble))) if bubble.last => break Ok(()),
                Ok(Some(Event::Refused { code, .. })) => break Err(failed(format!("refused with {code}"))),
                Ok(Some(Event::Failed { why, .. })) => break Err(failed(format!("{why:?}"))),
                Ok(Some(_)) => {}
                Ok(None) => break Err(failed("the client has ended".into())),
                Err(_) => break Err(failed("nothing in time".into())),
            }
        };
        session.close().await;
        end
    }
}

fn conn<'a>(conns: &'a mut BTreeMap<String, Conn>, name: &str) -> Result<&'a mut Conn, Unmet> {
    conns.get_mut(name).ok_or_else(|| {
        Unmet::new(
            Said::both(format!("открытое соединение {name}"), format!("an open connection {name}")),
            "—",
        )
    })
}

/// The bytes of a frame as a case describes it.
fn raw(frame: &RawFrame) -> Result<Vec<u8>, Unmet> {
    let wrong = || Unmet::new(Said::both("шестнадцатеричные цифры", "hexadecimal digits"), frame.hex.clone());
    let mut payload = vec![];
    for at in (0..frame.hex.len()).step_by(2) {
        let digits = frame.hex.get(at..at + 2).ok_or_else(wrong)?;
        payload.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
    }
    payload.resize(payload.len() + frame.letters, b'x');
    let len = frame.len.unwrap_or(u64::try_from(payload.len()).unwrap_or(u64::MAX));
    // A mask of zeros leaves the payload as it is.
    let mut bytes = Header { first: frame.first, mask: frame.masked.then_some([0; 4]), len }.bytes();
    bytes.extend_from_slice(&payload);
    Ok(bytes)
}
