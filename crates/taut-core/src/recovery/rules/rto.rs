//! The retransmission timeout.
//! RFC 6298; bounds and the floor on the variance term are Linux's.
//! Called wherever the timer is armed.

use super::rtt::Rtt;
use crate::words::Duration;

/// The timeout before the first measurement, also for SYNs. RFC 6298 §2.1.
pub(crate) const RTO_INIT: Duration = Duration::from_secs(1);
/// The timeout before the first measurement if a SYN was retransmitted: the path may be slower than
/// [`RTO_INIT`]. RFC 6298 §5.7.
pub(crate) const RTO_AFTER_SYN_TIMEOUT: Duration = Duration::from_secs(3);
/// The RTO by which time is turned into a number of retransmissions, whatever `tcp_rto_min_us` is. Linux:
/// `TCP_RTO_MIN`.
const RECKONED: Duration = Duration::from_millis(200);

/// Whether it is as long since the first timeout as so many retransmissions take with an RTO of 200 ms that
/// doubles up to `max`. With 120 s: since the first transmission, 3 s for 3, 102.2 s for 8, 924.6 s for 15.
/// Linux: `tcp_model_timeout`.
pub(crate) fn has_lasted(since_first_timeout: Duration, retransmissions: u8, max: Duration) -> bool {
    // As often as it stays below.
    let doubled = retransmissions.min((max.as_nanos() / RECKONED.as_nanos()).max(1).ilog2() as u8);
    let whole = RECKONED * ((2 << doubled) - 1) + max * u64::from(retransmissions - doubled);
    since_first_timeout + RECKONED >= whole
}

/// RTO after `backoff` consecutive timeouts. RFC 6298 §5.5: each doubles it, up to `max`.
pub(crate) fn timeout(rtt: &Rtt, backoff: u8, max: Duration) -> Duration {
    let base = rtt.timeout().unwrap_or(RTO_INIT).min(max);
    // 2^7 times the least possible base (1 µs aside) exceeds the bound; the shift stays small.
    (base * (1 << backoff.min(31))).min(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 200 ms · (2^(n + 1) - 1) for n retransmissions, with 120 s at most between two (`tcp_model_timeout`),
    /// and the first timeout is 200 ms after the first transmission.
    #[test]
    fn rto_25_the_time_of_retransmissions() {
        for (retransmissions, ms) in
            [(0, 200), (1, 600), (3, 3_000), (8, 102_200), (9, 204_600), (10, 324_600), (15, 924_600)]
        {
            let since_first_timeout = Duration::from_millis(ms) - RECKONED;
            let max = Duration::from_secs(120);
            assert!(has_lasted(since_first_timeout, retransmissions, max), "{retransmissions}");
            let sooner = since_first_timeout.saturating_sub(Duration::from_nanos(1));
            assert_eq!(has_lasted(sooner, retransmissions, max), retransmissions == 0, "{retransmissions}");
        }
        // Waits of 0.2, 0.4, 0.8 s, and then of 1 s, are 4.4 s for five retransmissions.
        let ms = Duration::from_millis;
        let lasts = |since| has_lasted(ms(since) - RECKONED, 5, ms(1_000));
        assert_eq!((lasts(4_399), lasts(4_400)), (false, true));
    }
}
