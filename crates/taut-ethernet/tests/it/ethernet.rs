//! The statements of docs/spec/ethernet.md: ARP and neighbour discovery, and what floods and lies can do to
//! them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use taut_core::{Duration, Instant};
use taut_ethernet::{
    Arrival, Ethernet, EthernetConfig, EthernetStats, FRAME_MAX, Hop, NeighbourState, Network, Resolved,
};
use taut_wire::{Arp, Ecn, EthernetHeader, IpHeader, Mac, Ndp, ether_type, ndp, protocol};

const OWN: Mac = Mac([2, 0, 0, 0, 0, 2]);
const PEER: Mac = Mac([2, 0, 0, 0, 0, 1]);
const THIRD: Mac = Mac([2, 0, 0, 0, 0, 3]);

fn v4(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, 0, host)
}

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn ms(at: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(at)
}

/// 10.9.0.2/24 and fd09::2/64.
fn link() -> Ethernet<u32> {
    with_gateways(Vec::new())
}

fn with_gateways(gateways: Vec<IpAddr>) -> Ethernet<u32> {
    let networks = vec![
        Network { address: v4(2).into(), prefix: 24 },
        Network { address: v6("fd09::2").into(), prefix: 64 },
    ];
    Ethernet::new(EthernetConfig { mac: OWN, networks, gateways, ..EthernetConfig::default() }, [7; 16])
}

/// An IP header with this destination.
fn packet_to(dst: impl Into<IpAddr>) -> Vec<u8> {
    let dst = dst.into();
    let src = if dst.is_ipv4() { v4(2).into() } else { v6("fd09::2").into() };
    let header =
        IpHeader { src, dst, protocol: 6, hop_limit: 64, ecn: Ecn::NotEct, header_len: 0, payload_len: 0 };
    let mut packet = vec![0; header.emitted_len()];
    header.emit(&mut packet, 0);
    packet
}

/// Gives it a packet, which waits if it must. Returns whether it leaves at once, and the packet lost for it.
fn send(
    link: &mut Ethernet<u32>,
    now: Instant,
    dst: impl Into<IpAddr>,
    packet: u32,
) -> (Option<Mac>, Option<u32>) {
    match link.next_hop(now, &packet_to(dst)) {
        Hop::Ready(header) => (Some(EthernetHeader::parse(&header).unwrap().dst), None),
        Hop::Wait(neighbour) => (None, link.wait(neighbour, packet)),
        Hop::NoRoute => panic!("no route"),
    }
}

fn frames(link: &mut Ethernet<u32>) -> Vec<Vec<u8>> {
    let mut buf = [0; FRAME_MAX];
    std::iter::from_fn(|| link.poll_frame(&mut buf).map(|len| buf[..len].to_vec())).collect()
}

fn resolved(link: &mut Ethernet<u32>) -> Vec<(Option<Mac>, u32)> {
    let next = || {
        Some(match link.poll_resolved()? {
            Resolved::Ready(header, packet) => (Some(EthernetHeader::parse(&header).unwrap().dst), packet),
            Resolved::Lost(packet) => (None, packet),
        })
    };
    std::iter::from_fn(next).collect()
}

fn arp_frame(dst: Mac, arp: Arp) -> Vec<u8> {
    let header = EthernetHeader { dst, src: arp.sender_mac, ether_type: ether_type::ARP };
    [&header.emit()[..], &arp.emit()].concat()
}

fn request(sender: Ipv4Addr, sender_mac: Mac, target: Ipv4Addr) -> Vec<u8> {
    let arp = Arp { is_request: true, sender_mac, sender, target_mac: Mac::default(), target };
    arp_frame(Mac::BROADCAST, arp)
}

fn reply(sender: Ipv4Addr, sender_mac: Mac) -> Vec<u8> {
    arp_frame(OWN, Arp { is_request: false, sender_mac, sender, target_mac: OWN, target: v4(2) })
}

