//! The CPU time that each thread used, by per-thread clocks, and pinning.
//!
//! A thread's clock counts what runs in its context, including the network work that the kernel does there on
//! behalf of the other side (delivery of a packet written to a TUN or a veth). That is the same for every
//! stack.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

/// This thread's id.
pub fn tid() -> i32 {
    // SAFETY: no arguments.
    unsafe { libc::gettid() }
}

/// Puts this thread on one core.
pub fn pin(core: usize) -> io::Result<()> {
    // SAFETY: `set` is a plain bit mask of the size given.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Keeps this thread, and those that it starts meanwhile, on one core, until this is dropped. A process that
/// has only this thread is kept there as a whole.
pub struct Confined(libc::cpu_set_t);

impl Confined {
    pub fn to(core: usize) -> io::Result<Self> {
        // SAFETY: `set` is a plain bit mask of the size given.
        let before = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            match libc::sched_getaffinity(0, size_of_val(&set), &mut set) {
                0 => set,
                _ => return Err(io::Error::last_os_error()),
            }
        };
        pin(core)?;
        Ok(Self(before))
    }
}

impl Drop for Confined {
    fn drop(&mut self) {
        // SAFETY: a bit mask of the size given. It was this thread's before, so it cannot be refused.
        unsafe { libc::sched_setaffinity(0, size_of_val(&self.0), &self.0) };
    }
}

fn clock(id: libc::clockid_t) -> Option<Duration> {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `at` is a timespec.
    (unsafe { libc::clock_gettime(id, &mut at) } == 0)
        .then(|| Duration::new(at.tv_sec as u64, at.tv_nsec as u32))
}

/// CPU time of a thread of this process; zero for one that has ended.
fn of_thread(tid: i32) -> Duration {
    // The kernel's encoding of a thread's scheduler clock: CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED.
    clock((!tid << 3) | 4 | 2).unwrap_or_default()
}

/// CPU time of all threads of this process except those in `others`.
pub fn of_threads_except(others: &BTreeSet<i32>) -> io::Result<Duration> {
    let mut sum = Duration::ZERO;
    for entry in std::fs::read_dir("/proc/self/task")? {
        let Some(tid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if !others.contains(&tid) {
            sum += of_thread(tid);
        }
    }
    Ok(sum)
}

/// CPU time of the whole process.
pub fn of_process() -> Duration {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or_default()
}

/// CPU time of another process, of all its threads.
pub fn of_other(process: u32) -> anyhow::Result<Duration> {
    // The kernel's encoding of a process's scheduler clock: CPUCLOCK_SCHED.
    clock((!process.cast_signed() << 3) | 2).ok_or_else(|| anyhow::anyhow!("process {process} has ended"))
}

/// CPU-seconds that the whole machine has been busy or was kept waiting by its hypervisor, since it started.
pub fn of_machine() -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    // user nice system idle iowait irq softirq steal; what follows is counted in these already.
    let fields = stat.lines().next().unwrap_or_default().split_whitespace().skip(1).take(8);
    let ticks = fields.enumerate().filter(|(at, _)| !matches!(at, 3 | 4));
    let sum: f64 = ticks.filter_map(|(_, field)| field.parse::<f64>().ok()).sum();
    // USER_HZ is 100 on every Linux that has this file.
    Ok(sum / 100.0)
}

/// Runs `f` on a thread of its own that stays on one core.
pub fn within_pinned<T: Send>(
    core: usize,
    f: impl FnOnce() -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            pin(core)?;
            f()
        });
        thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confined_thread_and_its_children_use_one_core_and_later_all() {
        let cores = || std::thread::available_parallelism().unwrap().get();
        let before = cores();
        let confined = Confined::to(0).unwrap();
        assert_eq!(std::thread::spawn(cores).join().unwrap(), 1);
        drop(confined);
        assert_eq!(cores(), before);
    }
}
