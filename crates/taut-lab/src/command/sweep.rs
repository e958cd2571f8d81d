//! `sweep`: runs a scenario at every point of a grid, and prints one table. Called by `command.rs`.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use taut_core::congestion::Registry;

use super::output;
use super::scenarios::open;
use super::watch::{HowArgs, Watch};
use crate::files;
use crate::scenario::Change;
use crate::sweep::{Grid, Results};

/// Arguments of `sweep`.
#[derive(Args, Debug)]
pub(super) struct SweepArgs {
    /// The grid's file
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

/// Runs every point of the grid, and prints a line for each.
pub(super) fn sweep(args: &SweepArgs, controllers: &Registry) -> anyhow::Result<()> {
    let file = args.grid.display().to_string();
    let text = fs::read_to_string(&args.grid).with_context(|| format!("cannot read {file}"))?;
    let grid = Grid::parse(&file, &text)?;
    let changes = args.how.changes()?;
    let mut points = Vec::new();
    for point in grid.points()? {
        let mut all = changes.clone();
        all.extend(point.changes.iter().cloned());
        if !grid.measure.is_empty() {
            all.push(Change::list("measure", &grid.measure, &format!("{file}: measure")));
        }
        let document = open(&grid.scenario, args.grid.parent(), &all, controllers)?;
        points.push((point, document));
    }
    args.how.prepare(points.iter().map(|(_, document)| document))?;
    let engines = args.how.engines();
    if let Some(out) = &args.out {
        // Fail here rather than after an hour of runs.
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
