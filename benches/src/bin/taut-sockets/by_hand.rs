//! Packets made by hand over a TUN, without a stack: the least that a process can do there.

use anyhow::{Context as _, Result, bail};
use taut_bench::net::{LOCAL, PEER, PORT};
use taut_bench::peer::CHUNK;
use taut_bench::probe::{Probe, histogram};
use taut_device::Tun;
use taut_testbed::ByHand;

use crate::job::{Job, Work};

/// The port of the one connection.
const FROM: u16 = 20_000;
/// Bytes that are sent until the last of them is acknowledged; the wait at their end is short beside that.
const AT_ONCE: usize = 16 << 20;

pub fn run(queues: Vec<Tun>, job: &Job, probe: &Probe) -> Result<()> {
    let Ok([tun]) = <[Tun; 1]>::try_from(queues) else { bail!("packets made by hand have one queue") };
    let link = ByHand { tun, near: LOCAL.into(), far: (PEER, PORT).into() };
    match job.work {
        Work::Pour { .. } => {
            let (data, mut conn) = (vec![0x5a; AT_ONCE], link.connect(FROM, &[])?);
            while !probe.stopped() {
                conn.pour(&data).context("send")?;
            }
        }
        Work::Drain => {
            let mut conn = link.connect(FROM, &[])?;
            while !probe.stopped() {
                conn.read(CHUNK).context("receive")?;
                probe.add(CHUNK as u64);
            }
        }
        Work::Ping => {
            let (mut taken_ns, mut conn) = (histogram(), link.connect(FROM, &[])?);
            while !probe.stopped() {
                let begun = std::time::Instant::now();
                conn.exchange().context("exchange")?;
                if probe.measuring() {
                    taken_ns.saturating_record(begun.elapsed().as_nanos() as u64);
                }
                probe.add(1);
            }
            probe.keep_latencies(taken_ns);
        }
        Work::Open => {
            let (at_once, mut counted) = (u16::try_from(job.connections)?, 0);
            link.short_connections(&[0], at_once, |count| {
                probe.add(count - counted);
                counted = count;
                !probe.stopped()
            })?;
        }
        Work::Accept | Work::Stamp | Work::Hear | Work::Beside => bail!("not by packets made by hand"),
    }
    Ok(())
}
