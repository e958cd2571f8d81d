//! The asynchronous sockets without connections: [`UdpSocket`], [`PingSocket`] and [`EchoSocket`].

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll, ready};

use taut_core::{DatagramKind, DatagramOptions, Received, SendMeta};
use taut_driver::{Access, WaitKey};
use tokio::io::ReadBuf;

use crate::common::datagram::{
    EchoRequest, PingReply, Socket, datagram_methods, echo_request, flow_socket_methods, multicast_methods,
    reply_of,
};
use crate::dns::{Target, first_of};
use crate::stack::Stack;
use crate::wait::until;

/// A UDP socket, like [`tokio::net::UdpSocket`]. Dropping it closes it.
///
/// ```no_run
/// # async fn example(stack: &taut::Stack) -> std::io::Result<()> {
/// let socket = taut::UdpSocket::bind(stack, "10.0.0.2:0").await?;
/// socket.send_to(b"hello", "10.0.0.1:7").await?;
/// let mut buffer = [0; 1500];
/// let (len, from) = socket.recv_from(&mut buffer).await?;
/// println!("{from}: {:?}", &buffer[..len]);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct UdpSocket {
    socket: Socket,
}

impl UdpSocket {
    pub(crate) const fn of(socket: Socket) -> Self {
        Self { socket }
    }

    /// Binds to the first of the addresses that is available. A name is [looked up](crate::dns); port 0 picks
    /// a free port.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`], [`io::ErrorKind::AddrNotAvailable`], or those of [`Stack::look_up`].
    pub async fn bind(stack: &Stack, addresses: impl Into<Target>) -> io::Result<Self> {
        let found = addresses.into().found(stack).await?;
        first_of(found, |address| Self::bind_with(stack, address, &DatagramOptions::default()))
    }

    /// Binds with options.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] or [`io::ErrorKind::AddrNotAvailable`].
    pub fn bind_with(stack: &Stack, address: SocketAddr, options: &DatagramOptions) -> io::Result<Self> {
        Ok(Self { socket: Socket::bind(stack, DatagramKind::Udp, address, options)? })
    }

    /// From now on the socket sends to, and receives from, this peer.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrNotAvailable`] when the stack has no address of that family, or those of
    /// [`Stack::look_up`].
    pub async fn connect(&self, addresses: impl Into<Target>) -> io::Result<()> {
        let peer = addresses.into().found_first(|| self.socket.stack()).await?;
        self.socket.connect(Some(peer))
    }

    /// Sends a datagram to the peer. Waits while the send buffer is full.
    ///
    /// # Errors
    /// [`io::ErrorKind::ConnectionRefused`] and others that ICMP reported, once each.
    pub async fn send(&self, message: &[u8]) -> io::Result<usize> {
        self.send_with(message, None, &SendMeta::default()).await
    }

    /// Sends a datagram to an address.
    ///
    /// # Errors
    /// Those of [`send`](Self::send), or of [`Stack::look_up`].
    pub async fn send_to(&self, message: &[u8], target: impl Into<Target>) -> io::Result<usize> {
        let to = target.into().found_first(|| self.socket.stack()).await?;
        self.send_with(message, Some(to), &SendMeta::default()).await
    }

    /// Sends a datagram, or several of one size, with ancillary data: to the peer if `to` is `None`.
    ///
    /// # Errors
    /// Those of [`send`](Self::send), or [`io::ErrorKind::InvalidInput`].
    pub async fn send_with(
        &self,
        message: &[u8],
        to: Option<SocketAddr>,
        meta: &SendMeta,
    ) -> io::Result<usize> {
        let socket = &self.socket;
        until(&socket.shard, socket.send_interest(), |access| socket.send(access, to, message, meta)).await
    }

    /// Receives a datagram. What does not fit into `into` is lost.
    ///
    /// # Errors
    /// Those that ICMP reported, once each, or the stack was shut down.
    pub async fn recv(&self, into: &mut [u8]) -> io::Result<usize> {
        self.recv_with(into).await.map(|received| received.len)
    }

