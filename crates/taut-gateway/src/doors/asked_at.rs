//! At which of this host's addresses a datagram arrived, and an answer from there: a socket that is bound to
//! all addresses would answer from the one that the route has (ip(7), ipv6(7): `IP_PKTINFO`).

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd as _};

use nix::sys::socket::sockopt::{Ipv4PacketInfo, Ipv6RecvPacketInfo};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt,
};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Has the kernel say where datagrams arrive.
pub(crate) fn ask(socket: &impl AsFd, is_v4: bool) -> io::Result<()> {
    let set = if is_v4 {
        setsockopt(socket, Ipv4PacketInfo, &true)
    } else {
        setsockopt(socket, Ipv6RecvPacketInfo, &true)
    };
    Ok(set?)
}

/// A datagram: its length, from where it comes, and at which address it arrived.
pub(crate) async fn receive(socket: &UdpSocket, into: &mut [u8]) -> io::Result<(usize, SocketAddr, IpAddr)> {
    socket.async_io(Interest::READABLE, || try_receive(socket, into)).await
}

fn try_receive(socket: &UdpSocket, into: &mut [u8]) -> io::Result<(usize, SocketAddr, IpAddr)> {
    let mut space = nix::cmsg_space!(libc::in6_pktinfo);
    let mut pieces = [IoSliceMut::new(into)];
    let fd = socket.as_raw_fd();
    let message = recvmsg::<SockaddrStorage>(fd, &mut pieces, Some(&mut space), MsgFlags::empty())?;
    let from = message.address.and_then(|from| {
        let v4 = from.as_sockaddr_in().map(|from| SocketAddr::V4((*from).into()));
        v4.or_else(|| from.as_sockaddr_in6().map(|from| SocketAddr::V6((*from).into())))
    });
    let at = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::Ipv4PacketInfo(info) => {
            Some(Ipv4Addr::from(u32::from_be(info.ipi_spec_dst.s_addr)).into())
        }
        ControlMessageOwned::Ipv6PacketInfo(info) => Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into()),
        _ => None,
    });
    let (from, at) = from.zip(at).ok_or(io::ErrorKind::InvalidData)?;
    Ok((message.bytes, from, at))
}

/// Sends from this address of the host.
pub(crate) fn send(socket: &UdpSocket, message: &[u8], to: SocketAddr, from: IpAddr) -> io::Result<usize> {
    let pieces = [IoSlice::new(message)];
    let send = |control| {
        let (fd, to) = (socket.as_raw_fd(), SockaddrStorage::from(to));
        Ok(sendmsg(fd, &pieces, &[control], MsgFlags::empty(), Some(&to))?)
    };
    match from {
        IpAddr::V4(from) => {
            let (any, from) =
                (libc::in_addr { s_addr: 0 }, libc::in_addr { s_addr: u32::from(from).to_be() });
            send(ControlMessage::Ipv4PacketInfo(&libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: from,
                ipi_addr: any,
            }))
        }
        IpAddr::V6(from) => send(ControlMessage::Ipv6PacketInfo(&libc::in6_pktinfo {
            ipi6_addr: libc::in6_addr { s6_addr: from.octets() },
            ipi6_ifindex: 0,
        })),
    }
}
