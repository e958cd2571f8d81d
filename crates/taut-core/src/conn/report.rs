//! What held connections back, and how long bytes waited where: the answer to "why is my upload slow".
//! taut's own; made on request, from the ledger of a connection or of the whole stack.

use crate::egress::{Gate, Queue};
use crate::stats::{Histogram, Lateness};
use crate::words::Duration;

/// One of the queues that bytes wait in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueReport {
    /// `unsent`, `device` or `in flight`.
    pub name: &'static str,
    /// Payload bytes there now.
    pub bytes: u64,
    /// How long the oldest of them has been there: for `unsent` a lower bound, for `device` an upper bound;
    /// `None` when the queue is empty.
    pub oldest: Option<Duration>,
    /// Samples of how long bytes stayed.
    pub sojourn: Histogram,
}

/// What held a connection back since its first write, or all connections of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The time for which each gate was shut, in the order in which the gates are checked.
    pub shares: [(Gate, Duration); Gate::COUNT],
    /// Unsent, device, in flight.
    pub queues: [QueueReport; 3],
    /// How late the threads below the stack woke it up for a packet that had waited for its departure time.
    pub lateness: Lateness,
}

impl Default for Report {
    fn default() -> Self {
        Self::new()
    }
}

impl Report {
    pub(crate) fn new() -> Self {
        let empty = |queue: Queue| QueueReport {
            name: queue.name(),
            bytes: 0,
            oldest: None,
            sojourn: Histogram::default(),
        };
        Self {
            shares: Gate::ALL.map(|gate| (gate, Duration::ZERO)),
            queues: Queue::ALL.map(empty),
            lateness: Lateness::default(),
        }
    }

    /// Adds another report, for several stacks that their user sees as one.
    pub fn add(&mut self, other: &Self) {
        for ((_, share), (_, more)) in self.shares.iter_mut().zip(other.shares) {
            *share += more;
        }
        for (queue, more) in self.queues.iter_mut().zip(&other.queues) {
            queue.bytes += more.bytes;
            queue.oldest = queue.oldest.max(more.oldest);
            queue.sojourn.add(&more.sojourn);
        }
        self.lateness.add(&other.lateness);
    }
}
