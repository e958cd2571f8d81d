//! Stateless DHCP for IPv6 (RFC 8415 §18.3.6): name servers, domains to search, and the file to boot from
//! (RFC 5970). Addresses are made from the router's advertisement. Pure; called by `engine.rs` for each
//! frame.

use std::net::{IpAddr, Ipv6Addr};

use taut_wire::{Ecn, EthernetHeader, IpHeader, Mac, UdpHeader, domain, ether_type, ethernet, protocol, udp};

use crate::config::Config;

/// RFC 8415 §7.1, §7.2.
const SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
const SERVER_PORT: u16 = 547;
const CLIENT_PORT: u16 = 546;
/// §7.3.
const INFORMATION_REQUEST: u8 = 11;
const REPLY: u8 = 7;
/// §21.2, §21.3, §21.7; RFC 3646 §3, §4; RFC 5970 §3.1.
const CLIENT_ID: u16 = 1;
const SERVER_ID: u16 = 2;
const ASKED: u16 = 6;
const NAME_SERVERS: u16 = 23;
const SEARCH: u16 = 24;
const BOOT_FILE: u16 = 59;
/// Message type and the number of the exchange.
const HEADER: usize = 4;
/// RFC 8415 §11.1.
const DUID_MAX: usize = 130;
/// This host as a router.
const OWN: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
const HOP_LIMIT: u8 = 255;
const IPV6_LEN: usize = 40;

/// A client's request.
struct Request<'a> {
    exchange: [u8; 3],
    client: &'a [u8],
    asked: Vec<u16>,
}

/// The frame that answers a client's request; `None` for any other frame.
pub(crate) fn answer(config: &Config, frame: &[u8]) -> Option<Vec<u8>> {
    let v6 = config.v6?;
    let link = EthernetHeader::parse(frame).ok()?;
    if link.ether_type != ether_type::IPV6 {
        return None;
    }
    let packet = frame.get(ethernet::HEADER_LEN..)?;
    // Before more is read: the protocol.
    if packet.get(6) != Some(&protocol::UDP) {
        return None;
    }
    let ip = IpHeader::parse(packet).ok()?;
    let (IpAddr::V6(src), IpAddr::V6(dst)) = (ip.src, ip.dst) else { return None };
    let datagram = packet.get(ip.header_len..ip.header_len + ip.payload_len)?;
    let header = UdpHeader::parse(datagram, ip.payload_len).ok()?;
    let is_for_us = dst == SERVERS || dst == OWN || dst == v6.host;
    if header.dst_port != SERVER_PORT || !is_for_us || src.is_multicast() || src.is_unspecified() {
        return None;
    }
    let datagram = datagram.get(..header.len.into())?;
    if !udp::verify(ip.src, ip.dst, datagram, &[]) {
        return None;
    }
    let request = request(datagram.get(udp::HEADER_LEN..)?)?;
    Some(emit(config, (link.src, src), &reply(config, &request)))
}

/// §16.12: one that names a server, or is for addresses, is for others.
fn request(message: &[u8]) -> Option<Request<'_>> {
    let (header, mut rest) = message.split_at_checked(HEADER)?;
    if header[0] != INFORMATION_REQUEST {
        return None;
    }
    let mut request = Request { exchange: [header[1], header[2], header[3]], client: &[], asked: Vec::new() };
    while let Some((head, behind)) = rest.split_at_checked(4) {
        let (code, len) = (u16::from_be_bytes([head[0], head[1]]), u16::from_be_bytes([head[2], head[3]]));
        let (data, behind) = behind.split_at_checked(len.into())?;
        match code {
            CLIENT_ID if data.len() <= DUID_MAX => request.client = data,
            SERVER_ID => return None,
            ASKED => {
                let asked = data.as_chunks::<2>().0.iter();
                request.asked = asked.map(|two| u16::from_be_bytes(*two)).collect();
            }
            _ => {}
        }
        rest = behind;
    }
    Some(request)
}

fn reply(config: &Config, request: &Request<'_>) -> Vec<u8> {
    let [a, b, c] = request.exchange;
    let mut message = vec![REPLY, a, b, c];
    let mut put = |code: u16, data: &[u8]| {
        // All of these are short.
        let Some(len) = u16::try_from(data.len()).ok().filter(|len| *len > 0) else { return };
        message.extend_from_slice(&code.to_be_bytes());
        message.extend_from_slice(&len.to_be_bytes());
        message.extend_from_slice(data);
    };
    put(CLIENT_ID, request.client);
    // §11.4: DUID-LL of Ethernet.
    put(SERVER_ID, &[&[0, 3, 0, 1][..], &config.station().0].concat());
    let Some(v6) = config.v6 else { return message };
    if request.asked.contains(&NAME_SERVERS) && config.has_dns {
        put(NAME_SERVERS, &v6.dns.octets());
    }
    if request.asked.contains(&SEARCH) {
        put(SEARCH, &search(config));
    }
    if let (true, Some(file)) = (request.asked.contains(&BOOT_FILE), &config.boot_file) {
        put(BOOT_FILE, format!("tftp://[{}]/{file}", v6.host).as_bytes());
    }
    message
}

/// The domains to search, those that are names and have room.
fn search(config: &Config) -> Vec<u8> {
    const MOST: usize = 200;
    let (mut all, mut buf) = (Vec::new(), [0; domain::NAME_MAX]);
    for name in &config.search {
        let Some(len) = domain::emit(&mut buf, name).filter(|len| all.len() + len <= MOST) else { continue };
        all.extend_from_slice(&buf[..len]);
    }
    all
}

fn emit(config: &Config, (station, to): (Mac, Ipv6Addr), message: &[u8]) -> Vec<u8> {
    let len = udp::HEADER_LEN + message.len();
    let link = EthernetHeader { dst: station, src: config.station(), ether_type: ether_type::IPV6 }.emit();
    let mut frame = vec![0; link.len() + IPV6_LEN + len];
    frame[..link.len()].copy_from_slice(&link);
    let (head, rest) = frame[link.len()..].split_at_mut(IPV6_LEN);
    let ip = IpHeader {
        src: OWN.into(),
        dst: to.into(),
        protocol: protocol::UDP,
        hop_limit: HOP_LIMIT,
        ecn: Ecn::NotEct,
        header_len: IPV6_LEN,
        payload_len: len,
    };
    ip.emit(head, 0);
    let (header, payload) = rest.split_at_mut(udp::HEADER_LEN);
    payload.copy_from_slice(message);
    UdpHeader { src_port: SERVER_PORT, dst_port: CLIENT_PORT, len: len as u16 }.emit(header);
    let checksum = udp::full_checksum(ip.src, ip.dst, header, &[message]);
    udp::set_checksum(header, checksum);
    frame
}
