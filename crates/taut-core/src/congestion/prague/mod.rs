//! Prague: DCTCP for paths with a separate queue that marks early (L4S).
//! RFC 9331 §4 for the obligations of such a sender, draft-briscoe-iccrg-prague-congestion-control-04 §2 for
//! the rules.
//! Called through `congestion/mod.rs`.
//!
//! **Problem.** DCTCP takes no more than its share only where all flows are DCTCP. The shorter its round trip
//! is, the more it takes, since the window grows by one segment in each round trip. On a path with almost no
//! queue, short round trips are very short.
//!
//! **Rule.** With ECT(1), the sender asks for early and frequent marks, and accurate ECN counts them; without
//! accurate ECN, Prague uses no ECN at all. α, the average share of marks, and the reduction by α/2 are
//! DCTCP's. A round trip shorter than 25 ms counts as one of 25 ms: α moves once per 25 ms, and the window
//! grows like that of a flow of the same rate with 25 ms, by (RTT / 25 ms)² segments per round trip. A loss
//! reduces the window by three tenths, as in CUBIC: it means that a queue which others share was full.
//!
//! **Classic queues.** Where the marking queue does not seem to be an L4S queue (`prague/classic.rs`,
//! RFC 9331 §4.3), the window follows Reno (RFC 5681): a mark halves it, and it grows by one segment per
//! round trip. Packets still carry ECT(1), so that a change of the path is noticed.

mod classic;

use super::controller::{AckEvent, Controller, Signal, Window};
use super::{Definition, EcnUse, MIN_SSTHRESH};
use crate::words::{Duration, Instant};
use classic::Classic;

/// For [`Algorithm::prague`](super::Algorithm::prague).
pub(super) fn definition() -> Definition {
    Definition::new("prague", |_| Prague::new()).paced().ecn(EcnUse::L4s)
}

/// g = 1/16, as DCTCP's.
const GAIN_SHIFT: u32 = 4;
/// α = 1: its value until something is known.
const ONE: u32 = 1 << 20;
/// Shorter round trips count as this one.
const REFERENCE_RTT: Duration = Duration::from_millis(25);
/// A loss leaves seven tenths. RFC 9438 §4.6.
const AFTER_LOSS: (u64, u64) = (7, 10);

/// State of a connection.
#[derive(Clone, Copy, Debug)]
struct Prague {
    /// In 2⁻²⁰.
    alpha: u32,
    /// A round trip ends when `una` reaches it; 0 before the first.
    round_end: u64,
    /// When α last moved.
    moved_at: Instant,
    /// Segments delivered since then, and how many of them were marked.
    delivered: u32,
    marked: u32,
    classic: Classic,
}

impl Prague {
    const fn new() -> Self {
        let classic = Classic::NEW;
        Self { alpha: ONE, round_end: 0, moved_at: Instant::ZERO, delivered: 0, marked: 0, classic }
    }

    fn move_alpha(&mut self, now: Instant) {
        if self.delivered > 0 {
            let share = u64::from(self.marked) * u64::from(ONE) / u64::from(self.delivered);
            let share = (share as u32).min(ONE);
            // The least decrement is one, so that α reaches zero.
            let decay = (self.alpha >> GAIN_SHIFT).max(u32::from(self.alpha > 0));
            self.alpha = (self.alpha - decay + (share >> GAIN_SHIFT)).min(ONE);
        }
        self.moved_at = now;
        self.delivered = 0;
        self.marked = 0;
    }
}

/// Segments that must be acknowledged to raise cwnd by one: cwnd, times (25 ms / RTT)² if that is above 1.
fn every(cwnd: u32, rtt: Option<Duration>) -> u32 {
    let rtt_us = rtt.map_or(REFERENCE_RTT, |rtt| rtt.min(REFERENCE_RTT)).as_micros().max(1);
    let reference_us = REFERENCE_RTT.as_micros();
    // 2²⁴ segments and a ratio of (25,000)² stay below 2⁵⁴.
    let every = u64::from(cwnd) * reference_us * reference_us / (rtt_us * rtt_us);
    u32::try_from(every).unwrap_or(u32::MAX)
}

