//! Who serves the device: the driver thread, or an application thread that waits or writes anyway. taut's
//! own; used by `thread.rs`, asked by `shard.rs`.
//!
//! **Problem.** A reply that passes through the driver thread wakes two threads: the driver, then the reader.
//! If the reader waits on the device itself, it wakes one. But a thread that serves the device for others,
//! because it blocked first and its own data never comes (an acceptor), wakes another thread for each batch
//! and slows all of them down.
//!
//! **Rule.** At most one thread *leads*: it waits for the device, and takes what comes. While a thread leads,
//! the driver thread's view of the device is masked, so it sleeps. **The lead follows the traffic**: a leader
//! whose turn brought data for other threads only gives the lead up before it wakes them, and waits without
//! it. The thread that was woken leads when it waits next.
//!
//! **The grace.** A thread that got its data is often back soon: after its next write, or to read more. So
//! the mask stays on for [`GRACE`] after the shard was last used, in which nobody waits on the device; a
//! thread that uses the shard in this time takes what has arrived. Then the driver thread takes over. While
//! others wait, whose packets these may be, there is a grace only if leaders were soon followed again and
//! again: threads that pause between two uses would be late for each other. A thread that writes again and
//! again gets a grace without having led: it takes its ACKs itself.
//!
//! **One timer** ends the grace. It is not moved with each use of the shard, which would cost a system call:
//! it fires, looks when the shard was last used, and fires again later, after a time that doubles while
//! threads keep coming back.
//!
//! ```text
//!   driver ──try_lead──▶ led ──leave──▶ grace ──try_lead──▶ led
//!     ▲ ▲──────leave, if something is due──┘      │
//!     └────────────────end_grace, hand_back───────┘
//! ```

use taut_core::{Duration, Instant};

use crate::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering, lock};

/// How long packets may wait for a thread to come back. Well below any timer of a peer (delayed ACKs take 40
/// ms), and long enough that an active reader costs the driver thread no more than 2,000 wake-ups per second.
pub(crate) const GRACE: Duration = Duration::from_micros(500);

/// A leader is soon followed if another thread, or the same again, looks at the device within this time.
const SOON: Duration = Duration::from_micros(100);

/// So many leaders in a row must have been followed soon: so at most one in a hundred leaves packets to a
/// thread that pauses.
const FOLLOWED: u64 = 100;

/// The interval between two checks doubles for threads that were back at each check, to 4 ms. When the
/// threads stop, packets may once wait that long, which is a tenth of a delayed ACK; each check costs the
/// busy thread tens of microseconds if they share a core.
const GRACE_DOUBLINGS: u32 = 3;

/// A thread sends much again and again if it last did so no longer ago.
const BUSY_WRITER: Duration = Duration::from_micros(500);

/// What the lead does to the driver thread.
pub(crate) trait Sleeper {
    /// Hides the device from it, or shows it again. If there is news by then, showing wakes it.
    fn mask(&self, mask: bool);

    /// Wakes it at that time, to [hand back](Lead::hand_back), in place of an earlier time; never, if `None`.
    fn check_at(&self, at: Option<Instant>);
}

/// The lead of a shard.
#[derive(Debug)]
pub(crate) struct Lead<S> {
    pub(crate) sleeper: S,
    state: Mutex<State>,
    /// A hint, so that callers of [`end_grace`](Self::end_grace) need not take the lock when there is no
    /// grace.
    in_grace: AtomicBool,
    /// When, in nanoseconds, the last leader left or a thread last used the shard in its place.
    used_ns: AtomicU64,
    /// When a thread last wrote.
    wrote_ns: AtomicU64,
    /// When the last leader left, if no thread has looked at the device since; else 0.
    left_ns: AtomicU64,
    /// How many leaders in a row were followed [soon](SOON), up to [`FOLLOWED`].
    followed: AtomicU64,
    /// No thread leads: the driver thread has another priority, and no one may take its place.
    alone: bool,
}

