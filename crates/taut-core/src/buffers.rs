//! Payload memory: a pool of buffers of [`BUFFER_BYTES`], and queues of chunks cut from it.
//! Origin: taut's own; Linux keeps payload in page fragments of `sk_buff`s, taut in plain byte vectors.
//! Called by the write queue, the read queue and reassembly; the pool itself is one per stack.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use crate::words::{BUFFER_BYTES, GATHER_MAX, Gather};

/// Chunks that would be this long or longer are pooled buffers.
const POOLED_FROM: usize = 65_536;

/// The smallest chunk. Eight doublings reach [`POOLED_FROM`], which [`ChunkQueue::gather`] depends on; with a
/// smaller one a short request would waste less, but no less than the allocator's own overhead.
pub(crate) const CHUNK_MIN: usize = 512;

/// The most spare buffers kept: 16.8 MB, the working set of a few hundred busy connections.
const SPARE_BUFFERS_MAX: usize = 256;

/// The most spare chunk lists kept: as many as spare buffers.
const SPARE_LISTS_MAX: usize = 256;

/// A chunk list that grew longer than this is not kept: 40 bytes a chunk add up over 256 lists.
const SPARE_LIST_CHUNKS_MAX: usize = 128;

/// Spare buffers, newest first: the one returned last is still in the cache.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    spare: Vec<Vec<u8>>,
    /// Spare chunks of [`CHUNK_MIN`] bytes, as a request or its response needs.
    small: Vec<Vec<u8>>,
    lists: Vec<ChunkList>,
}

/// Boxed, so that an idle connection pays one pointer; the boxes themselves are pooled.
type ChunkList = Box<VecDeque<Chunk>>;

impl BufferPool {
    pub(crate) const fn new() -> Self {
        Self { spare: Vec::new(), small: Vec::new(), lists: Vec::new() }
    }

    /// A buffer of [`BUFFER_BYTES`] initialised bytes with arbitrary values.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.take_if_spare().unwrap_or_else(|| vec![0; BUFFER_BYTES])
    }

    /// As [`take`](Self::take), but only if that allocates nothing.
    pub(crate) fn take_if_spare(&mut self) -> Option<Vec<u8>> {
        self.spare.pop()
    }

    /// Takes a buffer back. A buffer of another length, or one too many, is freed.
    pub(crate) fn give(&mut self, buffer: Vec<u8>) {
        let spare = match buffer.len() {
            BUFFER_BYTES => &mut self.spare,
            CHUNK_MIN => &mut self.small,
            _ => return,
        };
        if spare.len() < SPARE_BUFFERS_MAX {
            spare.push(buffer);
        }
    }

    /// Spare buffers at hand.
    #[cfg(test)]
    pub(crate) const fn spare(&self) -> usize {
        self.spare.len()
    }

    /// Memory for a chunk that holds `need` more bytes after a chunk of `previous` bytes (0 for none): a
    /// power of two, at least twice the previous chunk, and a pooled buffer from 64 KiB on.
    pub(crate) fn take_chunk(&mut self, need: usize, previous: usize) -> Vec<u8> {
        let bytes = need.min(POOLED_FROM).next_power_of_two().max(previous.saturating_mul(2)).max(CHUNK_MIN);
        match bytes {
            POOLED_FROM.. => self.take(),
            CHUNK_MIN => self.small.pop().unwrap_or_else(|| vec![0; CHUNK_MIN]),
            _ => vec![0; bytes],
        }
    }

    fn take_list(&mut self) -> ChunkList {
        self.lists.pop().unwrap_or_default()
    }

    fn give_list(&mut self, list: ChunkList) {
        debug_assert!(list.is_empty());
        if self.lists.len() < SPARE_LISTS_MAX && list.capacity() <= SPARE_LIST_CHUNKS_MAX {
            self.lists.push(list);
        }
    }
}

/// A run of consecutive bytes of a stream, in a piece of memory that may be longer.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// Fully initialised: its length is its capacity, so that the rest can be written to.
    bytes: Vec<u8>,
    /// Stream position of `bytes[start]`.
    base: u64,
    /// The run is `bytes[start..end]`; `start < end` except while a chunk is being filled.
    start: u32,
    end: u32,
}

impl Chunk {
    /// Wraps memory whose `range` holds the bytes from position `base` on; `None` if the range lies outside
    /// the memory.
    pub(crate) fn new(bytes: Vec<u8>, range: Range<usize>, base: u64) -> Option<Self> {
        bytes.get(range.clone())?;
        let start = u32::try_from(range.start).ok()?;
        let end = u32::try_from(range.end).ok()?;
        Some(Self { bytes, base, start, end })
    }

    /// Empty memory, to be filled from position `base` on.
    pub(crate) const fn empty(bytes: Vec<u8>, base: u64) -> Self {
        Self { bytes, base, start: 0, end: 0 }
    }

    pub(crate) fn data(&self) -> &[u8] {
        self.bytes.get(self.start as usize..self.end as usize).unwrap_or(&[])
    }

    pub(crate) const fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    pub(crate) const fn base(&self) -> u64 {
        self.base
    }

    /// Position after the last byte.
    pub(crate) const fn end(&self) -> u64 {
        self.base + (self.end - self.start) as u64
    }

    /// Memory held, used or not.
    pub(crate) const fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes that still fit behind the run.
    pub(crate) const fn spare(&self) -> usize {
        self.bytes.len() - self.end as usize
    }

