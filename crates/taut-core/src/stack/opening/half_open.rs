//! The half-open connections of all listeners: their table, their timers, and the segments for them. RFC 9293
//! §3.10.7.4; Linux: `inet_reqsk_alloc`, `tcp_check_req`. What one remembers, and why so little, is in
//! [`conn::half_open`](crate::conn::half_open). Called by `passive.rs` for SYNs, by `input.rs` for later
//! segments, by `output.rs` when its SYN-ACK may leave, and when time passes.
//!
//! A half-open connection has a name of its own, with which tickets and snapshots refer to it; the connection
//! that it becomes has another.

use taut_wire::tcp::Flags as TcpFlags;
use taut_wire::{Ecn, TcpHeader};

use crate::buffers::BufferPool;
use crate::conn::half_open::{HalfOpen, Waited};
use crate::conn::state::State;
use crate::conn::{Arrival, Conn, Consequence, StackCx};
use crate::egress::{Shared, emit};
use crate::ip::outgoing::IpOut;
use crate::settings::options::tos_field;
use crate::stack::replies::Reply;
use crate::stack::tables::demux::{HALF_OPEN_BIT, Owner};
use crate::stack::tables::lists::Lists;
use crate::stack::{Stack, stack_cx};
use crate::stats::Counters;
use crate::words::{ConnId, Fate, Gather, Instant, Output, Transmit, TxPacket, TxTicket};

/// The list of those whose SYN-ACK was sent so many times and is waited for equally long: the longest time is
/// reached at the seventh, 120 s.
const LONGEST: usize = 7;
/// The list of those whose SYN-ACK has not left.
const NOT_SENT: usize = LONGEST + 1;

const fn list_of(entry: &HalfOpen) -> usize {
    match entry.deadline().as_nanos() {
        u64::MAX => NOT_SENT,
        _ if (entry.retries() as usize) < LONGEST => entry.retries() as usize,
        _ => LONGEST,
    }
}

/// All half-open connections.
#[derive(Debug)]
pub(crate) struct HalfOpenTable {
    entries: Lists<HalfOpen, { NOT_SENT + 1 }>,
    generation: u32,
}

impl HalfOpenTable {
    pub(crate) const fn new() -> Self {
        Self { entries: Lists::new(), generation: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.entries.len() as usize
    }

    /// The name that the next one gets.
    pub(crate) const fn next_id(&self) -> ConnId {
        ConnId { slot: self.entries.next_slot() | HALF_OPEN_BIT, generation: self.generation }
    }

    /// Adds one that was made for [`next_id`](Self::next_id).
    fn insert(&mut self, entry: HalfOpen) -> Option<u32> {
        self.generation = self.generation.wrapping_add(1);
        self.entries.push(list_of(&entry), entry)
    }

    pub(crate) fn at(&self, slot: u32) -> Option<&HalfOpen> {
        self.entries.get(slot)
    }

    /// The one with that name, and its slot.
    pub(crate) fn find(&self, id: ConnId) -> Option<(u32, &HalfOpen)> {
        let slot = id.slot.checked_sub(HALF_OPEN_BIT)?;
        Some((slot, self.at(slot).filter(|entry| entry.generation == id.generation)?))
    }

    /// The names of all.
    pub(crate) fn ids(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.entries
            .iter()
            .map(|(slot, entry)| ConnId { slot: slot | HALF_OPEN_BIT, generation: entry.generation })
    }

    /// Changes one, whose deadline may move.
    fn change<R>(&mut self, slot: u32, f: impl FnOnce(&mut HalfOpen) -> R) -> Option<R> {
        let entry = self.entries.get_mut(slot)?;
        let (from, deadline) = (list_of(entry), entry.deadline());
        let result = f(entry);
        let (to, moved) = (list_of(entry), entry.deadline() != deadline);
        if moved {
            self.entries.move_to_end(from, to, slot);
        }
        Some(result)
    }

    fn remove(&mut self, slot: u32) -> Option<HalfOpen> {
        self.entries.remove(list_of(self.entries.get(slot)?), slot)
    }

    /// The earliest deadline, and whose it is.
    fn next(&self) -> Option<(Instant, u32)> {
        if self.len() == 0 {
            return None;
        }
        let firsts = (0..NOT_SENT).map(|list| self.entries.first(list));
        firsts.filter_map(|slot| Some((self.at(slot)?.deadline(), slot))).min()
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.next().map(|(at, _)| at)
    }

    fn expired(&self, now: Instant) -> Option<u32> {
        self.next().filter(|&(at, _)| at <= now).map(|(_, slot)| slot)
    }
}

impl Stack {
    /// Adds a half-open connection whose listener has room.
    pub(crate) fn begin_half_open(&mut self, entry: HalfOpen) {
        let (tuple, listener, is_due) = (entry.tuple, entry.listener, entry.syn_ack_due);
        let id = self.tables.half_open.next_id();
        let Some(slot) = self.tables.half_open.insert(entry) else { return };
        self.tables.insert(&tuple, Owner::HalfOpen(slot));
        if let Some(listener) = self.listeners.get_mut(listener) {
            listener.begin(tuple.peer.ip());
            listener.by_age.push_back(id);
            if listener.by_age.len() > 2 * listener.half_open as usize + 64 {
                let half_open = &self.tables.half_open;
                listener.by_age.retain(|&id| half_open.find(id).is_some());
            }
        }
        if is_due {
            self.queue_syn_ack(slot);
        }
    }

