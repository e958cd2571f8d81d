//! The descriptors a driver waits on, and the clock it waits by.

#[cfg(feature = "tokio")]
mod async_fd;
mod clock;
mod epoll;
mod eventfd;
mod timerfd;

#[cfg(feature = "tokio")]
pub use async_fd::async_fd;
pub use clock::monotonic_ns;
pub use epoll::{Epoll, Events, Interest};
pub use eventfd::EventFd;
pub use timerfd::TimerFd;

use std::io;

/// The result of a system call that returns −1 for an error.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
