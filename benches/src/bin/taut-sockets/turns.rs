//! taut as a sans-IO loop with any number of connections in one thread: input, application, output.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use taut_bench::net::LOCAL;
use taut_bench::peer::CHUNK;
use taut_bench::probe::{Probe, histogram};
use taut_bench::stacks::taut_loop::{Loop, now, read};
use taut_core::{ConnId, ConnOptions, Event, Instant, Stack, StackConfig, WriteError};
use taut_device::Tun;

use crate::job::{Job, Work};
use crate::threads::{STAMP_EVERY, options, stamped, taut_counters};

/// Packets that a turn takes at most.
const BATCH: usize = 16;

pub fn run(queues: Vec<Tun>, sysctls: &[(String, String)], job: &Job, probe: &Probe) -> Result<()> {
    let Ok([tun]) = <[Tun; 1]>::try_from(queues) else { bail!("a loop has one queue") };
    let mut config = StackConfig::default().with(|config| config.addresses = vec![LOCAL.into()]);
    config.set_sysctl("tcp_autocorking", if job.autocorking { "1" } else { "0" })?;
    for (name, value) in sysctls {
        config.set_sysctl(name, value)?;
    }
    let stack = Stack::new(Arc::new(config), tun.caps(), [7; 32]);
    let mut turning = Loop::of(stack, tun, BATCH, probe);
    let options: ConnOptions = options(job);
    let conns = (0..job.connections).map(|_| turning.connected(&options)).collect::<Result<Vec<_>>>()?;
    match job.work {
        Work::Pour { chunk, .. } => pour(&mut turning, &conns, chunk),
        Work::Drain => drain(&mut turning, &conns, probe),
        Work::Ping => ping(&mut turning, &conns, probe),
        Work::Stamp => stamp(&mut turning, conns[0], probe),
        Work::Open | Work::Accept => bail!("the loop opens and accepts with no number of threads"),
    }?;
    probe.keep_counters(taut_counters(turning.stack.counters()));
    Ok(())
}

/// A connection that writes chunks.
struct Flow {
    conn: ConnId,
    /// Bytes of the chunk that are written.
    written: usize,
    has_room: bool,
}

impl Flow {
    /// Writes up to [`CHUNK`] bytes, or one larger chunk. Without room, an event will say when there is some.
    fn write(&mut self, stack: &mut Stack, at: Instant, chunk: &[u8]) -> Result<()> {
        let Some(mut conn) = stack.conn_mut(self.conn) else { bail!("the connection is gone") };
        let mut left = chunk.len().max(CHUNK);
        while left > 0 {
            match conn.write(at, &chunk[self.written..]) {
                Ok(count) => {
                    self.written = (self.written + count) % chunk.len();
                    left = left.saturating_sub(count);
                }
                Err(WriteError::WouldBlock) => {
                    self.has_room = false;
                    break;
                }
                Err(error) => return Err(error).context("write"),
            }
        }
        Ok(())
    }
}

fn pour(turning: &mut Loop<'_>, conns: &[ConnId], chunk: usize) -> Result<()> {
    let data = vec![0x5a; chunk];
    let index: HashMap<ConnId, usize> = conns.iter().copied().zip(0..).collect();
    let mut flows: Vec<Flow> = conns.iter().map(|&conn| Flow { conn, written: 0, has_room: true }).collect();
    turning.turn_until_stopped(|stack, at| {
        while let Some(event) = stack.poll_event() {
            if let Event::Writable(conn) = event
                && let Some(&at) = index.get(&conn)
            {
                flows[at].has_room = true;
            }
        }
        for flow in flows.iter_mut().filter(|flow| flow.has_room) {
            flow.write(stack, at, &data)?;
        }
        Ok(flows.iter().any(|flow| flow.has_room))
    })
}

fn drain(turning: &mut Loop<'_>, conns: &[ConnId], probe: &Probe) -> Result<()> {
    let mut data = vec![0; CHUNK];
    turning.turn_until_stopped(|stack, at| {
        while stack.poll_event().is_some() {}
        for &conn in conns {
            probe.add(read(stack, conn, at, &mut data)? as u64);
        }
        Ok(false)
    })
}

fn ping(turning: &mut Loop<'_>, conns: &[ConnId], probe: &Probe) -> Result<()> {
    let mut taken_ns = histogram();
    let mut asked: HashMap<ConnId, Instant> = HashMap::new();
    let mut byte = [0];
    turning.turn_until_stopped(|stack, at| {
        let mut ready = Vec::new();
        if asked.is_empty() {
            ready.extend_from_slice(conns);
        }
        while let Some(event) = stack.poll_event() {
            if let Event::Readable(conn) = event
                && read(stack, conn, at, &mut byte)? > 0
                && let Some(&begun) = asked.get(&conn)
            {
                if probe.measuring() {
                    taken_ns.saturating_record(now().since(begun).as_nanos());
                }
                probe.add(1);
                ready.push(conn);
            }
        }
        for conn in ready {
            asked.insert(conn, now());
            stack.conn_mut(conn).context("the connection is gone")?.write(at, &byte).context("write")?;
        }
        Ok(false)
    })?;
    probe.keep_latencies(taken_ns);
    Ok(())
}

fn stamp(turning: &mut Loop<'_>, conn: ConnId, probe: &Probe) -> Result<()> {
    let mut due = now();
    while !probe.stopped() {
        let at = now();
        turning.receive(at);
        if turning.stack.poll_timeout().is_some_and(|(due, _)| due <= at) {
            turning.stack.handle_timeout(at);
        }
        while turning.stack.poll_event().is_some() {}
        if due <= at {
            let mut conn = turning.stack.conn_mut(conn).context("the connection is gone")?;
            conn.write(at, &stamped()).context("write")?;
            due = at + STAMP_EVERY.into();
        }
        turning.transmit(at);
        let timer = turning.stack.poll_timeout().map_or(due, |(timer, _)| timer.min(due));
        turning.wait_until(Some(timer));
    }
    Ok(())
}
