//! The log of packets sent and not yet acknowledged: one record per super-packet, ordered by sequence.
//! RFC 6675 §3 (scoreboard), counting in segments like Linux. A record is cut only if SACK or loss requires it.
//! Called by everything in this folder.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use super::delivery_rate::TxSnapshot;
use crate::congestion::LostPacket;
use crate::words::Instant;

/// Selectively acknowledged; excludes [`LOST`] and [`RETRANS`].
pub(super) const SACKED: u8 = 1;
/// The last transmission but one, or the only one, is thought lost.
pub(super) const LOST: u8 = 2;
/// A retransmission is in flight.
pub(super) const RETRANS: u8 = 4;
/// Was ever retransmitted, so an acknowledgement does not say which transmission arrived (Karn).
pub(super) const EVER_RETRANS: u8 = 8;

/// One transmitted super-packet, or the part of one that SACK or loss cut off.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) start: u64,
    /// The position after the last one; always above `start`.
    pub(super) end: u64,
    /// When it was last transmitted.
    pub(super) sent_at: Instant,
    pub(super) snapshot: TxSnapshot,
    /// Payload bytes of each segment but the last; at least 1.
    pub(super) mss: u16,
    pub(super) flags: u8,
    /// Transmissions still below TCP.
    pub(super) in_device: u8,
}

impl Record {
    pub(super) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Segments on the wire.
    pub(super) fn segs(&self) -> u32 {
        segs_in(self.end - self.start, self.mss)
    }

    /// Whether the lengths of `self` and a successor may be added without changing the number of segments.
    fn ends_on_segment(&self) -> bool {
        (self.end - self.start).is_multiple_of(u64::from(self.mss))
    }
}

/// A record that was marked lost.
#[derive(Clone, Copy, Debug)]
struct Loss {
    segs: u32,
    snapshot: TxSnapshot,
    /// Segments lost since the beginning, these included.
    total_lost: u32,
}

/// The number of segments into which `len` bytes are cut.
pub(super) fn segs_in(len: u64, mss: u16) -> u32 {
    u32::try_from(len.div_ceil(u64::from(mss.max(1)))).unwrap_or(u32::MAX)
}

/// The scoreboard. Records are contiguous from `una` to `nxt`.
#[derive(Debug)]
pub(super) struct SentLog {
    records: VecDeque<Record>,
    nxt: u64,
    packets: u32,
    sacked: u32,
    lost: u32,
    retrans: u32,
    /// Lost, and not yet retransmitted.
    pending: u32,
    /// Duplicate ACKs, each taken for an arrival, when the peer has no SACK.
    dup_acks: u32,
    /// Segments marked lost since the beginning, wrapping.
    total_lost: u32,
    /// Those that were not yet reported to congestion control.
    unreported: Vec<Loss>,
    /// No record below this position waits for its retransmission.
    resend_hint: u64,
    /// Every record that ends at or below this position was retransmitted, sacked, or marked lost.
    rack_cursor: u64,
}

impl SentLog {
    pub(super) const fn new(una: u64) -> Self {
        Self {
            records: VecDeque::new(),
            nxt: una,
            packets: 0,
            sacked: 0,
            lost: 0,
            retrans: 0,
            pending: 0,
            dup_acks: 0,
            total_lost: 0,
            unreported: Vec::new(),
            resend_hint: u64::MAX,
            rack_cursor: una,
        }
    }

    pub(super) const fn nxt(&self) -> u64 {
        self.nxt
    }

    /// Nothing is in flight: releases memory.
    pub(super) fn shrink(&mut self) {
        if self.records.is_empty() {
            self.records = VecDeque::new();
            self.unreported = Vec::new();
        }
    }

    pub(super) fn una(&self) -> u64 {
        self.records.front().map_or(self.nxt, |record| record.start)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) const fn packets_out(&self) -> u32 {
        self.packets
    }

    pub(super) const fn sacked_out(&self) -> u32 {
        self.sacked + self.dup_acks
    }

    pub(super) const fn lost_out(&self) -> u32 {
        self.lost
    }

    pub(super) const fn retrans_out(&self) -> u32 {
        self.retrans
    }

    pub(super) const fn pending(&self) -> u32 {
        self.pending
    }

    pub(super) const fn total_lost(&self) -> u32 {
        self.total_lost
    }

    /// Segments thought to be in the network.
    pub(super) const fn in_flight(&self) -> u32 {
        (self.packets + self.retrans).saturating_sub(self.sacked + self.dup_acks + self.lost)
    }

