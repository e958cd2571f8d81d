//! The log of packets sent and not yet acknowledged: one record per super-packet, ordered by sequence.
//! RFC 6675 §3 (scoreboard), counting in segments like Linux. A record is cut only if SACK or loss requires it.
//! Called by everything in this folder.
//!
//! **Work.** The peer decides where records are cut and in what order they are settled, so nothing that an ACK causes
//! may look at records that it does not change (WORK-1). Records are in blocks (`records.rs`). Neighbours that were
//! selectively acknowledged are one record, so a block of SACK walks only over what is new. The lowest record that waits
//! for its retransmission is the top of a heap. What must visit all records, an undo, is rationed
//! ([`may_unmark`](SentLog::may_unmark)).

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::Range;

use super::delivery_rate::TxSnapshot;
use super::records::{Place, Records};
use crate::congestion::LostPacket;
use crate::words::{Instant, step};

/// Selectively acknowledged; excludes [`LOST`] and [`RETRANS`].
pub(crate) const SACKED: u8 = 1;
/// The last transmission but one, or the only one, is thought lost.
pub(crate) const LOST: u8 = 2;
/// A retransmission is in flight.
pub(crate) const RETRANS: u8 = 4;
/// Was ever retransmitted, so an acknowledgement does not say which transmission arrived (Karn).
pub(crate) const EVER_RETRANS: u8 = 8;

/// So many records may be unmarked at any time: what a small flight costs does not matter.
const UNMARK_FREE: usize = 64;

/// One transmitted super-packet, or the part of one that SACK or loss cut off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) start: u64,
    /// The position after the last one; always above `start`.
    pub(crate) end: u64,
    /// When it was last transmitted.
    pub(crate) sent_at: Instant,
    pub(crate) snapshot: TxSnapshot,
    /// Payload bytes of each segment but the last; at least 1.
    pub(crate) mss: u16,
    pub(crate) flags: u8,
    /// Transmissions still below TCP.
    pub(crate) in_device: u8,
    /// Segments in addition to those that the length makes: records whose last segment was short were joined. Only a
    /// sacked record has any.
    pub(crate) short_segs: u32,
}

impl Record {
    pub(crate) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Segments on the wire.
    pub(crate) fn segs(&self) -> u32 {
        segs_in(self.end - self.start, self.mss) + self.short_segs
    }

    /// Lost, and not yet retransmitted.
    const fn waits(&self) -> bool {
        self.has(LOST) && !self.has(RETRANS)
    }

    /// Adds the next record. The number of segments stays.
    fn absorb(&mut self, next: &Self) {
        let segs = self.segs() + next.segs();
        // Linux: `tcp_shifted_skb`. An ACK of both says nothing about the round trip if either was sent twice.
        self.flags |= next.flags & EVER_RETRANS;
        self.end = next.end;
        self.short_segs = segs - segs_in(self.end - self.start, self.mss);
    }

