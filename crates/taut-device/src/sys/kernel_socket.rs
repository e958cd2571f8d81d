//! The kernel's facts about its own TCP sockets, and socket options that no library sets. `tcp(7)`,
//! `socket(7)`.
//!
//! Structures are returned as the bytes that the kernel filled in, because later kernels have more members.
//! Called by `taut-testbed`, which compares a stack with the kernel, and by `taut-gateway`.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

use super::check;

/// More bytes than `struct tcp_info` has in any kernel so far.
const TCP_INFO_MAX: usize = 512;

/// `struct tcp_info` (linux/tcp.h) of a socket, with the length that it has in this kernel.
///
/// # Errors
/// When the socket is not a TCP socket.
pub fn tcp_info(socket: impl AsFd) -> io::Result<Vec<u8>> {
    get(socket, libc::IPPROTO_TCP, libc::TCP_INFO, vec![0; TCP_INFO_MAX])
}

/// `SO_MEMINFO` of a socket: 32-bit words in the order of linux/sock_diag.h.
///
/// # Errors
/// When the kernel is older than 4.12.
pub fn memory_info(socket: impl AsFd) -> io::Result<Vec<u8>> {
    const WORDS: usize = 9;
    get(socket, libc::SOL_SOCKET, libc::SO_MEMINFO, vec![0; WORDS * 4])
}

/// `SO_MAX_PACING_RATE`: the most bytes per second that a socket sends.
///
/// # Errors
/// When the socket does not support pacing.
pub fn set_max_pacing_rate(socket: impl AsFd, bytes_per_second: u64) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &bytes_per_second.to_ne_bytes())
}

/// `SO_BUF_LOCK`: the kernel chooses the sizes of a socket's buffers again, also after `SO_RCVBUF`.
///
/// # Errors
/// When the kernel is older than 5.14.
pub fn unlock_buffers(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_BUF_LOCK, &0u32.to_ne_bytes())
}

/// TCP Fast Open of a kernel's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastOpen {
    /// `TCP_FASTOPEN`: a listener accepts data in SYNs, for so many pending connections.
    Listen(u32),
    /// `TCP_FASTOPEN_CONNECT`: the first write leaves with the SYN.
    Connect,
}

/// Switches TCP Fast Open on for a socket of the kernel's.
///
/// # Errors
/// When the kernel's `tcp_fastopen` does not allow it.
pub fn set_fast_open(socket: impl AsFd, option: FastOpen) -> io::Result<()> {
    let (name, value) = match option {
        FastOpen::Listen(pending) => (libc::TCP_FASTOPEN, pending),
        FastOpen::Connect => (libc::TCP_FASTOPEN_CONNECT, 1),
    };
    set(socket, libc::IPPROTO_TCP, name, &value.to_ne_bytes())
}

fn set(socket: impl AsFd, level: libc::c_int, name: libc::c_int, value: &[u8]) -> io::Result<()> {
    let (fd, len) = (socket.as_fd().as_raw_fd(), value.len() as libc::socklen_t);
    #[expect(unsafe_code, reason = "system call")]
    // SAFETY: the kernel reads the bytes given, which outlive the call.
    check(unsafe { libc::setsockopt(fd, level, name, value.as_ptr().cast(), len) })
}

/// Reads an option that is plain data.
fn get(socket: impl AsFd, level: libc::c_int, name: libc::c_int, mut value: Vec<u8>) -> io::Result<Vec<u8>> {
    let mut len = value.len() as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    #[expect(unsafe_code, reason = "system call")]
    // SAFETY: the value has room for `len` bytes, and both outlive the call.
    check(unsafe { libc::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &raw mut len) })?;
    value.truncate(len as usize);
    Ok(value)
}
