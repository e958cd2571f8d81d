//! The descriptors on which a driver waits, and its clock.

mod clock;
mod epoll;
mod eventfd;
mod timerfd;

pub use clock::monotonic_ns;
pub use epoll::{Epoll, Events, Interest};
pub use eventfd::EventFd;
pub use timerfd::TimerFd;
