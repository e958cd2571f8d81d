//! `taut demo`: taut against the kernel's TCP, compared with the kernel against itself, in one run.
//!
//! Each measurement of taut is followed immediately by the same measurement of the kernel, so that other load on the
//! machine affects both. The links are made in `arena.rs`, the work is done in `workload.rs`.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use serde::Serialize;
use taut_control::place;
use taut_core::congestion::Registry;

use crate::arena::{Arena, Measured, Pair};
use crate::clock::Stopwatch;
use crate::congestion_args::CongestionArgs;
use crate::control_args::ControlArgs;
use crate::interrupt::{self, Interrupted};
use crate::link_args::shard_count;
use crate::priority_args::PriorityArgs;
use crate::transport::{Kernel, Listen as _, Transport};
use crate::workload::{self, Payload};
use crate::{output, progress, text};

/// Measures taut's throughput, latency and connections per second, and the same for the kernel's own TCP.
#[derive(Args, Debug)]
#[command(
    long_about = "Measures taut's throughput, latency and connections per second, and the same for the kernel's own \
        TCP.\n\n\
        Makes a private network namespace with a TUN in it (as root, or as a user if the kernel allows user \
        namespaces and /dev/net/tun), starts plain kernel-TCP peers there, and does the same work between two \
        namespaces over veth. Every byte is verified by SHA-256 at both ends; hashing is not part of the measured \
        time. Nothing is left behind afterwards.",
    after_help = "Example:\n  sudo taut demo\n  taut demo --seconds 3 --json > result.json\n  sudo taut demo --congestion bbr\n  sudo taut demo --priority realtime:1    on a busy machine"
)]
pub struct DemoArgs {
    /// How long each of the 20 measurements runs
    #[arg(long, default_value_t = 0.7, value_name = "SECONDS", value_parser = seconds)]
    seconds: f64,
    /// Size of one verified transfer; transfers repeat until the time has passed
    #[arg(long, default_value = "128M", value_name = "BYTES", value_parser = size)]
    bytes: usize,
    /// Use an in-process link between two taut stacks even if a TUN is available
    #[arg(long)]
    in_process: bool,
    /// Divide taut into N shards, each with its own TUN queue and thread; 0 means one per processor
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "in_process", value_parser = clap::value_parser!(u16).range(0..=256))]
    shards: u16,
    /// Print the results as JSON on standard output
    #[arg(long)]
    json: bool,
    /// Of taut's threads; the kernel's side and the applications keep theirs.
    #[command(flatten)]
    priority: PriorityArgs,
    /// taut's congestion control; the kernel's side and column keep the kernel's own.
    #[command(flatten)]
    congestion: CongestionArgs,
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
    Download,
    Latency,
    Connect,
    Accept,
}

const WORKS: [Work; 5] = [Work::Upload, Work::Download, Work::Latency, Work::Connect, Work::Accept];

