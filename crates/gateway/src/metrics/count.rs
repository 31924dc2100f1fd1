//! What counts into the table, and how it is exported.

use std::{
    fs,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use delivery::{AgentState, Input, Survey};
use prometheus_client::{
    encoding,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::{Metric as Registrable, Registry},
};
use protocol::{
    Millis,
    client::{ClientFrame, MediaKind},
    code::CloseCode,
    record::{Batch, Op, Row},
};
use store::{Reader, Start, Store, StoreError};

use super::{AGENT_STATES, CLOSES, DIRECTIONS, ENDS, ERRORS, KINDS_IN, KINDS_OUT, METRICS, SIDES};

/// Labels of a series.
type Labels = Vec<(&'static str, &'static str)>;
type Counters = Family<Labels, Counter>;

/// Counters by a fixed list of names, found without a lock.
struct ByName {
    names: &'static [&'static str],
    counters: Vec<Counter>,
}

impl ByName {
    fn new(
        family: &Counters,
        names: &'static [&'static str],
        labels: impl Fn(&'static str) -> Labels,
    ) -> Self {
        let counters = names.iter().map(|name| family.get_or_create_owned(&labels(name))).collect();
        Self { names, counters }
    }

    /// The counter of a name; of the last one, `other`, for a name that is not known.
    fn get(&self, name: &str) -> Option<&Counter> {
        let index = self.names.iter().position(|known| *known == name);
        index.and_then(|index| self.counters.get(index)).or_else(|| self.counters.last())
    }

    fn inc(&self, name: &str) {
        if let Some(counter) = self.get(name) {
            counter.inc();
        }
    }
}

/// Everything that is counted.
pub(crate) struct Metrics {
    registry: Registry,
    hub_up: Gauge,
    memory: Gauge,
    connections: Gauge,
    opened: Counter,
    closed: ByName,
    frames_in: ByName,
    frames_out: ByName,
    errors: ByName,
    media_in: Counter,
    media_out: Counter,
    commit_seconds: Histogram,
    commit_rows: Histogram,
    failures: Counter,
    asked: Asked,
}

/// What is set from a [`Snapshot`].
struct Asked {
    devices: Gauge,
    online: Gauge,
    repeats: ByName,
    unsent: Gauge,
    unproven: Gauge,
    inputs: Gauge,
    agent: Vec<Gauge>,
    attached: Counter,
    cards_open: Gauge,
    cards: ByName,
    batches: Gauge,
    batch_bytes: Gauge,
}

/// What the hub tells when it is asked.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) survey: Survey,
    /// Batches that are not on disk yet, and their bytes.
    pub(crate) batches: usize,
    pub(crate) batch_bytes: usize,
}

/// Puts a metric into the registry under its entry of the table.
fn add<M: Registrable + Clone>(registry: &mut Registry, name: &str, metric: M) -> M {
    // The formats add the ending themselves.
    let bare = name.strip_suffix("_total").or_else(|| name.strip_suffix("_info")).unwrap_or(name);
    registry.register(bare, help(name), metric.clone());
    metric
}

fn help(name: &str) -> &'static str {
    METRICS.iter().find(|m| m.name == name).map_or("", |m| m.help.en)
}

/// Puts a counter with one label into the registry.
fn add_by_name(
    registry: &mut Registry,
    name: &str,
    label: &'static str,
    names: &'static [&'static str],
) -> ByName {
    let family = add(registry, name, Counters::default());
    ByName::new(&family, names, |name| vec![(label, name)])
}

