//! Sockets for tokio, the kernel's and taut's by the same code: a task for each connection.
//!
//! The runtime has one thread unless more are asked for. taut's stack is a task of the same runtime.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use taut::{ConnOptions, ListenOptions, Stack};
use taut_bench::net::{LOCAL, PEER, PORT};
use taut_bench::peer::{self, CHUNK, CONGESTION};
use taut_bench::probe::{Counters, Probe};
use taut_device::Tun;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener as KernelListener, TcpSocket, TcpStream as KernelStream};
use tokio::runtime::{Builder, Runtime};

use crate::job::{Job, Work, report};
use crate::threads::{self, STAMP_EVERY, TICK, stamped};

/// The operations of asynchronous sockets of both kinds.
trait Sockets: Clone + Send + Sync + 'static {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    type Listener: Send + Sync + 'static;
    fn connect(&self, options: &ConnOptions) -> impl Future<Output = io::Result<Self::Stream>> + Send;
    fn listen(&self) -> Result<Self::Listener>;
    fn accept(listener: &Self::Listener) -> impl Future<Output = io::Result<Self::Stream>> + Send;
    /// Makes the close a reset, so that no side keeps a TIME-WAIT.
    fn reset_on_close(stream: &Self::Stream) -> io::Result<()>;
    fn counters(&self) -> Result<Counters>;
}

/// The kernel's sockets, in the namespace of the threads that use them.
#[derive(Clone)]
struct KernelSockets;

impl Sockets for KernelSockets {
    type Stream = KernelStream;
    type Listener = KernelListener;

    async fn connect(&self, options: &ConnOptions) -> io::Result<KernelStream> {
        let to = (PEER, PORT).into();
        let socket = taut_testbed::socket(to, options, Some(CONGESTION))?;
        socket.set_nonblocking(true)?;
        TcpSocket::from_std_stream(socket.into()).connect(to).await
    }

    fn listen(&self) -> Result<KernelListener> {
        let listener = peer::listen()?;
        listener.set_nonblocking(true)?;
        Ok(KernelListener::from_std(listener)?)
    }

    async fn accept(listener: &KernelListener) -> io::Result<KernelStream> {
        listener.accept().await.map(|(stream, _)| stream)
    }

    fn reset_on_close(stream: &KernelStream) -> io::Result<()> {
        rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).map_err(Into::into)
    }

    fn counters(&self) -> Result<Counters> {
        threads::kernel_counters()
    }
}

impl Sockets for Stack {
    type Stream = taut::TcpStream;
    type Listener = taut::TcpListener;

    async fn connect(&self, options: &ConnOptions) -> io::Result<taut::TcpStream> {
        taut::TcpStream::connect_with(self, (PEER, PORT).into(), options).await
    }

    fn listen(&self) -> Result<taut::TcpListener> {
        Ok(taut::TcpListener::bind_with(self, (LOCAL, PORT).into(), ListenOptions::default())?)
    }

    async fn accept(listener: &taut::TcpListener) -> io::Result<taut::TcpStream> {
        listener.accept().await.map(|(stream, _)| stream)
    }

    fn reset_on_close(stream: &taut::TcpStream) -> io::Result<()> {
        stream.set_linger(Some(Duration::ZERO))
    }

    fn counters(&self) -> Result<Counters> {
        Ok(threads::taut_counters(&Self::counters(self), &self.report()))
    }
}

