//! The state that hosts and routers share: time, agenda, packets, wires, probes. Passed to the host or router
//! that handles an event.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use taut_core::Instant;
use taut_link::{Ecn, Packet};
use taut_wire::raw;

use crate::event::{Agenda, AlarmId, BEGIN};
use crate::failure::Failure;
use crate::ids::{AppId, HostId, WireId};
use crate::packet::{Claim, NO_TICKET, PacketId, Pool, SPREAD};
use crate::parts::wire::{Launched, Wire};
use crate::probe::{PacketView, Place, ProbeEvent, Probes};
use crate::rng::Rng;

/// The owner of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Stack(u32),
    Root(u32),
    NicSent(u32),
    NicReceived(u32),
    Core(u32),
    Apart(u32),
    Returns(u32),
    App(u32, u32),
    Wire(u32),
    Port(u32, u32),
}

/// The state that hosts and routers share.
pub(crate) struct Fabric {
    pub(crate) now: Instant,
    pub(crate) agenda: Agenda,
    pub(crate) pool: Pool,
    pub(crate) wires: Vec<Wire>,
    pub(crate) probes: Probes,
    pub(crate) addresses: BTreeMap<IpAddr, HostId>,
    pub(crate) failures: VecDeque<Failure>,
    pub(crate) rng: Rng,
    pub(crate) digest: u64,
    pub(crate) owners: Vec<Owner>,
    pub(crate) lost: u64,
}

impl Fabric {
    /// The state at the beginning.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
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
        }
    }

    pub(crate) fn alarm(&mut self, owner: Owner) -> AlarmId {
        self.owners.push(owner);
        self.agenda.add()
    }

    /// Adds an alarm for an application of a host.
    pub(crate) fn app_alarm(&mut self, host: HostId, app: AppId) -> AlarmId {
        self.alarm(Owner::App(host.0, app.index() as u32))
    }

    /// Makes the digest depend on `word`.
    pub(crate) fn note(&mut self, word: u64) {
        self.digest = (self.digest.rotate_left(5) ^ word).wrapping_mul(SPREAD);
    }

    /// Wraps a packet for a queue.
    #[inline]
    pub(crate) fn dress(&self, departure: Instant, id: PacketId) -> Packet<Claim> {
        let packet = self.pool.get(&id);
        let segs = u16::try_from(packet.segs()).unwrap_or(u16::MAX);
        let (len, flow, ecn) = (packet.len(), packet.flow, raw::ecn(packet.header()).into());
        Packet { ecn, segs, departure, flow, ..Packet::new(len, id.into()) }
    }

    /// Unwraps a packet that came out of a queue, and applies the queue's marks and damage.
    #[inline]
    pub(crate) fn undress(&mut self, packet: Packet<Claim>) -> PacketId {
        let id = self.pool.redeem(packet.item);
        if packet.ecn == Ecn::Marked {
            raw::set_ce(self.pool.get_mut(&id).header_mut());
        }
        if let Some(bit) = packet.corrupt {
            self.pool.corrupt(&id, u64::from(bit));
        }
        id
    }

    /// Puts a packet on a wire; its last bit is sent at `sent`.
    pub(crate) fn launch(&mut self, WireId(id): WireId, sent: Instant, packet: PacketId) {
        let Some(wire) = self.wires.get_mut(id as usize) else { return self.pool.free(packet) };
        let before = wire.next();
        let launched = wire.launch(sent, packet, &mut self.pool);
        let next = wire.next();
        if next != before {
            self.agenda.set(wire.alarm, next);
        }
        match launched {
            Launched::OnItsWay => {}
            Launched::Lost(lost) => self.lose(Place::Wire(id), lost),
            Launched::TooBig(lost, mtu, notified) => {
                let message = notified.then(|| self.pool.too_big(sent, &lost, mtu)).flatten();
                self.lose(Place::Wire(id), lost);
                if let Some(message) = message {
                    // Wires are made in pairs, one for each direction.
                    self.launch(WireId(id ^ 1), sent, message);
                }
            }
        }
    }

    /// A packet was dropped.
    pub(crate) fn lose(&mut self, place: Place, packet: PacketId) {
        self.lost += 1;
        self.note(self.pool.get(&packet).fingerprint() ^ 1);
        if self.probes.want.packets {
            let view = PacketView::new(&self.pool, &packet);
            self.probes.tell(self.now, &ProbeEvent::Dropped { place, packet: view });
        }
        debug_assert_eq!(self.pool.get(&packet).ticket, NO_TICKET, "its host must get the ticket back");
        self.pool.free(packet);
    }

    /// Reports to probes that a line sends a packet.
    pub(crate) fn tell_sent(&mut self, place: Place, at: Instant, packet: &PacketId) {
        if self.probes.want.packets {
            let packet = PacketView::new(&self.pool, packet);
            self.probes.tell(self.now, &ProbeEvent::Sent { place, packet, at });
        }
    }
}
