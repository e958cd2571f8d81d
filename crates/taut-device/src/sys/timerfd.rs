//! A descriptor that becomes readable at a point in time, to the nanosecond. `timerfd_create(2)`.
//!
//! A driver arms it for the stack's next deadline. Any thread may re-arm it while another waits on it, so a
//! write that makes a deadline earlier need not wake the thread that waits.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use super::check;

/// A timer on `CLOCK_MONOTONIC`.
#[derive(Debug)]
pub struct TimerFd(OwnedFd);

impl TimerFd {
    /// A new one, not armed.
    ///
    /// # Errors
    /// No descriptor or no memory left.
    pub fn new() -> io::Result<Self> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        #[expect(unsafe_code, reason = "system call")]
        // SAFETY: no pointer is passed.
        let fd = check(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
        #[expect(unsafe_code, reason = "takes what the call above returned")]
        // SAFETY: the descriptor is new and nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self(fd))
    }

    /// Makes it readable from `at_ns` on, on the clock of [`monotonic_ns`](super::monotonic_ns), and unreadable
    /// until then. A time in the past means at once.
    pub fn arm(&self, at_ns: u64) {
        // All zero would disarm it.
        self.set(at_ns.max(1));
    }

    /// Makes it unreadable for good.
    pub fn disarm(&self) {
        self.set(0);
    }

    fn set(&self, at_ns: u64) {
        let at_ns = at_ns.min(i64::MAX as u64);
        let spec = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: libc::timespec {
                tv_sec: (at_ns / 1_000_000_000) as libc::time_t,
                tv_nsec: (at_ns % 1_000_000_000) as libc::c_long,
            },
        };
        #[expect(unsafe_code, reason = "system call")]
        // SAFETY: `spec` is a valid itimerspec and the old value is not asked for. With a valid descriptor and a
        // normalised time there is no error to return.
        unsafe {
            libc::timerfd_settime(
                self.0.as_raw_fd(),
                libc::TFD_TIMER_ABSTIME,
                &raw const spec,
                ptr::null_mut(),
            );
        }
    }
}

impl AsFd for TimerFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
