//! Common networks. Called by tests and experiments.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;

use taut_core::{ConnOptions, Duration, Instant};
use taut_link::Rate;

use crate::app::{Bulk, Sink, SinkStats};
use crate::ids::{HostId, RouterId, WireId};
use crate::parts::host::HostSpec;
use crate::world::{PortSpec, World};

/// Two hosts and a cable.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// One end.
    pub a: HostId,
    /// The other.
    pub b: HostId,
    /// From `a` to `b`.
    pub ab: WireId,
    /// From `b` to `a`.
    pub ba: WireId,
}

impl Pair {
    /// Connects the hosts; `delay` is one way.
    pub fn new(world: &mut World, a: HostSpec, b: HostSpec, delay: Duration) -> Self {
        let (a, b) = (world.host(a), world.host(b));
        let (ab, ba) = world.cable(a, b, delay);
        Self { a, b, ab, ba }
    }
}

/// Senders on the left, receivers on the right, and one shared line between two routers.
///
/// ```text
///   left 0 ──┐                          ┌── right 0
///   left 1 ──┼─ router ═bottleneck═ router ─┼── right 1
///   left n ──┘                          └── right n
/// ```
#[derive(Clone, Debug)]
pub struct Dumbbell {
    /// Hosts on the left.
    pub left: Vec<HostId>,
    /// Hosts on the right.
    pub right: Vec<HostId>,
    /// The routers, left and right.
    pub routers: (RouterId, RouterId),
    /// The bottleneck's port at the left router.
    pub bottleneck: usize,
    /// The bottleneck's wires, to the right and to the left.
    pub wires: (WireId, WireId),
}

/// How a [`Dumbbell`] is built.
#[derive(Clone, Debug)]
pub struct DumbbellSpec {
    /// One-way delay of each flow's own link on the left; there are as many pairs of hosts.
    pub delays: Vec<Duration>,
    /// The line in the middle, both ways.
    pub bottleneck: PortSpec,
    /// Its one-way delay.
    pub delay: Duration,
    /// Rate of the routers' ports towards the hosts.
    pub access: Rate,
    /// The specification of every host.
    pub host: HostSpec,
}

impl DumbbellSpec {
    /// As many pairs of present-day hosts, directly at their routers. Their NICs, and the routers' ports
    /// towards them, have the rate `access`.
    #[must_use]
    pub fn new(pairs: usize, access: Rate, bottleneck: PortSpec, delay: Duration) -> Self {
        let delays = vec![Duration::ZERO; pairs];
        Self { delays, bottleneck, delay, access, host: HostSpec::new(access) }
    }
}

/// The port that [`Dumbbell::transfer`] sends to.
const SINK_PORT: u16 = 5001;

impl Dumbbell {
    /// Builds the dumbbell.
    pub fn new(world: &mut World, spec: &DumbbellSpec) -> Self {
        let (l, r) = (world.router(), world.router());
        let access = PortSpec::fifo(spec.access, 1_000);
        let wires = world.join(l, r, &spec.bottleneck, &spec.bottleneck, spec.delay);
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for &delay in &spec.delays {
            let (a, b) = (world.host(spec.host.clone()), world.host(spec.host.clone()));
            world.attach(a, l, &access, delay);
            world.attach(b, r, &access, Duration::ZERO);
            left.push(a);
            right.push(b);
        }
        Self { left, right, routers: (l, r), bottleneck: 0, wires }
    }

    /// From `at` on, the left host of a pair writes to the right one as much as it accepts; one transfer per
    /// pair. Returns the bytes that arrive.
    ///
    /// # Panics
    /// If there is no such pair.
    pub fn transfer(
        &self,
        world: &mut World,
        pair: usize,
        at: Instant,
        options: ConnOptions,
    ) -> Rc<RefCell<SinkStats>> {
        let (from, to) = (self.left[pair], self.right[pair]);
        let sink = Sink::new(SINK_PORT);
        let read = sink.stats();
        world.app(to, sink);
        // Every host has an address.
        let address = world.host_ref(to).address().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        world.app_at(from, at, Bulk::new(SocketAddr::new(address, SINK_PORT)).options(options));
        read
    }

    /// Bytes of IP packets that wait at the bottleneck now.
    #[must_use]
    pub fn backlog_bytes(&self, world: &World) -> u64 {
        world.port_state(self.routers.0, self.bottleneck).map_or(0, |port| port.backlog_bytes)
    }
}

/// Routers in a row, with a host at each router; used as a chain, only those at the ends.
#[derive(Clone, Debug)]
pub struct Chain {
    /// The routers.
    pub routers: Vec<RouterId>,
    /// A host at each router.
    pub hosts: Vec<HostId>,
    /// The wires between each router and the next, in both directions.
    pub wires: Vec<(WireId, WireId)>,
}

impl Chain {
    /// `hops` lines between `hops + 1` routers, each with a host. This is a parking lot, in which a flow from
    /// end to end competes on each line with one that crosses only that line; if only the first and last host
    /// are used, it is a chain.
    pub fn new(
        world: &mut World,
        hops: usize,
        line: &PortSpec,
        delay: Duration,
        access: Rate,
        host: &HostSpec,
    ) -> Self {
        let routers: Vec<RouterId> = (0..=hops).map(|_| world.router()).collect();
        let wires = routers.windows(2).map(|pair| world.join(pair[0], pair[1], line, line, delay)).collect();
        let access = PortSpec::fifo(access, 1_000);
        let hosts = routers
            .iter()
            .map(|&router| {
                let id = world.host(host.clone());
                world.attach(id, router, &access, Duration::ZERO);
                id
            })
            .collect();
        Self { routers, hosts, wires }
    }
}
