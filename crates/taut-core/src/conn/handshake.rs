//! What two ends tell each other in their SYNs, and what they then agree on.
//! RFC 9293 §3.5 and §3.7.1, RFC 7323 §2.3 and §3.2, RFC 2018 §2; called by connect, by listeners and by arrival.

use taut_wire::tcp::Flags as TcpFlags;
use taut_wire::{Ecn as Mark, TcpHeader, TcpOptions, Timestamps as WireTimestamps};

use super::state::State;
use super::timers::Timers;
use super::{Conn, Flags, News, StackCx};
use crate::congestion::{Congestion, Signal};
use crate::ecn::{Ecn, EcnMode, PeerSyn};
use crate::egress::Sender;
use crate::ingress::recv_window::{RecvWindow, scale_for};
use crate::ingress::{Receiver, Timestamps};
use crate::options::ConnOptions;
use crate::recovery::Recovery;
use crate::words::{Instant, LinkCaps, ListenerId, Tuple, seq};

/// Segment size of a peer that does not say (RFC 9293 §3.7.1, RFC 8200 §8.3).
const DEFAULT_MSS_V4: u16 = 536;
const DEFAULT_MSS_V6: u16 = 1_220;
/// No segment is smaller, whatever a peer offers: it would make us send millions of them. Linux: `TCP_MIN_SND_MSS`.
const MIN_SND_MSS: u16 = 48;
/// RFC 7323 §2.3: larger shifts are taken for this one.
const MAX_SCALE: u8 = 14;
/// No window scaling.
const UNSCALED: u8 = u8::MAX;
/// Ten bytes of timestamps and two of padding in every segment (RFC 7323 appendix A).
const TIMESTAMPS_LEN: u16 = 12;

/// The handshake's memory: what we offered, and the outcome.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    /// Position of the first data byte we send; our SYN stands before it.
    first: u64,
    /// Segment size we announce.
    mss: u16,
    /// Payload bytes a segment may hold, timestamps counted.
    pub(crate) snd_mss: u16,
    /// Our window shift, or [`UNSCALED`].
    scale: u8,
    /// The peer's window shift (RFC 7323 §2).
    pub(crate) peer_scale: u8,
    /// SYNs sent again.
    pub(crate) retries: u8,
    /// SYNs sent in all: also in answer to the peer's, when those come again.
    pub(crate) copies: u8,
    /// When the first SYN left, for the first RTT sample.
    pub(crate) sent_at: Instant,
}

impl Offer {
    /// Position of the first data byte.
    pub(crate) const fn first(&self) -> u64 {
        self.first
    }

    /// The peer's window shift, if windows are scaled.
    pub(crate) fn peer_wscale(&self) -> Option<u8> {
        (self.scale != UNSCALED).then_some(self.peer_scale)
    }

    /// Our window shift, if windows are scaled.
    pub(crate) fn own_wscale(&self) -> Option<u8> {
        (self.scale != UNSCALED).then_some(self.scale)
    }

    /// Segment size we announce.
    pub(crate) const fn mss(&self) -> u16 {
        self.mss
    }
}

/// Bytes of IP and TCP headers without options.
const fn headers_len(ipv4: bool) -> u16 {
    if ipv4 { 40 } else { 60 }
}

/// Everything a new connection is made from.
pub(crate) struct Birth<'a> {
    pub(crate) tuple: Tuple,
    pub(crate) generation: u32,
    pub(crate) options: &'a ConnOptions,
    /// Initial sequence number, as it goes on the wire.
    pub(crate) isn: u32,
    pub(crate) timestamp_offset: u32,
}

impl Conn {
    /// A connection that is about to send its SYN.
    pub(crate) fn active(cx: &mut StackCx<'_>, birth: &Birth<'_>) -> Self {
        let mut conn = Self::new(cx, birth);
        conn.flags.syn_due = true;
        conn.flags.held = true;
        conn.flags.wants_output = true;
        conn
    }

