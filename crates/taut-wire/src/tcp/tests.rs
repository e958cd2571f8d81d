use super::*;
use crate::testing::{address_pair, bytes, mutate, mutations};
use crate::{AccEcn, SackBlocks, Timestamps};
use core::net::IpAddr;
use proptest::prelude::*;
use std::format;
use std::vec::Vec;

/// From 49152 to 80, sequence number 1.
const SYN: [u8; 20] = [0xc0, 0x00, 0x00, 0x50, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x02, 0, 0, 0, 0, 0, 0];

fn addresses() -> (IpAddr, IpAddr) {
    ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap())
}

fn options() -> impl Strategy<Value = TcpOptions> {
    let timestamps =
        any::<Option<(u32, u32)>>().prop_map(|pair| pair.map(|(value, echo)| Timestamps { value, echo }));
    let sack = prop::collection::vec(any::<(u32, u32)>(), 0..=4).prop_map(SackBlocks::from_iter);
    // Every combination that an order can express.
    let accecn = (0..0x100_0000_u32, any::<Option<u8>>(), 0..5_u8).prop_map(|(first, second, form)| {
        let second = second.map(u32::from).unwrap_or(first);
        match form {
            0 => None,
            1 => Some(AccEcn::default()),
            2 => Some(AccEcn { ee0b: Some(first), ..AccEcn::default() }),
            3 => Some(AccEcn { ee1b: Some(first), eceb: Some(second), ee0b: None }),
            _ => Some(AccEcn { ee0b: Some(first), eceb: Some(second), ee1b: Some(first) }),
        }
    });
    (any::<Option<u16>>(), any::<Option<u8>>(), any::<bool>(), timestamps, sack, accecn).prop_map(
        |(mss, window_scale, sack_permitted, timestamps, sack, accecn)| TcpOptions {
            mss,
            window_scale,
            sack_permitted,
            timestamps,
            sack,
            accecn,
        },
    )
}

fn headers() -> impl Strategy<Value = TcpHeader> {
    let ports = any::<(u16, u16)>();
    let numbers = any::<(u32, u32)>();
    (ports, numbers, 0..0x200_u16, any::<(u16, u16)>(), options()).prop_map(
        |((src_port, dst_port), (seq, ack), flags, (window, urgent), options)| TcpHeader {
            src_port,
            dst_port,
            seq,
            ack,
            flags: Flags::from_bits(flags),
            window,
            urgent,
            options,
        },
    )
}

/// Cut into pieces of 1, 2, 3... bytes, so that odd boundaries occur.
fn in_pieces(mut payload: &[u8]) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    for len in 1.. {
        let (piece, rest) = payload.split_at(payload.len().min(len));
        pieces.push(piece);
        payload = rest;
        if payload.is_empty() {
            break;
        }
    }
    pieces
}

#[test]
fn syn_by_hand() {
    let syn = TcpHeader { src_port: 49152, dst_port: 80, seq: 1, flags: Flags::SYN, ..TcpHeader::default() };
    assert_eq!(TcpHeader::parse(&SYN), Ok((syn, 20)));
    let mut emitted = [0xee; 20];
    assert_eq!(syn.emit(&mut emitted), 20);
    assert_eq!(emitted, SYN);
}

#[test]
fn checksum_by_hand() {
    let (src, dst) = addresses();
    // Pseudo-header 1841d, header c000 + 0050 + 0001 + 5002 = 11053: 29470, folded 9472, complement 6b8d.
    assert_eq!(full_checksum(src, dst, &SYN, &[]), 0x6b8d);
    assert_eq!(partial_checksum(src, dst, 20), 0x841e);
    let mut syn = SYN;
    assert!(!verify(src, dst, &syn, &[]));
    set_checksum(&mut syn, 0x6b8d);
    assert_eq!(syn[16..18], [0x6b, 0x8d]);
    assert!(verify(src, dst, &syn, &[]));
    assert!(!verify(src, dst, &syn, &[&[1]]));
}

