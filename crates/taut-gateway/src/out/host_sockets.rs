//! The host's own sockets as the way out: the host's kernel is the sender towards the network.
//!
//! **Little waits in the kernel.** With `TCP_NOTSENT_LOWAT` a socket takes more only when less than
//! [`NOTSENT_LOWAT`](sockets::NOTSENT_LOWAT) bytes of it are unsent. What a guest writes beyond that stays in
//! the guest, where it can still be changed.
//!
//! **Reads** fill blocks (`blocks.rs`). What is long is handed to the stack as it is.
//!
//! **Routes decide** from which address and by which interface flows leave, unless there are some in
//! [`HostSockets`]: pasta's `--outbound`, slirp4netns's `--outbound-addr`. This host's loopback is reached
//! from itself, but for a guest's datagrams: one socket has them all.
//!
//! **Pings** need a socket that the host allows to the groups in `net.ipv4.ping_group_range`; elsewhere
//! guests hear "prohibited" ([`pings_are_allowed`]).

use std::fmt::Display;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::task::Context;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::IpBindAddressNoPort;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionread;
use rustix::net::{RecvFlags, recv};
use socket2::{Domain, SockRef, Socket, Type};
use taut::Refusal;
use taut::device::sys::{tcp_info, unlock_buffers};
use taut::taut_control::rooms::Queues;
use tokio::io::Interest;
use tokio::net::{TcpSocket, TcpStream, UdpSocket};

use crate::logic::rules::any_port;
use crate::out::sockets::{self, ECHO_HEADER, prepare};
use crate::out::way_out::{Arrived, Datagrams, Path, Pings, Upstream, WayOut};
use crate::out::{blocks, icmp_errors};

/// As over an Ethernet.
const CLIENT_SEGMENT: u32 = 1_460;
/// Bytes that a client of this host may send at first.
const FIRST_WINDOW: usize = 16 << 10;
/// The first window of the kernel's own, with which its sizes begin: half of `tcp_rmem`'s default.
const USUAL_WINDOW: usize = 64 << 10;

/// The host's sockets, in the network namespace of the threads that use them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostSockets {
    /// Addresses that flows leave from, one of each family at most. Without one, routes decide.
    pub addresses: Vec<IpAddr>,
    /// The interfaces by which IPv4 and IPv6 leave.
    pub interfaces: [Option<String>; 2],
}

impl HostSockets {
    /// Looks whether this host has these addresses and interfaces.
    ///
    /// # Errors
    /// It has not, or no rights: the error names it.
    pub fn check(&self) -> io::Result<()> {
        let named =
            |what: &dyn Display, error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"));
        for address in &self.addresses {
            std::net::UdpSocket::bind((*address, 0)).map_err(|error| named(address, error))?;
        }
        let any = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        for (any, name) in any.into_iter().zip(&self.interfaces) {
            let Some(name) = name else { continue };
            let any = SocketAddr::new(any, 0);
            let socket =
                sockets::datagrams(any).and_then(|socket| self.bind_device(&SockRef::from(&socket), any));
            socket.map_err(|error| named(name, error))?;
        }
        Ok(())
    }

    /// The address of its family that flows leave from.
    fn own(&self, to: SocketAddr) -> Option<SocketAddr> {
        let own = self.addresses.iter().find(|own| own.is_ipv4() == to.is_ipv4())?;
        Some(SocketAddr::new(*own, 0))
    }

    fn bind_device(&self, socket: &SockRef<'_>, to: SocketAddr) -> io::Result<()> {
        let name = &self.interfaces[usize::from(to.is_ipv6())];
        name.as_ref().map_or(Ok(()), |name| socket.bind_device(Some(name.as_bytes())))
    }

    /// Has a socket for this destination leave from there.
    fn bind(&self, socket: &SockRef<'_>, to: SocketAddr) -> io::Result<()> {
        if to.ip().is_loopback() {
            return Ok(());
        }
        self.bind_device(socket, to)?;
        self.own(to).map_or(Ok(()), |own| socket.bind(&own.into()))
    }

    /// A socket for a connection to this address.
    pub(crate) fn stream(&self, to: SocketAddr) -> io::Result<TcpSocket> {
        let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        if self.own(to).is_some() {
            // A port may have a connection to each destination.
            setsockopt(&socket, IpBindAddressNoPort, &true)?;
        }
        self.bind(&SockRef::from(&socket), to)?;
        Ok(socket)
    }

    /// A socket for a question to this name server.
    pub(crate) fn question(&self, to: SocketAddr) -> io::Result<UdpSocket> {
        let socket = Socket::new(Domain::for_address(to), Type::DGRAM, None)?;
        socket.set_nonblocking(true)?;
        self.bind(&SockRef::from(&socket), to)?;
        UdpSocket::from_std(socket.into())
    }
}

impl WayOut for HostSockets {
    type Stream = TcpStream;
    type Datagrams = UdpSocket;
    type Pings = HostPings;

