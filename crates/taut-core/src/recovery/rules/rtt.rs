//! Round-trip time: smoothed, its variation, and the recent minimum. RFC 6298 §2 with Linux's two changes to
//! the variation; the windowed minimum is Linux's (`tcp_min_rtt_wlen`). Called by `ack.rs` for each ACK that
//! measures.

use crate::words::{Duration, Instant};

/// The least round trip is forgotten after this time, because a path may change. Linux: `tcp_min_rtt_wlen`,
/// 300 s.
const MIN_RTT_WINDOW_MS: u32 = 300_000;
/// The largest sample kept, in µs: eight times as much still fits in 32 bits.
const MAX_SAMPLE_US: u64 = 1 << 28;

/// Estimator. Times in µs; zero stands for "never".
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rtt {
    /// Eight times the smoothed RTT, so that a gain of 1/8 loses nothing.
    srtt_x8: u32,
    /// Four times the mean deviation.
    mdev_x4: u32,
    /// Largest `mdev_x4` of this round trip.
    mdev_max_x4: u32,
    /// The variation that the RTO adds to the RTT: never below the floor. Before the first sample the whole
    /// RTO, or 0.
    rttvar_x4: u32,
    /// When `una` passes this, a round trip is over.
    round_end: u64,
    least: WindowedMin,
}

impl Rtt {
    pub(crate) const fn new() -> Self {
        Self { srtt_x8: 0, mdev_x4: 0, mdev_max_x4: 0, rttvar_x4: 0, round_end: 0, least: WindowedMin::new() }
    }

    /// Takes a sample. `una` and `nxt` are those after the ACK.
    pub(crate) fn sample(&mut self, rtt: Duration, una: u64, nxt: u64, rto_min: Duration) {
        // A sample of zero would look like none.
        let sample = rtt.as_micros().clamp(1, MAX_SAMPLE_US) as u32;
        let floor = u32::try_from(rto_min.as_micros()).unwrap_or(u32::MAX);
        if self.srtt_x8 == 0 {
            // RFC 6298 §2.2: SRTT = R, RTTVAR = R/2.
            self.srtt_x8 = sample * 8;
            self.mdev_x4 = sample * 2;
            self.mdev_max_x4 = self.mdev_x4.max(floor);
            self.rttvar_x4 = self.mdev_max_x4;
            self.round_end = nxt;
            return;
        }
        // RFC 6298 §2.3: RTTVAR before SRTT, gains 1/4 and 1/8.
        let smoothed = self.srtt_x8 / 8;
        let error = i64::from(sample) - i64::from(smoothed);
        let excess = error.abs() - i64::from(self.mdev_x4 / 4);
        // Linux: a round trip that suddenly gets shorter is no reason for a longer timeout, so if a sample
        // below the mean increases the deviation, the gain is 1/32 instead of 1/4.
        let step = if error < 0 && excess > 0 { excess / 8 } else { excess };
        self.mdev_x4 = clamp_u32(i64::from(self.mdev_x4) + step);
        self.srtt_x8 = clamp_u32(i64::from(self.srtt_x8) + error).max(1);
        // Linux: the variation rises immediately, and falls once per round trip, by a quarter of the way.
        self.mdev_max_x4 = self.mdev_max_x4.max(self.mdev_x4);
        self.rttvar_x4 = self.rttvar_x4.max(self.mdev_max_x4);
        if una > self.round_end {
            self.rttvar_x4 -= (self.rttvar_x4 - self.mdev_max_x4) / 4;
            self.round_end = nxt;
            self.mdev_max_x4 = floor;
        }
    }

    /// Takes a sample for the minimum alone.
    pub(crate) fn sample_min(&mut self, now: Instant, rtt: Duration) {
        self.least.update(now.as_millis() as u32, rtt.as_micros().clamp(1, MAX_SAMPLE_US) as u32);
    }

    pub(crate) fn srtt(&self) -> Option<Duration> {
        (self.srtt_x8 != 0).then(|| Duration::from_nanos(u64::from(self.srtt_x8) * 125))
    }

