//! Bulk transfers over an Ethernet interface: taut over packet sockets, beside taut over a TUN, the kernel's
//! TCP over the same kind of interface, and gVisor's stack by `fdbased` (benches/fdbased), in turns. The peer
//! is the kernel, and CUBIC is everywhere.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use taut::{Stack, blocking::TcpStream};
use taut_bench::net::{LOCAL, Link, Near, PEER, PORT};
use taut_bench::peer::{self, CHUNK, Role};
use taut_bench::probe::Probe;
use taut_bench::{cpu, net, report};
use taut_testbed::Kernel;

/// Not measured: slow start and buffers that grow.
const WARM_UP: Duration = Duration::from_millis(1_000);
/// How often a thread checks whether to stop.
const TICK: Duration = Duration::from_millis(200);

/// Bulk transfers over packet sockets, a TUN, the kernel's TCP, and gVisor's fdbased.
#[derive(Parser)]
#[command(after_help = "Example:\n  taut-devices --rounds 5 --fdbased benches/fdbased/fdbased")]
struct Args {
    /// Rounds; in each, every case runs once
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How long each case is measured
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// gVisor's program; left out if not given
    #[arg(long, value_name = "FILE")]
    fdbased: Option<PathBuf>,
    /// `taut.tsq` of taut's stacks
    #[arg(long, value_name = "MODE", default_value = "auto")]
    tsq: String,
    /// Only these, of kernel, packet, tun, gvisor
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// The result of a case.
struct Sample {
    gbit_per_s: f64,
    /// CPU-seconds of both ends for each gigabyte.
    cpu_per_gb: f64,
    /// Cores that other processes kept busy.
    disturbance: f64,
}

/// The program of another stack, which ends with its case.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The stack's application, until told to stop.
fn work(stream: &TcpStream, sends: bool, probe: &Probe) -> Result<()> {
    stream.set_read_timeout(Some(TICK))?;
    stream.set_write_timeout(Some(TICK))?;
    // The peer counts.
    let uncounted = Probe::new();
    probe.at_end({
        let stream = stream.try_clone()?;
        move || _ = stream.shutdown(std::net::Shutdown::Both)
    });
    if sends { peer::pour(stream, &uncounted) } else { peer::drain(stream, &uncounted) }
}

fn taut(stack: &Stack, sends: bool, probe: &Probe) -> Result<()> {
    work(&TcpStream::connect(stack, (PEER, PORT))?, sends, probe)
}

fn one(name: &str, sends: bool, args: &Args) -> Result<Sample> {
    let probe = Arc::new(Probe::new());
    let (near, kernel): (Option<Near>, Kernel) = match name {
        "tun" => Link::tun().map(|link| (Some(link.near), link.peer))?,
        "kernel" => Link::veth().map(|link| (Some(link.near), link.peer))?,
        _ => net::ethernet().map(|(near, peer)| (Some(Near::Kernel(near)), peer))?,
    };
    let role = if sends { Role::Drain } else { Role::PourCounting };
    let peer = peer::spawn(&kernel, role, LOCAL, None, &probe)?;
    let mut program = None;
    let address = format!("{LOCAL}/24");
    let builder = || Stack::builder().set_sysctl("taut.tsq", &args.tsq);
    let stack = match (name, near) {
        ("tun", Some(Near::Tun(tun))) => Some(builder().device(tun).address(&address).build()?),
        ("packet", Some(Near::Kernel(near))) => {
            Some(near.enter(|| builder().packet("veth0").address(&address).build())??)
        }
        ("gvisor", Some(Near::Kernel(near))) => {
            let file = args.fdbased.as_ref().context("gvisor needs --fdbased FILE")?;
            let way = if sends { "send" } else { "receive" };
            let mut command = Command::new(file);
            command.args(["veth0", &address, &format!("{PEER}:{PORT}"), way]).stdin(Stdio::null());
            program = Some(Program(near.namespace.spawn(&mut command).context("gvisor's program")?));
            None
        }
        (_, Some(Near::Kernel(near))) => {
            let probe = Arc::clone(&probe);
            near.thread("near", move || {
                let uncounted = Probe::new();
                let run = || -> Result<()> {
                    let stream = peer::connect(PEER)?;
                    let ended = stream.try_clone()?;
                    probe.at_end(move || _ = ended.shutdown(std::net::Shutdown::Both));
                    if sends { peer::pour(&stream, &uncounted) } else { peer::drain(&stream, &uncounted) }
                };
                if let Err(error) = run()
                    && !probe.stopped()
                {
                    probe.fail(error);
                }
            })?;
            None
        }
        _ => None,
    };
    let span = Duration::from_secs_f64(args.seconds);
    let child = program.as_ref().map(|program| program.0.id());
    let mut readings = Vec::new();
    let window = std::thread::scope(|scope| {
        let probe = &probe;
        if let Some(stack) = &stack {
            scope.spawn(move || {
                if let Err(error) = taut(stack, sends, probe)
                    && !probe.stopped()
                {
                    probe.fail(error);
                }
            });
        }
        let window = probe.watch_with(WARM_UP, span, || {
            readings.push(child.map_or(Ok(Duration::ZERO), cpu::of_other)?.as_secs_f64());
            Ok(())
        });
        probe.end();
        window
    })?;
    drop(program);
    let _ = peer.join();
    let others = readings[1] - readings[0];
    let gigabytes = window.count as f64 / 1e9;
    Ok(Sample {
        gbit_per_s: gigabytes * 8.0 / window.seconds,
        cpu_per_gb: (window.cpu_all + others) / gigabytes,
        disturbance: (window.disturbance - others / window.seconds).max(0.0),
    })
}

fn main() -> Result<()> {
    let args = Args::parse();
    let names: Vec<&str> = ["kernel", "packet", "tun", "gvisor"]
        .into_iter()
        .filter(|name| args.only.is_empty() || args.only.iter().any(|only| only == name))
        .filter(|name| *name != "gvisor" || args.fdbased.is_some())
        .collect();
    let mut samples: Vec<(&str, bool, Sample)> = Vec::new();
    for _ in 0..args.rounds {
        for sends in [true, false] {
            for &name in &names {
                let sample = one(name, sends, &args).with_context(|| format!("{name}, sends: {sends}"))?;
                samples.push((name, sends, sample));
            }
        }
    }
    println!(
        "{} rounds of {} s, {CHUNK} bytes a call, CUBIC; median (least to greatest); CPU of both ends",
        args.rounds, args.seconds
    );
    println!("{:<8} {:<9} {:>24} {:>26}", "", "", "Gbit/s", "CPU s/GB");
    for sends in [true, false] {
        for &name in &names {
            let of = |value: fn(&Sample) -> f64, digits: usize| {
                let of = samples.iter().filter(|(other, way, _)| *other == name && *way == sends);
                let values: Vec<f64> = of.map(|(_, _, sample)| value(sample)).collect();
                let (least, greatest) = report::range(&values);
                format!("{:.digits$} ({least:.digits$} to {greatest:.digits$})", report::median(&values))
            };
            println!(
                "{name:<8} {:<9} {:>24} {:>26}",
                if sends { "sends" } else { "receives" },
                of(|sample| sample.gbit_per_s, 1),
                of(|sample| sample.cpu_per_gb, 3)
            );
        }
    }
    let disturbed = samples.iter().map(|(_, _, sample)| sample.disturbance).fold(0.0, f64::max);
    println!("at most {disturbed:.2} cores busy with other things");
    Ok(())
}
