//! Packets go to the device and tickets come back: the only place where either changes the [`Sender`].
//! The form is taut's own; the notes for congestion control and `TCP_INFO` are those that Linux 6.12 makes at
//! the end of `tcp_write_xmit`. Called by the connection.

use super::books::chrono::Kind;
use super::inputs::Candidate;
use super::pacing::{LateMax, Status};
use super::plan::{Plan, plan};
use super::size::tso_defer::Limited;
use super::{Blocked, Gate, SendCx, Sender, Shared, Totals, small_queue};
use crate::recovery::{CaState, Mode};
use crate::stats::Counters;
use crate::words::{Duration, Instant, Output, SendKind, TxTicket};

/// A packet that is below TCP from now on.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) plan: Plan,
    /// When it leaves the host.
    pub(crate) departure: Instant,
    /// Complete except for the name of the connection, which the stack adds.
    pub(crate) ticket: TxTicket,
}

/// Nothing may leave now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotNow {
    /// The first gate that is shut.
    pub(crate) why: Blocked,
    /// That gate was open when it was last checked, or something was sent since.
    pub(crate) is_new: bool,
    /// The connection now waits for a completion or for its departure time, and did not before.
    pub(crate) waits: bool,
    /// A retransmission waits for its own copy to leave the host.
    pub(crate) own_copy: bool,
}

impl Sender {
    // ---- the device ----

    /// The next packet, decided on and below TCP from now on.
    ///
    /// # Errors
    ///
    /// Why nothing may leave. The event that will end the wait is noted.
    pub(crate) fn next(
        &mut self,
        cx: &SendCx<'_>,
        shared: &mut Shared,
        counters: &mut Counters,
    ) -> Result<Leaving, NotNow> {
        self.end_paced(cx.now, &mut shared.totals, counters);
        if cx.link.paces && self.blocked == Gate::SmallQueue && !self.sent {
            self.look(cx, shared);
        }
        let mode = self.recovery.mode();
        match plan(self, cx, mode) {
            Ok(plan) => {
                let prior_departure = self.pacing.next_departure();
                let (departure, truesize) = self.commit(cx, &plan, shared);
                if mode == Mode::TailProbe {
                    self.recovery.on_tail_probe_sent(departure, cx.recovery);
                    // Of new data too (Linux).
                    counters.tcp_loss_probes += 1;
                }
                let ticket = TxTicket {
                    conn: None,
                    truesize,
                    start: plan.range.start,
                    end: plan.range.end,
                    segs: u16::try_from(plan.segs()).unwrap_or(u16::MAX),
                    handed: cx.now,
                    prior_departure,
                    output: Output::Data(plan.kind),
                    serial: self.data_segs_out as u16,
                    in_loss: plan.kind == SendKind::Retransmit && self.recovery.is_in_loss(),
                    metered: cx.device.is_some(),
                };
                Ok(Leaving { plan, departure, ticket })
            }
            Err(why) => Err(self.hold(cx, mode, why, shared)),
        }
    }

    /// Above a link that paces, a connection that waited for its tickets is asked again.
    fn look(&self, cx: &SendCx<'_>, shared: &mut Shared) {
        if cx.device.is_some() {
            return;
        }
        // Tickets of what was acknowledged are on their way.
        let below = if self.recovery.records() == 0 { 0 } else { self.small_queue.outstanding() };
        shared.ahead.on_asked(cx.now, below, self.small_queue_rate(cx), self.pacing.next_departure());
    }

    /// The gates are shut: remembers what will open them.
    fn hold(&mut self, cx: &SendCx<'_>, mode: Mode, why: Blocked, shared: &mut Shared) -> NotNow {
        let is_new = self.sent || self.blocked != why.gate();
        if mode == Mode::TailProbe {
            self.recovery.on_tail_probe_blocked();
        }
        match why {
            Blocked::Pacing { .. } => {}
            Blocked::SmallQueue => self.owed.hold(&self.pacing, self.late_max, cx.now),
            Blocked::NoData | Blocked::Nagle => self.owed.freeze(&self.pacing, self.late_max, cx.now),
            _ => self.owed.forget(),
        }
        let throttled = self.note_blocked(cx, why, &mut shared.totals);
        self.due = false;
        let (waits, own_copy) = match why {
            Blocked::Pacing { .. } => (!core::mem::replace(&mut self.paced, true), false),
            Blocked::SmallQueue => (throttled, self.waits_for_own_copy(cx)),
            _ => (false, false),
        };
        let own = &mut self.small_queue.metered;
        // Its own copy comes back to this connection only, so it waits for no turn.
        if why == Blocked::SmallQueue && cx.device.is_some() && !own_copy {
            shared.meter.on_wait(own);
        } else {
            shared.meter.end_wait(own);
        }
        NotNow { why, is_new, waits, own_copy }
    }

