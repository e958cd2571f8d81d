//! Packets on their way to a stack in this process: a queue bounded in bytes. Its buffers circulate between
//! the queue and the stack, so that nothing is allocated in the steady state. taut's own; used by `pipe.rs`
//! and `channel.rs`.

use std::collections::VecDeque;

use taut_core::{BUFFER_BYTES, Offload, RxChecksum, TxPacket};
use taut_driver::Received;

/// The most spare buffers kept.
const SPARE_MAX: usize = 16;

/// Packets that wait to be received.
#[derive(Debug)]
pub(crate) struct Packets {
    waiting: VecDeque<Packet>,
    /// Sum of the packets' lengths.
    bytes: usize,
    limit_bytes: usize,
    /// Spare buffers of [`BUFFER_BYTES`], with arbitrary content.
    spare: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct Packet {
    buffer: Vec<u8>,
    len: usize,
    checksum: RxChecksum,
    gso_size: u16,
}

impl Packets {
    pub(crate) const fn new(limit_bytes: usize) -> Self {
        Self { waiting: VecDeque::new(), bytes: 0, limit_bytes, spare: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether another packet is taken: if any room is left, so that a packet of any size can pass.
    pub(crate) const fn has_room(&self) -> bool {
        self.bytes < self.limit_bytes
    }

    /// Adds a packet as another stack sent it: a super-packet stays whole, and a checksum that was left to the device
    /// is never completed, because the packet does not leave this process.
    pub(crate) fn put(&mut self, packet: &TxPacket<'_>) {
        let (checksum, gso_size) = match packet.offload {
            Offload::None => (RxChecksum::Unverified, 0),
            Offload::Checksum { .. } => (RxChecksum::Verified, 0),
            Offload::Segment { mss, .. } => (RxChecksum::Verified, mss),
        };
        let mut buffer = self.spare.pop().unwrap_or_else(|| vec![0; BUFFER_BYTES]);
        let mut len = 0;
        for piece in packet.pieces() {
            buffer[len..len + piece.len()].copy_from_slice(piece);
            len += piece.len();
        }
        self.bytes += len;
        self.waiting.push_back(Packet { buffer, len, checksum, gso_size });
    }

    /// Exchanges `buffer` for the buffer of the first packet.
    pub(crate) fn take(&mut self, buffer: &mut Vec<u8>) -> Option<Received> {
        let Packet { buffer: taken, len, checksum, gso_size } = self.waiting.pop_front()?;
        self.bytes -= len;
        let used = std::mem::replace(buffer, taken);
        if used.len() >= BUFFER_BYTES && self.spare.len() < SPARE_MAX {
            self.spare.push(used);
        }
        Some(Received { range: 0..len, checksum, gso_size })
    }

    #[cfg(test)]
    pub(crate) const fn spare(&self) -> usize {
        self.spare.len()
    }
}
