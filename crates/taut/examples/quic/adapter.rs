//! quinn over taut's UDP: [`Udp`] is quinn's socket, [`OverTaut`] its runtime.
//!
//! - **Segments by one call**: quinn hands over up to ten datagrams at once. On a device that cuts them (USO) they are one packet
//!   down to the device; elsewhere the stack would cut them, and quinn may as well make one datagram at a time.
//! - **ECN**: each datagram leaves with the mark that QUIC wants, and each mark that arrives is told to QUIC.
//! - **What arrived in one piece** is handed over in one piece (`UDP_GRO`).
//! - **DF is set**, and datagrams larger than the path's MTU are sent all the same: QUIC searches for the MTU by itself.
//!
//! Time and tasks are tokio's.

use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use quinn::udp::{EcnCodepoint, RecvMeta, Transmit};
use quinn::{AsyncTimer, AsyncUdpSocket, Endpoint, Runtime, ServerConfig, TokioRuntime, UdpPoller};
use taut::{DatagramOptions, MtuDiscovery, Received, SendMeta, Stack, UdpSocket};

/// `SO_RCVBUF` and `SO_SNDBUF`: a burst of ten datagrams from each of many connections, and what comes while
/// a task waits for a processor.
const BUFFER_BYTES: u32 = 2 << 20;

/// The most datagrams in one packet. Linux: `UDP_MAX_SEGMENTS` is 128 now, and was 64.
const SEGMENTS_MAX: usize = 64;

/// An endpoint of QUIC at an address of the stack; a server, too, if it has a configuration for that.
pub fn endpoint(stack: &Stack, at: SocketAddr, server: Option<ServerConfig>) -> io::Result<Endpoint> {
    let socket = Arc::new(Udp::bind(stack, at)?);
    Endpoint::new_with_abstract_socket(quinn::EndpointConfig::default(), server, socket, Arc::new(OverTaut))
}

/// The runtime of endpoints over taut.
#[derive(Debug)]
pub struct OverTaut;

impl Runtime for OverTaut {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        TokioRuntime.new_timer(at)
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        TokioRuntime.spawn(future);
    }

    fn now(&self) -> Instant {
        TokioRuntime.now()
    }

    /// A socket of the kernel's is none of a stack's: `Endpoint::rebind_abstract` takes an [`Udp`].
    fn wrap_udp_socket(&self, _: std::net::UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A UDP socket of a stack, for quinn.
#[derive(Debug)]
pub struct Udp {
    socket: UdpSocket,
    /// The most datagrams of one send.
    segments: usize,
    /// The last send found no room.
    is_full: AtomicBool,
}

impl Udp {
    /// Binds to an address of the stack; port 0 is any.
    pub fn bind(stack: &Stack, at: SocketAddr) -> io::Result<Self> {
        let options = DatagramOptions {
            gro: true,
            mtu_discovery: MtuDiscovery::Probe,
            rcvbuf: Some(BUFFER_BYTES),
            sndbuf: Some(BUFFER_BYTES),
            ..DatagramOptions::default()
        };
        let socket = UdpSocket::bind_with(stack, at, &options)?;
        let segments = if stack.caps().udp_segments { SEGMENTS_MAX } else { 1 };
        Ok(Self { socket, segments, is_full: AtomicBool::new(false) })
    }
}

fn meta_of(received: &Received) -> RecvMeta {
    RecvMeta {
        addr: received.from,
        len: received.len,
        stride: if received.segment > 0 { received.segment.into() } else { received.len },
        ecn: EcnCodepoint::from_bits(received.tos),
        dst_ip: Some(received.to),
    }
}

impl AsyncUdpSocket for Udp {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Room { udp: self, waiting: None })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let segment = transmit.segment_size.filter(|&size| size < transmit.contents.len());
        let meta = SendMeta {
            tos: transmit.ecn.map(|mark| mark as u8),
            src: transmit.src_ip,
            segment: segment.and_then(|size| u16::try_from(size).ok()),
            ..SendMeta::default()
        };
        let sent = self.socket.try_send_with(transmit.contents, Some(transmit.destination), &meta);
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.is_full.store(true, Ordering::Release);
                Err(error)
            }
            // The stack was shut down, or its device is gone.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotConnected | io::ErrorKind::NetworkDown) =>
            {
                Err(error)
            }
            // A probe larger than the link, or no way to the peer: lost, as anywhere in the network. QUIC
            // finds out.
            _ => Ok(()),
        }
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut places = buffers.iter_mut().zip(metas);
        let Some((first, meta)) = places.next() else { return Poll::Ready(Ok(0)) };
        *meta = meta_of(&ready!(self.socket.poll_recv_with(cx, first))?);
        let mut count = 1;
        for (buffer, meta) in places {
            // An error is there for the next call, too, if it is the end; others are of single datagrams.
            let Ok(received) = self.socket.try_recv_with(buffer) else { break };
            *meta = meta_of(&received);
            count += 1;
        }
        Poll::Ready(Ok(count))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.segments
    }

    fn max_receive_segments(&self) -> usize {
        SEGMENTS_MAX
    }

    fn may_fragment(&self) -> bool {
        false
    }
}

/// Waits for room in a socket. Each connection has one.
struct Room {
    udp: Arc<Udp>,
    waiting: Option<Pin<Box<dyn Future<Output = io::Result<()>> + Send + Sync>>>,
}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Room").field("udp", &self.udp).finish_non_exhaustive()
    }
}

impl UdpPoller for Room {
    fn poll_writable(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // It is asked before each send.
        if !self.udp.is_full.load(Ordering::Acquire) {
            self.waiting = None;
            return Poll::Ready(Ok(()));
        }
        let udp = Arc::clone(&self.udp);
        let waiting =
            self.waiting.get_or_insert_with(|| Box::pin(async move { udp.socket.writable().await }));
        let done = ready!(waiting.as_mut().poll(cx));
        self.waiting = None;
        self.udp.is_full.store(false, Ordering::Release);
        Poll::Ready(done)
    }
}
