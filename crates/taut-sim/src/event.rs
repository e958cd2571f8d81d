//! The queue of all future events, by time. Called by the world's loop and by every part that waits for a
//! time.
//!
//! A part does not queue events; it has an *alarm* and sets it. There is one entry per part, however many
//! packets it holds, so the queue stays as short as the number of parts. Two alarms for the same nanosecond
//! ring in the order in which they were set, which makes a run repeatable.
//!
//! The queue is a heap with four children per node that knows the position of each alarm's entry, so an alarm
//! that is changed moves in place. An alarm that rings is usually set again at once, for example a wire's for
//! the next packet: its entry stays in place until then, and is moved down rather than removed and inserted.

use taut_core::Instant;

/// The time at which every world begins: a second after the epoch, so that nothing happens at zero.
pub const BEGIN: Instant = Instant::from_nanos(1_000_000_000);

/// Identifies an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AlarmId(pub(crate) u32);

/// Children of a node.
const ARITY: usize = 4;

/// Position of an alarm that is not set.
const NOWHERE: u32 = u32::MAX;

/// Time, order of setting and alarm in one number: of two, the smaller rings first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry(u128);

/// Bits of an entry that identify the alarm; the order of setting has 40.
const ALARM_BITS: u32 = 24;

impl Entry {
    fn new(at: u64, sequence: u64, alarm: u32) -> Self {
        Self(u128::from(at) << 64 | u128::from(sequence) << ALARM_BITS | u128::from(alarm))
    }

    const fn at(self) -> u64 {
        (self.0 >> 64) as u64
    }

    const fn alarm(self) -> u32 {
        self.0 as u32 & ((1 << ALARM_BITS) - 1)
    }
}

/// All alarms.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    heap: Vec<Entry>,
    /// Index in `heap` of each alarm.
    place: Vec<u32>,
    sequence: u64,
    /// Whether the first entry has rung and has not been replaced.
    hole: bool,
}

impl Agenda {
    /// Adds an alarm, not set.
    ///
    /// # Panics
    /// At the 16,777,217th alarm.
    pub(crate) fn add(&mut self) -> AlarmId {
        let id = self.place.len() as u32;
        assert!(id < 1 << ALARM_BITS, "too many alarms");
        self.place.push(NOWHERE);
        AlarmId(id)
    }

    /// Sets an alarm to `at`, replacing its previous time; `None` clears it.
    pub(crate) fn set(&mut self, AlarmId(alarm): AlarmId, at: Option<Instant>) {
        let place = self.place[alarm as usize];
        let Some(at) = at.map(Instant::as_nanos) else {
            if place != NOWHERE {
                self.remove(place as usize);
            }
            return;
        };
        if place != NOWHERE && self.heap[place as usize].at() == at {
            return;
        }
        self.sequence += 1;
        let entry = Entry::new(at, self.sequence, alarm);
        if place != NOWHERE {
            // A time before the hole's, which the world will reject, must not move above it.
            if self.hole && at < self.heap[0].at() {
                self.fill();
                return self.set(AlarmId(alarm), Some(Instant::from_nanos(at)));
            }
            let place = place as usize;
            let is_earlier = entry < self.heap[place];
            self.heap[place] = entry;
            if is_earlier {
                self.rise(place);
            } else {
                self.sink(place);
            }
        } else if self.hole {
            self.hole = false;
            self.heap[0] = entry;
            self.sink(0);
        } else {
            self.heap.push(entry);
            self.rise(self.heap.len() - 1);
        }
    }

    /// Whether the alarm is set.
    pub(crate) fn is_set(&self, AlarmId(alarm): AlarmId) -> bool {
        self.place[alarm as usize] != NOWHERE
    }

    /// The next alarm that rings at `limit` or before; it is then no longer set.
    pub(crate) fn pop(&mut self, limit: Instant) -> Option<(Instant, AlarmId)> {
        self.fill();
        let first = *self.heap.first()?;
        if first.at() > limit.as_nanos() {
            return None;
        }
        self.place[first.alarm() as usize] = NOWHERE;
        self.hole = true;
        Some((Instant::from_nanos(first.at()), AlarmId(first.alarm())))
    }

    /// Removes the entry that has rung.
    fn fill(&mut self) {
        if std::mem::take(&mut self.hole) {
            self.heap.swap_remove(0);
            if !self.heap.is_empty() {
                self.sink(0);
            }
        }
    }

    fn remove(&mut self, place: usize) {
        let gone = self.heap.swap_remove(place);
        self.place[gone.alarm() as usize] = NOWHERE;
        if place < self.heap.len() {
            if self.heap[place] < gone {
                self.rise(place);
            } else {
                self.sink(place);
            }
        }
    }

    /// Moves an entry up to its position.
    fn rise(&mut self, mut place: usize) {
        let entry = self.heap[place];
        while place > 0 {
            let parent = (place - 1) / ARITY;
            let above = self.heap[parent];
            if entry > above {
                break;
            }
            self.heap[place] = above;
            self.place[above.alarm() as usize] = place as u32;
            place = parent;
        }
        self.heap[place] = entry;
        self.place[entry.alarm() as usize] = place as u32;
    }

    /// Moves an entry down to its position.
    fn sink(&mut self, mut place: usize) {
        let heap = self.heap.as_mut_slice();
        let entry = heap[place];
        loop {
            let first = place * ARITY + 1;
            let earlier = |a: usize, b: usize| if heap[b] < heap[a] { b } else { a };
            // Two pairs and their winners, without a branch.
            let child = if first + ARITY <= heap.len() {
                earlier(earlier(first, first + 1), earlier(first + 2, first + 3))
            } else if first < heap.len() {
                (first + 1..heap.len()).fold(first, earlier)
            } else {
                break;
            };
            if heap[child] > entry {
                break;
            }
            heap[place] = heap[child];
            self.place[heap[place].alarm() as usize] = place as u32;
            place = child;
        }
        heap[place] = entry;
        self.place[entry.alarm() as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        #[test]
        fn is_a_sorted_list(steps in proptest::collection::vec((0..12_u32, 0..40_u64, 0..4_u8), 1..400)) {
            let mut agenda = Agenda::default();
            (0..12).for_each(|_| { agenda.add(); });
            // By time, and then by order of setting.
            let mut model: Vec<(u64, usize, u32)> = Vec::new();
            for (number, (alarm, ahead, what)) in steps.into_iter().enumerate() {
                let set = model.iter().position(|entry| entry.2 == alarm);
                match what {
                    0 => {
                        agenda.set(AlarmId(alarm), None);
                        set.map(|place| model.remove(place));
                    }
                    1 => {
                        model.sort_unstable();
                        let first = (!model.is_empty()).then(|| model.remove(0));
                        let popped = agenda.pop(at(u64::MAX)).map(|(at, id)| (at.as_nanos(), id.0));
                        prop_assert_eq!(popped, first.map(|(at, _, id)| (at, id)));
                    }
                    _ => {
                        agenda.set(AlarmId(alarm), Some(at(ahead)));
                        if set.is_none_or(|place| model[place].0 != ahead) {
                            set.map(|place| model.remove(place));
                            model.push((ahead, number, alarm));
                        }
                    }
                }
                prop_assert!((0..12).all(|id| agenda.is_set(AlarmId(id)) == model.iter().any(|entry| entry.2 == id)));
            }
            model.sort_unstable();
            let rest: Vec<(u64, u32)> = model.into_iter().map(|(at, _, id)| (at, id)).collect();
            prop_assert_eq!(order(&mut agenda), rest);
        }
    }
}
