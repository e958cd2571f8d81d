//! The addresses of a link's two ends, one of each family that this kernel supports. Called by code that
//! makes links.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use taut_device::Cidr;

/// The networks `10.N.0.0/24` and `fdNN::/64` of a link, by N. The tested end is host 2, its peer host 1;
/// host 3 may be beside the tested end, and host 4 a router between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnet(pub u8);

impl Subnet {
    /// Whether this kernel supports IPv6; without it, subnets have only their IPv4 addresses.
    #[must_use]
    pub fn has_ipv6() -> bool {
        Path::new("/proc/net/if_inet6").exists()
    }

    /// Addresses of the tested end, IPv4 first.
    #[must_use]
    pub fn near(self) -> Vec<Cidr> {
        self.host(self.near_v4())
    }

    /// Addresses of its peer, in the same order.
    #[must_use]
    pub fn far(self) -> Vec<Cidr> {
        self.host(self.far_v4())
    }

    /// The IPv4 address of the tested end.
    #[must_use]
    pub const fn near_v4(self) -> Ipv4Addr {
        Ipv4Addr::new(10, self.0, 0, 2)
    }

    /// The IPv4 address of its peer.
    #[must_use]
    pub const fn far_v4(self) -> Ipv4Addr {
        Ipv4Addr::new(10, self.0, 0, 1)
    }

    /// The IPv4 address of a router between them.
    #[must_use]
    pub const fn router_v4(self) -> Ipv4Addr {
        Ipv4Addr::new(10, self.0, 0, 4)
    }

    /// Addresses of another host at the near end, beside the tested one.
    #[must_use]
    pub fn beside(self) -> Vec<Cidr> {
        self.host(Ipv4Addr::new(10, self.0, 0, 3))
    }

    fn host(self, v4: Ipv4Addr) -> Vec<Cidr> {
        let network = 0xfd00 | u16::from(self.0);
        let v6 = Ipv6Addr::new(network, 0, 0, 0, 0, 0, 0, u16::from(v4.octets()[3]));
        let both = [Cidr::new(IpAddr::V4(v4), 24), Cidr::new(IpAddr::V6(v6), 64)];
        both.into_iter().flatten().take(if Self::has_ipv6() { 2 } else { 1 }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_in_the_same_networks() {
        let texts = |cidrs: Vec<Cidr>| cidrs.iter().map(ToString::to_string).collect::<Vec<_>>();
        let families = if Subnet::has_ipv6() { 2 } else { 1 };
        assert_eq!(texts(Subnet(9).near()), ["10.9.0.2/24", "fd09::2/64"][..families]);
        assert_eq!(texts(Subnet(9).beside()), ["10.9.0.3/24", "fd09::3/64"][..families]);
        assert_eq!(texts(Subnet(9).far()), ["10.9.0.1/24", "fd09::1/64"][..families]);
    }
}
