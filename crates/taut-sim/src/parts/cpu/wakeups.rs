//! How late a thread wakes up, drawn from distributions that were measured. Called by the host, when
//! something happens while its core sleeps.
//!
//! Measured with `make bench-lateness BENCH_ARGS="--work 300"` of commit 529471b5 (and `--busy`) under Linux
//! 6.18 on two cores: a thread waits 1 ms for a timer and works 300 µs, quiet and with an endless loop on
//! each core. The busy table is the round of three whose 95th percentile is the median, the quiet one the
//! first of two. Between two quantiles, the distribution is uniform.

use taut_core::Duration;

use crate::rng::Rng;

/// When the thread that does a host's work wakes up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wakeups {
    /// At once.
    #[default]
    Exact,
    /// As on a machine that has nothing else to do: some tens of microseconds late, one in a thousand more
    /// than 0.8 ms.
    Quiet,
    /// As on a machine whose cores are all kept busy by other programs: one in ten half a millisecond late or
    /// more, one in twenty 4 ms, one in a hundred 7 ms.
    Busy,
    /// This late each time.
    Late(Duration),
}

/// A quantile in thousandths, and a time in units of 100 ns.
type Quantile = (u32, u32);

const QUIET: [Quantile; 12] = [
    (0, 171),
    (100, 243),
    (250, 253),
    (500, 274),
    (600, 285),
    (700, 292),
    (800, 302),
    (900, 318),
    (950, 348),
    (990, 584),
    (999, 8_357),
    (1_000, 38_450),
];

const BUSY: [Quantile; 12] = [
    (0, 136),
    (100, 152),
    (250, 156),
    (500, 162),
    (600, 165),
    (700, 171),
    (800, 187),
    (900, 4_560),
    (950, 41_757),
    (990, 68_581),
    (999, 81_074),
    (1_000, 114_775),
];

impl Wakeups {
    /// How late the thread is this time.
    pub(crate) fn lateness(self, rng: &mut Rng) -> Duration {
        let table = match self {
            Self::Exact => return Duration::ZERO,
            Self::Late(time) => return time,
            Self::Quiet => &QUIET,
            Self::Busy => &BUSY,
        };
        at(table, rng.unit())
    }
}

/// The time at a place from 0 to 1 of a distribution.
fn at(table: &[Quantile], place: f64) -> Duration {
    let place = place * 1_000.0;
    let ns = table.windows(2).find_map(|pair| match *pair {
        [(from, least), (to, most)] if place <= f64::from(to) => {
            let share = (place - f64::from(from)) / f64::from(to - from);
            Some((f64::from(least) + share * f64::from(most - least)) * 100.0)
        }
        _ => None,
    });
    Duration::from_nanos(ns.unwrap_or_default() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_come_out_as_they_were_measured() {
        for table in [QUIET, BUSY] {
            assert!(table.is_sorted());
            for (quantile, time) in table {
                let drawn = at(&table, f64::from(quantile) / 1_000.0).as_nanos();
                assert!(drawn.abs_diff(u64::from(time) * 100) <= 1, "{quantile}: {drawn}");
            }
        }
        // Half-way between 15.6 and 16.2 µs.
        assert_eq!(at(&BUSY, 0.375), Duration::from_nanos(15_900));
    }

    #[test]
    fn draws_have_the_distribution() {
        let mut rng = Rng::new(1);
        let mut drawn: Vec<_> = (0..100_000).map(|_| Wakeups::Busy.lateness(&mut rng)).collect();
        drawn.sort_unstable();
        let near = |place: usize, expected_us: u64| {
            let us = drawn[place * drawn.len() / 1_000].as_micros();
            assert!(us.abs_diff(expected_us) * 50 <= expected_us, "{place}: {us} µs");
        };
        near(990, 6_858);
        near(999, 8_107);
        near(500, 16);
        assert_eq!(Wakeups::Exact.lateness(&mut rng), Duration::ZERO);
    }
}
