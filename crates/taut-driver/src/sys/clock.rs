//! `CLOCK_MONOTONIC`, which is also the clock of [`TimerFd`](super::TimerFd).

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`. Only a driver's clock calls this: all other code gets the time as an argument.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
