//! A NIC, as far as the host's queues notice: a ring of descriptors in front of a line, segmentation, interrupts that
//! are collected, and the queue of received packets. Called by the host.

use std::collections::VecDeque;

use taut_core::{Duration, Instant};
use taut_link::Rate;

use crate::wire::Line;

/// A NIC. The default sends at 1 Gbit/s, cuts segments, merges received ones and reports everything at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NicSpec {
    /// Line rate; `None` for as fast as packets come.
    pub rate: Option<Rate>,
    /// Descriptors of the transmit ring: a packet takes one, and one more for each 4 KiB.
    pub ring: u32,
    /// Cuts super-packets into segments, and so the stack may make them.
    pub tso: bool,
    /// How long after a packet was sent its completion may be kept back to be told together with others.
    /// `ethtool -C`: `tx-usecs`.
    pub tx_usecs: Duration,
    /// How many completions are told of at once without waiting; 0 for no such number. `tx-frames`.
    pub tx_frames: u32,
    /// As `tx_usecs`, for received packets. `rx-usecs`.
    pub rx_usecs: Duration,
    /// As `tx_frames`, for received packets. `rx-frames`.
    pub rx_frames: u32,
    /// Received segments that follow each other go up as one packet.
    pub gro: bool,
    /// Most bytes in the ring, whatever its descriptors allow: a fixed byte queue limit. `None` for none.
    pub byte_limit: Option<u32>,
}

impl Default for NicSpec {
    fn default() -> Self {
        Self {
            rate: Rate::from_bits_per_second(1_000_000_000),
            ring: 512,
            tso: true,
            tx_usecs: Duration::ZERO,
            tx_frames: 0,
            rx_usecs: Duration::ZERO,
            rx_frames: 0,
            gro: true,
            byte_limit: None,
        }
    }
}

/// A packet that the NIC has been given.
#[derive(Debug)]
struct Posted {
    /// When its last bit goes out.
    sent: Instant,
    ticket: u32,
    descriptors: u32,
    bytes: u32,
}

/// The transmit side of a NIC.
#[derive(Debug)]
pub(crate) struct Nic {
    pub(crate) spec: NicSpec,
    pub(crate) line: Line,
    posted: VecDeque<Posted>,
    descriptors: u32,
    bytes: u32,
}

impl Nic {
    pub(crate) fn new(spec: NicSpec) -> Self {
        Self { line: Line::new(spec.rate), spec, posted: VecDeque::new(), descriptors: 0, bytes: 0 }
    }

    /// Whether another packet may be posted.
    pub(crate) fn room(&self) -> bool {
        // As drivers do, it stops while a packet of 64 KiB would still fit.
        self.descriptors + 18 <= self.spec.ring.max(18)
            && self.spec.byte_limit.is_none_or(|limit| self.bytes < limit)
    }

    /// A packet was posted whose last bit goes out at `sent`.
    pub(crate) fn post(&mut self, sent: Instant, ticket: u32, bytes: u32) {
        let descriptors = 1 + bytes / 4_096;
        self.descriptors += descriptors;
        self.bytes += bytes;
        self.posted.push_back(Posted { sent, ticket, descriptors, bytes });
    }

    /// When the next interrupt for sent packets comes.
    pub(crate) fn next_interrupt(&self) -> Option<Instant> {
        let first = self.posted.front()?.sent + self.spec.tx_usecs;
        let frames = self.spec.tx_frames as usize;
        let enough = frames.checked_sub(1).and_then(|last| self.posted.get(last)).map(|posted| posted.sent);
        Some(enough.map_or(first, |enough| enough.min(first)))
    }

    /// The ticket of a packet that was sent.
    pub(crate) fn poll_completed(&mut self, now: Instant) -> Option<u32> {
        self.posted.front().filter(|posted| posted.sent <= now)?;
        let posted = self.posted.pop_front()?;
        self.descriptors -= posted.descriptors;
        self.bytes -= posted.bytes;
        Some(posted.ticket)
    }

    /// Packets that were sent and not completed.
    pub(crate) fn done(&self, now: Instant) -> usize {
        self.posted.iter().take_while(|posted| posted.sent <= now).count()
    }

    /// Bytes in the ring: posted and not completed.
    pub(crate) fn bytes(&self) -> u32 {
        self.bytes
    }
}
