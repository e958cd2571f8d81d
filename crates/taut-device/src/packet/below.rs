//! Which packets are still below: sent, and neither on the wire nor dropped. Pure; called by `tx.rs`.
//!
//! **Problem.** A ticket that comes back too early undoes the small queue, and one that never comes back
//! stops its connection. The kernel says two things about packets below a socket: how many bytes of memory
//! they take together (`SIOCOUTQ`), and, if asked, the name of a packet when the driver of the interface gets
//! it (a timestamp). A packet that is dropped in a queue below is never named.
//!
//! **Rule.** A name brings back its own ticket. Bytes bring back what has no name: when the kernel holds
//! fewer bytes than the packets here must take at least, the oldest have left or were dropped. When it holds
//! none, all have.
//!
//! A packet's share of the kernel's memory is not known, only that it is at least its length and
//! [`OVERHEAD`]. So tickets that come back by bytes may be a little late, and never early as long as packets
//! leave in order.

use std::collections::{BTreeMap, VecDeque};

/// The least that the kernel adds to a packet's bytes: its descriptor (232 bytes) and what follows the data
/// (320), each rounded up to a cache line (64-bit Linux; 2,304 bytes in all were measured for a frame of
/// 1,514). Less is safe.
pub(crate) const OVERHEAD: u32 = 512;

/// The packets below, in the order in which they were sent.
#[derive(Debug)]
pub(crate) struct Below<T> {
    packets: VecDeque<Packet<T>>,
    /// The serial number of the first of them.
    first: u64,
    /// Named packets, by name.
    named: BTreeMap<u32, u64>,
    /// The least that they take, together.
    charged: u64,
}

#[derive(Debug)]
struct Packet<T> {
    /// `None` when it has left.
    ticket: Option<T>,
    charge: u32,
    name: Option<u32>,
}

/// A packet that came back by bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Gone<T> {
    pub(crate) ticket: T,
    /// It has a name, which was not reported: it was probably dropped.
    pub(crate) was_named: bool,
}

impl<T> Below<T> {
    pub(crate) fn new() -> Self {
        Self { packets: VecDeque::new(), first: 0, named: BTreeMap::new(), charged: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// The first of these names that no packet below has.
    pub(crate) fn free_name(&self, names: impl IntoIterator<Item = u32>) -> Option<u32> {
        names.into_iter().find(|name| !self.named.contains_key(name))
    }

    /// A packet of so many bytes was sent, with a [free](Self::free_name) name or without one.
    pub(crate) fn put(&mut self, ticket: T, bytes: usize, name: Option<u32>) {
        let charge = u32::try_from(bytes).unwrap_or(u32::MAX).saturating_add(OVERHEAD);
        let serial = self.first + self.packets.len() as u64;
        if let Some(name) = name {
            self.named.insert(name, serial);
        }
        self.charged += u64::from(charge);
        self.packets.push_back(Packet { ticket: Some(ticket), charge, name });
    }

    /// The packet with this name has left. `None` for one that came back by bytes before.
    pub(crate) fn left(&mut self, name: u32) -> Option<T> {
        let serial = self.named.remove(&name)?;
        let packet = self.packets.get_mut(usize::try_from(serial.checked_sub(self.first)?).ok()?)?;
        let ticket = packet.ticket.take()?;
        self.charged -= u64::from(packet.charge);
        self.skip();
        Some(ticket)
    }

    /// The kernel held so many bytes before the last name was read. Returns the oldest packet if it is not
    /// among them; to be called until it returns none.
    pub(crate) fn gone(&mut self, bytes: u64) -> Option<Gone<T>> {
        if bytes > 0 && self.charged <= bytes {
            return None;
        }
        let Packet { ticket, charge, name } = self.packets.pop_front()?;
        self.first += 1;
        self.charged -= u64::from(charge);
        if let Some(name) = name {
            self.named.remove(&name);
        }
        self.skip();
        // What is in front has not left: see `skip`.
        ticket.map(|ticket| Gone { ticket, was_named: name.is_some() })
    }

    /// Removes packets that have left from the front.
    fn skip(&mut self) {
        while self.packets.front().is_some_and(|packet| packet.ticket.is_none()) {
            self.packets.pop_front();
            self.first += 1;
        }
        debug_assert!(!self.packets.is_empty() || (self.charged == 0 && self.named.is_empty()));
    }
}

#[cfg(test)]
mod tests;
