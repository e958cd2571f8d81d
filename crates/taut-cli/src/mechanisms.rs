//! `taut mechanisms`: what each of the five mechanisms of the send path changes, measured on this machine.
//!
//! Each is run as it was before the kernel had it, as it was at first, and as it is. A run has a network namespace of its
//! own, with a TUN, kernel TCP at the far end, and taut at the near one with a queue of its own in front of the device
//! (`bench.rs`): a rate, a wire, late completions. What a run gives is a row of a table (`section.rs`). One file for each
//! mechanism.

mod autocork;
mod autosizing;
mod bench;
mod bulk;
mod lowat;
mod pacing;
mod recorder;
mod section;
mod tsq;

use std::io::{self, Write as _};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;

use crate::clock::Stopwatch;
use crate::progress;
use section::{Row, Section};

/// Measures what each of the five mechanisms of the send path changes: before, at first, today.
#[derive(Args, Debug)]
#[command(
    long_about = "Measures what each of the five mechanisms of the send path changes: before, at first, today.\n\n\
        Each run has a private network namespace (as root, or as a user where the kernel allows user namespaces and \
        /dev/net/tun) with a TUN and plain kernel TCP behind it; taut sends through a queue of its own in front of the \
        TUN, which has a rate, a delay, or late completions. Nothing of it remains afterwards. Published figures, where \
        there are any, stand below each table.",
    after_help = "Example:\n  sudo taut mechanisms\n  sudo taut mechanisms tsq pacing --quick --json > result.json"
)]
pub struct MechanismsArgs {
    /// Which to measure; all of them without any
    #[arg(value_name = "MECHANISM")]
    which: Vec<Mechanism>,
    /// Shorter runs, and fewer of them: shows directions rather than figures
    #[arg(long)]
    quick: bool,
    /// Print the results as JSON, on standard output
    #[arg(long)]
    json: bool,
}

/// The mechanisms, in the order of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Mechanism {
    /// TCP Small Queues: a connection keeps little below TCP
    Tsq,
    /// TSO autosizing: super-packets are as long as a millisecond of the rate
    Autosizing,
    /// Autocorking: small writes wait for the packet before them
    Autocork,
    /// TCP_NOTSENT_LOWAT: a writer is woken when half the mark is unsent
    Lowat,
    /// Internal pacing: packets leave at their time
    Pacing,
    /// What pacing costs a bulk sender where nothing limits it: BBR against CUBIC
    Bulk,
}

impl Mechanism {
    fn runs(self, quick: bool) -> (Section, Vec<Run>) {
        match self {
            Self::Tsq => tsq::runs(quick),
            Self::Autosizing => autosizing::runs(quick),
            Self::Autocork => autocork::runs(quick),
            Self::Lowat => lowat::runs(quick),
            Self::Pacing => pacing::runs(quick),
            Self::Bulk => bulk::runs(quick),
        }
    }
}

/// What is measured in one go: a row, or rows that are compared with each other by turns.
struct Run {
    name: String,
    measure: Box<dyn Fn() -> anyhow::Result<Vec<Row>>>,
}

impl Run {
    fn new(name: impl Into<String>, measure: impl Fn() -> anyhow::Result<Row> + 'static) -> Self {
        Self::by_turns(name, move || measure().map(|row| vec![row]))
    }

    fn by_turns(name: impl Into<String>, measure: impl Fn() -> anyhow::Result<Vec<Row>> + 'static) -> Self {
        Self { name: name.into(), measure: Box::new(measure) }
    }
}

/// Runs `taut mechanisms`.
///
/// # Errors
/// When there is no namespace or TUN to be had, or when a measurement fails, after the others have been shown.
pub fn run(args: &MechanismsArgs) -> anyhow::Result<()> {
    let watch = Stopwatch::start();
    // Before anything starts a thread: an ordinary user can enter a user namespace only then.
    taut_testbed::allow_namespaces().context("no private network namespace")?;
    let mut which = args.which.clone();
    which.sort_unstable();
    which.dedup();
    if which.is_empty() {
        which.extend(Mechanism::value_variants());
    }
    let load_before = load();
    let plans: Vec<_> = which.iter().map(|mechanism| mechanism.runs(args.quick)).collect();
    let bar = progress::steps(plans.iter().map(|(_, runs)| runs.len() as u64).sum());
    let mut failures = Vec::new();
    let sections: Vec<_> =
        plans.into_iter().map(|(section, runs)| measure(section, &runs, &bar, &mut failures)).collect();
    bar.finish_and_clear();

    let seconds = watch.elapsed().as_secs_f64();
    let machine = Machine { load_before, load_after: load(), cpus: cpus() };
    let text = if args.json {
        let sections: Vec<_> = sections.iter().map(Section::json).collect();
        let object = serde_json::json!({
            "quick": args.quick, "mechanisms": sections, "failures": failures, "seconds": seconds,
            "cpus": machine.cpus, "load_before": machine.load_before, "load_after": machine.load_after,
        });
        format!("{object:#}\n")
    } else {
        let sections: Vec<_> = sections.iter().map(Section::text).collect();
        format!("{}\n{seconds:.0} s in all, {}.\n", sections.join("\n"), machine.words())
    };
    match io::stdout().write_all(text.as_bytes()) {
        // Whoever reads has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        written => written?,
    }
    if failures.is_empty() {
        return Ok(());
    }
    bail!("{} of the measurements failed:\n  {}", failures.len(), failures.join("\n  "))
}

/// What else may explain the figures.
struct Machine {
    cpus: usize,
    load_before: Option<f64>,
    load_after: Option<f64>,
}

impl Machine {
    fn words(&self) -> String {
        let load = |load: Option<f64>| load.map_or_else(|| "unknown".to_owned(), |load| format!("{load:.1}"));
        let (before, after) = (load(self.load_before), load(self.load_after));
        format!("on {} CPUs; the machine's load was {before} before and {after} after", self.cpus)
    }
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Mean number of threads that ran or wanted to, over the last minute.
fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

fn measure(mut section: Section, runs: &[Run], bar: &ProgressBar, failures: &mut Vec<String>) -> Section {
    for run in runs {
        let name = format!("{}: {}", section.name, run.name);
        bar.set_message(name.clone());
        match (run.measure)() {
            Ok(rows) => section.rows.extend(rows),
            Err(error) => failures.push(format!("{name}: {error:#}")),
        }
        bar.inc(1);
    }
    section
}
