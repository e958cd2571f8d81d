//! Runs all variants of a scenario with all seeds, on several threads. Called by the command.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use taut_testbed::has_qdisc;

use crate::data::{Engine, RunData, RunSet};
use crate::job::{Job, LiveDevice, Outcome, RunError};
use crate::output::files::{Directory, FileError};
use crate::output::table;
use crate::scenario::{Document, LoadError, Variation};
use crate::{live, sim};

/// Why this sender cannot run it, if it cannot: the kernel may lack a congestion control that the stack has,
/// or a queue discipline. In a live run of the stack, the kernel sends the flows beside.
fn lacks(engine: Engine, device: LiveDevice, variation: &Variation) -> Option<String> {
    let scenario = &variation.scenario;
    if engine == Engine::Sim {
        return None;
    }
    if device == LiveDevice::Packet && !variation.live && variation.packet {
        let qdisc = scenario.hosts.sender.qdisc.as_ref()?;
        let kind = qdisc.text.split_whitespace().next()?;
        if !has_qdisc(kind) {
            return Some(format!("{}: this kernel has no queue discipline {kind}", variation.variant));
        }
    }
    let names = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").ok()?;
    let names: Vec<&str> = names.split_whitespace().collect();
    let mut texts = scenario.congestion_texts(|flow| engine == Engine::Linux || flow.beside);
    let missing = texts.find(|text| !names.contains(&text.as_str()))?;
    Some(format!("this kernel has no {missing}, only {}", names.join(", ")))
}

/// What to run, and how.
pub struct Plan<'a> {
    /// The scenario.
    pub document: &'a Document,
    /// Seeds from 1; the scenario's own number if not given.
    pub seeds: Option<u32>,
    /// Number of live runs, if different.
    pub live_seeds: Option<u32>,
    /// Threads.
    pub threads: usize,
    /// Where files go, if anywhere.
    pub out: Option<&'a Path>,
    /// What the packets of live runs' senders leave by.
    pub device: LiveDevice,
    /// Stack and applications of live runs ask for real-time priority.
    pub real_time: bool,
    /// The command line.
    pub command: String,
    /// Only these variants; all if empty.
    pub variants: Vec<String>,
    /// The engines that run them. The kernel runs only variants that are meant for comparison with it.
    pub engines: Vec<Engine>,
    /// Returns wall-clock time as RFC 3339, and seconds since a fixed point, for metadata.
    pub clock: &'a (dyn Fn() -> (String, f64) + Sync),
    /// Called with a job's number from 0, the job, and the share of it that is done; returns whether to
    /// continue.
    pub progress: &'a (dyn Fn(usize, &Job, f64) -> bool + Sync),
}

/// Why there are no results.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The scenario is invalid.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A run failed.
    #[error("{job}: {error}")]
    Run {
        /// The job.
        job: String,
        /// The reason.
        error: RunError,
    },
    /// The results cannot be written.
    #[error(transparent)]
    Files(#[from] FileError),
}

impl PlanError {
    /// Whether the caller stopped it.
    #[must_use]
    pub const fn is_interrupted(&self) -> bool {
        matches!(self, Self::Run { error: RunError::Interrupted, .. })
    }
}

