//! From a packet's four-tuple to its owner: a connection, a half-open one, a TIME-WAIT entry or a flow. A
//! keyed hash table of slot numbers; the tuples themselves stay in their slots. Called by the stack for each
//! packet.

use hashbrown::HashTable;
use siphasher::sip::SipHasher13;

use crate::words::Tuple;

/// The owner of a tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Conn(u32),
    HalfOpen(u32),
    TimeWait(u32),
    /// A flow that the application has not decided about.
    Flow(u32),
}

/// Four bytes an entry: the top bits distinguish TIME-WAIT, half-open connections and flows from connections.
#[derive(Debug)]
pub(crate) struct Demux {
    table: HashTable<u32>,
    /// Remote hosts choose their addresses and ports; the secret key keeps them from choosing collisions.
    hasher: SipHasher13,
    /// The owner of the last packet, or [`NOBODY`]: packets of one connection come in trains.
    latest: u32,
}

/// No owner: there are always fewer slots than this.
const NOBODY: u32 = u32::MAX;

const TIME_WAIT_BIT: u32 = 1 << 31;
/// Set in the slot of a datagram socket, in names of senders and in the list of those with something to send.
pub(crate) const DATAGRAM_BIT: u32 = 1 << 31;
/// Set in the slot of a half-open connection, here and in names: [`ConnId`](crate::ConnId).
pub(crate) const HALF_OPEN_BIT: u32 = 1 << 30;

const fn pack(owner: Owner) -> u32 {
    match owner {
        Owner::Conn(slot) => slot,
        Owner::HalfOpen(slot) => slot | HALF_OPEN_BIT,
        Owner::TimeWait(slot) => slot | TIME_WAIT_BIT,
        Owner::Flow(slot) => slot | TIME_WAIT_BIT | HALF_OPEN_BIT,
    }
}

const fn unpack(entry: u32) -> Owner {
    if entry < HALF_OPEN_BIT {
        Owner::Conn(entry)
    } else if entry & TIME_WAIT_BIT == 0 {
        Owner::HalfOpen(entry & !HALF_OPEN_BIT)
    } else if entry & HALF_OPEN_BIT == 0 {
        Owner::TimeWait(entry & !TIME_WAIT_BIT)
    } else {
        Owner::Flow(entry & !(TIME_WAIT_BIT | HALF_OPEN_BIT))
    }
}

impl Demux {
    pub(crate) fn new((k0, k1): (u64, u64)) -> Self {
        Self { table: HashTable::new(), hasher: SipHasher13::new_with_keys(k0, k1), latest: NOBODY }
    }

    /// The owner of `tuple`; `tuple_of` looks up a candidate's tuple.
    pub(crate) fn find(&mut self, tuple: &Tuple, tuple_of: impl Fn(Owner) -> Option<Tuple>) -> Option<Owner> {
        let is_it = |&entry: &u32| tuple_of(unpack(entry)) == Some(*tuple);
        if self.latest == NOBODY || !is_it(&self.latest) {
            self.latest = *self.table.find(hash(&self.hasher, tuple), is_it)?;
        }
        Some(unpack(self.latest))
    }

    /// Adds an owner whose tuple is in no entry yet.
    pub(crate) fn insert(&mut self, tuple: &Tuple, owner: Owner, tuple_of: impl Fn(Owner) -> Option<Tuple>) {
        let hasher = &self.hasher;
        let rehash = |&entry: &u32| tuple_of(unpack(entry)).map_or(0, |tuple| hash(hasher, &tuple));
        self.table.insert_unique(hash(hasher, tuple), pack(owner), rehash);
    }

    /// The tuple belongs to another owner from now on.
    pub(crate) fn replace(&mut self, tuple: &Tuple, from: Owner, to: Owner) {
        let is_it = |entry: &u32| *entry == pack(from);
        if let Some(entry) = self.table.find_mut(hash(&self.hasher, tuple), is_it) {
            *entry = pack(to);
        }
        self.latest = pack(to);
    }

