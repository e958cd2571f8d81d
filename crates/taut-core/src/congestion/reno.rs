//! Reno: double each round trip up to ssthresh, then add one segment per round trip; halve on loss.
//! RFC 5681, counting segments acknowledged (RFC 3465).
//! Called through `congestion/mod.rs`; the smallest [`Controller`] there is.

use super::controller::{AckEvent, Controller, Signal, Window};
use super::{Definition, MIN_SSTHRESH};
use crate::words::Instant;

/// For [`Algorithm::reno`](super::Algorithm::reno).
pub(super) fn definition() -> Definition {
    Definition::new("reno", |_| Reno)
}

/// No state in addition to the window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reno;

/// RFC 5681 §3.1: slow start, then congestion avoidance with the segments left over.
pub(super) fn grow(window: &mut Window, mut acked: u32) {
    if window.in_slow_start() {
        acked = window.slow_start(acked);
    }
    if acked > 0 {
        window.additive(window.cwnd(), acked);
    }
}

impl Controller for Reno {
    fn on_ack(&mut self, window: &mut Window, ack: &AckEvent<'_>) {
        grow(window, ack.acked);
    }

    /// RFC 5681 §3.1, equation 4; from cwnd rather than from the flight size, as in Linux: validation keeps
    /// them close.
    fn reduce(&mut self, window: &Window, _why: Signal, _now: Instant) -> u32 {
        (window.cwnd() / 2).max(MIN_SSTHRESH)
    }
}
