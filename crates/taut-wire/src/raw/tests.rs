use std::vec;
use std::vec::Vec;

use etherparse::{IpHeaders, PacketBuilder, TcpOptionElement};
use proptest::prelude::*;

use super::*;
use crate::testing::{address_pair, bytes, mutate, mutations};
use crate::{ParseError, TcpHeader};

/// A super-packet in etherparse's types; etherparse writes the packets with which ours are compared.
#[derive(Clone, Debug)]
struct Whole {
    ip: IpHeaders,
    tcp: etherparse::TcpHeader,
    payload: Vec<u8>,
}

impl Whole {
    fn is_v4(&self) -> bool {
        matches!(self.ip, IpHeaders::Ipv4(..))
    }

    /// IP and TCP headers and the payload; lengths and checksums are etherparse's.
    fn write(&self) -> Vec<u8> {
        let mut packet = Vec::new();
        let builder = PacketBuilder::ip(self.ip.clone()).tcp_header(self.tcp.clone());
        builder.write(&mut packet, &self.payload).unwrap();
        packet
    }

    fn header(&self) -> Vec<u8> {
        let mut packet = self.write();
        packet.truncate(packet.len() - self.payload.len());
        packet
    }

    /// Segment `index`, by the rules: RFC 9293 §3.1 for lengths and numbers, RFC 3168 §6.1.2 for CWR.
    fn segment(&self, mss: usize, index: usize) -> Self {
        let count = self.payload.len().div_ceil(mss).max(1);
        let at = index * mss;
        let mut segment = self.clone();
        segment.payload = self.payload.iter().copied().skip(at).take(mss).collect();
        segment.tcp.sequence_number = self.tcp.sequence_number.wrapping_add(at as u32);
        segment.tcp.cwr &= index == 0;
        segment.tcp.psh &= index + 1 == count;
        segment.tcp.fin &= index + 1 == count;
        if let IpHeaders::Ipv4(ip, _) = &mut segment.ip
            && !ip.dont_fragment
        {
            ip.identification = ip.identification.wrapping_add(index as u16);
        }
        segment
    }
}

fn ip_headers() -> impl Strategy<Value = IpHeaders> {
    (address_pair(), any::<(u8, u16, bool, u32)>(), 0..3_u8, bytes(8)).prop_map(
        |((src, dst), (hops, id, dont_fragment, label), ecn, options)| match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let mut ip = etherparse::Ipv4Header::new(
                    0,
                    hops,
                    etherparse::ip_number::TCP,
                    src.octets(),
                    dst.octets(),
                )
                .unwrap();
                ip.ecn = etherparse::IpEcn::try_new(ecn).unwrap();
                (ip.identification, ip.dont_fragment) = (id, dont_fragment);
                let options = &options[..options.len() / 4 * 4];
                ip.options = options.try_into().unwrap();
                IpHeaders::Ipv4(ip, etherparse::Ipv4Extensions::default())
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let ip = etherparse::Ipv6Header {
                    traffic_class: ecn,
                    flow_label: etherparse::Ipv6FlowLabel::try_new(label & 0xf_ffff).unwrap(),
                    payload_length: 0,
                    next_header: etherparse::ip_number::TCP,
                    hop_limit: hops,
                    source: src.octets(),
                    destination: dst.octets(),
                };
                IpHeaders::Ipv6(ip, etherparse::Ipv6Extensions::default())
            }
            _ => unreachable!(),
        },
    )
}

/// Data of an established connection.
fn wholes() -> impl Strategy<Value = Whole> {
    let flags = any::<(bool, bool, bool, bool, bool)>();
    (ip_headers(), any::<(u16, u16, u32, u32, u16)>(), flags, any::<Option<(u32, u32)>>(), bytes(5_000))
        .prop_map(|(ip, (src, dst, seq, ack, window), (fin, psh, ece, cwr, ns), clocks, payload)| {
            let mut tcp = etherparse::TcpHeader::new(src, dst, seq, window);
            (tcp.ack, tcp.acknowledgment_number) = (true, ack);
            (tcp.fin, tcp.psh, tcp.ece, tcp.cwr, tcp.ns) = (fin, psh, ece, cwr, ns);
            if let Some((value, echo)) = clocks {
                let nop = TcpOptionElement::Noop;
                tcp.set_options(&[nop.clone(), nop, TcpOptionElement::Timestamp(value, echo)]).unwrap();
            }
            Whole { ip, tcp, payload }
        })
}

