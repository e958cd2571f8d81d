//! The TCP header (RFC 9293 §3.1) and its checksum, whole or left for a device to complete.
//!
//! The checksum is separate from parsing and emitting, because a device may have verified it or may be about
//! to write it: [`verify`] and [`full_checksum`] do the work here, [`partial_checksum`] leaves it to the
//! device.

pub(crate) mod fast_open;
pub(crate) mod options;

use crate::checksum::{self, Sum};
use crate::{ParseError, TcpOptions, protocol};
use core::fmt;
use core::net::IpAddr;
use core::ops::{BitAnd, BitOr, BitOrAssign};

#[cfg(test)]
mod tests;

/// The header without options.
pub const HEADER_LEN: usize = 20;

/// The header with as many options as the data offset allows.
pub const HEADER_MAX_LEN: usize = 60;

/// Where the checksum stands in the header: the `csum_offset` of a virtio-net header.
pub const CHECKSUM_OFFSET: usize = 16;

/// The control bits, with the accurate-ECN bit as the ninth.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Flags(u16);

impl Flags {
    /// No bit set.
    pub const NONE: Flags = Flags(0);
    /// No more data from the sender.
    pub const FIN: Flags = Flags(0x001);
    /// Synchronise sequence numbers.
    pub const SYN: Flags = Flags(0x002);
    /// Reset the connection.
    pub const RST: Flags = Flags(0x004);
    /// Push.
    pub const PSH: Flags = Flags(0x008);
    /// The acknowledgment field is significant.
    pub const ACK: Flags = Flags(0x010);
    /// The urgent pointer is significant.
    pub const URG: Flags = Flags(0x020);
    /// ECN echo (RFC 3168 §6.1).
    pub const ECE: Flags = Flags(0x040);
    /// Congestion window reduced (RFC 3168 §6.1).
    pub const CWR: Flags = Flags(0x080);
    /// Accurate ECN (RFC 9768 §3.1), once the nonce sum.
    pub const AE: Flags = Flags(0x100);

    const NAMES: [(Flags, &'static str); 9] = [
        (Flags::FIN, "FIN"),
        (Flags::SYN, "SYN"),
        (Flags::RST, "RST"),
        (Flags::PSH, "PSH"),
        (Flags::ACK, "ACK"),
        (Flags::URG, "URG"),
        (Flags::ECE, "ECE"),
        (Flags::CWR, "CWR"),
        (Flags::AE, "AE"),
    ];

    /// From the nine low bits; the reserved bits above them are dropped.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u16) -> Flags {
        Flags(bits & 0x1ff)
    }

