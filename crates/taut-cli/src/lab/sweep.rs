//! `sweep`: runs a scenario at every point of a grid, and prints one table. Called by `mod.rs`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, bail};
use clap::Args;
use serde::{Deserialize, Serialize};
use taut_core::congestion::Registry;

use super::scenarios::open;
use super::watch::{HowArgs, Watch};
use crate::shared::output;
use taut_lab::data::{Engine, RunSet};
use taut_lab::scenario::{Change, Document};
use taut_lab::sweep::{Grid, Point, Results, worth_repeating};
use taut_lab::{files, table};

/// Arguments of `sweep`.
#[derive(Args, Debug)]
pub(super) struct SweepArgs {
    /// The grid's file
    grid: PathBuf,
    #[command(flatten)]
    how: HowArgs,
    /// Directory for sweep.csv, sweep.txt and points.jsonl
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Keep the points that --out already has
    #[arg(long, requires = "out")]
    resume: bool,
    /// Run on this Ray cluster, by the Python package taut_lab
    #[arg(long, value_name = "ADDRESS", requires = "out", conflicts_with_all = ["live", "jobs", "json"])]
    ray: Option<String>,
    /// With --ray, a Python file with congestion controllers
    #[arg(long, value_name = "FILE", requires = "ray")]
    controllers: Option<PathBuf>,
    /// Print CSV rather than a table
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Print the results of every point as JSON, on standard output
    #[arg(long)]
    json: bool,
}

/// Runs every point of the grid, and prints a line for each.
pub(super) fn sweep(args: &SweepArgs, controllers: &Registry) -> anyhow::Result<()> {
    if let Some(address) = &args.ray {
        return on_ray(args, address);
    }
    let file = args.grid.display().to_string();
    let text = fs::read_to_string(&args.grid).with_context(|| format!("cannot read {file}"))?;
    let grid = Grid::parse(&file, &text)?;
    let changes = args.how.changes()?;
    let open = |all: &[Change]| open(&grid.scenario, args.grid.parent(), all, controllers);
    let points = grid.documents(&file, &changes, args.how.case.as_deref(), open)?;
    args.how.prepare(points.iter().map(|(_, document)| document))?;
    let engines = args.how.engines();
    if let Some(out) = &args.out {
        // Fail here rather than after an hour of runs.
        fs::create_dir_all(out).with_context(|| format!("cannot write into {}", out.display()))?;
    }
    let mut watch = Watch::new()?;
    watch.count_points(points.len());
    let mut log = match &args.out {
        Some(out) if args.resume => Log::resume(out)?,
        Some(out) => Log::begin(out)?,
        None => Log::default(),
    };
    let left: Vec<_> = points.iter().filter(|(point, _)| log.set(&point.key()).is_none()).collect();
    watch.bar.set_position((points.len() - left.len()) as u64);
    run_all(&watch, args, &grid, &engines, &left, &mut log)?;
    watch.bar.finish_and_clear();
    let (mut results, mut sets) = (Results::new(grid.spread), Vec::new());
    for (point, _) in &points {
        let Some(set) = log.set(&point.key()) else { continue };
        results.add(point, set);
        if args.json {
            sets.push(serde_json::json!({ "point": point.label, "results": files::summary(set) }));
        }
    }
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
        (_, true) => output::print(results.csv()),
        _ => output::print(&results.text()),
    }
}

/// Runs the grid on a cluster, in the place of this process: signals and the exit code are then Python's.
fn on_ray(args: &SweepArgs, address: &str) -> anyhow::Result<()> {
    let python = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    let mut command = Command::new(&python);
    command.args(["-m", "taut_lab", "sweep"]).arg(&args.grid).args(["--on", address]);
    command.args(args.out.iter().flat_map(|out| ["--out".as_ref(), out.as_os_str()]));
    command.args(args.how.as_python());
    command.args(args.controllers.iter().flat_map(|file| ["--controllers".as_ref(), file.as_os_str()]));
    command.args(args.csv.then_some("--csv"));
    let error = command.exec();
    Err(error).with_context(|| {
        let python = python.display();
        format!(
            "cannot start {python}: --ray needs Python with the packages taut_lab and ray (docs/guide/python.md)"
        )
    })
}

