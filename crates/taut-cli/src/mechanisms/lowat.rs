//! TCP_NOTSENT_LOWAT: how often writers are woken, and how much memory a flow holds, on a long fat path.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use taut_core::BufferSizes;
use taut_core::{ConnOptions, LowatMode};

use super::Run;
use super::bench::{Bench, pour};
use super::section::{Column, Row, Section};
use crate::clock::Stopwatch;

const COLUMNS: &[Column] = &[
    Column { key: "mode", heading: "lowat" },
    Column { key: "flows", heading: "flows" },
    Column { key: "wakeups_per_mb", heading: "wake-ups a MB" },
    Column { key: "wakeups_per_s", heading: "wake-ups a s" },
    Column { key: "memory_kb", heading: "memory a flow kB" },
    Column { key: "unsent_kb", heading: "unsent a flow kB" },
    Column { key: "goodput_mbit", heading: "goodput Mbit/s" },
];

/// How often memory is looked at.
const SAMPLE_EVERY: Duration = Duration::from_millis(20);
/// Send buffers may grow to this, as in the published run.
const WMEM_MAX: u32 = 64 << 20;

#[derive(Clone, Copy)]
struct Setup {
    link: &'static str,
    flows: usize,
    mark_bytes: u32,
    warm_up: Duration,
    time: Duration,
}

pub(super) fn runs(quick: bool) -> (Section, Vec<Run>) {
    let setup = if quick {
        let (warm_up, time) = (Duration::from_millis(800), Duration::from_millis(800));
        Setup { link: "rate 200mbit delay 20ms", flows: 4, mark_bytes: 131_072, warm_up, time }
    } else {
        let (warm_up, time) = (Duration::from_secs(8), Duration::from_secs(5));
        Setup { link: "rate 400mbit delay 100ms packets 4000", flows: 20, mark_bytes: 262_144, warm_up, time }
    };
    let Setup { link, flows, mark_bytes, warm_up, time } = setup;
    let section = Section {
        name: "lowat",
        setup: format!(
            "{flows} bulk senders over {link}; TCP_NOTSENT_LOWAT {mark_bytes}; {time:?} after {warm_up:?}. A wake-up is a \
             writer that had to wait and was told to go on; memory is all that is unsent or in flight, overhead included."
        ),
        columns: COLUMNS,
        rows: Vec::new(),
        published: "2018, 100 BBR streams, 100 ms: unset ~54 MB a flow; 2 MiB with the wake-up at half ~3.5 MB a flow, \
                    for about twice the context switches (5.9-6.6 k -> 12.4-14.3 k a second); at the mark, one wake-up \
                    for every ACK",
        names: 1,
    };
    let modes = [
        ("unset", 0, LowatMode::WakeAtHalf),
        ("wake at mark", mark_bytes, LowatMode::WakeAtMark),
        ("wake at half", mark_bytes, LowatMode::WakeAtHalf),
    ];
    let runs = modes.map(|(name, mark, mode)| Run::new(name, move || measure(name, mark, mode, setup)));
    (section, runs.into())
}

fn measure(name: &str, mark: u32, mode: LowatMode, setup: Setup) -> anyhow::Result<Row> {
    let bench = Bench::new(
        setup.link,
        |config| {
            config.send.lowat = mode;
            config.send.wmem = BufferSizes { max: WMEM_MAX, ..config.send.wmem };
        },
        false,
    )?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let wakeups = Arc::new(AtomicU64::new(0));
        let options = ConnOptions { notsent_lowat: mark, ..ConnOptions::default() };
        let mut streams = Vec::new();
        for _ in 0..setup.flows {
            let stream = Arc::new(taut::TcpStream::connect_with(&bench.stack, bench.sink(), &options).await?);
            stream.set_linger(Some(Duration::ZERO))?;
            tokio::spawn(pour(Arc::clone(&stream), Arc::clone(&wakeups)));
            streams.push(stream);
        }
        tokio::time::sleep(setup.warm_up).await;
        let (woken, taken, watch) = (wakeups.load(Ordering::Relaxed), bench.taken(), Stopwatch::start());
        let (mut memory, mut unsent, mut samples) = (0, 0, 0);
        while watch.elapsed() < setup.time {
            tokio::time::sleep(SAMPLE_EVERY).await;
            for stream in &streams {
                let info = stream.info()?;
                memory += u64::from(info.wmem_queued);
                unsent += info.notsent_bytes;
                samples += 1;
            }
        }
        let seconds = watch.elapsed().as_secs_f64();
        let woken = (wakeups.load(Ordering::Relaxed) - woken) as f64;
        let taken = (bench.taken() - taken) as f64;
        anyhow::ensure!(taken > 0.0, "nothing arrived");
        Ok(vec![
            name.into(),
            (setup.flows as u64).into(),
            (woken / (taken / 1e6)).into(),
            (woken / seconds).into(),
            (memory as f64 / f64::from(samples) / 1e3).into(),
            (unsent as f64 / f64::from(samples) / 1e3).into(),
            (taken * 8.0 / seconds / 1e6).into(),
        ])
    })
}
