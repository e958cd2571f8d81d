//! Reports of the network about sent datagrams: that one was too big for the path. RFC 1191, RFC 8201; ip(7),
//! `IP_RECVERR`. Called by the device when its socket has an error.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;

use nix::cmsg_space;
use nix::libc::{EMSGSIZE, sock_extended_err};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt};

/// Errors that are taken at once: a flood of them must not hold up packets.
const AT_ONCE: usize = 64;

/// An error, with the address of the router that reported it.
type Errors = (sock_extended_err, [u8; 28]);

/// From now on the socket's queue has all errors.
pub(crate) fn ask(socket: &UdpSocket, is_v6: bool) -> io::Result<()> {
    // A socket of IPv6 carries IPv4, too.
    setsockopt(socket, sockopt::Ipv4RecvErr, &true)?;
    if is_v6 {
        setsockopt(socket, sockopt::Ipv6RecvErr, &true)?;
    }
    Ok(())
}

/// Takes the errors that wait, and calls `too_big` with the destination and the path's MTU of each that says
/// so.
pub(crate) fn take(socket: &UdpSocket, mut too_big: impl FnMut(SocketAddr, u32)) {
    for found in (0..AT_ONCE).map_while(|_| next(socket).ok()) {
        if let Some((to, error)) = found
            && error.ee_errno == EMSGSIZE as u32
        {
            too_big(to, error.ee_info);
        }
    }
}

fn next(socket: &UdpSocket) -> nix::Result<Option<(SocketAddr, sock_extended_err)>> {
    // The datagram itself is of no use.
    let (mut data, mut control) = ([0; 1], cmsg_space!(Errors, Errors));
    let mut pieces = [IoSliceMut::new(&mut data)];
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    let message = recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut pieces, Some(&mut control), flags)?;
    let to = message.address.and_then(|address| {
        let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::V4((*v4).into()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddr::V6((*v6).into())))
    });
    let found = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::Ipv4RecvErr(error, _) | ControlMessageOwned::Ipv6RecvErr(error, _) => {
            Some(error)
        }
        _ => None,
    });
    Ok(to.zip(found))
}
