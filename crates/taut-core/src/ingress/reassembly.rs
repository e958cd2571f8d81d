//! Received bytes beyond a hole, and the SACK blocks that tell the peer about them.
//! Origin: RFC 9293 §3.10.7.4 (segments held for later), RFC 2018 §4, RFC 2883; Linux: `out_of_order_queue`.
//! Called by segment arrival (`insert`, `take_in_order`) and when an ACK's options are written (`sack_blocks`).

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use core::ops::Range;

use crate::buffers::{BufferPool, CHUNK_MIN, Chunk};
use crate::ingress::payload::Payload;
use crate::ingress::read_queue::ReadQueue;

/// So many separate ranges are always kept, and one more for each [`RANGE_BYTES`] held; what is refused is simply sent
/// again. Bounds the work and the memory that a hostile peer can cause with single bytes, and no honest one: 5 % lost of
/// 1 Gbit/s over 100 ms makes a thousand holes.
const RANGES_MAX: usize = 512;

/// Less than any segment of a path that carries much.
const RANGE_BYTES: usize = 1024;

/// Memory that may be held beyond three times the bytes: a peer that sends single bytes back to front would
/// otherwise cost [`CHUNK_MIN`] for each. Honest chunks double as they fill, so they stay below three times.
const SLACK_BYTES: usize = RANGES_MAX * 2 * CHUNK_MIN;

/// SACK blocks that fit in a segment without other options. RFC 2018 §3.
pub(crate) const SACK_BLOCKS_MAX: usize = 4;

/// How many recently changed ranges are remembered: twice what is reported, because some merge.
const RECENT: usize = 2 * SACK_BLOCKS_MAX;

/// Out-of-order data. Two words and a pointer while everything comes in order.
#[derive(Debug)]
pub(crate) struct Reassembly {
    held: Option<Box<Held>>,
    /// A range that was received twice and was not reported yet: `duplicate_len` bytes from here, none if 0.
    duplicate_start: u64,
    duplicate_len: u32,
}

#[derive(Debug, Default)]
struct Held {
    /// Received ranges, start to end; not empty, neither overlapping nor touching.
    ranges: BTreeMap<u64, u64>,
    /// Their bytes: chunks by position. Each lies in one range, and they cover the ranges exactly.
    chunks: BTreeMap<u64, Chunk>,
    /// Starts of the ranges that changed last, newest first; 0 for none. Entries may be stale.
    recent: [u64; RECENT],
    /// How many of them changed since blocks were last sent.
    unreported: u8,
    /// Bytes in all ranges.
    len: usize,
    /// Memory in all chunks.
    memory: usize,
}

/// What became of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Inserted {
    /// Bytes that were not held before, and now are.
    pub(crate) new: usize,
    /// Bytes that were not held before, and still are not, because there are too many ranges.
    pub(crate) refused: usize,
    /// The first part that had been received before, if any. It will be reported as D-SACK.
    pub(crate) duplicate: Option<Range<u64>>,
}

/// SACK blocks in the order in which they go into the option.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SackBlocks {
    blocks: [(u64, u64); SACK_BLOCKS_MAX],
    count: u8,
}

impl SackBlocks {
    /// Start and end of each block.
    pub(crate) fn as_slice(&self) -> &[(u64, u64)] {
        self.blocks.get(..usize::from(self.count)).unwrap_or(&[])
    }

    fn push(&mut self, start: u64, end: u64) {
        if let Some(place) = self.blocks.get_mut(usize::from(self.count)) {
            *place = (start, end);
            self.count += 1;
        }
    }
}

impl Reassembly {
    pub(crate) const fn new() -> Self {
        Self { held: None, duplicate_start: 0, duplicate_len: 0 }
    }

    /// Bytes held.
    #[cfg(test)]
    pub(crate) fn len(&self) -> u64 {
        self.held.as_ref().map_or(0, |held| held.len as u64)
    }

