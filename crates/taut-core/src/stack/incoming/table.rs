//! Flows that the application has not decided about: what is remembered of their SYNs, and the table of them.
//! taut's own; the counterpart of `half_open.rs` before the SYN is answered.
//!
//! **Problem.** A SYN or a datagram may come from anywhere, and the application may need half a minute to
//! decide.
//!
//! **Rule.** An entry has what the SYN said and nothing that a connection needs: 88 bytes. That of a datagram
//! flow names the socket in which its first datagrams wait. It stands in one of three lists of its filter,
//! and of connections or datagrams: the application has not seen it yet, it has, or it has dropped it. All
//! entries of a list wait equally long, so that the first one is the first to expire, however many there are.

use alloc::vec::Vec;
use core::net::SocketAddr;

use taut_wire::tcp::Flags as TcpFlags;
use taut_wire::{Ecn, TcpHeader, TcpOptions, Timestamps};

use super::filter::{FlowFilter, FlowKind};
use super::sources::Sources;
use crate::datagram::DatagramOptions;
use crate::stack::tables::lists::Lists;
use crate::words::{Duration, Endpoint, FlowId, Instant, ListenerId, Tuple};

/// The most filters of a stack: each may have any number of prefixes and ports.
pub(crate) const FILTERS_MAX: usize = 16;

/// Where a flow stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowState {
    /// The application has not been given it.
    New,
    /// The application has it, and has not decided.
    Pending,
    /// The application has dropped it: further SYNs of it are not answered.
    Dropped,
}

const STATES: usize = 3;

/// The lists of a filter: those of connections, and those of datagrams.
const LISTS: usize = 2 * STATES;

const fn list(place: u8, kind: FlowKind, state: FlowState) -> usize {
    place as usize * LISTS + kind.is_datagram() as usize * STATES + state as usize
}

/// What the SYN of a flow said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SynInfo {
    /// Its initial sequence number.
    pub seq: u32,
    /// Its window, which is not scaled.
    pub window: u16,
    /// Maximum segment size.
    pub mss: Option<u16>,
    /// Window scale.
    pub window_scale: Option<u8>,
    /// SACK permitted.
    pub sack: bool,
    /// The value of its timestamp.
    pub timestamp: Option<u32>,
    /// It asks for ECN (RFC 3168 §6.1.1), or for accurate ECN (RFC 9768 §3.1.1).
    pub ecn: bool,
    /// How often it has arrived.
    pub count: u8,
}

/// A flow that the application may decide about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlowInfo {
    /// Its name.
    pub id: FlowId,
    /// The filter that it came through.
    pub filter: ListenerId,
    /// Where it wants to go.
    pub local: SocketAddr,
    /// Where it comes from.
    pub peer: SocketAddr,
    /// Its protocol. An echo flow's ports are 0 at the peer, and the identifier of its requests here.
    pub kind: FlowKind,
    /// What its SYN said, of a TCP flow.
    pub syn: Option<SynInfo>,
    /// Whether it is decided.
    pub state: FlowState,
    /// When it is forgotten.
    pub deadline: Instant,
}

/// One flow.
#[derive(Debug)]
pub(crate) struct PendingFlow {
    pub(crate) tuple: Tuple,
    pub(crate) filter: ListenerId,
    pub(crate) deadline: Instant,
    /// Our initial sequence number, if it is accepted.
    pub(crate) isn: u32,
    generation: u32,
    first: First,
    pub(crate) mark: Ecn,
    state: FlowState,
    count: u8,
    /// The place of its filter.
    place: u8,
}

/// The packet that began a flow.
#[derive(Clone, Copy, Debug)]
enum First {
    Syn(Syn),
    /// A datagram, which waits in the socket of this slot.
    Datagram {
        kind: FlowKind,
        socket: u32,
    },
}

/// The SYN that arrived last.
#[derive(Clone, Copy, Debug, Default)]
struct Syn {
    seq: u32,
    tsval: u32,
    window: u16,
    mss: u16,
    flags: u16,
    wscale: u8,
    /// The options that it had.
    offered: u8,
}

