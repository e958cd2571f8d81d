//! A flow that came in, joined to a socket beyond: what a gateway does with each connection and each flow of
//! UDP.
//!
//! ```text
//!   client ◀── flow ──▶ relay ◀── upstream ──▶ server
//!
//!   dialled in time       the client's SYN is answered
//!   refused, unreachable  the client is refused in the same way (RFC 793, RFC 1812)
//!   silent                the client is not answered
//!   FIN                   FIN to the other side; the other half goes on
//!   reset, time-out       a reset to the other side
//!   small messages        sent on at once (TCP_NODELAY)
//!   a datagram refused    an ICMP error to the client, and the flow goes on until it is idle
//! ```
//!
//! ```no_run
//! # async fn example(flows: taut::IncomingFlows) -> std::io::Result<()> {
//! use taut::{FlowKind, relay};
//!
//! loop {
//!     let flow = flows.accept().await?;
//!     let to = flow.local_addr();
//!     if flow.kind() == FlowKind::Udp {
//!         tokio::spawn(relay::udp(flow, relay::connect_udp(to)));
//!     } else {
//!         tokio::spawn(relay::tcp(flow, tokio::net::TcpStream::connect(to), relay::Limits::default()));
//!     }
//! }
//! # }
//! ```

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use taut_core::Refusal;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};
use tokio::net::UdpSocket as KernelUdp;
use tokio::time::{sleep, timeout};

use crate::tokio::incoming::IncomingFlow;
use crate::tokio::stream::TcpStream;
use crate::tokio::udp::UdpSocket;

/// The largest datagram.
const DATAGRAM_BYTES: usize = 65_535;

/// How long a relayed connection waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For the upstream to be connected. The default is 125 s: a client's kernel gives up its SYN after 131 s
    /// (before 6.5: 127 s).
    pub connect: Duration,
    /// For a byte in either direction; both sides are reset after that, or up to as long again. The default
    /// is none: RFC 5382 §5 wants two hours and four minutes at least.
    pub idle: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connect: Duration::from_secs(125), idle: None }
    }
}

/// The far side of a relayed connection.
pub trait Upstream: AsyncRead + AsyncWrite + Unpin {
    /// Bytes leave at once (`TCP_NODELAY`): when to send them has been decided by whoever sent them to the
    /// relay. With Nagle's algorithm, a second small message waits for the ACK of the first, 40 ms.
    ///
    /// # Errors
    /// Those of the socket.
    fn send_at_once(&self) -> io::Result<()>;

    /// When it is dropped, the server gets a reset instead of a FIN. Linux: `SO_LINGER` of 0.
    ///
    /// # Errors
    /// Those of the socket.
    fn reset_at_end(&self) -> io::Result<()>;
}

impl Upstream for tokio::net::TcpStream {
    fn send_at_once(&self) -> io::Result<()> {
        self.set_nodelay(true)
    }

    fn reset_at_end(&self) -> io::Result<()> {
        self.set_zero_linger()
    }
}

impl Upstream for TcpStream {
    fn send_at_once(&self) -> io::Result<()> {
        self.set_nodelay(true)
    }

    fn reset_at_end(&self) -> io::Result<()> {
        self.set_linger(Some(Duration::ZERO))
    }
}

/// The refusal that tells a client of an upstream's error; none for one that is silent, or that nobody knows
/// how to tell.
#[must_use]
pub fn refusal(error: &io::Error) -> Option<Refusal> {
    match error.kind() {
        io::ErrorKind::HostUnreachable => Some(Refusal::HostUnreachable),
        io::ErrorKind::NetworkUnreachable => Some(Refusal::NetworkUnreachable),
        io::ErrorKind::PermissionDenied => Some(Refusal::Prohibited),
        io::ErrorKind::TimedOut => None,
        _ => Some(Refusal::Reset),
    }
}

fn refuse(flow: IncomingFlow, error: &io::Error) {
    match refusal(error) {
        Some(how) => flow.refuse(how),
        None => drop(flow),
    }
}

