//! `taut compare`: taut against the kernel's TCP, compared with the kernel against itself, in one run.
//!
//! Each measurement is repeated in rounds, of taut and of the kernel in turn, so that other load on the
//! machine affects both. The links are made in `arena.rs`, the work is done in `workload.rs`; `load.rs` reads
//! the load of others, `report.rs` makes the text.

pub(crate) mod arena;
mod load;
pub(crate) mod report;
pub(crate) mod transport;
pub(crate) mod workload;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use taut_control::place;
use taut_core::congestion::Registry;

use crate::args::congestion::CongestionArgs;
use crate::args::control::ControlArgs;
use crate::args::priority::PriorityArgs;
use crate::args::record::{self, RecordArgs};
use crate::args::shards::shard_count;
use crate::compare::arena::{Arena, Measured, Pair};
use crate::compare::transport::{Kernel, Listen as _, Transport};
use crate::compare::workload::Payload;
use crate::shared::clock::Stopwatch;
use crate::shared::interrupt::{self, Interrupted};
use crate::shared::{output, progress, text};
use load::Load;
use report::{Congestion, Report, Row, Setup};

/// Measures taut beside the kernel's own TCP
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  sudo taut compare\n  sudo taut compare --rounds 15 --seconds 1 --json > result.json\n  \
        sudo taut compare --congestion bbr    # version 3; mainline Linux has 1\n  \
        sudo taut compare --congestion prague --kernel-congestion dctcp\n  \
        sudo taut compare --priority realtime:1    # on a busy machine\n\n\
        It runs in network namespaces of its own and leaves nothing behind. SHA-256 of every byte is compared."
)]
pub(crate) struct CompareArgs {
    /// Rounds, taut and the kernel in turn
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Length of each of the 24 measurements of a round
    #[arg(long, default_value_t = 0.1, value_name = "SECONDS", value_parser = seconds)]
    seconds: f64,
    /// Size of one verified transfer
    #[arg(long, default_value = "128M", value_name = "BYTES", value_parser = size)]
    bytes: usize,
    /// Use a link in this process even where a TUN is available
    #[arg(long)]
    in_process: bool,
    /// Shards of taut's stack; 0: one per processor
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "in_process", value_parser = clap::value_parser!(u16).range(0..=256))]
    shards: u16,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
    /// Of taut's threads; the kernel's side and the applications keep theirs.
    #[command(flatten)]
    priority: PriorityArgs,
    /// Of taut; over an in-process link, of the end that is measured.
    #[command(flatten)]
    record: RecordArgs,
    /// Of taut, and of the kernel's sockets in both columns.
    #[command(flatten)]
    congestion: CongestionArgs,
    /// Congestion control of the kernel's sockets [default: taut's]
    #[arg(long, value_name = "NAME", help_heading = "Connections")]
    kernel_congestion: Option<String>,
    #[command(flatten)]
    control: ControlArgs,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.01..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("not a number of seconds from 0.01 to 3600".to_owned()),
    }
}

/// Reads `1000`, `64K`, `128M`, `1G` (powers of 1024).
fn size(text: &str) -> Result<usize, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    match digits.parse::<usize>().ok().and_then(|count| count.checked_mul(1 << shift)) {
        Some(bytes) if (1..=8 << 30).contains(&bytes) => Ok(bytes),
        _ => Err("not a size from 1 to 8G, such as 1000, 64K, 128M".to_owned()),
    }
}

/// The measurements, in the order of the table.
#[derive(Clone, Copy, PartialEq)]
enum Work {
    Upload,
    Lent,
    Download,
    Latency,
    Connect,
    Accept,
}

const WORKS: [Work; 6] =
    [Work::Upload, Work::Lent, Work::Download, Work::Latency, Work::Connect, Work::Accept];

impl Work {
    fn name(self) -> &'static str {
        match self {
            Self::Upload => "upload",
            // The kernel's column is its ordinary writes.
            Self::Lent => "upload, without a copy",
            Self::Download => "download",
            Self::Latency => "1-byte request/response",
            Self::Connect => "connections opened",
            Self::Accept => "connections accepted",
        }
    }
}

/// One number of one measurement.
struct Value {
    name: &'static str,
    unit: &'static str,
    value: f64,
    /// Whether a larger value is better.
    ascending: bool,
}

/// The result of one measurement.
struct Outcome {
    values: Vec<Value>,
    verified_bytes: u64,
}

