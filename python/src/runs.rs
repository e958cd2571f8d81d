//! Runs a scenario with all its variants and seeds, on several threads, without the interpreter's lock. The
//! thread that called looks at Python's signals and reports progress. Called by `lib.rs`; `results.rs` makes
//! tables of what comes out.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use pyo3::prelude::*;
use taut_lab::data::Engine;
use taut_lab::job::{Job, LiveDevice, Outcome, RunError};
use taut_lab::scenario::{Document, LoadError};
use taut_lab::sim;

use crate::controller::Trouble;

/// How often the calling thread looks at signals and reports progress.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Which runs are to keep events, packets and rows of ACKs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    None,
    /// The first of each case and variant.
    First,
    All,
}

/// What to run.
pub(crate) struct Plan {
    pub(crate) document: Document,
    pub(crate) seeds: Option<u32>,
    pub(crate) seed_from: u64,
    /// Only these; all if empty.
    pub(crate) variants: Vec<String>,
    pub(crate) cases: Vec<String>,
    pub(crate) keep: Keep,
    pub(crate) threads: usize,
}

/// Why there are no results.
pub(crate) enum PlanError {
    Load(LoadError),
    Run {
        job: String,
        error: RunError,
    },
    /// A name that the scenario does not have.
    Name(String),
    /// An exception of a controller, of the progress function, or a signal's.
    Raised(PyErr),
}

impl Plan {
    fn jobs(&self) -> Result<Vec<Job>, PlanError> {
        let variations = self.document.variations().map_err(PlanError::Load)?;
        for (what, asked, there) in [
            ("variant", &self.variants, variations.iter().map(|v| v.variant.as_str()).collect::<Vec<_>>()),
            ("case", &self.cases, variations.iter().map(|v| v.case.as_str()).collect()),
        ] {
            if let Some(name) = asked.iter().find(|name| !there.contains(&name.as_str())) {
                let mut names: Vec<&str> = Vec::new();
                for name in &there {
                    if !names.contains(name) {
                        names.push(name);
                    }
                }
                return Err(PlanError::Name(format!(
                    "{} has no {what} {name:?}; there are {names:?}",
                    self.document.name
                )));
            }
        }
        let mut jobs = Vec::new();
        for variation in variations {
            let is_in = |names: &[String], name: &String| names.is_empty() || names.contains(name);
            if !is_in(&self.variants, &variation.variant) || !is_in(&self.cases, &variation.case) {
                continue;
            }
            let seeds = u64::from(self.seeds.unwrap_or(variation.scenario.seeds));
            for seed in (self.seed_from..).take(seeds as usize) {
                jobs.push(Job {
                    scenario: self.document.name.clone(),
                    variation: variation.clone(),
                    seed,
                    engine: Engine::Sim,
                    keep: match self.keep {
                        Keep::None => false,
                        Keep::First => seed == self.seed_from,
                        Keep::All => true,
                    },
                    device: LiveDevice::default(),
                    real_time: false,
                    command: "taut_lab.run".to_owned(),
                });
            }
        }
        Ok(jobs)
    }

    /// Runs all of it. `progress` is called with the runs done, a fraction for those under way, and their
    /// number.
    pub(crate) fn run(
        &self,
        py: Python<'_>,
        trouble: &Trouble,
        progress: Option<&Py<PyAny>>,
    ) -> Result<Vec<Outcome>, PlanError> {
        let jobs = self.jobs()?;
        py.detach(|| run(&jobs, self.threads, trouble, progress))
    }
}

fn run(
    jobs: &[Job],
    threads: usize,
    trouble: &Trouble,
    progress: Option<&Py<PyAny>>,
) -> Result<Vec<Outcome>, PlanError> {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let shares: Vec<AtomicU64> = jobs.iter().map(|_| AtomicU64::new(0)).collect();
    let mut outcomes: Vec<Option<Outcome>> = jobs.iter().map(|_| None).collect();
    let mut failed: Option<PlanError> = None;
    let report = || -> PyResult<()> {
        Python::attach(|py| {
            py.check_signals()?;
            let Some(progress) = progress else { return Ok(()) };
            let done: f64 = shares.iter().map(|share| f64::from_bits(share.load(Ordering::Relaxed))).sum();
            progress.call1(py, (done, jobs.len())).map(drop)
        })
    };
    std::thread::scope(|scope| {
        let (sender, results) = channel();
        for _ in 0..threads.clamp(1, jobs.len().max(1)) {
            let sender = sender.clone();
            let (next, stop, shares) = (&next, &stop, &shares);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(number).filter(|_| !stop.load(Ordering::Relaxed)) else {
                        return;
                    };
                    let goes_on = |share: f64| {
                        shares[number].store(share.to_bits(), Ordering::Relaxed);
                        !stop.load(Ordering::Relaxed) && !trouble.is_there()
                    };
                    let result = sim::run(job, &goes_on);
                    shares[number].store(1f64.to_bits(), Ordering::Relaxed);
                    if sender.send((number, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        // Ends when the last thread has dropped its sender.
        loop {
            match results.recv_timeout(LOOK_EVERY) {
                Ok((number, Ok(outcome))) => outcomes[number] = Some(outcome),
                Ok((number, Err(error))) => {
                    stop.store(true, Ordering::Relaxed);
                    let job = jobs[number].label();
                    failed.get_or_insert(PlanError::Run { job, error });
                }
                Err(RecvTimeoutError::Timeout) => {
                    if failed.is_none()
                        && let Err(error) = report()
                    {
                        stop.store(true, Ordering::Relaxed);
                        failed = Some(PlanError::Raised(error));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    });
    if let Some(error) = trouble.take() {
        return Err(PlanError::Raised(error));
    }
    if let Some(failed) = failed {
        return Err(failed);
    }
    report().map_err(PlanError::Raised)?;
    Ok(outcomes.into_iter().flatten().collect())
}
