//! The outstanding tickets of a host: a packet in the pool carries the number of its ticket. Called by
//! `up.rs` and `down.rs`, and by the checks, which compare them with the stack's count.

use taut_core::TxTicket;

/// All outstanding tickets of a host.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    slots: Vec<Option<TxTicket>>,
    free: Vec<u32>,
}

impl Tickets {
    pub(super) fn put(&mut self, ticket: TxTicket) -> u32 {
        let held = Some(ticket);
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = held;
            return slot;
        }
        self.slots.push(held);
        self.slots.len() as u32 - 1
    }

    pub(crate) fn take(&mut self, slot: u32) -> Option<TxTicket> {
        let ticket = self.slots.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(ticket)
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&TxTicket> {
        self.slots.get(slot as usize)?.as_ref()
    }

    #[cfg(test)]
    pub(crate) fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &TxTicket> + '_ {
        self.slots.iter().flatten()
    }
}
