//! A network card as a host sees it: a ring of descriptors, a line, and interrupts, with `ethtool`'s
//! settings. Called by a simulated host. Sans-IO, like everything here.
//!
//! ```text
//!   send, post ─▶ ring ─▶ line (line.rs)          receive ─▶ rx ring ─▶ interrupt ─▶ take_received ─▶ gro.rs
//!      ▲           └─▶ interrupt ─▶ complete
//!      └── room: descriptors and byte queue limit (bql.rs)
//! ```
//!
//! **Line.** Segments follow each other at the line's rate, each with [`overhead`](NicSpec::overhead_bytes)
//! in addition to its IP packet: for Ethernet 14 bytes of header, 4 of checksum, 8 of preamble and 12 of gap.
//! So a gigabit carries 81,274 full packets of 1500 bytes per second, not 83,333. Because segments are sent
//! one after another, the card knows when it accepts a packet at which time each segment will be on the wire.
//! Nothing happens until the interrupt, so there is one event per packet rather than one per segment. The
//! card's caller cuts super-packets ([`taut_wire::raw::cut`]).
//!
//! **Ring.** A descriptor carries up to 16 KB; a super-packet takes several. They become free when the host
//! is notified (not when the bytes have left), so a short ring with infrequent interrupts lets the line idle.
//! [`room`](Nic::room) tells the host to wait while the largest packet might not fit.
//!
//! **Interrupts.** An interrupt costs a host microseconds, so a NIC coalesces them: it interrupts when
//! `usecs` have passed since the first packet not yet reported, or when there are `frames` packets, whichever
//! is sooner (`ethtool -C`). Until then the sender's bytes count as below TCP, also for TCP Small Queues:
//! these are the 16 µs during which automatic corking held back the head of a queue in 2013. Between an
//! interrupt for arrivals and the time when the host has taken them there is no further one (Linux: NAPI).

pub(crate) mod bql;
pub(crate) mod gro;
pub(crate) mod line;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use taut_core::{Duration, Instant};

use crate::nic::bql::{Bql, BqlSpec};
use crate::nic::line::Line;
use crate::quantity::Rate;

/// Bytes that a descriptor can point to. Intel's cards commonly have 16 KB.
const DESCRIPTOR_BYTES: u32 = 16_384;

/// Descriptors for the largest packet, 64 KB of payload and a header.
const DESCRIPTORS_MAX: usize = 5;

/// The configuration of a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NicSpec {
    /// Rate of the line.
    pub rate: Rate,
    /// Descriptors for transmission, at least 5. `ethtool -G tx`.
    pub ring: usize,
    /// Whether it cuts super-packets; otherwise a stack must not make any. `ethtool -K tso`.
    pub tso: bool,
    /// Byte queue limit; `None` for no limit.
    pub bql: Option<BqlSpec>,
    /// Bytes on the wire in addition to each IP packet: 38 for Ethernet.
    pub overhead_bytes: u32,
    /// How long completions are collected; zero for no delay. `ethtool -C tx-usecs`.
    pub tx_usecs: Duration,
    /// How many completions are collected; zero for any number. `ethtool -C tx-frames`.
    pub tx_frames: u32,
    /// How long arrivals are collected; zero for no delay. `ethtool -C rx-usecs`.
    pub rx_usecs: Duration,
    /// How many arrivals are collected; zero for any number. `ethtool -C rx-frames`.
    pub rx_frames: u32,
    /// Packets that may wait for the interrupt that announces them. `ethtool -G rx`.
    pub rx_ring: usize,
    /// Whether packets that arrive together are merged. `ethtool -K gro`.
    pub gro: bool,
}

impl NicSpec {
    /// Bytes on Ethernet in addition to an IP packet: header 14, checksum 4, preamble 8, gap 12.
    pub const ETHERNET_BYTES: u32 = 38;

    /// A card of this rate as Linux sets it up: 512 descriptors, TSO, GRO, byte queue limits, and interrupts
    /// that are not coalesced.
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        Self {
            rate,
            ring: 512,
            tso: true,
            bql: Some(BqlSpec::default()),
            overhead_bytes: Self::ETHERNET_BYTES,
            tx_usecs: Duration::ZERO,
            tx_frames: 0,
            rx_usecs: Duration::ZERO,
            rx_frames: 0,
            rx_ring: 4_096,
            gro: true,
        }
    }
}

/// A packet in the transmit ring.
#[derive(Debug)]
struct Posted<C> {
    /// When its last bit is sent.
    sent: Instant,
    token: C,
    bytes: u32,
}

impl<C> Posted<C> {
    fn descriptors(&self) -> usize {
        self.bytes.div_ceil(DESCRIPTOR_BYTES).max(1) as usize
    }
}

/// The interrupt that an arrival requires.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an interrupt that is not raised leaves its packet in the ring"]
pub enum Arrival<T> {
    /// An interrupt, now.
    Interrupt,
    /// An [interrupt](Nic::interrupt) at this time, unless another arrival requires one before.
    InterruptAt(Instant),
    /// None: an interrupt is scheduled already, or was raised.
    Quiet,
    /// The ring is full; the packet is returned.
    Dropped(T),
}

