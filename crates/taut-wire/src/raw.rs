//! Operations on a packet as bytes, as a queue, a NIC or a path needs them: they read and change header
//! fields in place, without parsing the headers into values. taut's own; called by the parts between two
//! stacks: the driver's queue in front of a device, the simulator, the lab's emulated path, GRO.
//!
//! ```text
//!   flow  ecn  set_ce          a queue: the packet's connection, whether it may be marked, mark it
//!   segs  cut  join  continues a NIC: one super-packet becomes segments (TSO), segments become one (GRO)
//!   complete                   the checksum that a stack left to its device
//! ```
//!
//! `header` begins with the IP header and holds at least all headers; a payload may follow. Bytes that are
//! too short or of the wrong kind are not an error: they have flow 0 and no mark, and are left unchanged.
//!
//! A change to an IPv4 header updates its checksum by the difference (RFC 1624): a correct checksum stays
//! correct, and a wrong one stays wrong, so that damage on the way stays visible. The checksum of TCP is left
//! alone, because a device still has to complete that of a packet that is cut or joined.

use core::net::{IpAddr, SocketAddr};
use core::ops::Range;

use crate::ip::{V4_HEADER_LEN, V6_HEADER_LEN};
use crate::tcp::{self, Flags};
use crate::{Ecn, IpHeader, protocol, udp};

#[cfg(test)]
mod tests;

/// The bits of IPv4's third word that make a packet a fragment: "more fragments", or an offset.
const FRAGMENT: u16 = 0x3fff;
const DONT_FRAGMENT: u16 = 0x4000;

/// Offsets in an IPv4 header.
const V4_LEN: usize = 2;
const V4_ID: usize = 4;
const V4_FRAGMENT: usize = 6;
const V4_TTL: usize = 8;
const V4_PROTOCOL: usize = 9;
const V4_SUM: usize = 10;
const V4_ADDRESSES: usize = 12;

/// Offsets in an IPv6 header.
const V6_LEN: usize = 4;
const V6_NEXT: usize = 6;
const V6_HOP_LIMIT: usize = 7;
const V6_ADDRESSES: usize = 8;

/// Offsets in a TCP header.
const TCP_SEQ: usize = 4;
const TCP_ACK: usize = 8;
const TCP_OFFSET: usize = 12;
const TCP_FLAGS: usize = 13;
const TCP_WINDOW: usize = 14;
const TCP_URGENT: usize = 18;

/// Offset of the length in a UDP header.
const UDP_LEN: usize = 4;

/// The end of a stream or of a record: only the last segment of a super-packet carries these.
const ENDS: u8 = (Flags::FIN.bits() | Flags::PSH.bits()) as u8;
/// Only the first segment of a super-packet carries it (RFC 3168 §6.1.2).
const CWR: u8 = Flags::CWR.bits() as u8;
/// A segment with any of these is the last of a merged packet, or is not merged at all.
const CLOSING: u8 = ENDS | (Flags::SYN.bits() | Flags::RST.bits() | Flags::URG.bits()) as u8;

/// The multiplier that spreads the sums of [`flow`]: the golden ratio in 64 bits, as in Fibonacci hashing.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

// ---- reading ----

/// Bytes of the IP header, including IPv4's options but not IPv6's extension headers. `None` if it is of
/// neither version, or longer than `header`.
#[inline]
#[must_use]
pub fn ip_len(header: &[u8]) -> Option<usize> {
    let len = match header.first()? >> 4 {
        4 => usize::from(header[0] & 15) * 4,
        6 => V6_HEADER_LEN,
        _ => return None,
    };
    (V4_HEADER_LEN..=header.len()).contains(&len).then_some(len)
}

/// Whether it is IPv6, rather than IPv4 or anything else.
#[inline]
#[must_use]
pub fn is_v6(header: &[u8]) -> bool {
    header.first().is_some_and(|first| first >> 4 == 6)
}

