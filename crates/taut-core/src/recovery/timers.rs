//! Which of the three timers is next, and what happens when one fires.
//! RFC 6298 §5, RFC 8985 §6.3 and §7.3.
//! Called by the connection when [`Recovery::deadline`] passes.

use super::RecoveryConfig;
use super::log::sent::SACKED;
use super::{Base, CaState, Flight, Recovery};
use crate::congestion::{Congestion, Signal};
use crate::words::{Duration, Instant};

/// Added to the timers for reordering and for the tail loss probe: it allows for the jitter of timers and
/// hosts, and lets one firing handle everything that is due. Linux: `TCP_TIMEOUT_MIN`, 2 ms.
pub(super) const TIMER_SLACK: Duration = Duration::from_millis(2);

/// The purpose of a [`Recovery::deadline`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecoveryTimer {
    /// RFC 8985 §6.3: a reordered packet is late enough to be lost.
    Reorder,
    /// RFC 8985 §7: tail loss probe.
    TailProbe,
    /// RFC 6298: retransmission timeout.
    Rto,
}

impl Flight {
    /// The earliest timer; a probe goes before a timeout that is due at the same moment.
    pub(super) fn deadline(&self) -> Option<(Instant, RecoveryTimer)> {
        let earlier = |first: Option<(Instant, RecoveryTimer)>, at: Option<Instant>, timer| match (first, at)
        {
            (Some((first_at, _)), Some(at)) if first_at <= at => first,
            (_, Some(at)) => Some((at, timer)),
            (_, None) => first,
        };
        let first = self.reorder_at.map(|at| (at, RecoveryTimer::Reorder));
        let first = earlier(first, self.tail_probe_at, RecoveryTimer::TailProbe);
        earlier(first, self.rto_at, RecoveryTimer::Rto)
    }
}

impl Recovery {
    /// A deadline passed: afterwards, [`mode`](Self::mode) and [`next_retransmit`](Self::next_retransmit) say
    /// what may leave. The head may always leave after a retransmission timeout.
    pub(crate) fn on_timeout(&mut self, now: Instant, cc: &mut Congestion, cfg: &RecoveryConfig) {
        let Self { base, flight: Some(flight) } = self else { return };
        let due = flight.deadline().filter(|&(at, _)| at <= now);
        flight.tail_probe_due = false;
        match due.map(|(_, timer)| timer) {
            None => {}
            Some(RecoveryTimer::Reorder) => base.on_reorder_timeout(flight, now, cc, cfg),
            Some(RecoveryTimer::TailProbe) => {
                flight.tail_probe_due = true;
                flight.tail_probe_at = None;
                // RFC 8985 §7.3: the probe replaces a timeout that is due now, too.
                flight.rto_at = Some(now + base.rto(cfg));
            }
            Some(RecoveryTimer::Rto) => base.on_rto(flight, now, cc, cfg),
        }
    }

    /// The timeout that was just handled does not count towards giving up.
    pub(crate) fn excuse_timeout(&mut self) {
        self.base.timeouts = self.base.timeouts.saturating_sub(1);
        if let Some(flight) = &mut self.flight {
            flight.first_timeout_at = None;
        }
    }
}

impl Base {
    /// RFC 8985 §6.3.
    fn on_reorder_timeout(
        &mut self,
        f: &mut Flight,
        now: Instant,
        cc: &mut Congestion,
        cfg: &RecoveryConfig,
    ) {
        f.reorder_at = None;
        self.mark_lost(f, now, false, cfg);
        if f.log.pending() == 0 {
            return;
        }
        self.begin_repair(f, now, cc, 0);
        if self.state == CaState::Recovery && !cc.owns_cwnd() {
            // Nothing was delivered, but the first retransmission must leave (RFC 9937 §6.2).
            cc.set_cwnd(f.prr.on_ack(0, f.log.in_flight(), cc.ssthresh(), false));
        }
    }

    /// RFC 6298 §5.4-5.6, RFC 5681 §3.1.
    fn on_rto(&mut self, f: &mut Flight, now: Instant, cc: &mut Congestion, cfg: &RecoveryConfig) {
        f.reorder_at = None;
        f.tail_probe = None;
        // RFC 2018 §8: the peer had received the head and does not acknowledge it, so it has dropped it.
        if f.reneging || f.log.first().is_some_and(|head| head.has(SACKED)) {
            f.reneging = false;
            f.log.forget_sacks();
            self.mark_timed_out(f, now, true);
        } else {
            self.mark_timed_out(f, now, false);
        }
        // After a timeout it is unknown which packets did not arrive.
        f.judge_mtu_probe(self.una, CaState::Loss);
        f.frto.on_timeout(cfg.frto, self.state >= CaState::Recovery, self.timeouts);
        // One reduction per loss: none for data sent before the last reduction, unless that loss was repaired
        // since (RFC 5681 §3.1).
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
        f.rto_at = Some(now + self.rto(cfg));
    }

    /// Marks the head lost, and everything that was sent long enough ago (all, as long as RACK knows no RTT).
    fn mark_timed_out(&self, f: &mut Flight, now: Instant, all: bool) {
        if !self.sack_ok {
            f.log.clear_dup_acks();
        }
        let patience = f.rack.rtt();
        let una = f.log.una();
        f.log.mark_all_lost(|record| all || record.start == una || record.sent_at + patience <= now);
        f.log.set_rack_cursor(f.log.una());
    }
}
