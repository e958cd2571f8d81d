//! Addresses as tables keep them: 18 bytes for both families, where `SocketAddr` takes 32.
//! Origin: RFC 4291 §2.5.5.2, IPv4-mapped IPv6 addresses.
//! Called by demultiplexing and by everything that remembers a peer.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The 96 bits in front of a mapped address.
const IPV4_MAPPED: u128 = 0xffff;

/// An address and a port. IPv4 is kept mapped into IPv6, and comes back out as IPv4.
///
/// This is unambiguous, because a mapped address is not valid in an IPv6 packet (RFC 4291 §2.5.5.2 gives it a
/// meaning inside a host only). Flow label and scope are not kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Endpoint {
    ip: [u8; 16],
    port: u16,
}

impl Endpoint {
    pub(crate) const fn new(ip: IpAddr, port: u16) -> Self {
        let ip = match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        Self { ip: ip.octets(), port }
    }

    /// The address, of IPv4 if it is mapped: `to_canonical`, in a sixth of its instructions. It is asked
    /// twice for each packet.
    #[inline]
    pub(crate) const fn ip(self) -> IpAddr {
        let bits = u128::from_be_bytes(self.ip);
        if bits >> 32 == IPV4_MAPPED {
            IpAddr::V4(Ipv4Addr::from_bits(bits as u32))
        } else {
            IpAddr::V6(Ipv6Addr::from_bits(bits))
        }
    }

    pub(crate) const fn port(self) -> u16 {
        self.port
    }

    pub(crate) const fn is_ipv4(self) -> bool {
        self.ip().is_ipv4()
    }

    /// The 16 bytes of the address: for hashing.
    pub(crate) const fn ip_bytes(&self) -> &[u8; 16] {
        &self.ip
    }

    pub(crate) const fn socket_addr(self) -> SocketAddr {
        SocketAddr::new(self.ip(), self.port)
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(addr: SocketAddr) -> Self {
        Self::new(addr.ip(), addr.port())
    }
}

impl From<Endpoint> for SocketAddr {
    fn from(endpoint: Endpoint) -> Self {
        endpoint.socket_addr()
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket_addr().fmt(f)
    }
}

/// This end and the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tuple {
    pub(crate) local: Endpoint,
    pub(crate) peer: Endpoint,
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn both_families_come_back() {
        let near = ["[::fffe:c000:201]:4", "[::1:ffff:c000:201]:5", "[8000::ffff:c000:201]:6"];
        for text in
            ["192.0.2.1:80", "[2001:db8::1]:443", "0.0.0.0:1", "[::]:2", "[::1]:3"].into_iter().chain(near)
        {
            let addr: SocketAddr = text.parse().unwrap();
            let endpoint = Endpoint::from(addr);
            assert_eq!(SocketAddr::from(endpoint).to_string(), text);
            assert_eq!(endpoint.is_ipv4(), addr.is_ipv4());
            assert_eq!(endpoint.port(), addr.port());
        }
        let mapped = Endpoint::new("::ffff:192.0.2.1".parse().unwrap(), 0);
        assert_eq!(mapped.ip().to_string(), "192.0.2.1");
        assert_eq!(size_of::<Endpoint>(), 18);
    }
}
