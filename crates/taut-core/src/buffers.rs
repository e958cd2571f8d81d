//! Payload memory: a pool of buffers of [`BUFFER_BYTES`], and queues of chunks cut from it.
//! Origin: taut's own; Linux keeps payload in page fragments of `sk_buff`s, taut in plain byte vectors.
//! Called by the write queue, the read queue and reassembly; the pool itself is one per stack.

mod budget;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use bytes::Bytes;

use budget::Budget;
pub(crate) use budget::CHUNK_OVERHEAD;
pub use budget::{MemoryLimits, MemoryUse};

use crate::words::{BUFFER_BYTES, Duration, GATHER_MAX, Gather, Holders, Known, Memory};

/// Chunks that would be this long or longer are pooled buffers.
const POOLED_FROM: usize = 65_536;

/// The smallest chunk. Eight doublings reach [`POOLED_FROM`], which [`ChunkQueue::gather`] depends on. A smaller
/// chunk would waste less memory on a short request, but the saving is within the allocator's own overhead.
pub(crate) const CHUNK_MIN: usize = 512;

/// A waiting packet may hold the last chunk if the chunk has this many bytes or is three quarters full. The
/// chunk then takes no more bytes. [`ChunkQueue::gather`] depends on that, too.
const SHARE_FROM: usize = 24_576;

/// Fewer bytes than this are copied when an application reads them into memory of its own: about what it costs to
/// count another holder.
const SHARE_READ_MIN: usize = 1_024;

/// The memory that an application holds is at most this many times the bytes that it read.
const SHARE_READ_PART: usize = 8;

/// The most spare buffers kept: 16.8 MB, the working set of a few hundred busy connections.
const SPARE_BUFFERS_MAX: usize = 256;

/// The most spare chunks kept of each smaller size: 4 MB in all.
const SPARE_CHUNKS_MAX: usize = 64;

/// The most chunks watched until the packets and applications that hold them have dropped them.
const LENT_MAX: usize = 256;

/// The oldest of more chunks than these is watched last from then on: 2 MB, more than packets of one connection that
/// leave in order.
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

/// How far send and receive buffers that tune themselves follow the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BufferTuning {
    /// Linux: up to the maxima of `tcp_wmem` and `tcp_rmem`.
    FollowWindow,
    /// Beyond Linux's maxima of 4 and 6 MiB, and below them on a path of less than a millisecond, only as far as the path
    /// holds data.
    #[default]
    FollowPath,
}

/// Below this round trip, the first limit of [`tuned_max`] shrinks with it. Linux 6.19: `tcp_rcvbuf_low_rtt`.
const LOW_RTT: Duration = Duration::from_millis(1);

/// The first limit of [`tuned_max`] is never below this: some batches of what a device brings at a time.
const TUNED_MIN: u64 = 512 << 10;

/// How far a send or receive buffer may follow the window.
///
/// A buffer that follows a window that nothing limits feeds itself: on a path inside this host both grow until memory ends,
/// and all of it is a queue. Up to `first`, Linux's own maximum, a buffer may follow; on a path of less than a
/// millisecond, up to that share of it. Beyond that, only to `times` the bytes that the path holds, on such a short path
/// twice: those delivered in `span`, for as long as the least round trip takes.
pub(crate) fn tuned_max(
    tuning: BufferTuning,
    first: u32,
    times: u64,
    delivered: u64,
    span: Duration,
    least_rtt: Option<Duration>,
) -> u64 {
    if tuning == BufferTuning::FollowWindow {
        return u64::MAX;
    }
    let first = u64::from(first);
    let Some(rtt) = least_rtt else { return first };
    let (rtt_us, low_us, span_us) = (rtt.as_micros(), LOW_RTT.as_micros(), span.as_micros().max(1));
    let (first, times) = if rtt_us < low_us {
        ((first * rtt_us / low_us).max(TUNED_MIN), times.min(2))
    } else {
        (first, times)
    };
    first.max(delivered.saturating_mul(times).saturating_mul(rtt_us) / span_us)
}

