//! Start, stop, and what must not be started twice.

mod common;

use std::{fs, os::unix::fs::PermissionsExt, time::Instant};

use common::{Client, config, hello, start, stop};
use hermes_mobile_gateway::{Gateway, StartError};

#[tokio::test]
async fn a_device_talks_with_the_agent() {
    let state = tempfile::tempdir().unwrap();
    let running = start(config(state.path())).await;
    let mut device = Client::device(running.address(), "d").await;
    device.send(r#"{"t":"text","id":"1","text":"hello there"}"#);
    device.until(&[r#""t":"message""#, "hello there", r#""final":true"#]).await;
    stop(running).await;
}

#[tokio::test]
async fn the_token_is_made_at_first_start_and_kept_private() {
    let state = tempfile::tempdir().unwrap();
    let mut settings = config(state.path());
    settings.token = None;
    let first = start(settings.clone()).await;
    let file = first.token_file().unwrap().to_path_buf();
    let token = first.token().reveal().to_owned();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(state.path()).unwrap().permissions().mode() & 0o777, 0o700);
    let mut client =
        Client::connect(first.address(), "/ws", &[("Authorization", &format!("Bearer {token}"))]).await;
    client.send(r#"{"t":"hello","device":{"id":"d"}}"#);
    client.until(&[r#""t":"ready""#]).await;
    stop(first).await;
    let second = start(settings).await;
    assert_eq!(second.token().reveal(), token, "the same after a restart");
    stop(second).await;
}

#[tokio::test]
async fn a_second_gateway_on_the_same_state_is_refused_in_words() {
    let state = tempfile::tempdir().unwrap();
    let first = start(config(state.path())).await;
    let error = Gateway::start(config(state.path())).await.unwrap_err();
    assert!(matches!(error, StartError::Store(store::StoreError::InUse { .. })), "{error:?}");
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
    // The first is not disturbed, and its end frees the directory.
    Client::device(first.address(), "d").await;
    stop(first).await;
    stop(start(config(state.path())).await).await;
}

#[tokio::test]
async fn a_port_that_is_taken_is_refused_in_words_and_frees_the_state() {
    let state = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let first = start(config(state.path())).await;
    let mut settings = config(other.path());
    settings.port = first.address().port();
    let error = Gateway::start(settings).await.unwrap_err();
    assert!(matches!(error, StartError::Listen { .. }), "{error:?}");
    assert!(error.to_string().contains("--port"), "{error}");
    stop(start(config(other.path())).await).await;
    stop(first).await;
}

#[tokio::test]
async fn a_stop_tells_every_connection_to_come_back_and_loses_nothing() {
    let state = tempfile::tempdir().unwrap();
    let running = start(config(state.path())).await;
    let address = running.address();
    let mut devices = Vec::new();
    for number in 0..40 {
        devices.push(Client::device(address, &format!("d{number}")).await);
    }
    // One that never says hello has to go too.
    let mut silent = Client::connect(address, "/ws", &[]).await;
    let begun = Instant::now();
    running.shutdown().stop();
    for device in &mut devices {
        assert_eq!(device.closed().await, Some(1012));
    }
    assert_eq!(silent.closed().await, Some(1012));
    running.join().await.unwrap();
    assert!(begun.elapsed().as_millis() < 5_000, "within the deadline: {:?}", begun.elapsed());
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "listens no more");
}

#[tokio::test]
async fn a_client_that_does_not_answer_the_close_holds_up_no_stop() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let state = tempfile::tempdir().unwrap();
    let mut settings = config(state.path());
    settings.drain_ms = 1_000;
    let running = start(settings).await;
    let mut stream = tokio::net::TcpStream::connect(running.address()).await.unwrap();
    let request = "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 101");
    let begun = Instant::now();
    stop(running).await;
    assert!(begun.elapsed().as_millis() < 4_000, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn frames_before_and_after_ready_have_their_own_limits() {
    let state = tempfile::tempdir().unwrap();
    let running = start(config(state.path())).await;
    let mut early = Client::connect(running.address(), "/ws", &[]).await;
    early.send(" ".repeat(64 * 1024 + 1));
    early.until(&["too_big", r#""fatal":true"#]).await;
    assert_eq!(early.closed().await, Some(1009));

    let mut device = Client::device(running.address(), "d").await;
    let text = format!(r#"{{"t":"x","pad":"{}"}}"#, "a".repeat(1_000_000));
    device.send(text);
    device.send(r#"{"t":"ping","ts":1}"#);
    device.until(&[r#""t":"pong""#]).await;
    stop(running).await;
}

#[tokio::test]
async fn a_binary_frame_is_refused_in_words_and_the_connection_lives() {
    let state = tempfile::tempdir().unwrap();
    let running = start(config(state.path())).await;
    let mut device = Client::device(running.address(), "d").await;
    device.out.send(wire::Out::Binary(vec![1, 2, 3])).unwrap();
    device.until(&["bad_frame", "binary", r#""fatal":false"#]).await;
    device.send(r#"{"t":"ping","ts":1}"#);
    device.until(&[r#""t":"pong""#]).await;
    stop(running).await;
}

#[tokio::test]
async fn the_same_device_twice_the_older_is_told() {
    let state = tempfile::tempdir().unwrap();
    let running = start(config(state.path())).await;
    let mut older = Client::device(running.address(), "d").await;
    let mut newer = Client::connect(running.address(), "/ws", &[]).await;
    newer.send(hello("d"));
    older.until(&["replaced", r#""fatal":true"#]).await;
    assert_eq!(older.closed().await, Some(4001));
    newer.until(&[r#""t":"ready""#]).await;
    stop(running).await;
}
