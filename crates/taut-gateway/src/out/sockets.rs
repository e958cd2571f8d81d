//! The host's sockets without a runtime: how they are made, and one call of each kind. Tokio's runner waits
//! for them by `host_sockets.rs`, a runner with a loop of its own (`taut-slirp`) by that.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use taut::device::sys::tcp_info;

use crate::out::way_out::{Arrived, Path};
use crate::out::{host_sockets, icmp_errors};

pub use crate::out::icmp_errors::hear;
pub use crate::out::way_out::refusal;

/// Unsent bytes beyond which a connection takes no more.
pub const NOTSENT_LOWAT: u32 = 128 << 10;

/// Type, code, checksum, identifier, number.
pub const ECHO_HEADER: usize = 8;

/// Sets what each connection of the host has here.
///
/// # Errors
/// Those of `setsockopt(2)`.
pub fn prepare(socket: &SockRef<'_>) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    // When and how often is the host's setting.
    socket.set_keepalive(true)?;
    // Urgent data is in line on both sides of a relay, and no byte is lost (RFC 6093 §6).
    socket.set_out_of_band_inline(true)?;
    socket.set_tcp_notsent_lowat(NOTSENT_LOWAT)
}

/// A socket for datagrams at this address, which does not block, and which hands out TOS and ICMP errors.
///
/// # Errors
/// Those of `socket(2)` and `bind(2)`.
pub fn datagrams(at: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(at), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    icmp_errors::ask(&socket, at.is_ipv4())?;
    if at.is_ipv4() {
        socket.set_recv_tos_v4(true)?;
    } else {
        socket.set_only_v6(true)?;
        socket.set_recv_tclass_v6(true)?;
    }
    socket.bind(&at.into())?;
    Ok(socket)
}

/// A socket for pings to this address, which does not block, and which hands out ICMP errors.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] if this host does not let this user ping; those of `socket(2)`.
pub fn pings(to: IpAddr) -> io::Result<Socket> {
    let socket = ping_socket(to)?;
    connect_pings(&socket, to)?;
    Ok(socket)
}

pub(crate) fn connect_pings(socket: &Socket, to: IpAddr) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    icmp_errors::ask(socket, to.is_ipv4())?;
    socket.connect(&SocketAddr::new(to, 0).into())
}

pub(crate) fn ping_socket(to: IpAddr) -> io::Result<Socket> {
    let protocol = if to.is_ipv4() { Protocol::ICMPV4 } else { Protocol::ICMPV6 };
    Socket::new(Domain::for_address(SocketAddr::new(to, 0)), Type::DGRAM, Some(protocol))
}

/// An echo request for a socket of [`pings`]: the kernel writes the checksum and the identifier.
#[must_use]
pub fn echo_request(is_v4: bool, seq: u16, data: &[u8]) -> Vec<u8> {
    let [high, low] = seq.to_be_bytes();
    let mut message = Vec::with_capacity(ECHO_HEADER + data.len());
    message.extend_from_slice(&[if is_v4 { 8 } else { 128 }, 0, 0, 0, 0, 0, high, low]);
    message.extend_from_slice(data);
    message
}

/// The rate of a connection and its round trip, where the kernel has them.
#[must_use]
pub fn path(stream: &impl AsFd) -> Option<Path> {
    host_sockets::path(&tcp_info(stream).ok()?)
}

/// Room for the control message of a TOS or a traffic class.
#[repr(align(8))]
struct Control([u8; 64]);

/// The sender of a datagram that has none.
const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Receives a datagram.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`], or an error that ICMP reported, about a datagram to anybody.
pub fn receive(socket: &impl AsRawFd, into: &mut [u8]) -> io::Result<Arrived> {
    let mut control = Control([0; 64]);
    let (mut pieces, control) = ([IoSliceMut::new(into)], Some(&mut control.0[..]));
    let message = recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut pieces, control, MsgFlags::empty())?;
    let tos = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::Ipv4Tos(tos) => Some(tos),
        ControlMessageOwned::Ipv6TClass(class) => Some(class as u8),
        _ => None,
    });
    let from = message.address.and_then(address).unwrap_or(NOBODY);
    Ok(Arrived { len: message.bytes, from, tos: tos.unwrap_or(0) })
}

/// An address of the kernel's. A link-local one's scope is not part of what a guest can name.
pub(crate) fn address(of: SockaddrStorage) -> Option<SocketAddr> {
    let v4 = of.as_sockaddr_in().map(|v4| SocketAddr::new(v4.ip().into(), v4.port()));
    v4.or_else(|| of.as_sockaddr_in6().map(|v6| SocketAddr::new(v6.ip().into(), v6.port())))
}

/// Sends a datagram; with `segment`, several of this length by one call, the last one possibly shorter.
///
/// # Errors
/// Those of [`receive`].
pub fn send<S: AsFd + AsRawFd>(
    socket: &S,
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
