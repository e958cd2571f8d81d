//! One connection: its parts, and how calls reach them.
//!
//! ```text
//!   arrival.rs    a segment came: RFC 9293 §3.10.7, in its order
//!   output.rs     may something leave: SYN, RST, data, probes, ACK, in this order
//!   handshake.rs  what is offered and agreed in SYNs
//!   close.rs      ways to end
//!   ecn/          congestion marks: agreed on, echoed or counted, and on our packets
//!   icmp.rs       what routers say
//!   path.rs       how large segments may be
//!   timers.rs     what happens when nothing happens
//! ```
//!
//! The sending half is [`egress`](crate::egress), the receiving half `ingress`; what they share
//! (tuple, state, options) is here.

mod arrival;
mod close;
pub(crate) mod handshake;
mod icmp;
pub(crate) mod info;
mod output;
mod path;
pub(crate) mod state;
mod timers;

use alloc::boxed::Box;

pub(crate) use arrival::{Arrival, Consequence};

use taut_wire::AccEcn;

use crate::buffers::BufferPool;
use crate::config::StackConfig;
use crate::ecn::{Ecn, Said};
use crate::egress::pacing::UNLIMITED;
use crate::egress::path_mtu::PathMtu;
use crate::egress::{Blocked, Gate, Push, SendCx, Sender, Totals};
use crate::ingress::Receiver;
use crate::options::{ConnOptions, Keepalive, SetOption, WriteFlags};
use crate::stats::Counters;
use crate::words::{
    ConnError, Duration, Instant, LinkCaps, ListenerId, OptionError, ReadError, Tuple, TxTicket, WriteError,
};
use handshake::Offer;
use state::State;
use timers::{NEVER, Timers};

/// Longest `TCP_TX_DELAY`, in microseconds: 2³¹ − 1, as an `int` of `setsockopt(2)` has it.
const TX_DELAY_MAX_US: u64 = i32::MAX as u64;

fn tx_delay_us(delay: Duration) -> Option<u32> {
    u32::try_from(delay.as_micros()).ok().filter(|&us| u64::from(us) <= TX_DELAY_MAX_US)
}

/// What every call into a connection may use: shared by all connections of a stack.
pub(crate) struct StackCx<'a> {
    pub(crate) now: Instant,
    pub(crate) config: &'a StackConfig,
    pub(crate) link: &'a LinkCaps,
    pub(crate) pool: &'a mut BufferPool,
    pub(crate) counters: &'a mut Counters,
    pub(crate) totals: &'a mut Totals,
    /// See [`Stack::must_answer`](crate::Stack::must_answer).
    pub(crate) must_answer: &'a mut bool,
}

/// News for the application, coalesced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    pub(crate) connected: bool,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// Over, in good order or with the connection's error.
    pub(crate) ended: bool,
}

impl News {
    pub(crate) fn any(self) -> bool {
        self != Self::default()
    }
}

/// Small facts, one bit each in spirit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flags {
    /// Something may be ready to leave: the stack should ask.
    pub(crate) wants_output: bool,
    /// Data may be able to leave: the gates are to be asked. Without it only what needs no gate leaves, so that an ACK
    /// that is due does not flush what a completion is to flush.
    pub(crate) send_due: bool,
    /// In the stack's ready queue.
    pub(crate) queued_for_output: bool,
    /// In the stack's queue of news.
    pub(crate) queued_for_news: bool,
    /// The application holds this connection, or will by `accept`.
    pub(crate) held: bool,
    /// Out of the demultiplexer: nothing arrives any more.
    pub(crate) detached: bool,
    /// A SYN, or SYN-ACK, is to leave.
    pub(crate) syn_due: bool,
    /// RST is to leave, then the connection is gone.
    pub(crate) rst_due: bool,
    /// A pure ACK is to leave, whatever the delayed-ACK rules say.
    pub(crate) ack_due: bool,
    /// A zero-window or keepalive probe is to leave.
    pub(crate) probe_due: bool,
    /// The listener counts this connection among its half-open ones.
    pub(crate) half_open: bool,
}

