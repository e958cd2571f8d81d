//! What a server of DHCP offers, and whether it can be true. RFC 2131 §4.4.5 (times), RFC 2132. Pure; called
//! by `dhcp.rs`.
//!
//! **What a stranger can do.** Everybody on an Ethernet can be a server, and no protocol here can prevent
//! that. But an offer is taken only if a host could live with it: an address that a host of its network can
//! have, a mask that is one, a lease that lasts longer than the check of its address takes. Of lists, four
//! addresses are kept; an MTU is believed from 576 bytes, which every host must take (RFC 791), to the
//! device's; times that would have the client ask more often than every ten seconds are replaced by those of
//! RFC 2131.

use core::net::{IpAddr, Ipv4Addr};

use taut_wire::{DhcpReply, FewAddresses};

use taut_core::is_host;
use taut_core::{Duration, Network};

/// A check takes seven seconds at most (RFC 5227 §1.1), and asking anew some more.
const LEASE_MIN_S: u32 = 30;
const RENEW_MIN_S: u32 = 10;
/// RFC 2132 §9.2: for ever.
const FOR_EVER_S: u32 = u32::MAX;
/// RFC 791: the longest packet that every host takes.
const MTU_MIN: u16 = 576;
/// No network is larger than the largest of those that had classes (RFC 791 §3.2).
const PREFIX_MIN: u8 = 8;

/// The terms of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) address: Ipv4Addr,
    pub(crate) prefix: u8,
    pub(crate) server: Ipv4Addr,
    pub(crate) routers: FewAddresses,
    pub(crate) name_servers: FewAddresses,
    pub(crate) mtu: Option<u16>,
    /// `None` if it is for ever.
    pub(crate) times: Option<Times>,
}

/// Times of a lease, counted from the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    /// T1: its server is asked.
    pub(crate) renew: Duration,
    /// T2: all servers are asked.
    pub(crate) rebind: Duration,
    pub(crate) end: Duration,
}

impl Terms {
    /// The terms of an answer; `None` if they make no sense. `mtu` is that of the device.
    pub(crate) fn of(reply: &DhcpReply, mtu: u16) -> Option<Self> {
        let (address, server) = (reply.address, reply.server?);
        let prefix = match reply.mask {
            Some(mask) => prefix_of(mask)?,
            None => prefix_of_class(address),
        };
        let network = Network { address: address.into(), prefix };
        if !is_host_of(network) || server.is_unspecified() || server.is_broadcast() || server.is_multicast() {
            return None;
        }
        // A host that has its network to itself reaches routers beyond it over the link; any other has them
        // in its network.
        let fits = |router: &Ipv4Addr| {
            let router = IpAddr::V4(*router);
            let is_near = prefix == 32 || network.contains(router);
            is_near && router != network.address && is_host_of(Network { address: router, prefix })
        };
        Some(Self {
            address,
            prefix,
            server,
            routers: reply.routers.iter().filter(fits).collect(),
            name_servers: reply.name_servers.iter().filter(|ip| is_host(IpAddr::V4(*ip))).collect(),
            mtu: reply.mtu.filter(|offered| (MTU_MIN..=mtu).contains(offered)),
            times: Times::of(reply)?,
        })
    }

    pub(crate) const fn network(&self) -> Network {
        Network { address: IpAddr::V4(self.address), prefix: self.prefix }
    }
}

impl Times {
    /// `Some(None)` is for ever, `None` too short, or not said.
    #[expect(clippy::option_option, reason = "no times, and times that make no sense, are two things")]
    fn of(reply: &DhcpReply) -> Option<Option<Self>> {
        let end = match reply.lease_s? {
            FOR_EVER_S => return Some(None),
            end if end < LEASE_MIN_S => return None,
            end => end,
        };
        // RFC 2131 §4.4.5.
        let (renew, rebind) = match (reply.renew_s, reply.rebind_s) {
            (Some(renew), Some(rebind)) if renew >= RENEW_MIN_S && renew < rebind && rebind < end => {
                (Duration::from_secs(renew.into()), Duration::from_secs(rebind.into()))
            }
            _ => (Duration::from_millis(u64::from(end) * 500), Duration::from_millis(u64::from(end) * 875)),
        };
        Some(Some(Self { renew, rebind, end: Duration::from_secs(end.into()) }))
    }
}

/// The length of a mask whose ones are all in front.
fn prefix_of(mask: Ipv4Addr) -> Option<u8> {
    let bits = mask.to_bits();
    let prefix = bits.leading_ones() as u8;
    (bits.count_ones() as u8 == prefix && prefix >= PREFIX_MIN).then_some(prefix)
}

/// RFC 791 §3.2.
const fn prefix_of_class(address: Ipv4Addr) -> u8 {
    match address.octets()[0] {
        0..128 => 8,
        128..192 => 16,
        _ => 24,
    }
}

/// Whether a host can have the address: none of a group, and not the first or last of the network (RFC 1122
/// §3.2.1.3), except where a network has two addresses (RFC 3021).
fn is_host_of(network: Network) -> bool {
    let IpAddr::V4(address) = network.address else { return false };
    let hosts = u32::MAX.checked_shr(network.prefix.into()).unwrap_or(0);
    let is_edge = hosts > 1 && [0, hosts].contains(&(address.to_bits() & hosts));
    is_host(network.address) && !is_edge
}