    pub(super) fn get(&self, index: usize) -> Option<&Record> {
        self.records.get(index)
    }

    pub(super) fn first(&self) -> Option<&Record> {
        self.records.front()
    }

    pub(super) fn last(&self) -> Option<&Record> {
        self.records.back()
    }

    /// Index of the first record that ends above `position`; `len()` when none does.
    pub(super) fn index_of(&self, position: u64) -> usize {
        // Most callers look for the head: retransmissions and in-order completions begin there.
        match self.records.front() {
            Some(head) if head.end > position => 0,
            _ => self.records.partition_point(|record| record.end <= position),
        }
    }

    fn count(&mut self, record: &Record) {
        let segs = record.segs();
        self.packets += segs;
        if record.has(SACKED) {
            self.sacked += segs;
        }
        if record.has(RETRANS) {
            self.retrans += segs;
        }
        if record.has(LOST) {
            self.lost += segs;
            if !record.has(RETRANS) {
                self.pending += segs;
                self.resend_hint = self.resend_hint.min(record.start);
            }
        }
    }

    fn discount(&mut self, record: &Record) {
        let segs = record.segs();
        self.packets -= segs;
        if record.has(SACKED) {
            self.sacked -= segs;
        }
        if record.has(RETRANS) {
            self.retrans -= segs;
        }
        if record.has(LOST) {
            self.lost -= segs;
            if !record.has(RETRANS) {
                self.pending -= segs;
            }
        }
    }

    /// Changes a record and updates the counts. The only writer of records that are in the log.
    fn change(&mut self, index: usize, change: impl FnOnce(&mut Record)) {
        let Some(record) = self.records.get_mut(index) else { return };
        let before = *record;
        change(record);
        let after = *record;
        self.discount(&before);
        self.count(&after);
    }

    /// Appends the record of a first transmission.
    pub(super) fn push(&mut self, record: Record) {
        debug_assert!(record.start == self.nxt && record.start < record.end, "new data follows the old");
        self.nxt = record.end;
        self.count(&record);
        self.records.push_back(record);
    }

    /// Removes the newest record. Returns false when that is not `range`.
    pub(super) fn pop(&mut self, range: &Range<u64>) -> bool {
        match self.records.back() {
            Some(last) if last.start == range.start && last.end == range.end => {
                let record = *last;
                self.records.pop_back();
                self.discount(&record);
                self.nxt = record.start;
                self.rack_cursor = self.rack_cursor.min(self.nxt);
                true
            }
            _ => false,
        }
    }

    /// Cuts the record at `index` so that one begins at `position`, which lies strictly inside.
    fn split(&mut self, index: usize, position: u64) {
        let Some(&whole) = self.records.get(index) else { return };
        if position <= whole.start || position >= whole.end {
            return;
        }
        let tail = Record { start: position, ..whole };
        self.change(index, |record| record.end = position);
        self.count(&tail);
        self.records.insert(index + 1, tail);
    }

    /// Cuts at both ends of `range`, and returns the indexes of the records in it.
    pub(super) fn isolate(&mut self, range: &Range<u64>) -> Range<usize> {
        let first = self.index_of(range.start);
        let first = match self.records.get(first) {
            Some(record) if record.start < range.start => {
                self.split(first, range.start);
                first + 1
            }
            _ => first,
        };
        let mut last = first;
        while let Some(record) = self.records.get(last) {
            if record.start >= range.end {
                break;
            }
            if record.end > range.end {
                self.split(last, range.end);
            }
            last += 1;
        }
        first..last
    }

    /// Notes a retransmission of the record at `index`; returns its segments.
    pub(super) fn retransmitted(&mut self, index: usize, now: Instant, snapshot: TxSnapshot) -> u32 {
        self.change(index, |record| {
            record.sent_at = now;
            record.snapshot = snapshot;
            record.in_device = record.in_device.saturating_add(1);
            if !record.has(SACKED) {
                record.flags |= RETRANS | EVER_RETRANS;
            }
        });
        let Some(record) = self.records.get(index) else { return 0 };
        if self.resend_hint >= record.start {
            self.resend_hint = record.end;
        }
        record.segs()
    }

    /// A retransmission did not leave after all. It stays marked as retransmitted once, so it gives no RTT sample.
    pub(super) fn retransmission_refused(&mut self, index: usize) -> u32 {
        self.change(index, |record| {
            record.flags &= !RETRANS;
            record.in_device = record.in_device.saturating_sub(1);
        });
        self.records.get(index).map_or(0, Record::segs)
    }