/// What few connections have.
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
    ecn: Ecn,
    /// What is known of the path's MTU beyond the handshake.
    path: Option<PathMtu>,
}

impl Default for Extras {
    fn default() -> Self {
        Self {
            keepalive: None,
            keepalive_at: NEVER,
            user_timeout: None,
            max_pacing_rate: UNLIMITED,
            tx_delay_us: 0,
            ecn: Ecn::OFF,
            path: None,
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
    /// Where it came from, or `NONE` if it was begun here.
    listener: ListenerId,
    pub(crate) state: State,
    pub(crate) flags: Flags,
    pub(crate) news: News,
    pub(crate) error: Option<ConnError>,
    pub(crate) tx: Sender,
    pub(crate) rx: Receiver,
    timers: Timers,
    offer: Offer,
    extras: Option<Box<Extras>>,
}

impl Conn {
    /// The listener this connection came from.
    pub(crate) fn listener(&self) -> Option<ListenerId> {
        (self.listener != ListenerId::NONE).then_some(self.listener)
    }

    /// Payload bytes a segment can hold now: less while SACK blocks or counts of marks ride along.
    pub(crate) fn mss(&self) -> u32 {
        let marks = self.accecn_option(Said::Data).map_or(0, |option| option.emitted_len() as u32);
        let options = self.sack_blocks_len() + marks;
        let mss = u32::from(self.offer.snd_mss).saturating_sub(options);
        self.tx.bounded_mss(mss).max(1)
    }

    /// Bytes that SACK blocks take in every header at the moment.
    fn sack_blocks_len(&self) -> u32 {
        if !self.rx.sack {
            return 0;
        }
        match self.rx.sack_blocks().as_slice().len() as u32 {
            0 => 0,
            // Two NOPs, kind and length, eight bytes a block (RFC 2018 §3).
            blocks => 4 + 8 * blocks,
        }
    }

    /// The counts of the peer's marked bytes, if the next segment is to carry them (RFC 9768 §3.2.3.3).
    fn accecn_option(&self, on: Said) -> Option<AccEcn> {
        let extras = self.extras.as_ref()?;
        let blocks = if self.rx.sack { self.rx.sack_blocks().as_slice().len() } else { 0 };
        extras.ecn.option(on, self.rx.timestamps.on, blocks)
    }

    /// Nothing has come from the peer but its SYN, so that an ACK without data stands for that.
    fn acks_syn_only(&self) -> bool {
        self.rx.data_segs_in == 0 && !self.rx.fin_received()
    }

    fn tx_delay_us(&self) -> u32 {
        self.extras.as_ref().map_or(0, |extras| extras.tx_delay_us)
    }

    fn send_cx<'a>(&self, cx: &StackCx<'a>) -> SendCx<'a> {
        self.send_cx_at(cx.now, cx.link, cx.config)
    }

    /// What surrounds a decision of the send path.
    fn send_cx_at<'a>(&self, now: Instant, link: &'a LinkCaps, config: &'a StackConfig) -> SendCx<'a> {
        SendCx {
            now,
            link,
            config: &config.send,
            mtu: &config.mtu,
            recovery: &config.recovery,
            congestion: &config.congestion,
            mss: self.mss(),
            tx_delay_us: self.tx_delay_us(),
            path: self.known_path(),
            single: self.ecn().needs_single_segments(),
        }
    }

    /// Takes as much of `data` as there is room for.
    ///
    /// # Errors
    ///
    /// As [`WriteError`] says; nothing was taken then.
    pub(crate) fn write(
        &mut self,
        cx: &mut StackCx<'_>,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<usize, WriteError> {
        self.may_write()?;
        if data.is_empty() {
            return Ok(0);
        }
        let send = self.send_cx(cx);
        let was_empty = !self.tx.has_unsent() && self.tx.recovery.packets_out() == 0;
        let taken = self.tx.write(&send, data, flags, cx.pool);
        if taken < data.len() {
            self.tx.buffer.nospace = true;
            // Out of room: cork has nothing to wait for.
            self.tx.nagle.more = false;
        }
        if taken > 0 {
            if was_empty {
                self.restart_after_idle(cx);
            }
            match self.tx.push(&send) {
                Push::Go => self.want_to_send(),
                Push::Held { throttled } => {
                    cx.counters.tcp_auto_corking += u64::from(throttled);
                    cx.counters.autocork_held += 1;
                    self.tx.note_held(cx.now, Gate::Autocork, cx.totals);
                }
            }
            Ok(taken)
        } else {
            Err(WriteError::WouldBlock)
        }
    }

