//! Autocorking: how many packets a stream of small writes becomes, and what holding the head of a connection does to
//! requests that wait for their answers. Completions come late, as from a NIC that coalesces its interrupts.

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
    Column { key: "completions", heading: "late" },
    Column { key: "mode", heading: "autocork" },
    Column { key: "writes", heading: "writes" },
    Column { key: "packets", heading: "packets" },
    Column { key: "held", heading: "held" },
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
/// How late completions come: as in the published run, and longer than a request takes here.
const COMPLETIONS: [&str; 2] = ["16us", "50us"];
/// How often the modes take turns.
const TURNS: u32 = 10;
const MODES: [(&str, AutocorkMode); 3] = [
    ("off", AutocorkMode::Off),
    ("may hold head", AutocorkMode::MayHoldHead),
    ("fixed", AutocorkMode::Fixed),
];

pub(super) fn runs(quick: bool) -> (Section, Vec<Run>) {
    let (writes, seconds) = if quick { (10_000, 0.5) } else { (100_000, 3.0) };
    let section = Section {
        name: "autocork",
        setup: format!(
            "{writes} writes of {WRITE_BYTES} bytes with TCP_NODELAY, one each 10 µs and as fast as they are taken; then \
             one byte there and back for {seconds} s with each, by turns. Late is how long after a packet \
             left the stack is told, of it and of all since."
        ),
        columns: COLUMNS,
        rows: Vec::new(),
        published: "2013, request/response on a NIC with 16 µs TX coalescing: held head mean 1049.87, p99 39631, max \
                    41004, stddev 6295 µs; fixed mean 22.84, p99 38, max 4606, stddev 16 µs",
        names: 4,
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
    let time = Duration::from_secs_f64(seconds);
    let latency_runs = COMPLETIONS.map(|completion| {
        Run::by_turns(format!("request/response, completions {completion} late"), move || {
            request_response(completion, time)
        })
    });
    (section, writes_runs.chain(latency_runs).collect())
}

fn small_writes(
    (work, each): (&str, Duration),
    rate: &str,
    name: &str,
    mode: AutocorkMode,
    writes: u64,
) -> anyhow::Result<Row> {
    let bench = Bench::new(
        &format!("rate {rate} tx-usecs {}", COMPLETIONS[0]),
        |config| config.send.autocork = mode,
        false,
    )?;
    let options = ConnOptions { nodelay: true, ..ConnOptions::default() };
    let mut stream = bench.connect(bench.sink(), &options)?;
    let data = [0x5a; WRITE_BYTES];
    let (before, watch) = (bench.stack.counters(), Stopwatch::start());
    for number in 0..writes {
        // Sleeping is not that exact.
        while watch.elapsed() < each * number as u32 {
            std::hint::spin_loop();
        }
        stream.write_all(&data)?;
    }
    bench.until_taken(writes * WRITE_BYTES as u64)?;
    let elapsed = watch.elapsed().as_secs_f64();
    let after = bench.stack.counters();
    let packets = after.out_requests - before.out_requests;
    let mut row: Row = vec![
        work.into(),
        rate.into(),
        COMPLETIONS[0].into(),
        name.into(),
        writes.into(),
        packets.into(),
        (after.autocork_held - before.autocork_held).into(),
        (writes as f64 / packets as f64).into(),
        elapsed.into(),
    ];
    row.extend([const { Cell::Number(None) }; 5]);
    Ok(row)
}

/// What one mode's turns came to.
#[derive(Default)]
struct Side {
    packets: u64,
    held: u64,
    latency: Option<Histogram<u64>>,
}

/// One byte there and back, for `time` with each mode. By turns, each on a bench of its own, so that what else the machine
/// does, and where it puts threads, falls on all.
fn request_response(completion: &str, time: Duration) -> anyhow::Result<Vec<Row>> {
    let mut sides = MODES.map(|_| Side::default());
    for _ in 0..TURNS {
        for ((_, mode), side) in MODES.iter().zip(&mut sides) {
            let bench =
                Bench::new(&format!("tx-usecs {completion}"), |config| config.send.autocork = *mode, false)?;
            // The first rounds find cold caches and a stack that has just started.
            bench.ping(time / (4 * TURNS), Duration::ZERO)?;
            let before = bench.stack.counters();
            let turn = bench.ping(time / TURNS, Duration::ZERO)?;
            let after = bench.stack.counters();
            side.packets += after.out_requests - before.out_requests;
            side.held += after.autocork_held - before.autocork_held;
            match &mut side.latency {
                None => side.latency = Some(turn),
                Some(latency) => latency.add(turn)?,
            }
        }
    }
    let row = |((name, _), side): (&(&str, AutocorkMode), Side)| {
        let latency = side.latency.context("no turn was had")?;
        let writes = latency.len();
        Ok(vec![
            "1-byte requests".into(),
            "–".into(),
            completion.into(),
            (*name).into(),
            writes.into(),
            side.packets.into(),
            side.held.into(),
            (writes as f64 / side.packets as f64).into(),
            time.as_secs_f64().into(),
            us(latency.mean()).into(),
            us(latency.value_at_quantile(0.5) as f64).into(),
            us(latency.value_at_quantile(0.99) as f64).into(),
            us(latency.max() as f64).into(),
            us(latency.stdev()).into(),
        ])
    };
    MODES.iter().zip(sides).map(row).collect()
}
