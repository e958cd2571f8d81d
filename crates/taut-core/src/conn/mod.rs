//! One connection: its parts, and how calls reach them.
//!
//! ```text
//!   app.rs        the application writes, reads, polls, sets options
//!   arrival.rs    a segment arrived: RFC 9293 §3.10.7, in its order
//!   output.rs     the next segment to send: RST, SYN, data, probe, ACK, in this order
//!   timers.rs     deadlines: retries, probes, keepalive, giving up
//!   handshake.rs  SYNs               agreed.rs  the terms that both ends agreed on
//!   half_open.rs  what a listener remembers of a SYN
//!   fast_open.rs  data in SYNs
//!   close.rs      the ways to end    state.rs   RFC 9293's states
//!   icmp.rs path.rs   routers' errors, and how large segments may be
//!   info.rs       snapshots          report.rs  what held connections back
//! ```
//!
//! The sending half is in [`egress`](crate::egress), the receiving half in `ingress`, congestion marks in
//! `ecn`. Each is one type that is changed only by its methods; the parts that both halves share (tuple,
//! state, terms) are here.

mod agreed;
mod app;
mod arrival;
mod close;
mod fast_open;
pub(crate) mod half_open;
pub(crate) mod handshake;
mod icmp;
pub(crate) mod info;
pub(crate) mod output;
mod path;
pub(crate) mod report;
pub(crate) mod state;
mod timers;

use alloc::boxed::Box;

pub(crate) use arrival::{Arrival, Consequence};

use crate::buffers::{BufferPool, Spare};
use crate::ecn::{Beside, Carrier, Ecn, Stamp};
use crate::egress::{Blocked, PathMtu, SendCx, Sender, Shared, UNLIMITED};
use crate::ingress::Receiver;
use crate::settings::config::StackConfig;
use crate::settings::options::Keepalive;
use crate::stats::Counters;
use crate::words::{ConnError, Duration, Instant, LinkCaps, ListenerId, Tuple, TxTicket};
use agreed::{Agreed, Timestamps};
use fast_open::FastOpen;
use handshake::{Handshake, Syns};
use state::State;
use timers::Timers;

/// The context of every call into a connection: parts that all connections of a stack share.
pub(crate) struct StackCx<'a> {
    pub(crate) now: Instant,
    pub(crate) config: &'a StackConfig,
    pub(crate) link: &'a LinkCaps,
    pub(crate) pool: &'a mut BufferPool,
    pub(crate) counters: &'a mut Counters,
    pub(crate) shared: &'a mut Shared,
    /// See [`Stack::must_answer`](crate::Stack::must_answer).
    pub(crate) must_answer: &'a mut bool,
}

/// News for the application, coalesced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    pub(crate) connected: bool,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The connection is over, with or without an error.
    pub(crate) ended: bool,
}

impl News {
    pub(crate) fn any(self) -> bool {
        self != Self::default()
    }
}

/// Flags of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flags {
    /// In the stack's ready queue.
    pub(crate) queued_for_output: bool,
    /// In the stack's queue of news.
    pub(crate) queued_for_news: bool,
    /// The application holds this connection, or will by `accept`.
    pub(crate) held: bool,
    /// The application has released this connection, and the stack counts it among those until it is over.
    pub(crate) orphan: bool,
    /// Removed from the demultiplexer: no packet arrives any more.
    pub(crate) detached: bool,
    /// A SYN, or SYN-ACK, must leave.
    pub(crate) syn_due: bool,
    /// RST must leave, then the connection is gone.
    pub(crate) rst_due: bool,
    /// A zero-window or keepalive probe must leave.
    pub(crate) window_probe_due: bool,
    /// A SYN opened this connection, and its handshake is not complete: the listener counts it.
    pub(crate) half_open: bool,
    /// The stack counts this connection among those that wait for a ticket.
    pub(crate) awaits_ticket: bool,
}