    /// Data may be able to leave.
    pub(crate) fn want_to_send(&mut self) {
        self.flags.send_due = true;
        self.flags.wants_output = true;
    }

    fn may_write(&self) -> Result<(), WriteError> {
        if let Some(error) = self.error {
            return Err(WriteError::Conn(error));
        }
        match self.state {
            State::SynSent | State::SynReceived => Err(WriteError::NotConnected),
            _ if self.tx.fin_queued => Err(WriteError::Shutdown),
            state if state.may_write() => Ok(()),
            _ => Err(WriteError::Shutdown),
        }
    }

    /// RFC 5681 §4.1: a window that was not used for an RTO says nothing about the path.
    fn restart_after_idle(&mut self, cx: &StackCx<'_>) {
        if self.tx.data_segs_out > 0 {
            let recovery = &self.tx.recovery;
            self.tx.congestion.on_idle_restart(
                cx.now,
                recovery.last_sent_at(),
                recovery.rto(),
                self.extras.as_ref().map_or(UNLIMITED, |extras| extras.max_pacing_rate),
                &cx.config.congestion,
            );
        }
    }

    /// Whether a read would give something (data, the end or an error) at once.
    ///
    /// # Errors
    ///
    /// As [`ReadError`] says.
    pub(crate) fn may_read(&self) -> Result<(), ReadError> {
        if !self.rx.queue.is_empty() {
            return Ok(());
        }
        // End of stream outranks a later error: the peer had said everything.
        if self.rx.fin_received() || self.rx.shut {
            return Ok(());
        }
        if let Some(error) = self.error {
            return Err(ReadError::Conn(error));
        }
        match self.state {
            State::SynSent | State::SynReceived => Err(ReadError::NotConnected),
            State::Closed | State::TimeWait => Ok(()),
            _ => Err(ReadError::WouldBlock),
        }
    }

    /// Moves received bytes to `into`; zero is the end of the stream.
    ///
    /// # Errors
    ///
    /// As [`ReadError`] says.
    pub(crate) fn read(&mut self, cx: &mut StackCx<'_>, into: &mut [u8]) -> Result<usize, ReadError> {
        self.may_read()?;
        let count = self.rx.queue.read(into, cx.pool);
        self.note_consumed(cx, count);
        Ok(count)
    }

    /// Drops the first `count` unread bytes, or all if there are fewer.
    pub(crate) fn consume(&mut self, cx: &mut StackCx<'_>, count: usize) {
        let count = count.min(usize::try_from(self.rx.queue.len()).unwrap_or(usize::MAX));
        self.rx.queue.consume(count, cx.pool);
        self.note_consumed(cx, count);
    }

    /// The application took bytes: the window may open far enough to tell the peer.
    fn note_consumed(&mut self, cx: &mut StackCx<'_>, count: usize) {
        if count == 0 || !self.state.may_receive() {
            return;
        }
        let mss = self.rx.delayed_ack.rcv_mss();
        let unread = self.rx.queue.len();
        self.rx.window.on_copied_to_user(cx.now, count, unread, mss);
        self.rx.delayed_ack.on_read();
        self.flags.wants_output |= self.rx.delayed_ack.must_ack_now();
        if self.rx.window.window_update_due(unread, mss) {
            self.flags.ack_due = true;
            self.flags.wants_output = true;
        }
    }

    /// poll(2)'s POLLIN.
    pub(crate) fn is_readable(&self) -> bool {
        !matches!(self.may_read(), Err(ReadError::WouldBlock | ReadError::NotConnected))
    }

