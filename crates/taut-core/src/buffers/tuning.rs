//! How far one send or receive buffer that tunes itself may grow. Linux 6.19 for the low limit, taut's own
//! beyond Linux's maxima; called by `sndbuf.rs` and `recv_window.rs`.

use crate::words::Duration;

/// How far send and receive buffers that tune themselves follow the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BufferTuning {
    /// Linux: up to the maxima of `tcp_wmem` and `tcp_rmem`.
    FollowWindow,
    /// Beyond Linux's maxima of 4 and 6 MiB, and below them on a path of less than a millisecond, only as far
    /// as the path holds data.
    #[default]
    FollowPath,
}

/// How a receive buffer may grow, not at all while memory is scarce; and the least RTT of our segments.
pub(crate) type Growth = (Option<BufferTuning>, Option<Duration>);

/// Below this round trip, the first limit of [`tuned_max`] shrinks with it. Linux 6.19: `tcp_rcvbuf_low_rtt`.
const LOW_RTT: Duration = Duration::from_millis(1);

/// The first limit of [`tuned_max`] is never below this: some batches of what a device brings at a time.
const TUNED_MIN: u64 = 512 << 10;

/// How far a send or receive buffer may follow the window.
///
/// A buffer that follows a window that nothing limits feeds itself: on a path inside this host both grow
/// until memory ends, and all of it is a queue. Up to `first`, Linux's own maximum, a buffer may follow; on a
/// path of less than a millisecond, up to that share of it. Beyond that, only to `times` the bytes that the
/// path holds, on such a short path twice: those delivered in `span`, for as long as the least round trip
/// takes.
pub(crate) fn tuned_max(
    tuning: BufferTuning,
    first: u32,
    times: u64,
    delivered: u64,
    span: Duration,
    least_rtt: Option<Duration>,
) -> u64 {
    if tuning == BufferTuning::FollowWindow {
        return u64::MAX;
    }
    let first = u64::from(first);
    let Some(rtt) = least_rtt else { return first };
    let (rtt_us, low_us, span_us) = (rtt.as_micros(), LOW_RTT.as_micros(), span.as_micros().max(1));
    let (first, times) = if rtt_us < low_us {
        ((first * rtt_us / low_us).max(TUNED_MIN), times.min(2))
    } else {
        (first, times)
    };
    first.max(delivered.saturating_mul(times).saturating_mul(rtt_us) / span_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tuned_buffer_stays_near_what_the_path_holds() {
        const SECOND: Duration = Duration::from_secs(1);
        let max = |rate, rtt_us| {
            tuned_max(BufferTuning::FollowPath, 6 << 20, 2, rate, SECOND, Some(Duration::from_micros(rtt_us)))
        };
        // Without a sample, and wherever the path holds less: Linux's maximum.
        assert_eq!(tuned_max(BufferTuning::FollowPath, 6 << 20, 2, 1 << 40, SECOND, None), 6 << 20);
        assert_eq!(tuned_max(BufferTuning::FollowWindow, 6 << 20, 2, 0, SECOND, None), u64::MAX);
        assert_eq!(max(12_500_000, 20_000), 6 << 20);
        // 1 Gbit/s · 300 ms = 37.5 MB, twice.
        assert_eq!(max(125_000_000, 300_000), 75_000_000);
        // 20 Gbit/s · 50 µs = 125 kB: a twentieth of 6 MiB would be 315 kB, and 512 KiB are the least.
        assert_eq!(max(2_500_000_000, 50), 512 << 10);
        assert_eq!(max(2_500_000_000, 500), 3 << 20);
        assert!(max(u64::MAX, 1_000_000) > 1 << 40, "no overflow");
    }
}
