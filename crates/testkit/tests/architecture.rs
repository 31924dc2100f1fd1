//! Dependencies run one way. Read from `cargo metadata`, so that a forbidden edge fails here and not in a review.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use serde_json::Value;

/// Which of our crates each of them may use (not for its own tests). What is not listed here is a violation too, so a
/// new crate gets its place in this table.
const MAY_USE: &[(&str, &[&str])] = &[
    ("hermes-mobile-protocol", &[]),
    ("hermes-mobile-session", &["hermes-mobile-protocol"]),
    ("hermes-mobile-delivery", &["hermes-mobile-protocol", "hermes-mobile-session"]),
    ("hermes-mobile-store", &["hermes-mobile-protocol"]),
    ("hermes-mobile-agent", &["hermes-mobile-protocol"]),
    ("hermes-mobile-wire", &["hermes-mobile-protocol"]),
    ("hermes-mobile-client", &["hermes-mobile-protocol", "hermes-mobile-wire"]),
    (
        "hermes-mobile-gateway",
        &[
            "hermes-mobile-protocol",
            "hermes-mobile-session",
            "hermes-mobile-delivery",
            "hermes-mobile-store",
            "hermes-mobile-agent",
            "hermes-mobile-wire",
        ],
    ),
    (
        "hermes-mobile-sim",
        &[
            "hermes-mobile-protocol",
            "hermes-mobile-session",
            "hermes-mobile-delivery",
            "hermes-mobile-store",
            "hermes-mobile-agent",
        ],
    ),
    (
        "hermes-mobile-testkit",
        &[
            "hermes-mobile-protocol",
            "hermes-mobile-gateway",
            "hermes-mobile-client",
            "hermes-mobile-conformance",
            "hermes-mobile-store",
        ],
    ),
    // Sees the bytes of a WebSocket itself: it checks what a library hides.
    ("hermes-mobile-conformance", &["hermes-mobile-protocol", "hermes-mobile-client"]),
    (
        "hermes-mobile",
        &[
            "hermes-mobile-protocol",
            "hermes-mobile-gateway",
            "hermes-mobile-client",
            "hermes-mobile-conformance",
            "hermes-mobile-store",
        ],
    ),
    // Takes away what was not synced; for the tests of the store.
    ("hermes-mobile-powercut", &["hermes-mobile-store"]),
    ("xtask", &["hermes-mobile-protocol", "hermes-mobile-conformance", "hermes-mobile"]),
    ("hermes-mobile-bench", &["hermes-mobile-protocol", "hermes-mobile-client", "hermes-mobile-wire"]),
    // What the gateway is measured against: nothing of ours.
    ("hermes-mobile-reference", &[]),
];

/// Crates that run in virtual time, or without any runtime. Of the client it is the core: what it has without its
/// optional dependencies.
const WITHOUT_RUNTIME: &[&str] = &[
    "hermes-mobile-protocol",
    "hermes-mobile-session",
    "hermes-mobile-delivery",
    "hermes-mobile-store",
    "hermes-mobile-agent",
    "hermes-mobile-client",
    "hermes-mobile-sim",
];

/// Only these crates may name the WebSocket library: the transport, and the bare server that it is measured against.
const WEBSOCKET: (&str, [&str; 2]) = ("tokio-websockets", ["hermes-mobile-wire", "hermes-mobile-reference"]);

