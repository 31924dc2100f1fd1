//! Where a request comes from: the loopback rule, the client's address behind proxies, and the token.
//!
//! "Loopback" gives rights (`deliver`), so everything that could mean "somebody else's request was passed on" takes
//! them away: a reverse proxy on the same host is not loopback, and neither is a web page in a local browser.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use axum::http::{HeaderMap, header};
use percent_encoding::percent_decode_str;

/// An address or a network of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u32,
}

impl Network {
    /// Reads `10.0.0.0/8`, `::1`, `192.168.1.7`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix.parse::<u32>().ok()?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.unwrap_or(longest);
        (prefix <= longest).then_some(Self { address, prefix })
    }

    /// Whether the address belongs to it.
    #[must_use]
    pub fn contains(&self, other: IpAddr) -> bool {
        let same = |a: u128, b: u128, bits: u32| {
            let drop = bits - self.prefix.min(bits);
            // A shift by the whole width is not defined; a prefix of 0 holds everything.
            a.checked_shr(drop).unwrap_or(0) == b.checked_shr(drop).unwrap_or(0)
        };
        match (self.address, other) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(u128::from(a.to_bits()), u128::from(b.to_bits()), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
            _ => false,
        }
    }
}

/// Headers that say that somebody passed the request on.
const FORWARDING: [&str; 14] = [
    "forwarded",
    "via",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-original-forwarded-for",
    "x-original-host",
    "x-envoy-external-address",
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "true-client-ip",
    "fastly-client-ip",
    "fly-client-ip",
    "cdn-loop",
];

fn was_forwarded(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| {
        let name = name.as_str();
        name.starts_with("x-forwarded") || FORWARDING.contains(&name)
    })
}

/// Everything the core wants to know of a request. `query` is the URL's, which is never logged.
#[must_use]
pub fn origin(
    peer: SocketAddr,
    headers: &HeaderMap,
    query: Option<&str>,
    trusted: &[Network],
) -> delivery::Origin {
    let ip = peer.ip().to_canonical();
    delivery::Origin {
        loopback: ip.is_loopback() && !was_forwarded(headers) && !headers.contains_key(header::ORIGIN),
        address: household(client_address(ip, headers, trusted)).to_string(),
        token: bearer(headers).or_else(|| query.and_then(query_token)),
    }
}

/// What one customer of a provider has: an IPv4 address, or an IPv6 network of 64 bits, within which an address costs
/// nothing.
fn household(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << 64))),
    }
}

/// The client's own address: the last one in `X-Forwarded-For` that is no trusted proxy, if the peer is one. What
/// stands before it was written by strangers.
fn client_address(peer: IpAddr, headers: &HeaderMap, trusted: &[Network]) -> IpAddr {
    let is_trusted = |ip: IpAddr| trusted.iter().any(|n| n.contains(ip));
    if !is_trusted(peer) {
        return peer;
    }
    let mut found = peer;
    let lines: Vec<&str> =
        headers.get_all("x-forwarded-for").iter().filter_map(|v| v.to_str().ok()).collect();
    for entry in lines.iter().rev().flat_map(|line| line.rsplit(',')) {
        let entry = entry.trim();
        // Some proxies write the port too.
        let Some(ip) =
            entry.parse::<IpAddr>().ok().or_else(|| entry.parse::<SocketAddr>().ok().map(|s| s.ip()))
        else {
            return found;
        };
        found = ip.to_canonical();
        if !is_trusted(found) {
            return found;
        }
    }
    found
}

fn bearer(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
}

