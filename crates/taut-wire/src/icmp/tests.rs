use super::*;
use crate::testing::{address_pair, bytes, fix_checksum, mutate, mutations};
use core::net::IpAddr;
use etherparse::{Icmpv4Slice, Icmpv4Type, Icmpv6Slice, Icmpv6Type, icmpv4, icmpv6};
use proptest::prelude::*;
use std::vec::Vec;

fn v6_addresses() -> (Ipv6Addr, Ipv6Addr) {
    ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap())
}

/// An ICMPv4 message with its checksum.
fn v4_message(header: [u8; 8], body: &[u8]) -> Vec<u8> {
    let mut message = [&header[..], body].concat();
    fix_checksum(&mut message, 2);
    message
}

/// An ICMPv6 message with its checksum, by way of the pseudo-header as bytes (RFC 8200 §8.1).
fn v6_message(header: [u8; 8], body: &[u8]) -> Vec<u8> {
    let (src, dst) = v6_addresses();
    let mut covered = [&src.octets()[..], &dst.octets()].concat();
    covered.extend((8 + body.len() as u32).to_be_bytes());
    covered.extend([0, 0, 0, 58]);
    covered.extend(header);
    covered.extend(body);
    fix_checksum(&mut covered, 42);
    covered.split_off(40)
}

fn parse_v6(message: &[u8]) -> Result<Icmp<'_>, ParseError> {
    let (src, dst) = v6_addresses();
    Icmp::parse_v6(src, dst, message)
}

#[test]
fn echo_by_hand() {
    // 0800 + 0001 + 0001 + 6162 = 6964, complement 969b; the reply is 0800 less.
    let request = [8, 0, 0x96, 0x9b, 0, 1, 0, 1, b'a', b'b'];
    assert_eq!(Icmp::parse_v4(&request), Ok(Icmp::EchoRequest { ident: 1, seq: 1, payload: b"ab" }));
    let mut reply = [0xee; 12];
    let v4 = IpAddr::from([192, 0, 2, 1]);
    assert_eq!(emit_echo_reply(&mut reply, v4, v4, 1, 1, b"ab"), 10);
    assert_eq!(reply, [0, 0, 0x9e, 0x9b, 0, 1, 0, 1, b'a', b'b', 0xee, 0xee]);
    assert_eq!(Icmp::parse_v4(&reply[..10]), Ok(Icmp::EchoReply { ident: 1, seq: 1, payload: b"ab" }));
}

#[test]
fn v6_echo_by_hand() {
    // Pseudo-header 2001 + 0db8 + 0001 + 2001 + 0db8 + 0002 + 000a + 003a = 5bb9, message 8000 + 0001 + 0001
    // + 6162: 13d1d, folded 3d1e, complement c2e1.
    let request = [128, 0, 0xc2, 0xe1, 0, 1, 0, 1, b'a', b'b'];
    assert_eq!(parse_v6(&request), Ok(Icmp::EchoRequest { ident: 1, seq: 1, payload: b"ab" }));
}

#[test]
fn v4_unreachable_codes() {
    let code = |code| match Icmp::parse_v4(&v4_message([3, code, 0, 0, 0, 0, 5, 0xdc], b"quote")) {
        Ok(Icmp::DestinationUnreachable { code, quoted: b"quote" }) => code,
        other => panic!("{other:?}"),
    };
    // RFC 792; RFC 1122 §3.2.2.1; RFC 1812 §5.2.7.1.
    assert_eq!(code(0), Unreachable::Network);
    assert_eq!(code(1), Unreachable::Host);
    assert_eq!(code(2), Unreachable::Protocol);
    assert_eq!(code(3), Unreachable::Port);
    assert_eq!(code(4), Unreachable::FragmentationNeeded { mtu: 1500 });
    assert_eq!(code(5), Unreachable::Other(5));
    for prohibited in [9, 10, 13] {
        assert_eq!(code(prohibited), Unreachable::Prohibited);
    }
}

