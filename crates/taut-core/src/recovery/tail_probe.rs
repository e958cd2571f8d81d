//! Tail loss probe: when the last packets of a flight are lost, no ACK shows it, so one more packet is sent
//! to get one. RFC 8985 §7, with Linux's allowances in the timeout. Called by `transmit.rs` and `ack.rs`,
//! which arm the timer and judge the result, and by the send path when it is due.

use core::ops::Range;

use super::rules::rto::RTO_INIT;
use super::timers::TIMER_SLACK;
use super::{Base, CaState, Flight, Recovery, RecoveryConfig};
use crate::words::{Duration, Instant};

/// Time to the probe after the last transmission. RFC 8985 §7.2.
fn timeout(srtt: Option<Duration>, packets_out: u32, rto_min: Duration) -> Duration {
    match srtt {
        // A lone segment's ACK may be delayed; Linux allows as much as the least RTO for that.
        Some(srtt) if packets_out == 1 => srtt * 2 + rto_min,
        Some(srtt) => srtt * 2 + TIMER_SLACK,
        None => RTO_INIT,
    }
}

/// A probe that was sent and whose result is not yet known.
#[derive(Clone, Copy, Debug)]
pub(super) struct TailProbe {
    /// RFC 8985's TLP.end_seq: `nxt` when it was sent.
    pub(super) end: u64,
    /// It repeated data, so it may have repaired a loss unnoticed.
    pub(super) is_retransmission: bool,
}

/// The result of a probe, after an ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TailProbeOutcome {
    /// Not known yet.
    Open,
    /// Nothing was lost.
    Needless,
    /// The probe repaired a loss: one reduction of cwnd is due.
    Repaired,
}

impl TailProbe {
    /// RFC 8985 §7.4.2. `pure_dup`: the ACK repeats `una`, sacks nothing and carries nothing.
    pub(super) fn judge(&self, ack: u64, dsack: Option<&Range<u64>>, pure_dup: bool) -> TailProbeOutcome {
        if ack < self.end {
            return TailProbeOutcome::Open;
        }
        if !self.is_retransmission || dsack.is_some_and(|range| range.end == self.end) {
            // The peer received the data twice, so the original had arrived.
            return TailProbeOutcome::Needless;
        }
        if ack > self.end {
            return TailProbeOutcome::Repaired;
        }
        if pure_dup { TailProbeOutcome::Needless } else { TailProbeOutcome::Open }
    }
}

impl Base {
    /// Arms the timer after a transmission or an ACK, if a probe is allowed. RFC 8985 §7.2.
    pub(super) fn arm_tail_probe(&self, flight: &mut Flight, now: Instant, cfg: &RecoveryConfig) {
        let allowed = self.sack_ok
            && cfg.tail_loss_probes
            && matches!(self.state, CaState::Open | CaState::Cwr)
            && !flight.log.is_empty()
            && flight.log.sacked_out() == 0
            && flight.tail_probe.is_none();
        flight.tail_probe_at = allowed.then(|| {
            // The last transmission may wait below TCP for its departure.
            let from = now.max(self.last_sent_at);
            let at = from + timeout(self.rtt.srtt(), flight.log.packets_out(), cfg.rto_min);
            flight.rto_at.map_or(at, |rto_at| rto_at.min(at))
        });
    }
}

impl Recovery {
    /// The last segment in flight, for a probe that repeats data. RFC 8985 §7.3.
    pub(crate) fn tail_probe_range(&self, mss: u32) -> Option<Range<u64>> {
        let last = self.log()?.last()?;
        let mss = u64::from(mss.clamp(1, u32::from(last.mss)));
        let len = last.end - last.start;
        let tail = match len % mss {
            0 => mss,
            rest => rest,
        };
        Some(last.end - tail.min(len)..last.end)
    }

    /// The probe that was due leaves at `departure`, as new data or as a repetition.
    pub(crate) fn on_tail_probe_sent(&mut self, departure: Instant, cfg: &RecoveryConfig) {
        let Self { base, flight: Some(flight) } = self else { return };
        flight.tail_probe_due = false;
        let is_retransmission = flight.tail_probe.is_some_and(|probe| probe.is_retransmission);
        flight.tail_probe = Some(TailProbe { end: flight.log.nxt(), is_retransmission });
        flight.tail_probe_at = None;
        flight.rto_at = Some(departure + base.rto(cfg));
    }

    /// The probe that is due may not leave (pacing, small queue, window, a copy still below): the timeout
    /// takes over.
    pub(crate) fn on_tail_probe_blocked(&mut self) {
        if let Some(flight) = &mut self.flight {
            flight.tail_probe_due = false;
        }
    }
}
