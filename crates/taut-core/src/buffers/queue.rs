//! Chunks in a row: the bytes of one stream, from which packets are gathered. Origin: taut's own; called by
//! the write queue and the read queue.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::ops::Range;

use bytes::Bytes;

use super::chunk::Chunk;
use super::pool::BufferPool;
use crate::words::{GATHER_MAX, Gather, Memory};

/// Boxed, so that an idle connection pays one pointer; the boxes themselves are pooled.
pub(super) type ChunkList = Box<Chunks>;

/// Chunks, oldest first.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    pub(super) list: VecDeque<Chunk>,
    /// The memory of all of them, see [`Chunk::cost`].
    pub(super) memory: usize,
}

/// Consecutive chunks, oldest first; one pointer, and nothing behind it, while empty.
#[derive(Debug, Default)]
pub(crate) struct ChunkQueue(Option<ChunkList>);

impl ChunkQueue {
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    #[cfg(test)]
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Copies `data`, whose first byte has position `base`, to the end. `more` bytes are known to follow in
    /// further calls, so that a new chunk is made long enough for them too.
    pub(crate) fn append(&mut self, base: u64, mut data: &[u8], more: usize, pool: &mut BufferPool) {
        if data.is_empty() {
            return;
        }
        let Chunks { list, memory } = &mut **self.0.get_or_insert_with(|| pool.take_list());
        let mut base = base;
        let mut previous = 0;
        if let Some(tail) = list.back_mut() {
            // A run that is replayed must find the chunk held where it was held before.
            let is_held = pool.holders.are_watched() && pool.holders.answer(tail.is_held());
            let n = if is_held { 0 } else { tail.fill(data, pool.known.as_ref()) };
            data = data.get(n..).unwrap_or(&[]);
            if data.is_empty() {
                return;
            }
            base += n as u64;
            previous = if tail.memory.is_lent() { 0 } else { tail.capacity() };
        }
        while !data.is_empty() {
            let mut chunk =
                Chunk::empty(pool.take_chunk(data.len().saturating_add(more), previous, data), base);
            let n = chunk.fill(data, pool.known.as_ref());
            data = data.get(n..).unwrap_or(&[]);
            base += n as u64;
            previous = chunk.capacity();
            *memory += chunk.cost();
            list.push_back(chunk);
        }
    }

    /// Adds a chunk as it is, without a copy. An empty one is dropped.
    pub(crate) fn push(&mut self, chunk: Chunk, pool: &mut BufferPool) {
        if chunk.len() == 0 {
            pool.give(chunk.into_memory());
        } else {
            let chunks = self.0.get_or_insert_with(|| pool.take_list());
            chunks.memory += chunk.cost();
            chunks.list.push_back(chunk);
        }
    }

    /// Adds the bytes at `range` of an application's memory, whose first one has position `base`, without a
    /// copy.
    pub(crate) fn push_lent(
        &mut self,
        base: u64,
        memory: &Memory,
        range: Range<usize>,
        pool: &mut BufferPool,
    ) {
        pool.budget.charge(range.len());
        let Chunks { list, memory: count } = &mut **self.0.get_or_insert_with(|| pool.take_list());
        *count += range.len();
        if list.back_mut().is_some_and(|tail| tail.extend_lent(memory, &range)) {
            return;
        }
        if let Some(chunk) = Chunk::new(memory.clone(), range, base) {
            list.push_back(chunk);
        }
    }

    /// How far the bytes from position `start` on lie in [`GATHER_MAX`] pieces.
    pub(crate) fn reach(&self, start: u64) -> u64 {
        let Some(Chunks { list, .. }) = self.0.as_deref() else { return u64::MAX };
        let first = list.partition_point(|chunk| chunk.end() <= start);
        list.get(first + GATHER_MAX - 1).map_or(u64::MAX, Chunk::end)
    }

    /// The first bytes, at most `max` and not more than are contiguous in memory, for the application to
    /// hold.
    pub(crate) fn share_front(&self, max: usize) -> Bytes {
        self.0
            .as_ref()
            .and_then(|chunks| chunks.list.front())
            .map_or(Bytes::new(), |chunk| chunk.take_front(max))
    }

