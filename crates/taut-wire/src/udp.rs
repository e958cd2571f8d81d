//! UDP (RFC 768) over IPv4 and IPv6: eight bytes of header, and a checksum that IPv4 may leave out.
//!
//! **Zero.** A checksum field of zero says that the sender computed none. Over IPv4 that is allowed (RFC
//! 768); over IPv6, which has no header checksum, such a datagram is dropped (RFC 8200 §8.1). A sum that
//! happens to be zero is written as its other form, all ones.

use core::net::IpAddr;

use crate::checksum::{self, Sum};
use crate::{ParseError, protocol};

/// Ports, length and checksum.
pub const HEADER_LEN: usize = 8;
/// Where the checksum is in the header.
pub const CHECKSUM_OFFSET: usize = 6;
/// Where the length is in the header.
const LEN_OFFSET: usize = 4;

/// A UDP header. The checksum is not a field: see [`verify`], [`full_checksum`] and [`partial_checksum`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct UdpHeader {
    /// Source port; 0 if no answer is wanted.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Bytes of header and payload.
    pub len: u16,
}

impl UdpHeader {
    /// Parses the header at the start of `bytes`, the upper layer of an IP packet that says it has
    /// `ip_payload_len` bytes. Bytes behind the header's own length are padding. The checksum is not checked.
    ///
    /// # Errors
    /// [`ParseError::Truncated`], or [`ParseError::HeaderLength`] for a length below 8 or beyond the packet.
    #[inline]
    pub fn parse(bytes: &[u8], ip_payload_len: usize) -> Result<UdpHeader, ParseError> {
        let &[s0, s1, d0, d1, l0, l1, _, _] =
            bytes.first_chunk::<HEADER_LEN>().ok_or(ParseError::Truncated)?;
        let len = u16::from_be_bytes([l0, l1]);
        if usize::from(len) < HEADER_LEN || usize::from(len) > ip_payload_len {
            return Err(ParseError::HeaderLength);
        }
        Ok(UdpHeader { src_port: u16::from_be_bytes([s0, s1]), dst_port: u16::from_be_bytes([d0, d1]), len })
    }

    /// Writes the header to the start of `buf` with a checksum field of zero, and returns its length.
    ///
    /// # Panics
    /// If `buf` is shorter than that.
    #[inline]
    pub fn emit(&self, buf: &mut [u8]) -> usize {
        let buf = &mut buf[..HEADER_LEN];
        buf[..2].copy_from_slice(&self.src_port.to_be_bytes());
        buf[2..LEN_OFFSET].copy_from_slice(&self.dst_port.to_be_bytes());
        buf[LEN_OFFSET..CHECKSUM_OFFSET].copy_from_slice(&self.len.to_be_bytes());
        buf[CHECKSUM_OFFSET..].fill(0);
        HEADER_LEN
    }
}

/// Writes `value` into the checksum field of the header at the start of `buf`.
///
/// # Panics
/// If `buf` is shorter than the header.
#[inline]
pub fn set_checksum(buf: &mut [u8], value: u16) {
    buf[CHECKSUM_OFFSET..HEADER_LEN].copy_from_slice(&value.to_be_bytes());
}

/// The checksum of a datagram: `header` with a checksum field of zero, as [`emit`](UdpHeader::emit) leaves
/// it, then the payload in pieces of any length. Never zero.
#[inline]
#[must_use]
pub fn full_checksum(src: IpAddr, dst: IpAddr, header: &[u8], payload: &[&[u8]]) -> u16 {
    match sum(src, dst, header, payload).finish() {
        0 => 0xffff,
        checksum => checksum,
    }
}

/// The value of the checksum field when a device completes it: the pseudo-header's sum, folded and not
/// complemented. `udp_len` is the length of header and payload in bytes.
#[inline]
#[must_use]
pub fn partial_checksum(src: IpAddr, dst: IpAddr, udp_len: u32) -> u16 {
    checksum::pseudo_header(src, dst, protocol::UDP, udp_len).fold()
}

/// Whether the datagram may be believed: its checksum is right, or it has none and IPv4 allows that.
#[inline]
#[must_use]
pub fn verify(src: IpAddr, dst: IpAddr, header: &[u8], payload: &[&[u8]]) -> bool {
    match header.get(CHECKSUM_OFFSET..HEADER_LEN) {
        Some([0, 0]) => src.is_ipv4(),
        Some(_) => sum(src, dst, header, payload).finish() == 0,
        None => false,
    }
}

