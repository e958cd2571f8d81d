//! `taut lab`: experiments that files describe, run in the simulator or on a TUN, printed beside published figures.
//!
//! What an experiment is and what it leaves stands in `taut-lab`; here are arguments, progress and Ctrl-C.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use taut_core::congestion::Registry;
use taut_device::sys::monotonic_ns;

use super::interrupt::{self, Interrupted};
use super::{allow_namespaces, date, output};
use crate::data::{Engine, RunSet};
use crate::job::Job;
use crate::runner::{Plan, PlanError};
use crate::scenario::{Change, Document, builtin};
use crate::sweep::{Grid, Results};
use crate::{files, table};

/// Runs experiments, and prints them beside the figures that were published.
#[derive(Args, Debug)]
#[command(
    long_about = "Runs experiments, and prints them beside the figures that were published.\n\n\
        A scenario is a file: a link, hosts, flows, and variants that are compared. Those that come with the program \
        reproduce, in a simulator that runs this very stack, what the commits measured that brought the mechanisms of \
        the send path to Linux. Runs are repeatable: the same scenario with the same seed is the same run.",
    after_help = "Example:\n  taut lab list\n  taut lab run\n  taut lab run tsq --set link.rate=10gbit --seeds 5 --json\n  \
        taut lab run ./my.toml --out results\n  taut lab sweep grid.toml"
)]
pub struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Subcommand, Debug)]
enum LabCommand {
    /// Names the scenarios that come with the program
    #[command(after_help = "Example:\n  taut lab list")]
    List {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Runs scenarios: the five published results without any name
    #[command(after_help = "Example:\n  taut lab run\n  taut lab run tsq pacing --seeds 5\n  \
        taut lab run single-flow --set link.rate=1gbit --set flows.0.count=4\n\n\
        A directory is left for each scenario, with its tables, a report to open in a browser, and of each variant's \
        first seed every event, ACK, interval and packet; docs/lab.md describes them.")]
    Run(RunArgs),
    /// Runs a scenario at every combination of changes
    #[command(
        after_help = "Example, with a file grid.toml:\n  scenario = \"single-flow\"\n  variants = [\"cubic\"]\n  \
        axes = [\n    [\"link.rate=10mbit\", \"link.rate=100mbit\"],\n    [\"link.delay=1ms\", \"link.delay=50ms\"],\n  ]\n\n  \
        taut lab sweep grid.toml --out results"
    )]
    Sweep(SweepArgs),
}

#[derive(Args, Debug)]
struct RunArgs {
    /// Scenarios: names that `taut lab list` shows, or files
    #[arg(value_name = "NAME|FILE")]
    names: Vec<String>,
    #[command(flatten)]
    how: HowArgs,
    /// Where the directories are made
    #[arg(long, value_name = "DIR", default_value = "lab-results")]
    out: PathBuf,
    /// Leave no files
    #[arg(long, conflicts_with = "out")]
    no_files: bool,
    /// Print results as JSON, on standard output
    #[arg(long)]
    json: bool,
}

/// Who sends in live runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LiveSender {
    /// taut, to the kernel
    Taut,
    /// The kernel, to itself, over the same link
    Kernel,
}

#[derive(Args, Debug)]
struct HowArgs {
    /// Change a value of the scenario: link.rate=1gbit, hosts.sender.sysctls.taut.tsq=off, flows.0.count=10
    #[arg(long = "set", value_name = "PATH=VALUE")]
    sets: Vec<String>,
    /// Runs of each variant, with seeds 1 to N
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    seeds: Option<u32>,
    /// Live runs of each variant, if other than --seeds
    #[arg(long, value_name = "N", requires = "live", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    live_seeds: Option<u32>,
    /// Runs at the same time; as many as there are processors if not given
    #[arg(short, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Run it on this machine, too: taut and the kernel as senders, over the same emulated link, in namespaces of their
    /// own (as root, or as a user where the kernel allows user namespaces and /dev/net/tun)
    #[arg(long)]
    live: bool,
    /// Only this sender in live runs
    #[arg(long, value_enum, requires = "live")]
    sender: Option<LiveSender>,
}

impl HowArgs {
    fn engines(&self) -> Vec<Engine> {
        let mut engines = vec![Engine::Sim];
        if self.live {
            engines.extend((self.sender != Some(LiveSender::Kernel)).then_some(Engine::Live));
            engines.extend((self.sender != Some(LiveSender::Taut)).then_some(Engine::Linux));
        }
        engines
    }
}

