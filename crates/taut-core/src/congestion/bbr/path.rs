//! BBR's measurements of the path: round trips, bandwidth, round-trip time, and the aggregation of ACKs.
//! draft-ietf-ccwg-bbr-06 §5.5.1 to §5.5.9. Called by `bbr/mod.rs` for every ACK, in the draft's order.

use super::params::PARAMS;
use crate::congestion::RateSample;
use crate::congestion::controller::AckEvent;
use crate::words::{Duration, Instant};

/// Segments per second, in 65,536ths: 16 fractional bits resolve 1 % on the slowest link that carries TCP,
/// and the integer part has room for a terabit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rate(u64);

const ONE_SHIFT: u32 = 16;

impl Rate {
    pub(super) const ZERO: Self = Self(0);
    pub(super) const INFINITE: Self = Self(u64::MAX);

    pub(super) fn of(sample: &RateSample) -> Self {
        let us = sample.interval.as_micros().max(1);
        Self((u64::from(sample.delivered) << ONE_SHIFT).saturating_mul(1_000_000) / us)
    }

    /// `self` times `share` percent.
    pub(super) const fn percent(self, share: u32) -> Self {
        Self(super::percent(self.0, share))
    }

    /// Segments in `span` at `gain` percent of the rate, rounded up.
    pub(super) fn over(self, span: Duration, gain: u32) -> u32 {
        let segs = self.0.saturating_mul(span.as_micros()) / 1_000_000;
        let segs = super::percent(segs, gain);
        u32::try_from(segs.div_ceil(1 << ONE_SHIFT)).unwrap_or(u32::MAX)
    }

    /// Of segments of `mss` bytes.
    pub(super) const fn bytes_per_sec(self, mss: u32) -> u64 {
        self.0.saturating_mul(mss as u64) >> ONE_SHIFT
    }
}

/// The model's measurements.
#[derive(Debug)]
pub(super) struct Path {
    /// §5.5.1. A round ends with the ACK of a packet sent after this many segments were delivered.
    pub(super) next_round_delivered: u64,
    pub(super) round_count: u32,
    /// The current ACK ends a round.
    pub(super) round_start: bool,
    /// The maxima of the last and of this cycle of probing: a filter over two cycles. §5.5.3, §5.5.6.
    max_bw: [Rate; 2],
    /// §5.5.7; zero before the first sample.
    min_rtt: Duration,
    min_rtt_at: Instant,
    /// The recent minimum, which ProbeRTT renews. §5.3.4.3.
    probe_rtt_min: Duration,
    probe_rtt_min_at: Instant,
    pub(super) probe_rtt_expired: bool,
    /// ProbeRTT has been done once, so the least RTT is not that of a standing queue.
    confirmed: bool,
    /// §5.5.9: the maxima of the last and of this span of rounds.
    extra_acked: [u32; 2],
    extra_rounds: u32,
    extra_since: Instant,
    extra_delivered: u32,
}

impl Path {
    pub(super) const fn new() -> Self {
        Self {
            next_round_delivered: 0,
            round_count: 0,
            round_start: false,
            max_bw: [Rate::ZERO; 2],
            min_rtt: Duration::ZERO,
            min_rtt_at: Instant::ZERO,
            probe_rtt_min: Duration::ZERO,
            probe_rtt_min_at: Instant::ZERO,
            probe_rtt_expired: false,
            confirmed: false,
            extra_acked: [0; 2],
            extra_rounds: 0,
            extra_since: Instant::ZERO,
            extra_delivered: 0,
        }
    }

    /// Starts the clocks.
    pub(super) fn start(&mut self, now: Instant) {
        self.extra_since = now;
        self.min_rtt_at = now;
        self.probe_rtt_min_at = now;
    }

    // ---- rounds, §5.5.1 ----

    pub(super) const fn update_round(&mut self, rs: &RateSample, total_delivered: u64) {
        self.round_start = rs.prior_delivered >= self.next_round_delivered;
        if self.round_start {
            self.start_round(total_delivered);
            self.round_count = self.round_count.wrapping_add(1);
        }
    }

    /// A round begins now.
    pub(super) const fn start_round(&mut self, total_delivered: u64) {
        self.next_round_delivered = total_delivered;
    }