/// To whom each frame goes, and the request or reply in it.
fn arps(link: &mut Ethernet<u32>) -> Vec<(Mac, Arp)> {
    let parsed = |frame: &Vec<u8>| {
        let header = EthernetHeader::parse(frame).unwrap();
        (header.dst, Arp::parse(&frame[14..]).unwrap())
    };
    frames(link).iter().map(parsed).collect()
}

fn state(link: &Ethernet<u32>, host: u8) -> Option<NeighbourState> {
    link.neighbour(v4(host).into())
}

/// The neighbour 10.9.0.1 is known from now on, because it has answered.
fn known(now: Instant) -> Ethernet<u32> {
    let mut link = link();
    assert_eq!(send(&mut link, now, v4(1), 0), (None, None));
    link.handle_frame(now, &reply(v4(1), PEER));
    assert_eq!(resolved(&mut link), [(Some(PEER), 0)]);
    frames(&mut link);
    link
}

#[test]
fn arp_01_the_question_is_that_of_rfc_826() {
    let mut link = link();
    send(&mut link, ms(0), v4(1), 0);
    let expected = [
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 2, 8, 6, // to all, from us, ARP
        0, 1, 8, 0, 6, 4, 0, 1, // Ethernet, IPv4, lengths, request
        2, 0, 0, 0, 0, 2, 10, 9, 0, 2, // we
        0, 0, 0, 0, 0, 0, 10, 9, 0, 1, // whom
    ];
    assert_eq!(frames(&mut link), [expected]);
    assert_eq!(link.stats().asked, 1);
}

#[test]
fn arp_02_a_question_for_this_host_is_answered_and_no_other() {
    let mut link = link();
    assert_eq!(link.handle_frame(ms(0), &request(v4(1), PEER, v4(2))), Arrival::Taken);
    let expected = [
        2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 6, // to the one who asked
        0, 1, 8, 0, 6, 4, 0, 2, // a reply
        2, 0, 0, 0, 0, 2, 10, 9, 0, 2, 2, 0, 0, 0, 0, 1, 10, 9, 0, 1,
    ];
    assert_eq!(frames(&mut link), [expected]);
    link.handle_frame(ms(0), &request(v4(1), PEER, v4(3)));
    link.handle_frame(ms(0), &reply(v4(1), PEER));
    assert_eq!(frames(&mut link), Vec::<Vec<u8>>::new());
    // Not even if another station is meant.
    let mut elsewhere = request(v4(1), PEER, v4(2));
    elsewhere[..6].copy_from_slice(&THIRD.0);
    assert_eq!(link.handle_frame(ms(0), &elsewhere), Arrival::Ignored);
    assert_eq!((frames(&mut link).len(), link.stats().answered), (0, 1));
}

#[test]
fn arp_03_packets_wait_for_the_answer_and_leave_in_order() {
    let mut link = link();
    for packet in 0..3 {
        assert_eq!(send(&mut link, ms(0), v4(1), packet), (None, None));
    }
    assert_eq!((link.waiting(), link.has_resolved()), (3, false));
    link.handle_frame(ms(1), &reply(v4(1), PEER));
    assert!(link.has_resolved());
    assert_eq!(resolved(&mut link), [0, 1, 2].map(|packet| (Some(PEER), packet)));
    assert_eq!(send(&mut link, ms(1), v4(1), 3), (Some(PEER), None), "the next one does not wait");
    assert_eq!((link.waiting(), state(&link, 1)), (0, Some(NeighbourState::Reachable)));
}

#[test]
fn arp_04_three_questions_a_second_apart_then_the_packets_are_lost() {
    let mut link = link();
    send(&mut link, ms(0), v4(1), 5);
    let mut asked = vec![0];
    assert_eq!(arps(&mut link).len(), 1);
    for at in (0..=3_000).step_by(10) {
        link.handle_timeout(ms(at));
        asked.extend(arps(&mut link).iter().map(|_| at));
        assert_eq!(link.has_resolved(), at == 3_000, "at {at} ms");
    }
    assert_eq!(asked, [0, 1_000, 2_000]);
    assert_eq!(resolved(&mut link), [(None, 5)]);
    assert_eq!((link.neighbours(), link.waiting(), link.stats().lost), (0, 0, 1));
    assert_eq!(link.poll_timeout(), Instant::NEVER);
    // The next packet asks anew.
    send(&mut link, ms(3_000), v4(1), 6);
    assert_eq!(arps(&mut link).len(), 1);
}

