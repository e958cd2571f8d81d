//! Fragments of IPv4 (RFC 791 §3.2) and IPv6 (RFC 8200 §4.5): which part of which packet one is, the header
//! of the packet that they make together, and the headers of fragments that are sent.
//!
//! The two versions differ in where this stands and in how long an identification is. A fragment of either is
//! one value here, [`Fragment`].

use core::net::IpAddr;
use core::ops::Range;

use crate::ip::{V4_HEADER_LEN, V6_HEADER_LEN};
use crate::{Ecn, IpHeader, ParseError, Sum};

const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

/// IPv6's fragment header.
pub const V6_FRAGMENT_LEN: usize = 8;

/// The longest headers in front of a packet's fragments that are accepted: IPv4 has at most 60 bytes, and an
/// IPv6 packet that is fragmented has hardly ever an extension header before that of its fragments.
pub const UNFRAGMENTABLE_MAX: usize = 128;

/// One part of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Source address.
    pub src: IpAddr,
    /// Destination address, of the same family.
    pub dst: IpAddr,
    /// What the whole packet carries. In IPv6, that of the first fragment counts.
    pub protocol: u8,
    /// Common to all fragments of a packet; 16 bits in IPv4.
    pub ident: u32,
    /// Where the data is in the packet, in bytes; a multiple of eight.
    pub offset: usize,
    /// Whether data follows in further fragments.
    pub more: bool,
    /// ECN field.
    pub ecn: Ecn,
    /// Bytes of headers in front, which the whole packet has, too: without IPv6's fragment header.
    pub header_len: usize,
    /// The data, as a range of the fragment's bytes.
    pub data: Range<usize>,
    /// Where an IPv6 packet says which header follows its headers.
    next_at: usize,
}

impl Fragment {
    /// Parses a fragment from its IP header on.
    ///
    /// # Errors
    /// [`ParseError`]; [`ParseError::Unsupported`] for a packet that is no fragment.
    pub fn parse(packet: &[u8]) -> Result<Fragment, ParseError> {
        match packet.first().map(|first| first >> 4) {
            Some(4) => parse_v4(packet),
            Some(6) => parse_v6(packet),
            Some(_) => Err(ParseError::Version),
            None => Err(ParseError::Truncated),
        }
    }

    /// Whether it has the start of the packet.
    #[must_use]
    pub const fn is_first(&self) -> bool {
        self.offset == 0
    }

    /// Where its data ends in the packet.
    #[must_use]
    pub const fn end(&self) -> usize {
        self.offset + (self.data.end - self.data.start)
    }

    /// Whether the data of all but the last fragment may have this length (RFC 8200 §4.5: else discarded).
    #[must_use]
    pub const fn has_valid_len(&self) -> bool {
        !self.more || (self.data.end - self.data.start).is_multiple_of(8)
    }

    /// Writes the headers of the whole packet, of which `first` is the first fragment and this its value;
    /// `len` is the length of all data. Returns their length, [`header_len`](Self::header_len).
    ///
    /// # Panics
    /// If `buf` is shorter than that, or `first` is not this fragment.
    pub fn emit_whole(&self, first: &[u8], buf: &mut [u8], len: usize, ecn: Ecn) -> usize {
        let buf = &mut buf[..self.header_len];
        buf.copy_from_slice(&first[..self.header_len]);
        if self.src.is_ipv4() {
            let total = u16::try_from(self.header_len + len).unwrap_or(0);
            buf[1] = buf[1] & 0xfc | ecn.to_bits();
            buf[2..4].copy_from_slice(&total.to_be_bytes());
            buf[6..8].fill(0);
            buf[10..12].fill(0);
            let sum = Sum::ZERO.add_bytes(buf).finish();
            buf[10..12].copy_from_slice(&sum.to_be_bytes());
        } else {
            let payload = u16::try_from(self.header_len - V6_HEADER_LEN + len).unwrap_or(0);
            buf[1] = buf[1] & 0xcf | ecn.to_bits() << 4;
            buf[4..6].copy_from_slice(&payload.to_be_bytes());
            buf[self.next_at] = self.protocol;
        }
        self.header_len
    }
}

