//! The descriptors a driver waits on, the clock it waits by, and the few calls that no library has in a safe form.
//! All `unsafe` of this crate is here.

#[cfg(feature = "tokio")]
mod async_fd;
mod clock;
mod epoll;
mod eventfd;
mod timerfd;
pub(crate) mod tun_ioctl;
pub(crate) mod unshare;

#[cfg(feature = "tokio")]
pub use async_fd::async_fd;
pub use clock::monotonic_ns;
pub use epoll::{Epoll, Events, Interest};
pub use eventfd::EventFd;
pub use timerfd::TimerFd;
