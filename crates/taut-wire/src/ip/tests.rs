use super::*;
use crate::testing::{address_pair, bytes, fix_checksum, mutate, mutations};
use proptest::prelude::*;
use std::vec::Vec;

/// A UDP packet of 115 bytes whose header checksum, b861, is worked through in many textbooks.
const V4: [u8; 20] = [
    0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01, 0xc0,
    0xa8, 0x00, 0xc7,
];

fn v4_packet() -> Vec<u8> {
    let mut packet = V4.to_vec();
    packet.resize(115, 0);
    packet
}

/// A fixed header whose first next header is `next`, then `rest`.
fn v6_packet(next: u8, rest: &[u8]) -> Vec<u8> {
    let mut packet = std::vec![0x60, 0x20, 0, 0, 0, rest.len() as u8, next, 63];
    packet.extend("2001:db8::1".parse::<core::net::Ipv6Addr>().unwrap().octets());
    packet.extend("2001:db8::2".parse::<core::net::Ipv6Addr>().unwrap().octets());
    packet.extend(rest);
    packet
}

fn v6_error(next: u8, rest: &[u8]) -> ParseError {
    IpHeader::parse(&v6_packet(next, rest)).unwrap_err()
}

fn headers() -> impl Strategy<Value = IpHeader> {
    (address_pair(), any::<u8>(), any::<u8>(), 0..4_u8, 0..=65_515_usize).prop_map(
        |((src, dst), protocol, hop_limit, ecn, payload_len)| IpHeader {
            src,
            dst,
            protocol,
            hop_limit,
            ecn: Ecn::from_bits(ecn),
            header_len: if src.is_ipv4() { 20 } else { 40 },
            payload_len,
        },
    )
}

#[test]
fn v4_fields() {
    let expected = IpHeader {
        src: "192.168.0.1".parse().unwrap(),
        dst: "192.168.0.199".parse().unwrap(),
        protocol: protocol::UDP,
        hop_limit: 64,
        ecn: Ecn::NotEct,
        header_len: 20,
        payload_len: 95,
    };
    assert_eq!(IpHeader::parse(&v4_packet()), Ok(expected));
    assert_eq!(IpHeader::parse_prefix(&V4, 115), Ok(expected));
    let mut emitted = [0xee; 20];
    assert_eq!(expected.emit(&mut emitted, 0), 20);
    assert_eq!(emitted, V4);
}

#[test]
fn v4_padding_is_not_payload() {
    let mut packet = v4_packet();
    packet.resize(200, 0xff);
    assert_eq!(IpHeader::parse(&packet).unwrap().payload_len, 95);
}

#[test]
fn v4_every_cut_is_truncated() {
    let packet = v4_packet();
    for len in 0..packet.len() {
        assert_eq!(IpHeader::parse(&packet[..len]), Err(ParseError::Truncated), "{len}");
    }
}

#[test]
fn v4_every_flipped_bit_is_noticed() {
    // Bit 5 makes the version 6, whose header has no checksum.
    for bit in (0..160).filter(|&bit| bit != 5) {
        let mut packet = v4_packet();
        packet[bit / 8] ^= 1 << (bit % 8);
        assert!(IpHeader::parse(&packet).is_err(), "{bit}");
    }
}

#[test]
fn v4_options_are_skipped() {
    let mut packet = v4_packet();
    packet[0] = 0x46;
    packet[20..24].copy_from_slice(&[0x94, 0x04, 0x00, 0x00]);
    fix_checksum(&mut packet[..24], 10);
    let ip = IpHeader::parse(&packet).unwrap();
    assert_eq!((ip.header_len, ip.payload_len), (24, 91));
}

#[test]
fn v4_refusals() {
    let with = |at: usize, value: u8| {
        let mut packet = v4_packet();
        packet[at] = value;
        fix_checksum(&mut packet[..20], 10);
        IpHeader::parse(&packet).unwrap_err()
    };
    assert_eq!(with(0, 0x44), ParseError::HeaderLength);
    assert_eq!(with(0, 0x55), ParseError::Version);
    assert_eq!(with(3, 19), ParseError::TotalLength);
    assert_eq!(with(3, 116), ParseError::Truncated);
    assert_eq!(with(6, 0x20), ParseError::Fragment);
    assert_eq!(with(7, 0x01), ParseError::Fragment);
    assert_eq!(with(6, 0x1f), ParseError::Fragment);
}

