//! The host's own sockets as the way out: the host's kernel is the sender towards the network.
//!
//! **Little waits in the kernel.** With `TCP_NOTSENT_LOWAT` a socket takes more only when less than
//! [`NOTSENT_LOWAT`] bytes of it are unsent. What a guest writes beyond that stays in the guest, where it can
//! still be changed.
//!
//! **Reads** fill blocks (`blocks.rs`). What is long is handed to the stack as it is.
//!
//! **Pings** need a socket that the host allows to the groups in `net.ipv4.ping_group_range`; elsewhere
//! guests hear "prohibited" ([`pings_are_allowed`]).

use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::task::Context;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionread;
use rustix::net::{RecvFlags, recv};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use taut::Refusal;
use taut::device::sys::{tcp_info, unlock_buffers};
use taut::taut_control::rooms::Queues;
use tokio::io::Interest;
use tokio::net::{TcpSocket, TcpStream, UdpSocket};

use crate::logic::rules::any_port;
use crate::out::blocks;
use crate::out::icmp_errors;
use crate::out::way_out::{Arrived, Datagrams, Path, Pings, Upstream, WayOut};

/// Unsent bytes beyond which a connection takes no more.
pub const NOTSENT_LOWAT: u32 = 128 << 10;

/// As over an Ethernet.
const CLIENT_SEGMENT: u32 = 1_460;
/// Bytes that a client of this host may send at first.
const FIRST_WINDOW: usize = 16 << 10;
/// The first window of the kernel's own, with which its sizes begin: half of `tcp_rmem`'s default.
const USUAL_WINDOW: usize = 64 << 10;

/// The host's sockets, in the network namespace of the threads that use them.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostSockets;

impl WayOut for HostSockets {
    type Stream = TcpStream;
    type Datagrams = UdpSocket;
    type Pings = HostPings;

    async fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        prepare(&SockRef::from(&socket))?;
        connected(socket, to).await
    }

    fn datagrams(&self, like: SocketAddr) -> io::Result<UdpSocket> {
        let socket = Socket::new(Domain::for_address(like), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        icmp_errors::ask(&socket, like.is_ipv4())?;
        if like.is_ipv4() {
            socket.set_recv_tos_v4(true)?;
        } else {
            socket.set_only_v6(true)?;
            socket.set_recv_tclass_v6(true)?;
        }
        socket.bind(&any_port(like).into())?;
        UdpSocket::from_std(socket.into())
    }

    fn pings(&self, to: IpAddr) -> io::Result<HostPings> {
        let socket = ping_socket(to)?;
        socket.set_nonblocking(true)?;
        icmp_errors::ask(&socket, to.is_ipv4())?;
        socket.connect(&SocketAddr::new(to, 0).into())?;
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

/// Sets what each connection of the host has here.
pub(crate) fn prepare(socket: &SockRef<'_>) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    // When and how often is the host's setting.
    socket.set_keepalive(true)?;
    // Urgent data is in line on both sides of a relay, and no byte is lost (RFC 6093 §6).
    socket.set_out_of_band_inline(true)?;
    socket.set_tcp_notsent_lowat(NOTSENT_LOWAT)
}

fn ping_socket(to: IpAddr) -> io::Result<Socket> {
    let protocol = if to.is_ipv4() { Protocol::ICMPV4 } else { Protocol::ICMPV6 };
    Socket::new(Domain::for_address(SocketAddr::new(to, 0)), Type::DGRAM, Some(protocol))
}

/// Whether this host lets this user ping.
#[must_use]
pub fn pings_are_allowed() -> bool {
    ping_socket(IpAddr::from([127, 0, 0, 1])).is_ok()
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
        path(&tcp_info(self).ok()?)
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
fn path(info: &[u8]) -> Option<Path> {
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

/// Room for the control message of a TOS or a traffic class.
#[repr(align(8))]
struct Control([u8; 64]);

/// tokio's `try_io` knows one interest at a time: of two it takes the socket for not ready, whatever it is.
fn receive(socket: &UdpSocket, into: &mut [u8]) -> io::Result<Arrived> {
    let mut control = Control([0; 64]);
    let mut receive = || {
        let (mut pieces, control) = ([IoSliceMut::new(into)], Some(&mut control.0[..]));
        let message =
            recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut pieces, control, MsgFlags::empty())?;
        let tos = message.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::Ipv4Tos(tos) => Some(tos),
            ControlMessageOwned::Ipv6TClass(class) => Some(class as u8),
            _ => None,
        });
        let from = message.address.and_then(address).unwrap_or(NOBODY);
        Ok(Arrived { len: message.bytes, from, tos: tos.unwrap_or(0) })
    };
    match socket.try_io(Interest::READABLE, &mut receive) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => socket.try_io(Interest::ERROR, receive),
        received => received,
    }
}

/// The sender of a datagram that has none.
const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// An address of the kernel's. A link-local one's scope is not part of what a guest can name.
pub(crate) fn address(of: SockaddrStorage) -> Option<SocketAddr> {
    let v4 = of.as_sockaddr_in().map(|v4| SocketAddr::new(v4.ip().into(), v4.port()));
    v4.or_else(|| of.as_sockaddr_in6().map(|v6| SocketAddr::new(v6.ip().into(), v6.port())))
}

/// Without tokio's notion of readiness, which a new socket has not yet: its first datagram would be lost.
fn put(
    socket: &UdpSocket,
    message: &[u8],
    segment: Option<u16>,
    to: SocketAddr,
    tos: u8,
) -> io::Result<usize> {
    if segment.is_none() && tos == 0 {
        return SockRef::from(socket).send_to(message, &to.into());
    }
    let (cut, class, pieces) = (segment.unwrap_or(0), i32::from(tos), [IoSlice::new(message)]);
    let mark = if to.is_ipv4() { ControlMessage::Ipv4Tos(&tos) } else { ControlMessage::Ipv6TClass(&class) };
    let control = [ControlMessage::UdpGsoSegments(&cut), mark];
    let control = &control[usize::from(segment.is_none())..1 + usize::from(tos != 0)];
    let to = SockaddrStorage::from(to);
    Ok(sendmsg(socket.as_raw_fd(), &pieces, control, MsgFlags::empty(), Some(&to))?)
}

impl Datagrams for UdpSocket {
    async fn readable(&self) -> io::Result<()> {
        self.ready(NEWS).await.map(drop)
    }

    fn try_recv(&self, into: &mut [u8]) -> io::Result<Arrived> {
        receive(self, into)
    }

    fn try_send(&self, data: &[u8], segment: Option<u16>, to: SocketAddr, tos: u8) -> io::Result<usize> {
        put(self, data, segment, to, tos)
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

/// Type, code, checksum, identifier, number.
const ECHO_HEADER: usize = 8;

impl Pings for HostPings {
    async fn send(&self, seq: u16, data: &[u8]) -> io::Result<()> {
        let [high, low] = seq.to_be_bytes();
        // The kernel writes the checksum and the identifier.
        let mut message = Vec::with_capacity(ECHO_HEADER + data.len());
        message.extend_from_slice(&[if self.is_v4 { 8 } else { 128 }, 0, 0, 0, 0, 0, high, low]);
        message.extend_from_slice(data);
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
