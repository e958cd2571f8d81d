//! What a decision changes: the only place where sending, refusal, completion and acknowledgement write to the
//! [`Sender`]. Ours in form; what is noted for congestion control and `TCP_INFO` is what Linux 6.12 notes at the end of
//! `tcp_write_xmit`. Called by the connection.

use super::chrono::Kind;
use super::pacing::Status;
use super::tso_defer::Limited;
use super::{Blocked, Candidate, Gate, Plan, SendCx, Sender, tsq};
use crate::egress::Totals;
use crate::recovery::CaState;
use crate::words::{Duration, Instant, SendKind, TxTicket};

impl Sender {
    /// Nothing more can be sent now, because of `why`: remembers what is to be done when that ends, and what that says
    /// of the windows. Returns whether the connection begins to wait for a completion.
    pub(crate) fn note_blocked(&mut self, cx: &SendCx<'_>, why: Blocked, totals: &mut Totals) -> bool {
        // What was said with one write holds for one attempt.
        self.nagle.more = false;
        let throttled = why == Blocked::SmallQueue && self.small_queue.throttle();
        let deferred_by = (why == Blocked::TsoDefer).then(|| {
            let candidate = Candidate::of(self, cx);
            self.deferral(cx, candidate, self.autosized_segs(cx)).limited_by()
        });
        let cwnd_limited = why == Blocked::Cwnd
            || deferred_by == Some(Limited::Cwnd)
            || self.recovery.in_flight() >= self.congestion.cwnd();
        let sent = core::mem::take(&mut self.sent);
        if sent || cwnd_limited {
            let packets_out = self.recovery.packets_out();
            self.congestion.note_limited(cx.now, packets_out, self.nxt, self.una(), cwnd_limited);
            if self.recovery.state() == CaState::Open && !self.buffer.nospace {
                self.congestion.restrain_unused(cx.now, self.recovery.rto(), cx.congestion);
            }
        }
        if why == Blocked::PeerWindow && self.congestion.paces() {
            // What is measured now is the receiver's rate: a model of the path must not take it for the network's. Linux
            // says so only of the application.
            self.recovery.set_app_limited();
        }
        self.blocked = why.gate();
        let Some(ledger) = &mut self.ledger else { return throttled };
        ledger.on_gate(cx.now, why.gate(), totals);
        if why == Blocked::PeerWindow || deferred_by == Some(Limited::PeerWindow) {
            ledger.chrono.start(cx.now, Kind::PeerWindow);
        } else {
            ledger.chrono.stop(cx.now, Kind::PeerWindow, false);
        }
        if why == Blocked::SendBuffer && sent && !cwnd_limited {
            ledger.chrono.start(cx.now, Kind::SendBuffer);
        }
        throttled
    }

    /// The tail is held by `gate` although nobody asked for a packet, or the device would not take one.
    pub(crate) fn note_held(&mut self, now: Instant, gate: Gate, totals: &mut Totals) {
        self.blocked = gate;
        if let Some(ledger) = &mut self.ledger {
            ledger.on_gate(now, gate, totals);
        }
    }

    /// Whether anything was sent since a gate was last found shut.
    pub(crate) const fn has_sent(&self) -> bool {
        self.sent
    }

    /// A sample of the delivery rate, in bytes per second. One that the application limited counts only if it is higher:
    /// the path can do at least that.
    pub(crate) fn note_delivery_rate(&mut self, rate: u64, app_limited: bool) {
        if let Some(ledger) = &mut self.ledger
            && (!app_limited || rate > ledger.delivery_rate)
        {
            ledger.delivery_rate = rate;
            ledger.app_limited = app_limited;
        }
    }

    /// The application that was refused has room again.
    pub(crate) fn note_space(&mut self, now: Instant) {
        if let Some(ledger) = &mut self.ledger {
            ledger.chrono.stop(now, Kind::SendBuffer, false);
        }
    }

