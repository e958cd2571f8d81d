//! How much one bulk connection holds, by the sockets that people use: bytes in the sender that are unacknowledged or unsent,
//! bytes in the receiver that are unread or out of order, sampled every 10 ms after the first second, beside what the path needs.
//! taut, then the kernel over the same path; no privileges of scheduling but for the emulated path.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream as KernelStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use taut::blocking::{TcpListener, TcpStream};
use taut_bench::path::{NET, Path, Queue, keep_busy};
use taut_core::ConnOptions;
use taut_testbed::{Peer, Service, SocketMemory, TcpInfo, connect, listen};

const PORT: u16 = 9;
const WARM_UP: Duration = Duration::from_secs(1);
const EACH: Duration = Duration::from_millis(10);
/// Bytes that a connection may hold on any path.
const FREE: f64 = 512e3;
/// How long unsent data may last where a queue is deeper than the path.
const UNSENT: f64 = 0.010;

/// Bytes held by one bulk connection, taut beside the kernel.
///
/// A sender or receiver holds at most 2 × goodput × least round trip + 512 kB where the bottleneck's queue is at most one
/// bandwidth-delay product; with a deeper one, unsent data lasts at most 10 ms of the goodput and 512 kB. The column
/// `most/bound` is the largest sample as a share of that; `over` is the share of samples above it, and `in repair` the
/// share of those in which the sender repaired losses.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  taut-buffers\n  taut-buffers --only 1000:20:1 --way send --busy --json\n\n\
    A path is MBIT:MS:QUEUE, the queue in bandwidth-delay products or, with a k, in kilobytes; `local` is the shortest path of \
    the machine."
)]
struct Args {
    /// Only these paths
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "PATH",
        default_value = "local,100:1:1,100:20:1,100:100:1,1000:1:1,1000:20:1,1000:100:1,100:20:4,1000:20:4,100:1:30000k,1000:1:30000k"
    )]
    only: Vec<String>,
    /// Only this direction: send or receive
    #[arg(long)]
    way: Option<String>,
    /// How long samples are taken
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Runs of each path
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// taut's unsent mark: 4294967295 is none, as in Linux; 0 follows the rate
    #[arg(long, default_value_t = 0)]
    notsent_lowat: u32,
    /// Keep all processors busy with endless loops, at the priority of everything else
    #[arg(long)]
    busy: bool,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

fn parse(text: &str) -> Result<Path> {
    if text == "local" {
        return Ok(Path { bottleneck: None, rtt: Duration::ZERO });
    }
    let parts: Vec<&str> = text.split(':').collect();
    let &[mbit, ms, queue] = parts.as_slice() else {
        bail!("{text:?} is not a path: write MBIT:MS:QUEUE, as in 100:20:1, or local");
    };
    let number =
        |part: &str| part.parse::<f64>().with_context(|| format!("{part:?} in {text:?} is not a number"));
    let queue = match queue.strip_suffix('k') {
        Some(kilobytes) => Queue::Bytes((number(kilobytes)? * 1e3) as u32),
        None => Queue::Bdp(number(queue)?),
    };
    Ok(Path {
        bottleneck: Some((number(mbit)? as u64, queue)),
        rtt: Duration::from_secs_f64(number(ms)? / 1e3),
    })
}

/// The bytes that a socket holds at one moment.
#[derive(Clone, Copy, Default)]
struct Held {
    /// Unacknowledged and unsent, or unread and out of order.
    all: u64,
    unsent: u64,
    /// The buffer's limit.
    limit: u64,
    /// Bytes acknowledged, or received, since the start.
    moved: u64,
    /// Round-trip times in seconds; 0 for unknown.
    least_rtt: f64,
    rtt: f64,
    /// The sender repairs losses: what it sent after a lost segment stays until that has arrived.
    repairs: bool,
}

