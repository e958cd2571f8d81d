//! Tickets that the device holds, by the numbers under which C gives them back. Called by `state.rs`.

use taut_core::TxTicket;

/// Tickets of packets that the device keeps, by the numbers that it was given.
#[derive(Default)]
pub(super) struct Tickets {
    /// Each with the generation of its place, so that a number finds one ticket.
    kept: Vec<(u32, Option<TxTicket>)>,
    free: Vec<u32>,
}

impl Tickets {
    /// The number of the next ticket that is kept.
    pub(super) fn next(&mut self) -> u64 {
        let place = match self.free.last() {
            Some(place) => *place,
            None => {
                self.kept.push((1, None));
                self.free.push(self.kept.len() as u32 - 1);
                self.kept.len() as u32 - 1
            }
        };
        u64::from(self.kept[place as usize].0) << 32 | u64::from(place)
    }

    /// It has the number that [`next`](Self::next) returned.
    pub(super) fn keep(&mut self, ticket: TxTicket) {
        if let Some(place) = self.free.pop() {
            self.kept[place as usize].1 = Some(ticket);
        }
    }

    pub(super) fn take(&mut self, number: u64) -> Option<TxTicket> {
        let place = number as u32;
        let (generation, ticket) = self.kept.get_mut(place as usize)?;
        let ticket = ticket.take_if(|_| number >> 32 == u64::from(*generation))?;
        *generation = generation.wrapping_add(1);
        self.free.push(place);
        Some(ticket)
    }
}
