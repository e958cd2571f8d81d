//! Addresses that are checked before they are used, and links that configure themselves: the statements DAD
//! and SLAAC of docs/spec/ethernet.md. One host at the station 02:00:00:00:00:02, and frames written by hand.

use crate::link;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use taut_core::{Duration, Instant, NetworkChange, Route};
use taut_ethernet::{Arrival, Ethernet, EthernetConfig, FRAME_MAX, Hop, Network};
use taut_wire::{Arp, Ecn, EthernetHeader, IpHeader, Mac, Ndp, Sum, ether_type, ndp, protocol, router};

const OWN: Mac = Mac([2, 0, 0, 0, 0, 2]);
const ROUTER: Mac = Mac([2, 0, 0, 0, 0, 1]);
/// Of the station by RFC 4291 appendix A: the second bit flipped, ff:fe in the middle.
const LINK_LOCAL: &str = "fe80::ff:fe00:2";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn v4(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn ms(at: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(at)
}

fn network(text: &str) -> Network {
    let (address, prefix) = text.split_once('/').unwrap();
    Network { address: ip(address), prefix: prefix.parse().unwrap() }
}

fn on_link(to: &str) -> NetworkChange {
    NetworkChange::AddRoute(Route { to: network(to), via: None, source: None })
}

fn default_route(via: &str) -> Route {
    Route { to: Network { address: ip(via), prefix: 0 }, via: Some(ip(via)), source: None }
}

/// A link, what it sent, and what it told the stack, each with its time.
struct Link {
    link: Ethernet<u32>,
    now: Instant,
    frames: Vec<(Instant, Vec<u8>)>,
    changes: Vec<(Instant, NetworkChange)>,
}

impl Link {
    fn new(slaac: bool, seed: u8) -> Self {
        let config = EthernetConfig { mac: OWN, slaac, mtu: 1_500, ..EthernetConfig::default() };
        let link = Ethernet::new(config, [seed; 16]);
        Self { link, now: ms(1), frames: Vec::new(), changes: Vec::new() }
    }

    fn collect(&mut self) {
        let mut buf = [0; FRAME_MAX];
        while let Some(len) = self.link.poll_frame(&mut buf) {
            self.frames.push((self.now, buf[..len].to_vec()));
        }
        while let Some(change) = self.link.poll_change() {
            self.changes.push((self.now, change));
        }
    }

    /// Lets so much time pass, deadline by deadline.
    fn pass(&mut self, span: Duration) {
        link::pass(self, span, |own| (&mut own.link, &mut own.now), Self::collect);
    }

    fn hear(&mut self, frame: &[u8]) -> Arrival {
        let arrival = self.link.handle_frame(self.now, frame);
        self.collect();
        arrival
    }

    fn add(&mut self, own: &str) {
        let later = self.link.change_network(self.now, NetworkChange::AddAddress(network(own)));
        assert!(!later, "the stack is told when it was checked");
    }

    fn take_frames(&mut self) -> Vec<(Instant, Vec<u8>)> {
        std::mem::take(&mut self.frames)
    }

    fn take_changes(&mut self) -> Vec<NetworkChange> {
        std::mem::take(&mut self.changes).into_iter().map(|(_, change)| change).collect()
    }
}

fn seconds(from: Instant, to: Instant) -> f64 {
    to.since(from).as_nanos() as f64 / 1e9
}

fn arp_frame(arp: Arp) -> Vec<u8> {
    let header = EthernetHeader { dst: Mac::BROADCAST, src: arp.sender_mac, ether_type: ether_type::ARP };
    [&header.emit()[..], &arp.emit()].concat()
}

fn arp(sender_mac: Mac, sender: &str, target: &str, is_request: bool) -> Vec<u8> {
    let (sender, target) = (v4(sender), v4(target));
    arp_frame(Arp { is_request, sender_mac, sender, target_mac: Mac::default(), target })
}

fn icmpv6(station: Mac, src: &str, dst: &str, message: &[u8]) -> Vec<u8> {
    let (src, dst) = (v6(src), v6(dst));
    let header = EthernetHeader { dst: Mac::of_multicast(dst), src: station, ether_type: ether_type::IPV6 };
    let ip = IpHeader {
        src: src.into(),
        dst: dst.into(),
        protocol: protocol::ICMPV6,
        hop_limit: 255,
        ecn: Ecn::NotEct,
        header_len: 40,
        payload_len: message.len(),
    };
    let mut packet = vec![0; 40];
    ip.emit(&mut packet, 0);
    [&header.emit()[..], &packet, message].concat()
}

fn ndp_frame(station: Mac, src: &str, dst: &str, message: Ndp) -> Vec<u8> {
    let mut buf = [0; ndp::LEN];
    let len = message.emit(&mut buf, v6(src), v6(dst));
    icmpv6(station, src, dst, &buf[..len])
}

/// Parses a solicitation that was sent: its addresses and target.
fn solicit(frame: &[u8]) -> (IpAddr, IpAddr, Ndp) {
    let ip = IpHeader::parse(&frame[14..]).unwrap();
    (ip.src, ip.dst, Ndp::parse(&ip, &frame[54..]).unwrap())
}

struct Prefix<'a> {
    prefix: &'a str,
    len: u8,
    flags: u8,
    valid: u32,
    preferred: u32,
}

