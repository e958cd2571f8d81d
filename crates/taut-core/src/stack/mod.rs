//! The stack: one object, driven by calls, for all connections of one shard.
//!
//! Input comes in by `handle_*` and by commands; output is fetched with `poll_*`. After any input: take
//! events, take transmissions until there are none, then sleep until [`Stack::poll_timeout`] or the next
//! input. The order matters only for speed: transmitting after a batch of input lets its ACKs coalesce.
//!
//! ```text
//!   opening/      connect, listen, accept, ports; SYNs for listeners
//!   input.rs      received packets to connections        output.rs       events and packets, round robin
//!   conn_mut.rs conn_ref.rs   a connection, for the application
//!   lifecycle.rs  bookkeeping after a connection changed orphans.rs      connections that nobody holds
//!   datagrams/    UDP, ping, and flows of datagrams
//!   icmp.rs       echo, errors, fragments                replies.rs      packets that no connection sends
//!   network.rs    addresses, routes and the MTU, changed while the stack runs
//!   incoming/     connections to any address, before they are answered
//!   observe.rs    settings and snapshots                 shards/         several stacks on one link
//!   tables/       who a packet belongs to, and what is due when
//! ```

mod conn_mut;
mod conn_ref;
mod datagrams;
mod icmp;
mod incoming;
mod input;
mod lifecycle;
mod network;
mod observe;
mod opening;
mod orphans;
mod output;
mod placed;
mod replies;
mod shards;
mod tables;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

pub use conn_mut::ConnMut;
pub use conn_ref::ConnRef;
pub use incoming::{
    DatagramFlowOptions, FlowFilter, FlowInfo, FlowKind, FlowState, IncomingOptions, IpPrefix, Refusal,
    SynInfo,
};
pub use opening::listener::ListenerInfo;
pub use shards::steering::Steering;

use crate::buffers::BufferPool;
use crate::conn::{Conn, StackCx};
use crate::egress::Shared;
use crate::egress::emit::HEADER_MAX;
use crate::fast_open::{Cache, FastOpenKeys};
use crate::settings::config::StackConfig;
use crate::stats::Counters;
use crate::words::{ConnId, Duration, Fate, Instant, LinkCaps, ListenerId, Output, TxTicket};
use datagrams::Datagrams;
use network::Surroundings;
use opening::listener::Listeners;
use opening::secrets::Secrets;
use replies::Replies;
use tables::demux::DATAGRAM_BIT;
use tables::owners::Tables;
use tables::timer_queue::TimerQueue;

/// What a deadline of [`Stack::poll_timeout`] is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Timer {
    /// A connection: loss recovery, a delayed ACK, pacing, a probe or keepalive; the SYN-ACK of a half-open
    /// one; or a flow that is not decided.
    Conn,
    /// The oldest entry of TIME-WAIT ends.
    TimeWait,
    /// A datagram may leave, fragments have not become a packet in time, or a flow of datagrams was idle for
    /// too long.
    Datagram,
}

/// A TCP/IP stack without a clock, a device or a thread.
#[derive(Debug)]
pub struct Stack {
    config: Arc<StackConfig>,
    caps: LinkCaps,
    tables: Tables,
    listeners: Listeners,
    timers: TimerQueue,
    /// Connections that may have something to send, served round robin.
    ready: VecDeque<u32>,
    /// Connections that wait for their turn at a device that is measured, each at most once.
    line: VecDeque<ConnId>,
    /// Connections with news for the application.
    news: VecDeque<u32>,
    /// Listeners and datagram sockets with news for the application.
    incoming: VecDeque<News>,
    /// What is not TCP.
    datagrams: Box<Datagrams>,
    /// The next deadline of that.
    side_deadline: Instant,
    /// Addresses with their networks, and routes.
    surroundings: Box<Surroundings>,
    replies: Replies,
    /// While deadlines are handled: when one that has passed as well is handled. Else 0.
    timers_again_at: Instant,
    /// The number of connections that wait for a ticket.
    awaiting_tickets: u32,
    pool: BufferPool,
    counters: Counters,
    /// Time and bytes of all connections, past and present.
    shared: Shared,
    /// See [`must_answer`](Self::must_answer).
    must_answer: bool,
    secrets: Secrets,
    /// What is known about servers that accept data in SYNs.
    fast_open: Cache,
    /// The keys of our own cookies, unless the settings have some.
    fast_open_keys: FastOpenKeys,
    /// Which connections are this stack's, if others are on the same link.
    steering: Option<Steering>,
    /// Spreads local ports (RFC 6056 §3.3.3).
    next_port: u32,
    /// Headers of the packet that is being handed out.
    header: Box<[u8; HEADER_MAX]>,
    /// An ICMP message that is being handed out.
    message: Vec<u8>,
}

