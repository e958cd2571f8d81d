//! The queue disciplines in front of a stack's device, as they are sent over the socket. Filled in by the
//! program that runs the stack, read by `taut qdisc show`.

use serde::{Deserialize, Serialize};

use crate::protocol::Counter;

/// One queue discipline. Counts are since it was installed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QdiscSnapshot {
    /// Its name in `tc`, such as `fq_codel`.
    pub kind: String,
    /// Its number: 32769 is `8001:`.
    pub handle: u16,
    /// The number of the discipline that it stands behind; the root has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<u16>,
    /// The options of this discipline and of those behind it, in `tc`'s syntax: those that were given, and
    /// those that differ from the default.
    pub spec: String,
    /// Bytes that left.
    pub bytes: u64,
    /// Packets that left, counting the segments of super-packets.
    pub packets: u64,
    /// Packets refused or dropped, counted in the same way.
    pub drops: u64,
    /// Times that a packet was requested before its departure time.
    pub overlimits: u64,
    /// Times that the device had no room.
    pub requeues: u64,
    /// Bytes in the queue.
    pub backlog: u64,
    /// Packets in the queue; a super-packet counts as one.
    pub qlen: u64,
    /// The counters that only this kind has, with the names and in the order of `tc -s`.
    pub details: Vec<Counter>,
}
