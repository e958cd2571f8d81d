//! Membership in multicast groups: queries of routers and switches, and the reports of hosts. IGMPv3 (RFC
//! 3376) for IPv4, MLDv2 (RFC 3810) for IPv6, and the reports of their predecessors (RFC 2236, RFC 2710), for
//! a link whose querier knows only those. Called by `taut-ethernet`.
//!
//! ```text
//!   querier ── GroupQuery::parse ──▶ host ── emit_report, emit_old_report ──▶ routers and switches
//! ```
//!
//! Both protocols say the same with other numbers. They are read and written as whole IP packets, because
//! each has an IP option that makes routers look at it (router alert, RFC 2113, RFC 2711), and a hop limit of
//! 1 keeps it on the link. A host that wants everything that is sent to a group says so by a record without
//! sources.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::checksum::pseudo_header;
use crate::{IpHeader, ParseError, Sum, protocol};

/// A general query goes there: every host (RFC 1112 §4, RFC 4291 §2.7.1).
pub const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
/// The same for IPv6.
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// Reports go there (RFC 3376 §4.2.14, RFC 3810 §5.2.14).
pub const REPORTS_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
/// The same for IPv6.
pub const REPORTS_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
/// Where the predecessors say that they leave a group.
const ROUTERS_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
const ROUTERS_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// IGMP (IANA "Protocol Numbers").
pub const IGMP: u8 = 2;
const HOP_BY_HOP: u8 = 0;
/// Headers with a router alert.
const HEADER_V4: usize = 24;
const HEADER_V6: usize = 48;
/// RFC 2113 §2.1; RFC 2711 §2.1, behind it a padding of two bytes.
const ALERT_V4: [u8; 4] = [0x94, 4, 0, 0];
const ALERT_V6: [u8; 8] = [protocol::ICMPV6, 0, 5, 2, 0, 0, 1, 0];
const ALERT: u8 = 5;

/// Types: query, report, and the predecessors' report and leave.
const TYPES_V4: [u8; 4] = [0x11, 0x22, 0x16, 0x17];
const TYPES_V6: [u8; 4] = [130, 143, 131, 132];
/// Type, code, checksum, two bytes, number of records.
const REPORT_LEN: usize = 8;
/// Queries of the predecessors, and the least of the newer ones.
const QUERY_V4: (usize, usize) = (8, 12);
const QUERY_V6: (usize, usize) = (24, 28);
/// So many records are in a report at most.
pub const RECORDS_MAX: usize = 12;
/// The longest report.
pub const LEN_MAX: usize = HEADER_V6 + REPORT_LEN + RECORDS_MAX * 20;

/// What a host says of a group (RFC 3376 §4.2.12, RFC 3810 §5.2.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupRecord {
    /// It is a member: the answer to a query.
    Is(IpAddr),
    /// It has become one.
    Joins(IpAddr),
    /// It is none any more.
    Leaves(IpAddr),
}

impl GroupRecord {
    /// The group.
    #[must_use]
    pub const fn group(self) -> IpAddr {
        match self {
            Self::Is(group) | Self::Joins(group) | Self::Leaves(group) => group,
        }
    }

    /// `MODE_IS_EXCLUDE`, `CHANGE_TO_EXCLUDE_MODE`, `CHANGE_TO_INCLUDE_MODE`.
    const fn code(self) -> u8 {
        match self {
            Self::Is(_) => 2,
            Self::Joins(_) => 4,
            Self::Leaves(_) => 3,
        }
    }
}

/// A querier asks who is a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupQuery {
    /// Of this group, or of any.
    pub group: Option<IpAddr>,
    /// Hosts answer within so many milliseconds.
    pub within_ms: u32,
    /// The querier understands only the predecessors of IGMPv3 and MLDv2.
    pub is_old: bool,
}

impl GroupQuery {
    /// Whether a packet may be one: its protocol is IGMP, or it has options for each hop.
    #[must_use]
    pub fn may_be(packet: &[u8]) -> bool {
        match packet.first().map(|first| first >> 4) {
            Some(4) => packet.get(9) == Some(&IGMP),
            Some(6) => packet.get(6) == Some(&HOP_BY_HOP),
            _ => false,
        }
    }

