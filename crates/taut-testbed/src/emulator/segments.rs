//! Offload between routers: a super-packet is cut into segments before it enters a queue, as a NIC does
//! (TSO), and segments that arrive together are merged into one again (GRO). So queues, losses and marks act
//! on single packets, and the kernel is entered once for many of them. Called by `emulator.rs`.
//!
//! Checksums stay uncomputed, as the sender left them: nothing verifies a packet that never was on a
//! wire.

use taut_core::Offload;
use taut_link::Gro;
use taut_wire::{raw, tcp};

/// Offset of the checksum in a TCP header, for offload.
pub(super) const CHECKSUM_AT: u16 = tcp::CHECKSUM_OFFSET as u16;

/// A packet on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RawPacket {
    pub(super) bytes: Vec<u8>,
    /// IP and transport headers.
    pub(super) header_len: usize,
    pub(super) offload: Offload,
}

impl RawPacket {
    pub(super) fn header(&self) -> &[u8] {
        &self.bytes[..self.header_len]
    }

    pub(super) fn payload(&self) -> &[u8] {
        &self.bytes[self.header_len..]
    }

    /// The segments of a super-packet; the packet itself if it is not one.
    pub(super) fn split(self) -> Vec<Self> {
        let Offload::Segment { mss, start, offset, .. } = self.offload else { return vec![self] };
        let (payload, mss) = (self.payload(), mss.into());
        let segment = |index| {
            let mut bytes = self.header().to_vec();
            let part = raw::cut(&mut bytes, payload.len(), mss, index);
            bytes.extend_from_slice(&payload[part]);
            let offload = Offload::Checksum { start, offset };
            Self { bytes, header_len: self.header_len, offload }
        };
        (0..raw::segs(payload.len(), mss)).map(segment).collect()
    }
}

/// A packet at the end of the path, to which following ones may be added.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) packet: RawPacket,
    gro: Gro,
}

impl Held {
    pub(super) fn new(packet: RawPacket) -> Self {
        // Only plain segments, whose checksum a device completes, can be merged.
        let is_segment = matches!(packet.offload, Offload::Checksum { .. });
        let gro = Gro::new(packet.header(), if is_segment { packet.payload().len() } else { 0 });
        Self { packet, gro }
    }

    /// Adds the following packet if it continues this one. Returns whether it did.
    pub(super) fn add(&mut self, next: &RawPacket) -> bool {
        let Self { packet, gro } = self;
        let Offload::Checksum { start, .. } = next.offload else { return false };
        if !gro.add(packet.header(), next.header(), next.payload().len()) {
            return false;
        }
        raw::join(&mut packet.bytes[..packet.header_len], next.header(), gro.payload_len());
        packet.bytes.extend_from_slice(next.payload());
        let (mss, ipv6) = (gro.segment_len() as u16, raw::is_v6(&packet.bytes));
        packet.offload = Offload::Segment { mss, start, offset: CHECKSUM_AT, ipv6 };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u16 = 20;

    /// 3,500 bytes in segments of 1,000, with PSH.
    fn super_packet() -> RawPacket {
        let mut bytes = vec![0; 40];
        bytes[0] = 0x45;
        bytes[1] = 2;
        bytes[8..10].copy_from_slice(&[64, 6]);
        bytes[12..20].copy_from_slice(&[10, 9, 0, 2, 10, 9, 0, 1]);
        bytes[20..24].copy_from_slice(&[0x9c, 0x40, 0x13, 0x89]);
        bytes[24..28].copy_from_slice(&(u32::MAX - 999).to_be_bytes());
        bytes[32..36].copy_from_slice(&[0x50, 0x18, 1, 0]);
        raw::set_len(&mut bytes, 3_540);
        bytes.extend((0..3_500).map(|index| (index / 14) as u8));
        let offload = Offload::Segment { mss: 1_000, start: START, offset: CHECKSUM_AT, ipv6: false };
        RawPacket { bytes, header_len: 40, offload }
    }

    #[test]
    fn what_is_split_and_merged_is_what_it_was() {
        let whole = super_packet();
        let parts = whole.clone().split();
        let seqs: Vec<&[u8]> = parts.iter().map(|part| &part.bytes[24..28]).collect();
        assert_eq!(seqs[..2], [&[0xff, 0xff, 0xfc, 0x18], &[0, 0, 0, 0]], "around zero");
        let lens: Vec<usize> = parts.iter().map(|part| part.payload().len()).collect();
        assert_eq!(lens, [1_000, 1_000, 1_000, 500]);
        assert!(parts.iter().all(|part| part.offload == Offload::Checksum { start: START, offset: 16 }));
        let mut held = Held::new(parts[0].clone());
        assert!(parts[1..].iter().all(|part| held.add(part)));
        assert!(!held.add(&parts[1]), "nothing follows a short one");
        assert_eq!(held.packet, whole);
    }

    #[test]
    fn what_does_not_continue_is_not_merged() {
        let parts = super_packet().split();
        assert!(!Held::new(parts[0].clone()).add(&parts[2]), "one is missing");
        for offload in [Offload::None, super_packet().offload] {
            let other = |part: &RawPacket| RawPacket { offload, ..part.clone() };
            assert!(!Held::new(other(&parts[0])).add(&parts[1]), "{offload:?} is not a plain segment");
            assert!(
                !Held::new(parts[0].clone()).add(&other(&parts[1])),
                "{offload:?} is not a plain segment"
            );
        }
    }
}
