//! The answer to a flow that the application refuses: a reset, or an ICMP error about its SYN.
//! RFC 9293 §3.10.7.1, RFC 792, RFC 4443 §3.1. Called by the stack; the answer leaves with its replies.

use alloc::vec::Vec;
use core::net::IpAddr;

use taut_wire::{Ecn, IpHeader, TcpHeader, Unreachable, icmp, protocol, tcp};

use crate::words::Tuple;

/// How a flow is refused. What a kernel's `connect` reports then is in parentheses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A reset, as of a port where nothing listens (`ECONNREFUSED`). To a flow of datagrams, ICMP port unreachable.
    Reset,
    /// ICMP port unreachable, from the flow's destination (`ECONNREFUSED`).
    PortUnreachable,
    /// ICMP host unreachable (`EHOSTUNREACH`).
    HostUnreachable,
    /// ICMP network unreachable (`ENETUNREACH`).
    NetworkUnreachable,
    /// ICMP administratively prohibited (`EHOSTUNREACH`, with IPv6 `EACCES`).
    Prohibited,
}

impl Refusal {
    /// The reason in an ICMP error; none for a reset.
    pub(crate) const fn unreachable(self) -> Option<Unreachable> {
        match self {
            Self::Reset => None,
            Self::PortUnreachable => Some(Unreachable::Port),
            Self::HostUnreachable => Some(Unreachable::Host),
            Self::NetworkUnreachable => Some(Unreachable::Network),
            Self::Prohibited => Some(Unreachable::Prohibited),
        }
    }
}

/// An ICMP error from `src` to the peer of a flow, about its SYN, as a whole packet. The SYN is quoted as far as it was
/// remembered: addresses, ports, numbers and options.
pub(crate) fn icmp_error(src: IpAddr, tuple: &Tuple, syn: &TcpHeader, code: Unreachable) -> Vec<u8> {
    let (peer, local) = (tuple.peer.ip(), tuple.local.ip());
    let is_v4 = peer.is_ipv4();
    let header_len = if is_v4 { 20 } else { 40 };
    let segment_len = syn.header_len();
    let header = |src, dst, protocol, payload_len| IpHeader {
        src,
        dst,
        protocol,
        hop_limit: 64,
        ecn: Ecn::NotEct,
        header_len,
        payload_len,
    };
    let mut quoted = alloc::vec![0; header_len + segment_len];
    header(peer, local, protocol::TCP, segment_len).emit(&mut quoted, 0);
    syn.emit(&mut quoted[header_len..]);
    let checksum = tcp::full_checksum(peer, local, &quoted[header_len..], &[]);
    tcp::set_checksum(&mut quoted[header_len..], checksum);

    let own = if is_v4 { protocol::ICMP } else { protocol::ICMPV6 };
    let mut packet = alloc::vec![0; header_len + icmp::HEADER_LEN + quoted.len()];
    let len = icmp::emit_unreachable(&mut packet[header_len..], src, peer, code, &quoted);
    header(src, peer, own, len).emit(&mut packet, 0);
    packet
}
