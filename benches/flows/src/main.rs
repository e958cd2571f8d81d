//! Connections to any address: flows a second, and memory of an open flow, of taut, ipstack, netstack-smoltcp
//! and gVisor.
//!
//! ```text
//!   taut-flows STACK SECONDS OPEN      prints one line: stack, flows a second, CPU-µs per flow, bytes per open flow
//! ```
//!
//! Each stack is a process of its own with a TUN in a network namespace of its own, and accepts everything
//! and echoes. The clients are the kernel's, in the same namespace but in a process of their own, so that
//! neither its memory nor its time counts: 64 of them connect to ever new addresses, send a byte, get it
//! back, and close. Then `OPEN` connections stay open, and the stack's process is weighed. `benches/flows.sh`
//! runs the stacks in turn; gVisor's is a program in Go, whose path is in `TAUT_GVISOR`.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use futures::{SinkExt as _, StreamExt as _};
use taut::device::{Gather, Offload, Tun, TunOptions, TxPacket};
use taut::{FlowFilter, IncomingFlows, IncomingOptions, Stack};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;

/// Clients that connect at the same time.
const CLIENTS: u32 = 64;
const MTU: u16 = 1_500;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

async fn echo(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let mut buffer = [0; 2_048];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        if stream.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
    _ = stream.shutdown().await;
}

/// A TUN interface without offloads, for the stacks that take one packet for each read and write.
struct PlainTun {
    tun: Tun,
    readable: AsyncFd<OwnedFd>,
}

impl PlainTun {
    fn open() -> io::Result<Self> {
        let tun = Tun::open("taut0", &TunOptions { offload: false, ..TunOptions::default() })?;
        tun.interface()?.add_address("10.7.0.1/24".parse().map_err(io::Error::other)?)?;
        #[allow(deprecated, reason = "what replaces it is unsafe")]
        let readable = AsyncFd::new(tun.as_fd().try_clone_to_owned()?)?;
        Ok(Self { tun, readable })
    }

