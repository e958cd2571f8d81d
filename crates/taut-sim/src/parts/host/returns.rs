//! A device that gives tickets back late, in any order or never, and that has no room at times: a tunnel
//! whose worker encrypts, a ring that is read when another thread finds time. Called by `host.rs`, `up.rs`
//! and `down.rs`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use taut_core::{Duration, Instant};

use super::Returns;
use crate::rng::Rng;

/// A device that refused a packet has room again within this time.
const FULL_FOR: Duration = Duration::from_millis(1);

/// The slots of tickets that are late, and whether the device is full.
#[derive(Debug)]
pub(super) struct LateReturns {
    spec: Returns,
    rng: Rng,
    late: BinaryHeap<Reverse<(Instant, u32)>>,
    full_until: Option<Instant>,
}

impl LateReturns {
    pub(super) fn new(spec: Returns, rng: Rng) -> Self {
        Self { spec, rng, late: BinaryHeap::new(), full_until: None }
    }

    /// Whether the ticket in this slot, whose packet has left, does not go back now.
    pub(super) fn keeps(&mut self, now: Instant, slot: u32) -> bool {
        if self.rng.chance(self.spec.never) {
            return true;
        }
        if !self.spec.late.is_zero() {
            self.late.push(Reverse((now + self.rng.below_time(self.spec.late), slot)));
        }
        !self.spec.late.is_zero()
    }

    /// Whether the device refuses a packet. It is then full for a while.
    pub(super) fn refuses(&mut self, now: Instant) -> bool {
        let refuses = self.rng.chance(self.spec.refuse);
        if refuses {
            self.full_until = Some(now + self.rng.below_time(FULL_FOR));
        }
        refuses
    }

    pub(super) const fn is_full(&self) -> bool {
        self.full_until.is_some()
    }

    /// When something changes.
    pub(super) fn next(&self) -> Option<Instant> {
        let late = self.late.peek().map(|Reverse((at, _))| *at);
        late.into_iter().chain(self.full_until).min()
    }

    /// The slot of a ticket that goes back now.
    pub(super) fn take(&mut self, now: Instant) -> Option<u32> {
        self.full_until = self.full_until.filter(|until| *until > now);
        self.late.peek().filter(|Reverse((at, _))| *at <= now)?;
        self.late.pop().map(|Reverse((_, slot))| slot)
    }
}
