//! The stack: one object, driven by calls, for all connections of one shard.
//!
//! Input comes by `handle_*` and by commands, output is asked for with `poll_*`. After any input: take events, take
//! transmissions until there is none, then sleep until [`Stack::poll_timeout`] or the next input. The order matters
//! only for speed: transmitting after a batch of input lets its ACKs coalesce.

mod conn_mut;
mod conn_ref;
mod demux;
mod input;
mod listener;
mod observe;
mod output;
mod replies;
mod secrets;
mod steering;
mod table;
mod time_wait;
mod timer_queue;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

pub use conn_mut::ConnMut;
pub use conn_ref::ConnRef;
pub use listener::ListenerInfo;
pub use steering::Steering;

use crate::buffers::BufferPool;
use crate::config::StackConfig;
use crate::conn::handshake::Birth;
use crate::conn::state::State;
use crate::conn::{Conn, StackCx};
use crate::egress::Totals;
use crate::egress::emit::HEADER_MAX;
use crate::options::{ConnOptions, ListenOptions};
use crate::stats::Counters;
use crate::words::{
    ConnId, ConnectError, Endpoint, Instant, LinkCaps, ListenError, ListenerId, Offload, Output, Tuple,
    TxTicket,
};
use demux::{Demux, Owner};
use listener::Listeners;
use replies::Replies;
use secrets::Secrets;
use table::Table;
use time_wait::{TimeWait, TimeWaitTable};
use timer_queue::TimerQueue;

/// What a deadline of [`Stack::poll_timeout`] is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Timer {
    /// A connection: loss recovery, a delayed ACK, pacing, a probe or keepalive.
    Conn,
    /// The oldest entry of TIME-WAIT ends.
    TimeWait,
}

/// A TCP/IP stack without a clock, a device or a thread.
#[derive(Debug)]
pub struct Stack {
    config: Arc<StackConfig>,
    caps: LinkCaps,
    table: Table,
    demux: Demux,
    listeners: Listeners,
    time_wait: TimeWaitTable,
    timers: TimerQueue,
    /// Connections that may have something to send, served in turn.
    ready: VecDeque<u32>,
    /// Connections with news for the application.
    news: VecDeque<u32>,
    /// Listeners with news for the application.
    incoming: VecDeque<ListenerId>,
    replies: Replies,
    pool: BufferPool,
    counters: Counters,
    /// Time and bytes of all connections there were.
    totals: Totals,
    /// See [`must_answer`](Self::must_answer).
    must_answer: bool,
    secrets: Secrets,
    /// Which connections are this stack's, if others are on the same link.
    steering: Option<Steering>,
    /// Spreads local ports (RFC 6056 §3.3.3).
    next_port: u32,
    /// Headers of the packet that is being handed out.
    header: Box<[u8; HEADER_MAX]>,
    /// An ICMP message that is being handed out.
    message: Vec<u8>,
}

/// A packet that was decided on and whose headers are written: what [`Transmit`] is made of.
struct Decided {
    conn: Option<(u32, core::ops::Range<u64>)>,
    header_len: usize,
    is_message: bool,
    offload: Offload,
    departure: Instant,
    ticket: TxTicket,
}

/// What a call into a connection may use. A macro, not a method: it borrows these fields and leaves the table free.
macro_rules! stack_cx {
    ($stack:ident, $now:expr) => {
        StackCx {
            now: $now,
            config: &$stack.config,
            link: &$stack.caps,
            pool: &mut $stack.pool,
            counters: &mut $stack.counters,
            totals: &mut $stack.totals,
            must_answer: &mut $stack.must_answer,
        }
    };
}

use stack_cx;

/// The tuple of an owner, wherever that is kept.
fn tuple_of(table: &Table, time_wait: &TimeWaitTable, owner: Owner) -> Option<Tuple> {
    match owner {
        Owner::Conn(slot) => table.at(slot).map(|conn| conn.tuple),
        Owner::TimeWait(slot) => {
            time_wait.get(slot).map(|entry| Tuple { local: entry.local, peer: entry.peer })
        }
    }
}

