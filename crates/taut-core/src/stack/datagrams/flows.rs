//! Flows of datagrams: UDP from one address and port to another, and echo requests of one program. RFC 4787
//! §4.3 (idle time), RFC 1812 §4.3.2.7–8 (errors); gVisor's UDP forwarder does the same job. Called by
//! `link.rs` for datagrams that no socket takes, by the application, and when time passes.
//!
//! ```text
//!   datagram ─▶ New ─ next_flow ─▶ Pending ─┬─ accept_datagram_flow ─▶ a connected socket with the first datagrams
//!      │                                    ├─ refuse_flow ─▶ an ICMP error leaves, about the first datagram
//!      ▼                                    └─ drop_flow ───▶ Dropped: its datagrams are not kept
//!   its queue: 16 KiB and one more
//! ```
//!
//! A flow is a connected socket from its first datagram on (`datagram/flow.rs`), so that all further ones
//! find it by the same look into the same table. When nothing happens on an accepted one for the filter's
//! idle time, or when its owner closes it, the next datagram begins another flow.

use alloc::vec::Vec;
use core::net::SocketAddr;

use taut_wire::protocol;
use taut_wire::udp::{self, UdpHeader};

use crate::datagram::flow::{FlowPart, Stage};
use crate::datagram::inbox::Incoming;
use crate::datagram::socket::Socket;
use crate::datagram::{DatagramError, DatagramKind, DatagramOptions, OVERHEAD_BYTES};
use crate::ip::outgoing::IpOut;
use crate::stack::incoming::{FlowKind, PendingFlow, Refusal, Sources, is_routable};
use crate::stack::{News, Stack};
use crate::words::{DatagramId, Endpoint, FlowError, FlowId, Instant, ListenerId, Tuple};

/// The most datagram flows of a stack: half of the slots for sockets.
const FLOWS_MAX: usize = 1 << 15;

/// The receiver of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receiver {
    /// This socket.
    Socket(u32),
    /// Nobody: its sender may be told.
    Nobody,
    /// Nobody, and that is counted.
    Dropped,
}

const fn socket_kind(kind: FlowKind) -> DatagramKind {
    if matches!(kind, FlowKind::Echo) { DatagramKind::Echo } else { DatagramKind::Udp }
}

impl Stack {
    // ---- the application ----

    /// Accepts a flow of datagrams: it is a connected socket now, and the first datagrams wait in it. The
    /// caller must [close](Self::close_datagram) it. It sends to the flow's source only, from the flow's
    /// destination. Without `options`, it has those of the filter.
    ///
    /// # Errors
    ///
    /// See [`FlowError`].
    pub fn accept_datagram_flow(
        &mut self,
        now: Instant,
        id: FlowId,
        options: Option<&DatagramOptions>,
    ) -> Result<DatagramId, FlowError> {
        let flow = self.tables.flows.find(id).ok_or(FlowError::Gone)?;
        let slot = self.tables.flows.at(flow).and_then(PendingFlow::socket).ok_or(FlowError::OtherKind)?;
        let entry = self.tables.flows.remove(flow).ok_or(FlowError::Gone)?;
        let filter = self.tables.flows.filter_mut(entry.filter).ok_or(FlowError::Gone)?;
        filter.sources.decide(entry.tuple.peer.ip());
        let options = *options.unwrap_or(&filter.datagrams);
        let id = self.hold_flow(now, slot, entry.filter, &options).ok_or(FlowError::Gone)?;
        self.counters.datagram_flows_accepted += 1;
        Ok(id)
    }

