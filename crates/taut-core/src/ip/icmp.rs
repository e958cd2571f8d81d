//! How often this host sends ICMP errors. RFC 1812 §4.3.2.8, RFC 4443 §2.4(f); Linux: `icmp_ratelimit`,
//! `icmp_msgs_per_sec`, `icmp_msgs_burst`. Called by `stack/icmp.rs` before each error.
//!
//! **Problem.** Each packet to a closed port is answered. A flood would make this host a reflector, and the
//! counts of its answers tell a stranger which ports others use (SAD DNS, CVE-2020-25705).
//!
//! **Rule.** Two buckets of tokens, and an error takes one from each: one for all errors, with 1,000 tokens a
//! second and at most 50; and one for each peer, with one a second and at most 6. Echo replies take none, as
//! with Linux's `icmp_ratemask`.
//!
//! **State.** A bucket is one instant: when it will be full again. The peers share 256 buckets, chosen by a
//! keyed hash, so a flood from many addresses costs 2 KiB; peers that share one share its tokens.

use alloc::boxed::Box;
use core::net::IpAddr;

use siphasher::sip::SipHasher13;

use crate::words::{Duration, Endpoint, Instant};

/// Buckets of peers.
const BUCKETS: usize = 256;

/// The rates. Linux's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IcmpConfig {
    /// Least average time between two errors to one peer; none for zero. Linux: `icmp_ratelimit`.
    pub ratelimit: Duration,
    /// Errors a second to all peers. Linux: `icmp_msgs_per_sec`.
    pub msgs_per_sec: u32,
    /// The most of them at once. Linux: `icmp_msgs_burst`.
    pub msgs_burst: u32,
}

/// The most errors to one peer at once. Linux: `XRLIM_BURST_FACTOR`.
const PEER_BURST: u64 = 6;

impl Default for IcmpConfig {
    fn default() -> Self {
        Self { ratelimit: Duration::from_secs(1), msgs_per_sec: 1_000, msgs_burst: 50 }
    }
}

/// Both limits.
#[derive(Debug)]
pub(crate) struct Limit {
    all: Bucket,
    peers: Option<Box<[Bucket; BUCKETS]>>,
    hasher: SipHasher13,
}

/// Full from this instant on.
#[derive(Clone, Copy, Debug)]
struct Bucket(Instant);

impl Bucket {
    /// Whether it has a token, each of which takes `every` to come.
    fn has_token(self, now: Instant, every: Duration, burst: u64) -> bool {
        self.0.since(now) + every <= every * burst
    }

    fn take(&mut self, now: Instant, every: Duration) {
        self.0 = self.0.max(now) + every;
    }
}

impl Limit {
    pub(crate) fn new((k0, k1): (u64, u64)) -> Self {
        Self { all: Bucket(Instant::ZERO), peers: None, hasher: SipHasher13::new_with_keys(k0, k1) }
    }

    /// Whether an error may be sent that an application decided about: only the limit on all of them holds,
    /// so that each of a peer's flows may be refused. If so, it counts as sent.
    pub(crate) fn allows_refusal(&mut self, config: &IcmpConfig, now: Instant) -> bool {
        let every = Duration::from_nanos(1_000_000_000 / u64::from(config.msgs_per_sec.max(1)));
        let has_token = self.all.has_token(now, every, config.msgs_burst.into());
        if has_token {
            self.all.take(now, every);
        }
        has_token
    }

    /// Whether an error may be sent to `peer` now; if so, it counts as sent.
    pub(crate) fn allows(&mut self, config: &IcmpConfig, now: Instant, peer: IpAddr) -> bool {
        let every = Duration::from_nanos(1_000_000_000 / u64::from(config.msgs_per_sec.max(1)));
        let burst = u64::from(config.msgs_burst);
        let index = self.hasher.hash(Endpoint::new(peer, 0).ip_bytes()) as usize % BUCKETS;
        let peers = self.peers.get_or_insert_with(|| Box::new([Bucket(Instant::ZERO); BUCKETS]));
        let Some(own) = peers.get_mut(index) else { return false };
        if !self.all.has_token(now, every, burst) || !own.has_token(now, config.ratelimit, PEER_BURST) {
            return false;
        }
        self.all.take(now, every);
        own.take(now, config.ratelimit);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(limit: &mut Limit, now: Instant, peers: impl Iterator<Item = IpAddr>) -> usize {
        let config = IcmpConfig::default();
        peers.filter(|&peer| limit.allows(&config, now, peer)).count()
    }

    const fn peer(n: u32) -> IpAddr {
        IpAddr::V4(core::net::Ipv4Addr::from_bits(0x0a00_0000 + n))
    }

    #[test]
    fn icmp_05_six_errors_to_one_peer_and_then_one_a_second() {
        let mut limit = Limit::new((1, 2));
        let start = Instant::from_nanos(100_000_000_000);
        let hundred = || core::iter::repeat_n(peer(1), 100);
        assert_eq!(allowed(&mut limit, start, hundred()), 6);
        for second in 1..5 {
            assert_eq!(allowed(&mut limit, start + Duration::from_secs(second), hundred()), 1);
        }
        assert_eq!(
            allowed(&mut limit, start + Duration::from_secs(60), hundred()),
            6,
            "no more than six are saved"
        );
    }

    #[test]
    fn icmp_06_fifty_errors_to_all_peers_and_then_a_thousand_a_second() {
        let mut limit = Limit::new((1, 2));
        let start = Instant::from_nanos(100_000_000_000);
        assert_eq!(allowed(&mut limit, start, (0..10_000).map(peer)), 50);
        assert_eq!(allowed(&mut limit, start + Duration::from_millis(10), (10_000..20_000).map(peer)), 10);
        assert!(size_of::<[Bucket; BUCKETS]>() == 2_048, "what the peers take, however many they are");
    }
}
