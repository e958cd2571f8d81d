//! The world: hosts, routers, wires, a clock that jumps to the next event, and one seed. Called by tests and
//! experiments.
//!
//! The seed decides everything random, and nothing depends on memory addresses or hash order: the same calls
//! with the same seed give the same run. [`World::digest`] shows this without storing the run.
//! `world/build.rs` makes the parts of a world, `parts/fabric.rs` has what they share.

mod build;

use std::sync::Arc;

use taut_core::{Duration, Instant, Stack};
use taut_link::{PolicerSpec, Qdisc, QdiscSpec, Rate, Trace};

use crate::check::{self, Checks};
use crate::event::{AlarmId, BEGIN};
use crate::failure::{Failure, Kind};
use crate::ids::{HostId, RouterId, WireId};
use crate::parts::cpu::Counts;
use crate::parts::fabric::{Fabric, Owner};
use crate::parts::host::Host;
use crate::parts::router::Router;
use crate::parts::wire::{End, WireCounts};
use build::Link;

/// A router's port: any queue discipline in front of a line.
#[derive(Clone, Debug)]
pub struct PortSpec {
    /// Rate of the line; `None` sends at once.
    pub rate: Option<Rate>,
    /// The queue discipline.
    pub qdisc: QdiscSpec,
    /// Other rates of the line, each from a time on that is later than the one before.
    pub steps: Vec<(Instant, Rate)>,
    /// In the place of all these rates, what a line could carry from a time on.
    pub trace: Option<(Instant, Arc<Trace>)>,
    /// Drops what exceeds its rate, in front of the queue. It counts bytes on the line, as the line does.
    pub policer: Option<PolicerSpec>,
}

impl PortSpec {
    /// A line of this rate behind a plain queue of this many packets.
    #[must_use]
    pub fn fifo(rate: Rate, packets: u32) -> Self {
        Self {
            rate: Some(rate),
            qdisc: QdiscSpec::Pfifo { limit: packets },
            steps: Vec::new(),
            trace: None,
            policer: None,
        }
    }
}

/// Progress of a run, for a callback.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Virtual time.
    pub now: Instant,
    /// When the run ends.
    pub until: Instant,
    /// Events so far, since the world began.
    pub events: u64,
}

/// A network, its hosts, and their time.
pub struct World {
    pub(crate) fabric: Fabric,
    pub(crate) hosts: Vec<Host>,
    pub(crate) routers: Vec<Router>,
    links: Vec<Link>,
    routed: bool,
    events: u64,
    checks: Checks,
    /// Events at the current nanosecond: if there are too many, the world is broken.
    at_once: u64,
}

/// Most events in one nanosecond: many times the number of parts of any world.
const AT_ONCE_MAX: u64 = 1_000_000;

/// Events between two calls of a progress callback.
const PROGRESS_EVERY: u64 = 1 << 16;

