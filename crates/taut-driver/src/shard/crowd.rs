//! Whether the packets that arrive are those of one thread or of several by turns. taut's own; noted by each
//! turn of a shard (`shard.rs`), asked by threads that wait (`thread.rs`).
//!
//! **Problem.** A thread that leads serves the others with its own processor time, and is late with its own
//! work for that; when it has its data and goes on, nobody serves the device until another thread waits. One
//! thread alone saves a wake-up by leading, and two save half of them. Among more, most packets wake two
//! threads anyway, and the threads run one after the other.
//!
//! **Rule.** A turn that wakes a thread other than the last two counts [`OTHERS`] up; a turn that wakes one
//! of those counts one down. From [`MANY`] on there is a crowd, until the count is 0. In a crowd, the driver
//! thread serves as long as two threads or more wait, and a reader does not look at the device before it
//! waits if the last packet was short, a request or an answer. Threads that only wait, such as acceptors
//! beside a busy connection, make no crowd.

use std::task::Waker;

/// What a turn for another thread than the last two counts. Of three threads by turns, at least half of the
/// turns are such.
const OTHERS: u8 = 2;

/// The count from which there is a crowd. A few connections that end or begin beside busy ones do not reach
/// it.
const MANY: u8 = 16;

/// The count goes no further, so that a crowd is over after so many turns for one or two threads.
const MOST: u8 = 32;

/// The turns of a shard, as far as they woke threads.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    /// The identities of the last two wakers.
    last: [usize; 2],
    count: u8,
    is_crowd: bool,
}

impl Crowd {
    /// A turn wakes these.
    pub(crate) fn note(&mut self, woken: &[Waker]) {
        let mut any_other = false;
        for waker in woken {
            let id = waker.data().addr();
            any_other |= !self.last.contains(&id);
            if self.last[0] != id {
                self.last = [id, self.last[0]];
            }
        }
        if any_other {
            self.count = (self.count + OTHERS).min(MOST);
        } else if !woken.is_empty() {
            self.count = self.count.saturating_sub(1);
        }
        self.is_crowd = self.count >= MANY || (self.is_crowd && self.count > 0);
    }

    /// Whether the turns are for several threads.
    pub(crate) const fn is_crowd(&self) -> bool {
        self.is_crowd
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::task::Wake;

    use super::*;

    struct Thread;

    impl Wake for Thread {
        fn wake(self: Arc<Self>) {}
    }

    fn threads<const N: usize>() -> [Waker; N] {
        std::array::from_fn(|_| Waker::from(Arc::new(Thread)))
    }

    /// Three threads by turns, or in one turn, are a crowd after eight turns, and no more when some 32 were
    /// for two of them.
    #[test]
    fn three_threads_by_turns_are_a_crowd() {
        let all: [Waker; 3] = threads();
        for at_once in [false, true] {
            let mut crowd = Crowd::default();
            for turn in 0..100 {
                match at_once {
                    true => crowd.note(&all),
                    false => crowd.note(&all[turn % 3..][..1]),
                }
                assert_eq!(crowd.is_crowd(), turn >= 7, "turn {turn}");
            }
            // The first turns may still be for another than the last two.
            for turn in 0..100 {
                crowd.note(&all[turn % 2..][..1]);
                assert!(crowd.is_crowd() || turn >= 30, "turn {turn}");
            }
            assert!(!crowd.is_crowd());
        }
    }

    /// Nor is it a crowd if a busy thread is beside one that is woken now and then, and if two are busy. A
    /// turn that wakes nobody counts nothing.
    #[test]
    fn two_threads_are_no_crowd() {
        let [a, b, rare] = threads();
        for busy in [[&a, &a], [&a, &b]] {
            let mut crowd = Crowd::default();
            for _ in 0..100 {
                for _ in 0..4 {
                    busy.iter().for_each(|waker| crowd.note(std::slice::from_ref(waker)));
                    crowd.note(&[]);
                }
                crowd.note(std::slice::from_ref(&rare));
                assert!(!crowd.is_crowd());
            }
        }
    }
}
