//! How much memory the shards of one stack hold together: each adds what it holds to one sum, and learns what
//! the others do. taut's own; Linux likewise counts on each processor and adds to a sum now and then. Called
//! by `departures.rs` after every use of a stack.
//!
//! A shard adds to the sum only when it holds [`STEP_BYTES`] more or less than it last said. So the sum is
//! exact to that for each shard, and costs one load while little changes.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use taut_core::config::MemoryUse;

/// What a shard may hold more or less than it has said. Linux: 1 MiB (`SK_MEMORY_PCPU_RESERVE`).
const STEP_BYTES: u64 = 1 << 20;

/// The same for connections.
const STEP_CONNECTIONS: u32 = 16;

/// The sum over all shards.
#[derive(Debug, Default)]
pub(crate) struct SharedMemory {
    bytes: AtomicUsize,
    connections: AtomicU32,
}

/// A shard's part of the sum.
#[derive(Debug, Default)]
pub(crate) struct OwnMemory {
    said: MemoryUse,
    /// The sum when the shard last looked.
    heard: usize,
}

impl OwnMemory {
    /// The shard holds `own`: adds that to the sum if it has changed much. Returns what others hold, if that
    /// may have changed.
    pub(crate) fn share(&mut self, own: MemoryUse, shared: &SharedMemory) -> Option<MemoryUse> {
        let moved = own.bytes.abs_diff(self.said.bytes) >= STEP_BYTES
            || own.connections.abs_diff(self.said.connections) >= STEP_CONNECTIONS;
        if moved {
            // Sums wrap, so adding a difference below zero subtracts.
            shared.bytes.fetch_add((own.bytes as usize).wrapping_sub(self.said.bytes as usize), Relaxed);
            shared.connections.fetch_add(own.connections.wrapping_sub(self.said.connections), Relaxed);
            self.said = own;
        }
        let bytes = shared.bytes.load(Relaxed);
        if !moved && bytes == self.heard {
            return None;
        }
        self.heard = bytes;
        Some(MemoryUse {
            bytes: (bytes as u64).saturating_sub(self.said.bytes),
            connections: shared.connections.load(Relaxed).saturating_sub(self.said.connections),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shard_learns_what_the_others_hold() {
        let shared = SharedMemory::default();
        let mut shards = [OwnMemory::default(), OwnMemory::default(), OwnMemory::default()];
        let mib = |count: u64, connections| MemoryUse { bytes: count << 20, connections };
        let nothing = MemoryUse::default();
        assert_eq!(shards[0].share(MemoryUse { bytes: (1 << 20) - 1, connections: 15 }, &shared), None);
        assert_eq!(shards[0].share(mib(5, 1), &shared), Some(nothing));
        assert_eq!(shards[1].share(mib(3, 16), &shared), Some(mib(5, 1)));
        assert_eq!(shards[2].share(nothing, &shared), Some(mib(8, 17)));
        assert_eq!(shards[2].share(nothing, &shared), None);
        assert_eq!(shards[0].share(mib(0, 1), &shared), Some(mib(3, 16)));
        assert_eq!(shards[2].share(nothing, &shared), Some(mib(3, 17)));
        assert_eq!(shards[1].share(nothing, &shared), Some(MemoryUse { bytes: 0, connections: 1 }));
    }
}
