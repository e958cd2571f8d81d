//! The blocking sockets without connections: [`UdpSocket`], [`PingSocket`] and [`EchoSocket`].

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use taut_core::{DatagramKind, DatagramOptions, Received, SendMeta};
use taut_driver::{Access, Interest, WaitKey};

use crate::common::datagram::{
    EchoRequest, PingReply, Socket, datagram_methods, echo_request, flow_socket_methods, multicast_methods,
    reply_of,
};
use crate::dns::{Target, first_of};
use crate::stack::Stack;
use crate::wait::{Attempt, is_ready};

/// How calls wait; clones share it.
#[derive(Debug, Default)]
struct Modes {
    nonblocking: AtomicBool,
    /// 0: forever.
    read_timeout_ns: AtomicU64,
    write_timeout_ns: AtomicU64,
}

fn store(place: &AtomicU64, timeout: Option<Duration>) -> io::Result<()> {
    let ns = timeout.map_or(0, |timeout| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
    if timeout.is_some() && ns == 0 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a timeout of zero: use None to wait forever",
        ));
    }
    place.store(ns, Ordering::Relaxed);
    Ok(())
}

fn load(place: &AtomicU64) -> Option<Duration> {
    Some(place.load(Ordering::Relaxed)).filter(|ns| *ns > 0).map(Duration::from_nanos)
}

impl Modes {
    fn wait<T>(
        &self,
        socket: &Socket,
        interest: Interest,
        timeout: &AtomicU64,
        mut attempt: impl FnMut(&mut Access<'_>) -> Attempt<T>,
    ) -> io::Result<T> {
        if self.nonblocking.load(Ordering::Relaxed) {
            return socket.now(attempt);
        }
        let deadline = load(timeout).map(|timeout| socket.shard.clock().now() + timeout.into());
        let waited = socket.shard.wait(interest, deadline, &mut attempt);
        waited.unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into()))
    }
}

/// The methods that set how calls wait.
macro_rules! modes_methods {
    () => {
        /// Sets whether calls fail with [`io::ErrorKind::WouldBlock`] instead of waiting.
        ///
        /// # Errors
        /// None; the result is there to match `std`.
        pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
            self.modes.nonblocking.store(nonblocking, Ordering::Relaxed);
            Ok(())
        }

        /// Sets how long a receive waits before it fails with [`io::ErrorKind::WouldBlock`]; `None` means
        /// forever.
        ///
        /// # Errors
        /// [`io::ErrorKind::InvalidInput`] for zero.
        pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
            store(&self.modes.read_timeout_ns, timeout)
        }

        /// Sets how long a send waits before it fails with [`io::ErrorKind::WouldBlock`]; `None` means
        /// forever.
        ///
        /// # Errors
        /// [`io::ErrorKind::InvalidInput`] for zero.
        pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
            store(&self.modes.write_timeout_ns, timeout)
        }

        /// The read timeout, as last set.
        ///
        /// # Errors
        /// None; the result is there to match `std`.
        pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
            Ok(load(&self.modes.read_timeout_ns))
        }

        /// The write timeout, as last set.
        ///
        /// # Errors
        /// None; the result is there to match `std`.
        pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
            Ok(load(&self.modes.write_timeout_ns))
        }

        /// Another handle to the same socket, which shares its options.
        ///
        /// # Errors
        /// None; the result is there to match `std`.
        pub fn try_clone(&self) -> io::Result<Self> {
            Ok(Self { socket: Arc::clone(&self.socket), modes: Arc::clone(&self.modes) })
        }
    };
}

/// A UDP socket, like [`std::net::UdpSocket`]. Dropping the last clone closes it.
#[derive(Debug)]
pub struct UdpSocket {
    socket: Arc<Socket>,
    modes: Arc<Modes>,
}

impl UdpSocket {
    pub(crate) fn of(socket: Socket) -> Self {
        Self { socket: Arc::new(socket), modes: Arc::default() }
    }

