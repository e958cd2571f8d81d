//! The only place in the command that reads a clock: measurements are in wall-clock time.
//!
//! Called by every command that prints a rate.

use std::time::{Duration, Instant, SystemTime};

/// A running measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts measuring.
    #[expect(
        clippy::disallowed_methods,
        reason = "a command measures wall time; the stack itself takes time as an argument"
    )]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the start.
    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// The time of day, in seconds since 1970: what iperf3's datagrams carry.
#[expect(
    clippy::disallowed_methods,
    reason = "two machines compare their times of day; the stack takes time as an argument"
)]
#[must_use]
pub(crate) fn wall() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Processor time of all threads of this process, so far.
pub(crate) fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
