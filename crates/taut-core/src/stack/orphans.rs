//! Connections that their application has released and that are not over: their data or their FIN is still
//! unacknowledged, or the peer has not closed. Linux 6.18 (`tcp_close`, `tcp_check_oom`); called when a
//! connection is released and when one leaves the tables.
//!
//! **Problem.** Nobody waits for such a connection and nobody can end it, so a peer that keeps its window
//! closed, or says nothing, would keep its memory for as long as it likes.
//!
//! **Rule.** Each ends in bounded time: `conn/timers.rs` counts its attempts by `tcp_orphan_retries`, and
//! FIN-WAIT-2 ends after `tcp_fin_timeout`. And they are bounded in number: one that would be more than
//! `tcp_max_orphans` is reset at once, and so is one with data queued while the stack holds more memory than
//! `tcp_mem` allows.

use super::Stack;
use crate::conn::Conn;
use crate::words::Instant;

impl Stack {
    /// The application has released the connection in this slot.
    pub(super) fn note_released(&mut self, now: Instant, slot: u32) {
        let Some(conn) = self.tables.conns.at_mut(slot) else { return };
        if conn.flags.detached || conn.flags.orphan || !conn.state.is_synchronized() {
            return;
        }
        conn.flags.orphan = true;
        self.pool.budget.add_orphan();
        if self.pool.budget.is_too_much(conn.tx.queued()) {
            self.with(now, slot, Conn::abort_for_memory);
        }
    }

    /// Connections that the application has released and that are not over.
    #[must_use]
    pub const fn orphans(&self) -> u32 {
        self.pool.budget.orphans()
    }
}