#[test]
fn every_field_has_its_place() {
    let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x50, 0x10, 15, 16, 17, 18, 19, 20];
    let header = TcpHeader {
        src_port: 0x0102,
        dst_port: 0x0304,
        seq: 0x0506_0708,
        ack: 0x090a_0b0c,
        flags: Flags::ACK,
        window: 0x0f10,
        urgent: 0x1314,
        options: TcpOptions::NONE,
    };
    assert_eq!(TcpHeader::parse(&bytes), Ok((header, 20)));
}

#[test]
fn flags_are_the_bits_of_rfc_9293_and_9768() {
    let in_order = [
        Flags::FIN,
        Flags::SYN,
        Flags::RST,
        Flags::PSH,
        Flags::ACK,
        Flags::URG,
        Flags::ECE,
        Flags::CWR,
        Flags::AE,
    ];
    for (bit, flag) in in_order.into_iter().enumerate() {
        let mut bytes = SYN;
        bytes[12..14].copy_from_slice(&(0x5000 | 1_u16 << bit).to_be_bytes());
        assert_eq!(TcpHeader::parse(&bytes).unwrap().0.flags, flag);
    }
    // The three reserved bits between the offset and AE are not flags.
    let mut bytes = SYN;
    bytes[12] = 0x5e;
    assert_eq!(TcpHeader::parse(&bytes).unwrap().0.flags, Flags::SYN);
}

#[test]
fn flags_as_a_set() {
    let flags = Flags::SYN | Flags::ACK;
    assert!(flags.contains(Flags::SYN) && flags.contains(flags) && flags.contains(Flags::NONE));
    assert!(!Flags::SYN.contains(flags) && Flags::SYN.intersects(flags));
    assert!(!flags.intersects(Flags::FIN | Flags::RST));
    assert_eq!(flags.without(Flags::SYN), Flags::ACK);
    assert_eq!(flags & Flags::ACK, Flags::ACK);
    assert!((flags & Flags::RST).is_empty());
    assert_eq!(format!("{flags}"), "SYN|ACK");
    assert_eq!(format!("{:?}", Flags::NONE), "Flags()");
}

#[test]
fn refusals() {
    for len in 0..20 {
        assert_eq!(TcpHeader::parse(&SYN[..len]), Err(ParseError::Truncated), "{len}");
    }
    let mut bytes = SYN;
    bytes[12] = 0x40;
    assert_eq!(TcpHeader::parse(&bytes), Err(ParseError::HeaderLength));
    bytes[12] = 0x60;
    assert_eq!(TcpHeader::parse(&bytes), Err(ParseError::Truncated));
    let mut with_option = SYN.to_vec();
    with_option[12] = 0x60;
    with_option.extend([2, 5, 0, 0]);
    assert_eq!(TcpHeader::parse(&with_option), Err(ParseError::OptionLength));
}

#[test]
fn payload_is_not_options() {
    let segment = [&SYN[..], &[2, 4, 5, 0xb4]].concat();
    let (header, len) = TcpHeader::parse(&segment).unwrap();
    assert_eq!((header.options, len), (TcpOptions::NONE, 20));
}

