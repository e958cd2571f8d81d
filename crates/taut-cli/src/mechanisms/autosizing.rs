//! TSO autosizing: into how many packets two large writes are cut on a long path, when sizes are decided at the write,
//! at the transmission, or not at all.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;

use taut_core::{AutosizeMode, ConnOptions};

use super::Run;
use super::bench::Bench;
use super::section::{Column, Row, Section};
use crate::clock::Stopwatch;

const COLUMNS: &[Column] = &[
    Column { key: "mode", heading: "sized" },
    Column { key: "packets", heading: "packets out" },
    Column { key: "segments", heading: "segments out" },
    Column { key: "packets_in", heading: "packets in" },
    Column { key: "elapsed_s", heading: "elapsed s" },
    Column { key: "mbit", heading: "Mbit/s" },
];

/// Two of them are sent.
const WRITE_BYTES: usize = 1_000_000;

pub(super) fn runs(quick: bool) -> (Section, Vec<Run>) {
    let times = if quick { 1 } else { 9 };
    let section = Section {
        name: "autosizing",
        setup: format!(
            "2,000,000 bytes in two writes over 40 ms round-trip time, from SYN to FIN; the median of {times}. \
             SO_SNDBUF is 2,000,000, so that each write is queued at once."
        ),
        columns: COLUMNS,
        rows: Vec::new(),
        published: "2014, 40 ms: sized at the write 599 packets out, 600 in; at the transmission 232 out, 221 in; 1397 \
                    segments and 0.36 s (44.2 Mbit/s) both",
        names: 1,
    };
    let modes = [
        ("never", AutosizeMode::Off),
        ("at write", AutosizeMode::AtWrite),
        ("at transmit", AutosizeMode::AtTransmit),
    ];
    let runs = modes.map(|(name, mode)| Run::new(name, move || measure(name, mode, times)));
    (section, runs.into())
}

fn measure(name: &str, mode: AutosizeMode, times: usize) -> anyhow::Result<Row> {
    let bench = Bench::new(
        "delay 40ms",
        |config| {
            config.send.autosizing = mode;
            config.send.wmem_max = 4 << 20;
        },
        false,
    )?;
    let mut results = (0..times).map(|_| transfer(&bench)).collect::<anyhow::Result<Vec<_>>>()?;
    results.sort_by_key(|result| result.packets);
    let median = &results[results.len() / 2];
    let bits = 2.0 * WRITE_BYTES as f64 * 8.0;
    Ok(vec![
        name.into(),
        median.packets.into(),
        median.segments.into(),
        median.packets_in.into(),
        median.seconds.into(),
        (bits / median.seconds / 1e6).into(),
    ])
}

struct Transfer {
    packets: u64,
    segments: u64,
    packets_in: u64,
    seconds: f64,
}

fn transfer(bench: &Bench) -> anyhow::Result<Transfer> {
    let data = vec![0x5a; WRITE_BYTES];
    let options = ConnOptions { sndbuf: Some(2_000_000), ..ConnOptions::default() };
    let (before, taken, watch) = (bench.stack.counters(), bench.taken(), Stopwatch::start());
    let mut stream = bench.connect(bench.sink(), &options)?;
    stream.write_all(&data)?;
    stream.write_all(&data)?;
    stream.shutdown(Shutdown::Write)?;
    // The sink closes when it has read the end.
    stream.read_exact(&mut [0]).err();
    let seconds = watch.elapsed().as_secs_f64();
    anyhow::ensure!(
        bench.taken() - taken == 2 * WRITE_BYTES as u64,
        "the sink got other bytes than were sent"
    );
    let after = bench.stack.counters();
    Ok(Transfer {
        packets: after.out_requests - before.out_requests,
        segments: after.out_segs - before.out_segs,
        packets_in: after.in_receives - before.in_receives,
        seconds,
    })
}
