//! A queue discipline with its children, built from a [`QdiscSpec`]. Called by code that runs one.
//!
//! An enum rather than boxed traits: its contents need not be `Send` in a simulator but must be in front of a
//! device, and it can report on each of its parts.

use alloc::boxed::Box;
use alloc::vec::Vec;

use taut_core::Instant;

use crate::disciplines::fifo::Fifo;
use crate::disciplines::fq::{Fq, FqStats};
use crate::disciplines::fq_codel::{FqCodel, FqCodelStats};
use crate::disciplines::netem::Netem;
use crate::disciplines::pfifo_fast::PfifoFast;
use crate::disciplines::spec::QdiscSpec;
use crate::disciplines::tbf::Tbf;
use crate::qdisc::{Packet, Qdisc, QdiscStats, Verdict};
use crate::quantity::Rate;

/// A queue discipline with its children.
#[derive(Debug)]
pub struct Tree<T> {
    spec: QdiscSpec,
    root: Node<T>,
}

// With an explicit tag, which is faster to read than one stored in a niche of a queue's length.
#[derive(Debug)]
#[repr(u8)]
enum Node<T> {
    Fifo(Fifo<T>),
    PfifoFast(PfifoFast<T>),
    Fq(Box<Fq<T>>),
    FqCodel(Box<FqCodel<T>>),
    Tbf(Box<Tbf<T, Tree<T>>>),
    Netem(Box<Netem<T, Tree<T>>>),
}

/// The state of a discipline.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QdiscReport {
    /// Its configuration, with its children.
    pub spec: QdiscSpec,
    /// Waiting bytes, including those in children.
    pub backlog_bytes: u64,
    /// Waiting packets; a super-packet counts once.
    pub backlog_packets: usize,
    /// The counters of every discipline.
    pub stats: QdiscStats,
    /// The counters of this kind only.
    pub details: QdiscDetails,
}

/// The counters that only some disciplines have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum QdiscDetails {
    /// No further counters.
    #[default]
    None,
    /// The counters of an `fq`.
    Fq(FqStats),
    /// The counters of an `fq_codel`.
    FqCodel(FqCodelStats),
}

impl QdiscDetails {
    /// The counters by the names and in the order of `tc -s`.
    #[must_use]
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        match self {
            Self::None => Vec::new(),
            Self::Fq(stats) => Vec::from([
                ("flows", stats.flows),
                ("inactive", stats.inactive_flows),
                ("throttled", stats.throttled_flows),
                ("band0_pkts", stats.band_packets[0]),
                ("band1_pkts", stats.band_packets[1]),
                ("band2_pkts", stats.band_packets[2]),
                ("gc", stats.gc),
                ("fastpath", stats.fastpath),
                ("throttled_total", stats.throttled),
                ("ce_mark", stats.ce_mark),
                ("flows_plimit", stats.flows_plimit),
                ("pkts_too_long", stats.pkts_too_long),
                ("band0_drops", stats.band_drops[0]),
                ("band1_drops", stats.band_drops[1]),
                ("band2_drops", stats.band_drops[2]),
                ("horizon_drops", stats.horizon_drops),
                ("horizon_caps", stats.horizon_caps),
            ]),
            Self::FqCodel(stats) => Vec::from([
                ("maxpacket", stats.maxpacket),
                ("drop_overlimit", stats.drop_overlimit),
                ("new_flow_count", stats.new_flow_count),
                ("ecn_mark", stats.ecn_mark),
                ("ce_mark", stats.ce_mark),
                ("memory_used", stats.memory_used),
                ("drop_overmemory", stats.drop_overmemory),
                ("new_flows_len", stats.new_flows_len),
                ("old_flows_len", stats.old_flows_len),
            ]),
        }
    }
}

impl<T: Clone> Tree<T> {
    pub(crate) fn new(spec: &QdiscSpec, seed: u64) -> Self {
        // Each part has its own random numbers.
        let child = |child: &QdiscSpec| Self::new(child, seed.wrapping_add(1));
        let root = match spec {
            QdiscSpec::Pfifo { limit } => Node::Fifo(Fifo::packets(*limit as usize)),
            QdiscSpec::Bfifo { limit } => Node::Fifo(Fifo::bytes(u64::from(*limit))),
            QdiscSpec::PfifoFast => Node::PfifoFast(PfifoFast::new()),
            QdiscSpec::Fq(spec) => Node::Fq(Box::new(Fq::new(*spec))),
            QdiscSpec::FqCodel(spec) => Node::FqCodel(Box::new(FqCodel::new(*spec))),
            QdiscSpec::Tbf(spec, behind) => {
                // The limit is the shaper's, so the plain queue needs none.
                let plain = || Self {
                    spec: QdiscSpec::Bfifo { limit: u32::MAX },
                    root: Node::Fifo(Fifo::unlimited()),
                };
                let behind = behind.as_deref().map_or_else(plain, child);
                Node::Tbf(Box::new(Tbf::over(spec.rate, spec.burst_bytes, spec.limit_bytes(), behind)))
            }
            QdiscSpec::Netem(spec, behind) => {
                let behind = behind.as_deref().map(child);
                Node::Netem(Box::new(Netem::over((**spec).clone(), seed, behind)))
            }
        };
        Self { spec: spec.clone(), root }
    }

