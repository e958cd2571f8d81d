//! One measurement: a link, the kernel at its far end, one form of a stack at its near end, and a window of
//! time.
//!
//! No thread is pinned and none has a priority. Where the whole process has to stay on one core, it is
//! confined to it before any of the measurement's threads exists.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use hdrhistogram::Histogram;
use taut_bench::net::{self, Link, MTU, Near};
use taut_bench::peer::CHUNK;
use taut_bench::probe::{Counters, Probe, Window};
use taut_bench::tap::{Tap, Which};
use taut_bench::{cpu, measure};

use crate::{by_hand, peers, tasks, threads, turns};

/// Not measured: slow start and buffers that grow.
const WARM_UP: Duration = Duration::from_millis(400);
/// Payload of a full segment: the MTU without 20 bytes of IP, 20 of TCP and 12 of timestamps, which both
/// stacks use.
pub const MSS: u32 = MTU as u32 - 52;
/// How long threads may take to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is checked whether they have.
const JOIN_EVERY: Duration = Duration::from_millis(1);

/// A stack in one of the forms in which programs use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The kernel over veth, a thread for each connection.
    Kernel,
    /// The kernel over veth, `tokio::net`.
    KernelTokio,
    /// taut over TUN as a sans-IO loop in one thread.
    Loop,
    /// taut over TUN, `taut::blocking`, a thread for each connection.
    Blocking,
    /// taut over TUN, `taut::TcpStream`.
    Tokio,
    /// Packets made by hand over TUN, without a stack: the limit there.
    Least,
}

impl Form {
    pub const ALL: [Self; 6] =
        [Self::Kernel, Self::KernelTokio, Self::Loop, Self::Blocking, Self::Tokio, Self::Least];
    /// Those that are stacks.
    pub const STACKS: [Self; 5] = [Self::Kernel, Self::KernelTokio, Self::Loop, Self::Blocking, Self::Tokio];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::KernelTokio => "kernel tokio",
            Self::Loop => "taut loop",
            Self::Blocking => "taut blocking",
            Self::Tokio => "taut tokio",
            Self::Least => "least over TUN",
        }
    }

    pub const fn is_taut(self) -> bool {
        matches!(self, Self::Loop | Self::Blocking | Self::Tokio)
    }

    const fn is_over_tun(self) -> bool {
        self.is_taut() || matches!(self, Self::Least)
    }

    /// The form of the kernel's sockets that corresponds to it.
    pub const fn beside(self) -> Self {
        match self {
            Self::KernelTokio | Self::Tokio => Self::KernelTokio,
            Self::Kernel | Self::Loop | Self::Blocking | Self::Least => Self::Kernel,
        }
    }
}

/// What the stack's side does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Writes as fast as possible, `chunk` bytes at a time.
    Pour { chunk: usize, nodelay: bool },
    /// Reads as fast as possible.
    Drain,
    /// Sends a byte, waits for it to come back, and again.
    Ping,
    /// Writes 64 bytes each millisecond; the peer compares the time in them with the time at which it has
    /// them.
    Stamp,
    /// Reads such messages of the peer's, and pauses for up to 0.5 ms after each.
    Hear,
    /// Opens connections of one request each.
    Open,
    /// Accepts connections of one request each.
    Accept,
    /// The first connection writes as fast as possible, the others send a byte and wait for it to come back.
    Beside,
}

impl Work {
    /// What the connection of this number does.
    pub const fn of(self, connection: usize) -> Self {
        match (self, connection) {
            (Self::Beside, 0) => Self::Pour { chunk: CHUNK, nodelay: false },
            (Self::Beside, _) => Self::Ping,
            (same, _) => same,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Job {
    pub work: Work,
    /// Connections, each with a thread or task; for [`Work::Open`] and [`Work::Accept`] the number of threads
    /// or tasks.
    pub connections: usize,
    /// Of taut's stack.
    pub shards: u16,
    pub autocorking: bool,
    /// Of taut; the kernel's cannot be turned off.
    pub small_queue: bool,
    /// How long taut looks for packets before a thread sleeps.
    pub busy_poll: Duration,
    /// Keeps the whole process on one core.
    pub one_core: bool,
    /// Counts data packets on the link.
    pub counts_packets: bool,
}

impl Job {
    pub const fn of(work: Work, connections: usize) -> Self {
        Self {
            work,
            connections,
            shards: 1,
            autocorking: true,
            small_queue: true,
            busy_poll: Duration::ZERO,
            one_core: false,
            counts_packets: false,
        }
    }
}

impl Job {
    /// The settings of taut's stack that the job asks for, by name.
    pub fn sysctls(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let autocorking = ("tcp_autocorking", if self.autocorking { "1" } else { "0" });
        std::iter::once(autocorking).chain((!self.small_queue).then_some(("taut.tsq", "off")))
    }
}

/// The settings that all measurements of a run share.
#[derive(Debug)]
pub struct Settings {
    pub span: Duration,
    /// How often a disturbed window is measured at most.
    pub attempts: u32,
    /// Threads of a tokio runtime.
    pub workers: usize,
    /// Settings of taut's stacks, by name.
    pub sysctls: Vec<(String, String)>,
}

/// Data packets, counted as the receiving kernel gets them: a super-packet is one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Packets {
    /// In the window.
    pub data: u64,
    /// With less than one MSS of payload.
    pub below_mss: u64,
    /// Packets whose last segment is below one MSS.
    pub ends_below_mss: u64,
    /// Data packets of the whole connection.
    pub data_in_all: u64,
}

pub struct Outcome {
    /// The window's count is of bytes, exchanges, messages or connections, at their end.
    pub window: Window,
    /// Bytes that each connection delivered in the window, where the stack's side writes.
    pub flows: Vec<u64>,
    pub latencies_ns: Option<Histogram<u64>>,
    pub packets: Packets,
    pub counters: Counters,
}

/// Threads did not end, so what would be measured next is disturbed by them.
#[derive(Debug)]
pub struct Hang;

impl std::fmt::Display for Hang {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "threads did not end within {} s; the run stops here", PATIENCE.as_secs())
    }
}

