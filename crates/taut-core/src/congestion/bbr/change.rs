//! A path whose bandwidth changes: taut's own, not the draft's. Called by `cycle.rs`.
//!
//! **Problem.** The draft remembers the largest bandwidth of two cycles of probing, four to six seconds. When
//! a path of 100 Mbit/s and 40 ms becomes one of 20, BBR goes on sending at 94 for that long; without loss
//! only cwnd limits it, and the RTT is 400 ms. With loss, the short-term bounds limit it, until the next
//! Refill or ProbeRTT forgets them. When the path becomes fast again, the next probe is up to three seconds
//! away, and raises the rate by a seventh per round trip, because the sample that shows more is a round trip
//! old.
//!
//! **Rule.** Three parts.
//!
//! 1. Slower: for four times the least RTT, every sample has been below 70 % of the bandwidth, and every RTT
//!    above one and a half times the least. Then the bandwidth is the last sample's, and BBR goes Down.
//!    (Among other flows that happens too: the share has become smaller, and the queue is not our own alone.)
//! 2. For half a minute from then on, the path is one that changes: the next probe begins 8 rounds after the
//!    last, as in BBR version 1, if the RTT is within a quarter of the least. Where others keep a queue, the
//!    draft's times remain.
//! 3. Faster: a probe in which the bandwidth has grown by a quarter, with the RTT within a quarter of the
//!    least, goes on with Startup's gains, and ends with Drain. Among many flows a sample is often a quarter
//!    too high, through a queue: a hundred flows retransmitted a sixth more with Startup's gains.

use super::params::PARAMS;
use super::path::Rate;
use crate::congestion::RateSample;
use crate::congestion::controller::AckEvent;
use crate::words::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Change {
    /// Since when all samples have been slow; `None` after any other.
    slow_since: Option<Instant>,
    /// When the path was last found to be slower.
    slower_at: Option<Instant>,
}

impl Change {
    pub(super) const fn new() -> Self {
        Self { slow_since: None, slower_at: None }
    }

    /// The samples do not show the path.
    pub(super) const fn forget_samples(&mut self) {
        self.slow_since = None;
    }

    /// Whether this sample shows that the path has become slower than `bw`.
    pub(super) fn is_slower(
        &mut self,
        ack: &AckEvent<'_>,
        rs: &RateSample,
        bw: Rate,
        least: Duration,
    ) -> bool {
        let Some(rtt) = ack.rtt else { return false };
        let through_queue = rtt > least * u64::from(PARAMS.slower_rtt) / 100;
        if rs.is_app_limited || !through_queue || Rate::of(rs) >= bw.percent(PARAMS.slower_share) {
            self.slow_since = None;
            return false;
        }
        let since = *self.slow_since.get_or_insert(ack.now);
        if ack.now < since + least * PARAMS.slower_rtts {
            return false;
        }
        self.slow_since = None;
        self.slower_at = Some(ack.now);
        true
    }

    /// Whether to probe often: the path has become slower not long ago, and the queue is empty.
    pub(super) fn may_have_passed(&self, ack: &AckEvent<'_>, least: Option<Duration>) -> bool {
        let is_recent = self.slower_at.is_some_and(|at| ack.now < at + PARAMS.change_memory);
        is_recent && has_no_queue(ack, least)
    }
}

/// Whether a probe shows that the path has become faster than `before`: by a quarter, and not at the cost of
/// a queue.
pub(super) fn is_faster(ack: &AckEvent<'_>, rs: &RateSample, before: Rate, least: Option<Duration>) -> bool {
    Rate::of(rs) >= before.percent(PARAMS.full_bw_growth) && has_no_queue(ack, least)
}

/// The RTT is within a quarter of the least one.
fn has_no_queue(ack: &AckEvent<'_>, least: Option<Duration>) -> bool {
    ack.rtt.zip(least).is_some_and(|(rtt, least)| rtt <= least + least / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_millis(40);

    /// A sample of `segs` segments in 40 ms, at this time and with this RTT.
    fn sample(change: &mut Change, at_ms: u64, segs: u32, rtt_ms: u64, app_limited: bool) -> bool {
        let rs = RateSample {
            delivered: segs,
            interval: LEAST,
            is_app_limited: app_limited,
            prior_in_flight: 0,
            tx_in_flight: 0,
            prior_delivered: 0,
            lost: 0,
            losses: 0,
            acked_sacked: 1,
        };
        let mut ack = AckEvent::new(Instant::from_nanos(at_ms * 1_000_000), 1_448, 1);
        ack.rtt = Some(Duration::from_millis(rtt_ms));
        let bw = Rate::of(&RateSample { delivered: 100, ..rs });
        change.is_slower(&ack, &rs, bw, LEAST)
    }

    #[test]
    fn cc_06_four_round_trips_below_seven_tenths_through_a_queue() {
        let mut change = Change::new();
        for at in 1_000..1_160 {
            assert!(!sample(&mut change, at, 69, 61, false), "{at}");
        }
        assert!(sample(&mut change, 1_160, 69, 61, false));
        // Again only after another four.
        assert!(!sample(&mut change, 1_170, 69, 61, false));
        assert!(!sample(&mut change, 1_320, 69, 61, false));
    }

    #[test]
    fn cc_06_one_sample_that_is_no_slower_starts_again() {
        for (segs, rtt_ms, app_limited) in [(70, 61, false), (20, 60, false), (20, 400, true)] {
            let mut change = Change::new();
            assert!(!sample(&mut change, 1_000, 20, 400, false));
            assert!(!sample(&mut change, 1_100, segs, rtt_ms, app_limited));
            assert!(!sample(&mut change, 1_200, 20, 400, false));
            assert!(!sample(&mut change, 1_359, 20, 400, false));
            assert!(sample(&mut change, 1_360, 20, 400, false));
        }
    }

    #[test]
    fn cc_08_probes_come_often_for_half_a_minute_and_only_without_a_queue() {
        let mut change = Change::new();
        let mut ack = AckEvent::new(Instant::from_nanos(1_000_000_000), 1_448, 1);
        ack.rtt = Some(LEAST);
        assert!(!change.may_have_passed(&ack, Some(LEAST)));
        change.slower_at = Some(ack.now);
        assert!(change.may_have_passed(&ack, Some(LEAST)));
        ack.rtt = Some(Duration::from_millis(51));
        assert!(!change.may_have_passed(&ack, Some(LEAST)));
        (ack.rtt, ack.now) = (Some(LEAST), ack.now + Duration::from_secs(30));
        assert!(!change.may_have_passed(&ack, Some(LEAST)));
    }

    #[test]
    fn cc_09_a_probe_that_finds_a_quarter_more_without_a_queue_starts_up() {
        let faster = |segs, rtt_ms| {
            let rs = RateSample {
                delivered: segs,
                interval: LEAST,
                is_app_limited: false,
                prior_in_flight: 0,
                tx_in_flight: 0,
                prior_delivered: 0,
                lost: 0,
                losses: 0,
                acked_sacked: 1,
            };
            let mut ack = AckEvent::new(Instant::from_nanos(1_000_000_000), 1_448, 1);
            ack.rtt = Some(Duration::from_millis(rtt_ms));
            is_faster(&ack, &rs, Rate::of(&RateSample { delivered: 100, ..rs }), Some(LEAST))
        };
        assert!(faster(125, 50));
        assert!(!faster(124, 40));
        assert!(!faster(125, 51));
    }
}
