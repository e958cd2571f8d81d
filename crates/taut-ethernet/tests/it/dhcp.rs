//! An address of IPv4 from a server: the statements DHCP of docs/spec/ethernet.md. One host at the station
//! 02:00:00:00:00:02, and a server whose messages are written by hand.

use crate::link;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use taut_core::{Duration, Instant, Lease, LinkCaps, NetworkChange, NetworkError, Route, Stack, StackConfig};
use taut_ethernet::{Arrival, Ethernet, EthernetConfig, FRAME_MAX, Network, Role};
use taut_wire::{Arp, Ecn, EthernetHeader, IpHeader, Mac, UdpHeader, ether_type, protocol, udp};

const OWN: Mac = Mac([2, 0, 0, 0, 0, 2]);
const SERVER: Mac = Mac([2, 0, 0, 0, 0, 1]);
const OFFER: u8 = 2;
const ACK: u8 = 5;
const NAK: u8 = 6;
const MINUTE: Duration = Duration::from_secs(60);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn v4(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

fn network(text: &str) -> Network {
    let (address, prefix) = text.split_once('/').unwrap();
    Network { address: ip(address), prefix: prefix.parse().unwrap() }
}

fn on_link(to: &str) -> Route {
    Route { to: network(to), via: None, source: None }
}

fn default_route(via: &str) -> Route {
    Route { to: Network { address: ip(via), prefix: 0 }, via: Some(ip(via)), source: None }
}

fn seconds(from: Instant, to: Instant) -> f64 {
    to.since(from).as_nanos() as f64 / 1e9
}

/// A client's message, taken apart by the places of RFC 2131 §2.
#[derive(Clone, Debug)]
struct Said {
    at: Instant,
    to: Mac,
    src: Ipv4Addr,
    dst: Ipv4Addr,
    xid: [u8; 4],
    secs: u16,
    ciaddr: Ipv4Addr,
    kind: u8,
    requested: Option<Ipv4Addr>,
    server: Option<Ipv4Addr>,
}

fn option(message: &[u8], wanted: u8) -> Option<&[u8]> {
    let mut rest = &message[240..];
    while rest[0] != 255 {
        let len = usize::from(rest[1]);
        if rest[0] == wanted {
            return Some(&rest[2..2 + len]);
        }
        rest = &rest[2 + len..];
    }
    None
}

fn address(bytes: &[u8]) -> Ipv4Addr {
    let octets: [u8; 4] = bytes.try_into().unwrap();
    octets.into()
}

fn said(at: Instant, frame: &[u8]) -> Option<Said> {
    let header = EthernetHeader::parse(frame).unwrap();
    if header.ether_type != ether_type::IPV4 {
        return None;
    }
    assert_eq!(header.src, OWN);
    let ip = IpHeader::parse(&frame[14..]).unwrap();
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (ip.src, ip.dst) else { panic!() };
    assert_eq!((ip.protocol, ip.hop_limit, frame.len()), (17, 64, 14 + 20 + 8 + 300));
    let ports = UdpHeader::parse(&frame[34..], ip.payload_len).unwrap();
    assert_eq!((ports.src_port, ports.dst_port), (68, 67));
    assert!(udp::verify(ip.src, ip.dst, &frame[34..], &[]), "its checksum");
    let message = &frame[42..];
    assert_eq!((&message[..4], &message[28..34]), (&[1, 1, 6, 0][..], &OWN.0[..]));
    Some(Said {
        at,
        to: header.dst,
        src,
        dst,
        xid: message[4..8].try_into().unwrap(),
        secs: u16::from_be_bytes([message[8], message[9]]),
        ciaddr: address(&message[12..16]),
        kind: option(message, 53).unwrap()[0],
        requested: option(message, 50).map(address),
        server: option(message, 54).map(address),
    })
}

/// A server's message.
#[derive(Clone)]
struct Answer {
    kind: u8,
    station: Mac,
    address: &'static str,
    /// Options behind the type; the server's identifier among them.
    options: Vec<(u8, Vec<u8>)>,
}

impl Answer {
    /// What an ordinary server says: an hour, 10.9.0.0/24, a router.
    fn of(kind: u8) -> Self {
        let octets = |text: &str| v4(text).octets().to_vec();
        let options = vec![
            (54, octets("10.9.0.1")),
            (51, 3_600_u32.to_be_bytes().to_vec()),
            (1, octets("255.255.255.0")),
            (3, octets("10.9.0.1")),
        ];
        Self { kind, station: OWN, address: "10.9.0.7", options }
    }

    fn with(mut self, code: u8, data: &[u8]) -> Self {
        self.options.retain(|(other, _)| *other != code);
        self.options.push((code, data.to_vec()));
        self
    }

    fn without(mut self, code: u8) -> Self {
        self.options.retain(|(other, _)| *other != code);
        self
    }

    fn lease(self, seconds: u32) -> Self {
        self.with(51, &seconds.to_be_bytes())
    }

    fn message(&self, xid: [u8; 4]) -> Vec<u8> {
        let mut message = vec![2, 1, 6, 0];
        message.extend(xid);
        message.resize(16, 0);
        message.extend(v4(self.address).octets());
        message.resize(28, 0);
        message.extend(self.station.0);
        message.resize(236, 0);
        message.extend([99, 130, 83, 99, 53, 1, self.kind]);
        for (code, data) in &self.options {
            message.extend([*code, data.len() as u8]);
            message.extend(data);
        }
        message.push(255);
        message
    }
}

/// A datagram of the server, with this checksum of UDP or the right one.
fn datagram(message: &[u8], checksum: Option<u16>) -> Vec<u8> {
    let ip = IpHeader {
        src: ip("10.9.0.1"),
        dst: ip("255.255.255.255"),
        protocol: protocol::UDP,
        hop_limit: 64,
        ecn: Ecn::NotEct,
        header_len: 20,
        payload_len: 8 + message.len(),
    };
    let mut packet = vec![0; 28];
    ip.emit(&mut packet, 1);
    UdpHeader { src_port: 67, dst_port: 68, len: (8 + message.len()) as u16 }.emit(&mut packet[20..]);
    let right = udp::full_checksum(ip.src, ip.dst, &packet[20..], &[message]);
    udp::set_checksum(&mut packet[20..], checksum.unwrap_or(right));
    let header = EthernetHeader { dst: OWN, src: SERVER, ether_type: ether_type::IPV4 };
    [&header.emit()[..], &packet, message].concat()
}

/// A link, what it sent, and what it told the stack.
struct Link {
    link: Ethernet<u32>,
    now: Instant,
    said: Vec<Said>,
    others: Vec<Vec<u8>>,
    changes: Vec<NetworkChange>,
}

impl Link {
    fn new(seed: u8, networks: Vec<Network>) -> Self {
        Self::of_role(seed, networks, Role::Only)
    }

    fn of_role(seed: u8, networks: Vec<Network>, role: Role) -> Self {
        let config =
            EthernetConfig { mac: OWN, networks, dhcp: true, role, mtu: 1_500, ..EthernetConfig::default() };
        let link = Ethernet::new(config, [seed; 16]);
        let now = Instant::ZERO + Duration::from_secs(1);
        Self { link, now, said: Vec::new(), others: Vec::new(), changes: Vec::new() }
    }

    fn collect(&mut self) {
        let mut buf = [0; FRAME_MAX];
        while let Some(len) = self.link.poll_frame(&mut buf) {
            match said(self.now, &buf[..len]) {
                Some(said) => self.said.push(said),
                None => self.others.push(buf[..len].to_vec()),
            }
        }
        self.changes.extend(std::iter::from_fn(|| self.link.poll_change()));
    }

    fn pass(&mut self, span: Duration) {
        link::pass(self, span, |own| (&mut own.link, &mut own.now), Self::collect);
    }

    fn pass_until(&mut self, at: Instant) {
        self.pass(at.since(self.now));
    }

    fn hear(&mut self, frame: &[u8]) -> Arrival {
        let arrival = self.link.handle_frame(self.now, frame);
        self.collect();
        arrival
    }

    /// The server answers what the client said last.
    fn answer(&mut self, answer: &Answer) -> Arrival {
        let xid = self.last().xid;
        self.hear(&datagram(&answer.message(xid), None))
    }

    fn last(&self) -> &Said {
        self.said.last().expect("it said something")
    }

    fn kinds(&self) -> Vec<u8> {
        self.said.iter().map(|said| said.kind).collect()
    }

    fn take(&mut self) -> Vec<NetworkChange> {
        std::mem::take(&mut self.changes)
    }

    /// It has asked for an address.
    fn asking(seed: u8) -> Self {
        let mut link = Self::new(seed, vec![]);
        link.pass(Duration::from_secs(1));
        assert_eq!(link.kinds(), [1]);
        link
    }

    /// It has a lease by this answer, told to the stack. The request was made at the time that is returned.
    fn bound(ack: &Answer) -> (Self, Instant) {
        let mut link = Self::asking(3);
        link.answer(&Answer { kind: OFFER, ..ack.clone() });
        let asked = link.now;
        link.answer(ack);
        link.pass(Duration::from_secs(10));
        assert!(link.changes.len() >= 4, "{:?}", link.changes);
        link.take();
        link.said.clear();
        (link, asked)
    }
}

fn is_gone(changes: &[NetworkChange]) -> bool {
    changes.contains(&NetworkChange::RemoveAddress(ip("10.9.0.7")))
        && changes.contains(&NetworkChange::RemoveRoute(default_route("10.9.0.1")))
        && changes.contains(&NetworkChange::RemoveRoute(on_link("10.9.0.7/24")))
        && changes.contains(&NetworkChange::SetLease(None))
}

#[test]
fn dhcp_03_discover_with_pauses_that_double() {
    for seed in 0..20 {
        let mut link = Link::new(seed, vec![]);
        let begin = link.now;
        link.pass(MINUTE * 10);
        let first = &link.said[0];
        let nobody = Ipv4Addr::UNSPECIFIED;
        assert_eq!((first.to, first.src, first.dst), (Mac::BROADCAST, nobody, Ipv4Addr::BROADCAST));
        assert_eq!((first.kind, first.ciaddr, first.requested, first.server), (1, nobody, None, None));
        assert!((0.0..1.0).contains(&seconds(begin, first.at)));
        // RFC 2131 §4.1: 4, 8, 16 … 64 s, each with a random part of -1 to +1.
        let gaps: Vec<_> = link.said.windows(2).map(|pair| seconds(pair[0].at, pair[1].at)).collect();
        for (gap, expected) in gaps.iter().zip([4.0, 8.0, 16.0, 32.0, 64.0, 64.0, 64.0, 64.0]) {
            assert!((gap - expected).abs() <= 1.0, "{gap} s, not {expected}");
        }
        assert!(gaps.len() >= 10 && gaps.iter().any(|gap| gap.fract() != 0.0), "{gaps:?}");
        assert!(link.said.iter().all(|said| said.xid == first.xid && said.kind == 1));
        assert_eq!((link.said[0].secs, link.said[3].secs), (0, seconds(first.at, link.said[3].at) as u16));
        assert_eq!(link.changes, []);
    }
    let xid = |seed| Link::asking(seed).last().xid;
    assert_ne!(xid(1), xid(2), "random");
}

#[test]
fn dhcp_04_the_way_to_a_lease() {
    let mut link = Link::asking(3);
    link.pass(Duration::from_secs(6));
    let discover = link.last().clone();
    let ack = Answer::of(ACK)
        .with(6, &[9, 9, 9, 9, 8, 8, 8, 8])
        .with(26, &1_400_u16.to_be_bytes())
        .with(3, &[10, 9, 0, 1, 10, 9, 0, 3, 10, 9, 0, 1]);
    assert_eq!(link.answer(&Answer { kind: OFFER, ..ack.clone() }), Arrival::Taken);
    let request = link.last().clone();
    let server = v4("10.9.0.1");
    assert_eq!((request.kind, request.requested, request.server), (3, Some(v4("10.9.0.7")), Some(server)));
    assert_eq!((request.xid, request.secs), (discover.xid, discover.secs), "RFC 2131 §3.1 (3)");
    assert_eq!((request.src, request.dst), (Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST));
    let asked = link.now;
    link.answer(&ack);
    assert_eq!((link.take(), link.others.len()), (vec![], 0), "nobody is told before the check");
    link.pass(Duration::from_secs(10));
    let arps: Vec<_> = link.others.iter().map(|frame| Arp::parse(&frame[14..]).unwrap()).collect();
    assert!(arps.len() == 5 && arps[..3].iter().all(|arp| arp.sender.is_unspecified()), "RFC 5227");
    let checked = link.changes.iter().any(|change| matches!(change, NetworkChange::AddAddress(_)));
    assert!(checked);
    let changes = link.take();
    let [.., NetworkChange::SetLease(Some(lease))] = changes[..] else { panic!("{changes:?}") };
    let expected = [
        NetworkChange::AddAddress(network("10.9.0.7/24")),
        NetworkChange::AddRoute(on_link("10.9.0.7/24")),
        NetworkChange::AddRoute(default_route("10.9.0.1")),
        NetworkChange::AddRoute(default_route("10.9.0.3")),
        NetworkChange::AddNameServer(ip("9.9.9.9")),
        NetworkChange::AddNameServer(ip("8.8.8.8")),
        NetworkChange::SetMtu(1_400),
        NetworkChange::SetLease(Some(lease)),
    ];
    assert_eq!(changes, expected);
    assert_eq!((lease.network, lease.server), (network("10.9.0.7/24"), ip("10.9.0.1")));
    // RFC 2131 §4.4.1: the lease counts from the request, and the check took 4 to 7 s.
    let end = lease.ends_in.unwrap().as_nanos() as f64 / 1e9;
    assert!((3_593.0..=3_596.0).contains(&end), "{end} s");
    // §4.4.5: T1 is half of the lease, and here up to a sixteenth earlier.
    link.said.clear();
    link.pass(MINUTE * 30);
    let renewal = seconds(asked, link.said[0].at);
    assert!((1_687.5..=1_800.0).contains(&renewal), "{renewal} s");
}

#[test]
fn dhcp_05_a_lease_is_prolonged_or_ends() {
    let (mut link, asked) = Link::bound(&Answer::of(ACK));
    link.pass_until(asked + MINUTE * 30);
    let renewal = link.last().clone();
    let own = v4("10.9.0.7");
    assert_eq!((renewal.kind, renewal.to, renewal.src, renewal.dst), (3, SERVER, own, v4("10.9.0.1")));
    assert_eq!((renewal.ciaddr, renewal.requested, renewal.server), (own, None, None), "RFC 2131 §4.3.2");
    assert_eq!(link.take(), []);
    link.answer(&Answer::of(ACK));
    let [NetworkChange::SetLease(Some(lease))] = link.take()[..] else { panic!("only the times change") };
    let left = lease.ends_in.unwrap().as_nanos() / 1_000_000_000;
    assert!((3_480..=3_600).contains(&left), "{left} s");

    // Nobody answers any more: its server is asked until T2, then all servers, then the address is gone.
    let asked = renewal.at;
    link.said.clear();
    link.pass_until(asked + Duration::from_secs(3_599));
    assert_eq!(link.take(), []);
    let t2 = asked + Duration::from_secs(3_150);
    let (unicast, broadcast): (Vec<_>, Vec<_>) = link.said.iter().partition(|said| said.to == SERVER);
    assert!(unicast.iter().all(|said| said.at < t2 && said.ciaddr == own));
    assert!(broadcast.iter().all(|said| said.at >= t2 && said.ciaddr == own && said.to == Mac::BROADCAST));
    assert_eq!(broadcast[0].at, t2);
    // §4.4.5: after half of what is left, and not before a minute has passed.
    for (all, end) in [(&unicast, t2), (&broadcast, asked + MINUTE * 60)] {
        assert!(all.len() >= 3, "{all:?}");
        for pair in all.windows(2) {
            let half = (end.since(pair[0].at) / 2).max(MINUTE);
            assert_eq!(pair[1].at.since(pair[0].at), half);
        }
    }
    link.pass(Duration::from_secs(2));
    assert!(is_gone(&link.changes), "{:?}", link.changes);
    let anew = link.last();
    assert_eq!(
        (anew.kind, anew.src, anew.requested),
        (1, Ipv4Addr::UNSPECIFIED, Some(own)),
        "it asks for the same"
    );

    // Another server prolongs it, but only when all are asked.
    let (mut link, asked) = Link::bound(&Answer::of(ACK));
    let other = Answer::of(ACK).with(54, &[10, 9, 0, 9]);
    link.pass_until(asked + MINUTE * 30);
    link.answer(&other);
    assert_eq!(link.take(), []);
    link.pass_until(asked + Duration::from_secs(3_151));
    link.answer(&other);
    let changes = link.take();
    assert!(
        matches!(changes[..], [NetworkChange::SetLease(Some(Lease { server, .. }))] if server == ip("10.9.0.9"))
    );

    // One that is for ever is not asked for again.
    let (mut link, _) = Link::bound(&Answer::of(ACK).lease(u32::MAX));
    link.pass(MINUTE * 1_000_000);
    assert_eq!((link.said.len(), link.take()), (0, vec![]));
    // The server's own times.
    let own_times = Answer::of(ACK).with(58, &100_u32.to_be_bytes()).with(59, &200_u32.to_be_bytes());
    let (mut link, asked) = Link::bound(&own_times);
    link.pass_until(asked + Duration::from_secs(199));
    let at: Vec<_> = link.said.iter().map(|said| seconds(asked, said.at)).collect();
    assert!(at.len() == 2 && (93.75..=100.0).contains(&at[0]), "{at:?}");
    link.pass(Duration::from_secs(2));
    assert_eq!(link.last().to, Mac::BROADCAST);
}

#[test]
fn dhcp_06_what_a_renewal_changes() {
    let ack = Answer::of(ACK).with(6, &[9, 9, 9, 9, 8, 8, 8, 8]).with(26, &1_400_u16.to_be_bytes());
    let (mut link, asked) = Link::bound(&ack);
    link.pass_until(asked + MINUTE * 30);
    let changed =
        Answer::of(ACK).with(1, &[255, 255, 0, 0]).with(3, &[10, 9, 7, 1]).with(6, &[8, 8, 8, 8, 7, 7, 7, 7]);
    link.answer(&changed);
    let changes = link.take();
    let [ref changes @ .., NetworkChange::SetLease(Some(_))] = changes[..] else { panic!("{changes:?}") };
    let expected = [
        NetworkChange::AddRoute(on_link("10.9.0.7/16")),
        NetworkChange::AddRoute(default_route("10.9.7.1")),
        NetworkChange::RemoveRoute(on_link("10.9.0.7/24")),
        NetworkChange::RemoveRoute(default_route("10.9.0.1")),
        NetworkChange::RemoveNameServer(ip("9.9.9.9")),
        NetworkChange::AddNameServer(ip("7.7.7.7")),
        NetworkChange::SetMtu(1_500),
        NetworkChange::AddAddress(network("10.9.0.7/16")),
    ];
    assert_eq!(changes, expected);
    // Another address is no renewal.
    link.pass(MINUTE * 30);
    link.answer(&Answer { address: "10.9.0.8", ..Answer::of(ACK) });
    assert_eq!(link.take(), []);
}

#[test]
fn dhcp_07_a_server_refuses() {
    let mut link = Link::asking(4);
    link.answer(&Answer::of(OFFER));
    // Not from the server that was asked.
    link.answer(&Answer::of(NAK).with(54, &[10, 9, 0, 9]));
    let (asked, nak) = (link.last().clone(), Answer::of(NAK));
    link.answer(&nak);
    let refused = link.now;
    link.pass(Duration::from_secs(3));
    let anew = link.last().clone();
    assert_eq!(anew.kind, 1);
    assert!((1.0..=2.0).contains(&seconds(refused, anew.at)));
    assert_ne!(anew.xid, asked.xid);

    let (mut link, asked) = Link::bound(&Answer::of(ACK));
    link.pass_until(asked + MINUTE * 30);
    link.answer(&nak.clone().with(54, &[10, 9, 0, 9]));
    assert_eq!(link.take(), [], "not its server");
    link.answer(&nak);
    assert!(is_gone(&link.changes), "{:?}", link.changes);
    let question = EthernetHeader { dst: Mac::BROADCAST, src: SERVER, ether_type: ether_type::ARP };
    let (sender, target) = (v4("10.9.0.1"), v4("10.9.0.7"));
    let arp = Arp { is_request: true, sender_mac: SERVER, sender, target_mac: Mac::default(), target };
    link.others.clear();
    link.hear(&[&question.emit()[..], &arp.emit()].concat());
    assert_eq!(link.others.len(), 0, "it does not answer for the address any more");
}

#[test]
fn dhcp_08_an_address_that_another_station_has_is_declined() {
    let claim = || {
        let header = EthernetHeader { dst: Mac::BROADCAST, src: SERVER, ether_type: ether_type::ARP };
        let own = v4("10.9.0.7");
        let arp = Arp {
            is_request: false,
            sender_mac: SERVER,
            sender: own,
            target_mac: Mac::BROADCAST,
            target: own,
        };
        [&header.emit()[..], &arp.emit()].concat()
    };
    let is_decline = |said: &Said| {
        said.kind == 4
            && said.requested == Some(v4("10.9.0.7"))
            && said.server == Some(v4("10.9.0.1"))
            && (said.src, said.ciaddr) == (Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED)
    };
    // While it is being checked.
    let mut link = Link::asking(5);
    link.answer(&Answer::of(OFFER));
    link.answer(&Answer::of(ACK));
    link.pass(Duration::from_secs(2));
    link.hear(&claim());
    let decline = link.last().clone();
    assert!(is_decline(&decline) && decline.xid != link.said[0].xid, "{decline:?}");
    assert_eq!(link.take(), []);
    link.pass(MINUTE);
    let anew = &link.said[3];
    assert_eq!((anew.kind, anew.requested), (1, None), "it does not ask for that address again");
    assert!((10.0..=11.0).contains(&seconds(decline.at, anew.at)), "RFC 2131 §3.1 (5)");

    // In use: defended once in ten seconds (RFC 5227 §2.4), then given up.
    let (mut link, _) = Link::bound(&Answer::of(ACK));
    link.hear(&claim());
    assert_eq!((link.said.len(), link.take()), (0, vec![]));
    link.hear(&claim());
    assert!(is_decline(link.last()) && is_gone(&link.changes), "{:?}", link.changes);
}

#[test]
fn dhcp_09_answers_to_others_are_ignored() {
    let mut link = Link::asking(6);
    let xid = link.last().xid;
    let offer = Answer::of(OFFER);
    let mut wrong = xid;
    wrong[3] ^= 1;
    for message in [
        offer.message(wrong),
        Answer { station: SERVER, ..offer.clone() }.message(xid),
        Answer::of(ACK).message(xid),
        Answer::of(NAK).message(xid),
        offer.clone().without(54).message(xid),
    ] {
        assert_eq!(link.hear(&datagram(&message, None)), Arrival::Taken, "the stack has no use for it");
        assert_eq!(link.kinds(), [1]);
    }
    link.answer(&offer);
    assert_eq!(link.kinds(), [1, 3]);
    // A second offer, an answer of another server, one of another address.
    link.answer(&Answer { address: "10.9.0.8", ..offer });
    link.answer(&Answer::of(ACK).with(54, &[10, 9, 0, 9]));
    link.answer(&Answer { address: "10.9.0.8", ..Answer::of(ACK) });
    link.pass(Duration::from_secs(3));
    assert_eq!((link.kinds(), link.others.len()), (vec![1, 3], 0));
    link.answer(&Answer::of(ACK));
    link.pass(Duration::from_secs(10));
    assert_eq!(link.take().len(), 4);
    // An address that the host has already.
    let mut link = Link::new(1, vec![network("10.9.0.7/24")]);
    link.pass(Duration::from_secs(1));
    link.answer(&Answer::of(OFFER));
    assert_eq!(link.kinds(), [1]);
    // Where no server is asked, it is a packet like others.
    let mut link = Ethernet::<u32>::new(EthernetConfig { mac: OWN, ..EthernetConfig::default() }, [1; 16]);
    let frame = datagram(&Answer::of(OFFER).message([0; 4]), None);
    assert_eq!(link.handle_frame(Instant::ZERO, &frame), Arrival::Packet);
}

#[test]
fn dhcp_10_nonsense_in_an_offer_is_refused() {
    let offer = || Answer::of(OFFER);
    let at = |address: &'static str| Answer { address, ..Answer::of(OFFER) };
    for (what, nonsense) in [
        ("no address", at("0.0.0.0")),
        ("loopback", at("127.0.0.1")),
        ("a group", at("224.0.0.5")),
        ("everybody", at("255.255.255.255")),
        ("the network", at("10.9.0.0")),
        ("its broadcast address", at("10.9.0.255")),
        ("a mask with holes", offer().with(1, &[255, 0, 255, 0])),
        ("everything on the link", offer().with(1, &[0, 0, 0, 0])),
        ("a quarter of everything", offer().with(1, &[192, 0, 0, 0])),
        ("no lease", offer().without(51)),
        ("a lease of no time", offer().lease(0)),
        ("a lease that is shorter than the check", offer().lease(29)),
        ("a server that is everybody", offer().with(54, &[255; 4])),
        ("a server without an address", offer().with(54, &[0; 4])),
    ] {
        let mut link = Link::asking(7);
        assert_eq!(link.answer(&nonsense), Arrival::Taken);
        assert_eq!(link.kinds(), [1], "{what}");
        // It waits for a better one.
        link.answer(&offer());
        assert_eq!(link.kinds(), [1, 3], "{what}");
    }
    // What is left out, and the lease is taken: routers and name servers that no host can be, an MTU that
    // cannot be.
    let small = 575_u16.to_be_bytes();
    for (code, data) in [
        (3, &[10, 8, 0, 1, 10, 9, 0, 7, 10, 9, 0, 255, 0, 0, 0, 0][..]),
        (6, &[0, 0, 0, 0, 127, 0, 0, 1, 224, 0, 0, 1, 255, 255, 255, 255]),
        (26, &small),
        (26, &1_501_u16.to_be_bytes()),
    ] {
        let mut link = Link::asking(8);
        let ack = Answer::of(ACK).without(3).with(code, data);
        link.answer(&Answer { kind: OFFER, ..ack.clone() });
        link.answer(&ack);
        link.pass(Duration::from_secs(10));
        let changes = link.take();
        let expected = [
            NetworkChange::AddAddress(network("10.9.0.7/24")),
            NetworkChange::AddRoute(on_link("10.9.0.7/24")),
        ];
        assert_eq!((&changes[..2], changes.len()), (&expected[..], 3), "{code}");
    }
    // Without a mask, that of the class (RFC 791 §3.2); a network of one, whose router is beyond it.
    for (address, mask, router, routes) in [
        ("10.9.0.7", None, "10.1.1.1", &["10.9.0.7/8"][..]),
        ("172.16.3.4", None, "172.16.9.9", &["172.16.3.4/16"]),
        ("192.0.2.9", None, "192.0.2.1", &["192.0.2.9/24"]),
        ("10.9.0.7", Some([255; 4]), "10.9.0.1", &["10.9.0.7/32", "10.9.0.1/32"]),
    ] {
        let mut link = Link::asking(9);
        let ack = Answer { address, ..Answer::of(ACK) }.with(3, &v4(router).octets());
        let ack = mask.map_or_else(|| ack.clone().without(1), |mask| ack.clone().with(1, &mask));
        link.answer(&Answer { kind: OFFER, ..ack.clone() });
        link.answer(&ack);
        link.pass(Duration::from_secs(10));
        let added: Vec<_> = routes.iter().map(|to| on_link(to)).chain([default_route(router)]).collect();
        let told: Vec<_> = link
            .take()
            .into_iter()
            .filter_map(|change| if let NetworkChange::AddRoute(route) = change { Some(route) } else { None })
            .collect();
        assert_eq!(told, added, "{address}");
    }
    // Times that contradict each other, or would have it ask all the time: those of RFC 2131 §4.4.5.
    for (renew, rebind) in [(2_000_u32, 1_000_u32), (1_000, 3_600), (9, 1_000), (0, 0), (u32::MAX, u32::MAX)]
    {
        let ack = Answer::of(ACK).with(58, &renew.to_be_bytes()).with(59, &rebind.to_be_bytes());
        let (mut link, asked) = Link::bound(&ack);
        link.pass_until(asked + MINUTE * 30);
        let at = seconds(asked, link.said[0].at);
        assert!((1_687.5..=1_800.0).contains(&at), "{renew}, {rebind}: {at} s");
    }
}

#[test]
fn dhcp_11_a_server_that_offers_and_falls_silent() {
    let mut link = Link::asking(2);
    link.answer(&Answer::of(OFFER));
    let asked = link.now;
    while link.last().kind == 3 {
        link.pass(Duration::from_secs(1));
    }
    assert_eq!(link.kinds(), [1, 3, 3, 3, 3, 1], "RFC 2131 §3.1 (5): four requests, 60 s");
    let anew = link.last();
    assert!((56.0..=64.0).contains(&seconds(asked, anew.at)), "4 + 8 + 16 + 32 s, each ± 1");
    assert_ne!(anew.xid, link.said[0].xid);
    // An answer to the old exchange.
    let old = Answer::of(ACK).message(link.said[1].xid);
    link.hear(&datagram(&old, None));
    assert_eq!((link.take(), link.others.len()), (vec![], 0));
}

#[test]
fn dhcp_12_floods_are_bounded() {
    // A server that offers and refuses, as fast as it is asked.
    let mut link = Link::new(1, vec![]);
    let begin = link.now;
    while seconds(begin, link.now) < 100.0 {
        link.pass(Duration::from_millis(10));
        if link.said.last().is_some_and(|said| said.kind == 1) {
            link.answer(&Answer::of(OFFER));
            link.answer(&Answer::of(NAK));
        }
    }
    let discovers = link.kinds().iter().filter(|kind| **kind == 1).count();
    assert!((50..=101).contains(&discovers), "{discovers} in 100 s");
    assert_eq!(link.take(), []);
    // A hundred thousand answers to guessed numbers.
    let mut link = Link::asking(2);
    for n in 0..100_000_u32 {
        link.hear(&datagram(&Answer::of(OFFER).message(n.to_be_bytes()), None));
    }
    assert_eq!(link.kinds(), [1]);
    assert_eq!(link.link.stats().ignored, 100_000);
    // Renewals that change everything each time, while the stack takes nothing.
    let (mut link, asked) = Link::bound(&Answer::of(ACK));
    link.pass_until(asked + MINUTE * 30);
    for n in 0..10_000_u32 {
        let host = (n % 200) as u8 + 10;
        let servers: Vec<u8> = (0..4).flat_map(|at| [9, 9, at, host]).collect();
        let ack = Answer::of(ACK).with(6, &servers).with(3, &[10, 9, 0, host]);
        let frame = datagram(&ack.message(link.last().xid), None);
        link.link.handle_frame(link.now, &frame);
        link.now += MINUTE * 30;
        link.link.handle_timeout(link.now);
        let mut buf = [0; FRAME_MAX];
        while let Some(len) = link.link.poll_frame(&mut buf) {
            link.said.extend(said(link.now, &buf[..len]));
        }
    }
    let waiting = std::iter::from_fn(|| link.link.poll_change()).count();
    assert!(waiting < 256 + 60, "{waiting} changes wait");
}

#[test]
fn dhcp_13_checksums_of_servers() {
    let mut link = Link::asking(2);
    let message = Answer::of(OFFER).message(link.last().xid);
    let good = datagram(&message, None);
    let right = u16::from_be_bytes([good[40], good[41]]);
    link.hear(&datagram(&message, Some(right ^ 1)));
    assert_eq!(link.kinds(), [1], "broken");
    // None, which IPv4 allows; that of the pseudo-header, which a server on the same machine leaves to be
    // completed.
    let partial = udp::partial_checksum(ip("10.9.0.1"), ip("255.255.255.255"), 8 + message.len() as u32);
    for checksum in [right, 0, partial] {
        let mut link = Link::asking(2);
        link.hear(&datagram(&message, Some(checksum)));
        assert_eq!(link.kinds(), [1, 3], "{checksum:x}");
    }
}

#[test]
fn dhcp_14_an_address_that_the_owner_removes_is_given_back() {
    let (mut link, _) = Link::bound(&Answer::of(ACK).with(6, &[9, 9, 9, 9]));
    assert!(link.link.change_network(link.now, NetworkChange::RemoveAddress(ip("10.9.0.7"))));
    link.collect();
    let release = link.last().clone();
    let own = v4("10.9.0.7");
    assert_eq!((release.kind, release.to, release.src, release.ciaddr), (7, SERVER, own, own));
    assert_eq!(
        (release.dst, release.server, release.requested),
        (v4("10.9.0.1"), Some(v4("10.9.0.1")), None)
    );
    let changes = link.take();
    let expected = [
        NetworkChange::RemoveRoute(on_link("10.9.0.7/24")),
        NetworkChange::RemoveRoute(default_route("10.9.0.1")),
        NetworkChange::RemoveNameServer(ip("9.9.9.9")),
        NetworkChange::SetLease(None),
    ];
    assert_eq!(changes, expected);
    link.said.clear();
    link.pass(MINUTE * 600);
    assert_eq!(link.said.len(), 0, "it asks no more");
}

#[test]
fn dhcp_15_the_stack_reports_lease_and_name_servers() {
    let mut stack = Stack::new(Arc::new(StackConfig::default()), LinkCaps::plain(1_500), [1; 32]);
    let now = Instant::ZERO + MINUTE;
    let lease = Lease {
        network: network("10.9.0.7/24"),
        server: ip("10.9.0.1"),
        renews_in: Some(MINUTE * 30),
        ends_in: Some(MINUTE * 60),
    };
    let change = |stack: &mut Stack, change| stack.change_network(now, change);
    assert_eq!(stack.lease(now), None);
    change(&mut stack, NetworkChange::SetLease(Some(lease))).unwrap();
    let later = stack.lease(now + MINUTE * 10).unwrap();
    assert_eq!((later.renews_in, later.ends_in), (Some(MINUTE * 20), Some(MINUTE * 50)));
    change(&mut stack, NetworkChange::SetLease(Some(lease))).unwrap();
    change(&mut stack, NetworkChange::SetLease(None)).unwrap();
    assert_eq!((stack.counters().dhcp_leases, stack.counters().dhcp_leases_lost), (2, 1));
    let servers: Vec<_> = (1..=8).map(|n| IpAddr::from([9, 9, 9, n])).collect();
    for server in &servers {
        change(&mut stack, NetworkChange::AddNameServer(*server)).unwrap();
    }
    assert_eq!(change(&mut stack, NetworkChange::AddNameServer(servers[0])), Ok(()), "it is there");
    assert_eq!(change(&mut stack, NetworkChange::AddNameServer(ip("9.9.9.9"))), Err(NetworkError::TooMany));
    let group = NetworkChange::AddNameServer(ip("224.0.0.1"));
    assert_eq!(change(&mut stack, group), Err(NetworkError::InvalidAddress));
    assert_eq!(stack.name_servers(), servers);
    change(&mut stack, NetworkChange::RemoveNameServer(servers[0])).unwrap();
    let again = change(&mut stack, NetworkChange::RemoveNameServer(servers[0]));
    assert_eq!((stack.name_servers(), again), (&servers[1..], Err(NetworkError::NotFound)));
}

/// A host with two queues. Everything that others say comes to the second one, as a device's queue passes it
/// on.
struct Queues {
    first: Link,
    other: Link,
}

impl Queues {
    fn new() -> Self {
        Self { first: Link::of_role(3, vec![], Role::First), other: Link::of_role(4, vec![], Role::Other) }
    }

    fn tell(&mut self) {
        while self.other.link.can_follow()
            && let Some(change) = self.first.link.poll_shared()
        {
            self.other.link.follow(change);
        }
    }

    /// Both stacks are told.
    fn pass(&mut self, span: Duration) {
        self.first.pass(span);
        self.tell();
        self.other.pass(span);
        self.other.collect();
    }

    fn hear(&mut self, frame: &[u8]) {
        self.pass_on(frame);
        self.other.collect();
    }

    /// The same, but the second stack takes nothing.
    fn pass_on(&mut self, frame: &[u8]) {
        assert_eq!(self.other.link.handle_frame(self.other.now, frame), Arrival::Taken);
        self.first.link.overhear(self.first.now, frame);
        self.first.collect();
        self.tell();
    }

    fn answer(&mut self, answer: &Answer) {
        let xid = self.first.last().xid;
        self.hear(&datagram(&answer.message(xid), None));
    }

    /// The queues have a lease, both stacks know, and all that was said and told is forgotten.
    fn bound(ack: &Answer) -> Self {
        let mut queues = Self::new();
        queues.pass(Duration::from_secs(1));
        queues.answer(&Answer { kind: OFFER, ..ack.clone() });
        queues.answer(ack);
        queues.pass(Duration::from_secs(14));
        for link in [&mut queues.first, &mut queues.other] {
            assert!(link.take().contains(&NetworkChange::AddAddress(network("10.9.0.7/24"))));
            link.said.clear();
            link.others.clear();
        }
        queues
    }
}

/// A station says by ARP that it has this address.
fn claim(address: &str) -> Vec<u8> {
    let arp = Arp {
        is_request: true,
        sender_mac: SERVER,
        sender: v4(address),
        target_mac: Mac::default(),
        target: v4(address),
    };
    let header = EthernetHeader { dst: Mac::BROADCAST, src: SERVER, ether_type: ether_type::ARP };
    [&header.emit()[..], &arp.emit()].concat()
}

fn arps(link: &Link) -> Vec<Arp> {
    link.others.iter().map(|frame| Arp::parse(&frame[14..]).unwrap()).collect()
}

#[test]
fn dhcp_18_one_of_several_queues_asks_and_tells_the_others() {
    let ack = Answer::of(ACK).with(6, &[9, 9, 9, 9]).with(26, &1_400_u16.to_be_bytes());
    let mut queues = Queues::new();
    queues.pass(Duration::from_secs(1));
    queues.answer(&Answer { kind: OFFER, ..ack.clone() });
    queues.answer(&ack);
    assert_eq!((queues.first.kinds(), queues.other.kinds()), (vec![1, 3], vec![]), "one of them asks");
    assert_eq!((queues.first.take(), queues.other.take()), (vec![], vec![]), "it is being checked");
    queues.pass(Duration::from_secs(10));
    let told = [
        NetworkChange::AddAddress(network("10.9.0.7/24")),
        NetworkChange::AddRoute(on_link("10.9.0.7/24")),
        NetworkChange::AddRoute(default_route("10.9.0.1")),
        NetworkChange::AddNameServer(ip("9.9.9.9")),
        NetworkChange::SetMtu(1_400),
    ];
    for link in [&mut queues.first, &mut queues.other] {
        let mut changes = link.take();
        assert!(matches!(changes.pop(), Some(NetworkChange::SetLease(Some(_)))));
        assert_eq!(changes, told);
    }
    // The queue that receives a question for the address answers it.
    queues.other.others.clear();
    let request = Arp {
        is_request: true,
        sender_mac: SERVER,
        sender: v4("10.9.0.1"),
        target_mac: Mac::default(),
        target: v4("10.9.0.7"),
    };
    let header = EthernetHeader { dst: Mac::BROADCAST, src: SERVER, ether_type: ether_type::ARP };
    queues.first.others.clear();
    queues.hear(&[&header.emit()[..], &request.emit()].concat());
    let answers: Vec<_> = arps(&queues.other).iter().map(|arp| (arp.sender, arp.is_request)).collect();
    assert_eq!((answers, arps(&queues.first)), (vec![(v4("10.9.0.7"), false)], vec![]));
    // A renewal with another router; the server's answer comes to the second queue again.
    queues.pass(MINUTE * 30);
    queues.first.take();
    queues.other.take();
    queues.answer(&ack.with(3, &[10, 9, 0, 2]));
    for link in [&mut queues.first, &mut queues.other] {
        let changes = link.take();
        assert_eq!(changes[0], NetworkChange::AddRoute(default_route("10.9.0.2")));
        assert_eq!(changes[1], NetworkChange::RemoveRoute(default_route("10.9.0.1")));
    }
    // Nobody renews it.
    queues.pass(MINUTE * 61);
    for link in [&mut queues.first, &mut queues.other] {
        let changes = link.take();
        assert!(changes.contains(&NetworkChange::RemoveAddress(ip("10.9.0.7"))), "{changes:?}");
        assert!(changes.contains(&NetworkChange::SetLease(None)), "{changes:?}");
    }
    assert_eq!(queues.other.kinds(), []);
}

#[test]
fn dhcp_19_the_queue_with_the_lease_defends_its_address() {
    let mut queues = Queues::bound(&Answer::of(ACK));
    queues.hear(&claim("10.9.0.7"));
    let said = arps(&queues.first);
    assert_eq!(
        said.iter().map(|arp| (arp.sender, arp.target)).collect::<Vec<_>>(),
        [(v4("10.9.0.7"), v4("10.9.0.7"))]
    );
    assert_eq!((queues.first.kinds(), arps(&queues.other)), (vec![], vec![]), "once, by one of them");
    queues.hear(&claim("10.9.0.7"));
    assert_eq!(queues.first.kinds(), [4], "declined");
    assert!(is_gone(&queues.first.take()));
    assert!(is_gone(&queues.other.take()));
    // The owner of the stack removes the address from both.
    let mut queues = Queues::bound(&Answer::of(ACK));
    for link in [&mut queues.other, &mut queues.first] {
        link.link.change_network(link.now, NetworkChange::RemoveAddress(ip("10.9.0.7")));
        link.collect();
    }
    queues.tell();
    queues.other.collect();
    assert_eq!((queues.first.kinds(), queues.other.kinds()), (vec![7], vec![]));
    assert!(queues.other.take().contains(&NetworkChange::SetLease(None)));
    // A second stack that takes nothing, and a server that changes everything each time.
    let mut queues = Queues::bound(&Answer::of(ACK));
    for n in 0..1_000_u32 {
        queues.first.pass(MINUTE * 30);
        queues.other.now = queues.first.now;
        let host = (n % 200) as u8 + 10;
        let servers: Vec<u8> = (0..4).flat_map(|at| [9, 9, at, host]).collect();
        let ack = Answer::of(ACK).with(6, &servers).with(3, &[10, 9, 0, host]);
        let xid = queues.first.last().xid;
        queues.pass_on(&datagram(&ack.message(xid), None));
    }
    let waiting = std::iter::from_fn(|| queues.other.link.poll_change()).count();
    let behind = std::iter::from_fn(|| queues.first.link.poll_shared()).count();
    assert!(waiting <= 256 && behind < 256 + 60, "{waiting} and {behind} changes wait");
}