    /// `una` moved.
    pub(crate) fn note_acked(&mut self, now: Instant, totals: &mut Totals) {
        let una = self.una();
        let empty = una == self.end();
        let Some(ledger) = &mut self.ledger else { return };
        ledger.on_acked(now, una, totals);
        if let Some(sent_at) = self.recovery.head_sent_at() {
            ledger.time_head(una, sent_at);
        }
        if empty {
            ledger.chrono.stop(now, Kind::Busy, true);
        }
    }

    /// A ticket came back. Returns whether the connection is to be resumed.
    pub(crate) fn note_completed(
        &mut self,
        now: Instant,
        truesize: u32,
        handed: Instant,
        totals: &mut Totals,
    ) -> bool {
        if truesize > tsq::ACK_TRUESIZE
            && let Some(ledger) = &mut self.ledger
        {
            ledger.on_completed(now, handed, truesize - tsq::OVERHEAD, totals);
        }
        self.small_queue.release(truesize)
    }

    /// Acts on a plan: the packet is below TCP from now on. Returns when it leaves the host and its truesize.
    pub(crate) fn commit(&mut self, cx: &SendCx<'_>, plan: &Plan, totals: &mut Totals) -> (Instant, u32) {
        let segs = plan.segs();
        if let Some(ledger) = &mut self.ledger {
            ledger.on_handed(cx.now, plan.payload);
            if plan.kind == SendKind::New {
                ledger.on_sent(cx.now, plan.range.start, plan.range.end, totals);
            }
        }
        if plan.kind == SendKind::New {
            self.nxt = plan.range.end;
            self.squeeze = false;
            self.nagle.note_sent(plan.payload, plan.mss, plan.range.start + u64::from(plan.payload));
        } else if let Some(ledger) = &mut self.ledger {
            ledger.bytes_retrans += u64::from(plan.payload);
        }
        self.sent = true;
        self.data_segs_out = self.data_segs_out.wrapping_add(segs);
        self.segs_out = self.segs_out.wrapping_add(segs);
        let truesize = tsq::truesize(plan.payload);
        self.small_queue.charge(truesize);
        let rate = self.congestion.pacing_rate();
        let status = self.pacing_status(cx);
        let departure = self.pacing.note_sent(status, cx.now, plan.payload, rate, self.data_segs_out);
        // Where nothing below waits, a packet that no gate held leaves now, whatever the clock of departures says.
        let leaves = match status {
            Status::Delegated => departure + Duration::from_micros(u64::from(cx.tx_delay_us)),
            Status::None | Status::Needed => cx.now,
        };
        self.recovery.on_transmit(leaves, plan.range.clone(), plan.mss, plan.kind, cx.recovery);
        if plan.mtu_probe {
            self.recovery.on_mtu_probe_sent(plan.range.clone(), cx.mss);
        }
        (leaves, truesize)
    }

    /// Takes back what the device refused at once: as if [`commit`](Self::commit) had never happened.
    pub(crate) fn revoke(&mut self, now: Instant, ticket: &TxTicket, kind: SendKind) {
        self.pacing.restore(ticket.prior_departure);
        let _ = self.small_queue.release(ticket.truesize);
        let payload = ticket.truesize.saturating_sub(tsq::OVERHEAD);
        if kind == SendKind::New && self.nxt == ticket.end {
            self.nxt = ticket.start;
        }
        if let Some(ledger) = &mut self.ledger {
            ledger.on_refused(payload);
            match kind {
                SendKind::New => ledger.on_unsent(now, ticket.start),
                SendKind::Retransmit | SendKind::Probe => ledger.bytes_retrans -= u64::from(payload),
            }
        }
        let segs = u32::from(ticket.segs);
        self.data_segs_out = self.data_segs_out.wrapping_sub(segs);
        self.segs_out = self.segs_out.wrapping_sub(segs);
        self.recovery.on_refused(&(ticket.start..ticket.end), kind);
    }
}
