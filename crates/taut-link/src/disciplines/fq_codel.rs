//! Fair queueing with controlled delay: RFC 8290 (2018; Linux 3.5, 2012), `tc-fq_codel(8)`, the default
//! discipline of most distributions. Called as any [`Qdisc`].
//!
//! **Problem.** At a bottleneck, one bulk transfer fills the queue and everything else waits in it. CoDel
//! shortens the queue, but still makes a single packet of a call wait for the bulk data before it, and drops
//! packets of any flow.
//!
//! **Rule.** Packets are sorted by flow into 1024 queues, each with its own CoDel (`codel.rs`), which take
//! turns by bytes (deficit round robin, a quantum of 1514 per turn). A queue that was empty goes into the
//! list of *new* queues, which are served first: flows that send little, such as calls, keystrokes and the
//! first packets of every flow, pass the bulk data without being classified. When its quantum is used up, or
//! it is empty, the queue moves to the *old* ones, so new queues cannot starve them.
//!
//! **Limits.** 10,240 packets and 32 MB in all. Beyond that, packets are dropped from the head of the queue
//! that has the most bytes: half of it, but no more than 64 at a time, because finding it takes 1024 steps.
//! The sender of the last packet is notified that the queue is full if that queue is its own.
//!
//! **Not done here.** Flows are distinguished by a hash: of 100 flows, nine share a queue with another.
//! Departure times are ignored. `fq` does both, for a sender's own connections.
//!
//! **ECN.** Packets that allow it are marked instead of dropped, unless `noecn` is set.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use taut_core::{Duration, Instant};

use crate::disciplines::codel::{AgedQueue, Codel, Outcome, Rules};
use crate::qdisc::{Packet, Qdisc, QdiscStats, Verdict};

/// A full packet of Ethernet with its header.
const MTU_BYTES: u32 = 1_514;

/// Spreads consecutive numbers, as in Fibonacci hashing.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The configuration of a [`FqCodel`]: the options of `tc-fq_codel(8)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FqCodelSpec {
    /// Packets that may wait in all; 10,240.
    pub limit: u32,
    /// Number of queues; 1024.
    pub flows: u32,
    /// Bytes per turn; 1514.
    pub quantum_bytes: u32,
    /// Sojourn above which there may be a standing queue; 5 ms.
    pub target: Duration,
    /// How long the sojourn must be above the target; 100 ms.
    pub interval: Duration,
    /// Every packet that waited longer is marked; none.
    pub ce_threshold: Option<Duration>,
    /// Bytes that may wait in all; 32 MB.
    pub memory_limit_bytes: u32,
    /// Whether to mark rather than drop; false.
    pub ecn: bool,
    /// Packets dropped at once when it is full; 64.
    pub drop_batch: u32,
}

impl Default for FqCodelSpec {
    fn default() -> Self {
        Self {
            limit: 10_240,
            flows: 1_024,
            quantum_bytes: MTU_BYTES,
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
            ce_threshold: None,
            memory_limit_bytes: 32 << 20,
            ecn: true,
            drop_batch: 64,
        }
    }
}

/// The counters that `tc -s qdisc` prints only for an `fq_codel`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FqCodelStats {
    /// Length of the largest packet.
    pub maxpacket: u64,
    /// Packets dropped because it was full.
    pub drop_overlimit: u64,
    /// Of those, packets dropped because of the limit in bytes.
    pub drop_overmemory: u64,
    /// Times that a queue became new.
    pub new_flow_count: u64,
    /// Packets marked rather than dropped.
    pub ecn_mark: u64,
    /// Packets marked by `ce_threshold`.
    pub ce_mark: u64,
    /// Waiting bytes.
    pub memory_used: u64,
    /// Queues in the list of new ones.
    pub new_flows_len: u64,
    /// Queues in the list of old ones.
    pub old_flows_len: u64,
}

/// Queues with CoDel, in turn.
#[derive(Debug)]
pub struct FqCodel<T> {
    spec: FqCodelSpec,
    rules: Rules,
    queues: Box<[Flow<T>]>,
    /// The new ones, then the old ones.
    lists: [VecDeque<usize>; 2],
    packets: usize,
    out: Outcome<T>,
    stats: QdiscStats,
    xstats: FqCodelStats,
}

const NEW: usize = 0;
const OLD: usize = 1;

#[derive(Debug)]
struct Flow<T> {
    queue: AgedQueue<T>,
    codel: Codel,
    /// Bytes that the queue may still send in this turn.
    credit: i64,
    is_listed: bool,
}

