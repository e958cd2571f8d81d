//! A table whose entries stand in one of a few lists, each in the order of arrival. taut's own; the tables of
//! TIME-WAIT and of half-open connections are made of it.
//!
//! Entries that all wait equally long expire in the order in which they began to wait. So a list for each
//! time to wait serves as a queue of deadlines: adding, moving and removing an entry take a few steps,
//! however many there are, and an entry costs eight bytes.

use alloc::vec::Vec;

/// End of a list.
const NIL: u32 = u32::MAX;

/// Slots that are kept when the last entry leaves: the rest of the memory goes back after a peak.
const KEPT: usize = 64;

#[derive(Debug)]
struct Slot<T> {
    entry: Option<T>,
    /// Neighbours; `next` also links the free slots.
    previous: u32,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    first: u32,
    last: u32,
}

/// Entries in `N` lists, by slot. Whoever moves or removes an entry says in which list it is.
#[derive(Debug)]
pub(crate) struct Lists<T, const N: usize> {
    slots: Vec<Slot<T>>,
    free: u32,
    ends: [Ends; N],
    len: u32,
}

impl<T, const N: usize> Lists<T, N> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: NIL, ends: [Ends { first: NIL, last: NIL }; N], len: 0 }
    }

    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    /// The bytes that an entry takes, without those that it owns elsewhere.
    #[cfg(test)]
    pub(crate) const fn entry_bytes() -> usize {
        size_of::<Slot<T>>()
    }

    /// The slot that the next entry gets.
    pub(crate) const fn next_slot(&self) -> u32 {
        if self.free == NIL { self.slots.len() as u32 } else { self.free }
    }

    /// Adds an entry at the end of a list. `None` if there are as many as slots can have numbers.
    pub(crate) fn push(&mut self, list: usize, entry: T) -> Option<u32> {
        let slot = self.next_slot();
        if let Some(free) = self.slots.get_mut(slot as usize) {
            self.free = free.next;
            free.entry = Some(entry);
        } else if slot == NIL {
            return None;
        } else {
            self.slots.push(Slot { entry: Some(entry), previous: NIL, next: NIL });
        }
        self.len += 1;
        self.link(list, slot);
        Some(slot)
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&T> {
        self.slots.get(slot as usize)?.entry.as_ref()
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.slots.get_mut(slot as usize)?.entry.as_mut()
    }

    /// Every entry and its slot.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> + '_ {
        self.slots.iter().zip(0..).filter_map(|(slot, number)| Some((number, slot.entry.as_ref()?)))
    }

    /// The first entry of a list.
    pub(crate) const fn first(&self, list: usize) -> u32 {
        self.ends[list].first
    }

    /// Removes an entry of `list`.
    pub(crate) fn remove(&mut self, list: usize, slot: u32) -> Option<T> {
        let entry = self.slots.get_mut(slot as usize)?.entry.take()?;
        self.unlink(list, slot);
        if let Some(place) = self.slots.get_mut(slot as usize) {
            place.next = self.free;
        }
        self.free = slot;
        self.len -= 1;
        if self.len == 0 && self.slots.capacity() > KEPT {
            (self.slots, self.free) = (Vec::new(), NIL);
        }
        Some(entry)
    }

    /// Moves an entry of the list `from` to the end of the list `to`.
    pub(crate) fn move_to_end(&mut self, from: usize, to: usize, slot: u32) {
        if self.get(slot).is_some() {
            self.unlink(from, slot);
            self.link(to, slot);
        }
    }

    fn link(&mut self, list: usize, slot: u32) {
        let last = self.ends[list].last;
        if let Some(place) = self.slots.get_mut(slot as usize) {
            (place.previous, place.next) = (last, NIL);
        }
        match self.slots.get_mut(last as usize) {
            Some(previous) => previous.next = slot,
            None => self.ends[list].first = slot,
        }
        self.ends[list].last = slot;
    }

    fn unlink(&mut self, list: usize, slot: u32) {
        let Some(place) = self.slots.get(slot as usize) else { return };
        let (previous, next) = (place.previous, place.next);
        match self.slots.get_mut(previous as usize) {
            Some(place) => place.next = next,
            None => self.ends[list].first = next,
        }
        match self.slots.get_mut(next as usize) {
            Some(place) => place.previous = previous,
            None => self.ends[list].last = previous,
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn behaves_like_queues(steps in prop::collection::vec((0_u8..4, 0_usize..3, 0_usize..3, 0_usize..99), 1..300)) {
            let mut lists: Lists<u32, 3> = Lists::new();
            let mut model: [VecDeque<(u32, u32)>; 3] = Default::default();
            for (number, (kind, from, to, nth)) in steps.into_iter().enumerate() {
                let nth = nth.checked_rem(model[from].len()).unwrap_or(0);
                match kind {
                    0 | 1 => {
                        let slot = lists.next_slot();
                        prop_assert_eq!(lists.push(from, number as u32), Some(slot));
                        model[from].push_back((slot, number as u32));
                    }
                    2 => if let Some((slot, entry)) = model[from].remove(nth) {
                        prop_assert_eq!(lists.remove(from, slot), Some(entry));
                        prop_assert!(lists.remove(from, slot).is_none() && lists.get(slot).is_none());
                    },
                    _ => if let Some(entry) = model[from].remove(nth) {
                        lists.move_to_end(from, to, entry.0);
                        model[to].push_back(entry);
                    },
                }
                prop_assert_eq!(lists.len() as usize, model.iter().map(VecDeque::len).sum::<usize>());
                for (list, model) in model.iter().enumerate() {
                    prop_assert_eq!(lists.first(list), model.front().map_or(NIL, |entry| entry.0));
                    for &(slot, entry) in model {
                        prop_assert_eq!(lists.get(slot), Some(&entry));
                    }
                }
                let mut all: Vec<_> = model.iter().flatten().copied().collect();
                all.sort_unstable();
                prop_assert_eq!(lists.iter().map(|(slot, &entry)| (slot, entry)).collect::<Vec<_>>(), all);
            }
        }
    }

    #[test]
    fn memory_goes_back_after_a_peak() {
        let mut lists: Lists<[u8; 100], 1> = Lists::new();
        let slots: Vec<u32> = (0..1_000).map(|_| lists.push(0, [0; 100]).unwrap()).collect();
        for slot in slots {
            assert!(lists.remove(0, slot).is_some());
        }
        assert_eq!((lists.slots.capacity(), lists.next_slot()), (0, 0));
    }
}
