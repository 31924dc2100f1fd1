use tokio::io::{DuplexStream, duplex};

use super::*;

/// A handshake with a server that answers what `answer` makes of the key.
async fn with(answer: impl FnOnce(&str) -> String) -> Result<Socket<DuplexStream>, ConnectError> {
    let (io, mut server) = duplex(64 * 1024);
    let uri: Uri = "ws://user:secret@host.example:81/ws?token=x".parse().unwrap();
    let client =
        tokio::spawn(
            async move { shake(io, &uri, &[("authorization", "Bearer t")], WireConfig::client()).await },
        );
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(server.read_u8().await.unwrap());
    }
    let request = String::from_utf8(request).unwrap();
    assert!(request.starts_with("GET /ws?token=x HTTP/1.1\r\nHost: host.example:81\r\n"), "{request}");
    assert!(request.contains("\r\nauthorization: Bearer t\r\n"), "{request}");
    assert!(!request.to_lowercase().contains("extensions"), "no compression is offered");
    let key = request.split("Sec-WebSocket-Key: ").nth(1).unwrap().split('\r').next().unwrap();
    server.write_all(answer(key).as_bytes()).await.unwrap();
    drop(server);
    client.await.unwrap()
}

fn good(key: &str) -> String {
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: WebSocket\r\nconnection: upgrade\r\n\
         sec-websocket-accept: {}\r\n\r\n",
        handshake::accept_key(key.as_bytes())
    )
}

#[tokio::test]
async fn answers_that_are_no_handshake_are_told_apart() {
    assert!(with(good).await.is_ok());
    let other = |from: &'static str, to: &'static str| with(move |key| good(key).replacen(from, to, 1));
    assert!(matches!(other("101", "503").await, Err(ConnectError::Refused(503))));
    for (from, to) in [
        ("HTTP/1.1", "SSH-2.0"),
        ("WebSocket", "h2c"),
        ("connection: upgrade", "connection: close"),
        ("accept: ", "accept: x"),
        ("\r\n\r\n", "\r\nsec-websocket-extensions: permessage-deflate\r\n\r\n"),
    ] {
        let got = other(from, to).await;
        assert!(matches!(got, Err(ConnectError::NotWebSocket(_))), "{from} -> {to}: {got:?}");
    }
    let cut = with(|key| good(key).chars().take(40).collect()).await;
    assert!(matches!(cut, Err(ConnectError::Lost(_))), "{cut:?}");
    let long = with(|_| format!("HTTP/1.1 101 OK\r\nx: {}", "y".repeat(HEAD))).await;
    assert!(matches!(long, Err(ConnectError::NotWebSocket("its head is too long"))), "{long:?}");
}

#[tokio::test]
async fn bytes_behind_the_handshake_are_not_lost() {
    let socket = with(|key| good(key) + "\u{1}\u{2}he\u{0}\u{1}l").await.unwrap();
    // Two fragments without FIN: 0x01 "he", 0x00 "l", then the stream ends.
    let (_out, outbound) = crate::queue();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    socket
        .run(outbound, |event| {
            let _ = tell.send(format!("{event:?}"));
            std::future::ready(())
        })
        .await;
    assert_eq!(told.recv().await.unwrap(), "Closed { code: None, why: Eof }");
    // A whole message; 0x81 is two bytes in UTF-8, so it is put in as bytes.
    let (io, mut server) = duplex(1024);
    server.shutdown().await.unwrap();
    let socket = Socket::new(io, false, WireConfig::client(), Bytes::from_static(b"\x81\x02hi"));
    let (_out, outbound) = crate::queue();
    socket
        .run(outbound, |event| {
            let _ = tell.send(format!("{event:?}"));
            std::future::ready(())
        })
        .await;
    assert_eq!(told.recv().await.unwrap(), "Text(\"hi\")");
}

#[tokio::test]
async fn addresses_that_cannot_work_are_refused_in_words() {
    let ask = |url: &'static str, headers: &'static [(&'static str, &'static str)]| async move {
        connect(url, headers, WireConfig::client()).await.unwrap_err()
    };
    assert!(matches!(ask("wss://host/ws", &[]).await, ConnectError::NoTls));
    for url in ["", "host:1/ws", "http://host/", "ws:///ws", "ws://ho st/"] {
        assert!(matches!(ask(url, &[]).await, ConnectError::BadUrl), "{url}");
    }
    // A port that was free a moment ago.
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = free.local_addr().unwrap().port();
    let bad = connect(&format!("ws://127.0.0.1:{port}/"), &[("x", "a\r\ny: b")], WireConfig::client()).await;
    assert!(matches!(bad, Err(ConnectError::BadHeader(name)) if name == "x"));
    drop(free);
    let nobody = connect(&format!("ws://127.0.0.1:{port}/"), &[], WireConfig::client()).await;
    assert!(matches!(nobody, Err(ConnectError::Unreachable(_))), "{nobody:?}");
}
