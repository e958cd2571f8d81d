//! IPv6 (RFC 8200): the fixed header, and the extension headers a host may skip.

use super::{Ecn, IpHeader, Whole};
use crate::ParseError;
use core::net::Ipv6Addr;

/// The header without extension headers.
pub const HEADER_LEN: usize = 40;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const ESP: u8 = 50;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;
const MOBILITY: u8 = 135;
const HOST_IDENTITY: u8 = 139;
const SHIM6: u8 = 140;

#[inline]
pub(super) fn parse(head: &[u8], whole: Whole) -> Result<IpHeader, ParseError> {
    let fixed = head.first_chunk::<HEADER_LEN>().ok_or(ParseError::Truncated)?;
    let after_fixed = usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
    if let Whole::Yes { total } = whole
        && HEADER_LEN + after_fixed > total
    {
        return Err(ParseError::Truncated);
    }
    let (protocol, extensions_len) = match fixed[6] {
        next @ (HOP_BY_HOP | ROUTING | FRAGMENT | ESP | AUTHENTICATION | DESTINATION | MOBILITY..=SHIM6) => {
            skip_extensions(next, &head[HEADER_LEN..], whole)?
        }
        next => (next, 0),
    };
    Ok(IpHeader {
        src: address(fixed, 8).into(),
        dst: address(fixed, 24).into(),
        protocol,
        hop_limit: fixed[7],
        // The traffic class straddles the first two bytes; ECN is its low two bits.
        ecn: Ecn::from_bits(fixed[1] >> 4),
        header_len: HEADER_LEN + extensions_len,
        payload_len: after_fixed.checked_sub(extensions_len).ok_or(ParseError::TotalLength)?,
    })
}

fn address(fixed: &[u8; HEADER_LEN], at: usize) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&fixed[at..at + 16]);
    octets.into()
}

/// Walks the chain that starts with a header of type `next` at `rest[0]`. Returns the upper-layer protocol
/// and the bytes skipped. Each step skips at least 8 bytes, so the packet's length bounds the walk.
fn skip_extensions(mut next: u8, rest: &[u8], whole: Whole) -> Result<(u8, usize), ParseError> {
    let mut at = 0;
    loop {
        match next {
            // RFC 8200 §4.1: hop-by-hop options stand only directly after the fixed header.
            HOP_BY_HOP if at != 0 => return Err(ParseError::UnsupportedExtension),
            HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION => {}
            ESP | AUTHENTICATION | MOBILITY | HOST_IDENTITY | SHIM6 => {
                return Err(ParseError::UnsupportedExtension);
            }
            upper_layer => return Ok((upper_layer, at)),
        }
        let rest = rest.get(at..).ok_or(ParseError::Truncated)?;
        let start = rest.first_chunk::<8>().ok_or(ParseError::Truncated)?;
        // RFC 8200 §4.3: the length counts 8-byte units after the first. A fragment header has none.
        let len = if next == FRAGMENT { 8 } else { 8 + 8 * usize::from(start[1]) };
        let extension = rest.get(..len).ok_or(ParseError::Truncated)?;
        match next {
            ROUTING => check_routing(start, whole)?,
            FRAGMENT => check_fragment(start, whole)?,
            _ => check_options(&extension[2..])?,
        }
        next = start[0];
        at += len;
    }
}

/// RFC 8200 §4.4: with segments left, this host is a waypoint and not the destination; we do not forward.
fn check_routing(start: &[u8; 8], whole: Whole) -> Result<(), ParseError> {
    let segments_left = start[3];
    match whole {
        Whole::Yes { .. } if segments_left != 0 => Err(ParseError::UnsupportedExtension),
        _ => Ok(()),
    }
}

/// RFC 6946 §4: an atomic fragment, offset zero and none to follow, is a whole packet.
fn check_fragment(start: &[u8; 8], whole: Whole) -> Result<(), ParseError> {
    let offset_and_more = u16::from_be_bytes([start[2], start[3]]);
    let refused = match whole {
        Whole::Yes { .. } => 0xfff9,
        // The first fragment of a packet still holds the ports.
        Whole::Quoted => 0xfff8,
    };
    if offset_and_more & refused == 0 { Ok(()) } else { Err(ParseError::Fragment) }
}

/// RFC 8200 §4.2: an unknown option may be skipped only if the two high bits of its type are zero. The jumbo
/// payload (RFC 2675) is among those that may not.
fn check_options(mut options: &[u8]) -> Result<(), ParseError> {
    const PAD1: u8 = 0;
    loop {
        options = match *options {
            [] => return Ok(()),
            [PAD1, ref rest @ ..] => rest,
            [kind, ..] if kind & 0xc0 != 0 => return Err(ParseError::UnsupportedExtension),
            [_, len, ref rest @ ..] => rest.get(usize::from(len)..).ok_or(ParseError::HeaderLength)?,
            [_] => return Err(ParseError::HeaderLength),
        };
    }
}

#[inline]
pub(super) fn emit(ip: &IpHeader, (src, dst): (&Ipv6Addr, &Ipv6Addr), class: u8, buf: &mut [u8]) -> usize {
    let payload_len = u16::try_from(ip.payload_len).unwrap_or(0);
    let buf = &mut buf[..HEADER_LEN];
    buf[0] = 0x60 | class >> 4;
    buf[1] = class << 4;
    buf[2..4].fill(0);
    buf[4..6].copy_from_slice(&payload_len.to_be_bytes());
    buf[6] = ip.protocol;
    buf[7] = ip.hop_limit;
    buf[8..24].copy_from_slice(&src.octets());
    buf[24..40].copy_from_slice(&dst.octets());
    HEADER_LEN
}