fn sum(src: IpAddr, dst: IpAddr, header: &[u8], payload: &[&[u8]]) -> Sum {
    let len = header.len() + payload.iter().map(|piece| piece.len()).sum::<usize>();
    let sum = checksum::pseudo_header(src, dst, protocol::UDP, len as u32).add_bytes(header);
    payload.iter().fold(sum, |sum, piece| sum.add_bytes(piece))
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use etherparse::{IpHeaders, PacketBuilder, SlicedPacket, TransportSlice};
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{address_pair, bytes};

    fn datagram(src: IpAddr, dst: IpAddr, payload: &[u8]) -> Vec<u8> {
        let header = UdpHeader { src_port: 53, dst_port: 4_000, len: (8 + payload.len()) as u16 };
        let mut datagram = [&[0; 8], payload].concat();
        header.emit(&mut datagram);
        let checksum = full_checksum(src, dst, &datagram[..8], &[payload]);
        set_checksum(&mut datagram, checksum);
        datagram
    }

    proptest! {
        /// Against another library: what we write it reads, with the checksum that it would write.
        #[test]
        fn another_library_writes_the_same((src, dst) in address_pair(), payload in bytes(64)) {
            let builder = match (src, dst) {
                (IpAddr::V4(a), IpAddr::V4(b)) => PacketBuilder::ipv4(a.octets(), b.octets(), 64),
                (IpAddr::V6(a), IpAddr::V6(b)) => PacketBuilder::ipv6(a.octets(), b.octets(), 64),
                _ => unreachable!(),
            };
            let mut theirs = Vec::new();
            builder.udp(53, 4_000).write(&mut theirs, &payload).unwrap();
            let at = IpHeaders::from_slice(&theirs).unwrap().0.header_len();
            prop_assert_eq!(&datagram(src, dst, &payload), &theirs[at..]);
            let sliced = SlicedPacket::from_ip(&theirs).unwrap();
            prop_assert!(matches!(sliced.transport, Some(TransportSlice::Udp(_))));
            prop_assert!(verify(src, dst, &theirs[at..], &[]));
        }

        #[test]
        fn any_bytes_are_parsed_or_refused(bytes in bytes(40), len in 0_usize..50) {
            if let Ok(header) = UdpHeader::parse(&bytes, len) {
                prop_assert!((8..=len).contains(&usize::from(header.len)));
            }
        }
    }

    #[test]
    fn a_sum_of_zero_is_written_as_all_ones() {
        // The words of the pseudo-header and the header add up to 0xffff less what the payload has.
        let (src, dst) = (IpAddr::from([0, 0, 0, 0]), IpAddr::from([0, 0, 0, 0]));
        let header = [0, 53, 0x0f, 0xa0, 0, 10, 0, 0];
        let rest = 0xffff - (17 + 10 + 53 + 0x0fa0 + 10_u16);
        let payload = rest.to_be_bytes();
        assert_eq!(sum(src, dst, &header, &[&payload]).finish(), 0);
        assert_eq!(full_checksum(src, dst, &header, &[&payload]), 0xffff);
        let mut written = [&header[..], &payload].concat();
        set_checksum(&mut written, 0xffff);
        assert!(verify(src, dst, &written, &[]));
    }

    #[test]
    fn no_checksum_is_for_ipv4_only() {
        let (v4, v6) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([0xfd, 0, 0, 0, 0, 0, 0, 1]));
        let datagram = [0, 1, 0, 2, 0, 9, 0, 0, 7];
        assert!(verify(v4, v4, &datagram, &[]));
        assert!(!verify(v6, v6, &datagram, &[]));
    }

    #[test]
    fn a_length_below_the_header_or_beyond_the_packet_is_refused() {
        let with = |len: u16| UdpHeader { src_port: 1, dst_port: 2, len };
        let mut bytes = [0; 20];
        for (len, ip_len, good) in
            [(7, 20, false), (8, 20, true), (20, 20, true), (21, 20, false), (0, 20, false)]
        {
            with(len).emit(&mut bytes);
            assert_eq!(UdpHeader::parse(&bytes, ip_len).is_ok(), good, "{len} of {ip_len}");
        }
        assert_eq!(UdpHeader::parse(&bytes[..7], 20), Err(ParseError::Truncated));
    }
}
