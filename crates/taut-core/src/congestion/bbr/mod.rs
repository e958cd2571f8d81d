//! BBR: send at the rate the network delivers, with as much in flight as that rate needs.
//! Version 3, draft-ietf-ccwg-bbr-06; sections below are the draft's. Called through `congestion/mod.rs`.
//!
//! **Problem.** A sender that waits for loss fills every queue first, and on a path with random loss it never
//! fills the link: at 100 ms and 1 % loss, CUBIC gets 2 Mbit/s of 100.
//!
//! **Rule.** BBR measures two things, never at the same time: the bandwidth, by sending a little faster than
//! it for a round trip, and the round-trip time, by letting the queue run empty. Their product is the volume
//! to keep in flight. Loss sets upper bounds: in the long term, the volume that was in flight when too much
//! was lost; in the short term, the volume delivered since.
//!
//! ```text
//!   Startup ──▶ Drain ──▶ Down ──▶ Cruise ──▶ Refill ──▶ Up ─┐      ProbeRTT: every 5 s, from anywhere
//!   ×2.77       ×0.5      ×0.9 ▲   ×1         ×1         ×1.25│
//!                              └──────────────────────────────┘
//! ```
//!
//! | file | has |
//! |---|---|
//! | `params.rs` | every number, with its section |
//! | `path.rs` | the measurements: rounds, bandwidth, RTT, aggregation |
//! | `loss.rs` | the bounds that loss sets, and how they are undone |
//! | `ambient.rs` | loss that is no sign of congestion: taut's own |
//! | `change.rs` | a path whose bandwidth changes: taut's own |
//! | `cycle.rs` | the states, and the conditions that end each |
//! | here | the steps for each ACK, in order; pacing rate and cwnd |

mod ambient;
mod change;
mod cycle;
mod loss;
mod params;
mod path;

use core::fmt;

use self::change::Change;
use self::cycle::{Cycle, State};
use self::loss::Bounds;
use self::params::PARAMS;
use self::path::{Path, Rate};
use super::controller::{AckEvent, Controller, LostPacket, Signal, Window};
use super::{Definition, INITIAL_CWND};
use crate::words::{Duration, Instant};

/// For [`Algorithm::bbr`](super::Algorithm::bbr).
pub(super) fn definition() -> Definition {
    Definition::new("bbr", |_| Bbr::new()).paced().first_pacing_percent(PARAMS.startup_pacing as u16)
}

const QUANTA_PER_SEC: u64 = 1_000_000_000 / PARAMS.quantum_time.as_nanos();
/// The SRTT to assume while there is none. §5.6.2.
const NOMINAL_RTT: Duration = Duration::from_millis(1);
/// "No bound."
const UNBOUNDED: u32 = u32::MAX;

/// State of one connection.
#[derive(Debug)]
pub(super) struct Bbr {
    path: Path,
    bounds: Bounds,
    cycle: Cycle,
    change: Change,
    /// `BBR.bw`: the rate that the path carries now, according to the model.
    bw: Rate,
    /// Bytes per second; 0 before the first ACK.
    pacing_rate: u64,
    /// The last cwnd not lowered by loss recovery or ProbeRTT.
    prior_cwnd: u32,
    /// cwnd as last set, for events that do not carry it.
    cwnd: u32,
    mss: u32,
    /// Segments delivered since the beginning.
    delivered: u64,
    in_recovery: bool,
    /// Sending resumed after idleness, and nothing has been delivered since.
    idle_restart: bool,
    random: u64,
}

impl Bbr {
    pub(super) fn new() -> Self {
        Self {
            path: Path::new(),
            bounds: Bounds::new(),
            cycle: Cycle::new(),
            change: Change::new(),
            bw: Rate::ZERO,
            pacing_rate: 0,
            prior_cwnd: 0,
            cwnd: INITIAL_CWND,
            mss: 1,
            delivered: 0,
            in_recovery: false,
            idle_restart: false,
            random: 0,
        }
    }

    /// The first ACK: sets the values that could not be known before. §5.2.1.
    fn start(&mut self, ack: &AckEvent<'_>) {
        // The generator's state must not be zero.
        self.random = ack.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let srtt = ack.srtt.unwrap_or(NOMINAL_RTT).as_micros().max(1);
        let nominal = u64::from(INITIAL_CWND) * u64::from(ack.mss) * 1_000_000 / srtt;
        self.pacing_rate = percent(nominal, PARAMS.startup_pacing);
        self.path.start(ack.now);
        self.bounds.ambient.start(ack);
    }

