//! Groups of multicast: what a link reports, how it answers queries, and who receives a group's datagrams:
//! the statements IGMP, MLD and MCAST of docs/spec/ethernet.md. One host at the station 02:00:00:00:00:02.

use crate::link;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use taut_core::{
    DatagramError, DatagramId, DatagramKind, DatagramOption, DatagramOptions, Duration, Event, Fate, Frame,
    Instant, LinkCaps, NetworkChange, RxChecksum, RxPacket, SendMeta, Stack, StackConfig, Transmit,
};
use taut_ethernet::{Arrival, Ethernet, EthernetConfig, FRAME_MAX, Hop, Network};
use taut_wire::{Ecn, EthernetHeader, IpHeader, Mac, Sum, UdpHeader, ether_type, protocol, udp};

const OWN: Mac = Mac([2, 0, 0, 0, 0, 2]);
const QUERIER: Mac = Mac([2, 0, 0, 0, 0, 1]);
/// Record types (RFC 3376 §4.2.12).
const IS: u8 = 2;
const LEAVES: u8 = 3;
const JOINS: u8 = 4;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn network(text: &str) -> Network {
    let (address, prefix) = text.split_once('/').unwrap();
    Network { address: ip(address), prefix: prefix.parse().unwrap() }
}

fn sum(pieces: &[&[u8]]) -> [u8; 2] {
    pieces.iter().fold(Sum::default(), |sum, piece| sum.add_bytes(piece)).finish().to_be_bytes()
}

/// A report that was sent: its time, its addresses, and what it says of which groups.
type Said = (Instant, IpAddr, IpAddr, Vec<(u8, IpAddr)>);

struct Link {
    link: Ethernet<u32>,
    now: Instant,
    said: Vec<Said>,
}

fn records(frame: &[u8]) -> (IpAddr, IpAddr, Vec<(u8, IpAddr)>) {
    let header = IpHeader::parse(&frame[14..]).unwrap();
    let message = &frame[14 + header.header_len..];
    assert_eq!(header.hop_limit, 1);
    let (kind, len) = if header.src.is_ipv4() { (0x22, 8) } else { (143, 20) };
    let group = |bytes: &[u8]| match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).unwrap()),
        _ => IpAddr::from(<[u8; 16]>::try_from(bytes).unwrap()),
    };
    let said = if message[0] == kind {
        let said: Vec<_> = message[8..].chunks(len).map(|record| (record[0], group(&record[4..]))).collect();
        assert_eq!(usize::from(message[7]), said.len());
        said
    } else {
        // A predecessor's message says its type.
        vec![(message[0], group(&message[if header.src.is_ipv4() { 4 } else { 8 }..]))]
    };
    (header.src, header.dst, said)
}

impl Link {
    fn new(networks: &[&str]) -> Self {
        let networks = networks.iter().map(|text| network(text)).collect();
        let config =
            EthernetConfig { mac: OWN, networks, groups: true, mtu: 1_500, ..EthernetConfig::default() };
        let now = Instant::ZERO + Duration::from_secs(1);
        Self { link: Ethernet::new(config, [7; 16]), now, said: Vec::new() }
    }

    fn collect(&mut self) {
        let mut buf = [0; FRAME_MAX];
        while let Some(len) = self.link.poll_frame(&mut buf) {
            let frame = &buf[..len];
            let is_v6_probe = frame[12..14] == [0x86, 0xdd] && frame[20] == 58;
            if frame[12..14] == [8, 6] || is_v6_probe {
                continue;
            }
            let (src, dst, said) = records(frame);
            let station = match dst {
                IpAddr::V4(v4) => Mac::of_multicast_v4(v4),
                IpAddr::V6(v6) => Mac::of_multicast(v6),
            };
            assert_eq!((&frame[..6], &frame[6..12]), (&station.0[..], &OWN.0[..]));
            self.said.push((self.now, src, dst, said));
        }
        while self.link.poll_change().is_some() {}
    }

    fn pass(&mut self, span: Duration) {
        link::pass(self, span, |own| (&mut own.link, &mut own.now), Self::collect);
    }

    fn change(&mut self, change: NetworkChange) {
        self.link.change_network(self.now, change);
        self.collect();
    }