    /// Receives a datagram, and tells who sent it.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv).
    pub async fn recv_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.recv_with(into).await.map(|received| (received.len, received.from))
    }

    /// Receives a datagram, and all that is known about it.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv).
    pub async fn recv_with(&self, into: &mut [u8]) -> io::Result<Received> {
        let socket = &self.socket;
        until(&socket.shard, socket.recv_interest(), |access| socket.recv(access, into, false)).await
    }

    /// Waits for a datagram and copies it without consuming it.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv).
    pub async fn peek_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let socket = &self.socket;
        let peek = until(&socket.shard, socket.recv_interest(), |access| socket.recv(access, into, true));
        peek.await.map(|received| (received.len, received.from))
    }

    /// Sends to the peer without waiting.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`], or those of [`send`](Self::send).
    pub fn try_send(&self, message: &[u8]) -> io::Result<usize> {
        self.try_send_with(message, None, &SendMeta::default())
    }

    /// Sends to an address without waiting.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`], or those of [`send`](Self::send).
    pub fn try_send_to(&self, message: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.try_send_with(message, Some(to), &SendMeta::default())
    }

    /// [`send_with`](Self::send_with) without waiting.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`], or those of [`send_with`](Self::send_with).
    pub fn try_send_with(
        &self,
        message: &[u8],
        to: Option<SocketAddr>,
        meta: &SendMeta,
    ) -> io::Result<usize> {
        self.socket.now(|access| self.socket.send(access, to, message, meta))
    }

    /// Receives without waiting.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`], or those of [`recv`](Self::recv).
    pub fn try_recv(&self, into: &mut [u8]) -> io::Result<usize> {
        self.try_recv_with(into).map(|received| received.len)
    }

    /// Receives without waiting, and tells who sent it.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`], or those of [`recv`](Self::recv).
    pub fn try_recv_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.try_recv_with(into).map(|received| (received.len, received.from))
    }

    /// [`recv_with`](Self::recv_with) without waiting.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`], or those of [`recv`](Self::recv).
    pub fn try_recv_with(&self, into: &mut [u8]) -> io::Result<Received> {
        self.socket.now(|access| self.socket.recv(access, into, false))
    }

    /// Waits until a datagram, or an error, is there.
    ///
    /// # Errors
    /// The stack was shut down.
    pub async fn readable(&self) -> io::Result<()> {
        let socket = &self.socket;
        until(&socket.shard, socket.recv_interest(), |access| socket.readable(access)).await
    }

    /// Waits until half of the send buffer is free.
    ///
    /// # Errors
    /// The stack was shut down.
    pub async fn writable(&self) -> io::Result<()> {
        let socket = &self.socket;
        until(&socket.shard, socket.send_interest(), |access| socket.writable(access)).await
    }

    /// [`send`](Self::send) as a poll function. If several tasks poll, only the last one is woken.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub fn poll_send(&self, cx: &mut Context<'_>, message: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send_with(cx, message, None, &SendMeta::default())
    }

    /// [`send_to`](Self::send_to) as a poll function.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        message: &[u8],
        to: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        self.poll_send_with(cx, message, Some(to), &SendMeta::default())
    }

    /// [`send_with`](Self::send_with) as a poll function.
    ///
    /// # Errors
    /// Those of [`send_with`](Self::send_with).
    pub fn poll_send_with(
        &self,
        cx: &mut Context<'_>,
        message: &[u8],
        to: Option<SocketAddr>,
        meta: &SendMeta,
    ) -> Poll<io::Result<usize>> {
        let socket = &self.socket;
        socket.shard.poll(socket.send_interest(), WaitKey::POLL, cx.waker(), |access| {
            socket.send(access, to, message, meta)
        })
    }

    /// [`recv`](Self::recv) as a poll function.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv).
    pub fn poll_recv(&self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_recv_from(cx, into).map_ok(drop)
    }

    /// [`recv_from`](Self::recv_from) as a poll function.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv).
    pub fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<SocketAddr>> {
        let received = ready!(self.poll_recv_with(cx, into.initialize_unfilled()))?;
        into.advance(received.len);
        Poll::Ready(Ok(received.from))
    }

    /// [`recv_with`](Self::recv_with) as a poll function.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv).
    pub fn poll_recv_with(&self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<Received>> {
        let socket = &self.socket;
        socket.shard.poll(socket.recv_interest(), WaitKey::POLL, cx.waker(), |access| {
            socket.recv(access, into, false)
        })
    }

    /// Another flow to the peer of this one, from another address and port, as if the peer had sent there
    /// first: a gateway has it when another host sends to its guest's port.
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for a socket that is not of a
    /// [flow](crate::IncomingFlows), [`QuotaExceeded`](io::ErrorKind::QuotaExceeded) if the limits of its
    /// filter, a socket between the same addresses and ports, or another shard stand against it.
    pub fn flow_from(&self, local: SocketAddr) -> io::Result<Self> {
        self.socket.flow_from(local).map(Self::of)
    }

    datagram_methods!();
    flow_socket_methods!();
    multicast_methods!(std::net::Ipv4Addr, std::net::Ipv6Addr);
}

