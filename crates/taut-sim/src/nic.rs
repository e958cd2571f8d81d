//! The transmit side of a [`taut_link::Nic`], computed ahead. Called by the host.
//!
//! The card in `taut-link` is stepped from segment to segment. A simulator knows when a packet is posted when each of its
//! segments will be on the wire, since the line sends them one after another: it puts them on the wire at once, with
//! their times, and needs no event until the interrupt. What a host can tell is the same (a test drives both), with one
//! event a packet rather than one a segment.

use std::collections::VecDeque;

use taut_core::Instant;
use taut_link::{Bql, Line, NicSpec};

/// Bytes that a descriptor points to, and descriptors that the largest packet takes: as [`taut_link::Nic`] has them.
const DESCRIPTOR_BYTES: u32 = 16_384;
const DESCRIPTORS_MAX: usize = 5;

/// A packet that the NIC has been given.
#[derive(Debug)]
struct Posted {
    /// When its last bit is on the wire.
    sent: Instant,
    ticket: u32,
    bytes: u32,
}

impl Posted {
    fn descriptors(&self) -> usize {
        self.bytes.div_ceil(DESCRIPTOR_BYTES).max(1) as usize
    }
}

/// A ring, a line and interrupts.
#[derive(Debug)]
pub(crate) struct Nic {
    pub(crate) spec: NicSpec,
    pub(crate) line: Line,
    bql: Option<Bql>,
    posted: VecDeque<Posted>,
    used_descriptors: usize,
    bytes: u64,
}

impl Nic {
    pub(crate) fn new(spec: NicSpec) -> Self {
        Self {
            line: Line::new(Some(spec.rate), spec.overhead_bytes),
            bql: spec.bql.map(Bql::new),
            spec,
            posted: VecDeque::new(),
            used_descriptors: 0,
            bytes: 0,
        }
    }

    /// Whether another packet may be posted.
    pub(crate) fn room(&self) -> bool {
        self.spec.ring.max(DESCRIPTORS_MAX).saturating_sub(self.used_descriptors) >= DESCRIPTORS_MAX
            && self.bql.as_ref().is_none_or(Bql::has_room)
    }

    /// A packet was posted whose last bit will be on the wire at `sent`.
    pub(crate) fn post(&mut self, sent: Instant, ticket: u32, bytes: u32) {
        let posted = Posted { sent, ticket, bytes };
        self.used_descriptors += posted.descriptors();
        self.bytes += u64::from(bytes);
        if let Some(bql) = &mut self.bql {
            bql.on_queued(u64::from(bytes));
        }
        self.posted.push_back(posted);
    }

    /// When the next interrupt for sent packets comes.
    pub(crate) fn next_interrupt(&self) -> Option<Instant> {
        let first = self.posted.front()?.sent + self.spec.tx_usecs;
        let enough = (self.spec.tx_frames as usize).checked_sub(1).and_then(|last| self.posted.get(last));
        Some(enough.map_or(first, |enough| enough.sent.min(first)))
    }

    /// Takes everything that was sent, and hands `f` the tickets. Says how many packets that were.
    pub(crate) fn complete(&mut self, now: Instant, mut f: impl FnMut(u32)) -> u32 {
        let (mut packets, mut bytes) = (0, 0);
        while let Some(posted) = self.posted.front().filter(|posted| posted.sent <= now) {
            packets += 1;
            bytes += u64::from(posted.bytes);
            self.used_descriptors -= posted.descriptors();
            f(posted.ticket);
            self.posted.pop_front();
        }
        self.bytes -= bytes;
        if let Some(bql) = &mut self.bql
            && packets > 0
        {
            bql.on_completed(now, bytes);
        }
        packets
    }

    /// Packets that were sent and not completed.
    pub(crate) fn done(&self, now: Instant) -> usize {
        self.posted.iter().take_while(|posted| posted.sent <= now).count()
    }

    /// Bytes in the ring: posted and not completed.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use taut_core::Duration;
    use taut_link::{BqlSpec, Packet};

    use super::*;

    const START: Instant = Instant::from_nanos(1_000_000_000);

    /// What happened, with its time in nanoseconds: segments on the wire with their lengths, tokens back.
    type Trace = Vec<(u64, &'static str, u32)>;

    /// A host that posts packets of `sizes` segments of 1500 bytes, `gap` after each other at the earliest, when there is
    /// room; driven over taut-link's card.
    fn stepped(spec: NicSpec, sizes: &[u16], gap: Duration) -> Trace {
        let mut nic = taut_link::Nic::<u32, u32>::new(spec);
        let (mut trace, mut now, mut due) = (Vec::new(), START, START);
        let mut waiting = sizes.iter().zip(0_u32..).peekable();
        loop {
            while let Some(packet) = nic.poll_sent(now) {
                trace.push((now.as_nanos(), "sent", packet.len));
            }
            while let Some(token) = nic.poll_completed(now) {
                trace.push((now.as_nanos(), "done", token));
            }
            while now >= due && nic.room() {
                let Some((&segs, token)) = waiting.next() else { break };
                nic.transmit(now, Packet { segs, ..Packet::new(1_500 * u32::from(segs), token) }, token);
                due = now + gap;
            }
            let post = waiting.peek().filter(|_| nic.room()).map(|_| due);
            let Some(next) = [nic.next(), post].into_iter().flatten().min() else { return trace };
            now = now.max(next);
        }
    }

    /// The same over this one.
    fn ahead(spec: NicSpec, sizes: &[u16], gap: Duration) -> Trace {
        let mut nic = Nic::new(spec);
        let (mut trace, mut now, mut due) = (Vec::new(), START, START);
        let mut waiting = sizes.iter().zip(0_u32..).peekable();
        loop {
            if nic.next_interrupt().is_some_and(|at| at <= now) {
                nic.complete(now, |token| trace.push((now.as_nanos(), "done", token)));
            }
            while now >= due && nic.room() {
                let Some((&segs, token)) = waiting.next() else { break };
                let mut sent = now;
                for _ in 0..segs {
                    sent = nic.line.send(now, 1_500);
                    trace.push((sent.as_nanos(), "sent", 1_500));
                }
                nic.post(sent, token, 1_500 * u32::from(segs));
                due = now + gap;
            }
            let post = waiting.peek().filter(|_| nic.room()).map(|_| due);
            let Some(next) = [nic.next_interrupt(), post].into_iter().flatten().min() else { return trace };
            now = now.max(next);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        #[test]
        fn a_host_cannot_tell_it_from_the_card_that_is_stepped(
            sizes in proptest::collection::vec(1..44_u16, 1..60),
            bits in 1_000_000..40_000_000_000_u64,
            gap_us in 0..300_u64,
            usecs in prop_oneof![Just(0), 1..200_u64],
            frames in 0..5_u32,
            ring in 5..40_usize,
            bql in any::<bool>(),
        ) {
            let mut spec = NicSpec::new(taut_link::Rate::from_bits_per_second(bits).unwrap());
            (spec.tx_usecs, spec.tx_frames, spec.ring) = (Duration::from_micros(usecs), frames, ring);
            spec.bql = bql.then(BqlSpec::default);
            let gap = Duration::from_micros(gap_us);
            let (mut one, mut other) = (stepped(spec, &sizes, gap), ahead(spec, &sizes, gap));
            one.sort();
            other.sort();
            prop_assert_eq!(one, other);
        }
    }
}
