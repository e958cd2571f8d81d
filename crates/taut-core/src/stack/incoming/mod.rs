//! Every connection that comes in, to whatever address, before it is answered: the application decides. RFC
//! 9293 §3.10.7.2–4 up to the answer; gVisor's forwarder and Linux's TPROXY do the same job. Called by
//! `input.rs` for SYNs that no listener takes, by the application, and when time passes.
//!
//! # Problem
//!
//! A gateway stands in for hosts that it does not know. Behind it, a connection may be refused, time out or
//! be unreachable; a gateway that answers SYNs like a listener turns all of that into "connected, then
//! reset".
//!
//! # Rule
//!
//! ```text
//!   SYN ─▶ New ─ next_flow ─▶ Pending ─┬─ accept_flow ─▶ a connection in SYN-RECEIVED: the SYN-ACK leaves
//!                                      ├─ refuse_flow ─▶ a reset or an ICMP error leaves
//!                                      └─ drop_flow ───▶ Dropped: its SYNs are not answered
//! ```
//!
//! A filter is a listener whose backlog is a table of flows. So the caps of listeners, SYN cookies and
//! `accept` work for it as they do for them. A further SYN of a flow is noted there and begins no other. A
//! flow ends undecided when its time is over, when the peer resets it, or when the filter is closed.
//!
//! A peer that gives up while its SYN is not answered says nothing: RFC 9293 §3.10.4 deletes a connection in
//! SYN-SENT without a word. So the application may [ask](Stack::probe_flow): a segment without ACK, SYN and
//! RST is dropped in SYN-SENT (§3.10.7.3, fifth) and reset where there is no connection (§3.10.7.1). One with
//! ACK would do the same by the RFC, but lwIP takes it for a half-open connection and resets a flow that it
//! still wants.
//!
//! While a filter is open, its addresses are the stack's: packets to them are taken, and segments without a
//! connection are reset. Connections stay when it is closed.

mod filter;
mod refusal;
mod sources;
mod table;

use core::net::IpAddr;

pub use filter::{FlowFilter, FlowKind, IncomingOptions, IpPrefix};
pub use refusal::Refusal;
pub use sources::DatagramFlowOptions;
pub use table::{FlowInfo, FlowState, SynInfo};

pub(crate) use filter::is_routable;
pub(super) use sources::Sources;
pub(crate) use table::FlowTable;
pub(super) use table::PendingFlow;
#[cfg(test)]
pub(super) use table::entry_bytes;

use taut_wire::tcp::Flags as TcpFlags;
use taut_wire::{Ecn, TcpHeader};

use super::Stack;
use super::replies::Reply;
use super::tables::demux::Owner;
use crate::conn::Conn;
use crate::settings::config::SynCookies;
use crate::settings::options::{ConnOptions, ListenOptions};
use crate::words::{ConnId, Endpoint, FlowError, FlowId, Instant, ListenError, ListenerId, Tuple};

impl Stack {
    // ---- the application ----

    /// From now on, what newly comes to the addresses and ports of `filter` are [flows](Self::next_flow), of
    /// which [`Event::Incoming`](crate::Event::Incoming) tells, unless an exact listener or a socket takes
    /// them: connections, and if the filter says so, UDP from one address and port to another, and echo
    /// requests. The addresses need not be this stack's own. Of several filters, the one that was opened
    /// first takes a flow. [`close_listener`](Self::close_listener) ends it: flows that are not decided are
    /// forgotten, connections stay.
    ///
    /// # Errors
    ///
    /// [`ListenError::TooManyFilters`] if sixteen are open.
    pub fn incoming(
        &mut self,
        filter: FlowFilter,
        options: IncomingOptions,
    ) -> Result<ListenerId, ListenError> {
        if !self.tables.flows.has_room() {
            return Err(ListenError::TooManyFilters);
        }
        let IncomingOptions {
            max_pending,
            max_pending_per_peer,
            max_connections,
            max_per_peer,
            timeout,
            cookies_when_full,
            conn,
            datagrams,
        } = options;
        let id = self.listeners.insert_filter(ListenOptions {
            backlog: max_pending,
            max_connections,
            max_per_peer,
            max_half_open_per_peer: max_pending_per_peer,
            conn,
            ..ListenOptions::default()
        });
        let of_datagrams = (Sources::new(datagrams), datagrams.socket);
        self.tables.flows.open(id, filter, (timeout, cookies_when_full), of_datagrams);
        Ok(id)
    }

    /// The flow that has waited longest to be seen, once. It waits for a decision from now on.
    pub fn next_flow(&mut self, filter: ListenerId) -> Option<FlowInfo> {
        let flow = self.tables.flows.give_next(filter);
        if flow.is_none()
            && let Some(listener) =
                self.listeners.get_mut(filter).filter(|listener| listener.ready.is_empty())
        {
            listener.notified = false;
        }
        flow
    }

