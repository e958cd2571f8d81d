//! The next segment: RST, SYN, data, probe or ACK, in this order.
//! RFC 9293 §3.10 throughout; called by the stack when the link has room.

use core::ops::Range;

use taut_wire::tcp::Flags as TcpFlags;
use taut_wire::{Ecn as Mark, TcpHeader, TcpOptions};

use super::handshake::syn_header;
use super::state::State;
use super::{Conn, StackCx};
use crate::ecn::{Carrier, Ecn, Request, Stamp, Turn};
use crate::egress::{ACK_TRUESIZE, Blocked, Leaving, NotNow, Plan};
use crate::words::{Instant, Output, SendKind, TxTicket, seq};

/// A segment that leaves now.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) header: TcpHeader,
    /// ECN field of the packet.
    pub(crate) mark: Mark,
    /// Range of the payload in the write queue.
    pub(crate) payload: Range<u64>,
    /// The device cuts the payload into segments of this size; 0 if there is no payload.
    pub(crate) mss: u32,
    pub(crate) departure: Instant,
    /// Complete except for the name of the connection, which the stack adds.
    pub(crate) ticket: TxTicket,
}

impl Conn {
    /// The next segment, if any may leave. Asks again until the answer is `None`.
    pub(crate) fn poll_output(&mut self, cx: &mut StackCx<'_>) -> Option<Segment> {
        let srtt = self.tx.recovery().srtt();
        if let Some(ecn) = self.ecn_mut() {
            ecn.before_packet(&cx.config.ecn, cx.now, srtt);
        }
        if core::mem::take(&mut self.flags.rst_due) {
            cx.counters.out_rsts += 1;
            return Some(self.bare(cx, TcpFlags::RST | TcpFlags::ACK, self.tx.nxt(), Output::Reset));
        }
        if core::mem::take(&mut self.flags.syn_due) {
            return Some(self.syn(cx));
        }
        if let Some(turn) = self.ecn_mut().and_then(Ecn::take_turn) {
            return Some(self.ack_of(cx, turn));
        }
        if self.rx.owes_ack() && self.acks_syn_only() && self.ecn().acks_syn_first() {
            return Some(self.bare(cx, TcpFlags::ACK, self.tx.nxt(), Output::Ack));
        }
        if self.tx.wants_output() {
            if self.state.may_transmit() || (self.state == State::SynReceived && self.is_fast_child()) {
                if let Some(segment) = self.data(cx) {
                    return Some(segment);
                }
            } else {
                self.tx.hold_all(cx.now, &mut cx.shared.totals);
            }
        }
        if core::mem::take(&mut self.flags.window_probe_due) {
            // The position below una: the peer must answer, and the segment carries no data that it could
            // refuse.
            let seq = self.tx.una() - 1;
            return Some(self.bare(cx, TcpFlags::ACK, seq, Output::WindowProbe));
        }
        if self.rx.ack_wanted() {
            return Some(self.bare(cx, TcpFlags::ACK, self.tx.nxt(), Output::Ack));
        }
        self.check_space(cx);
        None
    }

    fn data(&mut self, cx: &mut StackCx<'_>) -> Option<Segment> {
        self.update_path(cx);
        let send = self.send_cx(cx);
        let leaving = match self.tx.next(&send, cx.shared, cx.counters) {
            Ok(leaving) => leaving,
            Err(not_now) => {
                self.on_held(cx, &not_now);
                return None;
            }
        };
        let Leaving { plan, departure, ticket } = leaving;
        if plan.mtu_probe {
            self.note_mtu_probe(cx, plan.payload);
        }
        self.cancel_unneeded_probe();
        self.count_leaving(cx, &plan);
        let Plan { range, payload, fin, psh, mss, kind, .. } = plan;
        let mut flags = TcpFlags::ACK;
        if psh {
            flags |= TcpFlags::PSH;
        }
        if fin {
            flags |= TcpFlags::FIN;
        }
        if payload > 0 {
            self.rx.on_data_sent(cx.now);
        }
        let carrier = match kind {
            _ if payload == 0 => Carrier::Fin,
            SendKind::New => Carrier::NewData { reduced: self.tx.take_cwr(range.start) },
            SendKind::Retransmit | SendKind::TailProbe => Carrier::OldData,
        };
        let stamp = self.stamp(carrier);
        let header = self.header(cx, flags, range.start, departure, stamp);
        let payload = range.start..range.start + u64::from(payload);
        Some(Segment { header, mark: stamp.mark, payload, mss, departure, ticket })
    }

    fn count_leaving(&self, cx: &mut StackCx<'_>, plan: &Plan) {
        let segs = u64::from(plan.segs());
        cx.counters.tsq_exempt += u64::from(plan.exempt);
        match plan.kind {
            SendKind::New => cx.counters.tcp_orig_data_sent += segs,
            SendKind::Retransmit => {
                cx.counters.retrans_segs += segs;
                if self.tx.recovery().is_in_loss() {
                    cx.counters.tcp_slow_start_retrans += segs;
                } else {
                    cx.counters.tcp_fast_retrans += segs;
                }
            }
            SendKind::TailProbe => cx.counters.retrans_segs += segs,
        }
    }

