//! How a driver wakes up: a call by another thread, a bell that devices ring, and on Linux all of it with the
//! timer in one descriptor.

pub(crate) mod announce;
pub(crate) mod bell;
pub(crate) mod call;