/// Offset of the TCP header, if one follows the IP header directly and its fixed part is in `header`. `None`
/// for a fragment.
#[inline]
#[must_use]
pub fn tcp_at(header: &[u8]) -> Option<usize> {
    let at = ip_len(header)?;
    let is_tcp = if is_v4(header) {
        header[V4_PROTOCOL] == protocol::TCP && word(header, V4_FRAGMENT) & FRAGMENT == 0
    } else {
        header[V6_NEXT] == protocol::TCP
    };
    (is_tcp && header.len() >= at + tcp::HEADER_LEN).then_some(at)
}

/// The same for a UDP header.
#[must_use]
pub fn udp_at(header: &[u8]) -> Option<usize> {
    let at = ip_len(header)?;
    let is_udp = if is_v4(header) {
        header[V4_PROTOCOL] == protocol::UDP && word(header, V4_FRAGMENT) & FRAGMENT == 0
    } else {
        header[V6_NEXT] == protocol::UDP
    };
    (is_udp && header.len() >= at + udp::HEADER_LEN).then_some(at)
}

/// Bytes of the IP and TCP headers together; `None` if there is no complete TCP header.
#[must_use]
pub fn headers_len(packet: &[u8]) -> Option<usize> {
    let at = tcp_at(packet)?;
    let len = usize::from(packet[at + TCP_OFFSET] >> 4) * 4;
    (len >= tcp::HEADER_LEN && at + len <= packet.len()).then_some(at + len)
}

/// TCP's control bits; zero for a packet that is not TCP.
#[inline]
#[must_use]
pub fn tcp_flags(header: &[u8]) -> Flags {
    tcp_at(header).map_or(Flags::NONE, |at| Flags::from_bits(word(header, at + TCP_OFFSET)))
}

/// TCP's source and destination port.
#[must_use]
pub fn ports(header: &[u8]) -> Option<(u16, u16)> {
    let at = tcp_at(header)?;
    Some((word(header, at), word(header, at + 2)))
}

/// The destination address.
#[inline]
#[must_use]
pub fn destination(header: &[u8]) -> Option<IpAddr> {
    ip_len(header)?;
    if is_v4(header) {
        addresses(header).last_chunk::<4>().map(|octets| IpAddr::from(*octets))
    } else {
        addresses(header).last_chunk::<16>().map(|octets| IpAddr::from(*octets))
    }
}

/// The same number for every packet of a connection in one direction: addresses and ports, mixed. Linux:
/// `skb_get_hash`.
#[inline]
#[must_use]
pub fn flow(header: &[u8]) -> u64 {
    let Some(at) = ip_len(header) else { return 0 };
    let mix = |sum: u64, bytes: &[u8]| {
        bytes.as_chunks::<4>().0.iter().fold(sum, |sum, word| {
            (sum.rotate_left(5) ^ u64::from(u32::from_be_bytes(*word))).wrapping_mul(SPREAD)
        })
    };
    // For other protocols, the first word after the IP header.
    let ports = header.get(at..at + 4).unwrap_or_default();
    mix(mix(0, addresses(header)), ports)
}

/// The [`flow`] of packets from one end to the other.
#[must_use]
pub fn flow_between(from: SocketAddr, to: SocketAddr) -> u64 {
    let (src, dst) = (from.ip(), to.ip());
    let ip = IpHeader {
        src,
        dst,
        protocol: protocol::TCP,
        hop_limit: 0,
        ecn: Ecn::NotEct,
        header_len: 0,
        payload_len: 0,
    };
    let mut header = [0; V6_HEADER_LEN + 4];
    let at = ip.emit(&mut header, 0);
    header[at..at + 2].copy_from_slice(&from.port().to_be_bytes());
    header[at + 2..at + 4].copy_from_slice(&to.port().to_be_bytes());
    flow(&header)
}

/// The ECN field.
#[inline]
#[must_use]
pub fn ecn(header: &[u8]) -> Ecn {
    match *header {
        [first, tos, ..] if first >> 4 == 4 => Ecn::from_bits(tos),
        [first, class, ..] if first >> 4 == 6 => Ecn::from_bits(class >> 4),
        _ => Ecn::NotEct,
    }
}

// ---- writing ----

