//! A message of DHCP in its datagram, packet and frame, read and written. Called by `lease.rs` for the
//! client and by `serving.rs` for the server. RFC 2131 §4.1: UDP, from one well-known port to the other.

use core::net::{IpAddr, Ipv4Addr};

use taut_wire::{Ecn, EthernetHeader, IpHeader, Mac, UdpHeader, dhcp, ether_type, ethernet, protocol, udp};

const IP_LEN: usize = 20;
const HOP_LIMIT: u8 = 64;
/// The longest frame: a server's answer.
pub(crate) const FRAME_LEN: usize = ethernet::HEADER_LEN + IP_LEN + udp::HEADER_LEN + dhcp::REPLY_MAX;

/// The ports from which and to which one end sends.
#[derive(Clone, Copy)]
pub(crate) struct Ports {
    src: u16,
    dst: u16,
}

impl Ports {
    pub(crate) const OF_CLIENT: Self = Self { src: dhcp::CLIENT_PORT, dst: dhcp::SERVER_PORT };
    /// RFC 8415 §7.2.
    pub(crate) const OF_CLIENT_V6: Self = Self { src: 546, dst: 547 };
    pub(crate) const OF_SERVER_V6: Self = Self { src: 547, dst: 546 };
    pub(crate) const OF_SERVER: Self = Self { src: dhcp::SERVER_PORT, dst: dhcp::CLIENT_PORT };
}

/// The message of a packet between these ports, if it is for a destination that `is_for_us`; `None` for
/// other packets, `Some(None)` for a broken one.
#[expect(clippy::option_option, reason = "another packet and a broken one are two things")]
pub(crate) fn message_of(
    packet: &[u8],
    ports: Ports,
    is_for_us: impl Fn(IpAddr) -> bool,
) -> Option<Option<&[u8]>> {
    let is_ours = |ip: &IpHeader| ip.protocol == protocol::UDP && is_for_us(ip.dst);
    let ip = IpHeader::parse(packet).ok().filter(is_ours)?;
    let datagram = packet.get(ip.header_len..ip.header_len + ip.payload_len)?;
    let header = UdpHeader::parse(datagram, ip.payload_len).ok()?;
    if (header.src_port, header.dst_port) != (ports.src, ports.dst) {
        return None;
    }
    let datagram = datagram.get(..header.len.into())?;
    // The other end may be on the same machine, or in a virtual one, and leave the checksum to a card that is
    // not there: its field then has that of the pseudo-header.
    let partial = udp::partial_checksum(ip.src, ip.dst, header.len.into());
    let is_partial = datagram[udp::CHECKSUM_OFFSET..udp::HEADER_LEN] == partial.to_be_bytes();
    let is_whole = is_partial || udp::verify(ip.src, ip.dst, datagram, &[]);
    Some(is_whole.then(|| &datagram[udp::HEADER_LEN..]))
}

/// Writes the datagram of a message that is behind its header in `datagram`, whose length it returns.
pub(crate) fn finish(
    datagram: &mut [u8],
    (from, to): (IpAddr, IpAddr),
    ports: Ports,
    message_len: usize,
) -> usize {
    let len = udp::HEADER_LEN + message_len;
    let (header, payload) = datagram.split_at_mut(udp::HEADER_LEN);
    UdpHeader { src_port: ports.src, dst_port: ports.dst, len: len as u16 }.emit(header);
    let checksum = udp::full_checksum(from, to, header, &[&payload[..message_len]]);
    udp::set_checksum(header, checksum);
    len
}

/// Writes a frame with the message that `write` writes, and returns its length.
pub(crate) fn emit(
    buf: &mut [u8; FRAME_LEN],
    (src, to): (Mac, Mac),
    (from, dst): (Ipv4Addr, Ipv4Addr),
    ports: Ports,
    write: impl FnOnce(&mut [u8]) -> usize,
) -> usize {
    let header = EthernetHeader { dst: to, src, ether_type: ether_type::IPV4 }.emit();
    let (link, packet) = buf.split_at_mut(header.len());
    link.copy_from_slice(&header);
    let (head, rest) = packet.split_at_mut(IP_LEN);
    let message_len = write(&mut rest[udp::HEADER_LEN..]);
    let len = finish(rest, (from.into(), dst.into()), ports, message_len);
    let ip = IpHeader {
        src: from.into(),
        dst: dst.into(),
        protocol: protocol::UDP,
        hop_limit: HOP_LIMIT,
        ecn: Ecn::NotEct,
        header_len: IP_LEN,
        payload_len: len,
    };
    ip.emit(head, 0);
    header.len() + IP_LEN + len
}