    /// Binds to the first of the addresses that is available. A name is [looked up](crate::dns); port 0 picks
    /// a free port.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`], [`io::ErrorKind::AddrNotAvailable`], or those of [`Stack::look_up`].
    pub fn bind(stack: &Stack, addresses: impl Into<Target>) -> io::Result<Self> {
        let found = addresses.into().look_up(stack)?;
        first_of(found, |address| Self::bind_with(stack, address, &DatagramOptions::default()))
    }

    /// Binds with options.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] or [`io::ErrorKind::AddrNotAvailable`].
    pub fn bind_with(stack: &Stack, address: SocketAddr, options: &DatagramOptions) -> io::Result<Self> {
        let socket = Socket::bind(stack, DatagramKind::Udp, address, options)?;
        Ok(Self { socket: Arc::new(socket), modes: Arc::default() })
    }

    /// From now on the socket sends to, and receives from, this peer.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrNotAvailable`] when the stack has no address of that family, or those of
    /// [`Stack::look_up`].
    pub fn connect(&self, addresses: impl Into<Target>) -> io::Result<()> {
        self.socket.connect(Some(addresses.into().first(|| self.socket.stack())?))
    }

    /// Sends a datagram to the peer. Waits while the send buffer is full.
    ///
    /// # Errors
    /// [`io::ErrorKind::ConnectionRefused`] and others that ICMP reported, once each.
    pub fn send(&self, message: &[u8]) -> io::Result<usize> {
        self.send_with(message, None, &SendMeta::default())
    }

    /// Sends a datagram to an address.
    ///
    /// # Errors
    /// Those of [`send`](Self::send), or of [`Stack::look_up`].
    pub fn send_to(&self, message: &[u8], to: impl Into<Target>) -> io::Result<usize> {
        let to = to.into().first(|| self.socket.stack())?;
        self.send_with(message, Some(to), &SendMeta::default())
    }

    /// Sends a datagram, or several of one size, with ancillary data: to the peer if `to` is `None`.
    ///
    /// # Errors
    /// Those of [`send`](Self::send), or [`io::ErrorKind::InvalidInput`].
    pub fn send_with(&self, message: &[u8], to: Option<SocketAddr>, meta: &SendMeta) -> io::Result<usize> {
        let Self { socket, modes } = self;
        modes.wait(socket, socket.send_interest(), &modes.write_timeout_ns, |access| {
            socket.send(access, to, message, meta)
        })
    }

    /// Receives a datagram. What does not fit into `into` is lost.
    ///
    /// # Errors
    /// Those that ICMP reported, once each, or the stack was shut down.
    pub fn recv(&self, into: &mut [u8]) -> io::Result<usize> {
        self.recv_with(into).map(|received| received.len)
    }

    /// Receives a datagram, and tells who sent it.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv).
    pub fn recv_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.recv_with(into).map(|received| (received.len, received.from))
    }

    /// Receives a datagram, and all that is known about it.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv).
    pub fn recv_with(&self, into: &mut [u8]) -> io::Result<Received> {
        self.wait_recv(into, false)
    }

    /// Waits for a datagram and copies it without consuming it.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv).
    pub fn peek_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.wait_recv(into, true).map(|received| (received.len, received.from))
    }

    fn wait_recv(&self, into: &mut [u8], peek: bool) -> io::Result<Received> {
        let Self { socket, modes } = self;
        modes.wait(socket, socket.recv_interest(), &modes.read_timeout_ns, |access| {
            socket.recv(access, into, peek)
        })
    }

    /// Whether a datagram or an error waits; if not, `waker` is called when one does. For an event loop: only
    /// the last waker that was given for receiving is called, and once.
    ///
    /// # Errors
    /// The stack was shut down.
    pub fn readable_or_wake(&self, waker: &Waker) -> io::Result<bool> {
        let (shard, socket) = (&self.socket.shard, &self.socket);
        is_ready(shard.poll(socket.recv_interest(), WaitKey::POLL, waker, |access| socket.readable(access)))
    }

    /// Whether half of the send buffer is free; if not, `waker` is called when it is. For an event loop: only
    /// the last waker that was given for sending is called, and once.
    ///
    /// # Errors
    /// The stack was shut down.
    pub fn writable_or_wake(&self, waker: &Waker) -> io::Result<bool> {
        let (shard, socket) = (&self.socket.shard, &self.socket);
        is_ready(shard.poll(socket.send_interest(), WaitKey::POLL, waker, |access| socket.writable(access)))
    }

    modes_methods!();
    datagram_methods!();
    flow_socket_methods!();
    multicast_methods!(&std::net::Ipv4Addr, &std::net::Ipv6Addr);
}

