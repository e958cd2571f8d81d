//! RACK: a packet is lost when one sent sufficiently later was delivered.
//! RFC 8985 §6; the reordering timer's slack is Linux's.
//! Called by `ack.rs` for every ACK, and by `timers.rs` when the reordering timer fires.
//!
//! No list is scanned. Records that were sent once are ordered by time because they are ordered by sequence,
//! so a cursor is enough for them; retransmissions have a heap of their own, ordered by time.

use alloc::collections::BinaryHeap;
use alloc::collections::binary_heap::PeekMut;
use core::cmp::Reverse;
use core::ops::Range;

use super::RecoveryConfig;
use super::log::sent::{EVER_RETRANS, LOST, RETRANS, Record, SACKED, SentLog};
use super::timers::TIMER_SLACK;
use crate::words::{Duration, Instant, step};

/// Segments above a hole that indicate a loss without waiting, as long as no reordering was seen (RFC 8985
/// §6.2); without SACK, duplicate ACKs that do so (RFC 5681 §3.2).
pub(super) const DUP_THRESH: u32 = 3;
/// The most that is reported as reordering, in segments. Linux: `tcp_max_reordering`.
const DISTANCE_MAX: u64 = 300;
/// Recoveries without a D-SACK after which the window is narrow again. RFC 8985 §6.2 step 4.
const REO_WND_PERSIST: u8 = 16;

/// RFC 8985 §5.2, without the values that the sent log already has.
#[derive(Debug)]
pub(super) struct Rack {
    /// RACK.xmit_ts: when the newest packet known to be delivered was sent.
    sent_at: Instant,
    /// RACK.end_seq, which orders packets sent at the same time.
    end: u64,
    /// RACK.rtt, of that packet.
    rtt: Duration,
    /// RACK.fack: highest position known to be delivered.
    pub(super) fack: u64,
    reordering_seen: bool,
    /// How often a segment was found to have been overtaken, and the most by which one was, in segments: for
    /// `TCP_INFO`.
    pub(super) overtaken: u32,
    pub(super) distance: u32,
    /// The window is this many quarters of the least RTT.
    reo_wnd_mult: u8,
    reo_wnd_persist: u8,
    /// D-SACKs count once per round trip: none until `una` passes this.
    dsack_round: Option<u64>,
    /// Retransmissions that are watched, the oldest on top. Stale ones are dropped when they get there.
    resent: BinaryHeap<Reverse<Resent>>,
}

/// A retransmission. Of packets that left in the same instant, the lower one is the older (RFC 8985 §6.2,
/// `RACK_sent_after`), which is the order of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Resent {
    sent_at: Instant,
    end: u64,
    /// Nothing below this position is watched any more.
    start: u64,
}

/// The result of detection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Detected {
    /// Segments newly marked lost.
    pub(super) lost_segs: u32,
    /// When to check again.
    pub(super) timer: Option<Instant>,
}

impl Rack {
    pub(super) const fn new(una: u64) -> Self {
        Self {
            sent_at: Instant::ZERO,
            end: 0,
            rtt: Duration::ZERO,
            fack: una,
            reordering_seen: false,
            overtaken: 0,
            distance: DUP_THRESH,
            reo_wnd_mult: 1,
            reo_wnd_persist: 0,
            dsack_round: None,
            resent: BinaryHeap::new(),
        }
    }

    pub(super) const fn rtt(&self) -> Duration {
        self.rtt
    }

    pub(super) fn on_retransmit(&mut self, now: Instant, range: Range<u64>) {
        step(1);
        self.resent.push(Reverse(Resent { sent_at: now, end: range.end, start: range.start }));
    }

    /// Nothing counts as lost any more: starts to watch all retransmissions that are not delivered.
    pub(super) fn watch_again(&mut self, log: &SentLog) {
        self.resent.clear();
        let missing = log.iter().filter(|record| record.has(EVER_RETRANS) && !record.has(SACKED));
        self.resent.extend(missing.map(|record| {
            let Record { sent_at, end, start, .. } = *record;
            Reverse(Resent { sent_at, end, start })
        }));
    }

    /// Everything in flight was acknowledged.
    pub(super) fn on_empty(&mut self) {
        self.resent.clear();
    }

    /// A packet was delivered. RFC 8985 §6.2 step 2.
    pub(super) fn on_delivered(
        &mut self,
        now: Instant,
        record: &Record,
        min_rtt: Option<Duration>,
        echo_rtt: Option<Duration>,
    ) {
        let rtt = now.since(record.sent_at);
        // An ACK that arrives too soon for the retransmission, or echoes a time before it, is for the
        // original. Timestamps tick in milliseconds.
        let too_soon = min_rtt.is_some_and(|least| rtt < least);
        let echoes_earlier = echo_rtt.is_some_and(|echo| {
            now.as_millis() - echo.as_millis().min(now.as_millis()) < record.sent_at.as_millis()
        });
        if record.has(EVER_RETRANS) && (too_soon || echoes_earlier) {
            return;
        }
        if (record.sent_at, record.end) > (self.sent_at, self.end) {
            self.sent_at = record.sent_at;
            self.end = record.end;
            self.rtt = rtt;
        }
    }

