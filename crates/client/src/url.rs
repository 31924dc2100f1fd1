//! The addresses that people type.

/// Where the gateway listens if nothing else is said.
pub const DEFAULT: &str = "ws://127.0.0.1:8787/ws";

/// Why an address cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Another scheme.
    #[error("{0}:// is not an address of a gateway: use ws://, wss://, http://, https:// or HOST:PORT")]
    Scheme(String),
    /// No host, a bad port, or white space inside.
    #[error("the address needs a host and a port from 1 to 65535, for instance {DEFAULT}")]
    Form,
}

/// Makes a WebSocket address of what a person typed: `http` becomes `ws`, `https` `wss`, `HOST:PORT` gets a scheme, a
/// missing port is 8787 where no scheme was given, a missing path is `/ws`. A query stays.
///
/// # Errors
/// [`UrlError`]; it holds no part of the address behind the host, where a token may be.
pub fn websocket(typed: &str) -> Result<String, UrlError> {
    let typed = typed.trim();
    let (scheme, rest) = match typed.split_once("://") {
        Some((scheme, rest)) => {
            let known = match scheme.to_ascii_lowercase().as_str() {
                "ws" | "http" => "ws",
                "wss" | "https" => "wss",
                other => return Err(UrlError::Scheme(other.chars().take(16).collect())),
            };
            (Some(known), rest)
        }
        None => (None, typed),
    };
    let rest = rest.split('#').next().unwrap_or_default();
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end).ok_or(UrlError::Form)?;
    let bad = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '@' | '\\' | '"' | '<' | '>');
    if authority.contains(bad) || path.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(UrlError::Form);
    }
    // A colon inside of `[…]` is part of an IPv6 address.
    let after = authority.rfind(']').map_or(0, |at| at + 1);
    let tail = authority.get(after..).unwrap_or_default();
    let (host_end, port) = match tail.rfind(':') {
        Some(at) => (after + at, tail.get(at + 1..)),
        None => (authority.len(), None),
    };
    let host = authority.get(..host_end).unwrap_or_default();
    if host.contains(':') && !host.starts_with('[') {
        return Err(UrlError::Form);
    }
    if port.is_some_and(|p| p.parse::<u16>().map_or(true, |n| n == 0)) {
        return Err(UrlError::Form);
    }
    // `:8787` alone is this machine.
    let host = match host {
        "" if port.is_some() && scheme.is_none() => "127.0.0.1",
        "" => return Err(UrlError::Form),
        host => host,
    };
    let port = match (port, scheme) {
        (Some(port), _) => format!(":{port}"),
        (None, None) => ":8787".to_owned(),
        (None, Some(_)) => String::new(),
    };
    let (path, query) = match path.split_once('?') {
        Some((path, query)) => (path, format!("?{query}")),
        None => (path, String::new()),
    };
    let path = if path.is_empty() || path == "/" { "/ws" } else { path };
    Ok(format!("{}://{host}{port}{path}{query}", scheme.unwrap_or("ws")))
}

/// Whether a typed address names this machine. A name other than `localhost` is not looked up.
#[must_use]
pub fn is_local(typed: &str) -> bool {
    let Ok(full) = websocket(typed) else { return false };
    let rest = full.split_once("://").map_or("", |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(six) => six.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_to_what_people_type() {
        for (typed, url) in [
            ("ws://127.0.0.1:8787/ws", "ws://127.0.0.1:8787/ws"),
            (" http://example.org ", "ws://example.org/ws"),
            ("HTTPS://example.org/mobile-ws", "wss://example.org/mobile-ws"),
            ("localhost:9000", "ws://localhost:9000/ws"),
            ("localhost", "ws://localhost:8787/ws"),
            (":9000", "ws://127.0.0.1:9000/ws"),
            ("[::1]:9000/x", "ws://[::1]:9000/x"),
            ("[::1]", "ws://[::1]:8787/ws"),
            ("ws://h?token=a", "ws://h/ws?token=a"),
            ("wss://h/#x", "wss://h/ws"),
        ] {
            assert_eq!(websocket(typed).as_deref(), Ok(url), "{typed}");
        }
    }

    #[test]
    fn refuses_the_rest() {
        assert_eq!(websocket("ftp://h"), Err(UrlError::Scheme("ftp".into())));
        for typed in
            ["", "ws://", "ws://:80/", "h:0", "h:99999", "h:x", "a b", "::1", "ws://u:p@h/", "ws://h/a b"]
        {
            assert_eq!(websocket(typed), Err(UrlError::Form), "{typed}");
        }
    }

    #[test]
    fn only_this_machine_is_local() {
        for address in ["ws://127.0.0.1:8787/ws", "localhost:1", "http://[::1]:9/ws", "127.9.9.9"] {
            assert!(is_local(address), "{address}");
        }
        for address in [
            "ws://example.org/ws",
            "10.0.0.1:8787",
            "127.0.0.1.example.org",
            "localhost.example.org:80",
            "ftp://127.0.0.1",
        ] {
            assert!(!is_local(address), "{address}");
        }
    }
}
