//! Real-time priority for threads that play the part of a device. `sched(7)`.

use std::io;

use super::check;

/// Gives the calling thread, and threads that it starts, the lowest real-time priority (`SCHED_FIFO` 1),
/// which is above that of all ordinary threads.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] without `CAP_SYS_NICE`.
pub fn become_realtime() -> io::Result<()> {
    let parameter = libc::sched_param { sched_priority: 1 };
    #[expect(unsafe_code, reason = "system call")]
    // SAFETY: the parameter outlives the call, which reads it.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) })
}
