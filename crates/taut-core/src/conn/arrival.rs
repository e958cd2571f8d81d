//! A segment arrives: RFC 9293 §3.10.7, in its order, with RFC 5961's and RFC 7323's checks in their places.
//! Called by the stack for every segment that belongs to a connection.

use core::ops::Range;

use taut_wire::tcp::Flags as TcpFlags;
use taut_wire::{Ecn as Mark, SackBlocks, TcpHeader};

use super::state::State;
use super::{Conn, StackCx};
use crate::ecn::{SegmentIn, Urgency};
use crate::ingress::validate::{self, Check};
use crate::ingress::{Payload, ReceiveCx, Squeezed};
use crate::recovery::{AckInput, AckOutcome, Undone};
use crate::stats::Counters;
use crate::words::{ConnError, Duration, seq};

/// A segment, parsed and with a valid checksum.
#[derive(Debug)]
pub(crate) struct Arrival<'a> {
    pub(crate) header: &'a TcpHeader,
    pub(crate) payload: Payload<'a>,
    /// Segment size of a super-packet; 0 for an ordinary packet.
    pub(crate) gso_size: u16,
    /// ECN field of the packet, or of every packet in a super-packet.
    pub(crate) mark: Mark,
}

impl Arrival<'_> {
    /// Its length in sequence numbers.
    pub(crate) fn len(&self) -> u32 {
        let occupies = |flag| u32::from(self.header.flags.contains(flag));
        self.payload.len() as u32 + occupies(TcpFlags::SYN) + occupies(TcpFlags::FIN)
    }
}

/// What the stack must do in addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Consequence {
    /// Nothing.
    None,
    /// Answer this segment with RST, as if there were no connection.
    Reset,
    /// It is the peer's answer to our SYN, and acknowledges that: its options may be believed.
    SynAnswered,
}

/// At 100 Gbit/s sequence numbers repeat after 343 ms.
const LATE_MAX: Duration = Duration::from_millis(200);

impl Conn {
    /// Takes a segment in.
    pub(crate) fn on_segment(&mut self, cx: &mut StackCx<'_>, arrival: Arrival<'_>) -> Consequence {
        self.segs_in = self.segs_in.wrapping_add(1);
        match self.state {
            State::SynSent => self.on_segment_in_syn_sent(cx, arrival),
            State::Closed | State::TimeWait => Consequence::None,
            _ => self.on_segment_synchronized(cx, arrival),
        }
    }

    /// §3.10.7.3.
    fn on_segment_in_syn_sent(&mut self, cx: &mut StackCx<'_>, arrival: Arrival<'_>) -> Consequence {
        let Arrival { header, payload, gso_size, mark } = arrival;
        if self.awaits_first_write() {
            return Consequence::None;
        }
        let flags = header.flags;
        let acks_syn = flags.contains(TcpFlags::ACK);
        // First, the ACK: only our SYN, with its data, can be acknowledged.
        if acks_syn && !self.acks_syn(header.ack) {
            return if flags.contains(TcpFlags::RST) { Consequence::None } else { Consequence::Reset };
        }
        // Second, the RST: believed if it acknowledges our SYN.
        if flags.contains(TcpFlags::RST) {
            if acks_syn {
                self.fail(cx, ConnError::Refused);
            }
            return Consequence::None;
        }
        // Fourth, the SYN.
        if flags.contains(TcpFlags::SYN) {
            self.agree(cx, header, mark);
            self.note_arrival(cx.now);
            if acks_syn {
                self.establish(cx, header);
                self.news.connected = true;
                self.rx.owe_ack();
                if payload.is_empty() || self.takes_data_of_syn_ack() {
                    // A FIN that follows ignored data comes again with that.
                    self.take_syn_data(cx, payload, flags.contains(TcpFlags::FIN), gso_size);
                }
                return Consequence::SynAnswered;
            }
            // Simultaneous open (§3.5, figure 8): our SYN is retransmitted, with an ACK.
            self.state = State::SynReceived;
            self.flags.syn_due = true;
        }
        Consequence::None
    }

