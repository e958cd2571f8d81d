//! Memory that is not in use, of a whole stack. Origin: taut's own; called by queues of chunks, and by a
//! device that hands over its receive buffer.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::budget::{Budget, CHUNK_OVERHEAD};
use super::queue::ChunkList;
use crate::words::{BUFFER_BYTES, Holders, Known, Memory};

/// Chunks that would be this long or longer are pooled buffers.
const POOLED_FROM: usize = 65_536;

/// The smallest chunk. Eight doublings reach [`POOLED_FROM`], which
/// [`ChunkQueue::gather`](super::ChunkQueue::gather) depends on. A smaller chunk would waste less memory on a
/// short request, but the saving is within the allocator's own overhead.
pub(crate) const CHUNK_MIN: usize = 512;

/// The most spare buffers kept: 16.8 MB, the working set of a few hundred busy connections.
const SPARE_BUFFERS_MAX: usize = 256;

/// The most spare chunks kept of each smaller size: 4 MB in all.
const SPARE_CHUNKS_MAX: usize = 64;

/// The most chunks watched until the packets and applications that hold them have dropped them.
const LENT_MAX: usize = 256;

/// The oldest of more chunks than these is watched last from then on: 2 MB, more than packets of one
/// connection that leave in order.
const LENT_PATIENCE: usize = 32;

/// The most spare chunk lists kept: as many as spare buffers.
const SPARE_LISTS_MAX: usize = 256;

/// A chunk list that grew longer than this is not kept: 24 bytes a chunk add up over 256 lists.
const SPARE_LIST_CHUNKS_MAX: usize = 128;

/// Sizes of chunks: 512 bytes, doubled up to 32 KiB, and [`BUFFER_BYTES`].
const SIZES: usize = 8;

/// The index of this length in [`SIZES`]; `None` for any other length.
const fn size_of_chunk(len: usize) -> Option<usize> {
    match len {
        BUFFER_BYTES => Some(SIZES - 1),
        CHUNK_MIN..POOLED_FROM if len.is_power_of_two() => Some((len / CHUNK_MIN).trailing_zeros() as usize),
        _ => None,
    }
}

/// Memory that is not in use, newest first: what was returned last is still in the cache.
#[derive(Debug)]
pub(crate) struct BufferPool {
    /// Spare memory by size; it has no other holders.
    spare: [Vec<Memory>; SIZES],
    /// Its bytes: with those in use no more than `pressure` of `tcp_mem`.
    spare_bytes: u64,
    /// Released by its queue, and still held by packets below TCP or by an application that read it; oldest
    /// first.
    lent: VecDeque<Memory>,
    lists: Vec<ChunkList>,
    /// The memory in use, and its limits.
    pub(crate) budget: Budget,
    /// Who else holds memory.
    pub(crate) holders: Holders,
    /// Bytes that need no memory.
    pub(crate) known: Option<Known>,
}

impl BufferPool {
    pub(crate) const fn new() -> Self {
        Self {
            spare: [const { Vec::new() }; SIZES],
            spare_bytes: 0,
            lent: VecDeque::new(),
            lists: Vec::new(),
            budget: Budget::new(),
            holders: Holders::new(),
            known: None,
        }
    }

    /// Takes a device's receive buffer, and leaves a spare buffer in its place, or an empty one if there is
    /// none.
    pub(crate) fn exchange(&mut self, buffer: &mut Vec<u8>) -> Memory {
        let spare = if buffer.len() == BUFFER_BYTES {
            // Buffers that an application has read without a copy return here. The newest one, unlike the
            // oldest spare one, is still in the cache.
            if !self.lent.is_empty() {
                self.reclaim();
            }
            self.take_spare(SIZES - 1, BUFFER_BYTES)
        } else {
            None
        };
        let is_new = spare.is_none();
        let mut memory = spare.unwrap_or_else(|| Memory::new(Vec::new()));
        if let Some(bytes) = memory.bytes_mut() {
            core::mem::swap(bytes, buffer);
        }
        self.budget.charge(memory.len() + CHUNK_OVERHEAD);
        if is_new {
            self.trim();
        }
        memory
    }

    /// Frees spare memory, the largest first, that has no place beside the memory in use. Called where memory
    /// is added: what is taken from the spare one, or becomes that, changes no sum.
    fn trim(&mut self) {
        for size in (0..SIZES).rev() {
            let bytes = if size == SIZES - 1 { BUFFER_BYTES } else { CHUNK_MIN << size };
            while self.spare_bytes > self.budget.spare().bytes && self.take_spare(size, bytes).is_some() {}
        }
    }

    /// The newest with this index, which is so many bytes long.
    fn take_spare(&mut self, size: usize, bytes: usize) -> Option<Memory> {
        let memory = self.spare.get_mut(size)?.pop()?;
        self.spare_bytes -= bytes as u64;
        Some(memory)
    }

