//! The bytes that the application wrote and the peer has not acknowledged: one range of the stream.
//! Origin: RFC 9293 §3.3.1 (from SND.UNA on); where Linux keeps a list of buffers, this keeps only their
//! boundaries.
//! Called by the connection: `write` appends, segmentation gathers, acknowledgements release.
//!
//! **Why a range.** Data is cut into packets when it is sent, because only then are the rate, the windows and
//! the room in the device known. A queue of ready-made packets has to be split and merged again whenever one
//! of these changes; here a packet is just two positions. The packets *sent* are remembered elsewhere, one
//! record each.
//!
//! **Boundaries that are kept.** The beginning of the tail buffer: a write always fills that buffer up,
//! whatever the limits say, and autocorking weighs it. The ends of records (MSG_EOR): no packet extends
//! across one.
//!
//! **Memory.** Chunks that double from 512 bytes up to 64 KiB, so that a short request costs little and a
//! super-packet lies in at most eight pieces, which a device gathers without a copy. Between them may be
//! memory that the application lent ([`append_lent`](WriteQueue::append_lent)); a packet then ends with its
//! eighth piece.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::ops::Range;

use crate::buffers::{BufferPool, ChunkQueue};
use crate::words::{Gather, Memory};

/// Data written and not yet acknowledged, sent or not; which part was sent is known elsewhere.
///
/// A FIN takes a sequence number but no byte, so it is not in here.
#[derive(Debug)]
pub(crate) struct WriteQueue {
    /// Position of the first byte kept: the oldest unacknowledged one.
    start: u64,
    /// Position after the last byte written. `start <= end`.
    end: u64,
    /// Where the last buffer begins, in the sense of Linux's `tcp_sendmsg`: writes are added to it until it
    /// has the size of a super-packet.
    tail_start: u64,
    /// The bytes `start..end`.
    chunks: ChunkQueue,
    /// Boundaries inside the queue. `None` unless there are any: one pointer in every idle connection.
    marks: Option<Box<Marks>>,
}

/// Positions that no packet extends across, ascending, all in `start + 1..=end`; and where short pieces end.
#[derive(Debug, Default)]
struct Marks {
    /// Ends of records (`MSG_EOR`).
    records: VecDeque<u64>,
    /// Beginnings of buffers, kept only where buffers have their final size when written
    /// ([`AutosizeMode::is_at_write`](crate::egress::AutosizeMode::is_at_write)).
    cuts: VecDeque<u64>,
    /// Position after the last byte in memory that an application lent, or that was written under pressure; 0
    /// if there is none.
    pieces_until: u64,
}

impl Marks {
    fn is_empty(&self) -> bool {
        self.records.is_empty() && self.cuts.is_empty() && self.pieces_until == 0
    }
}

/// The first of `marks` after `seq`.
fn next_after(marks: &VecDeque<u64>, seq: u64) -> Option<u64> {
    marks.get(marks.partition_point(|&mark| mark <= seq)).copied()
}

impl WriteQueue {
    /// An empty queue whose first byte will have position `first`.
    pub(crate) const fn new(first: u64) -> Self {
        Self { start: first, end: first, tail_start: first, chunks: ChunkQueue::new(), marks: None }
    }

    /// Position of the first byte kept.
    pub(crate) const fn start(&self) -> u64 {
        self.start
    }

    /// Position after the last byte written.
    pub(crate) const fn end(&self) -> u64 {
        self.end
    }

    /// Bytes kept.
    pub(crate) const fn len(&self) -> u64 {
        self.end - self.start
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Adds a copy of all of `data`. The caller decides how much may be added.
    pub(crate) fn append(&mut self, data: &[u8], pool: &mut BufferPool) {
        self.chunks.append(self.end, data, 0, pool);
        self.end += data.len() as u64;
        // Its chunks are as small as they can be, and may be many.
        if pool.budget.is_pressed() {
            self.marks.get_or_insert_default().pieces_until = self.end;
        }
    }

    /// Adds the bytes at `range` of an application's memory, without a copy.
    pub(crate) fn append_lent(&mut self, memory: &Memory, range: Range<usize>, pool: &mut BufferPool) {
        let len = range.len() as u64;
        if len > 0 {
            self.chunks.push_lent(self.end, memory, range, pool);
            self.end += len;
            self.marks.get_or_insert_default().pieces_until = self.end;
        }
    }

    /// How far a packet that begins at `start` may extend: its bytes must lie in as many pieces as fit into a
    /// [`Gather`]. Only memory that an application lent, and bytes written under pressure, can make that less
    /// than 64 KiB.
    pub(crate) fn reach(&self, start: u64) -> u64 {
        match &self.marks {
            Some(marks) if marks.pieces_until > start => self.chunks.reach(start),
            _ => u64::MAX,
        }
    }

    /// The bytes at positions `range`, clamped to the bytes kept. Ranges of up to 64 KiB always fit; a longer
    /// one may be cut to a prefix, see [`ChunkQueue::gather`].
    pub(crate) fn gather(&self, range: Range<u64>) -> Gather<'_> {
        let Range { start, end } = range;
        self.chunks.gather(start.max(self.start)..end.min(self.end))
    }