    /// Whether there is no hole: everything received is in order.
    pub(crate) const fn is_empty(&self) -> bool {
        self.held.is_none()
    }

    /// Position after the last byte held.
    pub(crate) fn end(&self) -> Option<u64> {
        self.held.as_ref()?.ranges.last_key_value().map(|(_, &end)| end)
    }

    /// Keeps the payload of a segment that begins at `seq`, except for what is before `rcv_nxt` or held already.
    ///
    /// The caller has cut it to the window. Meant for segments with `seq > rcv_nxt`; others may be given too,
    /// and [`take_in_order`](Self::take_in_order) then hands the data on.
    pub(crate) fn insert(
        &mut self,
        seq: u64,
        mut payload: Payload<'_>,
        rcv_nxt: u64,
        pool: &mut BufferPool,
    ) -> Inserted {
        let mut inserted = Inserted::default();
        let end = seq + payload.len() as u64;
        if payload.is_empty() {
            return inserted;
        }
        if seq < rcv_nxt {
            inserted.duplicate = Some(seq..end.min(rcv_nxt));
            payload.trim_front((rcv_nxt - seq) as usize);
        }
        let seq = seq.max(rcv_nxt);
        if seq < end {
            let held = self.held.get_or_insert_default();
            held.insert(seq..end, payload, &mut inserted, pool);
            if held.ranges.is_empty() {
                self.held = None;
            }
        }
        if let Some(duplicate) = &inserted.duplicate {
            self.note_duplicate(duplicate.clone());
        }
        inserted
    }

    /// Remembers that `range` was received twice, to be reported in the next ACK. Of several, the last counts.
    pub(crate) fn note_duplicate(&mut self, range: Range<u64>) {
        // RFC 2883 §4: the first block of the next ACK, and only of that one.
        self.duplicate_start = range.start;
        self.duplicate_len = u32::try_from(range.end.saturating_sub(range.start)).unwrap_or(u32::MAX);
    }

    /// Moves all data that is contiguous with `rcv_nxt` to the read queue and returns the new RCV.NXT.
    ///
    /// `rcv_nxt` must be the end of the read queue. Data that the read queue has already got some other way is
    /// dropped, and reported as a duplicate.
    #[must_use]
    pub(crate) fn take_in_order(&mut self, rcv_nxt: u64, into: &mut ReadQueue, pool: &mut BufferPool) -> u64 {
        debug_assert_eq!(rcv_nxt, into.end());
        let mut next = rcv_nxt;
        let mut duplicate = None;
        let Some(held) = &mut self.held else { return next };
        while let Some(range) = held.ranges.first_entry().filter(|range| *range.key() <= next) {
            let (start, end) = range.remove_entry();
            if start < next && duplicate.is_none() {
                duplicate = Some(start..end.min(next));
            }
            held.len -= (end - start) as usize;
            while let Some(chunk) = held.chunks.first_entry().filter(|chunk| *chunk.key() < end) {
                let mut chunk = chunk.remove();
                held.memory -= chunk.capacity();
                chunk.trim_front(next.saturating_sub(chunk.base()) as usize);
                if chunk.len() == 0 {
                    pool.give(chunk.into_bytes());
                } else {
                    next = chunk.end();
                    into.push_chunk(chunk, pool);
                }
            }
        }
        if held.ranges.is_empty() {
            self.held = None;
        }
        if let Some(duplicate) = duplicate {
            self.note_duplicate(duplicate);
        }
        next
    }

    /// Whether there is anything to report to the peer: asked for every packet, and nearly always answered no.
    #[inline]
    pub(crate) const fn has_news(&self) -> bool {
        self.duplicate_len > 0 || self.held.is_some()
    }

