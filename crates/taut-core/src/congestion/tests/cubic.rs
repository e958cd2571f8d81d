//! CUBIC beside RFC 9438's formulas, computed here in real numbers.

use super::*;

/// §4.6, §5.1, and §4.3: 3 (1 − β) / (1 + β) = 0.529.
const BETA: f64 = 0.7;
const C: f64 = 0.4;
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// RFC 9438 to the letter: windows in segments, time in seconds.
#[derive(Clone, Debug)]
struct Rfc {
    cwnd: f64,
    w_max: f64,
    cwnd_prior: f64,
    w_est: f64,
    k: f64,
    epoch: Option<f64>,
}

impl Rfc {
    fn new(cwnd: u32) -> Self {
        let cwnd = f64::from(cwnd);
        Self { cwnd, w_max: cwnd, cwnd_prior: 0.0, w_est: 0.0, k: 0.0, epoch: None }
    }

    /// §4.6 and §4.7.
    fn lose(&mut self) {
        self.w_max = if self.cwnd < self.w_max { self.cwnd * (1.0 + BETA) / 2.0 } else { self.cwnd };
        self.cwnd_prior = self.cwnd;
        self.cwnd *= BETA;
        self.epoch = None;
    }

    /// Equation 1.
    fn w_cubic(&self, t: f64) -> f64 {
        let from_k = t - self.k;
        C * (from_k * from_k * from_k) + self.w_max
    }

    /// One segment is acknowledged. §4.2 to §4.5.
    fn ack(&mut self, now: f64, rtt: f64) {
        let epoch = *self.epoch.get_or_insert_with(|| {
            self.k = libm::cbrt((self.w_max - self.cwnd) / C);
            self.w_est = self.cwnd;
            now
        });
        let t = now - epoch;
        self.w_est += if self.w_est < self.cwnd_prior { ALPHA } else { 1.0 } / self.cwnd;
        let target = self.w_cubic(t + rtt).clamp(self.cwnd, 1.5 * self.cwnd);
        self.cwnd += (target - self.cwnd) / self.cwnd;
        if self.w_cubic(t) < self.w_est {
            self.cwnd = self.cwnd.max(self.w_est);
        }
    }
}

/// taut's CUBIC and the RFC's, side by side on a path of one round-trip time.
struct Pair {
    cc: Congestion,
    rfc: Rfc,
    now_ms: u64,
    rtt_ms: u64,
}

impl Pair {
    /// Both have just lost at this window.
    fn after_a_loss(cwnd: u32, rtt_ms: u64) -> Self {
        let mut pair = Self {
            cc: with_window(Algorithm::cubic(), cwnd, u32::MAX),
            rfc: Rfc::new(cwnd),
            now_ms: 0,
            rtt_ms,
        };
        pair.lose();
        pair
    }

    fn lose(&mut self) {
        lose(&mut self.cc, self.now_ms);
        self.rfc.lose();
    }

    /// A loss that turned out to be spurious: nothing happened.
    fn lose_in_error(&mut self) {
        lose(&mut self.cc, self.now_ms);
        self.cc.undo(at(self.now_ms));
    }

    /// Round trips until `until_ms`; each acknowledges a window, segment by segment. Both windows must agree
    /// to within `off` segments throughout: integers are rounded, and C and β are 0.4004 and 0.7002.
    #[track_caller]
    fn run(&mut self, until_ms: u64, off: f64) {
        while self.now_ms < until_ms {
            let (now, rtt) = (self.now_ms as f64 / 1e3, self.rtt_ms as f64 / 1e3);
            (0..self.cc.cwnd()).for_each(|_| ack(&mut self.cc, self.now_ms, 1, self.rtt_ms));
            (0..self.rfc.cwnd as u32).for_each(|_| self.rfc.ack(now, rtt));
            let error = f64::from(self.cc.cwnd()) - self.rfc.cwnd;
            assert!(error.abs() <= off, "{} ms: {} and {}", self.now_ms, self.cc.cwnd(), self.rfc.cwnd);
            self.now_ms += self.rtt_ms;
        }
    }
}