/// A network card. `T` is an arrived packet, `C` the token that is returned when a packet has left, such as a
/// [`TxTicket`](taut_core::TxTicket). `now` never goes backwards.
#[derive(Debug)]
pub struct Nic<T, C> {
    spec: NicSpec,
    line: Line,
    bql: Option<Bql>,
    /// Packets in the ring, sent or not, until the host is notified.
    posted: VecDeque<Posted<C>>,
    used_descriptors: usize,
    /// Sum of `posted`.
    bytes: u64,
    /// Packets that arrived and were not taken.
    rx: Vec<T>,
    /// Whether an interrupt for those was raised.
    rx_is_masked: bool,
}

impl<T, C> Nic<T, C> {
    /// An idle card.
    #[must_use]
    pub fn new(spec: NicSpec) -> Self {
        Self {
            line: Line::new(Some(spec.rate), spec.overhead_bytes),
            bql: spec.bql.map(Bql::new),
            spec,
            posted: VecDeque::new(),
            used_descriptors: 0,
            bytes: 0,
            rx: Vec::new(),
            rx_is_masked: false,
        }
    }

    /// Its configuration.
    #[must_use]
    pub const fn spec(&self) -> &NicSpec {
        &self.spec
    }

    // ---- transmit ----

    /// Whether a packet of any size may be [posted](Self::post): there are descriptors, and the byte queue
    /// limit has room.
    #[must_use]
    pub fn room(&self) -> bool {
        self.spec.ring.max(DESCRIPTORS_MAX).saturating_sub(self.used_descriptors) >= DESCRIPTORS_MAX
            && self.bql.as_ref().is_none_or(Bql::has_room)
    }

    /// Bytes in the ring: posted, but not yet reported to the host as sent.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Puts a segment of `len` bytes on the line, and returns when its last bit is sent.
    #[inline]
    pub fn send(&mut self, now: Instant, len: u32) -> Instant {
        self.line.send(now, len)
    }

    /// Puts a packet of `bytes`, including the headers of all its segments, into the ring. The last of its
    /// segments is sent at `sent`. Call it only when there is [`room`](Self::room): packets beyond the ring's
    /// end are accepted all the same. [`complete`](Self::complete) returns `token`.
    pub fn post(&mut self, sent: Instant, token: C, bytes: u32) {
        let posted = Posted { sent, token, bytes };
        self.used_descriptors += posted.descriptors();
        self.bytes += u64::from(bytes);
        if let Some(bql) = &mut self.bql {
            bql.on_queued(u64::from(bytes));
        }
        self.posted.push_back(posted);
    }

    /// The time of the next interrupt for sent packets.
    #[must_use]
    pub fn next_interrupt(&self) -> Option<Instant> {
        let first = self.posted.front()?.sent + self.spec.tx_usecs;
        let enough = (self.spec.tx_frames as usize).checked_sub(1).and_then(|last| self.posted.get(last));
        Some(enough.map_or(first, |enough| enough.sent.min(first)))
    }

    /// Packets sent but not yet reported to the host.
    #[must_use]
    pub fn sent(&self, now: Instant) -> usize {
        self.posted.iter().take_while(|posted| posted.sent <= now).count()
    }

    /// Reports all sent packets to the host: `f` receives the tokens. Returns the number of packets.
    pub fn complete(&mut self, now: Instant, mut f: impl FnMut(C)) -> u32 {
        let (mut packets, mut bytes) = (0, 0);
        while self.posted.front().is_some_and(|posted| posted.sent <= now) {
            let Some(posted) = self.posted.pop_front() else { break };
            packets += 1;
            bytes += u64::from(posted.bytes);
            self.used_descriptors -= posted.descriptors();
            f(posted.token);
        }
        self.bytes -= bytes;
        if let Some(bql) = &mut self.bql
            && packets > 0
        {
            bql.on_completed(now, bytes);
        }
        packets
    }

    // ---- receive ----

    /// Takes a packet that arrives from the wire.
    pub fn receive(&mut self, now: Instant, packet: T) -> Arrival<T> {
        if self.rx.len() >= self.spec.rx_ring {
            return Arrival::Dropped(packet);
        }
        self.rx.push(packet);
        let (usecs, frames) = (self.spec.rx_usecs, self.spec.rx_frames as usize);
        if self.rx_is_masked {
            Arrival::Quiet
        } else if usecs.is_zero() || (frames > 0 && self.rx.len() >= frames) {
            self.rx_is_masked = true;
            Arrival::Interrupt
        } else if self.rx.len() == 1 {
            Arrival::InterruptAt(now + usecs)
        } else {
            Arrival::Quiet
        }
    }

    /// Called at the time of [`Arrival::InterruptAt`]. Returns whether there is an interrupt: there may have
    /// been one before.
    pub fn interrupt(&mut self) -> bool {
        let fires = !self.rx.is_empty() && !self.rx_is_masked;
        self.rx_is_masked |= fires;
        fires
    }

    /// Packets that arrived and were not taken.
    #[must_use]
    pub fn received(&self) -> usize {
        self.rx.len()
    }

    /// Appends the arrived packets to `batch`; the next arrival may interrupt again.
    pub fn take_received(&mut self, batch: &mut Vec<T>) {
        self.rx_is_masked = false;
        batch.append(&mut self.rx);
    }
}

#[cfg(test)]
mod tests;
