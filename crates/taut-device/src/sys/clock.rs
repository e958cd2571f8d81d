//! `CLOCK_MONOTONIC`, which is also the clock of [`TimerFd`](super::TimerFd).

/// Nanoseconds of `CLOCK_MONOTONIC`. Only a driver's clock calls this: everything else is told the time.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    #[expect(unsafe_code, reason = "std::time::Instant does not tell its nanoseconds")]
    // SAFETY: `time` is a valid timespec to write to. The call cannot fail: every Linux has this clock.
    unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time);
    }
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
