//! The descriptors a driver waits on, and the clock it waits by.

mod clock;
mod epoll;
mod eventfd;
mod timerfd;

pub use clock::monotonic_ns;
pub use epoll::{Epoll, Events, Interest};
pub use eventfd::EventFd;
pub use timerfd::TimerFd;

use std::io;

/// The result of a system call that returns −1 for an error.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