    /// Begins a flow of UDP to the peer of an accepted one, from another address and port, as if the peer had
    /// sent there first: a gateway does it when another host sends to its guest's port. The caller must
    /// [close](Self::close_datagram) it. It has the options and the idle time of the filter.
    ///
    /// # Errors
    ///
    /// [`FlowError::Gone`] if there is no such socket or its filter is closed; [`FlowError::OtherKind`] for
    /// one that is not of a flow of UDP; [`FlowError::NoRoom`] if the limits of the filter, another socket,
    /// another shard or the address itself stand against it.
    pub fn begin_flow_from(
        &mut self,
        now: Instant,
        id: DatagramId,
        local: SocketAddr,
    ) -> Result<DatagramId, FlowError> {
        let socket = self.datagrams.table.get(id).ok_or(FlowError::Gone)?;
        let (Some(flow), Some(peer), DatagramKind::Udp) = (&socket.flow, socket.peer, socket.kind) else {
            return Err(FlowError::OtherKind);
        };
        let (through, local) = (flow.filter, Endpoint::from(local));
        let is_here = self.steering.as_ref().is_none_or(|steering| steering.is_own(local, peer));
        let is_taken = self.datagrams.table.find_exact(DatagramKind::Udp, local, peer).is_some();
        let is_fit = local.ip().is_ipv4() == peer.ip().is_ipv4() && is_routable(local.ip());
        let filter = self.tables.flows.filter_mut(through).ok_or(FlowError::Gone)?;
        let has_room = self.datagrams.table.flows() < FLOWS_MAX && filter.sources.may_begin(peer.ip(), 0);
        if !is_here || is_taken || !is_fit || local.port() == 0 || !has_room {
            return Err(FlowError::NoRoom);
        }
        filter.sources.begin(peer.ip());
        filter.sources.decide(peer.ip());
        let options = filter.datagrams;
        let socket = Socket::of_flow(DatagramKind::Udp, (local, peer), FlowPart::new(through, now), 0);
        let slot = self.datagrams.table.insert(socket).slot;
        self.hold_flow(now, slot, through, &options).ok_or(FlowError::Gone)
    }

    /// The application has the socket of a flow from now on.
    fn hold_flow(
        &mut self,
        now: Instant,
        slot: u32,
        filter: ListenerId,
        options: &DatagramOptions,
    ) -> Option<DatagramId> {
        let idle = self.sources(filter)?.limits.idle_timeout;
        let socket = self.datagrams.table.at_mut(slot)?;
        socket.accept(options);
        let look_at = now + idle;
        if let Some(flow) = socket.flow.as_deref_mut() {
            (flow.stage, flow.idle, flow.used, flow.look_at) = (Stage::Accepted, idle, now, look_at);
        }
        let id = DatagramId { slot, generation: socket.generation };
        let waits = !socket.inbox.is_empty();
        socket.news.readable |= waits;
        self.datagrams.idle.insert((look_at, slot));
        self.update_side_deadline();
        if waits {
            self.tell(slot);
        }
        Some(id)
    }

    /// Tells the peer of a flow, by an ICMP error about its latest datagram, that datagrams do not arrive: as
    /// a gateway does when it hears so from beyond. The socket stays open. Returns false if the limit on ICMP
    /// errors does not allow it now.
    ///
    /// # Errors
    ///
    /// [`DatagramError::Closed`], or [`DatagramError::Invalid`] for a socket that is not of a flow.
    pub fn refuse_datagrams(
        &mut self,
        now: Instant,
        id: DatagramId,
        how: Refusal,
    ) -> Result<bool, DatagramError> {
        let socket = self.datagrams.table.get(id).ok_or(DatagramError::Closed)?;
        let (Some(flow), Some(peer)) = (&socket.flow, socket.peer) else {
            return Err(DatagramError::Invalid);
        };
        let tuple = Tuple { local: socket.local, peer };
        let quoted = quoted(&tuple, socket.kind, &flow.quote, 64, 0);
        Ok(self.refuse_datagram(now, &tuple, how, &quoted))
    }

    // ---- packets ----

    /// Who receives a datagram of `bytes` bytes: a socket, or a flow of a filter, which may begin with it.
    pub(super) fn receiver(&mut self, now: Instant, kind: FlowKind, tuple: &Tuple, bytes: usize) -> Receiver {
        let Tuple { local, peer } = *tuple;
        let table = &self.datagrams.table;
        // A socket at every address is one at every address of ours.
        let elsewhere = self.may_be_flow(local.ip()) && !self.is_own(local.ip());
        let found = if elsewhere || kind == FlowKind::Echo {
            table.find_exact(socket_kind(kind), local, peer)
        } else {
            table.find(socket_kind(kind), local, peer)
        };
        if let Some(slot) = found {
            let flow = self.datagrams.table.at(slot).and_then(|socket| socket.flow.as_deref());
            if flow.is_some_and(|flow| flow.stage == Stage::Silent) {
                self.counters.in_discards += 1;
                return Receiver::Dropped;
            }
            return Receiver::Socket(slot);
        }
        if let Some(filter) = self.tables.flows.filter_for(kind, local) {
            return self.begin_datagram_flow(now, (kind, filter), tuple, bytes);
        }
        if self.stands_in_for(local.ip()) {
            return Receiver::Nobody;
        }
        self.counters.in_discards += 1;
        Receiver::Dropped
    }