/// Marks a packet as having experienced congestion (RFC 3168 §5).
#[inline]
pub fn set_ce(header: &mut [u8]) {
    let ce = Ecn::Ce.to_bits();
    match ip_len(header) {
        Some(_) if is_v4(header) => set_v4_word(header, 0, word(header, 0) | u16::from(ce)),
        Some(_) => header[1] |= ce << 4,
        None => {}
    }
}

/// Writes the ECN field.
#[inline]
pub fn set_ecn(header: &mut [u8], ecn: Ecn) {
    match ip_len(header) {
        Some(_) if is_v4(header) => {
            set_v4_word(header, 0, word(header, 0) & !0b11 | u16::from(ecn.to_bits()));
        }
        Some(_) => header[1] = header[1] & !(0b11 << 4) | ecn.to_bits() << 4,
        None => {}
    }
}

/// Writes the length of the whole packet, all headers included. A length of 64 KB or more loses its upper
/// bits, because the field has no room for them.
#[inline]
pub fn set_len(header: &mut [u8], total: usize) {
    match ip_len(header) {
        Some(_) if is_v4(header) => set_v4_word(header, V4_LEN, total as u16),
        Some(at) => set_word(header, V6_LEN, total.saturating_sub(at) as u16),
        None => {}
    }
}

/// Writes the checksum of a whole TCP or UDP packet, as a device does when a stack has left the checksum to
/// it.
pub fn complete(packet: &mut [u8]) {
    let Ok(ip) = IpHeader::parse(packet) else { return };
    let Some(segment) = packet.get_mut(ip.header_len..ip.header_len + ip.payload_len) else { return };
    if ip.protocol == protocol::TCP && segment.len() >= tcp::HEADER_LEN {
        tcp::set_checksum(segment, 0);
        let sum = tcp::full_checksum(ip.src, ip.dst, segment, &[]);
        tcp::set_checksum(segment, sum);
    } else if ip.protocol == protocol::UDP && segment.len() >= udp::HEADER_LEN {
        udp::set_checksum(segment, 0);
        let sum = udp::full_checksum(ip.src, ip.dst, segment, &[]);
        udp::set_checksum(segment, sum);
    }
}

/// The TOS byte or traffic class, and the time to live or hop limit.
#[must_use]
pub fn class_and_hops(header: &[u8]) -> (u8, u8) {
    match ip_len(header) {
        Some(_) if is_v4(header) => (header[1], header[V4_TTL]),
        Some(_) => ((word(header, 0) >> 4) as u8, header[V6_HOP_LIMIT]),
        None => (0, 0),
    }
}

// ---- super-packets ----

/// The number of segments for `payload_len` bytes, each of `mss` bytes except the last; one if `mss` is 0.
#[inline]
#[must_use]
pub fn segs(payload_len: usize, mss: usize) -> usize {
    if mss == 0 { 1 } else { payload_len.div_ceil(mss).max(1) }
}

/// Turns the headers of a super-packet with `payload_len` bytes into those of one of its [`segs`] segments,
/// and returns the range of the segment's payload. A NIC does this to a super-packet (TSO, about 2002), or
/// the layer just above it (GSO, Linux 2.6.18): each segment has its own length and sequence number; FIN and
/// PSH are on the last, CWR is on the first. Of UDP, each is a datagram with its own length (USO, Linux
/// 4.18).
///
/// A packet that may not be fragmented needs no identification of its own (RFC 6864 §4.1); for others, the
/// identification is incremented from segment to segment.
#[inline]
pub fn cut(header: &mut [u8], payload_len: usize, mss: usize, index: usize) -> Range<usize> {
    let mss = if mss == 0 { payload_len } else { mss };
    let start = index.saturating_mul(mss).min(payload_len);
    let end = payload_len.min(start + mss);
    set_len(header, header.len() + (end - start));
    let Some(at) = tcp_at(header) else {
        if let Some(at) = udp_at(header) {
            set_word(header, at + UDP_LEN, (header.len() - at + (end - start)) as u16);
        }
        return start..end;
    };
    if is_v4(header) && word(header, V4_FRAGMENT) & DONT_FRAGMENT == 0 {
        set_v4_word(header, V4_ID, word(header, V4_ID).wrapping_add(index as u16));
    }
    let tcp = &mut header[at..];
    let seq = seq(tcp).wrapping_add(start as u32);
    tcp[TCP_SEQ..TCP_SEQ + 4].copy_from_slice(&seq.to_be_bytes());
    if end < payload_len {
        tcp[TCP_FLAGS] &= !ENDS;
    }
    if start > 0 {
        tcp[TCP_FLAGS] &= !CWR;
    }
    start..end
}

