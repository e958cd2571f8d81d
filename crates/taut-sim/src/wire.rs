//! A wire: one direction of a link, from whoever puts packets on it to a host or a router. Ours; called by NICs, ports
//! and the world's loop.
//!
//! What is on a wire arrives in the order in which it went on, unless a fault ([`Faults`]) says otherwise. A line
//! ([`Line`]) is what comes before: it takes a packet's length over its rate to send it, one packet at a time.

use std::collections::VecDeque;

use taut_core::{Duration, Instant};
use taut_link::Rate;

use crate::event::AlarmId;
use crate::fault::{Fate, FaultState, Faults};
use crate::packet::{PacketId, Pool};
use crate::rng::Rng;

/// Who is at the end of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Host(u32),
    Router(u32),
}

/// A rate at which packets go out one after another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// Bytes per second; 0 sends at once.
    rate: u64,
    /// Bytes that a packet takes beside itself.
    overhead: u32,
    /// When the last packet will have gone out, rounded up.
    pub(crate) free_at: Instant,
    /// The same rounded down, and what is missing, in 1/`rate` of a nanosecond: nothing is rounded twice.
    floor: Instant,
    missing: u64,
}

const NS: u64 = 1_000_000_000;

impl Line {
    pub(crate) fn new(rate: Option<Rate>, overhead: u32) -> Self {
        let rate = rate.map_or(0, Rate::bytes_per_second);
        Self { rate, overhead, free_at: Instant::ZERO, floor: Instant::ZERO, missing: 0 }
    }

    /// Begins to send an IP packet of `len` bytes, now or after the one before. Says when its last bit is out.
    pub(crate) fn send(&mut self, now: Instant, len: u32) -> Instant {
        if self.free_at < now {
            (self.floor, self.missing) = (now, 0);
        }
        // 64 KiB at a nanosecond each are 2⁴⁶; a rate is less than 2⁶¹.
        let work = u64::from(len + self.overhead) * NS + self.missing;
        if let Some(ns) = work.checked_div(self.rate) {
            self.floor += Duration::from_nanos(ns);
            self.missing = work % self.rate;
        }
        self.free_at = self.floor + Duration::from_nanos(u64::from(self.missing > 0));
        self.free_at
    }
}

/// Counts of a wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WireCounts {
    /// Packets put on the wire.
    pub packets: u64,
    /// Their bytes as IP packets.
    pub bytes: u64,
    /// Packets that a fault took away.
    pub lost: u64,
    /// Packets that arrived twice.
    pub duplicated: u64,
    /// Packets with a flipped bit.
    pub corrupted: u64,
    /// Packets that arrived after one that was sent later.
    pub reordered: u64,
}

/// One direction of a link.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) to: End,
    delay: Duration,
    /// By time of arrival.
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

    /// Puts a packet on the wire whose last bit goes out at `sent`. A packet that is lost is given back.
    pub(crate) fn launch(&mut self, sent: Instant, packet: PacketId, pool: &mut Pool) -> Option<PacketId> {
        self.counts.packets += 1;
        self.counts.bytes += u64::from(pool.len(&packet));
        let at = sent + self.delay;
        let Some(faults) = &mut self.faults else {
            self.insert(at, packet);
            return None;
        };
        match faults.fate(sent) {
            Fate::Lost => {
                self.counts.lost += 1;
                return Some(packet);
            }
            Fate::Arrives { late, again, corrupt } => {
                if corrupt {
                    self.counts.corrupted += 1;
                    pool.corrupt(&packet, faults.rng.next());
                }
                if again {
                    self.counts.duplicated += 1;
                    let copy = pool.duplicate(&packet);
                    self.insert(at, copy);
                }
                self.insert(at + late, packet);
            }
        }
        None
    }

    /// Arrives after everything that arrives at the same time.
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

    /// A packet that has arrived.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<PacketId> {
        self.queue.front().filter(|(at, _)| *at <= now)?;
        self.queue.pop_front().map(|(_, packet)| packet)
    }

    /// Packets on the wire.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_keeps_its_rate_to_the_nanosecond() {
        // 7 Gbit/s: 1.142857 ns a byte, and 1538 bytes on the line for 1500.
        let mut line = Line::new(Rate::from_bits_per_second(7_000_000_000), 38);
        let start = Instant::from_nanos(5);
        let mut end = start;
        for _ in 0..1_000_000 {
            end = line.send(start, 1_500);
        }
        let exact = 1_538_000_000_000_u64.div_ceil(875);
        assert_eq!(end.since(start).as_nanos(), exact);
        // After a pause it starts anew.
        assert_eq!(line.send(end + Duration::from_nanos(10), 837), end + Duration::from_nanos(1_010));
    }
}
