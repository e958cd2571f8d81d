//! A packet that outlives the call that handed it out: in a queue, in a device's ring, on another thread.
//! taut's own; made by a device, or by a queue in front of one.
//!
//! **Problem.** A packet is lent for the length of a call, with its payload still in the write queue. Copying
//! each packet that waits would be a second copy of every byte.
//!
//! **Rule.** The headers are copied. Of the payload, only short pieces and chunks that may still grow are
//! copied: the rest is in reference-counted memory ([`Memory`]), to which the packet keeps a reference. The
//! connection may release those bytes meanwhile; the memory returns to the stack's pool when the packet, too,
//! is [cleared](KeptPacket::clear) or dropped, on any thread.

use alloc::vec::Vec;
use core::ops::Range;

use super::{Gather, Instant, Memory, Offload, TxPacket};

/// Pieces shorter than this are copied, which costs no more than a reference.
const SHARE_MIN: usize = 256;

/// The most memory that a packet keeps for the next one: enough for headers and a piece or two.
const OWN_BYTES_MAX: usize = 2_048;

/// The content of a [`TxPacket`], for as long as it is needed. Its memory can be reused for one packet after
/// another.
#[derive(Clone, Debug, Default)]
pub struct KeptPacket {
    header: Vec<u8>,
    /// Bytes of the pieces that were copied.
    copied: Vec<u8>,
    /// The payload, in order.
    pieces: Vec<Piece>,
    offload: Offload,
    departure: Instant,
}

/// A piece of the payload, by the place of its bytes.
#[derive(Clone, Debug)]
enum Piece {
    Copied(Range<usize>),
    Shared(Memory, Range<usize>),
}

/// The range of `slice` in `memory`, of which it is a part.
fn place(slice: &[u8], memory: &Memory) -> Range<usize> {
    let start = slice.as_ptr().addr() - memory.bytes().as_ptr().addr();
    start..start + slice.len()
}

impl TxPacket<'_> {
    /// A packet that may be kept for longer than this call.
    #[must_use]
    pub fn keep(&self) -> KeptPacket {
        let mut kept = KeptPacket::default();
        self.keep_in(&mut kept);
        kept
    }

    /// [`keep`](Self::keep), in the memory of a packet that is no longer needed.
    pub fn keep_in(&self, kept: &mut KeptPacket) {
        kept.clear();
        kept.header.extend_from_slice(self.header);
        for (slice, memory) in self.payload.pieces() {
            let piece = match memory.filter(|_| slice.len() >= SHARE_MIN) {
                Some(memory) => Piece::Shared(memory.clone(), place(slice, memory)),
                None => {
                    let start = kept.copied.len();
                    kept.copied.extend_from_slice(slice);
                    Piece::Copied(start..kept.copied.len())
                }
            };
            kept.pieces.push(piece);
        }
        (kept.offload, kept.departure) = (self.offload, self.departure);
    }
}

impl KeptPacket {
    /// The packet, in the form that devices take.
    #[must_use]
    pub fn packet(&self) -> TxPacket<'_> {
        let mut payload = Gather::EMPTY;
        for piece in &self.pieces {
            match piece {
                Piece::Copied(range) => payload.push(self.copied.get(range.clone()).unwrap_or_default()),
                Piece::Shared(memory, range) => {
                    payload.push_of(memory.bytes().get(range.clone()).unwrap_or_default(), Some(memory))
                }
            };
        }
        TxPacket { header: &self.header, payload, offload: self.offload, departure: self.departure }
    }

    /// Forgets the packet and releases the memory that it shares. A little memory of its own is kept for the
    /// next packet.
    pub fn clear(&mut self) {
        self.header.clear();
        self.pieces.clear();
        self.copied.clear();
        self.copied.shrink_to(OWN_BYTES_MAX);
    }

    /// Its headers, which may be changed.
    pub fn header_mut(&mut self) -> &mut [u8] {
        &mut self.header
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec;

    /// A packet whose payload is a shared piece, a short one of shared memory, and one without.
    fn payload<'a>(memory: &'a Memory, own: &'a [u8]) -> Gather<'a> {
        let mut payload = Gather::EMPTY;
        payload.push_of(&memory.bytes()[100..900], Some(memory));
        payload.push_of(&memory.bytes()[900..1_000], Some(memory));
        payload.push(own);
        payload
    }

    #[test]
    fn long_pieces_are_shared_and_the_rest_is_copied() {
        let memory = Memory::new((0..=255).cycle().take(1_000).collect());
        let own = vec![7; 5_000];
        let packet = TxPacket { payload: payload(&memory, &own), ..TxPacket::whole(b"header") };
        let mut kept = packet.keep();
        assert_eq!(kept.packet().to_vec(), packet.to_vec());
        assert_eq!(kept.copied.len(), 100 + 5_000, "all but the first piece");
        assert_eq!(kept.packet().payload.slices()[0].as_ptr(), memory.bytes()[100..].as_ptr(), "no copy");
        // Kept once more, by a device behind a queue: the same memory.
        let again = kept.packet().keep();
        assert_eq!((again.packet().to_vec(), again.copied.len()), (packet.to_vec(), 5_100));
        kept.clear();
        assert!(kept.copied.capacity() <= OWN_BYTES_MAX, "the memory of a long packet is not kept");
    }

    #[test]
    fn memory_can_be_written_again_once_the_packet_is_gone() {
        let mut memory = Memory::zeroed(1_000);
        let keep =
            |memory: &Memory| TxPacket { payload: payload(memory, &[]), ..TxPacket::whole(b"") }.keep();
        let mut kept = keep(&memory);
        assert!(memory.bytes_mut().is_none());
        kept.clear();
        assert!(memory.bytes_mut().is_some());
        let kept = keep(&memory);
        drop(kept);
        assert!(memory.bytes_mut().is_some());
    }
}