    /// Copies the beginning of `data` behind the run and returns how many bytes fitted.
    pub(crate) fn fill(&mut self, data: &[u8]) -> usize {
        let Some(room) = self.bytes.get_mut(self.end as usize..) else { return 0 };
        let n = room.len().min(data.len());
        if let (Some(to), Some(from)) = (room.get_mut(..n), data.get(..n)) {
            to.copy_from_slice(from);
        }
        self.end += n as u32;
        n
    }

    /// Forgets the first `n` bytes.
    pub(crate) fn trim_front(&mut self, n: usize) {
        let n = n.min(self.len());
        self.start += n as u32;
        self.base += n as u64;
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
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
        let list = self.0.get_or_insert_with(|| pool.take_list());
        let mut base = base;
        let mut previous = 0;
        if let Some(tail) = list.back_mut() {
            let n = tail.fill(data);
            data = data.get(n..).unwrap_or(&[]);
            base += n as u64;
            previous = tail.capacity();
        }
        while !data.is_empty() {
            let mut chunk = Chunk::empty(pool.take_chunk(data.len().saturating_add(more), previous), base);
            let n = chunk.fill(data);
            data = data.get(n..).unwrap_or(&[]);
            base += n as u64;
            previous = chunk.capacity();
            list.push_back(chunk);
        }
    }

    /// Adds a chunk as it is, without a copy. An empty one is dropped.
    pub(crate) fn push(&mut self, chunk: Chunk, pool: &mut BufferPool) {
        if chunk.len() == 0 {
            pool.give(chunk.into_bytes());
        } else {
            self.0.get_or_insert_with(|| pool.take_list()).push_back(chunk);
        }
    }

    /// The bytes at positions `range`, in at most [`GATHER_MAX`] pieces; a shorter prefix if they lie in
    /// more.
    ///
    /// That never happens to a queue filled by [`append`](Self::append) for up to 64 KiB. A chunk is made
    /// only when the one before is full, and is at least twice as long or a pooled buffer. If a range touched
    /// nine chunks, the seven inner ones would lie in it entirely. The first of those follows a chunk of at
    /// least 512 bytes, so they hold at least 1024 · (1 + 2 + … + 64) = 130,048 bytes, or one of them is a
    /// pooled buffer of more than 65,536; either way the range is longer than 64 KiB.
    pub(crate) fn gather(&self, range: Range<u64>) -> Gather<'_> {
        let mut gather = Gather::EMPTY;
        let Some(list) = &self.0 else { return gather };
        let Range { start, end } = range;
        let first = list.partition_point(|chunk| chunk.end() <= start);
        for chunk in list.range(first..).take(GATHER_MAX) {
            if chunk.base >= end {
                break;
            }
            let from = start.saturating_sub(chunk.base) as usize;
            let to = usize::try_from(end - chunk.base).unwrap_or(usize::MAX).min(chunk.len());
            gather.push(chunk.data().get(from..to).unwrap_or(&[]));
        }
        gather
    }

    /// The first run of bytes; empty when there is none.
    pub(crate) fn front(&self) -> &[u8] {
        self.0.as_ref().and_then(|list| list.front()).map_or(&[], Chunk::data)
    }

    /// All runs, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().flat_map(|list| list.iter()).map(Chunk::data)
    }

    /// Releases everything before `position`, and each chunk's memory as soon as none of its bytes are left.
    pub(crate) fn release_until(&mut self, position: u64, pool: &mut BufferPool) {
        let Some(list) = &mut self.0 else { return };
        while let Some(front) = list.front_mut() {
            if front.end() > position {
                front.trim_front(position.saturating_sub(front.base) as usize);
                return;
            }
            if let Some(chunk) = list.pop_front() {
                pool.give(chunk.into_bytes());
            }
        }
        if let Some(list) = self.0.take() {
            pool.give_list(list);
        }
    }

    /// Memory held, used or not.
    #[cfg(test)]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.iter().flat_map(|list| list.iter()).map(Chunk::capacity).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_returns_the_newest_buffer_first() {
        let mut pool = BufferPool::new();
        let (mut a, mut b) = (pool.take(), pool.take());
        (a[0], b[0]) = (1, 2);
        pool.give(a);
        pool.give(b);
        assert_eq!(pool.take()[0], 2);
        assert_eq!(pool.take()[0], 1);
        assert_eq!(pool.take().len(), BUFFER_BYTES);
    }

    #[test]
    fn pool_is_bounded_and_refuses_other_lengths() {
        let mut pool = BufferPool::new();
        pool.give(vec![0; 1500]);
        assert_eq!(pool.spare(), 0);
        for _ in 0..SPARE_BUFFERS_MAX + 3 {
            pool.give(vec![0; BUFFER_BYTES]);
        }
        assert_eq!(pool.spare(), SPARE_BUFFERS_MAX);
    }

    #[test]
    fn chunks_double_up_to_the_pooled_buffer() {
        let mut pool = BufferPool::new();
        assert_eq!(pool.take_chunk(1, 0).len(), 512);
        assert_eq!(pool.take_chunk(600, 0).len(), 1024);
        assert_eq!(pool.take_chunk(1, 1024).len(), 2048);
        assert_eq!(pool.take_chunk(40_000, 0).len(), BUFFER_BYTES);
        assert_eq!(pool.take_chunk(1, 32_768).len(), BUFFER_BYTES);
        assert_eq!(pool.take_chunk(usize::MAX, BUFFER_BYTES).len(), BUFFER_BYTES);
    }

    #[test]
    fn sizes() {
        assert_eq!(size_of::<ChunkQueue>(), size_of::<usize>());
        assert!(size_of::<Chunk>() <= 40);
    }
}
