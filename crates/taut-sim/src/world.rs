//! The world: hosts, routers, wires, a clock that jumps to the next thing that happens, and one seed. Called by tests
//! and by whoever runs experiments.
//!
//! Everything that can be decided by chance is decided by the seed, and nothing depends on addresses or hash order: the
//! same calls with the same seed give the same run, which [`World::digest`] proves without keeping it.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use taut_core::{Duration, Instant, Stack, StackConfig};
use taut_link::{Ecn, NicSpec, Packet, Qdisc, Rate};

use crate::app::{App, AppId};
use crate::check::{self, Checks, Failure};
use crate::cpu::Counts;
use crate::event::{Agenda, AlarmId};
use crate::fault::Faults;
use crate::host::{Host, HostSpec};
use crate::packet::{NO_TICKET, PacketId, Pool, SPREAD};
use crate::probe::{PacketView, Place, Probe, ProbeEvent, Probes};
use crate::qdisc::QdiscSpec;
use crate::rng::Rng;
use crate::router::{NO_ROUTE, Port, Router, RouterId};
use crate::wire::{End, Line, Wire, WireCounts};

/// When every world begins: a second after the epoch, so that nothing happens at zero.
pub const BEGIN: Instant = Instant::from_nanos(1_000_000_000);

/// Names a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostId(pub(crate) u32);

impl HostId {
    /// Its number, from 0 in the order of creation.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Names one direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WireId(pub(crate) u32);

/// Names what a link can end at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeId {
    /// A host; it has one link.
    Host(HostId),
    /// A router; it has any number.
    Router(RouterId),
}

impl From<HostId> for NodeId {
    fn from(id: HostId) -> Self {
        Self::Host(id)
    }
}

impl From<RouterId> for NodeId {
    fn from(id: RouterId) -> Self {
        Self::Router(id)
    }
}

/// How a router sends into a link: any discipline in front of a line.
#[derive(Clone, Debug)]
pub struct PortSpec {
    /// Rate of the line; `None` sends at once.
    pub rate: Option<Rate>,
    /// What waits where.
    pub qdisc: QdiscSpec,
}

impl PortSpec {
    /// A line of this rate behind a plain queue of so many packets.
    #[must_use]
    pub fn fifo(rate: Rate, packets: usize) -> Self {
        Self { rate: Some(rate), qdisc: QdiscSpec::Pfifo { packets } }
    }
}

/// Whose alarm it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Stack(u32),
    Root(u32),
    NicSent(u32),
    NicReceived(u32),
    Core(u32),
    Apart(u32),
    App(u32, u32),
    Wire(u32),
    Port(u32, u32),
}

/// What hosts and routers share.
pub(crate) struct Fabric {
    pub(crate) now: Instant,
    pub(crate) agenda: Agenda,
    pub(crate) pool: Pool,
    pub(crate) wires: Vec<Wire>,
    pub(crate) probes: Probes,
    pub(crate) addresses: BTreeMap<IpAddr, HostId>,
    pub(crate) failures: VecDeque<Failure>,
    pub(crate) rng: Rng,
    digest: u64,
    owners: Vec<Owner>,
    lost: u64,
}

impl Fabric {
    fn alarm(&mut self, owner: Owner) -> AlarmId {
        self.owners.push(owner);
        self.agenda.add()
    }

    /// An alarm for an application of a host.
    pub(crate) fn app_alarm(&mut self, host: HostId, app: AppId) -> AlarmId {
        self.alarm(Owner::App(host.0, app.index() as u32))
    }

    /// Makes the digest depend on `word`.
    pub(crate) fn note(&mut self, word: u64) {
        self.digest = (self.digest.rotate_left(5) ^ word).wrapping_mul(SPREAD);
    }

    /// A packet dressed for a queue.
    pub(crate) fn dress(&self, departure: Instant, id: PacketId) -> Packet<PacketId> {
        let segs = u16::try_from(self.pool.segs(&id)).unwrap_or(u16::MAX);
        let packet = self.pool.get(&id);
        let (flow, ecn) = (packet.flow, packet.ecn());
        Packet { ecn, segs, departure, flow, ..Packet::new(self.pool.len(&id), id) }
    }

