//! smoltcp's loop and taut's over the same kind of TUN, by the benchmark `taut-bench` where it is built.
//! Called by `cost.rs`.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use super::part::{Bar, Bars};
use crate::compare::report::median;

/// Where `make bench` leaves it, seen from the project's folder.
const PROGRAM: &str = "benches/target/release/taut-bench";
/// Names of the benchmark, and the names, units and directions here.
const ROWS: [(&str, &str, &str, bool); 4] = [
    ("bulk send, CPU of both sides", "upload by a loop, processor time of both ends", "s/GB", true),
    ("bulk receive, CPU of both sides", "download by a loop, processor time of both ends", "s/GB", true),
    ("round trip, one core, p50", "1-byte exchange of a loop, one core", "µs", true),
    ("connections on one core, stack as client", "connections of a loop, one core", "per s", false),
];

#[derive(Deserialize)]
struct Report {
    series: Vec<Series>,
}

#[derive(Deserialize)]
struct Series {
    measurement: String,
    stack: String,
    samples: Vec<f64>,
}

/// Whether the benchmark is built.
pub(super) fn is_built() -> bool {
    Path::new(PROGRAM).exists()
}

/// One round, in turns with the kernel, in 20 s. smoltcp's buffers and batches are fixed here, where the
/// benchmark tries several.
pub(super) fn beside(time: Duration) -> anyhow::Result<Vec<Bars>> {
    let mut command = Command::new(PROGRAM);
    command.args(["--json", "--rounds", "1", "--only", "send,receive,latency,connections"]);
    command.args(["--smoltcp-buffer", "512", "--smoltcp-batch", "64"]);
    command.args(["--stacks", "kernel,smoltcp,taut loop", "--seconds", &time.as_secs_f64().to_string()]);
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().context(PROGRAM)?;
    ensure!(output.status.success(), "{PROGRAM}: {}", output.status);
    bars(&String::from_utf8_lossy(&output.stdout)).context(PROGRAM)
}

fn bars(text: &str) -> anyhow::Result<Vec<Bars>> {
    let report: Report = serde_json::from_str(text)?;
    let row = |(measurement, what, unit, less_is_better)| {
        let of = |series: &&Series| series.measurement == measurement;
        let bar = |series: &Series| Bar { who: series.stack.clone(), value: median(&series.samples) };
        let values: Vec<Bar> = report.series.iter().filter(of).map(bar).collect();
        ensure!(!values.is_empty(), "no row {measurement:?}");
        Ok(Bars { what, unit, less_is_better, values })
    };
    ROWS.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_medians_by_stack_and_a_missing_one_is_an_error() {
        let series = |(measurement, ..): (&str, &str, &str, bool)| {
            let of = |stack: &str, samples: [f64; 3]| serde_json::json!({ "measurement": measurement, "stack": stack, "samples": samples });
            [of("kernel (veth)", [3.0, 1.0, 2.0]), of("smoltcp loop", [7.0, 9.0, 8.0])]
        };
        let of = |rows: &[(&'static str, &'static str, &'static str, bool)]| {
            let series: Vec<_> = rows.iter().copied().flat_map(series).collect();
            bars(&serde_json::json!({ "series": series, "errors": [] }).to_string())
        };
        let whole = of(&ROWS).unwrap();
        assert_eq!(whole.len(), ROWS.len());
        let found: Vec<(&str, f64)> =
            whole[0].values.iter().map(|bar| (bar.who.as_str(), bar.value)).collect();
        assert_eq!(found, [("kernel (veth)", 2.0), ("smoltcp loop", 8.0)]);
        assert!(of(&ROWS[1..]).unwrap_err().to_string().contains(ROWS[0].0));
    }
}
