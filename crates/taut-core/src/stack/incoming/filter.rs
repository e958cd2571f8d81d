//! Which new flows an application wants to see: addresses and ports that need not be the stack's own. taut's
//! own; Linux: TPROXY rules with `IP_TRANSPARENT`, gVisor: a forwarder. Asked for each SYN without a
//! listener.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ops::RangeInclusive;

use super::sources::DatagramFlowOptions;
use crate::settings::options::ConnOptions;
use crate::words::{Duration, Endpoint};

/// The protocol of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FlowKind {
    /// A connection.
    Tcp,
    /// Datagrams from one address and port to another.
    Udp,
    /// Echo requests of one identifier from one address to another: a program that pings.
    Echo,
}

impl FlowKind {
    /// One of each that are counted and listed together.
    pub(crate) const GROUPS: [Self; 2] = [Self::Tcp, Self::Udp];

    /// Whether it is a flow of datagrams, not a connection.
    #[must_use]
    pub const fn is_datagram(self) -> bool {
        !matches!(self, Self::Tcp)
    }
}

/// All addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpPrefix {
    address: IpAddr,
    len: u8,
}

impl IpPrefix {
    /// Addresses whose first `len` bits are those of `address`; `None` if an address has fewer bits.
    #[must_use]
    pub const fn new(address: IpAddr, len: u8) -> Option<Self> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        if len <= bits { Some(Self { address, len }) } else { None }
    }

    /// Any of its addresses.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// The number of bits that its addresses share.
    #[must_use]
    pub const fn prefix_len(&self) -> u8 {
        self.len
    }

    /// Whether it has this address. An address of the other family never is.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.address, ip) {
            (IpAddr::V4(own), IpAddr::V4(ip)) => {
                (own.to_bits() ^ ip.to_bits()).checked_shr(32 - u32::from(self.len)).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(ip)) => {
                (own.to_bits() ^ ip.to_bits()).checked_shr(128 - u32::from(self.len)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// The flows that [`Stack::incoming`](crate::Stack::incoming) yields: those of one of the kinds to one of the
/// prefixes and one of the ranges of ports. Echo flows have no port to select.
///
/// ```
/// use taut_core::{FlowFilter, FlowKind, IpPrefix};
///
/// let all = FlowFilter::any().kinds([FlowKind::Tcp, FlowKind::Udp, FlowKind::Echo]);
/// let web = FlowFilter::any().ports(80..=80).ports(443..=443);
/// let lab = FlowFilter::any().prefix(IpPrefix::new([10, 1, 0, 0].into(), 16).unwrap());
/// assert!(web.takes([192, 0, 2, 1].into(), 443) && !web.takes([192, 0, 2, 1].into(), 22));
/// assert!(lab.takes([10, 1, 2, 3].into(), 22) && !lab.takes([10, 2, 2, 3].into(), 22));
/// assert!(all.takes_kind(FlowKind::Udp) && !lab.takes_kind(FlowKind::Udp));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlowFilter {
    /// Any address if there is none.
    pub prefixes: Vec<IpPrefix>,
    /// Any port if there is none.
    pub ports: Vec<RangeInclusive<u16>>,
    /// TCP alone if there is none.
    pub kinds: Vec<FlowKind>,
}

impl FlowFilter {
    /// TCP to every address and every port.
    #[must_use]
    pub const fn any() -> Self {
        Self { prefixes: Vec::new(), ports: Vec::new(), kinds: Vec::new() }
    }

    /// The same with flows of these kinds; of others only if further calls add them.
    #[must_use]
    pub fn kinds(mut self, kinds: impl IntoIterator<Item = FlowKind>) -> Self {
        self.kinds.extend(kinds);
        self
    }

    /// The same with these addresses; others only if further calls add them.
    #[must_use]
    pub fn prefix(mut self, prefix: IpPrefix) -> Self {
        self.prefixes.push(prefix);
        self
    }

    /// The same with these ports; others only if further calls add them.
    #[must_use]
    pub fn ports(mut self, ports: RangeInclusive<u16>) -> Self {
        self.ports.push(ports);
        self
    }

    /// Whether it has this address.
    #[must_use]
    pub fn has_address(&self, ip: IpAddr) -> bool {
        self.prefixes.is_empty() || self.prefixes.iter().any(|prefix| prefix.contains(ip))
    }

    /// Whether it takes flows to this address and port.
    #[must_use]
    pub fn takes(&self, ip: IpAddr, port: u16) -> bool {
        self.has_address(ip)
            && (self.ports.is_empty() || self.ports.iter().any(|ports| ports.contains(&port)))
    }

    /// Whether it takes flows of this kind.
    #[must_use]
    pub fn takes_kind(&self, kind: FlowKind) -> bool {
        if self.kinds.is_empty() { kind == FlowKind::Tcp } else { self.kinds.contains(&kind) }
    }

    /// Whether it takes a flow of this kind to this end.
    pub(crate) fn takes_flow(&self, kind: FlowKind, local: Endpoint) -> bool {
        let takes_end = match kind {
            FlowKind::Tcp | FlowKind::Udp => self.takes(local.ip(), local.port()),
            FlowKind::Echo => self.has_address(local.ip()),
        };
        takes_end && self.takes_kind(kind)
    }
}

/// Limits and defaults of the flows of a filter. Where nothing else is said, limits are those of TCP flows.
#[derive(Clone, Debug)]
pub struct IncomingOptions {
    /// The most flows that are pending, or accepted with a handshake that is not complete.
    pub max_pending: u32,
    /// The most of them from one source: an IPv4 address, or the first 64 bits of an IPv6 address. By default
    /// half of [`max_pending`](Self::max_pending), so that no source alone keeps others out.
    pub max_pending_per_peer: u32,
    /// The most flows and connections of this filter, from their SYN until they are over; further SYNs are
    /// dropped.
    pub max_connections: u32,
    /// The most of them from one source.
    pub max_per_peer: u32,
    /// How long a flow of any kind may be pending, and how long a dropped one is remembered. By default 130
    /// s: a kernel gives up its SYN after 127 or, since Linux 6.5, 131 s; the last one leaves after 67 s at
    /// most.
    pub timeout: Duration,
    /// When as many flows are pending as may be: a further SYN is answered by a cookie, if `tcp_syncookies`
    /// allows that, instead of being dropped. Such a flow is connected before the application hears of it, by
    /// [`Stack::accept`](crate::Stack::accept).
    pub cookies_when_full: bool,
    /// The options of connections, unless the flow is accepted with others.
    pub conn: ConnOptions,
    /// Limits and defaults of UDP and echo flows, which are counted apart.
    pub datagrams: DatagramFlowOptions,
}

impl Default for IncomingOptions {
    fn default() -> Self {
        Self {
            max_pending: 16_384,
            max_pending_per_peer: 8_192,
            max_connections: u32::MAX,
            max_per_peer: u32::MAX,
            timeout: Duration::from_secs(130),
            cookies_when_full: false,
            conn: ConnOptions::default(),
            datagrams: DatagramFlowOptions::default(),
        }
    }
}

/// Whether a packet to this address can concern any host: not "this network", not a loopback address, not
/// many hosts at once (RFC 1122 §3.2.1.3, RFC 4291 §2.5). Linux: a martian destination.
pub(crate) fn is_routable(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let is_this_network = ip.octets()[0] == Ipv4Addr::UNSPECIFIED.octets()[0];
            !(is_this_network || ip.is_loopback() || ip.is_multicast() || ip.is_broadcast())
        }
        IpAddr::V6(ip) => {
            let is_mapped = ip.to_ipv4_mapped().is_some();
            !(ip == Ipv6Addr::UNSPECIFIED || ip.is_loopback() || ip.is_multicast() || is_mapped)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_01_prefixes_and_ports_select() {
        for (prefix, len, inside, outside) in [
            ("10.1.0.0", 16, "10.1.255.255", "10.2.0.0"),
            ("192.0.2.7", 32, "192.0.2.7", "192.0.2.6"),
            ("128.0.0.0", 1, "255.0.0.1", "127.255.255.255"),
            ("2001:db8::", 32, "2001:db8:ffff::1", "2001:db9::"),
            ("fd00::1", 128, "fd00::1", "fd00::2"),
        ] {
            let prefix = IpPrefix::new(prefix.parse().unwrap(), len).unwrap();
            let filter = FlowFilter::any().prefix(prefix).ports(80..=90).ports(443..=443);
            let (inside, outside): (IpAddr, IpAddr) = (inside.parse().unwrap(), outside.parse().unwrap());
            for (port, is_taken) in
                [(79, false), (80, true), (90, true), (91, false), (443, true), (444, false)]
            {
                assert_eq!(filter.takes(inside, port), is_taken, "{inside}:{port}");
                assert!(!filter.takes(outside, port), "{outside}:{port}");
            }
        }
        // A prefix of no bits is a whole family, and no other.
        let all = FlowFilter::any().prefix(IpPrefix::new([0, 0, 0, 0].into(), 0).unwrap());
        assert!(all.takes([203, 0, 113, 9].into(), 1) && !all.takes("2001:db8::1".parse().unwrap(), 1));
        assert!(FlowFilter::any().takes("2001:db8::1".parse().unwrap(), u16::MAX));
        // TCP alone, unless kinds are named; an echo request has no port.
        let (all, udp) = (FlowFilter::any(), FlowFilter::any().ports(53..=53).kinds([FlowKind::Udp]));
        let both = FlowFilter::any().ports(53..=53).kinds([FlowKind::Tcp, FlowKind::Echo]);
        let at = |port| Endpoint::new([203, 0, 113, 9].into(), port);
        for (kind, takes) in [
            (FlowKind::Tcp, [true, false, true, false]),
            (FlowKind::Udp, [false, true, false, false]),
            (FlowKind::Echo, [false, false, true, true]),
        ] {
            let got = [(&all, 53), (&udp, 53), (&both, 53), (&both, 54)];
            assert_eq!(got.map(|(filter, port)| filter.takes_flow(kind, at(port))), takes, "{kind:?}");
        }
        assert_eq!(IpPrefix::new([10, 0, 0, 0].into(), 33), None);
        assert_eq!(IpPrefix::new("::".parse().unwrap(), 129), None);
    }
}