    /// Parses an IP packet, with the checks of RFC 3376 §4.1.12 and RFC 3810 §6.2.
    ///
    /// # Errors
    /// [`ParseError::Unsupported`] for another message; [`ParseError::NotFromLink`] for one that may have
    /// come from another link.
    pub fn parse(packet: &[u8]) -> Result<Self, ParseError> {
        let ip = IpHeader::parse(packet)?;
        let message =
            packet.get(ip.header_len..ip.header_len + ip.payload_len).ok_or(ParseError::Truncated)?;
        if ip.hop_limit != 1 {
            return Err(ParseError::NotFromLink);
        }
        match (ip.src, ip.protocol) {
            (IpAddr::V4(_), IGMP) => Self::parse_v4(message),
            (IpAddr::V6(src), protocol::ICMPV6) => {
                if message.first() != Some(&TYPES_V6[0]) {
                    return Err(ParseError::Unsupported);
                }
                let options = packet.get(40..ip.header_len).unwrap_or_default();
                if !src.is_unicast_link_local() || packet[6] != HOP_BY_HOP || !has_alert(options) {
                    return Err(ParseError::NotFromLink);
                }
                Self::parse_v6(&ip, message)
            }
            _ => Err(ParseError::Unsupported),
        }
    }

    fn parse_v4(message: &[u8]) -> Result<Self, ParseError> {
        let &[kind, code, _, _, a, b, c, d] = message.first_chunk().ok_or(ParseError::Truncated)?;
        if Sum::ZERO.add_bytes(message).finish() != 0 {
            return Err(ParseError::Checksum);
        }
        if kind != TYPES_V4[0] {
            return Err(ParseError::Unsupported);
        }
        let is_old = is_old(message.len(), QUERY_V4)?;
        let group = Ipv4Addr::new(a, b, c, d);
        // RFC 3376 §4.1.1: tenths of a second, beyond 127 with an exponent. IGMPv1 says none, and means ten
        // seconds (§7.2.1).
        let tenths = match u32::from(code) {
            0 if is_old => 100,
            code @ 128.. if !is_old => ((code & 0x0f) | 0x10) << (((code >> 4) & 7) + 3),
            code => code,
        };
        let group = checked(group.into(), group.is_unspecified(), group.is_multicast())?;
        Ok(Self { group, within_ms: tenths * 100, is_old })
    }

    fn parse_v6(ip: &IpHeader, message: &[u8]) -> Result<Self, ParseError> {
        let fixed = message.first_chunk::<{ QUERY_V6.0 }>().ok_or(ParseError::Truncated)?;
        let sum = pseudo_header(ip.src, ip.dst, protocol::ICMPV6, message.len() as u32);
        if sum.add_bytes(message).finish() != 0 {
            return Err(ParseError::Checksum);
        }
        let is_old = is_old(message.len(), QUERY_V6)?;
        let group = fixed.last_chunk().map(|octets| Ipv6Addr::from(*octets)).ok_or(ParseError::Truncated)?;
        // RFC 3810 §5.1.3: milliseconds, beyond 32767 with an exponent.
        let within_ms = match u32::from(u16::from_be_bytes([fixed[4], fixed[5]])) {
            code @ 0x8000.. if !is_old => ((code & 0x0fff) | 0x1000) << (((code >> 12) & 7) + 3),
            code => code,
        };
        let group = checked(group.into(), group.is_unspecified(), group.is_multicast())?;
        Ok(Self { group, within_ms, is_old })
    }
}

/// RFC 3376 §7.1, RFC 3810 §8.1: the length tells the version.
const fn is_old(len: usize, (old, new): (usize, usize)) -> Result<bool, ParseError> {
    if len == old {
        Ok(true)
    } else if len >= new {
        Ok(false)
    } else {
        Err(ParseError::Unsupported)
    }
}

