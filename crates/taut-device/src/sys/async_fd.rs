//! Waiting on a descriptor in a tokio runtime.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a duplicate of `fd` with the runtime that this is called in.
///
/// # Errors
/// No descriptor left, or a descriptor that cannot be polled.
///
/// # Panics
/// Outside a runtime, or in one without IO.
pub fn async_fd(fd: BorrowedFd<'_>, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    let fd = fd.try_clone_to_owned()?;
    #[expect(unsafe_code, reason = "tokio cannot tell an owner from a number")]
    // SAFETY: an OwnedFd is open, and the same descriptor, for as long as it lives.
    let registered = unsafe { AsyncFd::register_with_interest(fd, interest) };
    Ok(registered?)
}
