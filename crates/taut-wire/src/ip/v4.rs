//! IPv4 (RFC 791): the header checksum is verified, options are skipped, fragments are refused.

use super::{Ecn, IpHeader, Whole};
use crate::{ParseError, Sum};
use core::net::Ipv4Addr;

/// The header without options.
pub const HEADER_LEN: usize = 20;

pub(super) const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;

#[inline]
pub(super) fn parse(head: &[u8], whole: Whole) -> Result<IpHeader, ParseError> {
    let fixed = head.first_chunk::<HEADER_LEN>().ok_or(ParseError::Truncated)?;
    let header_len = usize::from(fixed[0] & 0x0f) * 4;
    if header_len < HEADER_LEN {
        return Err(ParseError::HeaderLength);
    }
    let header = head.get(..header_len).ok_or(ParseError::Truncated)?;
    let total_len = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    let fragment = u16::from_be_bytes([fixed[6], fixed[7]]);

    let refused_fragment_bits = match whole {
        Whole::Yes { total } => {
            // RFC 1122 §3.2.1.2: verify every header checksum, before believing any of its lengths.
            if Sum::ZERO.add_bytes(header).finish() != 0 {
                return Err(ParseError::Checksum);
            }
            if total_len > total {
                return Err(ParseError::Truncated);
            }
            MORE_FRAGMENTS | OFFSET_MASK
        }
        // The first fragment of a packet still holds the ports.
        Whole::Quoted => OFFSET_MASK,
    };
    let payload_len = total_len.checked_sub(header_len).ok_or(ParseError::TotalLength)?;
    if fragment & refused_fragment_bits != 0 {
        return Err(ParseError::Fragment);
    }
    Ok(IpHeader {
        src: Ipv4Addr::new(fixed[12], fixed[13], fixed[14], fixed[15]).into(),
        dst: Ipv4Addr::new(fixed[16], fixed[17], fixed[18], fixed[19]).into(),
        protocol: fixed[9],
        hop_limit: fixed[8],
        ecn: Ecn::from_bits(fixed[1]),
        header_len,
        payload_len,
    })
}

#[inline]
pub(super) fn emit(
    ip: &IpHeader,
    (src, dst): (Ipv4Addr, Ipv4Addr),
    class: u8,
    (identification, place): (u16, u16),
    buf: &mut [u8],
) -> usize {
    let total_len = u16::try_from(HEADER_LEN + ip.payload_len).unwrap_or(0);
    // Summed as words before they are stored: reading back bytes just written would stall.
    let words = [
        0x4500_0000 | u32::from(class) << 16 | u32::from(total_len),
        u32::from(identification) << 16 | u32::from(place),
        u32::from(ip.hop_limit) << 24 | u32::from(ip.protocol) << 16,
        src.to_bits(),
        dst.to_bits(),
    ];
    let checksum = words.into_iter().fold(Sum::ZERO, Sum::add_u32).finish();
    let (quads, _) = buf[..HEADER_LEN].as_chunks_mut::<4>();
    for (quad, word) in quads.iter_mut().zip(words) {
        *quad = word.to_be_bytes();
    }
    buf[10..12].copy_from_slice(&checksum.to_be_bytes());
    HEADER_LEN
}