#[test]
fn v6_unreachable_codes() {
    let code = |code| match parse_v6(&v6_message([1, code, 0, 0, 0, 0, 0, 0], b"quote")) {
        Ok(Icmp::DestinationUnreachable { code, quoted: b"quote" }) => code,
        other => panic!("{other:?}"),
    };
    // RFC 4443 §3.1.
    assert_eq!(code(0), Unreachable::Network);
    assert_eq!(code(1), Unreachable::Prohibited);
    assert_eq!(code(2), Unreachable::Other(2));
    assert_eq!(code(3), Unreachable::Host);
    assert_eq!(code(4), Unreachable::Port);
    assert_eq!(code(5), Unreachable::Prohibited);
    assert_eq!(code(6), Unreachable::Prohibited);
}

#[test]
fn other_errors() {
    let quoted = &b"quote"[..];
    assert_eq!(
        Icmp::parse_v4(&v4_message([11, 0, 0, 0, 0, 0, 0, 0], quoted)),
        Ok(Icmp::TimeExceeded { quoted })
    );
    assert_eq!(
        Icmp::parse_v4(&v4_message([12, 0, 0, 0, 9, 0, 0, 0], quoted)),
        Ok(Icmp::ParameterProblem { pointer: 9, quoted })
    );
    assert_eq!(
        parse_v6(&v6_message([2, 0, 0, 0, 0, 0, 5, 0], quoted)),
        Ok(Icmp::PacketTooBig { mtu: 1280, quoted })
    );
    assert_eq!(parse_v6(&v6_message([3, 0, 0, 0, 0, 0, 0, 0], quoted)), Ok(Icmp::TimeExceeded { quoted }));
    assert_eq!(
        parse_v6(&v6_message([4, 1, 0, 0, 0, 0, 0, 6], quoted)),
        Ok(Icmp::ParameterProblem { pointer: 6, quoted })
    );
    assert_eq!(
        Icmp::parse_v4(&v4_message([5, 1, 0, 0, 0, 0, 0, 0], &[])),
        Ok(Icmp::Other { kind: 5, code: 1 })
    );
    assert_eq!(
        parse_v6(&v6_message([135, 0, 0, 0, 0, 0, 0, 0], &[])),
        Ok(Icmp::Other { kind: 135, code: 0 })
    );
}

#[test]
fn refusals() {
    let message = v4_message([8, 0, 0, 0, 0, 1, 0, 1], b"ab");
    for len in 0..8 {
        assert_eq!(Icmp::parse_v4(&message[..len]), Err(ParseError::Truncated));
        assert_eq!(parse_v6(&message[..len]), Err(ParseError::Truncated));
    }
    for bit in 0..message.len() * 8 {
        let mut message = message.clone();
        message[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Icmp::parse_v4(&message), Err(ParseError::Checksum), "{bit}");
    }
    // ICMPv6 covers the addresses.
    let message = v6_message([128, 0, 0, 0, 0, 1, 0, 1], b"ab");
    let (src, _) = v6_addresses();
    assert_eq!(Icmp::parse_v6(src, "2001:db8::3".parse().unwrap(), &message), Err(ParseError::Checksum));
}

#[test]
fn quotes_are_cut_to_what_the_version_allows() {
    let mut buf = [0; 1500];
    let v4 = IpAddr::from([192, 0, 2, 1]);
    let v6 = IpAddr::from(v6_addresses().0);
    let quoted = [0x45; 1500];
    // RFC 1812 §4.3.2.3: 576 with the IPv4 header; RFC 4443 §2.4(c): 1280 with the IPv6 header.
    assert_eq!(emit_unreachable(&mut buf, v4, v4, Unreachable::Port, &quoted), 576 - 20);
    assert_eq!(emit_unreachable(&mut buf, v6, v6, Unreachable::Port, &quoted), 1280 - 40);
    assert_eq!(emit_unreachable(&mut buf[..36], v4, v4, Unreachable::Port, &quoted), 36);
}

#[test]
fn v6_says_some_reasons_by_other_messages() {
    let (src, dst) = v6_addresses();
    let mut buf = [0; 64];
    let code = Unreachable::FragmentationNeeded { mtu: 1400 };
    let len = emit_unreachable(&mut buf, src.into(), dst.into(), code, b"quote");
    assert_eq!(parse_v6(&buf[..len]), Ok(Icmp::PacketTooBig { mtu: 1400, quoted: b"quote" }));
    let len = emit_unreachable(&mut buf, src.into(), dst.into(), Unreachable::Protocol, b"quote");
    assert_eq!(buf[..2], [4, 1]);
    assert_eq!(parse_v6(&buf[..len]), Ok(Icmp::ParameterProblem { pointer: 6, quoted: b"quote" }));
}

