//! The handshake: a connection is made, SYNs are exchanged, and both ends agree on their terms; or another
//! stack has done all that, and the connection continues here. RFC 9293 §3.5 and §3.7.1, RFC 7323 §2.3 and
//! §3.2, RFC 2018 §2; called by connect, by listeners and by arrival.

use core::net::SocketAddr;

use taut_wire::tcp::Flags as TcpFlags;
use taut_wire::{Ecn as Mark, TcpHeader, TcpOptions, Timestamps as WireTimestamps};

use super::agreed::{Agreed, Offer, Timestamps};
use super::half_open::HalfOpen;
use super::state::State;
use super::timers::Timers;
use super::{Conn, Flags, News, StackCx};
use crate::ecn::Ecn;
use crate::egress::Sender;
use crate::ingress::{Payload, RCVBUF_MIN, Receiver};
use crate::settings::options::ConnOptions;
use crate::words::{ConnId, Duration, Frame, Instant, ListenerId, Tuple, seq};

/// Timestamps count milliseconds: an echo may measure this much more than has passed.
const ECHO_TICK: Duration = Duration::from_millis(1);

/// Facts about the handshake that are needed later.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handshake {
    /// Our initial sequence number: that of our SYN.
    isn: u32,
    /// When the first SYN left, in µs, wrapping after 71 minutes: for the first RTT sample, and the user's
    /// timeout.
    sent_at_us: u32,
}

impl Handshake {
    pub(super) const fn new(now: Instant, isn: u32) -> Self {
        Self { isn, sent_at_us: now.as_micros() as u32 }
    }

    /// Position of the first data byte we send; our SYN stands before it.
    pub(super) const fn first(&self) -> u64 {
        seq::FIRST + self.isn as u64 + 1
    }

    /// The first SYN leaves.
    pub(super) const fn note_sent(&mut self, now: Instant) {
        self.sent_at_us = now.as_micros() as u32;
    }

    /// How long ago that was.
    pub(super) const fn waited(&self, now: Instant) -> Duration {
        Duration::from_micros((now.as_micros() as u32).wrapping_sub(self.sent_at_us) as u64)
    }
}

/// Counts of our SYNs. Not in [`Handshake`], where padding would make them cost eight bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Syns {
    /// All SYNs sent, including those in answer to repeated SYNs of the peer.
    pub(super) sent: u8,
    /// SYNs retransmitted because no answer came.
    pub(super) retries: u8,
}

/// The header of a SYN or SYN-ACK, of which `rest` has what depends on the state.
pub(super) const fn syn_header(tuple: &Tuple, handshake: Handshake, rest: TcpHeader) -> TcpHeader {
    let (src_port, dst_port) = (tuple.local.port(), tuple.peer.port());
    TcpHeader { src_port, dst_port, seq: handshake.isn, urgent: 0, ..rest }
}

/// The state with which a connection continues in another stack ([`Stack::resume`](crate::Stack::resume)), in
/// the terms of RFC 9293 §3.3.1: numbers are those on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// SND.UNA.
    pub snd_una: u32,
    /// SND.NXT.
    pub snd_nxt: u32,
    /// RCV.NXT, beyond the peer's FIN if there was one.
    pub rcv_nxt: u32,
    /// The peer has ended its half: its FIN has arrived, and all before it.
    pub peer_ended: bool,
    /// SND.WND, in bytes.
    pub snd_wnd: u32,
    /// The segment size that the peer takes, headers not included.
    pub mss: u16,
    /// Shifts of our windows and of the peer's, if both are scaled.
    pub scales: Option<(u8, u8)>,
    /// RFC 2018 SACK is in use.
    pub sack: bool,
    /// Our next timestamp and the peer's last (TS.Recent), if timestamps are in use.
    pub timestamps: Option<(u32, u32)>,
}

/// The parts that a new connection is made from.
pub(crate) struct Birth<'a> {
    pub(crate) tuple: Tuple,
    pub(crate) generation: u32,
    pub(crate) options: &'a ConnOptions,
    /// Initial sequence number, as it goes on the wire.
    pub(crate) isn: u32,
    pub(crate) timestamp_offset: u32,
    /// When the first SYN was sent or arrived.
    pub(crate) born: Instant,
}

