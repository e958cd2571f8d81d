//! HyStart++: leave slow start when the round-trip time begins to rise, carefully.
//! RFC 9406.
//! Called by `cubic.rs` for every ACK in slow start.

use crate::words::Duration;

// RFC 9406 §4.3.
const MIN_RTT_THRESH_US: u32 = 4_000;
const MAX_RTT_THRESH_US: u32 = 16_000;
const MIN_RTT_DIVISOR: u32 = 8;
const N_RTT_SAMPLE: u8 = 8;
const CSS_GROWTH_DIVISOR: u32 = 4;
const CSS_ROUNDS: u8 = 5;

/// "Infinity" of §4.2.
const NEVER: u32 = u32::MAX;

/// State of one slow start.
#[derive(Clone, Copy, Debug)]
pub(super) struct HyStart {
    /// A round ends when `una` reaches it.
    round_end: u64,
    /// Least RTT of the last and of this round, µs.
    last_round_us: u32,
    this_round_us: u32,
    /// The RTT below which conservative slow start ends, µs.
    baseline_us: u32,
    samples: u8,
    /// Rounds of conservative slow start; 0 when in ordinary slow start.
    css_round: u8,
    /// Segments that conservative slow start has not yet turned into growth: less than the divisor.
    remainder: u8,
}

/// The effect of an ACK on slow start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    /// cwnd grows by this many segments.
    By(u32),
    /// Slow start is over: ssthresh = cwnd.
    Leave,
}

impl HyStart {
    pub(super) const fn new() -> Self {
        Self {
            round_end: 0,
            last_round_us: NEVER,
            this_round_us: NEVER,
            baseline_us: NEVER,
            samples: 0,
            css_round: 0,
            remainder: 0,
        }
    }

    /// RFC 9406 §4.2. `acked` segments were acknowledged.
    pub(super) fn on_ack(&mut self, acked: u32, rtt: Option<Duration>, una: u64, nxt: u64) -> Growth {
        if una >= self.round_end {
            if self.css_round > CSS_ROUNDS - 1 {
                // The fifth round in a row without a lower RTT is over.
                return Growth::Leave;
            }
            self.css_round += u8::from(self.css_round > 0);
            self.last_round_us = self.this_round_us;
            self.this_round_us = NEVER;
            self.samples = 0;
            self.round_end = nxt;
        }
        if let Some(rtt) = rtt {
            let us = u32::try_from(rtt.as_micros()).unwrap_or(NEVER - 1);
            self.this_round_us = self.this_round_us.min(us);
            self.samples = self.samples.saturating_add(1);
        }
        if self.samples >= N_RTT_SAMPLE && self.this_round_us != NEVER {
            if self.css_round > 0 {
                if self.this_round_us < self.baseline_us {
                    // The rise was temporary: back to slow start.
                    self.css_round = 0;
                    self.baseline_us = NEVER;
                }
            } else if self.last_round_us != NEVER {
                let threshold =
                    (self.last_round_us / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH_US, MAX_RTT_THRESH_US);
                if self.this_round_us >= self.last_round_us.saturating_add(threshold) {
                    self.baseline_us = self.this_round_us;
                    self.css_round = 1;
                }
            }
        }
        if self.css_round == 0 {
            return Growth::By(acked);
        }
        let total = acked.saturating_add(u32::from(self.remainder));
        self.remainder = (total % CSS_GROWTH_DIVISOR) as u8;
        Growth::By(total / CSS_GROWTH_DIVISOR)
    }
}
