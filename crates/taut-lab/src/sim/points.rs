//! The packets that a run keeps for time-sequence graphs: the first [`HEAD_MAX`], and later those around
//! losses. Called by the collector.
//!
//! ```text
//!   the first 20,000, all flows ────────┐    ┌──── a loss: a window of one flow ────┐
//!   ████████████████████████████████████     ▒▒▒▒▒▒│▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒     ▒▒▒│▒▒▒▒▒▒▒▒▒
//!                                          −1 RTT  0                  +3 RTT
//! ```
//!
//! A loss is a packet with payload that was dropped on the way, or one that was retransmitted. It opens a
//! window of its flow, unless one is open: so a drop, its retransmission and what follows are in one window.
//! Packets from before the loss come from a ring of the flow's last packets.
//!
//! Memory is bounded however long the run is: a window ends early when it has [`WINDOW_POINTS_MAX`] points,
//! and of [`WINDOWS_MAX`] windows every second is removed, so that those that stay are spread over the run
//! (`stats::Thinned`). That is at most 20,000 + 64 · 1,000 points, about 3 MB in a file.

use std::collections::{BTreeMap, VecDeque};

use taut_core::Duration;

use super::collect::Key;
use crate::data::{LossWindow, PacketPoint, PointKind, Traced};
use crate::stats::Thinned;
use crate::view;

/// Largest number of points from the beginning of the run.
const HEAD_MAX: usize = 20_000;
/// Largest number of points of a window: the sender's packets and ACKs of a few round trips at a gigabit.
const WINDOW_POINTS_MAX: usize = 1_000;
/// Largest number of windows.
const WINDOWS_MAX: usize = 64;
/// Points of a flow that are remembered for the next loss: a part of a window, so that the rest shows what
/// followed.
const RECENT_MAX: usize = WINDOW_POINTS_MAX / 4;
/// Round-trip times before and after a loss.
const BEFORE: f64 = 1.0;
const AFTER: f64 = 3.0;
/// The round-trip time while there is no sample.
const NO_SAMPLE: Duration = Duration::from_millis(100);

/// A window around a loss.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) key: Key,
    /// The time of the loss.
    pub(super) t_s: f64,
    pub(super) from_s: f64,
    pub(super) to_s: f64,
    pub(super) losses: u64,
    /// Points that are not among the first of the run.
    points: Vec<PacketPoint>,
}

/// The points of a run.
#[derive(Debug)]
pub(super) struct Points {
    head: Vec<(Key, PacketPoint)>,
    recent: BTreeMap<Key, VecDeque<PacketPoint>>,
    open: BTreeMap<Key, Window>,
    done: Thinned<Window>,
    seen: u64,
    losses: u64,
}

/// What is kept of a run.
#[derive(Debug)]
pub(super) struct Kept {
    /// In order of time.
    pub(super) points: Vec<(Key, PacketPoint)>,
    pub(super) points_left_out: u64,
    /// The time of the last point before the first that may be missing.
    pub(super) whole_until_s: Option<f64>,
    /// In order of time.
    pub(super) windows: Vec<Window>,
    pub(super) losses: u64,
}

impl Points {
    pub(super) fn new() -> Self {
        Self {
            head: Vec::new(),
            recent: BTreeMap::new(),
            open: BTreeMap::new(),
            done: Thinned::new(WINDOWS_MAX),
            seen: 0,
            losses: 0,
        }
    }

    /// A point of a flow, whose last round-trip time was `rtt`.
    pub(super) fn push(&mut self, key: Key, point: PacketPoint, rtt: Option<Duration>) {
        self.seen += 1;
        let is_late = self.head.len() == HEAD_MAX;
        if matches!(point.kind, PointKind::Retransmit | PointKind::Drop) {
            self.lost(key, &point, rtt.unwrap_or(NO_SAMPLE), is_late);
        }
        if !is_late {
            self.head.push((key, point));
            return;
        }
        if let Some(window) = self.open.get_mut(&key).filter(|window| point.t_s <= window.to_s) {
            window.points.push(point);
            if window.points.len() == WINDOW_POINTS_MAX {
                window.to_s = point.t_s;
            }
        }
        let recent = self.recent.entry(key).or_default();
        if recent.len() == RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back(point);
    }