    fn hear(&mut self, packet: &[u8]) -> Arrival {
        let ether_type = if packet[0] >> 4 == 4 { ether_type::IPV4 } else { ether_type::IPV6 };
        let dst =
            if packet[0] >> 4 == 4 { Mac([1, 0, 0x5e, 0, 0, 1]) } else { Mac([0x33, 0x33, 0, 0, 0, 1]) };
        let frame = [&EthernetHeader { dst, src: QUERIER, ether_type }.emit()[..], packet].concat();
        let arrival = self.link.handle_frame(self.now, &frame);
        self.collect();
        arrival
    }

    fn take(&mut self) -> Vec<Said> {
        std::mem::take(&mut self.said)
    }

    /// What all reports said, and when.
    fn told(&mut self) -> Vec<(Instant, u8, IpAddr)> {
        self.take()
            .into_iter()
            .flat_map(|(at, _, _, said)| said.into_iter().map(move |(k, g)| (at, k, g)))
            .collect()
    }
}

/// RFC 3376 §4.1: of a group or of all, to be answered within so many tenths of a second.
fn igmp_query(group: &str, tenths: u8, old: bool) -> Vec<u8> {
    let IpAddr::V4(group) = ip(group) else { panic!() };
    let mut message =
        [&[0x11, tenths, 0, 0][..], &group.octets(), if old { &[] } else { &[2, 125, 0, 0] }].concat();
    let checksum = sum(&[&message]);
    message[2..4].copy_from_slice(&checksum);
    let mut header =
        vec![0x46, 0xc0, 0, 24 + message.len() as u8, 0, 0, 0, 0, 1, 2, 0, 0, 10, 9, 0, 1, 224, 0, 0, 1];
    header.extend([0x94, 4, 0, 0]);
    let checksum = sum(&[&header]);
    header[10..12].copy_from_slice(&checksum);
    [header, message].concat()
}

/// RFC 3810 §5.1: the same in milliseconds.
fn mld_query(group: &str, ms: u16, old: bool) -> Vec<u8> {
    let IpAddr::V6(group) = ip(group) else { panic!() };
    let (src, dst): (Ipv6Addr, Ipv6Addr) = ("fe80::1".parse().unwrap(), "ff02::1".parse().unwrap());
    let mut message = [&[130, 0, 0, 0][..], &ms.to_be_bytes(), &[0, 0], &group.octets()].concat();
    message.extend(if old { &[][..] } else { &[2, 125, 0, 0] });
    let len = message.len() as u8;
    let checksum = sum(&[&src.octets(), &dst.octets(), &[0, 0, 0, len, 0, 0, 0, 58], &message]);
    message[2..4].copy_from_slice(&checksum);
    let head =
        [&[0x60, 0, 0, 0, 0, 8 + len, 0, 1][..], &src.octets(), &dst.octets(), &[58, 0, 5, 2, 0, 0, 1, 0]];
    [&head.concat()[..], &message].concat()
}

#[test]
fn igmp_03_a_group_is_joined_and_left_by_two_reports_each() {
    let mut link = Link::new(&["10.9.0.2/24"]);
    link.pass(Duration::from_secs(5));
    assert_eq!(link.take(), [], "nothing to say: no address of IPv4 has a group");
    let group = ip("224.0.0.251");
    for (change, kind) in
        [(NetworkChange::JoinGroup(group), JOINS), (NetworkChange::LeaveGroup(group), LEAVES)]
    {
        let begin = link.now;
        link.change(change);
        link.pass(Duration::from_secs(10));
        let said = link.take();
        let expected = (ip("10.9.0.2"), ip("224.0.0.22"), vec![(kind, group)]);
        let [(first, ..), (second, ..)] = said[..] else { panic!("{said:?}") };
        assert!(
            said.iter().all(|(_, src, dst, records)| (*src, *dst, records.clone()) == expected),
            "{said:?}"
        );
        assert_eq!(first, begin, "at once");
        assert!(second > first && second.since(first) <= Duration::from_secs(1), "RFC 3376 §8.11");
    }
    // Two sockets: the group is left when the last one leaves it. Everybody is in 224.0.0.1, and nobody says
    // so.
    for change in [
        NetworkChange::JoinGroup(group),
        NetworkChange::JoinGroup(group),
        NetworkChange::LeaveGroup(group),
        NetworkChange::JoinGroup(ip("224.0.0.1")),
    ] {
        link.change(change);
    }
    link.pass(Duration::from_secs(10));
    assert!(link.told().iter().all(|(_, kind, of)| (*kind, *of) == (JOINS, group)));
    link.change(NetworkChange::LeaveGroup(group));
    // Joined again before the second report: the last word counts.
    link.change(NetworkChange::JoinGroup(group));
    link.pass(Duration::from_secs(10));
    let kinds: Vec<_> = link.told().into_iter().map(|(_, kind, _)| kind).collect();
    assert_eq!(kinds, [LEAVES, JOINS, JOINS]);
}