#[test]
fn cubic_01_seven_tenths_are_left_and_two_segments_at_least() {
    // §4.6: whatever the signal; a timeout too (§4.8).
    for (cwnd, left) in [(1_000, 700), (100, 70), (10, 7), (4, 2), (3, 2), (2, 2), (1, 2)] {
        for why in [Signal::Loss, Signal::Mark, Signal::LocalQueue, Signal::Timeout] {
            let mut cc = with_window(Algorithm::cubic(), cwnd, u32::MAX);
            cc.begin_reduction(at(0), why, true);
            assert_eq!(cc.ssthresh(), left, "{cwnd}, {why:?}");
        }
    }
}

#[test]
fn cubic_02_the_window_follows_the_curve() {
    // §4.2: concave up to W_max = 1000 at K = ∛(300 / 0.4) = 9.09 s, convex beyond.
    let mut pair = Pair::after_a_loss(1_000, 100);
    pair.run(8_000, 4.0);
    assert!(pair.cc.cwnd() <= 1_000, "{}", pair.cc.cwnd());
    pair.run(18_000, 8.0);
    // 1000 + 0.4 · (18 − 9.09)³ = 1283.
    assert!(pair.cc.cwnd().abs_diff(1_283) < 12, "{}", pair.cc.cwnd());
}

#[test]
fn cubic_03_the_window_hardly_grows_at_the_plateau() {
    // From K − 1.5 s to K + 1.5 s: 2 · 0.4 · 1.5³ = 2.7 segments, in 30 round trips.
    let mut pair = Pair::after_a_loss(1_000, 100);
    pair.run(7_600, 4.0);
    let before = pair.cc.cwnd();
    pair.run(10_600, 4.0);
    assert!((1..=4).contains(&(pair.cc.cwnd() - before)), "{before} {}", pair.cc.cwnd());
}

#[test]
fn cubic_04_never_slower_than_reno_would_be() {
    // §4.3: on a path of 10 ms the curve takes K = ∛75 = 4.2 s for what Reno does in half a second. W_est
    // grows by 0.529 in each round trip up to the window before the loss, and by 1 beyond.
    let mut pair = Pair::after_a_loss(100, 10);
    pair.run(300, 3.0);
    // 70 + 30 · 0.529.
    assert!(pair.cc.cwnd().abs_diff(86) <= 3, "{}", pair.cc.cwnd());
    pair.run(570, 3.0);
    let reached = pair.cc.cwnd();
    assert!(reached.abs_diff(100) <= 3, "after 57 round trips: {reached}");
    pair.run(870, 3.0);
    assert!(pair.cc.cwnd().abs_diff(130) <= 3, "{}", pair.cc.cwnd());
}

#[test]
fn cubic_05_fast_convergence() {
    // §4.7: a loss at 800, below W_max = 1000, sets W_max to 0.85 · 800 = 680, reached in K = ∛(120 / 0.4) =
    // 6.69 s.
    let mut pair = Pair::after_a_loss(1_000, 100);
    pair.run(1_000, 4.0);
    pair.cc.set_cwnd(800);
    pair.rfc.cwnd = 800.0;
    pair.lose();
    assert_eq!(pair.cc.cwnd(), 560);
    pair.run(7_700, 4.0);
    assert!(pair.cc.cwnd().abs_diff(680) <= 3, "{}", pair.cc.cwnd());
    // A loss at W_max or above it sets W_max to that window: 700 from 490 in K = 8.07 s.
    let mut pair = Pair::after_a_loss(700, 100);
    pair.cc.set_cwnd(700);
    pair.rfc.cwnd = 700.0;
    pair.lose();
    pair.run(8_100, 4.0);
    assert!(pair.cc.cwnd().abs_diff(700) <= 3, "{}", pair.cc.cwnd());
}

#[test]
fn cubic_06_growth_by_half_a_window_at_most() {
    // §4.2: target ≤ 1.5 · cwnd, though the curve is far above after a minute.
    let mut cc = with_window(Algorithm::cubic(), 100, u32::MAX);
    lose(&mut cc, 0);
    ack(&mut cc, 0, 1, 100);
    cc.set_cwnd(100);
    ack(&mut cc, 60_000, 100, 100);
    assert_eq!(cc.cwnd(), 150);
}