    fn begin_datagram_flow(
        &mut self,
        now: Instant,
        (kind, id): (FlowKind, ListenerId),
        tuple: &Tuple,
        bytes: usize,
    ) -> Receiver {
        // As for a SYN; and a datagram without a source port asks for no answer (RFC 768), so that there is
        // no flow.
        let (ip, local) = (tuple.peer.ip(), tuple.local.ip());
        let is_martian = self.config.addresses.contains(&ip) || !is_routable(ip) || !is_routable(local);
        if is_martian || kind == FlowKind::Udp && (tuple.peer.port() == 0 || tuple.local.port() == 0) {
            self.counters.in_discards += 1;
            return Receiver::Dropped;
        }
        let Some(filter) = self.tables.flows.filter_mut(id) else { return Receiver::Nobody };
        if self.datagrams.table.flows() >= FLOWS_MAX || !filter.sources.may_begin(ip, bytes + OVERHEAD_BYTES)
        {
            self.counters.datagram_flows_overflows += 1;
            return Receiver::Dropped;
        }
        filter.sources.begin(ip);
        let pending_bytes = filter.sources.limits.pending_bytes;
        let ends = (tuple.local, tuple.peer);
        let socket = Socket::of_flow(socket_kind(kind), ends, FlowPart::new(id, now), pending_bytes);
        let slot = self.datagrams.table.insert(socket).slot;
        let Some(filter) = self.tables.flows.filter(id) else { return Receiver::Nobody };
        let flow = PendingFlow::of_datagrams(*tuple, filter, now, kind, slot);
        if self.tables.flows.insert(flow).is_none() {
            self.datagrams.table.remove_at(slot);
            return Receiver::Dropped;
        }
        self.counters.datagram_flows_in += 1;
        if let Some(listener) = self.listeners.get_mut(id).filter(|listener| !listener.notified) {
            listener.notified = true;
            self.incoming.push_back(News::Listener(id));
        }
        Receiver::Socket(slot)
    }

    /// A datagram arrives for the socket of a flow; `quote` is what an error about it would quote. Returns
    /// whether there was room.
    pub(super) fn deliver_to_flow(
        &mut self,
        now: Instant,
        slot: u32,
        incoming: Incoming,
        quote: [u8; 8],
    ) -> bool {
        let Some(socket) = self.datagrams.table.at_mut(slot) else { return false };
        let (Some(flow), Some(peer)) = (socket.flow.as_deref_mut(), socket.peer) else { return false };
        (flow.used, flow.quote) = (now, quote);
        if !socket.inbox.has_room() {
            return false;
        }
        if let Some(filter) = self.tables.flows.filter_mut(flow.filter) {
            if !filter.sources.has_room(peer.ip(), incoming.memory()) {
                socket.inbox.note_drop();
                return false;
            }
            filter.sources.charge(peer.ip(), incoming.memory());
        }
        let is_held = flow.is_held();
        socket.inbox.push(incoming);
        if is_held {
            socket.news.readable = true;
            self.tell(slot);
        }
        true
    }

    /// Datagrams of an accepted flow were read.
    pub(super) fn release_queued(&mut self, filter: ListenerId, peer: Endpoint, bytes: usize) {
        if let Some(sources) = self.sources(filter) {
            sources.release(peer.ip(), bytes);
        }
    }

    /// Sends an ICMP error about a datagram to the peer of its flow. Returns whether the limit allows it.
    fn refuse_datagram(&mut self, now: Instant, tuple: &Tuple, how: Refusal, quoted: &[u8]) -> bool {
        let how = if how == Refusal::Reset { Refusal::PortUnreachable } else { how };
        let src = self.source_of_error(tuple.local.ip(), how);
        self.send_refusal(now, src, tuple.peer.ip(), how, quoted)
    }

    // ---- the end ----

    /// An undecided flow is refused.
    pub(crate) fn refuse_pending(&mut self, now: Instant, flow: &PendingFlow, how: Refusal) {
        let Some(slot) = flow.socket() else { return };
        let Some(socket) = self.datagrams.table.at(slot) else { return };
        self.counters.datagram_flows_refused += 1;
        let Some(first) = socket.inbox.front() else { return };
        let bytes: Vec<u8> = match flow.kind() {
            FlowKind::Echo => first.bytes.clone(),
            _ => udp_datagram(&flow.tuple, &first.bytes),
        };
        let quoted = quoted(&flow.tuple, socket.kind, &bytes, first.hops, first.class);
        self.refuse_datagram(now, &flow.tuple, how, &quoted);
    }