/// Who has news, beside connections.
#[derive(Clone, Copy, Debug)]
enum News {
    Listener(ListenerId),
    /// A flow that the application has seen is gone.
    Flow(crate::words::FlowId),
    Datagram(u32),
    /// Groups of multicast were joined or left.
    Group,
}

/// See [`Stack::handle_timeout`].
const TIMERS_AGAIN: Duration = Duration::from_millis(1);

/// The context of a call into a connection. A macro, not a method, because it borrows only these fields and
/// leaves the table free.
macro_rules! stack_cx {
    ($stack:ident, $now:expr) => {
        StackCx {
            now: $now,
            config: &$stack.config,
            link: &$stack.caps,
            pool: &mut $stack.pool,
            counters: &mut $stack.counters,
            shared: &mut $stack.shared,
            must_answer: &mut $stack.must_answer,
        }
    };
}

use stack_cx;

impl Stack {
    /// An empty stack on a link with these capabilities. In production, `seed` must be random: sequence
    /// numbers, ports and hash keys are derived from it. The same seed and the same calls give the same run.
    #[must_use]
    pub fn new(config: Arc<StackConfig>, caps: LinkCaps, seed: [u8; 32]) -> Self {
        let (secrets, demux_key) = Secrets::new(seed);
        let mut pool = BufferPool::new();
        pool.budget.limit(config.mem, config.max_orphans);
        Self {
            tables: Tables::new(demux_key, &config),
            surroundings: Box::new(Surroundings::of(&config.addresses)),
            config,
            caps,
            listeners: Listeners::default(),
            timers: TimerQueue::new(),
            ready: VecDeque::new(),
            line: VecDeque::new(),
            news: VecDeque::new(),
            incoming: VecDeque::new(),
            datagrams: Box::new(Datagrams::new(&secrets)),
            side_deadline: Instant::NEVER,
            replies: Replies::default(),
            pool,
            counters: Counters::default(),
            shared: Shared::default(),
            must_answer: false,
            timers_again_at: Instant::ZERO,
            awaiting_tickets: 0,
            secrets,
            fast_open: Cache::default(),
            fast_open_keys: FastOpenKeys::from_seed(&seed),
            steering: None,
            next_port: 0,
            header: Box::new([0; HEADER_MAX]),
            message: Vec::new(),
        }
    }

    /// The stack's configuration.
    #[must_use]
    pub fn config(&self) -> &StackConfig {
        &self.config
    }

    /// The link's capabilities.
    #[must_use]
    pub const fn caps(&self) -> &LinkCaps {
        &self.caps
    }

    /// The counters, since the stack was made.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The number of connections in any state, except TIME-WAIT; including closed ones that the application
    /// still holds.
    #[must_use]
    pub const fn connections(&self) -> usize {
        self.tables.conns.len() + self.tables.half_open.len()
    }

    /// Whether there are as many connections as there may be.
    fn is_full(&self) -> bool {
        self.connections() >= self.config.max_connections as usize
    }

    /// The number of connections in TIME-WAIT.
    #[must_use]
    pub const fn time_waits(&self) -> usize {
        self.tables.time_wait.len() as usize
    }

    // ---- completions and time ----

    /// The device reports the fate of a packet.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is used up by giving it back")]
    pub fn handle_tx(&mut self, now: Instant, ticket: TxTicket, fate: Fate) {
        let Some(id) = ticket.conn else { return };
        if ticket.output == Output::Syn {
            self.on_syn_ack_fate(&ticket, fate);
        }
        if self.tables.conns.get(id).is_some() {
            self.with(now, id.slot, |conn, cx| match fate {
                Fate::Left => conn.on_completion(cx, &ticket),
                Fate::Refused => conn.on_refused(cx, &ticket),
                Fate::Dropped => conn.on_dropped(cx, &ticket),
            });
        } else if id.slot & DATAGRAM_BIT != 0 {
            self.on_datagram_fate(now, &ticket, fate);
        }
    }

