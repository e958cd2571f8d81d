//! The scoreboard and RACK's marks, compared with a model without super-packets: a list of segments with
//! flags, which is scanned from end to end at every step. RFC 6675 §3, RFC 8985 §6.2.
//!
//! Thousands of seeds; a failure names its seed and step.

extern crate std;

use alloc::vec::Vec;
use core::ops::Range;

use crate::recovery::log::delivery_rate::Sampler;
use crate::recovery::log::sent::{EVER_RETRANS, LOST, RETRANS, Record, SACKED, SentLog};
use crate::recovery::rack::Rack;
use crate::recovery::sack::{self, Delivered};
use crate::words::{Duration, Instant};

const START: u64 = 1 << 32;
const MIN_RTT: Duration = Duration::from_millis(100);
/// RFC 8985 §6.2 step 4: min_rtt/4.
const REO_WND: Duration = Duration::from_millis(25);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    start: u64,
    end: u64,
    sent_at: Instant,
    sacked: bool,
    lost: bool,
    retrans: bool,
    ever_retrans: bool,
}

#[derive(Default)]
struct Naive {
    segments: Vec<Segment>,
    /// RACK.xmit_ts, RACK.end_seq and RACK.rtt.
    newest: Option<(Instant, u64, Duration)>,
    fack: u64,
    reordering: bool,
}

impl Naive {
    fn deliver(&mut self, now: Instant, segment: Segment, fack_before: u64) {
        let rtt = now.since(segment.sent_at);
        if !segment.ever_retrans && segment.end <= fack_before {
            self.reordering = true;
        }
        self.fack = self.fack.max(segment.end);
        // Step 2: too soon for a retransmission.
        if segment.ever_retrans && rtt < MIN_RTT {
            return;
        }
        if self.newest.is_none_or(|(at, end, _)| (at, end) < (segment.sent_at, segment.end)) {
            self.newest = Some((segment.sent_at, segment.end, rtt));
        }
    }

    fn count(&self, which: impl Fn(&Segment) -> bool) -> u32 {
        self.segments.iter().filter(|&segment| which(segment)).count() as u32
    }

    fn mark_lost(segment: &mut Segment) {
        if !segment.sacked {
            segment.lost = true;
            segment.retrans = false;
        }
    }

    /// Step 5, from end to end.
    fn detect(&mut self, now: Instant) {
        let Some((at, end, rtt)) = self.newest else { return };
        let window = if !self.reordering && self.count(|segment| segment.sacked) >= 3 {
            Duration::ZERO
        } else {
            REO_WND
        };
        for segment in &mut self.segments {
            let before = (segment.sent_at, segment.end) < (at, end);
            let under_way = !segment.lost || segment.retrans;
            if !segment.sacked && under_way && before && segment.sent_at + rtt + window <= now {
                Self::mark_lost(segment);
            }
        }
    }
}

struct Pair {
    now: Instant,
    rng: u64,
    mss: u16,
    /// The last segment of a packet may be short. Then no data is reneged or cut again, because both make
    /// other segments of what was joined; and no ACK ends within what was joined.
    shorts: bool,
    log: SentLog,
    rack: Rack,
    sampler: Sampler,
    naive: Naive,
}

