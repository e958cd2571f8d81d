//! The interface of a congestion control: the values that it gets, and the decisions that it makes.
//! The division of labour is Linux's (`struct tcp_congestion_ops`); the terms of a rate sample are those of
//! draft-ietf-ccwg-bbr §4.1. Called by `congestion/mod.rs`, which keeps the state that every algorithm needs.
//!
//! A controller never sees the connection. It gets values, and writes a [`Window`]. Everything else (which
//! segments are lost, which are retransmitted and when, how a reduction is spread over a round trip, how
//! large a super-packet is, when it leaves) is done by `recovery/` and `egress/`.
//!
//! ```text
//!            ACK ─▶ observe ─▶ on_ack ─▶ window.cwnd, pacing_rate ─▶ the send path
//!     loss, mark ─▶ reduce  ─▶ ssthresh; cwnd follows by PRR over the round trip (RFC 9937)
//!        timeout ─▶ reduce, on_timeout
//!  spurious loss ─▶ undo
//! ```
//!
//! There are two kinds. One that thinks in windows (Reno, CUBIC, DCTCP) implements
//! [`on_ack`](Controller::on_ack) for growth and [`reduce`](Controller::reduce) for the rest. One that has a
//! model of the path (BBR) declares that it [owns cwnd](Controller::owns_cwnd): then `on_ack` is called for
//! every ACK, in every state, PRR and validation leave cwnd alone, and the controller sets the
//! [`pacing_rate`](Controller::pacing_rate).

use core::fmt;

use super::CWND_MAX;
use crate::words::{Duration, Instant};