    /// poll(2)'s POLLOUT. Finding no room arms the news of it.
    pub(crate) fn poll_writable(&mut self, cx: &StackCx<'_>) -> bool {
        match self.may_write() {
            Err(WriteError::NotConnected) => false,
            // A write would report the error at once.
            Err(_) => true,
            Ok(()) => {
                let writable = self.room_is_writable(cx);
                self.tx.buffer.nospace |= !writable;
                writable
            }
        }
    }

    fn room_is_writable(&self, cx: &StackCx<'_>) -> bool {
        let goal = self.tx.size_goal(&self.send_cx(cx));
        self.tx.room(goal, &cx.config.send).is_writable()
    }

    /// Room may have appeared: tell the application, if it waits for that.
    fn check_space(&mut self, cx: &StackCx<'_>) {
        if !self.tx.buffer.nospace || !self.state.may_write() {
            return;
        }
        if self.tx.recovery.in_flight() < self.tx.congestion.cwnd() {
            self.expand_sndbuf(cx);
        }
        if self.room_is_writable(cx) {
            self.tx.buffer.nospace = false;
            self.tx.note_space(cx.now);
            self.news.writable = true;
        }
    }

    fn expand_sndbuf(&mut self, cx: &StackCx<'_>) {
        /// Segments by which the network may reorder, as Linux assumes at first (`tcp_reordering`).
        const REORDERING: u32 = 3;
        let mss = u32::from(self.offer.snd_mss);
        let cwnd = self.tx.congestion.cwnd();
        let windows = u64::from(self.tx.congestion.send_buffer_windows());
        self.tx.buffer.expand(mss, cwnd, REORDERING, windows, cx.config.send.wmem.max);
    }

    /// A ticket came back.
    pub(crate) fn on_completion(&mut self, cx: &mut StackCx<'_>, ticket: &TxTicket) {
        if ticket.start != ticket.end {
            self.tx.recovery.on_tx_completed(&(ticket.start..ticket.end));
        }
        if self.tx.note_completed(cx.now, ticket.truesize, ticket.handed, cx.totals) {
            self.want_to_send();
        }
    }

    /// A queue of this host is filling up: the same as a congestion mark.
    pub(crate) fn on_local_congestion(&mut self, cx: &mut StackCx<'_>) {
        self.tx.recovery.enter_cwr(cx.now, &mut self.tx.congestion);
    }

    /// Sets one option.
    ///
    /// # Errors
    ///
    /// [`OptionError::OutOfRange`]; nothing changed then.
    pub(crate) fn set_option(&mut self, cx: &mut StackCx<'_>, option: SetOption) -> Result<(), OptionError> {
        match option {
            SetOption::Nodelay(on) => {
                self.tx.nagle.off = on;
                self.tx.nagle.push |= on;
                if on {
                    self.want_to_send();
                }
            }
            SetOption::Cork(on) => {
                self.tx.nagle.cork = on;
                if !on {
                    self.tx.nagle.push |= self.tx.nagle.off;
                    self.want_to_send();
                }
            }
            SetOption::Quickack(on) => {
                self.rx.delayed_ack.set_quickack(on);
                self.flags.wants_output |= self.rx.delayed_ack.must_ack_now();
            }
            SetOption::NotsentLowat(bytes) => {
                self.tx.lowat = bytes;
                self.check_space(cx);
            }
            SetOption::Sndbuf(bytes) => {
                self.tx.buffer.set(bytes, cx.config.send.wmem_max);
                self.check_space(cx);
            }
            SetOption::Rcvbuf(bytes) => {
                let size = bytes.min(cx.config.receive.rmem_max).saturating_mul(2);
                self.rx.window.lock_rcvbuf(size);
            }
            SetOption::MaxPacingRate(0) => return Err(OptionError::OutOfRange("SO_MAX_PACING_RATE")),
            SetOption::MaxPacingRate(rate) => {
                self.extras_mut().max_pacing_rate = rate;
                self.tx.pacing_wanted |= rate != UNLIMITED;
                self.tx.congestion.clamp_pacing_rate(rate);
            }
            SetOption::TxDelay(delay) => {
                let delay_us = tx_delay_us(delay).ok_or(OptionError::OutOfRange("TCP_TX_DELAY"))?;
                self.extras_mut().tx_delay_us = delay_us;
            }
            SetOption::Congestion(algorithm) => self.tx.congestion.set_algorithm(algorithm),
            SetOption::Keepalive(keepalive) => {
                if keepalive.is_some_and(|k| k.count == 0 || k.count > 127 || k.interval.is_zero()) {
                    return Err(OptionError::OutOfRange("SO_KEEPALIVE"));
                }
                self.extras_mut().keepalive = keepalive;
                self.arm_keepalive(cx);
            }
            SetOption::UserTimeout(timeout) => self.extras_mut().user_timeout = timeout,
        }
        Ok(())
    }

