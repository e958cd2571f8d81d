//! Means, confidence intervals and distributions. Called by collectors and tables.

use crate::data::{Bucket, Cell, Histogram};

/// Student's t for a two-sided 95 % interval, by degrees of freedom from 1.
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// Looks up the table, extended to any number of degrees of freedom; `None` for zero.
#[must_use]
pub fn t_95(freedom: usize) -> Option<f64> {
    // Beyond the table it is almost linear in 1/n, down to the normal distribution's 1.960.
    match freedom {
        0 => None,
        1..=30 => T_95.get(freedom - 1).copied(),
        _ => Some(1.960 + (2.042 - 1.960) * 30.0 / freedom as f64),
    }
}

/// Mean and 95 % confidence interval of independent values.
#[must_use]
pub fn cell(values: &[f64]) -> Option<Cell> {
    let count = values.len();
    if count == 0 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / count as f64;
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    let ci95 = t_95(count - 1).map(|t| t * (squares / (count - 1) as f64 / count as f64).sqrt());
    Some(Cell { mean, ci95, values: values.to_vec() })
}

/// Median: of an even number of values, the mean of the two in the middle.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        Some(upper)
    } else {
        Some(f64::midpoint(*sorted.get(sorted.len() / 2 - 1)?, upper))
    }
}

/// Bits of a bucket within its octave: a value is known to one part in 32, small ones exactly.
const SUB_BITS: u32 = 5;
const SUB: u64 = 1 << SUB_BITS;

/// Counts whole numbers by size.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    counts: Vec<u64>,
    count: u64,
    /// Sums are of differences from this value, so that equal values have a deviation of zero.
    first: f64,
    sum: f64,
    squares: f64,
    min: u64,
    max: u64,
}

impl Tally {
    /// Counts a value once.
    pub fn add(&mut self, value: u64) {
        self.add_times(value, 1);
    }

    /// Counts a value `times` times, or with that weight.
    pub fn add_times(&mut self, value: u64, times: u64) {
        if times == 0 {
            return;
        }
        let index = bucket_of(value);
        if self.counts.len() <= index {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] += times;
        if self.count == 0 {
            (self.first, self.min) = (value as f64, value);
        }
        let difference = value as f64 - self.first;
        self.count += times;
        self.sum += difference * times as f64;
        self.squares += difference * difference * times as f64;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Number of values.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Mean; `None` without values.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.first + self.sum / self.count as f64)
    }

    /// Standard deviation; 0 without values.
    #[must_use]
    pub fn stddev(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let mean = self.sum / self.count as f64;
        (self.squares / self.count as f64 - mean * mean).max(0.0).sqrt()
    }

    /// Lowest; 0 without values.
    #[must_use]
    pub const fn min(&self) -> u64 {
        self.min
    }

    /// Highest.
    #[must_use]
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// The value that this share (0 to 1) of all values do not exceed, to 3 %; `None` without values.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let rank = ((self.count as f64 * share).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        let index = self.counts.iter().position(|count| {
            seen += count;
            *count > 0 && seen >= rank
        })?;
        let (from, to) = bounds(index);
        // The values are whole numbers: the middle of 10..11 is 10.
        let middle = from as f64 + ((to - from - 1) as f64) / 2.0;
        Some(middle.clamp(self.min as f64, self.max as f64))
    }

    /// The distribution, in units of `divisor` counted units.
    #[must_use]
    pub fn histogram(&self, name: &str, unit: &str, divisor: f64) -> Histogram {
        let full = self.counts.iter().filter(|count| **count > 0).count();
        // Large distributions are coarser: a quarter of an octave per bucket.
        let group = if full <= 64 { 1 } else { (SUB / 4) as usize };
        let mut buckets: Vec<Bucket> = Vec::new();
        for (index, &count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let start = index / group * group;
            let (from, to) = (bounds(start).0 as f64 / divisor, bounds(start + group - 1).1 as f64 / divisor);
            match buckets.last_mut() {
                Some(last) if last.from == from => last.count += count,
                _ => buckets.push(Bucket { from, to, count }),
            }
        }
        let quantile = |share| self.quantile(share).unwrap_or(0.0) / divisor;
        Histogram {
            name: name.into(),
            unit: unit.into(),
            buckets,
            count: self.count,
            mean: self.mean().unwrap_or(0.0) / divisor,
            stddev: self.stddev() / divisor,
            min: self.min as f64 / divisor,
            max: self.max as f64 / divisor,
            p50: quantile(0.5),
            p99: quantile(0.99),
        }
    }
}

