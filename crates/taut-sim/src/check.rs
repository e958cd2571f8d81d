//! What must hold at any time, whatever is sent: looked at after every event, or every so many. Called by the world's
//! loop and by tests.
//!
//! - Packets are conserved: what the queues, rings and wires hold is what the pool thinks is out.
//! - Tickets are conserved: the truesizes that a host's queues hold of a connection are its `wmem_alloc`.
//! - A queue holds no more than its limit.
//! - Nothing stalls: a connection that has something to send waits for something that will come.
//! - Time does not go back, nor stand still for ever.
//!
//! That bytes arrive in order and as they were written is for the applications to say, which know what was written.

use std::collections::BTreeMap;
use std::fmt;

use taut_core::{Blocked, ConnInfo, Instant, State};

use crate::host::{Host, flow_between};
use crate::qdisc::QueueLimit;
use crate::world::World;

/// What failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Packets were forgotten, or are in two places.
    Packets,
    /// Bytes below TCP are not what the stack believes.
    Tickets,
    /// A queue holds more than it may.
    QueueLimit,
    /// A connection waits for nothing.
    Stalled,
    /// An application read what was not written.
    WrongBytes,
    /// Virtual time went back.
    TimeWentBack,
    /// Virtual time stands still.
    NoProgress,
}

/// A run that must not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Failure {
    /// When.
    pub at: Instant,
    /// What.
    pub kind: Kind,
    /// The details.
    pub why: String,
}

impl Failure {
    pub(crate) fn new(at: Instant, kind: Kind, why: String) -> Self {
        Self { at, kind, why }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {:?}: {:?}: {}", self.at, self.kind, self.why)
    }
}

/// How often everything is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// Events between two looks; 0 for never.
    pub every: u64,
}

impl Checks {
    /// After every event: slow.
    pub const ALWAYS: Self = Self { every: 1 };

    pub(crate) const fn due(self, events: u64) -> bool {
        self.every != 0 && events.is_multiple_of(self.every)
    }

    pub(crate) fn at_end(self, world: &World) -> Result<(), Failure> {
        if self.every == 0 { Ok(()) } else { all(world) }
    }
}

/// Everything, once.
pub(crate) fn all(world: &World) -> Result<(), Failure> {
    packets(world)?;
    for router in &world.routers {
        for (index, port) in router.ports.iter().enumerate() {
            let (bytes, packets) = (port.queue.backlog_bytes(), port.queue.backlog_packets());
            within(world, port.limit, bytes, packets, || format!("port {index} of router {}", router.id.0))?;
        }
    }
    for host in &world.hosts {
        let (bytes, packets) = (host.root.backlog_bytes(), host.root.backlog_packets());
        within(world, host.root_limit, bytes, packets, || format!("root queue of host {}", host.id.0))?;
        tickets(world, host)?;
        if host.is_settled() {
            stalls(world, host)?;
        }
    }
    Ok(())
}

fn fail(world: &World, kind: Kind, why: String) -> Result<(), Failure> {
    Err(Failure::new(world.now(), kind, why))
}

fn packets(world: &World) -> Result<(), Failure> {
    let wires: usize = world.fabric.wires.iter().map(crate::wire::Wire::len).sum();
    let ports: usize =
        world.routers.iter().flat_map(|router| &router.ports).map(|port| port.queue.backlog_packets()).sum();
    let hosts: usize = world.hosts.iter().map(|host| host.root.backlog_packets() + host.received.len()).sum();
    let live = world.fabric.pool.live();
    if wires + ports + hosts == live {
        return Ok(());
    }
    fail(
        world,
        Kind::Packets,
        format!("{wires} on wires + {ports} in ports + {hosts} in hosts, but {live} are out"),
    )
}

fn within(
    world: &World,
    limit: Option<QueueLimit>,
    bytes: u64,
    packets: usize,
    name: impl FnOnce() -> String,
) -> Result<(), Failure> {
    let held = match limit {
        Some(QueueLimit::Packets(most)) => packets <= most,
        Some(QueueLimit::Bytes(most)) => bytes <= most,
        None => true,
    };
    if held {
        Ok(())
    } else {
        fail(world, Kind::QueueLimit, format!("{bytes} bytes, {packets} packets in {}", name()))
    }
}

fn tickets(world: &World, host: &Host) -> Result<(), Failure> {
    let mut held: BTreeMap<u64, u64> = BTreeMap::new();
    for entry in host.tickets.iter() {
        *held.entry(entry.flow).or_default() += u64::from(entry.ticket.truesize());
    }
    for id in host.stack.conn_ids() {
        let Some(info) = host.stack.conn_info(id, world.now()) else { continue };
        let flow = flow_between(info.local, info.peer);
        let below = held.get(&flow).copied().unwrap_or(0);
        if below != u64::from(info.wmem_alloc) {
            let why = format!(
                "host {}, {} -> {}: the stack believes {} bytes below it, {below} are",
                host.id.0, info.local, info.peer, info.wmem_alloc
            );
            return fail(world, Kind::Tickets, why);
        }
    }
    Ok(())
}

fn stalls(world: &World, host: &Host) -> Result<(), Failure> {
    let has_timer = host.stack.poll_timeout().is_some();
    for id in host.stack.conn_ids() {
        let Some(info) = host.stack.conn_info(id, world.now()) else { continue };
        if let Some(what) = stall(&info, has_timer, world.now(), host.nic.room()) {
            let why = format!(
                "host {}, {} -> {}: {what} ({} unsent, {} unacked, cwnd {}, window {}, {} below, blocked by {})",
                host.id.0,
                info.local,
                info.peer,
                info.notsent_bytes,
                info.unacked,
                info.snd_cwnd,
                info.snd_wnd,
                info.wmem_alloc,
                info.blocked
            );
            return fail(world, Kind::Stalled, why);
        }
    }
    Ok(())
}

/// What a connection waits for that will not come.
fn stall(info: &ConnInfo, has_timer: bool, now: Instant, nic_has_room: bool) -> Option<&'static str> {
    let is_open = matches!(
        info.state,
        State::Established | State::CloseWait | State::FinWait1 | State::Closing | State::LastAck
    );
    if !is_open {
        return None;
    }
    if info.unacked > 0 && !has_timer {
        return Some("data in flight and no timer");
    }
    if info.notsent_bytes == 0 {
        return None;
    }
    let in_flight = info.unacked > 0;
    let below = info.wmem_alloc > 0;
    match info.blocked {
        Blocked::NoData => Some("data unsent, but none to send"),
        // Half a millisecond: a core may be busy.
        Blocked::Pacing { until } if now > until + taut_core::Duration::from_micros(500) => {
            Some("the departure time has passed")
        }
        Blocked::Pacing { .. } if !has_timer => Some("paced without a timer"),
        Blocked::Cwnd if !in_flight => Some("a full congestion window with nothing in flight"),
        Blocked::PeerWindow if !in_flight && !has_timer => Some("a closed window and no probe"),
        Blocked::Nagle | Blocked::TsoDefer if !in_flight => Some("waits for an ACK of nothing"),
        Blocked::Cork if !in_flight && !has_timer => Some("corked without an end"),
        Blocked::Autocork | Blocked::SmallQueue if !below => Some("waits for a completion of nothing"),
        Blocked::Device if nic_has_room && !below => Some("the device has room"),
        _ => None,
    }
}