    /// A queue of this host took a packet with a connection's data ([`TxTicket::data_of`]), but is about to
    /// drop others: the connection slows down. The ticket stays out and comes back later, as always. Linux:
    /// `NET_XMIT_CN`.
    pub fn handle_tx_congestion(&mut self, now: Instant, conn: ConnId) {
        if self.tables.conns.get(conn).is_some() {
            self.with(now, conn.slot, Conn::on_local_congestion);
        }
    }

    /// Whether a connection waits for a ticket to come back: its small queue is full, or autocorking holds a
    /// write back. A driver that returns tickets late must then return them soon.
    #[must_use]
    pub const fn awaits_tickets(&self) -> bool {
        self.awaiting_tickets > 0 || self.datagrams.awaits_tickets()
    }

    /// Handles every deadline that has passed. A connection whose next deadline has passed as well gets it a
    /// millisecond later (a tick of Linux's clock at 1000 Hz), so that this call ends whatever the deadlines
    /// are.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.timers_again_at = now + TIMERS_AGAIN;
        while let Some(slot) = self.timers.pop_due(now) {
            if self.with(now, slot, Conn::on_timeout) == Some(true) {
                self.note_black_hole(now);
            }
        }
        self.timers_again_at = Instant::ZERO;
        self.on_half_open_timeouts(now);
        self.on_flow_timeouts(now);
        while let Some(slot) = self.tables.time_wait.expired(now) {
            self.forget_time_wait(slot);
        }
        if self.side_deadline <= now {
            self.on_side_timeouts(now);
        }
    }

    /// The next instant at which [`handle_timeout`](Self::handle_timeout) must be called, and the reason.
    ///
    /// It may be too early, at most once per deadline, for a connection that has postponed its deadline
    /// since: moving every timer on every ACK would cost more.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, Timer)> {
        let next = self.next_of_tcp();
        if self.side_deadline == Instant::NEVER {
            return next;
        }
        let side = (self.side_deadline, Timer::Datagram);
        Some(next.filter(|next| next.0 <= side.0).unwrap_or(side))
    }

    #[inline]
    fn next_of_tcp(&self) -> Option<(Instant, Timer)> {
        let half_open = self.tables.half_open.next_deadline();
        let conn = self.timers.next().map(|(at, _)| at);
        let flow = self.tables.flows.next_deadline();
        let conn = conn.into_iter().chain(half_open).chain(flow).min().map(|at| (at, Timer::Conn));
        let time_wait = self.tables.time_wait.next_deadline().map(|at| (at, Timer::TimeWait));
        match (conn, time_wait) {
            (Some(conn), Some(time_wait)) => Some(if conn.0 <= time_wait.0 { conn } else { time_wait }),
            (conn, time_wait) => conn.or(time_wait),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conn::state::State;
    use crate::settings::options::{ConnOptions, Keepalive};

    /// A connection whose deadline is always now, as an option out of range once made it.
    #[test]
    fn a_deadline_that_never_passes_does_not_hold_up_the_stack() {
        let config = StackConfig { addresses: alloc::vec![[192, 0, 2, 1].into()], ..StackConfig::default() };
        let mut stack = Stack::new(Arc::new(config), LinkCaps::plain(1_500), [7; 32]);
        let now = Instant::from_nanos(1_000_000_000);
        let options = ConnOptions {
            keepalive: Some(Keepalive {
                idle: Duration::from_secs(1),
                interval: Duration::from_secs(1),
                count: 3,
            }),
            ..ConnOptions::default()
        };
        let id = stack.connect(now, ([192, 0, 2, 2], 80).into(), &options).unwrap();
        stack.with(now, id.slot, |conn, cx| {
            conn.state = State::Established;
            conn.write(cx, b"unsent", crate::WriteFlags::default()).unwrap();
            conn.make_keepalive_endless(now);
        });
        for ms in 0..5 {
            let now = now + Duration::from_millis(ms);
            stack.handle_timeout(now);
            let again = now + Duration::from_millis(1);
            assert_eq!(stack.poll_timeout(), Some((again, Timer::Conn)));
        }
    }
}
