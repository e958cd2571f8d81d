//! Several machines at one link: the statements GW-259 to 262 of docs/spec/gateway.md. Frames are written by
//! hand, by the places of RFC 791, RFC 8200, RFC 826 and RFC 4861.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use taut_core::Duration;
use taut_ethernet::{Ethernet, EthernetConfig, FixedLease, PortId, Refused, Services, Way};
use taut_wire::{Ecn, EthernetHeader, IpHeader, Mac, ether_type};

use super::services::{
    ACK, DISCOVER, Host, NAK, NOBODY, OFFER, RELEASE, REQUEST, SERVER, Said, network, said, services,
    station, v4, v6,
};

const A: PortId = PortId(1);
const B: PortId = PortId(2);
const C: PortId = PortId(3);
const GATEWAY: &str = "10.0.2.2";
const OTHER: Way = Way::Refused(Refused::Other);

/// Two machines, with their stations and the addresses 10.0.2.15 and .16.
fn two() -> Host {
    let mut host = Host::serving(1, 240);
    for (port, number, address) in [(A, 1, "10.0.2.15"), (B, 2, "10.0.2.16")] {
        assert!(host.link.plug(port));
        assert_eq!(host.at(port, &arp(station(number), address)), Way::Everybody);
    }
    host
}

impl Host {
    fn at(&mut self, port: PortId, frame: &[u8]) -> Way {
        self.link.switch_frame(self.now, port, frame)
    }