    /// A packet that came out of a queue, with what the queue wrote on it.
    pub(crate) fn undress(&mut self, packet: Packet<PacketId>) -> PacketId {
        let id = self.pool.settle(packet.item);
        if packet.ecn == Ecn::Marked {
            self.pool.get_mut(&id).mark();
        }
        if let Some(bit) = packet.corrupt {
            self.pool.corrupt(&id, u64::from(bit));
        }
        id
    }

    /// Puts a packet on a wire whose last bit goes out at `sent`.
    pub(crate) fn launch(&mut self, WireId(id): WireId, sent: Instant, packet: PacketId) {
        let Some(wire) = self.wires.get_mut(id as usize) else { return self.pool.free(packet) };
        let before = wire.next();
        let lost = wire.launch(sent, packet, &mut self.pool);
        let next = wire.next();
        if next != before {
            self.agenda.set(wire.alarm, next);
        }
        if let Some(lost) = lost {
            self.lose(Place::Wire(id), lost);
        }
    }

    /// A packet was dropped.
    pub(crate) fn lose(&mut self, place: Place, packet: PacketId) {
        let packet = self.pool.settle(packet);
        self.lost += 1;
        self.note(self.pool.get(&packet).fingerprint() ^ 1);
        if self.probes.want.packets {
            let view = PacketView::new(&self.pool, &packet);
            self.probes.tell(self.now, &ProbeEvent::Dropped { place, packet: view });
        }
        debug_assert_eq!(self.pool.get(&packet).ticket, NO_TICKET, "its host must be told");
        self.pool.free(packet);
    }

    /// Tells probes of a packet that a line sends.
    pub(crate) fn tell_sent(&mut self, place: Place, at: Instant, packet: &PacketId) {
        if self.probes.want.packets {
            let packet = PacketView::new(&self.pool, packet);
            self.probes.tell(self.now, &ProbeEvent::Sent { place, packet, at });
        }
    }
}

/// One link of the plan, for routing.
#[derive(Clone, Copy, Debug)]
struct Link {
    from: NodeId,
    to: NodeId,
    /// Port at `from`, if that is a router.
    port: u32,
}

/// Progress of a run, for whoever waits for it.
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
    /// Events at the current nanosecond: a world that stands still is broken.
    at_once: u64,
}

/// Most events in one nanosecond: more than any world has parts, many times over.
const AT_ONCE_MAX: u64 = 1_000_000;

/// Events between two calls of a progress callback.
const PROGRESS_EVERY: u64 = 1 << 16;

