//! TSO autosizing refined (Linux 3.19, 605ad7f184b6): 2 MB over a path of 40 ms, written early in slow start, and into how
//! many packets they are cut.
//!
//! Published, sized at write time and at transmit time: 599 and 232 packets handed to IP for 1397 segments, 600 and 221
//! received, 0.36 s each.

use taut_core::{AutosizeMode, BufferSizes, ConnOptions, Duration};
use taut_link::Rate;

use super::at;
use crate::app::{Bulk, Sink};
use crate::check::Failure;
use crate::host::HostSpec;
use crate::topology::Pair;
use crate::world::World;

/// What is to be measured.
#[derive(Clone, Copy, Debug)]
pub struct AutosizeCase {
    /// Rate of the NICs.
    pub rate: Rate,
    /// The mechanism: [`AutosizeMode::AtWrite`] is before.
    pub mode: AutosizeMode,
    /// Repeats a run.
    pub seed: u64,
}

/// What came out, in the names that the commit printed.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AutosizeResult {
    /// `IpInReceives` of the sender: ACKs.
    pub ip_in_receives: u64,
    /// `IpOutRequests` of the sender: packets handed down.
    pub ip_out_requests: u64,
    /// `TcpOutSegs` of the sender.
    pub tcp_out_segs: u64,
    /// `IpExtOutOctets` of the sender: bytes handed down, a super-packet's headers being counted once.
    pub ip_ext_out_octets: u64,
    /// From the connection to the end of the stream, acknowledged.
    pub elapsed: Duration,
    /// Payload over that.
    pub mbit: f64,
}

/// `netperf -l -2000000 -- -s 1000000`: two million bytes, one write, a send buffer of 1,000,000 (twice that, as the
/// kernel counts).
const BYTES: u64 = 2_000_000;
const SNDBUF: u32 = 1_000_000;

/// Runs it.
///
/// # Errors
/// A run that failed a check.
pub fn autosize(case: AutosizeCase) -> Result<AutosizeResult, Failure> {
    let mut world = World::new(case.seed);
    let mut host = HostSpec::new(case.rate);
    // As such a NIC's driver sets it: without, nothing is merged on receipt.
    host.nic.rx_usecs = Duration::from_micros(20);
    // One ACK a packet, as Linux answers.
    host.batched = false;
    host.config.autosizing = case.mode;
    // 3.19 knew no term for short paths, and -s needs a limit that allows it.
    host.config.tcp_tso_rtt_log = 0;
    host.config.wmem_max = SNDBUF;
    host.config.tcp_rmem = BufferSizes { min: 4_096, initial: 87_380, max: 6 << 20 };
    let pair = Pair::new(&mut world, host.clone(), host, Duration::from_millis(20));
    let sink = Sink::new(1);
    world.app(pair.b, sink);
    let options = ConnOptions { sndbuf: Some(SNDBUF), ..ConnOptions::default() };
    let bulk = Bulk::new(at(&world, pair.b, 1)).options(options).total(BYTES).write_size(BYTES as usize);
    let wrote = bulk.stats();
    world.app(pair.a, bulk);
    world.run_for(Duration::from_secs(5))?;

    let wrote = wrote.borrow();
    let elapsed = match (wrote.connected, wrote.closed) {
        (Some(from), Some(to)) => to.since(from),
        _ => Duration::MAX,
    };
    let counters = world.host_ref(pair.a).stack().counters();
    let counts = world.counts(pair.a);
    Ok(AutosizeResult {
        ip_in_receives: counters.in_receives,
        ip_out_requests: counters.out_requests,
        tcp_out_segs: counters.out_segs,
        ip_ext_out_octets: counts.bytes_handed,
        elapsed,
        mbit: super::mbit(BYTES, elapsed),
    })
}