    /// Releases the bytes before `seq`, which were acknowledged. Memory is released chunk by chunk, all of it
    /// once nothing is left, so that an idle connection holds none.
    pub(crate) fn release_until(&mut self, seq: u64, pool: &mut BufferPool) {
        let seq = seq.min(self.end);
        if seq <= self.start {
            return;
        }
        self.start = seq;
        self.tail_start = self.tail_start.max(seq);
        self.chunks.release_until(seq, pool);
        if let Some(marks) = &mut self.marks {
            for list in [&mut marks.records, &mut marks.cuts] {
                while list.front().is_some_and(|&mark| mark <= seq) {
                    list.pop_front();
                }
            }
            if marks.pieces_until <= seq {
                marks.pieces_until = 0;
            }
            if marks.is_empty() {
                self.marks = None;
            }
        }
    }

    /// Releases everything, as when the connection was reset. The next byte keeps its position.
    pub(crate) fn discard_all(&mut self, pool: &mut BufferPool) {
        self.release_until(self.end, pool);
    }

    /// Where the last buffer begins.
    pub(crate) const fn tail_start(&self) -> u64 {
        self.tail_start
    }

    /// Bytes in the last buffer that were never sent; `nxt` is the next position to send. 0 when everything
    /// in it was sent, so that the next write begins another.
    #[cfg(test)]
    pub(crate) fn tail_len(&self, nxt: u64) -> u64 {
        self.end.saturating_sub(self.tail_start.max(nxt))
    }

    /// Begins a new last buffer at the end of the written data.
    pub(crate) const fn start_tail(&mut self) {
        self.tail_start = self.end;
    }

    /// Marks the end of the written data as the end of a record: nothing written later shares a packet with
    /// it.
    pub(crate) fn mark_eor(&mut self) {
        if self.is_empty() || self.tail_has_eor() {
            return;
        }
        self.marks.get_or_insert_default().records.push_back(self.end);
    }

    /// Fixes the size of the buffer that ends here.
    pub(crate) fn mark_cut(&mut self) {
        if !self.is_empty() {
            self.marks.get_or_insert_default().cuts.push_back(self.end);
        }
    }

    /// Whether the end of the written data is the end of a record, so that nothing may be added to the last
    /// buffer.
    pub(crate) fn tail_has_eor(&self) -> bool {
        self.marks.as_ref().and_then(|marks| marks.records.back()) == Some(&self.end)
    }

    /// The first end of a record after `seq`.
    pub(crate) fn next_eor_after(&self, seq: u64) -> Option<u64> {
        next_after(&self.marks.as_ref()?.records, seq)
    }

    /// Whether a record ends at `seq`.
    pub(crate) fn ends_record(&self, seq: u64) -> bool {
        self.marks.as_ref().is_some_and(|marks| marks.records.binary_search(&seq).is_ok())
    }

    /// The first fixed beginning of a buffer after `seq`.
    pub(crate) fn next_cut_after(&self, seq: u64) -> Option<u64> {
        next_after(&self.marks.as_ref()?.cuts, seq)
    }

    /// Memory held, used or not, with what goes with it; and the bytes in memory of the application.
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
    use crate::words::seq::FIRST;
    use crate::words::{KeptPacket, TxPacket};
    use proptest::prelude::*;
    use std::vec::Vec;

    fn flat(gather: &Gather<'_>) -> Vec<u8> {
        gather.slices().concat()
    }

    #[test]
    fn is_small() {
        assert!(size_of::<WriteQueue>() <= 48);
    }

    #[test]
    fn an_acknowledged_queue_holds_no_memory() {
        let mut pool = BufferPool::new();
        let mut queue = WriteQueue::new(FIRST);
        queue.append(&[7; 200_000], &mut pool);
        assert!(queue.memory_bytes() >= 200_000);
        queue.release_until(FIRST + 199_999, &mut pool);
        assert_eq!(flat(&queue.gather(FIRST..u64::MAX)), [7]);
        queue.release_until(FIRST + 200_000, &mut pool);
        assert_eq!(queue.memory_bytes(), 0);
        assert!(queue.is_empty() && queue.chunks.is_empty());
        assert_eq!(pool.spare(), 4);
    }

