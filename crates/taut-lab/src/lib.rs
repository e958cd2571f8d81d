//! Experiments on the stack, described in files: run in the simulator or live, measured, and printed beside
//! published figures.
//!
//! ```text
//!   scenarios/*.toml ─▶ scenario.rs ─▶ job.rs ─▶ sim.rs, live.rs ─▶ data.rs: a RunData per run, a RunSet per scenario
//!                       metrics.rs: what can be measured                └─▶ output/, report/
//!   runner.rs: all of a scenario's runs      sweep.rs: a scenario with every combination of changes
//! ```
//!
//! Without the feature `live`, which is on by default, there are scenarios, the simulator, metrics and
//! tables: what needs no system, and so can run in a browser. A program steps through a run with
//! [`sim::Simulation`].

pub mod columns;
pub mod data;
pub mod job;
#[cfg(feature = "live")]
pub mod live;
pub mod metrics;
mod output;
mod recorded;
#[cfg(feature = "live")]
pub mod report;
#[cfg(feature = "live")]
pub mod runner;
pub mod scenario;
mod shares;
pub mod sim;
pub mod stats;
pub mod sweep;
mod view;

#[cfg(feature = "live")]
pub use output::files;
pub use output::{capture, events, table};
pub use recorded::{pcapng, trace};
