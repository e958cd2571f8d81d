//! Sums for reports: nothing is decided by them.

pub(crate) mod chrono;
pub(crate) mod ledger;
