//! Copies of packets that wait in front of a device. Called by `front.rs`.
//!
//! A frame keeps its buffer when its packet is gone, so that nothing is allocated once packets flow. A [`Slot`] names a
//! frame; clones of it, as a queue that duplicates makes them, are copies of the same packet, and the frame is free when
//! the last has come back.

use std::sync::Arc;

use taut_core::{Gather, Instant, Offload, Transmit, TxPacket, TxTicket};
use taut_link::{Ecn, Packet};
use taut_wire::checksum::Sum;

/// Most memory kept in buffers that hold no packet.
const SPARE_MAX_BYTES: usize = 4 << 20;

/// Bits that the sums of [`flow`] are spread with: the golden ratio, as in Fibonacci hashing.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The ECN field of a mark (RFC 3168 §5).
const CE: u8 = 3;

/// A packet's place in [`Frames`].
#[derive(Clone, Debug)]
pub(crate) struct Slot(Arc<usize>);

/// Packets by slot.
#[derive(Default)]
pub(crate) struct Frames {
    frames: Vec<Frame>,
    free: Vec<usize>,
    /// Capacity of the buffers of free frames.
    spare_bytes: usize,
}

#[derive(Default)]
struct Frame {
    /// Its index. More than this one while a packet is in it.
    slot: Arc<usize>,
    buffer: Vec<u8>,
    header_len: usize,
    offload: Option<Offload>,
    departure: Instant,
    entered: Instant,
    ticket: Option<TxTicket>,
}

/// What was done to a frame, to be undone.
#[derive(Clone, Copy)]
pub(crate) struct Damage {
    byte: usize,
    mask: u8,
}

impl Frames {
    pub(crate) fn put(&mut self, now: Instant, Transmit { packet, ticket }: Transmit<'_>) -> Packet<Slot> {
        let segs = packet.segments();
        let index = self.free.pop().unwrap_or_else(|| {
            let index = self.frames.len();
            self.frames.push(Frame { slot: Arc::new(index), ..Frame::default() });
            index
        });
        let TxPacket { header, payload, offload, departure } = packet;
        let frame = &mut self.frames[index];
        self.spare_bytes -= frame.buffer.capacity();
        frame.buffer.clear();
        frame.buffer.reserve(header.len() + payload.len());
        frame.buffer.extend_from_slice(header);
        payload.slices().iter().for_each(|piece| frame.buffer.extend_from_slice(piece));
        (frame.header_len, frame.offload) = (header.len(), Some(offload));
        (frame.departure, frame.entered, frame.ticket) = (departure, now, Some(ticket));
        let len = u32::try_from(payload.len() + segs * header.len()).unwrap_or(u32::MAX);
        let segs = u16::try_from(segs).unwrap_or(u16::MAX);
        let (flow, ecn) = (flow(header), ecn(header));
        Packet { segs, departure, flow, ecn, ..Packet::new(len, Slot(Arc::clone(&frame.slot))) }
    }

