//! When a router advertises. RFC 4861 §6.2.4, §6.2.6. Pure: `serving.rs` sends what is due.
//!
//! | constant | value | from |
//! |---|---|---|
//! | unasked | after 200 to 600 s, at random | RFC 4861 §6.2.1: MaxRtrAdvInterval, and a third of it |
//! | the first three of them | after 16 s at most | RFC 4861 §10: MAX_INITIAL_RTR_ADVERT_INTERVAL |
//! | an answer | after 0 to 0.5 s, at random | RFC 4861 §10: MAX_RA_DELAY_TIME |
//! | between two | 3 s at least | RFC 4861 §10: MIN_DELAY_BETWEEN_RAS |
//!
//! All go to everybody: a thousand solicitations make one advertisement in 3 s.

use crate::random::Random;
use taut_core::{Duration, Instant};

/// MaxRtrAdvInterval.
pub(crate) const EVERY_MAX: Duration = Duration::from_secs(600);
const EVERY_MIN: Duration = Duration::from_secs(200);
const INITIAL: u8 = 3;
const INITIAL_EVERY_MAX: Duration = Duration::from_secs(16);
const ANSWER_WITHIN: Duration = Duration::from_millis(500);
const APART: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct Advertiser {
    at: Instant,
    last: Option<Instant>,
    /// Those that nobody asked for, up to [`INITIAL`].
    sent: u8,
    random: Random,
}

impl Advertiser {
    /// The first one is due at once.
    pub(crate) const fn new(keys: (u64, u64)) -> Self {
        Self { at: Instant::ZERO, last: None, sent: 0, random: Random::new(keys) }
    }

    /// When the next one is due.
    pub(crate) const fn next(&self) -> Instant {
        self.at
    }

    /// A host asks.
    pub(crate) fn on_solicitation(&mut self, now: Instant) {
        let earliest = self.last.map_or(now, |last| now.max(last + APART));
        self.at = self.at.min(earliest + self.random.span(ANSWER_WITHIN));
    }

    /// Whether one is due now: it is sent.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        if now < self.at {
            return false;
        }
        self.last = Some(now);
        self.sent = self.sent.saturating_add(1).min(INITIAL);
        let spread = EVERY_MAX.saturating_sub(EVERY_MIN);
        let pause = EVERY_MIN + self.random.span(spread);
        self.at = now + if self.sent < INITIAL { pause.min(INITIAL_EVERY_MAX) } else { pause };
        true
    }
}
