//! A handshake that a listener has begun and not completed: the little that must be remembered about a SYN.
//! RFC 9293 §3.10.7.2 to §3.10.7.4; Linux: `tcp_request_sock`. Called by `stack/opening/half_open.rs`.
//!
//! # Problem
//!
//! A SYN costs its sender one packet, and may come from anywhere. A connection has buffers, timers and a
//! congestion control, none of which is used before the peer has answered.
//!
//! # Rule
//!
//! Until then a listener keeps the terms of the handshake (what both ends offered, both initial sequence
//! numbers, the window of the SYN) and the state of its retransmission. [`HalfOpen::connection`] makes the
//! connection out of them, exactly as it would have been had it been made for the SYN.
//!
//! Repeated SYNs and timeouts change the entry alone. For any other segment the connection is made, takes the
//! segment, and is kept only if that has completed the handshake; so the checks of §3.10.7.4 stand once, in
//! `arrival.rs`. What a segment that does not complete it can change is in [`HalfOpen::remember`].
//!
//! A SYN whose data is accepted (TCP Fast Open) makes the connection at once, and so do two SYNs that cross.

use taut_wire::tcp::Flags as TcpFlags;
use taut_wire::{Ecn as Mark, TcpHeader, TcpOptions};

use super::agreed::Agreed;
use super::handshake::{Birth, Handshake, Syns, syn_header};
use super::state::State;
use super::timers::backed_off;
use super::{Conn, StackCx};
use crate::ecn::HalfAgreed;
use crate::recovery::RTO_INIT;
use crate::settings::options::ConnOptions;
use crate::words::{ConnId, Instant, ListenerId, Tuple, seq};

/// A listener's handshake that waits for the peer's ACK.
#[derive(Clone, Debug)]
pub(crate) struct HalfOpen {
    pub(crate) tuple: Tuple,
    pub(crate) listener: ListenerId,
    /// When the SYN arrived.
    begun: Instant,
    /// When the SYN-ACK is sent again, or given up; `NEVER` until it has left.
    deadline: Instant,
    agreed: Agreed,
    handshake: Handshake,
    /// The peer's initial sequence number.
    irs: u32,
    rcvbuf: u32,
    /// See [`Timers`](super::timers::Timers).
    challenged_ms: u32,
    pub(crate) generation: u32,
    /// The window of the peer's SYN.
    window: u16,
    syns: Syns,
    ecn: HalfAgreed,
    /// The first SYN-ACK carries a cookie for TCP Fast Open, in the experimental option or in the standard
    /// one.
    pub(crate) gives_cookie: Option<bool>,
    /// A SYN-ACK must leave.
    pub(crate) syn_ack_due: bool,
    /// In the stack's ready queue.
    pub(crate) queued_for_output: bool,
}

/// What became of a handshake when its time was up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// The SYN-ACK is sent again.
    Again,
    /// The peer has not answered for too long.
    TooLong,
}

impl HalfOpen {
    /// A SYN arrived in a packet marked `mark`.
    pub(crate) fn new(
        cx: &StackCx<'_>,
        birth: &Birth<'_>,
        listener: ListenerId,
        syn: &TcpHeader,
        mark: Mark,
    ) -> Self {
        let (mut agreed, rcvbuf) = birth.offer(cx);
        agreed.agree(birth.born, &syn.options);
        let control = birth.options.congestion.as_ref().unwrap_or(&cx.config.congestion.control);
        Self {
            tuple: birth.tuple,
            listener,
            begun: birth.born,
            deadline: Instant::NEVER,
            agreed,
            handshake: Handshake::new(birth.born, birth.isn),
            irs: syn.seq,
            rcvbuf,
            challenged_ms: 0,
            generation: birth.generation,
            window: syn.window,
            syns: Syns::default(),
            ecn: HalfAgreed::on_syn(&cx.config.ecn, control.ecn(), syn, mark),
            gives_cookie: None,
            syn_ack_due: true,
            queued_for_output: false,
        }
    }

    /// The same for a SYN that a cookie remembered: its SYN-ACK left some time ago.
    pub(crate) fn revived(
        cx: &StackCx<'_>,
        birth: &Birth<'_>,
        listener: ListenerId,
        syn: &TcpHeader,
    ) -> Self {
        let deadline = birth.born + RTO_INIT;
        Self { syn_ack_due: false, deadline, ..Self::new(cx, birth, listener, syn, Mark::NotEct) }
    }

    /// When [`on_timeout`](Self::on_timeout) is due.
    pub(crate) const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// How often the SYN-ACK was retransmitted because no answer came.
    pub(crate) const fn retries(&self) -> u8 {
        self.syns.retries
    }

