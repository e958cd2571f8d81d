//! The largest packet that reaches a destination, for senders without a connection. RFC 1191 §6.3, RFC 8201
//! §5.2; Linux: route exceptions, `mtu_expires`. Called by the sends of datagram sockets; a TCP connection
//! has its own (`egress/size/path_mtu.rs`).
//!
//! **Rule.** An error that quotes a packet of a socket of ours lowers the MTU to its destination, never below
//! the least that a path may have, for ten minutes. A stranger who guesses such a packet slows one
//! destination down, and no more than to that. The table has 1,024 destinations; the oldest gives way.

use alloc::collections::{BTreeMap, VecDeque};
use core::net::IpAddr;

use crate::words::{Duration, Endpoint, Instant};

/// Linux: `mtu_expires`.
const EXPIRES: Duration = Duration::from_secs(600);
/// The least MTU that is believed. Linux: `min_pmtu`, 552; RFC 8200 §5.
const LEAST: [u16; 2] = [552, 1_280];
/// Destinations that are remembered.
const PATHS_MAX: usize = 1_024;

#[derive(Debug, Default)]
pub(crate) struct PathMtus {
    paths: BTreeMap<[u8; 16], (u16, Instant)>,
    /// The destinations, in the order in which they were added; some may be there twice.
    by_age: VecDeque<[u8; 16]>,
}

fn key(ip: IpAddr) -> [u8; 16] {
    *Endpoint::new(ip, 0).ip_bytes()
}

impl PathMtus {
    /// The MTU to a destination over a link with this one.
    pub(crate) fn get(&self, now: Instant, to: IpAddr, link_mtu: u16) -> u16 {
        match self.paths.get(&key(to)) {
            Some(&(mtu, until)) if now < until => mtu.min(link_mtu),
            _ => link_mtu,
        }
    }

    /// ICMP tells an MTU; 0 from a router that does not know (RFC 1191 §5), which is taken for the least.
    pub(crate) fn lower(&mut self, now: Instant, to: IpAddr, told: u32, link_mtu: u16) {
        let least = LEAST[usize::from(to.is_ipv6())];
        let mtu = u16::try_from(told).unwrap_or(u16::MAX).max(least);
        if mtu >= self.get(now, to, link_mtu) {
            return;
        }
        let key = key(to);
        if self.paths.insert(key, (mtu, now + EXPIRES)).is_none() {
            self.by_age.push_back(key);
        }
        while self.paths.len() > PATHS_MAX {
            let Some(oldest) = self.by_age.pop_front() else { return };
            self.paths.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frag_12_a_path_is_known_for_ten_minutes_and_never_below_the_least() {
        let (mut paths, now) = (PathMtus::default(), Instant::from_nanos(1));
        let (v4, v6) = (IpAddr::from([10, 0, 0, 1]), "fd00::1".parse().unwrap());
        paths.lower(now, v4, 1_400, 1_500);
        assert_eq!((paths.get(now, v4, 1_500), paths.get(now, v6, 1_500)), (1_400, 1_500));
        paths.lower(now, v4, 1_450, 1_500);
        assert_eq!(paths.get(now, v4, 1_500), 1_400, "an error never raises it");
        paths.lower(now, v4, 68, 1_500);
        paths.lower(now, v6, 68, 1_500);
        assert_eq!((paths.get(now, v4, 1_500), paths.get(now, v6, 1_500)), (552, 1_280));
        assert_eq!(paths.get(now + Duration::from_secs(599), v4, 1_500), 552);
        assert_eq!(paths.get(now + Duration::from_secs(600), v4, 1_500), 1_500);
    }

    #[test]
    fn frag_13_a_flood_of_errors_fills_1024_places() {
        let (mut paths, now) = (PathMtus::default(), Instant::from_nanos(1));
        for n in 0..10_000_u32 {
            paths.lower(now, IpAddr::from(n.to_be_bytes()), 1_000, 1_500);
        }
        assert_eq!((paths.paths.len(), paths.by_age.len()), (1_024, 1_024));
        assert_eq!(paths.get(now, IpAddr::from(9_999_u32.to_be_bytes()), 1_500), 1_000, "the latest");
    }
}