/// The samples of a run.
#[derive(Clone, Copy, Default)]
struct Sampled {
    goodput: f64,
    most: u64,
    most_unsent: u64,
    most_limit: u64,
    mean: f64,
    least_rtt: f64,
    /// The bound, and the share of samples above it; none for a receiver behind a deeper queue.
    bound: Option<f64>,
    over: f64,
    /// The share of those in which the sender repaired losses.
    over_in_repair: f64,
    /// Mean of the time in queues, by the smoothed round-trip time.
    queue: f64,
}

/// The bound with which samples are compared.
#[derive(Clone, Copy)]
enum Bound {
    /// Everything held, with two bandwidth-delay products.
    All,
    /// Unsent data, with [`UNSENT`].
    Unsent,
    /// Nothing.
    None,
}

fn sample(span: Duration, bound: Bound, read: impl Fn() -> Result<Held>) -> Result<Sampled> {
    thread::sleep(WARM_UP);
    let (start, first) = (Instant::now(), read()?);
    let (mut sampled, mut queue, mut last, mut compared) = (Sampled::default(), 0.0, first, Vec::new());
    let mut sum = 0.0;
    while start.elapsed() < span {
        thread::sleep(EACH);
        last = read()?;
        let held = if matches!(bound, Bound::Unsent) { last.unsent } else { last.all };
        compared.push((held as f64, last.repairs));
        sampled.most = sampled.most.max(last.all);
        sampled.most_unsent = sampled.most_unsent.max(last.unsent);
        sampled.most_limit = sampled.most_limit.max(last.limit);
        sum += last.all as f64;
        queue += last.rtt - last.least_rtt;
    }
    let count = compared.len().max(1) as f64;
    sampled.goodput = (last.moved - first.moved) as f64 / start.elapsed().as_secs_f64();
    sampled.mean = sum / count;
    sampled.queue = queue / count;
    sampled.least_rtt = last.least_rtt;
    sampled.bound = match bound {
        Bound::All => Some(2.0 * sampled.goodput * sampled.least_rtt + FREE),
        Bound::Unsent => Some(UNSENT * sampled.goodput + FREE),
        Bound::None => None,
    };
    if let Some(bound) = sampled.bound {
        let over: Vec<_> = compared.iter().filter(|(held, _)| *held > bound).collect();
        sampled.over = over.len() as f64 / count;
        sampled.over_in_repair =
            over.iter().filter(|(_, repairs)| *repairs).count() as f64 / over.len().max(1) as f64;
    }
    Ok(sampled)
}

fn write(mut to: impl std::io::Write, stop: &AtomicBool) {
    let zeros = vec![0; 256 << 10];
    while !stop.load(Relaxed) && to.write(&zeros).is_ok() {}
}

fn read(mut from: impl std::io::Read) {
    let mut buffer = vec![0; 256 << 10];
    while from.read(&mut buffer).is_ok_and(|count| count > 0) {}
}

/// taut's default, so that both columns have the same congestion control.
const CUBIC: Option<&str> = Some("cubic");

fn held_by_taut_sender(stream: &TcpStream) -> Result<Held> {
    let info = stream.info()?;
    let in_flight = info.bytes_sent.saturating_sub(info.bytes_retrans + info.bytes_acked);
    let seconds = |time: Option<taut_core::Duration>| time.map_or(0.0, |time| time.as_nanos() as f64 / 1e9);
    Ok(Held {
        all: in_flight + info.notsent_bytes,
        unsent: info.notsent_bytes,
        limit: info.sndbuf.into(),
        moved: info.bytes_acked,
        least_rtt: seconds(info.min_rtt),
        rtt: seconds(info.rtt),
        repairs: ["recovery", "loss"].contains(&info.ca_state),
    })
}

