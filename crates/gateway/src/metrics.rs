//! What an operator's monitoring reads: the one table of metrics, and what counts into it.
//!
//! Every series is made at the start, from fixed sets of labels: none holds an id, a token or a word that somebody said,
//! and a name that is not known counts as `other`. On the path of a frame there is one relaxed addition. What only the
//! core knows (queues, cards, the agent) is asked for when somebody reads.

mod count;
#[cfg(test)]
mod tests;

use crate::config::{Both, both};
pub(crate) use count::{Metrics, PATIENCE, Snapshot, Timed, close_code};

/// One metric, as it is exported.
#[derive(Debug)]
pub struct Metric {
    /// Name in the text format.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Each label with all its values; empty values: only known at run time, and one for the whole process.
    pub labels: &'static [(&'static str, &'static [&'static str])],
    /// What it tells.
    pub help: Both,
}

/// Kinds of frames from devices.
const KINDS_IN: &[&str] = &["hello", "text", "audio", "media", "prompt", "ping", "deliver", "bad", "other"];
/// Kinds of frames to devices.
const KINDS_OUT: &[&str] = &[
    "ready",
    "error",
    "message",
    "media",
    "prompt",
    "prompt_done",
    "avatar",
    "typing",
    "pong",
    "deliver_done",
    "other",
];
/// Codes of `error` frames.
const ERRORS: &[&str] = &[
    "auth_required",
    "auth_failed",
    "forbidden",
    "replaced",
    "bad_frame",
    "too_big",
    "unsupported_frame",
    "device_offline",
    "rate_limited",
    "agent_offline",
    "internal",
    "other",
];
/// How connections end: a close code, `none` where there was none (the line was cut), `other` for one of no standard.
const CLOSES: &[&str] = &[
    "1000", "1001", "1002", "1003", "1007", "1008", "1009", "1011", "1012", "1013", "4001", "none", "other",
];
const AGENT_STATES: &[&str] = &["online", "stalled", "offline"];
const DIRECTIONS: &[&str] = &["in", "out"];
const SIDES: &[&str] = &["device", "agent"];
const ENDS: &[&str] = &["answered", "expired", "elsewhere"];

const fn metric(
    name: &'static str,
    kind: &'static str,
    labels: &'static [(&'static str, &'static [&'static str])],
    help: Both,
) -> Metric {
    Metric { name, kind, labels, help }
}