impl Controller for Prague {
    fn observe(&mut self, ack: &AckEvent<'_>) {
        self.delivered = self.delivered.saturating_add(ack.acked);
        self.marked = self.marked.saturating_add(ack.delivered_ce);
        self.classic.on_ack(ack, ack.una >= self.round_end);
        if ack.una < self.round_end {
            return;
        }
        if self.round_end == 0 {
            self.moved_at = ack.now;
        } else if ack.srtt.is_none_or(|srtt| srtt >= REFERENCE_RTT)
            || ack.now.since(self.moved_at) >= REFERENCE_RTT
        {
            self.move_alpha(ack.now);
        }
        self.round_end = ack.nxt;
    }

    fn on_ack(&mut self, window: &mut Window, ack: &AckEvent<'_>) {
        let mut acked = ack.acked.saturating_sub(ack.delivered_ce);
        if window.in_slow_start() {
            acked = window.slow_start(acked);
        }
        if acked > 0 {
            let srtt = ack.srtt.filter(|_| !self.classic.is_shared());
            window.additive(every(window.cwnd(), srtt), acked);
        }
    }

    fn reduce(&mut self, window: &Window, why: Signal, _now: Instant) -> u32 {
        let cwnd = u64::from(window.cwnd());
        let left = match why {
            Signal::Mark if self.classic.is_shared() => cwnd / 2,
            Signal::Mark => cwnd - cwnd * u64::from(self.alpha) / u64::from(2 * ONE),
            Signal::Loss | Signal::LocalQueue | Signal::Timeout => cwnd * AFTER_LOSS.0 / AFTER_LOSS.1,
        };
        (left as u32).max(MIN_SSTHRESH)
    }

