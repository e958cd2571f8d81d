//! What held connections back, and how long bytes waited where: the answer to "why is my upload slow".
//! Ours; made from the ledger of a connection or of the whole stack on request.

use crate::egress::{Blocked, Gate, Queue};
use crate::units::Duration;

/// Durations counted by their binary logarithm: bucket 0 is below 32 µs, bucket n from 2ⁿ⁺⁴ to 2ⁿ⁺⁵ µs, the last
/// everything from half a second on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; Self::BUCKETS],
}

impl Histogram {
    /// Buckets there are.
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

    /// Durations in bucket `index` are below this; the last bucket has no bound, and tells the one it would have.
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

    /// Count of each bucket.
    #[must_use]
    pub const fn counts(&self) -> &[u64; Self::BUCKETS] {
        &self.counts
    }

    /// All counts together.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// An upper bound, a power of two of microseconds, of the `quantile` (0 to 1) of all durations; `None` when nothing
    /// was counted.
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

/// One of the queues that bytes wait in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueReport {
    /// `unsent`, `device` or `in flight`.
    pub name: &'static str,
    /// Payload bytes there now.
    pub bytes: u64,
    /// How long the oldest of them has been there, as far as is known: for `unsent` a lower bound, for `device` an
    /// upper one; `None` when there is none.
    pub oldest: Option<Duration>,
    /// How long bytes stayed, by samples.
    pub sojourn: Histogram,
}

/// What held a connection back since its first write, or all connections of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Time with each gate shut, by [`Blocked`]'s names, in the order of the gates.
    pub shares: [(&'static str, Duration); Blocked::COUNT],
    /// Unsent, device, in flight.
    pub queues: [QueueReport; 3],
}

impl Default for Report {
    fn default() -> Self {
        Self::new()
    }
}

impl Report {
    pub(crate) fn new() -> Self {
        let empty = |queue: Queue| QueueReport {
            name: queue.name(),
            bytes: 0,
            oldest: None,
            sojourn: Histogram::default(),
        };
        Self { shares: Gate::ALL.map(|gate| (gate.name(), Duration::ZERO)), queues: Queue::ALL.map(empty) }
    }

    /// Adds another's: for several stacks that are one to their user.
    pub fn add(&mut self, other: &Self) {
        for ((_, share), (_, more)) in self.shares.iter_mut().zip(other.shares) {
            *share += more;
        }
        for (queue, more) in self.queues.iter_mut().zip(&other.queues) {
            queue.bytes += more.bytes;
            queue.oldest = queue.oldest.max(more.oldest);
            queue.sojourn.add(&more.sojourn);
        }
    }
}

/// Sums over all connections that a stack ever had.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) shares: [Duration; Gate::COUNT],
    pub(crate) sojourn: [Histogram; 3],
}

impl Totals {
    pub(crate) fn add_share(&mut self, gate: Gate, span: Duration) {
        if let Some(share) = self.shares.get_mut(gate as usize) {
            *share += span;
        }
    }

    pub(crate) fn add_sojourn(&mut self, queue: Queue, span: Duration) {
        if let Some(histogram) = self.sojourn.get_mut(queue as usize) {
            histogram.record(span);
        }
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