    /// Nothing may leave: counts the reason, and arms the timer that ends the wait if no other event will.
    fn on_held(&mut self, cx: &mut StackCx<'_>, not_now: &NotNow) {
        match not_now.why {
            Blocked::Pacing { .. } => cx.counters.pacing_blocked += u64::from(not_now.waits),
            Blocked::SmallQueue => {
                cx.counters.tsq_throttled += u64::from(not_now.waits);
                cx.counters.tsq_turns_awaited += u64::from(not_now.waits && self.tx.awaits_turn());
                cx.counters.tcp_spurious_rtx_host_queues += u64::from(not_now.own_copy);
                // In the line for the device, it may wait although everything is acknowledged.
                if self.tx.awaits_turn() && self.tx.recovery().packets_out() == 0 {
                    self.arm_window_probe(cx);
                }
            }
            Blocked::TsoDefer => cx.counters.tso_deferred += u64::from(not_now.is_new),
            // Only an ACK can end these, and with nothing in flight none will come by itself.
            Blocked::PeerWindow | Blocked::Cork | Blocked::Nagle if self.tx.recovery().packets_out() == 0 => {
                self.arm_window_probe(cx);
            }
            _ => {}
        }
    }

    pub(super) fn syn(&mut self, cx: &mut StackCx<'_>) -> Segment {
        let (retries, again) = (self.syns.retries, self.syns.sent > 0);
        let (flags, stamp) = if self.state == State::SynReceived {
            let ecn = self.ecn_mut();
            let stamp = ecn.map_or(Stamp::NONE, |ecn| ecn.stamp_syn_ack(&cx.config.ecn, retries, again));
            (TcpFlags::SYN | TcpFlags::ACK, stamp)
        } else {
            let wanted = self.tx.congestion().algorithm().ecn();
            let first = if again { self.ecn().asked() } else { Request::of(&cx.config.ecn, wanted) };
            if first != self.ecn().asked() {
                self.extras_mut().ecn.on_request(first);
            }
            let request = first.repeated(&cx.config.ecn, retries);
            (TcpFlags::SYN, request.stamp(wanted))
        };
        if self.syns.sent == 0 {
            self.handshake.note_sent(cx.now);
        }
        self.syns.sent = self.syns.sent.saturating_add(1);
        self.arm_syn(cx);
        let rest = TcpHeader {
            ack: if flags.contains(TcpFlags::ACK) { seq::wire(self.rx.nxt()) } else { 0 },
            flags: flags | stamp.flags,
            window: self.rx.syn_window(),
            options: TcpOptions { accecn: stamp.option, ..self.agreed.syn_options(cx.now) },
            ..TcpHeader::default()
        };
        let header = syn_header(&self.tuple, self.handshake, rest);
        if self.is_fast_child() {
            // It acknowledges the data of the SYN.
            cx.counters.tcp_ack_compressed += u64::from(self.rx.on_ack_sent());
        }
        let payload = self.syn_data();
        Segment { payload, ..self.without_payload(cx, header, stamp.mark, Output::Syn) }
    }

    /// A segment without payload.
    fn bare(&mut self, cx: &mut StackCx<'_>, flags: TcpFlags, seq: u64, output: Output) -> Segment {
        let stamp = self.stamp(if self.acks_syn_only() { Carrier::AckOfSyn } else { Carrier::Ack });
        let header = self.header(cx, flags, seq, cx.now, stamp);
        self.without_payload(cx, header, stamp.mark, output)
    }

    /// The ACK of the data that arrived before the peer's marks changed (RFC 8257 §3.2). Another ACK must
    /// follow it.
    fn ack_of(&mut self, cx: &mut StackCx<'_>, turn: Turn) -> Segment {
        let segment = self.bare(cx, TcpFlags::ACK, self.tx.nxt(), Output::Ack);
        let behind = self.rx.nxt().saturating_sub(turn.ack);
        let shift = self.agreed.own_wscale().unwrap_or(0);
        // The window's right edge stays where it is.
        let window = u64::from(segment.header.window) + behind.div_ceil(1 << shift);
        let flags = segment.header.flags.without(TcpFlags::ECE);
        let header = TcpHeader {
            ack: seq::wire(turn.ack),
            flags: if turn.marked { flags | TcpFlags::ECE } else { flags },
            window: u16::try_from(window).unwrap_or(u16::MAX),
            ..segment.header
        };
        self.rx.owe_ack();
        Segment { header, ..segment }
    }

