//! How late a thread of this machine wakes up, when it waits as the driver of a stack does: for a `timerfd` in an
//! epoll set. Prints quantiles; on a quiet machine, or with an endless loop on each processor.
//!
//! The simulator's model of late wake-ups (`crates/taut-sim/src/cpu/wakeups.rs`) is such a table.

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Parser;
use taut_device::sys::{Epoll, Interest, TimerFd, monotonic_ns};

/// The quantiles of the table, in thousandths.
const QUANTILES: [u32; 12] = [0, 100, 250, 500, 600, 700, 800, 900, 950, 990, 999, 1000];

/// How late a thread wakes up that waits as the driver of a stack does.
#[derive(Parser)]
#[command(after_help = "Example:\n  taut-lateness --busy --work 50")]
struct Args {
    /// The time between two deadlines, in µs
    #[arg(long, default_value_t = 1_000)]
    every: u64,
    /// How long the thread works after each wake-up, in µs
    #[arg(long, default_value_t = 50)]
    work: u64,
    /// How long each round takes
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Rounds
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Keep all processors busy with endless loops, at the priority of everything else
    #[arg(long)]
    busy: bool,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

/// Keeps this processor busy for `span`.
fn work(span: Duration) {
    let start = Instant::now();
    while start.elapsed() < span {
        std::hint::spin_loop();
    }
}

/// The lateness of each wake-up, in nanoseconds, in ascending order.
fn measure(args: &Args) -> Result<Vec<u64>> {
    let (epoll, timer) = (Epoll::new()?, TimerFd::new()?);
    epoll.add(timer.as_fd(), 0, Interest::Readable)?;
    let end = monotonic_ns() + args.seconds * 1_000_000_000;
    let mut late = Vec::new();
    loop {
        let start = monotonic_ns();
        if start >= end {
            break;
        }
        let deadline = start + args.every * 1_000;
        timer.arm(deadline);
        epoll.wait(None)?;
        late.push(monotonic_ns().saturating_sub(deadline));
        work(Duration::from_micros(args.work));
    }
    late.sort_unstable();
    Ok(late)
}

fn main() -> Result<()> {
    let args = Args::parse();
    if args.every == 0 || args.seconds == 0 {
        bail!("--every and --seconds must be at least 1");
    }
    if args.busy {
        taut_bench::path::keep_busy()?;
    }
    let mut out = std::io::stdout().lock();
    if !args.json {
        write!(out, "{:>8}", "wakeups")?;
        for quantile in QUANTILES {
            write!(out, " {:>8}", format!("p{}", f64::from(quantile) / 10.0))?;
        }
        writeln!(out, "   µs late; the thread waits {} µs and works {} µs", args.every, args.work)?;
    }
    for _ in 0..args.rounds {
        let late = measure(&args)?;
        let last = late.len() - 1;
        let at = |quantile: u32| late[(last * quantile as usize).div_ceil(1_000)] as f64 / 1e3;
        if args.json {
            let quantiles: Vec<_> = QUANTILES.iter().map(|&q| [f64::from(q) / 1e3, at(q)]).collect();
            let line = serde_json::json!({
                "every_us": args.every, "work_us": args.work, "busy": args.busy, "wakeups": late.len(),
                "late_us": quantiles,
            });
            writeln!(out, "{line}")?;
            continue;
        }
        write!(out, "{:>8}", late.len())?;
        for quantile in QUANTILES {
            write!(out, " {:>8.1}", at(quantile))?;
        }
        writeln!(out)?;
    }
    Ok(())
}
