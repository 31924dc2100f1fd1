//! HTTP upgrade to WebSocket (RFC 6455, section 4), as functions of headers.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};

/// RFC 6455, 1.3.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");

/// A request that is not upgraded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// 400, 405 or 426.
    pub status: StatusCode,
    /// Headers that belong to the status (`Allow`, `Upgrade`, `Sec-WebSocket-Version`).
    pub headers: HeaderMap,
    /// One English sentence for the body.
    pub detail: &'static str,
}

/// Decides on a request. `Ok`: the headers of the answer with status 101. Extensions and subprotocols that are offered
/// are not taken.
///
/// # Errors
/// [`Refused`]: not GET, not an upgrade, a version other than 13, no valid key.
pub fn upgrade(method: &Method, version: Version, headers: &HeaderMap) -> Result<HeaderMap, Refused> {
    if method != Method::GET {
        let allow = [(header::ALLOW, HeaderValue::from_static("GET"))];
        return Err(refused(StatusCode::METHOD_NOT_ALLOWED, allow, "A WebSocket opens with GET."));
    }
    if version != Version::HTTP_11 {
        return Err(refused(StatusCode::BAD_REQUEST, [], "A WebSocket opens over HTTP/1.1."));
    }
    let asked = has_token(headers, &header::UPGRADE, "websocket")
        && has_token(headers, &header::CONNECTION, "upgrade");
    if !asked {
        let offer = [(header::UPGRADE, WEBSOCKET), (header::CONNECTION, HeaderValue::from_static("Upgrade"))];
        return Err(refused(StatusCode::UPGRADE_REQUIRED, offer, "Only WebSocket is spoken here."));
    }
    if only(headers, &header::SEC_WEBSOCKET_VERSION).is_none_or(|value| value.as_bytes() != b"13") {
        let offer = [
            (header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13")),
            (header::UPGRADE, WEBSOCKET),
            (header::CONNECTION, HeaderValue::from_static("Upgrade")),
        ];
        return Err(refused(StatusCode::UPGRADE_REQUIRED, offer, "Sec-WebSocket-Version must be 13."));
    }
    let bad_key = || refused(StatusCode::BAD_REQUEST, [], "Sec-WebSocket-Key must be 16 bytes in base64.");
    let key = only(headers, &header::SEC_WEBSOCKET_KEY).ok_or_else(bad_key)?;
    if base64_simd::STANDARD.decode_to_vec(key.as_bytes()).is_ok_and(|bytes| bytes.len() == 16) {
        let accept = HeaderValue::from_str(&accept_key(key.as_bytes())).map_err(|_| bad_key())?;
        Ok(HeaderMap::from_iter([
            (header::CONNECTION, HeaderValue::from_static("Upgrade")),
            (header::UPGRADE, WEBSOCKET),
            (header::SEC_WEBSOCKET_ACCEPT, accept),
        ]))
    } else {
        Err(bad_key())
    }
}

/// `Sec-WebSocket-Accept` for a `Sec-WebSocket-Key`.
#[must_use]
pub fn accept_key(key: &[u8]) -> String {
    let mut hash = sha1_smol::Sha1::new();
    hash.update(key);
    hash.update(GUID);
    base64_simd::STANDARD.encode_to_string(hash.digest().bytes())
}

fn refused<const N: usize>(
    status: StatusCode,
    headers: [(HeaderName, HeaderValue); N],
    detail: &'static str,
) -> Refused {
    Refused { status, headers: HeaderMap::from_iter(headers), detail }
}

/// Whether a header that is a comma list, perhaps over several lines, has this token in any case.
pub(crate) fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|item| item.trim().eq_ignore_ascii_case(token))
}

/// The value of a header that must be there once.
pub(crate) fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() { None } else { first }
}

#[cfg(test)]
mod tests;
