//! taut as a sans-IO loop: one thread that owns the stack and the TUN, takes input, runs the application,
//! sends. The same shape as smoltcp's row.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use taut_core::{
    BUFFER_BYTES, ConnError, ConnId, ConnOptions, Duration, Event, Fate, Frame, Instant, LinkCaps,
    ListenOptions, ReadError, RxPacket, Stack, StackConfig, Transmit, WriteError,
};
use taut_device::Tun;
use taut_device::sys::monotonic_ns;

use super::{Task, Tuning};
use crate::net::{self, LOCAL, PEER, PORT};
use crate::peer::{BATCH, CHUNK};
use crate::probe::{Probe, histogram};

/// A stack with one address and Linux's defaults, as everywhere.
pub fn stack(address: std::net::Ipv4Addr, caps: LinkCaps) -> Stack {
    let config = StackConfig::default().with(|c| c.addresses = vec![address.into()]);
    Stack::new(Arc::new(config), caps, [7; 32])
}

/// Options where single bytes are exchanged: they go out at once.
pub fn nodelay() -> ConnOptions {
    ConnOptions { nodelay: true, ..ConnOptions::default() }
}

/// Options of a bulk sender. A quarter of a MB of unsent data keeps a sender busy through every wait for the
/// other core, and is still in the cache when it is sent. It is the best value of those tried, as with
/// smoltcp's buffers.
pub fn bulk() -> ConnOptions {
    ConnOptions { notsent_lowat: 256 << 10, ..ConnOptions::default() }
}

/// The stack, its device and what a turn needs.
pub struct Loop<'a> {
    pub stack: Stack,
    tun: Tun,
    buffer: Vec<u8>,
    ingress_batch: usize,
    probe: &'a Probe,
}

pub fn now() -> Instant {
    Instant::from_nanos(monotonic_ns())
}

impl<'a> Loop<'a> {
    fn new(tun: Tun, tuning: &Tuning, probe: &'a Probe) -> Self {
        Self::of(stack(LOCAL, tun.caps()), tun, tuning.taut_ingress_batch, probe)
    }

    /// A loop around this stack. Each turn takes `ingress_batch` packets at most.
    pub fn of(stack: Stack, tun: Tun, ingress_batch: usize, probe: &'a Probe) -> Self {
        Self { stack, tun, buffer: vec![0; BUFFER_BYTES], ingress_batch, probe }
    }

    /// Sleeps until a packet arrives, or until then.
    pub fn wait_until(&self, at: Option<Instant>) {
        net::wait_readable(&self.tun, at.map(|at| at.since(now()).into()));
    }

    /// Takes a batch of packets; returns whether there was one.
    pub fn receive(&mut self, at: Instant) -> bool {
        for taken in 0..self.ingress_batch {
            let Ok(received) = self.tun.recv(&mut self.buffer) else { return taken > 0 };
            let frame = Frame::Lend { buffer: &mut self.buffer, range: received.range };
            let packet = RxPacket { frame, checksum: received.checksum, gso_size: received.gso_size };
            self.stack.handle_packet(at, packet);
            if self.buffer.len() < BUFFER_BYTES {
                self.buffer = vec![0; BUFFER_BYTES];
            }
        }
        true
    }

    /// Sends all packets that the stack has ready.
    pub fn transmit(&mut self, at: Instant) {
        while let Some(Transmit { packet, ticket }) = self.stack.poll_transmit(at) {
            // A full queue drops the packet, as on any link.
            let _ = self.tun.put(&packet);
            self.stack.handle_tx(at, ticket, Fate::Left);
        }
    }

    /// Input, then the application, then output, until told to stop; sleeps when nothing happened. The
    /// application returns whether it wants another turn. The clock is read once a turn, as in smoltcp's
    /// loop.
    pub fn turn_until_stopped(
        &mut self,
        mut application: impl FnMut(&mut Stack, Instant) -> Result<bool>,
    ) -> Result<()> {
        while !self.probe.stopped() {
            let at = now();
            let mut moved = self.receive(at);
            if self.stack.poll_timeout().is_some_and(|(due, _)| due <= at) {
                self.stack.handle_timeout(at);
            }
            moved |= application(&mut self.stack, at)?;
            self.transmit(at);
            if !moved {
                let until = self.stack.poll_timeout().map(|(due, _)| due.since(at));
                net::wait_readable(&self.tun, until.map(Duration::into));
            }
        }
        Ok(())
    }

    fn connect(&mut self, options: &ConnOptions) -> Result<ConnId> {
        self.stack.connect(now(), (PEER, PORT).into(), options).context("connect")
    }

    /// Turns until a new connection is established.
    pub fn connected(&mut self, options: &ConnOptions) -> Result<ConnId> {
        let conn = self.connect(options)?;
        let begun = now();
        loop {
            self.transmit(now());
            while let Some(event) = self.stack.poll_event() {
                match event {
                    Event::Connected(id) if id == conn => return Ok(conn),
                    Event::Failed(_, error) => bail!("connect: {error}"),
                    _ => {}
                }
            }
            if now().since(begun) > Duration::from_secs(5) {
                bail!("no connection within 5 s");
            }
            net::wait_readable(&self.tun, None);
            self.receive(now());
        }
    }
}

/// Writes one application chunk; false when there was no room for all of it.
pub fn write(stack: &mut Stack, conn: ConnId, at: Instant, data: &[u8]) -> Result<bool> {
    let Some(mut conn) = stack.conn_mut(conn) else { bail!("the connection is gone") };
    match conn.write(at, data) {
        Ok(count) => Ok(count == data.len()),
        Err(WriteError::WouldBlock) => Ok(false),
        Err(error) => Err(error).context("write"),
    }
}

