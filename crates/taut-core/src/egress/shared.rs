//! State that all senders of a stack share: the device below them, and sums for reports.

use super::books::ledger::Totals;
use super::small_queue::{Ahead, Meter};

/// The state of the send path that belongs to the stack.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Sums over all connections that the stack ever had.
    pub(crate) totals: Totals,
    /// The device, as completions show it.
    pub(crate) meter: Meter,
    /// Above a link that paces: how late the stack looks.
    pub(crate) ahead: Ahead,
}