/// Serves a connection: `dial` connects upstream, then the client is answered, and bytes pass both ways until
/// both sides have ended. Returns how many the client and the server sent.
///
/// # Errors
/// Why the upstream could not be connected, the client did not complete its handshake, or one side reset the
/// connection: the other side has been told.
pub async fn tcp<U: Upstream>(
    flow: IncomingFlow,
    dial: impl Future<Output = io::Result<U>>,
    limits: Limits,
) -> io::Result<(u64, u64)> {
    let dialled = timeout(limits.connect, dial).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let mut upstream = match dialled.and_then(|upstream| upstream.send_at_once().map(|()| upstream)) {
        Ok(upstream) => upstream,
        Err(error) => {
            refuse(flow, &error);
            return Err(error);
        }
    };
    let done = match flow.accept().await {
        Ok(mut client) => {
            client.set_nodelay(true)?;
            let done = copy(&mut client, &mut upstream, limits.idle).await;
            if done.is_err() {
                client.set_linger(Some(Duration::ZERO))?;
            }
            done
        }
        Err(error) => Err(error),
    };
    if done.is_err() {
        upstream.reset_at_end()?;
    }
    done
}

/// Bytes both ways, and the end of each half as it comes; an error of one side, or too long a silence, ends
/// it.
async fn copy<U: Upstream>(
    client: &mut TcpStream,
    upstream: &mut U,
    idle: Option<Duration>,
) -> io::Result<(u64, u64)> {
    let Some(idle) = idle else { return copy_bidirectional(client, upstream).await };
    let active = AtomicBool::new(true);
    let mut client = Watched { inner: client, active: &active };
    let mut copy = pin!(copy_bidirectional(&mut client, upstream));
    loop {
        tokio::select! {
            done = &mut copy => return done,
            () = sleep(idle) => {
                if !active.swap(false, Ordering::Relaxed) {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        }
    }
}

/// A stream that notes when bytes pass.
struct Watched<'a> {
    inner: &'a mut TcpStream,
    active: &'a AtomicBool,
}

impl Watched<'_> {
    fn note<T>(&self, done: Poll<T>) -> Poll<T> {
        if done.is_ready() {
            self.active.store(true, Ordering::Relaxed);
        }
        done
    }
}

impl AsyncRead for Watched<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut *self.inner).poll_read(cx, into);
        self.note(done)
    }
}

impl AsyncWrite for Watched<'_> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut *self.inner).poll_write(cx, bytes);
        self.note(done)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut *self.inner).poll_shutdown(cx);
        self.note(done)
    }
}

/// A socket of the kernel's that is connected to `to`, from any address and port.
///
/// # Errors
/// Those of the kernel, such as [`io::ErrorKind::NetworkUnreachable`].
pub async fn connect_udp(to: SocketAddr) -> io::Result<KernelUdp> {
    let any = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let upstream = KernelUdp::bind(SocketAddr::new(any, 0)).await?;
    upstream.connect(to).await?;
    Ok(upstream)
}

/// Serves a flow of UDP: `dial` has a connected socket, then datagrams pass both ways until the flow was idle
/// for [`DatagramFlowOptions::idle_timeout`](crate::DatagramFlowOptions::idle_timeout). What ICMP says of the
/// upstream, the client hears.
///
/// # Errors
/// Why there is no upstream; the stack was shut down. That the flow is idle is none.
pub async fn udp(flow: IncomingFlow, dial: impl Future<Output = io::Result<KernelUdp>>) -> io::Result<()> {
    let upstream = match dial.await {
        Ok(upstream) => upstream,
        Err(error) => {
            refuse(flow, &error);
            return Err(error);
        }
    };
    let client = flow.accept_udp()?;
    // Each way on its own: one that waits for room does not stop the other.
    let ended = tokio::select! {
        ended = out(&client, &upstream) => ended,
        ended = back(&client, &upstream) => ended,
    };
    match ended {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(()),
        other => other,
    }
}

/// A datagram did not arrive beyond.
fn tell(client: &UdpSocket, error: &io::Error) -> io::Result<()> {
    client.refuse(refusal(error).unwrap_or(Refusal::HostUnreachable)).map(drop)
}

async fn out(client: &UdpSocket, upstream: &KernelUdp) -> io::Result<()> {
    let mut datagram = vec![0; DATAGRAM_BYTES];
    loop {
        let len = client.recv(&mut datagram).await?;
        if let Err(error) = upstream.send(&datagram[..len]).await {
            tell(client, &error)?;
        }
    }
}

async fn back(client: &UdpSocket, upstream: &KernelUdp) -> io::Result<()> {
    let mut datagram = vec![0; DATAGRAM_BYTES];
    loop {
        match upstream.recv(&mut datagram).await {
            Ok(len) => _ = client.send(&datagram[..len]).await?,
            Err(error) => tell(client, &error)?,
        }
    }
}
