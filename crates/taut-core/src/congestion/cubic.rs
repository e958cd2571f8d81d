//! CUBIC: the window is a cubic function of the time since the last loss.
//! RFC 9438, with Linux's constants and units; slow start by HyStart++.
//! Called by `congestion/mod.rs`.

use super::controller::{AckEvent, Controller, Signal, Window};
use super::hystart::{Growth, HyStart};
use super::{Definition, MIN_SSTHRESH};
use crate::words::{Duration, Instant};

/// For [`Algorithm::cubic`](super::Algorithm::cubic).
pub(super) fn definition() -> Definition {
    Definition::new("cubic", |_| Cubic::new())
}

/// β = 0.7 (RFC 9438 §4.6), in 1024ths as in Linux: 0.7002.
const BETA: u64 = 717;
const SCALE: u64 = 1024;
/// C = 0.4 (RFC 9438 §5.1), in 1024ths as in Linux: 0.4004.
const C: u64 = 410;
/// The increment is recomputed at least this often while cwnd stands still (Linux: 1/32 s), or once in the
/// least round trip if that is shorter: on a path of 1 ms a whole epoch between two losses is shorter than
/// 1/32 s, and the window would grow all along as it did at the epoch's first ACK.
const REFRESH_MS: u32 = 1000 / 32;
/// Segments per increment while no maximum is known: growth by at least 5 % per round trip. Linux.
const COUNT_MAX_UNKNOWN: u32 = 20;
/// The fewest segments per increment: growth by at most a half per round trip. RFC 9438 §4.2, Linux.
const COUNT_MIN: u32 = 2;
/// There is almost no growth at the plateau. Linux: 1 % of a segment per round trip.
const PLATEAU: u32 = 100;
/// By then, an epoch has long left the curve behind; the bound keeps the third power within 64 bits: (2^17)^3
/// · 410 < 2^60.
const OFFSET_MAX: u64 = 1 << 17;

/// State of RFC 9438 §4.1.2. Times in 1024ths of a second where not said otherwise.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cubic {
    /// W_max, segments; 0 when not known.
    w_max: u32,
    /// `w_max` before the last reduction, for undo.
    undo_w_max: u32,
    /// cwnd at the last reduction.
    cwnd_prior: u32,
    /// Plateau of this epoch.
    origin: u32,
    /// K: time from the epoch's start to the plateau.
    k: u32,
    /// W_est: the window that Reno would have. RFC 9438 §4.3.
    w_est: u32,
    est_count: u32,
    /// Segments that must be acknowledged to raise cwnd by one.
    every: u32,
    last_cwnd: u32,
    /// Time of the last update in ms, wrapping, to save 4 bytes per connection.
    last_at_ms: u32,
    /// Zero before the first ACK of an epoch.
    epoch: Instant,
    hystart: HyStart,
}

impl Cubic {
    pub(super) const fn new() -> Self {
        Self {
            w_max: 0,
            undo_w_max: 0,
            cwnd_prior: 0,
            origin: 0,
            k: 0,
            w_est: 0,
            est_count: 0,
            every: 0,
            last_cwnd: 0,
            last_at_ms: 0,
            epoch: Instant::ZERO,
            hystart: HyStart::new(),
        }
    }

    fn begin_epoch(&mut self, now: Instant, cwnd: u32) {
        self.epoch = now.max(Instant::from_nanos(1));
        self.w_est = cwnd;
        self.est_count = 0;
        if cwnd < self.w_max {
            // RFC 9438 §4.2: K = ∛((W_max − cwnd_epoch) / C).
            let distance = u64::from(self.w_max - cwnd).min(1 << 22);
            self.k = cbrt((distance << 40) / C) as u32;
            self.origin = self.w_max;
        } else {
            self.k = 0;
            self.origin = cwnd;
        }
    }

    /// W_cubic(t) = C·(t − K)³ + W_max. RFC 9438 §4.2.
    fn w_cubic(&self, t: u64) -> u32 {
        let k = u64::from(self.k);
        let offset = t.abs_diff(k).min(OFFSET_MAX);
        let delta = u32::try_from((C * offset * offset * offset) >> 40).unwrap_or(u32::MAX);
        if t < k { self.origin.saturating_sub(delta) } else { self.origin.saturating_add(delta) }
    }

