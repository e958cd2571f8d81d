//! The far end of every link: the kernel's sockets with cubic, the same for every stack.
//!
//! A thread reads or writes each connection in bulk. One thread with an epoll set echoes all connections; two
//! such threads serve connections of one request each, and two threads open them, 32 at a time.

use std::io::Read;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};
use taut_bench::net::LOCAL;
use taut_bench::peer::{self, CHUNK};
use taut_bench::probe::{Probe, histogram};
use taut_bench::server::{self, Service};
use taut_device::sys::monotonic_ns;
use taut_testbed::Kernel;

use crate::job::{Job, Work, report};
use crate::threads::{self, Body};

/// Threads that serve or open connections.
const RATE_THREADS: usize = 2;
/// Bytes of a message that bears the time of its write.
pub const STAMPED_BYTES: usize = 64;

/// Starts the peer's threads. Those that listen do so when this returns.
pub fn start(
    kernel: &Kernel,
    job: &Job,
    probe: &Arc<Probe>,
    flows: &Arc<[AtomicU64]>,
) -> Result<Vec<JoinHandle<()>>> {
    let spawn = |run: Body| -> Result<JoinHandle<()>> {
        let probe = Arc::clone(probe);
        let thread = kernel.thread("peer", move || {
            probe.not_the_stack();
            report(run(&probe).context("kernel peer"), &probe);
        })?;
        Ok(thread)
    };
    let listen = || -> Result<TcpListener> { kernel.enter(peer::listen)? };
    match job.work {
        Work::Pour { .. } | Work::Drain | Work::Stamp | Work::Hear | Work::Beside => {
            let (listener, flows, job) = (listen()?, Arc::clone(flows), *job);
            Ok(vec![spawn(Box::new(move |probe| each(&listener, &job, &flows, probe)))?])
        }
        Work::Ping => {
            let listener = listen()?;
            Ok(vec![spawn(Box::new(move |probe| server::run(&listener, Service::Echo, probe)))?])
        }
        Work::Open => {
            let listener = listen()?;
            let serve = |_| {
                let listener = listener.try_clone()?;
                spawn(Box::new(move |probe| server::run(&listener, Service::Once, probe)))
            };
            (0..RATE_THREADS).map(serve).collect()
        }
        Work::Accept => {
            (0..RATE_THREADS).map(|_| spawn(Box::new(|probe| peer::dial(LOCAL, probe)))).collect()
        }
    }
}

/// Wakes whoever waits on a stream when the measurement is over.
pub fn wake_at_end(stream: &TcpStream, probe: &Probe) -> Result<()> {
    let stream = stream.try_clone()?;
    probe.at_end(move || _ = stream.shutdown(Shutdown::Both));
    Ok(())
}

/// Accepts the connections, each with a thread of its own, and waits for them to end.
fn each(listener: &TcpListener, job: &Job, flows: &[AtomicU64], probe: &Arc<Probe>) -> Result<()> {
    std::thread::scope(|scope| {
        for (at, flow) in flows.iter().enumerate() {
            let stream = loop {
                match listener.accept() {
                    Ok((stream, _)) => break stream,
                    Err(error) if peer::interrupted(&error) && !probe.stopped() => {}
                    Err(error) => return Err(error).context("accept"),
                }
            };
            // Those of the listener, which it inherits, are for stopping the listener.
            stream.set_read_timeout(None)?;
            stream.set_nodelay(job.work == Work::Hear)?;
            wake_at_end(&stream, probe)?;
            std::thread::Builder::new().name("peer".into()).spawn_scoped(scope, move || {
                probe.not_the_stack();
                let count = |bytes| _ = flow.fetch_add(bytes, Relaxed);
                let done = match job.work.of(at) {
                    Work::Ping => peer::echo(&stream, probe),
                    Work::Drain => peer::pour_counting(&stream, probe, CHUNK, count),
                    Work::Stamp => read_stamps(&stream, probe, false),
                    Work::Hear => threads::stamp(&stream, probe),
                    _ => peer::drain_counting(&stream, probe, count),
                };
                report(done.context("kernel peer"), probe);
            })?;
        }
        Ok(())
    })
}

/// Reads messages, and notes how old each is when it is complete. For a reader that pauses after each, the
/// time before it waits for the message does not count.
pub fn read_stamps(mut stream: impl Read, probe: &Probe, pauses: bool) -> Result<()> {
    let mut taken_ns = histogram();
    let mut message = [0; STAMPED_BYTES];
    while !probe.stopped() {
        let begun_ns = if pauses { monotonic_ns() } else { 0 };
        match stream.read_exact(&mut message) {
            Ok(()) => {}
            Err(_) if probe.stopped() => break,
            Err(error) => return Err(error).context("read"),
        }
        let written_ns = u64::from_le_bytes(message[..8].try_into()?);
        if probe.measuring() {
            taken_ns.saturating_record(monotonic_ns() - written_ns.max(begun_ns));
        }
        probe.add(1);
        if pauses {
            // Evenly between 0 and 0.5 ms.
            std::thread::sleep(Duration::from_nanos(written_ns % 500_000));
        }
    }
    probe.keep_latencies(taken_ns);
    Ok(())
}