/// Reads into the application's buffer until nothing is left; returns the bytes.
pub fn read(stack: &mut Stack, conn: ConnId, at: Instant, into: &mut [u8]) -> Result<usize> {
    let Some(mut conn) = stack.conn_mut(conn) else { bail!("the connection is gone") };
    let mut got = 0;
    loop {
        match conn.read(at, into) {
            Ok(0) | Err(ReadError::WouldBlock) => return Ok(got),
            Ok(count) => got += count,
            Err(error) => return Err(error).context("read"),
        }
    }
}

pub fn run(task: Task, tun: Tun, tuning: &Tuning, probe: &Probe) -> Result<()> {
    let mut turning = Loop::new(tun, tuning, probe);
    match task {
        Task::Send => send(&mut turning),
        Task::Receive => receive(&mut turning),
        Task::Ping => ping(&mut turning),
        Task::Dial => dial(&mut turning),
        Task::Serve => serve(&mut turning),
        Task::Hold => hold(&mut turning),
    }
}

fn send(turning: &mut Loop<'_>) -> Result<()> {
    let conn = turning.connected(&bulk())?;
    let data = vec![0x5a; CHUNK];
    turning.turn_until_stopped(|stack, at| {
        while stack.poll_event().is_some() {}
        write(stack, conn, at, &data)
    })
}

fn receive(turning: &mut Loop<'_>) -> Result<()> {
    let conn = turning.connected(&ConnOptions::default())?;
    let mut data = vec![0; CHUNK];
    let probe = turning.probe;
    turning.turn_until_stopped(|stack, at| {
        while stack.poll_event().is_some() {}
        probe.add(read(stack, conn, at, &mut data)? as u64);
        Ok(false)
    })
}

fn ping(turning: &mut Loop<'_>) -> Result<()> {
    let conn = turning.connected(&nodelay())?;
    let probe = turning.probe;
    let mut taken_ns = histogram();
    let mut asked: Option<Instant> = None;
    let mut byte = [0];
    turning.turn_until_stopped(|stack, at| {
        while stack.poll_event().is_some() {}
        if let Some(asked) = asked {
            if read(stack, conn, at, &mut byte)? == 0 {
                return Ok(false);
            }
            if probe.measuring() {
                taken_ns.saturating_record(now().since(asked).as_nanos());
            }
            probe.add(1);
        }
        asked = Some(now());
        write(stack, conn, at, &byte)?;
        Ok(false)
    })?;
    probe.keep_latencies(taken_ns);
    Ok(())
}

fn dial(turning: &mut Loop<'_>) -> Result<()> {
    for _ in 0..BATCH {
        turning.connect(&nodelay())?;
    }
    let probe = turning.probe;
    let mut byte = [0];
    turning.turn_until_stopped(|stack, at| {
        while let Some(event) = stack.poll_event() {
            match event {
                Event::Connected(conn) => {
                    write(stack, conn, at, &byte)?;
                }
                Event::Readable(conn) => {
                    if read(stack, conn, at, &mut byte)? == 0 {
                        continue;
                    }
                    if let Some(conn) = stack.conn_mut(conn) {
                        conn.abort(at);
                    }
                    probe.add(1);
                    stack.connect(at, (PEER, PORT).into(), &nodelay()).context("connect")?;
                }
                // There is an event for connections aborted here, too.
                Event::Failed(_, error) if error != ConnError::Aborted => {
                    bail!("a connection failed: {error}")
                }
                _ => {}
            }
        }
        Ok(false)
    })
}

fn serve(turning: &mut Loop<'_>) -> Result<()> {
    let options = ListenOptions { conn: nodelay(), ..ListenOptions::default() };
    turning.stack.listen((LOCAL, PORT).into(), options).context("listen")?;
    let mut byte = [0];
    turning.turn_until_stopped(|stack, at| {
        while let Some(event) = stack.poll_event() {
            match event {
                Event::Incoming(listener) => {
                    while let Some((conn, _)) = stack.accept(listener) {
                        answer(stack, conn, at, &mut byte)?;
                    }
                }
                Event::Readable(conn) => answer(stack, conn, at, &mut byte)?,
                Event::Failed(conn, _) => {
                    if let Some(conn) = stack.conn_mut(conn) {
                        conn.close(at);
                    }
                }
                _ => {}
            }
        }
        Ok(false)
    })
}

/// Answers the request if it has arrived, and closes the connection.
fn answer(stack: &mut Stack, id: ConnId, at: Instant, byte: &mut [u8; 1]) -> Result<()> {
    let Some(mut conn) = stack.conn_mut(id) else { return Ok(()) };
    match conn.read(at, byte) {
        Ok(0) => conn.close(at),
        Ok(_) => {
            conn.write(at, byte).context("write")?;
            conn.close(at);
        }
        Err(ReadError::WouldBlock) => {}
        // The client was stopped in the middle of a request.
        Err(_) => conn.close(at),
    }
    Ok(())
}

fn hold(turning: &mut Loop<'_>) -> Result<()> {
    turning.stack.listen((LOCAL, PORT).into(), ListenOptions::default()).context("listen")?;
    let mut held = Vec::with_capacity(16 << 10);
    turning.turn_until_stopped(|stack, _| {
        while let Some(event) = stack.poll_event() {
            if let Event::Incoming(listener) = event {
                held.extend(std::iter::from_fn(|| stack.accept(listener)));
            }
        }
        Ok(false)
    })
}
