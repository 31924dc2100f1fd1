//! What the listener says to everything that is no WebSocket, and how it lets WebSockets in.

mod common;

use common::{Client, TOKEN, config, get, http, start, stop};

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

#[tokio::test]
async fn pages_answer_in_words() {
    let state = tempfile::tempdir().unwrap();
    let running = start(config(state.path())).await;
    let at = running.address();

    let index = get(at, "/").await;
    assert_eq!(status(&index), "200");
    assert!(index.contains("gateway") && index.contains("шлюз") && index.contains("/ws"), "{index}");
    assert!(get(at, "/healthz").await.ends_with("ok\n"));
    assert!(get(at, "/readyz").await.ends_with("ready\n"));
    let missing = get(at, "/nothing?token=secret").await;
    assert_eq!(status(&missing), "404");
    assert!(missing.contains("nothing here") && missing.contains("ничего нет"), "{missing}");
    assert!(!missing.contains("secret"), "{missing}");
    let posted =
        http(at, "POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
    assert_eq!(status(&posted), "405");
    assert!(posted.contains("Only GET"), "{posted}");
    stop(running).await;
}

#[tokio::test]
async fn a_request_that_is_no_websocket_is_told_so() {
    let state = tempfile::tempdir().unwrap();
    let running = start(config(state.path())).await;
    let at = running.address();
    for path in ["/ws", "/mobile-ws"] {
        let plain = get(at, path).await;
        assert_eq!(status(&plain), "426");
        assert!(plain.to_ascii_lowercase().contains("upgrade: websocket"), "{plain}");
        assert!(plain.contains("WebSocket") && plain.contains("приложения"), "{plain}");
        let posted =
            format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        assert_eq!(status(&http(at, &posted).await), "405");
        let old = format!(
            "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 8\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        let old = http(at, &old).await;
        assert_eq!(status(&old), "426");
        assert!(old.to_ascii_lowercase().contains("sec-websocket-version: 13"), "{old}");
    }
    stop(running).await;
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused_and_the_listener_lives() {
    let state = tempfile::tempdir().unwrap();
    let running = start(config(state.path())).await;
    let at = running.address();
    let long = format!("GET / HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n", "a".repeat(20_000));
    assert_eq!(status(&http(at, &long).await), "431");
    let many = format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "A: b\r\n".repeat(200));
    assert_eq!(status(&http(at, &many).await), "431");
    assert_eq!(status(&http(at, "\u{1}\u{2}rubbish\r\n\r\n").await), "400");
    assert!(get(at, "/healthz").await.ends_with("ok\n"));
    stop(running).await;
}

#[tokio::test]
async fn both_paths_and_every_place_for_the_token_let_a_device_in() {
    let state = tempfile::tempdir().unwrap();
    let running = start(config(state.path())).await;
    let at = running.address();
    let bearer = format!("Bearer {TOKEN}");
    let in_url = format!("/ws?token={}", TOKEN.replace('-', "%2D"));
    for (path, headers) in [
        ("/ws", vec![("Authorization", bearer.as_str())]),
        ("/mobile-ws", vec![("Authorization", bearer.as_str())]),
        (in_url.as_str(), vec![]),
    ] {
        let mut client = Client::connect(at, path, &headers).await;
        client.send(r#"{"t":"hello","device":{"id":"d"}}"#);
        client.until(&[r#""t":"ready""#, "mobile:d"]).await;
    }
    let mut wrong = Client::connect(at, "/ws?token=wrong", &[]).await;
    wrong.send(r#"{"t":"hello","device":{"id":"d"}}"#);
    wrong.until(&["auth_failed", r#""fatal":true"#]).await;
    assert_eq!(wrong.closed().await, Some(1008));
    stop(running).await;
}
