//! The record of which thread serves a shard's device, with the descriptors on which its driver thread waits.
//! Made by `thread.rs`.

#[cfg(any(target_os = "linux", target_os = "android"))]
mod linux {
    use std::io;
    use std::os::fd::AsFd;
    use std::sync::Arc;

    use taut_core::Instant;

    use crate::lead::{Lead, Sleeper};
    use crate::sys::{Epoll, EventFd, Interest as Readiness, TimerFd};
    use crate::wake::announce::Announcer;
    use crate::wake::bell::Bell;
    use crate::wake::call::Ear;

    pub(crate) type Poller = Lead<Descriptors>;

    /// A key in [`ready`](Descriptors::ready), in addition to the keys of that set.
    pub(crate) const LEAD: u64 = 16;
    /// In `outer`.
    pub(crate) const READY: u64 = 0;
    pub(crate) const NOTIFY: u64 = 1;
    pub(crate) const CHECK: u64 = 2;

    /// The descriptors on which the driver thread waits.
    #[derive(Debug)]
    pub(crate) struct Descriptors {
        /// [`Announcer::descriptors`](crate::wake::announce::Announcer::descriptors).
        pub(crate) ready: Arc<Epoll>,
        pub(crate) outer: Epoll,
        /// Ends the grace.
        pub(crate) check: TimerFd,
        /// Wakes the leader.
        pub(crate) signal: Arc<Bell>,
    }

    impl Descriptors {
        pub(crate) fn new(announcer: &Announcer) -> io::Result<Self> {
            let (outer, signal, event) = (Epoll::new()?, Arc::new(Bell::default()), EventFd::new()?);
            let ready = announcer.descriptors(&outer, NOTIFY)?;
            ready.add(event.as_fd(), LEAD, Readiness::Readable)?;
            signal.listen(Ear::Event(event));
            outer.add(ready.as_fd(), READY, Readiness::Readable)?;
            let check = TimerFd::new()?;
            outer.add(check.as_fd(), CHECK, Readiness::Readable)?;
            Ok(Self { ready, outer, check, signal })
        }
    }

    impl Sleeper for Descriptors {
        fn mask(&self, mask: bool) {
            let readiness = if mask { Readiness::Nothing } else { Readiness::Readable };
            // Cannot fail: the descriptor is in the set.
            let _ = self.outer.modify(self.ready.as_fd(), READY, readiness);
        }

        fn check_at(&self, at: Option<Instant>) {
            match at {
                Some(at) => self.check.arm(at.as_nanos()),
                None => self.check.disarm(),
            }
        }
    }
}
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) use linux::*;

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod none {
    use taut_core::Instant;

    /// No thread leads.
    #[derive(Debug)]
    pub(crate) enum Poller {}

    impl Poller {
        pub(crate) fn extend_grace(&self, _: Instant) -> bool {
            match *self {}
        }

        pub(crate) fn write_serves(&self, _: Instant, _: bool) -> bool {
            match *self {}
        }

        pub(crate) fn note_look(&self, _: Instant) {
            match *self {}
        }

        pub(crate) fn end_grace(&self) {
            match *self {}
        }
    }
}
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) use none::Poller;
