//! A clock that never goes backwards. On Linux it is also that of `TimerFd`.

/// Nanoseconds of `CLOCK_MONOTONIC`. Only a driver's clock calls this: all other code gets the time as an
/// argument.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[must_use]
pub fn monotonic_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds since this was first called, by the system's monotonic clock. Only a driver's clock calls
/// this: all other code gets the time as an argument.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
#[must_use]
pub fn monotonic_ns() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;

    static START: OnceLock<Instant> = OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "this is the one clock; all others get the time from it")]
    let now = Instant::now();
    // Not zero, which is before everything.
    let passed = now.saturating_duration_since(*START.get_or_init(|| now)).as_nanos();
    u64::try_from(passed).unwrap_or(u64::MAX).saturating_add(1)
}
