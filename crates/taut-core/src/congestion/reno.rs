//! Reno: double each round trip up to ssthresh, then one segment a round trip; halve on loss.
//! RFC 5681, counting segments acknowledged (RFC 3465).
//! Called by `congestion/mod.rs`.

use super::{AckEvent, Control, MIN_SSTHRESH, Window};
use crate::units::Instant;

/// No state beside the window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reno;

impl Control for Reno {
    fn on_ack(&mut self, window: &mut Window, event: &AckEvent<'_>) {
        let mut acked = event.acked;
        if window.in_slow_start() {
            acked = window.slow_start(acked);
        }
        if acked > 0 {
            window.additive(window.cwnd, acked);
        }
    }

    /// RFC 5681 §3.1, equation 4; of cwnd rather than of the flight, as Linux: validation keeps them close.
    fn on_loss(&mut self, _now: Instant, cwnd: u32) -> u32 {
        (cwnd / 2).max(MIN_SSTHRESH)
    }
}
