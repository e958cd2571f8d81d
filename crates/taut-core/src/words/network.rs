//! The vocabulary of what may change on a link while a stack runs: addresses, routes, the MTU, name servers.
//! RFC 4632 (prefixes), RFC 1122 §3.3.1 (routes of a host). A device or an application says it, and the
//! stack, its recording and the link layer below it hear the same words.

use core::net::{IpAddr, Ipv4Addr};

use thiserror::Error;

use super::units::Duration;

/// An address, and how many of its leading bits are those of all addresses of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The address.
    pub address: IpAddr,
    /// Bits of the prefix.
    pub prefix: u8,
}

impl Network {
    /// An address of which nothing is known about its neighbours.
    #[must_use]
    pub const fn host(address: IpAddr) -> Self {
        Self { address, prefix: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// Whether the prefix is not longer than the address.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.prefix <= Self::host(self.address).prefix
    }

    /// Whether an address has the same prefix. One of the other family never has.
    #[must_use]
    pub fn contains(self, other: IpAddr) -> bool {
        common_bits(self.address, other).is_some_and(|bits| bits >= self.prefix)
    }

    /// Whether both have the same prefix, of the same length.
    #[must_use]
    pub fn is_same_prefix(self, other: Self) -> bool {
        self.prefix == other.prefix && self.contains(other.address)
    }

    /// The address that all hosts of an IPv4 network listen to (RFC 919); `None` where there is none:
    /// networks of IPv6, and those of one or two addresses (RFC 3021).
    #[must_use]
    pub fn broadcast(self) -> Option<IpAddr> {
        let IpAddr::V4(address) = self.address else { return None };
        let hosts = u32::MAX.checked_shr(self.prefix.into()).filter(|hosts| *hosts > 1)?;
        Some(IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() | hosts)))
    }
}

/// How many leading bits two addresses of the same family have in common.
pub(crate) fn common_bits(a: IpAddr, b: IpAddr) -> Option<u8> {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => Some((a.to_bits() ^ b.to_bits()).leading_zeros() as u8),
        (IpAddr::V6(a), IpAddr::V6(b)) => Some((a.to_bits() ^ b.to_bits()).leading_zeros() as u8),
        _ => None,
    }
}

/// Where packets for a prefix go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The destinations: all addresses with this prefix. A prefix of 0 bits is the default route.
    pub to: Network,
    /// The router; `None` if the destinations are on the link.
    pub via: Option<IpAddr>,
    /// The address of this host that packets have by this route if the application says nothing else. Linux:
    /// `src`.
    pub source: Option<IpAddr>,
}

/// A change of what a stack and its link know of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NetworkChange {
    /// The stack has this address from now on. One that it has already gets this prefix.
    AddAddress(Network),
    /// The stack has this address no more.
    RemoveAddress(IpAddr),
    /// New connections should come from another address, as long as there is one (RFC 4862 §5.5.4); or they
    /// may again.
    Deprecate {
        /// The address.
        address: IpAddr,
        /// Whether it is deprecated.
        deprecated: bool,
    },
    /// Packets for these destinations go there from now on. One for the same prefix and router is replaced.
    AddRoute(Route),
    /// The route for this prefix and router is gone; what it says of the source does not matter.
    RemoveRoute(Route),
    /// The largest IP packet that the link carries.
    SetMtu(u16),
    /// This server knows names (RFC 2132 §3.8).
    AddNameServer(IpAddr),
    /// It is not to be asked any more.
    RemoveNameServer(IpAddr),
    /// A server has leased an address, or prolonged the lease; or the lease is over. For reports: the address
    /// and the routes are changed by the words above.
    SetLease(Option<Lease>),
    /// A socket has joined this group of multicast: said to the link, once for each call.
    JoinGroup(IpAddr),
    /// It has left it.
    LeaveGroup(IpAddr),
}

/// An address that a server of DHCP has leased (RFC 2131).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The address.
    pub network: Network,
    /// The server.
    pub server: IpAddr,
    /// How long from now until the server is asked to prolong it; `None` if it lasts for ever.
    pub renews_in: Option<Duration>,
    /// How long from now until it is over.
    pub ends_in: Option<Duration>,
}

/// Why the network was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// The address cannot be a host's: unspecified, a group, a broadcast address, loopback; or its prefix is
    /// too long.
    #[error("not the address of a host, or a prefix that is too long")]
    InvalidAddress,
    /// The router or the source of a route is of another family than its destinations, or no host's address.
    #[error("the router or the source of a route does not fit its destinations")]
    InvalidRoute,
    /// An IP packet may have 68 bytes at least (RFC 791), and 1280 while there is an address of IPv6 (RFC
    /// 8200 §5).
    #[error("an MTU below 68, or below 1280 while there is an address of IPv6")]
    InvalidMtu,
    /// There is no such address, route or name server.
    #[error("no such address, route or name server")]
    NotFound,
    /// There are as many addresses, routes or name servers as may be.
    #[error("too many addresses, routes or name servers")]
    TooMany,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str, prefix: u8) -> Network {
        Network { address: text.parse().unwrap(), prefix }
    }

    #[test]
    fn route_01_a_prefix_has_the_addresses_that_begin_with_its_bits() {
        for (text, prefix, inside, outside) in [
            ("10.9.0.2", 24, "10.9.0.255", "10.9.1.0"),
            ("10.9.0.2", 31, "10.9.0.3", "10.9.0.4"),
            ("10.9.0.2", 32, "10.9.0.2", "10.9.0.3"),
            ("10.9.0.2", 1, "127.0.0.1", "128.0.0.1"),
            ("fd09::2", 64, "fd09::ffff:0:0:1", "fd09:0:0:1::"),
            ("fd09::2", 127, "fd09::3", "fd09::4"),
        ] {
            assert!(network(text, prefix).contains(inside.parse().unwrap()), "{text}/{prefix} has {inside}");
            assert!(!network(text, prefix).contains(outside.parse().unwrap()), "{text}/{prefix}: {outside}");
        }
        assert!(network("0.0.0.0", 0).contains("255.255.255.255".parse().unwrap()));
        assert!(!network("0.0.0.0", 0).contains("::".parse().unwrap()), "another family");
        assert!(network("::", 0).contains("ffff::".parse().unwrap()));
        assert!(!network("10.0.0.1", 33).is_valid() && network("::1", 128).is_valid());
    }

    #[test]
    fn addr_02_the_broadcast_address_of_a_network() {
        let of = |prefix| network("10.9.0.2", prefix).broadcast();
        assert_eq!(of(24), Some("10.9.0.255".parse().unwrap()));
        assert_eq!(of(8), Some("10.255.255.255".parse().unwrap()));
        assert_eq!((of(31), of(32)), (None, None), "RFC 3021");
        assert_eq!(network("fd09::2", 64).broadcast(), None);
    }
}
