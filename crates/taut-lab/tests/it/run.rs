//! Runs in the simulator: the same seed gives the same run, files contain the measured values, and nothing
//! half-written remains.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pcap_parser::traits::PcapReaderIterator as _;
use pcap_parser::{Block, PcapBlockOwned, PcapNGReader};
use taut_core::Duration;
use taut_core::congestion::Registry;
use taut_lab::data::{Engine, RunSet};
use taut_lab::job::{Job, LiveDevice};
use taut_lab::runner::Plan;
use taut_lab::scenario::{Change, Document};
use taut_lab::sim;
use taut_testbed::{Scratch, live};

const TEXT: &str = r#"title = "small"
duration = "400ms"
warm-up = "100ms"
interval = "10ms"
seeds = 2
measure = ["goodput", "retransmits", "rtt_mean"]

[topology]
kind = "dumbbell"
access = "100mbit"
queue = "pfifo limit 30"

[link]
rate = "20mbit"
delay = "5ms"
faults = { loss = 0.002 }

[[flows]]
app = "bulk"

[[flows]]
app = "rr"
think = "5ms"

[[variants]]
name = "cubic"

[[variants]]
name = "reno"
set = { "flows.0.options.congestion" = "reno" }
"#;

fn document() -> Document {
    Document::parse("small", "small.toml", TEXT, &[], &Registry::default()).unwrap()
}

fn job(seed: u64) -> Job {
    Job {
        scenario: "small".into(),
        variation: document().variations().unwrap().remove(0),
        seed,
        engine: Engine::Sim,
        keep: true,
        device: LiveDevice::Tun,
        real_time: false,
        command: "test".into(),
    }
}

/// A program that shows a run while it goes on stops it where it likes, and looks at it.
#[test]
fn a_run_in_steps_is_the_same_run() {
    let whole = sim::run(&job(2), &|_| true).unwrap();
    // Steps of a prime number of microseconds meet neither intervals nor the end of the warm-up.
    let mut run = sim::Simulation::new(&job(2)).unwrap();
    let mut before = run.frame();
    assert_eq!((before.t_s, before.acked_bytes), (0.0, 0));
    let (mut seen, mut waited) = (0, 0.0_f64);
    while run.elapsed() < run.duration() {
        run.advance(run.elapsed() + Duration::from_micros(7_919), &|_| true).unwrap();
        let frame = run.frame();
        assert!(frame.t_s > before.t_s && frame.acked_bytes >= before.acked_bytes, "{before:?} {frame:?}");
        assert!(frame.segments >= before.segments && frame.drops >= before.drops, "{before:?} {frame:?}");
        // A queue of 30 packets of at most 1,500 bytes.
        assert!(frame.bottleneck_bytes.unwrap() <= 45_000, "{frame:?}");
        seen += u32::from(frame.bottleneck_bytes.unwrap() > 30_000);
        waited = waited.max(frame.request_s.unwrap_or(0.0));
        before = frame;
    }
    let end = run.frame();
    let in_steps = run.finish().unwrap();
    assert_eq!(in_steps.data, whole.data);
    // The frames show what the results have: all drops, all that was acknowledged, the longest request.
    let flows = &whole.data.flows;
    assert_eq!(end.acked_bytes, flows.iter().map(|flow| flow.acked_bytes).sum::<u64>());
    assert_eq!(end.retransmitted_bytes, flows.iter().map(|flow| flow.retransmitted_bytes).sum::<u64>());
    assert!(end.drops as f64 >= whole.data.metrics["network_drops"] && end.drops > 0);
    assert!(waited * 1e6 >= whole.data.metrics["latency_max"], "{waited}");
    assert!(seen > 5, "the queue was fuller than half {seen} times");
}

/// All runs, one after the other, without files.
fn plan_of(document: &Document) -> Plan<'_> {
    Plan {
        document,
        seeds: None,
        live_seeds: None,
        threads: 1,
        out: None,
        device: LiveDevice::Tun,
        real_time: false,
        command: "test".into(),
        variants: Vec::new(),
        engines: vec![Engine::Sim],
        clock: &|| ("2026-01-01T00:00:00Z".into(), 0.0),
        progress: &|_, _, _| true,
    }
}

fn plan(out: &Path, threads: usize, goes_on: bool) -> Result<(RunSet, Option<PathBuf>), String> {
    let document = document();
    let progress = |_: usize, _: &Job, share: f64| goes_on || share < 0.5;
    let plan = Plan { threads, out: Some(out), progress: &progress, ..plan_of(&document) };
    plan.run().map_err(|error| error.to_string())
}

