//! A network card, as far as a host can tell: a ring of descriptors, a line, and interrupts. Ours, with `ethtool`'s
//! settings; called by a simulated host. Sans-IO like everything here.
//!
//! ```text
//!   send, post ─▶ ring ─▶ line (line.rs)          receive ─▶ rx ring ─▶ interrupt ─▶ take_received ─▶ gro.rs
//!      ▲           └─▶ interrupt ─▶ complete
//!      └── room: descriptors and byte queue limit (bql.rs)
//! ```
//!
//! **Line.** Segments follow each other at the line's rate, each with [`overhead`](NicSpec::overhead_bytes) beside its IP
//! packet: for Ethernet 14 bytes of header, 4 of checksum, 8 of preamble and 12 of gap. So a gigabit carries 81,274
//! full packets of 1500 bytes in a second, not 83,333. Since it sends them one after another, it is known when a packet is
//! posted when each of its segments will be on the wire: nothing happens until the interrupt, which makes one event a
//! packet rather than one a segment. Whoever drives the card cuts super-packets ([`taut_wire::raw::cut`]).
//!
//! **Ring.** A descriptor carries up to 16 KB; a super-packet takes several. They come free when the host is told
//! (not when the bytes have left), so a short ring with lazy interrupts idles. The host is asked to keep away, by
//! [`room`](Nic::room), while the largest packet might not fit.
//!
//! **Interrupts.** An interrupt costs a host microseconds, so a NIC collects: it interrupts when `usecs` have passed since
//! the first packet it has not told of, or when `frames` are there, whichever is sooner (`ethtool -C`). Until then the
//! sender's bytes count as being below it, as TCP Small Queues see it: this is the 16 µs that let automatic corking
//! hold back the head of a queue in 2013. From an interrupt for arrivals until the host has taken them there is no other
//! (Linux: NAPI).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use taut_core::{Duration, Instant};

use crate::bql::{Bql, BqlSpec};
use crate::line::Line;
use crate::quantity::Rate;

/// Bytes that a descriptor can point to. Usual: 16 KB in Intel's cards.
const DESCRIPTOR_BYTES: u32 = 16_384;

/// Descriptors for the largest packet, 64 KB of payload and a header.
const DESCRIPTORS_MAX: usize = 5;

/// What a NIC is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NicSpec {
    /// Bits that the line carries in a second.
    pub rate: Rate,
    /// Descriptors for transmission, at least 5. `ethtool -G tx`.
    pub ring: usize,
    /// Whether it cuts super-packets; otherwise a stack must make none. `ethtool -K tso`.
    pub tso: bool,
    /// Byte queue limit; none when `None`.
    pub bql: Option<BqlSpec>,
    /// Bytes beside each IP packet on the wire: 38 for Ethernet.
    pub overhead_bytes: u32,
    /// How long completions are collected; zero for no time. `ethtool -C tx-usecs`.
    pub tx_usecs: Duration,
    /// How many completions are collected; zero for any number. `ethtool -C tx-frames`.
    pub tx_frames: u32,
    /// How long arrivals are collected; zero for no time. `ethtool -C rx-usecs`.
    pub rx_usecs: Duration,
    /// How many arrivals are collected; zero for any number. `ethtool -C rx-frames`.
    pub rx_frames: u32,
    /// Packets that may wait for the interrupt that announces them. `ethtool -G rx`.
    pub rx_ring: usize,
    /// Whether what arrives together is merged. `ethtool -K gro`.
    pub gro: bool,
}

impl NicSpec {
    /// Bytes beside an IP packet on Ethernet: header 14, checksum 4, preamble 8, gap 12.
    pub const ETHERNET_BYTES: u32 = 38;