impl Stack {
    /// An empty stack on a link with these capabilities. `seed` must be random in production: sequence numbers,
    /// ports and hash keys come from it; the same seed and the same calls give the same run.
    #[must_use]
    pub fn new(config: Arc<StackConfig>, caps: LinkCaps, seed: [u8; 32]) -> Self {
        let (secrets, demux_key) = Secrets::new(seed);
        Self {
            time_wait: TimeWaitTable::new(config.max_tw_buckets, config.time_wait),
            config,
            caps,
            table: Table::new(),
            demux: Demux::new(demux_key),
            listeners: Listeners::default(),
            timers: TimerQueue::new(),
            ready: VecDeque::new(),
            news: VecDeque::new(),
            incoming: VecDeque::new(),
            replies: Replies::default(),
            pool: BufferPool::new(),
            counters: Counters::default(),
            totals: Totals::default(),
            must_answer: false,
            secrets,
            steering: None,
            next_port: 0,
            header: Box::new([0; HEADER_MAX]),
            message: Vec::new(),
        }
    }

    /// What the stack was configured with.
    #[must_use]
    pub fn config(&self) -> &StackConfig {
        &self.config
    }

    /// What the link can do.
    #[must_use]
    pub const fn caps(&self) -> &LinkCaps {
        &self.caps
    }

    /// Counts since the beginning.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Connections in any state, those still held by the application included, without TIME-WAIT.
    #[must_use]
    pub const fn connections(&self) -> usize {
        self.table.len()
    }

    /// Connections in TIME-WAIT.
    #[must_use]
    pub const fn time_waits(&self) -> usize {
        self.time_wait.len() as usize
    }

    // ---- several on one link ----

    /// From now on this is one of several stacks on one link, and has those connections alone that are its own. To be
    /// called before there is any.
    pub fn set_steering(&mut self, steering: Steering) {
        self.steering = Some(steering);
    }

    /// Which other stack on this link a received packet is for, if it is not for this one: hand it over to that. Counts.
    pub fn owner_elsewhere(&mut self, packet: &[u8]) -> Option<usize> {
        let steering = self.steering.as_ref()?;
        let owner = steering.owner_of_packet(packet).filter(|&owner| owner != steering.index())?;
        self.counters.steered += 1;
        Some(owner)
    }

    /// A packet that was to be handed over could not be.
    pub const fn note_steered_lost(&mut self) {
        self.counters.steered_lost += 1;
    }

    /// Which stack must begin a connection: one from a port that is asked for is somebody's; any other is whose one will.
    #[must_use]
    pub fn owner_of_connect(&self, to: SocketAddr, bind: Option<SocketAddr>) -> Option<usize> {
        let steering = self.steering.as_ref()?;
        let peer = to.ip().to_canonical();
        let (local, port) = self.local_for(peer, bind).ok().filter(|&(_, port)| port != 0)?;
        Some(steering.owner_of(Endpoint::new(local, port), Endpoint::new(peer, to.port())))
    }

    // ---- commands ----

    /// Begins a connection. [`Event::Connected`](crate::Event::Connected) or [`Event::Failed`](crate::Event::Failed) follows.
    ///
    /// # Errors
    ///
    /// As [`ConnectError`] says; nothing was begun then.
    pub fn connect(
        &mut self,
        now: Instant,
        to: SocketAddr,
        options: &ConnOptions,
    ) -> Result<ConnId, ConnectError> {
        let ip = to.ip().to_canonical();
        if to.port() == 0 || ip.is_unspecified() || ip.is_multicast() || is_broadcast(ip) {
            return Err(ConnectError::InvalidPeer);
        }
        if self.table.len() >= self.config.max_connections as usize {
            return Err(ConnectError::TooManyConnections);
        }
        let peer = Endpoint::new(ip, to.port());
        let (local_ip, port) = self.local_for(ip, options.bind)?;
        let (tuple, min_iss) = match port {
            0 => self.free_tuple(now, local_ip, peer)?,
            port => self
                .claim(now, Tuple { local: Endpoint::new(local_ip, port), peer })
                .ok_or(ConnectError::AddrInUse)?,
        };
        self.counters.active_opens += 1;
        Ok(self.open(now, tuple, min_iss, options, Conn::active))
    }