#[test]
fn igmp_04_queries_are_answered_within_their_time() {
    let mut link = Link::new(&["10.9.0.2/24"]);
    let groups = ["224.0.0.251", "239.1.2.3"].map(ip);
    groups.iter().for_each(|group| link.change(NetworkChange::JoinGroup(*group)));
    link.pass(Duration::from_secs(5));
    link.take();
    let mut delays = Vec::new();
    for _ in 0..50 {
        let asked = link.now;
        assert_eq!(link.hear(&igmp_query("0.0.0.0", 100, false)), Arrival::Taken);
        // Asked again meanwhile: the first answer stands for both.
        link.hear(&igmp_query("0.0.0.0", 100, false));
        link.pass(Duration::from_secs(20));
        let told = link.told();
        assert_eq!(told.iter().map(|(_, kind, _)| *kind).collect::<Vec<_>>(), [IS, IS]);
        assert_eq!(told.iter().map(|(.., group)| *group).collect::<Vec<_>>(), groups);
        delays.push(told[0].0.since(asked).as_millis());
    }
    assert!(delays.iter().all(|delay| *delay <= 10_000), "{delays:?}");
    // The sooner of two random times below 10 s: 3.3 s on average.
    let average = delays.iter().sum::<u64>() / 50;
    assert!((1_500..5_500).contains(&average), "{average} ms");
    // Of one group; of one that it is not in.
    let asked = link.now;
    link.hear(&igmp_query("239.1.2.3", 10, false));
    link.hear(&igmp_query("239.9.9.9", 10, false));
    link.pass(Duration::from_secs(20));
    let told = link.told();
    let [(at, IS, group)] = told[..] else { panic!("{told:?}") };
    assert_eq!(group, groups[1]);
    assert!(at.since(asked) <= Duration::from_secs(1));
}

#[test]
fn igmp_05_an_older_querier_gets_older_reports() {
    let mut link = Link::new(&["10.9.0.2/24"]);
    let group = ip("239.1.2.3");
    link.hear(&igmp_query("0.0.0.0", 100, true));
    link.change(NetworkChange::JoinGroup(group));
    link.pass(Duration::from_secs(5));
    assert!(link.take().iter().all(|(_, _, dst, said)| *dst == group && said[..] == [(0x16, group)]));
    link.change(NetworkChange::LeaveGroup(group));
    let said = link.take();
    assert!(
        matches!(&said[..], [(_, _, dst, said)] if *dst == ip("224.0.0.2") && said[..] == [(0x17, group)])
    );
    // RFC 3376 §8.12: 260 s later it is forgotten.
    link.pass(Duration::from_secs(261));
    link.take();
    link.change(NetworkChange::JoinGroup(group));
    assert_eq!(link.told()[0].1, JOINS);
}

#[test]
fn mld_03_the_groups_of_the_hosts_addresses() {
    let mut link = Link::new(&["fd09::2/64"]);
    link.pass(Duration::from_secs(5));
    let group = ip("ff02::1:ff00:2");
    let said = link.take();
    assert_eq!(said.len(), 2, "{said:?}");
    let nobody = ip("::");
    let is_it =
        |(_, src, dst, said): &Said| (*src, *dst) == (nobody, ip("ff02::16")) && said[..] == [(JOINS, group)];
    assert!(said.iter().all(is_it), "RFC 3810 §5.2.13: without a link-local address, from nobody");
    // An address whose group is the same; then a link-local one, whose group is reported before its check
    // ends.
    link.change(NetworkChange::AddAddress(network("fd0a::2/64")));
    assert_eq!(link.take(), []);
    link.change(NetworkChange::AddAddress(network("fe80::7/64")));
    let other = ip("ff02::1:ff00:7");
    assert!(
        matches!(&link.take()[..], [(_, src, _, said)] if *src == nobody && said[..] == [(JOINS, other)])
    );
    link.pass(Duration::from_secs(5));
    link.take();
    // The first goes: another address is in the group. The second goes, too.
    link.change(NetworkChange::RemoveAddress(ip("fd09::2")));
    assert_eq!(link.take(), []);
    link.change(NetworkChange::RemoveAddress(ip("fd0a::2")));
    assert!(
        matches!(&link.take()[..], [(_, src, _, said)] if *src == ip("fe80::7") && said[..] == [(LEAVES, group)])
    );
}