    /// Chunks are powers of two from 512 bytes on, so what fits exactly takes no more.
    #[test]
    fn a_write_of_a_chunks_length_fits_into_it() {
        for (len, chunk) in [(1, 512), (512, 512), (513, 1_024), (1_024, 1_024), (32_768, 32_768)] {
            let (mut queue, mut pool) = (WriteQueue::new(FIRST), BufferPool::new());
            queue.append(&std::vec![0; len], &mut pool);
            assert_eq!(queue.memory_bytes(), chunk, "{len} bytes");
        }
    }

    #[test]
    fn records_are_found_and_forgotten() {
        let mut pool = BufferPool::new();
        let mut queue = WriteQueue::new(FIRST);
        queue.mark_eor();
        assert_eq!(queue.next_eor_after(0), None);
        queue.append(b"one", &mut pool);
        queue.mark_eor();
        queue.mark_eor();
        assert!(queue.tail_has_eor());
        queue.append(b"two", &mut pool);
        assert!(!queue.tail_has_eor());
        queue.mark_eor();
        assert_eq!(queue.next_eor_after(FIRST), Some(FIRST + 3));
        assert_eq!(queue.next_eor_after(FIRST + 2), Some(FIRST + 3));
        assert_eq!(queue.next_eor_after(FIRST + 3), Some(FIRST + 6));
        assert_eq!(queue.next_eor_after(FIRST + 6), None);
        queue.release_until(FIRST + 3, &mut pool);
        assert_eq!(queue.next_eor_after(FIRST), Some(FIRST + 6));
        queue.discard_all(&mut pool);
        assert!(queue.marks.is_none());
        assert_eq!((queue.start(), queue.end()), (FIRST + 6, FIRST + 6));
    }

    #[test]
    fn the_tail_buffer_follows_the_acknowledgements() {
        let mut pool = BufferPool::new();
        let mut queue = WriteQueue::new(FIRST);
        queue.append(&[0; 10], &mut pool);
        queue.start_tail();
        queue.append(&[0; 5], &mut pool);
        assert_eq!((queue.tail_start(), queue.tail_len(FIRST)), (FIRST + 10, 5));
        assert_eq!(queue.tail_len(FIRST + 12), 3);
        assert_eq!(queue.tail_len(FIRST + 15), 0);
        queue.release_until(FIRST + 12, &mut pool);
        assert_eq!(queue.tail_start(), FIRST + 12);
    }

    proptest! {
        /// Compared with a plain vector; and any 64 KiB are gathered whole, in at most eight pieces. Packets
        /// that are kept for a while stay as they were.
        #[test]
        fn behaves_like_a_vector(
            steps in prop::collection::vec((0_usize..4, prop_oneof![0_usize..700, 0_usize..5_000, 0_usize..200_000], any::<u64>()), 1..40),
        ) {
            let mut pool = BufferPool::new();
            let mut queue = WriteQueue::new(FIRST);
            let mut model: Vec<u8> = Vec::new();
            let mut released = 0_usize;
            let mut kept: VecDeque<(KeptPacket, Vec<u8>)> = VecDeque::new();
            for (kind, n, pick) in steps {
                match kind {
                    0 | 1 => {
                        let data: Vec<u8> = (0..n).map(|i| (model.len() + i) as u8 ^ ((model.len() + i) >> 8) as u8).collect();
                        queue.append(&data, &mut pool);
                        model.extend(&data);
                    }
                    _ => {
                        released += pick as usize % (model.len() - released + 1);
                        queue.release_until(FIRST + released as u64, &mut pool);
                    }
                }
                prop_assert_eq!(queue.len(), (model.len() - released) as u64);
                let from = released + pick as usize % (model.len() - released + 1);
                let to = model.len().min(from + 65_536);
                let gather = queue.gather(FIRST + from as u64..FIRST + to as u64);
                prop_assert_eq!(flat(&gather), &model[from..to]);
                // The data written last, as a packet that leaves immediately.
                let from = released.max(model.len().saturating_sub(from % 65_536));
                let payload = queue.gather(FIRST + from as u64..FIRST + model.len() as u64);
                kept.push_back((TxPacket { payload, ..TxPacket::whole(b"") }.keep(), model[from..].to_vec()));
                if kind == 3 || kept.len() > 5 {
                    let (packet, bytes) = kept.pop_front().unwrap();
                    prop_assert!(packet.packet().to_vec() == bytes);
                }
                prop_assert_eq!(queue.memory_bytes() == 0, queue.is_empty());
            }
        }
    }
}
