//! TCP Small Queues: how much of a bulk sender waits in the queue in front of the device, and how long a second flow
//! waits behind it.

use std::time::Duration;

use taut_core::{ConnOptions, TsqMode};

use super::Run;
use super::bench::{Bench, ms};
use super::section::{Column, Row, Section};
use crate::clock::Stopwatch;

const COLUMNS: &[Column] = &[
    Column { key: "rate", heading: "link" },
    Column { key: "rtt_ms", heading: "wire ms" },
    Column { key: "mode", heading: "tsq" },
    Column { key: "backlog_mean_ms", heading: "backlog ms: mean" },
    Column { key: "backlog_p99_ms", heading: "p99" },
    Column { key: "backlog_max_ms", heading: "max" },
    Column { key: "goodput_percent", heading: "goodput %" },
    Column { key: "ping_mean_ms", heading: "other flow's ping ms: mean" },
    Column { key: "ping_p99_ms", heading: "p99" },
];

/// How often the second flow asks.
const PING_EVERY: Duration = Duration::from_millis(5);

pub(super) fn runs(quick: bool) -> (Section, Vec<Run>) {
    let (warm_up, time) = if quick { (0.7, 0.6) } else { (2.5, 3.0) };
    let section = Section {
        name: "tsq",
        setup: format!(
            "one bulk sender and one pinging flow through a queue of 1000 packets; {time} s each, after {warm_up} s. \
             The backlog is what a packet finds and itself adds when it is queued, as time on the link; goodput is \
             payload, of which a full packet has 96.5 %."
        ),
        columns: COLUMNS,
        rows: Vec::new(),
        published: "2012, pfifo_fast: 132 ms -> below 8 ms at 100 Mbit/s, 50 ms -> below 1 ms at 1 Gbit/s, throughput \
                    unchanged (fixed cap of 128 KiB; 40000 also tried)",
        names: 3,
    };
    let modes = [
        ("off", TsqMode::Off),
        ("fixed 128 KiB", TsqMode::Fixed { cap_bytes: TsqMode::CAP_2012 }),
        ("fixed 40000", TsqMode::Fixed { cap_bytes: 40_000 }),
        ("rate-scaled", TsqMode::RateScaled),
    ];
    let links: &[(&str, u64)] = match quick {
        true => &[("100mbit", 0), ("1gbit", 0)],
        false => &[("100mbit", 0), ("1gbit", 0), ("100mbit", 10), ("1gbit", 10)],
    };
    let runs = links.iter().flat_map(|&(rate, rtt_ms)| {
        modes.map(|(name, mode)| {
            Run::new(format!("{name} at {rate}, {rtt_ms} ms"), move || {
                let (warm_up, time) = (Duration::from_secs_f64(warm_up), Duration::from_secs_f64(time));
                measure(rate, rtt_ms, (name, mode), warm_up, time)
            })
        })
    });
    (section, runs.collect())
}

fn measure(
    rate: &str,
    rtt_ms: u64,
    (name, mode): (&str, TsqMode),
    warm_up: Duration,
    time: Duration,
) -> anyhow::Result<Row> {
    let bench = Bench::new(&format!("rate {rate} delay {rtt_ms}ms"), |config| config.send.tsq = mode, false)?;
    let bytes_per_second = rate.parse::<taut::link::Rate>()?.bytes_per_second() as f64;
    bench.with_bulk(&ConnOptions::default(), || {
        std::thread::sleep(warm_up);
        let (before, taken, watch) = (bench.link()?, bench.taken(), Stopwatch::start());
        let pings = bench.ping(time, PING_EVERY)?;
        let (taken, took) = (bench.taken() - taken, watch.elapsed().as_secs_f64());
        let backlogs = bench.link()?.backlogs.since(&before.backlogs);
        let on_link = |bytes: f64| bytes / bytes_per_second * 1e3;
        Ok(vec![
            rate.into(),
            rtt_ms.into(),
            name.into(),
            on_link(backlogs.mean()).into(),
            on_link(backlogs.quantile(0.99) as f64).into(),
            on_link(backlogs.max() as f64).into(),
            (taken as f64 / took / bytes_per_second * 100.0).into(),
            ms(pings.mean()).into(),
            ms(pings.value_at_quantile(0.99) as f64).into(),
        ])
    })
}
