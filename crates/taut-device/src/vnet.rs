//! [`Offload`] and [`RxChecksum`] as a virtio-net header, for [`tun`](crate::tun).

use taut_core::{Offload, RxChecksum};
use taut_wire::{GsoType, VnetHeader};

/// Place of the byte of TCP flags in its header, and CWR in it (RFC 9293 §3.1).
const TCP_FLAGS: usize = 13;
const CWR: u8 = 0x80;

/// What the kernel is to do with the packet.
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
            gso_type: if ipv6 { GsoType::TcpV6 } else { GsoType::TcpV4 },
            // CWR answers one congestion signal: it may stand on the first segment only (RFC 3168 §6.1.2).
            ecn: header.get(usize::from(start) + TCP_FLAGS).is_some_and(|flags| flags & CWR != 0),
            hdr_len: u16::try_from(header.len()).unwrap_or(u16::MAX),
            gso_size: mss,
            csum_start: start,
            csum_offset: offset,
        },
    }
}

/// What the kernel says of a packet: its checksum, and the segment size of a super-packet.
pub(crate) fn of_received(header: &VnetHeader) -> (RxChecksum, u16) {
    let checksum = if header.is_checksum_trusted() { RxChecksum::Verified } else { RxChecksum::Unverified };
    (checksum, if header.is_gso() { header.gso_size } else { 0 })
}