fn parse_v4(packet: &[u8]) -> Result<Fragment, ParseError> {
    let fixed = packet.first_chunk::<V4_HEADER_LEN>().ok_or(ParseError::Truncated)?;
    let header_len = usize::from(fixed[0] & 15) * 4;
    if header_len < V4_HEADER_LEN {
        return Err(ParseError::HeaderLength);
    }
    let header = packet.get(..header_len).ok_or(ParseError::Truncated)?;
    if Sum::ZERO.add_bytes(header).finish() != 0 {
        return Err(ParseError::Checksum);
    }
    let total = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    if total > packet.len() {
        return Err(ParseError::Truncated);
    }
    if total < header_len {
        return Err(ParseError::TotalLength);
    }
    let place = u16::from_be_bytes([fixed[6], fixed[7]]);
    if place & (MORE_FRAGMENTS | OFFSET_MASK) == 0 {
        return Err(ParseError::Unsupported);
    }
    Ok(Fragment {
        src: IpAddr::from([fixed[12], fixed[13], fixed[14], fixed[15]]),
        dst: IpAddr::from([fixed[16], fixed[17], fixed[18], fixed[19]]),
        protocol: fixed[9],
        ident: u16::from_be_bytes([fixed[4], fixed[5]]).into(),
        offset: usize::from(place & OFFSET_MASK) * 8,
        more: place & MORE_FRAGMENTS != 0,
        ecn: Ecn::from_bits(fixed[1]),
        header_len,
        data: header_len..total,
        next_at: 9,
    })
}

fn parse_v6(packet: &[u8]) -> Result<Fragment, ParseError> {
    let fixed = packet.first_chunk::<V6_HEADER_LEN>().ok_or(ParseError::Truncated)?;
    let end = V6_HEADER_LEN + usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
    let packet = packet.get(..end).ok_or(ParseError::Truncated)?;
    let (mut next, mut next_at, mut at) = (fixed[6], 6, V6_HEADER_LEN);
    // RFC 8200 §4.5: only these may stand before the fragment header. Each is 8 bytes or more, so the walk
    // ends.
    while matches!(next, HOP_BY_HOP | ROUTING | DESTINATION) {
        let start = packet.get(at..at + 2).ok_or(ParseError::Truncated)?;
        (next, next_at) = (start[0], at);
        at += 8 + 8 * usize::from(start[1]);
        if at > UNFRAGMENTABLE_MAX || next == HOP_BY_HOP {
            return Err(ParseError::UnsupportedExtension);
        }
    }
    if next != FRAGMENT {
        return Err(ParseError::Unsupported);
    }
    let &[protocol, _, o0, o1, i0, i1, i2, i3] = packet
        .get(at..)
        .and_then(|rest| rest.first_chunk::<V6_FRAGMENT_LEN>())
        .ok_or(ParseError::Truncated)?;
    let place = u16::from_be_bytes([o0, o1]);
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&fixed[at..at + 16]);
        IpAddr::from(octets)
    };
    Ok(Fragment {
        src: address(8),
        dst: address(24),
        protocol,
        ident: u32::from_be_bytes([i0, i1, i2, i3]),
        offset: usize::from(place & 0xfff8),
        more: place & 1 != 0,
        ecn: Ecn::from_bits(fixed[1] >> 4),
        header_len: at,
        data: at + V6_FRAGMENT_LEN..end,
        next_at,
    })
}

/// Bytes of the headers of a fragment that is sent.
#[must_use]
pub const fn header_len(is_v4: bool) -> usize {
    if is_v4 { V4_HEADER_LEN } else { V6_HEADER_LEN + V6_FRAGMENT_LEN }
}

/// Writes the headers of a fragment with `ip.payload_len` bytes of data from `offset` on, and returns their
/// length. The upper 16 bits of an identification have no place in IPv4.
///
/// # Panics
/// If `buf` is shorter than [`header_len`].
pub fn emit(ip: &IpHeader, buf: &mut [u8], ident: u32, offset: usize, more: bool) -> usize {
    emit_as(ip, buf, ip.ecn.to_bits(), ident, offset, more)
}