const MSS: u8 = 1;
const WSCALE: u8 = 2;
const SACK: u8 = 4;
const TIMESTAMP: u8 = 8;

impl PendingFlow {
    pub(crate) fn new(tuple: Tuple, through: &Filter, now: Instant, isn: u32) -> Self {
        Self {
            tuple,
            filter: through.id,
            deadline: now + through.timeout,
            isn,
            generation: 0,
            first: First::Syn(Syn::default()),
            mark: Ecn::NotEct,
            state: FlowState::New,
            count: 0,
            place: through.place,
        }
    }

    /// A flow of datagrams, which wait in that socket.
    pub(crate) fn of_datagrams(
        tuple: Tuple,
        through: &Filter,
        now: Instant,
        kind: FlowKind,
        socket: u32,
    ) -> Self {
        Self { first: First::Datagram { kind, socket }, ..Self::new(tuple, through, now, 0) }
    }

    pub(crate) const fn kind(&self) -> FlowKind {
        match self.first {
            First::Syn(_) => FlowKind::Tcp,
            First::Datagram { kind, .. } => kind,
        }
    }

    /// The slot of the socket of a datagram flow.
    pub(crate) const fn socket(&self) -> Option<u32> {
        match self.first {
            First::Syn(_) => None,
            First::Datagram { socket, .. } => Some(socket),
        }
    }

    const fn last_syn(&self) -> Option<Syn> {
        match self.first {
            First::Syn(syn) => Some(syn),
            First::Datagram { .. } => None,
        }
    }

    /// A SYN of this flow arrives: the latest one is answered.
    pub(crate) fn note_syn(&mut self, syn: &TcpHeader, mark: Ecn) {
        let TcpOptions { mss, window_scale, sack_permitted, timestamps, .. } = syn.options;
        let options = [
            (mss.is_some(), MSS),
            (window_scale.is_some(), WSCALE),
            (sack_permitted, SACK),
            (timestamps.is_some(), TIMESTAMP),
        ];
        self.first = First::Syn(Syn {
            seq: syn.seq,
            tsval: timestamps.map_or(0, |timestamps| timestamps.value),
            window: syn.window,
            mss: mss.unwrap_or(0),
            flags: syn.flags.bits(),
            wscale: window_scale.unwrap_or(0),
            offered: options.into_iter().filter(|(has, _)| *has).fold(0, |all, (_, bit)| all | bit),
        });
        self.mark = mark;
        self.count = self.count.saturating_add(1);
    }

    /// The SYN as it arrived last.
    pub(crate) fn syn(&self) -> TcpHeader {
        let syn = self.last_syn().unwrap_or_default();
        let has = |option| syn.offered & option != 0;
        let options = TcpOptions {
            mss: has(MSS).then_some(syn.mss),
            window_scale: has(WSCALE).then_some(syn.wscale),
            sack_permitted: has(SACK),
            timestamps: has(TIMESTAMP).then_some(Timestamps { value: syn.tsval, echo: 0 }),
            ..TcpOptions::default()
        };
        TcpHeader {
            src_port: self.tuple.peer.port(),
            dst_port: self.tuple.local.port(),
            seq: syn.seq,
            flags: TcpFlags::from_bits(syn.flags),
            window: syn.window,
            options,
            ..TcpHeader::default()
        }
    }

    pub(crate) fn seq(&self) -> u32 {
        self.last_syn().map_or(0, |syn| syn.seq)
    }

    pub(crate) const fn is_dropped(&self) -> bool {
        matches!(self.state, FlowState::Dropped)
    }

    const fn list(&self) -> usize {
        list(self.place, self.kind(), self.state)
    }