    /// A packet is lost: it belongs to the flow's window, or opens the next one.
    fn lost(&mut self, key: Key, point: &PacketPoint, rtt: Duration, is_late: bool) {
        self.losses += 1;
        let rtt_s = view::seconds(rtt);
        let is_open = |window: &Window| point.t_s <= window.to_s && window.points.len() < WINDOW_POINTS_MAX;
        if let Some(window) = self.open.get_mut(&key).filter(|window| is_open(window)) {
            window.losses += 1;
            return;
        }
        let recent = self.recent.get(&key).filter(|_| is_late);
        // A full ring may have lost points of this time.
        let known_s = recent.filter(|recent| recent.len() == RECENT_MAX).and_then(|recent| recent.front());
        let known_s = known_s.map_or(0.0, |point| point.t_s);
        let from_s = (point.t_s - BEFORE * rtt_s).max(known_s);
        let window = Window {
            key,
            t_s: point.t_s,
            from_s,
            to_s: point.t_s + AFTER * rtt_s,
            losses: 1,
            points: recent.into_iter().flatten().filter(|point| point.t_s >= from_s).copied().collect(),
        };
        if let Some(done) = self.open.insert(key, window) {
            self.done.push(done);
        }
    }

    /// What was kept of a run that ended at `end_s`.
    pub(super) fn finish(mut self, end_s: f64) -> Kept {
        for window in self.open.into_values() {
            self.done.push(window);
        }
        let (mut windows, _) = self.done.finish();
        windows.sort_by(|a, b| a.t_s.total_cmp(&b.t_s));
        let whole_until_s =
            self.head.last().filter(|_| self.seen > self.head.len() as u64).map(|(_, point)| point.t_s);
        let mut late: Vec<(Key, PacketPoint)> = Vec::new();
        for window in &mut windows {
            late.extend(window.points.drain(..).map(|point| (window.key, point)));
            window.to_s = window.to_s.min(end_s);
        }
        // Two windows of a flow share the points between them.
        let order = |(key, point): &(Key, PacketPoint)| (*key, point.seq, point.len, point.kind);
        late.sort_by(|a, b| a.1.t_s.total_cmp(&b.1.t_s).then_with(|| order(a).cmp(&order(b))));
        late.dedup();
        let mut points = self.head;
        points.extend(late);
        points.sort_by(|a, b| a.1.t_s.total_cmp(&b.1.t_s));
        Kept {
            points_left_out: self.seen - points.len() as u64,
            points,
            whole_until_s,
            windows,
            losses: self.losses,
        }
    }
}