/// A socket that sends echo requests and receives the replies to them. Linux: `SOCK_DGRAM` with
/// `IPPROTO_ICMP`.
#[derive(Debug)]
pub struct PingSocket {
    socket: Arc<Socket>,
    modes: Arc<Modes>,
}

impl PingSocket {
    /// Binds to an address of the stack, or to an unspecified one of the family to ping. The port is the
    /// identifier of the requests; 0 picks a free one.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] or [`io::ErrorKind::AddrNotAvailable`].
    pub fn bind(stack: &Stack, address: SocketAddr, options: &DatagramOptions) -> io::Result<Self> {
        let socket = Socket::bind(stack, DatagramKind::Ping, address, options)?;
        Ok(Self { socket: Arc::new(socket), modes: Arc::default() })
    }

    /// Sends an echo request.
    ///
    /// # Errors
    /// What ICMP reported, if the socket asked for it.
    pub fn send_to(&self, seq: u16, data: &[u8], to: IpAddr) -> io::Result<()> {
        let Self { socket, modes } = self;
        let to = SocketAddr::new(to, 0);
        let (message, meta) = (echo_request(to, seq, data), SendMeta::default());
        let send = |access: &mut Access<'_>| socket.send(access, Some(to), &message, &meta);
        modes.wait(socket, socket.send_interest(), &modes.write_timeout_ns, send).map(drop)
    }

    /// Receives the next reply, and copies its data.
    ///
    /// # Errors
    /// What ICMP reported, if the socket asked for it, or the stack was shut down.
    pub fn recv(&self, into: &mut [u8]) -> io::Result<PingReply> {
        let Self { socket, modes } = self;
        let mut message = vec![0; into.len() + 8];
        let recv = |access: &mut Access<'_>| socket.recv(access, &mut message, false);
        let received = modes.wait(socket, socket.recv_interest(), &modes.read_timeout_ns, recv)?;
        Ok(reply_of(&received, &message, into))
    }

    modes_methods!();
    datagram_methods!();
}

/// The echo requests of a program that pings an address of a filter
/// ([`IncomingFlow::accept_echo`](super::IncomingFlow::accept_echo)). Dropping all clones of it ends the
/// flow; a further request begins another one.
#[derive(Debug)]
pub struct EchoSocket {
    socket: Arc<Socket>,
    modes: Arc<Modes>,
}

impl EchoSocket {
    pub(crate) fn of(socket: Socket) -> Self {
        Self { socket: Arc::new(socket), modes: Arc::default() }
    }

    /// Receives the next request, and copies its data.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] if the flow was idle for too long, or the stack was shut down.
    pub fn recv(&self, into: &mut [u8]) -> io::Result<EchoRequest> {
        let Self { socket, modes } = self;
        let mut message = vec![0; into.len() + 8];
        let recv = |access: &mut Access<'_>| socket.recv(access, &mut message, false);
        let received = modes.wait(socket, socket.recv_interest(), &modes.read_timeout_ns, recv)?;
        let PingReply { seq, len, ttl, .. } = reply_of(&received, &message, into);
        Ok(EchoRequest { seq, len, ttl })
    }

    /// Sends the reply to a request.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] if the flow was idle for too long, or the stack was shut down.
    pub fn send(&self, seq: u16, data: &[u8]) -> io::Result<()> {
        let Self { socket, modes } = self;
        let to = socket.info()?.peer.ok_or_else(crate::error::gone)?;
        let (message, meta) = (echo_request(to, seq, data), SendMeta::default());
        let send = |access: &mut Access<'_>| socket.send(access, None, &message, &meta);
        modes.wait(socket, socket.send_interest(), &modes.write_timeout_ns, send).map(drop)
    }

    modes_methods!();
    datagram_methods!();
    flow_socket_methods!();
}
