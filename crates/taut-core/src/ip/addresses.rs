//! The addresses of a host, and which of them a packet comes from. RFC 6724 §3 and §5; for IPv4, RFC 1122
//! §3.3.4.3 and Linux's `inet_select_addr`. Called by `stack/network.rs`.
//!
//! **Rule.** Of IPv6, as RFC 6724 §5 orders them: an address of at least the destination's scope; one that is
//! not deprecated; one of the same kind (`label`: native, 6to4, unique local); the one that has most bits in
//! common. Of IPv4: of a fitting scope, not deprecated, and of the next hop's network. What is left is
//! decided by the order in which they were added.
//!
//! Rules 4 and 5 are about mobile hosts and several interfaces, rule 7 about temporary addresses: there are
//! none here.

use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::{IpAddr, Ipv6Addr};

use crate::words::{Network, NetworkError, common_bits};

/// The most addresses of a host.
const ADDRESSES_MAX: usize = 256;

/// One address of this host.
#[derive(Clone, Copy, Debug)]
struct Own {
    network: Network,
    is_deprecated: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Addresses {
    list: Vec<Own>,
}

/// Whether a host can have this address at all, on a link.
#[must_use]
pub fn is_host(ip: IpAddr) -> bool {
    let is_other = match ip {
        // 0/8 is "this network". Linux takes what was reserved in 1989, 240/4, for ordinary addresses.
        IpAddr::V4(ip) => ip.octets()[0] == 0 || ip.is_broadcast(),
        IpAddr::V6(ip) => !cfg!(feature = "ipv6") || ip.to_ipv4_mapped().is_some(),
    };
    !(is_other || ip.is_unspecified() || ip.is_multicast() || ip.is_loopback())
}

impl Addresses {
    /// The addresses of a configuration, of whose networks nothing is known.
    pub(crate) fn of(addresses: &[IpAddr]) -> Self {
        let own = |&address: &IpAddr| Own { network: Network::host(address), is_deprecated: false };
        Self { list: addresses.iter().map(own).collect() }
    }

    /// # Errors
    /// [`NetworkError::InvalidAddress`] or [`NetworkError::TooMany`].
    pub(crate) fn add(&mut self, network: Network) -> Result<(), NetworkError> {
        let is_edge = network.broadcast() == Some(network.address);
        if !is_host(network.address) || !network.is_valid() || is_edge {
            return Err(NetworkError::InvalidAddress);
        }
        if let Some(own) = self.find(network.address) {
            own.network = network;
            return Ok(());
        }
        if self.list.len() >= ADDRESSES_MAX {
            return Err(NetworkError::TooMany);
        }
        self.list.push(Own { network, is_deprecated: false });
        Ok(())
    }

    /// # Errors
    /// [`NetworkError::NotFound`].
    pub(crate) fn remove(&mut self, address: IpAddr) -> Result<(), NetworkError> {
        let at = self.list.iter().position(|own| own.network.address == address);
        self.list.remove(at.ok_or(NetworkError::NotFound)?);
        Ok(())
    }

    /// # Errors
    /// [`NetworkError::NotFound`].
    pub(crate) fn deprecate(&mut self, address: IpAddr, is_deprecated: bool) -> Result<(), NetworkError> {
        self.find(address).ok_or(NetworkError::NotFound)?.is_deprecated = is_deprecated;
        Ok(())
    }

    pub(crate) fn is_deprecated(&self, address: IpAddr) -> bool {
        self.list.iter().any(|own| own.network.address == address && own.is_deprecated)
    }

    fn find(&mut self, address: IpAddr) -> Option<&mut Own> {
        self.list.iter_mut().find(|own| own.network.address == address)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Network> + '_ {
        self.list.iter().map(|own| own.network)
    }

    /// Whether packets to this address go to every host of a network: 255.255.255.255, or that of one of our
    /// networks.
    pub(crate) fn is_broadcast(&self, ip: IpAddr) -> bool {
        matches!(ip, IpAddr::V4(ip) if ip.is_broadcast())
            || self.iter().any(|network| network.broadcast() == Some(ip))
    }

