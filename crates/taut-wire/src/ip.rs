//! The IP header of either version, as one value.
//!
//! IPv4 is RFC 791 in `ip/v4.rs`, IPv6 is RFC 8200 in `ip/v6.rs`; the layers above see [`IpHeader`] and do
//! not ask which version it is. Options and skippable extension headers are counted in `header_len` and
//! otherwise ignored.

mod v4;
mod v6;

#[cfg(test)]
mod tests;

use crate::ParseError;
use core::net::IpAddr;

pub use v4::HEADER_LEN as V4_HEADER_LEN;
pub use v6::HEADER_LEN as V6_HEADER_LEN;

/// Upper-layer protocol numbers (IANA "Protocol Numbers").
pub mod protocol {
    /// ICMP for IPv4 (RFC 792).
    pub const ICMP: u8 = 1;
    /// TCP (RFC 9293).
    pub const TCP: u8 = 6;
    /// UDP (RFC 768).
    pub const UDP: u8 = 17;
    /// ICMP for IPv6 (RFC 4443).
    pub const ICMPV6: u8 = 58;
}

/// The ECN field: the low two bits of the IPv4 TOS byte or the IPv6 traffic class (RFC 3168 §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// The transport does not use ECN.
    #[default]
    NotEct = 0b00,
    /// ECN-capable, and asking for L4S treatment (RFC 9331 §4.1).
    Ect1 = 0b01,
    /// ECN-capable.
    Ect0 = 0b10,
    /// Congestion was experienced on the path.
    Ce = 0b11,
}

impl Ecn {
    /// From the low two bits of `bits`; the others, the DSCP, are ignored.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u8) -> Ecn {
        match bits & 0b11 {
            0b00 => Ecn::NotEct,
            0b01 => Ecn::Ect1,
            0b10 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }

    /// The two bits on the wire.
    #[inline]
    #[must_use]
    pub const fn to_bits(self) -> u8 {
        self as u8
    }
}

/// The parts of an IPv4 or IPv6 header that the upper layers need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpHeader {
    /// Source address.
    pub src: IpAddr,
    /// Destination address, of the same family as `src`.
    pub dst: IpAddr,
    /// The upper-layer protocol, after any extension headers. See [`protocol`].
    pub protocol: u8,
    /// IPv4 TTL or IPv6 hop limit.
    pub hop_limit: u8,
    /// ECN field.
    pub ecn: Ecn,
    /// Bytes from the start of the packet to the upper layer, options and extension headers included. Set by
    /// parsing; [`emit`](IpHeader::emit) writes no options and ignores it.
    pub header_len: usize,
    /// Bytes of the upper layer by the IP length field; the slice may hold padding beyond it.
    pub payload_len: usize,
}

impl IpHeader {
    /// Parses a whole packet. Bytes past the length in the header are link padding and are not counted.
    ///
    /// # Errors
    /// [`ParseError`]; [`ParseError::Truncated`] also when the packet is shorter than its length field.
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<IpHeader, ParseError> {
        IpHeader::parse_prefix(packet, packet.len())
    }

    /// Parses a packet of `total` bytes of which `head` is the beginning, holding at least all IP headers,
    /// when the payload lies in another buffer.
    ///
    /// # Errors
    /// As [`parse`](IpHeader::parse).
    #[inline]
    pub fn parse_prefix(head: &[u8], total: usize) -> Result<IpHeader, ParseError> {
        match head.first().map(|first| first >> 4) {
            Some(4) => v4::parse(head, Whole::Yes { total }),
            Some(6) => v6::parse(head, Whole::Yes { total }),
            Some(_) => Err(ParseError::Version),
            None => Err(ParseError::Truncated),
        }
    }

    /// Parses a packet quoted in an ICMP error: cut anywhere, and changed by routers on its way.
    pub(crate) fn parse_quoted(packet: &[u8]) -> Result<IpHeader, ParseError> {
        match packet.first().map(|first| first >> 4) {
            Some(4) => v4::parse(packet, Whole::Quoted),
            Some(6) => v6::parse(packet, Whole::Quoted),
            Some(_) => Err(ParseError::Version),
            None => Err(ParseError::Truncated),
        }
    }

    /// The length [`emit`](IpHeader::emit) writes: 20 for IPv4, 40 for IPv6.
    #[inline]
    #[must_use]
    pub const fn emitted_len(&self) -> usize {
        match (self.src, self.dst) {
            (IpAddr::V4(_), IpAddr::V4(_)) => V4_HEADER_LEN,
            _ => V6_HEADER_LEN,
        }
    }

    /// Writes the header to the start of `buf` and returns its length. IPv4 gets DF (RFC 1191 §3),
    /// `identification` and its header checksum; IPv6 has no identification. DSCP and flow label are zero.
    ///
    /// A `payload_len` too large for the 16-bit length field is written as a length of zero, as jumbograms
    /// are. If only one address is IPv4 it is written IPv4-mapped, in an IPv6 header.
    ///
    /// # Panics
    /// If `buf` is shorter than [`emitted_len`](IpHeader::emitted_len).
    #[inline]
    pub fn emit(&self, buf: &mut [u8], identification: u16) -> usize {
        self.emit_as(buf, self.ecn.to_bits(), identification, v4::DONT_FRAGMENT)
    }

    /// The same with `class` as the whole TOS byte or traffic class, in place of [`ecn`](Self::ecn), and with
    /// `place` as the flags and the fragment offset of IPv4.
    ///
    /// # Panics
    /// As [`emit`](Self::emit).
    #[inline]
    pub fn emit_as(&self, buf: &mut [u8], class: u8, identification: u16, place: u16) -> usize {
        match (&self.src, &self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                v4::emit(self, (*src, *dst), class, (identification, place), buf)
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => v6::emit(self, (src, dst), class, buf),
            (src, dst) => v6::emit(self, (&to_v6(*src), &to_v6(*dst)), class, buf),
        }
    }
}

/// Whether the bytes are a packet as received.
#[derive(Clone, Copy)]
enum Whole {
    /// Yes, of `total` bytes; its lengths and checksum must be right.
    Yes { total: usize },
    /// An excerpt. RFC 1812 §4.3.2.3: it may be cut anywhere, and its checksum may be stale.
    Quoted,
}

fn to_v6(address: IpAddr) -> core::net::Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}
