//! Internal pacing (Linux 4.13, 218af599fa63): 800 flows of 48 Mbit/s on a NIC of 40 Gbit/s, spaced by TCP's own timers or
//! by `fq`.
//!
//! Published, TCP and `fq`: 2.93 and 2.72 million packets sent a second, 4.33 and 4.02 GB/s, 725,000 and 677,000 packets
//! received, 2.4 and 1.7 million interrupts; TCP's own pacing does not count headers, `fq` did.
//!
//! **Here** there are three: by TCP's timers; by `fq` as today, which waits for the departure times that TCP stamps, and so
//! counts no headers either; and by `fq` as in 2017, which spaced by its own rate, headers included, and knew no stamps.

use taut_core::{ConnOptions, Duration, PacingMode};
use taut_link::{FqSpec, Rate};

use super::{at, per_second};
use crate::app::{Bulk, Sink};
use crate::check::Failure;
use crate::host::HostSpec;
use crate::qdisc::QdiscSpec;
use crate::topology::Pair;
use crate::world::World;

/// Who spaces packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacer {
    /// The stack, by timers; `pfifo_fast` below.
    Internal,
    /// The stack stamps, `fq` waits: today.
    Stamped,
    /// `fq` by itself, with a rate for each flow: 2017.
    Fq,
}

/// What is to be measured.
#[derive(Clone, Copy, Debug)]
pub struct PacingCase {
    /// Rate of the NICs.
    pub line: Rate,
    /// Flows.
    pub flows: u32,
    /// Rate of each.
    pub rate: Rate,
    /// The mechanism.
    pub spacer: Spacer,
    /// Repeats a run.
    pub seed: u64,
    /// Time for rates to settle.
    pub settle: Duration,
    /// Time measured.
    pub span: Duration,
}

impl PacingCase {
    /// As published, for a quarter of a second. There each flow was limited to about 48 Mbit/s; as payload that would be
    /// 40.8 Gbit/s on the line, so that 45 shows more.
    #[must_use]
    pub fn published(line: Rate, rate: Rate, spacer: Spacer) -> Self {
        let (settle, span) = (Duration::from_millis(150), Duration::from_millis(250));
        Self { line, flows: 800, rate, spacer, seed: 1, settle, span }
    }
}

/// What came out.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PacingResult {
    /// Payload of the slowest flow over what it should have been.
    pub least_share: f64,
    /// The mean of all.
    pub mean_share: f64,
    /// The fastest.
    pub most_share: f64,
    /// Segments sent a second.
    pub tx_packets: f64,
    /// Bytes of frames sent a second, in kB.
    pub tx_kilobytes: f64,
    /// Segments received a second.
    pub rx_packets: f64,
    /// Packets that the stack handed down a second.
    pub handed: f64,
    /// Timers of the stack a second.
    pub stack_timers: f64,
    /// Timers of the queue discipline a second.
    pub qdisc_timers: f64,
    /// Interrupts for packets sent a second.
    pub tx_interrupts: f64,
    /// Completions a second.
    pub completions: f64,
    /// Interrupts for packets received a second.
    pub rx_interrupts: f64,
    /// Times a second that small queues held a flow back.
    pub throttled: f64,
}

/// Runs it.
///
/// # Errors
/// A run that failed a check.
pub fn pacing(case: PacingCase) -> Result<PacingResult, Failure> {
    /// An Ethernet header, which `sar` counts.
    const HEADER: u64 = 14;
    let mut world = World::new(case.seed);
    let mut host = HostSpec::new(case.line);
    host.nic.ring = 4_096;
    // As such a driver sets it.
    (host.nic.tx_usecs, host.nic.tx_frames) = (Duration::from_micros(8), 64);
    (host.nic.rx_usecs, host.nic.rx_frames) = (Duration::from_micros(8), 64);
    // 4.13 knew no term for short paths.
    host.config.tcp_tso_rtt_log = 0;
    let rate = case.rate.bytes_per_second();
    let mut fq = FqSpec::default();
    match case.spacer {
        Spacer::Internal => host.config.pacing = PacingMode::Internal,
        Spacer::Stamped => {
            host.config.pacing = PacingMode::Delegated;
            host.qdisc = QdiscSpec::Fq(fq);
        }
        Spacer::Fq => {
            host.config.pacing = PacingMode::Off;
            host.delegate_pacing = false;
            fq.maxrate = Some(case.rate);
            host.qdisc = QdiscSpec::Fq(fq);
        }
    }
    let pair = Pair::new(&mut world, host.clone(), host, Duration::from_micros(50));
    let sink = Sink::new(1).trusting();
    let read = sink.stats();
    world.app(pair.b, sink);
    for flow in 0..case.flows {
        let options = ConnOptions { max_pacing_rate: Some(rate), ..ConnOptions::default() };
        let bulk = Bulk::new(at(&world, pair.b, 1)).options(options);
        let start = world.now() + Duration::from_micros(u64::from(flow) * 17);
        world.app_at(pair.a, start, bulk);
    }
    world.run_for(case.settle)?;
    let before = world.counts(pair.a);
    let held = world.host_ref(pair.a).stack().counters().tsq_throttled;
    let had: Vec<u64> = read.borrow().flows.iter().map(|(_, bytes)| *bytes).collect();
    world.run_for(case.span)?;
    let after = world.counts(pair.a);
    let due = rate as f64 * case.span.as_nanos() as f64 / 1e9;
    let read = read.borrow();
    let shares: Vec<f64> =
        read.flows.iter().zip(had).map(|((_, bytes), had)| (bytes - had) as f64 / due).collect();
    let per = |f: fn(&crate::Counts) -> u64| per_second(f(&after) - f(&before), case.span);
    let segments = after.segments_out - before.segments_out;
    Ok(PacingResult {
        least_share: shares.iter().copied().fold(f64::INFINITY, f64::min),
        mean_share: shares.iter().sum::<f64>() / f64::from(case.flows.max(1)),
        most_share: shares.iter().copied().fold(0.0, f64::max),
        tx_packets: per(|counts| counts.segments_out),
        tx_kilobytes: per_second(after.bytes_out - before.bytes_out + HEADER * segments, case.span) / 1e3,
        rx_packets: per(|counts| counts.segments_in),
        handed: per(|counts| counts.packets_out),
        stack_timers: per(|counts| counts.timer_events),
        qdisc_timers: per(|counts| counts.qdisc_timers),
        tx_interrupts: per(|counts| counts.tx_interrupts),
        completions: per(|counts| counts.completions),
        rx_interrupts: per(|counts| counts.rx_interrupts),
        throttled: per_second(world.host_ref(pair.a).stack().counters().tsq_throttled - held, case.span),
    })
}