/// Whether further segments may be joined to a packet that ends with this segment: it is TCP, and has none of
/// the flags that begin or end a stream or a record.
#[inline]
#[must_use]
pub fn is_open(header: &[u8]) -> bool {
    tcp_at(header).is_some_and(|at| header[at + TCP_FLAGS] & CLOSING == 0)
}

/// Whether a segment can be joined to a packet that begins with the headers `first` and has `len` bytes of
/// payload: it is of the same connection, has the next sequence number, and joining loses no information. So
/// all header fields must be equal, including marks, ACK, window and options, except lengths, identification,
/// checksums, PSH and FIN. Linux: `tcp_gro_receive`.
///
/// Both slices end with the headers.
#[inline]
#[must_use]
pub fn continues(first: &[u8], next: &[u8], len: usize) -> bool {
    let Some(at) = tcp_at(first).filter(|_| first.len() == next.len()) else { return false };
    let same = |range: Range<usize>| first[range.clone()] == next[range];
    let ip = if is_v4(first) {
        same(0..V4_LEN) && same(V4_FRAGMENT..V4_SUM) && same(V4_ADDRESSES..at)
    } else {
        same(0..V6_LEN) && same(V6_NEXT..at)
    };
    ip && seq(&next[at..]) == seq(&first[at..]).wrapping_add(len as u32)
        && same(at..at + TCP_SEQ)
        && same(at + TCP_ACK..at + TCP_FLAGS)
        && first[at + TCP_FLAGS] | ENDS == next[at + TCP_FLAGS] | ENDS
        && same(at + TCP_WINDOW..at + tcp::CHECKSUM_OFFSET)
        && same(at + TCP_URGENT..first.len())
}

/// The reverse of [`cut`]: turns the headers of a first segment into those of a packet with `payload_len`
/// bytes, which ends with the segment that has the headers `last`.
#[inline]
pub fn join(header: &mut [u8], last: &[u8], payload_len: usize) {
    set_len(header, header.len() + payload_len);
    if let Some(at) = tcp_at(header)
        && let Some(flags) = last.get(at + TCP_FLAGS)
    {
        header[at + TCP_FLAGS] |= flags & ENDS;
    }
}

// ---- offsets ----

// All of these are for headers for which [`ip_len`] returns a length.

#[inline]
fn is_v4(header: &[u8]) -> bool {
    header[0] >> 4 == 4
}

/// Both addresses, the source first.
#[inline]
fn addresses(header: &[u8]) -> &[u8] {
    if is_v4(header) { &header[V4_ADDRESSES..V4_HEADER_LEN] } else { &header[V6_ADDRESSES..V6_HEADER_LEN] }
}

#[inline]
fn word(header: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([header[at], header[at + 1]])
}

#[inline]
fn set_word(header: &mut [u8], at: usize, value: u16) {
    header[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Writes a word of an IPv4 header and changes the checksum by the difference: RFC 1624 §3, equation 3.
#[inline]
fn set_v4_word(header: &mut [u8], at: usize, value: u16) {
    let (before, sum) = (word(header, at), word(header, V4_SUM));
    set_word(header, at, value);
    let sum = u32::from(!sum) + u32::from(!before) + u32::from(value);
    let sum = (sum & 0xffff) + (sum >> 16);
    set_word(header, V4_SUM, !((sum & 0xffff) + (sum >> 16)) as u16);
}

#[inline]
fn seq(tcp: &[u8]) -> u32 {
    u32::from_be_bytes([tcp[TCP_SEQ], tcp[TCP_SEQ + 1], tcp[TCP_SEQ + 2], tcp[TCP_SEQ + 3]])
}
