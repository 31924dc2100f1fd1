//! `/metrics` of a gateway that runs: the table against what is exported, who may read it, and that it counts what happens.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use common::{Client, TOKEN, config, get, http, start, stop};
use hermes_mobile_gateway::{
    Config,
    config::{AgentChoice, Secret},
    metrics::{FRAME_KINDS, METRICS},
};

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

/// Every series with its value.
async fn series(at: SocketAddr) -> BTreeMap<String, f64> {
    let answer = get(at, "/metrics").await;
    assert_eq!(status(&answer), "200", "{answer}");
    let lines = body(&answer).lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(name, v)| (name.to_owned(), v.parse().unwrap()))
        .collect()
}

/// Asks until the series has the value: what is counted when a connection or a commit ends is not awaited by anybody.
async fn until(at: SocketAddr, name: &str, wanted: f64) {
    let asking = async {
        loop {
            let all = series(at).await;
            if all.get(name) == Some(&wanted) {
                return;
            }
            assert!(all.contains_key(name), "{name} in {all:?}");
        }
    };
    tokio::time::timeout(common::PATIENCE, asking).await.unwrap_or_else(|_| panic!("{name} never {wanted}"));
}

/// The names of the labels of a series, and their values.
fn labels(series: &str) -> Vec<(&str, &str)> {
    let inside = series.split_once('{').map_or("", |(_, rest)| rest.trim_end_matches('}'));
    inside.split(',').filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k, v.trim_matches('"'))).collect()
}

