//! The records of the sent log, in order of their positions: a list of blocks, so that one can be cut or
//! removed in the middle without moving all others. Origin: the unrolled linked list; Linux keeps its
//! retransmit queue in a red-black tree since 4.15, for the same reason. Called by `sent.rs` alone.
//!
//! ```text
//!   blocks   [ r r r . . ]  [ r r r r r ]  [ r . . . . ]      at most 64 records each
//!               ▲ front                       ▲ back
//! ```
//!
//! **Cost.** A flight of up to 64 records is a `VecDeque`, and nothing else is touched. At either end a
//! record costs what it costs in a `VecDeque`, and nothing is allocated: the block that empties at the front
//! is the next one at the back. In the middle, at most half a block moves. A position is found by bisection.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use super::sent::Record;
use crate::words::step;

/// Records in a block. An insertion moves at most half of them. One that cuts a block moves a part of the
/// list of blocks, too, which is 8 KB for 32,000 records; 32 more insertions follow before the same block is
/// cut again.
const BLOCK: usize = 64;

/// Entries of the list of blocks that count as one step when they move: a cache line, about as much as a
/// record.
const BLOCKS_A_STEP: usize = 8;

type Block = Box<VecDeque<Record>>;

/// Where a record is. Valid until a record is inserted or removed at or before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    block: usize,
    slot: usize,
}

impl Place {
    /// The first record's.
    pub(crate) const FIRST: Self = Self { block: 0, slot: 0 };
}

/// Records in order.
#[derive(Debug)]
pub(crate) struct Records {
    /// The first block, which is all there is in most flights. Empty only if there is no record.
    head: VecDeque<Record>,
    /// The other blocks, none of them empty.
    more: VecDeque<Block>,
    /// Records in them.
    more_len: usize,
    /// A block that emptied.
    spare: Option<Block>,
}

impl Records {
    pub(crate) const fn new() -> Self {
        Self { head: VecDeque::new(), more: VecDeque::new(), more_len: 0, spare: None }
    }

    pub(crate) fn len(&self) -> usize {
        self.head.len() + self.more_len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_empty()
    }

    pub(crate) fn front(&self) -> Option<&Record> {
        self.head.front()
    }

    pub(crate) fn back(&self) -> Option<&Record> {
        match self.more.back() {
            Some(block) => block.back(),
            None => self.head.back(),
        }
    }

    pub(crate) fn back_mut(&mut self) -> Option<&mut Record> {
        match self.more.back_mut() {
            Some(block) => block.back_mut(),
            None => self.head.back_mut(),
        }
    }

    fn block(&self, block: usize) -> Option<&VecDeque<Record>> {
        match block.checked_sub(1) {
            None => Some(&self.head),
            Some(index) => self.more.get(index).map(|block| &**block),
        }
    }

    fn block_mut(&mut self, block: usize) -> Option<&mut VecDeque<Record>> {
        match block.checked_sub(1) {
            None => Some(&mut self.head),
            Some(index) => self.more.get_mut(index).map(|block| &mut **block),
        }
    }

    pub(crate) fn get(&self, place: Place) -> Option<&Record> {
        self.block(place.block)?.get(place.slot)
    }

    pub(crate) fn get_mut(&mut self, place: Place) -> Option<&mut Record> {
        self.block_mut(place.block)?.get_mut(place.slot)
    }

    /// The place after `place`; that of no record after the last one.
    pub(crate) fn next(&self, place: Place) -> Place {
        step(1);
        let Place { block, slot } = place;
        match self.block(block) {
            Some(records) if slot + 1 < records.len() => Place { block, slot: slot + 1 },
            _ => Place { block: block + 1, slot: 0 },
        }
    }

    pub(crate) fn prev(&self, place: Place) -> Option<Place> {
        step(1);
        let Place { block, slot } = place;
        if slot > 0 {
            return Some(Place { block, slot: slot - 1 });
        }
        let block = block.checked_sub(1)?;
        let slot = self.block(block)?.len().checked_sub(1)?;
        Some(Place { block, slot })
    }

    /// The first record that ends above `position`; the place of no record when none does.
    #[inline]
    pub(crate) fn find(&self, position: u64) -> Place {
        // Most callers look for the head: retransmissions and in-order completions begin there.
        match self.front() {
            Some(head) if head.end <= position => self.search(position),
            _ => Place::FIRST,
        }
    }

