//! Times and numbers that nobody else on the link can guess, from the seed that the link was given. Called by
//! `own.rs` and `dhcp.rs`. SipHash of a counter: the same seed gives the same numbers.

use core::hash::Hasher;

use siphasher::sip::SipHasher13;

use taut_core::Duration;

#[derive(Debug)]
pub(crate) struct Random {
    keys: (u64, u64),
    draws: u64,
}

impl Random {
    pub(crate) const fn new(keys: (u64, u64)) -> Self {
        Self { keys, draws: 0 }
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.draws = self.draws.wrapping_add(1);
        let mut hasher = SipHasher13::new_with_keys(self.keys.0, self.keys.1);
        hasher.write_u64(self.draws);
        hasher.finish()
    }

    /// A span below `most`.
    pub(crate) fn span(&mut self, most: Duration) -> Duration {
        Duration::from_nanos(self.bits() % most.as_nanos().max(1))
    }
}
