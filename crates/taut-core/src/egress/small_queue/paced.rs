//! A small queue above a link that paces: as much below TCP as lasts until the stack looks again. taut's own,
//! beside the rule of [`rule`](super::rule), of whose limit it is a part. Called by `commit` when a
//! connection that waited at that gate is asked again.
//!
//! **Problem.** Where the link holds packets until they may leave (fq), Linux's sender hears of each
//! departure in an interrupt, and two packets below are enough. A stack in userspace hears when its thread
//! runs. On a busy machine that may be tens of milliseconds later, and all that was below left long ago: two
//! packets of two segments are 4.7 ms at 10 Mbit/s. So the flow has a part of its rate, although nothing on
//! the path is in its way.
//!
//! **Rule.** The limit of [`rule`](super::rule) has, beyond what it has anyway,
//!
//! ```text
//!   rate · ahead        ahead: time, one for the whole stack
//! ```
//!
//! - A connection waited at this gate, and when it is asked again nothing of it is below, and the departure
//!   of its next packet was due s ago: the stack has looked too late by s. `ahead` grows by s, but not for
//!   each connection that this look finds so: they all waited for the same thread. It is never more than
//!   [`MOST`].
//! - If something is below, or the next departure is still to come, that much time was to spare. The least of
//!   [`FORGET_AFTER`] is taken off `ahead`.
//!
//! **Why not the time by which tickets are late.** In front of a line that is slower than the flows, tickets
//! are late because packets wait in front of that line. More below TCP would make them later, and so on. But
//! there the first ticket tells that one packet has left, and the others are below: time to spare. That is
//! how Linux's byte queue limits tell the two apart.
//!
//! **What it costs.** The link spaces these packets, so what is below is in nobody's way: other flows leave
//! at their own times. But the sender decides earlier what leaves, by `ahead` at most.
//!
//! **Numbers.** fq drops the packets of a flow beyond a hundred (`flow_limit`). At least a millisecond of the
//! rate is in one, as [`tso_autosize`](crate::egress::size::tso_autosize) cuts them, so 50 ms are half of
//! that. `tcp_limit_output_bytes` bounds the whole limit.

use crate::words::{Duration, Instant};

/// As much time is bridged at most.
const MOST: Duration = Duration::from_millis(50);

/// Stalls that come more rarely than this are not prepared for.
const FORGET_AFTER: Duration = Duration::from_secs(10);

/// How late the stack may look without a flow losing time. One for each stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    time: Duration,
    /// The same before the latest look, which was at `at`.
    before: Duration,
    at: Instant,
    /// The least time that was to spare since `since`.
    spare: Duration,
    since: Instant,
}

impl Default for Ahead {
    fn default() -> Self {
        Self {
            time: Duration::ZERO,
            before: Duration::ZERO,
            at: Instant::ZERO,
            spare: MOST,
            since: Instant::ZERO,
        }
    }
}

impl Ahead {
    /// How much beyond the limit of Linux's rule, as time at the connection's rate.
    pub(crate) const fn time(&self) -> Duration {
        self.time
    }

    /// A connection that waited for its tickets is asked again: `below` bytes are still below TCP, and its
    /// next packet may leave at `departure`.
    pub(crate) fn on_asked(&mut self, now: Instant, below: u32, rate: u64, departure: Instant) {
        if now > self.at {
            (self.at, self.before) = (now, self.time);
        }
        if below == 0 && now > departure {
            self.time = self.time.max(self.before + now.since(departure)).min(MOST);
            (self.spare, self.since) = (MOST, now);
            return;
        }
        let lasts = Duration::from_nanos(u64::from(below).saturating_mul(1_000_000_000) / rate.max(1));
        self.spare = self.spare.min(departure.since(now).max(lasts));
        if now.since(self.since) >= FORGET_AFTER {
            self.time = self.time.saturating_sub(self.spare);
            (self.spare, self.since) = (MOST, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 Mbit/s.
    const RATE: u64 = 1_250_000;

    const fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn tsq_22_a_late_look_counts_once() {
        let mut ahead = Ahead::default();
        // Three connections, all found by one look: the latest counts.
        for departure in [97, 93, 95] {
            ahead.on_asked(at(100), 0, RATE, at(departure));
        }
        assert_eq!(ahead.time(), ms(7));
        // Although so much more was below, the next look is late again.
        ahead.on_asked(at(200), 0, RATE, at(195));
        assert_eq!(ahead.time(), ms(12));
        // On time to the nanosecond is not late.
        ahead.on_asked(at(300), 0, RATE, at(300));
        assert_eq!(ahead.time(), ms(12));
    }

    #[test]
    fn tsq_23_fifty_milliseconds_at_most() {
        let mut ahead = Ahead::default();
        ahead.on_asked(at(1_000), 0, RATE, at(100));
        assert_eq!(ahead.time(), ms(50));
    }

    #[test]
    fn tsq_24_time_to_spare_is_given_back() {
        let mut ahead = Ahead::default();
        ahead.on_asked(at(1_000), 0, RATE, at(980));
        // Bytes that last for 6 ms; a departure in 4 ms; both: the later end of the two.
        for (now, below, departure) in [(2_000, 7_500, 1_999), (5_000, 0, 5_004), (9_000, 6_250, 9_007)] {
            ahead.on_asked(at(now), below, RATE, at(departure));
            assert_eq!(ahead.time(), ms(20), "ten seconds are not over");
        }
        ahead.on_asked(at(11_000), 12_500, RATE, at(11_000));
        assert_eq!(ahead.time(), ms(16), "the least of 6, 4, 7 and 10 ms");
        // Another ten seconds begin, and a late look begins them once more.
        ahead.on_asked(at(12_000), 12_500, RATE, at(12_000));
        ahead.on_asked(at(20_000), 0, RATE, at(19_999));
        ahead.on_asked(at(29_999), 12_500, RATE, at(29_999));
        assert_eq!(ahead.time(), ms(17));
        ahead.on_asked(at(30_000), 25_000, RATE, at(30_000));
        assert_eq!(ahead.time(), ms(7));
        // More was to spare than is left.
        ahead.on_asked(at(40_000), 62_500, RATE, at(40_000));
        assert_eq!(ahead.time(), Duration::ZERO);
    }
}
