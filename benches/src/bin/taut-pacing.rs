//! Paced flows by the sockets that people use: how much of its rate each gets, on a quiet machine and on a busy one. taut on a
//! TUN, then the kernel over veth, in the same run; without privileges of scheduling.
//!
//! Each flow has a blocking socket with `SO_MAX_PACING_RATE` and a thread that writes; the peer is the kernel. Bytes
//! acknowledged are counted after two seconds, for as long as `--seconds` says.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream as KernelStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Parser;
use taut::Stack;
use taut::blocking::TcpStream;
use taut_core::ConnOptions;
use taut_testbed::{Kernel, Peer, Service, Subnet, TcpInfo, connect};

const PORT: u16 = 9;
const WARM_UP: Duration = Duration::from_secs(2);

/// Paced flows: the share of its rate that each gets, taut beside the kernel.
#[derive(Parser)]
#[command(after_help = "Example:\n  taut-pacing --flows 20,100,400 --busy --json")]
struct Args {
    /// Numbers of flows
    #[arg(long, value_delimiter = ',', default_value = "20,100,400")]
    flows: Vec<u64>,
    /// The rate of all flows together, in Mbit/s
    #[arg(long, default_value_t = 800)]
    mbit: u64,
    /// How long the bytes are counted
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Rounds of each number of flows
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Keep all processors busy with endless loops, at the priority of everything else
    #[arg(long)]
    busy: bool,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

/// The result of one run, as shares of the rate.
struct Shares {
    sum: f64,
    least: f64,
    most: f64,
}

/// Counts the bytes of each flow for `span`, after the warm-up.
fn count(flows: u64, rate: u64, span: Duration, acked: impl Fn() -> Result<Vec<u64>>) -> Result<Shares> {
    thread::sleep(WARM_UP);
    let (start, before) = (Instant::now(), acked()?);
    thread::sleep(span);
    let (seconds, after) = (start.elapsed().as_secs_f64(), acked()?);
    let target = rate as f64 * seconds;
    let shares: Vec<f64> =
        before.iter().zip(&after).map(|(before, after)| (after - before) as f64 / target).collect();
    let sum = shares.iter().sum::<f64>() / flows as f64;
    let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
    Ok(Shares { sum, least, most: shares.iter().copied().fold(0.0, f64::max) })
}

/// Writes until `stop`, and for the last time when the connection is closed.
fn write(mut to: impl std::io::Write, stop: &AtomicBool) {
    let zeros = vec![0; 64 << 10];
    while !stop.load(Relaxed) && to.write(&zeros).is_ok() {}
}

fn taut(flows: u64, rate: u64, span: Duration) -> Result<Shares> {
    let kernel = Kernel::new()?;
    let build = || Stack::builder().tun("taut0").address("10.44.0.2/24").host_address("10.44.0.1/24").build();
    let stack = kernel.enter(build)??;
    let _peer = Peer::start(&kernel, &[(PORT, Service::Sink)])?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut streams = Vec::new();
    for _ in 0..flows {
        let stream = TcpStream::connect(&stack, "10.44.0.1:9")?;
        stream.set_max_pacing_rate(rate)?;
        let (writer, stop) = (stream.try_clone()?, Arc::clone(&stop));
        thread::spawn(move || write(writer, &stop));
        streams.push(stream);
    }
    let acked = || streams.iter().map(|stream| Ok(stream.info()?.bytes_acked)).collect();
    let shares = count(flows, rate, span, acked);
    stop.store(true, Relaxed);
    shares
}

fn kernel(flows: u64, rate: u64, span: Duration) -> Result<Shares> {
    const NET: Subnet = Subnet(45);
    let (near, far) = (Kernel::new()?, Kernel::new()?);
    near.veth(&far, NET, 1_500)?;
    let _peer = Peer::start(&far, &[(PORT, Service::Sink)])?;
    let stop = Arc::new(AtomicBool::new(false));
    let options = ConnOptions { max_pacing_rate: Some(rate), ..ConnOptions::default() };
    let at: SocketAddr = (NET.far_v4(), PORT).into();
    let mut streams: Vec<KernelStream> = Vec::new();
    for _ in 0..flows {
        // taut's default, so that both columns have the same congestion control.
        let stream = near.enter(|| connect(at, &options, Some("cubic")))??;
        let (writer, stop) = (stream.try_clone()?, Arc::clone(&stop));
        thread::spawn(move || write(writer, &stop));
        streams.push(stream);
    }
    let acked = || streams.iter().map(|stream| Ok(TcpInfo::of(stream)?.bytes_acked())).collect();
    let shares = count(flows, rate, span, acked);
    stop.store(true, Relaxed);
    shares
}

fn main() -> Result<()> {
    let args = Args::parse();
    let span = Duration::from_secs(args.seconds);
    if args.busy {
        for _ in 0..thread::available_parallelism()?.get() {
            thread::spawn(|| {
                loop {
                    std::hint::spin_loop();
                }
            });
        }
    }
    let mut out = std::io::stdout().lock();
    if !args.json {
        writeln!(
            out,
            "{:>6} {:>7} {:>8} {:>8} {:>8}   shares of the rate; cubic on both sides",
            "flows", "stack", "sum", "least", "most"
        )?;
    }
    for &flows in &args.flows {
        let rate = args.mbit * 125_000 / flows.max(1);
        for _ in 0..args.rounds {
            for (stack, run) in [("taut", taut as fn(_, _, _) -> _), ("kernel", kernel)] {
                let Shares { sum, least, most } =
                    run(flows, rate, span).with_context(|| format!("{stack}, {flows} flows"))?;
                if args.json {
                    let line = serde_json::json!({ "flows": flows, "stack": stack, "busy": args.busy, "sum": sum, "least": least, "most": most });
                    writeln!(out, "{line}")?;
                } else {
                    writeln!(out, "{flows:>6} {stack:>7} {sum:>8.4} {least:>8.4} {most:>8.4}")?;
                }
            }
        }
    }
    Ok(())
}