    /// The source of packets to `to`, whose next hop is `hop`.
    pub(crate) fn source(&self, to: IpAddr, hop: IpAddr) -> Option<IpAddr> {
        let fitting = self.list.iter().filter(|own| own.network.address.is_ipv4() == to.is_ipv4());
        // The least key is the best; of equal ones, the first.
        fitting.min_by_key(|own| key(own, to, hop)).map(|own| own.network.address)
    }
}

/// RFC 6724 §5, as a key whose least value is the best.
fn key(own: &Own, to: IpAddr, hop: IpAddr) -> (bool, u8, bool, bool, Reverse<u8>) {
    let address = own.network.address;
    let (scope, wanted) = (scope(address), scope(to));
    // Rule 2: a scope that reaches the destination, and of those the least; else the widest.
    let is_short = scope < wanted;
    let distance = if is_short { u8::MAX - scope } else { scope };
    // Rule 6.
    let (is_other, common) = match (address, to) {
        (IpAddr::V6(own_ip), IpAddr::V6(to_ip)) => {
            // Rule 8; "CommonPrefixLen(S, D)" is at most the length of S's prefix (§2.2).
            let common = common_bits(address, to).unwrap_or(0).min(own.network.prefix);
            (label(own_ip) != label(to_ip), common)
        }
        _ => (!own.network.contains(hop), 0),
    };
    (is_short, distance, own.is_deprecated, is_other, Reverse(common))
}

/// RFC 6724 §3.1 and §3.2: interface-local 1, link-local 2, site-local 5, global 14.
fn scope(ip: IpAddr) -> u8 {
    const LINK: u8 = 2;
    const SITE: u8 = 5;
    const GLOBAL: u8 = 14;
    match ip {
        IpAddr::V4(ip) if ip.is_link_local() || ip.is_loopback() => LINK,
        IpAddr::V4(_) => GLOBAL,
        IpAddr::V6(ip) if ip.is_multicast() => ip.octets()[1] & 0x0f,
        IpAddr::V6(ip) if ip.is_unicast_link_local() || ip.is_loopback() => LINK,
        IpAddr::V6(ip) if ip.segments()[0] & 0xffc0 == 0xfec0 => SITE,
        IpAddr::V6(_) => GLOBAL,
    }
}

/// The labels of RFC 6724 §2.1's policy table. Longer prefixes come first.
fn label(ip: Ipv6Addr) -> u8 {
    const POLICY: [(Ipv6Addr, u8, u8); 8] = [
        (Ipv6Addr::LOCALHOST, 128, 0),
        (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, 4),
        (Ipv6Addr::UNSPECIFIED, 96, 3),
        (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, 5),
        (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, 2),
        (Ipv6Addr::new(0x3ffe, 0, 0, 0, 0, 0, 0, 0), 16, 12),
        (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, 11),
        (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, 13),
    ];
    const NATIVE: u8 = 1;
    let has = |&&(prefix, bits, _): &&(Ipv6Addr, u8, u8)| {
        Network { address: prefix.into(), prefix: bits }.contains(ip.into())
    };
    POLICY.iter().find(has).map_or(NATIVE, |&(_, _, label)| label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn addresses(all: &[(&str, u8)]) -> Addresses {
        let mut addresses = Addresses::default();
        for &(text, prefix) in all {
            addresses.add(Network { address: ip(text), prefix }).unwrap();
        }
        addresses
    }

    /// The examples of RFC 6724 §10.1, with the sources in both orders.
    #[test]
    fn addr_05_the_examples_of_rfc_6724() {
        for (to, candidates, chosen) in [
            ("2001:db8:1::1", ["2001:db8:3::1", "fe80::1"], "2001:db8:3::1"),
            ("ff05::1", ["2001:db8:3::1", "fe80::1"], "2001:db8:3::1"),
            ("2001:db8:1::1", ["2001:db8:1::2", "2001:db8:3::2"], "2001:db8:1::2"),
            ("fe80::1", ["fe80::2", "2001:db8:1::2"], "fe80::2"),
            (
                "2002:c633:6401::1",
                ["2002:c633:6401::d5e3:7953:13eb:22e8", "2001:db8:1::2"],
                "2002:c633:6401::d5e3:7953:13eb:22e8",
            ),
            // The label, against more bits in common: a unique local address is not used beyond its site.
            ("3001::1", ["2001:db8::2", "fd00::2"], "2001:db8::2"),
            ("fd11::1", ["2001:db8::2", "fd00::2"], "fd00::2"),
        ] {
            for order in [[0, 1], [1, 0]] {
                let own = addresses(&order.map(|at| (candidates[at], 64)));
                assert_eq!(own.source(ip(to), ip("fe80::99")), Some(ip(chosen)), "to {to}");
            }
        }
    }

    #[test]
    fn addr_05_a_deprecated_address_only_if_there_is_no_other() {
        let mut own = addresses(&[("2001:db8:1::2", 64), ("2001:db8:3::2", 64), ("fe80::2", 64)]);
        let to = ip("2001:db8:1::1");
        own.deprecate(ip("2001:db8:1::2"), true).unwrap();
        assert_eq!(own.source(to, to), Some(ip("2001:db8:3::2")), "rule 3 is before rule 8");
        own.deprecate(ip("2001:db8:3::2"), true).unwrap();
        assert_eq!(own.source(to, to), Some(ip("2001:db8:1::2")), "rule 2 is before rule 3");
        own.deprecate(ip("2001:db8:3::2"), false).unwrap();
        own.remove(ip("2001:db8:3::2")).unwrap();
        assert_eq!(own.source(to, to), Some(ip("2001:db8:1::2")));
        assert_eq!(own.deprecate(ip("2001:db8:3::2"), true), Err(NetworkError::NotFound));
        let mut own = addresses(&[("2001:db8::2", 64), ("fd00::2", 64)]);
        own.deprecate(ip("2001:db8::2"), true).unwrap();
        assert_eq!(own.source(ip("3001::1"), ip("fe80::1")), Some(ip("fd00::2")), "rule 3 is before rule 6");
    }

    /// The bits in common are counted up to the length of the source's prefix: beyond it they are chance.
    #[test]
    fn addr_05_bits_behind_the_prefix_do_not_count() {
        let own = addresses(&[("2001:db8::1", 48), ("2001:db8:0:1::2", 48)]);
        assert_eq!(own.source(ip("2001:db8:0:1::9"), ip("fe80::1")), Some(ip("2001:db8::1")), "the first");
        let own = addresses(&[("2001:db8::1", 64), ("2001:db8:0:1::2", 64)]);
        assert_eq!(own.source(ip("2001:db8:0:1::9"), ip("fe80::1")), Some(ip("2001:db8:0:1::2")));
    }

    #[test]
    fn addr_06_of_ipv4_the_address_of_the_next_hops_network() {
        let own = addresses(&[("169.254.3.4", 16), ("10.8.0.2", 24), ("10.9.0.2", 24), ("fd09::2", 64)]);
        let source = |to: &str, hop: &str| own.source(ip(to), ip(hop));
        assert_eq!(source("10.9.0.7", "10.9.0.7"), Some(ip("10.9.0.2")));
        assert_eq!(source("192.0.2.1", "10.9.0.1"), Some(ip("10.9.0.2")));
        assert_eq!(source("192.0.2.1", "10.7.0.1"), Some(ip("10.8.0.2")), "the first of global scope");
        assert_eq!(source("169.254.9.9", "169.254.9.9"), Some(ip("169.254.3.4")));
        assert_eq!(addresses(&[("fd09::2", 64)]).source(ip("10.0.0.1"), ip("10.0.0.1")), None);
    }

    #[test]
    fn addr_01_what_cannot_be_a_hosts_address_is_refused() {
        let mut own = Addresses::default();
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "ff02::1",
            "::ffff:10.0.0.1",
        ] {
            assert_eq!(own.add(Network::host(ip(text))), Err(NetworkError::InvalidAddress), "{text}");
        }
        for (text, prefix) in [("10.0.0.255", 24), ("10.0.0.1", 33), ("fd09::1", 129)] {
            let network = Network { address: ip(text), prefix };
            assert_eq!(own.add(network), Err(NetworkError::InvalidAddress), "{text}/{prefix}");
        }
        for n in 1..=1_000_u32 {
            _ = own.add(Network::host(IpAddr::from((0x0a00_0000 + n).to_be_bytes())));
        }
        assert_eq!(own.iter().count(), 256, "bounded");
        assert_eq!(own.add(Network::host(ip("10.0.0.1"))), Ok(()), "one that is there");
    }
}
