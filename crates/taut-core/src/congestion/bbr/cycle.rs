//! BBR's states, and the conditions that end each of them.
//! draft-ietf-ccwg-bbr-06 §5.3. Called by `bbr/mod.rs` for every ACK, in the draft's order.

use super::params::PARAMS;
use super::path::Rate;
use super::{Bbr, UNBOUNDED, change};
use crate::congestion::RateSample;
use crate::congestion::controller::{AckEvent, Window};
use crate::words::{Duration, Instant};

/// §5.1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Doubling the rate each round until the bandwidth stops growing, or much is lost.
    Startup,
    /// Letting the queue that Startup left run empty.
    Drain,
    /// Probing for bandwidth: making room.
    Down,
    /// Keeping the rate.
    Cruise,
    /// Filling the pipe, so that a probe's first loss is not mistaken for its capacity.
    Refill,
    /// Trying for more.
    Up,
    /// Letting the queue run empty, to see the path's own round-trip time.
    ProbeRtt,
}

impl State {
    /// Whether it is one of the four states that follow each other.
    pub(super) const fn probes_bw(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }

    /// §5.3.3.9 `IsProbingBW`: loss is expected.
    pub(super) const fn accelerates(self) -> bool {
        matches!(self, Self::Startup | Self::Refill | Self::Up)
    }

    /// One word for `ss`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Drain => "drain",
            Self::Down => "probe_bw_down",
            Self::Cruise => "probe_bw_cruise",
            Self::Refill => "probe_bw_refill",
            Self::Up => "probe_bw_up",
            Self::ProbeRtt => "probe_rtt",
        }
    }
}

/// Which part of a probe the arriving ACKs belong to. §2.9.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckPhase {
    /// Nothing in particular.
    Init,
    /// Probing has begun; its ACKs have not arrived yet.
    Starting,
    Feedback,
    /// Probing has ended; its last ACKs have not arrived yet.
    Stopping,
}

/// Where in the cycle the connection is.
#[derive(Debug)]
pub(super) struct Cycle {
    pub(super) state: State,
    pub(super) ack_phase: AckPhase,
    /// The arriving ACKs are for data sent while probing.
    pub(super) is_probe_sample: bool,
    /// The last probe lost too much, so the next one ends as soon as the same volume is in flight. §5.3.3.6.
    pub(super) prev_probe_too_high: bool,
    prev_probe_precautionary: bool,
    /// Full-pipe estimate, §5.3.1.2.
    full_bw: Rate,
    full_bw_count: u8,
    full_bw_now: bool,
    /// The pipe has been full at least once.
    pub(super) full_bw_reached: bool,
    drain_start_round: u32,
    /// When Down began.
    started: Instant,
    /// Time from Down to Refill, in part random.
    wait: Duration,
    rounds_since_probe: u32,
    /// In Up: the rounds, the segments acknowledged, and how many of these raise the bound by one.
    up_rounds: u32,
    up_acked: u32,
    up_acked_per_segment: u32,
    /// The bandwidth before Up, and whether Up has found a quarter more: `change.rs`.
    bw_before_up: Rate,
    up_is_startup: bool,
    /// When ProbeRTT may end; `None` until the queue is gone.
    probe_rtt_done_at: Option<Instant>,
    probe_rtt_round_done: bool,
}

impl Cycle {
    pub(super) const fn new() -> Self {
        Self {
            state: State::Startup,
            ack_phase: AckPhase::Init,
            is_probe_sample: false,
            prev_probe_too_high: false,
            prev_probe_precautionary: false,
            full_bw: Rate::ZERO,
            full_bw_count: 0,
            full_bw_now: false,
            full_bw_reached: false,
            drain_start_round: 0,
            started: Instant::ZERO,
            wait: Duration::ZERO,
            rounds_since_probe: 0,
            up_rounds: 0,
            up_acked: 0,
            up_acked_per_segment: UNBOUNDED,
            bw_before_up: Rate::ZERO,
            up_is_startup: false,
            probe_rtt_done_at: None,
            probe_rtt_round_done: false,
        }
    }

    /// Counts a round if the current ACK ended one.
    pub(super) fn note_round(&mut self, ended: bool) {
        self.rounds_since_probe = self.rounds_since_probe.saturating_add(ended.into());
    }

    /// The table of §5.6.1: percent.
    pub(super) const fn pacing_gain(&self) -> u32 {
        match self.state {
            State::Startup => PARAMS.startup_pacing,
            State::Drain => PARAMS.drain_pacing,
            State::Down => PARAMS.down_pacing,
            State::Cruise | State::Refill | State::ProbeRtt => PARAMS.cruise_pacing,
            State::Up if self.up_is_startup => PARAMS.startup_pacing,
            State::Up => PARAMS.up_pacing,
        }
    }

