//! All connections of a stack, by slot. A slot is reused, a generation is not, so an old name finds nothing.
//! Each connection is an allocation of its own: growing the table moves pointers only, and memory goes back
//! after a peak.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::conn::Conn;
use crate::words::ConnId;

#[derive(Debug)]
pub(crate) struct Table {
    slots: Vec<Option<Box<Conn>>>,
    /// Free slots; the one that became free last is used first.
    free: Vec<u32>,
    /// The generation of the next connection, in any slot. It repeats after four billion connections.
    generation: u32,
}

impl Table {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), generation: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The name that the next connection gets.
    pub(crate) fn next_id(&self) -> ConnId {
        let slot = self.free.last().copied().unwrap_or(self.slots.len() as u32);
        ConnId { slot, generation: self.generation }
    }

    /// Adds a connection made for [`next_id`](Self::next_id).
    pub(crate) fn insert(&mut self, conn: Conn) -> u32 {
        let id = self.next_id();
        debug_assert_eq!(conn.generation, id.generation);
        let taken = Some(Box::new(conn));
        match self.slots.get_mut(id.slot()) {
            Some(slot) => {
                *slot = taken;
                self.free.pop();
            }
            None => self.slots.push(taken),
        }
        self.generation = self.generation.wrapping_add(1);
        id.slot
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Option<Box<Conn>> {
        let conn = self.slots.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(conn)
    }

    pub(crate) fn at(&self, slot: u32) -> Option<&Conn> {
        self.slots.get(slot as usize)?.as_deref()
    }

    pub(crate) fn at_mut(&mut self, slot: u32) -> Option<&mut Conn> {
        self.slots.get_mut(slot as usize)?.as_deref_mut()
    }

    /// The names of all connections, in the order of their slots.
    pub(crate) fn ids(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.slots
            .iter()
            .zip(0..)
            .filter_map(|(conn, slot)| conn.as_ref().map(|conn| ConnId { slot, generation: conn.generation }))
    }

    /// The connection with that name, if it still exists.
    pub(crate) fn get(&self, id: ConnId) -> Option<&Conn> {
        self.at(id.slot).filter(|conn| conn.generation == id.generation)
    }

    /// The same, to change it.
    pub(crate) fn get_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.at_mut(id.slot).filter(|conn| conn.generation == id.generation)
    }
}
