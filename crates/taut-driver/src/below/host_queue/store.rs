//! Packets that wait in front of a device. Called by `waiting.rs`.
//!
//! An entry keeps its memory when its packet is gone, so that nothing is allocated in the steady state. A
//! [`PacketRef`] names an entry. Clones of a reference, which a queue that duplicates makes, are copies of
//! the same packet; the entry is free when the last one has come back.

use std::sync::Arc;

use taut_core::{Gather, Instant, KeptPacket, Offload, TxPacket, TxTicket};
use taut_link::Packet;
use taut_wire::{Sum, raw};

use crate::device::{Sent, TxDevice};

/// The index of a packet in [`Store`].
#[derive(Clone, Debug)]
pub(super) struct PacketRef(Arc<usize>);

/// Packets by reference.
#[derive(Default)]
pub(super) struct Store {
    entries: Vec<Entry>,
    free: Vec<usize>,
    /// Memory for a damaged copy of a packet.
    damaged: Vec<u8>,
}

#[derive(Default)]
struct Entry {
    /// Its index. There are further references to it while the entry holds a packet.
    index: Arc<usize>,
    packet: KeptPacket,
    entered: Instant,
    ticket: Option<TxTicket>,
}

impl Store {
    pub(super) fn put(&mut self, now: Instant, packet: &TxPacket<'_>, ticket: TxTicket) -> Packet<PacketRef> {
        let index = self.free.pop().unwrap_or_else(|| {
            let index = self.entries.len();
            self.entries.push(Entry { index: Arc::new(index), ..Entry::default() });
            index
        });
        let entry = &mut self.entries[index];
        packet.keep_in(&mut entry.packet);
        (entry.entered, entry.ticket) = (now, Some(ticket));
        let segs = packet.segments();
        let len = packet.payload.len() + segs * packet.header.len();
        let (len, segs) = (u32::try_from(len).unwrap_or(u32::MAX), u16::try_from(segs).unwrap_or(u16::MAX));
        let (departure, flow, ecn) =
            (packet.departure, raw::flow(packet.header), raw::ecn(packet.header).into());
        Packet { segs, departure, flow, ecn, ..Packet::new(len, PacketRef(Arc::clone(&entry.index))) }
    }

    pub(super) fn entered(&self, packet: &PacketRef) -> Instant {
        self.entries[*packet.0].entered
    }

    pub(super) fn ticket(&self, packet: &PacketRef) -> Option<&TxTicket> {
        self.entries[*packet.0].ticket.as_ref()
    }

    pub(super) fn take_ticket(&mut self, packet: &PacketRef) -> Option<TxTicket> {
        self.entries[*packet.0].ticket.take()
    }

    /// Returns a copy.
    pub(super) fn free(&mut self, packet: PacketRef) {
        let index = *packet.0;
        drop(packet);
        let entry = &mut self.entries[index];
        if Arc::strong_count(&entry.index) == 1 {
            entry.packet.clear();
            self.free.push(index);
        }
    }

    /// Whether no entry has a packet.
    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.entries.len()
    }

    /// Gives a packet to a device, damaged if the queue says so. Then it is a copy of the packet, because
    /// another reference may need it undamaged, and because a device without room is offered it again.
    pub(super) fn send(
        &mut self,
        packet: &Packet<PacketRef>,
        ticket: TxTicket,
        device: &mut dyn TxDevice,
    ) -> Sent {
        let sound = self.entries[*packet.item.0].packet.packet();
        let Some(bit) = packet.corrupt else { return device.send(&sound, ticket) };
        if matches!(sound.offload, Offload::Segment { .. }) {
            // The device would compute the checksums of the segments that it cuts, and so hide the damage.
            // All these segments count as damaged, so the packet is lost.
            return Sent::Left(ticket);
        }
        damage(&mut self.damaged, &sound, bit);
        let (header, payload) = self.damaged.split_at(sound.header.len());
        let departure = sound.departure;
        let packet = TxPacket { header, payload: Gather::from(payload), offload: Offload::None, departure };
        device.send(&packet, ticket)
    }

    /// Writes a mark into the header: the packet experienced congestion (RFC 3168 §5).
    pub(super) fn mark(&mut self, packet: &PacketRef) {
        raw::set_ce(self.entries[*packet.0].packet.header_mut());
    }
}

/// Copies a packet and flips the bit with this number, modulo its number of bits. A checksum that was left to
/// the device is computed first.
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

    /// A store with one packet.
    fn store_of(header: &[u8], payload: &[u8]) -> (Store, PacketRef) {
        let mut store = Store::default();
        let packet = packet(header, payload, Offload::None);
        let packet = store.put(Instant::ZERO, &packet, TxTicket::blank()).item;
        (store, packet)
    }

    #[test]
    fn a_mark_is_written_into_the_header_alone() {
        let mut header = [0; 60];
        (header[0], header[1]) = (0x60, 0x1f);
        let (mut store, packet) = store_of(&header, b"data");
        store.mark(&packet);
        header[1] = 0x3f;
        assert_eq!(store.entries[0].packet.packet().to_vec(), [&header[..], b"data"].concat());
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
    fn an_entry_is_free_when_its_last_copy_is() {
        let (mut store, packet) = store_of(&[0x45; 20], b"");
        let copy = packet.clone();
        store.free(packet);
        assert!(!store.is_empty());
        store.free(copy);
        assert!(store.is_empty());
    }
}