impl Metrics {
    pub(crate) fn new() -> Arc<Self> {
        let mut registry = Registry::default();
        let r = &mut registry;
        r.register(
            "hermes_mobile_build",
            help("hermes_mobile_build_info"),
            Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]),
        );
        let started = add(r, "process_start_time_seconds", Gauge::<i64>::default());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        started.set(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
        let memory = add(r, "process_resident_memory_bytes", Gauge::default());
        let hub_up = add(r, "hermes_mobile_hub_up", Gauge::default());
        let connections = add(r, "hermes_mobile_connections", Gauge::default());
        let opened = add(r, "hermes_mobile_connections_opened_total", Counter::default());
        let closed = add_by_name(r, "hermes_mobile_connections_closed_total", "code", CLOSES);
        let devices = add(r, "hermes_mobile_devices", Gauge::default());
        let online = add(r, "hermes_mobile_devices_online", Gauge::default());
        let frames = add(r, "hermes_mobile_frames_total", Counters::default());
        let of_frames = |direction, kinds| {
            ByName::new(&frames, kinds, |kind| vec![("direction", direction), ("kind", kind)])
        };
        let (frames_in, frames_out) = (of_frames("in", KINDS_IN), of_frames("out", KINDS_OUT));
        let errors = add_by_name(r, "hermes_mobile_errors_total", "code", ERRORS);
        let repeats = add_by_name(r, "hermes_mobile_repeats_total", "from", SIDES);
        let unsent = add(r, "hermes_mobile_unsent_bytes", Gauge::default());
        let unproven = add(r, "hermes_mobile_unproven_items", Gauge::default());
        let inputs = add(r, "hermes_mobile_inputs_waiting", Gauge::default());
        let agent = add(r, "hermes_mobile_agent_state", Family::<Labels, Gauge>::default());
        let agent =
            AGENT_STATES.iter().map(|state| agent.get_or_create_owned(&vec![("state", *state)])).collect();
        let attached = add(r, "hermes_mobile_agent_attached_total", Counter::default());
        let cards_open = add(r, "hermes_mobile_cards_open", Gauge::default());
        let cards = add_by_name(r, "hermes_mobile_cards_ended_total", "how", ENDS);
        let media = add_by_name(r, "hermes_mobile_media_bytes_total", "direction", DIRECTIONS);
        let media = |direction| media.get(direction).cloned().unwrap_or_default();
        let (media_in, media_out) = (media("in"), media("out"));
        let batches = add(r, "hermes_mobile_store_queue_batches", Gauge::default());
        let batch_bytes = add(r, "hermes_mobile_store_queue_bytes", Gauge::default());
        // From a fast disk's sync to one that people notice.
        let seconds = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
        let commit_seconds = add(r, "hermes_mobile_store_commit_seconds", Histogram::new(seconds));
        let rows = [1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0];
        let commit_rows = add(r, "hermes_mobile_store_commit_rows", Histogram::new(rows));
        let failures = add(r, "hermes_mobile_store_failures_total", Counter::default());
        let asked = Asked {
            devices,
            online,
            repeats,
            unsent,
            unproven,
            inputs,
            agent,
            attached,
            cards_open,
            cards,
            batches,
            batch_bytes,
        };
        Arc::new(Self {
            registry,
            hub_up,
            memory,
            connections,
            opened,
            closed,
            frames_in,
            frames_out,
            errors,
            media_in,
            media_out,
            commit_seconds,
            commit_rows,
            failures,
            asked,
        })
    }

    pub(crate) fn opened(&self) {
        self.opened.inc();
        self.connections.inc();
    }

    /// A connection is over; `code`: what ended it, if something did.
    pub(crate) fn closed(&self, code: Option<u16>) {
        self.connections.dec();
        match code {
            Some(code) => self.closed.inc(&code.to_string()),
            None => self.closed.inc("none"),
        }
    }

    /// Something came from a device, or from the disk for one.
    pub(crate) fn input(&self, input: &Input) {
        match input {
            Input::Frame { frame: Ok(frame), .. } => {
                if let ClientFrame::Media(part) = frame {
                    self.media_in.inc_by(part.data.len() as u64);
                }
                self.frames_in.inc(kind_of(frame));
            }
            Input::Frame { frame: Err(_), .. } | Input::TooLong { .. } => self.frames_in.inc("bad"),
            Input::FileRead { data: Ok(data), .. } => {
                self.media_out.inc_by(data.len() as u64);
            }
            _ => {}
        }
    }

    /// A frame goes to a device. Its kind, and the code of an error, are read where the encoder always writes them.
    pub(crate) fn sent(&self, frame: &str) {
        let until_quote = |rest: &str| rest.split('"').next().map(str::len);
        let Some(rest) = frame.strip_prefix("{\"t\":\"") else {
            self.frames_out.inc("other");
            return;
        };
        let kind = until_quote(rest).and_then(|end| rest.get(..end)).unwrap_or_default();
        self.frames_out.inc(kind);
        if kind == "error" {
            let code = rest.strip_prefix("error\",\"code\":\"").unwrap_or_default();
            let code = until_quote(code).and_then(|end| code.get(..end)).unwrap_or_default();
            self.errors.inc(code);
        }
    }

    /// The text that is exported, and its type. `snapshot`: what the hub answered, if it did. `open`: in the OpenMetrics
    /// format, for who asks for it.
    pub(crate) fn export(&self, snapshot: Option<&Snapshot>, open: bool) -> (String, &'static str) {
        self.hub_up.set(i64::from(snapshot.is_some()));
        self.memory.set(signed(resident_bytes().unwrap_or(0)));
        if let Some(snapshot) = snapshot {
            self.asked.set(snapshot);
        }
        let mut text = String::new();
        // Writing into a String cannot fail.
        if open {
            let _ = encoding::text::encode(&mut text, &self.registry);
            (text, "application/openmetrics-text; version=1.0.0; charset=utf-8")
        } else {
            let _ = encoding::prometheus_text::encode(&mut text, &self.registry);
            (text, encoding::prometheus_text::CONTENT_TYPE)
        }
    }
}

