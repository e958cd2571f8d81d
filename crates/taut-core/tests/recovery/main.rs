//! Loss recovery as packet traces: one file for a scenario, expected values from the RFC that it names.

#[macro_use]
#[path = "../support/mod.rs"]
mod support;

mod ecn;
mod reordering;
mod spurious_timeout;
