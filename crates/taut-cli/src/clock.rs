//! The only place in the command that reads a clock: measurements are in wall-clock time.
//!
//! Called by every command that prints a rate.

use std::time::{Duration, Instant};

/// A running measurement.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts measuring.
    #[expect(
        clippy::disallowed_methods,
        reason = "a command measures wall time; the stack itself takes time as an argument"
    )]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the start.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}