#[test]
fn arp_05_a_question_a_second_however_many_packets() {
    let mut link = link();
    for at in 0..1_000 {
        send(&mut link, ms(at), v4(1), at as u32);
        link.handle_timeout(ms(at));
    }
    assert_eq!(arps(&mut link).len(), 1);
    link.handle_timeout(ms(1_000));
    assert_eq!(arps(&mut link).len(), 1);
}

#[test]
fn arp_06_sixteen_packets_wait_for_a_neighbour_and_256_in_all() {
    let mut link = link();
    let lost: Vec<_> = (0..20).filter_map(|packet| send(&mut link, ms(0), v4(1), packet).1).collect();
    assert_eq!((lost, link.waiting()), (vec![0, 1, 2, 3], 16), "the latest are kept");
    // Fifteen more neighbours with sixteen each fill it; then a packet is refused itself.
    let mut refused = 0;
    for host in 3..=254 {
        for packet in 0..16 {
            let (_, lost) = send(&mut link, ms(0), v4(host), 100 + packet);
            refused += usize::from(lost == Some(100 + packet));
        }
        assert!(link.waiting() <= 256);
    }
    assert_eq!((link.waiting() + link.poll_all()), 256);
    assert!(refused > 3_000);
}

trait PollAll {
    fn poll_all(&mut self) -> usize;
}

impl PollAll for Ethernet<u32> {
    /// Packets that had to give way with their neighbour.
    fn poll_all(&mut self) -> usize {
        resolved(self).iter().filter(|(mac, _)| mac.is_some()).count()
    }
}

#[test]
fn arp_07_a_neighbour_in_use_is_asked_again_after_35_seconds() {
    let mut link = known(ms(0));
    // The deadline of the question is looked at, and there is none.
    link.handle_timeout(ms(1_000));
    // REACHABLE_TIME: nothing is asked.
    assert_eq!(send(&mut link, ms(29_999), v4(1), 1), (Some(PEER), None));
    assert_eq!((state(&link, 1), link.poll_timeout()), (Some(NeighbourState::Reachable), Instant::NEVER));
    // The first use after it begins DELAY_FIRST_PROBE_TIME. The packet leaves.
    assert_eq!(send(&mut link, ms(30_000), v4(1), 1), (Some(PEER), None));
    assert_eq!((state(&link, 1), link.poll_timeout()), (Some(NeighbourState::Delay), ms(35_000)));
    let mut asked = Vec::new();
    for at in (30_000..38_000).step_by(10) {
        link.handle_timeout(ms(at));
        asked.extend(arps(&mut link).iter().map(|(to, arp)| (at, *to, arp.target)));
        assert_eq!(send(&mut link, ms(at), v4(1), 1).0, Some(PEER), "packets go on");
    }
    let to_it = |at| (at, PEER, v4(1));
    assert_eq!(asked, [to_it(35_000), to_it(36_000), to_it(37_000)]);
    link.handle_timeout(ms(38_000));
    assert_eq!(state(&link, 1), None, "it does not answer");
    // One that answers is known for 30 seconds more.
    let mut link = known(ms(0));
    send(&mut link, ms(30_000), v4(1), 1);
    link.handle_timeout(ms(35_000));
    link.handle_frame(ms(35_001), &reply(v4(1), PEER));
    assert_eq!(state(&link, 1), Some(NeighbourState::Reachable));
    // One that nobody uses is never asked.
    let mut link = known(ms(0));
    link.handle_timeout(ms(1_000_000));
    assert_eq!((frames(&mut link).len(), link.poll_timeout()), (0, Instant::NEVER));
}

