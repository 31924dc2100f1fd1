//! A gateway on a free port.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod client;
pub mod raw;

use std::path::Path;

pub use client::*;
use hermes_mobile_gateway::{
    Config, Gateway, Running,
    config::{AgentChoice, Secret},
};
use tokio::time::timeout;

pub fn config(state: &Path) -> Config {
    Config {
        port: 0,
        state_dir: state.to_path_buf(),
        agent: AgentChoice::Echo,
        token: Some(Secret::new(TOKEN)),
        drain_ms: 5_000,
        ..Config::default()
    }
}

pub async fn start(config: Config) -> Running {
    Gateway::start(config).await.unwrap()
}

pub async fn stop(running: Running) {
    running.shutdown().stop();
    timeout(PATIENCE, running.join()).await.expect("stops in time").unwrap();
}
