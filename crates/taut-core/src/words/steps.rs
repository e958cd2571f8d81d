//! Steps counted in tests: every record, range or block that a loop visits or moves is one, so that a test can show that
//! no ACK costs more than a bounded number of them. Outside of tests this is nothing.
//! Called where a peer decides how often a loop runs.

#[cfg(test)]
extern crate std;

#[cfg(test)]
std::thread_local! {
    static STEPS: core::cell::Cell<u64> = const { core::cell::Cell::new(0) };
}

/// Counts `count` steps.
#[cfg(test)]
pub(crate) fn step(count: usize) {
    STEPS.with(|steps| steps.set(steps.get() + count as u64));
}

/// Counts nothing.
#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn step(_count: usize) {}

/// The steps of this thread since the last call.
#[cfg(test)]
pub(crate) fn take_steps() -> u64 {
    STEPS.with(|steps| steps.replace(0))
}
