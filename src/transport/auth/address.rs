//! Whose address a request comes from.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use axum::http::HeaderMap;
use ipnet::IpNet;

/// The other end of a connection; beside every request.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub SocketAddr);

/// The address that a request comes from: the peer's, or what trusted balancers say in X-Forwarded-For. Each of them adds the
/// address that it was called from at the end, so the last one that is not a balancer's is the caller's; what stands before it the
/// caller may have written itself.
pub fn client(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(&address));
    let mut nearest = peer.to_canonical();
    // Hop by hop: one that cannot be read must not hide those behind it.
    let values = headers.get_all("x-forwarded-for").iter().rev();
    let mut hops = values
        .flat_map(|value| value.as_bytes().rsplit(|byte| *byte == b','))
        .map(|hop| std::str::from_utf8(hop).unwrap_or_default().trim());
    while is_trusted(nearest) {
        match hops.next().and_then(read) {
            Some(address) => nearest = address,
            None => break,
        }
    }
    nearest
}

/// An address, with a port or without.
fn read(hop: &str) -> Option<IpAddr> {
    let bare = hop
        .strip_prefix('[')
        .and_then(|hop| hop.strip_suffix(']'))
        .unwrap_or(hop);
    let with_port = || hop.parse::<SocketAddr>().map(|address| address.ip());
    bare.parse::<IpAddr>()
        .or_else(|_| with_port())
        .ok()
        .map(|address| address.to_canonical())
}

/// Whose units a call from this address uses up. Whoever has an IPv6 address has 2^64 of them, so there it is the network.
pub fn source(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{}/64", Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use axum::http::{HeaderMap, HeaderValue};
    use ipnet::IpNet;

    use super::{client, source};

    fn seen(peer: &str, forwarded: &[&str]) -> String {
        let trusted: Vec<IpNet> = ["10.0.0.0/8", "192.0.2.1/32", "fd00::/8"]
            .map(|net| net.parse().unwrap())
            .into();
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append("x-forwarded-for", HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        client(peer.parse::<IpAddr>().unwrap(), &headers, &trusted).to_string()
    }

    #[test]
    fn only_trusted_balancers_are_believed_and_only_what_they_saw_themselves() {
        // Whoever is no balancer says nothing of others.
        assert_eq!(seen("203.0.113.9", &["198.51.100.7"]), "203.0.113.9");
        assert_eq!(seen("10.1.2.3", &["198.51.100.7"]), "198.51.100.7");
        // The caller's own lie stands before its address.
        assert_eq!(seen("10.1.2.3", &["127.0.0.1, 198.51.100.7"]), "198.51.100.7");
        assert_eq!(
            seen("10.1.2.3", &["127.0.0.1", "198.51.100.7, 192.0.2.1"]),
            "198.51.100.7"
        );
        assert_eq!(seen("::ffff:10.1.2.3", &["198.51.100.7:4711"]), "198.51.100.7");
        assert_eq!(seen("fd00::1", &["[2001:db8::7]:4711"]), "2001:db8::7");
        assert_eq!(seen("10.1.2.3", &["::ffff:198.51.100.7"]), "198.51.100.7");
        // Nothing, or nothing that can be read: then it is the last balancer's.
        assert_eq!(seen("10.1.2.3", &[]), "10.1.2.3");
        assert_eq!(seen("10.1.2.3", &["198.51.100.7, unknown"]), "10.1.2.3");
        assert_eq!(seen("10.1.2.3", &["198.51.100.7, é, 10.9.9.9"]), "10.9.9.9");
        assert_eq!(seen("10.1.2.3", &["10.4.4.4, 10.5.5.5"]), "10.4.4.4");
    }

    #[test]
    fn an_ipv6_callers_whole_network_is_one_source() {
        assert_eq!(source("198.51.100.7".parse().unwrap()), "198.51.100.7");
        assert_eq!(source("2001:db8:1:2:3:4:5:6".parse().unwrap()), "2001:db8:1:2::/64");
    }
}
