//! Moving to new namespaces. `unshare(2)`.

use std::io;

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Moves this thread into a new network namespace.
pub(crate) fn new_network() -> io::Result<()> {
    unshare(UnshareFlags::NEWNET)
}

/// Moves this process, which must have only one thread, into a new user namespace with a network of its own.
pub(crate) fn new_user_and_network() -> io::Result<()> {
    unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNET)
}

/// The same with mounts of its own: what is mounted there is seen by nobody else.
pub(crate) fn new_user_network_and_mounts() -> io::Result<()> {
    unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNET | UnshareFlags::NEWNS)
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    #[expect(unsafe_code, reason = "the call can also take descriptors away from a thread")]
    // SAFETY: only namespaces are unshared, not the table of descriptors nor anything else that Rust relies
    // on.
    let result = unsafe { unshare_unsafe(flags) };
    Ok(result?)
}