    /// Takes memory back, which no longer counts as in use. One piece too many, or of a length that no chunk
    /// has, is freed; memory that a packet or an application still holds comes back when they have dropped
    /// it.
    pub(crate) fn give(&mut self, memory: Memory) {
        self.budget.uncharge(memory.len() + CHUNK_OVERHEAD);
        // There was room for it in use.
        self.keep(memory, true);
    }

    /// Memory that is not in use is kept as a spare, if there is room for it.
    #[inline]
    fn keep(&mut self, mut memory: Memory, has_room: bool) {
        let bytes = memory.len();
        let Some(size) = size_of_chunk(bytes) else { return };
        if memory.bytes_mut().is_none() {
            if memory.is_known() {
                return;
            }
            // The one that was watched longest is freed by its last holder.
            if self.lent.len() == LENT_MAX {
                self.lent.pop_front();
            }
            self.lent.push_back(memory);
        } else if let Some(spare) = self.spare.get_mut(size)
            && spare.len() < if size == SIZES - 1 { SPARE_BUFFERS_MAX } else { SPARE_CHUNKS_MAX }
            && (has_room || self.spare_bytes + bytes as u64 <= self.budget.spare().bytes)
        {
            self.spare_bytes += bytes as u64;
            spare.push(memory);
        }
    }

    /// Takes back memory whose other holders have dropped it.
    fn reclaim(&mut self) {
        // Packets leave mostly in order, and applications drop what they read mostly in order.
        while self.lent.front_mut().is_some_and(|memory| memory.bytes_mut().is_some()) {
            if let Some(memory) = self.lent.pop_front() {
                self.keep(memory, false);
            }
        }
        // One that stays long, as in an application's cache, must not keep the others.
        if self.lent.len() > LENT_PATIENCE {
            self.lent.rotate_left(1);
        }
    }

    /// Spare buffers at hand.
    #[cfg(test)]
    pub(crate) fn spare(&self) -> usize {
        self.spare[SIZES - 1].len()
    }

    /// Memory for a chunk that holds `need` more bytes after a chunk of `previous` bytes (0 for none): a
    /// power of two, at least twice the previous chunk unless there is pressure, and a buffer from 64 KiB on.
    /// `first` are the bytes that it will begin with: if they are [known](Known), it is no memory.
    pub(crate) fn take_chunk(&mut self, need: usize, previous: usize, first: &[u8]) -> Memory {
        let previous = if self.budget.is_pressed() { 0 } else { previous };
        let bytes = need.min(POOLED_FROM).next_power_of_two().max(previous.saturating_mul(2)).max(CHUNK_MIN);
        let bytes = if bytes >= POOLED_FROM { BUFFER_BYTES } else { bytes };
        if !self.lent.is_empty() {
            self.reclaim();
        }
        self.budget.charge(bytes + CHUNK_OVERHEAD);
        if let Some(known) = self.known
            && let Some(place) = known.place(first)
        {
            return Memory::known(known.bytes(place, bytes));
        }
        if let Some(memory) = size_of_chunk(bytes).and_then(|size| self.take_spare(size, bytes)) {
            return memory;
        }
        self.trim();
        Memory::zeroed(bytes)
    }

    pub(super) fn take_list(&mut self) -> ChunkList {
        self.lists.pop().unwrap_or_default()
    }