    /// The bytes at positions `range`, in at most [`GATHER_MAX`] pieces; a shorter prefix if they lie in
    /// more.
    ///
    /// That never happens to a queue filled only by [`append`](Self::append) without pressure for up to 64
    /// KiB; see [`reach`](Self::reach) for others. A chunk is at least twice as long as the one before, or a
    /// buffer. It is made only when the one before is full, or is shared, which requires that it is three
    /// quarters full or has `SHARE_FROM` bytes. If a range touched nine chunks, the seven inner ones would
    /// lie in it entirely. The first of those follows a chunk of at least 512 bytes, so together they hold at
    /// least ¾ · 1024 · (1 + 2 + 4 + 8 + 16) + 2 · 24,576 = 72,960 bytes.
    pub(crate) fn gather(&self, range: Range<u64>) -> Gather<'_> {
        let mut gather = Gather::EMPTY;
        let Some(Chunks { list, .. }) = self.0.as_deref() else { return gather };
        let Range { start, end } = range;
        let first = list.partition_point(|chunk| chunk.end() <= start);
        for (index, chunk) in (first..).zip(list.range(first..)).take(GATHER_MAX) {
            if chunk.base() >= end {
                break;
            }
            let from = start.saturating_sub(chunk.base()) as usize;
            let to = usize::try_from(end - chunk.base()).unwrap_or(usize::MAX).min(chunk.len());
            let memory = chunk.to_share(index + 1 == list.len());
            gather.push_of(chunk.data().get(from..to).unwrap_or(&[]), memory);
        }
        gather
    }

    /// The first run of bytes; empty when there is none.
    pub(crate) fn front(&self) -> &[u8] {
        self.0.as_ref().and_then(|chunks| chunks.list.front()).map_or(&[], Chunk::data)
    }

    /// All runs, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().flat_map(|chunks| chunks.list.iter()).map(Chunk::data)
    }

    /// Releases everything before `position`, and each chunk's memory as soon as none of its bytes are left.
    pub(crate) fn release_until(&mut self, position: u64, pool: &mut BufferPool) {
        let Some(Chunks { list, memory }) = self.0.as_deref_mut() else { return };
        while let Some(front) = list.front_mut() {
            let lent = front.memory.is_lent();
            if front.end() > position {
                let trimmed = position.saturating_sub(front.base()) as usize;
                front.trim_front(trimmed);
                if lent {
                    *memory -= trimmed;
                    pool.budget.uncharge(trimmed);
                }
                return;
            }
            *memory -= front.cost();
            let Some(chunk) = list.pop_front() else { return };
            if lent {
                pool.budget.uncharge(chunk.len());
            } else {
                pool.give(chunk.into_memory());
            }
        }
        if let Some(list) = self.0.take() {
            pool.give_list(list);
        }
    }

    /// Memory held, used or not, with what goes with it.
    pub(crate) fn memory(&self) -> usize {
        self.0.as_ref().map_or(0, |chunks| chunks.memory)
    }

    /// Memory held, used or not.
    #[cfg(test)]
    pub(crate) fn memory_bytes(&self) -> usize {
        let chunks = || self.0.iter().flat_map(|chunks| chunks.list.iter());
        assert_eq!(self.memory(), chunks().map(Chunk::cost).sum::<usize>());
        chunks().map(Chunk::capacity).sum()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec;
    use std::vec::Vec;

    /// The last chunk takes more bytes while a packet cannot hold it, and no more while one does.
    #[test]
    fn nothing_is_written_to_memory_that_a_packet_holds() {
        let mut pool = BufferPool::new();
        // Chunks of 512 bytes: 383 are less than three quarters, 384 are three quarters.
        for (len, shared) in [(383, false), (384, true)] {
            let mut queue = ChunkQueue::new();
            queue.append(0, &vec![1; len], 0, &mut pool);
            let memory = queue.gather(0..512).pieces().next().and_then(|(_, memory)| memory).cloned();
            assert_eq!(memory.is_some(), shared);
            let before = memory.as_ref().map(|memory| memory.bytes().to_vec());
            queue.append(len as u64, &[2; 10], 0, &mut pool);
            assert_eq!(queue.gather(0..512).slices().len(), if shared { 2 } else { 1 });
            assert_eq!(memory.map(|memory| memory.bytes().to_vec()), before);
            queue.release_until(1_000, &mut pool);
        }
        // A chunk that is not the last is complete, however little of it is left.
        let mut queue = ChunkQueue::new();
        queue.append(0, &[1; 512], 0, &mut pool);
        queue.append(512, &[1; 1], 0, &mut pool);
        let shared: Vec<bool> = queue.gather(500..513).pieces().map(|(_, memory)| memory.is_some()).collect();
        assert_eq!(shared, [true, false]);
    }

    /// Says that memory is held, or that it is not, and counts the questions.
    #[derive(Debug)]
    struct Says(bool, std::sync::Arc<core::sync::atomic::AtomicU32>);

    impl crate::words::Witness for Says {
        fn is_held(&mut self, _: bool) -> bool {
            self.1.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
            self.0
        }
    }

    #[test]
    fn a_witness_decides_whether_the_last_chunk_takes_more() {
        for says in [false, true] {
            let asked = std::sync::Arc::default();
            let mut pool = BufferPool::new();
            pool.holders.set_witness(Box::new(Says(says, std::sync::Arc::clone(&asked))));
            let mut queue = ChunkQueue::new();
            queue.append(0, &[1; 400], 0, &mut pool);
            queue.append(400, &[2; 10], 0, &mut pool);
            assert_eq!(queue.gather(0..512).slices().len(), if says { 2 } else { 1 });
            assert_eq!(asked.load(core::sync::atomic::Ordering::Relaxed), 1, "a new chunk is nobody else's");
            // What it says does not let memory be written that is really held.
            let held = queue.gather(0..512).pieces().filter_map(|(_, memory)| memory.cloned()).next();
            let before = held.as_ref().map(|memory| memory.bytes().to_vec());
            queue.append(410, &[3; 10], 0, &mut pool);
            assert_eq!(held.map(|memory| memory.bytes().to_vec()), before);
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(size_of::<ChunkQueue>(), size_of::<usize>());
        assert!(size_of::<Chunk>() <= 24);
    }
}
