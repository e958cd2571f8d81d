//! Draws fewer points than were measured without hiding any extreme.
//!
//! A picture is a few hundred pixels wide. Of each slice of time, the samples with the least or largest value
//! of any drawn series are kept, and the first and the last sample. All kept values were measured; nothing is
//! averaged or invented.

use std::collections::BTreeSet;

/// Number of slices in a picture.
pub(crate) const SLICES: usize = 240;

/// The indices, ascending, of the samples to draw. `times` ascend; each series in `columns` is as long as
/// `times`. All samples are kept when there are few.
pub(crate) fn keep(times: &[f64], columns: &[&[f64]], slices: usize) -> Vec<usize> {
    let len = columns.iter().map(|column| column.len()).fold(times.len(), usize::min);
    // Two samples of each series and slice may be kept.
    if len <= slices * 2 * columns.len().max(1) {
        return (0..len).collect();
    }
    let (first, last) = (times[0], times[len - 1]);
    let width = (last - first) / slices as f64;
    let slice_of = |time: f64| if width > 0.0 { ((time - first) / width) as usize } else { 0 };
    let mut kept = BTreeSet::from([0, len - 1]);
    let mut from = 0;
    while from < len {
        let slice = slice_of(times[from]);
        let inside = times[from..len].iter().take_while(|time| slice_of(**time) == slice).count().max(1);
        for column in columns {
            kept.extend(extremes(&column[from..from + inside]).into_iter().flatten().map(|at| from + at));
        }
        from += inside;
    }
    kept.into_iter().collect()
}

/// Positions of the least and largest values that are numbers.
fn extremes(values: &[f64]) -> [Option<usize>; 2] {
    let finite = || values.iter().enumerate().filter(|(_, value)| value.is_finite());
    let least = finite().min_by(|a, b| a.1.total_cmp(b.1)).map(|(at, _)| at);
    let largest = finite().max_by(|a, b| a.1.total_cmp(b.1)).map(|(at, _)| at);
    [least, largest]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::report::scale::range;

    #[test]
    fn few_samples_stay_as_they_are() {
        assert_eq!(keep(&[], &[&[]], 10), [0usize; 0]);
        assert_eq!(keep(&[1.0, 1.0, 1.0], &[&[3.0, 4.0, 5.0]], 10), [0, 1, 2]);
    }

    #[test]
    fn all_at_one_time_do_not_divide_by_zero() {
        let (times, values) = (vec![2.0; 1000], (0..1000).map(f64::from).collect::<Vec<_>>());
        assert_eq!(keep(&times, &[&values], 4), [0, 999]);
    }

    proptest! {
        /// In every slice, the least and largest values of every series are drawn, and no more than there is
        /// room for.
        #[test]
        fn extremes_stay(
            samples in prop::collection::vec((0.0..1.0f64, -1e9..1e9f64, 0.0..1e3f64), 1..600),
            slices in 1usize..20,
        ) {
            let mut time = 0.0;
            let times: Vec<f64> = samples.iter().map(|sample| { time += sample.0; time }).collect();
            let a: Vec<f64> = samples.iter().map(|sample| sample.1).collect();
            let b: Vec<f64> = samples.iter().map(|sample| sample.2).collect();
            let kept = keep(&times, &[&a, &b], slices);
            prop_assert!(kept.windows(2).all(|pair| pair[0] < pair[1]));
            // One more slice: the last sample lies on the end of the last slice.
            prop_assert!(kept.len() <= 4 * (slices + 1) + 2);
            prop_assert_eq!(kept.first(), Some(&0));
            prop_assert_eq!(kept.last(), Some(&(samples.len() - 1)));
            let width = (times[times.len() - 1] - times[0]) / slices as f64;
            for slice in 0..slices {
                let (from, to) = (times[0] + slice as f64 * width, times[0] + (slice + 1) as f64 * width);
                // The function divides and this test multiplies: a sample within a rounding of a border may
                // be in either slice. The samples looked at lie clear of borders, the drawn may be on them.
                let slack = width * 1e-6;
                let inside = |at: usize| times[at] > from + slack && times[at] < to - slack;
                let near = |at: usize| times[at] >= from - slack && times[at] <= to + slack;
                for column in [&a, &b] {
                    let all = range((0..samples.len()).filter(|at| inside(*at)).map(|at| column[at]));
                    let drawn = range(kept.iter().copied().filter(|at| near(*at)).map(|at| column[at]));
                    if let Some((low, high)) = all {
                        let (drawn_low, drawn_high) = drawn.expect("a slice with samples keeps some");
                        prop_assert!(drawn_low <= low && drawn_high >= high);
                    }
                }
            }
        }
    }
}
