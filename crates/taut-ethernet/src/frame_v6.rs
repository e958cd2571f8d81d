//! A packet of IPv6 in its frame, written. Called by whatever says something to neighbours and clients.

use core::net::Ipv6Addr;

use taut_wire::{Ecn, EthernetHeader, IpHeader, Mac, ether_type, ndp, protocol};

use crate::dhcp::bootp::FRAME_LEN;

const IPV6_LEN: usize = 40;

/// Writes a frame with a message of ICMPv6 between these stations and addresses, and returns its length.
pub(crate) fn emit_icmpv6(
    buf: &mut [u8; FRAME_LEN],
    stations: (Mac, Mac),
    addresses: (Ipv6Addr, Ipv6Addr),
    write: impl FnOnce(&mut [u8]) -> usize,
) -> usize {
    emit(buf, stations, addresses, protocol::ICMPV6, write)
}

/// The same with what another protocol has written.
pub(crate) fn emit(
    buf: &mut [u8; FRAME_LEN],
    (src_mac, dst_mac): (Mac, Mac),
    (src, dst): (Ipv6Addr, Ipv6Addr),
    protocol: u8,
    write: impl FnOnce(&mut [u8]) -> usize,
) -> usize {
    let header = EthernetHeader { dst: dst_mac, src: src_mac, ether_type: ether_type::IPV6 }.emit();
    buf[..header.len()].copy_from_slice(&header);
    let (_, packet) = buf.split_at_mut(header.len());
    let payload_len = write(&mut packet[IPV6_LEN..]);
    let ip = IpHeader {
        src: src.into(),
        dst: dst.into(),
        protocol,
        hop_limit: ndp::HOP_LIMIT,
        ecn: Ecn::NotEct,
        header_len: IPV6_LEN,
        payload_len,
    };
    header.len() + ip.emit(packet, 0) + payload_len
}