#[test]
fn mld_04_queries_are_answered_within_their_time() {
    let mut link = Link::new(&["fe80::2/64"]);
    link.change(NetworkChange::JoinGroup(ip("ff02::fb")));
    // Everybody is in ff02::1; ff01::9 stays within a host (RFC 3810 §6).
    link.change(NetworkChange::JoinGroup(ip("ff02::1")));
    link.change(NetworkChange::JoinGroup(ip("ff01::9")));
    link.pass(Duration::from_secs(5));
    link.take();
    let asked = link.now;
    assert_eq!(link.hear(&mld_query("::", 2_000, false)), Arrival::Taken);
    link.pass(Duration::from_secs(20));
    let told = link.told();
    let mut groups: Vec<_> = told.iter().map(|(_, kind, group)| (*kind, *group)).collect();
    groups.sort_by_key(|(_, group)| *group);
    assert_eq!(groups, [(IS, ip("ff02::fb")), (IS, ip("ff02::1:ff00:2"))]);
    assert!(told.iter().all(|(at, ..)| at.since(asked) <= Duration::from_secs(2)));
    link.hear(&mld_query("ff02::fb", 1_000, false));
    link.pass(Duration::from_secs(20));
    assert_eq!(link.told().len(), 1);
    // MLDv1: a report to the group itself (RFC 2710 §4).
    link.hear(&mld_query("::", 2_000, true));
    link.pass(Duration::from_secs(20));
    let old = link.take();
    assert!(old.len() == 2 && old.iter().all(|(_, _, dst, said)| said[..] == [(131, *dst)]), "{old:?}");
    // Another message with options for each hop is a packet like others.
    let mut other = mld_query("::", 2_000, false);
    other[48] = 128;
    assert_eq!(link.hear(&other), Arrival::Packet);
}

#[test]
fn mld_05_floods_are_bounded() {
    let mut link = Link::new(&["fe80::2/64"]);
    for n in 0..1_000_u16 {
        link.change(NetworkChange::JoinGroup(IpAddr::from([0xff02, 0, 0, 0, 0, 0, 1, n])));
    }
    link.pass(Duration::from_secs(5));
    let told = link.told();
    assert_eq!(told.len(), 2 * 128, "two reports of each group, of 128 groups");
    // Queries that want an answer at once, for ten seconds, as fast as they can.
    for _ in 0..100_000 {
        link.hear(&mld_query("::", 0, false));
        link.pass(Duration::from_micros(100));
    }
    let (frames, answers) = (link.said.len(), link.told());
    assert!(answers.iter().all(|(_, kind, _)| *kind == IS));
    let of_one = answers.iter().filter(|(.., group)| *group == ip("ff02::1:1")).count();
    assert!((50..=101).contains(&of_one), "{of_one} answers about a group in 10 s");
    assert!(frames <= 101 * 128, "{frames} reports");
}

fn udp_packet(src: &str, dst: &str, port: u16, payload: &[u8]) -> Vec<u8> {
    let (src, dst) = (ip(src), ip(dst));
    let header_len = if src.is_ipv4() { 20 } else { 40 };
    let payload_len = 8 + payload.len();
    let header = IpHeader {
        src,
        dst,
        protocol: protocol::UDP,
        hop_limit: 1,
        ecn: Ecn::NotEct,
        header_len,
        payload_len,
    };
    let mut packet = vec![0; header_len + 8];
    header.emit(&mut packet, 0);
    UdpHeader { src_port: 5_353, dst_port: port, len: payload_len as u16 }.emit(&mut packet[header_len..]);
    let checksum = udp::full_checksum(src, dst, &packet[header_len..], &[payload]);
    udp::set_checksum(&mut packet[header_len..], checksum);
    packet.extend(payload);
    packet
}

