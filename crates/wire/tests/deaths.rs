//! Half-open sockets leave nothing behind. Alone in its process: it counts descriptors and tasks.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::time::Duration;

use common::{Ev, Pair, over_tcp};
use hermes_mobile_wire::{Why, WireConfig};
use tokio::{net::TcpStream, runtime::Handle};

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[tokio::test]
async fn field_after_1000_half_open_deaths_descriptors_and_tasks_are_back_at_the_base_line() {
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let config = WireConfig {
        ping_every: Duration::from_millis(20),
        silence: Duration::from_millis(60),
        ..WireConfig::default()
    };
    let base = (descriptors(), tasks());
    for _ in 0..10 {
        let mut wave: Vec<Pair<TcpStream>> = Vec::new();
        for _ in 0..100 {
            wave.push(over_tcp(config.clone()).await);
        }
        for pair in &mut wave {
            // The peer's socket stays open and says nothing, as a suspended phone's does.
            assert_eq!(pair.event().await, Ev::Closed(None, Why::Silent));
            (&mut pair.task).await.unwrap();
        }
        assert_eq!((descriptors(), tasks()), (base.0 + 100, base.1), "only the peers' own sockets are left");
        drop(wave);
    }
    assert_eq!((descriptors(), tasks()), base);
}
