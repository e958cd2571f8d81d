//! A policer: drops the packets that exceed a rate, and delays none. It is `police` of `tc` (`tc-police(8)`)
//! with `conform-exceed drop`, and what providers use to sell a lower rate than the line's. Called where a
//! path is emulated: at a router's port, and in front of a way's queues.
//!
//! **Mechanism.** A bucket of `burst` tokens, each worth one byte, that is refilled at `rate`. A packet for
//! which there are enough tokens removes them and passes; any other is dropped and removes none. So at most
//! `burst + rate × t` bytes pass within a time `t`, and a sender that stays below the rate loses nothing. A
//! sender sees no queue before it loses: after a pause, a burst passes at the line's rate.
//!
//! **Numbers.** Tokens are kept in billionths of a byte, as in `tbf.rs`, so that nothing is rounded.

use taut_core::Instant;

use crate::quantity::Rate;

/// Tokens per byte: with nanoseconds and bytes per second, every count is exact.
const TOKENS_PER_BYTE: u64 = 1_000_000_000;

/// The options of a policer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicerSpec {
    /// The rate that it lets through.
    pub rate: Rate,
    /// Bytes that pass at once after a pause. A packet longer than this never passes.
    pub burst_bytes: u32,
}

/// A policer. Its bucket is full at first.
#[derive(Clone, Debug)]
pub struct Policer {
    spec: PolicerSpec,
    /// At most the burst's.
    tokens: u64,
    refilled: Instant,
}

impl Policer {
    /// A policer with a full bucket.
    #[must_use]
    pub const fn new(spec: PolicerSpec) -> Self {
        let tokens = spec.burst_bytes as u64 * TOKENS_PER_BYTE;
        Self { spec, tokens, refilled: Instant::ZERO }
    }

    /// Whether a packet of this length passes now.
    #[must_use]
    pub fn passes(&mut self, now: Instant, bytes: u32) -> bool {
        let came = self.spec.rate.bytes_per_second().saturating_mul(now.since(self.refilled).as_nanos());
        let most = u64::from(self.spec.burst_bytes) * TOKENS_PER_BYTE;
        self.tokens = self.tokens.saturating_add(came).min(most);
        self.refilled = self.refilled.max(now);
        let left = self.tokens.checked_sub(u64::from(bytes) * TOKENS_PER_BYTE);
        self.tokens = left.unwrap_or(self.tokens);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use taut_core::Duration;

    use super::*;

    const START: Instant = Instant::from_nanos(7_000_000_000);

    /// 20 Mbit/s: 400 ns per byte.
    fn policer(burst_bytes: u32) -> Policer {
        Policer::new(PolicerSpec { rate: "20mbit".parse().unwrap(), burst_bytes })
    }

    #[test]
    fn a_burst_passes_and_then_what_the_rate_allows() {
        let mut policer = policer(3_000);
        assert!(policer.passes(START, 1_500) && policer.passes(START, 1_500));
        assert!(!policer.passes(START, 1));
        // 1500 bytes need 600 µs. The packet that was dropped has used nothing.
        let at_us = |us| START + Duration::from_micros(us);
        assert!(!policer.passes(at_us(599), 1_500));
        assert!(policer.passes(at_us(600), 1_500));
        // After a second, no more than the burst.
        assert!(policer.passes(at_us(1_000_600), 3_000) && !policer.passes(at_us(1_000_600), 1));
    }

    #[test]
    fn a_packet_longer_than_the_burst_never_passes() {
        let mut policer = policer(1_000);
        assert!(!policer.passes(START, 1_001));
        assert!(!policer.passes(START + Duration::from_secs(60), 1_001));
    }

    #[test]
    fn the_bytes_that_pass_are_burst_and_rate_times_time() {
        let mut policer = policer(100_000);
        // Offered: 100 Mbit/s of packets of 1538 bytes, 123.04 µs apart, for two seconds.
        let (mut passed, mut at) = (0_u64, START);
        while at < START + Duration::from_secs(2) {
            passed += if policer.passes(at, 1_538) { 1_538 } else { 0 };
            at += Duration::from_nanos(123_040);
        }
        // 100,000 + 2.5 MB/s · 2 s, less than a packet of which may be left in the bucket.
        assert!(passed <= 5_100_000 && passed > 5_100_000 - 2 * 1_538, "{passed}");
    }

    #[test]
    fn a_sender_below_the_rate_loses_nothing() {
        let mut policer = policer(1_538);
        // 1538 bytes take 615.2 µs at the policer's rate.
        let gap = Duration::from_nanos(615_200);
        assert!((0..10_000_u64).all(|number| policer.passes(START + gap * number, 1_538)));
    }
}