#[test]
fn arp_08_only_one_that_asks_for_this_host_is_remembered() {
    let mut link = link();
    link.handle_frame(ms(0), &reply(v4(1), PEER));
    link.handle_frame(ms(0), &request(v4(1), PEER, v4(3)));
    link.handle_frame(ms(0), &request(v4(1), PEER, v4(1)));
    assert_eq!(link.neighbours(), 0, "an answer without a question, a question for another, an announcement");
    link.handle_frame(ms(0), &request(v4(1), PEER, v4(2)));
    assert_eq!(state(&link, 1), Some(NeighbourState::Stale));
    frames(&mut link);
    assert_eq!(send(&mut link, ms(0), v4(1), 1), (Some(PEER), None));
    // From outside of the network, and from nobody.
    link.handle_frame(ms(0), &request(Ipv4Addr::new(10, 8, 0, 1), PEER, v4(2)));
    link.handle_frame(ms(0), &request(Ipv4Addr::UNSPECIFIED, PEER, v4(2)));
    assert_eq!(link.neighbours(), 1);
    assert_eq!(arps(&mut link).len(), 2, "both are answered (RFC 5227 §2.1.1)");
}

/// An answer to this host's question, of a sender that is to be filled in.
fn answer(sender_mac: Mac) -> Arp {
    let (sender, target) = (Ipv4Addr::UNSPECIFIED, Ipv4Addr::new(10, 0, 0, 2));
    Arp { is_request: false, sender_mac, sender, target_mac: OWN, target }
}

#[test]
fn arp_09_a_flood_of_strangers_takes_512_places_and_none_in_use() {
    let networks = vec![Network { address: Ipv4Addr::new(10, 0, 0, 2).into(), prefix: 8 }];
    let mut link = Ethernet::new(EthernetConfig { mac: OWN, networks, ..EthernetConfig::default() }, [9; 16]);
    let used: Vec<Ipv4Addr> = (0..64).map(|host| Ipv4Addr::new(10, 200, 0, host)).collect();
    for &ip in &used {
        send(&mut link, ms(0), ip, 0);
        link.handle_frame(ms(0), &arp_frame(OWN, Arp { sender: ip, ..answer(PEER) }));
    }
    frames(&mut link);
    let had: Vec<_> = used.iter().filter(|&&ip| link.neighbour(ip.into()).is_some()).copied().collect();
    // 64 in 128 sets of four: five in a set would be bad luck of one in a thousand.
    assert!(had.len() >= 62);
    for number in 0..1_000_000u32 {
        let sender = Ipv4Addr::from_bits(0x0a00_0100 + number);
        link.handle_frame(ms(1), &request(sender, THIRD, Ipv4Addr::new(10, 0, 0, 2)));
    }
    assert_eq!(link.neighbours(), 512);
    assert!(had.iter().all(|&ip| send(&mut link, ms(2), ip, 0).0 == Some(PEER)), "those in use stay");
    assert_eq!((frames(&mut link).len(), link.stats().unsent), (64, 1_000_000 - 64));

    // Where every place of a set is in use, a stranger finds none.
    let mut used = Vec::new();
    for number in 0..4_000u32 {
        let ip = Ipv4Addr::from_bits(0x0ac8_0000 + number);
        send(&mut link, ms(3), ip, 0);
        link.handle_frame(ms(3), &arp_frame(OWN, Arp { sender: ip, ..answer(PEER) }));
        used.push(ip);
    }
    let known = |link: &Ethernet<u32>| used.iter().filter(|&&ip| link.neighbour(ip.into()).is_some()).count();
    let had = known(&link);
    assert!(had > 500, "{had}");
    for number in 0..10_000u32 {
        let sender = Ipv4Addr::from_bits(0x0a00_0100 + number);
        link.handle_frame(ms(4), &request(sender, THIRD, Ipv4Addr::new(10, 0, 0, 2)));
    }
    assert_eq!(known(&link), had);
}