fn stack() -> Stack {
    let addresses = vec![ip("10.9.0.2"), ip("fd09::2")];
    let config = StackConfig::default().with(|config| config.addresses = addresses);
    Stack::new(Arc::new(config), LinkCaps::plain(1_500), [3; 32])
}

fn give(stack: &mut Stack, packet: &[u8]) {
    let frame = Frame::Slice(packet);
    stack.handle_packet(Instant::ZERO, RxPacket { frame, checksum: RxChecksum::Unverified, gso_size: 0 });
}

fn open(stack: &mut Stack, at: &str) -> DatagramId {
    let at: SocketAddr = at.parse().unwrap();
    stack.open_datagram(DatagramKind::Udp, at, &DatagramOptions::default()).unwrap()
}

fn received(stack: &mut Stack, id: DatagramId) -> Option<(Vec<u8>, IpAddr)> {
    let mut buf = [0; 100];
    let received = stack.recv_datagram(id, &mut buf, false).ok()?;
    Some((buf[..received.len].to_vec(), received.to))
}

fn sent(stack: &mut Stack) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    while let Some(Transmit { packet, ticket }) = stack.poll_transmit(Instant::ZERO) {
        packets.push(packet.to_vec());
        stack.handle_tx(Instant::ZERO, ticket, Fate::Left);
    }
    packets
}

fn groups_of(stack: &mut Stack) -> Vec<Event> {
    let is_group = |event: &Event| matches!(event, Event::GroupJoined(_) | Event::GroupLeft(_));
    std::iter::from_fn(|| stack.poll_event()).filter(is_group).collect()
}

#[test]
fn mcast_01_members_receive_and_nobody_else() {
    for (any, group, other, from) in [
        ("0.0.0.0:5353", "224.0.0.251", "224.0.0.252", "10.9.0.1"),
        ("[::]:5353", "ff02::fb", "ff02::fc", "fe80::1"),
    ] {
        let mut stack = stack();
        let member = open(&mut stack, any);
        let packet = udp_packet(from, group, 5_353, b"who has it?");
        give(&mut stack, &packet);
        assert_eq!(received(&mut stack, member), None, "not joined");
        stack.set_datagram_option(member, DatagramOption::JoinGroup(ip(group))).unwrap();
        assert_eq!(groups_of(&mut stack), [Event::GroupJoined(ip(group))]);
        give(&mut stack, &packet);
        assert_eq!(received(&mut stack, member), Some((b"who has it?".to_vec(), ip(group))));
        // Another group, another port, a broken checksum, TCP.
        give(&mut stack, &udp_packet(from, other, 5_353, b"x"));
        give(&mut stack, &udp_packet(from, group, 5_354, b"x"));
        let mut broken = packet.clone();
        *broken.last_mut().unwrap() ^= 1;
        give(&mut stack, &broken);
        let mut tcp = packet.clone();
        tcp[if ip(group).is_ipv4() { 9 } else { 6 }] = protocol::TCP;
        give(&mut stack, &tcp);
        assert_eq!(received(&mut stack, member), None);
        assert_eq!(sent(&mut stack), Vec::<Vec<u8>>::new(), "RFC 1122 §3.2.2: no error about a group");
        stack.set_datagram_option(member, DatagramOption::LeaveGroup(ip(group))).unwrap();
        assert_eq!(groups_of(&mut stack), [Event::GroupLeft(ip(group))]);
        give(&mut stack, &packet);
        assert_eq!(received(&mut stack, member), None);
    }
}

#[test]
fn mcast_02_several_members_and_sockets_that_close() {
    let mut stack = stack();
    let (v4, both) = (open(&mut stack, "10.9.0.2:5353"), open(&mut stack, "[fd09::2]:5353"));
    let group = ip("ff02::fb");
    assert_eq!(
        stack.set_datagram_option(v4, DatagramOption::JoinGroup(group)),
        Err(DatagramError::Invalid),
        "a socket of IPv4"
    );
    let second = open(&mut stack, "[::]:5354");
    for id in [both, second] {
        stack.set_datagram_option(id, DatagramOption::JoinGroup(group)).unwrap();
    }
    assert_eq!(groups_of(&mut stack), [Event::GroupJoined(group)], "once");
    assert_eq!(stack.groups().collect::<Vec<_>>(), [group]);
    give(&mut stack, &udp_packet("fe80::1", "ff02::fb", 5_353, b""));
    assert_eq!(received(&mut stack, both), Some((vec![], group)), "an empty one");
    assert_eq!(received(&mut stack, second), None);
    stack.close_datagram(both);
    assert_eq!(groups_of(&mut stack), []);
    stack.close_datagram(second);
    assert_eq!(groups_of(&mut stack), [Event::GroupLeft(group)]);
}