#[test]
fn v6_fields() {
    let ip = IpHeader::parse(&v6_packet(protocol::TCP, &[0; 20])).unwrap();
    let expected = IpHeader {
        src: "2001:db8::1".parse().unwrap(),
        dst: "2001:db8::2".parse().unwrap(),
        protocol: protocol::TCP,
        hop_limit: 63,
        ecn: Ecn::Ect0,
        header_len: 40,
        payload_len: 20,
    };
    assert_eq!(ip, expected);
    let mut emitted = [0xee; 40];
    assert_eq!(expected.emit(&mut emitted, 7), 40);
    assert_eq!(emitted[..], v6_packet(protocol::TCP, &[0; 20])[..40]);
}

#[test]
fn v6_every_cut_is_truncated() {
    let packet = v6_packet(60, &[protocol::TCP, 0, 1, 4, 0, 0, 0, 0, 1, 2, 3, 4]);
    for len in 0..packet.len() {
        assert_eq!(IpHeader::parse(&packet[..len]), Err(ParseError::Truncated), "{len}");
    }
}

#[test]
fn v6_extensions_are_skipped() {
    let hop_by_hop = [43, 0, 5, 2, 0, 0, 0, 0]; // router alert, two Pad1
    let routing = [60, 1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]; // no segments left
    let destination = [44, 0, 1, 4, 0, 0, 0, 0]; // PadN
    let atomic_fragment = [protocol::TCP, 0, 0, 0, 1, 2, 3, 4];
    let rest = [&hop_by_hop[..], &routing, &destination, &atomic_fragment, &[0; 20]].concat();
    let ip = IpHeader::parse(&v6_packet(0, &rest)).unwrap();
    assert_eq!((ip.protocol, ip.header_len, ip.payload_len), (protocol::TCP, 80, 20));
}

#[test]
fn v6_refusals() {
    // A destination option whose type asks to discard: the jumbo payload, and an unknown one.
    assert_eq!(v6_error(0, &[6, 0, 0xc2, 4, 0, 1, 0, 0]), ParseError::UnsupportedExtension);
    assert_eq!(v6_error(60, &[6, 0, 0x5e, 4, 0, 0, 0, 0]), ParseError::UnsupportedExtension);
    // An option past the end of its header.
    assert_eq!(v6_error(60, &[6, 0, 1, 5, 0, 0, 0, 0]), ParseError::HeaderLength);
    assert_eq!(v6_error(60, &[6, 0, 1, 3, 0, 0, 0, 1]), ParseError::HeaderLength);
    // Hop-by-hop options that are not first.
    let late = [0, 0, 1, 4, 0, 0, 0, 0, 6, 0, 1, 4, 0, 0, 0, 0];
    assert_eq!(v6_error(60, &late), ParseError::UnsupportedExtension);
    // Segments left.
    assert_eq!(v6_error(43, &[6, 0, 0, 1, 0, 0, 0, 0]), ParseError::UnsupportedExtension);
    // ESP and AH.
    assert_eq!(v6_error(50, &[0; 16]), ParseError::UnsupportedExtension);
    assert_eq!(v6_error(51, &[0; 16]), ParseError::UnsupportedExtension);
    // A first fragment, and a last.
    assert_eq!(v6_error(44, &[6, 0, 0, 1, 0, 0, 0, 0]), ParseError::Fragment);
    assert_eq!(v6_error(44, &[6, 0, 0, 8, 0, 0, 0, 0]), ParseError::Fragment);
    // An extension that the length does not cover, with link padding after it.
    let mut padded = v6_packet(60, &[6, 0, 1, 4, 0, 0, 0, 0]);
    padded[5] = 4;
    assert_eq!(IpHeader::parse(&padded), Err(ParseError::TotalLength));
}

#[test]
fn ecn_bits_are_those_of_rfc_3168() {
    let names = [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce];
    for (bits, name) in (0_u8..).zip(names) {
        assert_eq!(Ecn::from_bits(bits), name);
        assert_eq!(Ecn::from_bits(0xfc | bits), name);
        assert_eq!(name.to_bits(), bits);
    }
}

#[test]
fn too_large_for_the_length_field_is_zero() {
    let mut ip = IpHeader::parse_prefix(&V4, 115).unwrap();
    let mut buf = [0; 20];
    ip.payload_len = 65_535 - 20;
    ip.emit(&mut buf, 0);
    assert_eq!(buf[2..4], [0xff, 0xff]);
    ip.payload_len += 1;
    ip.emit(&mut buf, 0);
    assert_eq!(buf[2..4], [0, 0]);
}