    /// The local address for a connection to `peer`, and the port if one was asked for.
    fn local_for(&self, peer: IpAddr, bind: Option<SocketAddr>) -> Result<(IpAddr, u16), ConnectError> {
        let port = bind.map_or(0, |bind| bind.port());
        let asked = bind.map(|bind| bind.ip().to_canonical()).filter(|ip| !ip.is_unspecified());
        let found = match asked {
            Some(ip) => {
                let ours = self.config.any_address || self.config.addresses.contains(&ip);
                (ours && ip.is_ipv4() == peer.is_ipv4()).then_some(ip)
            }
            None => self.config.addresses.iter().copied().find(|ip| ip.is_ipv4() == peer.is_ipv4()),
        };
        Ok((found.ok_or(ConnectError::AddrNotAvailable)?, port))
    }

    /// A local port that no connection to `peer` uses (RFC 6056 §3.3.3).
    fn free_tuple(
        &mut self,
        now: Instant,
        local_ip: IpAddr,
        peer: Endpoint,
    ) -> Result<(Tuple, Option<u32>), ConnectError> {
        let (first, last) = self.config.ip_local_port_range;
        let count = u32::from(last.saturating_sub(first)) + 1;
        let offset = self.secrets.port_offset(Endpoint::new(local_ip, 0), peer);
        for _ in 0..count {
            let port = first + (offset.wrapping_add(self.next_port) % count) as u16;
            self.next_port = self.next_port.wrapping_add(1);
            if let Some(claimed) = self.claim(now, Tuple { local: Endpoint::new(local_ip, port), peer }) {
                return Ok(claimed);
            }
        }
        Err(ConnectError::AddrInUse)
    }

    /// Takes a tuple for a new connection, if it is this stack's and free or in a TIME-WAIT that may be cut short. With it comes the
    /// least initial sequence number that cannot be mistaken for the old connection's.
    fn claim(&mut self, now: Instant, tuple: Tuple) -> Option<(Tuple, Option<u32>)> {
        if self.steering.as_ref().is_some_and(|steering| !steering.is_own(tuple.local, tuple.peer)) {
            return None;
        }
        match self.owner(&tuple) {
            None => Some((tuple, None)),
            Some(Owner::Conn(_)) => None,
            Some(Owner::TimeWait(slot)) => {
                let entry = self.time_wait.get(slot)?;
                if !entry.may_reuse_for_connect(now) {
                    return None;
                }
                let min_iss = entry.min_iss();
                self.forget_time_wait(slot);
                self.counters.tw_recycled += 1;
                Some((tuple, Some(min_iss)))
            }
        }
    }

    fn owner(&mut self, tuple: &Tuple) -> Option<Owner> {
        let (table, time_wait) = (&self.table, &self.time_wait);
        self.demux.find(tuple, |owner| tuple_of(table, time_wait, owner))
    }

    fn forget_time_wait(&mut self, slot: u32) {
        if let Some(entry) = self.time_wait.get(slot) {
            let tuple = Tuple { local: entry.local, peer: entry.peer };
            self.demux.remove(&tuple, Owner::TimeWait(slot));
            self.time_wait.remove(slot);
        }
    }

    /// Makes a connection with `make`, and enters it everywhere.
    fn open(
        &mut self,
        now: Instant,
        tuple: Tuple,
        min_iss: Option<u32>,
        options: &ConnOptions,
        make: impl FnOnce(&mut StackCx<'_>, &Birth<'_>) -> Conn,
    ) -> ConnId {
        let id = self.table.next_id();
        let birth = Birth {
            tuple,
            generation: id.generation,
            options,
            isn: min_iss.unwrap_or_else(|| self.secrets.isn(&tuple, now)),
            timestamp_offset: self.secrets.timestamp_offset(&tuple),
        };
        let mut cx = stack_cx!(self, now);
        let conn = make(&mut cx, &birth);
        let slot = self.table.insert(conn);
        let (table, time_wait) = (&self.table, &self.time_wait);
        self.demux.insert(&tuple, Owner::Conn(slot), |owner| tuple_of(table, time_wait, owner));
        self.settle(now, slot);
        id
    }

