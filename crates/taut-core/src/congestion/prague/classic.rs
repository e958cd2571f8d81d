//! Whether the marking queue is an L4S queue, or a classic one that other flows share: RFC 9331 §4.3 requires
//! a sender to detect this.
//! The sign is that of Briscoe and Ahmed, "TCP Prague Fall-back on Detection of a Classic ECN AQM" (2021);
//! the score is simpler. Called by `congestion/prague.rs` for every ACK.
//!
//! **Problem.** A classic queue marks rarely, and expects a mark to reduce the window by a third or a half. A
//! sender that reduces its window by the share of marks hardly ever slows down there, and leaves next to
//! nothing to the other flows in that queue.
//!
//! **Rule.** An L4S queue marks packets that waited for about a millisecond; classic queues let 5 ms (CoDel)
//! or 15 ms (PIE) stand. So a round trip with a mark indicates a classic queue if even its shortest RTT was
//! 3 ms above the least ever, and an L4S queue if it was not. Once there were five more of the first kind
//! than of the second, the queue counts as classic, until the difference is zero again. A path whose RTT
//! varies by more than 3 ms also looks classic: that costs throughput, but harms no other flow.

use super::super::controller::AckEvent;
use crate::words::Duration;

/// How far the shortest RTT of a round trip is above the least one: more than an L4S queue lets stand, less
/// than any other.
const STANDING: Duration = Duration::from_millis(3);
/// From this score on the queue counts as shared, until the score is 0 again; it rises no further than
/// [`SCORE_MAX`].
const SHARED: u8 = 5;
const SCORE_MAX: u8 = 10;

/// A connection's observations of the queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Classic {
    /// Shortest RTT of this round trip.
    shortest: Option<Duration>,
    marked: bool,
    score: u8,
    shared: bool,
}

impl Classic {
    pub(super) const NEW: Self = Self { shortest: None, marked: false, score: 0, shared: false };

    /// Whether the queue is a classic one, which others share.
    pub(super) const fn is_shared(&self) -> bool {
        self.shared
    }

    /// An ACK came; `round`: it ends a round trip.
    pub(super) fn on_ack(&mut self, ack: &AckEvent<'_>, round: bool) {
        self.marked |= ack.delivered_ce > 0;
        self.shortest = [self.shortest, ack.rtt].into_iter().flatten().min();
        if !round {
            return;
        }
        let (shortest, marked) = (self.shortest.take(), core::mem::take(&mut self.marked));
        if let (Some(shortest), Some(least), true) = (shortest, ack.min_rtt, marked) {
            if shortest.saturating_sub(least) >= STANDING {
                self.score = (self.score + 1).min(SCORE_MAX);
                self.shared |= self.score >= SHARED;
            } else {
                self.score = self.score.saturating_sub(1);
                self.shared &= self.score > 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Instant;

    /// A round trip of two ACKs, with RTTs in milliseconds above one of 10.
    fn round(classic: &mut Classic, above_ms: [u64; 2], marked: bool) {
        for (index, above) in above_ms.into_iter().enumerate() {
            let mut ack = AckEvent::new(Instant::ZERO, 1_448, 1);
            ack.min_rtt = Some(Duration::from_millis(10));
            ack.rtt = Some(Duration::from_millis(10 + above));
            ack.delivered_ce = u32::from(marked && index == 0);
            classic.on_ack(&ack, index == 1);
        }
    }

    #[test]
    fn marks_over_a_standing_queue_five_times() {
        let mut classic = Classic::NEW;
        for _ in 0..4 {
            round(&mut classic, [9, 3], true);
            // A round trip without marks does not count.
            round(&mut classic, [30, 30], false);
        }
        assert!(!classic.is_shared());
        round(&mut classic, [3, 3], true);
        assert!(classic.is_shared());
        // It takes as many to count as L4S again.
        for _ in 0..4 {
            round(&mut classic, [9, 2], true);
        }
        assert!(classic.is_shared());
        round(&mut classic, [2, 9], true);
        assert!(!classic.is_shared());
    }

    #[test]
    fn the_past_is_worth_ten_round_trips() {
        let mut classic = Classic::NEW;
        for _ in 0..100 {
            round(&mut classic, [5, 5], true);
        }
        for n in 0..10 {
            assert!(classic.is_shared(), "{n}");
            round(&mut classic, [1, 1], true);
        }
        assert!(!classic.is_shared());
    }
}
