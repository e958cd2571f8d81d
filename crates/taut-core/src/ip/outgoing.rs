//! The IP header of each outgoing packet, written once and never patched afterwards.
//! RFC 791 §3.1, RFC 8200 §3, fragments §4.5. Called by whatever makes a packet.

use alloc::vec::Vec;
use core::net::IpAddr;

use taut_wire::{Ecn, IpHeader, fragment, protocol};

/// The hop limit of outgoing packets by default: `ip_default_ttl`.
pub(crate) const HOP_LIMIT: u8 = 64;

/// The fields of an outgoing IP header, except its length. The flow label of IPv6 is always zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IpOut {
    pub(crate) src: IpAddr,
    /// The destination, of the same family as `src`.
    pub(crate) dst: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) hop_limit: u8,
    /// The whole TOS byte or traffic class: DSCP and ECN.
    pub(crate) class: u8,
}

impl IpOut {
    pub(crate) const fn tcp(src: IpAddr, dst: IpAddr, hop_limit: u8, class: u8) -> Self {
        Self { src, dst, protocol: protocol::TCP, hop_limit, class }
    }

    /// Of ICMP in the version of the addresses.
    pub(crate) const fn icmp(src: IpAddr, dst: IpAddr, hop_limit: u8) -> Self {
        let protocol = if src.is_ipv4() { protocol::ICMP } else { protocol::ICMPV6 };
        Self { src, dst, protocol, hop_limit, class: 0 }
    }

    #[inline(always)]
    const fn header(&self, payload_len: usize) -> IpHeader {
        let Self { src, dst, protocol, hop_limit, .. } = *self;
        IpHeader { src, dst, protocol, hop_limit, ecn: Ecn::NotEct, header_len: 0, payload_len }
    }

    /// The header of a packet that is never fragmented (RFC 6864 §4.1). Returns its length.
    #[inline(always)]
    pub(crate) fn emit(&self, buf: &mut [u8], payload_len: usize) -> usize {
        const DONT_FRAGMENT: u16 = 0x4000;
        self.header(payload_len).emit_as(buf, self.class, 0, DONT_FRAGMENT)
    }

    /// The header of a packet that routers may fragment, if it is one of IPv4.
    pub(crate) fn emit_fragmentable(&self, buf: &mut [u8], payload_len: usize, ident: u16) -> usize {
        self.header(payload_len).emit_as(buf, self.class, ident, 0)
    }

    /// The headers of a fragment whose data begins at `offset`.
    pub(crate) fn emit_fragment(
        &self,
        buf: &mut [u8],
        payload_len: usize,
        ident: u32,
        (offset, more): (usize, bool),
    ) -> usize {
        fragment::emit_as(&self.header(payload_len), buf, self.class, ident, offset, more)
    }

    /// The length of the header of a packet that is no fragment.
    pub(crate) const fn header_len(&self) -> usize {
        self.header(0).emitted_len()
    }

    /// A whole packet, for which `write` writes at most `room` bytes behind the header and returns how many.
    pub(crate) fn packet(&self, room: usize, write: impl FnOnce(&mut [u8]) -> usize) -> Vec<u8> {
        let at = self.header_len();
        let mut packet = alloc::vec![0; at + room];
        let payload_len = write(&mut packet[at..]);
        packet.truncate(at + payload_len);
        self.emit(&mut packet, payload_len);
        packet
    }
}
