//! More flows than processors, by the sockets that people use: bbr flows, each over an emulated link of its own; taut
//! and then the kernel, in the same run, on a quiet machine or a busy one.
//!
//! Only the thread that plays a link has real-time priority, as a link does not wait for other programs. Each flow of
//! taut has a stack with a thread, and a blocking socket with a thread that writes; each of the kernel has a namespace
//! and such a socket. The peer is the kernel.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream as KernelStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Parser;
use taut::Stack;
use taut::blocking::TcpStream;
use taut_core::{ConnOptions, LinkCaps};
use taut_device::TunOptions;
use taut_testbed::{Emulator, Kernel, Peer, Port, Service, Subnet, TcpInfo, Watcher, Ways, connect};

const NET: Subnet = Subnet(46);
const PORT: u16 = 9;
/// Bytes that the in-process link holds before it reports that it is full: it is emptied at once.
const PIPE_LIMIT_BYTES: usize = 4 << 20;

/// Several flows on few processors: the goodput of each, taut beside the kernel.
#[derive(Parser)]
#[command(after_help = "Example:\n  taut-contention --flows 8 --busy --json")]
struct Args {
    /// Flows, each over a link of its own
    #[arg(long, default_value_t = 8)]
    flows: u64,
    /// Rate of each link, in Mbit/s
    #[arg(long, default_value_t = 100)]
    mbit: u64,
    /// Round-trip time of each link, in ms
    #[arg(long, default_value_t = 100)]
    rtt: u64,
    /// Congestion control
    #[arg(long, default_value = "bbr")]
    congestion: String,
    /// How long the flows run before their bytes are counted
    #[arg(long, default_value_t = 5)]
    warm_up: u64,
    /// How long the bytes are counted
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Rounds
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Keep all processors busy with endless loops, at the priority of everything else
    #[arg(long)]
    busy: bool,
    /// Priority of taut's threads: realtime:1 to realtime:99, or nice:-20 to nice:19
    #[arg(long)]
    priority: Option<taut::Priority>,
    /// A setting of taut's stacks, such as taut.pacing=off
    #[arg(long, value_name = "NAME=VALUE")]
    sysctl: Vec<String>,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    /// Write the state of each of taut's flows to this file, each 100 ms of the last round
    #[arg(long, value_name = "CSV")]
    series: Option<PathBuf>,
}