    /// A client's message at its port, and the server's answer.
    fn told_at(&mut self, port: PortId, said: &Said) -> Option<(u8, Ipv4Addr)> {
        assert_eq!(self.at(port, &said.frame()), Way::Host);
        self.told(said)
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A broadcast that looks for the gateway's station.
fn arp(from: Mac, sender: &str) -> Vec<u8> {
    let packet = taut_wire::Arp {
        is_request: true,
        sender_mac: from,
        sender: v4(sender),
        target_mac: Mac::default(),
        target: v4(GATEWAY),
    };
    let header = EthernetHeader { dst: Mac::BROADCAST, src: from, ether_type: ether_type::ARP };
    [&header.emit()[..], &packet.emit()].concat()
}

fn packet((from, to): (Mac, Mac), (src, dst): (&str, &str), protocol: u8, payload: &[u8]) -> Vec<u8> {
    let (src, dst) = (ip(src), ip(dst));
    let (header_len, ether_type) =
        if src.is_ipv4() { (20, ether_type::IPV4) } else { (40, ether_type::IPV6) };
    let payload_len = payload.len();
    let mut frame = EthernetHeader { dst: to, src: from, ether_type }.emit().to_vec();
    frame.resize(14 + header_len, 0);
    let ip = IpHeader { src, dst, protocol, hop_limit: 64, ecn: Ecn::NotEct, header_len, payload_len };
    ip.emit(&mut frame[14..], 0);
    frame.extend(payload);
    frame
}

/// Ports, a length, no checksum.
fn udp(from: u16, to: u16) -> Vec<u8> {
    [from.to_be_bytes(), to.to_be_bytes(), [0, 8], [0, 0]].concat()
}

/// RFC 4861 §4.3, §4.4: type, code, checksum, flags, target.
fn neighbour(kind: u8, target: &str) -> Vec<u8> {
    [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &v6(target).octets()].concat()
}

fn all_nodes() -> Mac {
    Mac::of_multicast(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1))
}

#[test]
fn gw_259_a_frame_goes_where_its_station_is() {
    let mut host = two();
    let (a, b) = (station(1), station(2));
    let to = |to: Mac| packet((a, to), ("10.0.2.15", "10.0.2.16"), 17, &udp(1_000, 2_000));
    assert_eq!(host.at(A, &to(b)), Way::Port(B));
    assert_eq!(host.at(A, &to(SERVER)), Way::Host);
    assert_eq!(host.at(A, &to(Mac::BROADCAST)), Way::Everybody);
    // No machine has it; it is at the same port; the port is none.
    assert_eq!([host.at(A, &to(station(9))), host.at(A, &to(a)), host.at(C, &to(b))], [OTHER; 3]);
    assert_eq!((host.link.port_of(a), host.link.owner(ip("10.0.2.16"))), (Some(A), Some(B)));
    // IPv6, and a check for an address before its use (RFC 4862 §5.4.2).
    let ping = packet((a, b), ("fe80::a", "fe80::b"), 58, &[128, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(host.at(A, &ping), Way::Port(B));
    let check = packet((a, all_nodes()), ("::", "ff02::1:ff00:a"), 58, &neighbour(135, "fd74:6175:7400::a"));
    assert_eq!(host.at(A, &check), Way::Everybody);
    // Other protocols are the gateway's to ignore.
    let header = EthernetHeader { dst: Mac::BROADCAST, src: a, ether_type: 0x88cc };
    assert_eq!(host.at(A, &header.emit()), Way::Host);
    // A machine that is gone has nothing.
    host.link.unplug(host.now, B);
    assert_eq!(
        (host.at(A, &to(b)), host.link.port_of(b), host.link.owner(ip("10.0.2.16"))),
        (OTHER, None, None)
    );
}

#[test]
fn gw_260_a_station_and_an_address_are_of_one_port() {
    let mut host = two();
    let (a, b) = (station(1), station(2));
    let station_of = |station| Way::Refused(Refused::Station(station));
    let address_of = |text: &str| Way::Refused(Refused::Address(ip(text)));
    // The other's station, the gateway's, a group's, none.
    for other in [b, SERVER, Mac::BROADCAST, Mac::default()] {
        assert_eq!(host.at(A, &arp(other, "10.0.2.17")), station_of(other), "{other}");
    }
    for other in ["10.0.2.16", GATEWAY] {
        assert_eq!(host.at(A, &arp(a, other)), address_of(other), "{other}");
        for to in [SERVER, b] {
            let spoofed = packet((a, to), (other, "10.0.2.16"), 17, &udp(1, 2));
            assert_eq!(host.at(A, &spoofed), address_of(other), "{other}");
        }
    }
    // In ARP, its own station in front and another's within.
    let mut within = arp(a, "10.0.2.15");
    within[22..28].copy_from_slice(&b.0);
    assert_eq!(host.at(A, &within), OTHER);
    // Of IPv6: sources, and the target of an advertisement.
    let from = |src: &str, payload: &[u8]| packet((b, all_nodes()), (src, "ff02::1"), 58, payload);
    assert_eq!(host.at(B, &from("fe80::b", &neighbour(136, "fd74:6175:7400::b"))), Way::Everybody);
    let from = |src: &str, payload: &[u8]| packet((a, all_nodes()), (src, "ff02::1"), 58, payload);
    for other in ["fe80::b", "fd74:6175:7400::b", "fe80::2", "fd74:6175:7400::2"] {
        assert_eq!(host.at(A, &from(other, &neighbour(135, "fe80::9"))), address_of(other), "{other}");
        assert_eq!(host.at(A, &from("fe80::a", &neighbour(136, other))), address_of(other), "{other}");
    }
    // A port remembers 15 stations and 32 addresses, and forgets the oldest for others.
    for number in 100..114 {
        assert_eq!(host.at(A, &arp(station(number), "10.0.2.15")), Way::Everybody);
    }
    assert_eq!(host.at(A, &arp(a, "10.0.2.15")), Way::Everybody, "used again");
    assert_eq!(host.at(A, &arp(station(114), "10.0.2.15")), Way::Everybody);
    let known = (100..115).filter(|number| host.link.port_of(station(*number)) == Some(A)).count();
    assert_eq!((known, host.link.port_of(a)), (14, Some(A)));
    for last in 100..200 {
        host.at(A, &arp(a, &format!("10.0.2.{last}")));
    }
    let known = (1..255).filter(|last| host.link.owner(ip(&format!("10.0.2.{last}"))) == Some(A)).count();
    assert_eq!((known, host.link.owner(ip("10.0.2.16"))), (32, Some(B)), "the other's stays");
    // 16 ports.
    assert_eq!((3..100).filter(|port| host.link.plug(PortId(*port))).count(), 14);
}

#[test]
fn gw_261_what_configures_a_host_is_for_the_gateway_alone() {
    let mut host = two();
    let (a, b) = (station(1), station(2));
    let v4_to = |to, payload: &[u8]| packet((a, to), ("10.0.2.15", "10.0.2.16"), 17, payload);
    // A server of DHCP, and a client.
    for ports in [(67, 68), (68, 67)] {
        let message = [&udp(ports.0, ports.1)[..], &[0; 28], &a.0].concat();
        assert_eq!(host.at(A, &v4_to(b, &message)), OTHER, "{ports:?}");
        assert_eq!(host.at(A, &v4_to(Mac::BROADCAST, &message)), Way::Host, "{ports:?}");
    }
    // In the name of another station.
    assert_eq!(host.at(A, &v4_to(SERVER, &[&udp(68, 67)[..], &[0; 28], &b.0].concat())), OTHER);
    let v6_to = |to, protocol, payload: &[u8]| packet((a, to), ("fe80::a", "ff02::1"), protocol, payload);
    // RFC 4861 §4.1, §4.2, §4.5: solicitation and advertisement of a router, redirect.
    for kind in [133, 134, 137] {
        assert_eq!(host.at(A, &v6_to(b, 58, &neighbour(kind, "fe80::a"))), OTHER, "{kind}");
        assert_eq!(host.at(A, &v6_to(all_nodes(), 58, &neighbour(kind, "fe80::a"))), Way::Host, "{kind}");
    }
    for (from, to) in [(546, 547), (547, 546)] {
        assert_eq!(host.at(A, &v6_to(b, 17, &udp(from, to))), OTHER);
    }
    // Headers that hide a message: hop by hop, routing, for the destination.
    for next in [0, 43, 60] {
        let hidden = [&[58, 0, 0, 0, 0, 0, 0, 0][..], &neighbour(134, "fe80::a")].concat();
        assert_eq!(host.at(A, &v6_to(b, next, &hidden)), OTHER, "{next}");
    }
    // ICMP's redirect (RFC 792), and a ping, which passes.
    let icmp = |kind| packet((a, b), ("10.0.2.15", "10.0.2.16"), 1, &[kind, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!([host.at(A, &icmp(5)), host.at(A, &icmp(8))], [OTHER, Way::Port(B)]);
    // A source that is not on the link: no machine receives it. For the gateway it is a flow to refuse.
    for to in [b, SERVER] {
        let foreign = packet((a, to), ("192.0.2.1", "10.0.2.16"), 17, &udp(1, 2));
        assert_eq!(host.at(A, &foreign), if to == SERVER { Way::Host } else { OTHER });
    }
    assert_eq!(host.link.owner(ip("192.0.2.1")), None);
    // Cut off anywhere: no panic, and nothing passes that was not to.
    let whole = v4_to(b, &[&udp(67, 68)[..], &[0; 28], &a.0].concat());
    for len in 0..whole.len() {
        assert_ne!(host.at(A, &whole[..len]), Way::Port(B), "{len}");
    }
}

#[test]
fn gw_262_leases_of_several_machines() {
    let mut host = two();
    let name = |text: &str| text.as_bytes().to_vec();
    let names = |host: &Host| -> Vec<(Ipv4Addr, Option<String>)> {
        host.link.leases(host.now).into_iter().map(|lease| (lease.address, lease.name)).collect()
    };
    // An address that another machine uses without a lease is not offered, nor given.
    assert_eq!(host.told_at(B, &said(DISCOVER, 2)), Some((OFFER, v4("10.0.2.16"))));
    assert_eq!(host.told_at(A, &said(DISCOVER, 1)), Some((OFFER, v4("10.0.2.15"))));
    assert_eq!(host.told_at(A, &said(REQUEST, 1).wants("10.0.2.16")), Some((NAK, NOBODY)));
    let request = said(REQUEST, 1).wants("10.0.2.15").with(12, &name("Web.example.com"));
    assert_eq!(host.told_at(A, &request), Some((ACK, v4("10.0.2.15"))));
    assert_eq!(host.told_at(B, &said(REQUEST, 2).wants("10.0.2.16")), Some((ACK, v4("10.0.2.16"))));
    assert_eq!(names(&host), [(v4("10.0.2.15"), Some("web".to_owned())), (v4("10.0.2.16"), None)]);
    // A name is of the first one, while it is there; one that is none is not used.
    for wrong in ["web", "WEB", "", ".", "-a", "a-", "a b", "1", "\u{e4}", &"a".repeat(64)] {
        let again = said(REQUEST, 2).wants("10.0.2.16").with(12, &name(wrong));
        assert_eq!(host.told_at(B, &again), Some((ACK, v4("10.0.2.16"))));
        assert_eq!(names(&host)[1].1, None, "{wrong}");
    }
    // A leased address is its client's, also if another used it before.
    assert!(host.link.plug(C));
    assert_eq!(host.at(C, &arp(station(3), "10.0.2.17")), Way::Everybody);
    assert_eq!(host.told_at(B, &said(RELEASE, 2).has("10.0.2.16").at_server(GATEWAY)), None);
    assert_eq!(host.told_at(A, &said(REQUEST, 1).wants("10.0.2.18")), Some((ACK, v4("10.0.2.18"))));
    let refused = Way::Refused(Refused::Address(ip("10.0.2.18")));
    assert_eq!(host.at(C, &arp(station(3), "10.0.2.18")), refused);
    assert_eq!(host.at(A, &arp(station(1), "10.0.2.18")), Way::Everybody);
    // The machine goes: its name and address are free, and remembered for it.
    host.link.unplug(host.now, A);
    assert_eq!(names(&host), []);
    let web = said(REQUEST, 2).wants("10.0.2.16").with(12, &name("web"));
    assert_eq!(host.told_at(B, &web), Some((ACK, v4("10.0.2.16"))));
    assert_eq!(names(&host), [(v4("10.0.2.16"), Some("web".to_owned()))]);
    assert!(host.link.plug(A));
    assert_eq!(host.told_at(A, &said(DISCOVER, 1)), Some((OFFER, v4("10.0.2.18"))));
    // Stations without end at one port, and at one after the other: another machine still gets a lease.
    for port in 10..40 {
        host.link.unplug(host.now, A);
        host.link.unplug(host.now, C);
        assert!(host.link.plug(A));
        for number in 0..300 {
            host.told_at(A, &said(REQUEST, port * 1_000 + number).wants(&format!("10.0.2.{}", number % 256)));
        }
        assert!(host.link.leases(host.now).len() <= 16);
        assert!(host.link.plug(C));
        assert!(host.told_at(C, &said(DISCOVER, 3)).is_some());
    }
    assert_eq!(host.told_at(B, &web), Some((ACK, v4("10.0.2.16"))));
}

#[test]
fn gw_262_leases_that_are_given_by_station() {
    let fixed = |number, address: &str, name: Option<&str>| FixedLease {
        station: station(number),
        address: v4(address),
        name: name.map(str::to_owned),
    };
    // One among the others, one beyond.
    let fixed = vec![fixed(1, "10.0.2.15", Some("db")), fixed(2, "10.0.2.5", None)];
    let networks = vec![network("10.0.2.2/24")];
    let services = Services { fixed, ..services(3) };
    let config = EthernetConfig { mac: SERVER, networks, services, ..EthernetConfig::default() };
    let mut host = Host { link: Ethernet::new(config, [1; 16]), now: taut_core::Instant::from_nanos(1) };
    assert_eq!(host.told(&said(DISCOVER, 9)), Some((OFFER, v4("10.0.2.16"))));
    assert_eq!(host.told(&said(REQUEST, 9).wants("10.0.2.15")), Some((NAK, NOBODY)));
    assert_eq!(host.told(&said(REQUEST, 9).wants("10.0.2.5")), Some((NAK, NOBODY)));
    for (number, address, wanted) in [(1, "10.0.2.15", "10.0.2.17"), (2, "10.0.2.5", "10.0.2.16")] {
        assert_eq!(host.told(&said(DISCOVER, number).wants(wanted)), Some((OFFER, v4(address))));
        assert_eq!(host.told(&said(REQUEST, number).wants(wanted)), Some((NAK, NOBODY)));
        let request = said(REQUEST, number).wants(address).with(12, b"other");
        assert_eq!(host.told(&request), Some((ACK, v4(address))));
    }
    // The name that was given, whatever it says, and of no other; also when its lease is over.
    assert_eq!(host.told(&said(REQUEST, 9).wants("10.0.2.16").with(12, b"db")), Some((ACK, v4("10.0.2.16"))));
    let names = |host: &Host| -> Vec<Option<String>> {
        host.link.leases(host.now).into_iter().map(|lease| lease.name).collect()
    };
    assert_eq!(names(&host), [Some("db".to_owned()), None, Some("other".to_owned())]);
    host.wait(Duration::from_secs(3_600));
    assert_eq!(host.told(&said(REQUEST, 9).wants("10.0.2.16").with(12, b"db")), Some((ACK, v4("10.0.2.16"))));
    assert_eq!(names(&host), [None]);
}