#[test]
fn cubic_07_a_twentieth_while_no_maximum_is_known() {
    // Slow start ended without a loss (§4.10). Linux: by 5 % per round trip at least.
    let mut cc = with_window(Algorithm::cubic(), 100, 100);
    (0..19).for_each(|_| ack(&mut cc, 0, 1, 100));
    assert_eq!(cc.cwnd(), 100);
    (0..81).for_each(|_| ack(&mut cc, 0, 1, 100));
    assert_eq!(cc.cwnd(), 105);
    // Once a maximum is known, the curve alone decides: 0.4 · (9.09³ − 8.99³) = 9.8 in the first 100 ms.
    let mut pair = Pair::after_a_loss(1_000, 100);
    pair.run(100, 1.0);
    assert!(pair.cc.cwnd() <= 700 + 10, "{}", pair.cc.cwnd());
}

#[test]
fn cubic_08_a_timeout_forgets_the_maximum() {
    // §4.8: the curve begins at its plateau, K = 0 and W_max the window at the end of slow start; so Linux's
    // twentieth applies, 700 / 20 = 35, instead of 10 on the way to 1000.
    let mut cc = with_window(Algorithm::cubic(), 1_000, u32::MAX);
    cc.begin_reduction(at(0), Signal::Timeout, true);
    cc.on_timeout(at(0), 0);
    assert_eq!((cc.cwnd(), cc.ssthresh()), (1, 700));
    ack(&mut cc, 0, 699, 100);
    (0..700).for_each(|_| ack(&mut cc, 0, 1, 100));
    assert_eq!(cc.cwnd(), 735);
}

/// RFC 9438 §4.3 and §4.8: the window before a timeout is remembered. Of twelve segments ssthresh keeps
/// eight. Seven round trips at α = 0.529 bring 8 + 7 · 0.529 = 11.7; at α = 1 they would bring 15.
#[test]
fn cc_10_after_a_timeout_w_est_grows_by_alpha_until_the_window_before_it() {
    let mut cc = Congestion::new(Algorithm::cubic());
    cc.live(at(0)).window.set_cwnd(12);
    cc.begin_reduction(at(0), Signal::Loss, true);
    cc.on_timeout(at(0), 0);
    assert_eq!((cc.cwnd(), cc.ssthresh()), (1, 8));
    cc.end_loss();
    cc.on_ack(AckEvent { cwnd_limited: true, ..event(at(1), 7, 1, 0, 0) }, true);
    assert_eq!(cc.cwnd(), 8, "slow start is over");
    for round in 1..8 {
        for ack in 0..u64::from(cc.cwnd()) {
            let when = at(round * 20 + ack);
            cc.on_ack(AckEvent { cwnd_limited: true, ..event(when, 1, 1, 0, 0) }, true);
        }
    }
    assert!((11..=12).contains(&cc.cwnd()), "{}", cc.cwnd());
}

#[test]
fn cubic_09_undo_restores_the_maximum() {
    // §4.9.2: 857 segments after 2 s of the curve to 1000; a spurious loss there, and the curve goes on: 981
    // at 5.5 s. With the maximum of the loss that was none, 0.85 · 857, the window would be on the convex
    // side of a plateau at 857: 875.
    let mut pair = Pair::after_a_loss(1_000, 100);
    pair.run(2_000, 4.0);
    pair.lose_in_error();
    pair.run(12_000, 8.0);
}

#[test]
fn cubic_09_undo_of_a_timeout_restores_it_too() {
    let mut pair = Pair::after_a_loss(1_000, 100);
    pair.run(2_000, 4.0);
    pair.cc.begin_reduction(at(2_000), Signal::Timeout, true);
    pair.cc.on_timeout(at(2_000), 5);
    pair.cc.undo(at(2_000));
    pair.run(12_000, 8.0);
}

#[test]
fn cubic_10_undo_restores_the_window_before_the_last_loss() {
    // §4.9.2 lists cwnd_prior: until 100 is reached again, W_est grows with α = 0.529. 70 + 45 · 0.529 =
    // 93.8.
    let mut pair = Pair::after_a_loss(100, 10);
    pair.run(150, 3.0);
    pair.lose_in_error();
    // W_est begins again at the restored window, which lags behind it by up to three.
    pair.run(450, 5.0);
    assert!(pair.cc.cwnd().abs_diff(94) <= 5, "{}", pair.cc.cwnd());
}

