//! DCTCP: reduce by how much was marked, not by whether anything was.
//! RFC 8257. Called through `congestion/mod.rs`.
//!
//! **Problem.** To RFC 3168, one mark in a window counts as much as a hundred: the window halves. With a
//! switch that marks early, to keep its queue short, the link is then idle half of the time.
//!
//! **Rule.** α is a running average of the share of marked segments, updated once per round trip with gain
//! 1/16; a mark reduces cwnd by α/2. A loss halves cwnd. Growth is Reno's.

use super::controller::{AckEvent, Controller, Signal, Window};
use super::{Definition, EcnUse, MIN_SSTHRESH, reno};
use crate::words::Instant;

/// For [`Algorithm::dctcp`](super::Algorithm::dctcp).
pub(super) fn definition() -> Definition {
    Definition::new("dctcp", |_| Dctcp::new()).ecn(EcnUse::Precise)
}

/// g = 1/16. RFC 8257 §4.2.
const GAIN_SHIFT: u32 = 4;
/// α = 1, its initial value: as if everything had been marked, until something is known (RFC 8257 §4.2).
const ONE: u32 = 1 << 10;

/// RFC 8257 §3.3.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dctcp {
    /// In 1024ths.
    alpha: u32,
    /// A round trip ends when `una` reaches it; 0 before the first.
    round_end: u64,
    delivered: u32,
    marked: u32,
}

impl Dctcp {
    pub(super) const fn new() -> Self {
        Self { alpha: ONE, round_end: 0, delivered: 0, marked: 0 }
    }

    /// RFC 8257 §3.3, steps 5 to 9.
    fn end_round(&mut self) {
        if self.delivered > 0 {
            let share = u64::from(self.marked) * u64::from(ONE) / u64::from(self.delivered);
            let share = (share as u32).min(ONE);
            // α ← (1 − g)·α + g·M; the least decrement is 1/1024, so that α reaches zero.
            let decay = (self.alpha >> GAIN_SHIFT).max(u32::from(self.alpha > 0));
            self.alpha = (self.alpha - decay + (share >> GAIN_SHIFT)).min(ONE);
        }
        self.delivered = 0;
        self.marked = 0;
    }
}

impl Controller for Dctcp {
    fn observe(&mut self, ack: &AckEvent<'_>) {
        self.delivered = self.delivered.saturating_add(ack.acked);
        self.marked = self.marked.saturating_add(ack.delivered_ce);
        if ack.una >= self.round_end {
            if self.round_end != 0 {
                self.end_round();
            }
            self.round_end = ack.nxt;
        }
    }

    fn on_ack(&mut self, window: &mut Window, ack: &AckEvent<'_>) {
        reno::grow(window, ack.acked);
    }

    fn reduce(&mut self, window: &Window, why: Signal, _now: Instant) -> u32 {
        let cwnd = window.cwnd();
        let by = match why {
            // RFC 8257 §3.3: cwnd ← cwnd · (1 − α/2).
            Signal::Mark => (u64::from(cwnd) * u64::from(self.alpha) / u64::from(2 * ONE)) as u32,
            // RFC 8257 §3.5: the response to loss does not change.
            Signal::Loss | Signal::LocalQueue | Signal::Timeout => cwnd / 2,
        };
        (cwnd - by).max(MIN_SSTHRESH)
    }

