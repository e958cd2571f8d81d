//! Durations counted by magnitude. taut's own; filled by the ledgers of the send path, read from reports.

use crate::words::Duration;

/// Durations counted by their binary logarithm: bucket 0 is below 32 µs, bucket n from 2ⁿ⁺⁴ to 2ⁿ⁺⁵ µs, the
/// last everything from half a second on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; Self::BUCKETS],
}

impl Histogram {
    /// The number of buckets.
    pub const BUCKETS: usize = 16;

    pub(crate) const fn from_counts(counts: [u64; Self::BUCKETS]) -> Self {
        Self { counts }
    }

    /// The bucket that counts `span`.
    #[must_use]
    pub const fn bucket_of(span: Duration) -> usize {
        let bucket = match span.as_micros() {
            0..32 => 0,
            us => us.ilog2() as usize - 4,
        };
        if bucket < Self::BUCKETS { bucket } else { Self::BUCKETS - 1 }
    }

    /// Durations in bucket `index` are below this. The last bucket has no upper bound; for it, this is the
    /// bound that the series would give.
    #[must_use]
    pub const fn bound(index: usize) -> Duration {
        Duration::from_micros(32 << index)
    }

    pub(crate) fn record(&mut self, span: Duration) {
        if let Some(count) = self.counts.get_mut(Self::bucket_of(span)) {
            *count += 1;
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
    }

    /// The count of each bucket.
    #[must_use]
    pub const fn counts(&self) -> &[u64; Self::BUCKETS] {
        &self.counts
    }

    /// The sum of all counts.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// An upper bound, a power of two of microseconds, of the `quantile` (0 to 1) of all durations; `None`
    /// when nothing was counted.
    #[must_use]
    pub fn quantile_below(&self, quantile: f64) -> Option<Duration> {
        let total = self.count();
        let rank = ((total as f64 * quantile.clamp(0.0, 1.0)) as u64).clamp(1, total.max(1));
        let mut seen = 0;
        self.counts.iter().enumerate().find_map(|(index, count)| {
            seen += count;
            (*count > 0 && seen >= rank).then(|| Self::bound(index))
        })
    }
}

/// How late timers fired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lateness {
    /// How often, by how much. A timer that was exact counts as well. Counted only for all connections
    /// together.
    pub times: Histogram,
    /// The most; for one connection, rounded up to 10 µs.
    pub most: Duration,
}

impl Lateness {
    pub(crate) fn record(&mut self, late: Duration) {
        self.times.record(late);
        self.most = self.most.max(late);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.times.add(&other.times);
        self.most = self.most.max(other.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_octaves() {
        let us = Duration::from_micros;
        for (span, bucket) in [(us(0), 0), (us(31), 0), (us(32), 1), (us(63), 1), (us(64), 2), (us(1_023), 5)]
        {
            assert_eq!(Histogram::bucket_of(span), bucket, "{span:?}");
            assert!(span < Histogram::bound(bucket));
        }
        assert_eq!(Histogram::bucket_of(Duration::MAX), Histogram::BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_bounds() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile_below(0.5), None);
        for _ in 0..99 {
            histogram.record(Duration::from_micros(100));
        }
        histogram.record(Duration::from_micros(5_000));
        assert_eq!(histogram.quantile_below(0.5), Some(Duration::from_micros(128)));
        assert_eq!(histogram.quantile_below(0.99), Some(Duration::from_micros(128)));
        assert_eq!(histogram.quantile_below(1.0), Some(Duration::from_micros(8_192)));
    }
}