proptest! {
    #[test]
    fn emitted_is_what_etherparse_reads(ip in headers(), identification: u16) {
        let mut buf = [0xee; 40];
        let len = ip.emit(&mut buf, identification);
        prop_assert_eq!(len, ip.emitted_len());
        match (ip.src, ip.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let (read, _) = etherparse::Ipv4Header::from_slice(&buf[..len]).unwrap();
                prop_assert_eq!(read.source, src.octets());
                prop_assert_eq!(read.destination, dst.octets());
                prop_assert_eq!(read.protocol.0, ip.protocol);
                prop_assert_eq!(read.time_to_live, ip.hop_limit);
                prop_assert_eq!(read.ecn.value(), ip.ecn.to_bits());
                prop_assert_eq!(usize::from(read.total_len), 20 + ip.payload_len);
                prop_assert_eq!(read.identification, identification);
                prop_assert!(read.dont_fragment && !read.is_fragmenting_payload());
                prop_assert_eq!(read.header_checksum, read.calc_header_checksum());
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let (read, _) = etherparse::Ipv6Header::from_slice(&buf[..len]).unwrap();
                prop_assert_eq!(read.source, src.octets());
                prop_assert_eq!(read.destination, dst.octets());
                prop_assert_eq!(read.next_header.0, ip.protocol);
                prop_assert_eq!(read.hop_limit, ip.hop_limit);
                prop_assert_eq!(read.traffic_class, ip.ecn.to_bits());
                prop_assert_eq!(usize::from(read.payload_length), ip.payload_len);
                prop_assert_eq!(read.flow_label.value(), 0);
            }
            _ => unreachable!(),
        }
    }

    #[test]
    fn what_etherparse_writes_is_parsed(mut ip in headers(), options in 0..=10_usize, dscp in 0..64_u8) {
        let written = match (ip.src, ip.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                ip.header_len = 20 + options * 4;
                ip.payload_len = ip.payload_len.min(65_535 - ip.header_len);
                let mut header = etherparse::Ipv4Header {
                    options: std::vec![1; options * 4][..].try_into().unwrap(),
                    total_len: (ip.header_len + ip.payload_len) as u16,
                    source: src.octets(),
                    destination: dst.octets(),
                    protocol: etherparse::IpNumber(ip.protocol),
                    time_to_live: ip.hop_limit,
                    dscp: dscp.try_into().unwrap(),
                    ecn: ip.ecn.to_bits().try_into().unwrap(),
                    ..etherparse::Ipv4Header::default()
                };
                header.header_checksum = header.calc_header_checksum();
                header.to_bytes().to_vec()
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                // An extension header's number would need the header.
                ip.protocol = protocol::TCP;
                let header = etherparse::Ipv6Header {
                    traffic_class: dscp << 2 | ip.ecn.to_bits(),
                    flow_label: u32::from(dscp).try_into().unwrap(),
                    payload_length: ip.payload_len as u16,
                    next_header: etherparse::IpNumber(ip.protocol),
                    hop_limit: ip.hop_limit,
                    source: src.octets(),
                    destination: dst.octets(),
                };
                header.to_bytes().to_vec()
            }
            _ => unreachable!(),
        };
        prop_assert_eq!(IpHeader::parse_prefix(&written, ip.header_len + ip.payload_len), Ok(ip));
    }

    #[test]
    fn any_bytes_are_survived(packet in bytes(200), version in prop_oneof![Just(0x45), Just(0x4f), Just(0x60)]) {
        let _ = IpHeader::parse(&packet);
        if let Some(last) = packet.len().checked_sub(1) {
            let mut packet = packet;
            packet[0] = version;
            let _ = IpHeader::parse_prefix(&packet, last);
            let _ = IpHeader::parse_prefix(&packet, usize::MAX);
        }
    }

    #[test]
    fn mutated_packets_stay_inside_the_slice(changes in mutations(), next in 0..=60_u8, rest in bytes(120)) {
        let mut v4 = v4_packet();
        mutate(&mut v4, &changes);
        fix_checksum(&mut v4[..20], 10);
        let mut v6 = v6_packet(next, &rest);
        mutate(&mut v6, &changes);
        for packet in [v4, v6] {
            if let Ok(ip) = IpHeader::parse(&packet) {
                prop_assert!(ip.header_len + ip.payload_len <= packet.len());
            }
        }
    }
}