impl Plan<'_> {
    /// The runs of this plan.
    ///
    /// # Errors
    /// As [`Document::variations`].
    pub fn jobs(&self) -> Result<Vec<Job>, LoadError> {
        let mut jobs = Vec::new();
        for variation in self.document.variations()? {
            if !self.variants.is_empty() && !self.variants.contains(&variation.variant) {
                continue;
            }
            for &engine in &self.engines {
                let seeds = self.live_seeds.filter(|_| engine != Engine::Sim).or(self.seeds);
                let seeds = seeds.unwrap_or(variation.scenario.seeds);
                let runs_live = variation.live || (variation.packet && self.device == LiveDevice::Packet);
                let means_something = match engine {
                    Engine::Sim => true,
                    Engine::Live => runs_live,
                    Engine::Linux => runs_live && variation.linux,
                };
                if !means_something || lacks(engine, self.device, &variation).is_some() {
                    continue;
                }
                jobs.extend((1..=u64::from(seeds)).map(|seed| Job {
                    scenario: self.document.name.clone(),
                    variation: variation.clone(),
                    seed,
                    engine,
                    // Everything is kept for the first seed; only the figures for the others.
                    keep: seed == 1 && self.out.is_some(),
                    device: self.device,
                    real_time: self.real_time,
                    command: self.command.clone(),
                }));
            }
        }
        // Live runs share the machine, so they come after the simulated ones, one after the other.
        jobs.sort_by_key(|job| job.engine != Engine::Sim);
        Ok(jobs)
    }

    /// The runs that are not possible here, and why, one line each.
    ///
    /// # Errors
    /// As [`Document::variations`].
    pub fn left_out(&self) -> Result<Vec<String>, LoadError> {
        let mut lines: Vec<String> = Vec::new();
        for variation in self.document.variations()? {
            let lacking = self.engines.iter().filter_map(|engine| lacks(*engine, self.device, &variation));
            let nic = &variation.scenario.hosts.sender.nic;
            let is_early = self.device == LiveDevice::Packet && nic.tx_usecs.is_some_and(|us| us > 0);
            let early = "nic.tx-usecs: a pair of virtual Ethernet interfaces delays no completion".to_owned();
            for line in lacking.chain(is_early.then_some(early)) {
                if !lines.contains(&line) {
                    lines.push(line);
                }
            }
        }
        Ok(lines)
    }

    /// Runs the jobs, and returns the results and where their files are.
    ///
    /// # Errors
    /// As [`PlanError`]; then nothing is left behind.
    pub fn run(&self) -> Result<(RunSet, Option<std::path::PathBuf>), PlanError> {
        let jobs = self.jobs()?;
        let directory = self.out.map(|out| Directory::new(out, &self.document.name)).transpose()?;
        let next = AtomicUsize::new(0);
        let done: Mutex<Vec<(usize, RunData)>> = Mutex::default();
        let failed: Mutex<Option<PlanError>> = Mutex::default();
        let simulated = jobs.iter().filter(|job| job.engine == Engine::Sim).count();
        let work = |until: usize| {
            while failed.lock().map_or(true, |failed| failed.is_none()) {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(job) = jobs.get(number).filter(|_| number < until) else { return };
                let result = self.one(number, job, directory.as_ref());
                match result {
                    Ok(data) => {
                        if let Ok(mut done) = done.lock() {
                            done.push((number, data));
                        }
                    }
                    Err(error) => {
                        if let Ok(mut failed) = failed.lock() {
                            failed.get_or_insert(error);
                        }
                        return;
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            // This thread is one of the workers.
            for _ in 1..self.threads.clamp(1, simulated.max(1)) {
                scope.spawn(|| work(simulated));
            }
            work(simulated);
        });
        next.store(simulated, Ordering::Relaxed);
        work(jobs.len());
        let failed = failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(error) = failed {
            return Err(error);
        }
        let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        done.sort_by_key(|(number, _)| *number);
        let runs = done.into_iter().map(|(_, data)| data).collect();
        let set = table::set(self.document, runs)?;
        let place = directory.map(|directory| directory.finish(&set)).transpose()?;
        Ok((set, place))
    }

    fn one(&self, number: usize, job: &Job, directory: Option<&Directory>) -> Result<RunData, PlanError> {
        let (began, start) = (self.clock)();
        let progress = |share: f64| (self.progress)(number, job, share);
        let mut outcome: Outcome = match job.engine {
            Engine::Sim => sim::run(job, &progress),
            Engine::Live | Engine::Linux => live::run(job, &progress),
        }
        .map_err(|error| PlanError::Run { job: job.label(), error })?;
        let meta = &mut outcome.data.meta;
        meta.began = Some(began);
        meta.took_s = Some((self.clock)().1 - start);
        match directory {
            Some(directory) => Ok(directory.run(outcome)?),
            None => Ok(outcome.data),
        }
    }
}