/// The result of one run.
struct Outcome {
    /// Mbit/s of each flow.
    flows: Vec<f64>,
    /// taut's counters of late wake-ups, by name.
    counters: Vec<(&'static str, u64)>,
    /// Per cent of the time for which each gate of taut's send path was shut.
    gates: Vec<(&'static str, f64)>,
}

/// Ticks of all processors since the machine started: all, and those in which they were idle.
fn ticks() -> Result<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/stat").context("the processors' time")?;
    let fields: Vec<u64> = text
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    Ok((fields.iter().take(8).sum(), fields.get(3).copied().unwrap_or_default()))
}

/// Joins two ports by a link with a queue of one bandwidth-delay product.
fn link(args: &Args, near: Port, far: Port) -> Result<Emulator> {
    let (mbit, one_way_us) = (args.mbit, args.rtt * 500);
    let limit = (mbit * 125 * args.rtt).max(30_000);
    let wire = format!("netem delay {one_way_us}us limit 100000").parse()?;
    let line = format!("tbf rate {mbit}mbit burst 0 limit {limit}").parse()?;
    let nothing = || Arc::new(Mutex::new(())) as Watcher;
    let ways = Ways {
        there: vec![line, wire],
        back: vec![format!("netem delay {one_way_us}us limit 100000").parse()?],
        is_network: true,
        seed: 1,
        ..Ways::default()
    };
    Ok(Emulator::start(near, far, ways, [nothing(), nothing()])?)
}

/// Writes until `stop`, and for the last time when the connection is closed.
fn write(mut to: impl std::io::Write, stop: &AtomicBool) {
    let zeros = vec![0; 64 << 10];
    while !stop.load(Relaxed) && to.write(&zeros).is_ok() {}
}

/// Samples the flows until `stop`, a line for each.
fn sample(streams: &[TcpStream], to: &Path, stop: &AtomicBool) -> Result<()> {
    let mut out = std::io::BufWriter::new(std::fs::File::create(to)?);
    writeln!(
        out,
        "t_s,flow,acked_bytes,pacing_mbit,delivery_mbit,cwnd,unacked,rtt_ms,min_rtt_ms,retransmitted,unsent_bytes"
    )?;
    let start = Instant::now();
    while !stop.load(Relaxed) {
        for (flow, stream) in streams.iter().enumerate() {
            let info = stream.info()?;
            let ms =
                |time: Option<taut_core::Duration>| time.map_or(0.0, |time| time.as_nanos() as f64 * 1e-6);
            writeln!(
                out,
                "{:.3},{flow},{},{:.2},{:.2},{},{},{:.2},{:.2},{},{}",
                start.elapsed().as_secs_f64(),
                info.bytes_acked,
                info.pacing_rate as f64 * 8e-6,
                info.delivery_rate as f64 * 8e-6,
                info.snd_cwnd,
                info.unacked,
                ms(info.rtt),
                ms(info.min_rtt),
                info.total_retrans,
                info.notsent_bytes,
            )?;
        }
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Per cent of the processors' time that nobody used while bytes were counted last.
static IDLE: AtomicU64 = AtomicU64::new(0);

/// Counts the bytes of each flow after the warm-up, in Mbit/s.
fn count(args: &Args, acked: impl Fn() -> Result<Vec<u64>>) -> Result<Vec<f64>> {
    thread::sleep(Duration::from_secs(args.warm_up));
    let (start, before, then) = (Instant::now(), acked()?, ticks()?);
    thread::sleep(Duration::from_secs(args.seconds));
    let (seconds, after, now) = (start.elapsed().as_secs_f64(), acked()?, ticks()?);
    IDLE.store((now.1 - then.1) * 100 / (now.0 - then.0).max(1), Relaxed);
    Ok(before.iter().zip(after).map(|(before, after)| (after - before) as f64 * 8e-6 / seconds).collect())
}

fn taut(args: &Args) -> Result<Outcome> {
    let stop = Arc::new(AtomicBool::new(false));
    let (mut stacks, mut streams, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..args.flows {
        let receiver = Kernel::new()?;
        let tun = receiver.tun(&NET.far(), &TunOptions::default())?;
        let (near, far) = taut_device::pipe(LinkCaps::offloading(1_500), PIPE_LIMIT_BYTES)?;
        let emulator = link(args, Port::Pipe(far), Port::Tun(tun))?;
        let peer = Peer::start(&receiver, &[(PORT, Service::Sink)])?;
        let builder = Stack::builder()
            .device(near)
            .address(&NET.near()[0].to_string())
            .set_sysctl("tcp_congestion_control", &args.congestion);
        let sysctls = args.sysctl.iter().filter_map(|text| text.split_once('='));
        let builder = sysctls.fold(builder, |builder, (name, value)| builder.set_sysctl(name, value));
        let stack = args
            .priority
            .into_iter()
            .fold(builder, |builder, priority| builder.priority(priority))
            .build()?;
        let stream = TcpStream::connect(&stack, SocketAddr::from((NET.far_v4(), PORT)))?;
        let (writer, stop) = (stream.try_clone()?, Arc::clone(&stop));
        thread::spawn(move || write(writer, &stop));
        streams.push(stream);
        stacks.push(stack);
        ends.push((peer, emulator, receiver));
    }
    let acked = || streams.iter().map(|stream| Ok(stream.info()?.bytes_acked)).collect();
    let flows = thread::scope(|scope| {
        let sampler = args.series.as_ref().map(|path| scope.spawn(|| sample(&streams, path, &stop)));
        let flows = count(args, acked);
        stop.store(true, Relaxed);
        sampler.map_or(Ok(()), |sampler| sampler.join().expect("the sampler does not panic"))?;
        flows
    });
    let mut all = taut_core::Counters::default();
    stacks.iter().for_each(|stack| all.add(&stack.counters()));
    let counters = all.iter().filter(|(name, _)| name.starts_with("TautPacing")).collect();
    let mut report = taut::Report::default();
    stacks.iter().for_each(|stack| report.add(&stack.report()));
    let total: f64 = report.shares.iter().map(|(_, time)| time.as_nanos() as f64).sum();
    let share = |&(gate, time): &(taut::Gate, taut_core::Duration)| {
        (gate.name(), time.as_nanos() as f64 * 100.0 / total)
    };
    let gates = report.shares.iter().map(share).filter(|&(_, share)| share >= 1.0).collect();
    drop((streams, stacks));
    Ok(Outcome { flows: flows?, counters, gates })
}

fn kernel(args: &Args) -> Result<Outcome> {
    let stop = Arc::new(AtomicBool::new(false));
    let (mut streams, mut ends) = (Vec::<KernelStream>::new(), Vec::new());
    for _ in 0..args.flows {
        let (sender, receiver) = (Kernel::new()?, Kernel::new()?);
        let tun =
            |kernel: &Kernel, addresses: &[_]| kernel.tun(addresses, &TunOptions::default()).map(Port::Tun);
        let emulator = link(args, tun(&sender, &NET.near())?, tun(&receiver, &NET.far())?)?;
        let peer = Peer::start(&receiver, &[(PORT, Service::Sink)])?;
        let at = (NET.far_v4(), PORT).into();
        let stream = sender.enter(|| connect(at, &ConnOptions::default(), Some(&args.congestion)))??;
        let (writer, stop) = (stream.try_clone()?, Arc::clone(&stop));
        thread::spawn(move || write(writer, &stop));
        streams.push(stream);
        ends.push((peer, emulator, sender, receiver));
    }
    let flows = count(args, || streams.iter().map(|stream| Ok(TcpInfo::of(stream)?.bytes_acked())).collect());
    stop.store(true, Relaxed);
    for stream in &streams {
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }
    Ok(Outcome { flows: flows?, counters: Vec::new(), gates: Vec::new() })
}

fn main() -> Result<()> {
    let args = Args::parse();
    if args.busy {
        taut_bench::path::keep_busy()?;
    }
    let mut out = std::io::stdout().lock();
    if !args.json {
        writeln!(
            out,
            "{:>7} {:>8} {:>8} {:>8} {:>5}   Mbit/s; {} flows; idle: % of the processors' time",
            "stack", "mean", "least", "most", "idle", args.flows
        )?;
    }
    for _ in 0..args.rounds {
        for (stack, run) in [("taut", taut as fn(&Args) -> _), ("kernel", kernel)] {
            let Outcome { flows, counters, gates } =
                run(&args).with_context(|| format!("{stack}, {} flows", args.flows))?;
            let mean = flows.iter().sum::<f64>() / flows.len() as f64;
            let least = flows.iter().copied().fold(f64::INFINITY, f64::min);
            let most = flows.iter().copied().fold(0.0, f64::max);
            if args.json {
                let counters: serde_json::Map<_, _> =
                    counters.iter().map(|&(name, count)| (name.to_owned(), count.into())).collect();
                let line = serde_json::json!({
                    "stack": stack, "flows": args.flows, "busy": args.busy, "congestion": args.congestion,
                    "mean": mean, "least": least, "most": most, "idle": IDLE.load(Relaxed), "counters": counters, "gates": gates,
                });
                writeln!(out, "{line}")?;
                continue;
            }
            write!(out, "{stack:>7} {mean:>8.2} {least:>8.2} {most:>8.2} {:>5}", IDLE.load(Relaxed))?;
            for (name, count) in counters {
                write!(out, " {}:{count}", name.trim_start_matches("TautPacing"))?;
            }
            for (name, share) in gates {
                write!(out, " {name}:{share:.0}%")?;
            }
            writeln!(out)?;
        }
    }
    Ok(())
}
