//! Experiments on the stack, described in files: run in the simulator or live, measured, and printed beside
//! published figures.
//!
//! ```text
//!   scenarios/*.toml ─▶ scenario.rs ─▶ job.rs ─▶ sim.rs, live.rs ─▶ data.rs: a RunData per run, a RunSet per scenario
//!                       metrics.rs: what can be measured                └─▶ table.rs, files.rs, report/
//!   runner.rs: all of a scenario's runs      sweep.rs: a scenario with every combination of changes
//!   command.rs: the command, for `taut lab` and for programs with their own congestion controls: main_with
//! ```

pub mod capture;
pub mod command;
pub mod data;
pub mod events;
pub mod files;
pub mod job;
pub mod live;
pub mod metrics;
#[cfg(feature = "parquet")]
mod parquet;
pub mod pcapng;
pub mod report;
pub mod runner;
pub mod scenario;
pub mod sim;
pub mod stats;
pub mod sweep;
pub mod table;
mod view;

pub use command::main_with;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/congestion.md")]
#[doc = include_str!("../../../docs/lab.md")]
struct Documents;
