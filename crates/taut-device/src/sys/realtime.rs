//! Priority of threads: of those that play the part of a device, and of a stack's. `sched(7)`.

use std::io;

use super::check;

/// Gives the calling thread, and threads that it starts, the lowest real-time priority (`SCHED_FIFO` 1),
/// which is above that of all ordinary threads.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] without `CAP_SYS_NICE`.
pub fn become_realtime() -> io::Result<()> {
    schedule(libc::SCHED_FIFO, 1)
}

/// Gives the calling thread this policy and priority. Threads that it starts get the ordinary ones.
pub(crate) fn set_scheduler(policy: i32, priority: i32) -> io::Result<()> {
    schedule(policy | libc::SCHED_RESET_ON_FORK, priority)
}

fn schedule(policy: i32, priority: i32) -> io::Result<()> {
    // Not the C library's function: musl's returns ENOSYS. The kernel's `sched_param` is the priority alone.
    #[expect(unsafe_code, reason = "system call")]
    // SAFETY: the priority outlives the call, which reads it.
    let result = unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) };
    check(result as i32)
}

/// Gives the calling thread a nice value. For Linux, 0 is the thread and not the process (`setpriority(2)`).
pub(crate) fn set_nice(nice: i32) -> io::Result<()> {
    rustix::process::setpriority_process(None, nice).map_err(io::Error::from)
}