/// Runs `taut compare`.
///
/// # Errors
/// When a measurement fails, after the others have been shown.
pub(crate) fn run(args: &CompareArgs, controllers: &Registry) -> anyhow::Result<()> {
    let watch = Stopwatch::start();
    // Before this process becomes root in a user namespace: other commands look for its socket under the
    // present user.
    _ = place::directories();
    // Before anything starts a thread: an ordinary user can enter a user namespace only then.
    let config = args.congestion.config(controllers)?;
    let ours = &config.congestion.control;
    let theirs = args.kernel_congestion.as_deref().unwrap_or(ours.name());
    let shards = shard_count(args.shards);
    let observed = (&args.record, &args.control);
    let arena = Arena::new(args.in_process, shards, &config, theirs, args.priority, observed)?;
    for missing in &arena.missing {
        eprintln!("taut: {missing}");
    }
    if matches!(arena.measured, Measured::InProcess(_)) && !args.in_process {
        eprintln!("  As root (`sudo taut compare`) it runs over a TUN, against the kernel.");
    }
    end_when_asked(arena.measured.control_sockets())?;
    let payload = Arc::new(Payload::new(args.bytes, 1));
    let setup = Setup {
        taut: arena.measured.name(),
        kernel: arena.baseline.name,
        rounds: args.rounds,
        congestion: Congestion { taut: ours.to_string(), kernel: theirs.to_owned() },
        stack_threads: arena.measured.stacks() * usize::from(shards),
        priority: args.priority.priority.map(|priority| priority.to_string()),
    };
    let records = arena.measured.recordings();
    match arena.measured {
        Measured::Tun(taut) => compare(args, setup, &payload, taut, arena.baseline, watch)?,
        Measured::InProcess(taut) => compare(args, setup, &payload, taut, arena.baseline, watch)?,
    }
    record::check(&records)
}

/// Ctrl-C ends the comparison immediately. Interfaces and namespaces end with the process; the socket files must be
/// removed.
fn end_when_asked(control_sockets: Vec<PathBuf>) -> io::Result<()> {
    interrupt::when_asked(move || {
        for path in control_sockets {
            _ = std::fs::remove_file(path);
        }
        eprintln!("taut: {Interrupted}");
        std::process::exit(interrupt::EXIT_CODE.into());
    })
}

fn compare<A: Transport, B: Transport>(
    args: &CompareArgs,
    setup: Setup,
    payload: &Arc<Payload>,
    taut: Pair<A, B>,
    kernel: Pair<Kernel, Kernel>,
    watch: Stopwatch,
) -> anyhow::Result<()> {
    let (taut, kernel) = (Bout::start(taut, payload)?, Bout::start(kernel, payload)?);
    let families: Vec<_> = ["IPv4", "IPv6"].into_iter().take(taut.far.len()).enumerate().collect();
    let time = Duration::from_secs_f64(args.seconds);
    let bar = progress::steps(families.len() as u64 * WORKS.len() as u64 * 2 * u64::from(args.rounds));

    let (mut rows, mut failures, mut verified_bytes) = (Vec::new(), Vec::new(), 0);
    let load = Load::start();
    for &(index, family) in &families {
        for work in WORKS {
            let mut step = |side: &str, measure: &dyn Fn() -> io::Result<Outcome>| {
                bar.set_message(format!("{family} {} ({side})", work.name()));
                let outcome = measure().inspect_err(|error| {
                    failures.push(format!("{family} {} ({side}): {error}", work.name()));
                });
                bar.inc(1);
                outcome.ok()
            };
            let load = Load::start();
            // A measurement that fails ends its rounds: the next would most likely fail after the same long wait.
            let both = || {
                let ours = step(setup.taut, &|| taut.measure(work, index, payload, time))?;
                Some((ours, step(setup.kernel, &|| kernel.measure(work, index, payload, time))?))
            };
            let rounds: Vec<_> =
                std::iter::repeat_with(both).take(args.rounds as usize).map_while(|both| both).collect();
            for (ours, theirs) in &rounds {
                verified_bytes += ours.verified_bytes + theirs.verified_bytes;
            }
            if rounds.len() == args.rounds as usize {
                rows.extend(rows_of(family, &rounds, load.others_cores()));
            }
        }
    }
    let others_cores = load.others_cores();
    bar.finish_and_clear();

    let report = Report {
        setup,
        rows,
        others_cores,
        verified_bytes,
        transfer_bytes: payload.bytes.len(),
        sha256: text::hex(&payload.digest),
        failures,
        seconds: watch.elapsed().as_secs_f64(),
    };
    let text = if args.json { format!("{:#}\n", serde_json::to_value(&report)?) } else { report.text() };
    output::print(&text)?;
    let failures = report.failures;
    if failures.is_empty() {
        return Ok(());
    }
    bail!("{} of the measurements failed:\n  {}", failures.len(), failures.join("\n  "))
}

