//! The three timers: when they are armed, and what happens when one fires.
//! RFC 6298 §5, RFC 8985 §6.3 and §7.2.
//! Called by the connection, when data is sent and when [`Recovery::deadline`] passes.

use core::ops::Range;

use super::RecoveryConfig;
use super::ack::Reduction;
use super::sent::SACKED;
use super::tlp::{self, Probe};
use super::{CaState, InFlight, Recovery, RecoveryTimer, TimeoutAction};
use crate::congestion::{Congestion, Signal};
use crate::words::Instant;

impl Recovery {
    /// Arms the tail loss probe after a transmission or an ACK, where it is allowed. RFC 8985 §7.2.
    pub(super) fn arm_probe(&mut self, now: Instant, cfg: &RecoveryConfig) {
        let Some(flight) = &mut self.flight else { return };
        let allowed = self.sack_ok
            && cfg.tail_loss_probes
            && matches!(self.state, CaState::Open | CaState::Cwr)
            && !flight.log.is_empty()
            && flight.log.sacked_out() == 0
            && flight.probe.is_none();
        flight.tlp_at = allowed.then(|| {
            let at = now + tlp::timeout(self.rtt.srtt(), flight.log.packets_out(), cfg.rto_min);
            flight.rto_at.map_or(at, |rto_at| rto_at.min(at))
        });
    }

    /// A deadline passed.
    pub(crate) fn on_timeout(
        &mut self,
        now: Instant,
        cc: &mut Congestion,
        cfg: &RecoveryConfig,
    ) -> TimeoutAction {
        let Some(mut flight) = self.flight.take() else { return TimeoutAction::Nothing };
        let due = flight.deadline().filter(|&(at, _)| at <= now);
        let action = match due.map(|(_, timer)| timer) {
            None => TimeoutAction::Nothing,
            Some(RecoveryTimer::Reorder) => self.on_reorder_timeout(&mut flight, now, cc, cfg),
            Some(RecoveryTimer::Probe) => {
                flight.tlp_at = None;
                // RFC 8985 §7.3: the probe comes instead of a timeout that is due now, too.
                flight.rto_at = Some(now + self.rto());
                TimeoutAction::Probe
            }
            Some(RecoveryTimer::Rto) => self.on_rto(&mut flight, now, cc, cfg),
        };
        self.flight = Some(flight);
        action
    }

    /// RFC 8985 §6.3.
    fn on_reorder_timeout(
        &mut self,
        f: &mut InFlight,
        now: Instant,
        cc: &mut Congestion,
        cfg: &RecoveryConfig,
    ) -> TimeoutAction {
        f.reorder_at = None;
        self.detect(f, now, false, cfg);
        if f.log.pending() == 0 {
            return TimeoutAction::Nothing;
        }
        if f.judge_mtu_probe(self.una, self.state) {
            self.resend_without_reduction(f, cc);
        } else if self.state < CaState::Recovery {
            self.begin_reduction(f, now, cc, Reduction::LOSS, 0);
        }
        if self.state == CaState::Recovery && !cc.owns_cwnd() {
            // Nothing was delivered, but the first retransmission must leave (RFC 9937 §6.2).
            cc.set_cwnd(f.prr.on_ack(0, f.log.in_flight(), cc.ssthresh(), false));
        }
        TimeoutAction::LossMarked
    }

    /// RFC 6298 §5.4-5.6, RFC 5681 §3.1.
    fn on_rto(
        &mut self,
        f: &mut InFlight,
        now: Instant,
        cc: &mut Congestion,
        cfg: &RecoveryConfig,
    ) -> TimeoutAction {
        f.rto_at = None;
        f.tlp_at = None;
        f.reorder_at = None;
        f.probe = None;
        if f.log.is_empty() {
            return TimeoutAction::Nothing;
        }
        // RFC 2018 §8: a head that the peer once had and does not acknowledge is missing after all.
        if f.reneging || f.log.first().is_some_and(|head| head.has(SACKED)) {
            f.reneging = false;
            f.log.forget_sacks();
            f.cache.clear();
            self.mark_timed_out(f, now, true);
        } else {
            self.mark_timed_out(f, now, false);
        }
        // After a timeout nobody knows what it was that did not arrive.
        f.judge_mtu_probe(self.una, CaState::Loss);
        f.frto.on_timeout(cfg.frto, self.state >= CaState::Recovery, self.timeouts);
        // One reduction for one loss: not again for data sent before the last one, unless that was repaired since
        // (RFC 5681 §3.1).
        let repaired = self.state == CaState::Loss && self.timeouts == 0;
        if self.state <= CaState::Disorder || self.una >= f.high_seq || repaired {
            cc.begin_reduction(now, Signal::Timeout, true);
            f.undo.begin(self.una, f.log.retrans_out());
        }
        let delivered = self.delivered;
        f.log.take_lost(delivered, |packet| cc.on_lost(packet));
        cc.on_timeout(now, f.log.in_flight());
        f.cwr_due = true;
        self.state = CaState::Loss;
        f.high_seq = f.log.nxt();
        self.timeouts = self.timeouts.saturating_add(1);
        self.backoff = self.backoff.saturating_add(1);
        f.first_timeout_at.get_or_insert(now);
        f.rto_at = Some(now + self.rto());
        TimeoutAction::LossMarked
    }