fn metadata() -> Value {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--manifest-path", root])
        .output()
        .expect("cargo runs");
    assert!(out.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("cargo metadata is JSON")
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Normal and build dependencies; those of tests are free.
fn ships(dependency: &Value) -> bool {
    dependency["kind"].as_str() != Some("dev")
}

/// Every package reachable from `id` over what the resolver chose, `id` included.
fn tree<'a>(edges: &BTreeMap<&'a str, Vec<&'a str>>, id: &'a str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut open = vec![id];
    while let Some(next) = open.pop() {
        if seen.insert(next) {
            open.extend(edges.get(next).into_iter().flatten());
        }
    }
    seen
}

/// What breaks the rules, one line each.
fn violations(metadata: &Value) -> Vec<String> {
    let names: BTreeMap<&str, &str> =
        list(metadata, "packages").iter().map(|p| (text(p, "id"), text(p, "name"))).collect();
    let edges: BTreeMap<&str, Vec<&str>> = list(&metadata["resolve"], "nodes")
        .iter()
        .map(|node| {
            let to = list(node, "deps")
                .iter()
                .filter(|dep| list(dep, "dep_kinds").iter().any(ships))
                .map(|dep| text(dep, "pkg"))
                .collect();
            (text(node, "id"), to)
        })
        .collect();
    let members: BTreeSet<&str> =
        list(metadata, "workspace_members").iter().filter_map(Value::as_str).collect();
    let ours: BTreeSet<&str> = members.iter().filter_map(|id| names.get(id).copied()).collect();

    let mut found = Vec::new();
    for package in list(metadata, "packages").iter().filter(|p| members.contains(text(p, "id"))) {
        let name = text(package, "name");
        let Some((_, allowed)) = MAY_USE.iter().find(|(n, _)| *n == name) else {
            found.push(format!("{name} has no place in the table"));
            continue;
        };
        for dependency in list(package, "dependencies") {
            let to = text(dependency, "name");
            if ships(dependency) && ours.contains(to) && !allowed.contains(&to) {
                found.push(format!("{name} must not use {to}"));
            }
            if to == WEBSOCKET.0 && !WEBSOCKET.1.contains(&name) {
                found.push(format!("{name} must not name {to}"));
            }
        }
        if WITHOUT_RUNTIME.contains(&name) {
            let required: BTreeSet<&str> = list(package, "dependencies")
                .iter()
                .filter(|d| ships(d) && d["optional"].as_bool() != Some(true))
                .map(|d| text(d, "name"))
                .collect();
            for direct in edges.get(text(package, "id")).into_iter().flatten() {
                if !required.contains(names.get(direct).copied().unwrap_or_default()) {
                    continue;
                }
                if tree(&edges, direct).iter().any(|id| names.get(id) == Some(&"tokio")) {
                    found.push(format!("{name} has tokio in its tree"));
                }
            }
        }
    }
    found
}

#[test]
fn dependencies_run_one_way() {
    let metadata = metadata();
    assert_eq!(violations(&metadata), Vec::<String>::new());
    // The rules are about crates that exist.
    for (name, _) in MAY_USE {
        assert!(list(&metadata, "packages").iter().any(|p| text(p, "name") == *name), "{name} is gone");
    }
}

/// Plants a declared and resolved dependency of `from` on `to`.
fn plant(metadata: &Value, from: &str, to: &str) -> Value {
    let mut copy = metadata.clone();
    let id = |name: &str| {
        let package = list(metadata, "packages").iter().find(|p| text(p, "name") == name);
        text(package.unwrap_or_else(|| panic!("no package {name}")), "id").to_owned()
    };
    let (from_id, to_id) = (id(from), id(to));
    for package in copy["packages"].as_array_mut().expect("packages") {
        if text(package, "id") == from_id {
            package["dependencies"]
                .as_array_mut()
                .expect("dependencies")
                .push(serde_json::json!({ "name": to, "kind": null, "optional": false }));
        }
    }
    for node in copy["resolve"]["nodes"].as_array_mut().expect("nodes") {
        if text(node, "id") == from_id {
            node["deps"]
                .as_array_mut()
                .expect("deps")
                .push(serde_json::json!({ "name": to, "pkg": to_id, "dep_kinds": [{ "kind": null }] }));
        }
    }
    copy
}

#[test]
fn a_planted_edge_is_found() {
    let metadata = metadata();
    for (from, to, why) in [
        (
            "hermes-mobile-protocol",
            "hermes-mobile-session",
            "hermes-mobile-protocol must not use hermes-mobile-session",
        ),
        (
            "hermes-mobile-session",
            "hermes-mobile-delivery",
            "hermes-mobile-session must not use hermes-mobile-delivery",
        ),
        (
            "hermes-mobile-store",
            "hermes-mobile-agent",
            "hermes-mobile-store must not use hermes-mobile-agent",
        ),
        ("hermes-mobile-agent", "hermes-mobile-wire", "hermes-mobile-agent must not use hermes-mobile-wire"),
        ("hermes-mobile-delivery", "tokio", "hermes-mobile-delivery has tokio in its tree"),
        // Not named by it, but brought in.
        ("hermes-mobile-session", "hyper", "hermes-mobile-session has tokio in its tree"),
        ("hermes-mobile-client", "tokio", "hermes-mobile-client has tokio in its tree"),
        ("hermes-mobile-gateway", "tokio-websockets", "hermes-mobile-gateway must not name tokio-websockets"),
    ] {
        let found = violations(&plant(&metadata, from, to));
        assert!(found.iter().any(|line| line == why), "{from} on {to} gave {found:?}");
    }
}