#[derive(Args, Debug)]
struct SweepArgs {
    /// The grid
    grid: PathBuf,
    #[command(flatten)]
    how: HowArgs,
    /// Write sweep.csv and sweep.txt into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print CSV rather than a table
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Print the results of every point as JSON, on standard output
    #[arg(long)]
    json: bool,
}

/// Runs `taut lab`.
///
/// # Errors
/// When a scenario is none, a run fails, or files cannot be written.
pub fn run(args: &LabArgs) -> anyhow::Result<()> {
    match &args.command {
        LabCommand::List { json } => list(*json),
        LabCommand::Run(args) => run_scenarios(args),
        LabCommand::Sweep(args) => sweep(args),
    }
}

fn list(json: bool) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    let mut objects = Vec::new();
    for (name, text) in builtin::ALL {
        let document = Document::parse(name, &builtin_file(name), text, &[], &Registry::default())?;
        let base = document.base()?;
        let takes = base.takes.clone().unwrap_or_default();
        let variants: Vec<&str> = base.variants.iter().map(|variant| variant.name.as_str()).collect();
        objects.push(serde_json::json!({
            "name": name, "title": base.title, "takes": takes, "live": base.live,
            "published": base.source, "variants": variants,
        }));
        rows.push(vec![name.to_owned(), takes, base.title]);
    }
    if json {
        return output::print_json(&objects);
    }
    let name = rows.iter().map(|row| row[0].len()).max().unwrap_or(0);
    let takes = rows.iter().map(|row| row[1].len()).max().unwrap_or(0);
    let text: String =
        rows.iter().map(|row| format!("{:name$}  {:takes$}  {}\n", row[0], row[1], row[2])).collect();
    Ok(output::print(&text)?)
}

/// Where a scenario of the program stands in its source.
fn builtin_file(name: &str) -> String {
    format!("scenarios/{name}.toml")
}

/// A scenario by its name or its file.
fn open(name: &str, relative_to: Option<&Path>, changes: &[Change]) -> anyhow::Result<Document> {
    let path = relative_to.map_or_else(|| PathBuf::from(name), |parent| parent.join(name));
    let is_file = name.ends_with(".toml") || name.contains('/');
    if !is_file {
        let Some(text) = builtin::find(name) else {
            let names: Vec<&str> = builtin::ALL.iter().map(|(name, _)| *name).collect();
            bail!(
                "no scenario is called {name}; there are {}, or name a file that ends in .toml",
                names.join(", ")
            );
        };
        return Ok(Document::parse(name, &builtin_file(name), text, changes, &Registry::default())?);
    }
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let stem = path.file_stem().map_or_else(|| name.to_owned(), |stem| stem.to_string_lossy().into_owned());
    Ok(Document::parse(&stem, &path.display().to_string(), &text, changes, &Registry::default())?)
}

/// Becomes true when the process is asked to end.
fn watch_for_the_end() -> io::Result<&'static AtomicBool> {
    static ASKED: AtomicBool = AtomicBool::new(false);
    interrupt::when_asked(|| ASKED.store(true, Ordering::Relaxed))?;
    Ok(&ASKED)
}

/// Shows how far runs are, and ends them.
struct Watch {
    bar: ProgressBar,
    asked: &'static AtomicBool,
    began_ns: u64,
    command: String,
    /// What was told to be left out, once each.
    told: Mutex<BTreeSet<String>>,
}

impl Watch {
    fn new() -> anyhow::Result<Self> {
        let asked = watch_for_the_end()?;
        let command: Vec<String> =
            std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
        let command = format!("taut {}", command.join(" "));
        Ok(Self { bar: bar(), asked, began_ns: monotonic_ns(), command, told: Mutex::default() })
    }

