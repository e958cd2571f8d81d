//! What happens when: the queue of everything that will happen, by time. Ours; called by the world's loop and by
//! every part that waits for a time.
//!
//! A part does not queue events, it has an *alarm* and sets it: one entry a part, however many packets it holds, so the
//! queue stays as short as the world has parts. Two alarms for the same nanosecond ring in the order in which they were
//! set, which makes a run repeatable. Moving an alarm to an earlier time leaves the older entry behind, recognised by
//! its generation; moving it to a later time leaves the entry where it is, and it is set again when it comes up.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use taut_core::Instant;

/// Names an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AlarmId(pub(crate) u32);

const NEVER: u64 = u64::MAX;

/// An entry of the heap, ordered by time and then by when it was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    /// Nanoseconds in the high half, a sequence number in the low one: one comparison for both.
    key: u128,
    alarm: u32,
    generation: u32,
}

#[derive(Clone, Copy, Debug)]
struct Alarm {
    /// When it is to ring, or [`NEVER`].
    wanted: u64,
    /// When its live entry comes up; never after `wanted` unless there is none.
    queued: u64,
    /// Of its live entry; others are void.
    generation: u32,
}

/// All alarms.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    heap: BinaryHeap<Reverse<Entry>>,
    alarms: Vec<Alarm>,
    sequence: u64,
}

impl Agenda {
    /// A new alarm, not set.
    pub(crate) fn add(&mut self) -> AlarmId {
        let id = AlarmId(u32::try_from(self.alarms.len()).unwrap_or(u32::MAX));
        self.alarms.push(Alarm { wanted: NEVER, queued: NEVER, generation: 0 });
        id
    }

    /// Lets an alarm ring at `at` and at no other time; never with `None`.
    pub(crate) fn set(&mut self, AlarmId(id): AlarmId, at: Option<Instant>) {
        let Some(alarm) = self.alarms.get_mut(id as usize) else { return };
        alarm.wanted = at.map_or(NEVER, Instant::as_nanos);
        if alarm.wanted < alarm.queued {
            alarm.queued = alarm.wanted;
            alarm.generation = alarm.generation.wrapping_add(1);
            let generation = alarm.generation;
            self.push(id, generation);
        }
    }

    /// Whether it will ring.
    pub(crate) fn is_set(&self, AlarmId(id): AlarmId) -> bool {
        self.alarms.get(id as usize).is_some_and(|alarm| alarm.wanted != NEVER)
    }

    fn push(&mut self, id: u32, generation: u32) {
        let at = self.alarms.get(id as usize).map_or(NEVER, |alarm| alarm.queued);
        let key = u128::from(at) << 64 | u128::from(self.sequence);
        self.sequence += 1;
        self.heap.push(Reverse(Entry { key, alarm: id, generation }));
    }

    /// The next alarm that rings at `limit` or before, which is not set any more then.
    pub(crate) fn pop(&mut self, limit: Instant) -> Option<(Instant, AlarmId)> {
        loop {
            let Reverse(entry) = *self.heap.peek()?;
            let at = (entry.key >> 64) as u64;
            if at > limit.as_nanos() {
                return None;
            }
            self.heap.pop();
            let alarm = self.alarms.get_mut(entry.alarm as usize)?;
            if alarm.generation != entry.generation {
                continue;
            }
            alarm.queued = NEVER;
            if alarm.wanted == at {
                alarm.wanted = NEVER;
                return Some((Instant::from_nanos(at), AlarmId(entry.alarm)));
            }
            if alarm.wanted != NEVER {
                alarm.queued = alarm.wanted;
                self.push(entry.alarm, entry.generation);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Instant {
        Instant::from_nanos(ns)
    }

    fn order(agenda: &mut Agenda) -> Vec<(u64, u32)> {
        std::iter::from_fn(|| agenda.pop(at(1_000))).map(|(at, id)| (at.as_nanos(), id.0)).collect()
    }

    #[test]
    fn rings_by_time_and_then_by_the_order_of_setting() {
        let mut agenda = Agenda::default();
        let [a, b, c] = [(); 3].map(|()| agenda.add());
        agenda.set(c, Some(at(5)));
        agenda.set(a, Some(at(5)));
        agenda.set(b, Some(at(3)));
        assert_eq!(order(&mut agenda), [(3, 1), (5, 2), (5, 0)]);
        assert_eq!(agenda.pop(at(u64::MAX)), None);
    }

    #[test]
    fn an_alarm_moves_both_ways_and_can_be_stopped() {
        let mut agenda = Agenda::default();
        let [a, b, c, d] = [(); 4].map(|()| agenda.add());
        agenda.set(a, Some(at(10)));
        agenda.set(a, Some(at(4)));
        agenda.set(b, Some(at(5)));
        agenda.set(b, Some(at(8)));
        agenda.set(c, Some(at(1)));
        agenda.set(c, None);
        agenda.set(d, Some(at(2)));
        agenda.set(d, None);
        agenda.set(d, Some(at(9)));
        assert_eq!(order(&mut agenda), [(4, 0), (8, 1), (9, 3)]);
        assert_eq!(agenda.pop(at(u64::MAX)), None);
    }

    #[test]
    fn does_not_ring_before_the_limit_is_reached() {
        let mut agenda = Agenda::default();
        let a = agenda.add();
        agenda.set(a, Some(at(7)));
        assert_eq!(agenda.pop(at(6)), None);
        assert_eq!(agenda.pop(at(7)), Some((at(7), a)));
        assert_eq!(agenda.pop(at(7)), None);
    }
}
