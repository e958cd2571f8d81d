//! Congestion control: the window, its threshold, the pacing rate, and which of the algorithms moves them.
//! RFC 5681, RFC 9438; validation, idle restart and the pacing rate are Linux's (described in its terms below).
//! Called by `recovery/` on ACKs, losses and timeouts, and by the send path for validation and idleness.

mod cubic;
mod hystart;
mod reno;

use alloc::boxed::Box;

use crate::config::StackConfig;
use crate::recovery::RateSample;
use crate::units::{Duration, Instant};
use cubic::Cubic;
use reno::Reno;

/// RFC 6928 §2.
pub(crate) const INITIAL_CWND: u32 = 10;
/// RFC 5681 §3.1, equation 4.
const MIN_SSTHRESH: u32 = 2;
/// Far above any window that 32-bit byte counts allow, and small enough that sums never overflow.
const CWND_MAX: u32 = 1 << 24;

/// A congestion control, by Linux's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Algorithm {
    /// RFC 5681.
    Reno,
    /// RFC 9438.
    Cubic,
}

impl Algorithm {
    /// All there are.
    pub const ALL: [Self; 2] = [Self::Reno, Self::Cubic];

    /// The name that `TCP_CONGESTION` knows it by.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
        }
    }

    /// The algorithm of that name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }
}

/// What an algorithm learns from an ACK.
#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "what a rate-based controller needs; Reno and CUBIC look at a part of it")]
pub(crate) struct AckEvent<'a> {
    pub(crate) now: Instant,
    /// Segments that count towards growth: what was sacked earlier does not count again. Linux: `acked_sacked`.
    pub(crate) acked: u32,
    /// Segments newly delivered, cumulatively or selectively.
    pub(crate) delivered: u32,
    /// Segments in flight before the ACK.
    pub(crate) prior_in_flight: u32,
    /// Round-trip time of the newest packet acknowledged, if it tells one.
    pub(crate) rtt: Option<Duration>,
    pub(crate) srtt: Option<Duration>,
    pub(crate) min_rtt: Option<Duration>,
    /// After the ACK.
    pub(crate) una: u64,
    pub(crate) nxt: u64,
    pub(crate) rate: Option<&'a RateSample>,
}

/// What an algorithm decides. All have the same calls, so that [`Congestion`] need not know which it holds.
pub(crate) trait Control {
    /// cwnd after an ACK that may raise it. `acked` segments, of which an algorithm uses as many as it likes.
    fn on_ack(&mut self, window: &mut Window, event: &AckEvent<'_>);
    /// ssthresh after a loss or a congestion mark at `cwnd`.
    fn on_loss(&mut self, now: Instant, cwnd: u32) -> u32;
    /// A retransmission timeout, after [`on_loss`](Self::on_loss).
    fn on_timeout(&mut self) {}
    /// The last reduction was for nothing.
    fn undo(&mut self) {}
    /// Sending resumes after `idle`.
    fn on_idle_end(&mut self, _now: Instant, _idle: Duration) {}
    /// The algorithm sets cwnd by itself also in recovery, and PRR stays out of its way.
    fn owns_cwnd(&self) -> bool {
        false
    }
    /// A pacing rate of its own, bytes per second.
    fn pacing_rate(&self) -> Option<u64> {
        None
    }
    /// Bytes of a super-packet, where the algorithm does not leave it to autosizing.
    fn send_quantum(&self) -> Option<u32> {
        None
    }
}

/// cwnd and ssthresh in segments, and what counts towards the next increment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) cwnd: u32,
    pub(crate) ssthresh: u32,
    /// Segments acknowledged since cwnd grew in congestion avoidance.
    count: u32,
}

impl Window {
    const fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    fn set_cwnd(&mut self, cwnd: u32) {
        self.cwnd = cwnd.clamp(1, CWND_MAX);
    }

