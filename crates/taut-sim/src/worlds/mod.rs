//! Random worlds: a seed makes a network, its faults, its settings and its applications, and a judge watches
//! that nothing is lost, nothing is wrong, nothing grows, and everything ends.
//!
//! ```text
//!   plan.rs plan/   a seed becomes a Plan: hosts, lines, faults, conversations, changes in mid-run
//!   talk.rs    the applications: each end of a conversation follows a script
//!   run.rs     builds the network of a plan and runs it          judge.rs   what must hold, during the run and at its end
//!   blind.rs   an attacker elsewhere who guesses numbers
//!   shrink.rs  leaves out one feature after another while a plan still fails
//! ```
//!
//! A world has two parts. For some seconds anything may happen. Then the faults end, and from then on there
//! is no excuse: every conversation whose ends are polite must finish, with every byte.
//!
//! Each [`Feature`] draws from a stream of random numbers of its own, so that leaving one out changes nothing
//! else: a seed and the list of what is left out repeat a run.
//!
//! ```
//! use taut_sim::worlds::{Plan, Without};
//!
//! let world = taut_sim::worlds::run(&Plan::new(1, &Without::default()));
//! assert_eq!(world.failure, None);
//! ```

mod blind;
mod judge;
mod plan;
mod run;
mod shrink;
mod talk;

pub use plan::{Feature, Plan, UnknownFeature, Without};
pub use run::{Outcome, run};
pub use shrink::shrink;
