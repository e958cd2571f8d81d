//! In which order the addresses of a name are tried: RFC 6724 §6, with the default table of policies of its
//! §2.1. `doors/dial.rs` calls it with the source address that a connection to each would have.
//!
//! Rules 3, 4 and 7 need what a way out does not know: deprecated and home addresses, and tunnels. Rule 9 is
//! for IPv6 alone, so that the order in which a name server turns the IPv4 addresses of a name is kept.

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv6Addr};

/// Prefix and its length, precedence, label; longer prefixes first.
const POLICIES: [(Ipv6Addr, u32, u8, u8); 9] = [
    (Ipv6Addr::LOCALHOST, 128, 50, 0),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, 35, 4),
    (Ipv6Addr::UNSPECIFIED, 96, 1, 3),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, 5, 5),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, 30, 2),
    (Ipv6Addr::new(0x3ffe, 0, 0, 0, 0, 0, 0, 0), 16, 1, 12),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, 1, 11),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, 3, 13),
    (Ipv6Addr::UNSPECIFIED, 0, 40, 1),
];

const LINK: u8 = 2;
const SITE: u8 = 5;
const GLOBAL: u8 = 14;

/// A destination's place: the least is tried first.
pub(crate) type Rank = (bool, bool, bool, Reverse<u8>, u8, Reverse<u32>);

/// The rank of a destination, to which connections come from `source`; without one, there is no way.
pub(crate) fn rank(to: IpAddr, source: Option<IpAddr>) -> Rank {
    let (precedence, label) = policy(to);
    // Rules 1, 2, 5, 6, 8, 9.
    (
        source.is_none(),
        source.is_some_and(|source| scope(source) != scope(to)),
        source.is_some_and(|source| policy(source).1 != label),
        Reverse(precedence),
        scope(to),
        Reverse(source.map_or(0, |source| common(source, to))),
    )
}

fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn policy(ip: IpAddr) -> (u8, u8) {
    let own = bits(ip);
    let is_in = |prefix: Ipv6Addr, len| (own ^ prefix.to_bits()).leading_zeros() >= len;
    let found = POLICIES.iter().find(|(prefix, len, ..)| is_in(*prefix, *len));
    found.map_or((40, 1), |(_, _, precedence, label)| (*precedence, *label))
}

/// §3.1 and §3.2.
const fn scope(ip: IpAddr) -> u8 {
    match ip {
        IpAddr::V4(v4) if v4.is_loopback() || v4.is_link_local() => LINK,
        IpAddr::V4(_) => GLOBAL,
        IpAddr::V6(v6) if v6.is_multicast() => v6.octets()[1] & 15,
        IpAddr::V6(v6) if v6.is_loopback() || v6.is_unicast_link_local() => LINK,
        IpAddr::V6(v6) if v6.segments()[0] & 0xffc0 == 0xfec0 => SITE,
        IpAddr::V6(_) => GLOBAL,
    }
}

/// §2.2: the bits that both begin with, at most those of a prefix.
fn common(source: IpAddr, to: IpAddr) -> u32 {
    if to.is_ipv4() { 0 } else { (bits(source) ^ bits(to)).leading_zeros().min(64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 6724 §10.2, in the order that it expects: destinations with their sources.
    #[test]
    fn px_20_addresses_are_ordered_as_in_the_rfc() {
        for [first, second] in [
            [("2001:db8:1::1", "2001:db8:1::2"), ("198.51.100.121", "169.254.13.78")],
            [("198.51.100.121", "198.51.100.117"), ("2001:db8:1::1", "fe80::1")],
            [("2001:db8:1::1", "2001:db8:1::2"), ("10.1.2.3", "10.1.2.4")],
            [("fe80::1", "fe80::2"), ("2001:db8:1::1", "2001:db8:1::2")],
            [("2001:db8:1::1", "2001:db8:1::2"), ("2001:db8:3ffe::1", "2001:db8:3f44::2")],
            [("2002:c633:6401::1", "2002:c633:6401::2"), ("2001:db8:1::1", "2002:c633:6401::2")],
            [("2001:db8:1::1", "2001:db8:1::2"), ("2002:c633:6401::1", "2002:c633:6401::2")],
            // Rule 1: nothing leads to the second one.
            [("198.51.100.121", "198.51.100.117"), ("2001:db8:1::1", "")],
        ] {
            let rank = |(to, source): (&str, &str)| rank(to.parse().unwrap(), source.parse().ok());
            assert!(rank(first) < rank(second), "{first:?} {second:?}");
        }
        // Addresses of IPv4 stay in the order of the answer.
        let v4 = |to: &str| rank(to.parse().unwrap(), Some([198, 51, 100, 1].into()));
        assert_eq!(v4("198.51.100.2"), v4("192.0.2.1"));
    }
}
