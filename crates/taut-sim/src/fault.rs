//! Faults of a wire. Middleware between a line and the wire behind it, like `netem` (`tc-netem(8)`); called
//! by [`Wire`](crate::wire::Wire).
//!
//! Every fault has its unit. Each wire draws from a separate stream of random numbers: a fault on one wire
//! changes no draws of another.

use taut_core::{Duration, Instant};

use crate::rng::Rng;

/// The faults of a wire. The default is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// Probability that a packet is lost, 0 to 1.
    pub loss: f64,
    /// Probability that a packet arrives twice.
    pub duplicate: f64,
    /// Probability that one bit of a packet is flipped.
    pub corrupt: f64,
    /// Probability that a packet is late by [`reorder_delay`](Self::reorder_delay), so that later ones overtake it.
    pub reorder: f64,
    /// The delay of such a packet.
    pub reorder_delay: Duration,
    /// Every packet is delayed by up to this, uniformly distributed; packets closer together than that may be
    /// reordered.
    pub jitter: Duration,
    /// Periods in which packets put on the wire are lost.
    pub blackouts: Vec<(Instant, Instant)>,
    /// Packets to lose, by their number on this wire from 0, ascending. For tests that need a particular
    /// loss.
    pub lose: Vec<u64>,
}

/// The fate of one packet.
pub(crate) enum Fate {
    Lost,
    Arrives { late: Duration, again: bool, corrupt: bool },
}

#[derive(Debug)]
pub(crate) struct FaultState {
    faults: Faults,
    pub(crate) rng: Rng,
    seen: u64,
}

impl FaultState {
    pub(crate) fn new(faults: Faults, rng: Rng) -> Self {
        Self { faults, rng, seen: 0 }
    }

    /// Decides the fate of a packet that goes on the wire at `sent`.
    pub(crate) fn fate(&mut self, sent: Instant) -> Fate {
        let Self { faults, rng, seen } = self;
        let number = *seen;
        *seen += 1;
        let dark = faults.blackouts.iter().any(|&(from, until)| from <= sent && sent < until);
        if rng.chance(faults.loss) || dark || faults.lose.binary_search(&number).is_ok() {
            return Fate::Lost;
        }
        let mut late = if faults.jitter.is_zero() { Duration::ZERO } else { rng.below_time(faults.jitter) };
        if rng.chance(faults.reorder) {
            late += faults.reorder_delay;
        }
        Fate::Arrives { late, again: rng.chance(faults.duplicate), corrupt: rng.chance(faults.corrupt) }
    }
}