    fn describe(&self, to: &mut dyn core::fmt::Write) -> core::fmt::Result {
        write!(to, "alpha:{}/{ONE}", self.alpha)?;
        if self.classic.is_shared() { to.write_str(" classic") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// `rounds` round trips of 100 segments, `marked` of them marked, each taking `rtt`.
    fn after(rounds: u64, marked: u32, rtt: Duration) -> Prague {
        let mut cc = Prague::new();
        for round in 0..rounds {
            for index in 0..100 {
                let at = Instant::ZERO + Duration::from_nanos(rtt.as_nanos() * (round * 100 + index) / 100);
                let mut ack = AckEvent::new(at, 1_448, 1);
                ack.una = round * 100 + index + 1;
                ack.nxt = ack.una + 100;
                ack.srtt = Some(rtt);
                ack.delivered_ce = u32::from(index < u64::from(marked));
                cc.observe(&ack);
            }
        }
        cc
    }

    fn alpha(cc: &Prague) -> f64 {
        f64::from(cc.alpha) / f64::from(ONE)
    }

    #[test]
    fn alpha_moves_once_a_round_trip_or_in_25_ms() {
        // α ← α + (share − α) / 16, from 1 and for a share of a quarter: 1/4 + 3/4 · (15/16)^n.
        let model = |moves: i32| 0.25 + 0.75 * libm::pow(15.0 / 16.0, f64::from(moves));
        assert!((alpha(&after(40, 25, MS(50))) - model(39)).abs() < 0.01);
        // 400 round trips of 5 ms are 80 of 25 ms.
        assert!((alpha(&after(200, 25, MS(5))) - model(39)).abs() < 0.01);
    }

    #[test]
    fn a_round_trip_of_25_ms_is_long_enough_for_alpha() {
        for (rtt_us, alpha) in [(25_000, ONE - ONE / 16), (24_999, ONE)] {
            let mut cc = Prague::new();
            for round in 0..2 {
                let mut ack = AckEvent::new(Instant::ZERO + MS(24 * (round + 1)), 1_448, 1);
                (ack.una, ack.nxt) = (round + 1, round + 2);
                ack.srtt = Some(Duration::from_micros(rtt_us));
                cc.observe(&ack);
            }
            assert_eq!(cc.alpha, alpha, "{rtt_us} µs");
        }
    }

    #[test]
    fn growth_is_that_of_a_path_of_25_ms() {
        // With 100 segments per round trip, growth is one at 25 ms and above; (10/25)² = 4/25 of one at
        // 10 ms.
        assert_eq!(every(100, Some(MS(100))), 100);
        assert_eq!(every(100, Some(MS(25))), 100);
        assert_eq!(every(100, Some(MS(10))), 625);
        assert_eq!(every(100, None), 100);
    }

    #[test]
    fn a_mark_takes_half_of_alpha_and_a_loss_three_tenths() {
        let mut cc = Prague { alpha: ONE / 2, ..Prague::new() };
        assert_eq!(cc.reduce(&Window::new(100), Signal::Mark, Instant::ZERO), 75);
        assert_eq!(cc.reduce(&Window::new(100), Signal::Loss, Instant::ZERO), 70);
        let mut cc = after(400, 0, MS(50));
        assert_eq!(cc.reduce(&Window::new(100), Signal::Mark, Instant::ZERO), 100);
    }

    /// Five round trips with marks, in each of which 3 ms stood in the queue.
    fn in_a_classic_queue() -> Prague {
        let mut cc = Prague::new();
        for round in 0..6 {
            let mut ack = AckEvent::new(Instant::ZERO + MS(13 * round), 1_448, 1);
            (ack.una, ack.nxt) = (round + 1, round + 2);
            (ack.rtt, ack.min_rtt, ack.srtt) = (Some(MS(13)), Some(MS(10)), Some(MS(13)));
            ack.delivered_ce = 1;
            cc.observe(&ack);
        }
        cc
    }

    #[test]
    fn in_a_classic_queue_it_is_reno() {
        // RFC 9331 §4.3, RFC 5681 §3.1: a mark halves the window, which grows by one in a round trip of any
        // length.
        let mut cc = in_a_classic_queue();
        assert_eq!(cc.reduce(&Window::new(100), Signal::Mark, Instant::ZERO), 50);
        assert_eq!(cc.reduce(&Window::new(100), Signal::Loss, Instant::ZERO), 70);
        let mut window = Window::new(10);
        window.leave_slow_start();
        let mut ack = AckEvent::new(Instant::ZERO, 1_448, 10);
        ack.srtt = Some(MS(10));
        cc.on_ack(&mut window, &ack);
        assert_eq!(window.cwnd(), 11);
        // In an L4S queue it is one for 10 · (25/10)² = 62.5 segments.
        let mut window = Window::new(10);
        window.leave_slow_start();
        for (acked, cwnd) in [(61, 10), (1, 11)] {
            ack.acked = acked;
            Prague::new().on_ack(&mut window, &ack);
            assert_eq!(window.cwnd(), cwnd);
        }
    }

    #[test]
    fn marked_segments_raise_no_window() {
        // The draft's §2. Slow start: one for each of the three that were not marked.
        let mut window = Window::new(10);
        let mut ack = AckEvent::new(Instant::ZERO, 1_448, 5);
        ack.delivered_ce = 2;
        Prague::new().on_ack(&mut window, &ack);
        assert_eq!(window.cwnd(), 13);
    }

    #[test]
    fn alpha_stays_between_zero_and_one() {
        // 200 steps of a sixteenth, rounded down, lead from 2²⁰ to 16; from there on each is one.
        assert_eq!(after(400, 0, MS(50)).alpha, 0);
        assert_eq!(after(40, 100, MS(50)).alpha, ONE);
        // A peer that reports more marks than segments: all were marked.
        let mut cc = Prague { alpha: 0, delivered: 10, marked: 20, ..Prague::new() };
        cc.move_alpha(Instant::ZERO);
        assert_eq!(cc.alpha, ONE / 16);
    }

    #[test]
    fn a_round_trip_of_25_ms_is_not_short() {
        // Each of 10 round trips moves α, but the first, in which it is 1 already: (15/16)⁹.
        let model = libm::pow(15.0 / 16.0, 9.0);
        for ms in [25, 26, 100] {
            assert!((alpha(&after(10, 0, MS(ms))) - model).abs() < 0.001, "{ms} ms");
        }
        // 10 round trips of 24 ms: the second is the first that is 25 ms after the last move, and so on.
        assert!((alpha(&after(11, 0, MS(24))) - libm::pow(15.0 / 16.0, 5.0)).abs() < 0.001);
    }

    #[test]
    fn two_segments_are_left_at_least() {
        // RFC 5681 §3.1, equation 4.
        for why in [Signal::Loss, Signal::Mark, Signal::Timeout] {
            assert_eq!(Prague::new().reduce(&Window::new(2), why, Instant::ZERO), 2);
        }
    }
}