impl<T> FqCodel<T> {
    /// An empty queue.
    #[must_use]
    pub fn new(spec: FqCodelSpec) -> Self {
        let flow = |_| Flow { queue: AgedQueue::new(), codel: Codel::default(), credit: 0, is_listed: false };
        let rules = Rules {
            target: spec.target,
            interval: spec.interval,
            ecn: spec.ecn,
            ce_threshold: spec.ce_threshold,
            mtu_bytes: u64::from(MTU_BYTES),
        };
        Self {
            spec,
            rules,
            queues: (0..spec.flows.max(1)).map(flow).collect(),
            lists: Default::default(),
            packets: 0,
            out: Outcome { dropped: VecDeque::new(), backlog_bytes: 0, ecn_mark: 0, ce_mark: 0 },
            stats: QdiscStats::default(),
            xstats: FqCodelStats::default(),
        }
    }

    /// Its configuration.
    #[must_use]
    pub const fn spec(&self) -> &FqCodelSpec {
        &self.spec
    }

    /// The counters that only an `fq_codel` has.
    #[must_use]
    pub fn fq_codel_stats(&self) -> FqCodelStats {
        FqCodelStats {
            ecn_mark: self.out.ecn_mark,
            ce_mark: self.out.ce_mark,
            memory_used: self.out.backlog_bytes,
            new_flows_len: self.lists[NEW].len() as u64,
            old_flows_len: self.lists[OLD].len() as u64,
            ..self.xstats
        }
    }

    /// The queue of a flow.
    fn index(&self, flow: u64) -> usize {
        let hash = flow.wrapping_mul(SPREAD) >> 32;
        ((hash * self.queues.len() as u64) >> 32) as usize
    }

    /// Drops packets from the queue that has the most bytes. Returns which one.
    fn throw_out(&mut self) -> usize {
        let fattest = |best: usize, index: usize| {
            if self.queues[index].queue.bytes > self.queues[best].queue.bytes { index } else { best }
        };
        let index = (0..self.queues.len()).fold(0, fattest);
        let flow = &mut self.queues[index];
        let half = flow.queue.bytes / 2;
        let mut bytes = 0;
        for _ in 0..self.spec.drop_batch.max(1) {
            let Some((_, packet)) = flow.queue.pop() else { break };
            bytes += u64::from(packet.len);
            self.packets -= 1;
            self.out.backlog_bytes -= u64::from(packet.len);
            self.stats.count_dropped(&packet);
            self.out.dropped.push_back(packet);
            self.xstats.drop_overlimit += 1;
            // These drops count for CoDel too.
            flow.codel.count = flow.codel.count.saturating_add(1);
            if bytes >= half {
                break;
            }
        }
        index
    }

    fn leave(&mut self, packet: &Packet<T>) {
        self.stats.count_sent(packet);
        self.packets -= 1;
    }
}

impl<T> Qdisc<T> for FqCodel<T> {
    fn enqueue(&mut self, now: Instant, packet: Packet<T>) -> Verdict<T> {
        let index = self.index(packet.flow);
        self.xstats.maxpacket = self.xstats.maxpacket.max(u64::from(packet.len));
        self.out.backlog_bytes += u64::from(packet.len);
        self.packets += 1;
        let flow = &mut self.queues[index];
        flow.queue.push(now, packet);
        if !flow.is_listed {
            (flow.is_listed, flow.credit) = (true, i64::from(self.spec.quantum_bytes));
            self.lists[NEW].push_back(index);
            self.xstats.new_flow_count += 1;
        }
        let memory_limited = self.out.backlog_bytes > u64::from(self.spec.memory_limit_bytes);
        if self.packets <= self.spec.limit as usize && !memory_limited {
            return Verdict::Taken;
        }
        let before = self.xstats.drop_overlimit;
        let thrown_out_of = self.throw_out();
        if memory_limited {
            self.xstats.drop_overmemory += self.xstats.drop_overlimit - before;
        }
        if thrown_out_of == index { Verdict::Congested } else { Verdict::Taken }
    }