/// Memory that is not in use, newest first: what was returned last is still in the cache.
#[derive(Debug)]
pub(crate) struct BufferPool {
    /// Spare memory by size; it has no other holders.
    spare: [Vec<Memory>; SIZES],
    /// Released by its queue, and still held by packets below TCP or by an application that read it; oldest first.
    lent: VecDeque<Memory>,
    lists: Vec<ChunkList>,
    /// The memory in use, and its limits.
    pub(crate) budget: Budget,
    /// Who else holds memory.
    pub(crate) holders: Holders,
    /// Bytes that need no memory.
    pub(crate) known: Option<Known>,
}

/// Boxed, so that an idle connection pays one pointer; the boxes themselves are pooled.
type ChunkList = Box<Chunks>;

/// Chunks, oldest first.
#[derive(Debug, Default)]
struct Chunks {
    list: VecDeque<Chunk>,
    /// The memory of all of them, see [`Chunk::cost`].
    memory: usize,
}

impl BufferPool {
    pub(crate) const fn new() -> Self {
        Self {
            spare: [const { Vec::new() }; SIZES],
            lent: VecDeque::new(),
            lists: Vec::new(),
            budget: Budget::new(),
            holders: Holders::new(),
            known: None,
        }
    }

    /// Takes a device's receive buffer, and leaves a spare buffer in its place, or an empty one if there is none.
    pub(crate) fn exchange(&mut self, buffer: &mut Vec<u8>) -> Memory {
        let spare = if buffer.len() == BUFFER_BYTES {
            // What an application has read without a copy comes back this way. The newest, not the oldest spare one, is
            // still in the cache.
            if !self.lent.is_empty() {
                self.reclaim();
            }
            self.spare[SIZES - 1].pop()
        } else {
            None
        };
        let mut memory = spare.unwrap_or_else(|| Memory::new(Vec::new()));
        if let Some(bytes) = memory.bytes_mut() {
            core::mem::swap(bytes, buffer);
        }
        self.budget.charge(memory.len() + CHUNK_OVERHEAD);
        memory
    }

    /// Takes memory back, which no longer counts as in use. One piece too many, or of a length that no chunk has, is freed;
    /// memory that a packet or an application still holds comes back when they have dropped it.
    pub(crate) fn give(&mut self, memory: Memory) {
        self.budget.uncharge(memory.len() + CHUNK_OVERHEAD);
        self.keep(memory);
    }

    /// Memory that is not in use is kept as a spare.
    fn keep(&mut self, mut memory: Memory) {
        let Some(size) = size_of_chunk(memory.len()) else { return };
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
        {
            spare.push(memory);
        }
    }