    fn queue_syn_ack(&mut self, slot: u32) {
        let Some(entry) = self.tables.half_open.entries.get_mut(slot) else { return };
        if !core::mem::replace(&mut entry.queued_for_output, true) {
            self.ready.push_back(slot | HALF_OPEN_BIT);
        }
    }

    /// The handshake is over, in failure.
    pub(crate) fn drop_half_open(&mut self, slot: u32) {
        let Some(entry) = self.tables.half_open.remove(slot) else { return };
        self.tables.demux.remove(&entry.tuple, Owner::HalfOpen(slot));
        if let Some(listener) = self.listeners.get_mut(entry.listener) {
            listener.half_open = listener.half_open.saturating_sub(1);
            let peer = entry.tuple.peer.ip();
            listener.counts.leave_half_open(peer);
            listener.counts.remove(peer);
        }
    }

    /// A segment for a half-open connection.
    pub(crate) fn on_half_open(&mut self, now: Instant, slot: u32, arrival: Arrival<'_>) {
        let (header, mark, len) = (arrival.header, arrival.mark, arrival.len());
        let Some(entry) = self.tables.half_open.at(slot) else { return };
        if entry.is_same_syn(header) {
            return self.on_repeated_syn(now, slot, header, mark);
        }
        let Some(listener) = self.listeners.get(entry.listener) else { return };
        let tuple = entry.tuple;
        let id = self.tables.conns.next_id();
        let mut cx = stack_cx!(self, now);
        let mut conn = entry.connection(&mut cx, &listener.options.conn, id);
        let consequence = conn.on_segment(&mut cx, arrival);
        match conn.state {
            State::SynReceived => {
                self.tables.half_open.change(slot, |entry| entry.remember(&conn));
                self.reply_for(now, conn);
            }
            State::Closed => {
                self.drop_half_open(slot);
                self.reply_for(now, conn);
            }
            _ => self.complete(now, slot, conn),
        }
        if consequence == Consequence::Reset {
            self.reset(&tuple, header, len);
        }
    }

    /// The peer did not get our SYN-ACK, or it changes its mind about ECN.
    fn on_repeated_syn(&mut self, now: Instant, slot: u32, header: &TcpHeader, mark: Ecn) {
        let mut cx = stack_cx!(self, now);
        let agrees = self.tables.half_open.change(slot, |entry| entry.on_repeated_syn(&mut cx, header, mark));
        if agrees == Some(true) {
            return self.queue_syn_ack(slot);
        }
        let Some(entry) = self.tables.half_open.at(slot) else { return };
        let tuple = entry.tuple;
        let answer = TcpHeader {
            src_port: tuple.local.port(),
            dst_port: tuple.peer.port(),
            seq: crate::words::seq::wire(entry.first()),
            ack: header.seq.wrapping_add(1),
            flags: TcpFlags::RST | TcpFlags::ACK,
            ..TcpHeader::default()
        };
        self.drop_half_open(slot);
        if self.replies.push(Reply::Tcp { src: tuple.local.ip(), dst: tuple.peer.ip(), header: answer }) {
            self.counters.out_rsts += 1;
        }
    }

    /// What a connection that is not kept has to say: a challenge ACK, or a RST.
    fn reply_for(&mut self, now: Instant, mut conn: Conn) {
        let segment = if conn.wants_output() { conn.poll_output(&mut stack_cx!(self, now)) } else { None };
        if let Some(segment) = segment {
            let (src, dst) = (conn.tuple.local.ip(), conn.tuple.peer.ip());
            self.replies.push(Reply::Tcp { src, dst, header: segment.header });
        }
        conn.discard(&mut self.pool);
    }

    /// The handshake of this connection is complete: it takes its place.
    fn complete(&mut self, now: Instant, slot: u32, conn: Conn) {
        let Some(entry) = self.tables.half_open.remove(slot) else { return };
        let id = self.tables.conns.next_id();
        let new = self.tables.conns.insert(conn);
        self.pool.budget.set_connections(self.tables.conns.len());
        self.tables.demux.replace(&entry.tuple, Owner::HalfOpen(slot), Owner::Conn(new));
        if let Some(listener) = self.listeners.get_mut(entry.listener) {
            listener.half_open = listener.half_open.saturating_sub(1);
            listener.counts.leave_half_open(entry.tuple.peer.ip());
        }
        self.offer(entry.listener, id);
        self.settle(now, new);
    }