    fn dequeue(&mut self, now: Instant) -> Option<Packet<T>> {
        loop {
            let list = if self.lists[NEW].is_empty() { OLD } else { NEW };
            let &index = self.lists[list].front()?;
            let flow = &mut self.queues[index];
            if flow.credit <= 0 {
                flow.credit += i64::from(self.spec.quantum_bytes.max(1));
                self.lists[list].pop_front();
                self.lists[OLD].push_back(index);
                continue;
            }
            let dropped_before = self.out.dropped.len();
            let next = flow.codel.dequeue(now, &self.rules, &mut flow.queue, &mut self.out);
            for packet in self.out.dropped.range(dropped_before..) {
                self.stats.count_dropped(packet);
            }
            self.packets -= self.out.dropped.len() - dropped_before;
            if let Some(packet) = next {
                flow.credit -= i64::from(packet.len);
                self.leave(&packet);
                return Some(packet);
            }
            // Empty. One pass through the old ones, so that it does not starve them.
            self.lists[list].pop_front();
            if list == NEW && !self.lists[OLD].is_empty() {
                self.lists[OLD].push_back(index);
            } else {
                self.queues[index].is_listed = false;
            }
        }
    }

    fn next(&self) -> Option<Instant> {
        // CoDel never drops the last packet of all.
        (self.packets > 0).then_some(Instant::ZERO)
    }

    fn poll_dropped(&mut self) -> Option<Packet<T>> {
        self.out.dropped.pop_front()
    }

    fn evict(&mut self) -> Option<Packet<T>> {
        let came = |flow: &Flow<T>| flow.queue.packets.front().map(|(at, _)| *at);
        let oldest =
            self.queues.iter_mut().filter(|flow| came(flow).is_some()).min_by_key(|flow| came(flow))?;
        let (_, packet) = oldest.queue.pop()?;
        self.packets -= 1;
        self.out.backlog_bytes -= u64::from(packet.len);
        Some(packet)
    }

    fn backlog_bytes(&self) -> u64 {
        self.out.backlog_bytes
    }

    fn backlog_packets(&self) -> usize {
        self.packets
    }