/// The headers of all segments.
fn cut_all(whole: &Whole, mss: usize) -> Vec<(Vec<u8>, Range<usize>)> {
    let header = whole.header();
    (0..segs(whole.payload.len(), mss))
        .map(|index| {
            let mut header = header.clone();
            let range = cut(&mut header, whole.payload.len(), mss, index);
            (header, range)
        })
        .collect()
}

proptest! {
    #[test]
    fn segments_are_what_etherparse_writes(whole in wholes(), mss in 1..3_000_usize) {
        for (index, (mut packet, range)) in cut_all(&whole, mss).into_iter().enumerate() {
            packet.extend_from_slice(&whole.payload[range]);
            complete(&mut packet);
            prop_assert_eq!(packet, whole.segment(mss, index).write());
        }
    }

    #[test]
    fn what_is_cut_can_be_joined(mut whole in wholes(), mss in 1..3_000_usize) {
        // CWR is on the first segment only, so such segments are not joined.
        whole.tcp.cwr = false;
        let segments = cut_all(&whole, mss);
        let (mut joined, _) = segments[0].clone();
        for (last, next) in segments.iter().zip(&segments[1..]) {
            prop_assert!(is_open(&last.0));
            prop_assert!(continues(&segments[0].0, &next.0, next.1.start));
            prop_assert!(!continues(&segments[0].0, &next.0, next.1.start + 1));
        }
        let (last, range) = &segments[segments.len() - 1];
        prop_assert_eq!(is_open(last), !whole.tcp.psh && !whole.tcp.fin);
        joined.truncate(last.len());
        join(&mut joined, last, range.end);
        prop_assert_eq!(joined, whole.header());
    }

    #[test]
    fn a_mark_is_all_that_changes(whole in wholes()) {
        let mut packet = whole.write();
        prop_assert_ne!(ecn(&packet), Ecn::Ce);
        let expected = {
            let mut whole = whole.clone();
            match &mut whole.ip {
                IpHeaders::Ipv4(ip, _) => ip.ecn = etherparse::IpEcn::try_new(3).unwrap(),
                IpHeaders::Ipv6(ip, _) => ip.traffic_class |= 3,
            }
            whole.write()
        };
        set_ce(&mut packet);
        prop_assert_eq!(&packet, &expected);
        set_ce(&mut packet);
        prop_assert_eq!((ecn(&packet), &packet), (Ecn::Ce, &expected), "once is enough");
    }

    #[test]
    fn a_class_and_a_hop_limit_are_where_etherparse_puts_them(
        mut whole in wholes(), class in any::<u8>(), hops in any::<u8>(), dont in any::<bool>(),
    ) {
        match &mut whole.ip {
            IpHeaders::Ipv4(ip, _) => {
                (ip.dscp, ip.ecn) = ((class >> 2).try_into().unwrap(), (class & 3).try_into().unwrap());
                (ip.time_to_live, ip.dont_fragment, ip.options) = (hops, dont, Default::default());
            }
            IpHeaders::Ipv6(ip, _) => (ip.traffic_class, ip.hop_limit, ip.flow_label) = (class, hops, 0.try_into().unwrap()),
        }
        let expected = whole.write();
        let header = IpHeader::parse(&expected).unwrap();
        let place = if dont { DONT_FRAGMENT } else { 0 };
        let ident = if whole.is_v4() { word(&expected, V4_ID) } else { 0 };
        let mut emitted = [0; 40];
        let len = header.emit_as(&mut emitted, class, ident, place);
        prop_assert_eq!(&emitted[..len], &expected[..header.header_len]);
        prop_assert_eq!(class_and_hops(&expected), (class, hops));
    }

    #[test]
    fn damage_stays_visible(whole in wholes(), bit in 8..160_usize) {
        if whole.is_v4() {
            let mut packet = whole.write();
            packet[bit / 8] ^= 1 << (bit % 8);
            set_ce(&mut packet);
            prop_assert!(IpHeader::parse(&packet).is_err());
            set_len(&mut packet, 20);
            prop_assert!(IpHeader::parse(&packet).is_err());
        }
    }

    #[test]
    fn fields_are_read_where_etherparse_puts_them(whole in wholes()) {
        let packet = whole.write();
        let (ip_bytes, dst) = match &whole.ip {
            IpHeaders::Ipv4(ip, _) => (20 + ip.options.len(), IpAddr::from(ip.destination)),
            IpHeaders::Ipv6(ip, _) => (40, IpAddr::from(ip.destination)),
        };
        prop_assert_eq!((ip_len(&packet), tcp_at(&packet)), (Some(ip_bytes), Some(ip_bytes)));
        prop_assert_eq!(is_v6(&packet), dst.is_ipv6());
        prop_assert_eq!(headers_len(&packet), Some(packet.len() - whole.payload.len()));
        prop_assert_eq!(destination(&packet), Some(dst));
        prop_assert_eq!(ports(&packet), Some((whole.tcp.source_port, whole.tcp.destination_port)));
        let flags = tcp_flags(&packet);
        prop_assert_eq!(Ok(flags), TcpHeader::parse(&packet[ip_bytes..]).map(|(tcp, _)| tcp.flags));
        prop_assert!(flags.contains(Flags::ACK) && flags.contains(Flags::CWR) == whole.tcp.cwr);
        let class = match &whole.ip {
            IpHeaders::Ipv4(ip, _) => ip.ecn.value(),
            IpHeaders::Ipv6(ip, _) => ip.traffic_class,
        };
        prop_assert_eq!(ecn(&packet).to_bits(), class);
    }

    #[test]
    fn a_flow_is_told_by_addresses_and_ports_alone(one in wholes(), mut other in wholes(), bit in 0..32_usize) {
        other.tcp.source_port = one.tcp.source_port;
        other.tcp.destination_port = one.tcp.destination_port;
        match (&one.ip, &mut other.ip) {
            (IpHeaders::Ipv4(from, _), IpHeaders::Ipv4(to, _)) => {
                (to.source, to.destination) = (from.source, from.destination);
            }
            (IpHeaders::Ipv6(from, _), IpHeaders::Ipv6(to, _)) => {
                (to.source, to.destination) = (from.source, from.destination);
            }
            _ => return Ok(()),
        }
        let (mut packet, header) = (one.write(), other.header());
        prop_assert_eq!(flow(&packet), flow(&header));
        let ip = IpHeader::parse(&packet).unwrap();
        let ends = |from: u16, to: u16| (SocketAddr::new(ip.src, from), SocketAddr::new(ip.dst, to));
        let (from, to) = ends(one.tcp.source_port, one.tcp.destination_port);
        prop_assert_eq!(flow_between(from, to), flow(&packet));
        // Any bit of the ports, and of the addresses.
        let ports = tcp_at(&packet).unwrap();
        for at in [ports, if one.is_v4() { 12 } else { 8 }, if one.is_v4() { 16 } else { 36 }] {
            packet[at + bit / 8] ^= 1 << (bit % 8);
            prop_assert_ne!(flow(&packet), flow(&header));
            packet[at + bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn any_bytes_are_survived(garbage in bytes(100), whole in wholes(), changes in mutations(), numbers: (u16, u16, u8)) {
        let mut packet = whole.header();
        mutate(&mut packet, &changes);
        for bytes in (0..=packet.len()).map(|len| &packet[..len]).chain([&garbage[..]]) {
            let _ = (flow(bytes), ecn(bytes), ports(bytes), destination(bytes), is_open(bytes));
            let _ = continues(bytes, &packet, numbers.0.into());
            let _ = continues(&packet, bytes, numbers.0.into());
            if let Some(len) = headers_len(bytes) {
                prop_assert!(len <= bytes.len() && tcp_at(bytes).unwrap() + 20 <= len);
            }
            let mut written = bytes.to_vec();
            set_ce(&mut written);
            set_len(&mut written, numbers.1.into());
            let range = cut(&mut written, numbers.0.into(), numbers.1.into(), numbers.2.into());
            prop_assert!(range.start <= range.end && range.end <= numbers.0.into());
            join(&mut written, bytes, numbers.0.into());
            complete(&mut written);
            prop_assert_eq!(written.len(), bytes.len());
        }
    }
}

/// A segment of 100 bytes behind one of as many: headers of both.
fn neighbours(is_v4: bool) -> (Vec<u8>, Vec<u8>) {
    let (src, dst) = if is_v4 { ("192.0.2.1", "192.0.2.2") } else { ("2001:db8::1", "2001:db8::2") };
    let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
    let header = |seq| {
        let mut options = crate::TcpOptions::NONE;
        options.timestamps = Some(crate::Timestamps { value: 0x0102_0304, echo: 0x0506_0708 });
        let (src_port, dst_port, flags) = (0xc000, 80, Flags::ACK);
        let tcp = TcpHeader { src_port, dst_port, seq, ack: 9, flags, window: 500, urgent: 0, options };
        let (ecn, header_len, payload_len) = (Ecn::Ect0, 0, tcp.header_len() + 100);
        let ip = IpHeader { src, dst, protocol: protocol::TCP, hop_limit: 64, ecn, header_len, payload_len };
        let mut bytes = vec![0; 100];
        let at = ip.emit(&mut bytes, 7);
        let end = at + tcp.emit(&mut bytes[at..]);
        bytes.truncate(end);
        bytes
    };
    (header(u32::MAX - 49), header(50))
}

/// The bits in which a segment may differ from the one before it: IPv4's length, identification and checksum
/// or IPv6's length, the checksum of TCP, PSH and FIN.
fn may_differ(is_v4: bool, bit: usize) -> bool {
    let (byte, mask) = (bit / 8, 0x80 >> (bit % 8));
    let tcp = if is_v4 { 20 } else { 40 };
    let ip = if is_v4 { (2..6).contains(&byte) || (10..12).contains(&byte) } else { (4..6).contains(&byte) };
    ip || (tcp + 16..tcp + 18).contains(&byte) || byte == tcp + 13 && mask & 0x09 != 0
}

#[test]
fn every_other_bit_must_be_as_before() {
    for is_v4 in [true, false] {
        let (first, next) = neighbours(is_v4);
        assert!(continues(&first, &next, 100), "around zero");
        for bit in 0..next.len() * 8 {
            let mut changed = next.clone();
            changed[bit / 8] ^= 0x80 >> (bit % 8);
            assert_eq!(continues(&first, &changed, 100), may_differ(is_v4, bit), "v4 {is_v4}, bit {bit}");
        }
        assert!(!continues(&first, &next[..next.len() - 4], 100), "without its options");
    }
}

#[test]
fn only_data_and_acks_are_open() {
    let (first, _) = neighbours(true);
    assert!(is_open(&first));
    for (flag, open) in [
        (Flags::FIN, false),
        (Flags::SYN, false),
        (Flags::RST, false),
        (Flags::PSH, false),
        (Flags::URG, false),
        (Flags::ECE, true),
        (Flags::CWR, true),
    ] {
        let mut changed = first.clone();
        changed[33] |= flag.bits() as u8;
        assert_eq!(is_open(&changed), open, "{flag}");
    }
}

#[test]
fn fragments_and_other_protocols_are_not_tcp() {
    for (is_v4, byte, value) in
        [(true, 6, 0x20), (true, 7, 1), (true, 9, 17), (false, 6, 44), (true, 0, 0x44)]
    {
        let (mut first, mut next) = neighbours(is_v4);
        assert!(tcp_at(&first).is_some());
        (first[byte], next[byte]) = (value, value);
        assert_eq!((tcp_at(&first), headers_len(&first), ports(&first)), (None, None, None), "byte {byte}");
        assert!(!continues(&first, &next, 100) && !is_open(&first), "byte {byte}");
    }
}

#[test]
fn lengths_that_do_not_fit_lose_their_upper_bits() {
    for (is_v4, at, value) in [(true, 2, 0_u16), (false, 4, 65_496)] {
        let (mut header, _) = neighbours(is_v4);
        set_len(&mut header, 65_536);
        assert_eq!(header[at..at + 2], value.to_be_bytes());
        let sound = IpHeader::parse_prefix(&header, 65_536);
        let expected = if is_v4 { Err(ParseError::TotalLength) } else { Ok(65_496) };
        assert_eq!(sound.map(|ip| ip.payload_len), expected, "the checksum is right");
    }
}

#[test]
fn segments_are_counted_as_they_are_cut() {
    assert_eq!([0, 1, 1_448, 1_449, 65_160].map(|len| segs(len, 1_448)), [1, 1, 1, 2, 45]);
    assert_eq!(segs(5_000, 0), 1);
}