impl World {
    /// An empty world.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            fabric: Fabric::new(seed),
            hosts: Vec::new(),
            routers: Vec::new(),
            links: Vec::new(),
            routed: false,
            events: 0,
            checks: Checks::default(),
            at_once: 0,
        }
    }

    // ---- running ----

    /// Runs until `until`, including that instant.
    ///
    /// # Errors
    /// The first [`Failure`]: a check that failed, or an application that read bytes that were never written.
    pub fn run_until(&mut self, until: Instant) -> Result<(), Failure> {
        self.run_with(until, |_| true)
    }

    /// As [`run_until`](Self::run_until), for this long.
    ///
    /// # Errors
    /// As [`run_until`](Self::run_until).
    pub fn run_for(&mut self, span: Duration) -> Result<(), Failure> {
        self.run_until(self.fabric.now + span)
    }

    /// As [`run_until`](Self::run_until), but calls `progress` from time to time; the run ends when that
    /// returns false.
    ///
    /// # Errors
    /// As [`run_until`](Self::run_until).
    pub fn run_with(
        &mut self,
        until: Instant,
        mut progress: impl FnMut(Progress) -> bool,
    ) -> Result<(), Failure> {
        if !self.routed {
            self.route();
        }
        self.fabric.probes.ask();
        loop {
            if let Some(failure) = self.fabric.failures.pop_front() {
                return Err(failure);
            }
            let Some((at, alarm)) = self.fabric.agenda.pop(until) else { break };
            self.step(at, alarm)?;
            if self.events.is_multiple_of(PROGRESS_EVERY) {
                let report = Progress { now: self.fabric.now, until, events: self.events };
                if !progress(report) {
                    return Ok(());
                }
            }
        }
        self.fabric.now = self.fabric.now.max(until);
        self.checks.at_end(self)
    }

    /// Handles the next event.
    fn step(&mut self, at: Instant, alarm: AlarmId) -> Result<(), Failure> {
        let now = self.fabric.now;
        if at < now {
            return Err(Failure::new(now, Kind::TimeWentBack, format!("from {now:?} to {at:?}")));
        }
        self.at_once = if at == now { self.at_once + 1 } else { 0 };
        if self.at_once > AT_ONCE_MAX {
            return Err(Failure::new(
                now,
                Kind::NoProgress,
                format!("alarm {} rings endlessly at the same time", alarm.0),
            ));
        }
        self.fabric.now = at;
        self.events += 1;
        self.fabric.note(at.as_nanos() ^ u64::from(alarm.0) << 48);
        if let Some(&owner) = self.fabric.owners.get(alarm.0 as usize) {
            self.dispatch(owner);
        }
        if self.checks.due(self.events) {
            self.check_now()?;
        }
        Ok(())
    }

    fn dispatch(&mut self, owner: Owner) {
        let Self { fabric, hosts, routers, .. } = self;
        match owner {
            Owner::Wire(id) => {
                let Some(wire) = fabric.wires.get_mut(id as usize) else { return };
                let to = wire.to;
                let packet = wire.poll(fabric.now);
                let next = wire.next();
                fabric.agenda.set(wire.alarm, next);
                let Some(packet) = packet else { return };
                match to {
                    End::Host(host) => hosts[host as usize].receive(fabric, packet),
                    End::Router(router) => routers[router as usize].receive(fabric, packet),
                }
            }
            Owner::Port(router, port) => routers[router as usize].run_port(fabric, port as usize),
            Owner::Stack(host) => hosts[host as usize].on_stack_alarm(fabric),
            Owner::Root(host) => hosts[host as usize].on_root_alarm(fabric),
            Owner::NicSent(host) => hosts[host as usize].on_sent_alarm(fabric),
            Owner::NicReceived(host) => hosts[host as usize].on_received_alarm(fabric),
            Owner::Apart(host) => hosts[host as usize].on_apart_alarm(fabric),
            Owner::Returns(host) => hosts[host as usize].on_returns_alarm(fabric),
            Owner::Core(host) => hosts[host as usize].on_core_alarm(fabric),
            Owner::App(host, app) => hosts[host as usize].on_app_alarm(fabric, app),
        }
    }

    /// Checks everything now, whatever was set with [`check`](Self::check).
    ///
    /// # Errors
    /// The invariant that does not hold.
    pub fn check_now(&self) -> Result<(), Failure> {
        check::all(self)
    }

    // ---- inspection ----

    /// Virtual time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.fabric.now
    }

    /// Virtual time since the world began.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.fabric.now.since(BEGIN)
    }

    /// A number that depends on every event, its time, and the headers of every packet that arrived or was
    /// dropped: equal runs have equal digests.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.fabric.digest
    }

    /// Events so far.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// Packets dropped anywhere.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.fabric.lost
    }

    /// A host.
    ///
    /// # Panics
    /// If the host is of another world.
    #[must_use]
    pub fn host_ref(&self, id: HostId) -> &Host {
        &self.hosts[id.index()]
    }

    /// A host's stack, for changing settings; data that it wants to send leaves at the next event of the
    /// host, or with [`poke`](Self::poke).
    ///
    /// # Panics
    /// If the host is of another world.
    pub fn stack_mut(&mut self, id: HostId) -> &mut Stack {
        &mut self.hosts[id.index()].stack
    }

    /// A host looks after its stack now, as a driver does after a call.
    ///
    /// # Panics
    /// If the host is of another world.
    pub fn poke(&mut self, id: HostId) {
        self.hosts[id.index()].poke(&mut self.fabric);
    }

    /// A packet that nobody sent arrives at a host now, as from an attacker elsewhere.
    pub fn inject(&mut self, to: HostId, bytes: &[u8]) {
        let packet = self.fabric.pool.forged(self.fabric.now, bytes, to);
        if let Some(host) = self.hosts.get_mut(to.index()) {
            host.receive(&mut self.fabric, packet);
        }
    }

    /// Counts of a host.
    #[must_use]
    pub fn counts(&self, id: HostId) -> Counts {
        self.hosts.get(id.index()).map_or_else(Counts::default, |host| host.counts)
    }

    /// State of a port of a router, numbered in the order in which its links were made: bytes that wait, the
    /// most that ever did, packets dropped, and the counts of its queue discipline.
    #[must_use]
    pub fn port_state(&self, router: RouterId, port: usize) -> Option<PortState> {
        let port = self.routers.get(router.0 as usize)?.ports.get(port)?;
        Some(PortState {
            backlog_bytes: port.queue.backlog_bytes(),
            backlog_packets: port.queue.backlog_packets(),
            peak_bytes: port.peak_bytes,
            drops: port.drops,
            stats: port.queue.stats(),
        })
    }

    /// Counts of a wire.
    #[must_use]
    pub fn wire_counts(&self, WireId(id): WireId) -> WireCounts {
        self.fabric.wires.get(id as usize).map_or_else(WireCounts::default, |wire| wire.counts)
    }

    /// Packets anywhere in the network or in a host's queues.
    #[must_use]
    pub fn packets_live(&self) -> usize {
        self.fabric.pool.live()
    }

    /// The most packets that ever existed at once, and the bytes of memory for payloads.
    #[must_use]
    pub fn memory(&self) -> (usize, usize) {
        (self.fabric.pool.peak(), self.fabric.pool.buffer_bytes())
    }
}

/// State of a router's port.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PortState {
    /// Bytes that wait.
    pub backlog_bytes: u64,
    /// Packets that wait.
    pub backlog_packets: usize,
    /// The most bytes that ever waited.
    pub peak_bytes: u64,
    /// Packets that were dropped.
    pub drops: u64,
    /// Counts of the queue discipline.
    pub stats: taut_link::QdiscStats,
}