    fn stats(&self) -> QdiscStats {
        self.stats
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::qdisc::Ecn;
    use crate::tests::packet;

    const START: Instant = Instant::from_nanos(1_000_000_000);

    fn ms(ms: u64) -> Instant {
        START + Duration::from_millis(ms)
    }

    fn of(flow: u64, item: u32) -> Packet<u32> {
        Packet { flow, ..packet(item, 1_514) }
    }

    fn queue(change: impl FnOnce(&mut FqCodelSpec)) -> FqCodel<u32> {
        let mut spec = FqCodelSpec::default();
        change(&mut spec);
        FqCodel::new(spec)
    }

    fn flows(queue: &mut FqCodel<u32>, now: Instant, count: usize) -> Vec<u64> {
        core::iter::from_fn(|| queue.dequeue(now)).take(count).map(|packet| packet.flow).collect()
    }

    #[test]
    fn flows_take_turns_and_a_new_one_goes_first() {
        let mut queue = queue(|_| ());
        for flow in [1, 2] {
            (0..10).for_each(|i| assert_eq!(queue.enqueue(START, of(flow, i)), Verdict::Taken));
        }
        assert_eq!(flows(&mut queue, START, 6), [1, 2, 1, 2, 1, 2]);
        (0..3).for_each(|i| assert_eq!(queue.enqueue(START, of(3, i)), Verdict::Taken));
        // One quantum ahead of the others, and then equal to them.
        let next = flows(&mut queue, START, 7);
        assert_eq!((next[0], next.iter().filter(|flow| **flow == 3).count()), (3, 3));
        let stats = queue.fq_codel_stats();
        assert_eq!((stats.new_flow_count, stats.maxpacket), (3, 1_514));
    }

    #[test]
    fn a_flow_of_one_packet_at_a_time_is_new_only_once() {
        let mut queue = queue(|_| ());
        let small = |flow, item| Packet { len: 500, ..of(flow, item) };
        (0..10).for_each(|i| assert_eq!(queue.enqueue(START, small(1, i)), Verdict::Taken));
        assert_eq!(flows(&mut queue, START, 4), [1; 4], "its turn of 1514 bytes is over");
        assert_eq!(queue.enqueue(START, small(2, 0)), Verdict::Taken);
        // Found empty, flow 2 moves to the old ones, and its next packet waits for the end of flow 1's turn.
        assert_eq!(flows(&mut queue, START, 2), [2, 1]);
        assert_eq!(queue.enqueue(START, small(2, 1)), Verdict::Taken);
        assert_eq!(flows(&mut queue, START, 4), [1, 1, 2, 1]);
    }

    #[test]
    fn turns_are_by_bytes() {
        let mut queue = queue(|_| ());
        for i in 0..1_000 {
            assert_eq!(queue.enqueue(START, of(1, i)), Verdict::Taken);
            assert_eq!(queue.enqueue(START, Packet { len: 100, ..of(2, i) }), Verdict::Taken);
        }
        let mut bytes = [0u64; 3];
        core::iter::from_fn(|| queue.dequeue(START))
            .take(500)
            .for_each(|packet| bytes[packet.flow as usize] += u64::from(packet.len));
        assert!(bytes[1].abs_diff(bytes[2]) <= 1_514 + 1_514, "{bytes:?}");
    }

    #[test]
    fn the_fattest_flow_pays_when_it_is_full() {
        let mut queue = queue(|spec| spec.limit = 100);
        (0..99).for_each(|i| assert_eq!(queue.enqueue(START, of(1, i)), Verdict::Taken));
        assert_eq!(queue.enqueue(START, of(2, 0)), Verdict::Taken);
        // Flow 2's packet exceeds the limit; flow 1 loses the older half of its bytes: 50 packets of 99.
        assert_eq!(queue.enqueue(START, of(2, 1)), Verdict::Taken);
        let dropped: Vec<_> =
            core::iter::from_fn(|| queue.poll_dropped()).map(|packet| (packet.flow, packet.item)).collect();
        assert_eq!(dropped, (0..50).map(|i| (1, i)).collect::<Vec<_>>());
        assert_eq!((queue.backlog_packets(), queue.stats().dropped), (51, 50));
        // Flow 1 itself is notified.
        let verdicts: Vec<_> = (0..50).map(|i| queue.enqueue(START, of(1, 100 + i))).collect();
        assert_eq!(verdicts.iter().filter(|verdict| **verdict == Verdict::Congested).count(), 1);
        assert_eq!(verdicts.last(), Some(&Verdict::Congested));
    }

    #[test]
    fn bytes_have_a_limit_too_and_a_batch_has_an_end() {
        let mut queue = queue(|spec| (spec.memory_limit_bytes, spec.drop_batch) = (151_400, 16));
        (0..100).for_each(|i| assert_eq!(queue.enqueue(START, of(1, i)), Verdict::Taken));
        assert_eq!(queue.enqueue(START, of(1, 100)), Verdict::Congested);
        let stats = queue.fq_codel_stats();
        assert_eq!((stats.drop_overlimit, stats.drop_overmemory, stats.memory_used), (16, 16, 85 * 1_514));
    }

    #[test]
    fn a_standing_queue_is_shortened_at_its_head() {
        for (ecn, marks) in [(false, 0), (true, 1)] {
            let mut queue = queue(|spec| spec.ecn = ecn);
            for i in 0..200 {
                assert_eq!(queue.enqueue(START, Packet { ecn: Ecn::Capable, ..of(1, i) }), Verdict::Taken);
            }
            let left: Vec<_> =
                (0..150).filter_map(|i| queue.dequeue(ms(10 + i))).map(|packet| packet.item).collect();
            // Above target from 10 ms on; more than 100 ms later, at 111, one packet is dropped or marked.
            let expected: Vec<_> = (0..151).filter(|&i| ecn || i != 101).take(150).collect();
            assert_eq!(left, expected);
            assert_eq!(queue.poll_dropped().map(|packet| packet.item), (!ecn).then_some(101));
            assert_eq!((queue.fq_codel_stats().ecn_mark, queue.stats().dropped), (marks, 1 - marks));
        }
    }

    #[test]
    fn flows_that_follow_each_other_do_not_share_queues() {
        let queue = queue(|_| ());
        let indices: alloc::collections::BTreeSet<_> = (0..500).map(|flow| queue.index(flow)).collect();
        assert_eq!(indices.len(), 500);
        assert!(indices.iter().all(|index| *index < 1_024));
    }

    #[test]
    fn everything_can_be_taken_out() {
        let mut queue = queue(|_| ());
        for i in 0..10 {
            assert_eq!(queue.enqueue(ms(i), of(i % 3, i as u32)), Verdict::Taken);
        }
        assert!(queue.dequeue(ms(10)).is_some());
        let out: Vec<_> = core::iter::from_fn(|| queue.evict()).map(|packet| packet.item).collect();
        assert_eq!(out, (1..10).collect::<Vec<_>>());
        assert_eq!((queue.next(), queue.dequeue(ms(10)), queue.backlog_bytes()), (None, None, 0));
        assert_eq!(queue.enqueue(ms(11), of(1, 50)), Verdict::Taken);
        assert_eq!(queue.dequeue(ms(11)).map(|packet| packet.item), Some(50));
    }
}
