//! Blocking sockets, the kernel's and taut's by the same code: a thread for each connection.

use std::io::{self, Read, Write};
use std::net::{TcpListener as KernelListener, TcpStream as KernelStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use taut::{ConnOptions, ListenOptions, Stack, blocking};
use taut_bench::net::{LOCAL, PEER, PORT};
use taut_bench::peer::{self, CONGESTION};
use taut_bench::probe::{Counters, Probe};
use taut_core::Report;
use taut_device::sys::monotonic_ns;
use taut_device::{Namespace, Tun};
use taut_testbed::Kernel;

use crate::job::{Job, Work, report};
use crate::peers::{self, STAMPED_BYTES};

/// How often the thread that started the others checks whether to end.
pub const TICK: Duration = Duration::from_millis(20);
/// Between two messages.
pub const STAMP_EVERY: Duration = Duration::from_millis(1);

/// What a thread does.
pub type Body = Box<dyn FnOnce(&Arc<Probe>) -> Result<()> + Send>;

/// What blocking sockets of both kinds can do.
trait Sockets: Clone + Send + 'static {
    type Stream: Read + Write + Send + 'static;
    type Listener: Send + Sync + 'static;
    fn connect(&self, options: &ConnOptions) -> io::Result<Self::Stream>;
    fn listen(&self) -> Result<Self::Listener>;
    fn accept(listener: &Self::Listener) -> io::Result<Self::Stream>;
    /// Makes the close a reset, so that no side keeps a TIME-WAIT.
    fn reset_on_close(stream: &Self::Stream) -> io::Result<()>;
    /// Makes sure that whoever waits on the stream wakes up at the end.
    fn wake_at_end(stream: &Self::Stream, probe: &Probe) -> Result<()>;
    fn counters(&self) -> Result<Counters>;
}

/// The kernel's sockets, in the namespace of the thread that uses them.
#[derive(Clone)]
struct KernelSockets;

impl Sockets for KernelSockets {
    type Stream = KernelStream;
    type Listener = KernelListener;

    fn connect(&self, options: &ConnOptions) -> io::Result<KernelStream> {
        taut_testbed::connect((PEER, PORT).into(), options, Some(CONGESTION))
    }

    fn listen(&self) -> Result<KernelListener> {
        peer::listen()
    }

    fn accept(listener: &KernelListener) -> io::Result<KernelStream> {
        listener.accept().map(|(stream, _)| stream)
    }

    fn reset_on_close(stream: &KernelStream) -> io::Result<()> {
        rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).map_err(Into::into)
    }

    fn wake_at_end(stream: &KernelStream, probe: &Probe) -> Result<()> {
        peers::wake_at_end(stream, probe)
    }

    fn counters(&self) -> Result<Counters> {
        kernel_counters()
    }
}

/// Those of the kernel, in the namespace of this thread.
pub fn kernel_counters() -> Result<Counters> {
    let kernel = Kernel { namespace: Namespace::current()? };
    let autocorking = kernel.counters()?.get("TcpExtTCPAutoCorking").copied().unwrap_or_default();
    Ok(Counters { autocorking, ..Counters::default() })
}

pub fn taut_counters(counters: &taut_core::Counters, report: &Report) -> Counters {
    let device = report.queues.iter().find(|queue| queue.name == "device");
    Counters {
        autocorking: counters.tcp_auto_corking,
        tsq_throttled: counters.tsq_throttled,
        below_p99: device.and_then(|queue| queue.sojourn.quantile_below(0.99)).map(Into::into),
    }
}

impl Sockets for Stack {
    type Stream = blocking::TcpStream;
    type Listener = blocking::TcpListener;

    fn connect(&self, options: &ConnOptions) -> io::Result<blocking::TcpStream> {
        blocking::TcpStream::connect_with(self, (PEER, PORT).into(), options, None)
    }

    fn listen(&self) -> Result<blocking::TcpListener> {
        Ok(blocking::TcpListener::bind_with(self, (LOCAL, PORT).into(), ListenOptions::default())?)
    }

    fn accept(listener: &blocking::TcpListener) -> io::Result<blocking::TcpStream> {
        listener.accept().map(|(stream, _)| stream)
    }

    fn reset_on_close(stream: &blocking::TcpStream) -> io::Result<()> {
        stream.set_linger(Some(Duration::ZERO))
    }

    /// They wake up when the last handle to the stack is dropped.
    fn wake_at_end(_: &blocking::TcpStream, _: &Probe) -> Result<()> {
        Ok(())
    }

    fn counters(&self) -> Result<Counters> {
        Ok(taut_counters(&Self::counters(self), &self.report()))
    }
}

pub fn kernel(job: &Job, probe: &Arc<Probe>) -> Result<()> {
    run(KernelSockets, job, probe)
}