/// The lines of a measurement, which has one or several values, from its rounds of taut and of the kernel.
fn rows_of(family: &'static str, rounds: &[(Outcome, Outcome)], others_cores: Option<f64>) -> Vec<Row> {
    let Some((first, _)) = rounds.first() else { return Vec::new() };
    let row = |(at, value): (usize, &Value)| {
        let (ours, theirs) =
            rounds.iter().map(|(ours, theirs)| (ours.values[at].value, theirs.values[at].value)).unzip();
        Row::new((family, value.name, value.unit), value.ascending, ours, theirs, others_cores)
    };
    first.values.iter().enumerate().map(row).collect()
}

/// A pair with running peers at each end.
struct Bout<A, B> {
    pair: Pair<A, B>,
    /// The addresses of the near end's peers, one for each family.
    far: Vec<SocketAddr>,
    /// The addresses at which the near end accepts.
    near: Vec<SocketAddr>,
}

impl<A: Transport, B: Transport> Bout<A, B> {
    fn start(pair: Pair<A, B>, payload: &Arc<Payload>) -> anyhow::Result<Self> {
        let listen = |index| {
            let (far, near) = (pair.far_addresses[index], pair.near_addresses[index]);
            let far = spawn_peer(&pair.far, SocketAddr::new(far, pair.port), payload)?;
            let near = spawn_peer(&pair.near, SocketAddr::new(near, pair.port), payload)?;
            anyhow::Ok((far, near))
        };
        let both: Vec<_> = (0..pair.far_addresses.len()).map(listen).collect::<Result<_, _>>()?;
        let (far, near) = both.into_iter().unzip();
        Ok(Self { pair, far, near })
    }

    fn measure(&self, work: Work, family: usize, payload: &Payload, time: Duration) -> io::Result<Outcome> {
        let (near, far, to) = (&self.pair.near, &self.pair.far, self.far[family]);
        let bulk = |bulk: workload::Bulk| Outcome {
            values: vec![Value {
                name: work.name(),
                unit: "Gbit/s",
                value: text::bits_per_second(bulk.bytes, bulk.time) / 1e9,
                ascending: true,
            }],
            verified_bytes: bulk.bytes,
        };
        let per_second = |(count, time): (u64, Duration)| Outcome {
            values: vec![Value {
                name: work.name(),
                unit: "per s",
                value: count as f64 / time.as_secs_f64(),
                ascending: true,
            }],
            verified_bytes: 0,
        };
        match work {
            Work::Upload | Work::Lent => {
                near.within(|| workload::upload(near, to, payload, work == Work::Lent, time))?.map(bulk)
            }
            Work::Download => near.within(|| workload::download(near, to, payload, time))?.map(bulk),
            Work::Connect => workload::connections(near, to, time).map(per_second),
            Work::Accept => workload::connections(far, self.near[family], time).map(per_second),
            Work::Latency => {
                let histogram = near.within(|| workload::latency(near, to, time))??;
                let at = |name, quantile| Value {
                    name,
                    unit: "µs",
                    value: histogram.value_at_quantile(quantile) as f64 / 1e3,
                    ascending: false,
                };
                let values =
                    vec![at("1-byte request/response, p50", 0.5), at("1-byte request/response, p99", 0.99)];
                Ok(Outcome { values, verified_bytes: 0 })
            }
        }
    }
}

/// Starts a peer at one end of a pair. It serves until that end or the process ends. Returns the address at which it
/// listens.
pub(crate) fn spawn_peer<T: Transport>(
    transport: &T,
    at: SocketAddr,
    payload: &Arc<Payload>,
) -> anyhow::Result<SocketAddr> {
    let listener = transport.within(|| transport.listen(at)).and_then(|listening| listening);
    let listener = listener.with_context(|| format!("cannot listen on {at}"))?;
    let (at, payload) = (listener.local_addr()?, Arc::clone(payload));
    std::thread::Builder::new()
        .name("peer".to_owned())
        .spawn(move || workload::serve(&listener, &payload))?;
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_checked() {
        assert_eq!(size("1000"), Ok(1000));
        assert_eq!(size("64K"), Ok(65536));
        assert_eq!(size("1g"), Ok(1 << 30));
        for wrong in ["", "K", "-1", "0", "9G", "1.5M", "99999999999999999999G"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        assert_eq!(seconds("0.5"), Ok(0.5));
        for wrong in ["0", "-1", "nan", "inf", "x"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
