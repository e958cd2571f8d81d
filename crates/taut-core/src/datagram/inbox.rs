//! Datagrams that wait to be received, bounded in memory.
//! Linux: `__udp_enqueue_schedule_skb` and `sk_rmem_alloc`. Owned by a socket.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::OVERHEAD_BYTES;
use crate::words::Endpoint;

/// One datagram, or several of `segment` bytes each.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) bytes: Vec<u8>,
    pub(crate) from: Endpoint,
    pub(crate) to: IpAddr,
    pub(crate) class: u8,
    pub(crate) hops: u8,
    pub(crate) segment: u16,
}

impl Incoming {
    /// The bytes that it counts for while it waits.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity() + OVERHEAD_BYTES
    }
}

#[derive(Debug)]
pub(crate) struct Inbox {
    queue: VecDeque<Incoming>,
    memory: usize,
    limit: u32,
    drops: u64,
}

impl Inbox {
    pub(crate) const fn new(limit: u32) -> Self {
        Self { queue: VecDeque::new(), memory: 0, limit, drops: 0 }
    }

    pub(crate) const fn set_limit(&mut self, bytes: u32) {
        self.limit = bytes;
    }

    pub(crate) const fn limit(&self) -> u32 {
        self.limit
    }

    pub(crate) const fn memory(&self) -> usize {
        self.memory
    }

    pub(crate) const fn drops(&self) -> u64 {
        self.drops
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether a datagram that arrives now is taken; else it is counted as dropped. One is always taken,
    /// however small the limit is.
    pub(crate) fn has_room(&mut self) -> bool {
        let has_room = self.memory <= self.limit as usize;
        self.drops += u64::from(!has_room);
        has_room
    }

    /// A datagram for which there is room here finds none elsewhere.
    pub(crate) const fn note_drop(&mut self) {
        self.drops += 1;
    }

    /// Adds a datagram for which there [is room](Self::has_room).
    pub(crate) fn push(&mut self, incoming: Incoming) {
        self.memory += incoming.memory();
        self.queue.push_back(incoming);
    }

    pub(crate) fn front(&self) -> Option<&Incoming> {
        self.queue.front()
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        (self.queue, self.memory) = (VecDeque::new(), 0);
    }

    pub(crate) fn pop(&mut self) -> Option<Incoming> {
        let incoming = self.queue.pop_front()?;
        self.memory -= incoming.memory();
        if self.queue.is_empty() {
            // An idle socket holds no memory.
            self.queue = VecDeque::new();
        }
        Some(incoming)
    }
}