    /// Step 3: a packet that was sent once was delivered after a packet above it.
    pub(super) fn on_reordering(&mut self) {
        self.reordering_seen = true;
    }

    /// An ACK showed that the segment at `low` was overtaken. Linux: `tcp_check_sack_reordering`.
    pub(super) fn note_overtaken(&mut self, low: u64, mss: u16) {
        let segs = (self.fack - low.min(self.fack)).div_ceil(u64::from(mss.max(1)));
        self.distance = self.distance.max(segs.min(DISTANCE_MAX) as u32);
        self.overtaken = self.overtaken.wrapping_add(1);
    }

    /// Whether reordering was seen on this path.
    pub(super) const fn knows_reordering(&self) -> bool {
        self.reordering_seen || self.reo_wnd_mult > 1
    }

    /// Nothing is in flight: releases memory.
    pub(super) fn shrink(&mut self) {
        self.resent = BinaryHeap::new();
    }

    /// Step 4: a retransmission was unnecessary, so wait longer; once per round trip.
    pub(super) fn on_dsack(&mut self, una: u64, nxt: u64) {
        if self.dsack_round.is_some_and(|end| una < end) {
            return;
        }
        self.dsack_round = Some(nxt);
        self.reo_wnd_mult = self.reo_wnd_mult.saturating_add(1);
        self.reo_wnd_persist = REO_WND_PERSIST;
    }

    /// A recovery ended.
    pub(super) fn on_recovery_end(&mut self) {
        self.reo_wnd_persist = self.reo_wnd_persist.saturating_sub(1);
        if self.reo_wnd_persist == 0 {
            self.reo_wnd_mult = 1;
        }
    }

    /// Step 4.
    fn reo_wnd(
        &self,
        sacked_out: u32,
        recovering: bool,
        min_rtt: Option<Duration>,
        srtt: Option<Duration>,
        config: &RecoveryConfig,
    ) -> Duration {
        let dup_thresh = !config.ignore_dup_thresh && sacked_out >= DUP_THRESH;
        if !self.reordering_seen && (recovering || dup_thresh) {
            return Duration::ZERO;
        }
        let multiple = if config.fixed_reorder_window { 1 } else { self.reo_wnd_mult };
        let window = min_rtt.unwrap_or(Duration::ZERO) * u64::from(multiple) / 4;
        window.min(srtt.unwrap_or(Duration::ZERO))
    }