    fn update(&mut self, cwnd: u32, event: &AckEvent<'_>) {
        let now_ms = event.now.as_millis() as u32;
        let least_rtt_ms = event.min_rtt.map_or(u64::MAX, Duration::as_millis);
        let refresh_ms = u64::from(REFRESH_MS).min(least_rtt_ms) as u32;
        self.est_count = self.est_count.saturating_add(event.acked);
        if self.epoch != Instant::ZERO
            && self.last_cwnd == cwnd
            && now_ms.wrapping_sub(self.last_at_ms) <= refresh_ms
        {
            return;
        }
        self.last_cwnd = cwnd;
        self.last_at_ms = now_ms;
        if self.epoch == Instant::ZERO {
            self.begin_epoch(event.now, cwnd);
            self.est_count = event.acked;
        }
        // RFC 9438 §4.2: the target is the value of the curve one RTT from now; the least RTT, as in Linux.
        let t = event.now.since(self.epoch) + event.min_rtt.unwrap_or(Duration::ZERO);
        let target = self.w_cubic(to_1024ths(t));
        self.every = if target > cwnd { cwnd / (target - cwnd) } else { cwnd.saturating_mul(PLATEAU) };
        if self.w_max == 0 {
            self.every = self.every.min(COUNT_MAX_UNKNOWN);
        }
        self.reno_friendly(cwnd);
        self.every = self.every.max(COUNT_MIN);
    }

    /// RFC 9438 §4.3: never slower than Reno would be. W_est grows by α segments for every cwnd acknowledged.
    fn reno_friendly(&mut self, cwnd: u32) {
        // α = 3·(1 − β) / (1 + β), and 1 once the window before the loss is reached again.
        let (num, den) =
            if self.w_est < self.cwnd_prior { (3 * (SCALE - BETA), SCALE + BETA) } else { (1, 1) };
        let need = u32::try_from((u64::from(cwnd) * den / num).max(1)).unwrap_or(u32::MAX);
        let grow = self.est_count / need;
        self.est_count -= grow * need;
        self.w_est = self.w_est.saturating_add(grow);
        if self.w_est > cwnd {
            self.every = self.every.min(cwnd / (self.w_est - cwnd));
        }
    }
}

impl Controller for Cubic {
    fn on_ack(&mut self, window: &mut Window, event: &AckEvent<'_>) {
        let mut acked = event.acked;
        if window.in_slow_start() {
            match self.hystart.on_ack(window.cwnd(), event) {
                Growth::By(segs) => {
                    let left = window.slow_start(segs);
                    if window.in_slow_start() {
                        return;
                    }
                    acked = left;
                }
                Growth::LeaveWith(cwnd) => {
                    window.set_cwnd(cwnd);
                    window.leave_slow_start();
                }
            }
        }
        if acked > 0 {
            self.update(window.cwnd, event);
            window.additive(self.every, acked);
        }
    }

    /// RFC 9438 §4.6, from cwnd as in Linux; §4.7 fast convergence.
    fn reduce(&mut self, window: &Window, _why: Signal, _now: Instant) -> u32 {
        let cwnd = window.cwnd();
        self.undo_w_max = self.w_max;
        self.w_max =
            if cwnd < self.w_max { (u64::from(cwnd) * (SCALE + BETA) / (2 * SCALE)) as u32 } else { cwnd };
        self.cwnd_prior = cwnd;
        self.hystart = HyStart::new();
        self.epoch = Instant::ZERO;
        ((u64::from(cwnd) * BETA / SCALE) as u32).max(MIN_SSTHRESH)
    }

    /// RFC 9438 §4.8: after a timeout the first epoch starts at its own plateau, so the curve is forgotten.
    /// The window before the timeout is not: below it, W_est grows with α < 1 (§4.3).
    fn on_timeout(&mut self, _window: &mut Window) {
        *self = Self { undo_w_max: self.undo_w_max, cwnd_prior: self.cwnd_prior, ..Self::new() };
    }

    /// RFC 9438 §4.9.2. The epoch starts again from the restored window.
    fn undo(&mut self, _window: &mut Window, _now: Instant) {
        self.w_max = self.undo_w_max;
        // The window before the last loss that was one, or 0.85 of it (§4.7): it is not kept, to save memory.
        self.cwnd_prior = self.undo_w_max;
        self.epoch = Instant::ZERO;
    }

    /// RFC 9438 §5.8: idle time does not count on the curve.
    fn on_idle_end(&mut self, _window: &mut Window, now: Instant, idle: Duration) {
        if self.epoch != Instant::ZERO {
            self.epoch = (self.epoch + idle).min(now);
        }
    }
}

fn to_1024ths(span: Duration) -> u64 {
    span.as_micros().min(1 << 40) * 1024 / 1_000_000
}

/// ⌊∛value⌋, two bits of the root's square at a time: 21 steps, once an epoch.
fn cbrt(value: u64) -> u64 {
    let mut root = 0_u64;
    for bit in (0..22).rev() {
        let candidate = root | 1 << bit;
        if u128::from(candidate).pow(3) <= u128::from(value) {
            root = candidate;
        }
    }
    root
}

#[cfg(test)]
mod tests {
    use super::cbrt;

    #[test]
    fn cube_root_is_the_floor() {
        for root in [0_u64, 1, 2, 3, 10, 1_000, 1_625_000] {
            assert_eq!(cbrt(root.pow(3)), root);
            assert_eq!(cbrt((root + 1).pow(3) - 1), root);
        }
        assert_eq!(cbrt(u64::MAX), 2_642_245, "2^(64/3)");
    }
}
