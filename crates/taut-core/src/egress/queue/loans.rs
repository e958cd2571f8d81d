//! Memory that the application lent to the write queue, until it is free again: the reports of Linux's
//! MSG_ZEROCOPY (2017; Documentation/networking/msg_zerocopy.rst). Kept by the
//! [`Sender`](crate::egress::Sender), read by the application.
//!
//! **Problem.** Bytes that are sent without a copy must not change until the peer has them, and the
//! application must learn when it may use the memory again.
//!
//! **Rule.** Each write that takes bytes has a number, counted from 0 and wrapping. A write is complete when
//! all its bytes are acknowledged, or never will be, and nobody holds its memory: neither the write queue nor
//! a packet that a device keeps. Completions are reported in order, those that came together as one range. A
//! device drops a packet before it gives the ticket back, so an ACK, a ticket and the end of a connection are
//! the times to look. A packet on an emulated wire outlives its ticket: if such a packet is all that an
//! application waits for, a timer looks again.
//!
//! **Numbers.** Short writes are copied, because counting holders costs as much as copying. Each takes a
//! number too, and its completion says that it was copied.

use alloc::collections::VecDeque;
use core::task::Poll;

use crate::words::{Duration, Holders, Instant, Receipt};

/// Writes shorter than this are copied. Eight pieces fill a packet, so shorter ones would make packets of
/// less than half of what a device takes, and a packet costs more than the copy of its bytes.
pub(crate) const LEND_MIN: usize = 4_096;

/// From this many incomplete writes on, copied ones share an entry with their neighbour: a peer that stops
/// reading must not cost an entry for each byte. Lent ones are bounded by the send buffer.
const HELD_MERGE: usize = 256;

/// When to look again at memory that only a packet without a ticket still holds: after this time, then after
/// twice as long, up to [`LOOK_AGAIN_MAX`].
const LOOK_AGAIN_MIN: Duration = Duration::from_millis(1);

/// No delay that matters to an application that reuses memory, and next to no work.
const LOOK_AGAIN_MAX: Duration = Duration::from_millis(64);

/// The most ranges that wait to be reported. More are added to the last one.
const DONE_MAX: usize = 64;

/// Writes whose bytes are free again: numbers `lo` to `hi`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Completion {
    /// The first number.
    pub lo: u32,
    /// The last number; less than `lo` if the numbers wrapped in between.
    pub hi: u32,
    /// Bytes of at least one of these writes were copied. Linux: `SO_EE_CODE_ZEROCOPY_COPIED`.
    pub copied: bool,
    /// The peer has acknowledged all bytes of these writes. False if the connection ended before.
    pub delivered: bool,
}

/// Writes that are not complete.
#[derive(Debug)]
struct Loan {
    lo: u32,
    hi: u32,
    /// Position after the last byte.
    end: u64,
    /// `None` if the bytes were copied.
    receipt: Option<Receipt>,
}

/// The writes of one connection that the application wants reported.
#[derive(Debug)]
pub(crate) struct Loans {
    /// The number of the next write.
    next: u32,
    /// Oldest first.
    held: VecDeque<Loan>,
    /// Complete and not reported, oldest first.
    done: VecDeque<Completion>,
    /// The application asked while there was nothing to report.
    is_awaited: bool,
    /// When to look again, and after what time the next time; `NEVER` unless needed.
    look_at: Instant,
    look_after: Duration,
}

impl Default for Loans {
    fn default() -> Self {
        Self {
            next: 0,
            held: VecDeque::new(),
            done: VecDeque::new(),
            is_awaited: false,
            look_at: Instant::NEVER,
            look_after: LOOK_AGAIN_MIN,
        }
    }
}

impl Loans {
    /// A write took bytes up to position `end`, without a copy if there is a receipt. Returns its number.
    pub(crate) fn add(&mut self, end: u64, receipt: Option<Receipt>) -> u32 {
        let number = self.next;
        self.next = number.wrapping_add(1);
        let merges = receipt.is_none() && self.held.len() >= HELD_MERGE;
        match self.held.back_mut() {
            Some(last) if merges && last.receipt.is_none() => (last.hi, last.end) = (number, end),
            _ => self.held.push_back(Loan { lo: number, hi: number, end, receipt }),
        }
        number
    }

    /// Notes which writes are complete: everything before `una` is acknowledged, and if the connection is
    /// `over`, nothing else will be. Returns whether the application must be notified.
    pub(crate) fn settle(&mut self, now: Instant, una: u64, over: bool, holders: &mut Holders) -> bool {
        let before = self.held.len();
        let mut only_held = false;
        while let Some(loan) = self.held.front_mut() {
            let delivered = loan.end <= una;
            if !(delivered || over) {
                break;
            }
            if loan.receipt.as_mut().is_some_and(|receipt| holders.answer(!receipt.is_free())) {
                only_held = true;
                break;
            }
            let done = Completion { lo: loan.lo, hi: loan.hi, copied: loan.receipt.is_none(), delivered };
            self.held.pop_front();
            self.note_done(done);
        }
        let notify = !self.done.is_empty() && core::mem::take(&mut self.is_awaited);
        if self.held.len() < before {
            self.look_after = LOOK_AGAIN_MIN;
        }
        if !only_held || !self.is_awaited {
            self.look_at = Instant::NEVER;
        } else if self.look_at == Instant::NEVER || self.look_at <= now {
            self.look_at = now + self.look_after;
            self.look_after = (self.look_after * 2).min(LOOK_AGAIN_MAX);
        }
        notify
    }