/// Parts that few connections have.
#[derive(Clone, Debug)]
struct Extras {
    keepalive: Option<Keepalive>,
    /// When the next of its probes is due.
    keepalive_at: Instant,
    user_timeout: Option<Duration>,
    /// `SO_MAX_PACING_RATE` in bytes per second.
    max_pacing_rate: u64,
    /// `TCP_TX_DELAY` in microseconds.
    tx_delay_us: u32,
    /// `IP_TOS`, without the two bits of ECN.
    tos: u8,
    /// What a router said about data in flight that it did not deliver.
    soft_error: Option<ConnError>,
    ecn: Ecn,
    /// The path's MTU, if more is known than what the handshake negotiated.
    path: Option<PathMtu>,
    fast_open: Option<Box<FastOpen>>,
}

impl Default for Extras {
    fn default() -> Self {
        Self {
            keepalive: None,
            keepalive_at: Instant::NEVER,
            user_timeout: None,
            max_pacing_rate: UNLIMITED,
            tx_delay_us: 0,
            tos: 0,
            soft_error: None,
            ecn: Ecn::OFF,
            path: None,
            fast_open: None,
        }
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) tuple: Tuple,
    pub(crate) generation: u32,
    /// Segments received, wrapping.
    segs_in: u32,
    /// The listener that it came from, or `NONE` for an active open.
    listener: ListenerId,
    pub(crate) state: State,
    pub(crate) flags: Flags,
    pub(crate) news: News,
    pub(crate) error: Option<ConnError>,
    pub(crate) tx: Sender,
    pub(crate) rx: Receiver,
    timers: Timers,
    agreed: Agreed,
    handshake: Handshake,
    syns: Syns,
    extras: Option<Box<Extras>>,
}

impl Conn {
    /// The listener this connection came from.
    pub(crate) fn listener(&self) -> Option<ListenerId> {
        (self.listener != ListenerId::NONE).then_some(self.listener)
    }

    /// The most payload bytes of a segment now: fewer while SACK blocks or counts of marks take room in the
    /// header.
    pub(crate) fn mss(&self) -> u32 {
        let marks = self.extras.as_ref().map_or(0, |extras| extras.ecn.option_len(self.beside()));
        let options = self.sack_blocks_len() + marks;
        let mss = u32::from(self.agreed.mss()).saturating_sub(options);
        self.tx.bounded_mss(mss).max(1)
    }

    /// Bytes that SACK blocks take in every header now.
    fn sack_blocks_len(&self) -> u32 {
        match self.rx.sack_block_count() as u32 {
            0 => 0,
            // Two NOPs, kind and length, eight bytes a block (RFC 2018 §3).
            blocks => 4 + 8 * blocks,
        }
    }

    /// The options that a segment carries now, apart from those of ECN.
    fn beside(&self) -> Beside {
        Beside { timestamps: self.agreed.timestamps.on, sack_blocks: self.rx.sack_block_count() }
    }

    /// A segment leaves: returns the flags, option and mark that ECN puts on it.
    fn stamp(&mut self, carrier: Carrier) -> Stamp {
        if self.extras.is_none() {
            return Stamp::NONE;
        }
        let (wanted, beside) = (self.tx.congestion().algorithm().ecn(), self.beside());
        self.ecn_mut().map_or(Stamp::NONE, |ecn| ecn.stamp(carrier, wanted, beside))
    }

    /// RFC 7323 timestamps, this side's view.
    pub(crate) const fn timestamps(&self) -> &Timestamps {
        &self.agreed.timestamps
    }

    /// Only the peer's SYN has arrived so far, so an ACK without data acknowledges just that.
    fn acks_syn_only(&self) -> bool {
        self.rx.received().1 == 0 && !self.rx.fin_received()
    }

    fn tx_delay_us(&self) -> u32 {
        self.extras.as_ref().map_or(0, |extras| extras.tx_delay_us)
    }