    /// Slow start up to ssthresh; returns the segments left over. RFC 5681 §3.1, RFC 3465 §2.2 with L = ∞, as
    /// Linux: bursts are bounded by what the send path hands down at once, not by the window's growth.
    fn slow_start(&mut self, acked: u32) -> u32 {
        let target = self.cwnd.saturating_add(acked).min(self.ssthresh).max(self.cwnd);
        let used = target - self.cwnd;
        self.set_cwnd(target);
        acked - used
    }

    /// One segment more for every `every` acknowledged. RFC 5681 §3.1 with every = cwnd.
    fn additive(&mut self, every: u32, acked: u32) {
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
}

/// The algorithms in one value. An enum and not `Box<dyn Control>`: ACK processing calls it for every packet,
/// the compiler sees through it, and a connection needs no allocation for it.
#[derive(Clone, Copy, Debug)]
enum Controller {
    Reno(Reno),
    Cubic(Cubic),
}

impl Controller {
    fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Reno => Self::Reno(Reno),
            Algorithm::Cubic => Self::Cubic(Cubic::new()),
        }
    }
}

/// Calls a method of [`Control`] on whichever algorithm it is.
macro_rules! dispatch {
    ($self:expr, $inner:ident => $call:expr) => {
        match $self {
            Controller::Reno($inner) => $call,
            Controller::Cubic($inner) => $call,
        }
    };
}

/// Congestion state of a connection. Everything that only traffic changes lies in one box, made when the first data
/// leaves: an idle connection does not have it.
#[derive(Clone, Debug)]
pub(crate) struct Congestion {
    /// Bytes per second; `u64::MAX` until known.
    pacing_rate: u64,
    live: Option<Box<Live>>,
    algorithm: Algorithm,
}

#[derive(Clone, Debug)]
struct Live {
    window: Window,
    /// Before the last reduction; 0: none to undo.
    prior_cwnd: u32,
    prior_ssthresh: u32,
    /// Most segments out in the round that ends when `una` reaches `usage_end`.
    max_packets_out: u32,
    /// Most segments out since `stamp`, while the window was not the limit.
    used: u32,
    usage_end: u64,
    /// When the window was last the limit.
    stamp: Instant,
    limited: bool,
    controller: Controller,
}

impl Live {
    fn new(now: Instant, algorithm: Algorithm) -> Self {
        Self {
            window: INITIAL,
            prior_cwnd: 0,
            prior_ssthresh: 0,
            max_packets_out: 0,
            used: 0,
            usage_end: 0,
            stamp: now,
            limited: false,
            controller: Controller::new(algorithm),
        }
    }

    /// Whether the window may grow: it was the limit, or slow start used more than half of it.
    const fn is_cwnd_limited(&self) -> bool {
        self.limited
            || (self.window.in_slow_start() && self.window.cwnd < self.max_packets_out.saturating_mul(2))
    }

    const fn forget_prior(&mut self) {
        self.prior_cwnd = 0;
        self.prior_ssthresh = 0;
    }

    fn owns_cwnd(&self) -> bool {
        dispatch!(&self.controller, inner => inner.owns_cwnd())
    }

    /// What slow start may quickly get back to.
    fn current_ssthresh(&self) -> u32 {
        self.window.ssthresh.max(self.window.cwnd / 4 * 3 + self.window.cwnd % 4 * 3 / 4)
    }
}

/// The window before anything was sent.
const INITIAL: Window = Window { cwnd: INITIAL_CWND, ssthresh: u32::MAX, count: 0 };

impl Congestion {
    pub(crate) const fn new(algorithm: Algorithm) -> Self {
        Self { pacing_rate: u64::MAX, live: None, algorithm }
    }

    fn live(&mut self, now: Instant) -> &mut Live {
        let algorithm = self.algorithm;
        self.live.get_or_insert_with(|| Box::new(Live::new(now, algorithm)))
    }

    const fn window(&self) -> &Window {
        match &self.live {
            Some(live) => &live.window,
            None => &INITIAL,
        }
    }

