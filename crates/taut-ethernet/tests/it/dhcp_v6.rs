//! The server of DHCP for IPv6: the statements GW-270 to 272 and 275 of docs/spec/gateway.md. Messages are
//! written by hand, by the places of RFC 8415 §8, §21.

use std::net::{IpAddr, Ipv6Addr};

use taut_core::Instant;
use taut_ethernet::{Arrival, Boot, Ethernet, EthernetConfig, PortId, Refused, Services, Way};
use taut_wire::{Ecn, EthernetHeader, IpHeader, Mac, UdpHeader, ether_type, udp};

use super::services::{
    ACK, DISCOVER, Host, OFFER, REQUEST as REQUEST_V4, SERVER, network, said, services, station, v4, v6,
};

const SOLICIT: u8 = 1;
const ADVERTISE: u8 = 2;
const REQUEST: u8 = 3;
const CONFIRM: u8 = 4;
const RENEW: u8 = 5;
const REBIND: u8 = 6;
const REPLY: u8 = 7;
const RELEASE: u8 = 8;
const DECLINE: u8 = 9;
const INFORMATION_REQUEST: u8 = 11;
/// RFC 8415 §7.2.
const SERVERS: &str = "ff02::1:2";
/// DUID-LL (§11.4) of the server's station.
const OWN: [u8; 10] = [0, 3, 0, 1, 2, 0, 0, 0, 0, 1];
/// For the stations 06:00:00:00:00:01 and :02: the prefix, 0dc6, the station.
const FIRST: &str = "fd74:6175:7400:0:dc6:600:0:1";
const SECOND: &str = "fd74:6175:7400:0:dc6:600:0:2";

fn host(managed: bool) -> Host {
    let networks = ["10.0.2.2/24", "fd74:6175:7400::2/64", "fe80::2/64"].map(network).to_vec();
    let boot = Boot { url: b"tftp://[fd74:6175:7400::2]/pxe".to_vec(), ..Boot::default() };
    let services = Services { managed, boot, ..services(16) };
    let config = EthernetConfig { mac: SERVER, networks, services, mtu: 9_000, ..EthernetConfig::default() };
    Host { link: Ethernet::new(config, [1; 16]), now: Instant::from_nanos(1_000) }
}

fn option(code: u16, data: &[u8]) -> Vec<u8> {
    [&code.to_be_bytes()[..], &(data.len() as u16).to_be_bytes(), data].concat()
}

fn client() -> Vec<u8> {
    option(1, &[0, 4, 7, 7])
}

fn server() -> Vec<u8> {
    option(2, &OWN)
}

/// IA_NA with this number, T1 and T2 of 0, and addresses without times (§21.4, §21.6).
fn association(number: u8, addresses: &[&str]) -> Vec<u8> {
    let inner =
        addresses.iter().flat_map(|address| option(5, &[&v6(address).octets()[..], &[0; 8]].concat()));
    option(3, &[&[0, 0, 0, number][..], &[0; 8], &inner.collect::<Vec<u8>>()].concat())
}

/// Requests name servers, domains and the file to boot from.
fn wanted() -> Vec<u8> {
    option(6, &[0, 23, 0, 24, 0, 59])
}

fn message(kind: u8, options: &[Vec<u8>]) -> Vec<u8> {
    [&[kind, 1, 2, 3][..], &options.concat()].concat()
}

fn frame_between(from: Mac, (src, dst): (&str, &str), ports: (u16, u16), message: &[u8]) -> Vec<u8> {
    let (src, dst): (Ipv6Addr, Ipv6Addr) = (v6(src), v6(dst));
    let to = if dst.is_multicast() { Mac::of_multicast(dst) } else { SERVER };
    let mut frame = EthernetHeader { dst: to, src: from, ether_type: ether_type::IPV6 }.emit().to_vec();
    let payload_len = 8 + message.len();
    let ip = IpHeader {
        src: src.into(),
        dst: dst.into(),
        protocol: 17,
        hop_limit: 1,
        ecn: Ecn::NotEct,
        header_len: 40,
        payload_len,
    };
    frame.resize(62, 0);
    ip.emit(&mut frame[14..], 0);
    UdpHeader { src_port: ports.0, dst_port: ports.1, len: payload_len as u16 }.emit(&mut frame[54..]);
    let checksum = udp::full_checksum(ip.src, ip.dst, &frame[54..62], &[message]);
    udp::set_checksum(&mut frame[54..], checksum);
    frame.extend(message);
    frame
}

fn frame(number: u32, message: &[u8]) -> Vec<u8> {
    frame_between(station(number), ("fe80::9", SERVERS), (546, 547), message)
}