impl Birth<'_> {
    /// What we offer, and the size of the receive buffer.
    pub(super) fn offer(&self, cx: &StackCx<'_>) -> (Agreed, u32) {
        let (config, options) = (cx.config, self.options);
        let rcvbuf =
            options.rcvbuf.map(|bytes| bytes.min(config.receive.rmem_max).saturating_mul(2).max(RCVBUF_MIN));
        let rmem = config.receive.rmem;
        let agreed = Agreed::offer(Offer {
            ipv4: self.tuple.local.is_ipv4(),
            mtu: cx.link.mtu,
            maxseg: options.maxseg,
            scaled_for: config.tcp.window_scaling.then(|| rcvbuf.unwrap_or(rmem.max)),
            sack: config.tcp.sack,
            timestamps: Timestamps::new(config.tcp.timestamps, self.timestamp_offset),
        });
        (agreed, rcvbuf.unwrap_or(rmem.initial))
    }
}

impl Conn {
    /// A connection that is about to send its SYN.
    pub(crate) fn active(cx: &mut StackCx<'_>, birth: &Birth<'_>) -> Self {
        let (agreed, rcvbuf) = birth.offer(cx);
        let mut conn = Self::new(cx, birth, agreed, rcvbuf);
        conn.flags.syn_due = true;
        conn.flags.held = true;
        conn
    }

    /// A connection that a SYN opens at once: TCP Fast Open.
    pub(crate) fn early(
        cx: &mut StackCx<'_>,
        birth: &Birth<'_>,
        listener: ListenerId,
        syn: &TcpHeader,
        mark: Mark,
    ) -> Self {
        let id = ConnId { slot: 0, generation: birth.generation };
        let mut conn = HalfOpen::new(cx, birth, listener, syn, mark).connection(cx, birth.options, id);
        conn.flags.half_open = true;
        conn.flags.syn_due = true;
        conn
    }

    /// A flow that the application has accepted: it holds the connection from now on, and the SYN-ACK is
    /// about to leave.
    pub(crate) fn accepted(
        cx: &mut StackCx<'_>,
        birth: &Birth<'_>,
        filter: ListenerId,
        syn: &TcpHeader,
        mark: Mark,
    ) -> Self {
        let mut conn = Self::early(cx, birth, filter, syn, mark);
        conn.flags.held = true;
        conn
    }

    /// A connection on these terms, with a receive buffer of `rcvbuf` bytes.
    pub(super) fn new(cx: &mut StackCx<'_>, birth: &Birth<'_>, agreed: Agreed, rcvbuf: u32) -> Self {
        let (config, options) = (cx.config, birth.options);
        let handshake = Handshake::new(birth.born, birth.isn);
        let tuned = config.receive.moderate_rcvbuf && options.rcvbuf.is_none();
        let algorithm = options.congestion.clone().unwrap_or_else(|| config.congestion.control.clone());
        let mut conn = Self {
            tuple: birth.tuple,
            generation: birth.generation,
            segs_in: 0,
            listener: ListenerId::NONE,
            state: State::SynSent,
            flags: Flags::default(),
            news: News::default(),
            error: None,
            tx: Sender::new(birth.born, handshake.first(), algorithm, &config.send),
            rx: Receiver::new(rcvbuf, config.receive.rmem.max, tuned),
            timers: Timers::new(birth.born),
            agreed,
            handshake,
            syns: Syns::default(),
            extras: None,
        };
        conn.apply(cx, options);
        conn
    }

    /// Takes the peer's SYN, which arrived in a packet with the ECN field `mark`: from now on, the options
    /// that both ends offered are agreed on.
    pub(super) fn agree(&mut self, cx: &StackCx<'_>, syn: &TcpHeader, mark: Mark) {
        let wanted = self.tx.congestion().algorithm().ecn();
        if let Some(ecn) = self.ecn().on_syn(&cx.config.ecn, wanted, syn, mark) {
            self.extras_mut().ecn = ecn;
        }
        self.agreed.agree(cx.now, &syn.options);
        self.begin(cx.now, syn.window.into(), syn.seq);
    }

    /// Both streams begin on the terms that were agreed on; the peer's SYN had this window and this number.
    pub(super) fn begin(&mut self, now: Instant, window: u32, irs: u32) {
        let agreed = &self.agreed;
        // The window of a SYN is never scaled (RFC 7323 §2.2).
        self.tx.begin(now, self.handshake.first(), agreed.sack(), window);
        let rcv_nxt = seq::FIRST + u64::from(irs) + 1;
        let scale = agreed.own_wscale().unwrap_or(0);
        self.rx.begin(now, rcv_nxt, scale, agreed.announced_mss(), agreed.sack_blocks_max());
    }

