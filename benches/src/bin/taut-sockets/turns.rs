//! taut as a sans-IO loop with any number of connections in one thread: input, application, output.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use hdrhistogram::Histogram;
use taut_bench::net::LOCAL;
use taut_bench::peer::CHUNK;
use taut_bench::probe::{Probe, histogram};
use taut_bench::stacks::taut_loop::{Loop, now, read};
use taut_core::{ConnId, Event, Instant, Stack, StackConfig, WriteError};
use taut_device::Tun;

use crate::job::{Job, Work};
use crate::threads::{STAMP_EVERY, options, stamped, taut_counters};

/// Packets that a turn takes at most.
const BATCH: usize = 16;

pub fn run(queues: Vec<Tun>, sysctls: &[(String, String)], job: &Job, probe: &Probe) -> Result<()> {
    let Ok([tun]) = <[Tun; 1]>::try_from(queues) else { bail!("a loop has one queue") };
    let mut config = StackConfig::default().with(|config| config.addresses = vec![LOCAL.into()]);
    for (name, value) in job.sysctls() {
        config.set_sysctl(name, value)?;
    }
    for (name, value) in sysctls {
        config.set_sysctl(name, value)?;
    }
    let stack = Stack::new(Arc::new(config), tun.caps(), [7; 32]);
    let mut turning = Loop::of(stack, tun, BATCH, probe);
    let conns = (0..job.connections)
        .map(|at| turning.connected(&options(job.work.of(at))))
        .collect::<Result<Vec<_>>>()?;
    match job.work {
        Work::Pour { chunk, .. } => pour(&mut turning, &conns, chunk),
        Work::Drain => drain(&mut turning, &conns, probe),
        Work::Ping => ping(&mut turning, &conns, probe),
        Work::Stamp => stamp(&mut turning, conns[0], probe),
        Work::Beside => beside(&mut turning, &conns, probe),
        Work::Open | Work::Accept => bail!("the loop opens and accepts with no number of threads"),
        Work::Hear => bail!("the loop has no thread that pauses alone"),
    }?;
    probe.keep_counters(taut_counters(turning.stack.counters(), &turning.stack.report(now())));
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
    let mut pings = Pings::new(conns);
    turning.turn_until_stopped(|stack, at| {
        while let Some(event) = stack.poll_event() {
            pings.note(stack, at, event, probe)?;
        }
        pings.ask(stack, at)?;
        Ok(false)
    })?;
    probe.keep_latencies(pings.taken_ns);
    Ok(())
}

/// The first connection pours, the others ping.
fn beside(turning: &mut Loop<'_>, conns: &[ConnId], probe: &Probe) -> Result<()> {
    let data = vec![0x5a; CHUNK];
    let mut flow = Flow { conn: conns[0], written: 0, has_room: true };
    let mut pings = Pings::new(&conns[1..]);
    turning.turn_until_stopped(|stack, at| {
        while let Some(event) = stack.poll_event() {
            match event {
                Event::Writable(conn) if conn == flow.conn => flow.has_room = true,
                event => pings.note(stack, at, event, probe)?,
            }
        }
        pings.ask(stack, at)?;
        if flow.has_room {
            flow.write(stack, at, &data)?;
        }
        Ok(flow.has_room)
    })?;
    probe.keep_latencies(pings.taken_ns);
    Ok(())
}

/// Connections that send a byte, wait for it to come back, and again.
struct Pings {
    taken_ns: Histogram<u64>,
    asked: HashMap<ConnId, Instant>,
    /// They may ask again.
    ready: Vec<ConnId>,
}

impl Pings {
    fn new(conns: &[ConnId]) -> Self {
        Self { taken_ns: histogram(), asked: HashMap::new(), ready: conns.to_vec() }
    }

    /// Reads the answer that an event announces.
    fn note(&mut self, stack: &mut Stack, at: Instant, event: Event, probe: &Probe) -> Result<()> {
        if let Event::Readable(conn) = event
            && read(stack, conn, at, &mut [0])? > 0
            && let Some(&begun) = self.asked.get(&conn)
        {
            if probe.measuring() {
                self.taken_ns.saturating_record(now().since(begun).as_nanos());
            }
            probe.add(1);
            self.ready.push(conn);
        }
        Ok(())
    }

    fn ask(&mut self, stack: &mut Stack, at: Instant) -> Result<()> {
        for conn in self.ready.drain(..) {
            self.asked.insert(conn, now());
            stack.conn_mut(conn).context("the connection is gone")?.write(at, &[0]).context("write")?;
        }
        Ok(())
    }
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
