//! All connections of a stack, by slot. A slot is reused, its generation is not, so an old name finds nothing.
//! Each connection is an allocation of its own: growing the table moves pointers only, and memory goes back after
//! a peak.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::conn::{Conn, ConnId};

#[derive(Debug)]
enum Slot {
    Taken(Box<Conn>),
    /// Next free slot, and the generation that the next connection here gets.
    Free {
        next: u32,
        generation: u32,
    },
}

/// End of the free list.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Table {
    slots: Vec<Slot>,
    free: u32,
    len: usize,
}

impl Table {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: NONE, len: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// The name that the next connection gets.
    pub(crate) fn next_id(&self) -> ConnId {
        match self.slots.get(self.free as usize) {
            Some(Slot::Free { generation, .. }) => ConnId { slot: self.free, generation: *generation },
            _ => ConnId { slot: self.slots.len() as u32, generation: 0 },
        }
    }

    /// Adds a connection made for [`next_id`](Self::next_id).
    pub(crate) fn insert(&mut self, conn: Conn) -> u32 {
        let id = self.next_id();
        debug_assert_eq!(conn.generation, id.generation);
        let taken = Slot::Taken(Box::new(conn));
        match self.slots.get_mut(id.slot()) {
            Some(slot) => {
                if let Slot::Free { next, .. } = *slot {
                    self.free = next;
                }
                *slot = taken;
            }
            None => self.slots.push(taken),
        }
        self.len += 1;
        id.slot
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Option<Box<Conn>> {
        let place = self.slots.get_mut(slot as usize)?;
        let Slot::Taken(conn) = &*place else { return None };
        let free = Slot::Free { next: self.free, generation: conn.generation.wrapping_add(1) };
        let Slot::Taken(conn) = core::mem::replace(place, free) else { return None };
        self.free = slot;
        self.len -= 1;
        Some(conn)
    }

    pub(crate) fn at(&self, slot: u32) -> Option<&Conn> {
        match self.slots.get(slot as usize)? {
            Slot::Taken(conn) => Some(conn),
            Slot::Free { .. } => None,
        }
    }

    pub(crate) fn at_mut(&mut self, slot: u32) -> Option<&mut Conn> {
        match self.slots.get_mut(slot as usize)? {
            Slot::Taken(conn) => Some(conn),
            Slot::Free { .. } => None,
        }
    }

    /// The connection of that name, if it still exists.
    pub(crate) fn get(&self, id: ConnId) -> Option<&Conn> {
        self.at(id.slot).filter(|conn| conn.generation == id.generation)
    }
}
