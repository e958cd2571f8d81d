//! How `run` and `sweep` carry out their runs: the options that they share, and running a scenario with
//! progress on standard error until it ends or Ctrl-C stops it. Called by `run.rs` and `sweep.rs`.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use taut_device::sys::monotonic_ns;
use taut_testbed::allow_namespaces;

use crate::shared::date;
use crate::shared::interrupt::{self, Interrupted};
use taut_lab::data::{Engine, RunSet};
use taut_lab::job::{Job, LiveDevice};
use taut_lab::runner::{Plan, PlanError};
use taut_lab::scenario::{Change, Document};

/// The sender in live runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LiveSender {
    /// taut, to the kernel
    Taut,
    /// The kernel, to itself, over the same link
    Kernel,
}

/// The sender's device in live runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum DeviceArg {
    /// A TUN: taut's own queue is in front of it, the kernel's tbf on it
    Tun,
    /// An Ethernet interface whose queue is the kernel's tbf, for both senders; taut uses it by packet
    /// sockets
    Packet,
}

/// Options of `run` and `sweep` alike.
#[derive(Args, Debug)]
pub(super) struct HowArgs {
    /// Change a value, such as link.rate=1gbit; repeatable
    #[arg(long = "set", value_name = "PATH=VALUE")]
    sets: Vec<String>,
    /// Run only this case
    #[arg(long, value_name = "NAME")]
    pub(super) case: Option<String>,
    /// Runs of each variant, with seeds 1 to N
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    seeds: Option<u32>,
    /// Live runs of each variant, if other than --seeds
    #[arg(long, value_name = "N", requires = "live", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    live_seeds: Option<u32>,
    /// Runs at the same time [default: the number of processors]
    #[arg(short, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Also run live, taut and the kernel in private namespaces
    #[arg(long)]
    live: bool,
    /// Device of the sender in live runs: tun or packet
    #[arg(long, value_enum, requires = "live", default_value = "tun", hide_possible_values = true)]
    device: DeviceArg,
    /// Use only this sender in live runs: taut or kernel
    #[arg(long, value_enum, requires = "live", hide_possible_values = true)]
    sender: Option<LiveSender>,
    /// Do not simulate
    #[arg(long, requires = "live")]
    only_live: bool,
    /// Real-time priority for stack and applications in live runs
    #[arg(long, requires = "live")]
    real_time: bool,
}

impl HowArgs {
    /// The engines that run the scenario.
    pub(super) fn engines(&self) -> Vec<Engine> {
        let mut engines = if self.only_live { Vec::new() } else { vec![Engine::Sim] };
        if self.live {
            engines.extend((self.sender != Some(LiveSender::Kernel)).then_some(Engine::Live));
            engines.extend((self.sender != Some(LiveSender::Taut)).then_some(Engine::Linux));
        }
        engines
    }

    /// The changes that the command line makes.
    pub(super) fn changes(&self) -> anyhow::Result<Vec<Change>> {
        Ok(self.sets.iter().map(|set| Change::parse(set)).collect::<Result<_, _>>()?)
    }

    /// The same options for the Python package, as far as it has them.
    pub(super) fn as_python(&self) -> Vec<String> {
        let mut words: Vec<String> =
            self.sets.iter().flat_map(|set| ["--set", set]).map(str::to_owned).collect();
        words.extend(self.case.iter().flat_map(|case| ["--case", case]).map(str::to_owned));
        words.extend(self.seeds.iter().flat_map(|seeds| ["--seeds".to_owned(), seeds.to_string()]));
        words
    }

    /// Prepares live runs before anything starts a thread: an ordinary user can enter a user namespace only
    /// then.
    pub(super) fn prepare<'a>(
        &self,
        mut documents: impl Iterator<Item = &'a Document>,
    ) -> anyhow::Result<()> {
        if !self.live {
            return Ok(());
        }
        documents.try_for_each(|document| {
            if document.base()?.live {
                return Ok(());
            }
            bail!("{} is for simulation only: its file does not have live = true", document.name)
        })?;
        allow_namespaces().context("no private network namespace")
    }
}

