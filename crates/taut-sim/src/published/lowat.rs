//! Fewer wake-ups from TCP_NOTSENT_LOWAT (Linux 5.0, a74f0fa082b7): 100 streams over 100 ms, and how much memory they
//! hold and how often their threads run.
//!
//! Published, with BBR and `tcp_wmem` up to 64 MB: unset, 54 MB a flow and some 6,000 context switches a second; with
//! 2 MiB and a wake-up below half of it, 3.5 MB a flow and 12,400 to 14,300. Before the change each ACK was a wake-up.
//!
//! **Here** there is no BBR yet: flows run CUBIC under `SO_MAX_PACING_RATE`, and have a send buffer as large as
//! autotuning had made it there. A hundred flows of 54 MB do not fit every machine; a tenth of them does, and since they do
//! not share anything that runs short, counts are multiplied by ten.

use taut_core::{BufferSizes, ConnOptions, Duration, LowatMode};
use taut_link::Rate;

use super::{at, mbit, per_second};
use crate::app::{Sink, Stream};
use crate::check::Failure;
use crate::host::HostSpec;
use crate::topology::Pair;
use crate::world::World;

/// What is to be measured.
#[derive(Clone, Copy, Debug)]
pub struct LowatCase {
    /// Rate of the NICs, 40 Gbit/s there.
    pub line: Rate,
    /// Streams.
    pub flows: u32,
    /// Streams that each stands for.
    pub each: u32,
    /// Rate of each, in bytes a second.
    pub rate: u64,
    /// Round-trip time.
    pub rtt: Duration,
    /// TCP_NOTSENT_LOWAT in bytes; `None` for unset.
    pub lowat: Option<u32>,
    /// The mechanism: [`LowatMode::WakeAtMark`] is before.
    pub mode: LowatMode,
    /// Send buffer of a flow: what autotuning allows.
    pub sndbuf: u32,
    /// Repeats a run.
    pub seed: u64,
    /// Time measured, after as much again for rates to settle.
    pub span: Duration,
}

impl LowatCase {
    /// As published: 100 flows that share about 16 Gbit/s over 100 ms, by ten of them.
    #[must_use]
    pub fn published(line: Rate, lowat: Option<u32>, mode: LowatMode) -> Self {
        Self {
            line,
            flows: 10,
            each: 10,
            // 3.5 MB a flow at a mark of 2 MiB: 1.5 MB unsent on average, 2 MB in flight, which is the rate times 100 ms.
            rate: 20_000_000,
            rtt: Duration::from_millis(100),
            lowat,
            mode,
            sndbuf: 64 << 20,
            seed: 1,
            span: Duration::from_secs(5),
        }
    }
}

/// What came out, of all streams that there would be.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LowatResult {
    /// Memory of the send side of a flow, unsent and in flight: mean of all, in bytes.
    pub memory_per_flow: f64,
    /// Of that, bytes unsent.
    pub unsent_per_flow: f64,
    /// Payload that arrived, of all flows.
    pub throughput_mbit: f64,
    /// Context switches of the sender a second.
    pub context_switches: f64,
    /// Wake-ups of its applications a second.
    pub wakeups: f64,
    /// Interrupts of the sender a second, both ways.
    pub interrupts: f64,
    /// ACKs that the sender received a second.
    pub acks: f64,
}

/// Runs it.
///
/// # Errors
/// A run that failed a check.
pub fn lowat(case: LowatCase) -> Result<LowatResult, Failure> {
    let mut world = World::new(case.seed);
    let mut host = HostSpec::new(case.line);
    host.nic.rx_usecs = Duration::from_micros(20);
    host.config.lowat = case.mode;
    // SO_SNDBUF is doubled, so that half of it is asked for.
    host.config.wmem_max = case.sndbuf;
    host.config.tcp_wmem = BufferSizes { min: 4_096, initial: 16_384, max: case.sndbuf };
    host.config.tcp_rmem = BufferSizes { min: 4_096, initial: 131_072, max: 16 << 20 };
    let pair = Pair::new(&mut world, host.clone(), host, case.rtt / 2);
    let sink = Sink::new(1);
    let read = sink.stats();
    world.app(pair.b, sink);
    let mut ids = Vec::new();
    for flow in 0..case.flows {
        let options = ConnOptions {
            notsent_lowat: case.lowat.unwrap_or(0),
            max_pacing_rate: Some(case.rate),
            sndbuf: Some(case.sndbuf / 2),
            ..ConnOptions::default()
        };
        let stream = Stream::new(at(&world, pair.b, 1)).options(options);
        ids.push(stream.stats());
        // Not all in the same instant.
        let start = world.now() + Duration::from_micros(u64::from(flow) * 997);
        world.app_at(pair.a, start, stream);
    }
    world.run_for(case.span)?;
    let (before, bytes) = (world.counts(pair.a), read.borrow().bytes);
    let (mut memory, mut unsent, mut samples) = (0.0, 0.0, 0.0);
    super::sample(&mut world, case.span, Duration::from_millis(10), |world| {
        let stack = world.host_ref(pair.a).stack();
        for info in stack.conn_ids().filter_map(|id| stack.conn_info(id, world.now())) {
            memory += f64::from(info.wmem_queued);
            unsent += info.notsent_bytes as f64;
            samples += 1.0;
        }
    })?;
    let after = world.counts(pair.a);
    let each = f64::from(case.each);
    let rate = |f: fn(&crate::Counts) -> u64| each * per_second(f(&after) - f(&before), case.span);
    let per_flow = |sum: f64| sum / f64::max(samples, 1.0);
    Ok(LowatResult {
        memory_per_flow: per_flow(memory),
        unsent_per_flow: per_flow(unsent),
        throughput_mbit: mbit(read.borrow().bytes - bytes, case.span) * each,
        context_switches: rate(|counts| counts.context_switches),
        wakeups: rate(|counts| counts.wakeups),
        interrupts: rate(|counts| counts.tx_interrupts + counts.rx_interrupts),
        acks: rate(|counts| counts.acks_in),
    })
}
