//! `run`: runs scenarios with all their variants and seeds, prints them beside the published figures, and
//! writes a directory of files for each. Called by `mod.rs`.

use std::path::PathBuf;

use clap::Args;
use taut_core::congestion::Registry;

use super::scenarios::open;
use super::watch::{HowArgs, Watch};
use crate::shared::output;
use taut_lab::scenario::{Document, builtin};
use taut_lab::{files, table};

/// Arguments of `run`.
#[derive(Args, Debug)]
pub(super) struct RunArgs {
    /// Scenarios: names that `list` prints, or files
    #[arg(value_name = "NAME|FILE")]
    names: Vec<String>,
    #[command(flatten)]
    how: HowArgs,
    /// Directory for the results
    #[arg(long, value_name = "DIR", default_value = "lab-results")]
    out: PathBuf,
    /// Write no files
    #[arg(long, conflicts_with = "out")]
    no_files: bool,
    /// Print results as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the scenarios, and prints and writes their results.
pub(super) fn run(args: &RunArgs, controllers: &Registry) -> anyhow::Result<()> {
    let changes = args.how.changes()?;
    let names: Vec<&str> = if args.names.is_empty() {
        builtin::ALL.iter().take(builtin::PUBLISHED).map(|(name, _)| *name).collect()
    } else {
        args.names.iter().map(String::as_str).collect()
    };
    // Report every mistake before the first run.
    let open = |name: &&str| -> anyhow::Result<Document> {
        let document = open(name, None, &changes, controllers)?;
        Ok(args.how.case.as_ref().map_or_else(|| Ok(document.clone()), |case| document.only_case(case))?)
    };
    let documents: Vec<Document> = names.iter().map(open).collect::<Result<_, _>>()?;
    let out = (!args.no_files).then_some(args.out.as_path());
    let engines = args.how.engines();
    args.how.prepare(documents.iter())?;
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
