//! Congestion control: the window, its threshold, the pacing rate, and the algorithm that moves them.
//! RFC 5681, RFC 9438; validation, idle restart and the pacing rate are Linux's (described in its terms
//! below).
//! Called by `recovery/` on ACKs, losses and timeouts, and by the send path for validation and idleness.

mod algorithm;
mod bbr;
mod config;
mod controller;
mod cubic;
mod dctcp;
mod definition;
mod hystart;
mod prague;
mod registry;
mod reno;

use alloc::boxed::Box;
use alloc::string::String;

use crate::words::{Duration, Instant};
pub use algorithm::{Algorithm, AlgorithmError};
pub use config::CongestionConfig;
pub use controller::{AckEvent, Controller, LostPacket, RateSample, Signal, Window};
pub use definition::{Definition, EcnUse, Param, Params};
pub use registry::Registry;

/// RFC 6928 §2.
pub(crate) const INITIAL_CWND: u32 = 10;
/// RFC 5681 §3.1, equation 4.
const MIN_SSTHRESH: u32 = 2;
/// Far above any window that 32-bit byte counts allow, and small enough that sums never overflow.
const CWND_MAX: u32 = 1 << 24;

/// Congestion state of a connection. The state that only traffic changes is in one box, made when the first
/// data leaves: an idle connection does not have it.
#[derive(Debug)]
pub(crate) struct Congestion {
    /// Bytes per second; `u64::MAX` until known.
    pacing_rate: u64,
    live: Option<Box<Live>>,
    algorithm: Algorithm,
}

#[derive(Debug)]
struct Live {
    window: Window,
    /// cwnd before the last reduction; 0 if there is none to undo.
    prior_cwnd: u32,
    prior_ssthresh: u32,
    /// The most segments in flight in the round that ends when `una` reaches `usage_end`.
    max_packets_out: u32,
    /// The most segments in flight since `stamp`, while the window was not the limit.
    used: u32,
    usage_end: u64,
    /// When the window was last the limit.
    stamp: Instant,
    limited: bool,
    controller: Box<dyn Controller>,
}

impl Live {
    fn new(now: Instant, algorithm: &Algorithm) -> Self {
        Self {
            window: INITIAL,
            prior_cwnd: 0,
            prior_ssthresh: 0,
            max_packets_out: 0,
            used: 0,
            usage_end: 0,
            stamp: now,
            limited: false,
            controller: algorithm.make(),
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
        self.controller.owns_cwnd()
    }

    /// The window to which slow start may quickly return.
    fn current_ssthresh(&self) -> u32 {
        self.window.ssthresh.max(self.window.cwnd / 4 * 3 + self.window.cwnd % 4 * 3 / 4)
    }
}

/// The window before anything was sent.
const INITIAL: Window = Window::new(INITIAL_CWND);

impl Congestion {
    pub(crate) const fn new(algorithm: Algorithm) -> Self {
        Self { pacing_rate: u64::MAX, live: None, algorithm }
    }

    fn live(&mut self, now: Instant) -> &mut Live {
        self.live.get_or_insert_with(|| Box::new(Live::new(now, &self.algorithm)))
    }

    const fn window(&self) -> &Window {
        match &self.live {
            Some(live) => &live.window,
            None => &INITIAL,
        }
    }

