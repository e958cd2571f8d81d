//! The gate of the small queue that measures: whether a packet may join those below TCP, and how long it
//! may be. Pure. Called by `plan` through `inputs.rs`.

use super::metered::{Metered, TURN};
use super::rule::Pass;
use crate::egress::blocked::Blocked;
use crate::words::Duration;

/// A packet that asks to pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    /// Of its connection.
    pub(crate) own: Metered,
    pub(crate) payload: u32,
    pub(crate) mss: u32,
    /// Bytes of all connections that may be below TCP, for this packet.
    pub(crate) limit: u64,
    /// It does not wait in the line.
    pub(crate) is_retransmission: bool,
}

/// The gate. It is open if half of the packet fits, so that the limit is the mean before and after it, and no
/// connection waits before this one. A connection that has nothing below TCP and does not wait, as one that
/// sends a request now and then, may pass those that wait with a packet of one segment, as long as these
/// passed fewer bytes than the limit since the last turn.
pub(crate) fn gate(device: Device, ask: Ask) -> Result<Pass, Blocked> {
    let Ask { own, payload, mss, limit, is_retransmission } = ask;
    let is_sparse = own.bytes() == 0 && payload <= mss && u64::from(device.passed) < limit;
    let most = match () {
        () if is_retransmission => 2 * limit,
        () if own.waits() => return Err(Blocked::SmallQueue),
        () if own.has(TURN) || device.waiting == 0 => limit,
        () if is_sparse => limit + u64::from(mss),
        () => return Err(Blocked::SmallQueue),
    };
    if device.below == 0 || device.below + u64::from(payload / 2) <= most {
        Ok(Pass::Room)
    } else {
        Err(Blocked::SmallQueue)
    }
}

/// Bytes that `rate` brings in that time.
pub(super) fn bytes_in(rate: u64, time: Duration) -> u32 {
    let bytes = u128::from(rate) * u128::from(time.as_nanos()) / 1_000_000_000;
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// A device as the gate sees it: values, computed before the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    /// Bytes of all connections that may be below TCP.
    pub(super) limit: u32,
    /// The part of them that the completion time takes.
    pub(super) needed: u32,
    /// And that are.
    pub(super) below: u64,
    /// Connections that wait in the line.
    pub(super) waiting: u32,
    /// Bytes that passed them since the last turn.
    pub(super) passed: u32,
    /// Bytes of the largest super-packet; 0 if not known.
    pub(super) packet: u32,
}

impl Device {
    pub(super) const NOTHING: Self = Self { limit: 0, needed: 0, below: 0, waiting: 0, passed: 0, packet: 0 };

    /// Whether nothing was measured yet.
    pub(crate) const fn is_unknown(self) -> bool {
        self.packet == 0
    }

    /// Payload bytes that all connections may have below TCP: what the completion time takes, and at most
    /// `cap` in addition to it; two segments in any case, but in a look none.
    pub(crate) fn limit(self, mss: u32, cap: u32) -> u32 {
        if self.limit == 0 {
            return 0;
        }
        self.limit.min(self.needed.saturating_add(cap)).max(mss.saturating_mul(2))
    }

    /// Segments of the largest super-packet, if all connections may have `limit` bytes below TCP.
    pub(crate) fn segs(self, mss: u32, limit: u64) -> u32 {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let most = if self.is_unknown() { limit / 2 } else { self.packet.min(limit / 3 * 2) };
        (most / mss.max(1)).max(1)
    }
}