    /// Runs one scenario with all its variants and seeds.
    fn run(
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
            self.bar.set_position((shares.iter().sum::<f64>() * 100.0) as u64);
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
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            if told.insert(line.clone()) {
                self.bar.suspend(|| eprintln!("left out: {line}"));
            }
        }
        self.bar.set_length(jobs as u64 * 100);
        self.bar.set_position(0);
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

/// Shares of work in hundredths, as many as are set later; silent where standard error is no terminal.
fn bar() -> ProgressBar {
    let template = "{prefix}{bar:30} {percent:>3} % {elapsed} ETA {eta} {msg}";
    // A template that cannot be parsed costs the looks of a bar, never the run.
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(100).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn changes(how: &HowArgs) -> anyhow::Result<Vec<Change>> {
    Ok(how.sets.iter().map(|set| Change::parse(set)).collect::<Result<_, _>>()?)
}

fn run_scenarios(args: &RunArgs) -> anyhow::Result<()> {
    let changes = changes(&args.how)?;
    let names: Vec<&str> = if args.names.is_empty() {
        builtin::ALL.iter().take(builtin::PUBLISHED).map(|(name, _)| *name).collect()
    } else {
        args.names.iter().map(String::as_str).collect()
    };
    // All mistakes before the first run.
    let documents: Vec<Document> =
        names.iter().map(|name| open(name, None, &changes)).collect::<Result<_, _>>()?;
    let out = (!args.no_files).then_some(args.out.as_path());
    let engines = args.how.engines();
    prepare(&args.how, documents.iter())?;
    let watch = Watch::new()?;
    let mut sets = Vec::new();
    for document in &documents {
        let (set, place) = watch.run(document, &args.how, out, &[], &engines, (None, None))?;
        if !args.json {
            let place = place
                .map_or_else(String::new, |place| format!("\n{}\n", place.join("report.html").display()));
            let gap = if sets.is_empty() { "" } else { "\n" };
            let text = format!("{gap}{}{place}", table::text(&set));
            watch.bar.suspend(|| output::print(&text))?;
        }
        sets.push(files::summary(&set));
    }
    watch.bar.finish_and_clear();
    if args.json { output::print_json(&sets) } else { Ok(()) }
}

/// What live runs need, before anything starts a thread: an ordinary user can enter a user namespace only then.
fn prepare<'a>(how: &HowArgs, mut documents: impl Iterator<Item = &'a Document>) -> anyhow::Result<()> {
    if !how.live {
        return Ok(());
    }
    documents.try_for_each(|document| {
        if document.base()?.live {
            return Ok(());
        }
        bail!("{} says nothing on a TUN: it has no live = true", document.name)
    })?;
    allow_namespaces().context("no private network namespace")
}

fn sweep(args: &SweepArgs) -> anyhow::Result<()> {
    let file = args.grid.display().to_string();
    let text = fs::read_to_string(&args.grid).with_context(|| format!("cannot read {file}"))?;
    let grid = Grid::parse(&file, &text)?;
    let changes = changes(&args.how)?;
    let mut points = Vec::new();
    for point in grid.points()? {
        let mut all = changes.clone();
        all.extend(point.changes.iter().cloned());
        if !grid.measure.is_empty() {
            all.push(Change::list("measure", &grid.measure, &format!("{file}: measure")));
        }
        let document = open(&grid.scenario, args.grid.parent(), &all)?;
        points.push((point, document));
    }
    prepare(&args.how, points.iter().map(|(_, document)| document))?;
    let engines = args.how.engines();
    if let Some(out) = &args.out {
        // Now, and not after an hour of runs.
        fs::create_dir_all(out).with_context(|| format!("cannot write into {}", out.display()))?;
    }
    let watch = Watch::new()?;
    let mut results = Results::default();
    let mut sets = Vec::new();
    let count = points.len();
    for (number, (point, document)) in points.into_iter().enumerate() {
        watch.bar.set_prefix(format!("{}/{count} ", number + 1));
        let seeds = (grid.seeds, grid.live_seeds);
        let (set, _) = watch.run(&document, &args.how, None, &grid.variants, &engines, seeds)?;
        results.add(&point, &set);
        if args.json {
            sets.push(serde_json::json!({ "point": point.label, "results": files::summary(&set) }));
        }
    }
    watch.bar.finish_and_clear();
    if let Some(out) = &args.out {
        for (name, text) in [("sweep.csv", results.csv()), ("sweep.txt", &results.text())] {
            let partial = out.join(format!(".{name}.partial-{}", std::process::id()));
            let path = out.join(name);
            let written = fs::write(&partial, text).and_then(|()| fs::rename(&partial, &path));
            written.with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    match (args.json, args.csv) {
        (true, _) => output::print_json(&sets),
        (_, true) => Ok(output::print(results.csv())?),
        _ => Ok(output::print(&results.text())?),
    }
}