#[test]
fn v4_unreachable_is_what_etherparse_reads() {
    use icmpv4::DestUnreachableHeader as Peer;
    let v4 = IpAddr::from([192, 0, 2, 1]);
    for (code, expected) in [
        (Unreachable::Network, Peer::Network),
        (Unreachable::Host, Peer::Host),
        (Unreachable::Protocol, Peer::Protocol),
        (Unreachable::Port, Peer::Port),
        (Unreachable::FragmentationNeeded { mtu: 1400 }, Peer::FragmentationNeeded { next_hop_mtu: 1400 }),
        (Unreachable::Prohibited, Peer::FilterProhibited),
        (Unreachable::Other(5), Peer::SourceRouteFailed),
    ] {
        let mut buf = [0xee; 64];
        let len = emit_unreachable(&mut buf, v4, v4, code, b"quote");
        let read = Icmpv4Slice::from_slice(&buf[..len]).unwrap();
        assert_eq!(read.icmp_type(), Icmpv4Type::DestinationUnreachable(expected));
        assert_eq!(Icmp::parse_v4(&buf[..len]), Ok(Icmp::DestinationUnreachable { code, quoted: b"quote" }));
    }
}

#[test]
fn v6_unreachable_is_what_etherparse_reads() {
    use icmpv6::DestUnreachableCode as Peer;
    let (src, dst) = v6_addresses();
    for (code, expected) in [
        (Unreachable::Network, Peer::NoRoute),
        (Unreachable::Prohibited, Peer::Prohibited),
        (Unreachable::Other(2), Peer::BeyondScope),
        (Unreachable::Host, Peer::Address),
        (Unreachable::Port, Peer::Port),
    ] {
        let mut buf = [0xee; 64];
        let len = emit_unreachable(&mut buf, src.into(), dst.into(), code, b"quote");
        let read = Icmpv6Slice::from_slice(&buf[..len]).unwrap();
        assert_eq!(read.icmp_type(), Icmpv6Type::DestinationUnreachable(expected));
        assert!(read.is_checksum_valid(src.octets(), dst.octets()));
    }
}

proptest! {
    #[test]
    fn echo_replies_are_what_etherparse_reads(
        (src, dst) in address_pair(), ident: u16, seq: u16, payload in bytes(1400),
    ) {
        let mut buf = [0xee; 1500];
        let len = emit_echo_reply(&mut buf, src, dst, ident, seq, &payload);
        let echo = etherparse::IcmpEchoHeader { id: ident, seq };
        match (src, dst) {
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let read = Icmpv6Slice::from_slice(&buf[..len]).unwrap();
                prop_assert_eq!(read.icmp_type(), Icmpv6Type::EchoReply(echo));
                prop_assert_eq!(read.payload(), &payload);
                prop_assert!(read.is_checksum_valid(src.octets(), dst.octets()));
            }
            _ => {
                let read = Icmpv4Slice::from_slice(&buf[..len]).unwrap();
                prop_assert_eq!(read.icmp_type(), Icmpv4Type::EchoReply(echo));
                prop_assert_eq!(read.payload(), &payload);
                prop_assert_eq!(read.checksum(), read.icmp_type().calc_checksum(read.payload()));
            }
        }
    }

    #[test]
    fn any_bytes_are_survived(message in bytes(100), header: [u8; 8], changes in mutations()) {
        let _ = Icmp::parse_v4(&message);
        let _ = parse_v6(&message);
        // With a correct checksum, so that every type is reached.
        let mut v4 = v4_message(header, &message);
        prop_assert!(Icmp::parse_v4(&v4).is_ok());
        let mut v6 = v6_message(header, &message);
        prop_assert!(parse_v6(&v6).is_ok());
        mutate(&mut v4, &changes);
        mutate(&mut v6, &changes);
        let _ = Icmp::parse_v4(&v4);
        let _ = parse_v6(&v6);
    }
}
