//! The payload of a received packet, wherever its bytes lie, and the choice between copying and keeping them.
//! Origin: taut's own; Linux drivers make the same choice under the name `rx_copybreak`.
//! Made by the connection once headers are parsed; consumed by the read queue and by reassembly.

use core::ops::Range;

use crate::buffers::{BufferPool, CHUNK_OVERHEAD};
use crate::words::{Frame, Gather, Memory};

/// Payloads shorter than this are copied even if their buffer could be kept: a copy is cheaper than another
/// buffer for the device, whose own stays in the cache.
const STEAL_MIN_BYTES: usize = 4_096;

/// Payload bytes of one packet.
#[derive(Debug)]
pub(crate) struct Payload<'a> {
    frame: Frame<'a>,
    /// Bytes before the payload: headers and trimmed bytes. Counted from the start of the slice, of the lent
    /// range, or of the gathered payload.
    skip: usize,
    /// `skip + len` never exceeds the frame.
    len: usize,
    /// The reader has it already.
    placed: bool,
}

impl<'a> Payload<'a> {
    /// A payload that lies at its reader's memory.
    pub(crate) const fn placed(bytes: &'a [u8]) -> Self {
        Self { len: bytes.len(), frame: Frame::Slice(bytes), skip: 0, placed: true }
    }

    /// Whether the reader has it already.
    pub(crate) const fn is_placed(&self) -> bool {
        self.placed
    }