    /// A flow that is not decided.
    #[must_use]
    pub fn flow(&self, id: FlowId) -> Option<FlowInfo> {
        self.tables.flows.info(self.tables.flows.find(id)?)
    }

    /// The number of flows that are not decided, or were dropped a short time ago.
    #[must_use]
    pub const fn pending_flows(&self) -> usize {
        self.tables.flows.len()
    }

    /// Every flow that is not decided, or was dropped a short time ago. Visits all of them.
    pub fn flows(&self) -> impl Iterator<Item = FlowInfo> + '_ {
        self.tables.flows.iter()
    }

    /// Accepts a flow: its SYN is answered. The caller holds the connection and must release it;
    /// [`Event::Connected`](crate::Event::Connected) or [`Event::Failed`](crate::Event::Failed) follows.
    /// Without `options`, it has those of the filter.
    ///
    /// # Errors
    ///
    /// See [`FlowError`]. When there are too many connections, or if it is a flow of datagrams, the flow is
    /// still pending.
    pub fn accept_flow(
        &mut self,
        now: Instant,
        id: FlowId,
        options: Option<&ConnOptions>,
    ) -> Result<ConnId, FlowError> {
        let slot = self.tables.flows.find(id).ok_or(FlowError::Gone)?;
        if self.tables.flows.at(slot).is_some_and(|flow| flow.kind().is_datagram()) {
            return Err(FlowError::OtherKind);
        }
        if self.is_full() {
            return Err(FlowError::TooManyConnections);
        }
        let flow = self.unlist_flow(slot).ok_or(FlowError::Gone)?;
        let listener = self.listeners.get(flow.filter).ok_or(FlowError::Gone)?;
        let options = options.unwrap_or(&listener.options.conn).clone();
        let syn = flow.syn();
        self.counters.flows_accepted += 1;
        self.counters.passive_opens += 1;
        Ok(self.open(now, flow.tuple, Some(flow.isn), &options, |cx, birth| {
            Conn::accepted(cx, birth, flow.filter, &syn, flow.mark)
        }))
    }

    /// Refuses a flow: its peer is told so. Returns false if there is no such flow any more.
    pub fn refuse_flow(&mut self, now: Instant, id: FlowId, how: Refusal) -> bool {
        let Some(slot) = self.tables.flows.find(id) else { return false };
        if self.tables.flows.at(slot).is_some_and(|flow| flow.kind().is_datagram()) {
            return self.refuse_datagram_flow(now, slot, how);
        }
        let Some(flow) = self.end_flow(slot) else { return false };
        self.counters.flows_refused += 1;
        let syn = flow.syn();
        if how == Refusal::Reset {
            self.reset(&flow.tuple, &syn, 1);
        } else {
            let from = (self.source_of_error(flow.tuple.local.ip(), how), self.config.ip_default_ttl);
            self.replies.push(Reply::Icmp(refusal::icmp_error(from, &flow.tuple, &syn, how)));
        }
        true
    }

    /// Asks the peer of a connection that is not decided whether it still wants it. One that does says
    /// nothing; one that does not resets the flow, and [`Event::FlowGone`](crate::Event::FlowGone) follows.
    /// Returns false if there is nothing to ask.
    pub fn probe_flow(&mut self, id: FlowId) -> bool {
        let flow = self.tables.flows.find(id).and_then(|slot| self.tables.flows.at(slot));
        let Some(flow) = flow.filter(|flow| !flow.kind().is_datagram()) else { return false };
        let Tuple { local, peer } = flow.tuple;
        let header = TcpHeader {
            src_port: local.port(),
            dst_port: peer.port(),
            seq: flow.isn,
            flags: TcpFlags::PSH,
            ..TcpHeader::default()
        };
        self.replies.push(Reply::Tcp { src: local.ip(), dst: peer.ip(), header })
    }

    /// Drops a flow: its SYNs, the repeated ones too, or its datagrams are not answered until
    /// [`IncomingOptions::timeout`] from now. A SYN with another sequence number begins another flow. Returns
    /// false if there is no such flow any more.
    pub fn drop_flow(&mut self, now: Instant, id: FlowId) -> bool {
        let Some(slot) = self.tables.flows.find(id) else { return false };
        let Some((filter, kind)) = self.tables.flows.at(slot).map(|flow| (flow.filter, flow.kind())) else {
            return false;
        };
        if kind.is_datagram() {
            self.counters.datagram_flows_dropped += 1;
            self.silence_datagrams(slot);
        } else {
            self.counters.flows_dropped += 1;
        }
        self.uncount_flow(slot);
        let timeout =
            self.tables.flows.filter(filter).map_or(crate::words::Duration::ZERO, |filter| filter.timeout);
        self.tables.flows.silence(slot, now + timeout);
        let most = if kind.is_datagram() {
            self.sources(filter).map_or(0, |sources| sources.limits.max_pending)
        } else {
            self.listeners.get(filter).map_or(0, |listener| listener.options.backlog)
        };
        if self.tables.flows.note_dropped(filter, kind, 1) > most.max(1)
            && let Some(oldest) = self.tables.flows.first(filter, kind, FlowState::Dropped)
        {
            self.unlist_flow(oldest);
        }
        true
    }

    // ---- packets ----

    /// Whether this is one of the stack's addresses.
    pub(super) fn is_own(&self, ip: IpAddr) -> bool {
        self.config.addresses.contains(&ip) || self.config.any_address
    }

    /// Whether a packet to an address that is not ours may belong to a connection or flow of a filter.
    #[cold]
    pub(super) fn may_be_flow(&self, ip: IpAddr) -> bool {
        self.tables.flows.was_open && is_routable(ip)
    }

    /// Whether a segment without a connection to this address is answered.
    pub(super) fn stands_in_for(&self, ip: IpAddr) -> bool {
        self.is_own(ip) || self.tables.flows.has_address(ip)
    }

    /// Who takes a new connection: a listener at this address, one at every address if it is ours, or a
    /// filter.
    pub(super) fn taker(&self, local: Endpoint) -> Option<ListenerId> {
        let listener = self.listeners.find(local).filter(|&id| {
            let is_exact = self.listeners.get(id).is_some_and(|listener| listener.addr.ip() == local.ip());
            is_exact || self.is_own(local.ip())
        });
        listener.or_else(|| self.tables.flows.filter_for(FlowKind::Tcp, local))
    }

    /// A SYN for a filter, and no flow has its addresses and ports. `min_iss`: it reuses those of a
    /// connection in TIME-WAIT. Returns whether it must be answered by a cookie.
    pub(super) fn on_flow_syn(
        &mut self,
        now: Instant,
        tuple: &Tuple,
        id: ListenerId,
        (syn, mark): (&TcpHeader, Ecn),
        min_iss: Option<u32>,
    ) -> bool {
        // A martian source: nobody sends us packets with our own address, or one that no host has.
        if self.config.addresses.contains(&tuple.peer.ip()) || !is_routable(tuple.peer.ip()) {
            self.counters.in_discards += 1;
            return false;
        }
        let (Some(listener), Some(filter)) = (self.listeners.get_mut(id), self.tables.flows.filter(id))
        else {
            return false;
        };
        let peer = tuple.peer.ip();
        if !listener.allows(peer) {
            self.counters.listen_capped += 1;
            return false;
        }
        if !listener.may_be_half_open() {
            let cookie = filter.cookies_when_full && self.config.tcp.syncookies != SynCookies::Off;
            if cookie && listener.may_be_ready() {
                listener.cookie_at = Some(now);
                return true;
            }
            self.counters.flows_overflows += 1;
            return false;
        }
        let isn = min_iss.unwrap_or_else(|| self.secrets.isn(tuple, now));
        let mut flow = PendingFlow::new(*tuple, filter, now, isn);
        flow.note_syn(syn, mark);
        let Some(slot) = self.tables.flows.insert(flow) else { return false };
        listener.begin(peer);
        if !listener.notified {
            listener.notified = true;
            self.incoming.push_back(super::News::Listener(id));
        }
        self.counters.flows_in += 1;
        self.tables.insert(tuple, Owner::Flow(slot));
        false
    }

    /// A segment of a flow that is not decided, or was dropped.
    #[cold]
    pub(super) fn on_flow_segment(
        &mut self,
        now: Instant,
        slot: u32,
        tuple: &Tuple,
        (header, mark): (&TcpHeader, Ecn),
        len: u32,
    ) {
        let Some(flow) = self.tables.flows.at_mut(slot) else { return };
        let flags = header.flags;
        if flags.contains(TcpFlags::RST) {
            // §3.10.7.4, second: as for a half-open connection whose window is empty. Or the answer to what
            // `probe_flow` has sent: §3.10.7.1, <SEQ=0><ACK=SEG.SEQ+SEG.LEN><CTL=RST,ACK>.
            let is_answer = flags.contains(TcpFlags::ACK) && header.ack == flow.isn;
            if !flow.is_dropped() && (is_answer || header.seq == flow.seq().wrapping_add(1)) {
                self.counters.flows_withdrawn += 1;
                self.note_gone(slot);
                self.end_flow(slot);
            }
        } else if flags.contains(TcpFlags::ACK) {
            // §3.10.7.4, fifth: nothing has been sent that could be acknowledged.
            if !flow.is_dropped() {
                self.reset(tuple, header, len);
            }
        } else if flags.contains(TcpFlags::SYN) && !flags.contains(TcpFlags::FIN) {
            if flow.is_dropped() && header.seq != flow.seq() {
                // Somebody else asks, or the same again: the answer may be another one now.
                let filter = flow.filter;
                self.unlist_flow(slot);
                if self.on_flow_syn(now, tuple, filter, (header, mark), None) {
                    self.send_cookie(now, tuple, filter, header);
                }
            } else {
                flow.note_syn(header, mark);
            }
        }
    }

    /// Forgets flows whose time is over.
    pub(super) fn on_flow_timeouts(&mut self, now: Instant) {
        while let Some(slot) = self.tables.flows.expired(now) {
            let Some(flow) = self.tables.flows.at(slot) else { break };
            let (is_dropped, is_datagram) = (flow.is_dropped(), flow.kind().is_datagram());
            if is_dropped {
                self.unlist_flow(slot);
            } else {
                self.counters.flows_expired += u64::from(!is_datagram);
                self.counters.datagram_flows_expired += u64::from(is_datagram);
                self.note_gone(slot);
                self.end_flow(slot);
            }
        }
    }

    /// Forgets all flows of a filter, and the filter.
    pub(super) fn close_filter(&mut self, id: ListenerId) {
        for kind in FlowKind::GROUPS {
            for state in [FlowState::New, FlowState::Pending, FlowState::Dropped] {
                while let Some(slot) = self.tables.flows.first(id, kind, state) {
                    self.unlist_flow(slot);
                }
            }
        }
        self.tables.flows.close(id);
    }

    /// The handshake of an accepted flow is over. Returns false if the listener is no filter.
    pub(super) fn leave_accepted(&mut self, id: ListenerId, peer: IpAddr) -> bool {
        if self.tables.flows.filter(id).is_none() {
            return false;
        }
        if let Some(listener) = self.listeners.get_mut(id) {
            listener.half_open = listener.half_open.saturating_sub(1);
            listener.counts.leave_half_open(peer);
        }
        true
    }

    /// The application hears that a flow is about to end if it has seen it. So there are no more such news
    /// than it has asked for flows.
    fn note_gone(&mut self, slot: u32) {
        if let Some(flow) = self.tables.flows.info(slot).filter(|flow| flow.state == FlowState::Pending) {
            self.incoming.push_back(super::News::Flow(flow.id));
        }
    }

    /// An undecided flow ends without a connection.
    fn end_flow(&mut self, slot: u32) -> Option<PendingFlow> {
        self.uncount_flow(slot);
        self.unlist_flow(slot)
    }

    /// An undecided flow of datagrams is refused.
    fn refuse_datagram_flow(&mut self, now: Instant, slot: u32, how: Refusal) -> bool {
        self.uncount_flow(slot);
        let Some(flow) = self.tables.flows.remove(slot) else { return false };
        self.refuse_pending(now, &flow, how);
        self.forget_datagrams(&flow);
        true
    }

    /// An undecided flow is none any more.
    fn uncount_flow(&mut self, slot: u32) {
        let Some(flow) = self.tables.flows.at(slot) else { return };
        let (filter, peer) = (flow.filter, flow.tuple.peer.ip());
        if flow.kind().is_datagram() {
            if let Some(sources) = self.sources(filter) {
                sources.decide(peer);
                sources.end(peer);
            }
        } else if let Some(listener) = self.listeners.get_mut(filter) {
            listener.half_open = listener.half_open.saturating_sub(1);
            listener.counts.leave_half_open(peer);
            listener.counts.remove(peer);
        }
    }

    /// Takes a flow out of the tables. Its listener still counts it, unless it was dropped.
    fn unlist_flow(&mut self, slot: u32) -> Option<PendingFlow> {
        let flow = self.tables.flows.remove(slot)?;
        if flow.kind().is_datagram() {
            self.forget_datagrams(&flow);
        } else {
            self.tables.demux.remove(&flow.tuple, Owner::Flow(slot));
        }
        if flow.is_dropped() {
            self.tables.flows.note_dropped(flow.filter, flow.kind(), -1);
        }
        Some(flow)
    }

    /// The source of an ICMP error: a host tells about its ports by itself, and a router about hosts.
    pub(super) fn source_of_error(&self, local: IpAddr, how: Refusal) -> IpAddr {
        let own = self.config.addresses.iter().copied().find(|ip| ip.is_ipv4() == local.is_ipv4());
        own.filter(|_| how != Refusal::PortUnreachable).unwrap_or(local)
    }
}