    /// §3.10.7.4.
    fn on_segment_synchronized(&mut self, cx: &mut StackCx<'_>, arrival: Arrival<'_>) -> Consequence {
        let Arrival { mut header, payload, gso_size, mark } = arrival;
        let without_syn;
        let mut crossed = false;
        if self.state == State::SynReceived && self.is_same_syn(header) {
            if !header.flags.contains(TcpFlags::ACK) {
                if self.ecn_mut().is_some_and(|ecn| !ecn.on_repeated_syn(header.flags, mark)) {
                    self.abort(cx);
                    return Consequence::None;
                }
                // Our SYN-ACK was lost.
                self.flags.syn_due = true;
                return Consequence::None;
            }
            // The other half of a simultaneous open: the SYN is already known, the ACK is new.
            without_syn = TcpHeader {
                flags: header.flags.without(TcpFlags::SYN),
                seq: header.seq.wrapping_add(1),
                ..*header
            };
            header = &without_syn;
            crossed = true;
        }
        let flags = header.flags;
        if flags.contains(TcpFlags::SYN | TcpFlags::ACK)
            && header.ack == seq::wire(self.handshake.first())
            && self.is_same_syn(header)
            && self.acks_syn_only()
            && let Some(ecn) = self.ecn_mut()
        {
            // The peer did not get our ACK. It is answered below, by a challenge ACK.
            ecn.on_repeated_syn_ack(flags, mark);
        }
        let start = seq::expand(self.rx.nxt(), header.seq);
        let fin = flags.contains(TcpFlags::FIN);
        let len = payload.len() as u64 + u64::from(flags.contains(TcpFlags::SYN)) + u64::from(fin);

        // First: is it in the window, and of the current cycle of the sequence space?
        if let Some(consequence) = self.reject(cx, header, start..start + len) {
            return consequence;
        }
        // Second, RST.
        if flags.contains(TcpFlags::RST) {
            self.on_reset(cx, start);
            return Consequence::None;
        }
        // Fourth, SYN: never believed (RFC 5961 §4.2).
        if flags.contains(TcpFlags::SYN) {
            self.challenge(cx);
            return Consequence::None;
        }
        // Fifth, ACK: every segment has one.
        if !flags.contains(TcpFlags::ACK) {
            return Consequence::None;
        }
        let ack = seq::expand(self.tx.una(), header.ack);
        let ends_handshake = self.state == State::SynReceived;
        if ends_handshake {
            if !(self.handshake.first()..=self.tx.nxt()).contains(&ack) && !self.acks_syn(header.ack) {
                return Consequence::Reset;
            }
            let pure = payload.is_empty() && header.options.sack.is_empty() && !fin;
            self.end_handshake(cx, header, pure, crossed);
        }
        if validate::acknowledgment(ack, self.tx.una(), self.tx.nxt(), self.tx.window_max())
            == Check::Challenge
        {
            self.challenge(cx);
            return Consequence::None;
        }
        self.note_arrival(cx.now);
        let acked = (!ends_handshake).then(|| ack.saturating_sub(self.tx.una()));
        let urgency = self.note_marks(header, acked, &payload, gso_size, mark);
        let rtt = self.timestamp_rtt(cx, header);
        self.note_timestamp(cx, header, start);
        self.on_ack(cx, header, ack, start, payload.len(), rtt);
        if self.state == State::Closed {
            return Consequence::None;
        }
        if urgency == Urgency::Ack {
            self.rx.owe_ack();
        }
        // Sixth, URG: ignored; urgent data is read in order like any other data.
        // Seventh and eighth, the data and the FIN.
        if (payload.is_empty() && !fin) || !self.state.may_receive() {
            return Consequence::None;
        }
        if !self.flags.held && !payload.is_empty() {
            // No application will read this (RFC 1122 §4.2.2.13). The reset has the sequence number that the segment
            // acknowledges (RFC 9293 §3.5.2): a peer that missed our FIN would only challenge the one after it.
            cx.counters.tcp_abort_on_data += 1;
            self.fail(cx, ConnError::Aborted);
            return Consequence::Reset;
        }
        self.on_data(cx, payload, start, fin, gso_size, rtt);
        if matches!(urgency, Urgency::Data | Urgency::QuickData) {
            self.rx.hasten_ack(urgency == Urgency::QuickData);
        }
        Consequence::None
    }

