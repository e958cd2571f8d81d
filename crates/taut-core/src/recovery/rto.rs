//! The retransmission timeout.
//! RFC 6298; bounds and the floor on the variance term are Linux's.
//! Called wherever the timer is armed.

use super::rtt::Rtt;
use crate::words::Duration;

/// The timeout before the first measurement, also for SYNs. RFC 6298 §2.1.
pub(crate) const RTO_INIT: Duration = Duration::from_secs(1);
/// The timeout before the first measurement if a SYN was retransmitted: the path may be slower than [`RTO_INIT`]. RFC 6298
/// §5.7.
pub(super) const RTO_AFTER_SYN_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest wait between retransmissions, window probes or SYNs. Linux: `TCP_RTO_MAX`. RFC 6298 §2.5 requires at
/// least 60 s.
pub(crate) const RTO_MAX: Duration = Duration::from_secs(120);

/// RTO after `backoff` consecutive timeouts. RFC 6298 §5.5: each doubles it.
pub(super) fn timeout(rtt: &Rtt, backoff: u8) -> Duration {
    let base = rtt.timeout().unwrap_or(RTO_INIT).min(RTO_MAX);
    // 2^7 times the least possible base (1 µs aside) exceeds the bound; the shift stays small.
    (base * (1 << backoff.min(31))).min(RTO_MAX)
}
