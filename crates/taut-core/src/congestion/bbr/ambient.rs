//! Ambient loss: a path's loss that does not depend on the load, and that BBR tolerates.
//! taut's own, not the draft's: with [`Params::ambient_loss_max`](super::params::Params::ambient_loss_max) at
//! 0, this is the draft's BBR. Called by `loss.rs`.
//!
//! **Problem.** Loss that does not depend on the volume in flight says nothing about congestion, and a sender
//! that backs off from it gains nothing. The draft cannot distinguish it from the overflow of a queue: in the
//! simulator, at 100 Mbit/s and 100 ms, 1 % of random loss costs it a fifth of the link, and 5 % nine tenths.
//!
//! **Rule.** The share of segments lost is averaged over rounds whose mean RTT exceeded the least RTT by no
//! more than a 16th: in these rounds, there was no queue that could overflow. That share, plus three standard
//! deviations, is tolerated in every round, but never more than a tenth of the segments sent; loss beyond it
//! is a signal of congestion. A round in Cruise that does find a queue makes BBR forget a 12th of the share.
//! A flow that is alone on its path has no such rounds; among many flows, most rounds are of this kind, and
//! the loss that many flows cause must not be mistaken for random loss.
//!
//! **Cost to other flows.** Flows that share a queue of a sixteenth of the round-trip time or more lose as
//! much, and get as much of the link, as by the draft, to within a few percent (`taut lab run fairness`).
//! Many flows that share a shorter queue lose more: ten flows of 40 ms with a queue of 2.4 ms lose 8 % rather
//! than 2 %.

use super::params::PARAMS;
use crate::congestion::controller::AckEvent;
use crate::words::Duration;

/// The variation allowed for an RTT on an empty path, however short.
const RTT_NOISE: Duration = Duration::from_micros(250);
/// An RTT that exceeds the least one by more than this part of it (a 16th) shows a queue.
const QUEUE_PART: u64 = 16;
/// The share is averaged over this many rounds without a queue.
const ROUNDS: u32 = 8;
/// A round with a queue forgets this part of the share (a 12th).
const FORGOTTEN_PART: u32 = 12;
/// Standard deviations allowed for chance: one round in a thousand exceeds them.
const DEVIATIONS: u64 = 3;
/// The most segments of a round that count, so that sums stay small.
const ROUND_MAX: u32 = 1 << 24;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ambient {
    /// Segments lost and sent in rounds without a queue; older ones count less.
    lost: u32,
    sent: u32,
    /// At the start of the round: segments lost and delivered since the connection began.
    lost_before: u32,
    delivered_before: u64,
    /// RTTs of the round: their sum, and their number. The rule uses the mean because single RTTs include our
    /// own bursts.
    rtt_sum: Duration,
    rtts: u32,
}

impl Ambient {
    /// A round begins. Also called before the first, so that loss and deliveries under another congestion
    /// control do not count.
    pub(super) const fn start(&mut self, ack: &AckEvent<'_>) {
        self.lost_before = ack.total_lost;
        self.delivered_before = ack.total_delivered;
        self.rtt_sum = Duration::ZERO;
        self.rtts = 0;
    }

    pub(super) fn on_ack(&mut self, ack: &AckEvent<'_>) {
        if let Some(rtt) = ack.rtt {
            self.rtt_sum += rtt;
            self.rtts += 1;
        }
    }

    /// A round is over; returns whether it lost more than is tolerated. `cruising`: a queue would not be of
    /// our making.
    pub(super) fn on_round(&mut self, ack: &AckEvent<'_>, cruising: bool) -> bool {
        let lost = ack.total_lost.wrapping_sub(self.lost_before);
        let delivered = ack.total_delivered.saturating_sub(self.delivered_before);
        let sent = u32::try_from(delivered).unwrap_or(u32::MAX).saturating_add(lost);
        let tolerated = self.at_most(sent);
        if self.found_no_queue(ack.min_rtt.unwrap_or(Duration::ZERO)) {
            self.lost = self.lost - self.lost / ROUNDS + lost.min(ROUND_MAX);
            self.sent = self.sent - self.sent / ROUNDS + sent.min(ROUND_MAX);
        } else if cruising {
            self.lost -= self.lost.div_ceil(FORGOTTEN_PART);
        }
        self.start(ack);
        lost > tolerated
    }

