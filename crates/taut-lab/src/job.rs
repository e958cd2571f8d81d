//! A scheduled run and its result. Called by the runners.

use std::collections::BTreeMap;

use crate::data::{Engine, Meta, RunData, SCHEMA};
use crate::scenario::Variation;

/// What the packets of a live run's sender leave by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LiveDevice {
    /// A TUN. taut's own queue is in front of it, and the kernel's `tbf` on it.
    #[default]
    Tun,
    /// An Ethernet interface with a queue discipline of the kernel's: taut uses it by packet sockets.
    Packet,
}

/// A run.
#[derive(Clone, Debug)]
pub struct Job {
    /// Name of the scenario.
    pub scenario: String,
    /// Its case and variant.
    pub variation: Variation,
    /// Seed of all random numbers.
    pub seed: u64,
    /// The engine that runs it.
    pub engine: Engine,
    /// Whether rows, points, events and packets are kept as well.
    pub keep: bool,
    /// In a live run, what the sender's packets leave by.
    pub device: LiveDevice,
    /// In a live run, stack and applications ask for real-time priority, too, and not the emulated path
    /// alone.
    pub real_time: bool,
    /// The command line.
    pub command: String,
}

impl Job {
    /// Its metadata.
    pub(crate) fn meta(&self, engine: Engine) -> Meta {
        let scenario = &self.variation.scenario;
        let s = crate::view::seconds;
        Meta {
            schema: SCHEMA,
            scenario: self.scenario.clone(),
            case: self.variation.case.clone(),
            variant: self.variation.variant.clone(),
            engine,
            seed: self.seed,
            versions: BTreeMap::from([("taut".to_owned(), env!("CARGO_PKG_VERSION").to_owned())]),
            command: self.command.clone(),
            parameters: self.variation.parameters.clone(),
            duration_s: s(scenario.duration.value),
            warm_up_s: s(scenario.warm_up()),
            interval_s: s(scenario.interval()),
            digest: None,
            events: None,
            began: None,
            took_s: None,
        }
    }

    /// Description in words.
    #[must_use]
    pub fn label(&self) -> String {
        let Self { scenario, variation: Variation { case, variant, .. }, seed, .. } = self;
        let case = if case.is_empty() { String::new() } else { format!("{case}, ") };
        format!("{scenario}: {case}{variant}, {}, seed {seed}", self.engine.label())
    }
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Its data.
    pub data: RunData,
    /// `events.jsonl`; empty if nothing was kept.
    pub events: String,
    /// `capture.pcapng`; empty if nothing was kept.
    pub capture: Vec<u8>,
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// An invariant of the simulator does not hold, or an application read bytes that were never written: a
    /// bug.
    #[error(transparent)]
    Failure(#[from] taut_sim::Failure),
    /// The scenario asks for something that the runner does not support.
    #[error("{0}")]
    Impossible(String),
    /// The caller stopped it.
    #[error("interrupted")]
    Interrupted,
}