    pub(crate) const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// `TCP_CONGESTION`: another algorithm from now on, with the window as it is.
    pub(crate) fn set_algorithm(&mut self, algorithm: Algorithm) {
        if algorithm != self.algorithm {
            self.algorithm = algorithm;
            if let Some(live) = &mut self.live {
                live.controller = Controller::new(algorithm);
                live.window.count = 0;
            }
        }
    }

    /// Segments.
    pub(crate) const fn cwnd(&self) -> u32 {
        self.window().cwnd
    }

    /// Segments; `u32::MAX` until the first loss.
    pub(crate) const fn ssthresh(&self) -> u32 {
        self.window().ssthresh
    }

    /// Bytes per second; `u64::MAX` is no limit.
    pub(crate) const fn pacing_rate(&self) -> u64 {
        self.pacing_rate
    }

    /// Bytes of a super-packet, when the algorithm has an opinion.
    pub(crate) fn send_quantum(&self) -> Option<u32> {
        self.live.as_ref().and_then(|live| dispatch!(&live.controller, inner => inner.send_quantum()))
    }

    /// Whether the algorithm alone sets cwnd, in recovery too.
    pub(crate) fn owns_cwnd(&self) -> bool {
        self.live.as_ref().is_some_and(|live| live.owns_cwnd())
    }

    pub(crate) fn set_cwnd(&mut self, cwnd: u32) {
        if let Some(live) = &mut self.live {
            live.window.set_cwnd(cwnd);
        }
    }

    /// An ACK outside CWR and Recovery.
    pub(crate) fn on_ack(&mut self, event: &AckEvent<'_>, cwnd_limited: bool) {
        let live = self.live(event.now);
        if live.owns_cwnd() || cwnd_limited || live.is_cwnd_limited() {
            dispatch!(&mut live.controller, inner => inner.on_ack(&mut live.window, event));
        }
    }

    /// A reduction begins: ssthresh by the algorithm; cwnd follows by PRR. `undoable`: it may turn out needless.
    pub(crate) fn begin_reduction(&mut self, now: Instant, undoable: bool) {
        let live = self.live(now);
        if undoable {
            live.prior_cwnd = live.window.cwnd;
            live.prior_ssthresh = live.window.ssthresh;
        } else {
            live.forget_prior();
        }
        let cwnd = live.window.cwnd;
        live.window.ssthresh =
            dispatch!(&mut live.controller, inner => inner.on_loss(now, cwnd)).max(MIN_SSTHRESH);
        live.window.count = 0;
    }

    /// The reduction is complete. RFC 9937 §6.4.
    pub(crate) fn end_reduction(&mut self) {
        let ssthresh = self.ssthresh();
        if !self.owns_cwnd() && ssthresh != u32::MAX {
            self.set_cwnd(ssthresh);
        }
    }

    /// Retransmission timeout. RFC 5681 §3.1: the loss window is one segment, above what is still thought to be
    /// in the network (Linux: packets sent less than an RTT ago are not given up with the others).
    pub(crate) fn on_timeout(&mut self, now: Instant, in_flight: u32) {
        let live = self.live(now);
        dispatch!(&mut live.controller, inner => inner.on_timeout());
        live.window.count = 0;
        live.window.set_cwnd(in_flight.saturating_add(1));
    }

    /// The last reduction was for nothing. RFC 4015 §3.2.
    pub(crate) fn undo(&mut self) {
        let Some(live) = &mut self.live else { return };
        if live.prior_cwnd == 0 {
            return;
        }
        dispatch!(&mut live.controller, inner => inner.undo());
        live.window.set_cwnd(live.window.cwnd.max(live.prior_cwnd));
        live.window.ssthresh = live.window.ssthresh.max(live.prior_ssthresh);
        live.forget_prior();
    }

    pub(crate) fn forget_prior(&mut self) {
        if let Some(live) = &mut self.live {
            live.forget_prior();
        }
    }

