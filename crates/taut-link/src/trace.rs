//! A line whose rate was recorded: how many bytes it could have carried by each moment, again and again.
//! For cellular and satellite links. Called by a router's port.
//!
//! A [`Trace`] is a sum that grows: by a rate, as in a recording of rates, or by a number of bytes at once,
//! as in a recording of the moments at which a link could deliver (mahimahi's format, arrivals of a
//! saturated link). A packet leaves when the sum has grown by its length since the packet before it left.
//! While nothing waits, what could have been carried is lost. After its last moment, the trace begins
//! again.
//!
//! Sums are billionths of a byte, so that a rate times nanoseconds is exact.

use alloc::sync::Arc;
use alloc::vec::Vec;

use taut_core::{Duration, Instant};

const NS: u128 = 1_000_000_000;

/// From here to the next one: the sum at the beginning, and how it grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    at_ns: u64,
    sum: u128,
    bytes_per_second: u64,
}

/// A recording of what a line could carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// In order of time; the first begins at 0.
    pieces: Vec<Piece>,
    period_ns: u64,
    /// The sum of a period, above 0.
    total: u128,
    /// Bytes that a packet takes in addition to its own.
    overhead_bytes: u32,
}

/// A moment of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When, from the beginning.
    pub at: Duration,
    /// Bytes that can leave at once.
    pub bytes: u32,
    /// Bytes per second that can leave from now on.
    pub bytes_per_second: u64,
}

impl Trace {
    /// A recording of these moments, in order of time, that begins again after `period`. `None` if they are
    /// not in order, end after the period, or carry nothing at all.
    #[must_use]
    pub fn new(moments: &[Moment], period: Duration, overhead_bytes: u32) -> Option<Self> {
        let mut pieces = Vec::with_capacity(moments.len() + 1);
        let mut last = Piece { at_ns: 0, sum: 0, bytes_per_second: 0 };
        let grown = |piece: &Piece, at_ns: u64| -> Option<u128> {
            let ns = u128::from(at_ns.checked_sub(piece.at_ns)?);
            Some(piece.sum + ns * u128::from(piece.bytes_per_second))
        };
        pieces.push(last);
        for moment in moments {
            let at_ns = moment.at.as_nanos();
            let sum = grown(&last, at_ns)? + u128::from(moment.bytes) * NS;
            last = Piece { at_ns, sum, bytes_per_second: moment.bytes_per_second };
            pieces.push(last);
        }
        let period_ns = period.as_nanos();
        let total = grown(&last, period_ns)?;
        (total > 0 && period_ns > 0).then_some(Self { pieces, period_ns, total, overhead_bytes })
    }

    /// The bytes that a period carries on average in a second.
    #[must_use]
    pub fn bytes_per_second(&self) -> u64 {
        u64::try_from(self.total / u128::from(self.period_ns)).unwrap_or(u64::MAX)
    }

    /// Its length.
    #[must_use]
    pub const fn period(&self) -> Duration {
        Duration::from_nanos(self.period_ns)
    }

    /// The sum at a time. A moment at the end of a period belongs to it, not to the next.
    fn sum_at(&self, ns: u64) -> u128 {
        let Some(before) = ns.checked_sub(1) else { return self.in_period(0) };
        let periods = before / self.period_ns;
        u128::from(periods) * self.total + self.in_period(ns - periods * self.period_ns)
    }

    fn in_period(&self, ns: u64) -> u128 {
        let number = self.pieces.partition_point(|piece| piece.at_ns <= ns);
        let Some(piece) = self.pieces.get(number.saturating_sub(1)) else { return 0 };
        piece.sum + u128::from(ns - piece.at_ns) * u128::from(piece.bytes_per_second)
    }

    /// The first time at which the sum is at least this.
    fn time_of(&self, sum: u128) -> u64 {
        let Some(before) = sum.checked_sub(1) else { return 0 };
        let periods = before / self.total;
        let rest = sum - periods * self.total;
        let number = self.pieces.partition_point(|piece| piece.sum < rest);
        let next = self.pieces.get(number).map_or(self.period_ns, |piece| piece.at_ns);
        let in_period =
            number.checked_sub(1).and_then(|number| self.pieces.get(number)).map_or(next, |piece| {
                let rate = u128::from(piece.bytes_per_second);
                let grown = (rest - piece.sum).checked_next_multiple_of(rate.max(1)).unwrap_or(u128::MAX);
                // Without a rate it is reached at once by what comes next.
                let ns = grown.checked_div(rate).and_then(|ns| u64::try_from(ns).ok()).unwrap_or(u64::MAX);
                piece.at_ns.saturating_add(ns).min(next)
            });
        let periods = u64::try_from(periods).unwrap_or(u64::MAX);
        periods.saturating_mul(self.period_ns).saturating_add(in_period)
    }
}

/// Sends packets one after another as a recorded line could.
#[derive(Clone, Debug)]
pub struct TraceLine {
    trace: Arc<Trace>,
    /// When the trace begins.
    begin: Instant,
    /// The sum when the last packet has left.
    sum: u128,
    free_at: Instant,
}