#[derive(Debug, Default)]
struct State {
    /// There is a leader.
    led: bool,
    /// The device is masked: always while there is a leader, and in the grace after it.
    masked: bool,
    /// The timer that ends the grace is armed.
    checks: bool,
    /// How many times in a row it found that a thread had been back.
    found_back: u32,
}

impl State {
    /// The time until the next check.
    fn interval(&self) -> Duration {
        GRACE * (1 << self.found_back)
    }
}

/// How a leader leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Leave {
    /// The driver thread takes over: something is due soon.
    ToDriver,
    /// The driver thread may sleep on for a grace, from this time on.
    InGrace { now: Instant, others_wait: bool },
}

impl<S: Sleeper> Lead<S> {
    pub(crate) fn new(sleeper: S, alone: bool) -> Self {
        Self {
            sleeper,
            state: Mutex::new(State::default()),
            in_grace: AtomicBool::new(false),
            used_ns: AtomicU64::new(0),
            wrote_ns: AtomicU64::new(0),
            left_ns: AtomicU64::new(0),
            followed: AtomicU64::new(0),
            alone,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn mask(&self, state: &mut State, mask: bool) {
        if state.masked != mask {
            self.sleeper.mask(mask);
            state.masked = mask;
        }
    }

    /// Makes this thread the leader, if there is none.
    pub(crate) fn try_lead(&self, now: Instant) -> bool {
        if self.alone {
            return false;
        }
        let mut state = self.state();
        if state.led {
            return false;
        }
        state.led = true;
        self.note_look(now);
        self.in_grace.store(false, Ordering::SeqCst);
        self.mask(&mut state, true);
        true
    }

    /// A thread looks at the device, or begins to wait on it.
    pub(crate) fn note_look(&self, now: Instant) {
        if self.left_ns.load(Ordering::Relaxed) != 0 {
            let left = Instant::from_nanos(self.left_ns.swap(0, Ordering::Relaxed));
            let before = self.followed.load(Ordering::Relaxed);
            let followed = if now.since(left) < SOON { (before + 1).min(FOLLOWED) } else { 0 };
            self.followed.store(followed, Ordering::Relaxed);
        }
    }

    /// The leader leaves.
    pub(crate) fn leave(&self, leave: Leave) {
        let mut state = self.state();
        state.led = false;
        match leave {
            Leave::ToDriver => self.mask(&mut state, false),
            Leave::InGrace { now, others_wait } => {
                self.left_ns.store(now.as_nanos(), Ordering::Relaxed);
                if others_wait && self.followed.load(Ordering::Relaxed) < FOLLOWED {
                    self.mask(&mut state, false);
                } else {
                    self.begin_grace(&mut state, now);
                }
            }
        }
    }

    /// The device is masked.
    fn begin_grace(&self, state: &mut State, now: Instant) {
        self.used_ns.store(now.as_nanos(), Ordering::Relaxed);
        if !state.checks {
            state.checks = true;
            self.sleeper.check_at(Some(now + state.interval()));
        }
        self.in_grace.store(true, Ordering::SeqCst);
    }

    /// An application thread uses the shard: in the grace, that counts as being back. Returns whether it is
    /// in the grace, so that the thread must take what has arrived.
    pub(crate) fn extend_grace(&self, now: Instant) -> bool {
        let in_grace = self.in_grace.load(Ordering::SeqCst);
        if in_grace {
            self.used_ns.store(now.as_nanos(), Ordering::Relaxed);
        }
        in_grace
    }

    /// A thread that has sent much writes. Returns whether it must take what has arrived: because the driver
    /// thread sleeps, or because this thread writes again and again, for which the driver thread may sleep if
    /// nothing is due soon.
    pub(crate) fn write_serves(&self, now: Instant, nothing_due: bool) -> bool {
        let is_busy = self.is_busy_writer(now);
        self.wrote_ns.store(now.as_nanos(), Ordering::Relaxed);
        if self.extend_grace(now) {
            return true;
        }
        if self.alone || !is_busy {
            return false;
        }
        if nothing_due {
            let mut state = self.state();
            if !state.led {
                self.mask(&mut state, true);
                self.begin_grace(&mut state, now);
            }
        }
        true
    }

    /// Whether a thread writes again and again.
    pub(crate) fn is_busy_writer(&self, now: Instant) -> bool {
        let wrote = Instant::from_nanos(self.wrote_ns.load(Ordering::Relaxed));
        now.since(wrote) < BUSY_WRITER
    }

    /// Wakes the driver thread, if it sleeps only because a leader may come back.
    pub(crate) fn end_grace(&self) {
        if self.in_grace.load(Ordering::SeqCst) {
            let mut state = self.state();
            if !state.led {
                self.in_grace.store(false, Ordering::SeqCst);
                self.mask(&mut state, false);
            }
        }
    }

    /// The timer that ends the grace has fired.
    pub(crate) fn hand_back(&self, now: Instant) {
        let mut state = self.state();
        let over = Instant::from_nanos(self.used_ns.load(Ordering::Relaxed)) + GRACE;
        if state.led || now < over {
            // A thread has been back since the timer was armed, and is likely to be back again: check less
            // and less often.
            state.found_back = (state.found_back + 1).min(GRACE_DOUBLINGS);
            state.checks = !state.led;
            // A leader arms the timer again when it leaves.
            self.sleeper.check_at(state.checks.then(|| now + state.interval()));
            return;
        }
        self.sleeper.check_at(None);
        (state.checks, state.found_back) = (false, 0);
        self.in_grace.store(false, Ordering::SeqCst);
        self.mask(&mut state, false);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// What was done to the driver thread.
    #[derive(Debug, Default)]
    struct Driver {
        masked: Cell<bool>,
        check: Cell<Option<Instant>>,
    }

    impl Sleeper for Driver {
        fn mask(&self, mask: bool) {
            self.masked.set(mask);
        }

        fn check_at(&self, at: Option<Instant>) {
            self.check.set(at);
        }
    }

    const fn at(us: u64) -> Instant {
        Instant::from_nanos(1_000_000_000 + us * 1_000)
    }

    fn lead() -> Lead<Driver> {
        Lead::new(Driver::default(), false)
    }

    /// Whether the driver thread sleeps, and when it checks.
    fn driver(lead: &Lead<Driver>) -> (bool, Option<Instant>) {
        (lead.sleeper.masked.get(), lead.sleeper.check.get())
    }

    const fn in_grace(us: u64) -> Leave {
        Leave::InGrace { now: at(us), others_wait: false }
    }

    #[test]
    fn one_thread_leads_and_the_driver_sleeps() {
        let lead = lead();
        assert!(lead.try_lead(at(0)));
        assert!(!lead.try_lead(at(0)), "there is a leader");
        assert_eq!(driver(&lead), (true, None));
        lead.leave(Leave::ToDriver);
        assert_eq!(driver(&lead), (false, None), "something is due: the driver thread has the device");
        assert!(lead.try_lead(at(0)), "the lead is free");
    }

    #[test]
    fn a_driver_with_a_priority_is_never_replaced() {
        let lead = Lead::new(Driver::default(), true);
        assert!(!lead.try_lead(at(0)));
        assert!(!lead.write_serves(at(0), true) && !lead.write_serves(at(1), true));
        assert_eq!(driver(&lead), (false, None));
    }

    #[test]
    fn the_grace_ends_after_its_time() {
        let lead = lead();
        assert!(lead.try_lead(at(0)));
        lead.leave(in_grace(0));
        assert_eq!(driver(&lead), (true, Some(at(500))), "the driver sleeps on, and checks once");
        lead.hand_back(at(500));
        assert_eq!(driver(&lead), (false, None));
        assert!(!lead.extend_grace(at(501)), "over");
    }

    #[test]
    fn dev_26_while_others_wait_there_is_a_grace_if_leaders_are_soon_followed() {
        // So many leaders, each followed by the next after so long.
        for (leaders, us, others_wait, masked) in
            [(100, 99, true, false), (101, 99, true, true), (500, 100, true, false), (1, 0, false, true)]
        {
            let lead = lead();
            let mut now = 0;
            for nth in 1..=leaders {
                assert!(lead.try_lead(at(now)));
                lead.leave(Leave::InGrace { now: at(now), others_wait });
                assert_eq!(driver(&lead).0, masked && nth == leaders, "{nth} of {leaders}, {us} µs");
                now += us;
            }
            // One that comes late, and it begins again.
            assert!(lead.try_lead(at(now + 100)));
            lead.leave(Leave::InGrace { now: at(now + 100), others_wait: true });
            assert!(!driver(&lead).0);
        }
    }

    #[test]
    fn a_thread_that_comes_back_extends_the_grace_and_the_checks_become_rare() {
        let lead = lead();
        assert!(lead.try_lead(at(0)));
        lead.leave(in_grace(0));
        let mut now = 500;
        // 1, 2, 4 and again 4 ms.
        for interval in [1_000, 2_000, 4_000, 4_000] {
            assert!(lead.extend_grace(at(now - 1)), "the thread takes what has arrived");
            lead.hand_back(at(now));
            now += interval;
            assert_eq!(driver(&lead), (true, Some(at(now))));
        }
        lead.hand_back(at(now));
        assert_eq!(driver(&lead), (false, None), "it did not come back");
        assert!(lead.try_lead(at(now)));
        lead.leave(in_grace(now));
        assert_eq!(driver(&lead).1, Some(at(now + 500)), "the interval begins anew");
    }

    #[test]
    fn a_leader_needs_no_check_and_arms_it_when_it_leaves() {
        let lead = lead();
        assert!(lead.try_lead(at(0)));
        lead.leave(in_grace(0));
        assert!(lead.try_lead(at(0)), "back before the check");
        lead.hand_back(at(500));
        assert_eq!(driver(&lead), (true, None), "the leader waits on the device");
        lead.leave(in_grace(900));
        assert_eq!(driver(&lead), (true, Some(at(900 + 1_000))));
    }

    #[test]
    fn news_for_the_driver_ends_a_grace_but_not_a_lead() {
        let lead = lead();
        assert!(lead.try_lead(at(0)));
        lead.end_grace();
        assert_eq!(driver(&lead), (true, None), "the leader sees it");
        lead.leave(in_grace(0));
        lead.end_grace();
        assert!(!driver(&lead).0);
    }

    #[test]
    fn a_busy_writer_takes_its_acks_itself() {
        let lead = lead();
        assert!(!lead.write_serves(at(0), true), "the first write: it may be the last");
        assert_eq!(driver(&lead), (false, None));
        assert!(lead.write_serves(at(400), true));
        assert_eq!(driver(&lead), (true, Some(at(900))), "the driver sleeps");
        // With something due soon, both take packets.
        lead.end_grace();
        assert!(lead.write_serves(at(800), false));
        assert!(!driver(&lead).0);
        assert!(!lead.write_serves(at(1_301), true), "no longer busy");
    }

    #[test]
    fn a_leader_sees_that_a_writer_is_busy() {
        let lead = lead();
        assert!(lead.try_lead(at(0)));
        assert!(!lead.is_busy_writer(at(0)));
        assert!(!lead.write_serves(at(0), true));
        assert!(lead.write_serves(at(100), true), "it takes packets beside the leader");
        assert!(lead.is_busy_writer(at(101)));
        assert_eq!(driver(&lead), (true, None));
    }
}
