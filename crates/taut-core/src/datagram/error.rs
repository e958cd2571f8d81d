//! Errors of datagram sockets, and what ICMP messages mean to them.
//! Origin: Linux's tables `icmp_err_convert` (IPv4) and `icmpv6_err_convert`; RFC 1122 §4.1.3.3.
//!
//! **Rule.** A *hard* error ends what the socket tries, such as "no such port": a connected socket gets it
//! from its next call. A *soft* one, such as "no route", may pass, and is not reported. A socket that asked
//! for `IP_RECVERR` gets all of them, connected or not. A socket that is not connected gets none otherwise:
//! it would not know which of its peers is meant.

use core::net::{IpAddr, SocketAddr};

use thiserror::Error;

/// Why a call on a datagram socket failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DatagramError {
    /// Nothing to receive, or no room to send; an event follows.
    #[error("not now")]
    WouldBlock,
    /// There is no such socket.
    #[error("the socket is closed")]
    Closed,
    /// No address was given, and the socket is not connected: EDESTADDRREQ.
    #[error("destination address required")]
    NoDestination,
    /// The datagram is larger than the protocol or the path allows: EMSGSIZE.
    #[error("message too long")]
    TooLong,
    /// The stack has no address of the peer's family, or does not have the source address.
    #[error("address not available")]
    AddrNotAvailable,
    /// No datagram can be sent to this address.
    #[error("invalid peer address")]
    InvalidPeer,
    /// The message or its ancillary data make no sense: EINVAL.
    #[error("invalid argument")]
    Invalid,
    /// ICMP says that no socket is at the peer's port: ECONNREFUSED.
    #[error("connection refused")]
    Refused,
    /// ICMP says that the host cannot be reached: EHOSTUNREACH.
    #[error("host unreachable")]
    HostUnreachable,
    /// ICMP says that the network cannot be reached: ENETUNREACH.
    #[error("network unreachable")]
    NetworkUnreachable,
    /// ICMP says that the host does not speak the protocol: ENOPROTOOPT.
    #[error("protocol not available")]
    NoProtocol,
    /// ICMP says that a header made no sense: EPROTO.
    #[error("protocol error")]
    Protocol,
    /// ICMP says that this is forbidden: EACCES.
    #[error("permission denied")]
    Denied,
    /// On a flow that came in, nothing was sent or received for too long: ETIMEDOUT. It is over.
    #[error("the flow was idle for too long")]
    TimedOut,
    /// The socket, or all of them, have joined as many groups as may be: ENOBUFS.
    #[error("too many groups")]
    TooManyGroups,
}

/// An ICMP error about a datagram that was sent. Linux: `struct sock_extended_err`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IcmpReport {
    /// What it means.
    pub error: DatagramError,
    /// Who sent it.
    pub router: IpAddr,
    /// Its type, in the numbers of the version.
    pub kind: u8,
    /// Its code.
    pub code: u8,
    /// Where the datagram was to go.
    pub to: SocketAddr,
    /// The MTU that it tells, if it is about one; else 0.
    pub mtu: u32,
}

/// What an ICMP message means to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) error: DatagramError,
    pub(crate) is_hard: bool,
}

/// The meaning of an error message, by its type and code; `None` if it is no error.
pub(crate) const fn told(is_v4: bool, kind: u8, code: u8) -> Option<Told> {
    use DatagramError as E;
    let (error, is_hard) = if is_v4 {
        match (kind, code) {
            (3, 0 | 11) => (E::NetworkUnreachable, false),
            (3, 6 | 9) => (E::NetworkUnreachable, true),
            (3, 1 | 5 | 12) | (11, _) => (E::HostUnreachable, false),
            (3, 2) => (E::NoProtocol, true),
            (3, 3) => (E::Refused, true),
            (3, 4) => (E::TooLong, true),
            (3, _) => (E::HostUnreachable, true),
            (12, _) => (E::Protocol, true),
            _ => return None,
        }
    } else {
        match (kind, code) {
            (1, 0) => (E::NetworkUnreachable, false),
            (1, 1 | 5 | 6) => (E::Denied, true),
            (1, 4) => (E::Refused, true),
            (1, _) | (3, _) => (E::HostUnreachable, false),
            (2, _) => (E::TooLong, true),
            (4, _) => (E::Protocol, true),
            _ => return None,
        }
    };
    Some(Told { error, is_hard })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1122 §4.2.3.9 calls the same ones soft for TCP: network, host and source-route unreachable.
    #[test]
    fn udp_14_hard_and_soft_errors() {
        let hard = |is_v4, kind, code| told(is_v4, kind, code).map(|told| told.is_hard);
        for code in [0, 1, 5, 11, 12] {
            assert_eq!(hard(true, 3, code), Some(false), "IPv4 code {code}");
        }
        for code in [2, 3, 4, 6, 7, 8, 9, 10, 13] {
            assert_eq!(hard(true, 3, code), Some(true), "IPv4 code {code}");
        }
        assert_eq!((hard(true, 11, 0), hard(true, 12, 0)), (Some(false), Some(true)));
        assert_eq!((hard(true, 0, 0), hard(true, 8, 0)), (None, None));
        for (kind, code, is_hard) in [
            (1, 0, false),
            (1, 1, true),
            (1, 3, false),
            (1, 4, true),
            (2, 0, true),
            (3, 0, false),
            (4, 1, true),
        ] {
            assert_eq!(hard(false, kind, code), Some(is_hard), "IPv6 {kind}/{code}");
        }
        assert_eq!(told(true, 3, 3).unwrap().error, DatagramError::Refused);
        assert_eq!(told(false, 1, 4).unwrap().error, DatagramError::Refused);
    }
}