fn held_by_kernel_sender(stream: &KernelStream) -> Result<Held> {
    let info = TcpInfo::of(stream)?;
    let unsent = u64::from(info.notsent_bytes());
    Ok(Held {
        all: u64::from(info.unacked()) * u64::from(info.snd_mss()) + unsent,
        unsent,
        limit: SocketMemory::of(stream)?.sndbuf.into(),
        moved: info.bytes_acked(),
        least_rtt: f64::from(info.min_rtt_us()) / 1e6,
        rtt: f64::from(info.rtt_us()) / 1e6,
        repairs: info.ca_state() >= 3,
    })
}

fn taut_sends(path: &Path, span: Duration, bound: Bound, mark: u32) -> Result<Sampled> {
    let link = path.from_taut(|builder| builder.configure(|config| config.send.notsent_lowat = mark))?;
    let _peer = Peer::start(&link.far, &[(PORT, Service::Sink)])?;
    let stop = Arc::new(AtomicBool::new(false));
    let stream = TcpStream::connect(&link.stack, (NET.far_v4(), PORT))?;
    let (writer, stopped) = (stream.try_clone()?, Arc::clone(&stop));
    thread::spawn(move || write(writer, &stopped));
    let sampled = sample(span, bound, || held_by_taut_sender(&stream));
    stop.store(true, Relaxed);
    sampled
}

fn kernel_sends(path: &Path, span: Duration, bound: Bound, _mark: u32) -> Result<Sampled> {
    let link = path.from_kernel()?;
    let _peer = Peer::start(&link.far, &[(PORT, Service::Sink)])?;
    let stop = Arc::new(AtomicBool::new(false));
    let at: SocketAddr = (NET.far_v4(), PORT).into();
    let stream = link.near.enter(|| connect(at, &ConnOptions::default(), CUBIC))??;
    let (writer, stopped) = (stream.try_clone()?, Arc::clone(&stop));
    thread::spawn(move || write(writer, &stopped));
    let sampled = sample(span, bound, || held_by_kernel_sender(&stream));
    stop.store(true, Relaxed);
    sampled
}

/// The far kernel connects and writes; taut reads.
fn taut_receives(path: &Path, span: Duration, bound: Bound, _mark: u32) -> Result<Sampled> {
    let link = path.from_taut(|builder| builder)?;
    let listener = TcpListener::bind(&link.stack, (NET.near_v4(), PORT))?;
    let at: SocketAddr = (NET.near_v4(), PORT).into();
    let sender = link.far.enter(|| connect(at, &ConnOptions::default(), CUBIC))??;
    let (stream, _) = listener.accept()?;
    let stop = Arc::new(AtomicBool::new(false));
    let (writer, stopped) = (sender.try_clone()?, Arc::clone(&stop));
    thread::spawn(move || write(writer, &stopped));
    let reader = stream.try_clone()?;
    thread::spawn(move || read(reader));
    let sampled = sample(span, bound, || {
        let (info, far) = (stream.info()?, held_by_kernel_sender(&sender)?);
        Ok(Held {
            all: info.rcv_queue_bytes + info.rcv_ooo_bytes,
            unsent: 0,
            limit: info.rcvbuf.into(),
            moved: info.bytes_received,
            ..far
        })
    });
    stop.store(true, Relaxed);
    sampled
}

/// The same with the kernel as the receiver. Its memory is counted, not its bytes, which it does not tell.
fn kernel_receives(path: &Path, span: Duration, bound: Bound, _mark: u32) -> Result<Sampled> {
    let link = path.from_kernel()?;
    let at: SocketAddr = (NET.near_v4(), PORT).into();
    let listener = link.near.enter(|| listen(at, CUBIC))??;
    let sender = link.far.enter(|| connect(at, &ConnOptions::default(), CUBIC))??;
    let (stream, _) = listener.accept()?;
    let stop = Arc::new(AtomicBool::new(false));
    let (writer, stopped) = (sender.try_clone()?, Arc::clone(&stop));
    thread::spawn(move || write(writer, &stopped));
    let reader = stream.try_clone()?;
    thread::spawn(move || read(reader));
    let sampled = sample(span, bound, || {
        let (memory, far) = (SocketMemory::of(&stream)?, held_by_kernel_sender(&sender)?);
        let moved = TcpInfo::of(&stream)?.bytes_received();
        Ok(Held { all: memory.rmem_alloc.into(), unsent: 0, limit: memory.rcvbuf.into(), moved, ..far })
    });
    stop.store(true, Relaxed);
    sampled
}

