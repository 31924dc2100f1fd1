//! HTTP upgrade: the head of a request as it comes from the network, through the parser, into the decision.
#![no_main]

use http::{HeaderMap, HeaderName, HeaderValue, Method, Version, header};
use libfuzzer_sys::fuzz_target;
use wire::handshake::{accept_key, upgrade};

fuzz_target!(|data: &[u8]| {
    let mut space = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut space);
    if !request.parse(data).is_ok_and(|status| status.is_complete()) {
        return;
    }
    let Ok(method) = Method::from_bytes(request.method.unwrap_or_default().as_bytes()) else { return };
    let version = if request.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
    let mut headers = HeaderMap::new();
    for field in request.headers.iter() {
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(field.name.as_bytes()), HeaderValue::from_bytes(field.value))
        {
            headers.append(name, value);
        }
    }
    match upgrade(&method, version, &headers) {
        Ok(answer) => {
            assert_eq!((method, version), (Method::GET, Version::HTTP_11));
            let keys: Vec<&HeaderValue> = headers.get_all(header::SEC_WEBSOCKET_KEY).iter().collect();
            let [key] = keys.as_slice() else { panic!("accepted with {} keys", keys.len()) };
            let accept = answer.get(header::SEC_WEBSOCKET_ACCEPT).map(HeaderValue::as_bytes);
            assert_eq!(accept, Some(accept_key(key.as_bytes()).as_bytes()));
            // Nothing that was offered is taken.
            assert!(!answer.contains_key(header::SEC_WEBSOCKET_EXTENSIONS));
            assert!(!answer.contains_key(header::SEC_WEBSOCKET_PROTOCOL));
        }
        Err(refused) => {
            assert!(refused.status.is_client_error(), "{}", refused.status);
            assert!(!refused.detail.is_empty());
        }
    }
});