    /// What to report to the peer in `fit` blocks: a duplicate first, then the ranges, the one that changed last first.
    ///
    /// Packets come in batches, and then one ACK answers several. When more ranges have changed than it has room for
    /// (which [`is_full`](Self::is_full) lets the stack's user prevent), it reports those that changed first; the others are
    /// left for another ACK, see [`on_sack_sent`](Self::on_sack_sent).
    pub(crate) fn sack_blocks(&self, fit: usize) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        if self.duplicate_len > 0 {
            // RFC 2883 §4 (1): a duplicate is reported in the first block.
            blocks.push(self.duplicate_start, self.duplicate_start + u64::from(self.duplicate_len));
        }
        let Some(held) = &self.held else { return blocks };
        let first = usize::from(blocks.count);
        let later = usize::from(held.unreported).saturating_sub(fit.saturating_sub(first));
        let mut push = |start: u64, end: u64| {
            let known = blocks.as_slice().get(first..).unwrap_or(&[]);
            if !known.contains(&(start, end)) {
                blocks.push(start, end);
            }
            usize::from(blocks.count) < fit
        };
        // RFC 2018 §4: the range of the segment that triggered this ACK comes first, then those reported last.
        for &position in held.recent.iter().skip(later).take_while(|&&position| position != 0) {
            if let Some((start, end)) = held.range_at(position)
                && !push(start, end)
            {
                return blocks;
            }
        }
        // RFC 2018 §4: as many blocks as fit.
        for (&start, &end) in held.ranges.iter().take(2 * SACK_BLOCKS_MAX) {
            if !push(start, end) {
                break;
            }
        }
        blocks
    }

    /// As many ranges have changed as `fit` into an ACK. One that leaves after the next change would not tell all, and a peer
    /// that learns of what came later first takes the rest for lost.
    pub(crate) fn is_full(&self, fit: usize) -> bool {
        let changed = self.held.as_ref().map_or(0, |held| usize::from(held.unreported));
        changed > 0 && changed + usize::from(self.duplicate_len > 0) >= fit
    }

    /// An ACK with [`sack_blocks`](Self::sack_blocks) was sent: the duplicate in it is not reported again. Returns
    /// whether ranges have changed that it did not report.
    pub(crate) fn on_sack_sent(&mut self, fit: usize) -> bool {
        let room = fit.saturating_sub(usize::from(self.duplicate_len > 0)) as u8;
        self.duplicate_len = 0;
        let Some(held) = &mut self.held else { return false };
        held.unreported = held.unreported.saturating_sub(room);
        held.unreported > 0
    }

    /// Forgets everything.
    pub(crate) fn discard_all(&mut self, pool: &mut BufferPool) {
        self.duplicate_len = 0;
        for (_, chunk) in self.held.take().map(|held| held.chunks).into_iter().flatten() {
            pool.give(chunk.into_bytes());
        }
    }

    /// Memory held for payload, used or not.
    #[cfg(test)]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.memory)
    }
}

impl Held {
    /// The range that contains or ends at `position`.
    fn range_at(&self, position: u64) -> Option<(u64, u64)> {
        let (&start, &end) = self.ranges.range(..=position).next_back()?;
        (position <= end).then_some((start, end))
    }

    fn insert(
        &mut self,
        segment: Range<u64>,
        mut payload: Payload<'_>,
        inserted: &mut Inserted,
        pool: &mut BufferPool,
    ) {
        let Range { start: seq, end } = segment;
        let mut at = seq;
        while at < end {
            // Skip what is held at `at`.
            if let Some((start, held_end)) = self.range_at(at)
                && held_end > at
            {
                let skip = held_end.min(end);
                // RFC 2883 §4: only the duplicate part is reported, not the whole range that holds it.
                match &mut inserted.duplicate {
                    None => inserted.duplicate = Some(at..skip),
                    Some(duplicate) if duplicate.end == at => duplicate.end = skip,
                    Some(_) => {}
                }
                self.touch(start);
                payload.trim_front((skip - at) as usize);
                at = skip;
                continue;
            }
            // Fill the hole that begins at `at`.
            let hole_end = self.ranges.range(at..).next().map_or(end, |(&start, _)| start.min(end));
            let len = (hole_end - at) as usize;
            if self.store(at, len, &mut payload, pool) {
                inserted.new += len;
            } else {
                inserted.refused += len;
            }
            at = hole_end;
        }
    }