#[test]
fn arp_10_of_two_that_claim_an_address_the_first_wins_for_a_second() {
    let mut link = known(ms(0));
    link.handle_frame(ms(999), &reply(v4(1), THIRD));
    assert_eq!(send(&mut link, ms(999), v4(1), 0).0, Some(PEER));
    // An address may move: it is believed, and asked for soon.
    link.handle_frame(ms(1_000), &request(v4(1), THIRD, v4(1)));
    assert_eq!(state(&link, 1), Some(NeighbourState::Stale));
    assert_eq!(send(&mut link, ms(1_000), v4(1), 0).0, Some(THIRD));
    link.handle_timeout(ms(1_000));
    assert_eq!(link.poll_timeout(), ms(6_000));
    // An answer to no question makes nothing reachable.
    link.handle_frame(ms(1_001), &reply(v4(1), THIRD));
    assert_eq!(state(&link, 1), Some(NeighbourState::Delay));
}

#[test]
fn arp_11_own_addresses_and_groups_are_never_learnt() {
    let mut link = link();
    link.handle_frame(ms(0), &request(v4(2), THIRD, v4(2)));
    assert_eq!((link.neighbours(), link.stats().conflicts, frames(&mut link).len()), (0, 1, 0));
    for mac in [Mac::BROADCAST, Mac::default(), Mac([1, 0, 0x5e, 0, 0, 1])] {
        link.handle_frame(ms(0), &request(v4(1), mac, v4(2)));
        assert_eq!((link.neighbours(), frames(&mut link).len()), (0, 0), "{mac}");
    }
    send(&mut link, ms(0), v4(1), 0);
    link.handle_frame(ms(0), &reply(v4(1), Mac::BROADCAST));
    assert_eq!((link.has_resolved(), state(&link, 1)), (false, Some(NeighbourState::Incomplete)));
}

#[test]
fn arp_12_what_is_not_on_the_link_goes_to_the_gateway() {
    let gateways = vec![v4(1).into(), v6("fe80::1").into()];
    let mut link = with_gateways(gateways);
    for far in ["192.0.2.1".parse::<IpAddr>().unwrap(), "10.9.1.1".parse().unwrap()] {
        send(&mut link, ms(0), far, 0);
    }
    assert_eq!(link.neighbour(v4(1).into()), Some(NeighbourState::Incomplete));
    send(&mut link, ms(0), v6("2001:db8::1"), 0);
    assert_eq!(link.neighbour(v6("fe80::1").into()), Some(NeighbourState::Incomplete));
    assert_eq!(link.neighbours(), 2);
    let mut alone = self::link();
    for far in ["192.0.2.1", "2001:db8::1", "255.255.255.255", "0.0.0.0"] {
        assert_eq!(alone.next_hop(ms(0), &packet_to(far.parse::<IpAddr>().unwrap())), Hop::NoRoute, "{far}");
    }
    for bytes in [&[][..], &[0x45; 19], &[0x60; 39], &[0x50; 40]] {
        assert_eq!(alone.next_hop(ms(0), bytes), Hop::NoRoute);
    }
}

#[test]
fn arp_14_what_another_queue_hears_is_remembered_and_answered_by_that_one() {
    let mut link = link();
    link.overhear(ms(0), &request(v4(1), PEER, v4(2)));
    assert_eq!((frames(&mut link), link.stats()), (Vec::<Vec<u8>>::new(), EthernetStats::default()));
    assert_eq!(send(&mut link, ms(0), v4(1), 7), (Some(PEER), None), "it leaves at once");
    // What this one has to say itself stays.
    assert_eq!(send(&mut link, ms(0), v4(3), 8), (None, None));
    link.overhear(ms(0), &request(v4(1), PEER, v4(2)));
    assert_eq!(arps(&mut link).len(), 1, "its own question");
    link.overhear(ms(1), &reply(v4(3), THIRD));
    assert_eq!(resolved(&mut link), [(Some(THIRD), 8)], "and the answer, whichever queue gets it");
}