#[test]
fn mcast_03_one_hop_unless_something_else_is_said() {
    let mut stack = stack();
    let id = open(&mut stack, "[::]:5353");
    let hops = |stack: &mut Stack| {
        let packets = sent(stack);
        packets
            .iter()
            .map(|packet| IpHeader::parse(packet).unwrap())
            .map(|ip| (ip.dst, ip.hop_limit))
            .collect::<Vec<_>>()
    };
    let send = |stack: &mut Stack, to: &str, meta: &SendMeta| {
        let to: SocketAddr = to.parse().unwrap();
        stack.send_datagram(Instant::ZERO, id, Some(to), b"hello", meta)
    };
    stack.set_datagram_option(id, DatagramOption::Ttl(9)).unwrap();
    for to in ["224.0.0.251:5353", "[ff02::fb]:5353"] {
        send(&mut stack, to, &SendMeta::default()).unwrap();
        let dst = to.parse::<SocketAddr>().unwrap().ip();
        assert_eq!(hops(&mut stack), [(dst, 1)], "RFC 1112 §6.1");
        send(&mut stack, to, &SendMeta { ttl: Some(7), ..SendMeta::default() }).unwrap();
        assert_eq!(hops(&mut stack), [(dst, 7)]);
    }
    stack.set_datagram_option(id, DatagramOption::MulticastTtl(3)).unwrap();
    send(&mut stack, "224.0.0.251:5353", &SendMeta::default()).unwrap();
    assert_eq!(hops(&mut stack), [(ip("224.0.0.251"), 3)]);
    // A route for the family does not keep a group away: it is on the link.
    let to = network("10.9.0.0/24");
    stack
        .change_network(
            Instant::ZERO,
            NetworkChange::AddRoute(taut_core::Route { to, via: None, source: None }),
        )
        .unwrap();
    send(&mut stack, "224.0.0.251:5353", &SendMeta::default()).unwrap();
    assert_eq!(hops(&mut stack).len(), 1);
    // And below, to the group's station.
    let mut link = Link::new(&["10.9.0.2/24", "fd09::2/64"]);
    for (packet, station) in [
        (udp_packet("10.9.0.2", "224.129.2.3", 1, b""), [1, 0, 0x5e, 1, 2, 3]),
        (udp_packet("fd09::2", "ff02::1:fb", 1, b""), [0x33, 0x33, 0, 1, 0, 0xfb]),
    ] {
        let Hop::Ready(header) = link.link.next_hop(link.now, &packet) else { panic!("it waits") };
        assert_eq!(header[..6], station);
    }
}

#[test]
fn mcast_04_limits() {
    let mut stack = stack();
    let join = |stack: &mut Stack, id, n: u8| {
        stack.set_datagram_option(id, DatagramOption::JoinGroup(IpAddr::from([239, 0, 0, n])))
    };
    let ids: Vec<_> = (0..5).map(|n| open(&mut stack, &format!("10.9.0.2:{}", 1_000 + n))).collect();
    let mut joined = 0;
    for n in 1..=100_u8 {
        joined += usize::from(join(&mut stack, ids[usize::from(n - 1) / 20], n).is_ok());
    }
    assert_eq!((joined, stack.groups().count()), (64, 64), "20 of a socket, 64 of all");
    assert_eq!(join(&mut stack, ids[0], 21), Err(DatagramError::TooManyGroups), "20 of a socket");
    assert_eq!(join(&mut stack, ids[0], 1), Err(DatagramError::Invalid), "joined already");
    let no_group = DatagramOption::JoinGroup(ip("10.9.0.9"));
    assert_eq!(stack.set_datagram_option(ids[0], no_group), Err(DatagramError::Invalid));
    let not_joined = DatagramOption::LeaveGroup(ip("239.9.9.9"));
    assert_eq!(stack.set_datagram_option(ids[0], not_joined), Err(DatagramError::AddrNotAvailable));
}
