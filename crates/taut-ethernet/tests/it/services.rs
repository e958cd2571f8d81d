//! A host serves the others on its link, with DHCP and as their router: the statements VM-3
//! to 9 and VM-12 to 14 of docs/spec/gateway.md. Messages of clients are written by hand, by the places of
//! RFC
//! 2131 §2, or come from the link layer of another host; both are at one wire without delay, in virtual time.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use taut_core::{Duration, Instant, NetworkChange};
use taut_ethernet::{
    Arrival, Boot, Ethernet, EthernetConfig, FRAME_MAX, Leased, Leases, Network, SearchDomains, Services,
};
use taut_wire::{
    Ecn, EthernetHeader, IpHeader, Mac, Ndp, RouterAdvertisement, RouterOption, UdpHeader, ether_type, ndp,
    protocol, router, udp,
};

pub(super) const SERVER: Mac = Mac([2, 0, 0, 0, 0, 1]);
pub(super) const DISCOVER: u8 = 1;
pub(super) const OFFER: u8 = 2;
pub(super) const REQUEST: u8 = 3;
const DECLINE: u8 = 4;
pub(super) const ACK: u8 = 5;
pub(super) const NAK: u8 = 6;
pub(super) const RELEASE: u8 = 7;
const INFORM: u8 = 8;
const SECOND: Duration = Duration::from_secs(1);
pub(super) const NOBODY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
const EVERYBODY: Ipv4Addr = Ipv4Addr::BROADCAST;
const LINK_LOCAL: &str = "fe80::2";

