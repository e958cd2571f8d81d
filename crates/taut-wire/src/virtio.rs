//! The virtio-net header (virtio 1.2 §5.1.6) that TUN, TAP and packet sockets put before each packet.
//!
//! For an outgoing packet it says how the device must finish a large segment: where to cut it and which
//! checksum to complete. For an incoming packet it says what the kernel has left unfinished.

use crate::ParseError;

/// How to cut the packet into segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GsoType {
    /// Not cut.
    #[default]
    None,
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP datagrams, each with its own header.
    UdpL4,
    /// Any other value, without the ECN bit.
    Other(u8),
}

impl GsoType {
    const fn from_bits(bits: u8) -> GsoType {
        match bits {
            0 => GsoType::None,
            1 => GsoType::TcpV4,
            4 => GsoType::TcpV6,
            5 => GsoType::UdpL4,
            other => GsoType::Other(other),
        }
    }

    const fn to_bits(self) -> u8 {
        match self {
            GsoType::None => 0,
            GsoType::TcpV4 => 1,
            GsoType::TcpV6 => 4,
            GsoType::UdpL4 => 5,
            GsoType::Other(other) => other,
        }
    }
}

/// A virtio-net header without the count of merged buffers.
///
/// The fields of more than one byte are in the byte order of the machine, which TUN and packet sockets use
/// unless `TUNSETVNETLE` or `TUNSETVNETBE` asked for another. It is little-endian on nearly every machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VnetHeader {
    /// [`NEEDS_CSUM`](VnetHeader::NEEDS_CSUM), [`DATA_VALID`](VnetHeader::DATA_VALID).
    pub flags: u8,
    /// How to cut the packet.
    pub gso_type: GsoType,
    /// CWR is set and belongs on the first segment only (RFC 3168 §6.1.2).
    pub ecn: bool,
    /// Bytes of headers to repeat before each segment.
    pub hdr_len: u16,
    /// Payload bytes in each segment but the last.
    pub gso_size: u16,
    /// Where the checksum's coverage starts, in bytes from the start of the packet.
    pub csum_start: u16,
    /// Where the checksum is written, in bytes from `csum_start`.
    pub csum_offset: u16,
}

impl VnetHeader {
    /// Bytes on the wire.
    pub const LEN: usize = 10;
    /// The checksum field holds the pseudo-header's sum; the rest must be added.
    pub const NEEDS_CSUM: u8 = 1;
    /// The checksum has been verified.
    pub const DATA_VALID: u8 = 2;

    const GSO_ECN: u8 = 0x80;

    /// Parses the header at the start of `bytes`.
    ///
    /// # Errors
    /// [`ParseError::Truncated`].
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<VnetHeader, ParseError> {
        let &[flags, gso, h0, h1, s0, s1, c0, c1, o0, o1] =
            bytes.first_chunk::<{ VnetHeader::LEN }>().ok_or(ParseError::Truncated)?;
        Ok(VnetHeader {
            flags,
            gso_type: GsoType::from_bits(gso & !VnetHeader::GSO_ECN),
            ecn: gso & VnetHeader::GSO_ECN != 0,
            hdr_len: u16::from_ne_bytes([h0, h1]),
            gso_size: u16::from_ne_bytes([s0, s1]),
            csum_start: u16::from_ne_bytes([c0, c1]),
            csum_offset: u16::from_ne_bytes([o0, o1]),
        })
    }

    /// The header as bytes.
    #[inline]
    #[must_use]
    pub const fn emit(&self) -> [u8; VnetHeader::LEN] {
        let [h0, h1] = self.hdr_len.to_ne_bytes();
        let [s0, s1] = self.gso_size.to_ne_bytes();
        let [c0, c1] = self.csum_start.to_ne_bytes();
        let [o0, o1] = self.csum_offset.to_ne_bytes();
        let gso = self.gso_type.to_bits() | if self.ecn { VnetHeader::GSO_ECN } else { 0 };
        [self.flags, gso, h0, h1, s0, s1, c0, c1, o0, o1]
    }

    /// Whether the checksum must still be completed. On a received packet this means that the packet never
    /// left the machine, and that there is nothing to verify.
    #[inline]
    #[must_use]
    pub const fn needs_checksum(&self) -> bool {
        self.flags & VnetHeader::NEEDS_CSUM != 0
    }

    /// Whether a received packet's checksum need not be verified: a device has verified it, or it was never
    /// computed.
    #[inline]
    #[must_use]
    pub const fn is_checksum_trusted(&self) -> bool {
        self.flags & (VnetHeader::NEEDS_CSUM | VnetHeader::DATA_VALID) != 0
    }

    /// Whether the packet stands for several segments.
    #[inline]
    #[must_use]
    pub const fn is_gso(&self) -> bool {
        !matches!(self.gso_type, GsoType::None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// struct virtio_net_hdr (virtio 1.2 §5.1.6), as a TSO packet of TCP over IPv4 would carry it.
    const HEADER: VnetHeader = VnetHeader {
        flags: VnetHeader::NEEDS_CSUM,
        gso_type: GsoType::TcpV4,
        ecn: true,
        hdr_len: 0x0102,
        gso_size: 0x0304,
        csum_start: 0x0506,
        csum_offset: 0x0708,
    };

    #[test]
    fn layout() {
        let bytes = if cfg!(target_endian = "little") {
            [1, 0x81, 2, 1, 4, 3, 6, 5, 8, 7]
        } else {
            [1, 0x81, 1, 2, 3, 4, 5, 6, 7, 8]
        };
        assert_eq!(HEADER.emit(), bytes);
        assert_eq!(VnetHeader::parse(&bytes), Ok(HEADER));
    }

    #[test]
    fn gso_types_are_those_of_virtio() {
        // virtio 1.2 §5.1.6: NONE 0, TCPV4 1, UDP 3, TCPV6 4, UDP_L4 5.
        for (bits, gso_type) in [
            (0, GsoType::None),
            (1, GsoType::TcpV4),
            (3, GsoType::Other(3)),
            (4, GsoType::TcpV6),
            (5, GsoType::UdpL4),
        ] {
            let bytes = [0, bits, 0, 0, 0, 0, 0, 0, 0, 0];
            let header = VnetHeader { gso_type, ..VnetHeader::default() };
            assert_eq!(VnetHeader::parse(&bytes), Ok(header));
            assert_eq!(header.emit(), bytes);
        }
    }

    #[test]
    fn what_the_flags_say() {
        let with = |flags| VnetHeader { flags, ..VnetHeader::default() };
        assert!(with(1).needs_checksum() && with(1).is_checksum_trusted());
        assert!(!with(2).needs_checksum() && with(2).is_checksum_trusted());
        assert!(!with(0).needs_checksum() && !with(0).is_checksum_trusted());
        assert!(HEADER.is_gso() && !with(0).is_gso());
    }

    #[test]
    fn every_cut_is_truncated() {
        for len in 0..VnetHeader::LEN {
            assert_eq!(VnetHeader::parse(&[0; 10][..len]), Err(ParseError::Truncated));
        }
    }

    proptest! {
        #[test]
        fn any_ten_bytes_come_back(bytes: [u8; 10]) {
            prop_assert_eq!(VnetHeader::parse(&bytes).unwrap().emit(), bytes);
        }
    }
}
