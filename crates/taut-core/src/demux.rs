//! From a packet's four-tuple to what it belongs to: a connection or a TIME-WAIT entry.
//! A keyed hash table of slot numbers; the tuples themselves stay in their slots. Called by the stack per packet.

use core::hash::{Hash, Hasher};

use hashbrown::HashTable;
use siphasher::sip::SipHasher13;

use crate::addr::Endpoint;

/// This end and the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tuple {
    pub(crate) local: Endpoint,
    pub(crate) peer: Endpoint,
}

/// What a tuple leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Conn(u32),
    TimeWait(u32),
}

/// Four bytes an entry: the top bit tells TIME-WAIT from connections.
#[derive(Debug)]
pub(crate) struct Demux {
    table: HashTable<u32>,
    /// Strangers choose their addresses and ports; the key keeps them from choosing collisions.
    key: (u64, u64),
}

const TIME_WAIT_BIT: u32 = 1 << 31;

const fn pack(owner: Owner) -> u32 {
    match owner {
        Owner::Conn(slot) => slot,
        Owner::TimeWait(slot) => slot | TIME_WAIT_BIT,
    }
}

const fn unpack(entry: u32) -> Owner {
    if entry & TIME_WAIT_BIT == 0 { Owner::Conn(entry) } else { Owner::TimeWait(entry & !TIME_WAIT_BIT) }
}

impl Demux {
    pub(crate) fn new(key: (u64, u64)) -> Self {
        Self { table: HashTable::new(), key }
    }

    fn hash(&self, tuple: &Tuple) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.key.0, self.key.1);
        tuple.hash(&mut hasher);
        hasher.finish()
    }

    /// Whom `tuple` belongs to; `tuple_of` looks a candidate's tuple up.
    pub(crate) fn find(&self, tuple: &Tuple, tuple_of: impl Fn(Owner) -> Option<Tuple>) -> Option<Owner> {
        let found = self.table.find(self.hash(tuple), |&entry| tuple_of(unpack(entry)) == Some(*tuple));
        found.map(|&entry| unpack(entry))
    }

    /// Adds an owner whose tuple is in no entry yet.
    pub(crate) fn insert(&mut self, tuple: &Tuple, owner: Owner, tuple_of: impl Fn(Owner) -> Option<Tuple>) {
        let hash = self.hash(tuple);
        let key = self.key;
        let rehash = |&entry: &u32| {
            let mut hasher = SipHasher13::new_with_keys(key.0, key.1);
            if let Some(tuple) = tuple_of(unpack(entry)) {
                tuple.hash(&mut hasher);
            }
            hasher.finish()
        };
        self.table.insert_unique(hash, pack(owner), rehash);
    }

    /// Removes exactly this owner's entry.
    pub(crate) fn remove(&mut self, tuple: &Tuple, owner: Owner) {
        if let Ok(entry) = self.table.find_entry(self.hash(tuple), |&entry| entry == pack(owner)) {
            entry.remove();
        }
    }
}
