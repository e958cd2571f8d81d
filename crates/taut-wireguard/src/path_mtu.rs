//! The largest inner packet on the path to a peer. RFC 1191, RFC 8201. Pure; kept by `peer.rs`, lowered by
//! the device when a router has reported a datagram that was too big.

use taut_core::{Duration, Instant};

/// How long a smaller size is remembered (RFC 1191 §6.3).
const FOR: Duration = Duration::from_secs(600);

/// A size in bytes, and until when it holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathMtu {
    full: u16,
    now: u16,
    until: Instant,
}

impl PathMtu {
    pub(crate) const fn new(full: u16) -> Self {
        Self { full, now: full, until: Instant::NEVER }
    }

    pub(crate) fn get(&self, now: Instant) -> u16 {
        if now < self.until { self.now } else { self.full }
    }

    pub(crate) fn lower(&mut self, now: Instant, mtu: u16) {
        if mtu < self.get(now) {
            (self.now, self.until) = (mtu, now + FOR);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wg_24_a_smaller_path_is_forgotten_after_ten_minutes() {
        let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        let mut mtu = PathMtu::new(1_420);
        mtu.lower(at(1), 1_300);
        mtu.lower(at(2), 1_400);
        assert_eq!((mtu.get(at(2)), mtu.get(at(600)), mtu.get(at(601))), (1_300, 1_300, 1_420));
    }
}
