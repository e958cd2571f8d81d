//! Steps counted in tests: every record, range or block that a loop visits or moves is one, so that a test
//! can show that no ACK costs more than a bounded number of them. Without the feature `steps`, and outside of
//! tests, this is nothing. Called where a peer decides how often a loop runs.

#[cfg(any(test, feature = "steps"))]
mod counted {
    extern crate std;

    use core::cell::Cell;

    std::thread_local! {
        static STEPS: Cell<u64> = const { Cell::new(0) };
    }

    /// Counts `count` steps.
    pub(crate) fn step(count: usize) {
        STEPS.with(|steps| steps.set(steps.get() + count as u64));
    }

    /// The steps of this thread since the last call.
    pub(crate) fn take_steps() -> u64 {
        STEPS.with(|steps| steps.replace(0))
    }
}

#[cfg(any(test, feature = "steps"))]
pub(crate) use counted::{step, take_steps};

/// Counts nothing.
#[cfg(not(any(test, feature = "steps")))]
#[inline(always)]
pub(crate) const fn step(_count: usize) {}

/// The steps that all stacks of this thread took in loops whose length a peer decides, since the last call;
/// `None` without the feature `steps`, which is for tests.
#[must_use]
pub fn steps_taken() -> Option<u64> {
    #[cfg(any(test, feature = "steps"))]
    return Some(take_steps());
    #[cfg(not(any(test, feature = "steps")))]
    None
}