/// A client says something; returns the server's answer.
fn ask(host: &mut Host, number: u32, message: &[u8]) -> Option<Vec<u8>> {
    assert_eq!(host.link.handle_frame(host.now, &frame(number, message)), Arrival::Taken);
    let mut answers = host.frames();
    assert!(answers.len() <= 1, "{answers:?}");
    let answer = answers.pop()?;
    let header = EthernetHeader::parse(&answer).unwrap();
    assert_eq!((header.src, header.dst), (SERVER, station(number)));
    let ip = IpHeader::parse(&answer[14..]).unwrap();
    assert_eq!((ip.src, ip.dst), (IpAddr::from(v6("fe80::2")), IpAddr::from(v6("fe80::9"))));
    let ports = UdpHeader::parse(&answer[54..], ip.payload_len).unwrap();
    assert_eq!((ports.src_port, ports.dst_port), (547, 546));
    assert!(udp::verify(ip.src, ip.dst, &answer[54..], &[]), "its checksum");
    Some(answer[62..].to_vec())
}

/// An answer with what is first in each: both identifiers.
fn answer(kind: u8, options: &[Vec<u8>]) -> Option<Vec<u8>> {
    Some(message(kind, &[&[client(), server()][..], options].concat()))
}

/// IA_NA with T1 7,200 s, T2 11,520 s, and addresses with their times.
fn granted(number: u8, addresses: &[(&str, u32, u32)]) -> Vec<u8> {
    let inner = addresses.iter().flat_map(|(address, preferred, valid)| {
        option(5, &[&v6(address).octets()[..], &preferred.to_be_bytes(), &valid.to_be_bytes()].concat())
    });
    let times = [7_200_u32.to_be_bytes(), 11_520_u32.to_be_bytes()].concat();
    option(3, &[&[0, 0, 0, number][..], &times, &inner.collect::<Vec<u8>>()].concat())
}

fn status(code: u16) -> Vec<u8> {
    option(13, &code.to_be_bytes())
}

#[test]
fn gw_270_a_client_of_ipv6_gets_the_address_of_its_station() {
    let mut host = host(true);
    let own = (FIRST, 14_400, 86_400);
    let said = [client(), association(9, &[])];
    let advertised = answer(ADVERTISE, &[granted(9, &[own])]);
    assert_eq!(ask(&mut host, 1, &message(SOLICIT, &said)), advertised);
    let said = [client(), server(), association(9, &[FIRST]), wanted()];
    // RFC 3646 §3, §4; RFC 5970 §3.1.
    let more = [
        option(23, &v6("fd74:6175:7400::2").octets()),
        option(24, b"\x04home\x04arpa\0"),
        option(59, b"tftp://[fd74:6175:7400::2]/pxe"),
    ];
    let all = [&more[..], &[granted(9, &[own])]].concat();
    for kind in [REQUEST, RENEW] {
        assert_eq!(ask(&mut host, 1, &message(kind, &said)), answer(REPLY, &all), "{kind}");
    }
    let rebind = [client(), association(9, &[FIRST])];
    assert_eq!(ask(&mut host, 1, &message(REBIND, &rebind)), answer(REPLY, &[granted(9, &[own])]));
    // Another station has another one, and the address that it names gets no time. A second association gets
    // none.
    let said = [client(), server(), association(1, &[FIRST]), association(2, &[])];
    let second = granted(1, &[(SECOND, 14_400, 86_400), (FIRST, 0, 0)]);
    let none = option(3, &[&[0, 0, 0, 2][..], &[0; 8], &status(2)].concat());
    assert_eq!(ask(&mut host, 2, &message(REQUEST, &said)), answer(REPLY, &[second, none]));
    // Without an association; with one for prefixes alone.
    for said in [vec![client()], vec![client(), option(25, &[0; 12])]] {
        assert_eq!(ask(&mut host, 1, &message(SOLICIT, &said)), answer(ADVERTISE, &[status(2)]));
    }
    // Whether it may still be used here.
    for (address, code) in [(FIRST, 0), ("fd74:6175:7400::99", 0), ("fd74:6175:7401::99", 4)] {
        let said = [client(), association(9, &[address])];
        assert_eq!(ask(&mut host, 1, &message(CONFIRM, &said)), answer(REPLY, &[status(code)]), "{address}");
    }
    for kind in [RELEASE, DECLINE] {
        let said = [client(), server(), association(9, &[FIRST])];
        assert_eq!(ask(&mut host, 1, &message(kind, &said)), answer(REPLY, &[status(0)]), "{kind}");
    }
    // All but an address, also where there are none.
    let information = message(INFORMATION_REQUEST, &[client(), wanted()]);
    assert_eq!(ask(&mut host, 1, &information), answer(REPLY, &more));
    let mut without = self::host(false);
    assert_eq!(ask(&mut without, 1, &information), answer(REPLY, &more));
    assert_eq!(ask(&mut without, 1, &message(SOLICIT, &[client(), association(9, &[])])), None);
    // RFC 4861 §4.2: the flags M and O.
    for (mut host, flags) in [(host, 0xc0), (without, 0)] {
        host.link.handle_timeout(host.now);
        assert_eq!(host.frames()[0][14 + 40 + 5], flags);
    }
}

