//! Experiments on the stack, described in files: run in the simulator or live, measured, and printed beside the figures
//! that were published.
//!
//! ```text
//!   scenarios/*.toml ─▶ scenario.rs ─▶ job.rs ─▶ sim.rs ─▶ data.rs: one RunData a run, a RunSet of a scenario
//!                       metrics.rs: what can be measured       └─▶ tables, files, reports
//! ```
#![forbid(unsafe_code)]

pub mod capture;
pub mod data;
pub mod events;
pub mod files;
pub mod job;
pub mod metrics;
pub mod report;
pub mod runner;
pub mod scenario;
pub mod sim;
pub mod stats;
pub mod sweep;
pub mod table;
