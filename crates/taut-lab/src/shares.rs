//! Goodput of every flow over time, and Jain's index of it: who got what, and when. Filled by the simulator's
//! runner and by the live one at the end of each interval.
//!
//! A run may have a thousand flows and a million intervals. At most [`CELLS_MAX`] values are kept: when they
//! are, each two neighbouring intervals become one, and from then on intervals are twice as long. Bytes are
//! counted, not rates, so nothing is lost by that: the sum over all intervals is what was acknowledged.

use crate::data::{ShareLine, SharePoint, Shares};
use crate::metrics::fairness;

/// Largest number of values, of all flows together: 3 MB as text.
const CELLS_MAX: usize = 100_000;
/// With very many flows, still as many intervals; an even number.
const ROWS_MIN: usize = 16;
/// Flows that have a line.
const LINES_MAX: usize = 1_000;

/// A flow at the end of an interval.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Payload acknowledged since it began.
    pub(crate) acked: u64,
    /// It is connected and has not ended.
    pub(crate) is_open: bool,
}

/// A flow in an interval.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    bytes: u64,
    /// Open at some time of it.
    is_open: bool,
    /// Open from its beginning to its end.
    is_whole: bool,
}

#[derive(Debug)]
struct Row {
    t_s: f64,
    span_s: f64,
    cells: Vec<Cell>,
}

impl Row {
    /// Appends the interval that follows.
    fn join(&mut self, next: &Self) {
        self.t_s = next.t_s;
        self.span_s += next.span_s;
        for (cell, next) in self.cells.iter_mut().zip(&next.cells) {
            cell.bytes += next.bytes;
            cell.is_open |= next.is_open;
            cell.is_whole &= next.is_whole;
        }
    }
}

/// Counts what each flow gets.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// The `[[flows]]` of each flow; `None` for flows beside.
    groups: Vec<Option<usize>>,
    seen: Vec<Seen>,
    rows: Vec<Row>,
    rows_max: usize,
    /// Intervals in a row, a power of two.
    stride: u32,
    /// Intervals in the last row.
    filled: u32,
    end_s: f64,
}

impl Recorder {
    /// `groups`: of each flow, which of the scenario's `[[flows]]` it is of; `None` if it is not measured.
    pub(crate) fn new(groups: Vec<Option<usize>>) -> Self {
        let rows_max = (CELLS_MAX / groups.len().max(1)).max(ROWS_MIN) / 2 * 2;
        let seen = vec![Seen::default(); groups.len()];
        Self { groups, seen, rows: Vec::new(), rows_max, stride: 1, filled: 0, end_s: 0.0 }
    }

    /// An interval ends at `t_s`; `flows` has the state of each flow, in order.
    pub(crate) fn take(&mut self, t_s: f64, flows: impl Iterator<Item = Seen>) {
        let cells = self.seen.iter_mut().zip(flows).map(|(seen, now)| {
            let before = std::mem::replace(seen, now);
            let bytes = now.acked.saturating_sub(before.acked);
            Cell {
                bytes,
                is_open: before.is_open || now.is_open || bytes > 0,
                is_whole: before.is_open && now.is_open,
            }
        });
        let row = Row { t_s, span_s: t_s - self.end_s, cells: cells.collect() };
        self.end_s = t_s;
        if let Some(last) = self.rows.last_mut().filter(|_| self.filled < self.stride) {
            last.join(&row);
            self.filled += 1;
            return;
        }
        if self.rows.len() == self.rows_max {
            let mut rows = std::mem::take(&mut self.rows).into_iter();
            while let Some(mut row) = rows.next() {
                if let Some(next) = rows.next() {
                    row.join(&next);
                }
                self.rows.push(row);
            }
            self.stride *= 2;
        }
        self.rows.push(row);
        self.filled = 1;
    }

