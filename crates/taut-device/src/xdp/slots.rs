//! Which chunks of memory the kernel has, and whose tickets wait for them. Pure; called by `tx.rs`.
//!
//! ```text
//!             take                            the TX ring, the wire, the completion ring
//!   free ──────────────▶ ours, being filled ─────────────── put ───────────────▶ the kernel's
//!     ▲                                                                               │
//!     └───────────────────────────────── complete ────────────────────────────────────┘
//!                                            └─▶ the packet's ticket, with the last of its chunks
//! ```
//!
//! A packet that is larger than a chunk lies in several. Its ticket comes back with the last of them to
//! complete, in whichever order they do. A chunk that the kernel does not have cannot complete: a number that
//! comes twice, or that is none of ours, brings back nothing.

/// A chunk that belongs to no packet.
const NOBODY: u32 = u32::MAX;

/// Chunks, and the packets in them.
#[derive(Debug)]
pub(super) struct Slots<T> {
    free: Vec<u32>,
    /// The packet that each chunk is a part of, by its place in `packets`.
    owner: Vec<u32>,
    packets: Vec<Packet<T>>,
    free_packets: Vec<u32>,
}

#[derive(Debug)]
struct Packet<T> {
    ticket: Option<T>,
    /// Chunks of it that the kernel has.
    chunks: u32,
}

impl<T> Slots<T> {
    /// So many chunks, all of them free.
    pub(super) fn new(chunks: u32) -> Self {
        Self {
            free: (0..chunks).rev().collect(),
            owner: vec![NOBODY; chunks as usize],
            packets: (0..chunks).map(|_| Packet { ticket: None, chunks: 0 }).collect(),
            free_packets: (0..chunks).rev().collect(),
        }
    }

    /// How many chunks are free.
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Whether the kernel has nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.owner.len()
    }

    /// Gives a packet so many chunks, by `each`, or its ticket back if there are too few. They are the
    /// kernel's from then on.
    pub(super) fn put(&mut self, count: usize, ticket: T, mut each: impl FnMut(u32)) -> Result<(), T> {
        if count == 0 || self.free.len() < count {
            return Err(ticket);
        }
        // There are as many places for packets as chunks.
        let Some(place) = self.free_packets.pop() else { return Err(ticket) };
        self.packets[place as usize] = Packet { ticket: Some(ticket), chunks: count as u32 };
        for chunk in self.free.drain(self.free.len() - count..) {
            self.owner[chunk as usize] = place;
            each(chunk);
        }
        Ok(())
    }

    /// The kernel has given a chunk back. Returns its packet's ticket if that was the last of its chunks.
    pub(super) fn complete(&mut self, chunk: u32) -> Option<T> {
        let owner = self.owner.get_mut(chunk as usize)?;
        let place = std::mem::replace(owner, NOBODY);
        let packet = self.packets.get_mut(place as usize)?;
        self.free.push(chunk);
        packet.chunks -= 1;
        if packet.chunks > 0 {
            return None;
        }
        self.free_packets.push(place);
        packet.ticket.take()
    }

    /// The kernel will give nothing back any more. Returns all tickets.
    pub(super) fn take_all(&mut self) -> Vec<T> {
        let chunks = self.owner.len() as u32;
        let tickets = self.packets.iter_mut().filter_map(|packet| packet.ticket.take()).collect();
        *self = Self::new(chunks);
        tickets
    }
}

#[cfg(test)]
mod tests;