    /// In this state, the connection sends nothing: no gate holds it back from now on.
    pub(crate) fn hold_all(&mut self, now: Instant, totals: &mut Totals) {
        self.note_held(now, Gate::NoData, totals);
        self.due = false;
    }

    /// The connection is over: it is held back by nothing, and busy with nothing (Linux:
    /// `tcp_write_queue_purge`).
    pub(crate) fn finish(&mut self, now: Instant, totals: &mut Totals) {
        self.hold_all(now, totals);
        if let Some(writer) = &mut self.writer {
            writer.ledger.chrono.stop(now, Kind::Busy, true);
        }
    }

    /// Nothing more can be sent now, because of `why`: notes the event that will end that, and the window
    /// that was the limit. Returns whether the connection begins to wait for a completion.
    fn note_blocked(&mut self, cx: &SendCx<'_>, why: Blocked, totals: &mut Totals) -> bool {
        // MSG_MORE on a write holds for one attempt.
        self.nagle.forget_more();
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
                self.congestion.restrain_unused(cx.now, self.recovery.rto(cx.recovery), cx.congestion);
            }
        }
        if why == Blocked::PeerWindow && self.congestion.paces() {
            // Rate samples now measure the receiver: a model of the path must not take them for the network's
            // rate. Linux marks samples only for the application.
            self.recovery.set_app_limited();
        }
        self.blocked = why.gate();
        let Some(writer) = &mut self.writer else { return throttled };
        writer.ledger.on_gate(cx.now, why.gate(), totals);
        if why == Blocked::PeerWindow || deferred_by == Some(Limited::PeerWindow) {
            writer.ledger.chrono.start(cx.now, Kind::PeerWindow);
        } else {
            writer.ledger.chrono.stop(cx.now, Kind::PeerWindow, false);
        }
        if why == Blocked::SendBuffer && sent && !cwnd_limited {
            writer.ledger.chrono.start(cx.now, Kind::SendBuffer);
        }
        throttled
    }

    /// The tail is held by `gate` although no packet was asked for, or the device would not take one.
    pub(super) fn note_held(&mut self, now: Instant, gate: Gate, totals: &mut Totals) {
        self.blocked = gate;
        if let Some(writer) = &mut self.writer {
            writer.ledger.on_gate(now, gate, totals);
        }
    }

    /// A packet without data leaves.
    pub(crate) fn note_bare(&mut self) {
        self.small_queue.charge(small_queue::ACK_TRUESIZE);
        self.segs_out = self.segs_out.wrapping_add(1);
    }

    /// SYN-ACKs that left before this connection was made.
    pub(crate) const fn note_syn_acks(&mut self, count: u32) {
        self.segs_out = count;
    }

    /// A packet without data was not sent after all.
    pub(crate) fn take_bare_back(&mut self, ticket: &TxTicket) {
        let _ = self.small_queue.release(ticket.truesize);
    }

    /// A ticket came back: the packet has left the host. Resumes the connection if it waited for that.
    pub(crate) fn complete(&mut self, now: Instant, ticket: &TxTicket, shared: &mut Shared) {
        if ticket.start != ticket.end {
            self.recovery.on_tx_completed(&(ticket.start..ticket.end));
        }
        if ticket.truesize > small_queue::ACK_TRUESIZE
            && let Some(writer) = &mut self.writer
        {
            let payload = ticket.truesize - small_queue::OVERHEAD;
            writer.ledger.on_completed(now, ticket.handed, payload, &mut shared.totals);
        }
        if ticket.metered {
            let payload = ticket.truesize - small_queue::OVERHEAD;
            shared.meter.on_completed(&mut self.small_queue.metered, now, ticket.handed, payload);
        }
        self.due |= self.small_queue.release(ticket.truesize) && !self.small_queue.metered.waits();
    }

    /// Whether it waits for its turn at a device whose completions are measured.
    pub(crate) const fn awaits_turn(&self) -> bool {
        self.small_queue.metered.waits()
    }

    /// Whether the connection must get a place in the line for the device; it has one from now on.
    pub(crate) const fn joins_line(&mut self) -> bool {
        self.small_queue.metered.joins()
    }

    /// The connection is the first in the line. Returns whether it still waits: then it is its turn.
    pub(crate) fn take_turn(&mut self, shared: &mut Shared) -> bool {
        let waited = shared.meter.give_turn(&mut self.small_queue.metered);
        if waited {
            let _ = self.small_queue.metered.throttle(false);
            self.due = true;
        }
        waited
    }

    /// The connection is gone: its tickets come back to nobody.
    pub(crate) fn leave_device(&mut self, shared: &mut Shared) {
        shared.meter.on_gone(&mut self.small_queue.metered);
    }

    /// A queue of this host is filling up: the same as a congestion mark.
    pub(crate) fn on_local_congestion(&mut self, now: Instant) {
        self.recovery.enter_cwr(now, &mut self.congestion);
    }

    /// Whether a packet of new data from `start` on carries CWR: once for each reduction (RFC 3168 §6.1.2).
    pub(crate) fn take_cwr(&mut self, start: u64) -> bool {
        self.recovery.take_cwr(start)
    }

    /// Acts on a plan: the packet is below TCP from now on. Returns its departure from the host, and its
    /// truesize.
    fn commit(&mut self, cx: &SendCx<'_>, plan: &Plan, shared: &mut Shared) -> (Instant, u32) {
        let segs = plan.segs();
        if let Some(writer) = &mut self.writer {
            writer.ledger.on_handed(cx.now, plan.payload);
            if plan.kind == SendKind::New {
                writer.ledger.on_sent(cx.now, plan.range.start, plan.range.end, &mut shared.totals);
            }
        }
        if plan.kind == SendKind::New {
            self.nxt = plan.range.end;
            self.squeeze = false;
            self.nagle.note_sent(plan.payload, plan.mss, plan.range.start + u64::from(plan.payload));
        } else if let Some(writer) = &mut self.writer {
            writer.ledger.bytes_retrans += u64::from(plan.payload);
        }
        self.sent = true;
        self.data_segs_out = self.data_segs_out.wrapping_add(segs);
        self.segs_out = self.segs_out.wrapping_add(segs);
        let truesize = small_queue::truesize(plan.payload);
        self.small_queue.charge(truesize);
        if cx.device.is_some() {
            shared.meter.on_handed(&mut self.small_queue.metered, plan.payload, plan.mss);
        }
        let rate = self.congestion.pacing_rate();
        let status = self.pacing_status(cx);
        if status == Status::Needed {
            self.late_max = LateMax::after(plan.payload, rate);
            if self.owed.is_stalled(&self.pacing, self.late_max, cx.now) {
                self.recovery.set_stalled();
            }
        }
        let owed = (&mut self.owed, self.late_max);
        let departure = self.pacing.note_sent(status, cx.now, owed, plan.payload, rate, self.data_segs_out);
        // Where the link does not hold packets, one that passed the gates leaves now, whatever the departure
        // clock says.
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

    /// Whether no other packet with data was handed out since this one.
    pub(crate) const fn is_last(&self, ticket: &TxTicket) -> bool {
        ticket.serial == self.data_segs_out as u16
    }

    /// Takes back a packet that the device refused or a queue of this host dropped, as if it had never been
    /// sent.
    pub(crate) fn take_back(&mut self, now: Instant, ticket: &TxTicket, kind: SendKind, shared: &mut Shared) {
        self.pacing.restore(ticket.prior_departure);
        self.owed.hold(&self.pacing, self.late_max, now);
        let _ = self.small_queue.release(ticket.truesize);
        let payload = ticket.truesize.saturating_sub(small_queue::OVERHEAD);
        if ticket.metered {
            shared.meter.take_back(&mut self.small_queue.metered, payload);
        }
        if kind == SendKind::New && self.nxt == ticket.end {
            self.nxt = ticket.start;
        }
        if let Some(writer) = &mut self.writer {
            writer.ledger.on_refused(payload);
            match kind {
                SendKind::New => writer.ledger.on_unsent(now, ticket.start),
                SendKind::Retransmit | SendKind::TailProbe => {
                    writer.ledger.bytes_retrans = writer.ledger.bytes_retrans.saturating_sub(payload.into());
                }
            }
        }
        let segs = u32::from(ticket.segs);
        self.data_segs_out = self.data_segs_out.wrapping_sub(segs);
        self.segs_out = self.segs_out.wrapping_sub(segs);
        self.recovery.on_refused(&(ticket.start..ticket.end), kind);
        self.note_held(now, Gate::Device, &mut shared.totals);
    }

    /// Data may be able to leave: the gates will be checked.
    pub(crate) const fn resume(&mut self) {
        self.due = true;
    }

    /// The gates will not be checked again until something happens.
    pub(crate) const fn pause(&mut self) {
        self.due = false;
    }
}