impl World {
    /// An empty world.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            fabric: Fabric {
                now: BEGIN,
                agenda: Agenda::default(),
                pool: Pool::default(),
                wires: Vec::new(),
                probes: Probes::default(),
                addresses: BTreeMap::new(),
                failures: VecDeque::new(),
                rng: Rng::new(seed),
                digest: 0,
                owners: Vec::new(),
                lost: 0,
            },
            hosts: Vec::new(),
            routers: Vec::new(),
            links: Vec::new(),
            routed: false,
            events: 0,
            checks: Checks::default(),
            at_once: 0,
        }
    }

    // ---- building ----

    /// A host. Without addresses of its own it gets the next of 10.0.0.0/8.
    pub fn host(&mut self, mut spec: HostSpec) -> HostId {
        let number = self.hosts.len() as u32;
        let id = HostId(number);
        if spec.config.addresses.is_empty() {
            spec.config.addresses.push(IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0001 + number)));
        }
        for address in &spec.config.addresses {
            self.fabric.addresses.insert(*address, id);
        }
        let config: Arc<StackConfig> = Arc::new(spec.config.clone());
        let seed = self.fabric.rng.bytes();
        let stack = Stack::new(config, spec.caps(), seed);
        let rng = self.fabric.rng.fork();
        let alarms = crate::host::Alarms {
            stack: self.fabric.alarm(Owner::Stack(number)),
            root: self.fabric.alarm(Owner::Root(number)),
            sent: self.fabric.alarm(Owner::NicSent(number)),
            received: self.fabric.alarm(Owner::NicReceived(number)),
            core: self.fabric.alarm(Owner::Core(number)),
            apart: self.fabric.alarm(Owner::Apart(number)),
        };
        self.hosts.push(Host::new(id, &spec, stack, alarms, rng));
        id
    }

    /// A router without links.
    pub fn router(&mut self) -> RouterId {
        let id = RouterId(self.routers.len() as u32);
        self.routers.push(Router { id, ports: Vec::new(), routes: Vec::new() });
        id
    }

    /// A link from a host to a router: the host sends by its NIC, the router as `port` says.
    pub fn attach(
        &mut self,
        host: HostId,
        router: RouterId,
        port: &PortSpec,
        delay: Duration,
    ) -> (WireId, WireId) {
        let up = self.wire(End::Router(router.0), delay);
        let down = self.wire(End::Host(host.0), delay);
        if let Some(host) = self.hosts.get_mut(host.index()) {
            host.wire = Some(up);
        }
        self.links.push(Link { from: host.into(), to: router.into(), port: NO_ROUTE });
        self.port(router, host.into(), port, down);
        (up, down)
    }

    /// A link between two routers, `there` from `a` to `b` and `back` the other way.
    pub fn join(
        &mut self,
        a: RouterId,
        b: RouterId,
        there: &PortSpec,
        back: &PortSpec,
        delay: Duration,
    ) -> (WireId, WireId) {
        let ab = self.wire(End::Router(b.0), delay);
        let ba = self.wire(End::Router(a.0), delay);
        self.port(a, b.into(), there, ab);
        self.port(b, a.into(), back, ba);
        (ab, ba)
    }

    /// A link between two hosts, NIC to NIC.
    pub fn cable(&mut self, a: HostId, b: HostId, delay: Duration) -> (WireId, WireId) {
        let ab = self.wire(End::Host(b.0), delay);
        let ba = self.wire(End::Host(a.0), delay);
        for (host, peer, wire) in [(a, b, ab), (b, a, ba)] {
            if let Some(host) = self.hosts.get_mut(host.index()) {
                host.wire = Some(wire);
            }
            self.links.push(Link { from: host.into(), to: peer.into(), port: NO_ROUTE });
        }
        (ab, ba)
    }

    fn wire(&mut self, to: End, delay: Duration) -> WireId {
        let id = self.fabric.wires.len() as u32;
        let alarm = self.fabric.alarm(Owner::Wire(id));
        self.fabric.wires.push(Wire::new(to, delay, alarm));
        WireId(id)
    }

    fn port(&mut self, router: RouterId, to: NodeId, spec: &PortSpec, wire: WireId) {
        self.routed = false;
        let Some(ports) = self.routers.get_mut(router.0 as usize).map(|router| &mut router.ports) else {
            return;
        };
        let number = ports.len() as u32;
        let alarm = self.fabric.alarm(Owner::Port(router.0, number));
        let queue = spec.qdisc.build(self.fabric.rng.next());
        let limit = spec.qdisc.limit();
        ports.push(Port {
            queue,
            limit,
            line: Line::new(spec.rate, NicSpec::ETHERNET_BYTES),
            wire,
            alarm,
            drops: 0,
            peak_bytes: 0,
        });
        self.links.push(Link { from: router.into(), to, port: number });
    }

    /// Gives a wire faults, which hold from now on.
    pub fn set_faults(&mut self, WireId(id): WireId, faults: Faults) {
        let rng = self.fabric.rng.fork();
        if let Some(wire) = self.fabric.wires.get_mut(id as usize) {
            wire.set_faults(faults, rng);
        }
    }

    /// Changes how long a wire is. What is on it arrives when it would have.
    pub fn set_delay(&mut self, WireId(id): WireId, delay: Duration) {
        if let Some(wire) = self.fabric.wires.get_mut(id as usize) {
            wire.delay = delay;
        }
    }

    /// An application that starts at once.
    pub fn app(&mut self, host: HostId, app: impl App + 'static) -> AppId {
        self.app_at(host, self.fabric.now, app)
    }

    /// An application that starts at `at`.
    pub fn app_at(&mut self, host: HostId, at: Instant, app: impl App + 'static) -> AppId {
        let Some(host) = self.hosts.get_mut(host.index()) else { return AppId::NONE };
        host.add_app(&mut self.fabric, at, Box::new(app))
    }

    /// An observer; share it by `Rc<RefCell<_>>` to read it afterwards.
    pub fn probe(&mut self, probe: impl Probe + 'static) {
        self.fabric.probes.add(Box::new(probe));
    }

    /// What is checked, and how often; nothing unless set.
    pub fn check(&mut self, checks: Checks) {
        self.checks = checks;
    }

    /// Way to every host from every router: fewest links, and of those the one that was made first.
    fn route(&mut self) {
        self.routed = true;
        let hosts = self.hosts.len();
        for router in &mut self.routers {
            router.routes = vec![NO_ROUTE; hosts];
        }
        for host in 0..hosts {
            // Backwards from the host, breadth first. A host forwards nothing.
            let mut next = VecDeque::from([NodeId::Host(HostId(host as u32))]);
            let mut seen = vec![false; self.routers.len()];
            while let Some(node) = next.pop_front() {
                for link in self.links.iter().filter(|link| link.to == node) {
                    let NodeId::Router(RouterId(router)) = link.from else { continue };
                    let router = router as usize;
                    if let Some(seen) = seen.get_mut(router)
                        && !std::mem::replace(seen, true)
                    {
                        self.routers[router].routes[host] = link.port;
                        next.push_back(link.from);
                    }
                }
            }
        }
    }

    // ---- running ----

    /// Lets everything happen until `until`, that instant included.
    ///
    /// # Errors
    /// The first [`Failure`]: a check that failed, or an application that read what nobody wrote.
    pub fn run_until(&mut self, until: Instant) -> Result<(), Failure> {
        self.run_with(until, |_| true)
    }

    /// As [`run_until`](Self::run_until), for so much longer.
    ///
    /// # Errors
    /// As [`run_until`](Self::run_until).
    pub fn run_for(&mut self, span: Duration) -> Result<(), Failure> {
        self.run_until(self.fabric.now + span)
    }

    /// As [`run_until`](Self::run_until), and calls `progress` every now and then, which may end the run by
    /// returning false.
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

    /// Lets the next thing happen.
    fn step(&mut self, at: Instant, alarm: AlarmId) -> Result<(), Failure> {
        let now = self.fabric.now;
        if at < now {
            return Err(Failure::new(now, check::Kind::TimeWentBack, format!("from {now:?} to {at:?}")));
        }
        self.at_once = if at == now { self.at_once + 1 } else { 0 };
        if self.at_once > AT_ONCE_MAX {
            return Err(Failure::new(
                now,
                check::Kind::NoProgress,
                format!("alarm {} rings for ever", alarm.0),
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
            Owner::Core(host) => hosts[host as usize].on_core_alarm(fabric),
            Owner::App(host, app) => hosts[host as usize].on_app_alarm(fabric, app),
        }
    }

    /// Checks everything now, whatever [`check`](Self::check) said.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check_now(&self) -> Result<(), Failure> {
        check::all(self)
    }

    // ---- looking ----

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

    /// A number that depends on every event there was, its time, and the headers of every packet that arrived or was
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
    /// If it is of another world.
    #[must_use]
    pub fn host_ref(&self, id: HostId) -> &Host {
        &self.hosts[id.index()]
    }

    /// A host's stack, for settings; what it has to send leaves when it is asked next.
    ///
    /// # Panics
    /// If it is of another world.
    pub fn stack_mut(&mut self, id: HostId) -> &mut Stack {
        &mut self.hosts[id.index()].stack
    }

    /// What a host did.
    #[must_use]
    pub fn counts(&self, id: HostId) -> Counts {
        self.hosts.get(id.index()).map_or_else(Counts::default, |host| host.counts)
    }

    /// A port of a router, by the order in which its links were made: bytes that wait, most that ever did, packets
    /// dropped, and the discipline's own counts.
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

    /// Packets that are anywhere in the network or in a host's queues.
    #[must_use]
    pub fn packets_live(&self) -> usize {
        self.fabric.pool.live()
    }

    /// Most packets that ever were, and the bytes of memory that payloads take.
    #[must_use]
    pub fn memory(&self) -> (usize, usize) {
        (self.fabric.pool.peak(), self.fabric.pool.buffer_bytes())
    }
}

/// How a port of a router is.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PortState {
    /// Bytes that wait.
    pub backlog_bytes: u64,
    /// Packets that wait.
    pub backlog_packets: usize,
    /// Most bytes that ever waited.
    pub peak_bytes: u64,
    /// Packets that were dropped.
    pub drops: u64,
    /// The discipline's own counts.
    pub stats: taut_link::QdiscStats,
}