/// RFC 8415 §16.
#[test]
fn gw_271_messages_that_are_for_others_or_make_no_sense() {
    let mut host = host(true);
    let (ia, other) = (association(9, &[]), option(2, &[0, 3, 0, 1, 9, 9]));
    let silent = [
        (SOLICIT, vec![ia.clone()]),
        (SOLICIT, vec![client(), server(), ia.clone()]),
        (SOLICIT, vec![option(1, &[7; 131]), ia.clone()]),
        (SOLICIT, vec![option(1, &[]), ia.clone()]),
        (REQUEST, vec![client(), ia.clone()]),
        (REQUEST, vec![client(), other.clone(), ia.clone()]),
        (RENEW, vec![client(), other.clone(), ia.clone()]),
        (REBIND, vec![client(), server(), ia.clone()]),
        (CONFIRM, vec![client(), ia.clone()]),
        (RELEASE, vec![client(), other.clone(), ia.clone()]),
        (INFORMATION_REQUEST, vec![client(), ia.clone()]),
        (INFORMATION_REQUEST, vec![client(), other, wanted()]),
        // A server's messages, a relay's, none.
        (ADVERTISE, vec![client(), server(), ia.clone()]),
        (REPLY, vec![client(), server(), ia.clone()]),
        (12, vec![client(), ia.clone()]),
        (0, vec![client(), ia.clone()]),
    ];
    for (kind, options) in silent {
        assert_eq!(ask(&mut host, 1, &message(kind, &options)), None, "{kind} {options:?}");
    }
    // From an address that is not of the link, which has no answer; to one server; other ports.
    let good = message(SOLICIT, &[client(), ia]);
    for (ends, ports, arrival) in [
        (("2001:db8::1", SERVERS), (546, 547), Arrival::Taken),
        (("::", SERVERS), (546, 547), Arrival::Taken),
        (("fe80::9", "fe80::2"), (546, 547), Arrival::Packet),
        (("fe80::9", SERVERS), (546, 548), Arrival::Packet),
    ] {
        let frame = frame_between(station(1), ends, ports, &good);
        assert_eq!(host.link.handle_frame(host.now, &frame), arrival, "{ends:?}");
        assert!(host.frames().is_empty(), "{ends:?}");
    }
    // Cut off anywhere.
    for len in 0..good.len() {
        ask(&mut host, 1, &good[..len]);
    }
    // The longest identifier, and all there is: within a frame. 1,000 at once: 16 wait.
    let full =
        [option(1, &[7; 130]), association(9, &[FIRST, SECOND, "fe80::1", "fe80::2", "fe80::3"]), wanted()];
    assert!(ask(&mut host, 1, &message(SOLICIT, &full)).is_some());
    for _ in 0..1_000 {
        host.link.handle_frame(host.now, &frame(1, &good));
    }
    assert_eq!(host.frames().len(), 16);
}

#[test]
fn gw_272_an_address_by_dhcp_is_of_no_other_port() {
    let mut host = host(true);
    let (a, b) = (PortId(1), PortId(2));
    assert!(host.link.plug(a) && host.link.plug(b));
    let from =
        |number, src: &str| frame_between(station(number), (src, "ff02::fb"), (5_353, 5_353), b"hello");
    let mut at = |port, frame: &[u8]| host.link.switch_frame(host.now, port, frame);
    // It was used by another one before its station came, and by none afterwards.
    assert_eq!(at(b, &from(2, FIRST)), Way::Everybody);
    assert_eq!(at(a, &from(1, "fe80::1:1")), Way::Everybody);
    assert_eq!(at(a, &from(1, FIRST)), Way::Everybody);
    assert_eq!(at(b, &from(2, FIRST)), Way::Refused(Refused::Address(FIRST.parse().unwrap())));
    assert_eq!(at(b, &from(2, SECOND)), Way::Everybody);
}

#[test]
fn gw_275_a_lease_has_the_address_of_ipv6_that_its_station_uses() {
    let mut host = host(true);
    let (a, b) = (PortId(1), PortId(2));
    assert!(host.link.plug(a) && host.link.plug(b));
    let from =
        |number, src: &str| frame_between(station(number), (src, "ff02::fb"), (5_353, 5_353), b"hello");
    for (number, address) in [(1, "10.0.2.15"), (2, "10.0.2.16")] {
        assert_eq!(host.told(&said(DISCOVER, number)), Some((OFFER, v4(address))));
        assert_eq!(host.told(&said(REQUEST_V4, number).wants(address)), Some((ACK, v4(address))));
    }
    let mut uses = |port, frame: &[u8]| {
        host.link.switch_frame(host.now, port, frame);
        let leases = host.link.leases(host.now);
        leases.iter().map(|lease| lease.address_v6).collect::<Vec<_>>()
    };
    // The first one's, by the second; one that it has made by itself; its own.
    assert_eq!(uses(b, &from(2, FIRST)), [None, None]);
    assert_eq!(uses(a, &from(1, "fd74:6175:7400::99")), [None, None]);
    assert_eq!(uses(b, &from(2, SECOND)), [None, Some(v6(SECOND))]);
    assert_eq!(uses(a, &from(1, FIRST)), [Some(v6(FIRST)), Some(v6(SECOND))]);
}