/// A congestion control of one connection.
///
/// Only [`on_ack`](Self::on_ack) and [`reduce`](Self::reduce) must be implemented. All counts are in
/// segments, all rates in bytes per second. A controller is made when a connection first sends data, and
/// dropped with it; nothing in it may depend on a clock or on randomness other than [`AckEvent::now`] and
/// [`AckEvent::seed`], so that a run can be repeated.
pub trait Controller: fmt::Debug + Send {
    /// Called for any ACK that delivered something, or found something lost, before anything is decided: for
    /// statistics that must be complete, such as DCTCP's share of marked segments.
    fn observe(&mut self, _ack: &AckEvent<'_>) {}

    /// Sets cwnd after an ACK that may raise it: one that advanced, outside CWR and Recovery, while cwnd was
    /// the limit. With [`owns_cwnd`](Self::owns_cwnd), called after every ACK.
    fn on_ack(&mut self, window: &mut Window, ack: &AckEvent<'_>);

    /// A reduction begins; at most one per round trip. Returns the new ssthresh, which cwnd reaches by PRR
    /// within the round trip, or by slow start after a timeout.
    fn reduce(&mut self, window: &Window, why: Signal, now: Instant) -> u32;

    /// A packet was found lost. Called before the ACK's [`observe`](Self::observe).
    fn on_lost(&mut self, _packet: &LostPacket) {}

    /// A retransmission timeout, after [`reduce`](Self::reduce); from now on, cwnd is one segment above the
    /// number thought to be in the network.
    fn on_timeout(&mut self, _window: &mut Window) {}

    /// The recovery that reduced cwnd is over: everything in flight when it began is acknowledged.
    fn on_recovery_end(&mut self, _window: &mut Window) {}

    /// The last reduction was unnecessary; cwnd and ssthresh are already restored.
    fn undo(&mut self, _window: &mut Window, _now: Instant) {}

    /// Sending is about to resume after `idle` without anything in flight.
    fn on_idle_end(&mut self, _window: &mut Window, _now: Instant, _idle: Duration) {}

    /// Whether the controller sets cwnd itself, in recovery too, and must see every ACK.
    fn owns_cwnd(&self) -> bool {
        false
    }

    /// A pacing rate of its own, or `None` for the usual one: 120 % of cwnd / SRTT, or 200 % in slow start.
    fn pacing_rate(&self) -> Option<u64> {
        None
    }

    /// Payload bytes of a super-packet, or `None` to leave that to TSO autosizing: about a millisecond of the
    /// rate.
    fn send_quantum(&self) -> Option<u32> {
        None
    }

    /// The number of congestion windows that the send buffer grows to hold.
    fn send_buffer_windows(&self) -> u8 {
        2
    }

    /// A few words for `taut ss` and for logs: the state it is in.
    fn describe(&self, _to: &mut dyn fmt::Write) -> fmt::Result {
        Ok(())
    }
}

/// Why a reduction begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Signal {
    /// Something was lost and is being retransmitted (RFC 5681 §3.2), or a tail loss probe repaired the loss
    /// before it was detected (RFC 8985 §7.4).
    Loss,
    /// The peer reports a congestion mark. RFC 3168 §6.1.2.
    Mark,
    /// A queue of this host was full.
    LocalQueue,
    /// The retransmission timer expired.
    Timeout,
}

/// An ACK's content and consequences.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AckEvent<'a> {
    /// When it arrived.
    pub now: Instant,
    /// Payload bytes of a full segment.
    pub mss: u32,
    /// Segments newly delivered, cumulatively or selectively. Linux: `acked_sacked`.
    pub acked: u32,
    /// Segments newly found lost.
    pub newly_lost: u32,
    /// Segments in flight before the ACK.
    pub prior_in_flight: u32,
    /// Segments in flight after it.
    pub in_flight: u32,
    /// Segments delivered since the beginning, this ACK's included.
    pub total_delivered: u64,
    /// Segments found lost since the beginning, wrapping.
    pub total_lost: u32,
    /// Round-trip time of the newest packet acknowledged, if it gives one.
    pub rtt: Option<Duration>,
    /// Smoothed round-trip time. RFC 6298.
    pub srtt: Option<Duration>,
    /// Least round-trip time of the last five minutes.
    pub min_rtt: Option<Duration>,
    /// Oldest position not acknowledged, after the ACK.
    pub una: u64,
    /// Next position never sent: when `una` reaches it, a round trip is over.
    pub nxt: u64,
    /// The rate at which the network delivered, if the ACK gives a sample.
    pub rate: Option<&'a RateSample>,
    /// The ACK carries ECE (RFC 3168).
    pub ece: bool,
    /// Segments newly reported as marked: all of `acked` when `ece` is the only information.
    pub delivered_ce: u32,
    /// cwnd was the limit when the data acknowledged was sent.
    pub cwnd_limited: bool,
    /// Something lost is being repaired: states Recovery and Loss.
    pub recovering: bool,
    /// Differs between connections and never changes: for controllers that must not act in step with others.
    pub seed: u64,
}

impl<'a> AckEvent<'a> {
    /// An ACK of `acked` segments at `now`, with defaults for the rest; for tests of a controller. The fields
    /// are public.
    #[must_use]
    pub const fn new(now: Instant, mss: u32, acked: u32) -> AckEvent<'a> {
        AckEvent {
            now,
            mss,
            acked,
            newly_lost: 0,
            prior_in_flight: 0,
            in_flight: 0,
            total_delivered: 0,
            total_lost: 0,
            rtt: None,
            srtt: None,
            min_rtt: None,
            una: 0,
            nxt: 0,
            rate: None,
            ece: false,
            delivered_ce: 0,
            cwnd_limited: true,
            recovering: false,
            seed: 0,
        }
    }
}

