//! Autocorking must not hold the head of the queue (Linux 3.14, a181ceb501b3): one byte for one byte over a NIC that keeps
//! its completions back for 16 µs, which is about the round-trip time.
//!
//! Published, latency in µs of three runs: before, mean 1050, 240 and 348 with a maximum of 41,000; after, mean 22.8, 21.6
//! and 22.5, p99 36 to 38, minimum 17 to 18 in all.
//!
//! **The cause.** A request whose answer overtook its completion leaves something below TCP, and the next request is
//! held for that completion. Held until it comes would cost microseconds. But the sender looked at its counter first and
//! asked to be told after, while completions run on another core: one in between is told to nobody, and the request lies
//! there until the delayed-ACK timer of its host, 40 ms later, has it looked at again. taut's core cannot lose
//! wake-ups, being one thread, so the race is in the host's [`CpuModel`]: [`LostWakeup`] says how long lies between look
//! and request, and a completion in there wakes nobody.

use taut_core::{AutocorkMode, Duration};
use taut_link::Rate;

use super::at;
use crate::app::{Request, Responder};
use crate::check::Failure;
use crate::cpu::{CpuModel, LostWakeup};
use crate::host::HostSpec;
use crate::topology::Pair;
use crate::world::World;

/// What is to be measured.
#[derive(Clone, Copy, Debug)]
pub struct AutocorkCase {
    /// Rate of the NICs.
    pub rate: Rate,
    /// The mechanism: [`AutocorkMode::MayHoldHead`] is before.
    pub mode: AutocorkMode,
    /// How long completions are kept back.
    pub tx_usecs: Duration,
    /// Time between the sender's look and its request to be told; none after the fix, which looks again.
    pub race: Option<LostWakeup>,
    /// Service times.
    pub cpu: CpuModel,
    /// Repeats a run.
    pub seed: u64,
    /// Requests.
    pub count: u64,
}

impl AutocorkCase {
    /// As published, before or after.
    #[must_use]
    pub fn published(rate: Rate, mode: AutocorkMode, seed: u64) -> Self {
        let us = |us: f64| Duration::from_nanos((us * 1_000.0) as u64);
        // A host of about 2013 answers in 10 µs: of that an interrupt and the way up, a context switch, two calls.
        let cpu = CpuModel {
            interrupt: us(2.2),
            rx_packet: us(2.2),
            rx_segment: us(0.3),
            tx_packet: us(1.0),
            completion: us(0.3),
            timer: us(0.5),
            context_switch: us(3.0),
            syscall: us(0.5),
            jitter: 0.5,
            completions_apart: true,
            lost_wakeup: None,
        };
        let race =
            (mode == AutocorkMode::MayHoldHead).then_some(LostWakeup { window: Duration::from_nanos(50) });
        Self { rate, mode, tx_usecs: Duration::from_micros(16), race, cpu, seed, count: 20_000 }
    }
}

/// What came out, in microseconds.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AutocorkResult {
    /// Shortest.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// Longest.
    pub max: f64,
    /// What 99 % do not exceed.
    pub p99: f64,
    /// Standard deviation.
    pub stddev: f64,
    /// Writes that were held for a completion, on both hosts.
    pub held: u64,
    /// Wake-ups that were lost, on both hosts.
    pub lost_wakeups: u64,
}

/// Runs it.
///
/// # Errors
/// A run that failed a check.
pub fn autocork(case: AutocorkCase) -> Result<AutocorkResult, Failure> {
    let mut world = World::new(case.seed);
    let mut host = HostSpec::new(case.rate);
    host.nic.tx_usecs = case.tx_usecs;
    host.config.autocork = case.mode;
    host.cpu = CpuModel { lost_wakeup: case.race, ..case.cpu };
    let pair = Pair::new(&mut world, host.clone(), host, Duration::from_nanos(500));
    world.app(pair.b, Responder::new(1));
    let client = Request::new(at(&world, pair.b, 1)).count(case.count);
    let stats = client.stats();
    world.app(pair.a, client);
    while (stats.borrow().latencies.len() as u64) < case.count && world.elapsed() < Duration::from_secs(600) {
        world.run_for(Duration::from_millis(100))?;
    }
    let stats = stats.borrow();
    // netperf does not count the first ones either: slow start of the peer's delayed ACKs.
    let mut us: Vec<f64> =
        stats.latencies.iter().skip(20).map(|latency| latency.as_nanos() as f64 / 1e3).collect();
    us.sort_by(f64::total_cmp);
    let count = us.len().max(1) as f64;
    let mean = us.iter().sum::<f64>() / count;
    let variance = us.iter().map(|latency| (latency - mean) * (latency - mean)).sum::<f64>() / count;
    let nth =
        |share: f64| us.get(((us.len() as f64 * share) as usize).min(us.len().saturating_sub(1))).copied();
    let both = |f: &dyn Fn(&World, crate::HostId) -> u64| f(&world, pair.a) + f(&world, pair.b);
    Ok(AutocorkResult {
        min: nth(0.0).unwrap_or(f64::NAN),
        mean,
        max: nth(1.0).unwrap_or(f64::NAN),
        p99: nth(0.99).unwrap_or(f64::NAN),
        stddev: variance.sqrt(),
        held: both(&|world, host| world.host_ref(host).stack().counters().autocork_held),
        lost_wakeups: both(&|world, host| world.counts(host).lost_wakeups),
    })
}