    /// A connection that a listener makes from a SYN.
    pub(crate) fn passive(
        cx: &mut StackCx<'_>,
        birth: &Birth<'_>,
        listener: ListenerId,
        syn: &TcpHeader,
        mark: Mark,
    ) -> Self {
        let mut conn = Self::new(cx, birth);
        conn.listener = listener;
        conn.state = State::SynReceived;
        conn.flags.half_open = true;
        conn.flags.syn_due = true;
        conn.flags.wants_output = true;
        conn.agree(cx, syn, mark);
        conn
    }

    fn new(cx: &mut StackCx<'_>, birth: &Birth<'_>) -> Self {
        let config = cx.config;
        let now = cx.now;
        let ipv4 = birth.tuple.local.is_ipv4();
        let mss = own_mss(cx.link, ipv4, birth.options.maxseg);
        let first = seq::FIRST + u64::from(birth.isn) + 1;
        let rcvbuf = birth.options.rcvbuf.map(|bytes| bytes.min(config.receive.rmem_max).saturating_mul(2));
        let reachable = rcvbuf.unwrap_or(config.receive.rmem.max);
        let scale = if config.tcp.window_scaling { scale_for(reachable) } else { UNSCALED };
        let algorithm = birth.options.congestion.unwrap_or(config.congestion.control);
        let initial = rcvbuf.unwrap_or(config.receive.rmem.initial);
        let tuned = config.receive.moderate_rcvbuf && rcvbuf.is_none();
        let window = RecvWindow::new(initial, config.receive.rmem.max, tuned);
        let timestamps =
            Timestamps { on: config.tcp.timestamps, offset: birth.timestamp_offset, ..Timestamps::default() };
        let mut conn = Self {
            tuple: birth.tuple,
            generation: birth.generation,
            segs_in: 0,
            listener: ListenerId::NONE,
            state: State::SynSent,
            flags: Flags::default(),
            news: News::default(),
            error: None,
            tx: Sender::new(now, first, config.tcp.sack, Congestion::new(algorithm), &config.send),
            rx: Receiver::new(window, timestamps, config.tcp.sack),
            timers: Timers::new(now),
            offer: Offer {
                first,
                mss,
                snd_mss: if ipv4 { DEFAULT_MSS_V4 } else { DEFAULT_MSS_V6 }.min(mss),
                scale,
                peer_scale: 0,
                retries: 0,
                copies: 0,
                sent_at: now,
            },
            extras: None,
        };
        conn.apply(cx, birth.options);
        conn
    }

    /// Takes the peer's SYN, which came in a packet marked `mark`: what both sides offered is on, everything else is off.
    pub(super) fn agree(&mut self, cx: &StackCx<'_>, syn: &TcpHeader, mark: Mark) {
        let wanted = self.tx.congestion.algorithm().ecn();
        let ecn = if syn.flags.contains(TcpFlags::ACK) {
            self.ecn().on_syn_ack(wanted, syn.flags)
        } else {
            Ecn::on_syn(&cx.config.ecn, wanted, syn.flags, mark)
        };
        if ecn != EcnMode::Off {
            let peer = PeerSyn { flags: syn.flags, mark, option: syn.options.accecn };
            self.extras_mut().ecn.begin(ecn, peer);
        }
        let options = &syn.options;
        let ipv4 = self.tuple.local.is_ipv4();
        let default = if ipv4 { DEFAULT_MSS_V4 } else { DEFAULT_MSS_V6 };
        let theirs = options.mss.filter(|&mss| mss != 0).unwrap_or(default).max(MIN_SND_MSS);
        let timestamps = &mut self.rx.timestamps;
        match options.timestamps {
            Some(peer) if timestamps.on => {
                timestamps.remember(cx.now, peer.value);
            }
            _ => timestamps.on = false,
        }
        let taken = if self.rx.timestamps.on { TIMESTAMPS_LEN } else { 0 };
        self.offer.snd_mss =
            theirs.min(self.offer.mss).saturating_sub(taken).max(MIN_SND_MSS - TIMESTAMPS_LEN);
        match options.window_scale {
            Some(shift) if self.offer.scale != UNSCALED => self.offer.peer_scale = shift.min(MAX_SCALE),
            _ => self.offer.scale = UNSCALED,
        }
        self.rx.sack &= options.sack_permitted;
        // Nothing but the SYN was sent: recovery begins here, with or without SACK.
        self.tx.recovery = Recovery::new(cx.now, self.offer.first, self.rx.sack);
        let scale = if self.offer.scale == UNSCALED { 0 } else { self.offer.scale };
        self.rx.begin(cx.now, seq::FIRST + u64::from(syn.seq) + 1, scale, self.offer.mss);
        // The window of a SYN is never scaled (RFC 7323 §2.2).
        self.tx.window.bytes = u32::from(syn.window);
        self.tx.window.max = u32::from(syn.window);
    }