fn ndp_frame(to: Mac, from: Mac, src: Ipv6Addr, dst: Ipv6Addr, message: Ndp) -> Vec<u8> {
    let mut body = [0; ndp::LEN];
    let payload_len = message.emit(&mut body, src, dst);
    let header = IpHeader {
        src: src.into(),
        dst: dst.into(),
        protocol: protocol::ICMPV6,
        hop_limit: 255,
        ecn: Ecn::NotEct,
        header_len: 40,
        payload_len,
    };
    let mut frame = EthernetHeader { dst: to, src: from, ether_type: ether_type::IPV6 }.emit().to_vec();
    frame.resize(54, 0);
    header.emit(&mut frame[14..], 0);
    frame.extend_from_slice(&body[..payload_len]);
    frame
}

/// The station, the addresses and the message of each frame.
fn ndps(link: &mut Ethernet<u32>) -> Vec<(Mac, IpAddr, IpAddr, Ndp)> {
    let parsed = |frame: &Vec<u8>| {
        let ip = IpHeader::parse(&frame[14..]).unwrap();
        let message = Ndp::parse(&ip, &frame[54..]).unwrap();
        (EthernetHeader::parse(frame).unwrap().dst, ip.src, ip.dst, message)
    };
    frames(link).iter().map(parsed).collect()
}

fn advertisement(target: &str, mac: Option<Mac>, solicited: bool, overrides: bool) -> Vec<u8> {
    let target = v6(target);
    let message = Ndp::Advertise { target, router: false, solicited, overrides, target_mac: mac };
    ndp_frame(OWN, mac.unwrap_or(PEER), target, v6("fd09::2"), message)
}

fn solicitation(src: &str, source_mac: Option<Mac>, target: &str) -> Vec<u8> {
    let target = v6(target);
    let group = ndp::solicited_node(target);
    ndp_frame(Mac::of_multicast(group), PEER, v6(src), group, Ndp::Solicit { target, source_mac })
}

#[test]
fn ndp_01_the_question_goes_to_the_group_of_the_address() {
    let mut link = link();
    assert_eq!(send(&mut link, ms(0), v6("fd09::1"), 1), (None, None));
    let frame = frames(&mut link).remove(0);
    // RFC 4861 §4.3, RFC 4291 §2.7.1, RFC 2464 §7; length 32, next header 58, hop limit 255.
    let mut expected = vec![0x33, 0x33, 0xff, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd];
    expected.extend([0x60, 0, 0, 0, 0, 32, 58, 255]);
    expected.extend(v6("fd09::2").octets());
    expected.extend(v6("ff02::1:ff00:1").octets());
    assert_eq!(frame[..54], expected);
    assert_eq!(frame[54..56], [135, 0]);
    assert_eq!(frame[62..], [&v6("fd09::1").octets()[..], &[1, 1, 2, 0, 0, 0, 0, 2]].concat());
    link.handle_frame(ms(1), &advertisement("fd09::1", Some(PEER), true, true));
    assert_eq!(resolved(&mut link), [(Some(PEER), 1)]);
    assert_eq!(link.neighbour(v6("fd09::1").into()), Some(NeighbourState::Reachable));
}

#[test]
fn ndp_02_a_question_for_this_host_is_answered_and_its_sender_remembered() {
    let mut link = link();
    // Linux asks from its link-local address.
    assert_eq!(link.handle_frame(ms(0), &solicitation("fe80::1", Some(PEER), "fd09::2")), Arrival::Taken);
    let target = v6("fd09::2");
    let message =
        Ndp::Advertise { target, router: false, solicited: true, overrides: true, target_mac: Some(OWN) };
    assert_eq!(ndps(&mut link), [(PEER, target.into(), v6("fe80::1").into(), message)]);
    assert_eq!(link.neighbour(v6("fe80::1").into()), Some(NeighbourState::Stale));
    link.handle_frame(ms(0), &solicitation("fe80::1", Some(PEER), "fd09::3"));
    assert_eq!(frames(&mut link).len(), 0);
    // One that is known need not say its station.
    link.handle_frame(ms(0), &solicitation("fe80::1", None, "fd09::2"));
    link.handle_frame(ms(0), &solicitation("fe80::7", None, "fd09::2"));
    assert_eq!((ndps(&mut link).len(), link.neighbours()), (1, 1));
}