    /// Whether the next segment's payload may lie at its reader's memory: the reader has read everything.
    pub(crate) fn takes_placed(&self) -> bool {
        let rx = &self.rx;
        let has_all = rx.unread() == 0 && rx.out_of_order() == 0 && !rx.is_shut();
        self.state.may_receive() && self.flags.held && has_all
    }

    /// Whether this segment is the next one, and fits.
    pub(crate) fn is_next(&self, header: &TcpHeader, len: usize) -> bool {
        let start = seq::expand(self.rx.nxt(), header.seq);
        start == self.rx.nxt() && start + len as u64 <= self.rx.edge()
    }

    /// A segment arrives whose payload lies at its reader's memory. Returns also how much of it was read.
    pub(crate) fn on_placed(&mut self, cx: &mut StackCx<'_>, arrival: Arrival<'_>) -> (Consequence, usize) {
        let consequence = self.on_segment(cx, arrival);
        let count = self.rx.unread() as usize;
        self.consume(cx, count);
        (consequence, count)
    }

    /// The length of the headers of a segment without SACK blocks.
    pub(crate) fn headers_len(&self) -> u32 {
        self.agreed.headers_len()
    }

    /// The ACK of our SYN. `pure`: it carries nothing else. `crossed`: it comes with the peer's own SYN.
    fn end_handshake(&mut self, cx: &mut StackCx<'_>, header: &TcpHeader, pure: bool, crossed: bool) {
        if let Some(ecn) = self.ecn_mut().filter(|_| !crossed) {
            ecn.on_handshake_ack(header, pure);
        }
        self.establish(cx, header);
        if self.listener().is_none() || self.is_accepted() {
            self.news.connected = true;
        } else if !self.is_fast_child() {
            // `accept` will hand this connection to the application.
            self.flags.held = true;
        }
    }

    /// Hands the segment to ECN, which decides how soon its marks must be reported. `acked`: the bytes that it
    /// acknowledges, unless it ends the handshake.
    fn note_marks(
        &mut self,
        header: &TcpHeader,
        acked: Option<u64>,
        payload: &Payload<'_>,
        gso_size: u16,
        mark: Mark,
    ) -> Urgency {
        if !self.ecn().is_on() {
            return Urgency::None;
        }
        let sacks = !header.options.sack.is_empty();
        let acks = |acked: u64| if sacks { u64::MAX } else { acked.div_ceil(self.mss().into()) };
        let segment = SegmentIn {
            flags: header.flags,
            mark,
            segs: payload.segments(gso_size) as u32,
            bytes: payload.len() as u32,
            taken: !payload.is_empty() && self.flags.held && self.state.may_receive(),
            rcv_nxt: self.rx.nxt(),
            owed: self.rx.is_ack_pending(),
            first_acks: acked.filter(|_| self.ecn().awaits_first()).map(acks),
        };
        self.ecn_mut().map_or(Urgency::None, |ecn| ecn.on_segment(&segment))
    }

    /// Window and PAWS. `None` lets the segment pass.
    fn reject(&mut self, cx: &mut StackCx<'_>, header: &TcpHeader, range: Range<u64>) -> Option<Consequence> {
        let rst = header.flags.contains(TcpFlags::RST);
        // A FIN takes a position, but no room: at a closed window it is taken, as by Linux (6.18).
        let is_bare_fin = header.flags.contains(TcpFlags::FIN) && range.end - range.start == 1;
        let timestamps = &self.agreed.timestamps;
        let old = match header.options.timestamps {
            Some(peer) if timestamps.on && !rst => {
                let late = range.end > self.rx.nxt() && self.is_just_late(timestamps.recent, peer.value);
                !late && validate::paws_rejects(timestamps.recent, timestamps.recent_at(), cx.now, peer.value)
            }
            _ => false,
        };
        if old {
            cx.counters.paws_estab += 1;
        } else if self.rx.accepts(&range) || (is_bare_fin && self.rx.accepts(&(range.start..range.start))) {
            return None;
        } else {
            cx.counters.tcp_out_of_window += 1;
        }
        if rst {
            return Some(Consequence::None);
        }
        // §3.8.4: SEG.SEQ = SND.NXT-1, with a byte of garbage or without.
        if range.start + 1 == self.rx.nxt() && range.end <= self.rx.nxt() {
            self.note_keepalive(cx.now);
        }
        if range.is_empty() || header.flags.contains(TcpFlags::SYN) {
            // Any host could provoke this, and we do not depend on the answer (RFC 5961 §4.2 and §7).
            self.challenge(cx);
        } else {
            // A duplicate, or a probe of our closed window: the peer waits for this ACK.
            if range.end <= self.rx.nxt() {
                if let Some(ecn) = self.ecn_mut() {
                    ecn.on_repeated_data(range.end - range.start);
                }
                self.rx.note_duplicate(range);
            }
            self.rx.owe_ack();
        }
        Some(Consequence::None)
    }

