//! What ends a run before its time. Made by the checks, by applications and by the world.

use std::fmt;

use taut_core::Instant;

/// The invariant that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A packet was lost track of, or is in two places.
    Packets,
    /// Bytes below TCP differ from the stack's count.
    Tickets,
    /// A queue exceeds its limit.
    QueueLimit,
    /// A connection waits for an event that will not come.
    Stalled,
    /// An application read bytes other than those written.
    WrongBytes,
    /// Virtual time went back.
    TimeWentBack,
    /// Virtual time stands still.
    NoProgress,
    /// The stack or the simulator panicked.
    Panicked,
    /// A connection holds more than its buffers' limits.
    Memory,
    /// Calls took more steps than their packets account for.
    Work,
    /// The bytes of a connection's queues differ from those written and not acknowledged.
    Ledger,
    /// A conversation lost bytes, or ended otherwise than its ends did.
    Lost,
    /// Something is left when everything has ended.
    Left,
}

/// A failed run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Failure {
    /// Time of the failure.
    pub at: Instant,
    /// The invariant.
    pub kind: Kind,
    /// The details.
    pub why: String,
}

impl Failure {
    pub(crate) fn new(at: Instant, kind: Kind, why: String) -> Self {
        Self { at, kind, why }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {:?}: {:?}: {}", self.at, self.kind, self.why)
    }
}
