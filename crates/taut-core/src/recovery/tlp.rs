//! Tail loss probe: when the last of a flight is lost, nothing tells us, so ask.
//! RFC 8985 §7, with Linux's allowances in the timeout.
//! Called by `recovery/mod.rs` when data is sent, acknowledged, or the timer fires.

use core::ops::Range;

use super::rto::RTO_INIT;
use crate::words::Duration;

/// Room for timer and processing jitter when several segments are out. Linux: `TCP_TIMEOUT_MIN`, 2 ms.
const SLACK: Duration = Duration::from_millis(2);

/// Time to the probe after the last transmission. RFC 8985 §7.2.
pub(super) fn timeout(srtt: Option<Duration>, packets_out: u32, rto_min: Duration) -> Duration {
    match srtt {
        // A lone segment's ACK may be delayed; Linux allows as much as the least RTO for that.
        Some(srtt) if packets_out == 1 => srtt * 2 + rto_min,
        Some(srtt) => srtt * 2 + SLACK,
        None => RTO_INIT,
    }
}

/// A probe that was sent and is not yet judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    /// RFC 8985's TLP.end_seq: `nxt` when it was sent.
    pub(super) end: u64,
    /// It repeated data, so it may have repaired a loss unseen.
    pub(super) is_retransmission: bool,
}

/// What an ACK says about the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Not known yet.
    Open,
    /// Nothing was lost.
    Needless,
    /// The probe repaired a loss: one reduction of cwnd is due.
    Repaired,
}

impl Probe {
    /// RFC 8985 §7.4.2. `pure_dup`: the ACK repeats `una`, sacks nothing and carries nothing.
    pub(super) fn judge(&self, ack: u64, dsack: Option<&Range<u64>>, pure_dup: bool) -> Verdict {
        if ack < self.end {
            return Verdict::Open;
        }
        if !self.is_retransmission || dsack.is_some_and(|range| range.end == self.end) {
            // The original arrived, for the peer saw the data twice.
            return Verdict::Needless;
        }
        if ack > self.end {
            return Verdict::Repaired;
        }
        if pure_dup { Verdict::Needless } else { Verdict::Open }
    }
}