    /// Stores the first `len` bytes of the payload, for which there is nothing yet, and trims them off. False
    /// when that would be too much.
    fn store(&mut self, at: u64, len: usize, payload: &mut Payload<'_>, pool: &mut BufferPool) -> bool {
        let end = at + len as u64;
        let before = self.range_at(at).map(|(start, _)| start);
        let after = self.ranges.get(&end).copied();
        if before.is_none() && after.is_none() && self.ranges.len() >= RANGES_MAX + self.len / RANGE_BYTES {
            payload.trim_front(len);
            return false;
        }

        let whole = len == payload.len();
        let taken = if whole { payload.steal(pool) } else { None };
        if let Some(chunk) = taken.and_then(|(bytes, place)| Chunk::new(bytes, place, at)) {
            self.memory += chunk.capacity();
            self.chunks.insert(at, chunk);
        } else {
            // Room behind the bytes that come right before is used first.
            let mut previous = self.chunks.range_mut(..at).next_back().map(|(_, chunk)| chunk);
            previous = previous.filter(|chunk| chunk.end() == at);
            let room = previous.as_ref().map_or(0, |chunk| chunk.spare()).min(len);
            let rest = len - room;
            let mut fresh = None;
            if rest > 0 {
                let bytes = pool.take_chunk(rest, previous.as_ref().map_or(0, |chunk| chunk.capacity()));
                let memory_max = 3 * (self.len + len) + SLACK_BYTES;
                if self.memory + bytes.len() > memory_max {
                    pool.give(bytes);
                    payload.trim_front(len);
                    return false;
                }
                self.memory += bytes.len();
                fresh = Some(Chunk::empty(bytes, at + room as u64));
            }
            for &slice in payload.gather_range(0..len).slices() {
                let n = previous.as_deref_mut().map_or(0, |chunk| chunk.fill(slice));
                if let Some(chunk) = &mut fresh {
                    chunk.fill(slice.get(n..).unwrap_or(&[]));
                }
            }
            if let Some(chunk) = fresh {
                self.chunks.insert(chunk.base(), chunk);
            }
            payload.trim_front(len);
        }
        self.len += len;

        // Join the neighbours.
        let start = before.unwrap_or(at);
        let mut range_end = end;
        if let Some(after_end) = after {
            self.ranges.remove(&end);
            range_end = after_end;
        }
        self.ranges.insert(start, range_end);
        self.touch(start);
        true
    }