const fn prefix(prefix: &str, valid: u32, preferred: u32) -> Prefix<'_> {
    Prefix { prefix, len: 64, flags: 0xc0, valid, preferred }
}

impl Prefix<'_> {
    fn bytes(&self) -> Vec<u8> {
        let (valid, preferred) = (self.valid.to_be_bytes(), self.preferred.to_be_bytes());
        [&[3, 4, self.len, self.flags][..], &valid, &preferred, &[0; 4], &v6(self.prefix).octets()].concat()
    }
}

fn mtu(bytes: u32) -> Vec<u8> {
    [&[5, 1, 0, 0][..], &bytes.to_be_bytes()].concat()
}

/// An advertisement of a router to all nodes.
fn advertisement(src: &str, lifetime: u16, options: &[u8]) -> Vec<u8> {
    let [high, low] = lifetime.to_be_bytes();
    let fixed = [134, 0, 0, 0, 64, 0, high, low, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut message = [&fixed[..], options].concat();
    let dst = v6("ff02::1");
    let pseudo =
        [&v6(src).octets()[..], &dst.octets(), &(message.len() as u32).to_be_bytes(), &[0, 0, 0, 58]]
            .concat();
    let sum = Sum::default().add_bytes(&pseudo).add_bytes(&message).finish();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    icmpv6(ROUTER, src, "ff02::1", &message)
}

/// A host that has its link-local address and has asked for routers.
fn asking() -> Link {
    let mut link = Link::new(true, 7);
    link.pass(Duration::from_secs(3));
    link.take_changes();
    link.take_frames();
    link
}

#[test]
fn dad_01_three_probes_then_it_is_used_and_announced_twice() {
    for seed in 0..20 {
        let mut link = Link::new(false, seed);
        let begin = link.now;
        link.add("10.9.0.2/24");
        link.pass(Duration::from_secs(20));
        let frames = link.take_frames();
        let probe = arp(OWN, "0.0.0.0", "10.9.0.2", true);
        let announcement = arp(OWN, "10.9.0.2", "10.9.0.2", true);
        let sent: Vec<_> = frames.iter().map(|(_, frame)| frame.clone()).collect();
        assert_eq!(sent, [&probe, &probe, &probe, &announcement, &announcement].map(Clone::clone));
        let at: Vec<_> = frames.iter().map(|(at, _)| seconds(begin, *at)).collect();
        // RFC 5227 §1.1: PROBE_WAIT 1, PROBE_MIN 1, PROBE_MAX 2, ANNOUNCE_WAIT 2, ANNOUNCE_INTERVAL 2.
        assert!((0.0..=1.0).contains(&at[0]), "{at:?}");
        assert!((1..3).all(|n| (1.0..=2.0).contains(&(at[n] - at[n - 1]))), "{at:?}");
        let gaps = [2, 3].map(|n: usize| frames[n + 1].0.since(frames[n].0));
        assert_eq!(gaps, [Duration::from_secs(2); 2]);
        let [(ready, change)] = link.changes[..] else { panic!("{:?}", link.changes) };
        assert_eq!((ready, change), (frames[3].0, NetworkChange::AddAddress(network("10.9.0.2/24"))));
    }
}

#[test]
fn dad_02_one_solicitation_from_nobody_then_it_is_used() {
    let mut link = Link::new(false, 1);
    let begin = link.now;
    link.add("fd09::2/64");
    link.pass(Duration::from_secs(20));
    let [(sent, frame)] = &link.frames[..] else { panic!("{:?}", link.frames) };
    let message = Ndp::Solicit { target: v6("fd09::2"), source_mac: None };
    assert_eq!(solicit(frame), (ip("::"), ip("ff02::1:ff00:2"), message));
    assert_eq!(frame[..6], [0x33, 0x33, 0xff, 0, 0, 2]);
    assert!(seconds(begin, *sent) <= 1.0);
    let [(ready, change)] = link.changes[..] else { panic!("{:?}", link.changes) };
    assert_eq!(change, NetworkChange::AddAddress(network("fd09::2/64")));
    assert_eq!(seconds(*sent, ready), 1.0, "RFC 4862 §5.1: RetransTimer");
}

#[test]
fn dad_03_an_address_that_another_station_has_is_not_used() {
    let taken = [
        ("10.9.0.2/24", arp(ROUTER, "10.9.0.2", "10.9.0.9", true)),
        ("10.9.0.2/24", arp(ROUTER, "10.9.0.2", "0.0.0.0", false)),
        // It is looking for the same.
        ("10.9.0.2/24", arp(ROUTER, "0.0.0.0", "10.9.0.2", true)),
        (
            "fd09::2/64",
            ndp_frame(
                ROUTER,
                "fd09::2",
                "ff02::1",
                Ndp::Advertise {
                    target: v6("fd09::2"),
                    router: false,
                    solicited: false,
                    overrides: true,
                    target_mac: Some(ROUTER),
                },
            ),
        ),
        (
            "fd09::2/64",
            ndp_frame(
                ROUTER,
                "::",
                "ff02::1:ff00:2",
                Ndp::Solicit { target: v6("fd09::2"), source_mac: None },
            ),
        ),
    ];
    for (own, frame) in taken {
        for after in [0, 1_500] {
            let mut link = Link::new(false, 3);
            link.add(own);
            link.pass(Duration::from_millis(after));
            if own.starts_with("fd09") && after > 0 && !link.changes.is_empty() {
                continue;
            }
            assert_eq!(link.hear(&frame), Arrival::Taken);
            link.take_frames();
            link.pass(Duration::from_secs(30));
            assert_eq!((link.take_changes(), link.take_frames()), (vec![], vec![]), "{own}");
            assert_eq!(link.link.stats().duplicates, 1);
        }
    }
    // Our own frames, which a switch sent back, are no other station's; nor is a question of a neighbour.
    let echoes = [
        ("10.9.0.2/24", arp(OWN, "0.0.0.0", "10.9.0.2", true)),
        ("10.9.0.2/24", arp(ROUTER, "10.9.0.1", "10.9.0.2", true)),
        (
            "fd09::2/64",
            ndp_frame(OWN, "::", "ff02::1:ff00:2", Ndp::Solicit { target: v6("fd09::2"), source_mac: None }),
        ),
    ];
    for (own, frame) in echoes {
        let mut link = Link::new(false, 3);
        link.add(own);
        link.hear(&frame);
        link.pass(Duration::from_secs(30));
        assert_eq!((link.take_changes().len(), link.link.stats().duplicates), (1, 0), "{own}");
    }
}

#[test]
fn dad_04_nobody_hears_of_an_address_that_is_being_checked() {
    let mut link = Link::new(false, 5);
    link.add("10.9.0.2/24");
    link.add("fd09::2/64");
    let question = arp(ROUTER, "10.9.0.1", "10.9.0.2", true);
    let solicitation = ndp_frame(
        ROUTER,
        "fd09::1",
        "ff02::1:ff00:2",
        Ndp::Solicit { target: v6("fd09::2"), source_mac: Some(ROUTER) },
    );
    for answers in [0, 1] {
        link.take_frames();
        link.hear(&question);
        link.hear(&solicitation);
        assert_eq!(link.take_frames().len(), 2 * answers);
        link.pass(Duration::from_secs(20));
    }
}

#[test]
fn dad_05_an_address_is_defended_once_in_ten_seconds() {
    let mut link = Link::new(false, 5);
    link.add("10.9.0.2/24");
    link.pass(Duration::from_secs(20));
    link.take_changes();
    link.take_frames();
    let claim = arp(ROUTER, "10.9.0.2", "10.9.0.2", true);
    let announcement = arp(OWN, "10.9.0.2", "10.9.0.2", true);
    for _ in 0..3 {
        link.hear(&claim);
        let sent: Vec<_> = link.take_frames().into_iter().map(|(_, frame)| frame).collect();
        assert_eq!(sent, std::slice::from_ref(&announcement));
        assert_eq!(link.take_changes(), []);
        link.pass(Duration::from_secs(10));
    }
    link.hear(&claim);
    link.take_frames();
    link.pass(Duration::from_millis(9_900));
    link.hear(&claim);
    assert_eq!(link.take_changes(), [NetworkChange::RemoveAddress(ip("10.9.0.2"))]);
    assert_eq!(link.take_frames(), [], "RFC 5227 §2.4 (b): it is given up");
    link.hear(&arp(ROUTER, "10.9.0.1", "10.9.0.2", true));
    assert_eq!(link.take_frames(), [], "and not answered for");
}

#[test]
fn dad_06_addresses_on_a_link_are_bounded() {
    let mut link = Link::new(false, 5);
    let later = |n: u32| {
        NetworkChange::AddAddress(Network {
            address: IpAddr::from((0x0a09_0000 + n).to_be_bytes()),
            prefix: 16,
        })
    };
    let checked = (1..=1_000).filter(|&n| !link.link.change_network(ms(1), later(n))).count();
    assert_eq!(checked, 64);
    link.pass(Duration::from_secs(30));
    assert_eq!(link.take_changes().len(), 64);
    // One that is removed makes room.
    assert!(link.link.change_network(link.now, NetworkChange::RemoveAddress(IpAddr::from([10, 9, 0, 1]))));
    assert!(!link.link.change_network(link.now, later(2_000)));
}

#[test]
fn slaac_04_a_link_local_address_then_three_questions_for_routers() {
    let mut link = Link::new(true, 9);
    let begin = link.now;
    link.pass(Duration::from_secs(60));
    let frames = link.take_frames();
    assert_eq!(frames.len(), 4, "a check, three questions");
    assert_eq!(solicit(&frames[0].1).2, Ndp::Solicit { target: v6(LINK_LOCAL), source_mac: None });
    let (ready, change) = link.changes[0];
    assert_eq!(change, NetworkChange::AddAddress(network(&format!("{LINK_LOCAL}/64"))));
    assert_eq!(link.changes[1].1, on_link("fe80::/10"));
    let mut expected = [0; router::SOLICITATION_LEN];
    router::emit_solicitation(&mut expected, v6(LINK_LOCAL), Some(OWN));
    for (_, frame) in &frames[1..] {
        let header = IpHeader::parse(&frame[14..]).unwrap();
        assert_eq!((header.src, header.dst, header.hop_limit), (ip(LINK_LOCAL), ip("ff02::2"), 255));
        assert_eq!((&frame[..6], &frame[54..]), (&[0x33, 0x33, 0, 0, 0, 2][..], &expected[..]));
    }
    assert!(seconds(ready, frames[1].0) <= 1.0, "MAX_RTR_SOLICITATION_DELAY");
    let gaps = [seconds(frames[1].0, frames[2].0), seconds(frames[2].0, frames[3].0)];
    assert_eq!(gaps, [4.0, 4.0], "RTR_SOLICITATION_INTERVAL");
    assert!(seconds(begin, ready) <= 2.0);
}

#[test]
fn slaac_05_an_advertisement_gives_an_address_a_router_and_an_mtu() {
    let mut link = asking();
    let options =
        [&[1, 1, 2, 0, 0, 0, 0, 1][..], &mtu(1_400), &prefix("2001:db8::", 3_600, 1_800).bytes()].concat();
    assert_eq!(link.hear(&advertisement("fe80::1", 1_800, &options)), Arrival::Taken);
    let expected = [
        NetworkChange::AddRoute(default_route("fe80::1")),
        NetworkChange::SetMtu(1_400),
        on_link("2001:db8::/64"),
    ];
    assert_eq!(link.take_changes(), expected);
    link.pass(Duration::from_secs(3));
    let own = "2001:db8::ff:fe00:2";
    assert_eq!(link.take_changes(), [NetworkChange::AddAddress(network(&format!("{own}/64")))]);
    let frames = link.take_frames();
    assert_eq!(frames.len(), 1, "checked, and no router is asked any more");
    assert_eq!(solicit(&frames[0].1).2, Ndp::Solicit { target: v6(own), source_mac: None });
    // Packets beyond the link go to the router, whose station is known from its advertisement.
    let header = |dst| IpHeader {
        src: ip(own),
        dst: ip(dst),
        protocol: 6,
        hop_limit: 64,
        ecn: Ecn::NotEct,
        header_len: 40,
        payload_len: 0,
    };
    let mut packet = vec![0; 40];
    header("2001:db8:9::1").emit(&mut packet, 0);
    let Hop::Ready(bytes) = link.link.next_hop(link.now, &packet) else { panic!("the router is not known") };
    assert_eq!(bytes[..6], ROUTER.0);
    header("2001:db8::77").emit(&mut packet, 0);
    assert!(matches!(link.link.next_hop(link.now, &packet), Hop::Wait(_)), "a neighbour");
}

#[test]
fn slaac_06_what_was_advertised_ends_with_its_time() {
    let mut link = asking();
    link.hear(&advertisement("fe80::1", 1_800, &prefix("2001:db8::", 600, 300).bytes()));
    link.pass(Duration::from_secs(10));
    link.take_changes();
    let own = ip("2001:db8::ff:fe00:2");
    link.pass(Duration::from_secs(280));
    assert_eq!(link.take_changes(), []);
    link.pass(Duration::from_secs(20));
    assert_eq!(link.take_changes(), [NetworkChange::Deprecate { address: own, deprecated: true }]);
    // Advertised once more: preferred again.
    link.hear(&advertisement("fe80::1", 1_800, &prefix("2001:db8::", 600, 300).bytes()));
    assert_eq!(link.take_changes(), [NetworkChange::Deprecate { address: own, deprecated: false }]);
    link.pass(Duration::from_secs(601));
    let gone = NetworkChange::RemoveRoute(Route { to: network("2001:db8::/64"), via: None, source: None });
    let changes = link.take_changes();
    assert_eq!(changes.len(), 3, "{changes:?}");
    assert_eq!(changes[0], NetworkChange::Deprecate { address: own, deprecated: true });
    assert!(changes.contains(&NetworkChange::RemoveAddress(own)) && changes.contains(&gone));
    // A router that says 0 is none from now on (RFC 4861 §6.3.4); one that is silent, when its time is over.
    link.hear(&advertisement("fe80::1", 0, &[]));
    assert_eq!(link.take_changes(), [NetworkChange::RemoveRoute(default_route("fe80::1"))]);
    link.hear(&advertisement("fe80::1", 100, &[]));
    link.take_changes();
    link.pass(Duration::from_secs(99));
    assert_eq!(link.take_changes(), []);
    link.pass(Duration::from_secs(1));
    assert_eq!(link.take_changes(), [NetworkChange::RemoveRoute(default_route("fe80::1"))]);
}

/// RFC 4862 §5.5.3 (e).
#[test]
fn slaac_07_no_advertisement_ends_an_address_within_two_hours() {
    let own = ip("2001:db8::ff:fe00:2");
    // Advertised first and later, and how long the address stays then.
    for (first, later, stays) in [
        (u32::MAX, 1, 7_200),
        (86_400, 0, 7_200),
        (86_400, 7_300, 7_300),
        (3_600, 1, 3_490),
        (3_600, 3_595, 3_595),
    ] {
        let mut link = asking();
        link.hear(&advertisement("fe80::1", 0, &prefix("2001:db8::", first, 0).bytes()));
        link.pass(Duration::from_secs(110));
        link.take_changes();
        link.hear(&advertisement("fe80::1", 0, &prefix("2001:db8::", later, 0).bytes()));
        link.pass(Duration::from_secs(stays - 1));
        let gone = NetworkChange::RemoveAddress(own);
        assert!(!link.take_changes().contains(&gone), "{first}, {later}");
        link.pass(Duration::from_secs(2));
        assert!(link.take_changes().contains(&gone), "{first}, {later}");
    }
}

#[test]
fn slaac_08_a_flood_of_advertisements_is_bounded() {
    let mut link = asking();
    for n in 0..100_000_u32 {
        let (router, net) = (
            format!("fe80::{:x}:{:x}", n >> 16, n & 0xffff),
            format!("2001:db8:{:x}:{:x}::", n >> 16, n & 0xffff),
        );
        link.hear(&advertisement(&router, 1_800, &prefix(&net, 7_200, 3_600).bytes()));
    }
    link.pass(Duration::from_secs(5));
    let changes = link.take_changes();
    let count = |is: fn(&NetworkChange) -> bool| changes.iter().filter(|change| is(change)).count();
    assert_eq!(count(|change| matches!(change, NetworkChange::AddAddress(_))), 16);
    assert_eq!(count(|change| matches!(change, NetworkChange::AddRoute(route) if route.via.is_some())), 8);
    assert_eq!(count(|change| matches!(change, NetworkChange::AddRoute(route) if route.via.is_none())), 16);
    assert_eq!(changes.len(), 40);
    assert!(link.link.neighbours() <= 512);
    // One that says and unsays everything, while the stack takes nothing.
    let mut options = Vec::new();
    for n in 0..20 {
        for valid in [0, 600] {
            options.extend(prefix(&format!("2001:db8:0:{n:x}::"), valid, 0).bytes());
        }
    }
    let frame = advertisement("fe80::1", 0, &options);
    (0..10_000).for_each(|_| _ = link.link.handle_frame(link.now, &frame));
    let waiting = std::iter::from_fn(|| link.link.poll_change()).count();
    assert!(waiting < 256 + 60, "{waiting} changes wait");
}

#[test]
fn slaac_09_nonsense_in_an_advertisement_is_ignored() {
    let off = |flags| Prefix { flags, ..prefix("2001:db8::", 3_600, 1_800) };
    for (what, options) in [
        ("link-local", prefix("fe80::", 3_600, 1_800).bytes()),
        ("a group", prefix("ff02::", 3_600, 1_800).bytes()),
        (
            "preferred for longer than valid",
            Prefix { flags: 0x40, ..prefix("2001:db8::", 1_800, 3_600) }.bytes(),
        ),
        ("over", prefix("2001:db8::", 0, 0).bytes()),
        ("63 bits", Prefix { len: 63, ..off(0x40) }.bytes()),
        ("no flag", off(0).bytes()),
        ("an MTU below that of IPv6", mtu(1_279)),
        ("an MTU above the link's", mtu(1_501)),
        ("an MTU of 32 bits", mtu(0x1_0000 + 1_400)),
    ] {
        let mut link = asking();
        assert_eq!(link.hear(&advertisement("fe80::1", 0, &options)), Arrival::Taken);
        link.pass(Duration::from_secs(5));
        let frames = link.take_frames();
        let checks = frames.iter().filter(|(_, frame)| frame[54] == 135).count();
        assert_eq!((link.take_changes(), checks), (vec![], 0), "{what}");
    }
    // Forwarded, or from an address that is not the link's.
    let mut forwarded = advertisement("fe80::1", 1_800, &prefix("2001:db8::", 3_600, 1_800).bytes());
    forwarded[14 + 7] = 254;
    let global = advertisement("2001:db8::1", 1_800, &prefix("2001:db8::", 3_600, 1_800).bytes());
    for frame in [forwarded, global] {
        let mut link = asking();
        assert_eq!(link.hear(&frame), Arrival::Ignored);
        link.pass(Duration::from_secs(5));
        assert_eq!(link.take_changes(), []);
    }
    // Where nobody asked, it is a packet like others.
    let mut link = Link::new(false, 1);
    assert_eq!(link.hear(&advertisement("fe80::1", 1_800, &[])), Arrival::Packet);
}

#[test]
fn slaac_10_a_station_that_is_there_twice_speaks_no_ipv6() {
    let mut link = Link::new(true, 2);
    link.pass(Duration::from_millis(1));
    link.hear(&ndp_frame(
        ROUTER,
        LINK_LOCAL,
        "ff02::1",
        Ndp::Advertise {
            target: v6(LINK_LOCAL),
            router: false,
            solicited: false,
            overrides: true,
            target_mac: Some(ROUTER),
        },
    ));
    link.take_frames();
    link.pass(Duration::from_secs(60));
    link.hear(&advertisement("fe80::1", 1_800, &prefix("2001:db8::", 3_600, 1_800).bytes()));
    link.pass(Duration::from_secs(10));
    assert_eq!((link.take_changes(), link.take_frames()), (vec![], vec![]));
}