    /// Its configuration.
    #[must_use]
    pub const fn spec(&self) -> &QdiscSpec {
        &self.spec
    }

    /// Changes the rate of a `tbf` from `now` on. Returns whether it is one.
    pub fn set_rate(&mut self, now: Instant, rate: Rate) -> bool {
        match (&mut self.root, &mut self.spec) {
            (Node::Tbf(queue), QdiscSpec::Tbf(spec, _)) => {
                queue.set_rate(now, rate);
                spec.rate = rate;
                true
            }
            _ => false,
        }
    }

    /// Packets that it and its children have duplicated so far.
    #[must_use]
    pub fn copies(&self) -> u64 {
        match &self.root {
            Node::Tbf(queue) => queue.child().copies(),
            Node::Netem(queue) => queue.copies() + queue.child().map_or(0, Self::copies),
            _ => 0,
        }
    }

    /// The state of this discipline and its children, the root first.
    #[must_use]
    pub fn reports(&self) -> Vec<QdiscReport> {
        let mut reports = Vec::new();
        let mut next = Some(self);
        while let Some(tree) = next {
            let details = match &tree.root {
                Node::Fq(queue) => QdiscDetails::Fq(queue.fq_stats()),
                Node::FqCodel(queue) => QdiscDetails::FqCodel(queue.fq_codel_stats()),
                _ => QdiscDetails::None,
            };
            reports.push(QdiscReport {
                spec: tree.spec.clone(),
                backlog_bytes: tree.backlog_bytes(),
                backlog_packets: tree.backlog_packets(),
                stats: tree.stats(),
                details,
            });
            next = match &tree.root {
                // The plain queue of a shaper is not reported.
                Node::Tbf(queue) => tree.spec.child().map(|_| queue.child()),
                Node::Netem(queue) => queue.child(),
                _ => None,
            };
        }
        reports
    }
}

/// Makes the same call on any discipline.
macro_rules! each {
    ($node:expr, $queue:ident => $call:expr) => {
        match $node {
            Node::Fifo($queue) => $call,
            Node::PfifoFast($queue) => $call,
            Node::Fq($queue) => $call,
            Node::FqCodel($queue) => $call,
            Node::Tbf($queue) => apart(|| $call),
            Node::Netem($queue) => apart(|| $call),
        }
    };
}

/// Keeps a call out of line from the choice between disciplines. The disciplines that hold others are large,
/// and a plain queue would otherwise pay for their registers with each packet.
#[inline(never)]
fn apart<R>(call: impl FnOnce() -> R) -> R {
    call()
}

impl<T: Clone> Qdisc<T> for Tree<T> {
    #[inline]
    fn enqueue(&mut self, now: Instant, packet: Packet<T>) -> Verdict<T> {
        each!(&mut self.root, queue => queue.enqueue(now, packet))
    }
    #[inline]
    fn dequeue(&mut self, now: Instant) -> Option<Packet<T>> {
        each!(&mut self.root, queue => queue.dequeue(now))
    }
    #[inline]
    fn next(&self) -> Option<Instant> {
        each!(&self.root, queue => queue.next())
    }
    #[inline]
    fn poll_dropped(&mut self) -> Option<Packet<T>> {
        each!(&mut self.root, queue => queue.poll_dropped())
    }
    #[inline]
    fn evict(&mut self) -> Option<Packet<T>> {
        each!(&mut self.root, queue => queue.evict())
    }
    #[inline]
    fn orphans(&self) -> bool {
        each!(&self.root, queue => queue.orphans())
    }
    #[inline]
    fn shapes(&self) -> bool {
        each!(&self.root, queue => queue.shapes())
    }
    #[inline]
    fn backlog_bytes(&self) -> u64 {
        each!(&self.root, queue => queue.backlog_bytes())
    }
    #[inline]
    fn backlog_packets(&self) -> usize {
        each!(&self.root, queue => queue.backlog_packets())
    }
    #[inline]
    fn stats(&self) -> QdiscStats {
        each!(&self.root, queue => queue.stats())
    }
}