/// A socket that sends echo requests and receives the replies to them. Linux: `SOCK_DGRAM` with
/// `IPPROTO_ICMP`.
///
/// ```no_run
/// # async fn example(stack: &taut::Stack) -> Result<(), Box<dyn std::error::Error>> {
/// use taut::{DatagramOptions, PingSocket};
///
/// let socket = PingSocket::bind(stack, "0.0.0.0:0".parse()?, &DatagramOptions::default())?;
/// socket.send_to(1, b"are you there?", "10.0.0.1".parse()?).await?;
/// let reply = socket.recv(&mut [0; 64]).await?;
/// println!("{} bytes from {}, ttl {}", reply.len, reply.from, reply.ttl);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct PingSocket {
    socket: Socket,
}

impl PingSocket {
    /// Binds to an address of the stack, or to an unspecified one of the family to ping. The port is the
    /// identifier of the requests; 0 picks a free one.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] or [`io::ErrorKind::AddrNotAvailable`].
    pub fn bind(stack: &Stack, address: SocketAddr, options: &DatagramOptions) -> io::Result<Self> {
        Ok(Self { socket: Socket::bind(stack, DatagramKind::Ping, address, options)? })
    }

    /// Sends an echo request.
    ///
    /// # Errors
    /// What ICMP reported, if the socket asked for it.
    pub async fn send_to(&self, seq: u16, data: &[u8], to: IpAddr) -> io::Result<()> {
        let (socket, to) = (&self.socket, SocketAddr::new(to, 0));
        let (message, meta) = (echo_request(to, seq, data), SendMeta::default());
        let send = |access: &mut Access<'_>| socket.send(access, Some(to), &message, &meta);
        until(&socket.shard, socket.send_interest(), send).await.map(drop)
    }

    /// Receives the next reply, and copies its data.
    ///
    /// # Errors
    /// What ICMP reported, if the socket asked for it, or the stack was shut down.
    pub async fn recv(&self, into: &mut [u8]) -> io::Result<PingReply> {
        let (socket, mut message) = (&self.socket, vec![0; into.len() + 8]);
        let recv = |access: &mut Access<'_>| socket.recv(access, &mut message, false);
        let received = until(&socket.shard, socket.recv_interest(), recv).await?;
        Ok(reply_of(&received, &message, into))
    }

    datagram_methods!();
}

/// The echo requests of a program that pings an address of a filter
/// ([`IncomingFlow::accept_echo`](crate::IncomingFlow)). Dropping it ends the flow; a further request begins
/// another one.
///
/// ```no_run
/// # async fn example(flow: taut::IncomingFlow) -> std::io::Result<()> {
/// let socket: taut::EchoSocket = flow.accept_echo()?;
/// let mut data = [0; 1500];
/// loop {
///     let request = socket.recv(&mut data).await?;
///     socket.send(request.seq, &data[..request.len]).await?;
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct EchoSocket {
    socket: Socket,
}

impl EchoSocket {
    pub(crate) const fn of(socket: Socket) -> Self {
        Self { socket }
    }

    /// Receives the next request, and copies its data.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] if the flow was idle for too long, or the stack was shut down.
    pub async fn recv(&self, into: &mut [u8]) -> io::Result<EchoRequest> {
        let (socket, mut message) = (&self.socket, vec![0; into.len() + 8]);
        let recv = |access: &mut Access<'_>| socket.recv(access, &mut message, false);
        let received = until(&socket.shard, socket.recv_interest(), recv).await?;
        let PingReply { seq, len, ttl, .. } = reply_of(&received, &message, into);
        Ok(EchoRequest { seq, len, ttl })
    }

    /// Sends the reply to a request.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] if the flow was idle for too long, or the stack was shut down.
    pub async fn send(&self, seq: u16, data: &[u8]) -> io::Result<()> {
        let socket = &self.socket;
        let to = socket.info()?.peer.ok_or_else(crate::error::gone)?;
        let (message, meta) = (echo_request(to, seq, data), SendMeta::default());
        let send = |access: &mut Access<'_>| socket.send(access, None, &message, &meta);
        until(&socket.shard, socket.send_interest(), send).await.map(drop)
    }

    datagram_methods!();
    flow_socket_methods!();
}