    /// Listens at an address; an unspecified one takes every address of the stack.
    ///
    /// # Errors
    ///
    /// As [`ListenError`] says.
    pub fn listen(&mut self, at: SocketAddr, options: ListenOptions) -> Result<ListenerId, ListenError> {
        let ip = at.ip().to_canonical();
        if !ip.is_unspecified() && !self.config.any_address && !self.config.addresses.contains(&ip) {
            return Err(ListenError::AddrNotAvailable);
        }
        let (first, last) = self.config.ip_local_port_range;
        let at = SocketAddr::new(ip, at.port());
        if at.port() != 0 {
            return self.listeners.insert(at, options);
        }
        (first..=last)
            .find_map(|port| self.listeners.insert(SocketAddr::new(ip, port), options.clone()).ok())
            .ok_or(ListenError::AddrInUse)
    }

    /// Where a listener listens; tells the port that was picked for port 0.
    #[must_use]
    pub fn listener_addr(&self, id: ListenerId) -> Option<SocketAddr> {
        self.listeners.get(id).map(|listener| listener.addr)
    }

    /// The connection that has waited longest at a listener, and its peer. The caller holds it from now on.
    pub fn accept(&mut self, id: ListenerId) -> Option<(ConnId, SocketAddr)> {
        let listener = self.listeners.get_mut(id)?;
        while let Some(conn_id) = listener.ready.pop_front() {
            if let Some(conn) = self.table.get(conn_id) {
                return Some((conn_id, conn.tuple.peer.into()));
            }
        }
        listener.told = false;
        None
    }

    /// Stops listening; connections that nobody accepted are reset.
    pub fn close_listener(&mut self, now: Instant, id: ListenerId) {
        let Some(listener) = self.listeners.remove(id) else { return };
        for conn_id in listener.ready {
            if let Some(conn) = self.conn_mut(conn_id) {
                conn.abort(now);
            }
        }
    }