    /// Whether new data with this old timestamp was merely overtaken, by less than a round trip, in which no
    /// sequence number repeats. RFC 7323 §5.3 rejects such data. But a retransmission that fills a hole moves
    /// TS.Recent past all data that was sent before it and is late, and each segment that is then rejected
    /// must be retransmitted too: on a path that reorders packets, one loss would cause ever more losses.
    fn is_just_late(&self, recent: u32, value: u32) -> bool {
        let rtt = [self.rx.rtt(), self.tx.recovery().srtt()].into_iter().flatten().min();
        rtt.is_some_and(|rtt| u64::from(recent.wrapping_sub(value)) <= rtt.min(LATE_MAX).as_millis())
    }

    fn on_reset(&mut self, cx: &mut StackCx<'_>, start: u64) {
        match validate::reset(start, self.rx.nxt(), self.rx.edge()) {
            Check::Reset => {
                let error = if self.state == State::SynReceived && self.listener().is_none() {
                    ConnError::Refused
                } else {
                    ConnError::Reset
                };
                match self.state {
                    // Both sides have ended their streams.
                    State::Closing | State::LastAck => self.finish(cx),
                    _ => self.fail(cx, error),
                }
            }
            Check::Challenge => {
                self.suspect_reset();
                self.challenge(cx);
            }
            Check::Accept | Check::Drop => {}
        }
    }

    /// Sends the peer an ACK of our state, rate-limited (RFC 5961 §7).
    fn challenge(&mut self, cx: &mut StackCx<'_>) {
        if self.may_challenge(cx) {
            cx.counters.tcp_challenge_ack += 1;
            self.rx.owe_ack();
        }
    }

    /// RFC 7323 §4.3: the timestamp to echo from now on.
    fn note_timestamp(&mut self, cx: &StackCx<'_>, header: &TcpHeader, start: u64) {
        let timestamps = &mut self.agreed.timestamps;
        let Some(peer) = header.options.timestamps.filter(|_| timestamps.on) else { return };
        if start <= self.rx.last_ack_sent() && (peer.value.wrapping_sub(timestamps.recent) as i32) >= 0 {
            timestamps.remember(cx.now, peer.value);
        }
    }

    /// The round trip that the echoed timestamp spans, in the clock's milliseconds.
    pub(super) fn timestamp_rtt(&self, cx: &StackCx<'_>, header: &TcpHeader) -> Option<Duration> {
        /// A longer round trip is garbage, or an echo from before a pause.
        const LONGEST_MS: u32 = 3_600_000;
        let timestamps = &self.agreed.timestamps;
        let echo = header.options.timestamps.filter(|_| timestamps.on)?.echo;
        let elapsed = timestamps.value(cx.now).wrapping_sub(echo);
        (echo != 0 && elapsed <= LONGEST_MS).then(|| Duration::from_millis(u64::from(elapsed)))
    }

