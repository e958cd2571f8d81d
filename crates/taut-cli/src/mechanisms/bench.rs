//! Where a run takes place: taut behind a queue of its own, and kernel TCP at the other end of a TUN.
//!
//! ```text
//!   this process                                 │ namespace of the run
//!   taut 10.9.0.2 ─ queue, wire ─ (recorder) ─ TUN ─ kernel 10.9.0.1: a sink and an echo
//! ```
//!
//! The wire delays what taut sends; the kernel's ACKs come back at once. So its delay is the round-trip time. All of it is
//! gone when the bench is dropped.

use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use hdrhistogram::Histogram;
use taut::blocking::TcpStream;
use taut::link::LinkReport;
use taut_core::{ConnOptions, StackConfig};
use taut_device::{Cidr, Namespace, Tun, TunOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Notify;

use super::recorder::Recorder;
use crate::clock::Stopwatch;

/// taut's address.
const NEAR: &str = "10.9.0.2/24";
/// The kernel's address.
const FAR: &str = "10.9.0.1/24";
/// Takes what comes, and closes when the sender does.
const SINK: u16 = 7001;
/// Sends back what comes.
const ECHO: u16 = 7002;
/// No step takes longer on a machine that is not stuck.
const PATIENCE: Duration = Duration::from_secs(30);
/// Size of one write of a bulk sender, and of one read of the sink.
const CHUNK_BYTES: usize = 64 * 1024;
/// Bytes that the kernel's receive buffers may grow to: enough for any window here.
const RMEM_MAX: &str = "4096 131072 67108864";

/// Both ends, and what lies between.
pub(super) struct Bench {
    pub(super) stack: taut::Stack,
    peer: Peer,
    pub(super) recorder: Option<Recorder>,
}

impl Bench {
    /// `link` in the words of `tc`; with `record`, notes when each data packet leaves.
    pub(super) fn new(
        link: &str,
        configure: impl FnOnce(&mut StackConfig),
        record: bool,
    ) -> anyhow::Result<Self> {
        let namespace = Namespace::new().context("no private network namespace")?;
        let far: Cidr = FAR.parse()?;
        let tun = namespace.enter(|| -> io::Result<Tun> {
            std::fs::write("/proc/sys/net/ipv4/tcp_rmem", RMEM_MAX)?;
            let tun = Tun::open("taut0", &TunOptions::default())?;
            tun.interface()?.add_address(far)?;
            Ok(tun)
        })??;
        let peer = Peer::start(namespace)?;
        let recorder = record.then(Recorder::default);
        let device = match &recorder {
            Some(recorder) => recorder.before(tun.into()),
            None => tun.into(),
        };
        let mut builder = taut::Stack::builder().device(device).address(NEAR).sysctl(|config| {
            // Linux's maximum, which was behind the published figures.
            config.send.wmem.max = 4 << 20;
            configure(config);
        });
        if !link.is_empty() {
            builder = builder.link_from(link);
        }
        Ok(Self { stack: builder.build()?, peer, recorder })
    }

    pub(super) fn sink(&self) -> SocketAddr {
        ([10, 9, 0, 1], SINK).into()
    }

    pub(super) fn echo(&self) -> SocketAddr {
        ([10, 9, 0, 1], ECHO).into()
    }

    /// Bytes that the sink has taken.
    pub(super) fn taken(&self) -> u64 {
        self.peer.taken.load(Ordering::Relaxed)
    }

    pub(super) fn connect(&self, to: SocketAddr, options: &ConnOptions) -> io::Result<TcpStream> {
        let stream = TcpStream::connect_with(&self.stack, to, options, Some(PATIENCE))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// The queue in front of the device.
    pub(super) fn link(&self) -> anyhow::Result<LinkReport> {
        self.stack.link_report().context("the bench has no queue in front of its device")
    }

    /// Runs `work` while one connection sends as much as it can.
    pub(super) fn with_bulk<R>(
        &self,
        options: &ConnOptions,
        work: impl FnOnce() -> anyhow::Result<R>,
    ) -> anyhow::Result<R> {
        let mut stream = self.connect(self.sink(), options)?;
        // Nobody waits for what is still queued in the end.
        stream.set_linger(Some(Duration::ZERO))?;
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let chunk = vec![0x5a; CHUNK_BYTES];
                while !done.load(Ordering::Relaxed) {
                    stream.write_all(&chunk)?;
                }
                io::Result::Ok(())
            });
            let result = work();
            done.store(true, Ordering::Relaxed);
            let sent = sender.join().unwrap_or_else(|_| Err(io::Error::other("the sender panicked")));
            sent.context("the bulk sender failed")?;
            result
        })
    }

    /// One byte there and back, again and again for `time`, resting in between. Nanoseconds.
    pub(super) fn ping(&self, time: Duration, rest: Duration) -> anyhow::Result<Histogram<u64>> {
        let options = ConnOptions { nodelay: true, ..ConnOptions::default() };
        let mut stream = self.connect(self.echo(), &options)?;
        let mut histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3)?;
        let all = Stopwatch::start();
        let mut byte = [1];
        while all.elapsed() < time {
            let one = Stopwatch::start();
            stream.write_all(&byte)?;
            stream.read_exact(&mut byte)?;
            histogram.saturating_record(u64::try_from(one.elapsed().as_nanos())?);
            if !rest.is_zero() {
                std::thread::sleep(rest);
            }
        }
        Ok(histogram)
    }

    /// Waits until the sink has taken so much.
    pub(super) fn until_taken(&self, bytes: u64) -> anyhow::Result<()> {
        let watch = Stopwatch::start();
        while self.taken() < bytes {
            anyhow::ensure!(watch.elapsed() < PATIENCE, "only {} of {bytes} bytes arrived", self.taken());
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }
}