    /// Takes back memory whose other holders have dropped it.
    fn reclaim(&mut self) {
        // Packets leave mostly in order, and applications drop what they read mostly in order.
        while self.lent.front_mut().is_some_and(|memory| memory.bytes_mut().is_some()) {
            if let Some(memory) = self.lent.pop_front() {
                self.keep(memory);
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
    /// power of two, at least twice the previous chunk, and a buffer from 64 KiB on. `first` are the bytes that it will
    /// begin with: if they are [known](Known), it is no memory.
    pub(crate) fn take_chunk(&mut self, need: usize, previous: usize, first: &[u8]) -> Memory {
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
        let spare = size_of_chunk(bytes).and_then(|size| self.spare.get_mut(size)?.pop());
        spare.unwrap_or_else(|| Memory::zeroed(bytes))
    }

    fn take_list(&mut self) -> ChunkList {
        self.lists.pop().unwrap_or_default()
    }

    fn give_list(&mut self, list: ChunkList) {
        debug_assert!(list.list.is_empty() && list.memory == 0);
        if self.lists.len() < SPARE_LISTS_MAX && list.list.capacity() <= SPARE_LIST_CHUNKS_MAX {
            self.lists.push(list);
        }
    }
}

/// A run of consecutive bytes of a stream, in a piece of memory that may be longer.
#[derive(Debug)]
pub(crate) struct Chunk {
    memory: Memory,
    /// Stream position of byte `start` of the memory.
    base: u64,
    /// The run is `start..end` of the memory; `start < end` except while a chunk is being filled.
    start: u32,
    end: u32,
}

impl Chunk {
    /// Wraps memory whose `range` holds the bytes from position `base` on; `None` if the range lies outside
    /// the memory.
    pub(crate) fn new(memory: Memory, range: Range<usize>, base: u64) -> Option<Self> {
        memory.bytes().get(range.clone())?;
        let start = u32::try_from(range.start).ok()?;
        let end = u32::try_from(range.end).ok()?;
        Some(Self { memory, base, start, end })
    }

    /// Empty memory, to be filled from position `base` on.
    pub(crate) const fn empty(memory: Memory, base: u64) -> Self {
        Self { memory, base, start: 0, end: 0 }
    }

    pub(crate) fn data(&self) -> &[u8] {
        self.memory.bytes().get(self.start as usize..self.end as usize).unwrap_or(&[])
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
    pub(crate) fn capacity(&self) -> usize {
        self.memory.len()
    }

    /// What it counts as memory: all of the stack's own and what goes with it, or the bytes that an application lent.
    pub(crate) fn cost(&self) -> usize {
        if self.memory.is_lent() { self.len() } else { self.capacity() + CHUNK_OVERHEAD }
    }

    /// Bytes that still fit behind the run.
    pub(crate) fn spare(&self) -> usize {
        self.memory.len() - self.end as usize
    }

    /// The memory, for packets to hold, if that does no harm: nothing more is written to a chunk while a packet holds
    /// it.
    fn to_share(&self, is_last: bool) -> Option<&Memory> {
        let enough = SHARE_FROM.min(self.capacity() / 4 * 3);
        (!is_last || self.end as usize >= enough || self.memory.is_lent()).then_some(&self.memory)
    }

    /// The first `n` bytes, or all if there are fewer, in memory that the caller may hold on to. They are copied if
    /// they are few, or so small a part of their memory that holding it would waste most of it.
    fn take_front(&self, n: usize) -> Bytes {
        let n = n.min(self.len());
        let start = self.start as usize;
        if n < SHARE_READ_MIN || n < self.capacity() / SHARE_READ_PART {
            Bytes::copy_from_slice(self.data().get(..n).unwrap_or_default())
        } else {
            self.memory.share(start..start + n)
        }
    }

    /// Adds the bytes at `range` of an application's memory, if they follow those that it has.
    fn extend_lent(&mut self, memory: &Memory, range: &Range<usize>) -> bool {
        let follows = self.end as usize == range.start && self.memory.is(memory);
        if follows {
            self.end = range.end as u32;
        }
        follows
    }

    /// Whether a packet, or an application that read it, holds the memory.
    fn is_held(&mut self) -> bool {
        self.memory.is_held()
    }

    /// Copies the beginning of `data` behind the run and returns how many bytes fitted: none while a packet
    /// holds the memory. `known` are the bytes that the pool knows.
    pub(crate) fn fill(&mut self, data: &[u8], known: Option<&Known>) -> usize {
        let end = self.end as usize;
        let Some(room) = self.memory.bytes_mut().and_then(|bytes| bytes.get_mut(end..)) else {
            return self.fill_known(data, known);
        };
        let n = room.len().min(data.len());
        if let (Some(to), Some(from)) = (room.get_mut(..n), data.get(..n)) {
            to.copy_from_slice(from);
        }
        self.end += n as u32;
        n
    }

    /// [`fill`](Self::fill) of a chunk that is not the stack's own memory. If known bytes follow known ones, the run
    /// only becomes longer. If others follow them, the whole run is stored.
    #[inline(never)]
    fn fill_known(&mut self, data: &[u8], known: Option<&Known>) -> usize {
        if self.memory.is_held() || data.is_empty() {
            return 0;
        }
        let Some(known) = known.filter(|_| self.memory.is_known()) else { return 0 };
        let start = known.place(self.memory.bytes());
        if start.is_some_and(|start| known.is_at(start + self.end as usize, data)) {
            let n = self.spare().min(data.len());
            self.end += n as u32;
            return n;
        }
        self.memory = Memory::new(self.memory.bytes().to_vec());
        self.fill(data, Some(known))
    }

    /// Forgets the first `n` bytes.
    pub(crate) fn trim_front(&mut self, n: usize) {
        let n = n.min(self.len());
        self.start += n as u32;
        self.base += n as u64;
    }

    pub(crate) fn into_memory(self) -> Memory {
        self.memory
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

    /// Adds the bytes at `range` of an application's memory, whose first one has position `base`, without a copy.
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

    /// The first bytes, at most `max` and not more than are contiguous in memory, for the application to hold.
    pub(crate) fn share_front(&self, max: usize) -> Bytes {
        self.0
            .as_ref()
            .and_then(|chunks| chunks.list.front())
            .map_or(Bytes::new(), |chunk| chunk.take_front(max))
    }

    /// The bytes at positions `range`, in at most [`GATHER_MAX`] pieces; a shorter prefix if they lie in
    /// more.
    ///
    /// That never happens to a queue filled only by [`append`](Self::append) for up to 64 KiB; see
    /// [`reach`](Self::reach) for others. A chunk is at least
    /// twice as long as the one before, or a buffer. It is made only when the one before is full, or is shared, which
    /// requires that it is three quarters full or has [`SHARE_FROM`] bytes. If a range touched nine chunks, the
    /// seven inner ones would lie in it entirely. The first of those follows a chunk of at least 512 bytes, so
    /// together they hold at least ¾ · 1024 · (1 + 2 + 4 + 8 + 16) + 2 · 24,576 = 72,960 bytes.
    pub(crate) fn gather(&self, range: Range<u64>) -> Gather<'_> {
        let mut gather = Gather::EMPTY;
        let Some(Chunks { list, .. }) = self.0.as_deref() else { return gather };
        let Range { start, end } = range;
        let first = list.partition_point(|chunk| chunk.end() <= start);
        for (index, chunk) in (first..).zip(list.range(first..)).take(GATHER_MAX) {
            if chunk.base >= end {
                break;
            }
            let from = start.saturating_sub(chunk.base) as usize;
            let to = usize::try_from(end - chunk.base).unwrap_or(usize::MAX).min(chunk.len());
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
                let trimmed = position.saturating_sub(front.base) as usize;
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

    #[test]
    fn a_tuned_buffer_stays_near_what_the_path_holds() {
        const SECOND: Duration = Duration::from_secs(1);
        let max = |rate, rtt_us| {
            tuned_max(BufferTuning::FollowPath, 6 << 20, 2, rate, SECOND, Some(Duration::from_micros(rtt_us)))
        };
        // Without a sample, and wherever the path holds less: Linux's maximum.
        assert_eq!(tuned_max(BufferTuning::FollowPath, 6 << 20, 2, 1 << 40, SECOND, None), 6 << 20);
        assert_eq!(tuned_max(BufferTuning::FollowWindow, 6 << 20, 2, 0, SECOND, None), u64::MAX);
        assert_eq!(max(12_500_000, 20_000), 6 << 20);
        // 1 Gbit/s · 300 ms = 37.5 MB, twice.
        assert_eq!(max(125_000_000, 300_000), 75_000_000);
        // 20 Gbit/s · 50 µs = 125 kB: a twentieth of 6 MiB would be 315 kB, and 512 KiB are the least.
        assert_eq!(max(2_500_000_000, 50), 512 << 10);
        assert_eq!(max(2_500_000_000, 500), 3 << 20);
        assert!(max(u64::MAX, 1_000_000) > 1 << 40, "no overflow");
    }

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