    /// The range that begins at `start` is the one that changed last.
    fn touch(&mut self, start: u64) {
        let place = self.recent.iter().position(|&known| known == start).unwrap_or(RECENT - 1);
        if place >= usize::from(self.unreported) {
            self.unreported += 1;
        }
        if let Some(newer) = self.recent.get_mut(..=place) {
            newer.rotate_right(1);
        }
        self.recent[0] = start;
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::buffers::BUFFER_BYTES;
    use crate::link::Frame;
    use crate::seq::FIRST;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    /// What the stream has at a position: any value that tells positions apart.
    fn byte(offset: u64) -> u8 {
        (offset % 251) as u8
    }

    fn stream(range: Range<u64>) -> Vec<u8> {
        range.map(byte).collect()
    }

    struct Receiver {
        pool: BufferPool,
        queue: ReadQueue,
        reassembly: Reassembly,
        nxt: u64,
    }

    impl Receiver {
        fn new() -> Self {
            Self {
                pool: BufferPool::new(),
                queue: ReadQueue::new(FIRST),
                reassembly: Reassembly::new(),
                nxt: FIRST,
            }
        }

        fn insert(&mut self, range: Range<u64>) -> Inserted {
            let data = stream(range.clone());
            let payload = Payload::new(Frame::Slice(&data), 0, data.len());
            self.reassembly.insert(FIRST + range.start, payload, self.nxt, &mut self.pool)
        }

        fn take(&mut self) -> u64 {
            self.nxt = self.reassembly.take_in_order(self.nxt, &mut self.queue, &mut self.pool);
            self.nxt - FIRST
        }

        fn blocks(&self) -> Vec<(u64, u64)> {
            let blocks = self.reassembly.sack_blocks(SACK_BLOCKS_MAX);
            blocks.as_slice().iter().map(|&(start, end)| (start - FIRST, end - FIRST)).collect()
        }

        fn check(&self) {
            let Some(held) = &self.reassembly.held else { return };
            assert!(!held.ranges.is_empty());
            let mut last = 0;
            for (&start, &end) in &held.ranges {
                assert!(last < start && start < end, "ranges touch or are empty");
                last = end;
            }
            let mut chunks = held.chunks.values().peekable();
            for (&start, &end) in &held.ranges {
                let mut at = start;
                while at < end {
                    let chunk = chunks.next().unwrap();
                    assert_eq!(chunk.base(), at);
                    at = chunk.end();
                }
                assert_eq!(at, end);
            }
            assert!(chunks.next().is_none());
            assert_eq!(
                held.len,
                held.ranges.iter().map(|(start, end)| (end - start) as usize).sum::<usize>()
            );
            assert_eq!(held.memory, held.chunks.values().map(Chunk::capacity).sum::<usize>());
            assert!(held.memory <= 3 * held.len + SLACK_BYTES + 2 * BUFFER_BYTES);
        }
    }

    /// RFC 2018 §7, case 2: of eight segments of 500 bytes from 5000 on, the first is lost.
    #[test]
    fn rfc_2018_the_first_segment_is_dropped() {
        let mut rx = Receiver::new();
        for n in 1..8 {
            let start = 500 * n;
            rx.insert(start..start + 500);
            assert_eq!(rx.blocks(), [(500, start + 500)]);
        }
        rx.insert(0..500);
        assert_eq!(rx.take(), 4000);
        assert!(rx.reassembly.is_empty() && rx.blocks().is_empty());
    }

    /// RFC 2018 §7, case 3: the 2nd, 4th, 6th and 8th are lost, then the 4th and the 2nd come after all.
    #[test]
    fn rfc_2018_every_other_segment_is_dropped() {
        let mut rx = Receiver::new();
        rx.insert(0..500);
        assert_eq!(rx.take(), 500);
        rx.insert(1000..1500);
        assert_eq!(rx.blocks(), [(1000, 1500)]);
        rx.insert(2000..2500);
        assert_eq!(rx.blocks(), [(2000, 2500), (1000, 1500)]);
        rx.insert(3000..3500);
        assert_eq!(rx.blocks(), [(3000, 3500), (2000, 2500), (1000, 1500)]);
        rx.insert(1500..2000);
        assert_eq!(rx.blocks(), [(1000, 2500), (3000, 3500)]);
        rx.insert(500..1000);
        assert_eq!(rx.take(), 2500);
        assert_eq!(rx.blocks(), [(3000, 3500)]);
    }

    /// RFC 2883 §4.1.3: the duplicate comes first, the range that holds it next, once.
    #[test]
    fn rfc_2883_a_duplicate_of_held_data() {
        let mut rx = Receiver::new();
        rx.insert(500..1500);
        assert_eq!(
            rx.insert(500..1000),
            Inserted { duplicate: Some(FIRST + 500..FIRST + 1000), ..Inserted::default() }
        );
        assert_eq!(rx.blocks(), [(500, 1000), (500, 1500)]);
        rx.reassembly.on_sack_sent(SACK_BLOCKS_MAX);
        assert_eq!(rx.blocks(), [(500, 1500)]);
    }

    /// RFC 2883 §4.2.1: a segment of which only a part was received before.
    #[test]
    fn rfc_2883_a_partial_duplicate() {
        let mut rx = Receiver::new();
        rx.insert(0..1000);
        rx.take();
        let inserted = rx.insert(500..1500);
        assert_eq!((inserted.new, inserted.duplicate), (500, Some(FIRST + 500..FIRST + 1000)));
        assert_eq!(rx.take(), 1500);
        assert_eq!(rx.blocks(), [(500, 1000)]);
    }

    #[test]
    fn data_that_came_in_order_meanwhile_is_dropped() {
        let mut rx = Receiver::new();
        rx.insert(1000..2000);
        rx.insert(3000..3100);
        let data = stream(0..1400);
        rx.queue.push(Payload::new(Frame::Slice(&data), 0, 1400), &mut rx.pool);
        rx.nxt += 1400;
        assert_eq!(rx.take(), 2000);
        assert_eq!(rx.blocks(), [(1000, 1400), (3000, 3100)]);
        let mut all = vec![0; 2000];
        rx.queue.read(&mut all, &mut rx.pool);
        assert_eq!(all, stream(0..2000));
    }

    #[test]
    fn a_hostile_peer_costs_bounded_memory() {
        // Every other byte.
        let mut rx = Receiver::new();
        let held: usize = (1..5_000).map(|n| rx.insert(2 * n..2 * n + 1).new).sum();
        assert_eq!(held, RANGES_MAX);
        rx.check();
        // What extends a range is still taken.
        assert_eq!(rx.insert(2..1025).new, 1023 - RANGES_MAX);
        rx.check();
        // Back to front.
        let mut rx = Receiver::new();
        for n in (1..20_000).rev() {
            rx.insert(n..n + 1);
        }
        rx.check();
        assert!(rx.reassembly.memory_bytes() <= 2 * SLACK_BYTES);
        rx.reassembly.discard_all(&mut rx.pool);
        assert_eq!((rx.reassembly.memory_bytes(), rx.reassembly.len()), (0, 0));
    }

    #[test]
    fn a_lent_buffer_is_kept() {
        let mut rx = Receiver::new();
        let mut buffer = stream(0..50_000);
        let address = buffer.as_ptr();
        let payload = Payload::new(Frame::Lend { buffer: &mut buffer, range: 0..50_000 }, 100, 49_900);
        rx.reassembly.insert(FIRST + 100, payload, rx.nxt, &mut rx.pool);
        assert!(buffer.is_empty());
        rx.check();
        rx.insert(0..100);
        assert_eq!(rx.take(), 50_000);
        // The first hundred bytes alone would waste a chunk; then comes the very buffer.
        rx.queue.consume(100, &mut rx.pool);
        assert_eq!(rx.queue.chunk().as_ptr(), address.wrapping_add(100));
    }

    #[test]
    fn a_batch_of_more_holes_than_fit_is_reported_in_two_acks() {
        let mut rx = Receiver::new();
        for start in [100, 200, 300, 400, 500] {
            rx.insert(start..start + 10);
        }
        let blocks = |rx: &Receiver| -> Vec<u64> {
            rx.reassembly.sack_blocks(3).as_slice().iter().map(|block| block.0 - FIRST).collect()
        };
        assert_eq!(blocks(&rx), [300, 200, 100]);
        assert!(rx.reassembly.on_sack_sent(3));
        assert_eq!(blocks(&rx), [500, 400, 300]);
        assert!(!rx.reassembly.on_sack_sent(3));
        assert_eq!(blocks(&rx), [500, 400, 300]);
    }

    #[test]
    fn an_ack_is_full_with_as_many_changes_as_blocks_fit() {
        let mut rx = Receiver::new();
        for (start, full) in [(100, false), (110, false), (200, false), (300, true)] {
            rx.insert(start..start + 10);
            assert_eq!(rx.reassembly.is_full(3), full, "{start}");
        }
        rx.reassembly.on_sack_sent(3);
        assert!(!rx.reassembly.is_full(3));
        // A duplicate takes a block of its own (RFC 2883 §4).
        rx.insert(400..410);
        assert!(!rx.reassembly.is_full(3));
        rx.insert(500..510);
        assert!(!rx.reassembly.is_full(3));
        rx.insert(500..510);
        assert!(rx.reassembly.is_full(3));
    }

    #[test]
    fn a_fast_path_that_loses_much_is_no_attack() {
        // 16 MB on their way, of which every twentieth segment is missing.
        let mut rx = Receiver::new();
        for segment in (0..11_000).filter(|segment| segment % 20 > 0) {
            assert_eq!(rx.insert(segment * 1_448..(segment + 1) * 1_448).refused, 0, "segment {segment}");
        }
    }

    proptest! {
        /// Random segments with overlaps, in any order, against a map of bytes.
        #[test]
        fn behaves_like_a_map_of_bytes(
            segments in prop::collection::vec((0_u64..6_000, prop_oneof![1_u64..40, 1_u64..1_500]), 1..120),
            taken in any::<bool>(),
        ) {
            let mut rx = Receiver::new();
            let mut model = vec![false; 8_000];
            let mut nxt = 0;
            for (start, len) in segments {
                let range = start as usize..(start + len) as usize;
                let fresh = model[range.clone()].iter().filter(|&&held| !held).count();
                let mut twice = range.clone().filter(|&at| model[at]);
                let duplicate = twice.next().map(|first| {
                    let mut end = first + 1;
                    while twice.next() == Some(end) {
                        end += 1;
                    }
                    FIRST + first as u64..FIRST + end as u64
                });
                let inserted = rx.insert(start..start + len);
                prop_assert_eq!(&inserted, &Inserted { new: fresh, refused: 0, duplicate: duplicate.clone() });
                model[range.clone()].fill(true);
                rx.check();

                // SACK blocks: the duplicate once, then ranges beyond RCV.NXT, the newest first.
                let mut blocks = rx.blocks();
                if let Some(duplicate) = duplicate {
                    prop_assert_eq!(blocks.remove(0), (duplicate.start - FIRST, duplicate.end - FIRST));
                }
                rx.reassembly.on_sack_sent(SACK_BLOCKS_MAX);
                if let Some(&(from, to)) = blocks.first().filter(|_| start >= nxt && fresh > 0) {
                    prop_assert!(from < start + len && start < to, "the newest comes first");
                }
                let ranges = rx.reassembly.held.as_ref().map_or(0, |held| held.ranges.len());
                prop_assert!(blocks.len() == ranges.min(4) || blocks.len() == 3);
                for (n, &(from, to)) in blocks.iter().enumerate() {
                    prop_assert!(from >= nxt && from < to && !blocks[..n].contains(&(from, to)));
                    prop_assert!(model[from as usize..to as usize].iter().all(|&held| held));
                    prop_assert!(!model[to as usize] && (from == nxt || !model[from as usize - 1]));
                }

                if taken || start % 3 == 0 {
                    nxt = rx.take();
                    rx.check();
                    prop_assert_eq!(nxt as usize, model.iter().position(|&held| !held).unwrap());
                    prop_assert!(rx.blocks().is_empty() || rx.blocks()[0].0 > nxt);
                }
                let held = model[nxt as usize..].iter().filter(|&&held| held).count();
                prop_assert_eq!(rx.reassembly.len(), held as u64);
            }
            let nxt = rx.take();
            let mut all = vec![0; rx.queue.len() as usize];
            rx.queue.read(&mut all, &mut rx.pool);
            prop_assert_eq!(all, stream(0..nxt));
        }
    }
}