    pub(super) fn give_list(&mut self, list: ChunkList) {
        debug_assert!(list.list.is_empty() && list.memory == 0);
        if self.lists.len() < SPARE_LISTS_MAX && list.list.capacity() <= SPARE_LIST_CHUNKS_MAX {
            self.lists.push(list);
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::super::budget::MemoryLimits;
    use super::*;
    use std::vec;

    fn buffer(fill: u8) -> Memory {
        Memory::new(vec![fill; BUFFER_BYTES])
    }

    #[test]
    fn pool_returns_the_newest_buffer_first() {
        let mut pool = BufferPool::new();
        pool.give(buffer(2));
        pool.give(buffer(1));
        assert_eq!(pool.take_chunk(POOLED_FROM, 0, &[]).bytes()[0], 1);
        assert_eq!(pool.take_chunk(POOLED_FROM, 0, &[]).bytes()[0], 2);
        assert_eq!(pool.take_chunk(POOLED_FROM, 0, &[]).len(), BUFFER_BYTES);
    }

    #[test]
    fn pool_is_bounded_and_refuses_other_lengths() {
        let mut pool = BufferPool::new();
        for len in [0, 256, 1_500, 65_536] {
            pool.give(Memory::zeroed(len));
        }
        assert!(pool.spare.iter().all(Vec::is_empty));
        for _ in 0..SPARE_BUFFERS_MAX + 3 {
            pool.give(buffer(0));
            pool.give(Memory::zeroed(8_192));
        }
        assert_eq!((pool.spare(), pool.spare[4].len()), (SPARE_BUFFERS_MAX, SPARE_CHUNKS_MAX));
    }

    /// 16 pages of 4,096 bytes.
    #[test]
    fn mem_18_spare_memory_and_memory_in_use_stay_below_pressure() {
        let mut pool = BufferPool::new();
        pool.budget.limit(MemoryLimits { low: 8, pressure: 16, high: 32 }, 0);
        let most = 16 * 4_096;
        let held = |pool: &BufferPool| pool.budget.usage().bytes + pool.spare_bytes;
        let small: Vec<_> = (0..50).map(|_| pool.take_chunk(1_024, 0, &[])).collect();
        small.into_iter().for_each(|memory| pool.give(memory));
        assert_eq!((pool.spare_bytes, pool.budget.usage().bytes), (50 * 1_024, 0), "kept");
        let large = pool.take_chunk(32_768, 0, &[]);
        assert!(held(&pool) <= most && pool.spare_bytes >= 31 * 1_024, "{} are spare", pool.spare_bytes);
        pool.give(large);
        assert!(held(&pool) <= most, "{} are spare", pool.spare_bytes);
        let all: Vec<_> = (0..2).map(|_| pool.take_chunk(32_768, 0, &[])).collect();
        assert_eq!((pool.spare_bytes, pool.budget.is_pressed()), (0, true));
        all.into_iter().for_each(|memory| pool.give(memory));
        assert!(held(&pool) <= most);
    }

    #[test]
    fn chunks_double_up_to_the_pooled_buffer() {
        let mut pool = BufferPool::new();
        assert_eq!(pool.take_chunk(1, 0, &[]).len(), 512);
        assert_eq!(pool.take_chunk(600, 0, &[]).len(), 1024);
        assert_eq!(pool.take_chunk(1, 1024, &[]).len(), 2048);
        assert_eq!(pool.take_chunk(32_768, 0, &[]).len(), 32_768);
        assert_eq!(pool.take_chunk(40_000, 0, &[]).len(), BUFFER_BYTES);
        assert_eq!(pool.take_chunk(1, 32_768, &[]).len(), BUFFER_BYTES);
        assert_eq!(pool.take_chunk(usize::MAX, BUFFER_BYTES, &[]).len(), BUFFER_BYTES);
    }

    #[test]
    fn every_size_of_chunk_is_used_again() {
        let mut pool = BufferPool::new();
        for need in [1, 600, 2_000, 3_000, 5_000, 9_000, 20_000, 40_000] {
            let memory = pool.take_chunk(need, 0, &[]);
            let address = memory.bytes().as_ptr();
            pool.give(memory);
            assert_eq!(pool.take_chunk(need, 0, &[]).bytes().as_ptr(), address, "{need}");
        }
    }

    #[test]
    fn memory_that_a_packet_holds_comes_back_when_it_has_left() {
        let mut pool = BufferPool::new();
        let memory = pool.take_chunk(POOLED_FROM, 0, &[]);
        let (address, held) = (memory.bytes().as_ptr(), memory.clone());
        pool.give(memory);
        assert_ne!(pool.take_chunk(POOLED_FROM, 0, &[]).bytes().as_ptr(), address, "not while it is held");
        drop(held);
        assert_eq!(pool.take_chunk(POOLED_FROM, 0, &[]).bytes().as_ptr(), address);
        // A device that never gives anything back costs no more than this.
        let held: Vec<Memory> = (0..2 * LENT_MAX).map(|_| pool.take_chunk(1, 0, &[])).collect();
        held.iter().for_each(|memory| pool.give(memory.clone()));
        assert_eq!(pool.lent.len(), LENT_MAX);
    }

    /// An application keeps one piece of memory for ever, and uses others for a while.
    #[test]
    fn memory_that_is_kept_delays_no_other() {
        let mut pool = BufferPool::new();
        let mut take =
            |count| -> Vec<Memory> { (0..count).map(|_| pool.take_chunk(POOLED_FROM, 0, &[])).collect() };
        let (kept, used) = (take(1), take(LENT_PATIENCE));
        let held: Vec<_> = kept.iter().chain(&used).map(|memory| memory.share(0..100)).collect();
        let addresses: Vec<_> = used.iter().map(|memory| memory.bytes().as_ptr()).collect();
        kept.into_iter().chain(used).for_each(|memory| pool.give(memory));
        let _kept = held.into_iter().next();
        let taken: Vec<_> = (0..=addresses.len()).map(|_| pool.take_chunk(POOLED_FROM, 0, &[])).collect();
        assert!(addresses.iter().all(|&at| taken.iter().any(|memory| memory.bytes().as_ptr() == at)));
    }

    #[test]
    fn a_received_buffer_is_exchanged_for_a_spare_one() {
        let mut pool = BufferPool::new();
        pool.give(buffer(1));
        let mut received = vec![2; BUFFER_BYTES];
        assert_eq!(pool.exchange(&mut received).bytes()[0], 2);
        assert_eq!((received[0], received.len()), (1, BUFFER_BYTES));
        assert_eq!(pool.exchange(&mut received).bytes()[0], 1);
        assert!(received.is_empty(), "there was no spare one");
    }
}