    /// A card of this rate as Linux would set it up: 512 descriptors, TSO, GRO, byte queue limits, and interrupts that
    /// are not collected.
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

/// A packet that the card was given.
#[derive(Debug)]
struct Posted<C> {
    /// When its last bit is on the wire.
    sent: Instant,
    token: C,
    bytes: u32,
}

impl<C> Posted<C> {
    fn descriptors(&self) -> usize {
        self.bytes.div_ceil(DESCRIPTOR_BYTES).max(1) as usize
    }
}

/// What an arrival asks for.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an interrupt that is not raised is a packet that nobody takes"]
pub enum Arrival<T> {
    /// An interrupt, now.
    Interrupt,
    /// An [interrupt](Nic::interrupt) at this time, unless another arrival asks for one before.
    InterruptAt(Instant),
    /// Nothing: an interrupt is on its way, or was raised.
    Quiet,
    /// The ring is full.
    Dropped(T),
}

/// A network card. `T` is a packet that arrived, `C` what comes back when one has left, as a
/// [`TxTicket`](taut_core::TxTicket). `now` never goes backwards.
#[derive(Debug)]
pub struct Nic<T, C> {
    spec: NicSpec,
    line: Line,
    bql: Option<Bql>,
    /// In the ring, sent or not, until the host is told.
    posted: VecDeque<Posted<C>>,
    used_descriptors: usize,
    /// Sum of `posted`.
    bytes: u64,
    /// Arrived, and not taken.
    rx: Vec<T>,
    /// An interrupt for those was raised.
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

    /// What it is like.
    #[must_use]
    pub const fn spec(&self) -> &NicSpec {
        &self.spec
    }

    // ---- out ----

    /// Whether a packet of any size may be [posted](Self::post): descriptors and the byte queue limit have room.
    #[must_use]
    pub fn room(&self) -> bool {
        self.spec.ring.max(DESCRIPTORS_MAX).saturating_sub(self.used_descriptors) >= DESCRIPTORS_MAX
            && self.bql.as_ref().is_none_or(Bql::has_room)
    }

    /// Bytes in the ring: posted, and the host not told that they were sent.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Puts a segment of `len` bytes on the line, and says when its last bit is out.
    #[inline]
    pub fn send(&mut self, now: Instant, len: u32) -> Instant {
        self.line.send(now, len)
    }

    /// A packet of `bytes`, the headers of all its segments counted, takes its place in the ring. The last of its segments
    /// is out at `sent`. Only when there is [`room`](Self::room): beyond the ring's end packets are taken all the same.
    /// `token` comes back by [`complete`](Self::complete).
    pub fn post(&mut self, sent: Instant, token: C, bytes: u32) {
        let posted = Posted { sent, token, bytes };
        self.used_descriptors += posted.descriptors();
        self.bytes += u64::from(bytes);
        if let Some(bql) = &mut self.bql {
            bql.on_queued(u64::from(bytes));
        }
        self.posted.push_back(posted);
    }

    /// When the next interrupt for sent packets comes.
    #[must_use]
    pub fn next_interrupt(&self) -> Option<Instant> {
        let first = self.posted.front()?.sent + self.spec.tx_usecs;
        let enough = (self.spec.tx_frames as usize).checked_sub(1).and_then(|last| self.posted.get(last));
        Some(enough.map_or(first, |enough| enough.sent.min(first)))
    }

    /// Packets that were sent, and the host not told.
    #[must_use]
    pub fn sent(&self, now: Instant) -> usize {
        self.posted.iter().take_while(|posted| posted.sent <= now).count()
    }

    /// The host takes back everything that was sent: `f` gets the tokens. Says how many packets that were.
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

    // ---- in ----

    /// A packet arrives from the wire.
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

    /// The time of [`Arrival::InterruptAt`] has come. Whether there is an interrupt: there may have been one before.
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

    /// The host takes what has arrived, behind what is in `batch`; the next arrival may interrupt again.
    pub fn take_received(&mut self, batch: &mut Vec<T>) {
        self.rx_is_masked = false;
        batch.append(&mut self.rx);
    }
}

#[cfg(test)]
mod tests;