/// Returns a flag that becomes true when the process is asked to end.
fn watch_for_the_end() -> io::Result<&'static AtomicBool> {
    static ASKED: AtomicBool = AtomicBool::new(false);
    interrupt::when_asked(|| ASKED.store(true, Ordering::Relaxed))?;
    Ok(&ASKED)
}

/// Shows the progress of runs, and stops them.
pub(super) struct Watch {
    pub(super) bar: ProgressBar,
    asked: &'static AtomicBool,
    began_ns: u64,
    command: String,
    /// Lines already printed about what was left out, so that each is printed once.
    shown: Mutex<BTreeSet<String>>,
    /// The bar counts points of a grid rather than runs.
    counts_points: bool,
}

impl Watch {
    pub(super) fn new() -> anyhow::Result<Self> {
        let asked = watch_for_the_end()?;
        let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
        let command = format!("{} {}", crate::shared::exit::program(), words.collect::<Vec<_>>().join(" "));
        Ok(Self {
            bar: bar(),
            asked,
            began_ns: monotonic_ns(),
            command,
            shown: Mutex::default(),
            counts_points: false,
        })
    }

    /// From now on, the bar shows how many of so many points are done.
    pub(super) fn count_points(&mut self, points: usize) {
        self.counts_points = true;
        self.bar.set_length(points as u64);
        self.bar.set_position(0);
    }

    /// Runs one scenario with all its variants and seeds.
    pub(super) fn run(
        &self,
        document: &Document,
        how: &HowArgs,
        out: Option<&Path>,
        variants: &[String],
        engines: &[Engine],
        (seeds, live_seeds): (Option<u32>, Option<u32>),
    ) -> anyhow::Result<(RunSet, Option<PathBuf>)> {
        let threads = how.jobs.map_or_else(cpus, usize::from);
        let shares: Mutex<Vec<f64>> = Mutex::default();
        let tell = |number: usize, job: &Job, share: f64| {
            let mut shares = shares.lock().unwrap_or_else(PoisonError::into_inner);
            if shares.len() <= number {
                shares.resize(number + 1, 0.0);
            }
            shares[number] = share;
            if !self.counts_points {
                self.bar.set_position((shares.iter().sum::<f64>() * 100.0) as u64);
            }
            self.bar.set_message(job.label());
            !self.asked.load(Ordering::Relaxed)
        };
        let clock = || (date::rfc3339_now(), (monotonic_ns() - self.began_ns) as f64 / 1e9);
        let plan = Plan {
            document,
            seeds: how.seeds.or(seeds),
            live_seeds: how.live_seeds.or(live_seeds),
            threads,
            out,
            device: match how.device {
                DeviceArg::Tun => LiveDevice::Tun,
                DeviceArg::Packet => LiveDevice::Packet,
            },
            real_time: how.real_time,
            command: self.command.clone(),
            variants: variants.to_vec(),
            engines: engines.to_vec(),
            clock: &clock,
            progress: &tell,
        };
        let jobs = plan.jobs()?.len();
        let left_out = plan.left_out()?;
        if jobs == 0 && !left_out.is_empty() {
            bail!("{}: {}", document.name, left_out.join("; "));
        }
        if jobs == 0 {
            bail!("{} has no variant called {}", document.name, variants.join(" or "));
        }
        for line in left_out {
            let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
            if shown.insert(line.clone()) {
                self.bar.suspend(|| eprintln!("left out: {line}"));
            }
        }
        if !self.counts_points {
            self.bar.set_length(jobs as u64 * 100);
            self.bar.set_position(0);
        }
        plan.run().map_err(|error| match error {
            error if error.is_interrupted() => Interrupted.into(),
            error @ PlanError::Files(_) => {
                anyhow!(
                    "{error}\n  Name another directory with --out DIR, or leave no files with --no-files."
                )
            }
            error => error.into(),
        })
    }
}

/// A progress bar in hundredths of the work, whose amount is set later; hidden when standard error is not a
/// terminal.
fn bar() -> ProgressBar {
    let template = "{prefix}{bar:30} {percent:>3} % {elapsed} ETA {eta} {msg}";
    // If the template cannot be parsed, the bar looks different, but the run is not affected.
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(100).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