    async fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let socket = self.stream(to)?;
        prepare(&SockRef::from(&socket))?;
        connected(socket, to).await
    }

    fn datagrams(&self, like: SocketAddr) -> io::Result<UdpSocket> {
        let socket = sockets::datagrams(self.own(like).unwrap_or_else(|| any_port(like)))?;
        self.bind_device(&SockRef::from(&socket), like)?;
        UdpSocket::from_std(socket.into())
    }

    fn pings(&self, to: IpAddr) -> io::Result<HostPings> {
        let socket = sockets::ping_socket(to)?;
        self.bind(&SockRef::from(&socket), SocketAddr::new(to, 0))?;
        sockets::connect_pings(&socket, to)?;
        // A socket for datagrams like any other, as far as sending and receiving go.
        Ok(HostPings { socket: UdpSocket::from_std(socket.into())?, is_v4: to.is_ipv4() })
    }
}

/// Connects.
pub(crate) async fn connected(socket: TcpSocket, to: SocketAddr) -> io::Result<TcpStream> {
    let stream = socket.connect(to).await?;
    // Once in 100,000 times tokio takes a socket for connected that is not yet.
    while stream.peer_addr().is_err() {
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        let _: io::Result<()> = stream.try_io(Interest::WRITABLE, || Err(io::ErrorKind::WouldBlock.into()));
        stream.writable().await?;
    }
    Ok(stream)
}

/// Offers clients of this host short segments: a client's kernel makes room for twenty of them, which over
/// the loopback interface would be 2.6 MB. Super-packets stay as long. The first window is small, too: that
/// room grows with what a client has sent, before the line behind the proxy is known, and never shrinks.
pub(crate) fn prepare_listener(socket: &SockRef<'_>) -> io::Result<()> {
    socket.set_recv_buffer_size(FIRST_WINDOW)?;
    socket.set_tcp_mss(CLIENT_SEGMENT)
}

/// Whether this host lets this user ping.
#[must_use]
pub fn pings_are_allowed() -> bool {
    sockets::ping_socket(IpAddr::from([127, 0, 0, 1])).is_ok()
}

/// Each direction of a connection has one task that waits, whose waker tokio keeps with the socket: no
/// future of 150 bytes for each.
impl Upstream for TcpStream {
    fn readable(&self) -> impl Future<Output = io::Result<()>> + Send {
        poll_fn(|cx| self.poll_read_ready(cx))
    }

    fn writable(&self) -> impl Future<Output = io::Result<()>> + Send {
        poll_fn(|cx| self.poll_write_ready(cx))
    }

    async fn broken(&self) {
        _ = self.ready(Interest::ERROR).await;
    }

    fn try_take(&self, max: usize) -> io::Result<Bytes> {
        blocks::fill(|block| read_some(self, block, block.capacity().min(max)))
    }

    /// The kernel tells of a FIN with the bytes before it. It tells of a reset once, also to one who only
    /// looks.
    fn is_at_end(&self, cx: &mut Context<'_>) -> io::Result<bool> {
        if self.poll_read_ready(cx).is_pending() {
            return Ok(false);
        }
        let look = || Ok(recv(self, &mut [0], RecvFlags::PEEK)?);
        match self.try_io(Interest::READABLE, look) {
            Ok((count, _)) => Ok(count == 0),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn try_write_vectored(&self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        Self::try_write_vectored(self, data)
    }

    fn finish(&self) -> io::Result<()> {
        SockRef::from(self).shutdown(std::net::Shutdown::Write)
    }

    fn abort(self) {
        _ = SockRef::from(&self).set_linger(Some(Duration::ZERO));
    }

    fn path(&self) -> Option<Path> {
        sockets::path(self)
    }

    fn queues(&self) -> Option<Queues> {
        let control = SockRef::from(self).tcp_congestion().unwrap_or_default();
        let unread = ioctl_fionread(self).ok()?;
        // The one whose sockets the kernel always paces.
        Some(Queues { unread, is_paced: control.starts_with(b"bbr"), ..queues(&tcp_info(self).ok()?)? })
    }

    fn acknowledge(&self) {
        // The kernel forgets it with the next answer.
        _ = SockRef::from(self).set_tcp_quickack(true);
    }

    /// For a write, the kernel looks for room only where a new piece of its memory begins, once in 64 KB; for
    /// `poll`, always. Without room, the event for which tokio waits follows.
    fn look_for_room(&self) {
        let mut wanted = [PollFd::new(self, PollFlags::OUT)];
        let now = Timespec::default();
        if matches!(poll(&mut wanted, Some(&now)), Ok(0)) {
            let _: io::Result<()> = self.try_io(Interest::WRITABLE, || Err(io::ErrorKind::WouldBlock.into()));
        }
    }

    fn hold_unsent(&self, bytes: u32) {
        // A connection that is over has nothing unsent.
        _ = SockRef::from(self).set_tcp_notsent_lowat(bytes);
    }

    fn offer(&self, bytes: u32) {
        // The kernel doubles it, and offers about half of that.
        _ = SockRef::from(self).set_recv_buffer_size(bytes as usize);
    }

    fn set_priority(&self, priority: u32) {
        // A connection that is over has nothing to send.
        _ = SockRef::from(self).set_priority(priority);
    }

    fn offer_freely(&self) {
        // Linux 6.18 may leave a small window small until the connection ends.
        _ = SockRef::from(self).set_recv_buffer_size(USUAL_WINDOW);
        _ = unlock_buffers(self);
    }
}

/// A number of a `struct tcp_info` (linux/tcp.h); none of a kernel that has no such field.
fn word(info: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*info.get(at..)?.first_chunk()?))
}

