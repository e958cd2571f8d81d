//! Building a world: hosts, routers, links and routes. Called by tests, topologies and experiments before the
//! world runs; settings can also be changed while it does.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use taut_core::{Duration, Instant, Stack, StackConfig};
use taut_link::{Line, NicSpec, Policer, TraceLine};

use super::{PortSpec, World};
use crate::app::App;
use crate::check::Checks;
use crate::ids::{AppId, HostId, NodeId, RouterId, WireId};
use crate::parts::fabric::Owner;
use crate::parts::fault::Faults;
use crate::parts::host::{Alarms, Host, HostSpec};
use crate::parts::router::{NO_ROUTE, Port, Router};
use crate::parts::wire::{End, Wire};
use crate::pattern;
use crate::probe::Probe;

/// A link, for routing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    from: NodeId,
    to: NodeId,
    /// Port at `from`, if `from` is a router.
    port: u32,
}

impl World {
    /// Of the payload of hosts added from now on, only the length exists, where applications write a
    /// [`Pattern`](crate::Pattern): no byte of it is stored or copied, and that it arrives unchanged is seen
    /// by its place in the pattern. Every event and every packet is the same as with bytes, and the run takes
    /// less time.
    pub fn lengths_only(&mut self) {
        self.fabric.pool.known = pattern::known();
    }

    /// Adds a host. If its specification has no address, it gets the next one of 10.0.0.0/8.
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
        let mut stack = Stack::new(config, spec.caps(), seed);
        if let Some(known) = self.fabric.pool.known {
            stack.know(known);
        }
        let rng = self.fabric.rng.fork();
        let alarms = Alarms {
            stack: self.fabric.alarm(Owner::Stack(number)),
            root: self.fabric.alarm(Owner::Root(number)),
            sent: self.fabric.alarm(Owner::NicSent(number)),
            received: self.fabric.alarm(Owner::NicReceived(number)),
            core: self.fabric.alarm(Owner::Core(number)),
            apart: self.fabric.alarm(Owner::Apart(number)),
            returns: self.fabric.alarm(Owner::Returns(number)),
        };
        self.hosts.push(Host::new(id, &spec, stack, alarms, rng));
        id
    }

    /// Adds a router without links.
    pub fn router(&mut self) -> RouterId {
        let id = RouterId(self.routers.len() as u32);
        self.routers.push(Router { id, ports: Vec::new(), routes: Vec::new() });
        id
    }

    /// Links a host to a router: the host sends through its NIC, the router as `port` specifies.
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

    /// Links two routers, with `there` from `a` to `b` and `back` the other way.
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

    /// Links two hosts, NIC to NIC.
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
        ports.push(Port {
            policer: spec.policer.map(Policer::new),
            queue,
            line: Line::new(spec.rate, NicSpec::ETHERNET_BYTES),
            steps: spec.steps.iter().copied().collect(),
            trace: spec.trace.clone().map(|(begin, trace)| TraceLine::new(trace, begin)),
            wire,
            alarm,
            drops: 0,
            peak_bytes: 0,
        });
        self.links.push(Link { from: router.into(), to, port: number });
    }

    /// Sets the faults of a wire, from now on.
    pub fn set_faults(&mut self, WireId(id): WireId, faults: Faults) {
        let rng = self.fabric.rng.fork();
        if let Some(wire) = self.fabric.wires.get_mut(id as usize) {
            wire.set_faults(faults, rng);
        }
    }

    /// Adds an application that starts at once.
    pub fn app(&mut self, host: HostId, app: impl App + 'static) -> AppId {
        self.app_at(host, self.fabric.now, app)
    }

    /// Adds an application that starts at `at`.
    pub fn app_at(&mut self, host: HostId, at: Instant, app: impl App + 'static) -> AppId {
        let Some(host) = self.hosts.get_mut(host.index()) else { return AppId::NONE };
        host.add_app(&mut self.fabric, at, Box::new(app))
    }

    /// Adds an observer; share it by `Rc<RefCell<_>>` to read it afterwards.
    pub fn probe(&mut self, probe: impl Probe + 'static) {
        self.fabric.probes.add(Box::new(probe));
    }

    /// Sets which checks run, and how often; none by default.
    pub fn check(&mut self, checks: Checks) {
        self.checks = checks;
    }

    /// Finds the route to every host from every router: the fewest links, and among equal routes the one made
    /// first.
    pub(super) fn route(&mut self) {
        self.routed = true;
        let hosts = self.hosts.len();
        for router in &mut self.routers {
            router.routes = vec![NO_ROUTE; hosts];
        }
        for host in 0..hosts {
            // Backwards from the host, breadth first. Hosts do not forward.
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
}