    fn search(&self, position: u64) -> Place {
        let is_below = |record: &Record| {
            step(1);
            record.end <= position
        };
        let mut block = 0;
        if self.head.back().is_some_and(is_below) {
            block = 1 + self.more.partition_point(|records| records.back().is_none_or(is_below));
        }
        let slot = self.block(block).map_or(0, |records| records.partition_point(is_below));
        Place { block, slot }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Record> {
        let more = self.more.iter().flat_map(|block| block.iter());
        self.head.iter().chain(more).inspect(|_| step(1))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Record> {
        let more = self.more.iter_mut().flat_map(|block| block.iter_mut());
        self.head.iter_mut().chain(more).inspect(|_| step(1))
    }

    #[inline]
    pub(crate) fn push_back(&mut self, record: Record) {
        step(1);
        if self.more.is_empty() && self.head.len() < BLOCK {
            self.head.push_back(record);
        } else {
            self.push_more(record);
        }
    }

    fn push_more(&mut self, record: Record) {
        self.more_len += 1;
        match self.more.back_mut() {
            Some(last) if last.len() < BLOCK => last.push_back(record),
            _ => {
                let mut block = self.new_block();
                block.push_back(record);
                self.more.push_back(block);
            }
        }
    }

    fn new_block(&mut self) -> Block {
        let mut block = self.spare.take().unwrap_or_default();
        block.reserve_exact(BLOCK);
        block
    }

    #[inline]
    pub(crate) fn drop_front(&mut self) {
        step(1);
        self.head.pop_front();
        if self.head.is_empty() && !self.more.is_empty() {
            self.shift();
        }
    }

    /// The head is empty: the next block takes its place.
    fn shift(&mut self) {
        if let Some(mut block) = self.more.pop_front() {
            self.more_len -= block.len();
            core::mem::swap(&mut self.head, &mut block);
            self.spare = Some(block);
        }
    }

    pub(crate) fn drop_back(&mut self) {
        step(1);
        let Some(last) = self.more.back_mut() else {
            self.head.pop_back();
            return;
        };
        last.pop_back();
        self.more_len -= 1;
        if last.is_empty() {
            self.spare = self.more.pop_back();
        }
    }

    /// Inserts a record after the one at `place`, and returns the place of the new one.
    pub(crate) fn insert_after(&mut self, place: Place, record: Record) -> Place {
        let Place { mut block, mut slot } = place;
        slot += 1;
        if self.block(block).is_none_or(|records| records.len() >= BLOCK) {
            self.halve(block);
            if slot > BLOCK / 2 {
                block += 1;
                slot -= BLOCK / 2;
            }
        }
        self.more_len += usize::from(block > 0);
        if let Some(records) = self.block_mut(block) {
            step(slot.min(records.len() - slot));
            records.insert(slot, record);
        }
        Place { block, slot }
    }

    /// The upper half of a full block gets a block of its own.
    fn halve(&mut self, block: usize) {
        let mut upper = self.new_block();
        let Some(records) = self.block_mut(block) else { return };
        upper.extend(records.drain(BLOCK / 2..));
        if block == 0 {
            self.more_len += upper.len();
        }
        step(upper.len() + block.min(self.more.len() - block) / BLOCKS_A_STEP);
        self.more.insert(block, upper);
    }

    /// Removes the record at `place`.
    pub(crate) fn remove(&mut self, place: Place) {
        let Place { block, slot } = place;
        let Some(records) = self.block_mut(block).filter(|records| slot < records.len()) else { return };
        step(slot.min(records.len() - slot));
        records.remove(slot);
        let emptied = records.is_empty();
        self.more_len -= usize::from(block > 0);
        if emptied && block > 0 {
            step(block.min(self.more.len() - block) / BLOCKS_A_STEP);
            self.spare = self.more.remove(block - 1);
        } else if emptied {
            self.shift();
        }
    }

    /// Asserts what the fields say; for tests.
    #[cfg(test)]
    pub(crate) fn invariants(&self) {
        assert_eq!(self.more_len, self.more.iter().map(|block| block.len()).sum::<usize>());
        assert!(self.more.is_empty() || !self.head.is_empty(), "the head is empty");
        assert!(self.more.iter().all(|block| !block.is_empty() && block.len() <= BLOCK));
        assert!(self.head.len() <= BLOCK && self.spare.as_ref().is_none_or(|block| block.is_empty()));
    }
}