    /// Removes exactly this owner's entry.
    pub(crate) fn remove(&mut self, tuple: &Tuple, owner: Owner) {
        if let Ok(entry) = self.table.find_entry(hash(&self.hasher, tuple), |&entry| entry == pack(owner)) {
            entry.remove();
        }
        // The slot still has its tuple, but no packet may reach it any more.
        if self.latest == pack(owner) {
            self.latest = NOBODY;
        }
    }
}

/// One pass over all 36 bytes of a tuple.
fn hash(hasher: &SipHasher13, tuple: &Tuple) -> u64 {
    let mut bytes = [0; 36];
    for (half, end) in bytes.chunks_exact_mut(18).zip([tuple.local, tuple.peer]) {
        let (ip, port) = half.split_at_mut(16);
        ip.copy_from_slice(end.ip_bytes());
        port.copy_from_slice(&end.port().to_be_bytes());
    }
    hasher.hash(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Endpoint;

    fn tuple(port: u16) -> Tuple {
        let end = |last, port| Endpoint::new([10, 0, 0, last].into(), port);
        Tuple { local: end(1, 80), peer: end(2, port) }
    }

    #[test]
    fn an_owner_is_found_until_it_is_removed_though_its_slot_lives_on() {
        let slots = [tuple(1), tuple(2)];
        let tuple_of = |owner| match owner {
            Owner::Conn(slot) | Owner::HalfOpen(slot) | Owner::TimeWait(slot) | Owner::Flow(slot) => {
                slots.get(slot as usize).copied()
            }
        };
        let mut demux = Demux::new((1, 2));
        demux.insert(&tuple(1), Owner::Conn(0), tuple_of);
        demux.insert(&tuple(2), Owner::TimeWait(1), tuple_of);
        for _ in 0..2 {
            assert_eq!(demux.find(&tuple(1), tuple_of), Some(Owner::Conn(0)));
        }
        assert_eq!(demux.find(&tuple(2), tuple_of), Some(Owner::TimeWait(1)));
        assert_eq!(demux.find(&tuple(3), tuple_of), None);
        assert_eq!(demux.find(&tuple(2), tuple_of), Some(Owner::TimeWait(1)));
        demux.remove(&tuple(2), Owner::TimeWait(1));
        assert_eq!(demux.find(&tuple(2), tuple_of), None);
        assert_eq!(demux.find(&tuple(1), tuple_of), Some(Owner::Conn(0)));
    }

    /// 4,096 tuples of which an attacker knows that they collide under another key: under ours they spread.
    /// hashbrown looks at a tuple when seven bits of its hash agree, so a search looks at about one.
    #[test]
    fn atk_18_tuples_that_collide_under_another_key_do_not_collide_here() {
        use core::cell::Cell;

        let known = SipHasher13::new_with_keys(1, 1);
        let peer = |n: u32| Endpoint::new((0x0a00_0000 + (n >> 16)).to_be_bytes().into(), n as u16);
        let local = tuple(0).local;
        // The same bucket of 256, and the same seven bits.
        let chosen = (0..u32::MAX).map(|n| Tuple { local, peer: peer(n) });
        let chosen = chosen.filter(|tuple| hash(&known, tuple) & 0xff == 0 && hash(&known, tuple) >> 61 == 0);
        let slots: alloc::vec::Vec<Tuple> = chosen.take(4_096).collect();
        let looks = Cell::new(0);
        let tuple_of = |owner| {
            looks.set(looks.get() + 1);
            match owner {
                Owner::Conn(slot) | Owner::HalfOpen(slot) | Owner::TimeWait(slot) | Owner::Flow(slot) => {
                    slots.get(slot as usize).copied()
                }
            }
        };
        let mut demux = Demux::new((2, 3));
        for (slot, tuple) in slots.iter().enumerate() {
            demux.insert(tuple, Owner::Conn(slot as u32), tuple_of);
        }
        looks.set(0);
        for (slot, tuple) in slots.iter().enumerate() {
            assert_eq!(demux.find(tuple, tuple_of), Some(Owner::Conn(slot as u32)));
        }
        // One for the owner of the packet before, one for the right one, and a sixteenth by chance.
        assert!(looks.get() <= 4_096 * 5 / 2, "{} looks", looks.get());
    }
}