    /// The nine bits as they stand in the header.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Whether every bit of `other` is set.
    #[inline]
    #[must_use]
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any bit of `other` is set.
    #[inline]
    #[must_use]
    pub const fn intersects(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether no bit is set.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The bits of either; `|` in constants.
    #[inline]
    #[must_use]
    pub const fn union(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// These bits except those of `other`.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }
}

impl BitOr for Flags {
    type Output = Flags;
    #[inline]
    fn bitor(self, other: Flags) -> Flags {
        self.union(other)
    }
}

impl BitOrAssign for Flags {
    #[inline]
    fn bitor_assign(&mut self, other: Flags) {
        *self = self.union(other);
    }
}

impl BitAnd for Flags {
    type Output = Flags;
    #[inline]
    fn bitand(self, other: Flags) -> Flags {
        Flags(self.0 & other.0)
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (flag, name) in Flags::NAMES {
            if self.contains(flag) {
                write!(f, "{separator}{name}")?;
                separator = "|";
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flags({self})")
    }
}

/// A TCP header. The checksum is not a field: see [`verify`], [`full_checksum`] and [`partial_checksum`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TcpHeader {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number of the first byte, or of the SYN.
    pub seq: u32,
    /// Next sequence number expected; significant with [`Flags::ACK`].
    pub ack: u32,
    /// Control bits.
    pub flags: Flags,
    /// The window as on the wire, not scaled.
    pub window: u16,
    /// Urgent pointer; significant with [`Flags::URG`].
    pub urgent: u16,
    /// Options.
    pub options: TcpOptions,
}

impl TcpHeader {
    /// Parses the header at the start of `bytes`; returns it with its length, where the payload begins. The
    /// checksum is not checked.
    ///
    /// # Errors
    /// [`ParseError::Truncated`], [`ParseError::HeaderLength`] or [`ParseError::OptionLength`].
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(TcpHeader, usize), ParseError> {
        let fixed = bytes.first_chunk::<HEADER_LEN>().ok_or(ParseError::Truncated)?;
        let header_len = usize::from(fixed[12] >> 4) * 4;
        if header_len < HEADER_LEN {
            return Err(ParseError::HeaderLength);
        }
        let options = bytes.get(HEADER_LEN..header_len).ok_or(ParseError::Truncated)?;
        let mut header = TcpHeader {
            src_port: u16::from_be_bytes([fixed[0], fixed[1]]),
            dst_port: u16::from_be_bytes([fixed[2], fixed[3]]),
            seq: u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]),
            ack: u32::from_be_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]),
            flags: Flags::from_bits(u16::from_be_bytes([fixed[12], fixed[13]])),
            window: u16::from_be_bytes([fixed[14], fixed[15]]),
            urgent: u16::from_be_bytes([fixed[18], fixed[19]]),
            options: TcpOptions::NONE,
        };
        header.options.read(options)?;
        Ok((header, header_len))
    }

    /// The length [`emit`](TcpHeader::emit) writes, options and their padding included.
    #[inline]
    #[must_use]
    pub const fn header_len(&self) -> usize {
        HEADER_LEN + self.options.emitted_len()
    }

    /// Writes the header to the start of `buf` with a checksum field of zero, and returns its length.
    ///
    /// # Panics
    /// If `buf` is shorter than [`header_len`](TcpHeader::header_len).
    #[inline]
    pub fn emit(&self, buf: &mut [u8]) -> usize {
        let header_len = self.header_len();
        let (fixed, options) = buf[..header_len].split_at_mut(HEADER_LEN);
        // At most 60 / 4 = 15, which fits the four bits of the data offset.
        let offset_and_flags = (header_len as u16 / 4) << 12 | self.flags.bits();
        fixed[0..2].copy_from_slice(&self.src_port.to_be_bytes());
        fixed[2..4].copy_from_slice(&self.dst_port.to_be_bytes());
        fixed[4..8].copy_from_slice(&self.seq.to_be_bytes());
        fixed[8..12].copy_from_slice(&self.ack.to_be_bytes());
        fixed[12..14].copy_from_slice(&offset_and_flags.to_be_bytes());
        fixed[14..16].copy_from_slice(&self.window.to_be_bytes());
        fixed[16..18].fill(0);
        fixed[18..20].copy_from_slice(&self.urgent.to_be_bytes());
        self.options.emit(options);
        header_len
    }
}

/// Writes `value` into the checksum field of the header at the start of `buf`.
///
/// # Panics
/// If `buf` is shorter than the fixed header up to the checksum.
#[inline]
pub fn set_checksum(buf: &mut [u8], value: u16) {
    buf[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&value.to_be_bytes());
}

/// The checksum of a segment: `header` with its options and a checksum field of zero, as
/// [`emit`](TcpHeader::emit) leaves it, then the payload in pieces of any length.
#[inline]
#[must_use]
pub fn full_checksum(src: IpAddr, dst: IpAddr, header: &[u8], payload: &[&[u8]]) -> u16 {
    segment_sum(src, dst, header, payload).finish()
}

/// The value of the checksum field when a device completes it: the pseudo-header's sum, folded and not
/// complemented (virtio 1.2 §5.1.6.2). `tcp_len` is the length of header and payload in bytes.
#[inline]
#[must_use]
pub fn partial_checksum(src: IpAddr, dst: IpAddr, tcp_len: u32) -> u16 {
    checksum::pseudo_header(src, dst, protocol::TCP, tcp_len).fold()
}

/// Whether the checksum in `header` is right for the segment.
#[inline]
#[must_use]
pub fn verify(src: IpAddr, dst: IpAddr, header: &[u8], payload: &[&[u8]]) -> bool {
    segment_sum(src, dst, header, payload).finish() == 0
}

#[inline]
fn segment_sum(src: IpAddr, dst: IpAddr, header: &[u8], payload: &[&[u8]]) -> Sum {
    let len = header.len() + payload.iter().map(|piece| piece.len()).sum::<usize>();
    let sum = checksum::pseudo_header(src, dst, protocol::TCP, len as u32).add_bytes(header);
    payload.iter().fold(sum, |sum, piece| sum.add_bytes(piece))
}