pub(super) fn v4(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

pub(super) fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

pub(super) fn network(text: &str) -> Network {
    let (address, prefix) = text.split_once('/').unwrap();
    Network { address: address.parse().unwrap(), prefix: prefix.parse().unwrap() }
}

/// A client's station.
pub(super) const fn station(number: u32) -> Mac {
    let [a, b, c, d] = number.to_be_bytes();
    Mac([6, 0, a, b, c, d])
}

pub(super) fn services(count: u8) -> Services {
    let mut search = SearchDomains::default();
    search.push("home.arpa").unwrap();
    let own = network("10.0.2.2/24");
    Services {
        leases: Some(Leases { own, first: v4("10.0.2.15"), count, time_s: 3_600 }),
        router: Some(v6(LINK_LOCAL)),
        prefixes: vec![network("fd74:6175:7400::2/64")],
        name_servers: vec!["10.0.2.2".parse().unwrap(), "fd74:6175:7400::2".parse().unwrap()],
        mtu: Some(9_000),
        search,
        ..Services::default()
    }
}

/// A link layer with these services, at its time.
pub(super) struct Host {
    pub(super) link: Ethernet<u32>,
    pub(super) now: Instant,
}

/// A server's answer, taken apart.
#[derive(Debug)]
struct Answer {
    kind: u8,
    address: Ipv4Addr,
    /// To this station, at this address.
    to: (Mac, Ipv4Addr),
    message: Vec<u8>,
}

impl Answer {
    fn option(&self, wanted: u8) -> Option<&[u8]> {
        let mut rest = &self.message[240..];
        while rest[0] != 255 {
            let len = usize::from(rest[1]);
            if rest[0] == wanted {
                return Some(&rest[2..2 + len]);
            }
            rest = &rest[2 + len..];
        }
        None
    }

    fn told(&self) -> (u8, Ipv4Addr) {
        (self.kind, self.address)
    }
}

impl Host {
    pub(super) fn serving(seed: u8, count: u8) -> Self {
        let networks = ["10.0.2.2/24", "fd74:6175:7400::2/64", "fe80::2/64"].map(network).to_vec();
        let config = EthernetConfig {
            mac: SERVER,
            networks,
            services: services(count),
            mtu: 9_000,
            ..EthernetConfig::default()
        };
        Self { link: Ethernet::new(config, [seed; 16]), now: Instant::from_nanos(1_000) }
    }

    pub(super) fn frames(&mut self) -> Vec<Vec<u8>> {
        let mut buf = [0; FRAME_MAX];
        std::iter::from_fn(|| self.link.poll_frame(&mut buf).map(|len| buf[..len].to_vec())).collect()
    }

    /// Says something, and returns the server's answer.
    fn ask(&mut self, said: &Said) -> Option<Answer> {
        assert_eq!(self.link.handle_frame(self.now, &said.frame()), Arrival::Taken);
        let mut answers: Vec<Answer> = self.frames().iter().filter_map(|frame| answer(frame)).collect();
        assert!(answers.len() <= 1, "{answers:?}");
        answers.pop()
    }

    pub(super) fn told(&mut self, said: &Said) -> Option<(u8, Ipv4Addr)> {
        self.ask(said).map(|answer| answer.told())
    }

    pub(super) fn wait(&mut self, span: Duration) {
        self.now += span;
    }

    /// Lets the time pass; returns when advertisements left.
    fn advertised(&mut self, span: Duration) -> Vec<Instant> {
        let (end, mut times) = (self.now + span, Vec::new());
        for _ in 0..10_000 {
            let next = self.link.poll_timeout();
            if next > end {
                self.now = end;
                return times;
            }
            self.now = next.max(self.now);
            self.link.handle_timeout(self.now);
            times.extend(
                self.frames().iter().filter(|frame| advertisement(frame).is_some()).map(|_| self.now),
            );
        }
        panic!("it spins");
    }
}

fn answer(frame: &[u8]) -> Option<Answer> {
    let header = EthernetHeader::parse(frame).unwrap();
    if header.ether_type != ether_type::IPV4 {
        return None;
    }
    assert_eq!(header.src, SERVER);
    let ip = IpHeader::parse(&frame[14..]).unwrap();
    let IpAddr::V4(dst) = ip.dst else { panic!() };
    assert_eq!((ip.src, ip.protocol, ip.hop_limit), ("10.0.2.2".parse().unwrap(), 17, 64));
    assert_eq!(frame.len(), 34 + ip.payload_len);
    let ports = UdpHeader::parse(&frame[34..], ip.payload_len).unwrap();
    assert_eq!((ports.src_port, ports.dst_port), (67, 68));
    assert!(udp::verify(ip.src, ip.dst, &frame[34..], &[]), "its checksum");
    let message = frame[42..].to_vec();
    assert_eq!((&message[..3], &message[236..240]), (&[2, 1, 6][..], &[99, 130, 83, 99][..]));
    let octets: [u8; 4] = message[16..20].try_into().unwrap();
    let mut answer = Answer { kind: 0, address: octets.into(), to: (header.dst, dst), message };
    answer.kind = answer.option(53).unwrap()[0];
    Some(answer)
}

fn advertisement(frame: &[u8]) -> Option<Vec<RouterOption>> {
    let header = EthernetHeader::parse(frame).unwrap();
    if header.ether_type != ether_type::IPV6 {
        return None;
    }
    let ip = IpHeader::parse(&frame[14..]).unwrap();
    let message = &frame[14 + ip.header_len..];
    if ip.protocol != protocol::ICMPV6 || !router::is_advertisement(message) {
        return None;
    }
    assert_eq!((header.dst, ip.src), (Mac([0x33, 0x33, 0, 0, 0, 1]), v6(LINK_LOCAL).into()));
    Some(RouterAdvertisement::parse(&ip, message).unwrap().options().collect())
}

/// A client's message.
#[derive(Clone)]
pub(super) struct Said {
    kind: u8,
    station: Mac,
    ciaddr: Ipv4Addr,
    giaddr: Ipv4Addr,
    broadcast: bool,
    options: Vec<(u8, Vec<u8>)>,
}

pub(super) fn said(kind: u8, client: u32) -> Said {
    let (ciaddr, giaddr) = (NOBODY, NOBODY);
    Said { kind, station: station(client), ciaddr, giaddr, broadcast: false, options: Vec::new() }
}

impl Said {
    pub(super) fn with(mut self, code: u8, data: &[u8]) -> Self {
        self.options.push((code, data.to_vec()));
        self
    }

    pub(super) fn wants(self, address: &str) -> Self {
        self.with(50, &v4(address).octets())
    }

    pub(super) fn at_server(self, address: &str) -> Self {
        self.with(54, &v4(address).octets())
    }

    pub(super) fn has(mut self, address: &str) -> Self {
        self.ciaddr = v4(address);
        self
    }

    pub(super) fn frame(&self) -> Vec<u8> {
        let mut message = vec![1, 1, 6, 0, 0x12, 0x34, 0x56, 0x78, 0, 0, u8::from(self.broadcast) << 7, 0];
        message.extend(self.ciaddr.octets());
        message.extend([0; 8]);
        message.extend(self.giaddr.octets());
        message.extend(self.station.0);
        message.resize(236, 0);
        message.extend([99, 130, 83, 99, 53, 1, self.kind]);
        for (code, data) in &self.options {
            message.extend([*code, data.len() as u8]);
            message.extend(data);
        }
        message.push(255);
        datagram(
            self.station,
            (self.ciaddr, if self.ciaddr == NOBODY { EVERYBODY } else { v4("10.0.2.2") }),
            &message,
        )
    }
}

fn datagram(src_mac: Mac, (src, dst): (Ipv4Addr, Ipv4Addr), message: &[u8]) -> Vec<u8> {
    let to = if dst == EVERYBODY { Mac::BROADCAST } else { SERVER };
    let mut frame = EthernetHeader { dst: to, src: src_mac, ether_type: ether_type::IPV4 }.emit().to_vec();
    let payload_len = 8 + message.len();
    let ip = IpHeader {
        src: src.into(),
        dst: dst.into(),
        protocol: 17,
        hop_limit: 64,
        ecn: Ecn::NotEct,
        header_len: 20,
        payload_len,
    };
    frame.resize(42, 0);
    ip.emit(&mut frame[14..], 0);
    UdpHeader { src_port: 68, dst_port: 67, len: payload_len as u16 }.emit(&mut frame[34..]);
    let checksum = udp::full_checksum(ip.src, ip.dst, &frame[34..42], &[message]);
    udp::set_checksum(&mut frame[34..], checksum);
    frame.extend(message);
    frame
}

#[test]
fn vm_03_the_way_to_a_lease() {
    let mut host = Host::serving(1, 16);
    let offer = host.ask(&said(DISCOVER, 1)).unwrap();
    assert_eq!(offer.told(), (OFFER, v4("10.0.2.15")));
    assert_eq!(&offer.message[4..8], &[0x12, 0x34, 0x56, 0x78], "the number of the exchange");
    assert_eq!(&offer.message[28..34], &station(1).0);
    // RFC 2131, table 3; RFC 2132 §3.3, §3.5, §3.8, §5.1, §3.17; RFC 3397.
    for (code, data) in [
        (54, &[10, 0, 2, 2][..]),
        (51, &3_600_u32.to_be_bytes()),
        (1, &[255, 255, 255, 0]),
        (3, &[10, 0, 2, 2]),
        (6, &[10, 0, 2, 2]),
        (26, &9_000_u16.to_be_bytes()),
        (15, b"home.arpa"),
        (119, b"\x04home\x04arpa\0"),
    ] {
        assert_eq!(offer.option(code), Some(data), "option {code}");
    }
    let request = said(REQUEST, 1).wants("10.0.2.15").at_server("10.0.2.2");
    let ack = host.ask(&request).unwrap();
    assert_eq!(ack.told(), (ACK, v4("10.0.2.15")));
    assert_eq!(ack.option(51), Some(&3_600_u32.to_be_bytes()[..]));
    // Another station gets another address; the same one the same.
    assert_eq!(host.told(&said(DISCOVER, 2)), Some((OFFER, v4("10.0.2.16"))));
    assert_eq!(host.told(&said(DISCOVER, 1)), Some((OFFER, v4("10.0.2.15"))));
    assert_eq!(host.told(&request), Some((ACK, v4("10.0.2.15"))));
    // One that it would like to have, if it is free.
    assert_eq!(host.told(&said(DISCOVER, 3).wants("10.0.2.30")), Some((OFFER, v4("10.0.2.30"))));
    assert_eq!(host.told(&said(DISCOVER, 4).wants("10.0.2.15")), Some((OFFER, v4("10.0.2.17"))));
    assert_eq!(host.told(&said(DISCOVER, 5).wants("10.0.2.31")), Some((OFFER, v4("10.0.2.18"))));
}

/// RFC 2131 §4.1.
#[test]
fn vm_04_where_answers_go() {
    let mut host = Host::serving(1, 16);
    let own = (station(1), v4("10.0.2.15"));
    assert_eq!(host.ask(&said(DISCOVER, 1)).unwrap().to, own);
    let everybody = (Mac::BROADCAST, EVERYBODY);
    let deaf = Said { broadcast: true, ..said(DISCOVER, 1) };
    assert_eq!(host.ask(&deaf).unwrap().to, everybody);
    let request = said(REQUEST, 1).wants("10.0.2.15").at_server("10.0.2.2");
    assert_eq!(host.ask(&request).unwrap().to, own);
    // It has the address: it is answered there, whatever else it says.
    let renewal = Said { broadcast: true, ..said(REQUEST, 1).has("10.0.2.15") };
    let ack = host.ask(&renewal).unwrap();
    assert_eq!((ack.to, &ack.message[12..16]), (own, &[10, 0, 2, 15][..]));
    // A refusal goes to everybody.
    let nak = host.ask(&said(REQUEST, 1).wants("10.9.0.1")).unwrap();
    assert_eq!((nak.told(), nak.to), ((NAK, NOBODY), everybody));
    assert_eq!((nak.option(51), nak.option(1), nak.option(54)), (None, None, Some(&[10, 0, 2, 2][..])));
    // Behind a relay, or from no station, there is nobody here.
    assert_eq!(host.told(&Said { giaddr: v4("10.0.2.9"), ..said(DISCOVER, 1) }), None);
    assert_eq!(host.told(&Said { station: Mac::BROADCAST, ..said(DISCOVER, 1) }), None);
    assert_eq!(host.told(&Said { station: Mac::default(), ..said(DISCOVER, 1) }), None);
}

/// RFC 2131 §4.3.2.
#[test]
fn vm_05_which_requests_are_granted() {
    let mut host = Host::serving(1, 3);
    assert_eq!(host.told(&said(DISCOVER, 1)), Some((OFFER, v4("10.0.2.15"))));
    // SELECTING: another server's offer was taken, so the address is free again.
    assert_eq!(host.told(&said(REQUEST, 1).wants("10.0.2.15").at_server("10.0.2.3")), None);
    assert_eq!(host.told(&said(DISCOVER, 2).wants("10.0.2.15")), Some((OFFER, v4("10.0.2.15"))));
    // INIT-REBOOT: the address of another station, of another network, of the server, the broadcast address;
    // one that is free.
    for wrong in ["10.0.2.15", "192.168.1.7", "10.0.2.2", "10.0.2.255", "10.0.2.14", "10.0.2.18", "0.0.0.1"] {
        assert_eq!(host.told(&said(REQUEST, 1).wants(wrong)), Some((NAK, NOBODY)), "{wrong}");
    }
    assert_eq!(host.told(&said(REQUEST, 1).wants("10.0.2.17")), Some((ACK, v4("10.0.2.17"))));
    // RENEWING, REBINDING: its own; that of another.
    assert_eq!(host.told(&said(REQUEST, 1).has("10.0.2.17")), Some((ACK, v4("10.0.2.17"))));
    assert_eq!(host.told(&said(REQUEST, 3).has("10.0.2.17")), Some((NAK, NOBODY)));
    // A gateway that has begun anew knows nobody, and lets a guest keep what is free.
    let mut host = Host::serving(2, 3);
    assert_eq!(host.told(&said(REQUEST, 1).has("10.0.2.17")), Some((ACK, v4("10.0.2.17"))));
    // It wants another: its first one is free then.
    assert_eq!(host.told(&said(REQUEST, 1).wants("10.0.2.16")), Some((ACK, v4("10.0.2.16"))));
    assert_eq!(host.told(&said(DISCOVER, 2).wants("10.0.2.17")), Some((OFFER, v4("10.0.2.17"))));
    // For no address at all.
    assert_eq!(host.told(&said(REQUEST, 1)), None);
}

#[test]
fn vm_06_an_offer_is_kept_for_a_minute_and_a_lease_for_its_time() {
    let mut host = Host::serving(1, 2);
    let last = (OFFER, v4("10.0.2.16"));
    assert_eq!(host.told(&said(DISCOVER, 1)), Some((OFFER, v4("10.0.2.15"))));
    assert_eq!(host.told(&said(REQUEST, 1).wants("10.0.2.15")), Some((ACK, v4("10.0.2.15"))));
    assert_eq!(host.told(&said(DISCOVER, 2)), Some(last));
    // None is left.
    assert_eq!(host.told(&said(DISCOVER, 3)), None);
    host.wait(Duration::from_millis(59_999));
    assert_eq!(host.told(&said(DISCOVER, 3)), None);
    host.wait(Duration::from_millis(1));
    assert_eq!(host.told(&said(DISCOVER, 3)), Some(last));
    assert_eq!(host.told(&said(REQUEST, 3).wants("10.0.2.16")), Some((ACK, v4("10.0.2.16"))));
    // A Discover does not shorten a lease.
    assert_eq!(host.told(&said(DISCOVER, 1)), Some((OFFER, v4("10.0.2.15"))));
    host.wait(Duration::from_secs(3_539));
    assert_eq!(host.told(&said(DISCOVER, 2)), None);
    host.wait(SECOND);
    // The first lease is over. Who had it gets it again, as long as nobody else has it.
    assert_eq!(host.told(&said(DISCOVER, 1)), Some((OFFER, v4("10.0.2.15"))));
    host.wait(Duration::from_secs(7_200));
    assert_eq!(host.told(&said(DISCOVER, 3)), Some((OFFER, v4("10.0.2.16"))));
    assert_eq!(host.told(&said(DISCOVER, 2)), Some((OFFER, v4("10.0.2.15"))));
    host.wait(Duration::from_secs(3_600));
    // Both are free: the one whose time was over first.
    let mut both = Host::serving(1, 2);
    both.told(&said(REQUEST, 1).wants("10.0.2.16"));
    both.wait(SECOND);
    both.told(&said(REQUEST, 2).wants("10.0.2.15"));
    both.wait(Duration::from_secs(7_200));
    assert_eq!(both.told(&said(DISCOVER, 3)), Some((OFFER, v4("10.0.2.16"))));
}

#[test]
fn gw_230_leases_are_listed_while_they_last() {
    let mut host = Host::serving(1, 3);
    let listed = |host: &Host| {
        let all = host.link.leases(host.now).into_iter();
        all.map(|Leased { address, station, ends_in, .. }| (address, station, ends_in.as_millis()))
            .collect::<Vec<_>>()
    };
    // An offer is no lease.
    assert_eq!(host.told(&said(DISCOVER, 1)), Some((OFFER, v4("10.0.2.15"))));
    assert_eq!(listed(&host), []);
    host.told(&said(REQUEST, 1).wants("10.0.2.15"));
    host.wait(Duration::from_secs(600));
    host.told(&said(REQUEST, 2).wants("10.0.2.17"));
    let last = (v4("10.0.2.17"), station(2), 3_600_000);
    assert_eq!(listed(&host), [(v4("10.0.2.15"), station(1), 3_000_000), last]);
    host.told(&said(DECLINE, 2).wants("10.0.2.17").at_server("10.0.2.2"));
    assert_eq!(listed(&host), [(v4("10.0.2.15"), station(1), 3_000_000)]);
    host.wait(Duration::from_secs(3_000));
    assert_eq!(listed(&host), []);
}

/// RFC 2131 §4.3.3 to §4.3.5.
#[test]
fn vm_07_declined_released_informed() {
    let mut host = Host::serving(1, 2);
    assert_eq!(host.told(&said(REQUEST, 1).wants("10.0.2.15")), Some((ACK, v4("10.0.2.15"))));
    // What another has is not given up by a stranger.
    for stranger in [said(DECLINE, 2).wants("10.0.2.15"), said(RELEASE, 2).has("10.0.2.15")] {
        assert_eq!(host.told(&stranger.at_server("10.0.2.2")), None);
        assert_eq!(host.told(&said(REQUEST, 2).wants("10.0.2.15")), Some((NAK, NOBODY)));
    }
    // Nor by words to another server.
    assert_eq!(host.told(&said(RELEASE, 1).has("10.0.2.15").at_server("10.0.2.3")), None);
    assert_eq!(host.told(&said(REQUEST, 2).wants("10.0.2.15")), Some((NAK, NOBODY)));
    assert_eq!(host.told(&said(DECLINE, 1).wants("10.0.2.15").at_server("10.0.2.2")), None);
    // Nobody gets it now, and the station another one.
    assert_eq!(host.told(&said(REQUEST, 1).wants("10.0.2.15")), Some((NAK, NOBODY)));
    assert_eq!(host.told(&said(REQUEST, 2).wants("10.0.2.15")), Some((NAK, NOBODY)));
    assert_eq!(host.told(&said(DISCOVER, 1)), Some((OFFER, v4("10.0.2.16"))));
    assert_eq!(host.told(&said(DISCOVER, 2)), None);
    host.wait(Duration::from_secs(600));
    assert_eq!(host.told(&said(REQUEST, 2).wants("10.0.2.15")), Some((ACK, v4("10.0.2.15"))));
    // Given back: another may have it.
    assert_eq!(host.told(&said(RELEASE, 2).has("10.0.2.15").at_server("10.0.2.2")), None);
    assert_eq!(host.told(&said(REQUEST, 3).wants("10.0.2.15")), Some((ACK, v4("10.0.2.15"))));
    // One with an address of its own is told the rest.
    let ack = host.ask(&said(INFORM, 9).has("10.0.2.99")).unwrap();
    assert_eq!((ack.told(), ack.to), ((ACK, NOBODY), (station(9), v4("10.0.2.99"))));
    assert_eq!((ack.option(51), ack.option(6)), (None, Some(&[10, 0, 2, 2][..])));
    for elsewhere in ["10.9.0.1", "10.0.2.2", "10.0.2.255"] {
        assert_eq!(host.told(&said(INFORM, 9).has(elsewhere)), None, "{elsewhere}");
    }
}

#[test]
fn vm_08_a_flood_of_clients_is_bounded() {
    let mut host = Host::serving(1, 255);
    // 240 at most, whatever was asked for.
    let offered = (0..100_000).filter(|client| host.told(&said(DISCOVER, *client)).is_some()).count();
    assert_eq!(offered, 240);
    // A network's end comes first: .253 and .254, and no broadcast address.
    let networks = vec![network("10.0.2.2/24")];
    let leases = Leases { own: networks[0], first: v4("10.0.2.253"), count: 16, time_s: 3_600 };
    let small = Services { leases: Some(leases), ..Services::default() };
    let config = EthernetConfig { mac: SERVER, networks, services: small, ..EthernetConfig::default() };
    let mut host = Host { link: Ethernet::new(config, [1; 16]), now: Instant::ZERO };
    assert_eq!((0..100).filter(|client| host.told(&said(DISCOVER, *client)).is_some()).count(), 2);
    // Answers that nobody takes.
    let mut host = Host::serving(1, 64);
    for _ in 0..1_000 {
        host.link.handle_frame(host.now, &said(DISCOVER, 1).frame());
    }
    assert_eq!(host.frames().iter().filter_map(|frame| answer(frame)).count(), 16);
}

#[test]
fn vm_22_a_lease_of_an_isolated_link_has_no_router_and_no_names() {
    let boot = Boot { file: b"pxe.0".to_vec(), url: Vec::new(), options: vec![(12, b"guest".to_vec())] };
    for is_isolated in [false, true] {
        let networks = vec![network("10.0.2.2/24")];
        let services = Services { boot: boot.clone(), is_isolated, ..services(16) };
        let config = EthernetConfig { mac: SERVER, networks, services, ..EthernetConfig::default() };
        let mut host = Host { link: Ethernet::new(config, [1; 16]), now: Instant::ZERO };
        let offer = host.ask(&said(DISCOVER, 1)).unwrap();
        let own = (!is_isolated).then_some(&[10, 0, 2, 2][..]);
        assert_eq!((offer.option(3), offer.option(6)), (own, own), "router, name server");
        assert_eq!((offer.option(12), &offer.message[108..113]), (Some(&b"guest"[..]), &b"pxe.0"[..]));
        assert_eq!(offer.option(1), Some(&[255, 255, 255, 0][..]));
    }
}

/// RFC 6842; the firmware, the installer and the system of a machine have different identifiers.
#[test]
fn vm_09_an_identifier_is_returned_and_the_station_is_the_client() {
    let mut host = Host::serving(1, 16);
    for identifier in [&[255, 1, 2, 3][..], &[7; 255], &[0, 9]] {
        let offer = host.ask(&said(DISCOVER, 1).with(61, identifier)).unwrap();
        assert_eq!((offer.told(), offer.option(61)), ((OFFER, v4("10.0.2.15")), Some(identifier)));
    }
    assert_eq!(host.ask(&said(DISCOVER, 1).with(61, &[1])).unwrap().option(61), None, "RFC 2132: two bytes");
}

fn solicitation(from: u32) -> Vec<u8> {
    let (src, mac) = (v6("fe80::9"), station(from));
    let dst = router::ALL_ROUTERS;
    let header = EthernetHeader { dst: Mac::of_multicast(dst), src: mac, ether_type: ether_type::IPV6 };
    let mut frame = header.emit().to_vec();
    frame.resize(14 + 40 + 16, 0);
    let ip = IpHeader {
        src: src.into(),
        dst: dst.into(),
        protocol: protocol::ICMPV6,
        hop_limit: 255,
        ecn: Ecn::NotEct,
        header_len: 40,
        payload_len: 16,
    };
    ip.emit(&mut frame[14..], 0);
    router::emit_solicitation(&mut frame[54..], src, Some(mac));
    frame
}

/// RFC 4861 §6.2.1, §6.2.4, §6.2.6, §10.
#[test]
fn vm_12_when_a_router_advertises() {
    for seed in 0..20 {
        let mut host = Host::serving(seed, 16);
        let start = host.now;
        let times = host.advertised(Duration::from_secs(36_000));
        assert_eq!(times[0], start, "at once");
        let gaps: Vec<Duration> = times.windows(2).map(|pair| pair[1].since(pair[0])).collect();
        assert!(gaps[..2].iter().all(|gap| *gap <= Duration::from_secs(16)), "{gaps:?}");
        let regular = |gap: &Duration| (Duration::from_secs(200)..=Duration::from_secs(600)).contains(gap);
        assert!(gaps[2..].iter().all(regular) && gaps.len() > 60, "{gaps:?}");
        // An answer within half a second, if the last one is 3 s ago; all answers by one.
        host.wait(Duration::from_secs(4));
        let asked = host.now;
        assert_eq!(host.link.handle_frame(asked, &solicitation(1)), Arrival::Taken);
        let answered = host.advertised(SECOND);
        assert!(answered.len() == 1 && answered[0].since(asked) < Duration::from_millis(500), "{answered:?}");
        for client in 0..1_000 {
            host.link.handle_frame(host.now, &solicitation(client));
        }
        let again = host.advertised(Duration::from_secs(10));
        let gap = again[0].since(answered[0]);
        assert!(
            again.len() == 1 && gap >= Duration::from_secs(3) && gap < Duration::from_millis(3_500),
            "{gap:?}"
        );
    }
}

/// Everything that a host of ours takes from the link, at both ends of one wire.
#[test]
fn vm_13_a_host_configures_itself() {
    let mut server = Host::serving(1, 16);
    let config =
        EthernetConfig { mac: station(1), slaac: true, dhcp: true, mtu: 9_000, ..EthernetConfig::default() };
    let mut client = Host { link: Ethernet::new(config, [9; 16]), now: server.now };
    let (end, mut changes) = (server.now + Duration::from_secs(30), Vec::new());
    let mut told = Vec::new();
    loop {
        let now = server.link.poll_timeout().min(client.link.poll_timeout()).max(server.now);
        if now > end {
            break;
        }
        (server.now, client.now) = (now, now);
        server.link.handle_timeout(now);
        client.link.handle_timeout(now);
        for _ in 0..8 {
            for frame in client.frames() {
                server.link.handle_frame(now, &frame);
            }
            for frame in server.frames() {
                client.link.handle_frame(now, &frame);
                told.push(frame);
            }
        }
        changes.extend(std::iter::from_fn(|| client.link.poll_change()));
    }
    let has = |wanted: fn(&NetworkChange) -> bool| changes.iter().any(wanted);
    let added = |address: &str| {
        let network = network(address);
        changes.contains(&NetworkChange::AddAddress(network))
    };
    assert!(added("10.0.2.15/24"), "{changes:?}");
    // The station 06:00:00:00:00:01 with its bit of scope turned (RFC 4291 appendix A).
    assert!(added("fd74:6175:7400:0:400:ff:fe00:1/64"), "{changes:?}");
    let gateways: Vec<IpAddr> = changes
        .iter()
        .filter_map(|change| match change {
            NetworkChange::AddRoute(route) => route.via,
            _ => None,
        })
        .collect();
    for gateway in ["10.0.2.2", LINK_LOCAL] {
        assert!(gateways.contains(&gateway.parse().unwrap()), "{gateways:?}");
    }
    assert!(has(
        |change| matches!(change, NetworkChange::AddNameServer(ip) if *ip == IpAddr::from([10, 0, 2, 2]))
    ));
    assert_eq!(server.link.stats().conflicts, 0);
    // The router says that it is one when it is asked for its station (RFC 4861 §7.2.5).
    let (src, dst) = (v6("fe80::400:ff:fe00:1"), v6(LINK_LOCAL));
    let header = EthernetHeader { dst: SERVER, src: station(1), ether_type: ether_type::IPV6 };
    let mut frame = header.emit().to_vec();
    frame.resize(14 + 40 + ndp::LEN, 0);
    let ip = IpHeader {
        src: src.into(),
        dst: dst.into(),
        protocol: protocol::ICMPV6,
        hop_limit: 255,
        ecn: Ecn::NotEct,
        header_len: 40,
        payload_len: ndp::LEN,
    };
    ip.emit(&mut frame[14..], 0);
    Ndp::Solicit { target: dst, source_mac: Some(station(1)) }.emit(&mut frame[54..], src, dst);
    assert_eq!(server.link.handle_frame(server.now, &frame), Arrival::Taken);
    let answers = server.frames();
    let message = answers.last().map(|frame| {
        let ip = IpHeader::parse(&frame[14..]).unwrap();
        Ndp::parse(&ip, &frame[54..]).unwrap()
    });
    assert!(matches!(message, Some(Ndp::Advertise { router: true, .. })), "{message:?}");
    // What it told has nothing malformed, and the advertisement what the link has.
    let options = told.iter().find_map(|frame| advertisement(frame)).unwrap();
    assert!(
        options.contains(&RouterOption::Mtu(9_000)) && options.contains(&RouterOption::SourceMac(SERVER))
    );
}

/// A generator of numbers: xorshift, so that each run is the same.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Frames of each kind that the link takes, damaged at random, cut and lengthened: what it remembers stays
/// within its bounds, and a client beside that still gets its lease.
#[test]
fn vm_14_a_hostile_guest_takes_no_memory_and_no_place_but_its_own() {
    let mut host = Host::serving(3, 16);
    let lease = said(REQUEST, 1).wants("10.0.2.15");
    assert_eq!(host.told(&lease), Some((ACK, v4("10.0.2.15"))));
    let arp = taut_wire::Arp {
        is_request: true,
        sender_mac: station(7),
        sender: v4("10.0.2.77"),
        target_mac: Mac::default(),
        target: v4("10.0.2.2"),
    };
    let arp_header = EthernetHeader { dst: Mac::BROADCAST, src: station(7), ether_type: ether_type::ARP };
    let arp = [&arp_header.emit()[..], &arp.emit()].concat();
    let good = [
        said(DISCOVER, 7).with(61, &[255, 1, 2, 3]).frame(),
        said(REQUEST, 7).wants("10.0.2.16").frame(),
        said(DECLINE, 7).wants("10.0.2.16").at_server("10.0.2.2").frame(),
        solicitation(7),
        arp,
    ];
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    for round in 0..200_000_u64 {
        let mut frame = good[(noise.next() % 5) as usize].clone();
        for _ in 0..noise.next() % 4 {
            let at = (noise.next() % frame.len() as u64) as usize;
            frame[at] = noise.next() as u8;
        }
        match noise.next() % 8 {
            0 => frame.truncate((noise.next() % (frame.len() as u64 + 1)) as usize),
            1 => frame.resize(frame.len() + (noise.next() % 1_000) as usize, noise.next() as u8),
            2 => frame = (0..noise.next() % 100).map(|_| noise.next() as u8).collect(),
            // Another station each time.
            3 if frame.len() > 80 => frame[70..76].copy_from_slice(&station(round as u32).0),
            _ => {}
        }
        host.link.handle_frame(host.now, &frame);
        if round % 1_024 == 0 {
            // Bounded: 64 questions and answers of neighbours, 16 of clients, an advertisement.
            assert!(host.frames().len() <= 64 + 16 + 1);
            host.wait(Duration::from_millis(160));
            host.link.handle_timeout(host.now);
        }
        assert!(host.link.neighbours() <= 512 && host.link.waiting() == 0);
    }
    _ = host.frames();
    assert_eq!(host.told(&lease), Some((ACK, v4("10.0.2.15"))), "the other client's lease");
}