fn bucket_of(value: u64) -> usize {
    if value < SUB {
        return value as usize;
    }
    let octave = value.ilog2() - SUB_BITS;
    (u64::from(octave) * SUB + (value >> octave)) as usize
}

/// First value of a bucket, and the first beyond it.
fn bounds(index: usize) -> (u64, u64) {
    let index = index as u64;
    if index < SUB {
        return (index, index + 1);
    }
    let octave = (index / SUB - 1) as u32;
    let from = (index % SUB + SUB) << octave;
    (from, from.saturating_add(1 << octave))
}

/// A bounded list that keeps its outline: when it is full, every second value is removed, and from then on
/// only every second one is accepted.
#[derive(Clone, Debug)]
pub struct Thinned<T> {
    items: Vec<T>,
    max: usize,
    /// One of this many values is kept.
    stride: u64,
    seen: u64,
}

impl<T> Thinned<T> {
    /// A list that keeps at most `max` values, at least 2.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { items: Vec::new(), max: max.max(2), stride: 1, seen: 0 }
    }

    /// Offers a value, which may be skipped.
    pub fn push(&mut self, item: T) {
        let number = self.seen;
        self.seen += 1;
        if !number.is_multiple_of(self.stride) {
            return;
        }
        if self.items.len() == self.max {
            let mut index = 0_u64;
            self.items.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.stride *= 2;
            if !number.is_multiple_of(self.stride) {
                return;
            }
        }
        self.items.push(item);
    }

    /// Returns the kept values, and the number of the others.
    #[must_use]
    pub fn finish(self) -> (Vec<T>, u64) {
        let left_out = self.seen - self.items.len() as u64;
        (self.items, left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_students() {
        // Five values with mean 3 and variance 2.5: 2.776 · √(2.5 / 5).
        let five = cell(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!(five.mean, 3.0);
        assert!((five.ci95.unwrap() - 1.963).abs() < 0.001, "{five:?}");
        // Two values 10 and 12: the deviation √2 over √2 is 1, times 12.706.
        let two = cell(&[10.0, 12.0]).unwrap();
        assert!((two.ci95.unwrap() - 12.706).abs() < 1e-9);
        assert_eq!(cell(&[7.0]).unwrap().ci95, None);
        assert_eq!(cell(&[]), None);
    }

    #[test]
    fn t_is_that_of_tables() {
        for (freedom, t) in
            [(1, 12.706), (9, 2.262), (30, 2.042), (40, 2.021), (60, 2.000), (120, 1.980), (1_000_000, 1.960)]
        {
            assert!((t_95(freedom).unwrap() - t).abs() < 0.001_5, "{freedom}");
        }
        assert_eq!(t_95(0), None);
    }

    #[test]
    fn buckets_hold_what_they_say() {
        for value in (0..5_000).chain([1 << 20, (1 << 40) + 12_345, u64::MAX >> 1]) {
            let (from, to) = bounds(bucket_of(value));
            assert!(from <= value && value < to, "{value}: {from}..{to}");
            assert!(to - from <= (value / 32).max(1), "{value}: {from}..{to}");
        }
    }

    #[test]
    fn a_tally_knows_its_numbers() {
        let mut tally = Tally::default();
        (1..=100_u64).for_each(|value| tally.add(value));
        assert_eq!((tally.mean(), tally.min(), tally.max()), (Some(50.5), 1, 100));
        // Uniform from 1 to n: √((n² − 1) / 12).
        assert!((tally.stddev() - (9_999.0_f64 / 12.0).sqrt()).abs() < 1e-9);
        assert!((tally.quantile(0.5).unwrap() - 50.0).abs() <= 50.0 / 32.0);
        assert!((tally.quantile(0.99).unwrap() - 99.0).abs() <= 99.0 / 32.0);
        let histogram = tally.histogram("n", "", 1.0);
        assert_eq!(histogram.buckets.iter().map(|bucket| bucket.count).sum::<u64>(), 100);
        let mut weighted = Tally::default();
        weighted.add_times(10, 3);
        weighted.add_times(20, 1);
        assert_eq!(weighted.mean(), Some(12.5));
        assert_eq!(Tally::default().quantile(0.5), None);
    }

    #[test]
    fn thinning_keeps_every_nth() {
        let mut list = Thinned::new(8);
        (0..100).for_each(|value| list.push(value));
        let (kept, left_out) = list.finish();
        assert!(kept.len() <= 8 && kept.len() >= 4);
        assert!(kept.windows(2).all(|pair| pair[1] - pair[0] == kept[1] - kept[0]), "{kept:?}");
        assert_eq!(left_out + kept.len() as u64, 100);
    }
}
