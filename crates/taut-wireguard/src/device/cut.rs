//! Cuts a packet of the stack into those that a tunnel carries, each in one piece with its checksum. Pure;
//! called by `tx.rs`.

use taut_core::{Offload, TxPacket};
use taut_wire::raw;

/// Payload bytes of each segment but the last; 0 for a packet that is not cut.
fn mss(packet: &TxPacket<'_>) -> usize {
    match packet.offload {
        Offload::Segment { mss, .. } => mss.into(),
        Offload::None | Offload::Checksum { .. } => 0,
    }
}

/// How many there are.
pub(crate) fn count(packet: &TxPacket<'_>) -> usize {
    raw::segs(packet.payload.len(), mss(packet))
}

/// Bytes of the largest of them.
pub(crate) fn largest(packet: &TxPacket<'_>) -> usize {
    match mss(packet) {
        0 => packet.len(),
        mss => packet.header.len() + packet.payload.len().min(mss),
    }
}

/// Writes the one with the number `index` into `into`, and nothing else.
pub(crate) fn nth(packet: &TxPacket<'_>, index: usize, into: &mut Vec<u8>) {
    into.clear();
    into.extend_from_slice(packet.header);
    let len = packet.payload.len();
    let range = match mss(packet) {
        0 => 0..len,
        mss => raw::cut(into, len, mss, index),
    };
    let mut at = 0;
    for piece in packet.payload.slices() {
        let (from, to) = (range.start.max(at), range.end.min(at + piece.len()));
        if from < to {
            into.extend_from_slice(&piece[from - at..to - at]);
        }
        at += piece.len();
    }
    if packet.offload != Offload::None {
        raw::complete(into);
    }
}

#[cfg(test)]
mod tests {
    use taut_core::Gather;
    use taut_wire::{Ecn, Flags, IpHeader, TcpHeader, protocol, tcp};

    use super::*;

    #[test]
    fn wg_11_segments_are_whole_packets() {
        let (src, dst) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let payload: Vec<u8> = (0..3_000u32).map(|n| n as u8).collect();
        let head = TcpHeader { src_port: 9, dst_port: 80, seq: 7, flags: Flags::ACK, ..TcpHeader::default() };
        let ip = IpHeader {
            src,
            dst,
            protocol: protocol::TCP,
            hop_limit: 64,
            ecn: Ecn::Ect0,
            header_len: 20,
            payload_len: 20 + payload.len(),
        };
        let mut header = [0; 40];
        ip.emit(&mut header, 0);
        head.emit(&mut header[20..]);
        let mut pieces = Gather::EMPTY;
        // In pieces that do not end where segments do.
        payload.chunks(700).for_each(|piece| assert!(pieces.push(piece)));
        let offload = Offload::Segment { mss: 1_380, start: 20, offset: 16, ipv6: false };
        let packet = TxPacket { header: &header, payload: pieces, offload, ..TxPacket::whole(&[]) };
        assert_eq!((count(&packet), largest(&packet)), (3, 1_420));
        let (mut whole, mut segment) = (Vec::new(), Vec::new());
        for index in 0..3 {
            nth(&packet, index, &mut segment);
            let ip = IpHeader::parse(&segment).unwrap();
            assert_eq!(ip.header_len + ip.payload_len, segment.len());
            let (head, data) = segment[20..].split_at(20);
            assert!(tcp::verify(ip.src, ip.dst, head, &[data]), "segment {index}");
            assert_eq!(u32::from_be_bytes(head[4..8].try_into().unwrap()), 7 + whole.len() as u32);
            whole.extend_from_slice(data);
        }
        assert_eq!(whole, payload);
        // One that is complete stays as it is.
        let bytes = [0x45, 1, 2, 3];
        nth(&TxPacket::whole(&bytes), 0, &mut segment);
        assert_eq!((segment.as_slice(), count(&TxPacket::whole(&bytes))), (&bytes[..], 1));
    }
}