    fn on_ack(
        &mut self,
        cx: &mut StackCx<'_>,
        header: &TcpHeader,
        ack: u64,
        start: u64,
        payload_len: usize,
        rtt: Option<Duration>,
    ) {
        if payload_len > 0 {
            self.tx.note_answer();
        }
        let una = self.tx.una();
        let window_changed = self.tx.on_window(self.agreed.window(header.window), ack, start);
        if window_changed && self.tx.has_unsent() && self.tx.recovery().packets_out() == 0 {
            // Data has waited for this window, and the path may have been idle for as long (Linux, likewise).
            self.tx.restart_after_idle(&self.send_cx(cx));
        }
        let mut sack: [Range<u64>; SackBlocks::MAX] = [const { 0..0 }; SackBlocks::MAX];
        let mut blocks = 0;
        if self.agreed.sack() {
            for ((left, right), place) in header.options.sack.iter().zip(&mut sack) {
                let left = seq::expand(una, left);
                *place = left..seq::expand(left, right);
                blocks += 1;
            }
        }
        let marks = self.ecn().feedback(header, ack < una);
        let input = AckInput {
            ack,
            sack: sack.get(..blocks).unwrap_or_default(),
            timestamp_echo_rtt: rtt,
            carries_data: payload_len > 0,
            window_changed,
            may_send_new: self.tx.may_send_new(ack),
            marks,
        };
        let outcome = self.tx.on_ack(cx.now, &input, &cx.config.recovery, &mut cx.shared.totals, cx.counters);
        self.judge_mtu_probe(cx);
        self.count_recovery(cx, &outcome);
        if (outcome.advanced || outcome.delivered_segs > 0)
            && let Some(ecn) = self.ecn_mut()
        {
            ecn.on_ack(marks, outcome.delivered_segs, outcome.delivered_ce);
        }
        let send = self.send_cx(cx);
        self.tx.note_acked(&send, &outcome, cx.pool, &mut cx.shared.totals);
        if outcome.advanced || (outcome.delivered_segs > 0 && self.tx.congestion().paces()) {
            self.tx.update_pacing_rate(&send);
        }
        if self.tx.window_fits(send.mss) {
            self.cancel_window_probe();
        }
        if outcome.advanced {
            self.forget_soft_error();
            self.check_loans(cx);
            if self.tx.fin_acked() {
                self.on_fin_acked(cx);
            }
        }
    }

    /// Updates the counters about losses after an ACK.
    fn count_recovery(&self, cx: &mut StackCx<'_>, outcome: &AckOutcome) {
        let counters = &mut *cx.counters;
        counters.tcp_loss_probe_recovery += u64::from(outcome.tail_probe_repaired);
        counters.tcp_delivered_ce += u64::from(outcome.delivered_ce);
        counters.tcp_dsack_recv += u64::from(outcome.dsack);
        counters.tcp_spurious_rtos += u64::from(outcome.spurious_timeout);
        match outcome.undone {
            None => {}
            Some(Undone::Dsack) => counters.tcp_dsack_undo += 1,
            Some(Undone::Timeout) => counters.tcp_loss_undo += 1,
            Some(Undone::Full) => counters.tcp_full_undo += 1,
            Some(Undone::Partial) => counters.tcp_partial_undo += 1,
        }
    }

    pub(super) fn on_data(
        &mut self,
        cx: &mut StackCx<'_>,
        payload: Payload<'_>,
        start: u64,
        fin: bool,
        gso_size: u16,
        echo_rtt: Option<Duration>,
    ) {
        // The packet itself was counted when it arrived.
        self.segs_in = self.segs_in.wrapping_add(payload.segments(gso_size) as u32 - 1);
        let recovery = self.tx.recovery();
        let receive = ReceiveCx {
            now: cx.now,
            config: &cx.config.receive,
            echo_rtt,
            srtt: recovery.srtt(),
            rto: recovery.rto(&cx.config.recovery),
            growth: self.growth(cx),
            announced_mss: self.agreed.announced_mss(),
        };
        let received = self.rx.receive(&receive, start, payload, fin, gso_size, cx.pool);
        self.news.readable |= received.readable;
        *cx.must_answer |= received.full_report;
        if received.squeezed.prune_called || received.squeezed.ofo_drop {
            count_squeezed(cx.counters, received.squeezed);
        }
        if received.fin {
            self.on_fin(cx);
        }
    }
}

/// Updates the counters about data that was dropped for lack of memory.
#[cold]
fn count_squeezed(counters: &mut Counters, squeezed: Squeezed) {
    counters.prune_called += u64::from(squeezed.prune_called);
    counters.ofo_pruned += u64::from(squeezed.ofo_pruned);
    counters.rcv_pruned += u64::from(squeezed.rcv_pruned);
    counters.tcp_rcvq_drop += u64::from(squeezed.rcvq_drop);
    counters.tcp_ofo_drop += u64::from(squeezed.ofo_drop);
}