    /// A flow is dropped: what waits in it is forgotten, and what comes is not kept.
    pub(crate) fn silence_datagrams(&mut self, flow: u32) {
        let Some(entry) = self.tables.flows.at(flow) else { return };
        let (Some(slot), id, peer) = (entry.socket(), entry.filter, entry.tuple.peer.ip()) else { return };
        let Some(socket) = self.datagrams.table.at_mut(slot) else { return };
        let bytes = socket.inbox.memory();
        socket.inbox.clear();
        if let Some(flow) = socket.flow.as_deref_mut() {
            flow.stage = Stage::Silent;
        }
        if let Some(sources) = self.sources(id) {
            sources.release(peer, bytes);
        }
    }

    /// The socket of an undecided or dropped flow that has left the table of flows.
    pub(crate) fn forget_datagrams(&mut self, flow: &PendingFlow) {
        let Some(socket) = flow.socket().and_then(|slot| self.datagrams.table.remove_at(slot)) else {
            return;
        };
        if let Some(sources) = self.sources(flow.filter) {
            sources.release(flow.tuple.peer.ip(), socket.inbox.memory());
        }
    }

    /// The owner of an accepted flow has closed its socket.
    pub(super) fn end_datagram_flow(&mut self, slot: u32, socket: &Socket) {
        let (Some(flow), Some(peer)) = (&socket.flow, socket.peer) else { return };
        self.datagrams.idle.remove(&(flow.look_at, slot));
        if let Some(sources) = self.sources(flow.filter) {
            sources.release(peer.ip(), socket.inbox.memory());
            sources.end(peer.ip());
        }
        self.update_side_deadline();
    }

    /// Flows on which nothing has happened for too long are over.
    pub(super) fn on_idle_flows(&mut self, now: Instant) {
        while let Some(&(at, slot)) = self.datagrams.idle.first() {
            if at > now {
                break;
            }
            self.datagrams.idle.pop_first();
            let Some(socket) = self.datagrams.table.at_mut(slot) else { continue };
            let Some(flow) = socket.flow.as_deref_mut() else { continue };
            flow.look_at = flow.used + flow.idle;
            if flow.look_at > now {
                self.datagrams.idle.insert((flow.look_at, slot));
                continue;
            }
            flow.stage = Stage::Over;
            (socket.news.readable, socket.news.writable) = (true, true);
            self.datagrams.table.deafen(slot);
            self.counters.datagram_flows_idle += 1;
            self.tell(slot);
        }
    }

    pub(crate) fn sources(&mut self, filter: ListenerId) -> Option<&mut Sources> {
        self.tables.flows.filter_mut(filter).map(|filter| &mut filter.sources)
    }
}

/// A datagram of the flow, with its header.
fn udp_datagram(tuple: &Tuple, payload: &[u8]) -> Vec<u8> {
    let Tuple { local, peer } = *tuple;
    let len = udp::HEADER_LEN + payload.len();
    let mut bytes = alloc::vec![0; udp::HEADER_LEN];
    UdpHeader { src_port: peer.port(), dst_port: local.port(), len: len as u16 }.emit(&mut bytes);
    let checksum = udp::full_checksum(peer.ip(), local.ip(), &bytes, &[payload]);
    udp::set_checksum(&mut bytes, checksum);
    bytes.extend_from_slice(payload);
    bytes
}

/// The packet of a datagram as it arrived, for an error about it. `start` is what follows the IP header, or
/// the first eight bytes of that.
fn quoted(tuple: &Tuple, kind: DatagramKind, start: &[u8], hop_limit: u8, class: u8) -> Vec<u8> {
    let (src, dst) = (tuple.peer.ip(), tuple.local.ip());
    let len = match (kind, start) {
        // What a header of UDP says, of which there may be no more.
        (DatagramKind::Udp, &[_, _, _, _, high, low, ..]) => usize::from(u16::from_be_bytes([high, low])),
        _ => start.len(),
    };
    let ip = IpOut { class, ..IpOut::icmp(src, dst, hop_limit) };
    let ip = if kind == DatagramKind::Udp { IpOut { protocol: protocol::UDP, ..ip } } else { ip };
    let mut packet = alloc::vec![0; ip.header_len()];
    ip.emit(&mut packet, len);
    packet.extend_from_slice(start);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::incoming::entry_bytes;

    #[test]
    fn in_29_a_flow_takes_at_most_576_bytes() {
        // The socket, what makes it a flow's, its slot, its entry by key, and that of its decision.
        let bytes = size_of::<Socket>() + size_of::<FlowPart>() + 8 + 8 + entry_bytes();
        assert!(bytes <= 576, "{bytes}");
    }
}