#[tokio::test]
async fn the_table_is_what_is_exported_and_nothing_else_is() {
    let state = tempfile::tempdir().unwrap();
    let running = start(config(state.path())).await;
    let at = running.address();
    // Something of everything, so that a label that is made when it is first needed would show.
    let mut device = Client::device(at, "secret-device").await;
    device.send(r#"{"t":"text","id":"secret-id","text":"secret words"}"#);
    device.until(&["secret words", r#""final":true"#]).await;
    device.send(r#"{"t":"secret-kind"}"#);
    device.send("secret rubbish");
    device.until(&["bad_frame"]).await;

    let answer = get(at, "/metrics").await;
    assert!(answer.to_ascii_lowercase().contains("content-type: text/plain; version=0.0.4"), "{answer}");
    for secret in ["secret", TOKEN] {
        assert!(!answer.contains(secret), "{answer}");
    }
    let mut types = BTreeMap::new();
    let mut helps = BTreeMap::new();
    let mut exported: BTreeMap<&str, BTreeSet<Vec<(&str, &str)>>> = BTreeMap::new();
    for line in body(&answer).lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                types.insert(name, kind);
            }
            (Some("#"), Some("HELP"), Some(name), Some(help)) => {
                helps.insert(name, help.trim_end_matches('.'));
            }
            _ => {
                let series = line.rsplit_once(' ').unwrap().0;
                let name = series.split('{').next().unwrap();
                // The parts of a histogram.
                let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
                let family = family.filter(|family| types.get(family) == Some(&"histogram")).unwrap_or(name);
                let labels = labels(series).into_iter().filter(|(label, _)| *label != "le").collect();
                exported.entry(family).or_default().insert(labels);
            }
        }
    }
    let table: BTreeMap<&str, &str> = METRICS.iter().map(|m| (m.name, m.kind)).collect();
    assert_eq!(table.len(), METRICS.len(), "each once");
    assert_eq!(types, table);
    assert_eq!(helps, METRICS.iter().map(|m| (m.name, m.help.en)).collect());
    for metric in METRICS {
        let found = &exported[metric.name];
        let mut wanted: BTreeSet<Vec<(&str, &str)>> = BTreeSet::new();
        match metric.labels {
            [] => drop(wanted.insert(Vec::new())),
            [("version", [])] => drop(wanted.insert(vec![("version", env!("CARGO_PKG_VERSION"))])),
            [(label, values)] => wanted.extend(values.iter().map(|value| vec![(*label, *value)])),
            [("direction", _), ("kind", [])] => {
                for (direction, kinds) in FRAME_KINDS {
                    wanted.extend(kinds.iter().map(|kind| vec![("direction", direction), ("kind", *kind)]));
                }
            }
            other => panic!("labels that this test does not know: {other:?}"),
        }
        assert_eq!(found, &wanted, "{}", metric.name);
    }
    assert_eq!(exported.len(), METRICS.len());

    let open = "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text\r\nConnection: close\r\n\r\n";
    let open = http(at, open).await;
    assert!(
        open.contains("application/openmetrics-text; version=1.0.0") && open.ends_with("# EOF\n"),
        "{open}"
    );
    stop(running).await;
}

#[tokio::test]
async fn this_machine_and_the_token_may_read_and_nobody_else() {
    let state = tempfile::tempdir().unwrap();
    let running = start(config(state.path())).await;
    let ask = |at, headers: &str| {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{headers}Connection: close\r\n\r\n");
        async move { http(at, &request).await }
    };
    let at = running.address();
    assert_eq!(status(&ask(at, "").await), "200");
    for passed_on in ["X-Forwarded-For: 127.0.0.1\r\n", "Origin: http://localhost\r\n"] {
        let owner = format!("{passed_on}Authorization: Bearer {TOKEN}\r\n");
        for headers in [passed_on, owner.as_str()] {
            let refused = ask(at, headers).await;
            assert_eq!(status(&refused), "403", "{refused}");
            assert!(refused.contains("MOBILE_METRICS_TOKEN") && refused.contains("Метрики"), "{refused}");
            assert!(!refused.contains("hermes_mobile_"));
        }
    }
    stop(running).await;

    let token = "a-token-for-the-monitoring";
    let with_token =
        hermes_mobile_gateway::Config { metrics_token: Some(Secret::new(token)), ..config(state.path()) };
    let running = start(with_token).await;
    let at = running.address();
    let bearer = |token: &str| format!("X-Real-IP: 10.0.0.1\r\nAuthorization: Bearer {token}\r\n");
    assert_eq!(status(&ask(at, &bearer(token)).await), "200");
    assert_eq!(status(&ask(at, "").await), "200", "this machine still may");
    for wrong in ["", TOKEN, "a-token-for-the-monitorinG", "a-token", "a-token-for-the-monitoring-"] {
        let headers = if wrong.is_empty() { "X-Real-IP: 10.0.0.1\r\n".to_owned() } else { bearer(wrong) };
        let refused = ask(at, &headers).await;
        assert_eq!(status(&refused), "401", "{refused}");
        assert!(refused.to_ascii_lowercase().contains("www-authenticate: bearer"), "{refused}");
        assert!(!refused.contains(token) && !refused.contains("hermes_mobile_"));
    }
    let in_url =
        format!("GET /metrics?token={token} HTTP/1.1\r\nHost: x\r\nVia: y\r\nConnection: close\r\n\r\n");
    assert_eq!(status(&http(at, &in_url).await), "401", "never in the URL");
    // It is no token for anything else.
    let mut client = Client::connect(at, "/ws", &[]).await;
    client.send(format!(r#"{{"t":"hello","token":"{token}","device":{{"id":"d"}}}}"#));
    client.until(&["auth_failed"]).await;
    stop(running).await;
}

#[tokio::test]
async fn what_happens_is_counted() {
    let state = tempfile::tempdir().unwrap();
    let demo = Config { agent: AgentChoice::Demo, ..config(state.path()) };
    let running = start(demo).await;
    let at = running.address();
    let frames = |direction: &str, kind: &str| {
        format!("hermes_mobile_frames_total{{direction=\"{direction}\",kind=\"{kind}\"}}")
    };
    let before = series(at).await;
    assert_eq!(before["hermes_mobile_hub_up"], 1.0);
    assert_eq!(before["hermes_mobile_connections"], 0.0);
    assert!(before["process_resident_memory_bytes"] > 1e6);
    assert!(before["process_start_time_seconds"] > 1.7e9);

    let mut device = Client::device(at, "d").await;
    for _ in 0..3 {
        device.send(r#"{"t":"text","id":"1","text":"hello"}"#);
    }
    device.until(&["hello", r#""final":true"#]).await;
    let file = "QUJDREVGRw==";
    device.send(format!(
        r#"{{"t":"media","id":"m","kind":"document","mime":"text/plain","filename":"f.txt","data":"{file}","part":0,"parts":1}}"#
    ));
    device.until(&["f.txt", r#""final":true"#]).await;
    device.send(r#"{"t":"text","id":"f","text":"/file 1000"}"#);
    device.until(&[r#""t":"media""#, r#""final":true"#]).await;
    device.send(r#"{"t":"text","id":"2","text":" "}"#);
    device.until(&["bad_frame"]).await;
    device.send(r#"{"t":"nobody-knows-it"}"#);
    device.send(r#"{"t":"ping","ts":1}"#);
    device.until(&["pong"]).await;

    let now = series(at).await;
    let is = |name: &str, value: f64| assert_eq!(now.get(name), Some(&value), "{name}");
    is("hermes_mobile_connections", 1.0);
    is("hermes_mobile_connections_opened_total", 1.0);
    is("hermes_mobile_devices", 1.0);
    is("hermes_mobile_devices_online", 1.0);
    is(&frames("in", "hello"), 1.0);
    is(&frames("in", "text"), 4.0);
    is(&frames("in", "bad"), 1.0);
    is(&frames("in", "media"), 1.0);
    is(&frames("in", "other"), 1.0);
    is(&frames("out", "ready"), 1.0);
    is(&frames("out", "pong"), 1.0);
    is("hermes_mobile_errors_total{code=\"bad_frame\"}", 1.0);
    is("hermes_mobile_repeats_total{from=\"device\"}", 2.0);
    is("hermes_mobile_media_bytes_total{direction=\"in\"}", 7.0);
    is("hermes_mobile_media_bytes_total{direction=\"out\"}", 1000.0);
    is("hermes_mobile_agent_state{state=\"online\"}", 1.0);
    is("hermes_mobile_agent_state{state=\"offline\"}", 0.0);
    is("hermes_mobile_agent_attached_total", 1.0);
    is("hermes_mobile_store_failures_total", 0.0);
    assert!(now["hermes_mobile_store_commit_seconds_count"] >= 2.0);
    assert!(now["hermes_mobile_store_commit_rows_sum"] >= 4.0);
    assert!(now[&frames("out", "message")] >= 1.0);

    // It ends once, with the code that ended it.
    device.out.send(wire::Out::Close(1000)).unwrap();
    until(at, "hermes_mobile_connections_closed_total{code=\"1000\"}", 1.0).await;
    let mut denied = Client::connect(at, "/ws", &[]).await;
    denied.send(r#"{"t":"hello","token":"wrong","device":{"id":"d"}}"#);
    assert_eq!(denied.closed().await, Some(1008));
    until(at, "hermes_mobile_connections_closed_total{code=\"1008\"}", 1.0).await;
    until(at, "hermes_mobile_connections", 0.0).await;
    until(at, "hermes_mobile_devices_online", 0.0).await;
    stop(running).await;
}

#[tokio::test]
async fn cards_are_counted_while_they_are_open_and_by_how_they_ended() {
    let state = tempfile::tempdir().unwrap();
    let demo = Config { agent: AgentChoice::Demo, ..config(state.path()) };
    let running = start(demo).await;
    let at = running.address();
    let mut device = Client::device(at, "d").await;
    device.send(r#"{"t":"text","id":"1","text":"/approve ls"}"#);
    let card = device.until(&[r#""t":"prompt""#]).await;
    let id = card.split(r#""id":""#).nth(1).and_then(|rest| rest.split('"').next()).unwrap().to_owned();
    until(at, "hermes_mobile_cards_open", 1.0).await;
    device.send(format!(r#"{{"t":"prompt","prompt_id":"{id}","option_id":"once"}}"#));
    device.until(&[r#""t":"prompt_done""#]).await;
    until(at, "hermes_mobile_cards_open", 0.0).await;
    until(at, "hermes_mobile_cards_ended_total{how=\"answered\"}", 1.0).await;
    stop(running).await;
}
