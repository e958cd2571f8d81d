//! Memory that reads of the host's sockets fill, and that comes back. `host_sockets.rs` calls it.
//!
//! All connections of a thread read into one block of 128 KiB. What is long is cut off from it without a
//! copy; what is short is copied, so that it does not hold the block: at most eight times its length.
//!
//! A block is full after one long read, and the guest has its bytes a moment later. So blocks that have been
//! filled are kept and filled again, in the order in which they were lent, if nobody has a part of them any
//! more. Memory that is given back to the system and asked for again would cost a page fault for each page.
//! At most
//! [`KEPT`] blocks are kept; one that is held for longer goes with its last part.
//!
//! **Where a block begins.** A packet of 65,530 bytes takes 22.5 µs to write to a TUN if its payload begins
//! at bytes 0 to 13 of a page, and 4.4 µs at the other places that were tried (`make gateway-pages`; Linux
//! 6.18, MTU 65,520, IPv4; the kernel copies it to byte 14 of a page). So a block begins in the middle of a
//! page, whatever the allocator gives.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;

use bytes::{Buf as _, Bytes, BytesMut};

/// Bytes of a block.
pub(crate) const BLOCK: usize = 128 << 10;
/// From this length on, bytes are handed on in the block where they were read.
const LONG: usize = BLOCK / 8;
/// Bytes of a page.
const PAGE: usize = 4 << 10;
/// Where in a page a block begins.
const START: usize = PAGE / 2;
/// Blocks that are kept for each thread, the one that is being filled not counted: a megabyte.
const KEPT: usize = 8;

thread_local! {
    static BLOCKS: RefCell<Blocks> = RefCell::default();
}

/// What `read` puts into a block of this thread; it returns how much.
pub(crate) fn fill(read: impl FnOnce(&mut BytesMut) -> io::Result<usize>) -> io::Result<Bytes> {
    BLOCKS.with_borrow_mut(|blocks| blocks.fill(read))
}

/// The blocks of a thread.
#[derive(Debug)]
struct Blocks {
    /// The one that is being filled.
    now: BytesMut,
    /// Filled and lent, the one that was lent first in front.
    lent: VecDeque<BytesMut>,
}

impl Default for Blocks {
    fn default() -> Self {
        Self { now: new(), lent: VecDeque::with_capacity(KEPT) }
    }
}

impl Blocks {
    fn fill(&mut self, read: impl FnOnce(&mut BytesMut) -> io::Result<usize>) -> io::Result<Bytes> {
        if self.now.capacity() < LONG {
            let next = self.next();
            self.lent.push_back(std::mem::replace(&mut self.now, next));
        }
        let count = read(&mut self.now)?;
        if count >= LONG {
            return Ok(self.now.split().freeze());
        }
        let copy = Bytes::copy_from_slice(&self.now);
        self.now.clear();
        Ok(copy)
    }

    /// The block that was lent first if it is back, otherwise a new one.
    fn next(&mut self) -> BytesMut {
        let is_back = self.lent.front_mut().is_some_and(|block| block.try_reclaim(BLOCK + PAGE));
        if is_back || self.lent.len() == KEPT {
            let first = self.lent.pop_front().unwrap_or_default();
            if is_back {
                return placed(first);
            }
        }
        new()
    }
}

fn new() -> BytesMut {
    placed(BytesMut::with_capacity(BLOCK + PAGE))
}

/// Skips what is in front of the place where a block begins.
fn placed(mut block: BytesMut) -> BytesMut {
    let skipped = START.wrapping_sub(block.as_ptr() as usize) % PAGE;
    block.resize(skipped, 0);
    block.advance(skipped);
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills a block with so many bytes.
    fn read(blocks: &mut Blocks, len: usize) -> Bytes {
        let bytes = blocks.fill(|block| {
            assert!(block.is_empty() && block.capacity() >= len);
            block.resize(len, len as u8);
            Ok(len)
        });
        let bytes = bytes.unwrap();
        assert_eq!(bytes, vec![len as u8; len]);
        bytes
    }

    #[test]
    fn gw_79_long_reads_stay_in_the_block_and_short_ones_do_not_hold_it() {
        let mut blocks = Blocks::default();
        let ends = [LONG, LONG + 1, 100].map(|len| read(&mut blocks, len));
        // Each where the one before ended.
        let start = |at: usize| ends[at].as_ptr() as usize;
        assert_eq!(start(1), start(0) + LONG);
        assert_ne!(start(2), start(1) + LONG + 1);
        assert_eq!(read(&mut blocks, LONG).as_ptr() as usize, start(1) + LONG + 1);
        // At the end of the stream there are no bytes, and an error takes no room.
        assert!(read(&mut blocks, 0).is_empty());
        let before = blocks.now.capacity();
        assert!(blocks.fill(|_| Err(io::ErrorKind::WouldBlock.into())).is_err());
        assert_eq!(blocks.now.capacity(), before);
    }

    #[test]
    fn gw_88_blocks_are_filled_again_when_they_are_back() {
        let mut blocks = Blocks::default();
        let start = |bytes: &Bytes| bytes.as_ptr() as usize;
        // Each of two is lent while the other is filled, as with a guest that takes a piece at once.
        let (first, second) = (read(&mut blocks, BLOCK), read(&mut blocks, BLOCK));
        let places = [start(&first), start(&second)];
        drop((first, second));
        for turn in 0..20 {
            assert_eq!(start(&read(&mut blocks, BLOCK)), places[turn % 2]);
        }
        // One that is held is not written again, and no more than so many are kept.
        let held: Vec<Bytes> = (0..4 * KEPT).map(|_| read(&mut blocks, BLOCK)).collect();
        assert_eq!(blocks.lent.len(), KEPT);
        let mut starts: Vec<usize> = held.iter().map(start).collect();
        starts.sort_unstable();
        starts.dedup();
        assert_eq!(starts.len(), held.len());
    }

    #[test]
    fn gw_94_a_block_begins_in_the_middle_of_a_page() {
        let mut blocks = Blocks::default();
        // New ones, and the same ones again.
        for turn in 0..8 {
            let begin = read(&mut blocks, BLOCK).as_ptr() as usize;
            assert_eq!(begin % 4_096, 2_048, "block {turn}");
        }
        let held: Vec<Bytes> = (0..4).map(|_| read(&mut blocks, BLOCK)).collect();
        assert!(held.iter().all(|block| block.as_ptr() as usize % 4_096 == 2_048));
    }
}
