//! The work of `compare/workload.rs` by packets made by hand over a TUN, which are the limit there. Called by
//! `cost.rs`.

use std::io;
use std::time::Duration;

use hdrhistogram::Histogram;
use taut_testbed::ByHand;

use crate::compare::workload::{Bulk, Payload, ask, histogram};
use crate::shared::clock::{Stopwatch, processor_time};

/// Connections that are opened at the same time, as by the other senders' threads.
const AT_ONCE: u16 = 4;
/// The port of every client.
const PORT: u16 = 20_000;

/// As [`workload::upload`](crate::compare::workload::upload): verified by the peer's digest.
pub(super) fn upload(link: &ByHand, payload: &Payload, time: Duration) -> io::Result<Bulk> {
    let mut conn = link.connect(PORT, &[ask::SINK])?;
    conn.read(1)?;
    let mut bulk = Bulk::default();
    while bulk.bytes == 0 || bulk.time < time {
        let (watch, used) = (Stopwatch::start(), processor_time());
        conn.pour(&payload.bytes)?;
        conn.read(1)?;
        bulk.time += watch.elapsed();
        bulk.processor += processor_time() - used;
        bulk.bytes += payload.bytes.len() as u64;
        if conn.read(payload.digest.len())? != payload.digest {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "SHA-256 differs"));
        }
    }
    conn.reset()?;
    Ok(bulk)
}

/// As [`workload::download`](crate::compare::workload::download), but only the digest at the end is kept.
pub(super) fn download(link: &ByHand, payload: &Payload, time: Duration) -> io::Result<Bulk> {
    let mut conn = link.connect(PORT, &[ask::SOURCE])?;
    let mut bulk = Bulk::default();
    while bulk.bytes == 0 || bulk.time < time {
        let (watch, used) = (Stopwatch::start(), processor_time());
        conn.write(&[1])?;
        let last = conn.read(payload.bytes.len() + payload.digest.len())?;
        bulk.time += watch.elapsed();
        bulk.processor += processor_time() - used;
        bulk.bytes += payload.bytes.len() as u64;
        if !last.ends_with(&payload.digest) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the download ends with other bytes"));
        }
    }
    conn.reset()?;
    Ok(bulk)
}

/// As [`workload::latency`](crate::compare::workload::latency).
pub(super) fn latency(link: &ByHand, time: Duration) -> io::Result<Histogram<u64>> {
    let mut conn = link.connect(PORT, &[ask::ECHO])?;
    let found = histogram(time, || conn.exchange())?;
    conn.reset()?;
    Ok(found)
}

/// As [`workload::connections`](crate::compare::workload::connections): open, a byte each way, close.
pub(super) fn connections(link: &ByHand, time: Duration) -> io::Result<(u64, Duration)> {
    let watch = Stopwatch::start();
    let count = link.short_connections(&[ask::GREET], AT_ONCE, |_| watch.elapsed() < time)?;
    Ok((count, watch.elapsed()))
}