impl Work {
    fn name(self) -> &'static str {
        match self {
            Self::Upload => "upload",
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
#[derive(Default)]
struct Outcome {
    values: Vec<Value>,
    verified_bytes: u64,
}

/// A line of the table.
#[derive(Debug, Serialize)]
struct Row {
    family: &'static str,
    work: &'static str,
    unit: &'static str,
    taut: f64,
    kernel: f64,
    /// taut's result relative to the kernel's: above 1, taut is better.
    ratio: f64,
}

/// Runs `taut demo`.
///
/// # Errors
/// When a measurement fails, after the others have been shown.
pub fn run(args: &DemoArgs, controllers: &Registry) -> anyhow::Result<()> {
    let watch = Stopwatch::start();
    // Before this process becomes root in a user namespace: other commands look for its socket under the
    // present user.
    _ = place::directories();
    // Before anything starts a thread: an ordinary user can enter a user namespace only then.
    let config = args.congestion.config(controllers)?;
    let arena = Arena::new(args.in_process, shard_count(args.shards), &config, args.priority, &args.control)?;
    for missing in &arena.missing {
        eprintln!("taut: {missing}");
    }
    if matches!(arena.measured, Measured::InProcess(_)) && !args.in_process {
        eprintln!("  As root (`sudo taut demo`) it runs over a TUN, against the kernel.");
    }
    end_when_asked(arena.measured.control_sockets())?;
    let payload = Arc::new(Payload::new(args.bytes, 1));
    match arena.measured {
        Measured::Tun(taut) => compare(args, &payload, taut, arena.baseline, watch),
        Measured::InProcess(taut) => compare(args, &payload, taut, arena.baseline, watch),
    }
}

/// Ctrl-C ends the demo immediately. Interfaces and namespaces end with the process; the socket files must be
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
    args: &DemoArgs,
    payload: &Arc<Payload>,
    taut: Pair<A, B>,
    kernel: Pair<Kernel, Kernel>,
    watch: Stopwatch,
) -> anyhow::Result<()> {
    let names = (taut.name, kernel.name);
    let (taut, kernel) = (Bout::start(taut, payload)?, Bout::start(kernel, payload)?);
    let families: Vec<_> = ["IPv4", "IPv6"].into_iter().take(taut.far.len()).enumerate().collect();
    let time = Duration::from_secs_f64(args.seconds);
    let bar = progress::steps((families.len() * WORKS.len() * 2) as u64);

    let (mut rows, mut failures, mut verified_bytes) = (Vec::new(), Vec::new(), 0);
    for &(index, family) in &families {
        for work in WORKS {
            let mut step = |side: &str, measure: &dyn Fn() -> io::Result<Outcome>| {
                bar.set_message(format!("{family} {} ({side})", work.name()));
                let outcome = measure();
                bar.inc(1);
                outcome.unwrap_or_else(|error| {
                    failures.push(format!("{family} {} ({side}): {error}", work.name()));
                    Outcome::default()
                })
            };
            let ours = step(names.0, &|| taut.measure(work, index, payload, time));
            let theirs = step(names.1, &|| kernel.measure(work, index, payload, time));
            verified_bytes += ours.verified_bytes + theirs.verified_bytes;
            rows.extend(ours.values.iter().zip(&theirs.values).map(|(ours, theirs)| Row {
                family,
                work: ours.name,
                unit: ours.unit,
                taut: ours.value,
                kernel: theirs.value,
                ratio: if ours.ascending { ours.value / theirs.value } else { theirs.value / ours.value },
            }));
        }
    }
    bar.finish_and_clear();

    let seconds = watch.elapsed().as_secs_f64();
    let text = if args.json {
        let object = serde_json::json!({
            "taut": names.0, "kernel": names.1, "rows": rows, "verified_bytes": verified_bytes,
            "transfer_bytes": payload.bytes.len(), "sha256": text::hex(&payload.digest),
            "failures": failures, "seconds": seconds,
        });
        format!("{object:#}\n")
    } else {
        format!(
            "{}\n{} verified: SHA-256 computed at both ends of every transfer, {}… each time.\n\
             The columns are {} and {}, on the same machine in the same run.\n\
             Ratio: above 1, taut is better. {seconds:.0} s in all.\n",
            table(names, &rows),
            text::bytes(verified_bytes),
            &text::hex(&payload.digest)[..16],
            names.0,
            names.1,
        )
    };
    output::print(&text)?;
    if failures.is_empty() {
        return Ok(());
    }
    bail!("{} of the measurements failed:\n  {}", failures.len(), failures.join("\n  "))
}

fn table(names: (&str, &str), rows: &[Row]) -> String {
    // Each column is named after the TCP at its near end.
    let short = |name: &str| name.split(' ').next().unwrap_or(name).to_owned();
    let head =
        vec![String::new(), String::new(), short(names.0), short(names.1), String::new(), "ratio".to_owned()];
    let lines = rows.iter().map(|row| {
        vec![
            row.family.to_owned(),
            row.work.to_owned(),
            number(row.taut),
            number(row.kernel),
            row.unit.to_owned(),
            format!("{:.2}", row.ratio),
        ]
    });
    text::table(2, &std::iter::once(head).chain(lines).collect::<Vec<_>>())
}

fn number(value: f64) -> String {
    if value >= 1000.0 { text::grouped(value as u64) } else { text::significant(value) }
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
            Work::Upload => near.within(|| workload::upload(near, to, payload, time))?.map(bulk),
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
fn spawn_peer<T: Transport>(
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