    fn ecn(&self) -> &Ecn {
        static OFF: Ecn = Ecn::OFF;
        self.extras.as_ref().map_or(&OFF, |extras| &extras.ecn)
    }

    fn extras_mut(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    /// Applies what a connection starts with. Values out of range are brought into it.
    fn apply(&mut self, cx: &mut StackCx<'_>, options: &ConnOptions) {
        self.tx.nagle.off = options.nodelay;
        self.tx.lowat = options.notsent_lowat;
        if let Some(bytes) = options.sndbuf {
            self.tx.buffer.set(bytes, cx.config.send.wmem_max);
        }
        if let Some(rate) = options.max_pacing_rate.filter(|&rate| rate > 0) {
            let _ = self.set_option(cx, SetOption::MaxPacingRate(rate));
        }
        if options.keepalive.is_some() || options.user_timeout.is_some() {
            let keepalive = options.keepalive.filter(|k| k.count > 0 && !k.interval.is_zero());
            let extras = self.extras_mut();
            extras.keepalive = keepalive;
            extras.user_timeout = options.user_timeout;
        }
    }

    /// Why nothing was sent when it was last asked.
    pub(crate) fn blocked(&self) -> Blocked {
        self.tx.blocked.reason(self.tx.pacing.next_departure())
    }

    /// What must hold between any two calls; for assertions.
    pub(crate) fn invariants(&self) {
        let tx = &self.tx;
        assert!(tx.una() <= tx.nxt && tx.nxt <= tx.end(), "una {} nxt {} end {}", tx.una(), tx.nxt, tx.end());
        assert!(self.offer.first() <= tx.una(), "una is before the first byte");
        if self.state != State::Closed {
            // Exactly what is unacknowledged is kept; FIN takes a position, but no byte.
            assert_eq!(tx.queue.start(), tx.una().min(tx.queue.end()));
            assert!(!tx.fin_queued || !self.state.may_write(), "{} with a FIN queued", self.state);
        }
        let recovery = &tx.recovery;
        assert_eq!(recovery.packets_out() == 0, recovery.records() == 0);
        assert!(recovery.sacked_out() + recovery.lost_out() <= recovery.packets_out());
        assert!(recovery.retrans_out() <= recovery.packets_out());
        if let Some(nxt) = recovery.logged_until() {
            assert!(self.state == State::Closed || nxt == tx.nxt, "the log ends at {nxt}, nxt is {}", tx.nxt);
        }
        let rx = &self.rx;
        assert!(rx.window.rcv_nxt() <= rx.window.edge());
        assert!(rx.last_ack_sent <= rx.nxt());
        if self.state.is_synchronized() && !rx.shut {
            let fin = u64::from(rx.fin_received());
            assert_eq!(rx.queue.end() + fin, rx.nxt(), "read queue and window disagree");
        }
        assert!(!self.flags.half_open || self.state == State::SynReceived);
    }

    /// Gives every buffer back.
    pub(crate) fn discard(&mut self, pool: &mut BufferPool) {
        self.tx.queue.discard_all(pool);
        self.rx.queue.discard_all(pool);
        self.rx.reassembly.discard_all(pool);
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_small() {
        // With its places in the tables an idle connection stays below 600 bytes.
        assert!(size_of::<Conn>() <= 568, "{}", size_of::<Conn>());
    }
}