    fn poll_recv(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.readable.poll_read_ready(cx))?;
            if let Ok(result) = guard.try_io(|_| self.tun.recv(buffer)) {
                return Poll::Ready(result.map(|received| received.range.end));
            }
        }
    }

    fn put(&self, packet: &[u8]) -> io::Result<()> {
        let departure = taut_core::Instant::ZERO;
        let packet = TxPacket { header: packet, payload: Gather::EMPTY, offload: Offload::None, departure };
        match self.tun.put(&packet) {
            // A packet that the kernel does not want is lost, as on any link.
            Err(error) if error.kind() != io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

impl AsyncRead for PlainTun {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let count = ready!(self.poll_recv(cx, into.initialize_unfilled()))?;
        into.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PlainTun {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(self.put(data).map(|()| data.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

async fn serve_taut() -> Result<()> {
    let stack = Stack::builder().tun("taut0").address("10.7.0.2/24").host_address("10.7.0.1/24").build()?;
    let options =
        IncomingOptions { max_pending: 65_536, max_pending_per_peer: 65_536, ..IncomingOptions::default() };
    let flows = IncomingFlows::open_with(&stack, FlowFilter::any(), options)?;
    loop {
        let flow = flows.accept().await?;
        tokio::spawn(async move {
            if let Ok(stream) = flow.accept().await {
                echo(stream).await;
            }
        });
    }
}

async fn serve_ipstack() -> Result<()> {
    let mut config = ipstack::IpStackConfig::default();
    _ = config.mtu(MTU);
    let mut stack = ipstack::IpStack::new(config, PlainTun::open()?);
    loop {
        if let ipstack::IpStackStream::Tcp(stream) = stack.accept().await? {
            tokio::spawn(echo(stream));
        }
    }
}

async fn serve_smoltcp() -> Result<()> {
    let builder = netstack_smoltcp::StackBuilder::default().enable_tcp(true).mtu(MTU.into());
    let (stack, runner, _, listener) = builder.build()?;
    let (tun, mut listener) = (Arc::new(PlainTun::open()?), listener.ok_or("no TCP")?);
    if let Some(runner) = runner {
        tokio::spawn(runner);
    }
    let (mut to_stack, mut from_stack) = stack.split();
    let out = Arc::clone(&tun);
    tokio::spawn(async move {
        while let Some(Ok(packet)) = from_stack.next().await {
            if out.put(&packet).is_err() {
                return;
            }
        }
    });
    tokio::spawn(async move {
        let mut buffer = vec![0; 2_048];
        while let Ok(count) = std::future::poll_fn(|cx| tun.poll_recv(cx, &mut buffer)).await {
            if to_stack.send(buffer[..count].to_vec()).await.is_err() {
                return;
            }
        }
    });
    while let Some((stream, _, _)) = listener.next().await {
        tokio::spawn(echo(stream));
    }
    Ok(())
}

/// The process that serves; `gvisor` is another program.
fn server(stack: &str) -> Result<Command> {
    if stack != "gvisor" {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", stack]);
        return Ok(command);
    }
    let program = std::env::var_os("TAUT_GVISOR").ok_or("TAUT_GVISOR does not name the program")?;
    let mut command = Command::new(program);
    command.args(["taut0", "10.7.0.1/24"]);
    Ok(command)
}

/// Waits until the interface of the stack is up.
fn wait_for_interface(server: &mut std::process::Child) -> Result<()> {
    let begin = Instant::now();
    loop {
        let flags = std::fs::read_to_string("/sys/class/net/taut0/flags").unwrap_or_default();
        // IFF_UP is the lowest bit.
        if u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).is_ok_and(|flags| flags & 1 == 1) {
            return Ok(());
        }
        if let Some(status) = server.try_wait()? {
            return Err(format!("the stack's process ended: {status}").into());
        }
        if begin.elapsed() > Duration::from_secs(20) {
            return Err("the interface does not come up".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The nth destination: none of the kernel's.
fn destination(number: u64) -> SocketAddr {
    let host = 0x0a30_0000 + (number % 0xf_0000) as u32;
    (Ipv4Addr::from(host), 80).into()
}

async fn talk(number: u64) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(destination(number)).await?;
    stream.write_all(b"x").await?;
    stream.read_u8().await?;
    Ok(stream)
}

/// CPU time of a process in µs, and its resident memory in bytes.
fn weigh(pid: u32) -> Result<(u64, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat.rsplit(") ").next().ok_or("stat")?.split(' ').collect();
    let ticks = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("VmRSS")?;
    let kib: u64 = rss.trim().trim_end_matches(" kB").trim().parse()?;
    Ok((ticks * 10_000, kib << 10))
}

/// Measures the stack in the process `pid`.
async fn measure(name: &str, pid: u32, span: Duration, open: u64) -> Result<()> {
    // It may take a moment until the stack is there.
    let begin = Instant::now();
    while !matches!(tokio::time::timeout(Duration::from_millis(500), talk(0)).await, Ok(Ok(_))) {
        if begin.elapsed() > Duration::from_secs(20) {
            return Err(format!("{name} does not answer").into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (before, _) = weigh(pid)?;
    let (next, done, failed) = (AtomicU64::new(1), AtomicU64::new(0), AtomicU64::new(0));
    let begin = Instant::now();
    let clients = (0..CLIENTS).map(|_| async {
        while begin.elapsed() < span {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let talked = tokio::time::timeout(Duration::from_secs(10), talk(number)).await;
            let counter = if matches!(talked, Ok(Ok(_))) { &done } else { &failed };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
    futures::future::join_all(clients).await;
    let (took, done) = (begin.elapsed(), done.load(Ordering::Relaxed).max(1));
    let (after, _) = weigh(pid)?;
    let rate = done as f64 / took.as_secs_f64();

    // Idle connections, after those of before have ended.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (_, empty) = weigh(pid)?;
    let mut streams = Vec::new();
    let first = next.load(Ordering::Relaxed);
    for number in 0..open {
        match tokio::time::timeout(Duration::from_secs(10), talk(first + number)).await {
            Ok(Ok(stream)) => streams.push(stream),
            _ => _ = failed.fetch_add(1, Ordering::Relaxed),
        }
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (_, full) = weigh(pid)?;
    let each = full.saturating_sub(empty) / (streams.len() as u64).max(1);
    let cpu = (after - before) as f64 / done as f64;
    let failed = failed.load(Ordering::Relaxed);
    println!(
        "{name:<10} {rate:>8.0} flows/s {cpu:>6.0} CPU-µs/flow {each:>8} bytes/open flow {failed:>4} failed"
    );
    Ok(())
}

fn run<F: Future<Output = Result<()>>>(main: F) -> Result<()> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(main)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", "taut"] => run(serve_taut()),
        ["serve", "ipstack"] => run(serve_ipstack()),
        ["serve", "smoltcp"] => run(serve_smoltcp()),
        [stack, seconds, open] => {
            let (span, open) = (Duration::from_secs_f64(seconds.parse()?), open.parse()?);
            // This process, the server and everything in them are in one namespace (`flows.sh`).
            let mut server = self::server(stack)?.spawn()?;
            let result = wait_for_interface(&mut server).and_then(|()| {
                let route = ["route", "add", "10.48.0.0/12", "dev", "taut0"];
                let routed = Command::new("ip").args(route).status()?;
                if !routed.success() {
                    return Err(format!("ip route: {routed}").into());
                }
                run(measure(stack, server.id(), span, open))
            });
            _ = server.kill();
            _ = server.wait();
            result
        }
        _ => Err("usage: taut-flows taut|ipstack|smoltcp|gvisor SECONDS OPEN".into()),
    }
}
