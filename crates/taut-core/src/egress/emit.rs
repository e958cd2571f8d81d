//! From a decision to bytes: IP and TCP headers in front of a payload that is never touched.
//! Headers by taut-wire; called by the stack for every packet that leaves.

use core::net::IpAddr;

use taut_wire::tcp::{self, CHECKSUM_OFFSET};
use taut_wire::{AccEcn, FastOpen, TcpHeader, TcpOptions};

use crate::ip::outgoing::IpOut;
use crate::words::{Gather, LinkCaps, Offload};

/// The longest possible headers: IPv6, and TCP with all options.
pub(crate) const HEADER_MAX: usize = 40 + 60;

/// So many bytes fit into a packet whatever its headers are.
pub(crate) const ALWAYS_FITS: u64 = u16::MAX as u64 - HEADER_MAX as u64;

/// Whether a header can say how long this packet is: the total length of IPv4 counts its own header (RFC 791
/// §3.1), the payload length of IPv6 does not (RFC 8200 §3).
pub(crate) fn fits(src: IpAddr, header: &TcpHeader, payload: u64) -> bool {
    let ip_len = if src.is_ipv4() { 20 } else { 0 };
    ip_len + header.header_len() as u64 + payload <= u64::from(u16::MAX)
}

/// Writes the headers in front of `payload` into `buffer`; returns their length and the work that is left to
/// the device. The payload's bytes are read only for a link that does not complete checksums. `mss` is the
/// size of the segments into which the device cuts the payload; 0 for a packet that must not be cut. It must
/// [fit](fits).
pub(crate) fn tcp_packet(
    buffer: &mut [u8; HEADER_MAX],
    ip: &IpOut,
    header: &TcpHeader,
    payload: &Gather<'_>,
    mss: u32,
    link: &LinkCaps,
) -> (usize, Offload) {
    debug_assert!(fits(ip.src, header, payload.len() as u64));
    packet(buffer, ip, header.header_len(), |buffer| header.emit(buffer), payload, mss, link)
}

/// The packet of a SYN, with TCP Fast Open's option. The counters of accurate ECN give way to it, the last
/// ones first (RFC 9768 §3.2.3).
#[cold]
pub(crate) fn syn_packet(
    buffer: &mut [u8; HEADER_MAX],
    ip: &IpOut,
    mut header: TcpHeader,
    option: Option<FastOpen>,
    payload: &Gather<'_>,
    link: &LinkCaps,
) -> (usize, Offload) {
    let Some(option) = option else { return tcp_packet(buffer, ip, &header, payload, 0, link) };
    let room = TcpOptions::MAX_LEN - option.emitted_len();
    let fits = |header: &TcpHeader| header.options.emitted_len() <= room;
    if !fits(&header) {
        header.options.accecn = header.options.accecn.map(|counters| AccEcn { ee1b: None, ..counters });
    }
    if !fits(&header) {
        header.options.accecn = None;
    }
    let header_len = header.header_len() + if fits(&header) { option.emitted_len() } else { 0 };
    let emit = |buffer: &mut [u8]| {
        let len = header.emit(buffer);
        option.append(buffer, len)
    };
    packet(buffer, ip, header_len, emit, payload, 0, link)
}

/// `emit` writes a TCP header of `header_len` bytes.
#[inline(always)]
fn packet(
    buffer: &mut [u8; HEADER_MAX],
    ip: &IpOut,
    header_len: usize,
    emit: impl FnOnce(&mut [u8]) -> usize,
    payload: &Gather<'_>,
    mss: u32,
    link: &LinkCaps,
) -> (usize, Offload) {
    let len = payload.len();
    let tcp_len = header_len + len;
    let (src, dst) = (ip.src, ip.dst);
    let start = ip.emit(buffer, tcp_len);
    let end = start + emit(&mut buffer[start..]);
    let segment = &mut buffer[start..end];
    let checksum = if link.tx_checksum {
        tcp::partial_checksum(src, dst, tcp_len as u32)
    } else {
        tcp::full_checksum(src, dst, segment, payload.slices())
    };
    tcp::set_checksum(segment, checksum);
    let (at, offset) = (start as u16, CHECKSUM_OFFSET as u16);
    let offload = if mss != 0 && len > mss as usize {
        Offload::Segment { mss: mss as u16, start: at, offset, ipv6: src.is_ipv6() }
    } else if link.tx_checksum {
        Offload::Checksum { start: at, offset }
    } else {
        Offload::None
    };
    (end, offload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use taut_wire::{Ecn, Flags, IpHeader};

    fn header() -> TcpHeader {
        TcpHeader {
            src_port: 1,
            dst_port: 2,
            seq: 3,
            ack: 4,
            flags: Flags::ACK,
            window: 5,
            ..Default::default()
        }
    }

    #[test]
    fn a_plain_link_gets_complete_packets() {
        for pair in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let (src, dst) = (pair.0.parse().unwrap(), pair.1.parse().unwrap());
            let mut buffer = [0; HEADER_MAX];
            let payload = Gather::from(&b"hello"[..]);
            let (len, offload) = tcp_packet(
                &mut buffer,
                &IpOut::tcp(src, dst, 64, 2),
                &header(),
                &payload,
                1_460,
                &LinkCaps::plain(1_500),
            );
            assert_eq!(offload, Offload::None);
            let ip = IpHeader::parse_prefix(&buffer[..len], len + 5).unwrap();
            assert_eq!((ip.src, ip.dst, ip.ecn, ip.payload_len), (src, dst, Ecn::Ect0, 25));
            assert!(tcp::verify(src, dst, &buffer[ip.header_len..len], &[b"hello"]));
        }
    }

    #[test]
    fn an_offloading_link_cuts_and_sums() {
        let (src, dst) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let mut buffer = [0; HEADER_MAX];
        let data = [0; 3_000];
        let payload = Gather::from(&data[..]);
        let link = LinkCaps::offloading(1_500);
        let ip = IpOut::tcp(src, dst, 64, 0);
        let (len, offload) = tcp_packet(&mut buffer, &ip, &header(), &payload, 1_460, &link);
        assert_eq!(len, 40);
        assert_eq!(offload, Offload::Segment { mss: 1_460, start: 20, offset: 16, ipv6: false });
        let (_, offload) = tcp_packet(&mut buffer, &ip, &header(), &Gather::EMPTY, 1_460, &link);
        assert_eq!(offload, Offload::Checksum { start: 20, offset: 16 });
    }

    #[test]
    fn a_length_that_no_header_can_say_does_not_fit() {
        let data = [0; 65_536];
        let link = LinkCaps::offloading(65_535);
        for (src, dst, most) in [("10.0.0.1", "10.0.0.2", 65_495), ("fd00::1", "fd00::2", 65_515)] {
            let (src, dst): (IpAddr, IpAddr) = (src.parse().unwrap(), dst.parse().unwrap());
            let mut buffer = [0; HEADER_MAX];
            let payload = Gather::from(&data[..most]);
            tcp_packet(&mut buffer, &IpOut::tcp(src, dst, 64, 0), &header(), &payload, 32_000, &link);
            let at = if src.is_ipv4() { 2 } else { 4 };
            assert_eq!(buffer[at..at + 2], [0xff; 2], "the length field");
            assert!(fits(src, &header(), most as u64) && !fits(src, &header(), most as u64 + 1));
        }
    }
}
