//! Waiting on several descriptors. `epoll(7)`, level-triggered.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

/// The event awaited on one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Nothing for now; the descriptor stays in the set. Errors and hang-ups are reported in any case.
    Nothing,
    /// That it can be read.
    Readable,
    /// That it can be written.
    Writable,
}

impl Interest {
    const fn flags(self) -> EventFlags {
        match self {
            Self::Nothing => EventFlags::empty(),
            Self::Readable => EventFlags::IN,
            Self::Writable => EventFlags::OUT,
        }
    }
}

/// The descriptors that were ready, by their tokens.
#[derive(Clone, Copy)]
pub struct Events {
    list: [Event; Self::CAPACITY],
    count: usize,
}

impl Events {
    const CAPACITY: usize = 8;

    /// No descriptors.
    pub const EMPTY: Self = Self {
        list: [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; Self::CAPACITY],
        count: 0,
    };

    /// The tokens of the descriptors that are ready.
    pub fn tokens(&self) -> impl Iterator<Item = u64> {
        self.list[..self.count].iter().map(|event| event.data.u64())
    }

    /// Whether no descriptor is ready.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the descriptor added with `token` is ready.
    #[must_use]
    pub fn contains(&self, token: u64) -> bool {
        self.tokens().any(|ready| ready == token)
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.tokens()).finish()
    }
}

/// A set of descriptors. It is itself a descriptor, readable when one of them is ready.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

impl Epoll {
    const LONGEST: Duration = Duration::from_millis(i32::MAX as u64);

    /// An empty set.
    ///
    /// # Errors
    /// No descriptor or no memory left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Adds a descriptor; `token` comes back with its events.
    ///
    /// # Errors
    /// The descriptor is already in the set, it cannot be polled, or no memory is left.
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.0, fd, EventData::new_u64(token), interest.flags())?)
    }

    /// Changes the awaited event. Takes effect even for a thread that is already waiting.
    ///
    /// # Errors
    /// The descriptor is not in the set.
    pub fn modify(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.0, fd, EventData::new_u64(token), interest.flags())?)
    }

    /// Waits until a descriptor is ready or `timeout`, in whole milliseconds rounded up, has passed. A signal
    /// ends the wait with no event.
    ///
    /// # Errors
    /// None for a valid set.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Events> {
        // Without the bound, a wait of more than 24 days would take a system call that older kernels lack.
        let timeout = timeout.map(|timeout| timeout.min(Self::LONGEST));
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut events = Events::EMPTY;
        match epoll::wait(&self.0, &mut events.list, timeout.as_ref()) {
            Ok(count) => events.count = count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(events)
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{EventFd, TimerFd, monotonic_ns};

    #[test]
    fn a_set_in_a_set_can_be_masked_from_outside() {
        let (inner, outer, event) = (Epoll::new().unwrap(), Epoll::new().unwrap(), EventFd::new().unwrap());
        inner.add(event.as_fd(), 1, Interest::Readable).unwrap();
        outer.add(inner.as_fd(), 2, Interest::Readable).unwrap();
        event.signal();
        assert!(outer.wait(None).unwrap().contains(2));
        outer.modify(inner.as_fd(), 2, Interest::Nothing).unwrap();
        assert!(!outer.wait(Some(Duration::ZERO)).unwrap().contains(2));
        assert!(inner.wait(Some(Duration::ZERO)).unwrap().contains(1));
        outer.modify(inner.as_fd(), 2, Interest::Readable).unwrap();
        assert!(outer.wait(None).unwrap().contains(2), "unmasking shows what became ready meanwhile");
    }

    /// A wait never ends early; how late it ends depends on the machine, so only the best of many counts.
    #[test]
    fn timer_is_never_early_and_precise_to_microseconds() {
        let (epoll, timer) = (Epoll::new().unwrap(), TimerFd::new().unwrap());
        epoll.add(timer.as_fd(), 7, Interest::Readable).unwrap();
        let mut best_ns = u64::MAX;
        for _ in 0..50 {
            let at_ns = monotonic_ns() + 300_000;
            timer.arm(at_ns);
            assert!(epoll.wait(None).unwrap().contains(7));
            let now_ns = monotonic_ns();
            assert!(now_ns >= at_ns, "{} ns early", at_ns - now_ns);
            best_ns = best_ns.min(now_ns - at_ns);
        }
        assert!(best_ns < 500_000, "best of 50 was {best_ns} ns late");
    }

    #[test]
    fn arming_again_makes_unreadable_and_the_past_means_now() {
        let (epoll, timer) = (Epoll::new().unwrap(), TimerFd::new().unwrap());
        epoll.add(timer.as_fd(), 7, Interest::Readable).unwrap();
        timer.arm(0);
        assert!(epoll.wait(None).unwrap().contains(7));
        timer.arm(monotonic_ns() + 60_000_000_000);
        assert!(!epoll.wait(Some(Duration::ZERO)).unwrap().contains(7));
        timer.arm(1);
        assert!(epoll.wait(None).unwrap().contains(7));
        timer.disarm();
        assert!(!epoll.wait(Some(Duration::ZERO)).unwrap().contains(7));
        timer.arm(u64::MAX);
        assert!(!epoll.wait(Some(Duration::ZERO)).unwrap().contains(7));
    }
}
