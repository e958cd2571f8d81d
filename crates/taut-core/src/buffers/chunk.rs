//! A run of bytes of a stream in a piece of memory. Origin: taut's own; made and asked by `queue.rs` and by
//! reassembly.

use core::ops::Range;

use bytes::Bytes;

use super::budget::CHUNK_OVERHEAD;
use crate::words::{Known, Memory};

/// A waiting packet may hold the last chunk if the chunk has this many bytes or is three quarters full. The
/// chunk then takes no more bytes. [`ChunkQueue::gather`](super::ChunkQueue::gather) depends on that, too.
const SHARE_FROM: usize = 24_576;

/// Fewer bytes than this are copied when an application reads them into memory of its own: about what it
/// costs to count another holder.
const SHARE_READ_MIN: usize = 1_024;

/// The memory that an application holds is at most this many times the bytes that it read.
const SHARE_READ_PART: usize = 8;

/// A run of consecutive bytes of a stream, in a piece of memory that may be longer.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(super) memory: Memory,
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

    /// What it counts as memory: all of the stack's own and what goes with it, or the bytes that an
    /// application lent.
    pub(crate) fn cost(&self) -> usize {
        if self.memory.is_lent() { self.len() } else { self.capacity() + CHUNK_OVERHEAD }
    }

    /// Bytes that still fit behind the run.
    pub(crate) fn spare(&self) -> usize {
        self.memory.len() - self.end as usize
    }

    /// The memory, for packets to hold, if that does no harm: nothing more is written to a chunk while a
    /// packet holds it.
    pub(super) fn to_share(&self, is_last: bool) -> Option<&Memory> {
        let enough = SHARE_FROM.min(self.capacity() / 4 * 3);
        (!is_last || self.end as usize >= enough || self.memory.is_lent()).then_some(&self.memory)
    }

    /// The first `n` bytes, or all if there are fewer, in memory that the caller may hold on to. They are
    /// copied if they are few, or so small a part of their memory that holding it would waste most of it.
    pub(super) fn take_front(&self, n: usize) -> Bytes {
        let n = n.min(self.len());
        let start = self.start as usize;
        if n < SHARE_READ_MIN || n < self.capacity() / SHARE_READ_PART {
            Bytes::copy_from_slice(self.data().get(..n).unwrap_or_default())
        } else {
            self.memory.share(start..start + n)
        }
    }

    /// Adds the bytes at `range` of an application's memory, if they follow those that it has.
    pub(super) fn extend_lent(&mut self, memory: &Memory, range: &Range<usize>) -> bool {
        let follows = self.end as usize == range.start && self.memory.is(memory);
        if follows {
            self.end = range.end as u32;
        }
        follows
    }

    /// Whether a packet, or an application that read it, holds the memory.
    pub(super) fn is_held(&mut self) -> bool {
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

    /// [`fill`](Self::fill) of a chunk that is not the stack's own memory. If known bytes follow known ones,
    /// the run only becomes longer. If others follow them, the whole run is stored.
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