/// The same with `class` as the whole TOS byte or traffic class, in place of the header's `ecn`.
///
/// # Panics
/// As [`emit`].
pub fn emit_as(ip: &IpHeader, buf: &mut [u8], class: u8, ident: u32, offset: usize, more: bool) -> usize {
    let units = (offset / 8) as u16 & OFFSET_MASK;
    if ip.src.is_ipv4() {
        return ip.emit_as(buf, class, ident as u16, units | if more { MORE_FRAGMENTS } else { 0 });
    }
    let outer = IpHeader { protocol: FRAGMENT, payload_len: ip.payload_len + V6_FRAGMENT_LEN, ..*ip };
    let len = outer.emit_as(buf, class, 0, 0);
    let [o0, o1] = (units << 3 | u16::from(more)).to_be_bytes();
    let [i0, i1, i2, i3] = ident.to_be_bytes();
    buf[len..len + V6_FRAGMENT_LEN].copy_from_slice(&[ip.protocol, 0, o0, o1, i0, i1, i2, i3]);
    len + V6_FRAGMENT_LEN
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::protocol;
    use crate::testing::{address_pair, bytes};

    fn ip(src: IpAddr, dst: IpAddr, payload_len: usize) -> IpHeader {
        let header_len = if src.is_ipv4() { 20 } else { 40 };
        IpHeader { src, dst, protocol: protocol::UDP, hop_limit: 9, ecn: Ecn::Ect0, header_len, payload_len }
    }

    proptest! {
        /// Cut into fragments and put together, a packet is what it was.
        #[test]
        fn what_is_cut_is_one_again((src, dst) in address_pair(), data in bytes(300), units in 1_usize..20) {
            let size = units * 8;
            let mut all = Vec::new();
            let mut first = Vec::new();
            let count = data.len().div_ceil(size).max(1);
            for index in 0..count {
                let part = &data[index * size..data.len().min((index + 1) * size)];
                let mut packet = vec![0; header_len(src.is_ipv4()) + part.len()];
                let more = index + 1 < count;
                let at = emit(&ip(src, dst, part.len()), &mut packet, 0x1234, index * size, more);
                packet[at..].copy_from_slice(part);
                if count == 1 && src.is_ipv4() {
                    // Not a fragment.
                    prop_assert!(Fragment::parse(&packet).is_err());
                    return Ok(());
                }
                let fragment = Fragment::parse(&packet).unwrap();
                prop_assert_eq!((fragment.src, fragment.dst, fragment.protocol), (src, dst, protocol::UDP));
                prop_assert_eq!((fragment.ident, fragment.offset, fragment.more), (0x1234, index * size, more));
                prop_assert_eq!((fragment.ecn, fragment.end()), (Ecn::Ect0, index * size + part.len()));
                prop_assert!(fragment.has_valid_len());
                if index == 0 {
                    first = packet.clone();
                }
                all.extend_from_slice(&packet[fragment.data]);
            }
            prop_assert_eq!(&all, &data);
            let fragment = Fragment::parse(&first).unwrap();
            let mut whole = vec![0; fragment.header_len + all.len()];
            let at = fragment.emit_whole(&first, &mut whole, all.len(), Ecn::Ce);
            whole[at..].copy_from_slice(&all);
            let parsed = IpHeader::parse(&whole).unwrap();
            prop_assert_eq!(parsed, IpHeader { ecn: Ecn::Ce, ..ip(src, dst, data.len()) });
        }

        #[test]
        fn any_bytes_are_parsed_or_refused(mut data in bytes(120), version in 4_u8..7) {
            if let Some(first) = data.first_mut() {
                *first = version << 4 | *first & 15;
            }
            if let Ok(fragment) = Fragment::parse(&data) {
                prop_assert!(fragment.data.end <= data.len());
                prop_assert!(fragment.data.start <= fragment.data.end);
                prop_assert!(fragment.header_len <= fragment.data.start);
                let mut whole = vec![0; fragment.header_len];
                fragment.emit_whole(&data, &mut whole, 0, Ecn::NotEct);
            }
        }
    }

    #[test]
    fn headers_before_the_fragment_header_stay() {
        let (src, dst): (IpAddr, IpAddr) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        let mut packet = vec![0; 40 + 8 + 8 + 16];
        ip(src, dst, 8 + 8 + 16).emit(&mut packet, 0);
        packet[6] = DESTINATION;
        packet[40..48].copy_from_slice(&[FRAGMENT, 0, 1, 4, 0, 0, 0, 0]);
        packet[48..56].copy_from_slice(&[protocol::UDP, 0, 0, 1, 0, 0, 0, 7]);
        let fragment = Fragment::parse(&packet).unwrap();
        assert_eq!((fragment.header_len, fragment.data.clone()), (48, 56..72));
        let mut whole = vec![0; 48 + 16];
        fragment.emit_whole(&packet, &mut whole, 16, Ecn::NotEct);
        let parsed = IpHeader::parse(&whole).unwrap();
        assert_eq!((parsed.protocol, parsed.header_len, parsed.payload_len), (protocol::UDP, 48, 16));
    }
}
