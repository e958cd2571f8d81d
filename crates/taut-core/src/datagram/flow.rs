//! The state of a socket that belongs to a flow of a filter: whether the application has decided, and when it
//! was last used. taut's own. Kept by a socket, changed by `stack/datagrams/flows.rs`.
//!
//! **Rule.** A flow is a connected socket from its first datagram on. Until it is decided, the application
//! has no name for the socket, so no call reaches it; its receive queue is the one in which the first
//! datagrams wait.

use crate::words::{Duration, Instant, ListenerId};

/// Where the flow stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The application has not decided.
    Pending,
    /// It has dropped the flow: datagrams are not kept.
    Silent,
    /// It has the socket.
    Accepted,
    /// It has the socket, on which nothing happened for too long.
    Over,
}

#[derive(Debug)]
pub(crate) struct FlowPart {
    pub(crate) filter: ListenerId,
    pub(crate) stage: Stage,
    /// How long nothing may happen.
    pub(crate) idle: Duration,
    /// When something was sent or received last.
    pub(crate) used: Instant,
    /// When that is looked at next.
    pub(crate) look_at: Instant,
    /// The first eight bytes of the latest datagram behind its IP header, which an ICMP error quotes (RFC
    /// 792).
    pub(crate) quote: [u8; 8],
}

impl FlowPart {
    pub(crate) const fn new(filter: ListenerId, now: Instant) -> Self {
        Self {
            filter,
            stage: Stage::Pending,
            idle: Duration::ZERO,
            used: now,
            look_at: Instant::ZERO,
            quote: [0; 8],
        }
    }

    /// Whether the application has the socket.
    pub(crate) const fn is_held(&self) -> bool {
        matches!(self.stage, Stage::Accepted | Stage::Over)
    }
}