    /// The connection of that name, unless it was released.
    pub fn conn_mut(&mut self, id: ConnId) -> Option<ConnMut<'_>> {
        self.table.get(id).filter(|conn| conn.flags.held)?;
        Some(ConnMut::new(self, id.slot))
    }

    /// Calls `f` with a connection and what it may use, then lets the rest of the stack know what changed.
    fn with<R>(
        &mut self,
        now: Instant,
        slot: u32,
        f: impl FnOnce(&mut Conn, &mut StackCx<'_>) -> R,
    ) -> Option<R> {
        let conn = self.table.at_mut(slot)?;
        let mut cx = stack_cx!(self, now);
        let result = f(conn, &mut cx);
        self.settle(now, slot);
        Some(result)
    }

    /// After a connection was touched: queues, timers, listeners and tables follow its state.
    fn settle(&mut self, now: Instant, slot: u32) {
        let Some(conn) = self.table.at_mut(slot) else { return };
        if conn.flags.half_open && conn.state != State::SynReceived {
            self.leave_half_open(slot);
        }
        let Some(conn) = self.table.at_mut(slot) else { return };
        if cfg!(debug_assertions) {
            conn.invariants();
        }
        if conn.wants_output() && !conn.flags.queued_for_output {
            conn.flags.queued_for_output = true;
            self.ready.push_back(slot);
        }
        if conn.news.any() && conn.flags.held && !conn.flags.queued_for_news {
            conn.flags.queued_for_news = true;
            self.news.push_back(slot);
        }
        if !conn.flags.detached {
            let ended = match conn.state {
                State::TimeWait => !conn.wants_output(),
                State::Closed => !conn.flags.rst_due,
                _ => false,
            };
            if ended {
                self.detach(now, slot);
            } else if let Some(at) = conn.deadline() {
                self.timers.set_if_earlier(slot, at);
            }
        }
        let conn = self.table.at(slot);
        if conn.is_some_and(|conn| conn.flags.detached && !conn.flags.held && !conn.flags.queued_for_output) {
            self.free(slot);
        }
    }

    /// The handshake of a passive connection ended, one way or the other.
    fn leave_half_open(&mut self, slot: u32) {
        let Some(conn) = self.table.at_mut(slot) else { return };
        conn.flags.half_open = false;
        let id = ConnId { slot, generation: conn.generation };
        let established = conn.state != State::Closed;
        let listener_id = conn.listener();
        let listener = listener_id.and_then(|listener| self.listeners.get_mut(listener));
        let (Some(listener_id), Some(listener)) = (listener_id, listener) else {
            // The listener went away meanwhile.
            if established {
                conn.flags.rst_due = true;
                conn.flags.held = false;
                conn.state = State::Closed;
            }
            return;
        };
        listener.half_open = listener.half_open.saturating_sub(1);
        if established {
            self.counters.passive_opens += 1;
            listener.ready.push_back(id);
            if !listener.told {
                listener.told = true;
                self.incoming.push_back(listener_id);
            }
        }
    }

    /// Nothing arrives for this connection any more: its tuple is free, or TIME-WAIT's.
    fn detach(&mut self, now: Instant, slot: u32) {
        let Some(conn) = self.table.at_mut(slot) else { return };
        conn.flags.detached = true;
        let tuple = conn.tuple;
        let remnant = (conn.state == State::TimeWait).then(|| TimeWait::of(now, conn));
        self.demux.remove(&tuple, Owner::Conn(slot));
        self.timers.clear(slot);
        if let Some(entry) = remnant
            && let Some(place) = self.time_wait.insert(now, entry)
        {
            self.counters.time_wait += 1;
            let (table, time_wait) = (&self.table, &self.time_wait);
            self.demux.insert(&tuple, Owner::TimeWait(place), |owner| tuple_of(table, time_wait, owner));
        }
    }

    fn free(&mut self, slot: u32) {
        self.timers.clear(slot);
        if let Some(mut conn) = self.table.remove(slot) {
            conn.discard(&mut self.pool);
        }
    }

    // ---- completions and time ----

    /// A packet has left the host.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is used up by giving it back")]
    pub fn handle_tx_completion(&mut self, now: Instant, ticket: TxTicket) {
        let Some(id) = ticket.conn else { return };
        if self.table.get(id).is_some() {
            self.with(now, id.slot, |conn, cx| conn.on_completion(cx, &ticket));
        }
    }

    /// The device had no room for a packet that was just handed out: it counts as not sent, and is handed out again
    /// by a later [`poll_transmit`](Self::poll_transmit). Ask only when the device has room again. An answer to a stranger
    /// (RST, echo) is not kept: it is lost as in the network.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is used up by giving it back")]
    pub fn handle_tx_refused(&mut self, now: Instant, ticket: TxTicket) {
        let Some(id) = ticket.conn else { return };
        if self.table.get(id).is_some() {
            self.with(now, id.slot, |conn, cx| conn.on_refused(cx, &ticket));
        }
    }

    /// A queue of this host dropped a packet that was just handed out: it counts as not sent, the connection slows down
    /// as for a congestion mark, and the same bytes are handed out again with its next ACK, completion or timeout.
    /// Linux: `NET_XMIT_DROP` from a queue discipline.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is used up by giving it back")]
    pub fn handle_tx_dropped(&mut self, now: Instant, ticket: TxTicket) {
        let Some(id) = ticket.conn else { return };
        if self.table.get(id).is_some() {
            self.with(now, id.slot, |conn, cx| conn.on_dropped(cx, &ticket));
        }
    }

    /// A queue of this host took the packet, but is about to drop others: the connection slows down. The ticket
    /// completes later, as always. Linux: `NET_XMIT_CN`.
    pub fn handle_tx_congested(&mut self, now: Instant, ticket: &TxTicket) {
        let Some(id) = ticket.conn else { return };
        if matches!(ticket.output, Output::Data(_)) && self.table.get(id).is_some() {
            self.with(now, id.slot, Conn::on_local_congestion);
        }
    }

    /// Does everything whose time has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(slot) = self.timers.pop_due(now) {
            self.with(now, slot, Conn::on_timeout);
        }
        while let Some(slot) = self.time_wait.expired(now) {
            self.forget_time_wait(slot);
        }
    }

    /// The next instant at which [`handle_timeout`](Self::handle_timeout) is to be called, and what for.
    ///
    /// A connection that has put its deadline off since is found early, at most once per deadline: moving every timer
    /// on every ACK would cost more.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, Timer)> {
        let conn = self.timers.next().map(|(at, _)| (at, Timer::Conn));
        let time_wait = self.time_wait.next_deadline().map(|at| (at, Timer::TimeWait));
        match (conn, time_wait) {
            (Some(conn), Some(time_wait)) => Some(if conn.0 <= time_wait.0 { conn } else { time_wait }),
            (conn, time_wait) => conn.or(time_wait),
        }
    }
}

fn is_broadcast(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V4(ip) if ip.is_broadcast())
}
