//! Programs that serve a guest's connections. They are not children of the caller, which need not reap them.
#![expect(unsafe_code, reason = "std has no second fork")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Starts the command as a child of a child that ends at once: its parent is then the system's first process,
/// or a nearer one that takes orphans.
pub(crate) fn spawn(command: &mut Command) -> io::Result<()> {
    // SAFETY: `fork` and `_exit` may be called in the child of a process with threads (signal-safety(7)).
    let fork = || match unsafe { libc::fork() } {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: as above.
        _ => unsafe { libc::_exit(0) },
    };
    // SAFETY: `fork` calls nothing else, and allocates nothing.
    let mut between = unsafe { command.pre_exec(fork) }.spawn()?;
    // There is nothing to wait for if the caller ignores SIGCHLD, or reaps every child.
    _ = between.wait();
    Ok(())
}
