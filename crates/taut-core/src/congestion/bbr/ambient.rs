//! Ambient loss: what a path loses at any rate, and BBR had better put up with.
//! Ours, not the draft's: with [`Params::ambient_loss_max`](super::params::Params::ambient_loss_max) at 0 this is the
//! draft's BBR. Called by `loss.rs`.
//!
//! **Problem.** Loss that has nothing to do with what is in flight says nothing about it, and who backs off from it gains
//! nothing. The draft cannot tell it from a queue that overflows: in the simulator, at 100 Mbit/s and 100 ms, 1 % at
//! random costs it a fifth of the link and 5 % nine tenths of it.
//!
//! **Rule.** The share of segments lost is averaged over rounds in which nothing was probed and no RTT was above the least
//! one by more than a 16th: there was no queue that could overflow. So much, and two standard deviations, is put up with
//! anywhere; what goes beyond is a signal. Two things keep a crowded queue from being taken for weather:
//!
//! * A probe for bandwidth that did not raise the RTT shows that the queue is not ours to fill: all is forgotten.
//! * Rounds with a queue forget a 12th each. Alone on a path they are a few of each cycle, in a crowd they are most.
//!
//! **What it costs others**: flows that share a queue lose as much and get as much of it as by the draft, to within a few
//! percent (`taut lab run fairness`). Each of the two, left out, let a few flows in a crowd of 10 to 40 take most of it.

use super::params::PARAMS;
use crate::congestion::controller::AckEvent;
use crate::units::Duration;

/// What an RTT may vary by on an empty path, however short.
const RTT_NOISE: Duration = Duration::from_micros(250);
/// An RTT above the least one by more than this part of it shows a queue.
const QUEUE_PART: u64 = 16;
/// Rounds without a queue that the share is an average of.
const ROUNDS: u32 = 8;
/// A round with a queue forgets this part.
const FORGOTTEN_PART: u32 = 12;
/// Segments of a round that count at most, so that sums stay small.
const ROUND_MAX: u32 = 1 << 24;

#[derive(Clone, Copy, Debug)]
pub(super) struct Ambient {
    /// Lost and sent in rounds without a queue; the older, the less they count.
    lost: u32,
    sent: u32,
    /// When the round began: segments lost and delivered since the beginning.
    lost_before: u32,
    delivered_before: u64,
    /// Most RTT of the round.
    round_rtt: Duration,
    /// Most RTT of the probe for bandwidth that is under way; zero without one.
    probe_rtt: Duration,
    /// The last probe raised the RTT. True before the first: Startup, too, must tell one loss from the other.
    answers: bool,
}

impl Ambient {
    pub(super) const fn new() -> Self {
        Self {
            lost: 0,
            sent: 0,
            lost_before: 0,
            delivered_before: 0,
            round_rtt: Duration::ZERO,
            probe_rtt: Duration::ZERO,
            answers: true,
        }
    }

    /// The first round begins: what was lost and delivered before, under another congestion control, does not count.
    pub(super) const fn start(&mut self, ack: &AckEvent<'_>) {
        self.lost_before = ack.total_lost;
        self.delivered_before = ack.total_delivered;
    }

    /// `probing`: the queue of a probe is being built, or still there.
    pub(super) fn on_ack(&mut self, ack: &AckEvent<'_>, probing: bool) {
        if let Some(rtt) = ack.rtt {
            self.round_rtt = self.round_rtt.max(rtt);
            if probing {
                self.probe_rtt = self.probe_rtt.max(rtt);
            }
        }
    }

    /// The ACKs of a probe have all come.
    pub(super) fn on_probe_end(&mut self, min_rtt: Option<Duration>) {
        if self.probe_rtt.is_zero() {
            return;
        }
        self.answers = min_rtt.is_some_and(|least| self.probe_rtt >= least + least / QUEUE_PART);
        self.probe_rtt = Duration::ZERO;
        if !self.answers {
            (self.lost, self.sent) = (0, 0);
        }
    }