    /// The table of §5.6.1: percent.
    pub(super) const fn cwnd_gain(&self) -> u32 {
        match self.state {
            State::Up => PARAMS.up_cwnd_gain,
            State::ProbeRtt => PARAMS.probe_rtt_cwnd_gain,
            _ => PARAMS.cwnd_gain,
        }
    }

    pub(super) const fn reset_full_bw(&mut self) {
        self.full_bw = Rate::ZERO;
        self.full_bw_count = 0;
        self.full_bw_now = false;
    }
}

impl Bbr {
    // ---- Startup and Drain, §5.3.1, §5.3.2 ----

    /// Three rounds at the network's own rate without growth by a quarter: the pipe is full.
    pub(super) fn check_full_bw_reached(&mut self, rs: &RateSample) {
        if self.cycle.full_bw_now || !self.path.round_start {
            return;
        }
        let rate = Rate::of(rs);
        if rs.is_app_limited && !self.shows_full_pipe(rate, rs.tx_in_flight) {
            return;
        }
        let cycle = &mut self.cycle;
        if rate >= cycle.full_bw.percent(PARAMS.full_bw_growth) {
            cycle.reset_full_bw();
            cycle.full_bw = rate;
            return;
        }
        cycle.full_bw_count += 1;
        cycle.full_bw_now = cycle.full_bw_count >= PARAMS.full_bw_rounds;
        cycle.full_bw_reached |= cycle.full_bw_now;
    }

    /// taut's own: whether a limited flight says that the pipe is full all the same. It was large enough for
    /// a quarter more, and the rate stayed what it was. Without this, Startup never ends where a round
    /// touches the peer's window: what Startup loses itself keeps that window shut for a part of each round.
    /// A round at the network's own rate comes first: an application that sends little at a time fills no
    /// pipe.
    fn shows_full_pipe(&self, rate: Rate, flight: u32) -> bool {
        let base = self.cycle.full_bw;
        base > Rate::ZERO
            && rate.percent(PARAMS.full_bw_growth) >= base
            && flight >= self.bdp(base, PARAMS.full_bw_growth)
    }

    pub(super) fn check_startup_done(&mut self, ack: &AckEvent<'_>, rs: &RateSample) {
        if self.cycle.state != State::Startup {
            return;
        }
        // §5.3.1.3: a whole round in recovery, with much loss in many places. taut's own: and the bandwidth
        // has not grown by a quarter in this round. As long as it does, the pipe is not full, and the loss
        // has another cause.
        let much_lost = ack.recovering
            && self.cycle.full_bw_count > 0
            && self.bounds.loss_round_start
            && self.bounds.ranges_lost >= PARAMS.startup_loss_ranges
            && self.bounds.is_too_much(rs.lost, rs.tx_in_flight);
        if much_lost && !self.cycle.full_bw_reached {
            self.bounds.note_left(State::Startup);
            self.cycle.full_bw_reached = true;
            let bdp = self.bdp(self.path.max_bw(), 100);
            self.bounds.inflight_longterm = bdp.max(self.bounds.inflight_latest);
        }
        if self.cycle.full_bw_reached {
            self.cycle.state = State::Drain;
            self.cycle.drain_start_round = self.path.round_count;
        }
    }

    pub(super) fn check_drain_done(&mut self, ack: &AckEvent<'_>) {
        if self.cycle.state != State::Drain {
            return;
        }
        let rounds = self.path.round_count.wrapping_sub(self.cycle.drain_start_round);
        let target = self.with_budget(self.bdp(self.path.max_bw(), 100));
        if ack.in_flight <= target || rounds > PARAMS.drain_rounds {
            self.start_down(ack.total_delivered);
        }
    }

    // ---- ProbeBW, §5.3.3 ----

    pub(super) fn start_down(&mut self, total_delivered: u64) {
        self.bounds.reset_signals();
        self.cycle.up_acked_per_segment = UNBOUNDED;
        // §5.3.3.8 `PickProbeWait`.
        self.cycle.rounds_since_probe = self.random_below(2) as u32;
        let random = self.random_below(PARAMS.probe_wait_random.as_nanos());
        self.cycle.wait = PARAMS.probe_wait + Duration::from_nanos(random);
        // The wall clock of the cycle starts with the next ACK.
        self.cycle.started = Instant::ZERO;
        self.cycle.ack_phase = AckPhase::Stopping;
        self.path.start_round(total_delivered);
        self.cycle.state = State::Down;
    }

    fn start_refill(&mut self, total_delivered: u64) {
        self.bounds.reset_short_term();
        self.cycle.up_rounds = 0;
        self.cycle.up_acked = 0;
        self.cycle.prev_probe_precautionary = false;
        self.cycle.ack_phase = AckPhase::Init;
        self.path.start_round(total_delivered);
        self.cycle.state = State::Refill;
    }

