//! The answer to a flow that the application refuses: a reset, or an ICMP error about its SYN.
//! RFC 9293 §3.10.7.1, RFC 792, RFC 4443 §3.1. Called by the stack; the answer leaves with its replies.

use alloc::vec::Vec;
use core::net::IpAddr;

use taut_wire::icmp::Trouble;
use taut_wire::{TcpHeader, Unreachable, icmp, tcp};

use crate::ip::outgoing::{HOP_LIMIT, IpOut};
use crate::words::Tuple;

/// How a flow is refused, or what its datagrams came to. What a kernel's `connect` reports then is in
/// parentheses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A reset, as of a port where nothing listens (`ECONNREFUSED`). To a flow of datagrams, ICMP port
    /// unreachable.
    Reset,
    /// ICMP port unreachable, from the flow's destination (`ECONNREFUSED`).
    PortUnreachable,
    /// ICMP host unreachable (`EHOSTUNREACH`).
    HostUnreachable,
    /// ICMP network unreachable (`ENETUNREACH`).
    NetworkUnreachable,
    /// ICMP administratively prohibited (`EHOSTUNREACH`, with IPv6 `EACCES`).
    Prohibited,
    /// ICMP fragmentation needed, with IPv6 packet too big (`EMSGSIZE`), as a gateway hears it from beyond.
    TooBig {
        /// The largest packet that passes, its IP header included.
        mtu: u32,
    },
    /// ICMP time exceeded in transit (`EHOSTUNREACH`), as a gateway hears it from beyond.
    TimeExceeded,
}

impl Refusal {
    /// Writes the ICMP error from `src` about the packet `quoted` into `buf`, and returns its length. Nobody
    /// can reset what is no connection: that is an unreachable port.
    pub(crate) fn emit(self, buf: &mut [u8], src: IpAddr, dst: IpAddr, quoted: &[u8]) -> usize {
        let code = match self {
            Self::Reset | Self::PortUnreachable => Unreachable::Port,
            Self::HostUnreachable => Unreachable::Host,
            Self::NetworkUnreachable => Unreachable::Network,
            Self::Prohibited => Unreachable::Prohibited,
            Self::TooBig { mtu } => Unreachable::FragmentationNeeded { mtu },
            Self::TimeExceeded => return icmp::emit_trouble(buf, src, dst, Trouble::HopLimit, quoted),
        };
        icmp::emit_unreachable(buf, src, dst, code, quoted)
    }
}

/// An ICMP error from `src` to the peer of a flow, about its SYN, as a whole packet. The SYN is quoted as far
/// as it was remembered: addresses, ports, numbers and options.
pub(crate) fn icmp_error(
    (src, hop_limit): (IpAddr, u8),
    tuple: &Tuple,
    syn: &TcpHeader,
    how: Refusal,
) -> Vec<u8> {
    let (peer, local) = (tuple.peer.ip(), tuple.local.ip());
    let quoted = IpOut::tcp(peer, local, HOP_LIMIT, 0).packet(syn.header_len(), |segment| {
        let len = syn.emit(segment);
        let checksum = tcp::full_checksum(peer, local, segment, &[]);
        tcp::set_checksum(segment, checksum);
        len
    });
    let room = icmp::HEADER_LEN + quoted.len();
    IpOut::icmp(src, peer, hop_limit).packet(room, |message| how.emit(message, src, peer, &quoted))
}