    /// RFC 6298's RTTVAR.
    pub(crate) fn rttvar(&self) -> Duration {
        Duration::from_nanos(u64::from(self.mdev_x4) * 250)
    }

    pub(crate) fn min_rtt(&self) -> Option<Duration> {
        self.least.get().map(|us| Duration::from_micros(u64::from(us)))
    }

    /// SRTT + max(4·RTTVAR, floor). Before the first sample `None`, or what [`distrust`](Self::distrust) was
    /// told.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        let srtt = self.srtt().or((self.rttvar_x4 != 0).then_some(Duration::ZERO))?;
        Some(srtt + Duration::from_micros(u64::from(self.rttvar_x4)))
    }

    /// Until the first sample, the timeout is `timeout`.
    pub(crate) fn distrust(&mut self, timeout: Duration) {
        if self.srtt_x8 == 0 {
            self.rttvar_x4 = u32::try_from(timeout.as_micros()).unwrap_or(u32::MAX);
        }
    }
}

fn clamp_u32(value: i64) -> u32 {
    u32::try_from(value.max(0)).unwrap_or(u32::MAX)
}

/// The least of the last [`MIN_RTT_WINDOW_MS`], from three samples: the best, the best after it, and the best
/// after that. (Kathleen Nichols' windowed filter.)
#[derive(Clone, Copy, Debug)]
struct WindowedMin {
    /// (time in ms, value in µs), by age; values do not fall. Value 0: nothing yet.
    best: [(u32, u32); 3],
}

impl WindowedMin {
    const fn new() -> Self {
        Self { best: [(0, 0); 3] }
    }

    const fn get(&self) -> Option<u32> {
        match self.best[0].1 {
            0 => None,
            value => Some(value),
        }
    }

    fn update(&mut self, now: u32, value: u32) {
        let sample = (now, value);
        let [first, second, third] = self.best;
        let age = |at: (u32, u32)| now.wrapping_sub(at.0);
        if first.1 == 0 || value <= first.1 || age(third) > MIN_RTT_WINDOW_MS {
            self.best = [sample; 3];
            return;
        }
        if value <= second.1 {
            self.best = [first, sample, sample];
        } else if value <= third.1 {
            self.best[2] = sample;
        }
        let [first, second, third] = self.best;
        if age(first) > MIN_RTT_WINDOW_MS {
            self.best = if age(second) > MIN_RTT_WINDOW_MS {
                [third, sample, sample]
            } else {
                [second, third, sample]
            };
        } else if second.0 == first.0 && age(second) > MIN_RTT_WINDOW_MS / 4 {
            // A quarter of the window without a second choice: take one now, so that there is one later.
            self.best = [first, sample, sample];
        } else if third.0 == second.0 && age(third) > MIN_RTT_WINDOW_MS / 2 {
            self.best[2] = sample;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6298 §2.3's gain of 1/4, and Linux's of 1/32 for a sample below the mean that adds to the
    /// variation (`tcp_rtt_estimator`, whose shift rounds down). SRTT is 8 ms and RTTVAR 4 ms, in quarters of
    /// a microsecond.
    #[test]
    fn rto_04_the_gain_of_the_variation() {
        for (sample_us, rttvar_x4) in [
            // As far from the mean as the variation says, on both sides.
            (12_000, 16_000),
            (4_000, 16_000),
            (12_001, 16_001),
            (12_008, 16_008),
            (3_999, 16_000),
            (3_993, 16_000),
            (3_992, 16_001),
            (3_984, 16_002),
            // Nearer: the variation falls by a quarter of the difference.
            (8_000, 12_000),
            (7_999, 12_001),
            (8_001, 12_001),
        ] {
            let mut rtt = Rtt::new();
            rtt.sample(Duration::from_micros(8_000), 0, 10, Duration::from_millis(200));
            rtt.sample(Duration::from_micros(sample_us), 5, 20, Duration::from_millis(200));
            assert_eq!(rtt.rttvar(), Duration::from_nanos(rttvar_x4 * 250), "{sample_us} µs");
        }
    }
}