impl Asked {
    fn set(&self, snapshot: &Snapshot) {
        let Survey { counts, agent, devices, online, cards_open, unsent_bytes, unproven_items, inputs } =
            snapshot.survey;
        self.devices.set(signed(devices));
        self.online.set(signed(online));
        self.cards_open.set(signed(cards_open));
        self.unsent.set(signed(unsent_bytes));
        self.unproven.set(signed(unproven_items));
        self.inputs.set(signed(inputs));
        self.batches.set(signed(snapshot.batches as u64));
        self.batch_bytes.set(signed(snapshot.batch_bytes as u64));
        let state = match agent {
            AgentState::Online => 0,
            AgentState::Stalled => 1,
            AgentState::Offline => 2,
        };
        for (index, gauge) in self.agent.iter().enumerate() {
            gauge.set(i64::from(index == state));
        }
        // The core counts these itself, from the start on.
        let set = |counter: Option<&Counter>, value: u64| {
            if let Some(counter) = counter {
                counter.inner().store(value, Ordering::Relaxed);
            }
        };
        set(Some(&self.attached), counts.agents_attached);
        set(self.repeats.get("device"), counts.repeats_from_devices);
        set(self.repeats.get("agent"), counts.repeats_from_agents);
        set(self.cards.get("answered"), counts.cards_answered);
        set(self.cards.get("expired"), counts.cards_expired);
        set(self.cards.get("elsewhere"), counts.cards_elsewhere);
    }
}

/// The kind of a frame, as its `t` names it.
const fn kind_of(frame: &ClientFrame) -> &'static str {
    match frame {
        ClientFrame::Hello(_) => "hello",
        ClientFrame::Text(_) => "text",
        ClientFrame::Media(part) => match part.kind {
            MediaKind::Voice { .. } => "audio",
            _ => "media",
        },
        ClientFrame::Prompt(_) => "prompt",
        ClientFrame::Ping { .. } => "ping",
        ClientFrame::Deliver(_) => "deliver",
        ClientFrame::Unknown { .. } => "other",
    }
}

/// The code that ended a connection: ours if we closed it, else the client's, or the one that the transport sent.
pub(crate) const fn close_code(why: wire::Why, ordered: Option<u16>, theirs: Option<u16>) -> Option<u16> {
    match why {
        wire::Why::Local => match ordered {
            Some(code) => Some(code),
            None => Some(CloseCode::GoingAway as u16),
        },
        wire::Why::Peer => theirs,
        wire::Why::Fault(code) => Some(code),
        wire::Why::WriteStood => Some(CloseCode::Overloaded as u16),
        wire::Why::Eof | wire::Why::Lost(_) | wire::Why::Silent => None,
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Memory of this process in RAM, bytes.
fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// A store that says how long its commits take.
pub(crate) struct Timed {
    pub(crate) store: Box<dyn Store>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Store for Timed {
    fn start(&mut self) -> Result<Start, StoreError> {
        self.store.start()
    }

    fn commit(&mut self, batches: &[Batch]) -> Result<(), StoreError> {
        let begun = Instant::now();
        let done = self.store.commit(batches);
        match &done {
            Ok(()) => {
                let rows =
                    batches.iter().flat_map(|b| &b.ops).filter(|op| matches!(op, Op::Append(_))).count();
                self.metrics.commit_seconds.observe(begun.elapsed().as_secs_f64());
                self.metrics.commit_rows.observe(rows as f64);
            }
            Err(_) => {
                self.metrics.failures.inc();
            }
        }
        done
    }

    fn trim(&mut self, before: Millis, max: usize) -> Result<Vec<Row>, StoreError> {
        self.store.trim(before, max)
    }

    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        self.store.reader()
    }
}

/// How long a reader of the metrics waits for the hub before it gets what is known without it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
