//! The clock of a driver, and the descriptors on which it waits on Linux.

mod clock;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod epoll;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod eventfd;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod timerfd;

pub use clock::monotonic_ns;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub use epoll::{Epoll, Events, Interest};
#[cfg(any(target_os = "linux", target_os = "android"))]
pub use eventfd::EventFd;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub use timerfd::TimerFd;