fn checked(group: IpAddr, is_general: bool, is_group: bool) -> Result<Option<IpAddr>, ParseError> {
    if is_general {
        Ok(None)
    } else if is_group {
        Ok(Some(group))
    } else {
        Err(ParseError::Unsupported)
    }
}

/// Whether options for each hop have a router alert.
fn has_alert(extension: &[u8]) -> bool {
    let mut options = extension.get(2..).unwrap_or_default();
    while let Some((&kind, rest)) = options.split_first() {
        options = match (kind, rest.split_first()) {
            (0, _) => rest,
            (ALERT, Some((&2, _))) => return true,
            (_, Some((&len, rest))) => rest.get(usize::from(len)..).unwrap_or_default(),
            (_, None) => &[],
        };
    }
    false
}

/// Writes a packet with a report on these groups, all of the family of `src`, to the start of `buf`, and
/// returns its length: at most [`LEN_MAX`]. Of more than [`RECORDS_MAX`] records, the first ones.
///
/// # Panics
/// If `buf` is shorter than that.
pub fn emit_report(buf: &mut [u8], src: IpAddr, records: &[GroupRecord]) -> usize {
    let records = &records[..records.len().min(RECORDS_MAX)];
    let (dst, header, kind, record_len) = match src {
        IpAddr::V4(_) => (IpAddr::V4(REPORTS_V4), HEADER_V4, TYPES_V4[1], 8),
        IpAddr::V6(_) => (IpAddr::V6(REPORTS_V6), HEADER_V6, TYPES_V6[1], 20),
    };
    let len = REPORT_LEN + records.len() * record_len;
    let message = &mut buf[header..header + len];
    message[..REPORT_LEN].copy_from_slice(&[kind, 0, 0, 0, 0, 0, 0, records.len() as u8]);
    for (place, record) in message[REPORT_LEN..].chunks_exact_mut(record_len).zip(records) {
        place[..4].copy_from_slice(&[record.code(), 0, 0, 0]);
        put_group(&mut place[4..], record.group());
    }
    finish(buf, (src, dst), len)
}

/// Writes a packet by which the predecessors say the same of one group, and returns its length.
///
/// # Panics
/// If `buf` is shorter than [`LEN_MAX`].
pub fn emit_old_report(buf: &mut [u8], src: IpAddr, record: GroupRecord) -> usize {
    let leaves = matches!(record, GroupRecord::Leaves(_));
    let at = if leaves { 3 } else { 2 };
    let group = record.group();
    let (dst, header, kind, at_group) = match src {
        IpAddr::V4(_) => (if leaves { ROUTERS_V4.into() } else { group }, HEADER_V4, TYPES_V4[at], 4),
        IpAddr::V6(_) => (if leaves { ROUTERS_V6.into() } else { group }, HEADER_V6, TYPES_V6[at], 8),
    };
    let len = if src.is_ipv4() { QUERY_V4.0 } else { QUERY_V6.0 };
    let message = &mut buf[header..header + len];
    message.fill(0);
    message[0] = kind;
    put_group(&mut message[at_group..], group);
    finish(buf, (src, dst), len)
}

fn put_group(place: &mut [u8], group: IpAddr) {
    match group {
        IpAddr::V4(v4) => place.copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => place.copy_from_slice(&v6.octets()),
    }
}