    fn info(&self, slot: u32) -> FlowInfo {
        let syn = self.syn();
        let kind = self.kind();
        let syn = SynInfo {
            seq: syn.seq,
            window: syn.window,
            mss: syn.options.mss,
            window_scale: syn.options.window_scale,
            sack: syn.options.sack_permitted,
            timestamp: syn.options.timestamps.map(|timestamps| timestamps.value),
            ecn: syn.flags.contains(TcpFlags::ECE | TcpFlags::CWR),
            count: self.count,
        };
        FlowInfo {
            id: FlowId { slot, generation: self.generation },
            filter: self.filter,
            local: self.tuple.local.into(),
            peer: self.tuple.peer.into(),
            kind,
            syn: (kind == FlowKind::Tcp).then_some(syn),
            state: self.state,
            deadline: self.deadline,
        }
    }
}

/// A filter that is open.
#[derive(Debug)]
pub(crate) struct Filter {
    pub(crate) id: ListenerId,
    pub(crate) filter: FlowFilter,
    pub(crate) timeout: Duration,
    pub(crate) cookies_when_full: bool,
    /// What its datagram flows hold, and their limits.
    pub(crate) sources: Sources,
    /// The options of their sockets.
    pub(crate) datagrams: DatagramOptions,
    /// Flows that were dropped and are remembered, of connections and of datagrams.
    dropped: [u32; 2],
    /// Where its lists stand.
    place: u8,
}

/// All filters and their flows.
#[derive(Debug)]
pub(crate) struct FlowTable {
    /// In the order in which they were opened.
    filters: Vec<Filter>,
    entries: Lists<PendingFlow, { FILTERS_MAX * LISTS }>,
    generation: u32,
    /// A filter was opened at some time, so that there may be connections to addresses that are not ours.
    pub(crate) was_open: bool,
}

impl FlowTable {
    pub(crate) const fn new() -> Self {
        Self { filters: Vec::new(), entries: Lists::new(), generation: 0, was_open: false }
    }

    // ---- filters ----

    /// Whether one more filter may be opened.
    pub(crate) const fn has_room(&self) -> bool {
        cfg!(feature = "incoming") && self.filters.len() < FILTERS_MAX
    }

    /// Opens a filter, for which there is room.
    pub(crate) fn open(
        &mut self,
        id: ListenerId,
        filter: FlowFilter,
        (timeout, cookies_when_full): (Duration, bool),
        (sources, datagrams): (Sources, DatagramOptions),
    ) {
        let taken = |place: &u8| self.filters.iter().any(|other| other.place == *place);
        let place = (0..FILTERS_MAX as u8).find(|place| !taken(place)).unwrap_or(0);
        let dropped = [0; 2];
        self.filters.push(Filter {
            id,
            filter,
            timeout,
            cookies_when_full,
            sources,
            datagrams,
            dropped,
            place,
        });
        self.was_open = true;
    }

    /// Closes a filter whose flows are gone.
    pub(crate) fn close(&mut self, id: ListenerId) {
        self.filters.retain(|filter| filter.id != id);
    }

    /// Those that are open; none without the feature.
    fn open_filters(&self) -> &[Filter] {
        if cfg!(feature = "incoming") { &self.filters } else { &[] }
    }

    pub(crate) fn filter(&self, id: ListenerId) -> Option<&Filter> {
        self.open_filters().iter().find(|filter| filter.id == id)
    }

    pub(crate) fn filter_mut(&mut self, id: ListenerId) -> Option<&mut Filter> {
        self.filters.iter_mut().find(|filter| filter.id == id)
    }

    /// The first filter that takes flows of this kind to this end.
    pub(crate) fn filter_for(&self, kind: FlowKind, local: Endpoint) -> Option<ListenerId> {
        self.open_filters().iter().find(|open| open.filter.takes_flow(kind, local)).map(|open| open.id)
    }

    /// Whether any filter has this address.
    pub(crate) fn has_address(&self, ip: core::net::IpAddr) -> bool {
        self.open_filters().iter().any(|open| open.filter.has_address(ip))
    }

    // ---- flows ----

    pub(crate) const fn len(&self) -> usize {
        self.entries.len() as usize
    }

    /// Adds a flow; `None` if there are as many as slots have numbers.
    pub(crate) fn insert(&mut self, mut flow: PendingFlow) -> Option<u32> {
        flow.generation = self.generation;
        self.generation = self.generation.wrapping_add(1);
        self.entries.push(flow.list(), flow)
    }

