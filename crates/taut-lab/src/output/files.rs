//! The files that runs leave in a directory (docs/reference/lab.md describes them). Everything is written
//! under a temporary name and renamed when complete, so the final name never holds a half-written result.
//! Called by the command.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::columns;
use crate::data::{GATES, RunData, RunSet, Shares};
use crate::job::Outcome;
use crate::output::flent;
use crate::output::table;
use crate::report;
use crate::scenario::slug;

/// The file that marks a directory as written by the lab.
const SUMMARY: &str = "summary.json";

/// Why a file of a run cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {why}", .path.display())]
pub struct FileError {
    path: PathBuf,
    why: io::Error,
}

/// Adds the path to the result of writing: an error of the system does not name it.
fn at<T>(path: &Path, written: io::Result<T>) -> Result<T, FileError> {
    written.map_err(|why| FileError { path: path.to_owned(), why })
}

fn write(path: &Path, contents: impl AsRef<[u8]>) -> Result<(), FileError> {
    at(path, fs::write(path, contents))
}

#[cfg(feature = "parquet")]
fn in_columns(
    path: &Path,
    data: &RunData,
    write: fn(&Path, &RunData) -> io::Result<()>,
) -> Result<(), FileError> {
    at(path, write(path, data))
}

/// A directory being written. If dropped before it is [finished](Self::finish), it is removed.
#[derive(Debug)]
pub struct Directory {
    partial: PathBuf,
    goal: PathBuf,
    is_done: bool,
}

impl Directory {
    /// Begins a directory for a scenario in `out`, which is created if missing.
    ///
    /// # Errors
    /// Those of the file system, and when something that the lab did not write has that name.
    pub fn new(out: &Path, scenario: &str) -> Result<Self, FileError> {
        at(out, fs::create_dir_all(out))?;
        let goal = out.join(slug(scenario));
        if goal.exists() && !goal.join(SUMMARY).exists() {
            let why = "it exists and was not written by a run: move it away first";
            return at(&goal, Err(io::Error::new(io::ErrorKind::AlreadyExists, why)));
        }
        let partial = out.join(format!(".{}.partial-{}", slug(scenario), std::process::id()));
        at(&partial, fs::create_dir(&partial))?;
        Ok(Self { partial, goal, is_done: false })
    }

    /// Writes the files of a run, and returns the values that are needed later.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn run(&self, outcome: Outcome) -> Result<RunData, FileError> {
        let Outcome { data, events, capture } = outcome;
        let place = self.partial.join(run_name(&data));
        at(&place, fs::create_dir_all(&place))?;
        let rest = RunData {
            meta: data.meta.clone(),
            metrics: data.metrics.clone(),
            flows: data.flows.clone(),
            histograms: data.histograms.clone(),
            counters: data.counters.clone(),
            hosts: data.hosts.clone(),
            left_out: data.left_out.clone(),
            traced: data.traced.clone(),
            ..RunData::default()
        };
        write_json(&place.join("meta.json"), &rest)?;
        write(&place.join("intervals.csv"), intervals(&data))?;
        if !data.shares.points.is_empty() {
            write(&place.join("goodput.csv"), goodput(&data.shares))?;
            write(&place.join("fairness.csv"), fairness(&data.shares))?;
        }
        #[cfg(feature = "parquet")]
        in_columns(&place.join("intervals.parquet"), &data, crate::output::parquet::intervals)?;
        if !data.series.is_empty() {
            write(&place.join("run.flent"), flent::text(&data))?;
        }
        if !events.is_empty() {
            write(&place.join("events.jsonl"), events)?;
        }
        if !capture.is_empty() {
            write(&place.join("capture.pcapng"), capture)?;
        }
        if !data.acks.is_empty() {
            write(&place.join("acks.csv"), acks(&data))?;
            #[cfg(feature = "parquet")]
            in_columns(&place.join("acks.parquet"), &data, crate::output::parquet::acks)?;
        }
        if !data.packets.is_empty() {
            write(&place.join("packets.csv"), packets(&data))?;
        }
        Ok(data)
    }

    /// Writes the files about all runs, and gives the directory its final name.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn finish(mut self, set: &RunSet) -> Result<PathBuf, FileError> {
        write(&self.partial.join("table.txt"), table::text(set))?;
        write(&self.partial.join("table.csv"), table::csv(set))?;
        write(&self.partial.join("report.html"), report::page(set))?;
        for run in &set.runs {
            if !run.acks.is_empty() {
                let one = RunSet { runs: vec![run.clone()], ..without_runs(set) };
                write(&self.partial.join(run_name(run)).join("report.html"), report::page(&one))?;
            }
        }
        write_json(&self.partial.join(SUMMARY), &summary(set))?;
        if self.goal.exists() {
            // Move the old directory away first: a rename onto a directory that is not empty fails.
            let old = self.partial.with_extension("old");
            at(&self.goal, fs::rename(&self.goal, &old))?;
            at(&self.goal, fs::rename(&self.partial, &self.goal))?;
            at(&old, fs::remove_dir_all(&old))?;
        } else {
            at(&self.goal, fs::rename(&self.partial, &self.goal))?;
        }
        self.is_done = true;
        Ok(self.goal.clone())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if !self.is_done {
            // There is no caller to report a failure to.
            let _ = fs::remove_dir_all(&self.partial);
        }
    }
}

fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<(), FileError> {
    let mut text = at(path, serde_json::to_string_pretty(value).map_err(io::Error::from))?;
    text.push('\n');
    write(path, text)
}

fn without_runs(set: &RunSet) -> RunSet {
    RunSet {
        schema: set.schema,
        scenario: set.scenario.clone(),
        title: set.title.clone(),
        about: set.about.clone(),
        source: set.source.clone(),
        table: set.table.clone(),
        runs: Vec::new(),
    }
}

/// A copy of the set without the long lists: series, rows, points.
#[must_use]
pub fn summary(set: &RunSet) -> RunSet {
    let short = |run: &RunData| RunData {
        meta: run.meta.clone(),
        metrics: run.metrics.clone(),
        counters: run.counters.clone(),
        hosts: run.hosts.clone(),
        left_out: run.left_out.clone(),
        ..RunData::default()
    };
    RunSet { runs: set.runs.iter().map(short).collect(), ..without_runs(set) }
}

/// Directory of a run, within that of its scenario.
#[must_use]
pub fn run_name(run: &RunData) -> PathBuf {
    let meta = &run.meta;
    let engine = match meta.engine {
        crate::data::Engine::Sim => "sim",
        crate::data::Engine::Live => "live",
        crate::data::Engine::Linux => "linux",
    };
    let name = format!("{}-{engine}-seed{}", slug(&meta.variant), meta.seed);
    if meta.case.is_empty() { PathBuf::from(name) } else { Path::new(&slug(&meta.case)).join(name) }
}

fn maybe<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn intervals(data: &RunData) -> String {
    let mut out = columns::header(&columns::intervals());
    for series in &data.series {
        for point in &series.points {
            // Writing to a string does not fail.
            let _ = write!(
                out,
                "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
                point.t_s,
                series.flow,
                point.unsent_bytes,
                maybe(point.below_tcp_bytes),
                point.qdisc_bytes,
                point.ring_bytes,
                point.device_bytes,
                maybe(point.bottleneck_bytes),
                point.in_flight_bytes,
                point.cwnd_bytes,
                maybe(point.ssthresh_bytes),
                point.peer_window_bytes,
                maybe(point.pacing_bps),
                point.delivery_bps,
                point.goodput_bps,
                maybe(point.srtt_s),
            );
            for index in 0..GATES.len() {
                let _ = write!(out, ",{}", maybe(point.blocked_s.get(index)));
            }
            out.push('\n');
        }
    }
    out
}

/// A row for each flow that was open, by interval.
fn goodput(shares: &Shares) -> String {
    let mut out = columns::header(&columns::goodput());
    for (at, point) in shares.points.iter().enumerate() {
        for line in &shares.lines {
            if let Some(bps) = line.goodput_bps.get(at).copied().flatten() {
                let _ = writeln!(out, "{},{},{bps}", point.t_s, line.flow);
            }
        }
    }
    out
}

fn fairness(shares: &Shares) -> String {
    let mut out = columns::header(&columns::fairness());
    for point in &shares.points {
        let _ = write!(out, "{},{},{},{}", point.t_s, point.flows, point.goodput_bps, maybe(point.fairness));
        for index in point.fairness_of {
            let _ = write!(out, ",{}", maybe(index));
        }
        out.push('\n');
    }
    out
}

fn acks(data: &RunData) -> String {
    let mut out = columns::header(&columns::acks());
    for row in &data.acks {
        let _ = writeln!(
            out,
            "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
            row.t_s,
            row.flow,
            row.acked_bytes,
            row.in_flight_bytes,
            row.unsent_bytes,
            row.below_tcp_bytes,
            row.cwnd_bytes,
            maybe(row.ssthresh_bytes),
            row.peer_window_bytes,
            maybe(row.srtt_s),
            maybe(row.min_rtt_s),
            maybe(row.pacing_bps),
            row.delivery_bps,
            row.ca_state,
            row.blocked
        );
    }
    out
}

fn packets(data: &RunData) -> String {
    use crate::data::PointKind;
    let mut out = columns::header(&columns::packets());
    for point in &data.packets {
        let kind = match point.kind {
            PointKind::Data => "data",
            PointKind::Retransmit => "retransmit",
            PointKind::Ack => "ack",
            PointKind::Sack => "sack",
            PointKind::Window => "window",
            PointKind::Drop => "drop",
        };
        let _ = writeln!(out, "{},{},{},{},{kind}", point.t_s, point.flow, point.seq, point.len);
    }
    out
}
