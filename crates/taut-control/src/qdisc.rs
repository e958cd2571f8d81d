//! The queue disciplines in front of a stack's device, as they go over the socket. Filled by who has the stack, read by
//! `taut qdisc show`.

use serde::{Deserialize, Serialize};

use crate::protocol::Counter;

/// One queue discipline. Counts are since it was put there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QdiscSnapshot {
    /// As `tc` calls it, as in `fq_codel`.
    pub kind: String,
    /// Its number: 32769 is `8001:`.
    pub handle: u16,
    /// That of the one it stands behind; the root has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<u16>,
    /// As it was set up, and those behind it, in the words of `tc`: what was said, and what differs from the default.
    pub spec: String,
    /// Bytes that left.
    pub bytes: u64,
    /// Packets that left, counting the segments of super-packets.
    pub packets: u64,
    /// Packets not taken or thrown out, counted in the same way.
    pub drops: u64,
    /// Times that a packet was asked for before its time had come.
    pub overlimits: u64,
    /// Times that the device had no room.
    pub requeues: u64,
    /// Bytes that wait.
    pub backlog: u64,
    /// Packets that wait, a super-packet being one.
    pub qlen: u64,
    /// What only this kind counts, by the names and in the order of `tc -s`.
    pub details: Vec<Counter>,
}