    /// A number below `end`. (Marsaglia's xorshift.)
    fn random_below(&mut self, end: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % end.max(1)
    }

    // ---- volumes, §5.6.4.2 ----

    /// `BBR.bdp` times `gain` percent.
    fn bdp(&self, bw: Rate, gain: u32) -> u32 {
        match self.path.min_rtt() {
            Some(rtt) => bw.over(rtt, gain),
            None => INITIAL_CWND,
        }
    }

    /// Adds room for data that is in the hosts rather than in the network. §5.5.8.
    fn with_budget(&self, volume: u32) -> u32 {
        let volume = volume.max(PARAMS.offload_quanta * self.quantum_segs()).max(PARAMS.min_pipe_cwnd);
        if self.cycle.state == State::Up { volume.saturating_add(2) } else { volume }
    }

    /// Segments of a super-packet at the present rate, as TSO autosizing makes them. §5.6.3.
    fn quantum_segs(&self) -> u32 {
        let bytes = self.pacing_rate / QUANTA_PER_SEC;
        let bytes = bytes.min(u64::from(PARAMS.quantum_max)) as u32;
        (bytes / self.mss).max(2)
    }

    /// §5.3.3.9 `TargetInflight`.
    fn target_inflight(&self) -> u32 {
        self.bdp(self.bw, 100).min(self.cwnd)
    }

    // ---- control, §5.6 ----

    /// §5.6.2: until the pipe has been full once, the rate only rises.
    fn set_pacing_rate(&mut self, gain: u32) {
        let rate = percent(self.bw.bytes_per_sec(self.mss), gain);
        let rate = percent(rate, 100 - PARAMS.pacing_margin);
        if self.cycle.full_bw_reached || rate > self.pacing_rate {
            self.pacing_rate = rate.max(1);
        }
    }

    /// §5.6.4.6.
    fn set_cwnd(&mut self, window: &mut Window, ack: &AckEvent<'_>) {
        let inflight = self.bdp(self.bw, self.cycle.cwnd_gain()).saturating_add(self.path.extra_acked());
        let max_inflight = self.with_budget(inflight);
        let cwnd = window.cwnd();
        let mut next = cwnd;
        if self.cycle.full_bw_reached {
            next = cwnd.saturating_add(ack.acked).min(max_inflight);
        } else if cwnd < max_inflight || ack.total_delivered < u64::from(INITIAL_CWND) {
            next = cwnd.saturating_add(ack.acked);
        }
        next = next.max(PARAMS.min_pipe_cwnd);
        if self.cycle.state == State::ProbeRtt {
            next = next.min(self.probe_rtt_cwnd());
        }
        window.set_cwnd(next.min(self.volume_cap()));
        self.cwnd = window.cwnd();
    }

    /// §5.6.4.5.
    fn probe_rtt_cwnd(&self) -> u32 {
        self.bdp(self.bw, PARAMS.probe_rtt_cwnd_gain).max(PARAMS.min_pipe_cwnd)
    }

    /// §5.6.4.7 and the last column of the table in §5.6.1. taut's own: Cruise leaves room for others only in
    /// the queue. Where the queue is a tenth of the bandwidth-delay product, the draft's headroom would
    /// reduce the rate as well.
    fn volume_cap(&self) -> u32 {
        let most = self.bounds.inflight_longterm;
        let long_term = match self.cycle.state {
            State::Startup => UNBOUNDED,
            State::Drain | State::Down | State::Refill | State::Up => most,
            State::Cruise | State::ProbeRtt => {
                let bdp = self.with_budget(self.bdp(self.bw, 100));
                self.bounds.inflight_with_headroom().max(bdp.min(most))
            }
        };
        long_term.min(self.bounds.inflight_shortterm).max(PARAMS.min_pipe_cwnd)
    }

    /// §5.6.4.4.
    fn save_cwnd(&mut self, cwnd: u32) {
        let lowered = self.in_recovery || self.cycle.state == State::ProbeRtt;
        self.prior_cwnd = if lowered { self.prior_cwnd.max(cwnd) } else { cwnd };
    }

