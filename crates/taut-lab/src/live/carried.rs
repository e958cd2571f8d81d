//! Counts of one direction of a live run since measuring began. The emulator counts; `results.rs` reads.

use std::collections::BTreeMap;

use taut_core::Instant;
use taut_testbed::Taken;

use crate::stats::Tally;

/// Counts of one direction, of packets as they came from their sender.
#[derive(Clone, Debug, Default)]
pub(super) struct Carried {
    /// Packets; a super-packet counts once.
    pub(super) packets: u64,
    /// Segments.
    pub(super) segments: u64,
    /// Bytes of IP packets.
    pub(super) bytes: u64,
    /// Bytes; a super-packet's headers count once.
    pub(super) octets: u64,
    /// Packets that a queue dropped.
    pub(super) dropped: u64,
    /// Segments in each packet with payload.
    pub(super) super_packet: Tally,
    /// Nanoseconds from one packet with payload to the next of its flow.
    pub(super) flow_gap_ns: Tally,
    /// When the last packet of each flow came.
    last: BTreeMap<u64, Instant>,
}

impl Carried {
    /// Resets the counts; flows continue.
    pub(super) fn begin(&mut self) {
        *self = Self { last: std::mem::take(&mut self.last), ..Self::default() };
    }

    /// Counts a packet.
    pub(super) fn take(&mut self, packet: &Taken) {
        let Taken { at: now, flow, segments, bytes, octets, payload } = *packet;
        self.packets += 1;
        self.segments += segments;
        self.bytes += bytes as u64;
        self.octets += octets as u64;
        if payload == 0 {
            return;
        }
        self.super_packet.add(segments);
        if let Some(last) = self.last.insert(flow, now) {
            self.flow_gap_ns.add(now.since(last).as_nanos());
        }
    }
}