pub fn taut(queues: Vec<Tun>, sysctls: &[(String, String)], job: &Job, probe: &Arc<Probe>) -> Result<()> {
    run(builder(queues, sysctls, job).build()?, job, probe)
}

/// taut with its defaults, apart from what was asked for.
pub fn builder(queues: Vec<Tun>, sysctls: &[(String, String)], job: &Job) -> taut::StackBuilder {
    let builder = Stack::builder().queues(queues).address(&format!("{LOCAL}/24")).busy_poll(job.busy_poll);
    let builder = job.sysctls().fold(builder, |builder, (name, value)| builder.set_sysctl(name, value));
    sysctls.iter().fold(builder, |builder, (name, value)| builder.set_sysctl(name, value))
}

/// The options of a connection that the stack's side opens for this work.
pub fn options(work: Work) -> ConnOptions {
    let nodelay = match work {
        Work::Pour { nodelay, .. } => nodelay,
        Work::Ping | Work::Stamp => true,
        Work::Drain | Work::Hear | Work::Open | Work::Accept | Work::Beside => false,
    };
    ConnOptions { nodelay, ..ConnOptions::default() }
}

fn run<S: Sockets>(sockets: S, job: &Job, probe: &Arc<Probe>) -> Result<()> {
    // This thread only waits.
    probe.not_the_stack();
    let mut threads = Vec::new();
    let mut spawn = |run: Body| -> Result<()> {
        let probe = Arc::clone(probe);
        let thread = std::thread::Builder::new().name("application".into());
        threads.push(thread.spawn(move || report(run(&probe), &probe))?);
        Ok(())
    };
    let job = *job;
    match job.work {
        Work::Pour { .. } | Work::Drain | Work::Ping | Work::Stamp | Work::Hear | Work::Beside => {
            // All are open before the first one is used.
            let mut streams = Vec::new();
            for at in 0..job.connections {
                let work = job.work.of(at);
                let stream = sockets.connect(&options(work)).context("connect")?;
                S::wake_at_end(&stream, probe)?;
                streams.push((stream, work));
            }
            for (stream, work) in streams {
                spawn(Box::new(move |probe| use_stream(stream, work, probe)))?;
            }
        }
        Work::Open => {
            for _ in 0..job.connections {
                let sockets = sockets.clone();
                spawn(Box::new(move |probe| open(&sockets, probe)))?;
            }
        }
        Work::Accept => {
            let listener = Arc::new(sockets.listen().context("listen")?);
            for _ in 0..job.connections {
                let listener = Arc::clone(&listener);
                spawn(Box::new(move |probe| accept::<S>(&listener, probe)))?;
            }
        }
    }
    while !probe.is_over() {
        std::thread::sleep(TICK);
    }
    probe.keep_counters(sockets.counters()?);
    drop(sockets);
    for thread in threads {
        // A panic of theirs is this thread's.
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
    Ok(())
}

fn use_stream(stream: impl Read + Write, work: Work, probe: &Probe) -> Result<()> {
    match work {
        Work::Pour { chunk, .. } => peer::pour_chunks(stream, probe, chunk),
        Work::Drain => peer::drain(stream, probe),
        Work::Ping => peer::ping(stream, probe),
        Work::Stamp => stamp(stream, probe),
        Work::Hear => peers::read_stamps(stream, probe, true),
        Work::Open | Work::Accept | Work::Beside => unreachable!("not the work of one stream"),
    }
}

/// The message to write now.
pub fn stamped() -> [u8; STAMPED_BYTES] {
    let mut message = [0; STAMPED_BYTES];
    message[..8].copy_from_slice(&monotonic_ns().to_le_bytes());
    message
}

pub fn stamp(mut stream: impl Write, probe: &Probe) -> Result<()> {
    while !probe.stopped() {
        match stream.write_all(&stamped()) {
            Err(_) if probe.stopped() => break,
            written => written.context("write")?,
        }
        std::thread::sleep(STAMP_EVERY);
    }
    Ok(())
}

fn open<S: Sockets>(sockets: &S, probe: &Probe) -> Result<()> {
    let mut byte = [0];
    while !probe.stopped() {
        let mut stream = sockets.connect(&ConnOptions::default()).context("connect")?;
        S::reset_on_close(&stream)?;
        stream.write_all(&byte).context("write")?;
        stream.read_exact(&mut byte).context("read")?;
        probe.add(1);
    }
    Ok(())
}

fn accept<S: Sockets>(listener: &S::Listener, probe: &Probe) -> Result<()> {
    let mut byte = [0];
    while !probe.is_over() {
        let mut stream = match S::accept(listener) {
            Ok(stream) => stream,
            Err(error) if peer::interrupted(&error) => continue,
            Err(error) => return Err(error).context("accept"),
        };
        // The client may have been stopped in the middle of a request.
        let _ = stream.read(&mut byte).and_then(|count| stream.write_all(&byte[..count]));
    }
    Ok(())
}
