//! Which packets are still in this host: sent, and not yet given to the network by the kernel. Pure; called
//! by `tx.rs`.
//!
//! **Problem.** A ticket that comes back too early undoes the small queue below TCP, and one that never comes
//! back stops its connection. Of a UDP socket the kernel only says how many bytes of memory its datagrams
//! take together (`SIOCOUTQ`).
//!
//! **Rule.** Datagrams leave in order. The oldest call has left, or was dropped in a queue, when the kernel
//! holds no more than the calls after it take at least; all have when it holds nothing. A queue may cut a
//! call into datagrams and send them one by one: so a ticket may be a little late, and is never early.

use std::collections::VecDeque;

/// The least that the kernel adds to the bytes of a call: its descriptor and what follows the data (64-bit
/// Linux).
const CALL: u64 = 512;

/// Tickets of what is below, the oldest first.
#[derive(Debug)]
pub(crate) struct Below<T> {
    tickets: VecDeque<(T, u64)>,
    /// The least that all of them take.
    charged: u64,
}

impl<T> Below<T> {
    pub(crate) const fn new() -> Self {
        Self { tickets: VecDeque::new(), charged: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    /// A call sent so many bytes for these tickets. All of them leave together, with the last.
    pub(crate) fn put(&mut self, tickets: impl IntoIterator<Item = T>, bytes: usize) {
        let mut charge = CALL + bytes as u64;
        for ticket in tickets {
            self.tickets.push_back((ticket, charge));
            self.charged += charge;
            charge = 0;
        }
    }

    /// The kernel holds so many bytes. Returns a ticket that is not among them; to be called until it returns
    /// none.
    pub(crate) fn gone(&mut self, bytes: u64) -> Option<T> {
        // Those without a charge left with the one before.
        let follows = self.tickets.front().is_some_and(|(_, charge)| *charge == 0);
        let after = self.charged - self.tickets.front()?.1;
        if bytes > after && !follows {
            return None;
        }
        let (ticket, charge) = self.tickets.pop_front()?;
        self.charged -= charge;
        Some(ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wg_12_tickets_come_back_by_the_bytes_that_the_kernel_holds() {
        let mut below = Below::new();
        below.put([1, 2], 3_000);
        below.put([3], 1_000);
        let mut gone = |bytes| std::iter::from_fn(|| below.gone(bytes)).collect::<Vec<_>>();
        assert_eq!(gone(9_000), []);
        assert_eq!(gone(1_513), [], "the second takes 1,512 at least: the rest may be of the first");
        assert_eq!(gone(1_512), [1, 2]);
        assert_eq!(gone(1), []);
        assert_eq!(gone(0), [3]);
        assert_eq!(gone(0), []);
    }
}
