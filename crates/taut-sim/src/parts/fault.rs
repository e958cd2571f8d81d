//! Faults of a wire. Middleware between a line and the wire behind it, like `netem` (`tc-netem(8)`); called
//! by [`Wire`](crate::parts::wire::Wire).
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
    /// Losses in bursts, beside the single ones.
    pub bursts: Option<GilbertElliott>,
    /// Probability that a packet arrives twice.
    pub duplicate: f64,
    /// Probability that one bit of a packet is flipped.
    pub corrupt: f64,
    /// Probability that a packet is late by [`reorder_delay`](Self::reorder_delay), so that later ones
    /// overtake it.
    pub reorder: f64,
    /// The delay of such a packet.
    pub reorder_delay: Duration,
    /// Every packet is delayed by up to this, uniformly distributed; packets closer together than that may be
    /// reordered, unless they stay in order.
    pub jitter: Duration,
    /// Packets arrive in the order in which they were sent: one that would overtake another arrives together
    /// with it.
    pub in_order: bool,
    /// Periods in which packets put on the wire are lost.
    pub blackouts: Vec<(Instant, Instant)>,
    /// The largest IP packet that passes, from each time on, ascending. A larger one is lost, and its sender
    /// is notified by ICMP.
    pub mtu: Vec<(Instant, u16)>,
    /// Nobody is notified: a black hole for large packets.
    pub mtu_silent: bool,
    /// The host at the beginning of this wire lies ([`Lies`]).
    pub lies: Lies,
    /// Packets to lose, by their number on this wire from 0, ascending. For tests that need a particular
    /// loss.
    pub lose: Vec<u64>,
}

/// The model of Gilbert and Elliott: a good state that loses few packets, and a bad one that loses many.
/// Without losses in the good state, and with every packet lost in the bad one, a share of p / (p + r) is
/// lost, in bursts of 1 / r.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// Probability of going from the good state to the bad one, with each packet.
    pub p: f64,
    /// Probability of going back.
    pub r: f64,
    /// Loss in the bad state.
    pub bad: f64,
    /// Loss in the good state.
    pub good: f64,
}

/// What a hostile host puts on the wire: packets that a stack never sends, with checksums that are right.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lies {
    /// Probability that a packet is replaced by a mutated one.
    pub change: f64,
    /// Probability that a mutated one precedes a packet.
    pub add: f64,
}

/// The fate of one packet.
pub(crate) enum Fate {
    Lost,
    Arrives { late: Duration, again: bool, corrupt: bool, lie: Lie },
}

/// What a hostile sender does with one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    None,
    Change,
    Add,
}

#[derive(Debug)]
pub(crate) struct FaultState {
    faults: Faults,
    pub(crate) rng: Rng,
    seen: u64,
    /// The state of the model of bursts.
    is_bad: bool,
}

impl FaultState {
    pub(crate) fn new(faults: Faults, rng: Rng) -> Self {
        Self { faults, rng, seen: 0, is_bad: false }
    }

    /// Whether packets arrive in the order in which they were sent.
    pub(crate) const fn in_order(&self) -> bool {
        self.faults.in_order
    }

    /// Decides the fate of a packet that goes on the wire at `sent`.
    pub(crate) fn fate(&mut self, sent: Instant) -> Fate {
        let Self { faults, rng, seen, is_bad } = self;
        let number = *seen;
        *seen += 1;
        let dark = faults.blackouts.iter().any(|&(from, until)| from <= sent && sent < until);
        // The state decides about this packet, and then may change for the next, as in `netem`.
        let in_burst = faults.bursts.as_ref().is_some_and(|model| {
            let (lost, leaves) = if *is_bad { (model.bad, model.r) } else { (model.good, model.p) };
            *is_bad ^= rng.chance(leaves);
            rng.chance(lost)
        });
        if rng.chance(faults.loss) || in_burst || dark || faults.lose.binary_search(&number).is_ok() {
            return Fate::Lost;
        }
        let mut late = if faults.jitter.is_zero() { Duration::ZERO } else { rng.below_time(faults.jitter) };
        if rng.chance(faults.reorder) {
            late += faults.reorder_delay;
        }
        let (again, corrupt) = (rng.chance(faults.duplicate), rng.chance(faults.corrupt));
        let lie = if rng.chance(faults.lies.change) {
            Lie::Change
        } else if rng.chance(faults.lies.add) {
            Lie::Add
        } else {
            Lie::None
        };
        Fate::Arrives { late, again, corrupt, lie }
    }

    /// The largest packet that passes at `sent`, and whether the sender of a larger one is notified.
    pub(crate) fn mtu(&self, sent: Instant) -> Option<(u16, bool)> {
        let steps = &self.faults.mtu;
        let (_, mtu) = steps.get(steps.partition_point(|(from, _)| *from <= sent).checked_sub(1)?)?;
        Some((*mtu, !self.faults.mtu_silent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of `count` packets are lost.
    fn lost(model: GilbertElliott, count: u64) -> Vec<u64> {
        let mut faults = FaultState::new(Faults { bursts: Some(model), ..Faults::default() }, Rng::new(1));
        let is_lost = |_: &u64| matches!(faults.fate(Instant::ZERO), Fate::Lost);
        (0..count).filter(is_lost).collect()
    }

    #[test]
    fn bursts_have_their_share_and_their_length() {
        let model = GilbertElliott { p: 0.001, r: 0.1, bad: 1.0, good: 0.0 };
        let lost = lost(model, 2_000_000);
        let bursts = lost.chunk_by(|a, b| a + 1 == *b).count() as f64;
        // p / (p + r) is one in 101. The count has a standard deviation of about 630, the mean length of
        // 0.21.
        let share = 2_000_000.0 / 101.0;
        assert!((lost.len() as f64 - share).abs() < 4.0 * 630.0, "{} of {share}", lost.len());
        let length = lost.len() as f64 / bursts;
        assert!((length - 10.0).abs() < 4.0 * 0.21, "{length}");
    }

    #[test]
    fn each_state_has_its_loss() {
        // Half of the time in each state: (0.5 + 0.02) / 2. The standard deviation of 400,000 draws is below
        // 700.
        let model = GilbertElliott { p: 0.2, r: 0.2, bad: 0.5, good: 0.02 };
        let lost = lost(model, 400_000).len();
        assert!(lost.abs_diff(104_000) < 4 * 700, "{lost}");
    }
}
