//! Internal pacing: whether packets leave at their time, for one flow and for hundreds.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use taut_core::{ConnOptions, PacingMode};

use super::Run;
use super::bench::{Bench, pour, us};
use super::section::{Column, Row, Section};
use crate::clock::Stopwatch;

const COLUMNS: &[Column] = &[
    Column { key: "flows", heading: "flows" },
    Column { key: "asked_mbit", heading: "Mbit/s asked each" },
    Column { key: "mode", heading: "pacing" },
    Column { key: "achieved_percent_min", heading: "achieved %: worst" },
    Column { key: "achieved_percent_median", heading: "median" },
    Column { key: "achieved_percent_max", heading: "best" },
    Column { key: "total_gbit", heading: "Gbit/s in all" },
    Column { key: "payload_bytes", heading: "payload B" },
    Column { key: "gap_p50_us", heading: "gap µs: p50" },
    Column { key: "gap_p99_us", heading: "p99" },
    Column { key: "gap_asked_us", heading: "asked" },
    Column { key: "late_p50_us", heading: "late µs: p50" },
    Column { key: "late_p90_us", heading: "p90" },
    Column { key: "late_p99_us", heading: "p99" },
    Column { key: "late_max_us", heading: "max" },
    Column { key: "verdict", heading: "" },
];

/// SO_SNDBUF of each flow: a few super-packets, so that hundreds of flows do not fill the memory.
const SNDBUF_BYTES: u32 = 256 << 10;

/// Below this share of its rate the median flow was held up by the machine.
const ENOUGH_PERCENT: f64 = 97.0;

pub(super) fn runs(quick: bool) -> (Section, Vec<Run>) {
    let (warm_up, time) = if quick { (0.3, 0.7) } else { (1.5, 3.0) };
    let section = Section {
        name: "pacing",
        setup: format!(
            "bulk senders with SO_MAX_PACING_RATE, no queue in front of the TUN; {time} s after {warm_up} s. The gap is from \
             one packet of a flow to its next; asked is payload / rate; late is after the packet's time."
        ),
        columns: COLUMNS,
        rows: Vec::new(),
        published: "2017, 800 flows of ~48 Mbit/s on a 40 Gbit/s NIC: each at its rate, 4,334,492 kB/s in all, ~160,000 \
                    context switches a second",
        names: 3,
    };
    let cases: &[(usize, u64)] = if quick {
        &[(1, 10), (1, 48), (50, 10)]
    } else {
        &[(1, 10), (1, 48), (1, 500), (160, 48), (800, 10), (800, 48)]
    };
    let modes = [("off", PacingMode::Off), ("internal", PacingMode::Internal)];
    let runs = cases.iter().flat_map(|&(flows, mbit)| {
        modes.map(|(name, mode)| {
            Run::new(format!("{name}, {flows} at {mbit} Mbit/s"), move || {
                let (warm_up, time) = (Duration::from_secs_f64(warm_up), Duration::from_secs_f64(time));
                measure(flows, mbit, name, mode, warm_up, time)
            })
        })
    });
    (section, runs.collect())
}

fn measure(
    flows: usize,
    mbit: u64,
    name: &str,
    mode: PacingMode,
    warm_up: Duration,
    time: Duration,
) -> anyhow::Result<Row> {
    let bench = Bench::new("", |config| config.send.pacing = mode, true)?;
    let recorder = bench.recorder.as_ref().context("the bench records nothing")?;
    let rate = mbit * 125_000;
    recorder.follow(rate);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (measured, seconds) = runtime.block_on(async {
        let options =
            ConnOptions { max_pacing_rate: Some(rate), sndbuf: Some(SNDBUF_BYTES), ..ConnOptions::default() };
        for _ in 0..flows {
            let stream = taut::TcpStream::connect_with(&bench.stack, bench.sink(), &options).await?;
            stream.set_linger(Some(Duration::ZERO))?;
            tokio::spawn(pour(Arc::new(stream), Arc::default()));
        }
        tokio::time::sleep(warm_up).await;
        recorder.begin()?;
        let watch = Stopwatch::start();
        tokio::time::sleep(time).await;
        let seconds = watch.elapsed().as_secs_f64();
        anyhow::Ok((recorder.end().context("nothing was recorded")?, seconds))
    })?;
    let mut shares: Vec<f64> =
        measured.flows.iter().map(|&bytes| bytes as f64 / seconds / rate as f64 * 100.0).collect();
    anyhow::ensure!(shares.len() == flows, "only {} of {flows} flows sent anything", shares.len());
    shares.sort_by(f64::total_cmp);
    let median = shares[shares.len() / 2];
    let total = measured.flows.iter().sum::<u64>() as f64 * 8.0 / seconds / 1e9;
    let paced = mode != PacingMode::Off;
    let late = |quantile: f64| paced.then(|| us(measured.lateness.value_at_quantile(quantile) as f64));
    let verdict = if median < ENOUGH_PERCENT { "short of its rate: the machine had no more" } else { "" };
    Ok(vec![
        (flows as u64).into(),
        mbit.into(),
        name.into(),
        shares[0].into(),
        median.into(),
        shares[shares.len() - 1].into(),
        total.into(),
        measured.payloads.mean().into(),
        us(measured.gaps.value_at_quantile(0.5) as f64).into(),
        us(measured.gaps.value_at_quantile(0.99) as f64).into(),
        us(measured.asked.value_at_quantile(0.5) as f64).into(),
        late(0.5).into(),
        late(0.9).into(),
        late(0.99).into(),
        late(1.0).into(),
        verdict.into(),
    ])
}