    // ---- bandwidth, §5.5.2 to §5.5.6 ----

    pub(super) fn max_bw(&self) -> Rate {
        self.max_bw[0].max(self.max_bw[1])
    }

    /// §5.5.5: a sample limited by the application counts only if it shows that more is possible.
    pub(super) fn update_max_bw(&mut self, rs: &RateSample) {
        let rate = Rate::of(rs);
        if !rs.is_app_limited || rate >= self.max_bw() {
            self.max_bw[1] = self.max_bw[1].max(rate);
        }
    }

    /// §5.5.6: a cycle is over. One in which nothing was measured does not count.
    pub(super) fn advance_max_bw(&mut self) {
        if self.max_bw[1] > Rate::ZERO {
            self.max_bw = [self.max_bw[1], Rate::ZERO];
        }
    }

    /// The path has become slower: what was measured before does not count. `change.rs`.
    pub(super) const fn replace_max_bw(&mut self, rate: Rate) {
        self.max_bw = [rate, Rate::ZERO];
    }

    // ---- round-trip time, §5.3.4.3, §5.5.7 ----

    pub(super) fn min_rtt(&self) -> Option<Duration> {
        (!self.min_rtt.is_zero()).then_some(self.min_rtt)
    }

    pub(super) fn update_min_rtt(&mut self, ack: &AckEvent<'_>) {
        let now = ack.now;
        self.probe_rtt_expired = now > self.probe_rtt_min_at + PARAMS.probe_rtt_interval;
        if let Some(rtt) = ack.rtt.filter(|rtt| !rtt.is_zero())
            && (self.probe_rtt_min.is_zero() || rtt < self.probe_rtt_min || self.probe_rtt_expired)
        {
            self.probe_rtt_min = rtt;
            self.probe_rtt_min_at = now;
        }
        if let Some(rtt) = ack.rtt
            && self.confirmed
            && rtt <= self.probe_rtt_min + self.probe_rtt_min / PARAMS.min_rtt_tolerance
        {
            // As low as ProbeRTT's result: the queue was empty, and another ProbeRTT would show nothing new.
            self.probe_rtt_min_at = now;
        }
        let expired = now > self.min_rtt_at + PARAMS.min_rtt_window;
        if !self.probe_rtt_min.is_zero()
            && (self.min_rtt.is_zero() || self.probe_rtt_min < self.min_rtt || expired)
        {
            self.min_rtt = self.probe_rtt_min;
            self.min_rtt_at = self.probe_rtt_min_at;
        }
    }

    /// ProbeRTT is done: the next is due an interval from now.
    pub(super) const fn note_probe_rtt_done(&mut self, now: Instant) {
        self.probe_rtt_min_at = now;
        self.confirmed = true;
    }

    // ---- aggregation, §5.5.9 ----

    /// The most segments acknowledged together beyond those that the rate explains.
    pub(super) fn extra_acked(&self) -> u32 {
        self.extra_acked[0].max(self.extra_acked[1])
    }

    pub(super) const fn restart_aggregation(&mut self, now: Instant) {
        self.extra_since = now;
    }

    pub(super) fn update_aggregation(&mut self, ack: &AckEvent<'_>, bw: Rate, cwnd: u32, full: bool) {
        if ack.acked == 0 {
            return;
        }
        if self.round_start {
            self.extra_rounds += 1;
            // In Startup, only one round is remembered.
            let slot = if full { PARAMS.extra_acked_rounds } else { 1 };
            if self.extra_rounds >= slot {
                self.extra_rounds = 0;
                self.extra_acked = [if full { self.extra_acked[1] } else { 0 }, 0];
            }
        }
        let mut expected = bw.over(ack.now.since(self.extra_since), 100);
        if self.extra_delivered <= expected {
            self.extra_delivered = 0;
            self.extra_since = ack.now;
            expected = 0;
        }
        self.extra_delivered = self.extra_delivered.saturating_add(ack.acked);
        let extra = self.extra_delivered.saturating_sub(expected).min(cwnd);
        self.extra_acked[1] = self.extra_acked[1].max(extra);
    }
}