impl TraceLine {
    /// An idle line; the recording begins at `begin`.
    #[must_use]
    pub fn new(trace: Arc<Trace>, begin: Instant) -> Self {
        Self { trace, begin, sum: 0, free_at: begin }
    }

    /// When it will have sent everything it was given.
    #[must_use]
    pub const fn free_at(&self) -> Instant {
        self.free_at
    }

    /// Begins to send an IP packet of `len` bytes, now or after the previous one. Returns when its last bit
    /// is sent.
    pub fn send(&mut self, now: Instant, len: u32) -> Instant {
        let now_ns = now.as_nanos().saturating_sub(self.begin.as_nanos());
        if self.free_at < now {
            // A moment that is now can still be used.
            self.sum = self.trace.sum_at(now_ns.saturating_sub(1));
        }
        self.sum += (u128::from(len) + u128::from(self.trace.overhead_bytes)) * NS;
        let ns = self.trace.time_of(self.sum).max(now_ns);
        self.free_at = self.begin + Duration::from_nanos(ns);
        self.free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64, bytes: u32, bytes_per_second: u64) -> Moment {
        Moment { at: Duration::from_millis(ms), bytes, bytes_per_second }
    }

    const BEGIN: Instant = Instant::from_nanos(1_000);

    fn line(moments: &[Moment], period_ms: u64, overhead_bytes: u32) -> TraceLine {
        let trace = Trace::new(moments, Duration::from_millis(period_ms), overhead_bytes).unwrap();
        TraceLine::new(Arc::new(trace), BEGIN)
    }

    fn ms(of: Instant) -> f64 {
        of.since(BEGIN).as_nanos() as f64 / 1e6
    }

    fn time(ms: u64) -> Instant {
        BEGIN + Duration::from_millis(ms)
    }

    #[test]
    fn lab_09_moments_carry_their_bytes_and_come_again() {
        // Moments at 2, 5 and 5 ms: 3 in each 5 ms, of 1500 bytes.
        let mut line = line(&[at(2, 1500, 0), at(5, 1500, 0), at(5, 1500, 0)], 5, 0);
        let times: Vec<f64> = (0..7).map(|_| ms(line.send(time(0), 1500))).collect();
        assert_eq!(times, [2.0, 5.0, 5.0, 7.0, 10.0, 10.0, 12.0]);
        // Two small packets share one, a large one takes what is left of it and of the next, and then there
        // is too little.
        let times: Vec<f64> = [500, 500, 1500, 501].map(|len| ms(line.send(time(0), len))).to_vec();
        assert_eq!(times, [15.0, 15.0, 15.0, 17.0]);
        // What passes while nothing waits is lost.
        assert_eq!(ms(line.send(time(31), 1500)), 32.0);
        assert_eq!(ms(line.send(time(47), 1500)), 47.0, "a moment that is now");
    }

    #[test]
    fn lab_09_rates_add_up_over_their_changes_and_over_silence() {
        // 1 MB/s for 10 ms, nothing for 80 ms, 2 MB/s for 10 ms: 30 kB in 100 ms.
        let moments = [at(0, 0, 1_000_000), at(10, 0, 0), at(90, 0, 2_000_000)];
        let mut line = line(&moments, 100, 0);
        // 5 kB by 5 ms; the next 10 kB by 92.5 ms: 5 by 10 ms, 5 more from 90 ms.
        assert_eq!(ms(line.send(time(0), 5_000)), 5.0);
        assert_eq!(ms(line.send(time(0), 10_000)), 92.5);
        // 15 kB more by 100 ms, and 3 kB in the next period.
        assert_eq!(ms(line.send(time(0), 18_000)), 103.0);
        let mut other = line.clone();
        // Five periods, 150 kB, end where they began.
        for _ in 0..15 {
            other.send(time(0), 10_000);
        }
        assert_eq!(ms(other.free_at()), 603.0);
        assert_eq!(line.trace.bytes_per_second(), 300_000);
        // In the silence.
        assert_eq!(ms(line.send(time(250), 2_000)), 291.0);
    }

    #[test]
    fn lab_09_a_constant_rate_is_a_line_of_that_rate() {
        // 7 Gbit/s with Ethernet's 38 bytes, as in the test of `Line`.
        let mut line = line(&[at(0, 0, 875_000_000)], 10, 38);
        let end = (0..1_000_000).map(|_| line.send(BEGIN, 1_500)).last().unwrap();
        assert_eq!(end.since(BEGIN).as_nanos(), 1_538_000_000_000_u64.div_ceil(875));
    }

    #[test]
    fn lab_09_a_trace_that_carries_nothing_is_none() {
        let period = Duration::from_millis(10);
        assert_eq!(Trace::new(&[], period, 0), None);
        assert_eq!(Trace::new(&[at(0, 0, 0)], period, 0), None);
        assert_eq!(Trace::new(&[at(11, 1, 0)], period, 0), None, "after the end");
        assert_eq!(Trace::new(&[at(5, 1, 0), at(4, 1, 0)], period, 0), None, "not in order");
        assert_eq!(Trace::new(&[at(0, 1, 0)], Duration::ZERO, 0), None, "no time");
    }
}
