//! The few system calls for which no library has a safe form: all `unsafe` of this crate is here, with one
//! exception. Also the descriptors on which a program waits when it uses a device without a driver.

#[cfg(feature = "xdp")]
pub(crate) mod bpf;
mod capture;
mod fork;
#[cfg(feature = "hostile")]
mod hostile;
mod kernel_socket;
pub(crate) mod packet_socket;
pub(crate) mod priority;
mod realtime;
pub(crate) mod tun_ioctl;
pub(crate) mod unshare;
#[cfg(feature = "xdp")]
pub(crate) mod xdp_socket;

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

pub use capture::{Capture, Captured};
pub use fork::{Forked, exit_now, fork_alone};
#[cfg(feature = "hostile")]
pub use hostile::raw;
pub use kernel_socket::{
    FastOpen, memory_info, set_fast_open, set_max_pacing_rate, tcp_info, unlock_buffers,
};
pub use realtime::become_realtime;
pub(crate) use realtime::{set_nice, set_scheduler};
pub use taut_driver::sys::{Epoll, EventFd, Events, Interest, TimerFd, monotonic_ns};

/// The result of a system call that returns −1 for an error.
fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Bytes of memory of packets that were sent and have not been freed, headers of the kernel included:
/// `SIOCOUTQ`.
///
/// # Errors
/// When the descriptor is not a socket.
pub fn bytes_below(socket: impl AsFd) -> io::Result<u64> {
    let mut bytes: i32 = 0;
    #[expect(unsafe_code, reason = "system call")]
    // SAFETY: the kernel writes one int.
    check(unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// A copy of a descriptor that this process has inherited from the program that started it, by its number.
/// The original stays open here. Programs that this one starts get neither, except for the standard streams.
///
/// # Errors
/// When there is no such descriptor.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    #[expect(unsafe_code, reason = "system call")]
    // SAFETY: the calls have no pointers, and the copy has no other owner.
    unsafe {
        let copy = libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3);
        check(copy)?;
        if number > libc::STDERR_FILENO {
            check(libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC))?;
        }
        Ok(OwnedFd::from_raw_fd(copy))
    }
}
