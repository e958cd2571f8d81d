//! Autocorking: how many packets a stream of small writes becomes, and what holding the head of a connection does to
//! requests that wait for their answers. Completions come 16 µs late, as from a NIC that coalesces its interrupts.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use hdrhistogram::Histogram;
use taut_core::{AutocorkMode, ConnOptions};

use super::Run;
use super::bench::{Bench, us};
use super::section::{Cell, Column, Row, Section};
use crate::clock::Stopwatch;

const COLUMNS: &[Column] = &[
    Column { key: "work", heading: "work" },
    Column { key: "rate", heading: "link" },
    Column { key: "mode", heading: "autocork" },
    Column { key: "writes", heading: "writes" },
    Column { key: "packets", heading: "packets" },
    Column { key: "ratio", heading: "writes a packet" },
    Column { key: "elapsed_s", heading: "elapsed s" },
    Column { key: "mean_us", heading: "latency µs: mean" },
    Column { key: "p50_us", heading: "p50" },
    Column { key: "p99_us", heading: "p99" },
    Column { key: "max_us", heading: "max" },
    Column { key: "stddev_us", heading: "stddev" },
];

const WRITE_BYTES: usize = 100;
/// What a writer with something else to do takes from one write to the next.
const EACH: Duration = Duration::from_micros(10);
/// How late completions come.
const COMPLETION: &str = "tx-usecs 16us";
/// How often the modes take turns.
const TURNS: u32 = 10;
const MODES: [(&str, AutocorkMode); 3] = [
    ("off", AutocorkMode::Off),
    ("may hold head", AutocorkMode::MayHoldHead),
    ("fixed", AutocorkMode::Fixed),
];

pub(super) fn runs(quick: bool) -> (Section, Vec<Run>) {
    let (writes, time) = if quick { (10_000, 0.5) } else { (100_000, 3.0) };
    let section = Section {
        name: "autocork",
        setup: format!(
            "{writes} writes of {WRITE_BYTES} bytes with TCP_NODELAY, one each 10 µs and as fast as they are taken; then \
             one byte there and back for {time} s with each, by turns. Completions come 16 µs after the first packet they tell of."
        ),
        columns: COLUMNS,
        rows: Vec::new(),
        published: "2013, request/response on a NIC with 16 µs TX coalescing: held head mean 1049.87, p99 39631, max \
                    41004, stddev 6295 µs; fixed mean 22.84, p99 38, max 4606, stddev 16 µs",
        names: 3,
    };
    let works = [("write each 10 µs", EACH), ("write after write", Duration::ZERO)];
    let writes_runs = works.into_iter().flat_map(|(work, each)| {
        ["1gbit", "100mbit"].into_iter().flat_map(move |rate| {
            MODES.map(|(name, mode)| {
                Run::new(format!("{work}, {name} at {rate}"), move || {
                    small_writes((work, each), rate, name, mode, writes)
                })
            })
        })
    });
    let time = Duration::from_secs_f64(time);
    let latency_run = Run::by_turns("request/response", move || request_response(time));
    (section, writes_runs.chain([latency_run]).collect())
}

fn small_writes(
    (work, each): (&str, Duration),
    rate: &str,
    name: &str,
    mode: AutocorkMode,
    writes: u64,
) -> anyhow::Result<Row> {
    let bench = Bench::new(&format!("rate {rate} {COMPLETION}"), |config| config.autocork = mode, false)?;
    let options = ConnOptions { nodelay: true, ..ConnOptions::default() };
    let mut stream = bench.connect(bench.sink(), &options)?;
    let data = [0x5a; WRITE_BYTES];
    let (before, watch) = (bench.stack.counters().out_requests, Stopwatch::start());
    for number in 0..writes {
        // Sleeping is not that exact.
        while watch.elapsed() < each * number as u32 {
            std::hint::spin_loop();
        }
        stream.write_all(&data)?;
    }
    bench.until_taken(writes * WRITE_BYTES as u64)?;
    let elapsed = watch.elapsed().as_secs_f64();
    let packets = bench.stack.counters().out_requests - before;
    let mut row: Row = vec![
        work.into(),
        rate.into(),
        name.into(),
        writes.into(),
        packets.into(),
        (writes as f64 / packets as f64).into(),
        elapsed.into(),
    ];
    row.extend([const { Cell::Number(None) }; 5]);
    Ok(row)
}

/// One byte there and back, for `time` with each mode. By turns, so that what else the machine does falls on all.
fn request_response(time: Duration) -> anyhow::Result<Vec<Row>> {
    let mut sides = Vec::new();
    for (name, mode) in MODES {
        let bench = Bench::new(COMPLETION, |config| config.autocork = mode, false)?;
        // The first rounds find cold caches and a stack that has just started.
        bench.ping(time / (2 * TURNS), Duration::ZERO)?;
        let before = bench.stack.counters().out_requests;
        sides.push((name, bench, before, None));
    }
    for _ in 0..TURNS {
        for (_, bench, _, latency) in &mut sides {
            let turn = bench.ping(time / TURNS, Duration::ZERO)?;
            match latency {
                None => *latency = Some(turn),
                Some(latency) => latency.add(turn)?,
            }
        }
    }
    let row = |(name, bench, before, latency): (&str, Bench, u64, Option<Histogram<u64>>)| {
        let packets = bench.stack.counters().out_requests - before;
        let latency = latency.context("no turn was had")?;
        let writes = latency.len();
        Ok(vec![
            "1-byte requests".into(),
            "–".into(),
            name.into(),
            writes.into(),
            packets.into(),
            (writes as f64 / packets as f64).into(),
            time.as_secs_f64().into(),
            us(latency.mean()).into(),
            us(latency.value_at_quantile(0.5) as f64).into(),
            us(latency.value_at_quantile(0.99) as f64).into(),
            us(latency.max() as f64).into(),
            us(latency.stdev()).into(),
        ])
    };
    sides.into_iter().map(row).collect()
}