#[test]
fn ndp_03_one_that_wants_the_address_for_itself_is_told_before_everybody() {
    let mut link = link();
    link.handle_frame(ms(0), &solicitation("::", None, "fd09::2"));
    let (target, all) = (v6("fd09::2"), v6("ff02::1"));
    let message =
        Ndp::Advertise { target, router: false, solicited: false, overrides: true, target_mac: Some(OWN) };
    assert_eq!(ndps(&mut link), [(Mac([0x33, 0x33, 0, 0, 0, 1]), target.into(), all.into(), message)]);
    assert_eq!(link.neighbours(), 0);
}

#[test]
fn ndp_04_forwarded_and_broken_messages_do_nothing() {
    let mut link = link();
    send(&mut link, ms(0), v6("fd09::1"), 1);
    frames(&mut link);
    let fine = advertisement("fd09::1", Some(PEER), true, true);
    // The hop limit, the checksum, the code.
    for (at, bit) in [(21, 1), (57, 1), (55, 1)] {
        let mut broken = fine.clone();
        broken[at] ^= bit;
        assert_eq!(link.handle_frame(ms(0), &broken), Arrival::Ignored, "byte {at}");
    }
    assert_eq!(link.stats().ignored, 3);
    assert!(!link.has_resolved());
    assert_eq!(link.handle_frame(ms(0), &fine), Arrival::Taken);
    assert!(link.has_resolved());
    // Other ICMPv6 is the stack's.
    let mut echo = fine;
    echo[54] = 128;
    assert_eq!(link.handle_frame(ms(0), &echo), Arrival::Packet);
}

#[test]
fn ndp_05_an_answer_changes_what_is_known_only_if_it_overrides() {
    // RFC 4861 §7.2.5.
    let known = || {
        let mut link = link();
        send(&mut link, ms(0), v6("fd09::1"), 0);
        link.handle_frame(ms(0), &advertisement("fd09::1", Some(PEER), true, true));
        resolved(&mut link);
        link
    };
    let told = |solicited, overrides| {
        let mut link = known();
        link.handle_frame(ms(2_000), &advertisement("fd09::1", Some(THIRD), solicited, overrides));
        let state = link.neighbour(v6("fd09::1").into()).unwrap();
        (state, send(&mut link, ms(2_000), v6("fd09::1"), 0).0.unwrap())
    };
    assert_eq!(told(false, false), (NeighbourState::Stale, PEER));
    assert_eq!(told(true, false), (NeighbourState::Stale, PEER));
    assert_eq!(told(false, true), (NeighbourState::Stale, THIRD));
    // An answer without a station confirms the one that is known, if it was asked for.
    let mut link = known();
    send(&mut link, ms(30_000), v6("fd09::1"), 0);
    link.handle_timeout(ms(35_000));
    let [(to, _, dst, _)] = ndps(&mut link)[1..] else { panic!("one question more") };
    assert_eq!((to, dst), (PEER, v6("fd09::1").into()), "to it alone");
    link.handle_frame(ms(35_000), &advertisement("fd09::1", None, true, false));
    assert_eq!(link.neighbour(v6("fd09::1").into()), Some(NeighbourState::Reachable));
    // But tells nothing about one that is not.
    let mut link = self::link();
    send(&mut link, ms(0), v6("fd09::1"), 0);
    link.handle_frame(ms(0), &advertisement("fd09::1", None, true, true));
    assert!(!link.has_resolved());
}

