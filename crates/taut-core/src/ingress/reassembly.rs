//! Received bytes beyond a hole, and the SACK blocks that report them to the peer.
//! Origin: RFC 9293 §3.10.7.4 (segments held for later), RFC 2018 §4, RFC 2883; Linux: `out_of_order_queue`.
//! Called by segment arrival (`insert`, `take_in_order`, `prune`) and when an ACK's options are written
//! (`sack_blocks`).
//!
//! **Memory.** A single byte beyond a hole takes a chunk of 512 bytes and what goes with it, 704 bytes in
//! all. So that a peer that sends many of them gains little, bytes that touch share chunks, whichever came
//! first; there are [`RANGES_MAX`] separate ranges at most, and one more for each [`RANGE_BYTES`]; and the
//! caller gives a limit in memory, not in payload. Bytes that do not fit are refused, and the peer
//! retransmits them. When the limit is reached, bytes behind the new ones are dropped for them (`prune`),
//! because those nearest to the hole are needed first (Linux: `tcp_prune_ofo_queue`). SACK has reported them,
//! and the peer keeps them until they are acknowledged (RFC 2018 §8).

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use core::ops::Range;

use crate::buffers::{BufferPool, Chunk};
use crate::ingress::payload::Payload;
use crate::ingress::read_queue::ReadQueue;
use crate::words::step;

/// This many separate ranges are always kept, and one more for each [`RANGE_BYTES`] held; the peer
/// retransmits the bytes that are refused. The limit bounds the work and the memory that a hostile peer can
/// cause with single bytes, and no honest one reaches it: 5 % loss at 1 Gbit/s over 100 ms makes a thousand
/// holes.
const RANGES_MAX: usize = 512;

/// Less than any segment of a fast path.
const RANGE_BYTES: usize = 1024;

/// SACK blocks that fit in a segment without other options. RFC 2018 §3.
const SACK_BLOCKS_MAX: usize = taut_wire::SackBlocks::MAX;

/// How many recently changed ranges are remembered: twice as many as are reported, because some merge.
const RECENT: usize = 2 * SACK_BLOCKS_MAX;

/// Out-of-order data. Two words and a pointer while everything arrives in order.
#[derive(Debug)]
pub(crate) struct Reassembly {
    held: Option<Box<Held>>,
    /// A range that was received twice and not yet reported: `duplicate_len` bytes from here, none if 0.
    duplicate_start: u64,
    duplicate_len: u32,
    /// Segments that arrived beyond a gap, wrapping; counted by the receiver. For `TCP_INFO`.
    pub(super) gap_segs: u32,
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
    /// Memory in all chunks, see [`Chunk::cost`].
    memory: usize,
    /// The most that it may be while a segment is taken.
    room: usize,
}

