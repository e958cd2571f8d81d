//! The few calls that no library has in a safe form: all `unsafe` of this crate but one is here. And what those wait on
//! who use a device without a driver.

pub(crate) mod tun_ioctl;
pub(crate) mod unshare;

pub use taut_driver::sys::{Epoll, EventFd, Events, Interest, TimerFd, monotonic_ns};