impl Pair {
    fn new(seed: u64) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        Self {
            now,
            rng: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            mss: 1_000,
            shorts: seed % 2 == 1,
            log: SentLog::new(START),
            rack: Rack::new(START),
            sampler: Sampler::new(now),
            naive: Naive { fack: START, ..Naive::default() },
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.rng ^= self.rng >> 12;
        self.rng ^= self.rng << 25;
        self.rng ^= self.rng >> 27;
        (self.rng.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound.max(1)
    }

    fn send(&mut self, segs: u64) {
        let start = self.log.nxt();
        let mss = u64::from(self.mss);
        let snapshot = self.sampler.on_transmit(self.now, 0, false, 0, 0);
        let missing = if self.shorts && self.below(2) == 0 { self.below(mss) } else { 0 };
        let end = start + segs * mss - missing;
        self.log.push(Record {
            start,
            end,
            sent_at: self.now,
            snapshot,
            mss: self.mss,
            flags: 0,
            in_device: 0,
            short_segs: 0,
        });
        self.naive.segments.extend((0..segs).map(|n| Segment {
            start: start + n * mss,
            end: (start + (n + 1) * mss).min(end),
            sent_at: self.now,
            sacked: false,
            lost: false,
            retrans: false,
            ever_retrans: false,
        }));
    }

    /// Any run of segments.
    fn run(&mut self) -> Option<Range<u64>> {
        let len = self.naive.segments.len() as u64;
        if len == 0 {
            return None;
        }
        let from = self.below(len);
        let to = from + self.below((len - from).min(8));
        Some(self.naive.segments[from as usize].start..self.naive.segments[to as usize].end)
    }

    /// An ACK of everything below `ack`, with blocks.
    fn ack(&mut self, ack: u64, blocks: &[Range<u64>]) {
        let fack_before = self.naive.fack;
        let mut news = Delivered::new(self.now, self.rack.fack, START, Some(MIN_RTT), None);
        sack::apply(&mut self.log, ack, blocks, &mut self.rack, &mut news);
        let mut expected = 0;
        let mut delivered = Vec::new();
        for segment in &mut self.naive.segments {
            // Only whole segments count.
            let hit = |block: &Range<u64>| block.start.max(ack) <= segment.start && segment.end <= block.end;
            if !segment.sacked && segment.start >= ack && blocks.iter().any(hit) {
                delivered.push(*segment);
                (segment.sacked, segment.lost, segment.retrans) = (true, false, false);
                expected += 1;
            }
        }
        if ack > self.log.una() {
            let rack = &mut self.rack;
            self.log.acknowledge(ack, |record, segs| news.acked(record, segs, rack));
        }
        self.naive.segments.retain(|segment| {
            let gone = segment.end <= ack;
            if gone && !segment.sacked {
                delivered.push(*segment);
                expected += 1;
            }
            !gone
        });
        for segment in delivered {
            self.naive.deliver(self.now, segment, fack_before);
        }
        assert_eq!(news.segs, expected, "segments delivered");
        if news.reordered {
            self.rack.on_reordering();
        }
        if self.log.is_empty() {
            self.rack.on_empty();
        }
        self.detect();
    }

    fn detect(&mut self) {
        let before = self.log.total_lost();
        let lost = self.naive.count(|segment| segment.lost && !segment.retrans);
        let found = self.rack.detect(
            self.now,
            &mut self.log,
            false,
            Some(MIN_RTT),
            Some(MIN_RTT),
            &crate::recovery::RecoveryConfig::default(),
        );
        self.naive.detect(self.now);
        let newly = self.naive.count(|segment| segment.lost && !segment.retrans) - lost;
        assert_eq!((found.lost_segs, self.log.total_lost() - before), (newly, newly), "segments newly lost");
    }

    fn resend(&mut self) {
        // The lowest waiting segment and its neighbours, as in `next_retransmit`.
        let Some(place) = self.log.next_pending() else { return };
        let Some(&first) = self.log.get(place) else { return };
        let segs = 1 + self.below(u64::from(first.segs()));
        let range = first.start..(first.start + segs * u64::from(first.mss)).min(first.end);
        self.retransmit(&range);
    }

    fn retransmit(&mut self, range: &Range<u64>) {
        let snapshot = self.sampler.on_transmit(self.now, 0, false, 0, 0);
        let mut place = self.log.isolate(range);
        while self.log.get(place).is_some_and(|record| record.start < range.end) {
            self.log.retransmitted(place, self.now, snapshot);
            place = self.log.next(place);
        }
        self.rack.on_retransmit(self.now, range.clone());
        for segment in &mut self.naive.segments {
            if range.start <= segment.start && segment.end <= range.end {
                segment.sent_at = self.now;
                if !segment.sacked {
                    (segment.retrans, segment.ever_retrans) = (true, true);
                }
            }
        }
    }

    /// Marks everything lost, as a timeout after reneging does; and RACK starts over, because data that it
    /// knows to be delivered may be in flight again.
    fn renege(&mut self) {
        self.rack = Rack::new(self.log.una());
        self.naive.newest = None;
        self.naive.fack = self.log.una();
        self.naive.reordering = false;
        self.log.forget_sacks();
        self.log.mark_all_lost(|_| true);
        for segment in &mut self.naive.segments {
            if segment.sacked {
                // Sacked segments are in one record with their neighbours.
                segment.sacked = false;
                segment.ever_retrans = true;
                let place = self.log.find(segment.start);
                segment.sent_at = self.log.get(place).map_or(segment.sent_at, |record| record.sent_at);
            }
            Naive::mark_lost(segment);
        }
    }

    fn undo(&mut self) {
        self.log.unmark_lost();
        self.rack.watch_again(&self.log);
        self.naive.segments.iter_mut().for_each(|segment| segment.lost = false);
    }

    /// From now on, segments have half the size; larger ones are lost.
    fn resegment(&mut self) {
        self.mss /= 2;
        self.log.resegment(self.mss);
        let whole = core::mem::take(&mut self.naive.segments);
        for mut segment in whole {
            if segment.end - segment.start <= u64::from(self.mss) {
                self.naive.segments.push(segment);
                continue;
            }
            Naive::mark_lost(&mut segment);
            let mut start = segment.start;
            while start < segment.end {
                let end = (start + u64::from(self.mss)).min(segment.end);
                self.naive.segments.push(Segment { start, end, ..segment });
                start = end;
            }
        }
    }

    fn step(&mut self) {
        match self.below(20) {
            0..=4 => {
                let segs = 1 + self.below(10);
                self.send(segs);
            }
            5..=9 => {
                let ack = self.log.una();
                let blocks: Vec<_> = (0..=self.below(3)).filter_map(|_| self.run()).collect();
                // Some blocks cut segments in two.
                let cut = self.below(4) * 100;
                let blocks: Vec<_> = blocks
                    .into_iter()
                    .map(|block| block.start..(block.end - cut.min(block.end - block.start - 1)))
                    .filter(|block| block.start > ack)
                    .collect();
                self.ack(ack, &blocks);
            }
            10..=12 => {
                if let Some(run) = self.run() {
                    let sacked = |which: &dyn Fn(&Segment) -> bool| {
                        self.naive.segments.iter().any(|segment| which(segment) && segment.sacked)
                    };
                    let within = sacked(&|segment| segment.end == run.start)
                        && sacked(&|segment| segment.start == run.start);
                    if !(self.shorts && within) {
                        self.ack(run.start, &[]);
                    }
                }
            }
            13..=15 => self.resend(),
            16 => {
                let ms = self.below(80);
                self.now += Duration::from_millis(ms);
                self.detect();
            }
            17 => self.now += Duration::from_millis(1),
            18 => match self.below(6) {
                0 if !self.shorts => self.renege(),
                1 if self.mss > 250 && !self.shorts => self.resegment(),
                _ => self.undo(),
            },
            _ => {
                // A probe: the last segment, lost or not.
                if let Some(&last) = self.naive.segments.last() {
                    self.retransmit(&(last.start..last.end));
                }
            }
        }
    }

    fn check(&self) {
        self.log.invariants();
        let naive = &self.naive;
        assert_eq!(self.log.packets_out(), naive.segments.len() as u32, "out");
        assert_eq!(self.log.sacked_out(), naive.count(|segment| segment.sacked), "sacked");
        assert_eq!(self.log.lost_out(), naive.count(|segment| segment.lost), "lost");
        assert_eq!(self.log.retrans_out(), naive.count(|segment| segment.retrans), "retransmitted");
        let waits = |segment: &Segment| segment.lost && !segment.retrans;
        assert_eq!(self.log.pending(), naive.count(waits), "waiting");
        let first = naive.segments.iter().find(|&segment| waits(segment)).map(|segment| segment.start);
        let next = self.log.next_pending().and_then(|place| self.log.get(place)).map(|record| record.start);
        assert_eq!(next, first, "the lowest waiting segment");
        for segment in &naive.segments {
            let record = self.log.get(self.log.find(segment.start)).expect("every segment is in a record");
            let flags = [SACKED, LOST, RETRANS, EVER_RETRANS].map(|flag| record.has(flag));
            // For a sacked segment it no longer matters whether it was ever retransmitted, and neighbours may
            // be joined.
            let ever = if segment.sacked { flags[3] } else { segment.ever_retrans };
            assert_eq!(
                flags,
                [segment.sacked, segment.lost, segment.retrans, ever],
                "{segment:?} {record:?}"
            );
            assert!(segment.sacked || record.sent_at == segment.sent_at, "{segment:?} {record:?}");
        }
    }
}

#[test]
fn scoreboard_and_rack_agree_with_segments_one_by_one() {
    for seed in 0..4_000 {
        let mut pair = Pair::new(seed);
        for step in 0..120 {
            let before = pair.rng;
            let result = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
                pair.step();
                pair.check();
            }));
            assert!(result.is_ok(), "seed {seed}, step {step}, rng {before:#x}");
        }
    }
}