    pub(crate) const fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    /// `TCP_CONGESTION`: another algorithm from now on, with the window as it is.
    pub(crate) fn set_algorithm(&mut self, algorithm: Algorithm) {
        if algorithm != self.algorithm {
            if let Some(live) = &mut self.live {
                live.controller = algorithm.make();
                live.window.count = 0;
            }
            self.algorithm = algorithm;
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

    /// Bytes of a super-packet, if the algorithm sets them.
    pub(crate) fn send_quantum(&self) -> Option<u32> {
        self.live.as_ref().and_then(|live| live.controller.send_quantum())
    }

    /// Whether packets are paced even if the user does not ask for it.
    pub(crate) fn paces(&self) -> bool {
        self.algorithm.paces()
    }

    /// The number of congestion windows that the send buffer grows to hold.
    pub(crate) fn send_buffer_windows(&self) -> u8 {
        self.live.as_ref().map_or(2, |live| live.controller.send_buffer_windows())
    }

    /// The controller's description of itself; empty until data was sent.
    pub(crate) fn describe(&self) -> String {
        let mut text = String::new();
        if let Some(live) = &self.live {
            // Writing to a string cannot fail.
            let _ = live.controller.describe(&mut text);
        }
        text
    }

    /// Whether the algorithm alone sets cwnd, in recovery too.
    pub(crate) fn owns_cwnd(&self) -> bool {
        self.live.as_ref().is_some_and(|live| live.owns_cwnd())
    }

    /// As many segments may leave at once as another stack had in flight.
    pub(crate) fn resume(&mut self, now: Instant, segs: u32) {
        if segs > INITIAL_CWND {
            self.live(now).window.set_cwnd(segs);
        }
    }

    pub(crate) fn set_cwnd(&mut self, cwnd: u32) {
        if let Some(live) = &mut self.live {
            live.window.set_cwnd(cwnd);
        }
    }

    /// An ACK delivered something, or found something lost. `may_grow`: it advanced, outside CWR and
    /// Recovery.
    pub(crate) fn on_ack(&mut self, mut event: AckEvent<'_>, may_grow: bool) {
        let live = self.live(event.now);
        event.cwnd_limited |= live.is_cwnd_limited();
        live.controller.observe(&event);
        if live.owns_cwnd() || (may_grow && event.cwnd_limited) {
            live.controller.on_ack(&mut live.window, &event);
        }
    }

    /// A packet was found lost.
    pub(crate) fn on_lost(&mut self, packet: &LostPacket) {
        if let Some(live) = &mut self.live {
            live.controller.on_lost(packet);
        }
    }

    /// Whether the controller has, since this was last asked, begun to keep the network short of data.
    pub(crate) fn take_app_limited(&mut self) -> bool {
        self.live.as_mut().is_some_and(|live| core::mem::take(&mut live.window.app_limited))
    }

    /// A reduction begins: the algorithm sets ssthresh; cwnd follows by PRR. `undoable`: it may turn out to
    /// be unnecessary.
    pub(crate) fn begin_reduction(&mut self, now: Instant, why: Signal, undoable: bool) {
        let live = self.live(now);
        if undoable {
            live.prior_cwnd = live.window.cwnd;
            live.prior_ssthresh = live.window.ssthresh;
        } else {
            live.forget_prior();
        }
        let ssthresh = live.controller.reduce(&live.window, why, now);
        live.window.ssthresh = ssthresh.max(MIN_SSTHRESH);
        live.window.count = 0;
    }

    /// The reduction is complete. RFC 9937 §6.4.
    pub(crate) fn end_reduction(&mut self) {
        let Some(live) = &mut self.live else { return };
        if !live.owns_cwnd() && live.window.ssthresh != u32::MAX {
            live.window.set_cwnd(live.window.ssthresh);
        }
        live.controller.on_recovery_end(&mut live.window);
    }

    /// SYNs were lost: the initial window is one segment. RFC 5681 §3.1.
    pub(crate) fn begin_with_one_segment(&mut self, now: Instant) {
        self.live(now).window.set_cwnd(1);
    }

    /// The losses before a timeout are repaired; cwnd grows on from where slow start brought it.
    pub(crate) fn end_loss(&mut self) {
        if let Some(live) = &mut self.live {
            live.controller.on_recovery_end(&mut live.window);
        }
    }

    /// Retransmission timeout. RFC 5681 §3.1: the loss window is one segment above the number still thought
    /// to be in the network (Linux: packets sent less than an RTT ago are not counted as lost with the
    /// others).
    pub(crate) fn on_timeout(&mut self, now: Instant, in_flight: u32) {
        let live = self.live(now);
        live.window.count = 0;
        live.window.set_cwnd(in_flight.saturating_add(1));
        live.controller.on_timeout(&mut live.window);
    }

    /// The last reduction was unnecessary. RFC 4015 §3.2.
    pub(crate) fn undo(&mut self, now: Instant) {
        let Some(live) = &mut self.live else { return };
        if live.prior_cwnd == 0 {
            return;
        }
        live.window.set_cwnd(live.window.cwnd.max(live.prior_cwnd));
        live.window.ssthresh = live.window.ssthresh.max(live.prior_ssthresh);
        live.controller.undo(&mut live.window, now);
        live.forget_prior();
    }

    pub(crate) fn forget_prior(&mut self) {
        if let Some(live) = &mut self.live {
            live.forget_prior();
        }
    }

    /// Call after each round of sending, if something was sent or the window was the limit. Remembers, for
    /// each window of data, whether cwnd was reached and how much was in flight: cwnd validation (Linux; the
    /// idea is that of RFC 7661).
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

    /// A window that was not used up for an RTO is lowered half-way to the part that was. RFC 2861 §3.1, as
    /// in Linux. Call after [`note_limited`](Self::note_limited), in state Open and when the send buffer is
    /// not the limit.
    pub(crate) fn restrain_unused(&mut self, now: Instant, rto: Duration, cfg: &CongestionConfig) {
        let Some(live) = &mut self.live else { return };
        if !cfg.slow_start_after_idle
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

    /// New data will be sent after an idle period since `last_sent`: cwnd halves for each RTO of idleness,
    /// down to the initial window. RFC 5681 §4.1, RFC 2861. Call before sending; does nothing when there was
    /// no idleness.
    pub(crate) fn on_idle_restart(
        &mut self,
        now: Instant,
        last_sent: Instant,
        rto: Duration,
        max_pacing_rate: u64,
        cfg: &CongestionConfig,
    ) {
        let Some(live) = &mut self.live else { return };
        let idle = now.since(last_sent);
        live.controller.on_idle_end(&mut live.window, now, idle);
        if let Some(rate) = live.controller.pacing_rate() {
            self.pacing_rate = rate.min(max_pacing_rate);
        }
        if !cfg.slow_start_after_idle || live.owns_cwnd() || idle <= rto {
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

    /// Call after an ACK, once cwnd is known; and once when a passive open completes.
    pub(crate) fn update_pacing_rate(
        &mut self,
        mss: u32,
        srtt: Option<Duration>,
        packets_out: u32,
        max_pacing_rate: u64,
        cfg: &CongestionConfig,
    ) {
        if let Some(live) = &self.live
            && let Some(rate) = live.controller.pacing_rate()
        {
            self.pacing_rate = rate.min(max_pacing_rate);
            return;
        }
        let window = self.window();
        let slow_start = window.cwnd < window.ssthresh / 2;
        let percent = if slow_start { cfg.pacing_ss_ratio } else { cfg.pacing_ca_ratio };
        let percent = self.algorithm.first_pacing_percent().unwrap_or(percent);
        let bytes = u64::from(mss) * u64::from(window.cwnd.max(packets_out));
        // Bytes per eighth of a µs, times the percentage: Linux keeps srtt in that unit, and without one the
        // division is left out, which leaves a rate beyond any link.
        let scaled = bytes.saturating_mul(u64::from(percent)).saturating_mul(80_000);
        let eighths = srtt.map_or(1, |srtt| (srtt.as_nanos() / 125).max(1));
        self.pacing_rate = (scaled / eighths).min(max_pacing_rate);
    }

    /// `SO_MAX_PACING_RATE` was set: a lower maximum holds at once, a higher one from the next ACK on.
    pub(crate) fn clamp_pacing_rate(&mut self, max_pacing_rate: u64) {
        self.pacing_rate = self.pacing_rate.min(max_pacing_rate);
    }
}

#[cfg(test)]
mod tests;