/// The outcome of inserting a segment.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Inserted {
    /// Bytes newly held.
    pub(crate) new: usize,
    /// New bytes that were refused because there are too many ranges, or no room.
    pub(crate) refused: usize,
    /// The first part that had already been received, if any. It will be reported as D-SACK.
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
        Self { held: None, duplicate_start: 0, duplicate_len: 0, gap_segs: 0 }
    }

    /// Bytes held.
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

    /// Whether it holds nothing but one range that ends at `end`, if anything.
    pub(crate) fn holds_only_up_to(&self, end: u64) -> bool {
        self.held.as_ref().is_none_or(|held| held.ranges.len() == 1)
            && self.end().is_none_or(|held| held == end)
    }

    /// Keeps the payload of a segment that begins at `seq`, except for bytes before `rcv_nxt` or already
    /// held.
    ///
    /// The caller has cut it to the window. Meant for segments with `seq > rcv_nxt`; others are allowed too,
    /// and [`take_in_order`](Self::take_in_order) then hands the data on. `room`: the most memory that all
    /// may take.
    pub(crate) fn insert(
        &mut self,
        seq: u64,
        mut payload: Payload<'_>,
        rcv_nxt: u64,
        room: usize,
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
            held.room = room;
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

    /// Notes that `range` was received twice, for the next ACK to report. Of several, the last one counts.
    pub(crate) fn note_duplicate(&mut self, range: Range<u64>) {
        // RFC 2883 §4: the first block of the next ACK, and only of that one.
        self.duplicate_start = range.start;
        self.duplicate_len = u32::try_from(range.end.saturating_sub(range.start)).unwrap_or(u32::MAX);
    }

    /// Moves all data that is contiguous with `rcv_nxt` to the read queue and returns the new RCV.NXT.
    ///
    /// `rcv_nxt` must be the end of the read queue. Data that the read queue already has is dropped, and
    /// reported as a duplicate.
    #[must_use]
    pub(crate) fn take_in_order(&mut self, rcv_nxt: u64, into: &mut ReadQueue, pool: &mut BufferPool) -> u64 {
        debug_assert_eq!(rcv_nxt, into.end());
        let mut next = rcv_nxt;
        let mut duplicate = None;
        let Some(held) = &mut self.held else { return next };
        while let Some(range) = held.ranges.first_entry().filter(|range| *range.key() <= next) {
            step(1);
            let (start, end) = range.remove_entry();
            if start < next && duplicate.is_none() {
                duplicate = Some(start..end.min(next));
            }
            held.len -= (end - start) as usize;
            while let Some(chunk) = held.chunks.first_entry().filter(|chunk| *chunk.key() < end) {
                step(1);
                let mut chunk = chunk.remove();
                held.memory -= chunk.cost();
                chunk.trim_front(next.saturating_sub(chunk.base()) as usize);
                if chunk.len() == 0 {
                    pool.give(chunk.into_memory());
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

    /// Whether there is anything to report to the peer: checked for every packet, and nearly always false.
    #[inline]
    pub(crate) const fn has_news(&self) -> bool {
        self.duplicate_len > 0 || self.held.is_some()
    }

    /// The blocks to report to the peer, at most `fit`: a duplicate first, then the ranges, the one that
    /// changed last first.
    ///
    /// Packets arrive in batches, and one ACK may answer several. When more ranges have changed than it has
    /// room for (which [`is_full`](Self::is_full) lets the stack's user prevent), it reports those that
    /// changed first and leaves the others for another ACK, see [`on_sack_sent`](Self::on_sack_sent).
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
            step(1);
            let known = blocks.as_slice().get(first..).unwrap_or(&[]);
            if !known.contains(&(start, end)) {
                blocks.push(start, end);
            }
            usize::from(blocks.count) < fit
        };
        // RFC 2018 §4: the range of the segment that triggered this ACK comes first, then those reported
        // last.
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

    /// Whether as many ranges have changed as `fit` into an ACK. An ACK that left after the next change could
    /// not report all of them, and a peer that sees the later ones first takes the rest for lost.
    pub(crate) fn is_full(&self, fit: usize) -> bool {
        let changed = self.held.as_ref().map_or(0, |held| usize::from(held.unreported));
        changed > 0 && changed + usize::from(self.duplicate_len > 0) >= fit
    }

    /// An ACK with [`sack_blocks`](Self::sack_blocks) was sent: the duplicate in it is not reported again.
    /// Returns whether there are changed ranges that it did not report.
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
            pool.give(chunk.into_memory());
        }
    }

    /// Drops the last bytes, but none before `from`, until memory of `goal` bytes is free. Returns how much
    /// is.
    pub(crate) fn prune(&mut self, from: u64, goal: usize, pool: &mut BufferPool) -> usize {
        let Some(held) = &mut self.held else { return 0 };
        let before = held.memory;
        while before - held.memory < goal
            && let Some(last) = held.chunks.last_entry().filter(|last| *last.key() >= from)
        {
            step(1);
            let chunk = last.remove();
            held.memory -= chunk.cost();
            held.len -= chunk.len();
            // The last chunk is the end of the last range.
            if let Some(mut range) = held.ranges.last_entry() {
                *range.get_mut() = chunk.base();
                if *range.key() == chunk.base() {
                    range.remove();
                }
            }
            pool.give(chunk.into_memory());
        }
        let freed = before - held.memory;
        if held.ranges.is_empty() {
            self.held = None;
        }
        freed
    }

    /// Memory held, used or not, with what goes with it.
    pub(crate) fn memory(&self) -> usize {
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
            step(1);
            // Skip the bytes already held at `at`.
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

    /// Stores the first `len` bytes of the payload, which are not yet held, and trims them off. False if a
    /// limit forbids it.
    fn store(&mut self, at: u64, len: usize, payload: &mut Payload<'_>, pool: &mut BufferPool) -> bool {
        let end = at + len as u64;
        let before = self.range_at(at).map(|(start, _)| start);
        let after = self.ranges.get(&end).copied();
        if before.is_none() && after.is_none() && self.ranges.len() >= RANGES_MAX + self.len / RANGE_BYTES {
            payload.trim_front(len);
            return false;
        }

        let whole = len == payload.len() && self.memory + payload.steal_cost() <= self.room;
        let taken = if whole { payload.steal(pool) } else { None };
        if let Some(chunk) = taken.and_then(|(memory, place)| Chunk::new(memory, place, at)) {
            self.memory += chunk.cost();
            self.chunks.insert(at, chunk);
        } else if !self.copy(at, len, payload, pool) {
            payload.trim_front(len);
            return false;
        }
        self.join_chunks(end, pool);
        self.len += len;

        // Join adjacent ranges.
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

    /// Copies the first `len` bytes of the payload, and trims them off. False if there is no room.
    fn copy(&mut self, at: u64, len: usize, payload: &mut Payload<'_>, pool: &mut BufferPool) -> bool {
        // Room behind the bytes just before is used first.
        let mut previous = self.chunks.range_mut(..at).next_back().map(|(_, chunk)| chunk);
        previous = previous.filter(|chunk| chunk.end() == at);
        let room = previous.as_ref().map_or(0, |chunk| chunk.spare()).min(len);
        let rest = len - room;
        let mut fresh = None;
        if rest > 0 {
            let first = payload.gather_range(room..len).slices().first().copied().unwrap_or_default();
            let before = previous.as_ref().map_or(0, |chunk| chunk.capacity());
            let memory = pool.take_chunk(rest, before, first);
            let chunk = Chunk::empty(memory, at + room as u64);
            if self.memory + chunk.cost() > self.room {
                pool.give(chunk.into_memory());
                return false;
            }
            self.memory += chunk.cost();
            fresh = Some(chunk);
        }
        for &slice in payload.gather_range(0..len).slices() {
            let n = previous.as_deref_mut().map_or(0, |chunk| chunk.fill(slice, pool.known.as_ref()));
            if let Some(chunk) = &mut fresh {
                chunk.fill(slice.get(n..).unwrap_or(&[]), pool.known.as_ref());
            }
        }
        if let Some(chunk) = fresh {
            self.chunks.insert(chunk.base(), chunk);
        }
        payload.trim_front(len);
        true
    }

    /// The chunk that begins at `at` joins the one before, if it fits into what is free there. Bytes that
    /// arrive in reverse order would otherwise take a chunk each.
    fn join_chunks(&mut self, at: u64, pool: &mut BufferPool) {
        let Some(len) = self.chunks.get(&at).map(Chunk::len) else { return };
        let before = self.chunks.range(..at).next_back();
        if !before.is_some_and(|(_, before)| before.end() == at && before.spare() >= len) {
            return;
        }
        step(1);
        let Some(chunk) = self.chunks.remove(&at) else { return };
        if let Some((_, before)) = self.chunks.range_mut(..at).next_back() {
            before.fill(chunk.data(), pool.known.as_ref());
        }
        self.memory -= chunk.cost();
        pool.give(chunk.into_memory());
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
mod tests;
