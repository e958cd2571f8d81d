//! Packets on their way to a stack in this process: a queue bounded in bytes. Its buffers circulate between
//! the queue and the stack, so that nothing is allocated in the steady state. taut's own; used by `pipe.rs`
//! and `channel.rs`.

use std::collections::VecDeque;

use taut_core::{BUFFER_BYTES, Offload, RxChecksum, TxPacket};
use taut_driver::Received;

/// The most spare buffers kept.
const SPARE_MAX: usize = 16;

/// A packet of at most so many bytes waits in no buffer of its own, and is copied once more: an ACK would
/// take a thousand times its length.
const SHORT_MAX: usize = 16_384;

/// Packets that wait to be received.
#[derive(Debug)]
pub(crate) struct Packets {
    waiting: VecDeque<Packet>,
    /// The bytes of short packets, one after the other.
    short: VecDeque<u8>,
    /// Sum of the packets' lengths.
    bytes: usize,
    limit_bytes: usize,
    /// Spare buffers of [`BUFFER_BYTES`], with arbitrary content.
    spare: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct Packet {
    /// None of a short packet.
    buffer: Option<Vec<u8>>,
    len: usize,
    checksum: RxChecksum,
    gso_size: u16,
}

impl Packets {
    pub(crate) const fn new(limit_bytes: usize) -> Self {
        Self { waiting: VecDeque::new(), short: VecDeque::new(), bytes: 0, limit_bytes, spare: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether another packet is taken: if any room is left, so that a packet of any size can pass.
    pub(crate) const fn has_room(&self) -> bool {
        self.bytes < self.limit_bytes
    }

    /// Adds a packet as another stack sent it: a super-packet stays whole, and a checksum that was left to
    /// the device is never completed, because the packet does not leave this process.
    pub(crate) fn put(&mut self, packet: &TxPacket<'_>) {
        let (checksum, gso_size) = match packet.offload {
            Offload::None => (RxChecksum::Unverified, 0),
            Offload::Checksum { .. } => (RxChecksum::Verified, 0),
            Offload::Segment { mss, .. } => (RxChecksum::Verified, mss),
        };
        let len = packet.len();
        let mut buffer = (len > SHORT_MAX).then(|| self.spare.pop().unwrap_or_else(|| vec![0; BUFFER_BYTES]));
        if let Some(buffer) = &mut buffer {
            let mut at = 0;
            for piece in packet.pieces() {
                buffer[at..at + piece.len()].copy_from_slice(piece);
                at += piece.len();
            }
        } else {
            packet.pieces().for_each(|piece| self.short.extend(piece));
        }
        self.bytes += len;
        self.waiting.push_back(Packet { buffer, len, checksum, gso_size });
    }

    /// Exchanges `buffer` for the buffer of the first packet, or copies a short one into it.
    pub(crate) fn take(&mut self, buffer: &mut Vec<u8>) -> Option<Received> {
        let Packet { buffer: taken, len, checksum, gso_size } = self.waiting.pop_front()?;
        self.bytes -= len;
        if let Some(taken) = taken {
            let used = std::mem::replace(buffer, taken);
            if used.len() >= BUFFER_BYTES && self.spare.len() < SPARE_MAX {
                self.spare.push(used);
            }
        } else {
            if buffer.len() < len {
                *buffer = vec![0; BUFFER_BYTES];
            }
            let (first, second) = self.short.as_slices();
            let first = &first[..first.len().min(len)];
            buffer[..first.len()].copy_from_slice(first);
            buffer[first.len()..len].copy_from_slice(&second[..len - first.len()]);
            self.short.drain(..len);
        }
        Some(Received { range: 0..len, checksum, gso_size })
    }

    #[cfg(test)]
    pub(crate) const fn spare(&self) -> usize {
        self.spare.len()
    }
}
