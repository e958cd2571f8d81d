//! `worlds`: random worlds by the thousand, each from a seed, under a judge (`taut_sim::worlds`). Called by
//! `mod.rs`.
//!
//! A failing world is made smaller, and the commands that repeat both are printed. A world that does not end,
//! because a call loops, is named by a watchman.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use serde::Serialize;
use taut_sim::worlds::{Feature, Outcome, Plan, Without, run, shrink};

use crate::shared::output;

/// Arguments of `worlds`.
#[derive(Args, Debug)]
pub(super) struct WorldsArgs {
    /// How many seeds to run
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    from: u64,
    /// Run one seed, and describe its world
    #[arg(long, conflicts_with_all = ["seeds", "from", "minutes"])]
    seed: Option<u64>,
    /// Run for this long rather than a number of seeds
    #[arg(long, conflicts_with = "seeds")]
    minutes: Option<u64>,
    /// Leave out features, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "FEATURES")]
    without: Vec<Feature>,
    /// Worlds at the same time
    #[arg(short, default_value_t = 1, value_name = "JOBS")]
    jobs: u64,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// A world that failed.
#[derive(Debug, Serialize)]
struct Failed {
    seed: u64,
    failure: String,
    repeat: String,
    smaller: String,
}

/// The results of all worlds together.
#[derive(Debug, Default, Serialize)]
struct Totals {
    worlds: u64,
    events: u64,
    segments: u64,
    bytes: u64,
    failed: Vec<Failed>,
}

/// More failures than these say nothing new.
const FAILURES_MAX: usize = 10;

/// A world takes some milliseconds; one that takes as many of these ticks of the watchman does not end.
const TICK: Duration = Duration::from_secs(30);
const TICKS_MAX: u32 = 4;

/// Runs the worlds.
pub(super) fn worlds(args: &WorldsArgs) -> anyhow::Result<()> {
    let without = Without(args.without.clone());
    let seeds = match (args.seed, args.minutes) {
        (Some(seed), _) => seed..seed + 1,
        (None, Some(_)) => args.from..u64::MAX,
        (None, None) => args.from..args.from.saturating_add(args.seeds),
    };
    if args.seed.is_some() && !args.json {
        output::print(&format!("{}\n", Plan::new(seeds.start, &without).summary()))?;
    }
    let (next, is_over) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    let totals = Mutex::new(Totals::default());
    let running = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..args.jobs.max(1))
            .map(|_| scope.spawn(|| work(&next, seeds.end, &is_over, &without, &totals, &running)))
            .collect();
        let watchman = scope.spawn(|| watch(args.minutes, &is_over, &running, &without));
        for worker in workers {
            // A world's panic is caught and reported as its failure.
            let _ = worker.join();
        }
        is_over.store(true, Ordering::Relaxed);
        watchman.thread().unpark();
    });
    let mut totals = totals.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    totals.failed.sort_by_key(|failed| failed.seed);
    report(&totals, args.json)
}

type Running = Mutex<BTreeMap<u64, u32>>;

fn work(
    next: &AtomicU64,
    end: u64,
    is_over: &AtomicBool,
    without: &Without,
    totals: &Mutex<Totals>,
    running: &Running,
) {
    while !is_over.load(Ordering::Relaxed) {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= end {
            return;
        }
        lock(running).insert(seed, 0);
        let plan = Plan::new(seed, without);
        let Outcome { failure, events, segments, bytes, .. } = run(&plan);
        let failed = failure.map(|failure| Failed {
            seed,
            failure: failure.to_string(),
            repeat: plan.command(),
            smaller: shrink(&plan, |_| {}).command(),
        });
        lock(running).remove(&seed);
        let mut totals = lock(totals);
        totals.worlds += 1;
        totals.events += events;
        totals.segments += segments;
        totals.bytes += bytes;
        totals.failed.extend(failed);
        if totals.failed.len() >= FAILURES_MAX {
            is_over.store(true, Ordering::Relaxed);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Ends the run when its time is over, and the program when a world does not end.
fn watch(minutes: Option<u64>, is_over: &AtomicBool, running: &Running, without: &Without) {
    let mut left = minutes.map(|minutes| minutes * 60 / TICK.as_secs());
    while !is_over.load(Ordering::Relaxed) && left != Some(0) {
        std::thread::park_timeout(TICK);
        left = left.map(|left| left - 1);
        for (seed, ticks) in lock(running).iter_mut() {
            *ticks += 1;
            if *ticks > TICKS_MAX {
                eprintln!("a world does not end; repeat it: {}", Plan::new(*seed, without).command());
                std::process::exit(1);
            }
        }
    }
    is_over.store(true, Ordering::Relaxed);
}

fn report(totals: &Totals, json: bool) -> anyhow::Result<()> {
    if json {
        output::print_json(totals)?;
    } else {
        let mut text = String::new();
        for Failed { failure, repeat, smaller, .. } in &totals.failed {
            text += &format!("{failure}\n  repeat it: {repeat}\n  smaller:   {smaller}\n\n");
        }
        let Totals { worlds, events, segments, bytes, .. } = totals;
        text += &format!(
            "{worlds} worlds, {events} events, {segments} segments, {bytes} bytes read and compared, {} failed\n",
            totals.failed.len()
        );
        output::print(&text)?;
    }
    if !totals.failed.is_empty() {
        bail!("{} of {} worlds failed", totals.failed.len(), totals.worlds);
    }
    Ok(())
}