#[test]
fn cubic_11_idle_time_does_not_count_on_the_curve() {
    // §5.8: idle for 10 s from the plateau on. With that time, the curve would be at 1000 + 0.4 · 10³ = 1400.
    let cfg = CongestionConfig { slow_start_after_idle: false, ..CongestionConfig::default() };
    let mut pair = Pair::after_a_loss(1_000, 100);
    pair.run(9_000, 4.0);
    let (sent, now) = (pair.now_ms, pair.now_ms + 10_000);
    pair.cc.on_idle_restart(at(now), at(sent), Duration::from_secs(1), u64::MAX, &cfg);
    pair.now_ms = now;
    pair.rfc.epoch = pair.rfc.epoch.map(|epoch| epoch + 10.0);
    pair.run(now + 5_000, 6.0);
}

#[test]
fn cubic_12_an_epoch_does_not_begin_in_the_future() {
    // Nothing was sent since 0, the epoch began with an ACK at 1 s, and sending resumes at 3 s: the epoch
    // begins now, at t = 0. With all of the idle time it would begin at 4 s, 80 segments later.
    let cfg = CongestionConfig { slow_start_after_idle: false, ..CongestionConfig::default() };
    let mut pair = Pair::after_a_loss(1_000, 100);
    pair.now_ms = 1_000;
    pair.run(1_100, 4.0);
    pair.cc.on_idle_restart(at(3_000), at(0), Duration::from_secs(60), u64::MAX, &cfg);
    pair.now_ms = 3_000;
    pair.rfc.epoch = Some(3.0);
    pair.run(9_000, 12.0);
}

#[test]
fn cubic_13_the_target_is_a_round_trip_ahead() {
    // §4.2: W_cubic(t + RTT). With 1 s: 1000 − 0.4 · 8.09³ = 788 is the target of the first round; at t it is
    // 700.
    let mut pair = Pair::after_a_loss(1_000, 1_000);
    pair.run(1_000, 6.0);
    assert!(pair.cc.cwnd() > 740, "{}", pair.cc.cwnd());
    pair.run(9_000, 12.0);
}

/// On a path of 1 ms, in the 20 ms after a loss: at least Reno's growth, 0.53 of a segment a round trip
/// (§4.3). Linux recomputes the increment every 1/32 s only.
#[test]
fn cubic_14_the_increment_is_renewed_in_each_round_trip() {
    let mut cc = with_window(Algorithm::cubic(), 100, u32::MAX);
    lose(&mut cc, 0);
    for ms in 0..20 {
        (0..cc.cwnd()).for_each(|_| ack(&mut cc, ms, 1, 1));
    }
    // 70 + 20 · 0.529 = 80.6.
    assert!((79..=82).contains(&cc.cwnd()), "{}", cc.cwnd());
}

#[test]
fn cubic_15_what_slow_start_leaves_counts_on_the_curve() {
    // Ten of fifty reach the threshold; with the other forty, two more of 5 % (no maximum is known).
    let mut cc = with_window(Algorithm::cubic(), 90, 100);
    ack(&mut cc, 0, 50, 100);
    assert_eq!((cc.cwnd(), cc.ssthresh()), (102, 100));
}

#[test]
fn cubic_09_the_curve_begins_again_where_undo_finds_it() {
    // §4.9.2. The loss at 2 s turns out to be spurious after another second, in which the window grew on a
    // curve to 0.85 · 857. That curve is forgotten: from the 857 of before, it goes to 1000 in ∛(143 / 0.4) =
    // 7.1 s.
    let mut pair = Pair::after_a_loss(1_000, 100);
    pair.run(2_000, 4.0);
    lose(&mut pair.cc, 2_000);
    for ms in (2_000..3_000).step_by(100) {
        (0..pair.cc.cwnd()).for_each(|_| ack(&mut pair.cc, ms, 1, 100));
    }
    pair.now_ms = 3_000;
    pair.cc.undo(at(3_000));
    pair.rfc.epoch = None;
    pair.run(12_000, 8.0);
}
