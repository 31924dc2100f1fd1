//! Suspended phones leave half-open sockets, and those leave nothing behind. Alone in its process: it counts
//! descriptors and tasks.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::time::Duration;

use common::{
    Client, PATIENCE, config, hello,
    raw::{CLOSE, FIN, Raw, TEXT},
    start, stop,
};
use tokio::{
    runtime::Handle,
    time::{sleep, timeout},
};

/// Open descriptors and living tasks.
fn held() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    (descriptors, Handle::current().metrics().num_alive_tasks())
}

async fn until_held(expected: (usize, usize)) {
    let back = async {
        // A task and its socket end a moment after the peer has seen the end; nothing tells when.
        while held() != expected {
            sleep(Duration::from_millis(5)).await;
        }
    };
    if timeout(PATIENCE, back).await.is_err() {
        panic!("descriptors and tasks: {:?}, not {expected:?}", held());
    }
}

#[tokio::test]
async fn field_after_1000_half_open_deaths_descriptors_and_tasks_are_back_at_the_base_line() {
    const WAVE: usize = 250;
    let state = tempfile::tempdir().unwrap();
    let mut settings = config(state.path());
    settings.ping_interval_ms = 200;
    settings.silent_after_ms = 700;
    let running = start(settings).await;
    let at = running.address();
    // One that lives, and has talked, so that everything that is opened once is open.
    let mut alive = Client::device(at, "alive").await;
    alive.send(r#"{"t":"text","id":"1","text":"hello"}"#);
    alive.until(&[r#""t":"message""#, "hello"]).await;
    let base = held();
    for wave in 0..4 {
        let mut phones = Vec::new();
        for number in 0..WAVE {
            let mut phone = Raw::open(at).await;
            phone.text(&hello(&format!("d{number}"))).await;
            phones.push(phone);
        }
        for phone in &mut phones {
            // The phone's socket stays open; it answers no ping and says nothing, as a suspended one does.
            let (mut ready, mut code) = (false, None);
            while let Some((first, payload)) = phone.next().await {
                match first {
                    first if first == FIN | TEXT => {
                        ready |= payload.starts_with(br#"{"t":"ready""#);
                    }
                    first if first == FIN | CLOSE => code = payload.first_chunk().copied(),
                    _ => {}
                }
            }
            assert!(ready, "it was let in");
            assert_eq!(code.map(u16::from_be_bytes), Some(1001));
        }
        until_held((base.0 + WAVE, base.1)).await;
        drop(phones);
        until_held(base).await;
        // Who answers pings lives on.
        let text = format!("wave {wave}");
        alive.send(format!(r#"{{"t":"text","text":"{text}"}}"#));
        alive.until(&[r#""t":"message""#, &text]).await;
    }
    stop(running).await;
}