/// Every metric, in the order in which they are exported.
pub static METRICS: &[Metric] = &[
    metric(
        "hermes_mobile_build_info",
        "gauge",
        &[("version", &[])],
        both("Version of the gateway; always 1", "Версия шлюза; всегда 1"),
    ),
    metric(
        "process_start_time_seconds",
        "gauge",
        &[],
        both("When the gateway started, seconds since 1970", "Когда шлюз запущен, секунды с 1970 года"),
    ),
    metric(
        "process_resident_memory_bytes",
        "gauge",
        &[],
        both("Memory of the process in RAM (Linux; elsewhere 0)", "Память процесса в ОЗУ (Linux; иначе 0)"),
    ),
    metric(
        "hermes_mobile_hub_up",
        "gauge",
        &[],
        both(
            "1 if the hub answered this request; 0: what it knows is as it was before",
            "1, если ядро ответило на этот запрос; 0: его сведения прежние",
        ),
    ),
    metric(
        "hermes_mobile_connections",
        "gauge",
        &[],
        both("WebSocket connections that are open", "Открытые соединения WebSocket"),
    ),
    metric(
        "hermes_mobile_connections_opened_total",
        "counter",
        &[],
        both("WebSocket connections opened", "Сколько соединений WebSocket открыто"),
    ),
    metric(
        "hermes_mobile_connections_closed_total",
        "counter",
        &[("code", CLOSES)],
        both(
            "Connections closed, by the code that ended them; none: cut without a close",
            "Сколько соединений закрыто, по коду; none: оборвано без закрытия",
        ),
    ),
    metric("hermes_mobile_devices", "gauge", &[], both("Devices in memory", "Устройства в памяти")),
    metric(
        "hermes_mobile_devices_online",
        "gauge",
        &[],
        both("Devices with an open session", "Устройства с открытым сеансом"),
    ),
    metric(
        "hermes_mobile_frames_total",
        "counter",
        &[("direction", DIRECTIONS), ("kind", &[])],
        both(
            "Frames from devices (in) and to them (out), by kind; bad: not decodable, other: a kind that is not known",
            "Кадры от устройств (in) и к ним (out), по виду; bad: не разобран, other: вид неизвестен",
        ),
    ),
    metric(
        "hermes_mobile_errors_total",
        "counter",
        &[("code", ERRORS)],
        both("Error frames to devices, by code", "Кадры error устройствам, по коду"),
    ),
    metric(
        "hermes_mobile_repeats_total",
        "counter",
        &[("from", SIDES)],
        both(
            "What came again under an id or key that was accepted before, and was ignored",
            "Присланное снова под уже принятым id или ключом и поэтому пропущенное",
        ),
    ),
    metric(
        "hermes_mobile_unsent_bytes",
        "gauge",
        &[],
        both(
            "Bytes for devices that their sockets have not taken",
            "Байты для устройств, ещё не принятые их сокетами",
        ),
    ),
    metric(
        "hermes_mobile_unproven_items",
        "gauge",
        &[],
        both(
            "Stored items that are not proven to be on their device (devices in memory)",
            "Сохранённые элементы, получение которых устройство не подтвердило (устройства в памяти)",
        ),
    ),
    metric(
        "hermes_mobile_inputs_waiting",
        "gauge",
        &[],
        both(
            "What devices said and the agent has not done with",
            "Сказанное устройствами, с чем агент ещё не закончил",
        ),
    ),
    metric(
        "hermes_mobile_agent_state",
        "gauge",
        &[("state", AGENT_STATES)],
        both("1 for the state that the agent is in", "1 у состояния, в котором агент"),
    ),
    metric(
        "hermes_mobile_agent_attached_total",
        "counter",
        &[],
        both("How often an agent attached", "Сколько раз подключался агент"),
    ),
    metric(
        "hermes_mobile_cards_open",
        "gauge",
        &[],
        both(
            "Cards that wait for an answer or for the agent's word",
            "Карточки, которые ждут ответа или слова агента",
        ),
    ),
    metric(
        "hermes_mobile_cards_ended_total",
        "counter",
        &[("how", ENDS)],
        both(
            "Cards that ended: answered, time over, or elsewhere (typed, replaced, failed)",
            "Завершённые карточки: ответ, вышло время или иначе (набрано, заменена, не удалось)",
        ),
    ),
    metric(
        "hermes_mobile_media_bytes_total",
        "counter",
        &[("direction", DIRECTIONS)],
        both(
            "Decoded bytes of files and voice from devices (in) and to them (out)",
            "Байты файлов и голоса от устройств (in) и к ним (out), без base64",
        ),
    ),
    metric(
        "hermes_mobile_store_queue_batches",
        "gauge",
        &[],
        both("Batches that are not on disk yet", "Пакеты, которых ещё нет на диске"),
    ),
    metric("hermes_mobile_store_queue_bytes", "gauge", &[], both("Their bytes", "Их байты")),
    metric(
        "hermes_mobile_store_commit_seconds",
        "histogram",
        &[],
        both("Time of a commit, with its sync", "Время записи на диск вместе с sync"),
    ),
    metric(
        "hermes_mobile_store_commit_rows",
        "histogram",
        &[],
        both("Rows in a commit", "Записей в одной записи на диск"),
    ),
    metric(
        "hermes_mobile_store_failures_total",
        "counter",
        &[],
        both("Commits that failed", "Неудачные записи на диск"),
    ),
];

/// The values of `kind` depend on the direction.
pub const FRAME_KINDS: [(&str, &[&str]); 2] = [("in", KINDS_IN), ("out", KINDS_OUT)];
