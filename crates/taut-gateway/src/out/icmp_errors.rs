//! ICMP errors from beyond about a guest's datagrams: what they mean for it, and how the host's kernel hands
//! them out. RFC 792, RFC 1191, RFC 1812 §5.2.7.1, RFC 4443 §3; ip(7), `IP_RECVERR`. Called by the ways out.
//!
//! A kernel tells a socket of its own accord only what it takes for final, such as an unreachable port. A
//! socket that asks hears all of it: the error of the next call is one of them, and a queue has each with
//! type, code and MTU.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use nix::cmsg_space;
use nix::libc::{EMSGSIZE, sock_extended_err};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt};
use taut::Refusal;

use crate::out::{sockets, way_out};

/// `SO_EE_ORIGIN_LOCAL`, `SO_EE_ORIGIN_ICMP`, `SO_EE_ORIGIN_ICMP6`.
const LOCAL: u8 = 1;
const ICMP: u8 = 2;

/// An address, and an error with the address of the router that reported it.
type Errors = (sock_extended_err, [u8; 28]);

/// From now on the socket's queue has all errors.
pub(crate) fn ask(socket: &impl AsFd, is_v4: bool) -> io::Result<()> {
    let asked = if is_v4 {
        setsockopt(socket, sockopt::Ipv4RecvErr, &true)
    } else {
        setsockopt(socket, sockopt::Ipv6RecvErr, &true)
    };
    Ok(asked?)
}

/// Errors that are taken at once: a flood of them must not hold up other flows.
const AT_ONCE: usize = 64;

/// Takes what is in the queue, each with the destination of the datagram that it is about, and returns
/// whether there was anything.
pub fn hear(socket: &impl AsRawFd, tell: &mut dyn FnMut(SocketAddr, Refusal)) -> bool {
    let mut is_told = false;
    for error in (0..AT_ONCE).map_while(|_| next(socket).ok()) {
        is_told = true;
        if let Some((to, error)) = error
            && let Some(how) = of_kernel(error)
        {
            tell(to, how);
        }
    }
    is_told
}

/// The next error of the queue; `None` for what is none.
fn next(socket: &impl AsRawFd) -> nix::Result<Option<(SocketAddr, sock_extended_err)>> {
    // The datagram itself is of no use.
    let (mut data, mut control) = ([0; 1], cmsg_space!(Errors, Errors));
    let mut pieces = [IoSliceMut::new(&mut data)];
    let flags = MsgFlags::MSG_ERRQUEUE;
    let message = recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut pieces, Some(&mut control), flags)?;
    let to = message.address.and_then(sockets::address);
    let found = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::Ipv4RecvErr(error, _) | ControlMessageOwned::Ipv6RecvErr(error, _) => {
            Some(error)
        }
        _ => None,
    });
    Ok(to.zip(found))
}

fn of_kernel(error: sock_extended_err) -> Option<Refusal> {
    match error.ee_origin {
        LOCAL if error.ee_errno == EMSGSIZE as u32 => Some(Refusal::TooBig { mtu: error.ee_info }),
        LOCAL => way_out::refusal(&io::Error::from_raw_os_error(error.ee_errno as i32)),
        origin => meaning(origin == ICMP, error.ee_type, error.ee_code, error.ee_info),
    }
}

/// What an ICMP error means to the guest whose datagram it is about; `None` for what the guest cannot do
/// anything about: the gateway's own headers are wrong, or a fragment was lost.
pub(crate) const fn meaning(is_v4: bool, kind: u8, code: u8, mtu: u32) -> Option<Refusal> {
    Some(match (is_v4, kind, code) {
        (true, 3, 0 | 6 | 11) | (false, 1, 0) => Refusal::NetworkUnreachable,
        (true, 3, 9 | 10 | 13..=15) | (false, 1, 1 | 5 | 6) => Refusal::Prohibited,
        // Nobody speaks UDP there: the guest is told of a port, as a kernel tells a program.
        (true, 3, 2 | 3) | (false, 1, 4) | (false, 4, 1) => Refusal::PortUnreachable,
        (true, 3, 4) | (false, 2, _) => Refusal::TooBig { mtu },
        (true, 3, _) | (false, 1, _) => Refusal::HostUnreachable,
        (true, 11, 0) | (false, 3, 0) => Refusal::TimeExceeded,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    /// A datagram that is too long for any packet is an error of this kernel's own, which no limit of ICMP's
    /// holds back.
    #[test]
    fn gw_92_a_flood_of_errors_is_taken_in_turns() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(socket.local_addr().unwrap()).unwrap();
        ask(&socket, true).unwrap();
        for _ in 0..100 {
            assert_eq!(socket.send(&[0; 65_520]).unwrap_err().raw_os_error(), Some(EMSGSIZE));
        }
        let mut told = Vec::new();
        let mut turn = || {
            let is_told = hear(&socket, &mut |_, how| told.push(how));
            (is_told, std::mem::take(&mut told).len())
        };
        assert_eq!([turn(), turn(), turn()], [(true, 64), (true, 36), (false, 0)]);
    }

    #[test]
    fn gw_81_each_type_and_code_has_its_meaning() {
        use Refusal as R;
        // RFC 792, RFC 1812 §5.2.7.1, RFC 1191: codes of type 3.
        let of_v4: Vec<Option<Refusal>> = (0..=16).map(|code| meaning(true, 3, code, 1_400)).collect();
        let (net, host, no) = (Some(R::NetworkUnreachable), Some(R::HostUnreachable), Some(R::Prohibited));
        let (port, big) = (Some(R::PortUnreachable), Some(R::TooBig { mtu: 1_400 }));
        let expected =
            [net, host, port, port, big, host, net, host, host, no, no, net, host, no, no, no, host];
        assert_eq!(of_v4, expected);
        // RFC 4443 §3.1: codes of type 1.
        let of_v6: Vec<Option<Refusal>> = (0..=7).map(|code| meaning(false, 1, code, 0)).collect();
        assert_eq!(of_v6, [net, no, host, host, port, no, no, host]);
        assert_eq!(meaning(false, 2, 0, 1_280), Some(R::TooBig { mtu: 1_280 }));
        // Hops; not fragments, and not what the gateway itself wrote.
        for (is_v4, kind) in [(true, 11), (false, 3)] {
            assert_eq!(meaning(is_v4, kind, 0, 0), Some(R::TimeExceeded));
            assert_eq!(meaning(is_v4, kind, 1, 0), None);
        }
        assert_eq!((meaning(true, 12, 0, 0), meaning(false, 4, 0, 0)), (None, None));
        // No error: an echo reply, a redirect.
        assert_eq!((meaning(true, 0, 0, 0), meaning(true, 5, 0, 0)), (None, None));
    }
}
