//! Queue disciplines by name, as a plan of a network has them, and `netem` over packets that are names.

use std::cell::RefCell;
use std::rc::Rc;

use taut_core::Instant;
use taut_link::{
    BANDS, Fifo, Fq, FqCodel, FqCodelSpec, FqSpec, Netem, NetemSpec, Packet, PfifoFast, Qdisc, QdiscStats,
    Rate, Tbf, Verdict,
};

use crate::packet::PacketId;

/// A queue discipline and its parameters.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum QdiscSpec {
    /// `pfifo_fast`: three bands by priority, each of so many packets.
    PfifoFast {
        /// Packets that may wait in a band.
        packets: usize,
    },
    /// `pfifo`: so many packets, a super-packet being one.
    Pfifo {
        /// Packets that may wait.
        packets: usize,
    },
    /// `bfifo`: so many bytes.
    Bfifo {
        /// Bytes that may wait.
        bytes: u64,
    },
    /// `tbf`: a token bucket.
    Tbf {
        /// Its rate.
        rate: Rate,
        /// Bytes that may leave at once after a pause.
        burst_bytes: u32,
        /// Bytes that may wait.
        limit_bytes: u64,
    },
    /// `fq`: a queue for each flow, which honours departure times.
    Fq(FqSpec),
    /// `fq_codel`: a queue for each flow, kept short by CoDel.
    FqCodel(FqCodelSpec),
    /// `netem`: a path in a box.
    Netem(NetemSpec),
}

/// How much may wait at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueLimit {
    Packets(usize),
    Bytes(u64),
}

impl QdiscSpec {
    /// `seed` is for disciplines that leave something to chance.
    pub(crate) fn build(&self, seed: u64) -> Box<dyn Qdisc<PacketId>> {
        match self {
            Self::PfifoFast { packets } => Box::new(PfifoFast::with_limit(*packets)),
            Self::Pfifo { packets } => Box::new(Fifo::packets(*packets)),
            Self::Bfifo { bytes } => Box::new(Fifo::bytes(*bytes)),
            Self::Tbf { rate, burst_bytes, limit_bytes } => {
                Box::new(Tbf::new(*rate, *burst_bytes, *limit_bytes))
            }
            Self::Fq(spec) => Box::new(Fq::new(*spec)),
            Self::FqCodel(spec) => Box::new(FqCodel::new(*spec)),
            Self::Netem(spec) => Box::new(Path { netem: Netem::new(spec.clone(), seed), twins: 0 }),
        }
    }

    /// What never waits more than.
    pub(crate) fn limit(&self) -> Option<QueueLimit> {
        match self {
            Self::PfifoFast { packets } => Some(QueueLimit::Packets(BANDS * packets)),
            Self::Pfifo { packets } => Some(QueueLimit::Packets(*packets)),
            Self::Bfifo { bytes } | Self::Tbf { limit_bytes: bytes, .. } => Some(QueueLimit::Bytes(*bytes)),
            Self::Fq(spec) => Some(QueueLimit::Packets(BANDS * spec.limit as usize)),
            Self::FqCodel(spec) => Some(QueueLimit::Packets(spec.limit as usize)),
            Self::Netem(spec) => Some(QueueLimit::Packets(spec.limit as usize)),
        }
    }

    /// Whether it honours departure times.
    pub(crate) fn paces(&self) -> bool {
        match self {
            Self::Fq(spec) => spec.pacing,
            _ => false,
        }
    }
}

/// A packet in `netem`, which may double it.
type Shared = Rc<RefCell<Option<PacketId>>>;

/// `netem` wants packets that can be cloned, and a [`PacketId`] must not be. What it clones here is a claim on one
/// packet; who takes out a claim while others are in there gets a name that is to be made a packet of its own.
struct Path {
    netem: Netem<Shared>,
    /// Claims beyond one a packet.
    twins: usize,
}

impl Path {
    /// The packet of a claim.
    fn redeem(&mut self, claim: &Packet<Shared>) -> Option<Packet<PacketId>> {
        let is_last = Rc::strong_count(&claim.item) == 1;
        let id = if is_last {
            claim.item.borrow_mut().take()?
        } else {
            self.twins -= 1;
            claim.item.borrow().as_ref()?.twin()
        };
        Some(with_item(claim, id))
    }
}

/// The same packet with another item.
fn with_item<T, U>(packet: &Packet<T>, item: U) -> Packet<U> {
    let &Packet { len, segs, departure, flow, priority, ecn, corrupt, .. } = packet;
    Packet { len, segs, departure, flow, priority, ecn, corrupt, item }
}

impl Qdisc<PacketId> for Path {
    fn enqueue(&mut self, now: Instant, packet: Packet<PacketId>) -> Verdict<PacketId> {
        let shared = Rc::new(RefCell::new(None));
        let claim = with_item(&packet, Rc::clone(&shared));
        let Packet { item, .. } = packet;
        *shared.borrow_mut() = Some(item);
        let verdict = self.netem.enqueue(now, claim);
        // One claim is ours, one makes a packet; those that were lost at once are still to be asked for.
        let claims = Rc::strong_count(&shared) - 1;
        self.twins += claims.saturating_sub(1);
        drop(shared);
        match verdict {
            Verdict::Taken => Verdict::Taken,
            Verdict::Congested => Verdict::Congested,
            Verdict::Dropped(claim) => match self.redeem(&claim) {
                Some(packet) => Verdict::Dropped(packet),
                None => Verdict::Taken,
            },
        }
    }

    fn dequeue(&mut self, now: Instant) -> Option<Packet<PacketId>> {
        let claim = self.netem.dequeue(now)?;
        self.redeem(&claim)
    }

    fn next(&self) -> Option<Instant> {
        self.netem.next()
    }

    fn poll_dropped(&mut self) -> Option<Packet<PacketId>> {
        let claim = self.netem.poll_dropped()?;
        self.redeem(&claim)
    }

    fn evict(&mut self) -> Option<Packet<PacketId>> {
        let claim = self.netem.evict()?;
        self.redeem(&claim)
    }

    fn backlog_bytes(&self) -> u64 {
        self.netem.backlog_bytes()
    }

    fn backlog_packets(&self) -> usize {
        self.netem.backlog_packets().saturating_sub(self.twins)
    }

    fn orphans(&self) -> bool {
        self.netem.orphans()
    }

    fn stats(&self) -> QdiscStats {
        self.netem.stats()
    }
}
