//! Leaving slow start when the round-trip time begins to rise, once that is confirmed. After HyStart++ (RFC
//! 9406); the test for a rise and its confirmation are taut's own. Called by `cubic.rs` for every ACK in slow
//! start.
//!
//! **Problem.** A window that doubles each round fills any queue before the first loss. The round-trip time
//! shows the queue earlier, but also rises for other reasons: jitter, another flow's burst. Linux leaves slow
//! start at the first rise; with a jitter of 20 ms on a path of 30 ms that happens to every second flow, long
//! before the path is full. RFC 9406 goes on growing by a quarter in each of five rounds, to see whether the
//! rise passes. If it does not, the window has then grown by 1.25⁵, to three times what already filled the
//! path.
//!
//! **Rule.** The RTT has risen when eight samples in a row are an eighth above the last round's least RTT.
//! From then on the window is held, for the rest of the round and all of the next. A held window sends as
//! fast as ACKs arrive. If the path has room for it, the queue that its growth made is then gone: the RTT
//! falls below the value at which the rise was found, and slow start goes on. If the RTT stays above, the
//! path is full. Slow start ends, and the window is reduced to what the path itself holds: a constant window
//! W that takes R to come back moves at W / R, and of it the path holds W / R · least RTT.
//!
//! **Numbers.** A window is held from a quarter of the bandwidth-delay product on, because in slow start half
//! of each window waits in the queue for a moment; that costs part of a doubling, not more. RFC 9406 compares
//! a whole round's least RTT instead, which rises a round later, when the window has doubled again. A held
//! window of one bandwidth-delay product needs a full round to show whether it fits, hence two rounds with
//! the one that was begun.

use super::INITIAL_CWND;
use super::controller::AckEvent;
use crate::words::Duration;

// RFC 9406 §4.3. It also has a largest threshold, 16 ms, which on long paths is less than the queue that slow
// start makes in a window of a tenth of the bandwidth-delay product.
const MIN_RTT_THRESH_US: u32 = 4_000;
const MIN_RTT_DIVISOR: u32 = 8;
const N_RTT_SAMPLE: u8 = 8;
/// The window is held to the end of this many rounds, the one in which the RTT rose included.
const HELD_ROUNDS: u8 = 2;

/// "Infinity" of §4.2.
const NEVER: u32 = u32::MAX;

/// State of one slow start.
#[derive(Clone, Copy, Debug)]
pub(super) struct HyStart {
    /// A round ends with the first ACK beyond it.
    round_end: u64,
    /// Least RTT of the last and of this round, µs.
    last_round_us: u32,
    this_round_us: u32,
    /// While the window grows, the least RTT of the last few samples; while it is held, that at which it was
    /// first held. µs.
    recent_us: u32,
    /// Samples in `recent_us`.
    samples: u8,
    /// Rounds in which the window has been held; 0 while it grows.
    held_rounds: u8,
}

/// The effect of an ACK on slow start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    /// cwnd grows by this many segments.
    By(u32),
    /// Slow start is over: ssthresh and cwnd are this.
    LeaveWith(u32),
}

impl HyStart {
    pub(super) const fn new() -> Self {
        Self {
            round_end: 0,
            last_round_us: NEVER,
            this_round_us: NEVER,
            recent_us: NEVER,
            samples: 0,
            held_rounds: 0,
        }
    }

    /// `cwnd` is the window before this ACK.
    pub(super) fn on_ack(&mut self, cwnd: u32, ack: &AckEvent<'_>) -> Growth {
        if ack.una > self.round_end {
            if self.held_rounds >= HELD_ROUNDS {
                return Growth::LeaveWith(self.on_the_path(cwnd, ack.min_rtt));
            }
            self.held_rounds += u8::from(self.held_rounds > 0);
            self.last_round_us = self.this_round_us;
            self.this_round_us = NEVER;
            self.round_end = ack.nxt;
        }
        if let Some(rtt) = ack.rtt {
            self.on_sample(u32::try_from(rtt.as_micros()).unwrap_or(NEVER - 1));
        }
        Growth::By(if self.held_rounds > 0 { 0 } else { ack.acked })
    }

    fn on_sample(&mut self, us: u32) {
        self.this_round_us = self.this_round_us.min(us);
        if self.held_rounds > 0 {
            if us < self.recent_us {
                // The rise was temporary.
                self.held_rounds = 0;
                self.recent_us = NEVER;
            }
            return;
        }
        self.recent_us = self.recent_us.min(us);
        self.samples += 1;
        if self.samples < N_RTT_SAMPLE {
            return;
        }
        let threshold = (self.last_round_us / MIN_RTT_DIVISOR).max(MIN_RTT_THRESH_US);
        // Before the end of the first round, the sum is `NEVER`.
        if self.recent_us >= self.last_round_us.saturating_add(threshold) {
            self.held_rounds = 1;
        } else {
            self.recent_us = NEVER;
        }
        self.samples = 0;
    }

    /// What the path holds of a window that was held for a round; the rest is in a queue. The initial window
    /// is always allowed.
    fn on_the_path(&self, cwnd: u32, least: Option<Duration>) -> u32 {
        // A round without a sample shows no more than that the RTT has not fallen.
        let round_us = if self.this_round_us == NEVER { self.recent_us } else { self.this_round_us };
        let least_us = least.map_or(u64::MAX, Duration::as_micros).min(round_us.into());
        let segs = (u64::from(cwnd) * least_us).div_ceil(u64::from(round_us.max(1)));
        (segs as u32).max(INITIAL_CWND).min(cwnd)
    }
}