    fn found_no_queue(&self, least: Duration) -> bool {
        let mean = self.rtt_sum / u64::from(self.rtts.max(1));
        self.rtts > 0 && mean <= least + least / QUEUE_PART + RTT_NOISE
    }

    /// How many of `sent` segments ambient loss may take.
    pub(super) fn at_most(&self, sent: u32) -> u32 {
        // In 256ths, because fractions matter when there are few segments.
        let sent = 256 * u64::from(sent.min(ROUND_MAX));
        let most = sent * u64::from(PARAMS.ambient_loss_max) / 100;
        let mean = sent * u64::from(self.lost) / u64::from(self.sent.max(1));
        let likely = mean + DEVIATIONS * (256 * mean).isqrt();
        u32::try_from(likely.min(most).div_ceil(256)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Instant;

    const LEAST: Duration = Duration::from_millis(100);

    /// A round of 1,000 segments delivered and `lost` more lost, at these RTTs.
    fn round(ambient: &mut Ambient, number: u32, lost: u32, rtts: [Duration; 2], cruising: bool) -> bool {
        let mut ack = AckEvent::new(Instant::ZERO, 1_448, 1);
        ack.min_rtt = Some(LEAST);
        ack.total_delivered = u64::from(number + 1) * 1_000;
        ack.total_lost = (number + 1) * lost;
        for rtt in rtts {
            ack.rtt = Some(rtt);
            ambient.on_ack(&ack);
        }
        ambient.on_round(&ack, cruising)
    }

    #[test]
    fn bbr_60_loss_without_a_queue_is_tolerated_once_it_is_known() {
        let mut ambient = Ambient::default();
        // The mean is 105 ms, less than 100 + 100/16.
        let bursts = [LEAST, LEAST + LEAST / 10];
        assert!(round(&mut ambient, 0, 10, bursts, true), "any loss is a signal at first");
        for number in 1..20 {
            assert!(!round(&mut ambient, number, 10, bursts, true), "round {number}");
        }
        // 10 of 1,010, and three standard deviations: 9.9 + 3 · √9.9 = 19.3, give or take the rounding to
        // whole segments.
        assert!((19..=21).contains(&ambient.at_most(1_000)), "{ambient:?}");
    }

    #[test]
    fn bbr_61_loss_with_a_queue_is_a_signal_and_is_forgotten_in_cruise() {
        let mut ambient = Ambient::default();
        let queue = [LEAST + LEAST / 8; 2];
        for number in 0..20 {
            assert!(round(&mut ambient, number, 10, queue, true), "round {number}");
        }
        (ambient.lost, ambient.sent) = (1_000, 100_000);
        for number in 20..60 {
            round(&mut ambient, number, 10, queue, false);
        }
        // The queue of our own probe or Startup says nothing: 1 % of 1,000, and 3 · √10.
        assert_eq!(ambient.at_most(1_000), 20);
        for number in 60..100 {
            round(&mut ambient, number, 10, queue, true);
        }
        // 1,000 · (11/12)⁴⁰ of 100,000 are left, 0.3 of 1,000; with three standard deviations 2.0, rounded
        // up.
        assert!(ambient.at_most(1_000) <= 3, "{ambient:?}");
    }

    #[test]
    fn bbr_62_what_was_lost_before_does_not_count() {
        let mut ambient = Ambient::default();
        let mut ack = AckEvent::new(Instant::ZERO, 1_448, 1);
        (ack.total_delivered, ack.total_lost) = (1_000_000, 100_000);
        ambient.start(&ack);
        (ack.rtt, ack.min_rtt, ack.total_delivered) = (Some(LEAST), Some(LEAST), 1_001_000);
        ambient.on_ack(&ack);
        assert!(!ambient.on_round(&ack, true));
        assert_eq!(ambient.at_most(1_000), 0);
    }

    #[test]
    fn bbr_63_a_tenth_is_the_limit() {
        let ambient = Ambient { lost: 50_000, sent: 100_000, ..Ambient::default() };
        assert_eq!(ambient.at_most(1_000), 100);
        // Of few segments, chance alone might take more: 5 % of 40 is 2, and 3 · √2 more makes 6.2.
        let ambient = Ambient { lost: 5_000, sent: 100_000, ..Ambient::default() };
        assert_eq!(ambient.at_most(40), 4);
    }
}