/// `?token=`, percent-decoded. A `+` stays a `+`: tokens hold no spaces, but base64 ones hold plus signs.
fn query_token(query: &str) -> Option<String> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix("token="))?;
    let token = percent_decode_str(value).decode_utf8().ok()?.into_owned();
    (!token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: &str = "127.0.0.1:5000";

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    fn from(peer: &str, pairs: &[(&'static str, &str)], query: Option<&str>) -> delivery::Origin {
        origin(peer.parse().unwrap(), &headers(pairs), query, &[])
    }

    #[test]
    fn field_loopback_means_a_loopback_peer_and_nobody_in_between() {
        assert!(from(LOCAL, &[], None).loopback);
        assert!(from("127.9.9.9:1", &[], None).loopback);
        assert!(from("[::1]:1", &[], None).loopback);
        assert!(from("[::ffff:127.0.0.1]:1", &[], None).loopback, "an IPv4 peer on a dual-stack listener");
        assert!(!from("10.0.0.1:1", &[], None).loopback);
        assert!(!from("[::ffff:10.0.0.1]:1", &[], None).loopback);
        for name in FORWARDING {
            assert!(!from(LOCAL, &[(name, "x")], None).loopback, "{name}");
        }
        for name in ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-forwarded-anything"] {
            assert!(!from(LOCAL, &[(name, "127.0.0.1")], None).loopback, "{name}");
        }
        assert!(!from(LOCAL, &[("origin", "http://127.0.0.1:8787")], None).loopback, "a web page");
        assert!(!from(LOCAL, &[("origin", "")], None).loopback, "an empty Origin is one too");
    }

    #[test]
    fn an_ipv6_customer_is_one_address() {
        let address = |peer| from(peer, &[], None).address;
        assert_eq!(address("[2001:db8:1:2:3:4:5:6]:1"), address("[2001:db8:1:2::9]:1"));
        assert_ne!(address("[2001:db8:1:2::9]:1"), address("[2001:db8:1:3::9]:1"));
        assert_eq!(address("192.0.2.7:1"), "192.0.2.7");
    }

    #[test]
    fn the_token_comes_from_the_header_else_from_the_url() {
        let with = |pairs: &[(&'static str, &str)], query| from(LOCAL, pairs, query).token;
        assert_eq!(with(&[("authorization", "Bearer abc")], Some("token=url")).as_deref(), Some("abc"));
        assert_eq!(with(&[("authorization", "bearer  abc ")], None).as_deref(), Some("abc"));
        assert_eq!(with(&[("authorization", "Basic abc")], Some("token=url")).as_deref(), Some("url"));
        assert_eq!(with(&[], Some("a=b&token=x%2By%3D&token=z")).as_deref(), Some("x+y="));
        assert_eq!(with(&[], Some("token=a+b")).as_deref(), Some("a+b"));
        assert_eq!(with(&[], Some("token=%ff")), None, "not UTF-8");
        assert_eq!(with(&[], Some("token=")), None);
        assert_eq!(with(&[], Some("xtoken=1")), None);
        assert_eq!(with(&[], None), None);
    }

    #[test]
    fn field_only_a_trusted_proxy_says_who_the_client_is() {
        let trusted = [Network::parse("127.0.0.1").unwrap(), Network::parse("10.0.0.0/8").unwrap()];
        let address = |peer: &str, list: &[&str]| {
            let pairs: Vec<_> = list.iter().map(|v| ("x-forwarded-for", *v)).collect();
            origin(peer.parse().unwrap(), &headers(&pairs), None, &trusted).address
        };
        assert_eq!(address(LOCAL, &["203.0.113.9"]), "203.0.113.9");
        assert_eq!(
            address(LOCAL, &["6.6.6.6, 203.0.113.9, 10.1.1.1"]),
            "203.0.113.9",
            "what a stranger wrote"
        );
        assert_eq!(address(LOCAL, &["6.6.6.6", "203.0.113.9:4444"]), "203.0.113.9", "two lines, with a port");
        assert_eq!(address(LOCAL, &["unknown"]), "127.0.0.1");
        assert_eq!(address(LOCAL, &[]), "127.0.0.1");
        assert_eq!(address("198.51.100.1:1", &["203.0.113.9"]), "198.51.100.1", "not trusted");
    }

    #[test]
    fn networks() {
        let inside = |net: &str, ip: &str| Network::parse(net).unwrap().contains(ip.parse().unwrap());
        assert!(inside("10.0.0.0/8", "10.255.0.1") && !inside("10.0.0.0/8", "11.0.0.1"));
        assert!(inside("0.0.0.0/0", "8.8.8.8") && !inside("0.0.0.0/0", "::1"));
        assert!(inside("fd00::/8", "fd12::1") && !inside("fd00::/8", "fe80::1"));
        assert!(inside("::/0", "fe80::1"));
        assert!(inside("::1", "::1") && !inside("::1", "::2"));
        for bad in ["", "x", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/-1"] {
            assert_eq!(Network::parse(bad), None, "{bad}");
        }
    }
}