    /// Marks a record or its retransmission lost; returns the number of segments newly lost.
    pub(super) fn mark_lost(&mut self, index: usize) -> u32 {
        let Some(record) = self.records.get(index) else { return 0 };
        if record.has(SACKED) || (record.has(LOST) && !record.has(RETRANS)) {
            return 0;
        }
        let segs = record.segs();
        self.change(index, |record| record.flags = (record.flags | LOST) & !RETRANS);
        self.total_lost = self.total_lost.wrapping_add(segs);
        if let Some(&Record { snapshot, .. }) = self.records.get(index) {
            self.unreported.push(Loss { segs, snapshot, total_lost: self.total_lost });
        }
        self.limit_dup_acks();
        segs
    }

    /// Reports the losses marked since the last call. `delivered`: segments delivered since the connection began.
    pub(super) fn take_lost(&mut self, delivered: u64, mut report: impl FnMut(&LostPacket)) {
        if self.unreported.is_empty() {
            return;
        }
        for Loss { segs, snapshot, total_lost } in self.unreported.drain(..) {
            report(&LostPacket {
                segs,
                tx_in_flight: snapshot.in_flight,
                lost: total_lost.wrapping_sub(snapshot.lost),
                total_delivered: delivered,
                is_app_limited: snapshot.app_limited,
            });
        }
    }

    /// Marks only the first segment of the head lost: without SACK, nothing more is known. RFC 6582 §3.2.
    pub(super) fn mark_head_lost(&mut self) -> u32 {
        let Some(head) = self.records.front() else { return 0 };
        if head.has(LOST) {
            return 0;
        }
        let cut = head.start + u64::from(head.mss);
        self.split(0, cut);
        self.mark_lost(0)
    }

    /// Selectively acknowledges the record at `index`; it may join the one before.
    /// Returns the index of the next record.
    pub(super) fn mark_sacked(&mut self, index: usize) -> usize {
        self.change(index, |record| record.flags = (record.flags | SACKED) & !(LOST | RETRANS));
        let Some(&record) = self.records.get(index) else { return index };
        if index > 0 && self.joins_sacked(index - 1, &record) {
            self.records.remove(index);
            self.discount(&record);
            self.change(index - 1, |before| before.end = record.end);
            index
        } else {
            index + 1
        }
    }

    /// Moves `start` of the record at `index` up and adds the front to its sacked predecessor. Thus a SACK block that
    /// grows within a super-packet needs no further record. False when the two cannot be joined.
    pub(super) fn shift_to_sacked(&mut self, index: usize, position: u64) -> bool {
        let Some(&record) = self.records.get(index) else { return false };
        if index == 0 || position >= record.end || !self.joins_sacked(index - 1, &record) {
            return false;
        }
        self.change(index, |record| record.start = position);
        self.change(index - 1, |before| before.end = position);
        true
    }

    fn joins_sacked(&self, index: usize, next: &Record) -> bool {
        self.records
            .get(index)
            .is_some_and(|before| before.has(SACKED) && before.mss == next.mss && before.ends_on_segment())
    }

    /// Cuts for SACK: the record at `index` is cut at `position`.
    pub(super) fn cut(&mut self, index: usize, position: u64) {
        self.split(index, position);
    }

    /// Removes everything below `ack`, head first; `visit` gets each removed record or part of one, with its
    /// number of segments.
    pub(super) fn acknowledge(&mut self, ack: u64, mut visit: impl FnMut(&Record, u32)) {
        while let Some(&head) = self.records.front() {
            if head.end <= ack {
                self.records.pop_front();
                self.discount(&head);
                visit(&head, head.segs());
            } else if head.start < ack {
                self.change(0, |record| record.start = ack);
                let left = self.records.front().map_or(0, Record::segs);
                visit(&Record { end: ack, ..head }, head.segs() - left);
                break;
            } else {
                break;
            }
        }
        self.rack_cursor = self.rack_cursor.max(ack);
        if self.pending == 0 {
            self.resend_hint = u64::MAX;
        }
        self.limit_dup_acks();
    }

    /// Index of the first record that waits for its retransmission.
    pub(super) fn next_pending(&self) -> Option<usize> {
        if self.pending == 0 {
            return None;
        }
        let from = self.index_of(self.resend_hint);
        (from..self.records.len()).find(|&index| {
            self.records.get(index).is_some_and(|record| record.has(LOST) && !record.has(RETRANS))
        })
    }

    pub(super) const fn rack_cursor(&self) -> u64 {
        self.rack_cursor
    }