    pub(crate) fn at(&self, slot: u32) -> Option<&PendingFlow> {
        self.entries.get(slot)
    }

    pub(crate) fn at_mut(&mut self, slot: u32) -> Option<&mut PendingFlow> {
        self.entries.get_mut(slot)
    }

    /// The slot of the flow with that name, if it is not decided.
    pub(crate) fn find(&self, id: FlowId) -> Option<u32> {
        let flow = self.at(id.slot)?;
        (flow.generation == id.generation && !flow.is_dropped()).then_some(id.slot)
    }

    pub(crate) fn info(&self, slot: u32) -> Option<FlowInfo> {
        Some(self.at(slot)?.info(slot))
    }

    /// A snapshot of each.
    pub(crate) fn iter(&self) -> impl Iterator<Item = FlowInfo> + '_ {
        self.entries.iter().map(|(slot, flow)| flow.info(slot))
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Option<PendingFlow> {
        self.entries.remove(self.at(slot)?.list(), slot)
    }

    /// The oldest flow of a filter in that state, of connections or of datagrams like `kind`.
    pub(crate) fn first(&self, id: ListenerId, kind: FlowKind, state: FlowState) -> Option<u32> {
        let slot = self.entries.first(list(self.filter(id)?.place, kind, state));
        self.at(slot).map(|_| slot)
    }

    /// The oldest flow that the application has not been given: it has it from now on.
    pub(crate) fn give_next(&mut self, id: ListenerId) -> Option<FlowInfo> {
        let firsts = FlowKind::GROUPS.into_iter().filter_map(|kind| self.first(id, kind, FlowState::New));
        // All wait equally long, so the oldest is the one whose time is over first.
        let slot = firsts.min_by_key(|&slot| self.at(slot).map(|flow| flow.deadline))?;
        self.move_to(slot, FlowState::Pending);
        self.info(slot)
    }

    /// The application drops a flow, which is remembered until this deadline.
    pub(crate) fn silence(&mut self, slot: u32, deadline: Instant) {
        self.move_to(slot, FlowState::Dropped);
        if let Some(flow) = self.at_mut(slot) {
            flow.deadline = deadline;
        }
    }

    /// One more, or one less, dropped flow is remembered; returns how many of its kind there are.
    pub(crate) fn note_dropped(&mut self, id: ListenerId, kind: FlowKind, change: i32) -> u32 {
        let Some(filter) = self.filter_mut(id) else { return 0 };
        let dropped = &mut filter.dropped[usize::from(kind.is_datagram())];
        *dropped = dropped.saturating_add_signed(change);
        *dropped
    }

    fn move_to(&mut self, slot: u32, state: FlowState) {
        let Some(flow) = self.at_mut(slot) else { return };
        let from = flow.list();
        flow.state = state;
        let to = flow.list();
        self.entries.move_to_end(from, to, slot);
    }

    /// The earliest deadline, and whose it is.
    fn next(&self) -> Option<(Instant, u32)> {
        if self.entries.len() == 0 {
            return None;
        }
        let lists = self
            .filters
            .iter()
            .flat_map(|filter| (0..LISTS).map(|list| filter.place as usize * LISTS + list));
        let firsts = lists.map(|list| self.entries.first(list));
        firsts.filter_map(|slot| Some((self.at(slot)?.deadline, slot))).min()
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.next().map(|(at, _)| at)
    }

    pub(crate) fn expired(&self, now: Instant) -> Option<u32> {
        self.next().filter(|&(at, _)| at <= now).map(|(_, slot)| slot)
    }
}

/// What the entry of a flow takes.
#[cfg(test)]
pub(crate) const fn entry_bytes() -> usize {
    Lists::<PendingFlow, { FILTERS_MAX * LISTS }>::entry_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_02_an_entry_is_small() {
        // With the links of its list; its entry among the tuples takes 5 to 10 bytes.
        let size = Lists::<PendingFlow, { FILTERS_MAX * LISTS }>::entry_bytes();
        assert!(size <= 96, "{size}");
    }
}
