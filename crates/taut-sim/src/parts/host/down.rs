//! A host's path down: the stack's packets go into the root queue, and from there to the NIC while it has
//! room; the NIC cuts them into segments. Called by `host.rs` in a turn.

use std::net::IpAddr;

use taut_core::{Fate, Instant, Offload, Transmit, TxTicket};
use taut_link::{Packet, Qdisc, Verdict};
use taut_wire::raw;

use super::{Host, is_pure_ack};
use crate::ids::HostId;
use crate::packet::{Claim, NO_TICKET, PacketId};
use crate::parts::fabric::Fabric;
use crate::probe::{PacketView, Place, ProbeEvent};

/// Most packets that the root queue may refuse in one turn; then the stack is not asked again until something
/// happens.
const REFUSALS_MAX: u32 = 64;

impl Host {
    /// Takes everything that the stack has to send.
    pub(crate) fn pump(&mut self, fabric: &mut Fabric) {
        let now = fabric.now;
        let mut refusals = 0;
        while refusals < REFUSALS_MAX && !self.returns.is_full() {
            let Some(Transmit { packet, ticket }) = self.stack.poll_transmit(now) else { break };
            if self.returns.refuses(now) {
                self.stack.handle_tx(now, ticket, Fate::Refused);
                fabric.agenda.set(self.alarms.returns, self.returns.next());
                break;
            }
            let id = fabric.pool.put(now, &packet, self.id);
            let to = raw::destination(packet.header);
            let is_ack = packet.payload.is_empty() && !matches!(packet.offload, Offload::None);
            self.counts.bytes_handed += packet.len() as u64;
            let departure = packet.departure;
            self.counts.packets_out += 1;
            self.counts.acks_out += u64::from(is_ack && is_pure_ack(fabric, &id));
            self.cpu.owe(self.cpu.model.tx_packet, 1);
            let Some(to) = to.and_then(|to| self.find(fabric, to)) else {
                // No host has this address: as if a distant router had no route to it.
                self.stack.handle_tx(now, ticket, Fate::Left);
                fabric.lose(Place::Root(self.id), id);
                continue;
            };
            let slot = self.tickets.put(ticket);
            let packet = fabric.pool.get_mut(&id);
            (packet.to, packet.ticket) = (to, slot);
            refusals += u32::from(!self.enqueue(fabric, departure, id, slot));
            self.feed(fabric);
        }
    }

    /// The host with this address.
    fn find(&mut self, fabric: &Fabric, to: IpAddr) -> Option<HostId> {
        if let Some((address, host)) = self.latest_to
            && address == to
        {
            return Some(host);
        }
        let host = fabric.addresses.get(&to).copied()?;
        self.latest_to = Some((to, host));
        Some(host)
    }

    /// Puts a packet into the root queue. Returns false if the queue refuses it.
    fn enqueue(&mut self, fabric: &mut Fabric, departure: Instant, id: PacketId, slot: u32) -> bool {
        let now = fabric.now;
        if fabric.probes.want.packets {
            let packet = PacketView::new(&fabric.pool, &id);
            let backlog_bytes = self.root.backlog_bytes() + u64::from(packet.len());
            fabric.probes.tell(now, &ProbeEvent::Handed { host: self.id, packet, backlog_bytes });
        }
        let orphans = self.root.orphans();
        if orphans {
            // This queue stands for the path, not for a queue of the host: the stack is told that the packet
            // has left.
            fabric.pool.get_mut(&id).ticket = NO_TICKET;
        }
        let mut taken = true;
        let packet = fabric.dress(departure, id);
        match self.root.enqueue(now, packet) {
            Verdict::Taken => {}
            Verdict::Congested => {
                if let Some(conn) = self.tickets.get(slot).and_then(TxTicket::data_of) {
                    self.stack.handle_tx_congestion(now, conn);
                }
            }
            Verdict::Dropped(packet) => {
                taken = false;
                let id = fabric.pool.redeem(packet.item);
                fabric.pool.get_mut(&id).ticket = slot;
                self.lose(fabric, id, Fate::Dropped);
            }
        }
        if orphans && let Some(ticket) = self.tickets.take(slot).filter(|_| taken) {
            self.stack.handle_tx(now, ticket, Fate::Left);
        }
        self.throw_out(fabric);
        self.peak_below = self.peak_below.max(self.root.backlog_bytes() + self.nic.bytes());
        taken
    }

    /// Handles packets that the root queue dropped after taking them: they are lost, like packets on their
    /// way.
    fn throw_out(&mut self, fabric: &mut Fabric) {
        while let Some(packet) = self.root.poll_dropped() {
            let id = fabric.pool.redeem(packet.item);
            self.lose(fabric, id, Fate::Left);
        }
    }

    fn lose(&mut self, fabric: &mut Fabric, packet: PacketId, fate: Fate) {
        self.counts.dropped += 1;
        let slot = std::mem::replace(&mut fabric.pool.get_mut(&packet).ticket, NO_TICKET);
        if let Some(ticket) = self.tickets.take(slot) {
            self.stack.handle_tx(fabric.now, ticket, fate);
        }
        fabric.lose(Place::Root(self.id), packet);
    }

    /// Moves packets from the root queue to the NIC while it has room.
    pub(super) fn feed(&mut self, fabric: &mut Fabric) {
        while self.nic.room() {
            let Some(packet) = self.root.dequeue(fabric.now) else { break };
            self.post(fabric, packet);
        }
        self.throw_out(fabric);
    }

    /// The NIC takes a packet, cuts it, and sends the segments one after another.
    fn post(&mut self, fabric: &mut Fabric, mut packet: Packet<Claim>) {
        let now = fabric.now;
        let bytes = packet.len;
        // A damaged super-packet has one flipped bit, in one of its segments.
        let damage = if packet.segs > 1 { packet.corrupt.take() } else { None };
        let whole = fabric.undress(packet);
        let slot = std::mem::replace(&mut fabric.pool.get_mut(&whole).ticket, NO_TICKET);
        let segs = fabric.pool.segs(&whole);
        self.counts.segments_out += u64::from(segs);
        self.counts.bytes_out += u64::from(bytes);
        let place = Place::Nic(self.id);
        let mut sent = now;
        let mut send = |fabric: &mut Fabric, segment: PacketId, len: u32| {
            sent = self.nic.send(now, len);
            fabric.tell_sent(place, sent, &segment);
            match self.wire {
                Some(wire) => fabric.launch(wire, sent, segment),
                None => fabric.lose(place, segment),
            }
        };
        if segs == 1 {
            send(fabric, whole, bytes);
        } else {
            for index in 0..segs {
                let segment = fabric.pool.cut(&whole, index);
                if let Some(bit) = damage.filter(|_| index == 0) {
                    fabric.pool.corrupt(&segment, u64::from(bit));
                }
                let len = fabric.pool.len(&segment);
                send(fabric, segment, len);
            }
            fabric.pool.free(whole);
        }
        self.nic.post(sent, slot, bytes);
    }
}
