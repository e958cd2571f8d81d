//! The few system calls for which no library has a safe form: all `unsafe` of this crate is here, with one exception.
//! Also the descriptors on which a program waits when it uses a device without a driver.

mod kernel_socket;
pub(crate) mod packet_socket;
mod realtime;
pub(crate) mod tun_ioctl;
pub(crate) mod unshare;

use std::io;

pub use kernel_socket::{FastOpen, memory_info, set_fast_open, set_max_pacing_rate, tcp_info};
pub use realtime::become_realtime;
pub(crate) use realtime::{set_nice, set_scheduler};
pub use taut_driver::sys::{Epoll, EventFd, Events, Interest, TimerFd, monotonic_ns};

/// The result of a system call that returns −1 for an error.
fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