    fn start_up(&mut self, ack: &AckEvent<'_>, rs: &RateSample) {
        self.cycle.ack_phase = AckPhase::Starting;
        self.path.start_round(ack.total_delivered);
        self.cycle.reset_full_bw();
        self.cycle.full_bw = Rate::of(rs);
        self.cycle.state = State::Up;
        self.cycle.bw_before_up = self.path.max_bw();
        self.cycle.up_is_startup = false;
        self.raise_slope();
    }

    /// §5.3.3.9 `UpdateProbeBWCyclePhase`.
    pub(super) fn update_probe_bw(&mut self, ack: &AckEvent<'_>, rs: &RateSample) {
        if !self.cycle.full_bw_reached || self.adapt_long_term_model(ack, rs) {
            return;
        }
        match self.cycle.state {
            State::Startup | State::Drain | State::ProbeRtt => {}
            State::Down => {
                if self.is_time_to_probe(ack) {
                    self.start_refill(ack.total_delivered);
                } else if self.is_time_to_cruise(ack) {
                    self.cycle.state = State::Cruise;
                }
            }
            State::Cruise => {
                if self.is_time_to_probe(ack) {
                    self.start_refill(ack.total_delivered);
                }
            }
            State::Refill => {
                if self.path.round_start {
                    self.cycle.is_probe_sample = true;
                    self.start_up(ack, rs);
                }
            }
            State::Up => {
                self.cycle.up_is_startup |=
                    change::is_faster(ack, rs, self.cycle.bw_before_up, self.path.min_rtt());
                if self.is_time_to_go_down(ack, rs) {
                    self.cycle.prev_probe_too_high = false;
                    self.start_down(ack.total_delivered);
                    if self.cycle.up_is_startup {
                        self.cycle.state = State::Drain;
                        self.cycle.drain_start_round = self.path.round_count;
                    }
                }
            }
        }
    }

    /// Forgets a bandwidth that the path no longer has: `change.rs`.
    pub(super) fn check_slower(&mut self, ack: &AckEvent<'_>, rs: &RateSample) {
        let least = self.path.min_rtt().filter(|_| self.cycle.state.probes_bw());
        let Some(least) = least else { return self.change.forget_samples() };
        let bw = self.path.max_bw().min(self.bounds.bw_shortterm);
        if self.change.is_slower(ack, rs, bw, least) {
            self.path.replace_max_bw(Rate::of(rs));
            self.bounds.reset_short_term();
            self.start_down(ack.total_delivered);
        }
    }

    /// §5.3.3.8.
    fn is_time_to_probe(&mut self, ack: &AckEvent<'_>) -> bool {
        let now = ack.now;
        if self.cycle.started == Instant::ZERO {
            self.cycle.started = now;
        }
        let often = self.change.may_have_passed(ack, self.path.min_rtt());
        let most = if often { PARAMS.change_wait_rounds } else { PARAMS.probe_wait_rounds };
        let rounds = self.target_inflight().min(most);
        now > self.cycle.started + self.cycle.wait || self.cycle.rounds_since_probe >= rounds
    }

    /// There is no queue, and there is room for others.
    fn is_time_to_cruise(&self, ack: &AckEvent<'_>) -> bool {
        let bdp = self.with_budget(self.bdp(self.path.max_bw(), 100));
        ack.in_flight <= self.bounds.inflight_with_headroom().min(bdp)
    }

    /// §5.3.3.7.
    fn is_time_to_go_down(&mut self, ack: &AckEvent<'_>, rs: &RateSample) -> bool {
        let bound = self.bounds.inflight_longterm;
        if self.cycle.prev_probe_too_high && ack.in_flight >= bound {
            self.cycle.prev_probe_precautionary = true;
            return true;
        }
        if ack.cwnd_limited && self.cwnd >= bound {
            // The bound is the limit, so this says nothing about the bandwidth.
            self.cycle.reset_full_bw();
            self.cycle.full_bw = Rate::of(rs);
            return false;
        }
        self.cycle.full_bw_now
    }

