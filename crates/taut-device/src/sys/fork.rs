//! A second process that goes on from here. `fork(2)`.

use std::fs;
use std::io;

use rustix::process::Pid;

/// Which of the two processes this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forked {
    /// The new one. It has a copy of everything, descriptors included, and should end by [`exit_now`] or
    /// become another program.
    Child,
    /// The one that was there, with the child's number, for which somebody must wait.
    Parent(Pid),
}

/// Makes a second process, if this one has a single thread: what other threads are about to change would stay
/// as it is in the child for ever.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if this process has other threads, and what `/proc` or the kernel refuse.
pub fn fork_alone() -> io::Result<Forked> {
    let threads = fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        let message = format!("a process with {threads} threads cannot be forked");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    #[expect(unsafe_code, reason = "system call")]
    // SAFETY: there is no other thread that could hold a lock or be within a change.
    let pid = unsafe { libc::fork() };
    super::check(pid)?;
    Ok(Pid::from_raw(pid).map_or(Forked::Child, Forked::Parent))
}

/// Ends the process at once: what the parent has registered for its end is not run, and nothing that it has
/// buffered is written twice.
pub fn exit_now(code: i32) -> ! {
    #[expect(unsafe_code, reason = "system call")]
    // SAFETY: the call has no pointers, and does not return.
    unsafe {
        libc::_exit(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gw_96_a_process_with_other_threads_is_not_forked() {
        let (stop, wait) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || wait.recv().is_err());
        assert_eq!(fork_alone().unwrap_err().kind(), io::ErrorKind::InvalidInput);
        drop(stop);
        assert!(other.join().unwrap());
    }
}