    /// A round is over; returns whether it lost more than is put up with. `calm`: nothing was probed.
    pub(super) fn on_round(&mut self, ack: &AckEvent<'_>, calm: bool) -> bool {
        let lost = ack.total_lost.wrapping_sub(self.lost_before);
        let delivered = ack.total_delivered.saturating_sub(self.delivered_before);
        let sent = u32::try_from(delivered).unwrap_or(u32::MAX).saturating_add(lost);
        let least = ack.min_rtt.unwrap_or(Duration::ZERO);
        let no_queue = self.round_rtt <= least + least / QUEUE_PART + RTT_NOISE;
        let put_up_with = self.at_most(sent);
        if calm && no_queue && self.answers {
            self.lost = self.lost - self.lost / ROUNDS + lost.min(ROUND_MAX);
            self.sent = self.sent - self.sent / ROUNDS + sent.min(ROUND_MAX);
        } else if calm {
            self.lost -= self.lost.div_ceil(FORGOTTEN_PART);
        }
        self.lost_before = ack.total_lost;
        self.delivered_before = ack.total_delivered;
        self.round_rtt = Duration::ZERO;
        lost > put_up_with
    }

    /// Segments of `sent` that ambient loss may well take: the mean and two standard deviations.
    pub(super) fn at_most(&self, sent: u32) -> u32 {
        let most = u64::from(self.sent) * u64::from(PARAMS.ambient_loss_max) / 100;
        // In 256ths: of a few segments, the parts matter.
        let mean = 256 * u64::from(sent.min(ROUND_MAX)) * u64::from(self.lost).min(most)
            / u64::from(self.sent.max(1));
        u32::try_from((mean + 2 * (256 * mean).isqrt()).div_ceil(256)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Instant;

    const LEAST: Duration = Duration::from_millis(100);

    /// A round of 1,000 segments with `lost` more lost, `rtt` being the most that was seen.
    fn round(ambient: &mut Ambient, number: u32, lost: u32, rtt: Duration, calm: bool) -> bool {
        let mut ack = AckEvent::new(Instant::ZERO, 1_448, 1);
        (ack.rtt, ack.min_rtt) = (Some(rtt), Some(LEAST));
        ack.total_delivered = u64::from(number + 1) * 1_000;
        ack.total_lost = (number + 1) * lost;
        ambient.on_ack(&ack, !calm);
        ambient.on_round(&ack, calm)
    }

    #[test]
    fn loss_without_a_queue_is_put_up_with_once_it_is_known() {
        let mut ambient = Ambient::new();
        assert!(round(&mut ambient, 0, 10, LEAST, true), "any loss is a signal at first");
        for number in 1..20 {
            assert!(!round(&mut ambient, number, 10, LEAST, true), "round {number}");
        }
        // 10 of 1,010, and two standard deviations: 9.9 + 2 · √9.9 = 16.2, give or take what averaging whole segments does.
        assert!((16..=18).contains(&ambient.at_most(1_000)), "{ambient:?}");
    }

    #[test]
    fn loss_with_a_queue_is_a_signal_and_is_forgotten() {
        let mut ambient = Ambient::new();
        let queue = LEAST + LEAST / 8;
        for number in 0..20 {
            assert!(round(&mut ambient, number, 10, queue, true), "round {number}");
        }
        (ambient.lost, ambient.sent) = (1_000, 100_000);
        for number in 20..60 {
            round(&mut ambient, number, 10, queue, true);
        }
        // 1,000 · (11/12)⁴⁰ of 100,000 are left, 0.3 of 1,000: and two standard deviations, 1.4, rounded up.
        assert!(ambient.at_most(1_000) <= 2, "{ambient:?}");
    }

    #[test]
    fn a_probe_that_the_queue_does_not_answer_ends_it() {
        for (rtt, kept) in [(LEAST + LEAST / 32, false), (LEAST + LEAST / 8, true)] {
            let mut ambient = Ambient { lost: 1_000, sent: 100_000, ..Ambient::new() };
            round(&mut ambient, 0, 0, rtt, false);
            ambient.on_probe_end(Some(LEAST));
            assert_eq!(ambient.at_most(1_000) > 0, kept, "{rtt:?}");
        }
    }

    #[test]
    fn what_was_lost_before_does_not_count() {
        let mut ambient = Ambient::new();
        let mut ack = AckEvent::new(Instant::ZERO, 1_448, 1);
        (ack.total_delivered, ack.total_lost) = (1_000_000, 100_000);
        ambient.start(&ack);
        (ack.rtt, ack.min_rtt, ack.total_delivered) = (Some(LEAST), Some(LEAST), 1_001_000);
        ambient.on_ack(&ack, false);
        assert!(!ambient.on_round(&ack, true));
        assert_eq!(ambient.at_most(1_000), 0);
    }

    #[test]
    fn there_is_a_limit() {
        let ambient = Ambient { lost: 50_000, sent: 100_000, ..Ambient::new() };
        // 10 % of 1,000 and 2 · √100.
        assert_eq!(ambient.at_most(1_000), 120);
    }
}