    /// The limits or the MSS changed: there are not more segments than bytes.
    fn limit_segs(&mut self) {
        let len = self.end - self.start;
        let most = u32::try_from(len).unwrap_or(u32::MAX) - segs_in(len, self.mss);
        self.short_segs = self.short_segs.min(most);
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
pub(crate) fn segs_in(len: u64, mss: u16) -> u32 {
    u32::try_from(len.div_ceil(u64::from(mss.max(1)))).unwrap_or(u32::MAX)
}

/// The scoreboard. Records are contiguous from `una` to `nxt`.
#[derive(Debug)]
pub(crate) struct SentLog {
    records: Records,
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
    /// Where the records begin that wait for their retransmission, lowest first; others are forgotten when they reach
    /// the top.
    waiting: BinaryHeap<Reverse<u64>>,
    /// Records made since the beginning, and until the last undo, wrapping.
    made: u32,
    made_at_unmark: u32,
    /// Every record that ends at or below this position was retransmitted, sacked, or marked lost.
    rack_cursor: u64,
}

impl SentLog {
    pub(crate) const fn new(una: u64) -> Self {
        Self {
            records: Records::new(),
            nxt: una,
            packets: 0,
            sacked: 0,
            lost: 0,
            retrans: 0,
            pending: 0,
            dup_acks: 0,
            total_lost: 0,
            unreported: Vec::new(),
            waiting: BinaryHeap::new(),
            made: 0,
            made_at_unmark: 0,
            rack_cursor: una,
        }
    }

    pub(crate) const fn nxt(&self) -> u64 {
        self.nxt
    }

    /// Nothing is in flight: releases memory.
    pub(crate) fn shrink(&mut self) {
        if self.records.is_empty() {
            self.records = Records::new();
            self.unreported = Vec::new();
            self.waiting = BinaryHeap::new();
        }
    }

    pub(crate) fn una(&self) -> u64 {
        self.records.front().map_or(self.nxt, |record| record.start)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    pub(crate) const fn packets_out(&self) -> u32 {
        self.packets
    }

    pub(crate) const fn sacked_out(&self) -> u32 {
        self.sacked + self.dup_acks
    }

    pub(crate) const fn lost_out(&self) -> u32 {
        self.lost
    }

    pub(crate) const fn retrans_out(&self) -> u32 {
        self.retrans
    }

    pub(crate) const fn pending(&self) -> u32 {
        self.pending
    }

    pub(crate) const fn total_lost(&self) -> u32 {
        self.total_lost
    }

    /// Segments thought to be in the network.
    pub(crate) const fn in_flight(&self) -> u32 {
        (self.packets + self.retrans).saturating_sub(self.sacked + self.dup_acks + self.lost)
    }

    pub(crate) fn get(&self, place: Place) -> Option<&Record> {
        self.records.get(place)
    }

    pub(crate) fn next(&self, place: Place) -> Place {
        self.records.next(place)
    }

    pub(crate) fn first(&self) -> Option<&Record> {
        self.records.front()
    }

    pub(crate) fn last(&self) -> Option<&Record> {
        self.records.back()
    }

    /// Place of the first record that ends above `position`.
    pub(crate) fn find(&self, position: u64) -> Place {
        self.records.find(position)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Record> {
        self.records.iter()
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
            }
        }
    }

    fn discount(&mut self, record: &Record) {
        self.discount_segs(record.flags, record.segs());
    }

    fn discount_segs(&mut self, flags: u8, segs: u32) {
        self.packets -= segs;
        if flags & SACKED != 0 {
            self.sacked -= segs;
        }
        if flags & RETRANS != 0 {
            self.retrans -= segs;
        }
        if flags & LOST != 0 {
            self.lost -= segs;
            if flags & RETRANS == 0 {
                self.pending -= segs;
            }
        }
    }

    /// Changes a record and updates the counts. The only writer of records that are in the log.
    fn change(&mut self, place: Place, change: impl FnOnce(&mut Record)) {
        let Some(record) = self.records.get_mut(place) else { return };
        let before = *record;
        change(record);
        let after = *record;
        self.discount(&before);
        self.count(&after);
        if after.waits() && !(before.waits() && before.start == after.start) {
            self.note_waiting(after.start);
        }
    }

    /// The record at `start` waits for its retransmission.
    fn note_waiting(&mut self, start: u64) {
        step(1);
        if self.waiting.len() > 2 * self.records.len() + UNMARK_FREE {
            // Most entries are stale.
            self.waiting.clear();
            let waiting = self.records.iter().filter(|record| record.waits());
            self.waiting.extend(waiting.map(|record| Reverse(record.start)));
        }
        self.waiting.push(Reverse(start));
    }

    /// Some records wait no more: forgets those on top.
    #[inline]
    fn forget_settled(&mut self) {
        if !self.waiting.is_empty() {
            self.forget_top();
        }
    }

    fn forget_top(&mut self) {
        if self.pending == 0 {
            self.waiting.clear();
        }
        while let Some(&Reverse(start)) = self.waiting.peek() {
            let record = self.records.get(self.records.find(start));
            if record.is_some_and(|record| record.start == start && record.waits()) {
                break;
            }
            step(1);
            self.waiting.pop();
        }
    }

    /// Appends the record of a first transmission.
    pub(crate) fn push(&mut self, record: Record) {
        debug_assert!(record.start == self.nxt && record.start < record.end, "new data follows the old");
        self.nxt = record.end;
        self.made = self.made.wrapping_add(1);
        self.count(&record);
        self.records.push_back(record);
    }

    /// Removes the newest record. Returns false when that is not `range`.
    pub(crate) fn pop(&mut self, range: &Range<u64>) -> bool {
        let Some(record) =
            self.records.back().filter(|last| last.start == range.start && last.end == range.end)
        else {
            return false;
        };
        let record = *record;
        self.records.drop_back();
        self.discount(&record);
        self.nxt = record.start;
        self.rack_cursor = self.rack_cursor.min(self.nxt);
        self.forget_settled();
        true
    }

    /// Cuts the record at `place` so that one begins at `position`, which lies strictly inside. Returns the place of the
    /// upper part; the lower one is [before](Self::prev) it.
    pub(crate) fn cut(&mut self, place: Place, position: u64) -> Place {
        let Some(&whole) = self.records.get(place) else { return place };
        if position <= whole.start || position >= whole.end {
            return place;
        }
        let mut head = Record { end: position, ..whole };
        let mut tail = Record { start: position, ..whole };
        if whole.short_segs > 0 {
            // The sum stays; which part has how many is not known any more.
            (head.short_segs, tail.short_segs) = (0, 0);
            let more = whole.segs().saturating_sub(head.segs() + tail.segs());
            head.short_segs = more;
            head.limit_segs();
            tail.short_segs = more - head.short_segs;
        }
        self.change(place, |record| *record = head);
        self.count(&tail);
        if tail.waits() {
            self.note_waiting(position);
        }
        self.made = self.made.wrapping_add(1);
        self.records.insert_after(place, tail)
    }

    pub(crate) fn prev(&self, place: Place) -> Option<Place> {
        self.records.prev(place)
    }

    /// Cuts at both ends of `range`, and returns the place of the first record in it.
    pub(crate) fn isolate(&mut self, range: &Range<u64>) -> Place {
        let mut cut_at = |position| {
            let place = self.find(position);
            match self.records.get(place) {
                Some(record) if record.start < position => self.cut(place, position),
                _ => place,
            }
        };
        cut_at(range.end);
        cut_at(range.start)
    }

    /// Notes a retransmission of the record at `place`; returns its segments.
    pub(crate) fn retransmitted(&mut self, place: Place, now: Instant, snapshot: TxSnapshot) -> u32 {
        self.change(place, |record| {
            record.sent_at = now;
            record.snapshot = snapshot;
            record.in_device = record.in_device.saturating_add(1);
            if !record.has(SACKED) {
                record.flags |= RETRANS | EVER_RETRANS;
            }
        });
        self.forget_settled();
        self.records.get(place).map_or(0, Record::segs)
    }

    /// A retransmission did not leave after all. It stays marked as retransmitted once, so it gives no RTT sample.
    pub(crate) fn retransmission_refused(&mut self, place: Place) -> u32 {
        self.change(place, |record| {
            record.flags &= !RETRANS;
            record.in_device = record.in_device.saturating_sub(1);
        });
        self.records.get(place).map_or(0, Record::segs)
    }

    /// Marks a record or its retransmission lost; returns the number of segments newly lost.
    pub(crate) fn mark_lost(&mut self, place: Place) -> u32 {
        let Some(record) = self.records.get(place) else { return 0 };
        if record.has(SACKED) || record.waits() {
            return 0;
        }
        let (segs, snapshot) = (record.segs(), record.snapshot);
        self.change(place, |record| record.flags = (record.flags | LOST) & !RETRANS);
        self.total_lost = self.total_lost.wrapping_add(segs);
        self.unreported.push(Loss { segs, snapshot, total_lost: self.total_lost });
        self.limit_dup_acks();
        segs
    }

    /// Marks every record lost that `which` selects.
    pub(crate) fn mark_all_lost(&mut self, which: impl Fn(&Record) -> bool) {
        let mut place = Place::FIRST;
        while let Some(record) = self.records.get(place) {
            if which(record) {
                self.mark_lost(place);
            }
            place = self.next(place);
        }
    }

    /// Reports the losses marked since the last call. `delivered`: segments delivered since the connection began.
    pub(crate) fn take_lost(&mut self, delivered: u64, mut report: impl FnMut(&LostPacket)) {
        if self.unreported.is_empty() {
            return;
        }
        for Loss { segs, snapshot, total_lost } in self.unreported.drain(..) {
            step(1);
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
    pub(crate) fn mark_head_lost(&mut self) {
        let Some(head) = self.records.front().filter(|head| !head.has(LOST)) else { return };
        let position = head.start + u64::from(head.mss);
        self.cut(Place::FIRST, position);
        self.mark_lost(Place::FIRST);
    }

    /// Selectively acknowledges the record at `place`, which joins sacked neighbours.
    /// Returns the place of the next record.
    pub(crate) fn mark_sacked(&mut self, place: Place) -> Place {
        self.change(place, |record| record.flags = (record.flags | SACKED) & !(LOST | RETRANS));
        self.forget_settled();
        let place = self.join(place);
        let next = self.next(place);
        let joined = self.join(next);
        if joined == next { next } else { self.next(joined) }
    }

    /// Joins the record at `place` with the one before, if both are sacked. Returns the place of the record that has its
    /// bytes.
    fn join(&mut self, place: Place) -> Place {
        let Some(&record) = self.records.get(place).filter(|record| record.has(SACKED)) else { return place };
        let Some(before) = self.sacked_before(place, record.mss) else { return place };
        self.records.remove(place);
        self.discount(&record);
        self.change(before, |before| before.absorb(&record));
        before
    }

    /// The place of the record before `place`, if it is sacked and has segments of the same size.
    fn sacked_before(&self, place: Place, mss: u16) -> Option<Place> {
        let before = self.records.prev(place)?;
        self.records
            .get(before)
            .is_some_and(|record| record.has(SACKED) && record.mss == mss)
            .then_some(before)
    }

    /// Moves `start` of the record at `place` up by whole segments and adds the front to its sacked predecessor. Thus a
    /// SACK block that grows within a super-packet needs no further record. False when the two cannot be joined.
    pub(crate) fn shift_to_sacked(&mut self, place: Place, position: u64) -> bool {
        let Some(&record) = self.records.get(place).filter(|record| position < record.end) else {
            return false;
        };
        let Some(before) = self.sacked_before(place, record.mss) else { return false };
        let front = Record { end: position, ..record };
        self.change(place, |record| record.start = position);
        self.change(before, |before| before.absorb(&front));
        self.forget_settled();
        true
    }

    /// Removes everything below `ack`, head first; `visit` gets each removed record or part of one, with its
    /// number of segments.
    pub(crate) fn acknowledge(&mut self, ack: u64, mut visit: impl FnMut(&Record, u32)) {
        // A record is looked at where it lies: it has 72 bytes.
        while let Some(head) = self.records.front() {
            if head.end <= ack {
                let (flags, segs) = (head.flags, head.segs());
                visit(head, segs);
                self.discount_segs(flags, segs);
                self.records.drop_front();
            } else if head.start < ack {
                let head = *head;
                self.change(Place::FIRST, |record| {
                    record.start = ack;
                    record.limit_segs();
                });
                let left = self.records.front().map_or(0, Record::segs);
                visit(&Record { end: ack, ..head }, head.segs() - left);
                break;
            } else {
                break;
            }
        }
        self.rack_cursor = self.rack_cursor.max(ack);
        self.forget_settled();
        self.limit_dup_acks();
    }

    /// Place of the first record that waits for its retransmission.
    pub(crate) fn next_pending(&self) -> Option<Place> {
        self.waiting.peek().map(|&Reverse(start)| self.find(start))
    }

    pub(crate) const fn rack_cursor(&self) -> u64 {
        self.rack_cursor
    }

    pub(crate) const fn set_rack_cursor(&mut self, position: u64) {
        self.rack_cursor = position;
    }

    /// Whether [`unmark_lost`](Self::unmark_lost) is paid for. It visits every record, and so do the search for losses
    /// that follows and the next undo: a peer could ask for that with every second ACK. So a large flight is unmarked
    /// only when half as many records as it has were made since the last time.
    pub(crate) fn may_unmark(&self) -> bool {
        let made = self.made.wrapping_sub(self.made_at_unmark) as usize;
        self.records.len() <= UNMARK_FREE + 2 * made
    }

    /// Forgets all losses. RACK watches the retransmitted records.
    pub(crate) fn unmark_lost(&mut self) {
        self.made_at_unmark = self.made;
        self.records.iter_mut().for_each(|record| record.flags &= !LOST);
        (self.lost, self.pending) = (0, 0);
        self.waiting.clear();
        self.rack_cursor = self.una();
    }

    /// The peer dropped data that it had selectively acknowledged. RFC 2018 §8.
    pub(crate) fn forget_sacks(&mut self) {
        let mut place = Place::FIRST;
        while self.records.get(place).is_some() {
            self.change(place, |record| {
                if record.has(SACKED) {
                    // Neighbours were joined: it is no longer known when and how often each part was sent, so
                    // the record gives no RTT sample, and its segments will have the full size.
                    record.flags = (record.flags & !SACKED) | EVER_RETRANS;
                    record.in_device = 0;
                    record.short_segs = 0;
                }
            });
            place = self.next(place);
        }
        self.rack_cursor = self.una();
    }

    /// From now on, segments are at most `mss` long; larger ones are cut and marked lost. Returns the number
    /// of segments newly lost.
    pub(crate) fn resegment(&mut self, mss: u16) -> u32 {
        let mut lost = 0;
        let mut place = Place::FIRST;
        while let Some(&record) = self.records.get(place) {
            if record.mss > mss {
                self.set_mss(place, mss);
                if record.end - record.start > u64::from(mss) {
                    lost += self.mark_lost(place);
                }
            }
            place = self.next(place);
        }
        lost
    }

    fn set_mss(&mut self, place: Place, mss: u16) {
        self.change(place, |record| {
            record.mss = mss.max(1);
            record.limit_segs();
        });
    }

    /// If data in `range` is retransmitted, then in segments of at most `mss`.
    pub(crate) fn recount(&mut self, range: &Range<u64>, mss: u16) {
        let mut place = self.find(range.start);
        while let Some(record) = self.records.get(place).filter(|record| record.start < range.end) {
            self.set_mss(place, record.mss.min(mss));
            place = self.next(place);
        }
    }

    pub(crate) fn completed(&mut self, range: &Range<u64>) {
        // A device that completes at once does so before the next packet.
        if let Some(last) = self.records.back_mut().filter(|last| last.start <= range.start) {
            last.in_device = last.in_device.saturating_sub(u8::from(range.start < last.end));
            return;
        }
        let mut place = self.find(range.start);
        while let Some(record) = self.records.get_mut(place).filter(|record| record.start < range.end) {
            record.in_device = record.in_device.saturating_sub(1);
            if record.end >= range.end {
                break;
            }
            place = self.next(place);
        }
    }

    pub(crate) fn in_device(&self, range: &Range<u64>) -> bool {
        let mut place = self.find(range.start);
        while let Some(record) = self.records.get(place).filter(|record| record.start < range.end) {
            if record.in_device > 0 {
                return true;
            }
            place = self.next(place);
        }
        false
    }

    /// Without SACK, a duplicate ACK says that one segment above the hole arrived. Returns whether it counted.
    pub(crate) fn add_dup_ack(&mut self) -> bool {
        let before = self.dup_acks;
        self.dup_acks += 1;
        self.limit_dup_acks();
        self.dup_acks > before
    }

    /// An ACK acknowledged `acked` segments together: the hole, and arrivals that duplicate ACKs had announced.
    /// Returns the number of those not announced, at least one.
    pub(crate) fn consume_dup_acks(&mut self, acked: u32) -> u32 {
        let announced = self.dup_acks;
        self.dup_acks = announced.saturating_sub(acked.saturating_sub(1));
        self.limit_dup_acks();
        acked.saturating_sub(announced).max(1)
    }

    pub(crate) const fn clear_dup_acks(&mut self) {
        self.dup_acks = 0;
    }

    /// There must be a hole below the arrivals: sacked + lost never exceeds the number of segments sent.
    fn limit_dup_acks(&mut self) {
        let holes = self.lost.max(1).min(self.packets);
        self.dup_acks = self.dup_acks.min(self.packets.saturating_sub(holes + self.sacked));
    }

    /// Asserts the counts against a recount; for tests and debug builds.
    #[cfg(test)]
    pub(crate) fn invariants(&self) {
        let mut again = Self::new(0);
        let mut at = self.una();
        self.records.invariants();
        for record in self.records.iter() {
            assert_eq!(record.start, at, "records are contiguous");
            assert!(record.end > record.start, "no record is empty");
            assert!(!record.has(SACKED) || !record.has(LOST | RETRANS), "sacked is neither lost nor resent");
            assert!(
                record.has(SACKED) || record.short_segs == 0,
                "only joined records have segments of their own"
            );
            again.count(record);
            at = record.end;
        }
        assert_eq!(at, self.nxt);
        assert_eq!(
            (self.packets, self.sacked, self.lost, self.retrans, self.pending),
            (again.packets, again.sacked, again.lost, again.retrans, again.pending)
        );
        let first = self.records.iter().find(|record| record.waits()).map(|record| record.start);
        assert_eq!(self.waiting.peek().map(|top| top.0), first, "the lowest one that waits is on top");
        assert!(self.sacked_out() + self.lost <= self.packets);
    }
}
