//! What pacing costs where nothing slows a flow down: a bulk sender on a link without a limit, CUBIC against BBR.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use taut_core::{Algorithm, ConnOptions};
use taut_device::{Cidr, Namespace};

use super::Run;
use super::bench::{Bench, us};
use super::section::{Column, Row, Section};
use crate::clock::Stopwatch;

const COLUMNS: &[Column] = &[
    Column { key: "sender", heading: "sender" },
    Column { key: "congestion", heading: "congestion control" },
    Column { key: "gbit", heading: "Gbit/s" },
    Column { key: "of_cubic", heading: "of its cubic" },
    Column { key: "payload_bytes_mean", heading: "payload B: mean" },
    Column { key: "payload_bytes_p99", heading: "p99" },
    Column { key: "gap_p50_us", heading: "gap µs: p50" },
    Column { key: "gap_p99_us", heading: "p99" },
];

pub(super) fn runs(quick: bool) -> (Section, Vec<Run>) {
    let (time, rounds) = if quick { (0.4, 1) } else { (1.0, 5) };
    let section = Section {
        name: "bulk",
        setup: format!(
            "one bulk sender on a link without a limit: taut over a TUN to the kernel, the kernel to itself over veth; the \
             median of {rounds} rounds of {time} s, by turns. A packet is what is handed to the device."
        ),
        columns: COLUMNS,
        rows: Vec::new(),
        published: "none; the kernel's bbr reaches 0.2 to 0.3 of its cubic over a TUN",
        names: 2,
    };
    let run = Run::by_turns("cubic and bbr without a limit", move || {
        measure(rounds, Duration::from_secs_f64(time))
    });
    (section, vec![run])
}

/// One measurement.
struct Sample {
    gbit: f64,
    /// Mean and p99 of payloads in bytes, p50 and p99 of gaps in nanoseconds; not known of the kernel.
    packets: Option<[f64; 4]>,
}

fn measure(rounds: usize, time: Duration) -> anyhow::Result<Vec<Row>> {
    let kernel = Kernel::new()?;
    let contestants = [("taut", Algorithm::cubic()), ("taut", Algorithm::bbr())];
    let mut samples: Vec<Vec<Sample>> = (0..4).map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (index, (_, congestion)) in contestants.iter().enumerate() {
            samples[index].push(taut(congestion.clone(), time)?);
            // A kernel without bbr is left out.
            if let Ok(gbit) = kernel.send(congestion.name(), time) {
                samples[2 + index].push(Sample { gbit, packets: None });
            }
        }
    }
    let names = ["taut", "taut", "kernel", "kernel"];
    let congestions = [Algorithm::cubic(), Algorithm::bbr(), Algorithm::cubic(), Algorithm::bbr()];
    let medians: Vec<Option<Sample>> = samples.into_iter().map(median).collect();
    let mut rows = Vec::new();
    for (index, sample) in medians.iter().enumerate() {
        let Some(sample) = sample else { continue };
        let cubic = medians[index & !1].as_ref().map_or(f64::NAN, |cubic| cubic.gbit);
        let of = |place: usize, unit: fn(f64) -> f64| sample.packets.map(|values| unit(values[place]));
        rows.push(vec![
            names[index].into(),
            congestions[index].name().into(),
            sample.gbit.into(),
            (sample.gbit / cubic).into(),
            of(0, |bytes| bytes).into(),
            of(1, |bytes| bytes).into(),
            of(2, us).into(),
            of(3, us).into(),
        ]);
    }
    Ok(rows)
}

fn median(mut samples: Vec<Sample>) -> Option<Sample> {
    samples.sort_by(|a, b| a.gbit.total_cmp(&b.gbit));
    let middle = samples.len() / 2;
    samples.into_iter().nth(middle)
}

fn taut(congestion: Algorithm, time: Duration) -> anyhow::Result<Sample> {
    let bench = Bench::new("", |_| {}, true)?;
    let recorder = bench.recorder.as_ref().context("the bench records nothing")?;
    // Only gaps and sizes are of interest, not how they compare with a rate.
    recorder.follow(u64::MAX);
    let options = ConnOptions { congestion: Some(congestion), ..ConnOptions::default() };
    bench.with_bulk(&options, || {
        std::thread::sleep(time / 2);
        recorder.begin()?;
        let (before, watch) = (bench.taken(), Stopwatch::start());
        std::thread::sleep(time);
        let (taken, seconds) = (bench.taken() - before, watch.elapsed().as_secs_f64());
        let measured = recorder.end().context("nothing was recorded")?;
        Ok(Sample {
            gbit: taken as f64 * 8.0 / seconds / 1e9,
            packets: Some([
                measured.payloads.mean(),
                measured.payloads.value_at_quantile(0.99) as f64,
                measured.gaps.value_at_quantile(0.5) as f64,
                measured.gaps.value_at_quantile(0.99) as f64,
            ]),
        })
    })
}

/// The kernel's TCP at both ends of a veth pair.
struct Kernel {
    near: Namespace,
    far: Namespace,
}

const FAR: &str = "10.8.0.1/24";
const NEAR: &str = "10.8.0.2/24";

impl Kernel {
    fn new() -> anyhow::Result<Self> {
        let (near, far) = (Namespace::new()?, Namespace::new()?);
        let (a, b) = near.connect("veth0", &far, "veth0")?;
        for (interface, address) in [(&a, NEAR), (&b, FAR)] {
            interface.set_up()?;
            interface.add_address(address.parse::<Cidr>()?)?;
        }
        Ok(Self { near, far })
    }

    /// Gbit/s of one bulk sender.
    fn send(&self, congestion: &str, time: Duration) -> anyhow::Result<f64> {
        let listener = self.far.enter(|| TcpListener::bind(("10.8.0.1", 0)))??;
        let to = listener.local_addr()?;
        let taken = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&taken);
        let socket = self.near.enter(|| connect(to, congestion))??;
        let sink = std::thread::spawn(move || -> io::Result<()> {
            let (mut stream, _) = listener.accept()?;
            let mut chunk = vec![0; 1 << 16];
            loop {
                match stream.read(&mut chunk)? {
                    0 => return Ok(()),
                    count => counter.fetch_add(count as u64, Ordering::Relaxed),
                };
            }
        });
        let done = AtomicBool::new(false);
        let gbit = std::thread::scope(|scope| {
            let mut writer = &socket;
            let done = &done;
            let sender = scope.spawn(move || -> io::Result<()> {
                let chunk = vec![0x5a; 1 << 16];
                while !done.load(Ordering::Relaxed) {
                    writer.write_all(&chunk)?;
                }
                Ok(())
            });
            std::thread::sleep(time / 2);
            let (before, watch) = (taken.load(Ordering::Relaxed), Stopwatch::start());
            std::thread::sleep(time);
            let bits = (taken.load(Ordering::Relaxed) - before) as f64 * 8.0;
            let gbit = bits / watch.elapsed().as_secs_f64() / 1e9;
            done.store(true, Ordering::Relaxed);
            sender.join().map_err(|_| io::Error::other("the sender panicked"))?.map(|()| gbit)
        })?;
        drop(socket);
        sink.join().map_err(|_| io::Error::other("the sink panicked"))??;
        Ok(gbit)
    }
}

fn connect(to: SocketAddr, congestion: &str) -> io::Result<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.set_tcp_congestion(congestion.as_bytes())?;
    socket.connect(&to.into())?;
    Ok(socket.into())
}
