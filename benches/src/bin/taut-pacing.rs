//! Paced flows by the sockets that people use: how much of its rate each gets, on a quiet machine and on a busy one. taut on a
//! TUN, then the kernel over veth, in the same run; without privileges of scheduling.
//!
//! Each flow has a blocking socket with `SO_MAX_PACING_RATE` and a thread that writes; the peer is the kernel. Bytes
//! acknowledged are counted after two seconds, for as long as `--seconds` says.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream as KernelStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Parser;
use taut::Stack;
use taut::blocking::TcpStream;
use taut_core::{ConnOptions, LinkCaps};
use taut_device::TunOptions;
use taut_testbed::{Emulator, Kernel, Peer, Port, Service, Subnet, Taken, TcpInfo, Watch, Ways, connect};

const PORT: u16 = 9;
/// The link of a soak, and its rate in bytes per second.
const SOAK: Subnet = Subnet(47);
const SOAK_RATE: u64 = 1_250_000;
const WARM_UP: Duration = Duration::from_secs(2);

/// Paced flows: the share of its rate that each gets, taut beside the kernel.
#[derive(Parser)]
#[command(
    after_help = "Example:\n  taut-pacing --flows 20,100,400 --busy --json\n  taut-pacing --soak 60 --busy"
)]
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
    /// Instead, one flow of 10 Mbit/s for this long: the gaps between its packets, as a thread with real-time priority sees
    /// them
    #[arg(long, value_name = "SECONDS")]
    soak: Option<u64>,
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

/// The times at which data came from the sender.
#[derive(Default)]
struct Times(Vec<u64>);

impl Watch for Times {
    fn on_taken(&mut self, packet: &Taken) {
        if packet.payload > 0 {
            self.0.push(packet.at.as_nanos());
        }
    }
    fn on_dropped(&mut self, _: u64) {}
}

/// Joins a sender to the kernel of `receiver`, by a wire of 1 ms. Returns the times of its packets.
fn watched(near: Port, receiver: &Kernel) -> Result<(Emulator, Arc<Mutex<Times>>)> {
    let far = Port::Tun(receiver.tun(&SOAK.far(), &TunOptions::default())?);
    let wire = || "netem delay 1ms limit 100000".parse();
    let times = Arc::new(Mutex::new(Times::default()));
    let ways =
        Ways { there: vec![wire()?], back: vec![wire()?], is_network: true, seed: 1, ..Ways::default() };
    Ok((Emulator::start(near, far, ways, [Arc::clone(&times) as _, Arc::new(Mutex::new(())) as _])?, times))
}

/// One flow of `rate` bytes per second for `span`: the times of its packets, and taut's counters of lateness.
fn soak_taut(rate: u64, span: Duration) -> Result<(Vec<u64>, String)> {
    let receiver = Kernel::new()?;
    let (near, far) = taut_device::pipe(LinkCaps::offloading(1_500), 4 << 20)?;
    let (_emulator, times) = watched(Port::Pipe(far), &receiver)?;
    let _peer = Peer::start(&receiver, &[(PORT, Service::Sink)])?;
    let stack = Stack::builder().device(near).address(&SOAK.near()[0].to_string()).build()?;
    let stream = TcpStream::connect(&stack, SocketAddr::from((SOAK.far_v4(), PORT)))?;
    stream.set_max_pacing_rate(rate)?;
    let stop = Arc::new(AtomicBool::new(false));
    let (writer, their_stop) = (stream.try_clone()?, Arc::clone(&stop));
    thread::spawn(move || write(writer, &their_stop));
    thread::sleep(WARM_UP + span);
    stop.store(true, Relaxed);
    let counters = stack.counters();
    let late = counters.iter().filter(|(name, _)| name.starts_with("TautPacing"));
    let said: String =
        late.map(|(name, count)| format!(" {}:{count}", name.trim_start_matches("TautPacing"))).collect();
    let most = stack.report().lateness.most;
    Ok((taken(&times), format!("{said} most late: {} ms", most.as_nanos() as f64 / 1e6)))
}

fn soak_kernel(rate: u64, span: Duration) -> Result<(Vec<u64>, String)> {
    let (sender, receiver) = (Kernel::new()?, Kernel::new()?);
    let near = Port::Tun(sender.tun(&SOAK.near(), &TunOptions::default())?);
    let (_emulator, times) = watched(near, &receiver)?;
    let _peer = Peer::start(&receiver, &[(PORT, Service::Sink)])?;
    let options = ConnOptions { max_pacing_rate: Some(rate), ..ConnOptions::default() };
    let stream = sender.enter(|| connect((SOAK.far_v4(), PORT).into(), &options, Some("cubic")))??;
    let stop = Arc::new(AtomicBool::new(false));
    let (writer, their_stop) = (stream.try_clone()?, Arc::clone(&stop));
    thread::spawn(move || write(writer, &their_stop));
    thread::sleep(WARM_UP + span);
    stop.store(true, Relaxed);
    stream.shutdown(std::net::Shutdown::Both)?;
    Ok((taken(&times), String::new()))
}

fn taken(times: &Mutex<Times>) -> Vec<u64> {
    std::mem::take(&mut times.lock().unwrap_or_else(std::sync::PoisonError::into_inner).0)
}

/// Prints the gaps between the packets of one flow, and each above 50 ms with its time.
fn soak(args: &Args, span: Duration, out: &mut impl std::io::Write) -> Result<()> {
    for (stack, run) in [("taut", soak_taut as fn(_, _) -> _), ("kernel", soak_kernel)] {
        let (times, said): (Vec<u64>, String) = run(SOAK_RATE, span).context(stack)?;
        let first = times.first().copied().unwrap_or_default();
        let start = first + WARM_UP.as_nanos() as u64;
        let pairs = times.windows(2).filter(|pair| pair[0] >= start);
        let gaps: Vec<(u64, u64)> = pairs.map(|pair| (pair[1] - pair[0], pair[1] - first)).collect();
        let mut sorted: Vec<u64> = gaps.iter().map(|gap| gap.0).collect();
        sorted.sort_unstable();
        let at = |share: f64| {
            sorted
                .get((sorted.len() as f64 * share) as usize)
                .or(sorted.last())
                .map_or(0.0, |&ns| ns as f64 / 1e6)
        };
        let long: Vec<(f64, f64)> = gaps
            .iter()
            .filter(|gap| gap.0 > 50_000_000)
            .map(|gap| (gap.0 as f64 / 1e6, gap.1 as f64 / 1e9))
            .collect();
        if args.json {
            let line = serde_json::json!({
                "stack": stack, "busy": args.busy, "seconds": span.as_secs(), "packets": sorted.len(), "p50_ms": at(0.5),
                "p99_ms": at(0.99), "max_ms": at(1.0), "over_50ms": long, "counters": said.trim(),
            });
            writeln!(out, "{line}")?;
            continue;
        }
        writeln!(
            out,
            "{stack:>7} {} gaps: p50 {:.2} ms, p99 {:.2}, most {:.2}; {} over 50 ms{said}",
            sorted.len(),
            at(0.5),
            at(0.99),
            at(1.0),
            long.len()
        )?;
        for (gap, time) in long {
            writeln!(out, "        {gap:.1} ms, which ended {time:.3} s after the first packet")?;
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let args = Args::parse();
    let span = Duration::from_secs(args.seconds);
    if args.busy {
        taut_bench::path::keep_busy()?;
    }
    let mut out = std::io::stdout().lock();
    if let Some(seconds) = args.soak {
        return soak(&args, Duration::from_secs(seconds), &mut out);
    }
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