    /// The options of our SYN or SYN-ACK.
    pub(super) fn syn_options(&self, now: Instant) -> TcpOptions {
        let timestamps = &self.rx.timestamps;
        TcpOptions {
            mss: Some(self.offer.mss),
            window_scale: (self.offer.scale != UNSCALED).then_some(self.offer.scale),
            sack_permitted: self.rx.sack,
            timestamps: timestamps
                .on
                .then(|| WireTimestamps { value: timestamps.value(now), echo: timestamps.recent }),
            ..TcpOptions::default()
        }
    }

    /// Our SYN is acknowledged: the connection is open.
    pub(super) fn establish(&mut self, cx: &mut StackCx<'_>) {
        self.state = State::Established;
        self.flags.syn_due = false;
        self.timers.cancel_phase();
        // RFC 6298 §3 (Karn): of several SYNs it is not known which was acknowledged.
        if self.offer.copies == 1 {
            let rtt = cx.now.since(self.offer.sent_at);
            self.tx.recovery.seed_rtt(cx.now, rtt, &cx.config.recovery);
        }
        if self.extras.as_mut().is_some_and(|extras| extras.ecn.take_marked_syn()) {
            // The first window, as one that was in flight then.
            self.tx.congestion.begin_reduction(cx.now, Signal::Mark, false);
            self.tx.congestion.end_reduction();
            // Linux: a SYN-ACK counts as a packet that was delivered.
            cx.counters.tcp_delivered_ce += u64::from(self.ecn().delivered_ce());
        }
        self.expand_sndbuf(cx);
        self.update_pacing_rate(cx);
        self.arm_keepalive(cx);
        self.want_to_send();
    }

    /// A retransmission of the SYN we answered already, or the peer's own SYN crossing ours?
    pub(super) fn is_same_syn(&self, header: &TcpHeader) -> bool {
        header.flags.contains(TcpFlags::SYN)
            && !header.flags.contains(TcpFlags::RST)
            && header.seq == seq::wire(self.rx.nxt().wrapping_sub(1))
    }

    /// Payload bytes that the segments of a peer can hold.
    pub(super) fn advmss(&self) -> u32 {
        let timestamps = if self.rx.timestamps.on { TIMESTAMPS_LEN } else { 0 };
        u32::from(self.offer.mss.saturating_sub(timestamps))
    }

    /// Bytes of every header: IP, TCP and timestamps.
    pub(super) fn headers_len(&self) -> u32 {
        let timestamps = if self.rx.timestamps.on { TIMESTAMPS_LEN } else { 0 };
        u32::from(headers_len(self.tuple.local.is_ipv4()) + timestamps)
    }
}

/// The segment size we announce: what the link carries, or less if the user wants.
fn own_mss(link: &LinkCaps, ipv4: bool, maxseg: Option<u16>) -> u16 {
    let mss = link.mtu.saturating_sub(headers_len(ipv4)).max(MIN_SND_MSS);
    maxseg.map_or(mss, |most| mss.min(most.max(88)))
}