    /// The timeout that was just handled does not count towards giving up.
    pub(crate) fn excuse_timeout(&mut self) {
        self.timeouts = self.timeouts.saturating_sub(1);
        if let Some(flight) = &mut self.flight {
            flight.first_timeout_at = None;
        }
    }

    /// The head is lost, and everything that was sent long enough ago (all, as long as RACK knows no RTT).
    fn mark_timed_out(&self, f: &mut InFlight, now: Instant, all: bool) {
        if !self.sack_ok {
            f.log.clear_dup_acks();
        }
        let patience = f.rack.rtt();
        for index in 0..f.log.len() {
            let recent = f.log.get(index).is_some_and(|record| record.sent_at + patience > now);
            if index == 0 || all || !recent {
                f.log.mark_lost(index);
            }
        }
        f.log.set_rack_cursor(f.log.una());
    }

    /// The last segment in flight, for a probe that repeats data. RFC 8985 §7.3.
    pub(crate) fn probe_range(&self, mss: u32) -> Option<Range<u64>> {
        let last = self.log()?.last()?;
        let mss = u64::from(mss.clamp(1, u32::from(last.mss)));
        let len = last.end - last.start;
        let tail = match len % mss {
            0 => mss,
            rest => rest,
        };
        Some(last.end - tail.min(len)..last.end)
    }

    /// The probe of [`TimeoutAction::Probe`] left, as new data or as a repetition.
    pub(crate) fn on_probe_sent(&mut self, now: Instant) {
        let rto = self.rto();
        let Some(flight) = &mut self.flight else { return };
        let is_retransmission = flight.probe.is_some_and(|probe| probe.is_retransmission);
        flight.probe = Some(Probe { end: flight.log.nxt(), is_retransmission });
        flight.tlp_at = None;
        flight.rto_at = Some(now + rto);
    }

    /// No probe could be sent (pacing, small queue, window, a copy still below): leave it to the RTO.
    pub(crate) fn on_probe_impossible(&mut self, now: Instant) {
        let rto = self.rto();
        let Some(flight) = &mut self.flight else { return };
        flight.tlp_at = None;
        if !flight.log.is_empty() {
            flight.rto_at = Some(now + rto);
        }
    }

    /// Packets may only carry `mss` bytes from now on (RFC 1191): what was sent larger is lost, but not by
    /// congestion, so the window stays. Returns whether something is to be resent.
    pub(crate) fn on_mss_change(&mut self, mss: u32, cc: &mut Congestion) -> bool {
        let Some(flight) = &mut self.flight else { return false };
        let mss = u16::try_from(mss.max(1)).unwrap_or(u16::MAX);
        flight.mss = mss;
        // A block may cover whole segments now where it covered a part of one.
        flight.cache.clear();
        if flight.log.resegment(mss) == 0 {
            return false;
        }
        let Some(mut flight) = self.flight.take() else { return false };
        self.resend_without_reduction(&mut flight, cc);
        self.flight = Some(flight);
        true
    }

    /// What is marked lost goes again, and the window stays: it was too large, and not too much. Linux:
    /// `tcp_simple_retransmit`.
    pub(super) fn resend_without_reduction(&mut self, f: &mut InFlight, cc: &mut Congestion) {
        if self.state < CaState::Recovery {
            cc.forget_prior();
            f.undo.end();
            f.high_seq = f.log.nxt();
            self.state = CaState::Loss;
        }
    }
}