    /// The rates, and how even they were.
    pub(crate) fn finish(self) -> Shares {
        let bps =
            |bytes: u64, row: &Row| if row.span_s > 0.0 { bytes as f64 * 8.0 / row.span_s } else { 0.0 };
        let point = |row: &Row| {
            let measured = || self.groups.iter().zip(&row.cells).filter(|(group, _)| group.is_some());
            let whole = |group: Option<usize>| -> Vec<u64> {
                let inside =
                    measured().filter(|(of, cell)| cell.is_whole && (group.is_none() || **of == group));
                inside.map(|(_, cell)| cell.bytes).collect()
            };
            let all = whole(None);
            SharePoint {
                t_s: row.t_s,
                flows: all.len() as u64,
                goodput_bps: bps(measured().map(|(_, cell)| cell.bytes).sum(), row),
                fairness: fairness(&all),
                fairness_of: std::array::from_fn(|group| fairness(&whole(Some(group)))),
            }
        };
        let line = |flow: usize| ShareLine {
            flow: flow as u32,
            goodput_bps: self
                .rows
                .iter()
                .map(|row| Some(row.cells[flow]).filter(|cell| cell.is_open).map(|cell| bps(cell.bytes, row)))
                .collect(),
        };
        let has_values = |line: &ShareLine| line.goodput_bps.iter().any(Option::is_some);
        Shares {
            points: self.rows.iter().map(point).collect(),
            lines: (0..self.groups.len().min(LINES_MAX)).map(line).filter(has_values).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(acked: u64) -> Seen {
        Seen { acked, is_open: true }
    }

    /// Flows that get 1, 2 and 3 Mbit/s: Jain's index is (1 + 2 + 3)² / (3 · (1 + 4 + 9)).
    #[test]
    fn lab_21_fairness_is_jains_of_flows_that_were_open_all_the_time() {
        let mut recorder = Recorder::new(vec![Some(0), Some(0), Some(1), None]);
        let second = |acked: [u64; 4]| acked.map(|mbit| open(mbit * 125_000));
        recorder.take(1.0, second([0, 0, 0, 0]).into_iter());
        recorder.take(2.0, second([1, 2, 3, 40]).into_iter());
        // The third ends in this second, and counts no longer; then nothing arrives.
        let mut last = second([2, 4, 5, 80]);
        last[2].is_open = false;
        recorder.take(3.0, last.into_iter());
        recorder.take(4.0, last.into_iter());
        let shares = recorder.finish();
        let near = |value: Option<f64>, expected: f64| {
            assert!((value.unwrap() - expected).abs() < 1e-12, "{value:?}, not {expected}");
        };
        let [first, second, third, fourth] = &shares.points[..] else { panic!("{shares:?}") };
        assert_eq!((first.flows, first.fairness), (0, None), "nothing was open from the beginning");
        assert_eq!((second.flows, second.goodput_bps), (3, 6e6));
        near(second.fairness, 36.0 / (3.0 * 14.0));
        near(second.fairness_of[0], 9.0 / (2.0 * 5.0));
        near(second.fairness_of[1], 1.0);
        assert_eq!(second.fairness_of[2], None);
        assert_eq!((third.flows, third.goodput_bps), (2, 5e6));
        near(third.fairness, 9.0 / (2.0 * 5.0));
        assert_eq!((fourth.flows, fourth.fairness), (2, None), "nobody got anything");
        let line = |flow: usize| shares.lines[flow].goodput_bps.as_slice();
        assert_eq!(line(2), [Some(0.0), Some(3e6), Some(2e6), None]);
        assert_eq!(line(3), [Some(0.0), Some(40e6), Some(40e6), Some(0.0)]);
    }

    /// A run that is a hundred times too long: intervals grow, the values are bounded, no byte is lost.
    #[test]
    fn lab_20_a_long_run_has_longer_intervals_and_every_byte() {
        const FLOWS: usize = 50;
        let mut recorder = Recorder::new(vec![Some(0); FLOWS]);
        let intervals = 100 * CELLS_MAX / FLOWS;
        for at in 1..=intervals as u64 {
            recorder.take(at as f64, (1..=FLOWS as u64).map(|flow| open(at * flow * 1_000)));
            assert!(recorder.rows.len() * FLOWS <= CELLS_MAX);
        }
        let shares = recorder.finish();
        assert!(shares.points.len() * FLOWS > CELLS_MAX / 4, "{} rows", shares.points.len());
        assert_eq!(shares.points.last().unwrap().t_s, intervals as f64);
        for line in &shares.lines {
            let (mut bytes, mut from) = (0.0, 0.0);
            for (point, bps) in shares.points.iter().zip(&line.goodput_bps) {
                bytes += bps.unwrap() / 8.0 * (point.t_s - from);
                from = point.t_s;
            }
            let expected = intervals as f64 * f64::from(line.flow + 1) * 1_000.0;
            assert!((bytes - expected).abs() < expected * 1e-9, "{bytes}, not {expected}");
        }
    }
}
