//! Which segments are believed: the checks that keep forged and old packets out.
//! RFC 9293 §3.10.7.4, RFC 5961, RFC 7323 §5; called by the connection, in this order, before anything
//! changes.

use crate::words::{Duration, Instant};

/// What to do with a segment, or with the connection because of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// Continue with the next check.
    Accept,
    /// Ignore it.
    Drop,
    /// Ignore it, and answer with an ACK of our state (a challenge ACK), rate-limited.
    Challenge,
    /// The peer has ended the connection.
    Reset,
}

/// PAWS: a timestamp older than the last one accepted marks a segment from an earlier cycle of the sequence
/// space. A remembered timestamp older than 24 days says nothing (RFC 7323 §5.5).
pub(crate) fn paws_rejects(recent: u32, recent_at: Instant, now: Instant, value: u32) -> bool {
    const OUTDATED: Duration = Duration::from_secs(24 * 24 * 3_600);
    (value.wrapping_sub(recent) as i32) < 0 && now.since(recent_at) < OUTDATED
}

/// RST in a synchronized state (RFC 5961 §3.2): believed only at exactly the next sequence number.
pub(crate) const fn reset(seq: u64, rcv_nxt: u64, window_end: u64) -> Check {
    if seq == rcv_nxt {
        Check::Reset
    } else if rcv_nxt < seq && seq < window_end {
        Check::Challenge
    } else {
        Check::Drop
    }
}

/// The acknowledgment number (RFC 5961 §5.2): at most one window old, and not beyond the data sent.
pub(crate) const fn acknowledgment(ack: u64, una: u64, nxt: u64, max_window: u32) -> Check {
    if ack > nxt || ack + (max_window as u64) < una { Check::Challenge } else { Check::Accept }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resets_are_believed_only_at_the_left_edge() {
        assert_eq!(reset(1_000, 1_000, 2_000), Check::Reset);
        assert_eq!(reset(1_001, 1_000, 2_000), Check::Challenge);
        assert_eq!(reset(1_999, 1_000, 2_000), Check::Challenge);
        assert_eq!(reset(2_000, 1_000, 2_000), Check::Drop);
        assert_eq!(reset(999, 1_000, 2_000), Check::Drop);
        assert_eq!(reset(1_000, 1_000, 1_000), Check::Reset, "also with a closed window");
    }

    #[test]
    fn acknowledgments_of_the_future_and_of_the_distant_past_are_challenged() {
        assert_eq!(acknowledgment(5_000, 4_000, 5_000, 500), Check::Accept);
        assert_eq!(acknowledgment(5_001, 4_000, 5_000, 500), Check::Challenge);
        assert_eq!(acknowledgment(3_500, 4_000, 5_000, 500), Check::Accept);
        assert_eq!(acknowledgment(3_499, 4_000, 5_000, 500), Check::Challenge);
    }

    #[test]
    fn old_timestamps_are_rejected_for_24_days() {
        let at = Instant::ZERO;
        let hour = at + Duration::from_secs(3_600);
        assert!(!paws_rejects(100, at, hour, 100));
        assert!(!paws_rejects(100, at, hour, 101));
        assert!(paws_rejects(100, at, hour, 99));
        assert!(!paws_rejects(u32::MAX, at, hour, 3), "wraps");
        assert!(!paws_rejects(100, at, at + Duration::from_secs(25 * 24 * 3_600), 99));
    }
}
