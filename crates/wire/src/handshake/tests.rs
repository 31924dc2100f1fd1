use super::*;

/// A good request, changed.
fn ask(change: impl FnOnce(&mut HeaderMap)) -> Result<HeaderMap, Refused> {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "WebSocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-extensions", "permessage-deflate; client_max_window_bits"),
        ("sec-websocket-protocol", "chat"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    change(&mut headers);
    upgrade(&Method::GET, Version::HTTP_11, &headers)
}

#[test]
fn a_good_request_is_upgraded_without_extensions() {
    let headers = ask(|_| {}).unwrap();
    // The example of RFC 6455, 1.3.
    assert_eq!(headers["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert_eq!(
        (&headers["upgrade"], &headers["connection"]),
        (&WEBSOCKET, &HeaderValue::from_static("Upgrade"))
    );
    assert_eq!(headers.len(), 3, "no extension, no subprotocol");
}

#[test]
fn each_fault_has_its_status() {
    let status = |change: fn(&mut HeaderMap)| ask(change).unwrap_err().status.as_u16();
    assert_eq!(status(|headers| drop(headers.remove("upgrade"))), 426);
    assert_eq!(status(|headers| drop(headers.remove("connection"))), 426);
    assert_eq!(status(|headers| drop(headers.insert("connection", HeaderValue::from_static("close")))), 426);
    assert_eq!(status(|headers| drop(headers.insert("upgrade", HeaderValue::from_static("h2c")))), 426);
    assert_eq!(status(|headers| drop(headers.remove("sec-websocket-version"))), 426);
    assert_eq!(
        status(|headers| drop(headers.insert("sec-websocket-version", HeaderValue::from_static("8")))),
        426
    );
    assert_eq!(status(|headers| drop(headers.remove("sec-websocket-key"))), 400);
    for key in ["", "short", "dGhlIHNhbXBsZSBub25jZQ", "!!!!IHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZWFh"]
    {
        let refused =
            ask(|headers| drop(headers.insert("sec-websocket-key", HeaderValue::from_str(key).unwrap())));
        assert_eq!(refused.unwrap_err().status.as_u16(), 400, "{key}");
    }
    assert_eq!(
        status(|headers| {
            headers.append("sec-websocket-key", HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ=="));
        }),
        400
    );
    let version = ask(|headers| drop(headers.remove("sec-websocket-version"))).unwrap_err();
    assert_eq!(version.headers["sec-websocket-version"], "13");
    let post = upgrade(&Method::POST, Version::HTTP_11, &HeaderMap::new()).unwrap_err();
    assert_eq!((post.status.as_u16(), &post.headers["allow"]), (405, &HeaderValue::from_static("GET")));
    let old = upgrade(&Method::GET, Version::HTTP_10, &HeaderMap::new()).unwrap_err();
    assert_eq!(old.status.as_u16(), 400);
}