    pub(super) const fn set_rack_cursor(&mut self, position: u64) {
        self.rack_cursor = position;
    }

    /// Forgets all losses. RACK watches the retransmitted records.
    pub(super) fn unmark_lost(&mut self) {
        for index in 0..self.records.len() {
            self.change(index, |record| record.flags &= !LOST);
        }
        self.rack_cursor = self.una();
        if self.pending == 0 {
            self.resend_hint = u64::MAX;
        }
    }

    /// The peer dropped data that it had selectively acknowledged. RFC 2018 §8.
    pub(super) fn forget_sacks(&mut self) {
        for index in 0..self.records.len() {
            self.change(index, |record| {
                if record.has(SACKED) {
                    // Neighbours were joined: it is no longer known when and how often each part was sent, so
                    // the record gives no RTT sample.
                    record.flags = (record.flags & !SACKED) | EVER_RETRANS;
                    record.in_device = 0;
                }
            });
        }
        self.rack_cursor = self.una();
    }

    /// From now on, segments are at most `mss` long; larger ones are cut and marked lost. Returns the number
    /// of segments newly lost.
    pub(super) fn resegment(&mut self, mss: u16) -> u32 {
        let mut lost = 0;
        for index in 0..self.records.len() {
            if self.records.get(index).is_some_and(|record| record.mss > mss) {
                let oversized = self.records.get(index).is_some_and(|r| r.end - r.start > u64::from(mss));
                self.change(index, |record| record.mss = mss.max(1));
                if oversized {
                    lost += self.mark_lost(index);
                }
            }
        }
        lost
    }

    /// If data in `range` is retransmitted, then in segments of at most `mss`.
    pub(super) fn recount(&mut self, range: &Range<u64>, mss: u16) {
        for index in self.index_of(range.start)..self.records.len() {
            if self.records.get(index).is_none_or(|record| record.start >= range.end) {
                break;
            }
            self.change(index, |record| record.mss = record.mss.min(mss).max(1));
        }
    }

    pub(super) fn completed(&mut self, range: &Range<u64>) {
        let first = self.index_of(range.start);
        for record in self.records.range_mut(first..) {
            if record.start >= range.end {
                break;
            }
            record.in_device = record.in_device.saturating_sub(1);
        }
    }

    pub(super) fn in_device(&self, range: &Range<u64>) -> bool {
        let first = self.index_of(range.start);
        self.records
            .range(first..)
            .take_while(|record| record.start < range.end)
            .any(|record| record.in_device > 0)
    }

    /// Without SACK, a duplicate ACK says that one segment above the hole arrived. Returns whether it counted.
    pub(super) fn add_dup_ack(&mut self) -> bool {
        let before = self.dup_acks;
        self.dup_acks += 1;
        self.limit_dup_acks();
        self.dup_acks > before
    }

    /// An ACK acknowledged `acked` segments together: the hole, and arrivals that duplicate ACKs had announced.
    /// Returns the number of those not announced, at least one.
    pub(super) fn consume_dup_acks(&mut self, acked: u32) -> u32 {
        let announced = self.dup_acks;
        self.dup_acks = announced.saturating_sub(acked.saturating_sub(1));
        self.limit_dup_acks();
        acked.saturating_sub(announced).max(1)
    }

    pub(super) const fn clear_dup_acks(&mut self) {
        self.dup_acks = 0;
    }

    /// There must be a hole below the arrivals: sacked + lost never exceeds the number of segments sent.
    fn limit_dup_acks(&mut self) {
        let holes = self.lost.max(1).min(self.packets);
        self.dup_acks = self.dup_acks.min(self.packets.saturating_sub(holes + self.sacked));
    }

    /// Asserts the counts against a recount; for tests and debug builds.
    #[cfg(test)]
    pub(super) fn invariants(&self) {
        let mut again = Self::new(0);
        let mut at = self.una();
        for record in &self.records {
            assert_eq!(record.start, at, "records are contiguous");
            assert!(record.end > record.start, "no record is empty");
            assert!(!record.has(SACKED) || !record.has(LOST | RETRANS), "sacked is neither lost nor resent");
            again.count(record);
            at = record.end;
        }
        assert_eq!(at, self.nxt);
        assert_eq!(
            (self.packets, self.sacked, self.lost, self.retrans, self.pending),
            (again.packets, again.sacked, again.lost, again.retrans, again.pending)
        );
        assert!(self.pending == 0 || self.resend_hint <= again.resend_hint, "hint is a lower bound");
        assert!(self.sacked_out() + self.lost <= self.packets);
    }
}