fn main() -> Result<()> {
    let args = Args::parse();
    let paths = args.only.iter().map(|text| Ok((text, parse(text)?))).collect::<Result<Vec<_>>>()?;
    type Run = fn(&Path, Duration, Bound, u32) -> Result<Sampled>;
    let runs: [(&str, &str, Run); 4] = [
        ("send", "taut", taut_sends),
        ("send", "kernel", kernel_sends),
        ("receive", "taut", taut_receives),
        ("receive", "kernel", kernel_receives),
    ];
    if let Some(way) = args.way.as_ref().filter(|way| !["send", "receive"].contains(&way.as_str())) {
        bail!("--way {way}: write send or receive");
    }
    if args.busy {
        keep_busy()?;
    }
    let mut out = std::io::stdout().lock();
    if !args.json {
        writeln!(
            out,
            "{:>15} {:>8} {:>7} {:>9} {:>9} {:>10} {:>10} {:>10} {:>10} {:>11} {:>7} {:>10}   kB; cubic on both sides",
            "path",
            "",
            "stack",
            "Mbit/s",
            "queue ms",
            "mean",
            "most",
            "unsent",
            "limit",
            "most/bound",
            "over",
            "in repair"
        )?;
    }
    for (name, path) in &paths {
        let is_deep = matches!(path.bottleneck, Some((_, Queue::Bytes(_))))
            || matches!(path.bottleneck, Some((_, Queue::Bdp(share))) if share > 1.0);
        for _ in 0..args.rounds {
            for (way, stack, run) in runs {
                if args.way.as_deref().is_some_and(|only| only != way) {
                    continue;
                }
                let span = Duration::from_secs(args.seconds);
                let bound = match (is_deep, way) {
                    (false, _) => Bound::All,
                    (true, "send") => Bound::Unsent,
                    (true, _) => Bound::None,
                };
                let got = run(path, span, bound, args.notsent_lowat)
                    .with_context(|| format!("{name}, {stack}, {way}"))?;
                let most = if matches!(bound, Bound::Unsent) { got.most_unsent } else { got.most };
                let (of_bound, mbit) = (got.bound.map(|bound| most as f64 / bound), got.goodput * 8.0 / 1e6);
                let queue_ms = got.queue * 1e3;
                if args.json {
                    let line = serde_json::json!({
                        "path": name, "way": way, "stack": stack, "busy": args.busy, "mbit": mbit, "queue_ms": queue_ms,
                        "mean_bytes": got.mean, "most_bytes": got.most, "most_unsent_bytes": got.most_unsent,
                        "most_limit_bytes": got.most_limit, "least_rtt_us": got.least_rtt * 1e6, "of_bound": of_bound, "over": got.over,
                        "over_in_repair": got.over_in_repair,
                    });
                    writeln!(out, "{line}")?;
                } else {
                    let kb = |bytes: u64| bytes as f64 / 1e3;
                    writeln!(
                        out,
                        "{name:>15} {way:>8} {stack:>7} {mbit:>9.1} {queue_ms:>9.2} {:>10.0} {:>10.0} \
                         {:>10.0} {:>10.0} {:>11} {:>5.1} % {:>8.0} %",
                        got.mean / 1e3,
                        kb(got.most),
                        kb(got.most_unsent),
                        kb(got.most_limit),
                        of_bound.map_or_else(|| "–".into(), |share| format!("{share:.2}")),
                        got.over * 100.0,
                        got.over_in_repair * 100.0,
                    )?;
                }
                out.flush()?;
            }
        }
    }
    Ok(())
}