    /// Our SYN is acknowledged by a segment with the options `header`: the connection is open.
    pub(super) fn establish(&mut self, cx: &mut StackCx<'_>, header: &TcpHeader) {
        // Also where the peer's SYN crossed ours.
        self.on_syn_data_answered(cx, header.ack);
        self.state = State::Established;
        self.news.writable |= self.sends_early();
        if self.tx.fin_queued() {
            // The application ended its stream before the handshake was complete.
            self.state = self.state.on_close();
        }
        self.flags.syn_due = false;
        self.timers.cancel_phase();
        self.rx.on_established(cx.now);
        // RFC 6298 §3 (Karn): if several SYNs were sent, it is not known which one was acknowledged.
        let waited = self.handshake.waited(cx.now);
        if self.syns.sent == 1 {
            self.tx.seed_rtt(&self.send_cx(cx), waited);
        } else if self.syns.retries > 0 && !self.is_fast_child() {
            // The timestamp knows (RFC 7323 §4.3), as far as it is plausible.
            let echoed = self.timestamp_rtt(cx, header).filter(|&rtt| rtt <= waited + ECHO_TICK);
            // An echo of the first SYN shows that none was lost, only late (Linux:
            // `tcp_try_undo_spurious_syn`).
            let late = echoed.is_some_and(|rtt| rtt + ECHO_TICK >= waited);
            let timeouts = if late { 0 } else { self.syns.retries };
            self.tx.on_repeated_syn(&self.send_cx(cx), timeouts, echoed);
        }
        if self.ecn_mut().is_some_and(Ecn::take_marked_syn) {
            self.tx.on_marked_syn(cx.now);
            // Linux: a SYN-ACK counts as a packet that was delivered.
            cx.counters.tcp_delivered_ce += u64::from(self.ecn().delivered_ce());
        }
        let send = self.send_cx(cx);
        self.tx.expand_buffer(&send);
        self.tx.update_pacing_rate(&send);
        self.tx.resume();
        self.arm_keepalive(cx);
    }

    /// Whether this is a retransmission of the SYN that we answered already, or the peer's own SYN crossing
    /// ours.
    pub(super) fn is_same_syn(&self, header: &TcpHeader) -> bool {
        header.flags.contains(TcpFlags::SYN)
            && !header.flags.contains(TcpFlags::RST)
            && header.seq == self.rx.irs()
    }

    /// A connection that another stack has opened.
    pub(crate) fn resume(cx: &mut StackCx<'_>, birth: &Birth<'_>, from: &Resumed) -> Self {
        let (mut agreed, rcvbuf) = birth.offer(cx);
        let scales = from.scales;
        agreed.offer_again(scales.map(|(own, _)| own), from.sack, from.timestamps.is_some());
        let mut conn = Self::new(cx, birth, agreed, rcvbuf);
        conn.agreed.agree(
            cx.now,
            &TcpOptions {
                mss: Some(from.mss),
                window_scale: scales.map(|(_, peers)| peers),
                sack_permitted: from.sack,
                timestamps: from.timestamps.map(|(_, value)| WireTimestamps { value, echo: 0 }),
                ..TcpOptions::default()
            },
        );
        conn.begin(cx.now, from.snd_wnd, from.rcv_nxt.wrapping_sub(1 + u32::from(from.peer_ended)));
        let in_flight = from.snd_nxt.wrapping_sub(from.snd_una).min(from.snd_wnd);
        conn.tx.resume_flight(cx.now, in_flight.div_ceil(conn.mss().max(1)));
        conn.flags = Flags { held: true, ..Flags::default() };
        conn.establish(cx, &TcpHeader { ack: from.snd_una, ..TcpHeader::default() });
        if from.peer_ended {
            let nothing = Payload::new(Frame::Slice(&[]), 0, 0);
            conn.on_data(cx, nothing, conn.rx.nxt(), true, 0, None);
        }
        conn
    }

    /// Its state for another stack; `None` if it is not open, or over.
    pub(crate) fn resumed(&self, now: Instant) -> Option<Resumed> {
        use State::{CloseWait, Established, FinWait1, FinWait2};
        let agreed = &self.agreed;
        matches!(self.state, Established | CloseWait | FinWait1 | FinWait2).then(|| Resumed {
            local: self.tuple.local.into(),
            peer: self.tuple.peer.into(),
            snd_una: seq::wire(self.tx.una()),
            snd_nxt: seq::wire(self.tx.nxt()),
            rcv_nxt: seq::wire(self.rx.nxt()),
            peer_ended: self.rx.fin_received(),
            snd_wnd: self.tx.window_bytes(),
            mss: agreed.peer_mss(),
            scales: agreed.own_wscale().zip(agreed.peer_wscale()),
            sack: agreed.sack(),
            timestamps: agreed
                .timestamps
                .on
                .then(|| (agreed.timestamps.value(now), agreed.timestamps.recent)),
        })
    }
}
