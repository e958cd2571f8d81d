//! The distribution of numbers: counts in buckets, each at most an eighth wider than the previous one, so
//! that a quantile is known to about 6 % in a fixed 4 KB. A host queue records its backlog at every packet
//! with it.

use core::fmt;

/// Buckets for each power of two.
const STEPS: usize = 8;
const STEP_BITS: u32 = STEPS.trailing_zeros();
const BUCKETS: usize = (64 - STEP_BITS as usize + 1) * STEPS;

/// A distribution of numbers.
#[derive(Clone, PartialEq, Eq)]
pub struct Spread {
    buckets: [u64; BUCKETS],
    count: u64,
    sum: u128,
}

impl fmt::Debug for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, .. } = self;
        write!(f, "{count} of mean {:.1}, median {}, max {}", self.mean(), self.quantile(0.5), self.max())
    }
}

impl Default for Spread {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], count: 0, sum: 0 }
    }
}

/// Each number below [`STEPS`] has its own bucket; above, the highest bits determine the bucket.
fn bucket(value: u64) -> usize {
    let high = (u64::BITS - value.leading_zeros()).saturating_sub(STEP_BITS + 1);
    (value >> high) as usize + high as usize * STEPS
}

/// The largest number in a bucket.
fn top(bucket: usize) -> u64 {
    let high = (bucket / STEPS).saturating_sub(1);
    let first = (bucket - high * STEPS) as u64;
    // The last bucket ends at the largest number.
    ((u128::from(first) + 1) << high).wrapping_sub(1) as u64
}

impl Spread {
    /// Counts a number.
    pub fn record(&mut self, value: u64) {
        self.buckets[bucket(value)] += 1;
        self.count += 1;
        self.sum += u128::from(value);
    }

    /// Number of values.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The exact mean; 0 without values.
    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// The value that a share of `quantile` (0 to 1) does not exceed, rounded up to the end of its bucket; 0
    /// without values.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> u64 {
        let rank = (quantile.clamp(0.0, 1.0) * self.count as f64 + 0.999_999) as u64;
        let rank = rank.clamp(1, self.count.max(1));
        let mut seen = 0;
        for (index, &count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return top(index);
            }
        }
        0
    }

    /// The largest value, rounded up to the end of its bucket.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.quantile(1.0)
    }

    /// The values counted since `earlier`, a previous copy of this.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut later = self.clone();
        for (count, before) in later.buckets.iter_mut().zip(&earlier.buckets) {
            *count = count.saturating_sub(*before);
        }
        later.count = later.count.saturating_sub(earlier.count);
        later.sum = later.sum.saturating_sub(earlier.sum);
        later
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!(top(BUCKETS - 1), u64::MAX);
        for index in 0..BUCKETS - 1 {
            assert_eq!(bucket(top(index)), index);
            assert_eq!(bucket(top(index) + 1), index + 1);
        }
    }

    #[test]
    fn quantiles_are_known_to_an_eighth() {
        let mut spread = Spread::default();
        assert_eq!((spread.quantile(0.5), spread.max(), spread.mean()), (0, 0, 0.0));
        (1..=1_000).for_each(|value| spread.record(value));
        assert_eq!((spread.count(), spread.mean()), (1_000, 500.5));
        assert!((500..=562).contains(&spread.quantile(0.5)));
        assert!((990..=1_125).contains(&spread.quantile(0.99)));
        assert!((1_000..=1_125).contains(&spread.max()));
        assert_eq!(spread.quantile(0.0), 1);
    }

    #[test]
    fn an_interval_can_be_cut_out() {
        let mut spread = Spread::default();
        spread.record(1_000_000);
        let before = spread.clone();
        spread.record(5);
        let later = spread.since(&before);
        assert_eq!((later.count(), later.max(), later.mean()), (1, 5, 5.0));
    }
}
