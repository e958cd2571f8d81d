//! TCP Small Queues (Linux 3.6, 46d3ceabd8d9): one bulk sender on a NIC with `pfifo_fast` of 1000 packets, on a local
//! network, and how long a packet of somebody else waits behind it.
//!
//! Published: throughput unchanged; buffering per bulk sender at 1 Gbit/s from 50 ms to under 1 ms, at 100 Mbit/s from
//! 132 ms to under 8 ms.

use taut_core::{AutosizeMode, BufferSizes, Duration, TsqMode};
use taut_link::Rate;

use super::{at, mbit, ms, sample};
use crate::app::{Bulk, Request, Responder, Sink};
use crate::check::Failure;
use crate::host::HostSpec;
use crate::topology::Pair;
use crate::world::World;

/// What is to be measured.
#[derive(Clone, Copy, Debug)]
pub struct TsqCase {
    /// Rate of the NIC.
    pub rate: Rate,
    /// Whether it cuts super-packets.
    pub tso: bool,
    /// The mechanism: [`TsqMode::Off`] is before, [`TsqMode::Fixed`] the first version.
    pub mode: TsqMode,
    /// Sizes of super-packets: [`AutosizeMode::Off`] in 2012.
    pub autosizing: AutosizeMode,
    /// Repeats a run.
    pub seed: u64,
    /// Time measured, after as much again for the buffers to grow.
    pub span: Duration,
}

impl TsqCase {
    /// As in 2012, for 4 s.
    #[must_use]
    pub fn of_2012(rate: Rate, tso: bool, mode: TsqMode) -> Self {
        Self { rate, tso, mode, autosizing: AutosizeMode::Off, seed: 1, span: Duration::from_secs(4) }
    }
}

/// What came out.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TsqResult {
    /// Payload that arrived.
    pub throughput_mbit: f64,
    /// Bytes in the root queue and the NIC's ring as time on the line: mean of a sample each millisecond.
    pub backlog_mean_ms: f64,
    /// The most at any packet.
    pub backlog_max_ms: f64,
    /// The most in bytes.
    pub backlog_max_bytes: u64,
    /// Median round-trip time of a second connection's small requests.
    pub ping_median_ms: f64,
    /// Their longest.
    pub ping_max_ms: f64,
    /// Packets that the root queue dropped.
    pub dropped: u64,
}

/// One way between the hosts: a switch.
const DELAY: Duration = Duration::from_micros(50);

/// Runs it.
///
/// # Errors
/// A run that failed a check.
pub fn tsq(case: TsqCase) -> Result<TsqResult, Failure> {
    let mut world = World::new(case.seed);
    let mut host = HostSpec::new(case.rate);
    host.nic.tso = case.tso;
    // The ring of such a card; byte queue limits would hide in the root queue what lies in the ring.
    (host.nic.ring, host.nic.bql) = (512, None);
    host.config.tsq = case.mode;
    host.config.autosizing = case.autosizing;
    host.config.tcp_wmem = BufferSizes { min: 4_096, initial: 16_384, max: 4 << 20 };
    let pair = Pair::new(&mut world, host.clone(), host, DELAY);
    let sink = Sink::new(1);
    let read = sink.stats();
    world.app(pair.b, sink);
    world.app(pair.b, Responder::new(2));
    world.app(pair.a, Bulk::new(at(&world, pair.b, 1)));
    let ping = Request::new(at(&world, pair.b, 2)).think(Duration::from_millis(10));
    let pings = ping.stats();
    world.app(pair.a, ping);

    world.run_for(case.span)?;
    let (before, pinged) = (read.borrow().bytes, pings.borrow().latencies.len());
    let rate = case.rate.bytes_per_second() as f64;
    let as_ms = |bytes: f64| bytes * 1_000.0 / rate;
    let (mut sum, mut samples) = (0, 0_u64);
    sample(&mut world, case.span, Duration::from_millis(1), |world| {
        let (root, ring) = world.host_ref(pair.a).below();
        sum += root + ring;
        samples += 1;
    })?;
    let most = world.host_ref(pair.a).peak_below();
    let mut latencies = pings.borrow().latencies.get(pinged..).unwrap_or_default().to_vec();
    latencies.sort();
    let nth = |index: usize| latencies.get(index).copied().map_or(f64::NAN, ms);
    Ok(TsqResult {
        throughput_mbit: mbit(read.borrow().bytes - before, case.span),
        backlog_mean_ms: as_ms(sum as f64 / samples.max(1) as f64),
        backlog_max_ms: as_ms(most as f64),
        backlog_max_bytes: most,
        ping_median_ms: nth(latencies.len() / 2),
        ping_max_ms: nth(latencies.len().saturating_sub(1)),
        dropped: world.counts(pair.a).dropped,
    })
}
