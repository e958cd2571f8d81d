//! The only clock: all other code gets the time as an argument, so that a simulator can pass a time of its
//! own.

#[cfg(not(loom))]
use crate::sys::monotonic_ns;
use taut_core::Instant;

/// The system's monotonic clock. On Linux it has the kernel's epoch, so that an [`Instant`] can be given to a
/// timer as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock;

impl Clock {
    /// The time.
    #[must_use]
    pub fn now(self) -> Instant {
        #[cfg(not(loom))]
        return Instant::from_nanos(monotonic_ns());
        // In models, time stands still.
        #[cfg(loom)]
        Instant::from_nanos(1_000_000_000)
    }
}