impl Kept {
    /// The packets and the losses of the flows with these keys.
    pub(super) fn of(self, keys: &BTreeMap<Key, u32>) -> (Vec<PacketPoint>, Traced) {
        let known = self.points.into_iter().filter_map(|(key, point)| Some((*keys.get(&key)?, point)));
        let packets = known.map(|(flow, point)| PacketPoint { flow, ..point }).collect();
        let windows = self.windows.into_iter().filter_map(|window| {
            let (t_s, from_s, to_s, losses) = (window.t_s, window.from_s, window.to_s, window.losses);
            Some(LossWindow { flow: *keys.get(&window.key)?, t_s, from_s, to_s, losses })
        });
        let windows = windows.collect();
        (packets, Traced { whole_until_s: self.whole_until_s, losses: self.losses, windows })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = (0, 1, 2);
    const RTT: Duration = Duration::from_millis(100);

    /// A point each millisecond; every `each` of them a drop.
    fn run(points: u64, each: u64) -> Kept {
        let mut trace = Points::new();
        for at in 0..points {
            let kind = if at % each == each - 1 { PointKind::Drop } else { PointKind::Data };
            let point = PacketPoint { t_s: at as f64 / 1e3, flow: 0, seq: at * 1_448, len: 1_448, kind };
            trace.push(KEY, point, Some(RTT));
        }
        trace.finish(points as f64 / 1e3)
    }

    #[test]
    fn lab_23_a_loss_long_after_the_first_packets_has_a_window() {
        // Drops at 29.999 s and 59.999 s; the first 20,000 points end at 19.999 s.
        let kept = run(70_000, 30_000);
        assert_eq!((kept.losses, kept.windows.len(), kept.whole_until_s), (2, 2, Some(19.999)));
        for (window, t_s) in kept.windows.iter().zip([29.999, 59.999]) {
            assert_eq!((window.t_s, window.losses), (t_s, 1));
            // A round trip of 100 ms before, three after: with the loss, 401 points.
            let inside = |t: f64| (window.from_s - 1e-9..=window.to_s + 1e-9).contains(&t);
            assert!((window.from_s - (t_s - 0.1)).abs() < 1e-9 && (window.to_s - (t_s + 0.3)).abs() < 1e-9);
            let count = kept.points.iter().filter(|(_, point)| inside(point.t_s)).count();
            assert!((399..=401).contains(&count), "{count}");
        }
        assert_eq!(kept.points.len() as u64 + kept.points_left_out, 70_000);
        assert!(kept.points.windows(2).all(|pair| pair[0].1.t_s <= pair[1].1.t_s));
    }

    #[test]
    fn lab_23_losses_of_one_round_trip_share_a_window_and_overlapping_ones_no_point() {
        // A drop each 350 ms: each window ends 50 ms before the next drop, and begins before the one before
        // ended. Few enough that none is removed.
        let kept = run(22_000, 350);
        assert_eq!(kept.windows.len(), 62);
        let mut times: Vec<f64> = kept.points.iter().map(|(_, point)| point.t_s).collect();
        times.dedup();
        assert_eq!(times.len(), kept.points.len(), "no point twice");
        // A drop each 70 ms: with the first, five in 300 ms. The run may end before the last window does.
        let kept = run(40_000, 70);
        let (_, whole) = kept.windows.split_last().unwrap();
        assert!(whole.len() > 30 && whole.iter().all(|window| window.losses == 5), "{whole:?}");
    }

    #[test]
    fn lab_24_a_long_run_keeps_a_bounded_number_of_windows_spread_over_it() {
        let kept = run(3_000_000, 1_000);
        assert_eq!(kept.losses, 3_000);
        assert!((WINDOWS_MAX / 2..=WINDOWS_MAX).contains(&kept.windows.len()), "{}", kept.windows.len());
        assert!(kept.points.len() <= HEAD_MAX + WINDOWS_MAX * WINDOW_POINTS_MAX);
        let gaps: Vec<f64> = kept.windows.windows(2).map(|pair| pair[1].t_s - pair[0].t_s).collect();
        assert!(gaps.iter().all(|gap| (gap - gaps[0]).abs() < 1e-6), "{gaps:?}");
        assert!(kept.windows.last().unwrap().t_s > 3_000.0 * 0.95);
        let shown: u64 = kept.windows.iter().map(|window| window.losses).sum();
        assert!(shown < kept.losses, "some have none");
    }

    #[test]
    fn lab_24_a_window_of_a_fast_flow_ends_early() {
        let mut trace = Points::new();
        let mut push = |at: u64, kind| {
            let point = PacketPoint { t_s: at as f64 / 1e6, flow: 0, seq: at, len: 1, kind };
            trace.push(KEY, point, Some(RTT));
        };
        (0..HEAD_MAX as u64).for_each(|at| push(at, PointKind::Data));
        push(20_000, PointKind::Drop);
        (20_001..50_000).for_each(|at| push(at, PointKind::Data));
        let kept = trace.finish(1.0);
        assert_eq!(kept.points.len(), HEAD_MAX + WINDOW_POINTS_MAX);
        assert_eq!(kept.windows[0].to_s, kept.points.last().unwrap().1.t_s);
    }
}
