//! Turns of readers: a task that looks at the device and always finds its data lets the other tasks of its
//! thread run in between. taut's own; asked by `shard.rs` after each look.
//!
//! **Problem.** A task that reads looks at the device before it waits. If its peer answers before it looks,
//! it finds its answer each time, and never waits. A runtime runs the next task only when this one waits: of
//! 32 connections whose tasks shared a thread, one had most exchanges, and the others had theirs up to 4 ms
//! late.
//!
//! **Rule.** When a task has found something, it runs again after all other tasks that are ready, if there
//! are any, as far as the shard knows: each task that it has woken is ready until it waits. A task that let
//! others run, and comes back before any, shows that there were none. So it does when looks have found
//! [`TURN_PACKETS`] since a task last waited, because the runtime may have tasks of which the shard does not
//! know. Threads need no turns: the system divides their time.
//!
//! `crates/taut/src/common/turn.rs` does the same for writers.

use crate::shard::waiters::Interest;

/// What looks may find in one turn. As super-packets, it is twice what a writer may write in one; as answers
/// of a byte, half a millisecond.
const TURN_PACKETS: usize = 32;

/// The turn of the task that runs.
#[derive(Debug, Default)]
pub(super) struct ReaderTurn {
    /// Packets that looks found since a task last waited.
    found: usize,
    /// Tasks that were woken and have not waited since, with the one that runs.
    ready: usize,
    /// The latest task to poll let others run.
    let_run: Option<Interest>,
    /// The latest task to poll waits, and others seemed to be ready.
    left_ready: bool,
}

impl ReaderTurn {
    /// A task polls.
    pub(super) fn note_poll(&mut self, interest: Interest) {
        self.left_ready = false;
        if self.let_run.take() == Some(interest) {
            // Nobody else did meanwhile.
            self.ready = 1;
        }
    }

    /// Whether the task that runs may look: the last of those that are ready, which then takes what is there
    /// for all of them.
    pub(super) const fn may_look(&self) -> bool {
        self.ready <= 1
    }

    /// The driver's turn.
    pub(super) fn note_driver(&mut self) {
        if self.left_ready {
            // None of them came.
            self.ready = 0;
        }
    }

    /// The look of the task that runs found so many packets, and has `woken` so many tasks. Whether it should
    /// let others run.
    pub(super) fn is_over(&mut self, interest: Interest, packets: usize, woken: usize) -> bool {
        self.found += packets;
        let is_over = self.ready.max(1) + woken > 1 || self.found >= TURN_PACKETS;
        if is_over {
            self.found = 0;
            self.let_run = Some(interest);
        }
        is_over
    }

    /// The task that runs waits.
    pub(super) fn note_wait(&mut self) {
        self.found = 0;
        self.ready = self.ready.saturating_sub(1);
        self.left_ready = self.ready > 0;
    }

    /// So many tasks were woken.
    pub(super) fn note_woken(&mut self, tasks: usize) {
        self.ready += tasks;
    }
}

#[cfg(test)]
mod tests {
    use taut_core::{ConnOptions, Instant, LinkCaps, Stack, StackConfig};

    use super::*;

    fn readers() -> [Interest; 2] {
        let config = StackConfig::default().with(|config| config.addresses.push("10.0.0.1".parse().unwrap()));
        let mut stack = Stack::new(std::sync::Arc::new(config), LinkCaps::plain(1_500), [1; 32]);
        [(); 2].map(|()| {
            let to = "10.0.0.2:7".parse().unwrap();
            Interest::Read(stack.connect(Instant::ZERO, to, &ConnOptions::default()).unwrap())
        })
    }

    #[test]
    fn a_turn_ends_when_much_was_found() {
        let [a, _] = readers();
        let mut turn = ReaderTurn::default();
        turn.note_woken(1);
        for _ in 0..2 {
            turn.note_poll(a);
            assert!((1..TURN_PACKETS).all(|_| !turn.is_over(a, 1, 0)));
            assert!(turn.is_over(a, 1, 0));
        }
        turn.note_poll(a);
        assert!(!turn.is_over(a, TURN_PACKETS - 1, 0));
        turn.note_wait();
        assert!(!turn.is_over(a, TURN_PACKETS - 1, 0));
    }

    #[test]
    fn a_turn_ends_while_others_are_ready() {
        let [a, b] = readers();
        let mut turn = ReaderTurn::default();
        // The driver wakes two. The first one waits, then the second is alone.
        turn.note_woken(2);
        turn.note_poll(a);
        assert!(turn.is_over(a, 1, 0));
        turn.note_poll(b);
        assert!(turn.is_over(b, 1, 0), "the first one is ready again");
        turn.note_poll(a);
        turn.note_wait();
        turn.note_poll(b);
        assert!(!turn.is_over(b, 1, 0));
        // It wakes the first one itself.
        assert!(turn.is_over(b, 1, 1));
        turn.note_woken(1);
        turn.note_poll(a);
        assert!(turn.is_over(a, 1, 0));
    }

    #[test]
    fn turn_06_the_last_that_is_ready_looks() {
        let [a, b] = readers();
        let mut turn = ReaderTurn::default();
        turn.note_woken(3);
        for may_look in [false, false, true] {
            turn.note_poll(a);
            assert_eq!(turn.may_look(), may_look);
            turn.note_wait();
        }
        // Two were woken, one of them does something else: the driver's next turn shows it.
        turn.note_woken(2);
        turn.note_poll(b);
        assert!(!turn.may_look());
        turn.note_wait();
        turn.note_driver();
        turn.note_woken(1);
        turn.note_poll(b);
        assert!(turn.may_look());
    }

    /// One was woken that does something else.
    #[test]
    fn a_task_lets_nobody_run_in_vain_twice() {
        let [a, _] = readers();
        let mut turn = ReaderTurn::default();
        turn.note_woken(2);
        turn.note_poll(a);
        assert!(turn.is_over(a, 1, 0));
        for _ in 0..8 {
            turn.note_poll(a);
            assert!(!turn.is_over(a, 1, 0));
        }
    }
}
