//! Numbers that an attacker must not guess: initial sequence numbers, timestamp offsets, local ports.
//! RFC 6528, RFC 7323 §5.4, RFC 6056 §3.3.3, RFC 4987 §3.6; called by the stack when a connection is made.

use core::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::words::{Endpoint, Instant, Tuple};

/// Keys drawn from the seed, one for each use.
#[derive(Debug)]
pub(crate) struct Secrets {
    isn: (u64, u64),
    rest: (u64, u64),
}

/// The purpose of a hash, so that the value of one reveals nothing about another.
#[derive(Clone, Copy)]
enum Purpose {
    Timestamps = 1,
    Port = 2,
    Cookie = 3,
    DatagramPort = 4,
    Fragment = 5,
    Datagrams = 6,
    IcmpPeers = 7,
}

fn feed(hasher: &mut SipHasher13, endpoint: Endpoint) {
    hasher.write(endpoint.ip_bytes());
    hasher.write_u16(endpoint.port());
}

impl Secrets {
    /// From 32 random bytes; the third pair is the demultiplexer's.
    pub(crate) fn new(seed: [u8; 32]) -> (Self, (u64, u64)) {
        let mut keys = [0; 4];
        for (key, bytes) in keys.iter_mut().zip(seed.chunks_exact(8)) {
            *key = bytes.iter().fold(0, |key, &byte| key << 8 | u64::from(byte));
        }
        let [a, b, c, d] = keys;
        (Self { isn: (a, b), rest: (b ^ d, c) }, (c ^ a, d))
    }

    /// Initial sequence number: a clock of 4 µs ticks plus a hash of the tuple (RFC 6528 §3).
    pub(crate) fn isn(&self, tuple: &Tuple, now: Instant) -> u32 {
        let mut hasher = SipHasher13::new_with_keys(self.isn.0, self.isn.1);
        feed(&mut hasher, tuple.local);
        feed(&mut hasher, tuple.peer);
        ((now.as_micros() / 4) as u32).wrapping_add(hasher.finish() as u32)
    }

    fn hash(&self, purpose: Purpose, local: Endpoint, peer: Endpoint) -> u32 {
        let mut hasher = SipHasher13::new_with_keys(self.rest.0, self.rest.1);
        hasher.write_u8(purpose as u8);
        feed(&mut hasher, local);
        feed(&mut hasher, peer);
        hasher.finish() as u32
    }

    /// The offset added to the timestamp clock, the same for all connections between two addresses: the next
    /// connection continues the clock of the one before.
    pub(crate) fn timestamp_offset(&self, tuple: &Tuple) -> u32 {
        let local = Endpoint::new(tuple.local.ip(), 0);
        let peer = Endpoint::new(tuple.peer.ip(), 0);
        self.hash(Purpose::Timestamps, local, peer)
    }

    /// One of the two hashes of a SYN cookie: without a period, or with one.
    pub(crate) fn cookie(&self, tuple: &Tuple, period: Option<u32>) -> u32 {
        let mut hasher = SipHasher13::new_with_keys(self.rest.0, self.rest.1);
        hasher.write_u8(Purpose::Cookie as u8);
        feed(&mut hasher, tuple.local);
        feed(&mut hasher, tuple.peer);
        if let Some(period) = period {
            hasher.write_u32(period);
        }
        hasher.finish() as u32
    }

    /// Where the search for a free port of a datagram socket begins; another each time (RFC 6056 §3.3.1).
    pub(crate) fn datagram_port(&self, count: u32) -> u32 {
        let local = Endpoint::new(core::net::Ipv4Addr::from_bits(count).into(), 0);
        self.hash(Purpose::DatagramPort, local, local)
    }

    /// The identification of the `count`th packet of fragments (RFC 7739 §5.3: a hash and a counter).
    pub(crate) fn fragment_ident(&self, src: Endpoint, dst: Endpoint, count: u32) -> u32 {
        self.hash(Purpose::Fragment, src, dst).wrapping_add(count)
    }

    /// Keys of the hash tables of datagram sockets, and of the limits of ICMP errors.
    pub(crate) fn table_keys(&self) -> [(u64, u64); 2] {
        let any = Endpoint::new(core::net::Ipv4Addr::UNSPECIFIED.into(), 0);
        let half = |purpose, port| {
            let of = Endpoint::new(any.ip(), port);
            u64::from(self.hash(purpose, of, any)) << 32 | u64::from(self.hash(purpose, any, of))
        };
        [Purpose::Datagrams, Purpose::IcmpPeers].map(|purpose| (half(purpose, 1), half(purpose, 2)))
    }

    /// Where the search for a free port to `peer` begins.
    pub(crate) fn port_offset(&self, local: Endpoint, peer: Endpoint) -> u32 {
        self.hash(Purpose::Port, local, peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Duration;

    #[test]
    fn isn_grows_with_the_clock_and_differs_by_tuple_and_seed() {
        let end = |port| Endpoint::new("10.0.0.1".parse().unwrap(), port);
        let tuple = |port| Tuple { local: end(port), peer: end(80) };
        let (secrets, _) = Secrets::new([1; 32]);
        let (others, _) = Secrets::new([2; 32]);
        let first = secrets.isn(&tuple(1), Instant::ZERO);
        let later = secrets.isn(&tuple(1), Instant::ZERO + Duration::from_micros(400));
        assert_eq!(later.wrapping_sub(first), 100);
        assert_ne!(first, secrets.isn(&tuple(2), Instant::ZERO));
        assert_ne!(first, others.isn(&tuple(1), Instant::ZERO));
    }
}