/// Writes the headers in front of a message of so many bytes, and its checksum.
fn finish(buf: &mut [u8], (src, dst): (IpAddr, IpAddr), len: usize) -> usize {
    let at = if src.is_ipv4() { HEADER_V4 } else { HEADER_V6 };
    let sum = match src {
        IpAddr::V4(_) => Sum::ZERO,
        IpAddr::V6(_) => pseudo_header(src, dst, protocol::ICMPV6, len as u32),
    };
    let checksum = sum.add_bytes(&buf[at..at + len]).finish();
    buf[at + 2..at + 4].copy_from_slice(&checksum.to_be_bytes());
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let [high, low] = ((HEADER_V4 + len) as u16).to_be_bytes();
            // Precedence "internetwork control" (RFC 3376 §4); it must not be cut.
            let head = [0x46, 0xc0, high, low, 0, 0, 0x40, 0, 1, IGMP, 0, 0];
            buf[..12].copy_from_slice(&head);
            buf[12..16].copy_from_slice(&src.octets());
            buf[16..20].copy_from_slice(&dst.octets());
            buf[20..HEADER_V4].copy_from_slice(&ALERT_V4);
            let checksum = Sum::ZERO.add_bytes(&buf[..HEADER_V4]).finish();
            buf[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        (src, dst) => {
            let octets = |ip: IpAddr| match ip {
                IpAddr::V6(v6) => v6.octets(),
                IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            };
            let [high, low] = ((ALERT_V6.len() + len) as u16).to_be_bytes();
            buf[..8].copy_from_slice(&[0x60, 0, 0, 0, high, low, HOP_BY_HOP, 1]);
            buf[8..24].copy_from_slice(&octets(src));
            buf[24..40].copy_from_slice(&octets(dst));
            buf[40..HEADER_V6].copy_from_slice(&ALERT_V6);
        }
    }
    at + len
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// The internet checksum, summed by hand.
    fn sum(pieces: &[&[u8]]) -> [u8; 2] {
        let bytes = pieces.concat();
        let words =
            bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
        let sum = words.sum::<u32>();
        let sum = (sum & 0xffff) + (sum >> 16);
        (!(sum as u16)).to_be_bytes()
    }

    /// RFC 3376 §4.2, RFC 2113 §2.1, byte for byte.
    #[test]
    fn igmp_01_reports_byte_for_byte() {
        let mut buf = [0xaa; LEN_MAX];
        let records = [GroupRecord::Joins(ip("224.0.0.251")), GroupRecord::Leaves(ip("239.1.2.3"))];
        let len = emit_report(&mut buf, ip("10.9.0.2"), &records);
        let mut message =
            vec![0x22, 0, 0, 0, 0, 0, 0, 2, 4, 0, 0, 0, 224, 0, 0, 251, 3, 0, 0, 0, 239, 1, 2, 3];
        let checksum = sum(&[&message]);
        message[2..4].copy_from_slice(&checksum);
        let mut header = vec![0x46, 0xc0, 0, 48, 0, 0, 0x40, 0, 1, 2, 0, 0, 10, 9, 0, 2, 224, 0, 0, 22];
        header.extend([0x94, 4, 0, 0]);
        let checksum = sum(&[&header]);
        header[10..12].copy_from_slice(&checksum);
        assert_eq!(buf[..len], [header, message].concat());
        // RFC 2236 §2: the predecessor's report goes to the group, its leave to the routers.
        let len = emit_old_report(&mut buf, ip("10.9.0.2"), GroupRecord::Is(ip("224.0.0.251")));
        assert_eq!((buf[16..20].to_vec(), len), (vec![224, 0, 0, 251], 32));
        assert_eq!(buf[24..len], [0x16, 0, 9, 4, 224, 0, 0, 251], "0x1600 + 0xe000 + 0x00fb = 0xf6fb");
        let len = emit_old_report(&mut buf, ip("10.9.0.2"), GroupRecord::Leaves(ip("224.0.0.251")));
        assert_eq!((buf[16..20].to_vec(), buf[24], len), (vec![224, 0, 0, 2], 0x17, 32));
    }

    /// RFC 3810 §5.2, RFC 2711 §2.1.
    #[test]
    fn mld_01_reports_byte_for_byte() {
        let mut buf = [0xaa; LEN_MAX];
        let group: Ipv6Addr = "ff02::1:ff00:2".parse().unwrap();
        let len = emit_report(&mut buf, ip("fe80::2"), &[GroupRecord::Is(group.into())]);
        let mut message = [&[143, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0][..], &group.octets()].concat();
        let (src, dst): (Ipv6Addr, Ipv6Addr) = ("fe80::2".parse().unwrap(), "ff02::16".parse().unwrap());
        let checksum = sum(&[&src.octets(), &dst.octets(), &[0, 0, 0, 28, 0, 0, 0, 58], &message]);
        message[2..4].copy_from_slice(&checksum);
        let head = [&[0x60, 0, 0, 0, 0, 36, 0, 1][..], &src.octets(), &dst.octets()].concat();
        assert_eq!(buf[..len], [&head[..], &[58, 0, 5, 2, 0, 0, 1, 0], &message].concat());
        // RFC 2710 §3.
        let len = emit_old_report(&mut buf, ip("fe80::2"), GroupRecord::Joins(group.into()));
        assert_eq!((len, buf[48], &buf[24..40]), (72, 131, &group.octets()[..]));
        let len = emit_old_report(&mut buf, ip("::"), GroupRecord::Leaves(group.into()));
        assert_eq!((len, buf[48], &buf[24..40]), (72, 132, &ROUTERS_V6.octets()[..]));
        // As many as fit, and no more.
        let many = vec![GroupRecord::Is(group.into()); 40];
        assert_eq!((emit_report(&mut buf, ip("fe80::2"), &many), buf[55]), (LEN_MAX, 12));
    }

    fn query_v4(ttl: u8, dst: &str, message: &[u8]) -> Vec<u8> {
        let IpAddr::V4(dst) = ip(dst) else { panic!() };
        let mut packet = vec![0x46, 0xc0, 0, 24 + message.len() as u8, 0, 0, 0, 0, ttl, 2, 0, 0, 10, 9, 0, 1];
        packet.extend(dst.octets());
        packet.extend([0x94, 4, 0, 0]);
        let checksum = sum(&[&packet]);
        packet[10..12].copy_from_slice(&checksum);
        let mut message = message.to_vec();
        let checksum = sum(&[&message]);
        message[2..4].copy_from_slice(&checksum);
        packet.extend(message);
        packet
    }

    fn query_v6(hops: u8, src: &str, alert: [u8; 8], message: &[u8]) -> Vec<u8> {
        let (src, dst): (Ipv6Addr, Ipv6Addr) = (src.parse().unwrap(), ALL_NODES);
        let len = message.len() as u8;
        let head = [&[0x60, 0, 0, 0, 0, 8 + len, 0, hops][..], &src.octets(), &dst.octets(), &alert].concat();
        let mut message = message.to_vec();
        let checksum = sum(&[&src.octets(), &dst.octets(), &[0, 0, 0, len, 0, 0, 0, 58], &message]);
        message[2..4].copy_from_slice(&checksum);
        [head, message].concat()
    }

    /// RFC 3376 §4.1, §7.1.
    #[test]
    fn igmp_02_queries() {
        let parse = |message: &[u8]| GroupQuery::parse(&query_v4(1, "224.0.0.1", message));
        let query = |group: Option<&str>, within_ms, is_old| {
            Ok(GroupQuery { group: group.map(ip), within_ms, is_old })
        };
        assert_eq!(parse(&[0x11, 100, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0]), query(None, 10_000, false));
        let of = [0x11, 10, 0, 0, 239, 1, 2, 3, 2, 125, 0, 0];
        assert_eq!(parse(&of), query(Some("239.1.2.3"), 1_000, false));
        assert_eq!(parse(&[&of[..10], &[0, 1, 9, 9, 9, 9]].concat()), query(Some("239.1.2.3"), 1_000, false));
        // §4.1.1: 0x8a is (10 | 16) << 3 tenths of a second.
        assert_eq!(parse(&[0x11, 0x8a, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0]), query(None, 20_800, false));
        assert_eq!(parse(&[0x11, 100, 0, 0, 0, 0, 0, 0]), query(None, 10_000, true), "IGMPv2");
        assert_eq!(parse(&[0x11, 0, 0, 0, 0, 0, 0, 0]), query(None, 10_000, true), "IGMPv1");
        for (wrong, why) in [
            (query_v4(1, "224.0.0.1", &[0x22, 0, 0, 0, 0, 0, 0, 0]), ParseError::Unsupported),
            (query_v4(1, "224.0.0.1", &[0x11, 1, 0, 0, 10, 0, 0, 1]), ParseError::Unsupported),
            (query_v4(1, "224.0.0.1", &[0x11, 1, 0, 0, 0, 0, 0, 0, 2, 125]), ParseError::Unsupported),
            (query_v4(2, "224.0.0.1", &[0x11, 1, 0, 0, 0, 0, 0, 0]), ParseError::NotFromLink),
            (query_v4(1, "224.0.0.1", &[0x11, 1, 0, 0]), ParseError::Truncated),
        ] {
            assert_eq!(GroupQuery::parse(&wrong), Err(why), "{wrong:?}");
        }
        let mut broken = query_v4(1, "224.0.0.1", &of);
        *broken.last_mut().unwrap() ^= 1;
        assert_eq!(GroupQuery::parse(&broken), Err(ParseError::Checksum));
        assert!(GroupQuery::may_be(&broken));
    }

    /// RFC 3810 §5.1, §6.2, §8.1.
    #[test]
    fn mld_02_queries() {
        let group: Ipv6Addr = "ff02::fb".parse().unwrap();
        let message = |code: u16, group: Ipv6Addr, more: &[u8]| {
            [&[130, 0, 0, 0][..], &code.to_be_bytes(), &[0, 0], &group.octets(), more].concat()
        };
        let new = [2, 125, 0, 0];
        let parse = |message: &[u8]| GroupQuery::parse(&query_v6(1, "fe80::1", ALERT_V6, message));
        let query = |group: Option<&str>, within_ms, is_old| {
            Ok(GroupQuery { group: group.map(ip), within_ms, is_old })
        };
        assert_eq!(parse(&message(10_000, Ipv6Addr::UNSPECIFIED, &new)), query(None, 10_000, false));
        assert_eq!(parse(&message(1_000, group, &new)), query(Some("ff02::fb"), 1_000, false));
        // §5.1.3: 0x8001 is (1 | 0x1000) << 3 milliseconds.
        assert_eq!(parse(&message(0x8001, group, &new)), query(Some("ff02::fb"), 32_776, false));
        assert_eq!(parse(&message(1_000, group, &[])), query(Some("ff02::fb"), 1_000, true), "MLDv1");
        let good = message(1_000, group, &new);
        for (wrong, why) in [
            (query_v6(255, "fe80::1", ALERT_V6, &good), ParseError::NotFromLink),
            (query_v6(1, "fd09::1", ALERT_V6, &good), ParseError::NotFromLink),
            (query_v6(1, "fe80::1", [58, 0, 1, 4, 0, 0, 0, 0], &good), ParseError::NotFromLink),
            (
                query_v6(1, "fe80::1", ALERT_V6, &message(1, "fe80::9".parse().unwrap(), &new)),
                ParseError::Unsupported,
            ),
            (query_v6(1, "fe80::1", ALERT_V6, &message(1, group, &[0])), ParseError::Unsupported),
            (query_v6(1, "fe80::1", ALERT_V6, &[135; 24]), ParseError::Unsupported),
            (query_v6(1, "fe80::1", ALERT_V6, &good[..20]), ParseError::Truncated),
        ] {
            assert_eq!(GroupQuery::parse(&wrong), Err(why), "{wrong:?}");
        }
        let mut broken = query_v6(1, "fe80::1", ALERT_V6, &good);
        *broken.last_mut().unwrap() ^= 1;
        assert_eq!(GroupQuery::parse(&broken), Err(ParseError::Checksum));
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_value_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            _ = (GroupQuery::parse(&bytes), GroupQuery::may_be(&bytes));
            _ = GroupQuery::parse(&query_v4(1, "224.0.0.1", &[&[0x11, 1, 0, 0], &bytes[..]].concat()));
            _ = GroupQuery::parse(&query_v6(1, "fe80::1", ALERT_V6, &[&[130, 0, 0, 0], &bytes[..]].concat()));
        }
    }
}