    /// After each round of sending, if something was sent or the window was the limit. Remembers, per window of
    /// data, whether cwnd was reached and how much was out. EGRESS: cwnd validation (Linux, RFC 7661's idea).
    pub(crate) fn note_limited(&mut self, now: Instant, packets_out: u32, nxt: u64, una: u64, limited: bool) {
        if packets_out == 0 && self.live.is_none() {
            return;
        }
        let live = self.live(now);
        if una >= live.usage_end || limited || (!live.limited && packets_out > live.max_packets_out) {
            live.limited = limited;
            live.max_packets_out = packets_out;
            live.usage_end = nxt;
        }
        if live.is_cwnd_limited() {
            live.used = 0;
            live.stamp = now;
        } else {
            live.used = live.used.max(packets_out);
        }
    }

    /// A window that was not used for an RTO is lowered half-way to what was. RFC 2861 §3.1 as Linux does it.
    /// Call after [`note_limited`](Self::note_limited), in state Open and when the send buffer is not the limit.
    pub(crate) fn restrain_unused(&mut self, now: Instant, rto: Duration, cfg: &StackConfig) {
        let Some(live) = &mut self.live else { return };
        if !cfg.tcp_slow_start_after_idle
            || live.owns_cwnd()
            || live.is_cwnd_limited()
            || now.since(live.stamp) < rto
        {
            return;
        }
        let used = live.used.max(INITIAL_CWND);
        if used < live.window.cwnd {
            live.window.ssthresh = live.current_ssthresh();
            live.window.set_cwnd((live.window.cwnd + used) / 2);
        }
        live.stamp = now;
        live.used = 0;
    }

    /// New data after nothing was in flight since `last_sent`: cwnd halves for each RTO of idleness, down to the
    /// initial window. RFC 5681 §4.1, RFC 2861. Call before sending; does nothing when there was no idleness.
    pub(crate) fn on_idle_restart(
        &mut self,
        now: Instant,
        last_sent: Instant,
        rto: Duration,
        cfg: &StackConfig,
    ) {
        let Some(live) = &mut self.live else { return };
        let idle = now.since(last_sent);
        dispatch!(&mut live.controller, inner => inner.on_idle_end(now, idle));
        if !cfg.tcp_slow_start_after_idle || live.owns_cwnd() || idle <= rto {
            return;
        }
        let floor = live.window.cwnd.min(INITIAL_CWND);
        live.window.ssthresh = live.current_ssthresh();
        let halvings = (idle.as_nanos() - 1) / rto.as_nanos().max(1);
        let cwnd = live.window.cwnd >> halvings.min(31);
        live.window.set_cwnd(cwnd.max(floor));
        live.stamp = now;
        live.used = 0;
    }

    /// After an ACK, once cwnd is known; and once when a passive open completes.
    pub(crate) fn update_pacing_rate(
        &mut self,
        mss: u32,
        srtt: Option<Duration>,
        packets_out: u32,
        max_pacing_rate: u64,
        cfg: &StackConfig,
    ) {
        if let Some(live) = &self.live
            && let Some(rate) = dispatch!(&live.controller, inner => inner.pacing_rate())
        {
            self.pacing_rate = rate.min(max_pacing_rate);
            return;
        }
        let window = self.window();
        let slow_start = window.cwnd < window.ssthresh / 2;
        let percent = if slow_start { cfg.tcp_pacing_ss_ratio } else { cfg.tcp_pacing_ca_ratio };
        let bytes = u64::from(mss) * u64::from(window.cwnd.max(packets_out));
        // Bytes per eighth of a µs, times the percentage: Linux keeps srtt in that unit, and without one the
        // division is left out, which leaves a rate beyond any link.
        let scaled = bytes.saturating_mul(u64::from(percent)).saturating_mul(80_000);
        let eighths = srtt.map_or(1, |srtt| (srtt.as_nanos() / 125).max(1));
        self.pacing_rate = (scaled / eighths).min(max_pacing_rate);
    }

    /// `SO_MAX_PACING_RATE` was lowered: that holds at once, raising it waits for the next ACK.
    pub(crate) fn clamp_pacing_rate(&mut self, max_pacing_rate: u64) {
        self.pacing_rate = self.pacing_rate.min(max_pacing_rate);
    }
}

#[cfg(test)]
mod tests;