/// A measurement of the delivery rate: how much the network delivered, and in what time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateSample {
    /// Segments delivered over `interval`.
    pub delivered: u32,
    /// The longer of the time to send them and the time to see them acknowledged.
    pub interval: Duration,
    /// The rate may be the application's, not the network's.
    pub is_app_limited: bool,
    /// Segments in flight before this ACK.
    pub prior_in_flight: u32,
    /// Segments in flight when the newest packet delivered was sent, itself included.
    pub tx_in_flight: u32,
    /// Segments delivered since the beginning when that packet was sent; distinguishes rounds.
    pub prior_delivered: u64,
    /// Segments marked lost since that packet was sent.
    pub lost: u32,
    /// Segments marked lost by this ACK.
    pub losses: u32,
    /// Segments this ACK delivered.
    pub acked_sacked: u32,
}

impl RateSample {
    /// Bytes per second, of segments of `mss` bytes.
    #[must_use]
    pub fn bytes_per_sec(&self, mss: u32) -> u64 {
        let ns = self.interval.as_nanos().max(1);
        let bytes = u64::from(self.delivered) * u64::from(mss);
        u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(ns)).unwrap_or(u64::MAX)
    }
}

/// A packet, or a part of one, that was found lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostPacket {
    /// Its segments.
    pub segs: u32,
    /// Segments in flight when it was sent, itself included.
    pub tx_in_flight: u32,
    /// Segments found lost since it was sent, itself included.
    pub lost: u32,
    /// Segments delivered since the beginning.
    pub total_delivered: u64,
    /// The application had left the network short of data.
    pub is_app_limited: bool,
}

/// cwnd and ssthresh in segments, and the progress towards the next increment.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub(super) cwnd: u32,
    pub(super) ssthresh: u32,
    /// Segments acknowledged since cwnd grew in congestion avoidance.
    pub(super) count: u32,
    /// The controller keeps the network short of data on purpose.
    pub(super) app_limited: bool,
}

impl Window {
    /// A window of `cwnd` segments in slow start.
    #[must_use]
    pub const fn new(cwnd: u32) -> Self {
        Self { cwnd, ssthresh: u32::MAX, count: 0, app_limited: false }
    }

    /// Segments that may be in flight; at least 1.
    #[must_use]
    pub const fn cwnd(&self) -> u32 {
        self.cwnd
    }

    /// Where slow start ends; `u32::MAX` until the first reduction.
    #[must_use]
    pub const fn ssthresh(&self) -> u32 {
        self.ssthresh
    }

    /// Whether cwnd is below ssthresh.
    #[must_use]
    pub const fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Sets cwnd, to at least 1 and at most 2²⁴ segments.
    pub fn set_cwnd(&mut self, cwnd: u32) {
        self.cwnd = cwnd.clamp(1, CWND_MAX);
    }

    /// Ends slow start here: ssthresh = cwnd.
    pub fn leave_slow_start(&mut self) {
        self.ssthresh = self.cwnd;
    }

    /// Slow start up to ssthresh; returns the segments left over. RFC 5681 §3.1, RFC 3465 §2.2 with L = ∞, as
    /// in Linux: the send path bounds bursts, not the window's growth.
    pub fn slow_start(&mut self, acked: u32) -> u32 {
        let target = self.cwnd.saturating_add(acked).min(self.ssthresh).max(self.cwnd);
        let used = target - self.cwnd;
        self.set_cwnd(target);
        acked - used
    }

    /// One segment more for every `every` acknowledged. RFC 5681 §3.1 with every = cwnd.
    pub fn additive(&mut self, every: u32, acked: u32) {
        let every = every.max(1);
        // Credit saved under a larger divisor is worth one segment at most.
        if self.count >= every {
            self.count = 0;
            self.set_cwnd(self.cwnd.saturating_add(1));
        }
        self.count = self.count.saturating_add(acked);
        if self.count >= every {
            let grow = self.count / every;
            self.count -= grow * every;
            self.set_cwnd(self.cwnd.saturating_add(grow));
        }
    }

    /// Marks the rate samples from now until everything in flight is acknowledged: they show how little was
    /// sent, not how much the path can carry.
    pub fn mark_app_limited(&mut self) {
        self.app_limited = true;
    }
}
