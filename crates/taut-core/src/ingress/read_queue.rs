//! Received bytes that are in order and wait for the application.
//! Origin: RFC 9293 §3.3.1 (the bytes before RCV.NXT); Linux: `sk_receive_queue`.
//! Called by segment arrival (`push`), by reassembly, and by the application's reads.

use bytes::Bytes;

use crate::buffers::{BufferPool, Chunk, ChunkQueue};
use crate::ingress::payload::Payload;

/// The bytes between the application's read position and RCV.NXT.
///
/// Memory is at most about twice the bytes held: buffers are kept only when half full, copies fill the last
/// chunk first, and chunks double.
#[derive(Debug)]
pub(crate) struct ReadQueue {
    /// Position of the next byte the application reads. Linux: `copied_seq`.
    start: u64,
    /// Position after the last byte.
    end: u64,
    chunks: ChunkQueue,
}

impl ReadQueue {
    /// An empty queue; the first byte received will have position `first`.
    pub(crate) const fn new(first: u64) -> Self {
        Self { start: first, end: first, chunks: ChunkQueue::new() }
    }

    /// Position after the last byte: RCV.NXT, unless a FIN took one more.
    pub(crate) const fn end(&self) -> u64 {
        self.end
    }

    /// Bytes waiting.
    pub(crate) const fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Adds the payload at the end: its buffer if that can be kept, otherwise a copy. The caller has trimmed
    /// it to begin at [`end`](Self::end).
    #[inline]
    pub(crate) fn push(&mut self, mut payload: Payload<'_>, pool: &mut BufferPool) {
        let len = payload.len();
        if payload.is_placed() {
            // Its reader takes it before anything else happens.
            self.end += len as u64;
            return;
        }
        if let Some((memory, place)) = payload.steal(pool) {
            if let Some(chunk) = Chunk::new(memory, place, self.end) {
                self.push_chunk(chunk, pool);
            }
            return;
        }
        let mut more = len;
        for slice in payload.gather().slices() {
            more -= slice.len();
            self.chunks.append(self.end, slice, more, pool);
            self.end += slice.len() as u64;
        }
    }

    /// Adds a chunk of reassembled data that begins at [`end`](Self::end). It is copied when that wastes less
    /// memory.
    pub(crate) fn push_chunk(&mut self, chunk: Chunk, pool: &mut BufferPool) {
        debug_assert_eq!(chunk.base(), self.end);
        let len = chunk.len();
        if len.saturating_mul(2) >= chunk.capacity() {
            self.chunks.push(chunk, pool);
        } else {
            self.chunks.append(self.end, chunk.data(), 0, pool);
            pool.give(chunk.into_memory());
        }
        self.end += len as u64;
    }

    /// Moves to `into` as many bytes as it has room for, or all if there are fewer.
    #[inline]
    pub(crate) fn read(&mut self, into: &mut [u8], pool: &mut BufferPool) -> usize {
        let n = self.peek(into);
        self.consume(n, pool);
        n
    }

    /// Copies bytes to `into` and keeps them.
    pub(crate) fn peek(&self, into: &mut [u8]) -> usize {
        let mut at = 0;
        for slice in self.chunks.iter() {
            let Some(room) = into.get_mut(at..) else { break };
            let n = room.len().min(slice.len());
            if n == 0 {
                break;
            }
            if let (Some(to), Some(from)) = (room.get_mut(..n), slice.get(..n)) {
                to.copy_from_slice(from);
            }
            at += n;
        }
        at
    }

    /// The first bytes, in place; empty only if there are none.
    pub(crate) fn chunk(&self) -> &[u8] {
        self.chunks.front()
    }

    /// Moves the first bytes out, at most `max`, without a copy unless they are few. Empty only if there are
    /// none.
    pub(crate) fn read_chunk(&mut self, max: usize, pool: &mut BufferPool) -> Bytes {
        let bytes = self.chunks.share_front(max);
        self.consume(bytes.len(), pool);
        bytes
    }

    /// Releases the first `n` bytes: the application has them.
    pub(crate) fn consume(&mut self, n: usize, pool: &mut BufferPool) {
        self.start = self.end.min(self.start + n as u64);
        self.chunks.release_until(self.start, pool);
    }

    /// Forgets everything.
    pub(crate) fn discard_all(&mut self, pool: &mut BufferPool) {
        self.start = self.end;
        self.chunks.release_until(self.end, pool);
    }

    /// Memory held, used or not, with what goes with it.
    pub(crate) fn memory(&self) -> usize {
        self.chunks.memory()
    }

    /// Memory held for payload, used or not.
    #[cfg(test)]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.chunks.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ingress::reassembly::Reassembly;
    use crate::words::seq::FIRST;
    use crate::words::{BUFFER_BYTES, Frame, Gather};
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    #[test]
    fn is_small() {
        assert!(size_of::<ReadQueue>() + size_of::<Reassembly>() <= 48);
    }

    #[test]
    fn a_large_lent_payload_is_not_copied() {
        let mut pool = BufferPool::new();
        let mut queue = ReadQueue::new(FIRST);
        let mut buffer = vec![5; BUFFER_BYTES];
        let address = buffer.as_ptr();
        queue
            .push(Payload::new(Frame::Lend { buffer: &mut buffer, range: 0..65_536 }, 52, 65_484), &mut pool);
        assert_eq!(queue.chunk().len(), 65_484);
        assert_eq!(queue.chunk().as_ptr(), address.wrapping_add(52));
        queue.consume(65_484, &mut pool);
        assert_eq!((queue.memory_bytes(), pool.spare()), (0, 1));
    }

    #[test]
    fn a_gathered_payload_takes_one_chunk() {
        let mut pool = BufferPool::new();
        let mut queue = ReadQueue::new(FIRST);
        let mut gather = Gather::EMPTY;
        gather.push(&[1; 1000]);
        gather.push(&[2; 3000]);
        queue.push(Payload::new(Frame::Gather { header: &[0; 40], payload: gather }, 40, 4000), &mut pool);
        assert_eq!(queue.memory_bytes(), 4096);
        assert_eq!(queue.chunk().len(), 4000);
    }

    proptest! {
        #[test]
        fn behaves_like_a_vector(
            steps in prop::collection::vec((any::<bool>(), prop_oneof![0_usize..100, 0_usize..3_000, 0_usize..65_000]), 1..60),
        ) {
            let mut pool = BufferPool::new();
            let mut queue = ReadQueue::new(FIRST);
            let (mut sent, mut model): (u64, Vec<u8>) = (0, Vec::new());
            for (push, n) in steps {
                if push {
                    let data: Vec<u8> = (0..n as u64).map(|i| ((sent + i) % 251) as u8).collect();
                    sent += n as u64;
                    let mut buffer = data.clone();
                    let frame = if n % 2 == 0 { Frame::Slice(&data) } else { Frame::Lend { buffer: &mut buffer, range: 0..n } };
                    queue.push(Payload::new(frame, 0, n), &mut pool);
                    model.extend(&data);
                } else {
                    let mut into = vec![0; n];
                    let got = queue.read(&mut into, &mut pool);
                    prop_assert_eq!(got, n.min(model.len()));
                    prop_assert_eq!(&into[..got], &model[..got]);
                    model.drain(..got);
                }
                prop_assert_eq!(queue.len(), model.len() as u64);
                prop_assert_eq!(queue.memory_bytes() == 0, model.is_empty());
                prop_assert_eq!(queue.chunk().is_empty(), model.is_empty());
            }
        }
    }
}
