//! A wire: one direction of a link, to a host or a router. Called by NICs, ports and the world's loop.
//!
//! Packets arrive in the order in which they were put on the wire, unless a fault ([`Faults`]) changes it. In
//! front of a wire is a line ([`taut_link::Line`]).

use std::collections::VecDeque;

use taut_core::{Duration, Instant};

use crate::event::AlarmId;
use crate::packet::{PacketId, Pool};
use crate::parts::fault::{Fate, FaultState, Faults, Lie};
use crate::rng::Rng;

/// The end of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Host(u32),
    Router(u32),
}

/// Counts of a wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WireCounts {
    /// Packets put on the wire.
    pub packets: u64,
    /// Their bytes as IP packets.
    pub bytes: u64,
    /// Packets lost by a fault.
    pub lost: u64,
    /// Packets that arrived twice.
    pub duplicated: u64,
    /// Packets with a flipped bit.
    pub corrupted: u64,
    /// Packets that arrived after one that was sent later.
    pub reordered: u64,
    /// Packets larger than the wire's MTU.
    pub too_big: u64,
    /// Packets that a hostile sender changed or added.
    pub lies: u64,
}

/// What became of a packet that was put on a wire.
#[must_use]
pub(crate) enum Launched {
    OnItsWay,
    Lost(PacketId),
    /// Larger than this; whether its sender is notified.
    TooBig(PacketId, u16, bool),
}

/// One direction of a link.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) to: End,
    delay: Duration,
    /// In order of arrival.
    queue: VecDeque<(Instant, PacketId)>,
    pub(crate) alarm: AlarmId,
    faults: Option<Box<FaultState>>,
    pub(crate) counts: WireCounts,
}

impl Wire {
    pub(crate) fn new(to: End, delay: Duration, alarm: AlarmId) -> Self {
        Self { to, delay, queue: VecDeque::new(), alarm, faults: None, counts: WireCounts::default() }
    }

    pub(crate) fn set_faults(&mut self, faults: Faults, rng: Rng) {
        self.faults = Some(Box::new(FaultState::new(faults, rng)));
    }

    /// Puts a packet on the wire; its last bit is sent at `sent`.
    #[inline]
    pub(crate) fn launch(&mut self, sent: Instant, packet: PacketId, pool: &mut Pool) -> Launched {
        self.counts.packets += 1;
        self.counts.bytes += u64::from(pool.len(&packet));
        let mut at = sent + self.delay;
        let Some(faults) = &mut self.faults else {
            self.insert(at, packet);
            return Launched::OnItsWay;
        };
        if let Some((mtu, notified)) = faults.mtu(sent).filter(|(mtu, _)| pool.len(&packet) > u32::from(*mtu))
        {
            self.counts.too_big += 1;
            return Launched::TooBig(packet, mtu, notified);
        }
        match faults.fate(sent) {
            Fate::Lost => {
                self.counts.lost += 1;
                return Launched::Lost(packet);
            }
            Fate::Arrives { late, again, corrupt, lie } => {
                let mut late_at = at + late;
                if faults.in_order() {
                    let last = self.queue.back().map_or(at, |(last, _)| *last);
                    (at, late_at) = (at.max(last), late_at.max(last));
                }
                if corrupt {
                    self.counts.corrupted += 1;
                    pool.corrupt(&packet, faults.rng.next());
                }
                match lie {
                    Lie::None => {}
                    Lie::Change => pool.mutate(&packet, &mut faults.rng),
                    Lie::Add => {
                        let copy = pool.duplicate(&packet);
                        pool.mutate(&copy, &mut faults.rng);
                        self.insert(at, copy);
                    }
                }
                self.counts.lies += u64::from(lie != Lie::None);
                if again {
                    self.counts.duplicated += 1;
                    let copy = pool.duplicate(&packet);
                    self.insert(at, copy);
                }
                self.insert(late_at, packet);
            }
        }
        Launched::OnItsWay
    }

    /// Inserts a packet behind all that arrive at the same time.
    #[inline]
    fn insert(&mut self, at: Instant, packet: PacketId) {
        if self.queue.back().is_none_or(|(last, _)| *last <= at) {
            self.queue.push_back((at, packet));
            return;
        }
        self.counts.reordered += 1;
        let place = self.queue.partition_point(|(other, _)| *other <= at);
        self.queue.insert(place, (at, packet));
    }

    /// When the next packet arrives.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.queue.front().map(|(at, _)| *at)
    }

    /// Takes a packet that has arrived.
    #[inline]
    pub(crate) fn poll(&mut self, now: Instant) -> Option<PacketId> {
        self.queue.front().filter(|(at, _)| *at <= now)?;
        self.queue.pop_front().map(|(_, packet)| packet)
    }

    /// Packets on the wire.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }
}