    fn describe(&self, to: &mut dyn core::fmt::Write) -> core::fmt::Result {
        write!(to, "alpha:{}/{ONE}", self.alpha)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One round trip in which `marked` of 100 segments were marked.
    fn round(cc: &mut Dctcp, number: u64, marked: u32) {
        for index in 0..100 {
            let mut ack = AckEvent::new(Instant::ZERO, 1_448, 1);
            ack.una = number * 100 + index + 1;
            ack.nxt = ack.una + 100;
            ack.delivered_ce = u32::from(index < u64::from(marked));
            cc.observe(&ack);
        }
    }

    #[test]
    fn dctcp_01_alpha_is_one_until_something_is_known() {
        // RFC 8257 §4.2: the first mark halves the window.
        assert_eq!(Dctcp::new().reduce(&Window::new(100), Signal::Mark, Instant::ZERO), 50);
    }

    #[test]
    fn dctcp_02_alpha_moves_once_a_window_by_a_sixteenth() {
        // §3.3: α ← 15/16 · α + 1/16 · M, of 1: with M = 1/4 0.953, then 0.909, in 1024ths; the decrement is
        // rounded down.
        let mut cc = Dctcp::new();
        // The ACK that ends a window is the first one beyond what was sent when it began.
        for (number, alpha) in [(0, 1_024), (1, 976), (2, 931)] {
            round(&mut cc, number, 25);
            assert_eq!(cc.alpha, alpha, "{number}");
        }
        // To real numbers, in the end.
        for number in 3..40 {
            round(&mut cc, number, 25);
        }
        let model = (0..39).fold(1.0, |alpha, _| alpha * 15.0 / 16.0 + 0.25 / 16.0);
        assert!((f64::from(cc.alpha) / 1024.0 - model).abs() < 0.02, "{} {model}", cc.alpha);
    }

    #[test]
    fn dctcp_03_a_window_ends_with_what_was_sent_when_it_began() {
        let mut cc = Dctcp::new();
        let mut ack = AckEvent::new(Instant::ZERO, 1_448, 1);
        let mut at = |una, nxt| {
            (ack.una, ack.nxt) = (una, nxt);
            cc.observe(&ack);
            cc.alpha
        };
        assert_eq!(at(1, 101), 1_024);
        assert_eq!(at(100, 201), 1_024);
        assert_eq!(at(101, 202), 960, "nothing was marked: 15/16");
        assert_eq!(at(201, 302), 960);
        assert_eq!(at(202, 303), 900);
    }

    #[test]
    fn dctcp_04_a_mark_takes_half_of_alpha() {
        // §3.3: cwnd · (1 − α/2); two segments at least.
        for (alpha, cwnd, left) in
            [(ONE, 100, 50), (ONE / 2, 100, 75), (ONE / 4, 100, 88), (0, 100, 100), (ONE, 3, 2)]
        {
            let mut cc = Dctcp { alpha, ..Dctcp::new() };
            assert_eq!(cc.reduce(&Window::new(cwnd), Signal::Mark, Instant::ZERO), left, "{alpha} {cwnd}");
        }
    }

    #[test]
    fn dctcp_05_a_loss_takes_half_of_all() {
        // §3.5.
        for why in [Signal::Loss, Signal::LocalQueue, Signal::Timeout] {
            let mut cc = Dctcp { alpha: ONE / 4, ..Dctcp::new() };
            assert_eq!(cc.reduce(&Window::new(100), why, Instant::ZERO), 50);
        }
    }

    #[test]
    fn dctcp_06_alpha_reaches_zero_without_marks() {
        // Linux: the least decrement is 1/1024.
        let mut cc = Dctcp::new();
        for number in 0..200 {
            round(&mut cc, number, 0);
        }
        assert_eq!(cc.alpha, 0);
        // And one when all is marked.
        for number in 200..400 {
            round(&mut cc, number, 100);
        }
        assert!(cc.alpha > ONE - 16, "{}", cc.alpha);
    }

    #[test]
    fn dctcp_07_growth_is_that_of_reno() {
        // §3.1: slow start, then a segment for each window.
        let mut cc = Dctcp::new();
        let mut window = Window::new(10);
        window.ssthresh = 12;
        let mut grow = |acked| {
            cc.on_ack(&mut window, &AckEvent::new(Instant::ZERO, 1_448, acked));
            window.cwnd()
        };
        assert_eq!([grow(1), grow(1), grow(11), grow(1)], [11, 12, 12, 13]);
    }
}
