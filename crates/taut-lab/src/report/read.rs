//! Reads the files that a run left in a directory: that of a scenario with all its runs, or that of one run.
//!
//! The counterpart of `output/files.rs`, which writes them; docs/reference/lab.md describes the files. Series
//! that do not exist are empty: only the first seed of each variant has them. Called by `taut plot`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::data::{
    AckRow, GATES, GROUPS, Interval, PacketPoint, PointKind, RunData, RunSet, SCHEMA, Series, ShareLine,
    SharePoint, Shares,
};
use crate::output::files::run_name;

/// The file of a scenario's directory.
const SUMMARY: &str = "summary.json";
/// The file of a run's directory.
const RUN: &str = "meta.json";

/// Why a directory cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It is not a directory of the lab.
    #[error(
        "{} is not a run's directory: it has neither {SUMMARY} nor {RUN}; give one that `taut lab run` wrote",
        .0.display()
    )]
    NoRun(PathBuf),
    /// Another version of the lab wrote it.
    #[error(
        "{} has format version {found}, but this taut reads version {SCHEMA}: run the scenario again",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// A file was changed or is incomplete.
    #[error("{} is damaged: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The file system reported an error.
    #[error("cannot read {}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
}

/// Reads the directory of a scenario or of a run.
///
/// # Errors
/// As [`ReadError`].
pub fn read(directory: &Path) -> Result<RunSet, ReadError> {
    let summary = directory.join(SUMMARY);
    if let Some(text) = text(&summary)? {
        let mut set: RunSet = json(&summary, &text, |version: &SetVersion| version.schema)?;
        for run in &mut set.runs {
            let place = directory.join(run_name(run));
            // The summary of a sweep has no run directories.
            if let Some(whole) = one(&place)? {
                *run = whole;
            }
        }
        return Ok(set);
    }
    let Some(run) = one(directory)? else { return Err(ReadError::NoRun(directory.to_owned())) };
    Ok(RunSet {
        schema: SCHEMA,
        scenario: run.meta.scenario.clone(),
        title: [&run.meta.scenario, &run.meta.case, &run.meta.variant]
            .map(String::as_str)
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(", "),
        runs: vec![run],
        ..RunSet::default()
    })
}

/// The version of a set.
#[derive(Deserialize)]
struct SetVersion {
    schema: u32,
}

/// The version of a run.
#[derive(Deserialize)]
struct RunVersion {
    meta: SetVersion,
}

/// A run; `None` if the directory does not contain one.
fn one(directory: &Path) -> Result<Option<RunData>, ReadError> {
    let path = directory.join(RUN);
    let Some(text) = text(&path)? else { return Ok(None) };
    let mut run: RunData = json(&path, &text, |version: &RunVersion| version.meta.schema)?;
    let mut series: BTreeMap<u32, Vec<Interval>> = BTreeMap::new();
    rows(&directory.join("intervals.csv"), |row| {
        series.entry(row.get("flow")?).or_default().push(interval(row)?);
        Ok(())
    })?;
    run.series = series.into_iter().map(|(flow, points)| Series { flow, points }).collect();
    run.shares = shares(directory)?;
    rows(&directory.join("acks.csv"), |row| {
        run.acks.push(ack(row)?);
        Ok(())
    })?;
    rows(&directory.join("packets.csv"), |row| {
        run.packets.push(packet(row)?);
        Ok(())
    })?;
    Ok(Some(run))
}

/// The text of a file; `None` if there is no such file.
fn text(path: &Path) -> Result<Option<String>, ReadError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) if error.kind() == ErrorKind::InvalidData => Err(damaged(path, "it is not text")),
        Err(error) => Err(ReadError::Io { path: path.to_owned(), error }),
    }
}

fn damaged(path: &Path, why: impl Into<String>) -> ReadError {
    ReadError::Damaged { path: path.to_owned(), why: why.into() }
}

/// Reads a value after checking its version: the fields of another version may not fit.
fn json<V: DeserializeOwned, T: DeserializeOwned>(
    path: &Path,
    text: &str,
    version: impl Fn(&V) -> u32,
) -> Result<T, ReadError> {
    let why = |error: serde_json::Error| damaged(path, error.to_string());
    let found = version(&serde_json::from_str(text).map_err(why)?);
    if found != SCHEMA {
        return Err(ReadError::Version { path: path.to_owned(), found });
    }
    serde_json::from_str(text).map_err(why)
}