impl std::error::Error for Hang {}

/// Measures; a window that others disturbed is measured again, and the least disturbed one counts.
pub fn measure(form: Form, job: &Job, settings: &Settings) -> Result<Outcome> {
    let once = || once(form, job, settings).with_context(|| form.name());
    measure::least_disturbed(settings.attempts, once, |outcome| outcome.window.disturbance)
}

struct Taps([Tap; 3]);

impl Taps {
    /// Adds what arrived since the last call; `counted` says whether it was in the window.
    fn take(&self, into: &mut Packets, counted: bool) -> Result<()> {
        let [data, below_mss, ends_below_mss] = &self.0;
        let data = data.take()?;
        into.data_in_all += data;
        let (below_mss, ends_below_mss) = (below_mss.take()?, ends_below_mss.take()?);
        if counted {
            into.data += data;
            into.below_mss += below_mss;
            into.ends_below_mss += ends_below_mss;
        }
        Ok(())
    }
}

fn once(form: Form, job: &Job, settings: &Settings) -> Result<Outcome> {
    let _confined = if job.one_core { Some(cpu::Confined::to(0)?) } else { None };
    let probe = Arc::new(Probe::new());
    let flows: Arc<[AtomicU64]> = (0..job.connections).map(|_| AtomicU64::new(0)).collect();
    let (near, peer) = if form.is_over_tun() {
        let (queues, peer) = net::tun_queues(job.shards)?;
        (Ok(queues), peer)
    } else {
        match Link::veth()? {
            Link { near: Near::Kernel(kernel), peer } => (Err(kernel), peer),
            Link { .. } => bail!("a veth pair ends in a kernel"),
        }
    };
    let taps = if job.counts_packets {
        let all = [Which::Data, Which::LessThan(MSS), Which::NotWhole(MSS)];
        let taps = all.into_iter().map(|which| Tap::open(&peer, which)).collect::<Result<Vec<_>>>()?;
        taps.try_into().ok().map(Taps)
    } else {
        None
    };
    let start_peers = || peers::start(&peer, job, &probe, &flows);
    let peer_connects = job.work == Work::Accept;
    let mut peer_threads = if peer_connects { Vec::new() } else { start_peers()? };
    let near_thread = {
        let (job, probe, workers) = (*job, Arc::clone(&probe), settings.workers);
        match near {
            Err(kernel) => {
                kernel.set_sysctl("tcp_autocorking", if job.autocorking { "1" } else { "0" })?;
                kernel.thread("stack", move || {
                    let done = match form {
                        Form::KernelTokio => tasks::kernel(&job, workers, &probe),
                        _ => threads::kernel(&job, &probe),
                    };
                    report(done, &probe);
                })?
            }
            Ok(queues) => {
                let sysctls = settings.sysctls.clone();
                std::thread::Builder::new().name("stack".into()).spawn(move || {
                    let done = match form {
                        Form::Loop => turns::run(queues, &sysctls, &job, &probe),
                        Form::Least => by_hand::run(queues, &job, &probe),
                        Form::Tokio => tasks::taut(queues, &sysctls, &job, workers, &probe),
                        _ => threads::taut(queues, &sysctls, &job, &probe),
                    };
                    report(done, &probe);
                })?
            }
        }
    };
    if peer_connects {
        // The stack has to listen before the peer connects.
        std::thread::sleep(Duration::from_millis(100));
        peer_threads = start_peers()?;
    }

    let mut packets = Packets::default();
    let mut readings: Vec<Vec<u64>> = Vec::new();
    let watched = probe.watch_with(WARM_UP, settings.span, || {
        if let Some(taps) = &taps {
            taps.take(&mut packets, !readings.is_empty())?;
        }
        readings.push(flows.iter().map(|flow| flow.load(Relaxed)).collect());
        Ok(())
    });
    probe.stop();
    if peer_connects {
        // The stack must still answer the calls that it has begun.
        join(peer_threads.drain(..))?;
    }
    probe.end();
    join(peer_threads.into_iter().chain([near_thread]))?;
    if let Some(taps) = &taps {
        taps.take(&mut packets, false)?;
    }
    if let Some(error) = probe.take_error() {
        return Err(error);
    }
    let flows = match &readings[..] {
        [before, after] => before.iter().zip(after).map(|(before, after)| after - before).collect(),
        _ => Vec::new(),
    };
    Ok(Outcome {
        window: watched?,
        flows,
        latencies_ns: probe.take_latencies(),
        packets,
        counters: probe.take_counters().unwrap_or_default(),
    })
}

/// Ends the measurement if a part of it failed. After the stop, an error only means that the other side has
/// gone away.
pub fn report(done: Result<()>, probe: &Probe) {
    if let Err(error) = done
        && !probe.stopped()
    {
        probe.fail(error);
    }
}

fn join(threads: impl Iterator<Item = JoinHandle<()>>) -> Result<()> {
    // Counted by sleeps, not by the clock: the whole process may be stopped for a while.
    let mut waited = Duration::ZERO;
    for thread in threads {
        while !thread.is_finished() {
            if waited > PATIENCE {
                return Err(Hang.into());
            }
            std::thread::sleep(JOIN_EVERY);
            waited += JOIN_EVERY;
        }
        if thread.join().is_err() {
            bail!("a thread panicked");
        }
    }
    Ok(())
}