    /// The `len` bytes after the first `header_len` of a frame; fewer if the frame is shorter.
    pub(crate) fn new(frame: Frame<'a>, header_len: usize, len: usize) -> Self {
        let (skip, available) = match &frame {
            Frame::Slice(slice) => (header_len, slice.len()),
            Frame::Gather { header, payload } => (header_len.saturating_sub(header.len()), payload.len()),
            Frame::Lend { buffer, range } => (header_len, buffer.get(range.clone()).map_or(0, <[u8]>::len)),
        };
        let skip = skip.min(available);
        Self { frame, skip, len: len.min(available - skip), placed: false }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Segments on the wire: those of a super-packet are `gso_size` bytes long; 0 if it is not one. A packet
    /// without payload is one segment, too.
    pub(crate) const fn segments(&self, gso_size: u16) -> usize {
        match (gso_size, self.len) {
            (0, _) | (_, 0) => 1,
            (size, len) => len.div_ceil(size as usize),
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets the first `n` bytes.
    pub(crate) fn trim_front(&mut self, n: usize) {
        let n = n.min(self.len);
        self.skip += n;
        self.len -= n;
    }

    /// Forgets all but the first `len` bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// All bytes, as pieces.
    pub(crate) fn gather(&self) -> Gather<'_> {
        self.gather_range(0..self.len)
    }

    /// The bytes in `range`, counted from the first remaining one, as pieces.
    pub(crate) fn gather_range(&self, range: Range<usize>) -> Gather<'_> {
        let end = self.skip + range.end.min(self.len);
        let start = (self.skip + range.start).min(end);
        match &self.frame {
            Frame::Slice(slice) => slice.get(start..end).unwrap_or(&[]).into(),
            Frame::Lend { buffer, range } => {
                buffer.get(range.start + start..range.start + end).unwrap_or(&[]).into()
            }
            Frame::Gather { payload, .. } => {
                let mut gather = Gather::EMPTY;
                let mut at = 0;
                for slice in payload.slices() {
                    let (from, to) = (start.clamp(at, at + slice.len()), end.clamp(at, at + slice.len()));
                    gather.push(slice.get(from - at..to - at).unwrap_or(&[]));
                    at += slice.len();
                }
                gather
            }
        }
    }

    /// Copies as many bytes as fit and returns how many that was.
    #[cfg(test)]
    pub(crate) fn copy_into(&self, into: &mut [u8]) -> usize {
        let mut at = 0;
        for slice in self.gather().slices() {
            let Some(room) = into.get_mut(at..) else { break };
            let n = room.len().min(slice.len());
            if let (Some(to), Some(from)) = (room.get_mut(..n), slice.get(..n)) {
                to.copy_from_slice(from);
            }
            at += n;
        }
        at
    }

    /// The memory that [`steal`](Self::steal) would take, if it takes any.
    pub(crate) const fn steal_cost(&self) -> usize {
        match &self.frame {
            Frame::Lend { buffer, .. } => buffer.len() + CHUNK_OVERHEAD,
            _ => 0,
        }
    }

    /// Takes the buffer of a lent frame, with the payload's place in it, and leaves the payload empty. A
    /// spare buffer of the same length, or an empty one, replaces it.
    ///
    /// Only if the payload fills at least half of the buffer: kept buffers then never cost more than twice
    /// the bytes they hold.
    pub(crate) fn steal(&mut self, pool: &mut BufferPool) -> Option<(Memory, Range<usize>)> {
        let Frame::Lend { buffer, range } = &mut self.frame else { return None };
        if self.len < STEAL_MIN_BYTES || self.len.saturating_mul(2) < buffer.capacity() {
            return None;
        }
        let start = range.start + self.skip;
        let place = start..start + self.len;
        self.skip = 0;
        self.len = 0;
        *range = 0..0;
        Some((pool.exchange(buffer), place))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::words::BUFFER_BYTES;
    use std::vec;
    use std::vec::Vec;

    fn bytes(payload: &Payload<'_>) -> Vec<u8> {
        let mut out = vec![0; payload.len()];
        assert_eq!(payload.copy_into(&mut out), out.len());
        out
    }

    #[test]
    fn trims_every_kind_of_frame_alike() {
        let packet: Vec<u8> = (0..20).collect();
        let mut lent = [&[99; 3], &packet[..]].concat();
        let mut gathered = Gather::EMPTY;
        for piece in packet[4..].chunks(3) {
            gathered.push(piece);
        }
        let frames = [
            Frame::Slice(&packet),
            Frame::Gather { header: &packet[..4], payload: gathered },
            Frame::Lend { buffer: &mut lent, range: 3..23 },
        ];
        for frame in frames {
            let mut payload = Payload::new(frame, 4, 14);
            assert_eq!(bytes(&payload), packet[4..18]);
            payload.trim_front(2);
            payload.truncate(9);
            assert_eq!(bytes(&payload), packet[6..15]);
            assert_eq!(payload.gather_range(1..4).slices().concat(), packet[7..10]);
            payload.trim_front(100);
            assert!(payload.is_empty());
        }
    }

    #[test]
    fn lengths_beyond_the_frame_are_cut() {
        assert_eq!(Payload::new(Frame::Slice(&[0; 50]), 40, 1000).len(), 10);
        assert_eq!(Payload::new(Frame::Slice(&[0; 50]), 60, 1000).len(), 0);
        let mut buffer = vec![0; 10];
        assert_eq!(Payload::new(Frame::Lend { buffer: &mut buffer, range: 5..11 }, 0, 1).len(), 0);
    }

    #[test]
    fn steals_only_well_filled_buffers() {
        let mut pool = BufferPool::new();
        pool.give(Memory::new(vec![1; BUFFER_BYTES]));

        let mut half_empty = vec![2; BUFFER_BYTES];
        let frame = Frame::Lend { buffer: &mut half_empty, range: 0..32_000 };
        assert!(Payload::new(frame, 40, 31_000).steal(&mut pool).is_none());

        let mut half_full = vec![2; BUFFER_BYTES];
        let frame = Frame::Lend { buffer: &mut half_full, range: 0..BUFFER_BYTES };
        assert!(Payload::new(frame, 0, BUFFER_BYTES / 2).steal(&mut BufferPool::new()).is_some());

        let mut full = vec![3; BUFFER_BYTES];
        let frame = Frame::Lend { buffer: &mut full, range: 10..65_000 };
        let mut payload = Payload::new(frame, 40, 60_000);
        let (taken, place) = payload.steal(&mut pool).unwrap();
        assert!(payload.is_empty(), "its bytes are another's now");
        assert_eq!((taken.bytes()[0], place), (3, 50..60_050));
        assert_eq!((full[0], full.len()), (1, BUFFER_BYTES));

        let frame = Frame::Lend { buffer: &mut full, range: 10..65_000 };
        assert!(Payload::new(frame, 40, 60_000).steal(&mut pool).is_some());
        assert!(full.is_empty());
    }
}