    /// Whether the SYN-ACK that is about to leave, or has just left, is the first.
    pub(crate) const fn is_first(&self) -> bool {
        self.syns.sent <= 1 && self.syns.retries == 0
    }

    /// The position of the first byte after our SYN.
    pub(crate) const fn first(&self) -> u64 {
        self.handshake.first()
    }

    /// A SYN-ACK leaves: its header, and the ECN field of its packet.
    pub(crate) fn syn_ack(&mut self, cx: &StackCx<'_>) -> (TcpHeader, Mark) {
        let Syns { sent, retries } = self.syns;
        let stamp = self.ecn.stamp_syn_ack(&cx.config.ecn, cx.now, retries, sent > 0);
        if sent == 0 {
            self.handshake.note_sent(cx.now);
        }
        self.syns.sent = sent.saturating_add(1);
        self.syn_ack_due = false;
        self.deadline = cx.now + backed_off(RTO_INIT, retries, cx.config.recovery.rto_max);
        let options = TcpOptions { accecn: stamp.option, ..self.agreed.syn_options(cx.now) };
        let window = u16::try_from(self.rcvbuf).unwrap_or(u16::MAX);
        let flags = TcpFlags::SYN | TcpFlags::ACK | stamp.flags;
        let ack = self.irs.wrapping_add(1);
        let header = syn_header(
            &self.tuple,
            self.handshake,
            TcpHeader { flags, ack, window, options, ..TcpHeader::default() },
        );
        (header, stamp.mark)
    }

    /// The device had no room for the SYN-ACK: it counts as not sent.
    pub(crate) const fn on_refused(&mut self) {
        self.syn_ack_due = true;
        self.syns.sent = self.syns.sent.saturating_sub(1);
    }

    /// The peer's SYN, again: our SYN-ACK was lost.
    pub(crate) fn is_same_syn(&self, header: &TcpHeader) -> bool {
        let flags = header.flags;
        flags.contains(TcpFlags::SYN)
            && !flags.intersects(TcpFlags::RST | TcpFlags::ACK)
            && header.seq == self.irs
    }

    /// The peer's SYN arrived again. Returns false if it contradicts the first: the handshake is over.
    #[must_use]
    pub(crate) fn on_repeated_syn(&mut self, cx: &mut StackCx<'_>, header: &TcpHeader, mark: Mark) -> bool {
        self.syn_ack_due = self.ecn.on_repeated_syn(header.flags, mark);
        cx.counters.attempt_fails += u64::from(!self.syn_ack_due);
        self.syn_ack_due
    }

    /// The deadline has passed.
    pub(crate) fn on_timeout(&mut self, cx: &mut StackCx<'_>, options: &ConnOptions) -> Waited {
        self.deadline = Instant::NEVER;
        cx.counters.tcp_timeouts += 1;
        let waited = self.handshake.waited(cx.now);
        let is_over = options.user_timeout.is_some_and(|timeout| waited >= timeout);
        if self.syns.retries >= cx.config.tcp.synack_retries || is_over {
            cx.counters.attempt_fails += 1;
            return Waited::TooLong;
        }
        self.syns.retries += 1;
        cx.counters.retrans_segs += 1;
        self.syn_ack_due = true;
        Waited::Again
    }

    /// Whether an ICMP error that quotes a segment with this number is about our SYN-ACK (RFC 5927 §4.1).
    pub(crate) const fn is_in_flight(&self, wire_seq: u32) -> bool {
        wire_seq == seq::wire(self.handshake.first() - 1)
    }

    /// The connection, in SYN-RECEIVED, as if it had been made for the SYN.
    pub(crate) fn connection(&self, cx: &mut StackCx<'_>, options: &ConnOptions, id: ConnId) -> Conn {
        let birth = Birth {
            tuple: self.tuple,
            generation: id.generation,
            options,
            isn: seq::wire(self.handshake.first() - 1),
            timestamp_offset: self.agreed.timestamps.offset,
            born: self.begun,
        };
        let mut conn = Conn::new(cx, &birth, self.agreed, self.rcvbuf);
        conn.listener = self.listener;
        conn.state = State::SynReceived;
        // The SYN.
        conn.segs_in = 1;
        conn.handshake = self.handshake;
        conn.syns = self.syns;
        conn.tx.note_syn_acks(self.syns.sent.into());
        conn.timers.resume(self.deadline, self.challenged_ms);
        if let Some(ecn) = self.ecn.ecn() {
            conn.extras_mut().ecn = ecn;
        }
        conn.begin(self.begun, self.window.into(), self.irs);
        conn
    }

    /// The connection that was made for a segment has not been kept: all that the segment changed.
    pub(crate) const fn remember(&mut self, conn: &Conn) {
        self.challenged_ms = conn.timers.challenged_ms();
    }
}
