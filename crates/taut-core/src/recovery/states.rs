//! Five states from Open to Loss, and the transitions between them: every reduction of the window begins,
//! ends or is undone here. RFC 5681 §3.2, RFC 6582, RFC 9937; the states are those of Linux's
//! `tcp_fastretrans_alert`. Called by `ack.rs` and `timers.rs`, and by the send path when a queue of this
//! host is full or segments become smaller.

use super::rules::frto::Frto;
use super::rules::prr::Prr;
use super::{Base, Flight, Recovery};
use crate::congestion::{Congestion, Signal};
use crate::words::Instant;

/// The state of recovery, in order of severity, with Linux's names. `TCP_INFO` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CaState {
    /// Nothing unusual.
    Open,
    /// Segments arrived out of order or twice.
    Disorder,
    /// cwnd is being reduced, without loss: a congestion mark, or a local queue that was full.
    Cwr,
    /// Fast recovery.
    Recovery,
    /// After a retransmission timeout.
    Loss,
}

impl CaState {
    /// One word for tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Disorder => "disorder",
            Self::Cwr => "cwr",
            Self::Recovery => "recovery",
            Self::Loss => "loss",
        }
    }
}

/// How a reduction of the window begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reduction {
    pub(super) to: CaState,
    pub(super) why: Signal,
    /// It may turn out to be unnecessary.
    pub(super) undoable: bool,
}

impl Reduction {
    /// Fast recovery.
    const LOSS: Self = Self { to: CaState::Recovery, why: Signal::Loss, undoable: true };
    /// A congestion mark.
    pub(super) const MARK: Self = Self { to: CaState::Cwr, why: Signal::Mark, undoable: false };
    /// A loss that a tail loss probe repaired.
    pub(super) const REPAIRED: Self = Self { to: CaState::Cwr, why: Signal::Loss, undoable: false };
    /// A queue of this host.
    const LOCAL: Self = Self { to: CaState::Cwr, why: Signal::LocalQueue, undoable: false };
}

impl Recovery {
    /// After a retransmission timeout.
    pub(crate) fn is_in_loss(&self) -> bool {
        self.base.state == CaState::Loss
    }

    /// Lost segments are being retransmitted, and what was sent after them stays in the buffer until they
    /// arrive.
    pub(crate) const fn is_repairing(&self) -> bool {
        matches!(self.base.state, CaState::Recovery | CaState::Loss)
    }

    /// Whether the peer must still be notified of a reduction; the packet that begins at `start` then does
    /// that.
    pub(crate) fn take_cwr(&mut self, start: u64) -> bool {
        let Some(flight) = &mut self.flight else { return false };
        let due = core::mem::take(&mut flight.cwr_due);
        if due {
            flight.cwr_at = start;
        }
        due
    }

    /// A queue of this host was full, or dropped a packet: the window is reduced as for a congestion mark.
    pub(crate) fn enter_cwr(&mut self, now: Instant, cc: &mut Congestion) {
        let Self { base, flight: Some(flight) } = self else { return };
        if base.state < CaState::Cwr {
            base.begin_reduction(flight, now, cc, Reduction::LOCAL, 0);
        }
    }

    /// From now on, segments are at most `mss` bytes (RFC 1191): larger ones in flight are lost, but not
    /// because of congestion, so the window stays. Returns whether there were any.
    pub(crate) fn on_mss_change(&mut self, mss: u32) -> bool {
        let Self { base, flight: Some(flight) } = self else { return false };
        let mss = u16::try_from(mss.max(1)).unwrap_or(u16::MAX);
        flight.mss = mss;
        if flight.log.resegment(mss) == 0 {
            return false;
        }
        base.resend_without_reduction(flight);
        true
    }
}

impl Base {
    /// Whether the window is being reduced step by step.
    pub(super) const fn is_reducing(&self) -> bool {
        matches!(self.state, CaState::Cwr | CaState::Recovery)
    }

    /// Begins the repair of segments marked lost, unless it is already under way.
    #[inline]
    pub(super) fn begin_repair(
        &mut self,
        f: &mut Flight,
        now: Instant,
        cc: &mut Congestion,
        delivered_now: u32,
    ) {
        if f.judge_mtu_probe(self.una, self.state) {
            self.resend_without_reduction(f);
        } else if f.log.pending() > 0 && self.state < CaState::Recovery {
            self.begin_reduction(f, now, cc, Reduction::LOSS, delivered_now);
        }
    }

    /// Enters CWR or Recovery: reduces ssthresh now, and cwnd step by step. RFC 5681 §3.2, RFC 9937 §6.1.
    pub(super) fn begin_reduction(
        &mut self,
        f: &mut Flight,
        now: Instant,
        cc: &mut Congestion,
        reduction: Reduction,
        delivered_now: u32,
    ) {
        // One reduction per round trip: a change from CWR to Recovery continues the one under way.
        if self.state < CaState::Cwr {
            cc.begin_reduction(now, reduction.why, reduction.undoable);
            f.cwr_due = true;
            let unsacked = f.log.packets_out() - f.log.sacked_out();
            f.prr = Prr::begin(unsacked, delivered_now);
            if reduction.undoable {
                f.undo.begin(self.una, f.log.retrans_out());
            } else {
                f.undo.end();
            }
        }
        self.state = reduction.to;
        f.high_seq = f.log.nxt();
    }

    /// The reduction was unnecessary: restores the window. The RTO stays backed off until an unambiguous
    /// sample ends that, as in Linux: a spurious timeout was too short.
    pub(super) fn undo_reduction(&mut self, f: &mut Flight, now: Instant, cc: &mut Congestion) {
        cc.undo(now);
        f.cwr_due = false;
        f.undo.end();
        f.frto = Frto::Off;
        f.log.unmark_lost();
        f.rack.watch_again(&f.log);
        f.rack.on_reordering();
        self.timeouts = 0;
        f.first_timeout_at = None;
        // CWR has nothing to undo.
        if self.state >= CaState::Recovery {
            self.state = CaState::Disorder;
        }
    }

    /// Returns to Open when everything that was in flight when the state was entered is acknowledged.
    pub(super) fn leave_if_complete(&mut self, f: &mut Flight, cc: &mut Congestion) {
        let over = match self.state {
            CaState::Open | CaState::Disorder => false,
            // Beyond it, because the first ACK after the reduction covers exactly high_seq.
            CaState::Cwr => self.una > f.high_seq,
            // RFC 6582 §3.2 step 1: without SACK, duplicate ACKs caused by retransmissions must not start
            // another round.
            CaState::Recovery | CaState::Loss if !self.sack_ok => self.una > f.high_seq || f.log.is_empty(),
            CaState::Recovery | CaState::Loss => self.una >= f.high_seq,
        };
        if !over {
            return;
        }
        match self.state {
            CaState::Cwr | CaState::Recovery => cc.end_reduction(),
            _ => cc.end_loss(),
        }
        if self.state >= CaState::Recovery {
            f.rack.on_recovery_end();
        }
        if !self.sack_ok {
            f.log.clear_dup_acks();
            // RFC 6582 §3.2 step 1.
            f.recover = f.high_seq;
        }
        f.frto = Frto::Off;
        self.state = CaState::Open;
    }

    /// Segments marked lost are retransmitted, and the window stays: the packets were too large, not too
    /// many. Linux: `tcp_simple_retransmit`.
    pub(super) fn resend_without_reduction(&mut self, f: &mut Flight) {
        if self.state < CaState::Recovery {
            f.undo.end();
            f.high_seq = f.log.nxt();
            self.state = CaState::Loss;
        }
    }
}