/// The same of 64 bits.
fn long(info: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*info.get(at..)?.first_chunk()?))
}

/// The queues of a socket, without unread bytes and pacing; nothing of a kernel before 4.19.
fn queues(info: &[u8]) -> Option<Queues> {
    let [unacked, cwnd] = [word(info, 24)?, word(info, 80)?];
    let (acked, sent, again) = (long(info, 120)?, long(info, 200)?, long(info, 208)?);
    // The count of acknowledged bytes includes the SYN, and in the end the FIN.
    let in_flight = sent.saturating_sub(again).saturating_sub(acked).max(u64::from(unacked > 0));
    Some(Queues {
        unread: 0,
        // Since 6.2.
        offered: word(info, 232).map(u64::from),
        unsent: word(info, 144)?.into(),
        in_flight,
        // Since 5.4.
        window: word(info, 228).map(u64::from),
        segment: word(info, 16)?,
        is_congested: unacked >= cwnd,
        is_paced: false,
        rate: long(info, 160)?,
    })
}

/// From a `struct tcp_info`; nothing of a kernel that has no rates in it.
pub(crate) fn path(info: &[u8]) -> Option<Path> {
    let word = |at| word(info, at);
    Some(Path {
        rate: long(info, 160)?,
        snd_mss: word(16)?,
        rcv_mss: word(20)?,
        // All ones if none was measured.
        min_rtt: Duration::from_micros(word(148).filter(|&rtt| rtt < u32::MAX)?.into()),
    })
}

/// Reads at most `room` bytes. If there were fewer, tokio hears that nothing is left: the next read waits
/// for news, and does not ask the kernel in vain.
fn read_some(stream: &TcpStream, into: &mut BytesMut, room: usize) -> io::Result<usize> {
    let mut count = 0;
    let more = stream.try_io(Interest::READABLE, || {
        count = stream.try_read_buf(&mut into.limit(room))?;
        // A read ends before an urgent byte, too.
        let is_all = (1..room).contains(&count) && ioctl_fionread(stream)? == 0;
        if is_all { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    });
    if count > 0 { Ok(count) } else { more.map(|()| 0) }
}

/// A datagram, or an error that ICMP reported: the kernel announces one without the other.
const NEWS: Interest = Interest::READABLE.add(Interest::ERROR);

/// tokio's `try_io` knows one interest at a time: of two it takes the socket for not ready, whatever it is.
fn receive(socket: &UdpSocket, into: &mut [u8]) -> io::Result<Arrived> {
    let mut receive = || sockets::receive(socket, into);
    match socket.try_io(Interest::READABLE, &mut receive) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => socket.try_io(Interest::ERROR, receive),
        received => received,
    }
}

impl Datagrams for UdpSocket {
    async fn readable(&self) -> io::Result<()> {
        self.ready(NEWS).await.map(drop)
    }

    fn try_recv(&self, into: &mut [u8]) -> io::Result<Arrived> {
        receive(self, into)
    }

    fn try_send(&self, data: &[u8], segment: Option<u16>, to: SocketAddr, tos: u8) -> io::Result<usize> {
        // Without tokio's notion of readiness, which a new socket has not yet: its first datagram would be
        // lost.
        sockets::send(self, data, segment, to, tos)
    }

    fn hear(&self, tell: &mut dyn FnMut(SocketAddr, Refusal)) -> bool {
        icmp_errors::hear(self, tell)
    }
}

/// A socket for pings of the host.
#[derive(Debug)]
pub struct HostPings {
    socket: UdpSocket,
    is_v4: bool,
}

impl Pings for HostPings {
    async fn send(&self, seq: u16, data: &[u8]) -> io::Result<()> {
        let message = sockets::echo_request(self.is_v4, seq, data);
        self.socket.send(&message).await.map(drop)
    }

    async fn recv(&self, into: &mut [u8]) -> io::Result<(u16, usize)> {
        loop {
            self.socket.ready(NEWS).await?;
            let mut message = vec![0; ECHO_HEADER + into.len()];
            let len = match receive(&self.socket, &mut message) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                received => received?.len,
            };
            let Some(data) = message.get(ECHO_HEADER..len) else { continue };
            into[..data.len()].copy_from_slice(data);
            return Ok((u16::from_be_bytes([message[6], message[7]]), data.len()));
        }
    }

    fn hear(&self, tell: &mut dyn FnMut(Refusal)) -> bool {
        icmp_errors::hear(&self.socket, &mut |_, how| tell(how))
    }
}