/// Kernel TCP in a namespace: a thread of its own with a sink and an echo.
struct Peer {
    taken: Arc<AtomicU64>,
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Peer {
    fn start(namespace: Namespace) -> anyhow::Result<Self> {
        let (taken, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
        let (ready, listening) = std::sync::mpsc::channel();
        let (their_taken, their_stop) = (Arc::clone(&taken), Arc::clone(&stop));
        let thread = std::thread::Builder::new().name("peer".to_owned()).spawn(move || {
            let failed = ready.clone();
            let run = || -> io::Result<()> {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(async {
                    let sink = listen(SINK)?;
                    let echo = listen(ECHO)?;
                    _ = ready.send(Ok(()));
                    tokio::select! {
                        result = serve(sink, |stream| take(stream, Arc::clone(&their_taken))) => result,
                        result = serve(echo, give_back) => result,
                        () = their_stop.notified() => Ok(()),
                    }
                })
            };
            if let Err(error) = namespace.enter(run).and_then(|inner| inner) {
                _ = failed.send(Err(error));
            }
        })?;
        listening.recv().context("the peer's thread ended")?.context("the kernel peer cannot listen")?;
        Ok(Self { taken, stop, thread: Some(thread) })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

fn listen(port: u16) -> io::Result<tokio::net::TcpListener> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from(([10, 9, 0, 1], port)))?;
    socket.listen(4096)
}

/// Answers each connection with a task; the tasks end with the runtime.
async fn serve<F: Future<Output = ()> + 'static + Send>(
    listener: tokio::net::TcpListener,
    answer: impl Fn(tokio::net::TcpStream) -> F,
) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(answer(stream));
    }
}

/// A client that fails is its own client's error, here and below.
async fn take(mut stream: tokio::net::TcpStream, taken: Arc<AtomicU64>) {
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(count @ 1..) = stream.read(&mut chunk).await {
        taken.fetch_add(count as u64, Ordering::Relaxed);
    }
}

async fn give_back(mut stream: tokio::net::TcpStream) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let mut chunk = [0; 1024];
    while let Ok(count @ 1..) = stream.read(&mut chunk).await {
        if stream.write_all(&chunk[..count]).await.is_err() {
            return;
        }
    }
}

/// Writes as much as is taken, and counts how often it had to wait. Ends with the runtime, or the connection.
pub(super) async fn pour(stream: Arc<taut::TcpStream>, wakeups: Arc<AtomicU64>) {
    let chunk = vec![0x5a; CHUNK_BYTES];
    loop {
        match stream.try_write(&chunk) {
            // Others of this thread want to write too.
            Ok(_) => tokio::task::yield_now().await,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if stream.writable().await.is_err() {
                    return;
                }
                wakeups.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => return,
        }
    }
}

/// Milliseconds of nanoseconds.
pub(super) fn ms(ns: f64) -> f64 {
    ns / 1e6
}

/// Microseconds of nanoseconds.
pub(super) fn us(ns: f64) -> f64 {
    ns / 1e3
}
