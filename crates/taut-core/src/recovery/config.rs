//! The settings of loss recovery: Linux's sysctls. A part of [`StackConfig`](crate::StackConfig).

use crate::words::Duration;

/// How losses are found and repaired. RACK itself is always on: there is no other loss detection.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RecoveryConfig {
    /// Lowest retransmission timeout, as a floor on the variance term. Linux: `tcp_rto_min_us`.
    pub rto_min: Duration,
    /// Longest wait between retransmissions, window probes or SYNs; RFC 6298 §2.5 requires at least 60 s.
    /// Linux: `tcp_rto_max_ms`.
    pub rto_max: Duration,
    /// Tail loss probes (RFC 8985 §7). Linux: `tcp_early_retrans`, 3 on, 0 off.
    pub tail_loss_probes: bool,
    /// F-RTO (RFC 5682): new data shows whether a timeout was spurious. Linux: `tcp_frto`, 2 on, 0 off.
    pub frto: bool,
    /// The reordering window does not follow D-SACKs. Linux: `tcp_recovery`, bit 1.
    pub fixed_reorder_window: bool,
    /// Three segments above a hole are no sign of its loss. Linux: `tcp_recovery`, bit 2.
    pub ignore_dup_thresh: bool,
}

impl Default for RecoveryConfig {
    fn default() -> Self {
        Self {
            rto_min: Duration::from_millis(200),
            rto_max: Duration::from_secs(120),
            tail_loss_probes: true,
            frto: true,
            fixed_reorder_window: false,
            ignore_dup_thresh: false,
        }
    }
}