    fn without_payload(
        &mut self,
        cx: &StackCx<'_>,
        header: TcpHeader,
        mark: Mark,
        output: Output,
    ) -> Segment {
        self.tx.note_bare();
        let nxt = self.tx.nxt();
        let ticket = TxTicket {
            conn: None,
            truesize: ACK_TRUESIZE,
            start: nxt,
            end: nxt,
            segs: 1,
            handed: cx.now,
            prior_departure: cx.now,
            output,
            serial: 0,
            in_loss: false,
            metered: false,
        };
        Segment { header, mark, payload: nxt..nxt, mss: 0, departure: cx.now, ticket }
    }

    /// The header of any segment except a SYN, in a packet that leaves the host at `leaves`. From now on, the
    /// data that it acknowledges counts as acknowledged.
    fn header(
        &mut self,
        cx: &mut StackCx<'_>,
        flags: TcpFlags,
        start: u64,
        leaves: Instant,
        stamp: Stamp,
    ) -> TcpHeader {
        let timestamps = self.agreed.timestamps.option(cx.now, leaves);
        let mut options = TcpOptions { timestamps, accecn: stamp.option, ..TcpOptions::default() };
        if let Some(blocks) = self.rx.sack_blocks() {
            for &(left, right) in blocks.as_slice() {
                options.sack.push(seq::wire(left), seq::wire(right));
            }
        }
        let window = self.rx.window_field(cx.pool.budget.is_pressed());
        let nxt = self.rx.nxt();
        cx.counters.tcp_ack_compressed += u64::from(self.rx.on_ack_sent());
        TcpHeader {
            src_port: self.tuple.local.port(),
            dst_port: self.tuple.peer.port(),
            seq: seq::wire(start),
            ack: seq::wire(nxt),
            flags: flags | stamp.flags,
            window,
            urgent: 0,
            options,
        }
    }

    /// The device refused the packet that was just handed out: it counts as not sent.
    pub(crate) fn on_refused(&mut self, cx: &mut StackCx<'_>, ticket: &TxTicket) {
        if !self.may_take_back(ticket) {
            return self.on_completion(cx, ticket);
        }
        self.take_back(cx, ticket);
        self.tx.resume();
    }

    /// A queue of this host dropped the packet that was just handed out. It counts as not sent, and as a sign
    /// of congestion. It is sent after the next ACK, completion or timeout, not immediately, because the
    /// queue is full.
    pub(crate) fn on_dropped(&mut self, cx: &mut StackCx<'_>, ticket: &TxTicket) {
        if !matches!(ticket.output, Output::Data(_)) || !self.may_take_back(ticket) {
            // Treated as lost in the network: an ACK repeated immediately would meet the same full queue.
            return self.on_completion(cx, ticket);
        }
        self.take_back(cx, ticket);
        if ticket.output != Output::Data(SendKind::New) {
            cx.counters.tcp_retrans_fail += u64::from(ticket.segs);
        }
        self.on_local_congestion(cx);
        self.tx.pause();
        if self.tx.recovery().packets_out() == 0 {
            self.retry_dropped(cx);
        }
    }

    /// Data that was followed by other data still counts as sent: if the device did not take it, recovery
    /// will find it lost. What was noted about it has been built upon since: departures, and how often its
    /// parts were retransmitted.
    fn may_take_back(&self, ticket: &TxTicket) -> bool {
        match ticket.output {
            Output::Data(SendKind::New) => ticket.end == self.tx.nxt(),
            Output::Data(SendKind::Retransmit | SendKind::TailProbe) => self.tx.is_last(ticket),
            _ => true,
        }
    }

    fn take_back(&mut self, cx: &mut StackCx<'_>, ticket: &TxTicket) {
        if let Some(ecn) = self.ecn_mut() {
            ecn.take_back();
        }
        let counters = &mut cx.counters;
        counters.out_requests -= 1;
        match ticket.output {
            Output::Data(kind) => {
                self.tx.take_back(cx.now, ticket, kind, cx.shared);
                let segs = u64::from(ticket.segs);
                match kind {
                    SendKind::New => {
                        counters.out_segs -= segs;
                        counters.tcp_orig_data_sent -= segs;
                    }
                    SendKind::Retransmit => {
                        counters.retrans_segs -= segs;
                        if ticket.in_loss {
                            counters.tcp_slow_start_retrans -= segs;
                        } else {
                            counters.tcp_fast_retrans -= segs;
                        }
                    }
                    SendKind::TailProbe => {
                        counters.retrans_segs -= segs;
                        counters.tcp_loss_probes -= 1;
                    }
                }
                // If it was an MTU probe, another may leave in its place.
                return self.judge_mtu_probe(cx);
            }
            Output::Reset => {
                self.flags.rst_due = true;
                counters.out_rsts -= 1;
            }
            Output::Syn => {
                self.flags.syn_due = true;
                self.syns.sent = self.syns.sent.saturating_sub(1);
            }
            Output::WindowProbe => self.flags.window_probe_due = true,
            Output::Ack => self.rx.owe_ack(),
            // No connection's.
            Output::Datagram => return,
        }
        counters.out_segs -= 1;
        self.tx.take_bare_back(ticket);
    }
}