    fn restore_cwnd(&self, window: &mut Window) {
        window.set_cwnd(window.cwnd().max(self.prior_cwnd));
    }
}

impl Controller for Bbr {
    /// §5.2.3, in its order.
    fn on_ack(&mut self, window: &mut Window, ack: &AckEvent<'_>) {
        if self.random == 0 {
            self.start(ack);
        }
        self.mss = ack.mss.max(1);
        self.cwnd = window.cwnd();
        self.delivered = ack.total_delivered;
        let sample = ack.rate.copied();
        if let Some(rs) = &sample {
            self.path.update_round(rs, ack.total_delivered);
            self.cycle.note_round(self.path.round_start);
            self.bounds.update_latest(rs, ack.total_delivered);
            self.path.update_max_bw(rs);
            self.adapt_lower_bounds(ack);
        }
        self.path.update_aggregation(ack, self.bw, self.cwnd, self.cycle.full_bw_reached);
        if let Some(rs) = &sample {
            self.check_full_bw_reached(rs);
            self.check_startup_done(ack, rs);
            self.check_drain_done(ack);
            self.update_probe_bw(ack, rs);
            self.check_slower(ack, rs);
        }
        self.path.update_min_rtt(ack);
        self.check_probe_rtt(window, ack);
        if let Some(rs) = &sample {
            self.bounds.advance_latest(rs);
        }
        // BoundBWForModel.
        self.bw = self.path.max_bw().min(self.bounds.bw_shortterm);
        self.path.round_start = false;
        self.set_pacing_rate(self.cycle.pacing_gain());
        self.set_cwnd(window, ack);
    }

    /// §5.6.4.4: cwnd and the model are saved, and do not change.
    fn reduce(&mut self, window: &Window, why: Signal, _now: Instant) -> u32 {
        if matches!(why, Signal::Loss | Signal::Timeout) {
            self.save_cwnd(window.cwnd());
            self.bounds.save_for_undo();
            self.in_recovery = true;
        }
        window.ssthresh()
    }

    fn on_lost(&mut self, packet: &LostPacket) {
        self.handle_lost_packet(packet);
    }

    fn on_recovery_end(&mut self, window: &mut Window) {
        if core::mem::take(&mut self.in_recovery) {
            self.restore_cwnd(window);
        }
    }

    /// §5.5.11.2.
    fn undo(&mut self, window: &mut Window, _now: Instant) {
        self.restore_cwnd(window);
        self.in_recovery = false;
        self.handle_spurious_loss();
    }

    /// §5.4.1.
    fn on_idle_end(&mut self, window: &mut Window, now: Instant, _idle: Duration) {
        self.idle_restart = true;
        self.path.restart_aggregation(now);
        if self.cycle.state.probes_bw() {
            self.set_pacing_rate(100);
        } else if self.cycle.state == State::ProbeRtt {
            self.check_probe_rtt_done(window, now);
        }
    }

    fn owns_cwnd(&self) -> bool {
        true
    }

    fn pacing_rate(&self) -> Option<u64> {
        (self.pacing_rate > 0).then_some(self.pacing_rate)
    }

    /// One window in addition to the usual two, for a round trip of lost segments. Linux's BBR: 3.
    fn send_buffer_windows(&self) -> u8 {
        3
    }

    fn describe(&self, to: &mut dyn fmt::Write) -> fmt::Result {
        let mrtt_us = self.path.min_rtt().map_or(0, Duration::as_micros);
        write!(
            to,
            "{} bw:{}bps mrtt:{}.{:03} pacing_gain:{} cwnd_gain:{}",
            self.cycle.state.name(),
            self.bw.bytes_per_sec(self.mss).saturating_mul(8),
            mrtt_us / 1000,
            mrtt_us % 1000,
            Percent(self.cycle.pacing_gain()),
            Percent(self.cycle.cwnd_gain()),
        )
    }
}

/// Shows percent as a factor.
struct Percent(u32);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.0 / 100, self.0 % 100)
    }
}

/// `share` percent of `value`.
const fn percent(value: u64, share: u32) -> u64 {
    value / 100 * share as u64 + value % 100 * share as u64 / 100
}

#[cfg(test)]
mod tests;
