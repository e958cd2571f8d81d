//! Memory for arriving data: what a connection may hold, and what it drops for bytes that are needed first.
//! Linux 6.18 (`tcp_try_rmem_schedule`, `tcp_prune_queue`); called by the [`Receiver`] for each segment that
//! is not simply the next one, and for all while the stack's memory is scarce.
//!
//! **Rule.** What is in order and what is not take twice the receive buffer at most, and one buffer of a
//! device more: chunks are half full or better as long as data comes in segments of some size. Above that, or
//! when the stack's memory ([`tcp_mem`](crate::settings::config::MemoryLimits)) does not allow more, data
//! behind what arrived is dropped. If that is not enough, the segment itself is. Data that is next needs no
//! room in that limit: the window has promised it.

use super::Receiver;
use crate::buffers::{BufferPool, CHUNK_MIN, CHUNK_OVERHEAD};
use crate::ingress::recv_window::RCVBUF_MIN;
use crate::words::BUFFER_BYTES;

/// What was dropped for lack of memory, by the names of Linux's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Squeezed {
    /// There was no room at first.
    pub(crate) prune_called: bool,
    /// Data out of order was dropped.
    pub(crate) ofo_pruned: bool,
    /// That was not enough.
    pub(crate) rcv_pruned: bool,
    /// The segment was next, and was dropped.
    pub(crate) rcvq_drop: bool,
    /// The segment was out of order, and was dropped, or a part of it.
    pub(crate) ofo_drop: bool,
}

impl Receiver {
    /// The most memory that received data may take.
    pub(crate) const fn memory_max(&self) -> usize {
        2 * self.window.rcvbuf() as usize + BUFFER_BYTES
    }

    /// The memory that received data takes.
    pub(crate) fn memory(&self) -> usize {
        self.queue.memory() + self.reassembly.memory()
    }

    /// Finds memory for `len` bytes; what lies behind `from` may give way. Returns how much data out of order
    /// may take, 0 if the segment must be dropped.
    #[inline(never)]
    pub(super) fn make_room(
        &mut self,
        is_next: bool,
        from: u64,
        len: usize,
        least: u32,
        squeezed: &mut Squeezed,
        pool: &mut BufferPool,
    ) -> usize {
        let need = len.max(CHUNK_MIN) + CHUNK_OVERHEAD;
        let least = u64::from(least.max(RCVBUF_MIN));
        // The share of the buffer that is dropped at a time. Linux: `tcp_prune_ofo_queue`.
        let share = self.window.rcvbuf() as usize / 8;
        for goal in [0, need.max(share), usize::MAX] {
            if goal > 0 {
                squeezed.prune_called = true;
                squeezed.ofo_pruned |= self.reassembly.prune(from, goal, pool) > 0;
            }
            let held = self.memory();
            let fits = held + need <= self.memory_max() || (is_next && self.reassembly.is_empty());
            if fits && pool.budget.allows(held as u64, need as u64, least) {
                return if is_next { usize::MAX } else { self.memory_max() - self.queue.memory() };
            }
        }
        squeezed.rcv_pruned = true;
        squeezed.rcvq_drop = is_next;
        squeezed.ofo_drop = !is_next;
        0
    }
}