/// Contents of every file below a directory, by name.
fn files(at: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![at.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                found.insert(path.strip_prefix(at).unwrap().to_owned(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn equal_seeds_make_equal_directories_whatever_the_threads() {
    let (one, other) = (Scratch::new("one"), Scratch::new("other"));
    let (set, place) = plan(&one.0, 1, true).unwrap();
    plan(&other.0, 3, true).unwrap();
    assert_eq!(place.unwrap(), one.0.join("small"));
    let (one, other) = (files(&one.0), files(&other.0));
    let names: Vec<_> = one.keys().map(|path| path.to_string_lossy().into_owned()).collect();
    for name in [
        "small/summary.json",
        "small/table.csv",
        "small/report.html",
        "small/cubic-sim-seed1/meta.json",
        "small/cubic-sim-seed1/events.jsonl",
        "small/cubic-sim-seed1/acks.csv",
        "small/cubic-sim-seed1/intervals.csv",
        "small/cubic-sim-seed1/capture.pcapng",
        "small/cubic-sim-seed1/report.html",
        "small/reno-sim-seed2/meta.json",
    ] {
        assert!(names.contains(&name.to_owned()), "{name} is not among {names:?}");
    }
    for (name, bytes) in &one {
        assert!(other.get(name) == Some(bytes), "{} differs", name.display());
    }
    assert_eq!(one.len(), other.len());
    // Other seeds give other runs.
    let digests: Vec<_> = set.runs.iter().map(|run| run.meta.digest.clone()).collect();
    assert!(digests[0].is_some() && digests[0] != digests[1], "{digests:?}");
    let summary: RunSet = serde_json::from_slice(&one[Path::new("small/summary.json")]).unwrap();
    assert_eq!(summary.table, set.table);
    assert_eq!(summary.table.columns.len(), 2);
    assert_eq!(summary.table.rows[0].cells[0].as_ref().unwrap().values.len(), 2);
}

#[test]
fn what_is_interrupted_leaves_nothing() {
    let out = Scratch::new("interrupted");
    let error = plan(&out.0, 2, false).unwrap_err();
    assert!(error.contains("interrupted"), "{error}");
    assert_eq!(files(&out.0).len(), 0);
    assert_eq!(fs::read_dir(&out.0).unwrap().count(), 0, "not even an empty directory");
}

#[test]
fn a_result_may_be_replaced_and_nothing_else() {
    let out = Scratch::new("replaced");
    plan(&out.0, 2, true).unwrap();
    plan(&out.0, 2, true).unwrap();
    fs::remove_file(out.0.join("small/summary.json")).unwrap();
    let error = plan(&out.0, 2, true).unwrap_err();
    assert!(error.contains("was not written by a run"), "{error}");
    assert!(out.0.join("small/table.txt").exists());
}

#[test]
fn intervals_add_up_to_the_run() {
    let data = sim::run(&job(1), &|_| true).unwrap().data;
    let bulk = &data.flows[0];
    let points = &data.series[0].points;
    assert_eq!(points.len(), 40);
    for (number, point) in points.iter().enumerate() {
        assert!((point.t_s - 0.01 * (number + 1) as f64).abs() < 1e-9);
        assert!(point.blocked_s.iter().sum::<f64>() < 0.010_001, "{point:?}");
    }
    // Goodput times length, summed over the intervals, is the acknowledged payload.
    let bits: f64 = points.iter().map(|point| point.goodput_bps * 0.01).sum();
    assert!((bits / 8.0 - bulk.acked_bytes as f64).abs() < 1.0, "{bits} {bulk:?}");
    let measured: f64 = points[10..].iter().map(|point| point.goodput_bps * 0.01).sum();
    assert!((measured / 0.3 - bulk.goodput_bps).abs() < 1.0);
    // The most possible: 20 Mbit/s of packets of 1500 bytes in frames of 1538, of which 1448 are payload.
    let most = 20e6 * 1_448.0 / 1_538.0 * 0.4 / 8.0;
    let acked = bulk.acked_bytes as f64;
    assert!(acked < most && acked > most * 0.5, "{acked} of {most}");
    // The round trip takes at least as long as the wires.
    assert!(data.metrics["rtt_mean"] > 10.0, "{:?}", data.metrics);
    assert!(points.iter().any(|point| point.bottleneck_bytes.is_some_and(|bytes| bytes > 1_500)));
}

#[test]
fn without_a_warm_up_everything_counts() {
    // Long intervals, so that much has been acknowledged at the end of the first.
    let changes = ["warm-up=0s", "interval=200ms"].map(|change| Change::parse(change).unwrap());
    let document = Document::parse("small", "small.toml", TEXT, &changes, &Registry::default()).unwrap();
    let job = Job { variation: document.variations().unwrap().remove(0), ..job(1) };
    let data = sim::run(&job, &|_| true).unwrap().data;
    let acked: u64 = data.flows.iter().map(|flow| flow.acked_bytes).sum();
    let counted = data.metrics["goodput"] * 1e6 / 8.0 * 0.4;
    assert!((counted - acked as f64).abs() < 1.0, "{counted} of {acked}");
    // Both of the sender's connections began in that time.
    assert_eq!(data.counters["TcpActiveOpens"], 2);
}

#[test]
fn points_of_a_time_sequence_graph_are_those_of_the_packets() {
    use taut_lab::data::PointKind::{Ack, Data, Drop, Retransmit};
    let data = sim::run(&job(3), &|_| true).unwrap().data;
    let of = |kind| data.packets.iter().filter(move |point| point.flow == 0 && point.kind == kind);
    // Payload that was sent for the first time leaves no gap.
    let mut end = 0;
    for point in of(Data) {
        assert_eq!(point.seq, end);
        end += u64::from(point.len);
    }
    let acked = of(Ack).map(|point| point.seq).max().unwrap();
    assert!(
        acked <= end && acked >= data.flows[0].acked_bytes,
        "{acked} {end} {}",
        data.flows[0].acked_bytes
    );
    // The queue of 30 packets overflows, and the dropped packets are retransmitted.
    assert!(of(Drop).count() > 0 && of(Retransmit).count() > 0);
    assert_eq!(
        of(Retransmit).map(|point| u64::from(point.len)).sum::<u64>(),
        data.flows[0].retransmitted_bytes
    );
}

/// The run of `cubic` with the first seed, as files.
fn kept(scratch: &Scratch, name: &str) -> String {
    plan(&scratch.0, 2, true).unwrap();
    fs::read_to_string(scratch.0.join("small/cubic-sim-seed1").join(name)).unwrap()
}

/// The rows of a CSV without quoted fields, by column.
fn csv(text: &str) -> Vec<BTreeMap<&str, &str>> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    lines.map(|line| names.iter().copied().zip(line.split(',')).collect()).collect()
}

/// Rows of `goodput.csv` of a run, by flow: the ends of intervals, and bits per second.
fn rates(text: &str) -> BTreeMap<String, Vec<(f64, f64)>> {
    let mut rates: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for row in csv(text) {
        let (t_s, bps) = (row["t_s"].parse().unwrap(), row["goodput_bps"].parse().unwrap());
        rates.entry(row["flow"].to_owned()).or_default().push((t_s, bps));
    }
    rates
}

#[test]
fn lab_20_goodput_over_time_is_that_of_every_flow() {
    let scratch = Scratch::new("lab-goodput");
    // More flows than have a series.
    let changes = [Change::parse("flows.0.count=12").unwrap()];
    let document = Document::parse("small", "small.toml", TEXT, &changes, &Registry::default()).unwrap();
    let (set, place) = Plan { out: Some(&scratch.0), ..plan_of(&document) }.run().unwrap();
    let place = place.unwrap();
    for name in ["cubic-sim-seed1", "reno-sim-seed2"] {
        let text = fs::read_to_string(place.join(name).join("goodput.csv")).unwrap();
        let of = rates(&text);
        let run = set.runs.iter().find(|run| place.join(taut_lab::files::run_name(run)).ends_with(name));
        let flows = &run.unwrap().flows;
        assert_eq!((of.len(), flows.len()), (13, 13));
        for flow in flows {
            let (mut from, mut bits) = (0.0, 0.0);
            for (t_s, bps) in &of[&flow.id.to_string()] {
                bits += bps * (t_s - from);
                from = *t_s;
            }
            // A flow that connects in the first interval has a row of it.
            assert!((bits / 8.0 - flow.acked_bytes as f64).abs() < 1.0, "{bits} {flow:?}");
        }
        // Of the first eight, the same as in their series.
        let intervals = fs::read_to_string(place.join(name).join("intervals.csv")).unwrap();
        let rows = csv(&intervals);
        assert!(rows.iter().any(|row| row["flow"] == "7") && !rows.iter().any(|row| row["flow"] == "8"));
        for row in rows {
            let (t_s, bps): (f64, f64) = (row["t_s"].parse().unwrap(), row["goodput_bps"].parse().unwrap());
            let other = of[row["flow"]].iter().find(|(other, _)| *other == t_s).unwrap().1;
            assert!((other - bps).abs() < 1e-6 * bps.max(1.0), "{row:?} {other}");
        }
    }
    // What was written is read again.
    let read = taut_lab::report::read(&place).unwrap();
    assert!(read.runs.iter().zip(&set.runs).all(|(read, run)| read.shares == run.shares));
}

#[test]
fn lab_21_fairness_over_time_is_jains_index_of_the_goodput() {
    let scratch = Scratch::new("lab-fairness");
    // A flow of the first group begins late; a flow beside the others is not counted.
    let changes = ["flows.0.count=3", "flows.0.stagger=95ms", "topology.pairs=2", "flows.1.pair=1"];
    let changes = changes.map(|change| Change::parse(change).unwrap());
    let document = Document::parse("small", "small.toml", TEXT, &changes, &Registry::default()).unwrap();
    let (_, place) = Plan { out: Some(&scratch.0), ..plan_of(&document) }.run().unwrap();
    let place = place.unwrap().join("cubic-sim-seed1");
    let goodput = fs::read_to_string(place.join("goodput.csv")).unwrap();
    let fairness = fs::read_to_string(place.join("fairness.csv")).unwrap();
    let of = rates(&goodput);
    let jain = |values: &[f64]| {
        let sum: f64 = values.iter().sum();
        sum * sum / (values.len() as f64 * values.iter().map(|value| value * value).sum::<f64>())
    };
    let mut seen = std::collections::BTreeSet::new();
    for row in csv(&fairness) {
        let t_s: f64 = row["t_s"].parse().unwrap();
        let at = |flow: &str| of[flow].iter().position(|(other, _)| *other == t_s);
        // The first row of a flow is the interval in which it connected; nobody ends.
        let whole = |flow: &&str| at(flow).is_some_and(|at| at > 0);
        let values = |flows: &[&'static str]| -> Vec<f64> {
            flows.iter().filter(|flow| whole(flow)).map(|flow| of[*flow][at(flow).unwrap()].1).collect()
        };
        let (all, bulk) = (values(&["0", "1", "2", "3"]), values(&["0", "1", "2"]));
        assert_eq!(row["flows"], all.len().to_string(), "{row:?}");
        for (name, values) in [("fairness", &all), ("fairness_of_0", &bulk)] {
            let Ok(index) = row[name].parse::<f64>() else {
                assert!(values.iter().sum::<f64>() == 0.0, "{row:?} {values:?}");
                continue;
            };
            assert!(
                (index - jain(values)).abs() < 1e-9,
                "{name}: {index}, not {} of {values:?}",
                jain(values)
            );
        }
        assert_eq!(row["fairness_of_2"], "");
        seen.insert(all.len());
    }
    assert!(seen.is_superset(&[2, 3, 4].into()), "{seen:?}");
}

#[test]
fn lab_23_losses_after_the_first_packets_are_kept_too() {
    let changes = ["duration=20s", "warm-up=1s", "link.faults.loss=0.0005", "topology.queue=pfifo limit 200"];
    let changes = changes.map(|change| Change::parse(change).unwrap());
    let document = Document::parse("small", "small.toml", TEXT, &changes, &Registry::default()).unwrap();
    let variation = document.variations().unwrap().remove(0);
    let data = sim::run(&Job { variation, ..job(1) }, &|_| true).unwrap().data;
    use taut_lab::data::PointKind::{Ack, Data, Drop, Retransmit};
    let traced = &data.traced;
    let until = traced.whole_until_s.unwrap();
    assert!(until < 10.0, "{until}");
    let late: Vec<_> = traced.windows.iter().filter(|window| window.from_s > until).collect();
    assert!(late.len() > 3 && late.last().unwrap().t_s > 15.0, "{late:?}");
    for window in &late {
        let inside = |from: f64, to: f64| {
            let points = data.packets.iter().filter(move |point| point.flow == window.flow);
            points.filter(move |point| (from..=to).contains(&point.t_s))
        };
        let lost = inside(window.t_s, window.to_s).filter(|point| matches!(point.kind, Drop | Retransmit));
        assert_eq!(lost.count() as u64, window.losses, "{window:?}");
        // At least the 10 ms of the wires before, and three times that after, unless the run ends.
        assert!(window.t_s - window.from_s >= 0.010 && window.to_s - window.t_s > 0.0, "{window:?}");
        assert!(window.to_s - window.t_s >= 0.030 || window.to_s > 19.9, "{window:?}");
        let sent = inside(window.from_s, window.t_s).filter(|point| point.kind == Data).count();
        assert!(window.flow == 1 || sent > 3, "{window:?}: {sent} packets before");
        assert!(inside(window.from_s, window.to_s).any(|point| point.kind == Ack), "{window:?}");
    }
    let shown: u64 = traced.windows.iter().map(|window| window.losses).sum();
    assert_eq!(traced.losses, shown + data.left_out.get("losses").copied().unwrap_or(0));
}

#[test]
fn lab_25_files_have_the_columns_that_are_described() {
    let scratch = Scratch::new("lab-columns");
    plan(&scratch.0, 2, true).unwrap();
    let place = scratch.0.join("small/cubic-sim-seed1");
    let tables = taut_lab::columns::tables();
    for (file, columns) in &tables {
        let text = fs::read_to_string(place.join(file)).unwrap();
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(text.lines().next().unwrap().split(',').collect::<Vec<_>>(), names, "{file}");
        assert!(columns.iter().all(|column| !column.unit.is_empty() && !column.label.is_empty()), "{file}");
        let fields = text.lines().map(|line| line.split(',').count());
        assert!(fields.into_iter().all(|fields| fields == names.len()), "{file}");
    }
    for name in files(&place).keys().filter(|name| name.extension().is_some_and(|ending| ending == "csv")) {
        assert!(tables.iter().any(|(file, _)| name.as_path() == Path::new(file)), "{}", name.display());
    }
    let described = taut_lab::columns::distributions();
    let run = sim::run(&job(1), &|_| true).unwrap().data;
    assert!(!run.histograms.is_empty());
    for histogram in &run.histograms {
        let of = described.iter().find(|column| column.name == histogram.name).expect(&histogram.name);
        assert_eq!(of.unit, histogram.unit, "{}", histogram.name);
    }
}

#[test]
fn lab_26_the_first_flows_have_distributions_of_their_own() {
    let changes =
        ["flows.0.count=2", "flows.1.count=2", "duration=1s"].map(|set| Change::parse(set).unwrap());
    let document = Document::parse("small", "small.toml", TEXT, &changes, &Registry::default()).unwrap();
    let variation = document.variations().unwrap().remove(0);
    let data = sim::run(&Job { variation, ..job(1) }, &|_| true).unwrap().data;
    let count = |histograms: &[taut_lab::data::Histogram], name: &str| {
        histograms.iter().find(|histogram| histogram.name == name).map_or(0, |histogram| histogram.count)
    };
    assert_eq!(data.flows.len(), 4);
    // The distribution of all flows is the sum of each flow's.
    for name in ["rtt", "flow_gap", "latency"] {
        let of_flows: u64 = data.flows.iter().map(|flow| count(&flow.distributions, name)).sum();
        assert!(of_flows > 20 && of_flows == count(&data.histograms, name), "{name}: {of_flows}");
    }
    for flow in &data.flows {
        assert!(count(&flow.distributions, "rtt") > 0, "{flow:?}");
        assert_eq!(count(&flow.distributions, "latency") > 0, flow.name.starts_with("rr"), "{flow:?}");
        // The wires take 10 ms.
        assert!(flow.distributions.iter().filter(|own| own.name == "rtt").all(|own| own.min >= 10_000.0));
    }
    // Of many flows, the first eight, in whatever order they connect.
    let changes = ["flows.0.count=40", "flows.0.phase=50ms", "duration=2s", "topology.queue=pfifo limit 600"];
    let changes = changes.map(|set| Change::parse(set).unwrap());
    let document = Document::parse("small", "small.toml", TEXT, &changes, &Registry::default()).unwrap();
    let variation = document.variations().unwrap().remove(0);
    let data = sim::run(&Job { variation, ..job(1) }, &|_| true).unwrap().data;
    let have: Vec<u32> =
        data.flows.iter().filter(|flow| !flow.distributions.is_empty()).map(|flow| flow.id).collect();
    assert_eq!(have, (0..8).collect::<Vec<_>>());
}

#[test]
fn lab_27_rows_and_packets_are_of_the_first_flows() {
    // Of the scenario, in whatever order they connect; flow 2 has many connections, and none of its own.
    let text = TEXT.replacen("app = \"bulk\"", "app = \"bulk\"\ncount = 2", 1).replace("\"rr\"", "\"web\"")
        + "[[flows]]\napp = \"bulk\"\ncount = 40\nphase = \"50ms\"\n";
    let changes = ["duration=2s", "topology.queue=pfifo limit 600"].map(|set| Change::parse(set).unwrap());
    let document = Document::parse("small", "small.toml", &text, &changes, &Registry::default()).unwrap();
    let variation = document.variations().unwrap().remove(0);
    let data = sim::run(&Job { variation, ..job(1) }, &|_| true).unwrap().data;
    let connected = |ids: std::ops::Range<u32>| {
        let flows = data.flows.iter().filter(move |flow| ids.contains(&flow.id));
        flows.filter_map(|flow| flow.connected_s).collect::<Vec<_>>()
    };
    let last = connected(3..8).into_iter().fold(0.0, f64::max);
    assert!(connected(8..43).iter().filter(|at| **at < last).count() > 10, "they connect in order");
    for flow in 0..43 {
        let acks = data.acks.iter().filter(|row| row.flow == flow).count();
        let first = data.packets.iter().find(|point| point.flow == flow && point.len > 0);
        let is_shown = flow < 8 && flow != 2;
        assert_eq!((acks > 0, first.map(|point| point.seq)), (is_shown, is_shown.then_some(0)), "{flow}");
    }
}

#[test]
fn lab_06_flent_s_file_has_the_intervals() {
    let scratch = Scratch::new("lab-flent");
    let file: serde_json::Value = serde_json::from_str(&kept(&scratch, "run.flent")).unwrap();
    let intervals = fs::read_to_string(scratch.0.join("small/cubic-sim-seed1/intervals.csv")).unwrap();
    let rows = csv(&intervals);
    assert_eq!((&file["version"], &file["metadata"]["NAME"]), (&3.into(), &"tcp_nup".into()));
    assert_eq!(file["metadata"]["STEP_SIZE"], 0.01);
    let x: Vec<f64> = file["x_values"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
    assert_eq!(x.len(), 40);
    for flow in ["0", "1"] {
        let number = flow.parse::<u32>().unwrap() + 1;
        let goodput = file["results"][format!("TCP upload::{number}")].as_array().unwrap();
        let raw = file["raw_values"][format!("TCP upload::{number}")].as_array().unwrap();
        assert_eq!(goodput.len(), 40);
        for row in rows.iter().filter(|row| row["flow"] == flow) {
            let at = x.iter().position(|x| *x == row["t_s"].parse::<f64>().unwrap()).unwrap();
            let megabits = row["goodput_bps"].parse::<f64>().unwrap() / 1e6;
            assert_eq!(goodput[at].as_f64().unwrap(), megabits, "{row:?}");
            let point = raw.iter().find(|point| point["t"] == x[at]).unwrap();
            assert_eq!(point["val"], goodput[at]);
            for (name, column, by, unit) in [
                ("tcp_rtt", "srtt_s", 1e3, "ms"),
                ("tcp_pacing_rate", "pacing_bps", 1e-6, "Mbits/s"),
                ("tcp_delivery_rate", "delivery_bps", 1e-6, "Mbits/s"),
            ] {
                let series = format!("TCP upload::{number}::{name}");
                assert_eq!(file["metadata"]["SERIES_META"][&series]["UNITS"], unit);
                let (value, expected) = (&file["results"][&series][at], row[column].parse::<f64>().ok());
                assert_eq!(*value, point[name], "{name}");
                assert_eq!(value.as_f64().is_some(), expected.is_some(), "{name}: {row:?}");
                let apart = value.as_f64().unwrap_or(0.0) - expected.unwrap_or(0.0) * by;
                assert!(apart.abs() < 1e-9, "{name}: {value}, {row:?}");
            }
        }
    }
    // 20 Mbit/s with 1448 of 1538 bytes of payload; over all intervals, since what was lost is acknowledged
    // late.
    let sum = file["results"]["TCP upload sum"].as_array().unwrap();
    let mean = sum.iter().map(|sum| sum.as_f64().unwrap()).sum::<f64>() / 40.0;
    assert!((9.0..18.84).contains(&mean), "{mean}");
}

#[test]
fn lab_11_a_table_says_where_all_runs_are_equal() {
    let text = |changes: &[&str]| {
        let changes: Vec<Change> = changes.iter().map(|change| Change::parse(change).unwrap()).collect();
        let document = Document::parse("small", "small.toml", TEXT, &changes, &Registry::default()).unwrap();
        taut_lab::table::text(&plan_of(&document).run().unwrap().0)
    };
    let chance = text(&[]);
    assert!(chance.contains("taut sim (2 runs)") && chance.contains("± is the 95 %"), "{chance}");
    // Hosts are never late, requests come at equal times, and nothing is lost by chance.
    let equal = text(&["link.faults.loss=0", "host=ideal"]);
    assert!(equal.contains("taut sim (2 equal runs)") && !equal.contains('±'), "{equal}");
}

#[test]
fn lab_12_each_group_of_flows_has_metrics_of_its_own() {
    let changes = [Change::parse("flows.0.count=3").unwrap()];
    let document = Document::parse("small", "small.toml", TEXT, &changes, &Registry::default()).unwrap();
    let variation = document.variations().unwrap().remove(0);
    let run = sim::run(&Job { variation, ..job(1) }, &|_| true).unwrap().data;
    let of = |group: &str| -> Vec<f64> {
        run.flows
            .iter()
            .filter(|flow| flow.name.starts_with(group))
            .map(|flow| flow.goodput_bps / 1e6)
            .collect()
    };
    let (bulk, requests) = (of("bulk 0."), of("rr 1"));
    assert_eq!((bulk.len(), requests.len()), (3, 1));
    let sum: f64 = bulk.iter().sum();
    let near = |name: &str, expected: f64| {
        let value = run.metrics[name];
        assert!((value - expected).abs() < 1e-6 * expected, "{name}: {value}, and {expected} by its flows");
    };
    near("goodput_of_0", sum);
    near("goodput_of_1", requests[0]);
    near("goodput", sum + requests[0]);
    near("share_of_1", 100.0 * requests[0] / (sum + requests[0]));
    near("fairness_of_0", sum * sum / (3.0 * bulk.iter().map(|goodput| goodput * goodput).sum::<f64>()));
    near("fairness_of_1", 1.0);
    assert!(!run.metrics.contains_key("goodput_of_2"));
}

#[test]
fn events_are_lines_of_json_in_order() {
    let outcome = sim::run(&job(1), &|_| true).unwrap();
    let mut last = 0;
    let mut kinds = BTreeMap::<String, u64>::new();
    for (number, line) in outcome.events.lines().enumerate() {
        let value: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        if number == 0 {
            assert_eq!(value["schema"], 1);
            continue;
        }
        let t = value["t"].as_u64().unwrap();
        assert!(t >= last);
        last = t;
        *kinds.entry(value["ev"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    for kind in
        ["handed", "sent", "delivered", "dropped", "ack", "wrote", "read", "woken", "interrupt", "blocked"]
    {
        assert!(kinds.contains_key(kind), "{kind}: {kinds:?}");
    }
}

#[test]
fn a_capture_is_read_by_others() {
    let outcome = sim::run(&job(1), &|_| true).unwrap();
    // Read by an independent parser.
    let mut reader = PcapNGReader::new(1 << 16, outcome.capture.as_slice()).unwrap();
    let (mut packets, mut comments, mut interfaces, mut last) = (0_u64, 0_u64, 0, 0);
    loop {
        match reader.next() {
            Ok((used, PcapBlockOwned::NG(block))) => {
                match block {
                    Block::InterfaceDescription(block) => {
                        interfaces += 1;
                        assert_eq!(block.if_tsresol, 9);
                    }
                    Block::EnhancedPacket(block) => {
                        packets += 1;
                        let at = u64::from(block.ts_high) << 32 | u64::from(block.ts_low);
                        assert!(at >= last, "packets are in order");
                        last = at;
                        assert!(block.origlen >= block.caplen && block.data[0] >> 4 == 4);
                        comments += block.options.iter().filter(|option| option.code.0 == 1).count() as u64;
                    }
                    _ => {}
                }
                reader.consume(used);
            }
            Ok((used, _)) => reader.consume(used),
            Err(pcap_parser::PcapError::Eof) => break,
            Err(pcap_parser::PcapError::Incomplete(_)) => reader.refill().unwrap(),
            Err(error) => panic!("{error:?}"),
        }
    }
    assert_eq!(interfaces, 2);
    assert!(packets > 200 && comments > 50, "{packets} {comments}");
    assert!(last < 400_000_000);

    // And by tshark, if it is installed.
    let scratch = Scratch::new("capture");
    let path = scratch.0.join("capture.pcapng");
    fs::write(&path, &outcome.capture).unwrap();
    let fields = ["-T", "fields", "-e", "tcp.len", "-e", "frame.comment"];
    let Ok(output) = Command::new("tshark").arg("-r").arg(&path).args(fields).output() else {
        return live::skip("not installed: tshark (make setup)");
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.lines().count() as u64, packets, "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.lines().filter(|line| line.contains("cwnd=")).count() as u64, comments);
    assert!(text.lines().any(|line| line.starts_with("1448\t")));
}

#[test]
fn a_path_is_what_its_file_says() {
    let small = |more: &str| {
        let text = "title = \"path\"\nduration = \"6s\"\nwarm-up = \"2s\"\nmeasure = [\"goodput\"]\n\
            [topology]\nkind = \"dumbbell\"\nqueue = \"pfifo limit 50\"\n\
            [link]\nrate = \"20mbit\"\ndelay = \"5ms\"\n";
        let text = format!("{text}{more}\n[[flows]]\napp = \"bulk\"\n");
        let document = Document::parse("path", "path.toml", &text, &[], &Registry::default()).unwrap();
        let variation = document.variations().unwrap().remove(0);
        let data = sim::run(&Job { scenario: "path".into(), variation, ..job(1) }, &|_| true).unwrap().data;
        data.metrics
    };
    // 1448 of 1538 bytes of each rate are payload.
    let payload = |mbps: f64| mbps * 1_448.0 / 1_538.0;
    let near = |metrics: &BTreeMap<String, f64>, mbps: f64| {
        let goodput = metrics["goodput"];
        assert!((payload(mbps) * 0.9..payload(mbps) * 1.01).contains(&goodput), "{goodput} of {mbps}");
    };
    near(&small(""), 20.0);
    // Two seconds at 5 Mbit/s, and two at 10.
    near(&small("steps = [{ at = \"2s\", rate = \"5mbit\" }, { at = \"4s\", rate = \"10mbit\" }]"), 7.5);
    // An ACK of 52 bytes takes 90 on the wire: at 0.1 Mbit/s, 139 of them in a second, each for two segments
    // or more.
    let slow_back = small("back-rate = \"100kbit\"");
    let acks = slow_back["acks_in"] / 4.0;
    assert!((100.0..140.0).contains(&acks), "{acks} ACKs a second");
    // At most the rate and one burst pass in the measured time.
    let policed = small("policer = { rate = \"8mbit\", burst = \"20kb\" }");
    assert!((4.0..payload(8.1)).contains(&policed["goodput"]), "{}", policed["goodput"]);
    // A packet in 21 is lost: data in bursts of five, which costs most of the rate, or ACKs, which costs
    // nothing.
    let lost = |metrics: &BTreeMap<String, f64>| assert!(metrics["network_drops"] > 10.0, "{metrics:?}");
    let bursts = small("faults = { bursts = { p = 0.01, r = 0.2 } }");
    lost(&bursts);
    assert!(bursts["goodput"] < payload(20.0) * 0.5, "{}", bursts["goodput"]);
    let acks_lost = small("back-faults = { bursts = { p = 0.01, r = 0.2 } }");
    lost(&acks_lost);
    near(&acks_lost, 20.0);
}

#[test]
fn flows_beside_are_conditions() {
    let text = "title = \"beside\"\nduration = \"6s\"\nmeasure = [\"goodput\"]\n\
        [topology]\nkind = \"dumbbell\"\npairs = 2\nqueue = \"pfifo limit 50\"\n\
        [link]\nrate = \"20mbit\"\ndelay = \"5ms\"\n[[flows]]\napp = \"bulk\"\n\
        [[flows]]\napp = \"bulk\"\npair = 1\nbeside = true\n";
    let document = |changes: &[&str]| {
        let changes: Vec<Change> = changes.iter().map(|change| Change::parse(change).unwrap()).collect();
        Document::parse("beside", "beside.toml", text, &changes, &Registry::default())
    };
    let variation = document(&[]).unwrap().variations().unwrap().remove(0);
    let data = sim::run(&Job { scenario: "beside".into(), variation, ..job(1) }, &|_| true).unwrap().data;
    let [own, beside] = [0, 1].map(|flow: usize| data.flows[flow].goodput_bps / 1e6);
    assert!(
        (data.metrics["goodput"] - own).abs() < 1e-6
            && (data.metrics["beside_goodput"] - beside).abs() < 1e-6
    );
    assert!(own > 1.0 && beside > 1.0 && (15.0..19.0).contains(&(own + beside)), "{own} {beside}");
    // Counters are those of its host alone.
    assert_eq!(data.counters["TcpActiveOpens"], 1);
    assert_eq!(data.metrics["flow_goodput"], data.metrics["goodput"]);
    let error = document(&["flows.1.pair=0"]).unwrap_err().to_string();
    assert!(error.contains("flows.1.beside: "), "{error}");
}

#[test]
fn in_a_parking_lot_who_goes_all_the_way_gets_least() {
    // Two hops of 20 Mbit/s: the long flow has twice the round-trip time and loses packets at both hops, so
    // the short flow on each hop gets more than half; together they fill it.
    let text = "title = \"lot\"\nduration = \"6s\"\nwarm-up = \"2s\"\nmeasure = [\"goodput\"]\n\
        [topology]\nkind = \"parking-lot\"\nhops = 2\nqueue = \"pfifo limit 50\"\n\
        [link]\nrate = \"20mbit\"\ndelay = \"5ms\"\n[[flows]]\napp = \"bulk\"\ncount = 3\n";
    let document = Document::parse("lot", "lot.toml", text, &[], &Registry::default()).unwrap();
    let job = Job { scenario: "lot".into(), variation: document.variations().unwrap().remove(0), ..job(1) };
    let data = sim::run(&job, &|_| true).unwrap().data;
    let mbps: Vec<f64> = data.flows.iter().map(|flow| flow.goodput_bps / 1e6).collect();
    let [long, first, second] = mbps[..] else { panic!("{mbps:?}") };
    for short in [first, second] {
        assert!(short > 10.0 && long < 9.0, "{mbps:?}");
        assert!((17.0..19.0).contains(&(long + short)), "{mbps:?}");
    }
}