    /// An ICMP error says that the destination is unreachable, and quotes a segment with this number.
    pub(crate) fn on_half_open_unreachable(&mut self, slot: u32, wire_seq: u32) {
        if self.tables.half_open.at(slot).is_some_and(|entry| entry.is_in_flight(wire_seq)) {
            self.counters.attempt_fails += 1;
            self.drop_half_open(slot);
        }
    }

    /// Takes a half-open connection out of the ready queue: whether its SYN-ACK must leave.
    pub(crate) fn wants_syn_ack(&mut self, slot: u32) -> bool {
        self.tables.half_open.entries.get_mut(slot).is_some_and(|entry| {
            entry.queued_for_output = false;
            entry.syn_ack_due
        })
    }

    /// The SYN-ACK of a half-open connection leaves.
    pub(crate) fn transmit_syn_ack(&mut self, now: Instant, slot: u32) -> Option<Transmit<'_>> {
        let cx = stack_cx!(self, now);
        let (header, mark) = self.tables.half_open.change(slot, |entry| entry.syn_ack(&cx))?;
        let entry = self.tables.half_open.at(slot)?;
        let option = entry.gives_cookie.filter(|_| entry.is_first());
        let option = option.map(|experimental| self.cookie_for(entry.listener, &entry.tuple, experimental));
        let (first, generation) = (entry.first(), entry.generation);
        let tos =
            self.listeners.get(entry.listener).map_or(0, |listener| tos_field(listener.options.conn.tos));
        let (src, dst) = (entry.tuple.local.ip(), entry.tuple.peer.ip());
        let ip = IpOut::tcp(src, dst, self.config.ip_default_ttl, tos | mark.to_bits());
        let (header_len, offload) =
            emit::syn_packet(&mut self.header, &ip, header, option, &Gather::EMPTY, &self.caps);
        self.counters.out_requests += 1;
        self.counters.out_segs += 1;
        let ticket = TxTicket {
            conn: Some(ConnId { slot: slot | HALF_OPEN_BIT, generation }),
            start: first,
            end: first,
            handed: now,
            prior_departure: now,
            output: Output::Syn,
            ..TxTicket::blank()
        };
        let header = self.header.get(..header_len).unwrap_or_default();
        Some(Transmit {
            packet: TxPacket { header, payload: Gather::EMPTY, offload, departure: now },
            ticket,
        })
    }

    /// The device reports the fate of a SYN-ACK.
    pub(crate) fn on_syn_ack_fate(&mut self, ticket: &TxTicket, fate: Fate) {
        let found = ticket.conn.and_then(|id| self.tables.half_open.find(id)).map(|(slot, _)| slot);
        if let Some(slot) = found.filter(|_| fate == Fate::Refused) {
            self.counters.out_requests -= 1;
            self.counters.out_segs -= 1;
            self.tables.half_open.change(slot, HalfOpen::on_refused);
            self.queue_syn_ack(slot);
        }
    }

    /// Handles every deadline that has passed.
    pub(crate) fn on_half_open_timeouts(&mut self, now: Instant) {
        while let Some(slot) = self.tables.half_open.expired(now) {
            let listener =
                self.tables.half_open.at(slot).and_then(|entry| self.listeners.get(entry.listener));
            let waited = listener.and_then(|listener| {
                let mut cx = stack_cx!(self, now);
                self.tables.half_open.change(slot, |entry| entry.on_timeout(&mut cx, &listener.options.conn))
            });
            match waited {
                Some(Waited::Again) => self.queue_syn_ack(slot),
                Some(Waited::TooLong) | None => self.drop_half_open(slot),
            }
        }
    }

    /// A view of one, as the connection that it would become.
    pub(crate) fn view_half_open(&self, id: ConnId) -> Option<Conn> {
        let (_, entry) = self.tables.half_open.find(id)?;
        let options = &self.listeners.get(entry.listener)?.options.conn;
        let (mut pool, mut counters, mut shared) =
            (BufferPool::new(), Counters::default(), Shared::default());
        let mut cx = StackCx {
            now: Instant::ZERO,
            config: &self.config,
            link: &self.caps,
            pool: &mut pool,
            counters: &mut counters,
            shared: &mut shared,
            must_answer: &mut false,
        };
        Some(entry.connection(&mut cx, options, id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_01_is_small() {
        // With eight bytes of links in its table; its entry among the tuples takes 5 to 10, its place in the
        // listener's order 8 to 16.
        let size = Lists::<HalfOpen, { NOT_SENT + 1 }>::entry_bytes();
        assert!(size <= 128, "{size}");
    }
}
