//! One deadline for each small integer key, earliest first.
//! Origin: an indexed 4-ary heap (Johnson, 1975); Linux has a timer wheel and an hrtimer tree instead.
//! Called by the stack, with one key for each connection.
//!
//! Why not a wheel, with its O(1): a wheel rounds deadlines to its ticks. A stack that reports a deadline too
//! early makes its driver wake up, find nothing to do and sleep again; one too late spoils pacing, whose gaps
//! are tens of microseconds. And operations here are rare: a connection that postpones its deadline leaves
//! the heap alone and sets the new one when the old one comes
//! ([`set_if_earlier`](TimerQueue::set_if_earlier)), so a timer that every ACK postpones costs one heap
//! operation per timeout, not per ACK. Why four children: half the levels of a binary heap, and four entries
//! of 16 bytes share a cache line.

use alloc::vec::Vec;

use crate::words::Instant;

/// Children of a node.
const ARITY: usize = 4;

/// A heap this small is not worth shrinking: 4 KiB.
const CAPACITY_KEPT: usize = 256;

/// Marks a key without a deadline.
const ABSENT: u32 = u32::MAX;

/// A heap of deadlines. Keys are indexes into a table, so they should be small and reused.
#[derive(Debug, Default)]
pub(crate) struct TimerQueue {
    /// A heap by (deadline, key): equal deadlines come in the order of their keys, so runs can be repeated.
    heap: Vec<(Instant, u32)>,
    /// Where each key is in `heap`, or [`ABSENT`].
    places: Vec<u32>,
}

impl TimerQueue {
    pub(crate) const fn new() -> Self {
        Self { heap: Vec::new(), places: Vec::new() }
    }

    /// Sets or moves the deadline of `key`.
    pub(crate) fn set(&mut self, key: u32, at: Instant) {
        let index = key as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, ABSENT);
        }
        match self.place(key) {
            Some(place) => {
                if let Some(entry) = self.heap.get_mut(place) {
                    entry.0 = at;
                }
                self.restore(place);
            }
            None => {
                self.heap.push((at, key));
                self.rise(self.heap.len() - 1);
            }
        }
    }

    /// Sets the deadline of `key` unless it has an earlier one already. For lazy re-arming: when a deadline
    /// comes that has moved meanwhile, the owner sets the true one.
    pub(crate) fn set_if_earlier(&mut self, key: u32, at: Instant) {
        if self.get(key).is_none_or(|present| at < present) {
            self.set(key, at);
        }
    }

    /// Forgets the deadline of `key`, if it has one.
    pub(crate) fn clear(&mut self, key: u32) {
        if let Some(place) = self.place(key) {
            self.remove(place);
        }
    }

    /// The deadline of `key`.
    pub(crate) fn get(&self, key: u32) -> Option<Instant> {
        self.heap.get(self.place(key)?).map(|entry| entry.0)
    }

    /// The first deadline, and its key.
    pub(crate) fn next(&self) -> Option<(Instant, u32)> {
        self.heap.first().copied()
    }

    /// Removes the first deadline if it has passed, and returns its key.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<u32> {
        let (at, key) = self.next()?;
        if at > now {
            return None;
        }
        self.remove(0);
        Some(key)
    }

    /// How many keys have a deadline.
    #[cfg(test)]
    pub(crate) const fn len(&self) -> usize {
        self.heap.len()
    }

    fn place(&self, key: u32) -> Option<usize> {
        self.places.get(key as usize).filter(|&&place| place != ABSENT).map(|&place| place as usize)
    }

    fn remove(&mut self, place: usize) {
        if place >= self.heap.len() {
            return;
        }
        let (_, key) = self.heap.swap_remove(place);
        if let Some(known) = self.places.get_mut(key as usize) {
            *known = ABSENT;
        }
        if place < self.heap.len() {
            self.restore(place);
        }
        // Idle connections have no deadline: after a peak the memory goes back.
        if self.heap.capacity() > CAPACITY_KEPT && self.heap.len() < self.heap.capacity() / 4 {
            self.heap.shrink_to(2 * self.heap.len());
        }
    }

    /// The entry at `place` may be out of order with its parent or its children.
    fn restore(&mut self, place: usize) {
        let place = self.rise(place);
        self.sink(place);
    }

    fn rise(&mut self, mut place: usize) -> usize {
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.heap.get(parent) <= self.heap.get(place) {
                break;
            }
            self.heap.swap(parent, place);
            self.note(place);
            place = parent;
        }
        self.note(place);
        place
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let first = place * ARITY + 1;
            let last = (first + ARITY).min(self.heap.len());
            let Some(least) = (first..last).min_by_key(|&child| self.heap.get(child)) else { break };
            if self.heap.get(place) <= self.heap.get(least) {
                break;
            }
            self.heap.swap(place, least);
            self.note(place);
            place = least;
        }
        self.note(place);
    }

    /// Records where the entry at `place` is.
    fn note(&mut self, place: usize) {
        if let Some(&(_, key)) = self.heap.get(place)
            && let Some(known) = self.places.get_mut(key as usize)
        {
            *known = place as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn at(ns: u64) -> Instant {
        Instant::from_nanos(ns)
    }

    #[test]
    fn earlier_deadlines_move_and_later_ones_do_not() {
        let mut queue = TimerQueue::new();
        queue.set_if_earlier(3, at(10));
        queue.set_if_earlier(3, at(20));
        assert_eq!(queue.next(), Some((at(10), 3)));
        queue.set_if_earlier(3, at(5));
        assert_eq!(queue.next(), Some((at(5), 3)));
        queue.set(3, at(30));
        assert_eq!(queue.pop_due(at(29)), None);
        assert_eq!(queue.pop_due(at(30)), Some(3));
        assert_eq!((queue.pop_due(at(30)), queue.len()), (None, 0));
        queue.clear(3);
        queue.clear(1_000);
    }

    proptest! {
        #[test]
        fn behaves_like_an_ordered_set(
            steps in prop::collection::vec((0_u8..4, 0_u32..40, 0_u64..100), 1..400),
        ) {
            let mut queue = TimerQueue::new();
            let mut order: BTreeSet<(u64, u32)> = BTreeSet::new();
            let mut known: BTreeMap<u32, u64> = BTreeMap::new();
            for (kind, key, ns) in steps {
                let old = known.get(&key).copied();
                let new = match kind {
                    0 => {
                        queue.set(key, at(ns));
                        Some(ns)
                    }
                    1 => {
                        queue.set_if_earlier(key, at(ns));
                        Some(old.map_or(ns, |old| old.min(ns)))
                    }
                    2 => {
                        queue.clear(key);
                        None
                    }
                    _ => {
                        let due = order.first().copied().filter(|first| first.0 <= ns);
                        prop_assert_eq!(queue.pop_due(at(ns)), due.map(|due| due.1));
                        if let Some(due) = due {
                            order.remove(&due);
                            known.remove(&due.1);
                        }
                        known.get(&key).copied()
                    }
                };
                if let Some(old) = old {
                    order.remove(&(old, key));
                }
                known.remove(&key);
                if let Some(new) = new {
                    order.insert((new, key));
                    known.insert(key, new);
                }
                prop_assert_eq!(queue.next(), order.first().map(|&(ns, key)| (at(ns), key)));
                prop_assert_eq!(queue.len(), order.len());
                for key in 0..40 {
                    prop_assert_eq!(queue.get(key), known.get(&key).map(|&ns| at(ns)));
                }
            }
        }
    }
}
