//! A router: packets come in and leave by the port that leads to their host, through any queue discipline and
//! at the port's rate. Called by the world's loop. It stores and forwards, and takes no time itself.

use std::collections::VecDeque;

use taut_core::Instant;
use taut_link::{Line, NicSpec, Policer, Qdisc, Rate, TraceLine, Tree, Verdict};

use crate::event::AlarmId;
use crate::ids::{RouterId, WireId};
use crate::packet::{Claim, PacketId};
use crate::parts::fabric::Fabric;
use crate::probe::Place;

/// An output of a router.
pub(crate) struct Port {
    /// In front of the queue.
    pub(crate) policer: Option<Policer>,
    pub(crate) queue: Tree<Claim>,
    pub(crate) line: Line,
    /// In the place of the line, one whose capacity was recorded.
    pub(crate) trace: Option<TraceLine>,
    /// Its rates to come.
    pub(crate) steps: VecDeque<(Instant, Rate)>,
    pub(crate) wire: WireId,
    pub(crate) alarm: AlarmId,
    pub(crate) drops: u64,
    /// The most bytes that waited at once.
    pub(crate) peak_bytes: u64,
}

/// A router and its route to every host.
pub(crate) struct Router {
    pub(crate) id: RouterId,
    pub(crate) ports: Vec<Port>,
    /// Port to each host, by the host's number; [`NO_ROUTE`] when there is none.
    pub(crate) routes: Vec<u32>,
}

pub(crate) const NO_ROUTE: u32 = u32::MAX;

impl Router {
    /// A packet came in.
    pub(crate) fn receive(&mut self, fabric: &mut Fabric, packet: PacketId) {
        let to = fabric.pool.get(&packet).to.0 as usize;
        let index = self.routes.get(to).copied().unwrap_or(NO_ROUTE) as usize;
        let place = Place::Port(self.id, index);
        let Some(port) = self.ports.get_mut(index) else {
            return fabric.lose(Place::Port(self.id, usize::MAX), packet);
        };
        let now = fabric.now;
        if let Some(policer) = &mut port.policer
            && !policer.passes(now, fabric.pool.len(&packet) + NicSpec::ETHERNET_BYTES)
        {
            port.drops += 1;
            return fabric.lose(place, packet);
        }
        let item = fabric.dress(now, packet);
        match port.queue.enqueue(now, item) {
            Verdict::Taken | Verdict::Congested => {}
            Verdict::Dropped(back) => {
                port.drops += 1;
                let id = fabric.pool.redeem(back.item);
                fabric.lose(place, id);
            }
        }
        port.peak_bytes = port.peak_bytes.max(port.queue.backlog_bytes());
        port.run(fabric, place);
    }

    /// A port's alarm rang.
    pub(crate) fn run_port(&mut self, fabric: &mut Fabric, index: usize) {
        let place = Place::Port(self.id, index);
        if let Some(port) = self.ports.get_mut(index) {
            port.run(fabric, place);
        }
    }
}

impl Port {
    fn free_at(&self) -> Instant {
        self.trace.as_ref().map_or(self.line.free_at(), TraceLine::free_at)
    }

    /// Sends the packets that may be sent.
    fn run(&mut self, fabric: &mut Fabric, place: Place) {
        let now = fabric.now;
        while self.free_at() <= now {
            let Some(packet) = self.queue.dequeue(now) else { break };
            while let Some(&(_, rate)) = self.steps.front().filter(|(from, _)| *from <= now) {
                self.line.set_rate(Some(rate));
                self.steps.pop_front();
            }
            let sent = match &mut self.trace {
                Some(trace) => trace.send(now, packet.len),
                None => self.line.send(now, packet.len),
            };
            let item = fabric.undress(packet);
            fabric.tell_sent(place, sent, &item);
            fabric.launch(self.wire, sent, item);
        }
        while let Some(dropped) = self.queue.poll_dropped() {
            self.drops += 1;
            let id = fabric.pool.redeem(dropped.item);
            fabric.lose(place, id);
        }
        let next = self.queue.next().map(|at| wake_at(now, at, self.free_at()));
        fabric.agenda.set(self.alarm, next);
    }
}

/// When to ask a queue again whose next packet is due at `at`, for a line that is free at `free_at`.
fn wake_at(now: Instant, at: Instant, free_at: Instant) -> Instant {
    at.max(free_at).max(now)
}