    /// When to [`settle`](Self::settle) if nothing happens before.
    pub(crate) const fn look_at(&self) -> Instant {
        self.look_at
    }

    fn note_done(&mut self, done: Completion) {
        let is_full = self.done.len() >= DONE_MAX;
        match self.done.back_mut() {
            Some(last) if is_full || (last.copied, last.delivered) == (done.copied, done.delivered) => {
                last.hi = done.hi;
                last.copied |= done.copied;
                last.delivered &= done.delivered;
            }
            _ => self.done.push_back(done),
        }
    }

    /// The next range to report; `Ready(None)` if every write was reported.
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        una: u64,
        over: bool,
        holders: &mut Holders,
    ) -> Poll<Option<Completion>> {
        self.is_awaited = !self.held.is_empty();
        let _ = self.settle(now, una, over, holders);
        match self.done.pop_front() {
            Some(done) => Poll::Ready(Some(done)),
            None if self.held.is_empty() => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::words::Memory;
    use std::vec::Vec;

    const NOW: Instant = Instant::from_nanos(1_000_000_000);

    fn reports(loans: &mut Loans) -> Vec<(u32, u32, bool)> {
        let mut all = Vec::new();
        while let Some(Completion { lo, hi, copied, .. }) = loans.done.pop_front() {
            all.push((lo, hi, copied));
        }
        all
    }

    #[test]
    fn numbers_wrap() {
        let mut loans = Loans { next: u32::MAX, ..Loans::default() };
        assert_eq!((loans.add(1, None), loans.add(2, None)), (u32::MAX, 0));
        assert!(!loans.settle(NOW, 2, false, &mut Holders::new()), "nobody waits");
        assert_eq!(reports(&mut loans), [(u32::MAX, 0, true)]);
    }

    #[test]
    fn the_application_is_notified_once() {
        let mut loans = Loans::default();
        let (memory, receipt) = Memory::lent(Vec::from([0; 10]).into());
        loans.add(10, Some(receipt));
        assert_eq!(loans.poll(NOW, 0, false, &mut Holders::new()), Poll::Pending);
        assert!(!loans.settle(NOW, 10, false, &mut Holders::new()), "the memory is held");
        drop(memory);
        assert!(loans.settle(NOW, 10, false, &mut Holders::new()));
        loans.add(11, None);
        assert!(!loans.settle(NOW, 11, false, &mut Holders::new()), "it was notified");
        assert_eq!(reports(&mut loans), [(0, 0, false), (1, 1, true)]);
    }

    /// The packet that holds the memory has no ticket that could announce its end.
    #[test]
    fn a_waiting_application_has_a_timer() {
        let mut loans = Loans::default();
        let (memory, receipt) = Memory::lent(Vec::from([0; 10]).into());
        loans.add(10, Some(receipt));
        assert!(!loans.settle(NOW, 10, false, &mut Holders::new()));
        assert_eq!(loans.look_at(), Instant::NEVER, "nobody waits");
        assert_eq!(loans.poll(NOW, 9, false, &mut Holders::new()), Poll::Pending);
        assert_eq!(loans.look_at(), Instant::NEVER, "the ACK will announce it");
        assert_eq!(loans.poll(NOW, 10, false, &mut Holders::new()), Poll::Pending);
        let mut waits = Vec::new();
        let mut now = NOW;
        for _ in 0..8 {
            let wait = loans.look_at().since(now);
            waits.push(wait.as_millis());
            now += wait;
            assert!(!loans.settle(now, 10, false, &mut Holders::new()));
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 64]);
        drop(memory);
        assert!(loans.settle(loans.look_at(), 10, false, &mut Holders::new()));
        assert_eq!(loans.look_at(), Instant::NEVER);
    }

    /// An application that never asks, and a peer that never acknowledges, cost a bounded amount of memory
    /// for writes that hold none.
    #[test]
    fn lists_are_bounded() {
        let mut loans = Loans::default();
        for end in 1..=100_000 {
            loans.add(end, None);
        }
        assert_eq!(loans.held.len(), HELD_MERGE);
        loans.settle(NOW, 100, false, &mut Holders::new());
        assert_eq!(reports(&mut loans), [(0, 99, true)]);
        loans.settle(NOW, 100_000, false, &mut Holders::new());
        assert_eq!(reports(&mut loans), [(100, 99_999, true)]);
        for end in 1..=1_000 {
            let receipt = (end % 2 == 0).then(|| Memory::lent(Vec::from([0; 10]).into()).1);
            loans.add(end, receipt);
        }
        loans.settle(NOW, 1_000, false, &mut Holders::new());
        assert_eq!(loans.done.len(), DONE_MAX);
        let reports = reports(&mut loans);
        let next = reports.iter().try_fold(100_000, |next, &(lo, hi, _)| (lo == next).then_some(hi + 1));
        assert_eq!(next, Some(101_000), "every number once: {reports:?}");
        assert_eq!(reports.last().map(|&(lo, _, copied)| (lo, copied)), Some((100_063, true)));
    }
}
