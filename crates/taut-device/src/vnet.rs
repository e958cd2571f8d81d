//! [`Offload`] and [`RxChecksum`] as a virtio-net header, for [`tun`](crate::tun) and
//! [`packet`](crate::packet).

use taut_core::{Offload, RxChecksum};
use taut_wire::{GsoType, VnetHeader, udp};

/// Offset of the flags byte in the TCP header, and the CWR bit in it (RFC 9293 §3.1).
const TCP_FLAGS: usize = 13;
const CWR: u8 = 0x80;

/// Only the checksum of UDP is there.
fn is_udp(checksum_offset: u16) -> bool {
    usize::from(checksum_offset) == udp::CHECKSUM_OFFSET
}

/// The header that tells the kernel what to do with a packet.
pub(crate) fn for_transmit(header: &[u8], offload: Offload) -> VnetHeader {
    match offload {
        Offload::None => VnetHeader::default(),
        Offload::Checksum { start, offset } => VnetHeader {
            flags: VnetHeader::NEEDS_CSUM,
            csum_start: start,
            csum_offset: offset,
            ..VnetHeader::default()
        },
        Offload::Segment { mss, start, offset, ipv6 } => VnetHeader {
            flags: VnetHeader::NEEDS_CSUM,
            gso_type: match ipv6 {
                _ if is_udp(offset) => GsoType::UdpL4,
                true => GsoType::TcpV6,
                false => GsoType::TcpV4,
            },
            // CWR answers one congestion signal: only the first segment may carry it (RFC 3168 §6.1.2).
            ecn: !is_udp(offset)
                && header.get(usize::from(start) + TCP_FLAGS).is_some_and(|flags| flags & CWR != 0),
            hdr_len: u16::try_from(header.len()).unwrap_or(u16::MAX),
            gso_size: mss,
            csum_start: start,
            csum_offset: offset,
        },
    }
}

/// The same for a packet with `bytes` of a link's header in front of it.
pub(crate) fn behind(bytes: u16, header: VnetHeader) -> VnetHeader {
    if !header.needs_checksum() {
        return header;
    }
    let hdr_len = if header.is_gso() { header.hdr_len.saturating_add(bytes) } else { 0 };
    VnetHeader { hdr_len, csum_start: header.csum_start + bytes, ..header }
}

/// The kernel's information about a packet: the state of its checksum, and the segment size of a
/// super-packet.
pub(crate) fn of_received(header: &VnetHeader) -> (RxChecksum, u16) {
    let checksum = if header.is_checksum_trusted() { RxChecksum::Verified } else { RxChecksum::Unverified };
    (checksum, if header.is_gso() { header.gso_size } else { 0 })
}