    /// Step 5: marks lost packets, and returns the time at which the next one may be lost.
    #[inline]
    pub(super) fn detect(
        &mut self,
        now: Instant,
        log: &mut SentLog,
        recovering: bool,
        min_rtt: Option<Duration>,
        srtt: Option<Duration>,
        config: &RecoveryConfig,
    ) -> Detected {
        let mut found = Detected::default();
        if self.end == 0 {
            return found;
        }
        let patience = self.rtt + self.reo_wnd(log.sacked_out(), recovering, min_rtt, srtt, config);
        let mut wait_until = |at: Instant| {
            let at = at + TIMER_SLACK;
            found.timer = Some(found.timer.map_or(at, |other| other.min(at)));
        };

        // Sent once: the cursor stops at the first packet that is neither settled nor due.
        let mut place = log.find(log.rack_cursor());
        let mut lost_segs = 0;
        let cursor = loop {
            let Some(record) = log.get(place) else { break log.nxt() };
            let settled = record.has(SACKED | LOST | EVER_RETRANS);
            if !settled {
                if (record.sent_at, record.end) >= (self.sent_at, self.end) {
                    break record.start;
                }
                let due = record.sent_at + patience;
                if due > now {
                    wait_until(due);
                    break record.start;
                }
                lost_segs += log.mark_lost(place);
            }
            place = log.next(place);
        };
        log.set_rack_cursor(cursor);

        // Retransmitted: the same over those, by age. What was found settled is not looked at again.
        while let Some(top) = self.resent.peek_mut() {
            let Reverse(Resent { sent_at, end, start }) = *top;
            let due = sent_at + patience;
            let mut blocked = None;
            let mut place = log.find(start);
            while let Some(&record) = log.get(place) {
                if record.start >= end {
                    break;
                }
                // An entry is stale if the range was since retransmitted, delivered, or marked lost.
                let live = record.sent_at == sent_at
                    && record.has(EVER_RETRANS)
                    && !record.has(SACKED)
                    && (record.has(RETRANS) || !record.has(LOST));
                if live {
                    if (sent_at, record.end) >= (self.sent_at, self.end) {
                        blocked = Some(record.start);
                        break;
                    }
                    if due > now {
                        wait_until(due);
                        blocked = Some(record.start);
                        break;
                    }
                    lost_segs += log.mark_lost(place);
                }
                place = log.next(place);
            }
            step(1);
            match blocked {
                None => PeekMut::pop(top),
                Some(from) if from > start => {
                    let mut top = top;
                    top.0.start = from;
                    break;
                }
                Some(_) => break,
            };
        }
        found.lost_segs = lost_segs;
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery::log::delivery_rate::TxSnapshot;

    /// A segment of 1,000 bytes that left at `sent_us`.
    fn record(start: u64, sent_us: u64, flags: u8) -> Record {
        let at = |us: u64| Instant::from_nanos(us * 1_000);
        let snapshot = TxSnapshot {
            delivered: 0,
            delivered_at: at(0),
            first_sent_at: at(0),
            in_flight: 1,
            lost: 0,
            app_limited: false,
        };
        Record {
            start,
            end: start + 1_000,
            sent_at: at(sent_us),
            snapshot,
            mss: 1_000,
            flags,
            in_device: 0,
            short_segs: 0,
        }
    }

    /// Linux: the distance is rounded up to segments, and at most `tcp_max_reordering` of them, 300.
    #[test]
    fn the_distance_of_reordering_is_bounded() {
        let mut rack = Rack::new(0);
        for (fack, low, distance) in [(3_000, 0, 3), (3_001, 0, 4), (9_000, 10_000, 4), (1 << 40, 0, 300)] {
            rack.fack = fack;
            rack.note_overtaken(low, 1_000);
            assert_eq!(rack.distance, distance, "from {low} to {fack}");
        }
    }

    /// RFC 8985 §6.2 step 5: only what left before the newest delivered packet can be lost, and a packet does
    /// not leave before itself. A peer that drops what it had acknowledged selectively leaves that packet in
    /// the log.
    #[test]
    fn rack_04_the_newest_delivered_packet_was_not_overtaken() {
        let at = |us: u64| Instant::from_nanos(us * 1_000);
        for flags in [0, RETRANS | EVER_RETRANS] {
            let packet = |start: u64, sent_us| record(start, sent_us, flags);
            let (mut rack, mut log) = (Rack::new(0), SentLog::new(0));
            log.push(packet(0, 500));
            rack.on_retransmit(at(500), 0..1_000);
            let mut lost_when = |delivered: &Record| {
                rack.on_delivered(at(100_000), delivered, None, None);
                rack.detect(at(10_000_000), &mut log, true, None, None, &RecoveryConfig::default()).lost_segs
            };
            assert_eq!(lost_when(&packet(0, 500)), 0, "{flags}: the same packet");
            assert_eq!(
                lost_when(&packet(1_000, 500)),
                1,
                "{flags}: one above it that left in the same instant"
            );
        }
    }

    /// RFC 8985 §6.2 step 5: the timer is for the packet that may be lost first, whether it was sent once
    /// or again.
    #[test]
    fn rack_05_the_timer_is_that_of_the_first() {
        let at = |us: u64| Instant::from_nanos(us * 1_000);
        let ms = Duration::from_millis;
        for (again_us, once_us, first_us) in [(10_000, 11_000, 10_000), (11_000, 10_000, 10_000)] {
            let (mut rack, mut log) = (Rack::new(0), SentLog::new(0));
            log.push(record(0, again_us, RETRANS | EVER_RETRANS));
            rack.on_retransmit(at(again_us), 0..1_000);
            log.push(record(1_000, once_us, 0));
            rack.on_reordering();
            rack.on_delivered(at(112_000), &record(2_000, 12_000, 0), None, None);
            let (least, config) = (Some(ms(40)), RecoveryConfig::default());
            let found = rack.detect(at(112_000), &mut log, true, least, least, &config);
            assert_eq!(found.lost_segs, 0);
            // A round trip of 100 ms, and a quarter of the least one.
            assert_eq!(found.timer, Some(at(first_us) + ms(110) + TIMER_SLACK));
        }
    }

    /// An idle connection holds no memory.
    #[test]
    fn nothing_is_kept_when_nothing_is_in_flight() {
        let mut rack = Rack::new(0);
        rack.on_retransmit(Instant::from_nanos(1), 1_000..2_000);
        rack.on_empty();
        rack.shrink();
        assert_eq!(rack.resent.capacity(), 0);
    }
}
