//! How many connections a listener has, in all and of each peer, and the caps that its application sets on
//! them. taut's own; Linux leaves this to `iptables -m connlimit`. Called for SYNs and cookies, and when a
//! connection is over.
//!
//! **Problem.** A backlog bounds what waits, not what is accepted: one peer can open connections until there
//! is no memory for those of others.
//!
//! **Rule.** A SYN beyond a cap is dropped without an answer, and so is an ACK that brings back a cookie: the
//! peer repeats them, and there may be room then. A peer is an IPv4 address, or 64 bits of an IPv6 address,
//! since a host commonly has as many as it likes below such a prefix. A forged source can fill the cap on the
//! half-open connections of a peer, but not that on all of them for longer than a handshake may take; so the
//! former should be the smaller one.
//!
//! Peers are counted only if a cap on them is set.

use alloc::collections::BTreeMap;
use core::net::IpAddr;

use crate::settings::options::ListenOptions;

/// The connections of a listener, from their SYN on until no packet can reach them any more.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    all: u32,
    peers: BTreeMap<u128, PerPeer>,
}

#[derive(Clone, Copy, Debug, Default)]
struct PerPeer {
    half_open: u32,
    all: u32,
}

/// The peer that an address belongs to.
pub(crate) fn key(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
        IpAddr::V6(ip) => ip.to_bits() >> 64 << 64,
    }
}

fn counts_peers(options: &ListenOptions) -> bool {
    options.max_per_peer < u32::MAX || options.max_half_open_per_peer < u32::MAX
}

impl Counts {
    /// Whether one more connection of this peer may begin.
    pub(crate) fn may_begin(&self, options: &ListenOptions, peer: IpAddr) -> bool {
        if self.all >= options.max_connections {
            return false;
        }
        let own = self.peers.get(&key(peer)).copied().unwrap_or_default();
        own.all < options.max_per_peer && own.half_open < options.max_half_open_per_peer
    }

    /// One begins, half-open.
    pub(crate) fn add(&mut self, options: &ListenOptions, peer: IpAddr) {
        self.all += 1;
        if counts_peers(options) {
            let own = self.peers.entry(key(peer)).or_default();
            own.half_open += 1;
            own.all += 1;
        }
    }

    /// The handshake of one has ended, in success or failure.
    pub(crate) fn leave_half_open(&mut self, peer: IpAddr) {
        if let Some(own) = self.peers.get_mut(&key(peer)) {
            own.half_open = own.half_open.saturating_sub(1);
        }
    }

    /// One is over.
    pub(crate) fn remove(&mut self, peer: IpAddr) {
        self.all = self.all.saturating_sub(1);
        let key = key(peer);
        if let Some(own) = self.peers.get_mut(&key) {
            own.all = own.all.saturating_sub(1);
            if own.all == 0 {
                self.peers.remove(&key);
            }
        }
    }
}