#[test]
fn ndp_06_answers_without_a_question_and_claims_are_not_remembered() {
    let mut link = link();
    link.handle_frame(ms(0), &advertisement("fd09::1", Some(PEER), false, true));
    link.handle_frame(ms(0), &advertisement("fd09::1", Some(PEER), true, true));
    // From another network.
    link.handle_frame(ms(0), &solicitation("2001:db8::1", Some(PEER), "fd09::2"));
    assert_eq!(link.neighbours(), 0);
    link.handle_frame(ms(0), &advertisement("fd09::2", Some(THIRD), false, true));
    assert_eq!((link.neighbours(), link.stats().conflicts), (0, 1));
    // From another address of that station.
    let claim = Ndp::Advertise {
        target: v6("fd09::2"),
        router: false,
        solicited: false,
        overrides: true,
        target_mac: Some(THIRD),
    };
    link.handle_frame(ms(0), &ndp_frame(OWN, THIRD, v6("fe80::3"), v6("fd09::2"), claim));
    assert_eq!((link.neighbours(), link.stats().conflicts), (0, 2));
}

#[test]
fn ndp_07_no_question_is_open_for_longer_than_three_seconds() {
    let mut link = link();
    for host in 0..10_000u16 {
        let dst = Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 1, host);
        send(&mut link, ms(0), dst, host.into());
        assert!(link.neighbours() <= 512 && link.waiting() <= 256);
    }
    for at in (0..=3_000).step_by(10) {
        link.handle_timeout(ms(at));
    }
    assert_eq!((link.neighbours(), link.waiting(), link.poll_timeout()), (0, 0, Instant::NEVER));
}

proptest! {
    /// Any frames, many of them almost right, at any time: nothing panics or grows, and every packet comes
    /// back once.
    #[test]
    fn arp_13_every_packet_comes_back_once_whatever_the_link_says(
        steps in proptest::collection::vec((0u8..8, any::<[u8; 8]>(), 0u64..2_000), 1..400)
    ) {
        let mut link = link();
        let (mut now, mut given, mut back) = (0, 0u32, Vec::new());
        for (kind, bytes, later) in steps {
            now += later;
            let (host, mac) = (bytes[0] % 8, Mac([2, 0, 0, 0, 0, bytes[1] % 4]));
            let six = Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, host.into());
            let mut frame = match kind {
                0..=2 => {
                    let dst = if kind == 0 { six.into() } else { IpAddr::from(v4(host)) };
                    match link.next_hop(ms(now), &packet_to(dst)) {
                        Hop::Wait(neighbour) => {
                            back.extend(link.wait(neighbour, given));
                            given += 1;
                        }
                        Hop::Ready(_) | Hop::NoRoute => {}
                    }
                    continue;
                }
                3 => { link.handle_timeout(ms(now)); continue }
                4 => reply(v4(host), mac),
                5 => request(v4(host), mac, v4(bytes[2] % 4)),
                6 => advertisement(&six.to_string(), Some(mac), bytes[2] & 1 > 0, bytes[2] & 2 > 0),
                _ => solicitation(&six.to_string(), Some(mac), "fd09::2"),
            };
            if bytes[3] < 64 {
                let at = usize::from(bytes[4]) % frame.len();
                frame[at] = bytes[5];
                frame.truncate(frame.len() - usize::from(bytes[6]) % 20);
            }
            link.handle_frame(ms(now), &frame);
            prop_assert!(link.neighbours() <= 512 && link.waiting() <= 256);
            prop_assert!(frames(&mut link).len() <= 64);
            back.extend(resolved(&mut link).iter().map(|&(_, packet)| packet));
        }
        for later in (0..4_000).step_by(100) {
            link.handle_timeout(ms(now + later));
        }
        back.extend(resolved(&mut link).iter().map(|&(_, packet)| packet));
        back.sort_unstable();
        prop_assert_eq!(back, (0..given).collect::<Vec<_>>());
    }
}
