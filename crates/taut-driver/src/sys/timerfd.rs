//! A descriptor that becomes readable at a point in time, to the nanosecond. `timerfd_create(2)`.
//!
//! A driver arms it for the stack's next deadline. Any thread may re-arm it while another waits on it, so a
//! write that makes a deadline earlier need not wake the thread that waits.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::Timespec;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

/// A timer on `CLOCK_MONOTONIC`.
#[derive(Debug)]
pub struct TimerFd(OwnedFd);

impl TimerFd {
    /// A new timer, not armed.
    ///
    /// # Errors
    /// No descriptor or no memory left.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self(timerfd_create(TimerfdClockId::Monotonic, flags)?))
    }

    /// Makes it readable from `at_ns` on, on the clock of [`monotonic_ns`](super::monotonic_ns), and
    /// unreadable until then. With a time in the past, it is readable immediately.
    pub fn arm(&self, at_ns: u64) {
        // All zero would disarm it.
        self.set(at_ns.max(1));
    }

    /// Makes it unreadable until it is armed again.
    pub fn disarm(&self) {
        self.set(0);
    }

    fn set(&self, at_ns: u64) {
        let at_ns = at_ns.min(i64::MAX as u64);
        let spec = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec {
                tv_sec: (at_ns / 1_000_000_000) as _,
                tv_nsec: (at_ns % 1_000_000_000) as _,
            },
        };
        // With a valid descriptor and a normalised time there is no error to return.
        let _ = timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &spec);
    }
}

impl AsFd for TimerFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The number never changes, so that it can be registered with a runtime.
impl AsRawFd for TimerFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