fn runtime(workers: usize) -> Result<Runtime> {
    let mut builder = if workers > 1 { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    // Without effect on a runtime of one thread.
    Ok(builder.worker_threads(workers.max(1)).enable_all().build()?)
}

/// In the namespace of the calling thread, which the runtime's threads inherit.
pub fn kernel(job: &Job, workers: usize, probe: &Arc<Probe>) -> Result<()> {
    runtime(workers)?.block_on(run(KernelSockets, *job, probe))
}

pub fn taut(
    queues: Vec<Tun>,
    sysctls: &[(String, String)],
    job: &Job,
    workers: usize,
    probe: &Arc<Probe>,
) -> Result<()> {
    // One thread would turn several shards one after the other.
    runtime(workers.max(job.shards.into()))?.block_on(async {
        let stack = threads::builder(queues, sysctls, job).build_tokio()?;
        run(stack, *job, probe).await
    })
}

/// Spawns a task; its error ends the measurement.
fn spawn(probe: &Arc<Probe>, run: impl Future<Output = Result<()>> + Send + 'static) {
    let probe = Arc::clone(probe);
    tokio::spawn(async move { report(run.await, &probe) });
}

/// Returns when the measurement is over; tasks end with their runtime.
async fn run<S: Sockets>(sockets: S, job: Job, probe: &Arc<Probe>) -> Result<()> {
    let shared = || Arc::clone(probe);
    match job.work {
        Work::Pour { .. } | Work::Drain | Work::Ping | Work::Stamp | Work::Beside => {
            // All are open before the first one is used.
            let mut streams = Vec::new();
            for at in 0..job.connections {
                let work = job.work.of(at);
                streams.push((sockets.connect(&threads::options(work)).await.context("connect")?, work));
            }
            for (stream, work) in streams {
                spawn(probe, use_stream(stream, work, shared()));
            }
        }
        Work::Hear => bail!("a runtime's pauses are exact to a millisecond"),
        Work::Open => {
            for _ in 0..job.connections {
                spawn(probe, open(sockets.clone(), shared()));
            }
        }
        Work::Accept => {
            let listener = Arc::new(sockets.listen().context("listen")?);
            for _ in 0..job.connections {
                spawn(probe, accept::<S>(Arc::clone(&listener), shared()));
            }
        }
    }
    while !probe.is_over() {
        tokio::time::sleep(TICK).await;
    }
    probe.keep_counters(sockets.counters()?);
    Ok(())
}

async fn use_stream(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    work: Work,
    probe: Arc<Probe>,
) -> Result<()> {
    match work {
        Work::Pour { chunk, .. } => {
            let data = vec![0x5a; chunk];
            while !probe.stopped() {
                stream.write_all(&data).await.context("write")?;
            }
            Ok(())
        }
        Work::Drain => {
            let mut data = vec![0; CHUNK];
            while !probe.stopped() {
                match stream.read(&mut data).await.context("read")? {
                    0 => break,
                    count => probe.add(count as u64),
                }
            }
            Ok(())
        }
        Work::Ping => ping(stream, &probe).await,
        Work::Stamp => {
            while !probe.stopped() {
                stream.write_all(&stamped()).await.context("write")?;
                tokio::time::sleep(STAMP_EVERY).await;
            }
            Ok(())
        }
        Work::Open | Work::Accept | Work::Hear | Work::Beside => unreachable!("not the work of one stream"),
    }
}

async fn ping(stream: impl AsyncRead + AsyncWrite + Unpin, probe: &Probe) -> Result<()> {
    let mut stream = pin!(stream);
    let mut byte = [0];
    while !probe.stopped() {
        let begun = Instant::now();
        stream.write_all(&byte).await.context("write")?;
        stream.read_exact(&mut byte).await.context("read")?;
        if probe.measuring() {
            probe.record_latency(begun.elapsed());
        }
        probe.add(1);
    }
    Ok(())
}

async fn open<S: Sockets>(sockets: S, probe: Arc<Probe>) -> Result<()> {
    let mut byte = [0];
    while !probe.stopped() {
        let mut stream = sockets.connect(&ConnOptions::default()).await.context("connect")?;
        S::reset_on_close(&stream)?;
        stream.write_all(&byte).await.context("write")?;
        stream.read_exact(&mut byte).await.context("read")?;
        probe.add(1);
    }
    Ok(())
}

async fn accept<S: Sockets>(listener: Arc<S::Listener>, probe: Arc<Probe>) -> Result<()> {
    let mut byte = [0];
    while !probe.is_over() {
        let mut stream = S::accept(&listener).await.context("accept")?;
        // The client may have been stopped in the middle of a request.
        if let Ok(count) = stream.read(&mut byte).await {
            let _ = stream.write_all(&byte[..count]).await;
        }
    }
    Ok(())
}