    /// Follows the ACKs of a probe, and raises the bound on volume as long as the loss allows. Returns
    /// whether that decided the state. §5.3.3.9 `AdaptLongTermModel`.
    fn adapt_long_term_model(&mut self, ack: &AckEvent<'_>, rs: &RateSample) -> bool {
        if self.cycle.ack_phase == AckPhase::Starting && self.path.round_start {
            self.cycle.ack_phase = AckPhase::Feedback;
        }
        if self.cycle.ack_phase == AckPhase::Stopping && self.path.round_start {
            self.cycle.is_probe_sample = false;
            self.cycle.ack_phase = AckPhase::Init;
            let probes = self.cycle.state.probes_bw();
            if probes && !rs.is_app_limited {
                self.path.advance_max_bw();
            }
            if probes && self.cycle.prev_probe_precautionary && !self.cycle.prev_probe_too_high {
                self.start_refill(ack.total_delivered);
                return true;
            }
        }
        if self.bounds.is_too_much(rs.lost, rs.tx_in_flight) || self.bounds.inflight_longterm == UNBOUNDED {
            return false;
        }
        self.bounds.inflight_longterm = self.bounds.inflight_longterm.max(rs.tx_in_flight);
        if self.cycle.state == State::Up {
            self.raise_inflight_longterm(ack);
        }
        false
    }

    /// Raises it by 1, 2, 4, 8, … segments per round, spread over the round. §5.3.3.9.
    fn raise_inflight_longterm(&mut self, ack: &AckEvent<'_>) {
        let bounds = &mut self.bounds;
        if !ack.cwnd_limited || self.cwnd < bounds.inflight_longterm {
            return;
        }
        let cycle = &mut self.cycle;
        cycle.up_acked = cycle.up_acked.saturating_add(ack.acked);
        let more = cycle.up_acked / cycle.up_acked_per_segment;
        cycle.up_acked -= more * cycle.up_acked_per_segment;
        bounds.inflight_longterm = bounds.inflight_longterm.saturating_add(more);
        if self.path.round_start {
            self.raise_slope();
        }
    }

    fn raise_slope(&mut self) {
        let cycle = &mut self.cycle;
        let growth = 1_u32 << cycle.up_rounds;
        cycle.up_rounds = (cycle.up_rounds + 1).min(PARAMS.up_growth_max);
        cycle.up_acked_per_segment = (self.cwnd / growth).max(1);
    }

    // ---- ProbeRTT, §5.3.4 ----

    pub(super) fn check_probe_rtt(&mut self, window: &mut Window, ack: &AckEvent<'_>) {
        if self.cycle.state != State::ProbeRtt && self.path.probe_rtt_expired && !self.idle_restart {
            self.save_cwnd(window.cwnd());
            self.cycle.state = State::ProbeRtt;
            self.cycle.probe_rtt_done_at = None;
            self.cycle.ack_phase = AckPhase::Stopping;
            self.path.start_round(ack.total_delivered);
        }
        if self.cycle.state == State::ProbeRtt {
            self.handle_probe_rtt(window, ack);
        }
        if ack.acked > 0 {
            self.idle_restart = false;
        }
    }

    fn handle_probe_rtt(&mut self, window: &mut Window, ack: &AckEvent<'_>) {
        // Low rates are intended here, and say nothing about the path.
        window.mark_app_limited();
        match self.cycle.probe_rtt_done_at {
            None if ack.in_flight <= self.probe_rtt_cwnd() => {
                self.cycle.probe_rtt_done_at = Some(ack.now + PARAMS.probe_rtt_time);
                self.cycle.probe_rtt_round_done = false;
                self.path.start_round(ack.total_delivered);
            }
            None => {}
            Some(done_at) => {
                self.cycle.probe_rtt_round_done |= self.path.round_start;
                if self.cycle.probe_rtt_round_done && ack.now > done_at {
                    self.exit_probe_rtt(window, ack.now);
                }
            }
        }
    }

    /// An idle period may have completed ProbeRTT. §5.4.1.
    pub(super) fn check_probe_rtt_done(&mut self, window: &mut Window, now: Instant) {
        if self.cycle.probe_rtt_done_at.is_some_and(|done_at| now > done_at) {
            self.exit_probe_rtt(window, now);
        }
    }

    /// §5.3.4.4.
    fn exit_probe_rtt(&mut self, window: &mut Window, now: Instant) {
        self.path.note_probe_rtt_done(now);
        self.restore_cwnd(window);
        self.bounds.reset_short_term();
        if self.cycle.full_bw_reached {
            self.start_down(self.delivered);
            self.cycle.state = State::Cruise;
        } else {
            self.cycle.state = State::Startup;
        }
    }

    // ---- undo, §5.5.11.2 ----

    /// The loss that ended `left` was spurious.
    pub(super) fn return_to(&mut self, left: Option<State>) {
        match (left, self.cycle.state) {
            (Some(State::Startup), state) => {
                self.cycle.full_bw_reached = false;
                if state != State::ProbeRtt {
                    self.cycle.state = State::Startup;
                }
            }
            (Some(State::Up), State::Down | State::Cruise | State::Refill) => {
                self.start_refill(self.delivered);
            }
            _ => {}
        }
    }
}