    /// `SO_KEEPALIVE`.
    pub(crate) fn keepalive(&self) -> Option<Keepalive> {
        self.extras.as_ref()?.keepalive
    }

    /// `IP_TOS`, without the two bits of ECN.
    pub(crate) fn tos(&self) -> u8 {
        self.extras.as_ref().map_or(0, |extras| extras.tos)
    }

    fn max_pacing_rate(&self) -> u64 {
        self.extras.as_ref().map_or(UNLIMITED, |extras| extras.max_pacing_rate)
    }

    fn send_cx<'a>(&self, cx: &StackCx<'a>) -> SendCx<'a> {
        self.send_cx_at(cx.now, cx.link, cx.config, cx.pool.budget.spare(), cx.shared)
    }

    /// The context of a decision of the send path.
    fn send_cx_at<'a>(
        &self,
        now: Instant,
        link: &'a LinkCaps,
        config: &'a StackConfig,
        spare: Spare,
        shared: &Shared,
    ) -> SendCx<'a> {
        SendCx {
            now,
            link,
            config: &config.send,
            mtu: &config.mtu,
            buffers: config.tcp.buffers,
            recovery: &config.recovery,
            congestion: &config.congestion,
            mss: self.mss(),
            full_mss: self.agreed.mss().into(),
            max_pacing_rate: self.max_pacing_rate(),
            tx_delay_us: self.tx_delay_us(),
            path: self.known_path(),
            single: self.ecn().needs_single_segments(),
            spare,
            device: config.send.tsq.measures(link).then(|| shared.meter.device()),
            ahead: shared.ahead.time(),
        }
    }

    fn ecn(&self) -> &Ecn {
        static OFF: Ecn = Ecn::OFF;
        self.extras.as_ref().map_or(&OFF, |extras| &extras.ecn)
    }

    fn ecn_mut(&mut self) -> Option<&mut Ecn> {
        self.extras.as_mut().map(|extras| &mut extras.ecn)
    }

    fn extras_mut(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    /// Whether there may be something to send.
    pub(crate) fn wants_output(&self) -> bool {
        let flags = &self.flags;
        self.tx.wants_output()
            || self.rx.ack_wanted()
            || flags.syn_due
            || flags.rst_due
            || flags.window_probe_due
            || self.ecn().has_turn()
    }

    /// A ticket came back: the packet has left the host.
    pub(crate) fn on_completion(&mut self, cx: &mut StackCx<'_>, ticket: &TxTicket) {
        self.tx.complete(cx.now, ticket, cx.shared);
        self.check_loans(cx);
    }

    /// A queue of this host is filling up: the same as a congestion mark.
    pub(crate) fn on_local_congestion(&mut self, cx: &mut StackCx<'_>) {
        self.tx.on_local_congestion(cx.now);
    }

    /// Why nothing was sent when the connection was last asked for a packet.
    pub(crate) fn blocked(&self) -> Blocked {
        self.tx.reason()
    }

    /// The invariants that hold between any two calls; for assertions.
    pub(crate) fn invariants(&self) {
        let over = self.state == State::Closed;
        assert!(self.handshake.first() <= self.tx.una(), "una is before the first byte");
        assert!(over || !self.tx.fin_queued() || !self.state.may_write(), "{} with a FIN queued", self.state);
        self.tx.invariants(over);
        let recovery = self.tx.recovery();
        assert!(
            recovery.deadline().is_none() || recovery.packets_out() > 0,
            "a timer without data in flight"
        );
        self.rx.invariants(self.state.is_synchronized());
        assert!(!self.flags.half_open || self.state == State::SynReceived);
    }

    /// Returns every buffer to the pool.
    pub(crate) fn discard(&mut self, pool: &mut BufferPool) {
        self.tx.release(pool);
        self.rx.release(pool);
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_small() {
        // With its entries in the tables an idle connection stays below 600 bytes.
        assert!(size_of::<Conn>() <= 568, "{}", size_of::<Conn>());
    }
}