/// A row of CSV. Fields of these files contain no commas or quotes.
struct Row<'a> {
    columns: &'a BTreeMap<&'a str, usize>,
    fields: Vec<&'a str>,
}

impl Row<'_> {
    fn field(&self, name: &str) -> Result<&str, String> {
        let at = self.columns.get(name).ok_or_else(|| format!("column {name} is missing"))?;
        self.fields.get(*at).copied().ok_or_else(|| format!("field {name} is missing"))
    }

    fn get<T: FromStr>(&self, name: &str) -> Result<T, String> {
        let field = self.field(name)?;
        field.parse().map_err(|_| format!("{name} is {field:?}"))
    }

    /// `None` for an empty field.
    fn maybe<T: FromStr>(&self, name: &str) -> Result<Option<T>, String> {
        if self.field(name)?.is_empty() { Ok(None) } else { self.get(name).map(Some) }
    }
}

/// Calls `take` with each row of a file, if the file exists.
fn rows(path: &Path, mut take: impl FnMut(&Row<'_>) -> Result<(), String>) -> Result<(), ReadError> {
    let Some(text) = text(path)? else { return Ok(()) };
    let mut lines = text.lines();
    let head = lines.next().unwrap_or_default();
    let columns: BTreeMap<&str, usize> = head.split(',').enumerate().map(|(at, name)| (name, at)).collect();
    for (number, line) in lines.enumerate() {
        let row = Row { columns: &columns, fields: line.split(',').collect() };
        // Lines are counted from 1, and the header is one.
        take(&row).map_err(|why| damaged(path, format!("line {}: {why}", number + 2)))?;
    }
    Ok(())
}

fn interval(row: &Row<'_>) -> Result<Interval, String> {
    let mut blocked_s = Vec::new();
    for gate in GATES {
        blocked_s.extend(row.maybe::<f64>(&format!("blocked_{}_s", gate.replace('-', "_")))?);
    }
    Ok(Interval {
        t_s: row.get("t_s")?,
        unsent_bytes: row.get("unsent_bytes")?,
        below_tcp_bytes: row.maybe("below_tcp_bytes")?,
        qdisc_bytes: row.get("qdisc_bytes")?,
        ring_bytes: row.get("ring_bytes")?,
        device_bytes: row.get("device_bytes")?,
        bottleneck_bytes: row.maybe("bottleneck_bytes")?,
        in_flight_bytes: row.get("in_flight_bytes")?,
        cwnd_bytes: row.get("cwnd_bytes")?,
        ssthresh_bytes: row.maybe("ssthresh_bytes")?,
        peer_window_bytes: row.get("peer_window_bytes")?,
        pacing_bps: row.maybe("pacing_bps")?,
        delivery_bps: row.get("delivery_bps")?,
        goodput_bps: row.get("goodput_bps")?,
        srtt_s: row.maybe("srtt_s")?,
        blocked_s,
    })
}

/// What each flow got; the intervals are those of `fairness.csv`.
fn shares(directory: &Path) -> Result<Shares, ReadError> {
    let mut points: Vec<SharePoint> = Vec::new();
    rows(&directory.join("fairness.csv"), |row| {
        let mut fairness_of = [None; GROUPS];
        for (group, index) in fairness_of.iter_mut().enumerate() {
            *index = row.maybe(&format!("fairness_of_{group}"))?;
        }
        points.push(SharePoint {
            t_s: row.get("t_s")?,
            flows: row.get("flows")?,
            goodput_bps: row.get("goodput_bps")?,
            fairness: row.maybe("fairness")?,
            fairness_of,
        });
        Ok(())
    })?;
    let mut lines: BTreeMap<u32, Vec<Option<f64>>> = BTreeMap::new();
    let mut at = 0;
    rows(&directory.join("goodput.csv"), |row| {
        let t_s: f64 = row.get("t_s")?;
        // Rows are in order of time.
        while points.get(at).is_some_and(|point| point.t_s < t_s) {
            at += 1;
        }
        if points.get(at).is_none_or(|point| point.t_s != t_s) {
            return Err(format!("fairness.csv has no interval that ends at {t_s}"));
        }
        let line = lines.entry(row.get("flow")?).or_insert_with(|| vec![None; points.len()]);
        line[at] = Some(row.get("goodput_bps")?);
        Ok(())
    })?;
    let lines = lines.into_iter().map(|(flow, goodput_bps)| ShareLine { flow, goodput_bps }).collect();
    Ok(Shares { points, lines })
}

fn ack(row: &Row<'_>) -> Result<AckRow, String> {
    Ok(AckRow {
        t_s: row.get("t_s")?,
        flow: row.get("flow")?,
        acked_bytes: row.get("acked_bytes")?,
        in_flight_bytes: row.get("in_flight_bytes")?,
        unsent_bytes: row.get("unsent_bytes")?,
        below_tcp_bytes: row.get("below_tcp_bytes")?,
        cwnd_bytes: row.get("cwnd_bytes")?,
        ssthresh_bytes: row.maybe("ssthresh_bytes")?,
        peer_window_bytes: row.get("peer_window_bytes")?,
        srtt_s: row.maybe("srtt_s")?,
        min_rtt_s: row.maybe("min_rtt_s")?,
        pacing_bps: row.maybe("pacing_bps")?,
        delivery_bps: row.get("delivery_bps")?,
        ca_state: row.get("ca_state")?,
        blocked: row.get("blocked")?,
    })
}

fn packet(row: &Row<'_>) -> Result<PacketPoint, String> {
    let kind = match row.field("kind")? {
        "data" => PointKind::Data,
        "retransmit" => PointKind::Retransmit,
        "ack" => PointKind::Ack,
        "sack" => PointKind::Sack,
        "window" => PointKind::Window,
        "drop" => PointKind::Drop,
        other => return Err(format!("kind {other:?} is unknown")),
    };
    Ok(PacketPoint {
        t_s: row.get("t_s")?,
        flow: row.get("flow")?,
        seq: row.get("seq")?,
        len: row.get("len")?,
        kind,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Outcome;
    use crate::output::files::Directory;
    use taut_testbed::Scratch;

    fn example() -> RunSet {
        serde_json::from_str(include_str!("../../tests/example.json")).unwrap()
    }

    fn written(scratch: &Scratch, set: &RunSet) -> PathBuf {
        let directory = Directory::new(&scratch.0, &set.scenario).unwrap();
        for run in &set.runs {
            directory.run(Outcome { data: run.clone(), ..Outcome::default() }).unwrap();
        }
        directory.finish(set).unwrap()
    }

    #[test]
    fn what_was_written_is_read_again() {
        let scratch = Scratch::new("read-again");
        let mut set = example();
        // Values that a kernel's TCP leaves out, and a case.
        set.runs[1].series[0].points[3].below_tcp_bytes = None;
        set.runs[1].series[0].points[3].bottleneck_bytes = None;
        set.runs[1].series[0].points[3].blocked_s.clear();
        set.runs[1].meta.case = "100 Mbit/s, no TSO".into();
        let place = written(&scratch, &set);
        assert_eq!(read(&place).unwrap(), set);
        let run = read(&place.join(run_name(&set.runs[1]))).unwrap();
        assert_eq!(run.runs, set.runs[1..]);
        assert_eq!(run.title, "example, 100 Mbit/s, no TSO, after");
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let scratch = Scratch::new("read-errors");
        let error = |path: &Path| read(path).unwrap_err().to_string();
        assert!(
            error(&scratch.0).contains("is not a run's directory: it has neither summary.json nor meta.json")
        );
        assert!(error(&scratch.0.join("missing")).contains("is not a run's directory"));
        let place = written(&scratch, &example());
        let run = place.join(run_name(&example().runs[0]));
        assert!(error(&place.join(SUMMARY)).contains("is not a run's directory"));
        let packets = run.join("packets.csv");
        fs::write(&packets, "t_s,flow,seq,len,kind\n0.1,0,0,1448,data\n0.2,0,x,1448,data\n").unwrap();
        assert!(error(&run).ends_with("packets.csv is damaged: line 3: seq is \"x\""));
        fs::write(&packets, "t_s,flow,seq,kind\n0.1,0,0,data\n").unwrap();
        assert!(error(&run).ends_with("line 2: column len is missing"));
        fs::write(run.join(RUN), r#"{"meta":{"schema":999}}"#).unwrap();
        assert!(error(&run).contains("has format version 999"));
        fs::write(place.join(SUMMARY), "{").unwrap();
        assert!(error(&place).contains("is damaged"));
    }
}
