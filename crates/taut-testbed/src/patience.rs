//! Waiting in tests: a clock to measure from outside, the bound on what a test waits for, and the end of what
//! runs beside it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The longest that a step of a test may take. Only a step that is stuck takes longer.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Sets a flag when it is dropped, also when its test fails, so that threads beside the test end.
#[derive(Debug)]
pub struct Raise<'a>(pub &'a AtomicBool);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The clock, for bounds that hold on a busy machine too.
#[expect(clippy::disallowed_methods, reason = "tests measure from outside")]
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}

/// Waits until `is_so` returns true.
///
/// # Panics
/// When it does not within [`PATIENCE`].
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "still not: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}