proptest! {
    #[test]
    fn emitted_is_parsed_back(mut header in headers()) {
        let mut buf = [0xee; HEADER_MAX_LEN];
        let len = header.emit(&mut buf);
        prop_assert_eq!(len, header.header_len());
        prop_assert!(buf[len..].iter().all(|&byte| byte == 0xee));
        let fit = header.options.sack_blocks_that_fit();
        header.options.sack = header.options.sack.iter().take(fit).collect();
        prop_assert_eq!(TcpHeader::parse(&buf), Ok((header, len)));
    }

    #[test]
    fn emitted_is_what_etherparse_reads(header in headers()) {
        let mut buf = [0xee; HEADER_MAX_LEN];
        let len = header.emit(&mut buf);
        let (read, rest) = etherparse::TcpHeader::from_slice(&buf).unwrap();
        prop_assert_eq!(rest.len(), HEADER_MAX_LEN - len);
        prop_assert_eq!((read.source_port, read.destination_port), (header.src_port, header.dst_port));
        prop_assert_eq!((read.sequence_number, read.acknowledgment_number), (header.seq, header.ack));
        prop_assert_eq!((read.window_size, read.urgent_pointer), (header.window, header.urgent));
        prop_assert_eq!(read.checksum, 0);
        for (set, flag) in [
            (read.fin, Flags::FIN), (read.syn, Flags::SYN), (read.rst, Flags::RST),
            (read.psh, Flags::PSH), (read.ack, Flags::ACK), (read.urg, Flags::URG),
            (read.ece, Flags::ECE), (read.cwr, Flags::CWR), (read.ns, Flags::AE),
        ] {
            prop_assert_eq!(set, header.flags.contains(flag), "{}", flag);
        }
    }

    #[test]
    fn what_etherparse_writes_is_parsed(
        ports: (u16, u16), numbers: (u32, u32), window: u16, mss: u16, shift: u8, clocks: (u32, u32),
    ) {
        use etherparse::TcpOptionElement as Option_;
        let mut written = etherparse::TcpHeader::new(ports.0, ports.1, numbers.0, window);
        written.acknowledgment_number = numbers.1;
        (written.syn, written.ack, written.ns) = (true, true, true);
        written
            .set_options(&[
                Option_::Timestamp(clocks.0, clocks.1),
                Option_::MaximumSegmentSize(mss),
                Option_::WindowScale(shift),
                Option_::SelectiveAcknowledgementPermitted,
            ])
            .unwrap();
        let expected = TcpHeader {
            src_port: ports.0,
            dst_port: ports.1,
            seq: numbers.0,
            ack: numbers.1,
            flags: Flags::SYN | Flags::ACK | Flags::AE,
            window,
            urgent: 0,
            options: TcpOptions {
                mss: Some(mss),
                window_scale: Some(shift),
                sack_permitted: true,
                timestamps: Some(Timestamps { value: clocks.0, echo: clocks.1 }),
                sack: SackBlocks::EMPTY,
                accecn: None,
            },
        };
        let bytes = written.to_bytes();
        prop_assert_eq!(TcpHeader::parse(&bytes), Ok((expected, bytes.len())));
    }

    #[test]
    fn checksum_agrees_with_etherparse((src, dst) in address_pair(), header in headers(), payload in bytes(3000)) {
        let mut buf = [0; HEADER_MAX_LEN];
        let len = header.emit(&mut buf);
        let (peer, _) = etherparse::TcpHeader::from_slice(&buf).unwrap();
        let expected = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                peer.calc_checksum_ipv4_raw(src.octets(), dst.octets(), &payload).unwrap()
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                peer.calc_checksum_ipv6_raw(src.octets(), dst.octets(), &payload).unwrap()
            }
            _ => unreachable!(),
        };
        let pieces = in_pieces(&payload);
        let checksum = full_checksum(src, dst, &buf[..len], &pieces);
        prop_assert_eq!(checksum, expected);
        set_checksum(&mut buf, checksum);
        prop_assert!(verify(src, dst, &buf[..len], &[&payload]));
        prop_assert!(verify(src, dst, &buf[..len], &pieces));

        // What the device does: start from the field, add the segment, complement.
        set_checksum(&mut buf, partial_checksum(src, dst, (len + payload.len()) as u32));
        let completed = Sum::ZERO.add_bytes(&buf[..len]).add_bytes(&payload).finish();
        prop_assert_eq!(completed, expected);
    }

    #[test]
    fn any_bytes_are_survived(segment in bytes(100), header in headers(), changes in mutations()) {
        let _ = TcpHeader::parse(&segment);
        let mut buf = [0; HEADER_MAX_LEN];
        header.emit(&mut buf);
        mutate(&mut buf, &changes);
        for len in 0..=buf.len() {
            if let Ok((_, header_len)) = TcpHeader::parse(&buf[..len]) {
                prop_assert!(header_len <= len);
            }
        }
    }
}
