//! Packets that wait in front of a device. Called by `waiting.rs`.
//!
//! A frame keeps its memory when its packet is gone, so that nothing is allocated once packets flow. A [`Slot`] names a
//! frame; clones of it, as a queue that duplicates makes them, are copies of the same packet, and the frame is free when
//! the last has come back.

use std::sync::Arc;

use taut_core::{Gather, Instant, KeptPacket, Offload, TxPacket, TxTicket};
use taut_link::Packet;
use taut_wire::{Sum, raw};

use crate::device::{Sent, TxDevice};

/// A packet's place in [`Frames`].
#[derive(Clone, Debug)]
pub(super) struct Slot(Arc<usize>);

/// Packets by slot.
#[derive(Default)]
pub(super) struct Frames {
    frames: Vec<Frame>,
    free: Vec<usize>,
    /// A copy that is to be damaged.
    damaged: Vec<u8>,
}

#[derive(Default)]
struct Frame {
    /// Its index. More than this one while a packet is in it.
    slot: Arc<usize>,
    packet: KeptPacket,
    entered: Instant,
    ticket: Option<TxTicket>,
}

impl Frames {
    pub(super) fn put(&mut self, now: Instant, packet: &TxPacket<'_>, ticket: TxTicket) -> Packet<Slot> {
        let index = self.free.pop().unwrap_or_else(|| {
            let index = self.frames.len();
            self.frames.push(Frame { slot: Arc::new(index), ..Frame::default() });
            index
        });
        let frame = &mut self.frames[index];
        packet.keep_in(&mut frame.packet);
        (frame.entered, frame.ticket) = (now, Some(ticket));
        let segs = packet.segments();
        let len = packet.payload.len() + segs * packet.header.len();
        let (len, segs) = (u32::try_from(len).unwrap_or(u32::MAX), u16::try_from(segs).unwrap_or(u16::MAX));
        let (departure, flow, ecn) =
            (packet.departure, raw::flow(packet.header), raw::ecn(packet.header).into());
        Packet { segs, departure, flow, ecn, ..Packet::new(len, Slot(Arc::clone(&frame.slot))) }
    }

    pub(super) fn entered(&self, slot: &Slot) -> Instant {
        self.frames[*slot.0].entered
    }

    pub(super) fn ticket(&self, slot: &Slot) -> Option<&TxTicket> {
        self.frames[*slot.0].ticket.as_ref()
    }

    pub(super) fn take_ticket(&mut self, slot: &Slot) -> Option<TxTicket> {
        self.frames[*slot.0].ticket.take()
    }

    /// Gives a copy back.
    pub(super) fn free(&mut self, slot: Slot) {
        let index = *slot.0;
        drop(slot);
        let frame = &mut self.frames[index];
        if Arc::strong_count(&frame.slot) == 1 {
            frame.packet.clear();
            self.free.push(index);
        }
    }

    /// No frame has a packet.
    pub(super) fn are_empty(&self) -> bool {
        self.free.len() == self.frames.len()
    }

    /// Gives a packet to a device, damaged if it is to be: then a copy of it, since another copy may be sound, and a
    /// device without room is offered it again.
    pub(super) fn send(
        &mut self,
        packet: &Packet<Slot>,
        ticket: TxTicket,
        device: &mut dyn TxDevice,
    ) -> Sent {
        let sound = self.frames[*packet.item.0].packet.packet();
        let Some(bit) = packet.corrupt else { return device.send(&sound, ticket) };
        if matches!(sound.offload, Offload::Segment { .. }) {
            // The device would compute the checksums of the segments that it cuts, and cover the damage up. Damaged in
            // the wrong place, every one of them would be lost: so this one is.
            return Sent::Left(ticket);
        }
        damage(&mut self.damaged, &sound, bit);
        let (header, payload) = self.damaged.split_at(sound.header.len());
        let departure = sound.departure;
        let packet = TxPacket { header, payload: Gather::from(payload), offload: Offload::None, departure };
        device.send(&packet, ticket)
    }

    /// Writes a mark into the header: the packet met congestion (RFC 3168 §5).
    pub(super) fn mark(&mut self, slot: &Slot) {
        raw::set_ce(self.frames[*slot.0].packet.header_mut());
    }
}

/// Copies a packet and flips the bit of this number, modulo the bits that there are. A checksum that was left to the
/// device is computed first.
fn damage(into: &mut Vec<u8>, packet: &TxPacket<'_>, bit: u32) {
    into.clear();
    packet.pieces().for_each(|piece| into.extend_from_slice(piece));
    if let Offload::Checksum { start, offset } = packet.offload {
        let (start, field) = (usize::from(start), usize::from(start) + usize::from(offset));
        if field + 2 <= into.len() {
            let sum = Sum::ZERO.add_bytes(&into[start..]).finish();
            into[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        }
    }
    let bit = bit as usize % (into.len() * 8).max(1);
    if let Some(byte) = into.get_mut(bit / 8) {
        *byte ^= 1 << (bit % 8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet<'a>(header: &'a [u8], payload: &'a [u8], offload: Offload) -> TxPacket<'a> {
        TxPacket { header, payload: Gather::from(payload), offload, departure: Instant::ZERO }
    }

    /// Frames with one packet.
    fn frames(header: &[u8], payload: &[u8]) -> (Frames, Slot) {
        let mut frames = Frames::default();
        let packet = packet(header, payload, Offload::None);
        let slot = frames.put(Instant::ZERO, &packet, TxTicket::blank()).item;
        (frames, slot)
    }

    #[test]
    fn a_mark_is_written_into_the_header_alone() {
        let mut header = [0; 60];
        (header[0], header[1]) = (0x60, 0x1f);
        let (mut frames, slot) = frames(&header, b"data");
        frames.mark(&slot);
        header[1] = 0x3f;
        assert_eq!(frames.frames[0].packet.packet().to_vec(), [&header[..], b"data"].concat());
    }

    #[test]
    fn damage_breaks_a_checksum_that_was_complete() {
        let mut header = [7; 40];
        // The sum of the pseudo-header, as the stack leaves it.
        header[36..38].copy_from_slice(&[0x12, 0x34]);
        let sound = packet(&header, b"payload", Offload::Checksum { start: 20, offset: 16 });
        let mut damaged = Vec::new();
        for bit in [160, 319, 352, 4_000_000_007] {
            damage(&mut damaged, &sound, bit);
            let sum = |bytes: &[u8]| {
                let pseudo = [0x12, 0x34];
                Sum::ZERO.add_bytes(&pseudo).add_bytes(&bytes[20..]).finish()
            };
            let in_ip_header = bit as usize % (47 * 8) < 160;
            assert!(in_ip_header || sum(&damaged) != 0, "bit {bit}");
            let at = bit as usize % (47 * 8);
            damaged[at / 8] ^= 1 << (at % 8);
            assert_eq!(sum(&damaged), 0, "the checksum was complete");
        }
    }

    #[test]
    fn a_frame_is_free_when_its_last_copy_is() {
        let (mut frames, slot) = frames(&[0x45; 20], b"");
        let copy = slot.clone();
        frames.free(slot);
        assert!(!frames.are_empty());
        frames.free(copy);
        assert!(frames.are_empty());
    }
}
