//! A host's path up: sent packets go back to the stack as tickets, received packets go through GRO into it,
//! and the stack's events go to the applications. Called by `host.rs` in a turn.

use taut_core::{ConnId, Event, Fate, Frame, GATHER_MAX, Gather, RxChecksum, RxPacket};
use taut_link::Gro;
use taut_wire::raw;

use super::{Host, is_pure_ack};
use crate::packet::{PacketId, Pool};
use crate::parts::fabric::Fabric;
use crate::probe::ProbeEvent;

impl Host {
    /// The NIC reports the packets that it has sent.
    pub(super) fn complete(&mut self, fabric: &mut Fabric) {
        let now = fabric.now;
        let Self { nic, tickets, stack, returns, .. } = self;
        let frames = nic.complete(now, |slot| {
            if returns.keeps(now, slot) {
                return;
            }
            if let Some(ticket) = tickets.take(slot) {
                stack.handle_tx(now, ticket, Fate::Left);
            }
        });
        self.counts.completions += u64::from(frames);
        if fabric.probes.want.interrupts {
            fabric.probes.tell(now, &ProbeEvent::Interrupt { host: self.id, transmit: true, frames });
        }
    }

    pub(super) fn take_received(&mut self, fabric: &mut Fabric) {
        let now = fabric.now;
        let mut batch = std::mem::take(&mut self.batch);
        self.nic.take_received(&mut batch);
        // More packets may have come while the core was busy; the first ones are already charged.
        let more = (batch.len() as u64).saturating_sub(std::mem::take(&mut self.cpu.reckoned));
        self.cpu.owe(self.cpu.model.rx_segment, more);
        let mut runs = 0_u64;
        let mut rest = batch.as_slice();
        while !rest.is_empty() {
            let count = if self.nic.spec().gro { run(&fabric.pool, rest) } else { 1 };
            let (run, after) = rest.split_at(count);
            rest = after;
            self.counts.packets_in += 1;
            runs += 1;
            if let Some(first) = run.first() {
                self.counts.acks_in += u64::from(is_pure_ack(fabric, first));
            }
            let stack = &mut self.stack;
            with_merged(&fabric.pool, run, &mut self.scratch, |packet| stack.handle_packet(now, packet));
            if fabric.probes.want.acks {
                self.tell_ack(fabric, run);
            }
            if !self.batched || self.stack.must_answer() {
                self.pump(fabric);
            }
        }
        self.cpu.owe(self.cpu.model.rx_packet, runs.saturating_sub(1));
        for packet in batch.drain(..) {
            fabric.pool.free(packet);
        }
        self.batch = batch;
    }

    fn tell_ack(&mut self, fabric: &mut Fabric, run: &[PacketId]) {
        let Some(packet) = run.first().map(|first| fabric.pool.get(first)) else { return };
        let Some(&conn) = self.by_flow.get(&packet.flow) else { return };
        if let Some(info) = self.stack.conn(conn).map(|conn| conn.info(fabric.now)) {
            fabric.probes.tell(fabric.now, &ProbeEvent::Ack { host: self.id, conn, info: &info });
        }
    }

    /// Passes the stack's events to the applications.
    pub(super) fn collect(&mut self, fabric: &mut Fabric) {
        while let Some(event) = self.stack.poll_event() {
            self.apps.tell(event);
            if let Event::Failed(conn, _) | Event::Closed(conn) = event {
                self.gates.remove(&conn);
            }
        }
        if fabric.probes.want.blocked {
            self.tell_gates(fabric);
        }
    }

    fn tell_gates(&mut self, fabric: &mut Fabric) {
        let ids: Vec<ConnId> = self.apps.conns().collect();
        for conn in ids {
            let Some(gate) = self.stack.conn(conn).map(|conn| conn.blocked()) else { continue };
            if self.gates.insert(conn, gate.name()) != Some(gate.name()) {
                fabric.probes.tell(fabric.now, &ProbeEvent::Blocked { host: self.id, conn, gate });
            }
        }
    }

    /// Notes that a connection belongs to an application now.
    pub(crate) fn on_conn(&mut self, id: ConnId) {
        if let Some(conn) = self.stack.conn_mut(id) {
            let flow = raw::flow_between(conn.as_ref().peer_addr(), conn.as_ref().local_addr());
            self.by_flow.insert(flow, id);
        }
    }

    /// Notes that a connection was released.
    pub(crate) fn on_conn_gone(&mut self, id: ConnId) {
        if let Some(conn) = self.stack.conn_mut(id) {
            let flow = raw::flow_between(conn.as_ref().peer_addr(), conn.as_ref().local_addr());
            self.by_flow.remove(&flow);
        }
        self.gates.remove(&id);
    }
}

/// The number of packets at the front of `batch` that go up as one.
fn run(pool: &Pool, batch: &[PacketId]) -> usize {
    let Some((first, rest)) = batch.split_first() else { return 0 };
    let head = pool.get(first);
    if head.verify || rest.is_empty() {
        return 1;
    }
    let mut gro = Gro::new(head.header(), pool.payload_len(first) as usize);
    let mut pieces = 1;
    let joins = |(last, id): &(&PacketId, &PacketId)| {
        let next = pool.get(id);
        pieces += usize::from(!pool.continues(last, id));
        !next.verify
            && pieces < GATHER_MAX
            && gro.add(head.header(), next.header(), pool.payload_len(id) as usize)
    };
    1 + batch.iter().zip(rest).take_while(joins).count()
}

/// Calls `f` with the packet that `ids`, a [`run`], form. `scratch` is for its header.
fn with_merged(pool: &Pool, ids: &[PacketId], scratch: &mut Vec<u8>, f: impl FnOnce(RxPacket<'_>)) {
    let [first, rest @ ..] = ids else { return };
    let packet = pool.get(first);
    let checksum = if packet.verify { RxChecksum::Unverified } else { RxChecksum::Verified };
    let mut header = packet.header();
    if header.is_empty() {
        let frame = Frame::Slice(pool.payload(first));
        return f(RxPacket { frame, checksum, gso_size: 0 });
    }
    let mut payload = Gather::EMPTY;
    pool.gather(ids, &mut payload);
    let mut gso_size = 0;
    if let Some(last) = rest.last() {
        gso_size = pool.payload_len(first) as u16;
        scratch.clear();
        scratch.extend_from_slice(header);
        raw::join(scratch, pool.get(last).header(), payload.len());
        header = scratch;
    }
    f(RxPacket { frame: Frame::Gather { header, payload }, checksum, gso_size });
}