    pub(crate) fn get(&self, slot: &Slot) -> TxPacket<'_> {
        let frame = &self.frames[*slot.0];
        let (header, payload) = frame.buffer.split_at(frame.header_len);
        let offload = frame.offload.unwrap_or(Offload::None);
        TxPacket { header, payload: Gather::from(payload), offload, departure: frame.departure }
    }

    pub(crate) fn entered(&self, slot: &Slot) -> Instant {
        self.frames[*slot.0].entered
    }

    pub(crate) fn ticket(&self, slot: &Slot) -> Option<&TxTicket> {
        self.frames[*slot.0].ticket.as_ref()
    }

    pub(crate) fn take_ticket(&mut self, slot: &Slot) -> Option<TxTicket> {
        self.frames[*slot.0].ticket.take()
    }

    /// Gives a copy back.
    pub(crate) fn free(&mut self, slot: Slot) {
        let index = *slot.0;
        drop(slot);
        let frame = &mut self.frames[index];
        if Arc::strong_count(&frame.slot) > 1 {
            return;
        }
        if self.spare_bytes + frame.buffer.capacity() > SPARE_MAX_BYTES {
            frame.buffer = Vec::new();
        }
        self.spare_bytes += frame.buffer.capacity();
        self.free.push(index);
    }

    /// No frame has a packet.
    pub(crate) fn are_empty(&self) -> bool {
        self.free.len() == self.frames.len()
    }

    #[cfg(test)]
    pub(crate) fn spare_is_bounded(&self) -> bool {
        self.spare_bytes <= SPARE_MAX_BYTES
    }

    /// Writes a mark into the header: the packet met congestion (RFC 3168 §5).
    pub(crate) fn mark(&mut self, slot: &Slot) {
        let frame = &mut self.frames[*slot.0];
        let header = &mut frame.buffer[..frame.header_len];
        match header.first().map(|first| first >> 4) {
            Some(4) if header.len() >= 20 => {
                header[1] |= CE;
                header[10..12].fill(0);
                let len = usize::from(header[0] & 15) * 4;
                let sum = header.get(..len).map_or(0, |header| Sum::ZERO.add_bytes(header).finish());
                header[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            Some(6) if header.len() >= 40 => header[1] |= CE << 4,
            _ => {}
        }
    }

    /// Whether damage would be noticed: the device computes the checksums of segments that it cuts, and would cover it up.
    pub(crate) fn can_damage(&self, slot: &Slot) -> bool {
        !matches!(self.frames[*slot.0].offload, Some(Offload::Segment { .. }))
    }

    /// Flips the bit of this number, modulo the bits that there are. A checksum that was left to the device is computed
    /// first.
    pub(crate) fn damage(&mut self, slot: &Slot, bit: u32) -> Damage {
        let Frame { buffer, offload, .. } = &mut self.frames[*slot.0];
        if let Some(Offload::Checksum { start, offset }) = *offload {
            let (start, field) = (usize::from(start), usize::from(start) + usize::from(offset));
            if field + 2 <= buffer.len() {
                let sum = Sum::ZERO.add_bytes(&buffer[start..]).finish();
                buffer[field..field + 2].copy_from_slice(&sum.to_be_bytes());
                *offload = Some(Offload::None);
            }
        }
        let bit = bit as usize % (buffer.len() * 8).max(1);
        let damage = Damage { byte: bit / 8, mask: 1 << (bit % 8) };
        flip(buffer, &damage);
        damage
    }

    /// Undoes that.
    pub(crate) fn repair(&mut self, slot: &Slot, damage: Damage) {
        flip(&mut self.frames[*slot.0].buffer, &damage);
    }
}

fn flip(buffer: &mut [u8], damage: &Damage) {
    if let Some(byte) = buffer.get_mut(damage.byte) {
        *byte ^= damage.mask;
    }
}

/// What the header says of marks. `header` begins with the IP header.
fn ecn(header: &[u8]) -> Ecn {
    let field = match header {
        [first, tos, ..] if first >> 4 == 4 => tos & CE,
        [first, class, ..] if first >> 4 == 6 => class >> 4 & CE,
        _ => 0,
    };
    match field {
        0 => Ecn::NotCapable,
        CE => Ecn::Marked,
        _ => Ecn::Capable,
    }
}

/// The same number for every packet of a connection: addresses and ports, mixed. `header` begins with the IP header.
fn flow(header: &[u8]) -> u64 {
    let (addresses, ports) = match header.first().map(|first| first >> 4) {
        Some(4) => {
            let ports = usize::from(header[0] & 15) * 4;
            (12..20, ports..ports + 4)
        }
        Some(6) => (8..40, 40..44),
        _ => return 0,
    };
    let words = [addresses, ports]
        .into_iter()
        .filter_map(|range| header.get(range))
        .flat_map(|bytes| bytes.chunks(4));
    words.fold(0, |sum: u64, word| {
        let word = word.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
        (sum.rotate_left(5) ^ word).wrapping_mul(SPREAD)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_told_by_addresses_and_ports() {
        let v4 = |port: u8| {
            let mut header = [0; 40];
            (header[0], header[15], header[19], header[21]) = (0x45, 1, 2, port);
            flow(&header)
        };
        assert_eq!(v4(1), v4(1));
        assert_ne!(v4(1), v4(2));
        let v6 = |port: u8| {
            let mut header = [0; 60];
            (header[0], header[23], header[41]) = (0x60, 1, port);
            flow(&header)
        };
        assert_eq!(v6(1), v6(1));
        assert_ne!(v6(1), v6(2));
        assert_eq!(flow(&[]), 0);
    }

    /// Frames with one packet, without a ticket.
    fn frames(header: &[u8], payload: &[u8], offload: Offload) -> (Frames, Slot) {
        let slot = Arc::new(0);
        let frame = Frame {
            slot: Arc::clone(&slot),
            buffer: [header, payload].concat(),
            header_len: header.len(),
            offload: Some(offload),
            ..Frame::default()
        };
        (Frames { frames: vec![frame], ..Frames::default() }, Slot(slot))
    }

    #[test]
    fn a_mark_is_written_and_the_header_stays_sound() {
        let mut header = [0; 40];
        (header[0], header[1], header[8], header[9], header[15], header[19]) = (0x45, 2, 64, 6, 1, 2);
        let sum = Sum::ZERO.add_bytes(&header[..20]).finish();
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(ecn(&header), Ecn::Capable);
        let (mut frames, slot) = frames(&header, b"data", Offload::None);
        frames.mark(&slot);
        let marked = &frames.frames[0].buffer;
        assert_eq!(ecn(marked), Ecn::Marked);
        assert_eq!(Sum::ZERO.add_bytes(&marked[..20]).finish(), 0, "the checksum was computed anew");
        assert_eq!(marked[12..], [&header[12..], b"data"].concat());
    }

    #[test]
    fn a_mark_of_ipv6_is_in_the_traffic_class() {
        let mut header = [0; 60];
        (header[0], header[1]) = (0x60, 0x1f);
        assert_eq!(ecn(&header), Ecn::Capable, "ECT(1)");
        let (mut frames, slot) = frames(&header, b"", Offload::None);
        frames.mark(&slot);
        assert_eq!((ecn(&frames.frames[0].buffer), frames.frames[0].buffer[1]), (Ecn::Marked, 0x3f));
        assert_eq!(ecn(&[0x45, 0]), Ecn::NotCapable);
    }

    #[test]
    fn damage_breaks_the_checksum_and_is_undone() {
        let offload = Offload::Checksum { start: 20, offset: 16 };
        let mut header = [7; 40];
        // The sum of the pseudo-header, as the stack leaves it.
        header[36..38].copy_from_slice(&[0x12, 0x34]);
        for bit in [160, 319, 352, 4_000_000_007] {
            let (mut frames, slot) = frames(&header, b"payload", offload);
            assert!(frames.can_damage(&slot));
            let damage = frames.damage(&slot, bit);
            let sum = |frames: &Frames| {
                let pseudo = [0x12, 0x34];
                Sum::ZERO.add_bytes(&pseudo).add_bytes(&frames.frames[0].buffer[20..]).finish()
            };
            let in_ip_header = bit as usize % (47 * 8) < 160;
            assert!(in_ip_header || sum(&frames) != 0, "bit {bit}");
            frames.repair(&slot, damage);
            assert_eq!(sum(&frames), 0, "the checksum is complete");
        }
    }

    #[test]
    fn a_frame_is_free_when_its_last_copy_is() {
        let (mut frames, slot) = frames(&[0x45; 20], b"", Offload::None);
        let copy = slot.clone();
        frames.free(slot);
        assert!(!frames.are_empty());
        frames.free(copy);
        assert!(frames.are_empty());
    }
}