/// Runs the points, several at once if the grid says so, and logs each when it is done.
fn run_all(
    watch: &Watch,
    args: &SweepArgs,
    grid: &Grid,
    engines: &[Engine],
    points: &[&(Point, Document)],
    log: &mut Log,
) -> anyhow::Result<()> {
    let (next, log) = (AtomicUsize::new(0), Mutex::new(log));
    let failed: Mutex<Option<anyhow::Error>> = Mutex::default();
    let has_failed = || failed.lock().map_or(true, |failed| failed.is_some());
    let work = || {
        while !has_failed() {
            let Some((point, document)) = points.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
            let done = run_point(watch, args, grid, engines, document).and_then(|set| {
                let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
                log.add(&point.key(), set)
            });
            match done {
                Ok(()) => watch.bar.inc(1),
                Err(error) => {
                    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            }
        }
    };
    let workers = usize::from(grid.points_at_once.unwrap_or(1)).clamp(1, points.len().max(1));
    std::thread::scope(|scope| {
        for _ in 1..workers {
            scope.spawn(work);
        }
        work();
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

fn run_point(
    watch: &Watch,
    args: &SweepArgs,
    grid: &Grid,
    engines: &[Engine],
    document: &Document,
) -> anyhow::Result<RunSet> {
    let run = |engines: &[Engine], live_seeds| {
        let seeds = (grid.seeds, live_seeds);
        watch.run(document, &args.how, None, &grid.variants, engines, seeds).map(|(set, _)| set)
    };
    let mut set = run(engines, grid.live_seeds)?;
    let link_mbps = document.base()?.link.rate.value.bits_per_second() as f64 / 1e6;
    let repeats = grid.live_repeats.filter(|_| worth_repeating(&set, link_mbps));
    if let Some(repeats) = repeats {
        let live: Vec<Engine> = engines.iter().copied().filter(|engine| *engine != Engine::Sim).collect();
        let mut runs = set.runs;
        runs.retain(|run| run.meta.engine == Engine::Sim);
        runs.extend(run(&live, Some(repeats))?.runs);
        set = table::set(document, runs)?;
    }
    Ok(set)
}

/// The points that are done, in a file: `points.jsonl`, a line each.
#[derive(Default)]
struct Log {
    file: Option<(fs::File, PathBuf)>,
    sets: BTreeMap<String, RunSet>,
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct Line<'a> {
    point: Cow<'a, str>,
    set: Cow<'a, RunSet>,
}

impl Log {
    const NAME: &str = "points.jsonl";

    /// An empty file.
    fn begin(out: &Path) -> anyhow::Result<Self> {
        let path = out.join(Self::NAME);
        let file = fs::File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { file: Some((file, path)), sets: BTreeMap::new() })
    }

    /// The points that the file already has. A last line that was cut off is dropped.
    fn resume(out: &Path) -> anyhow::Result<Self> {
        let path = out.join(Self::NAME);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::begin(out),
            read => read.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let mut log = Self::begin(out)?;
        for (number, line) in text.lines().enumerate() {
            match serde_json::from_str::<Line<'_>>(line) {
                Ok(Line { point, set }) => log.add(&point, set.into_owned())?,
                Err(_) if number + 1 == text.lines().count() && !text.ends_with('\n') => {}
                Err(error) => {
                    // Leave the user's file as it was.
                    fs::write(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
                    bail!("{}:{}: {error}", path.display(), number + 1);
                }
            }
        }
        Ok(log)
    }

    fn add(&mut self, point: &str, set: RunSet) -> anyhow::Result<()> {
        if let Some((file, path)) = &mut self.file {
            let line = Line { point: point.into(), set: Cow::Borrowed(&set) };
            let line = serde_json::to_string(&line)? + "\n";
            let written = file.write_all(line.as_bytes());
            written.with_context(|| format!("cannot write {}", path.display()))?;
        }
        self.sets.insert(point.to_owned(), set);
        Ok(())
    }

    fn set(&self, point: &str) -> Option<&RunSet> {
        self.sets.get(point)
    }
}
