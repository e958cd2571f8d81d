//! Token bucket filter: a line of a given rate, in software. Linux's `tbf` (`tc-tbf(8)`), without peak rate.
//! Called where a link slower than the device is emulated: by the driver's host queue, and by a simulator.
//!
//! **Mechanism.** Tokens, each worth one byte, are added to a bucket at `rate`. A packet leaves when the
//! bucket holds as many tokens as the packet has bytes, and removes them; until then it waits at the head,
//! with others behind it. So consecutive packets are `len / rate` apart, as on a wire, and a super-packet,
//! which stays whole, leaves when the last of its bytes would have left. Tokens are kept in billionths of a
//! byte: nothing is rounded, and the rate is exact to the byte over any length of time.
//!
//! **Burst.** An idle bucket fills up to `burst` bytes; these may leave at once after a pause, and they make
//! up for a driver that comes late. While a packet waits, the bucket may also hold the packet's length.
//! Therefore, after any packet that leaves, at most `burst + rate × t` bytes follow within a time `t`. With a
//! burst of 0 the spacing is exact, and the time of a late driver is lost. (Linux cuts a packet longer than
//! the burst, or drops it; here it waits longer instead.)
//!
//! **Limit.** The bytes that may wait, given directly or as the time that they would take (`latency`: then
//! the limit is `rate × latency + burst`). Packets beyond it are refused.

use taut_core::{Duration, Instant};

use crate::disciplines::fifo::Fifo;
use crate::qdisc::{Packet, Qdisc, QdiscStats, Verdict};
use crate::quantity::Rate;

/// Tokens per byte: with nanoseconds and bytes per second, every count is exact.
const TOKENS_PER_BYTE: u64 = 1_000_000_000;

/// A shaper over a queue of waiting packets, a [`Fifo`] by default.
#[derive(Debug)]
pub struct Tbf<T, Q = Fifo<T>> {
    rate: Rate,
    burst_bytes: u32,
    limit_bytes: u64,
    child: Q,
    /// The next packet to leave, taken out of `child`. It has not left, so it counts as waiting.
    head: Option<Packet<T>>,
    /// Tokens at `refilled`; at most the burst, plus the head's length if there is one.
    tokens: u64,
    refilled: Instant,
    stats: QdiscStats,
}

impl<T> Tbf<T> {
    /// A line of `rate` with room for `limit_bytes` of waiting packets, in order of arrival.
    #[must_use]
    pub fn new(rate: Rate, burst_bytes: u32, limit_bytes: u64) -> Self {
        Self::over(rate, burst_bytes, limit_bytes, Fifo::unlimited())
    }

    /// A line of `rate` on which, apart from the burst, no packet waits much longer than `latency`.
    #[must_use]
    pub fn with_latency(rate: Rate, burst_bytes: u32, latency: Duration) -> Self {
        Self::new(rate, burst_bytes, rate.bytes_in(latency).saturating_add(u64::from(burst_bytes)))
    }
}

impl<T, Q: Qdisc<T>> Tbf<T, Q> {
    /// A line of `rate` over a discipline that chooses the next packet.
    #[must_use]
    pub fn over(rate: Rate, burst_bytes: u32, limit_bytes: u64, child: Q) -> Self {
        let tokens = u64::from(burst_bytes) * TOKENS_PER_BYTE;
        Self {
            rate,
            burst_bytes,
            limit_bytes,
            child,
            head: None,
            tokens,
            refilled: Instant::ZERO,
            stats: QdiscStats::default(),
        }
    }

    /// The rate of the line.
    #[must_use]
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Changes the rate from `now` on. A packet that waits keeps the tokens that it has.
    pub fn set_rate(&mut self, now: Instant, rate: Rate) {
        self.refill(now);
        self.rate = rate;
    }

    /// The discipline that chooses the next packet.
    #[must_use]
    pub const fn child(&self) -> &Q {
        &self.child
    }

    fn refill(&mut self, now: Instant) {
        let came = self.rate.bytes_per_second().saturating_mul(now.since(self.refilled).as_nanos());
        self.tokens = self.tokens.saturating_add(came).min(self.depth());
        self.refilled = self.refilled.max(now);
    }

    /// The number of tokens that the bucket can hold.
    fn depth(&self) -> u64 {
        let head = self.head.as_ref().map_or(0, |head| u64::from(head.len));
        (u64::from(self.burst_bytes) + head) * TOKENS_PER_BYTE
    }
}

/// The tokens that a packet removes.
fn price<T>(packet: &Packet<T>) -> u64 {
    u64::from(packet.len) * TOKENS_PER_BYTE
}

impl<T, Q: Qdisc<T>> Qdisc<T> for Tbf<T, Q> {
    fn enqueue(&mut self, now: Instant, packet: Packet<T>) -> Verdict<T> {
        if self.backlog_bytes() + u64::from(packet.len) > self.limit_bytes {
            self.stats.count_dropped(&packet);
            return Verdict::Dropped(packet);
        }
        let verdict = self.child.enqueue(now, packet);
        match &verdict {
            Verdict::Dropped(packet) => self.stats.count_dropped(packet),
            Verdict::Taken | Verdict::Congested if self.head.is_none() => {
                // The first refill is without a head: before the packet came, the bucket held at most the
                // burst.
                self.refill(now);
                self.head = self.child.dequeue(now);
            }
            Verdict::Taken | Verdict::Congested => {}
        }
        verdict
    }

    fn dequeue(&mut self, now: Instant) -> Option<Packet<T>> {
        self.refill(now);
        if self.head.is_none() {
            self.head = self.child.dequeue(now);
        }
        let head = self.head.take_if(|head| price(head) <= self.tokens);
        let Some(packet) = head else {
            self.stats.overlimits += u64::from(self.head.is_some());
            return None;
        };
        self.tokens -= price(&packet);
        self.stats.count_sent(&packet);
        self.head = self.child.dequeue(now);
        Some(packet)
    }

    fn next(&self) -> Option<Instant> {
        let Some(head) = &self.head else { return self.child.next() };
        let missing = price(head).saturating_sub(self.tokens);
        Some(self.refilled + Duration::from_nanos(missing.div_ceil(self.rate.bytes_per_second())))
    }

    fn poll_dropped(&mut self) -> Option<Packet<T>> {
        self.child.poll_dropped().inspect(|packet| self.stats.count_dropped(packet))
    }

    fn evict(&mut self) -> Option<Packet<T>> {
        self.head.take().or_else(|| self.child.evict())
    }

    fn orphans(&self) -> bool {
        self.child.orphans()
    }

    fn shapes(&self) -> bool {
        true
    }

    fn backlog_bytes(&self) -> u64 {
        self.child.backlog_bytes() + self.head.as_ref().map_or(0, |head| u64::from(head.len))
    }

    fn backlog_packets(&self) -> usize {
        self.child.backlog_packets() + usize::from(self.head.is_some())
    }

    fn stats(&self) -> QdiscStats {
        self.stats
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::tests::packet;

    /// 100 Mbit/s: 80 ns per byte, 120 µs for 1500 of them.
    fn line(burst_bytes: u32, limit_bytes: u64) -> Tbf<u32> {
        Tbf::new("100mbit".parse().unwrap(), burst_bytes, limit_bytes)
    }

    const START: Instant = Instant::from_nanos(7_000_000_000);

    fn at_us(us: u64) -> Instant {
        START + Duration::from_micros(us)
    }

    /// Dequeues at each `next` until `end`; returns which packet left when, in microseconds.
    fn drain(line: &mut impl Qdisc<u32>, end: Instant) -> Vec<(u64, u32)> {
        let mut left = Vec::new();
        while let Some(at) = line.next().map(|at| at.max(START)).filter(|&at| at <= end) {
            let packet = line.dequeue(at).expect("next() said so");
            left.push((at.since(START).as_micros(), packet.item));
        }
        left
    }

    #[test]
    fn without_a_burst_packets_are_as_far_apart_as_on_a_wire() {
        let mut line = line(0, u64::MAX);
        for i in 0..4 {
            assert_eq!(line.enqueue(START, packet(i, 1_500)), Verdict::Taken);
        }
        assert_eq!(drain(&mut line, at_us(480)), [(120, 0), (240, 1), (360, 2), (480, 3)]);
        assert_eq!(line.next(), None);
    }

    #[test]
    fn a_burst_leaves_at_once_after_a_pause() {
        let mut line = line(3_000, u64::MAX);
        for i in 0..3 {
            assert_eq!(line.enqueue(START, packet(i, 1_500)), Verdict::Taken);
        }
        assert_eq!(drain(&mut line, at_us(1_000)), [(0, 0), (0, 1), (120, 2)]);
        // Half the burst is available again 120 µs later, and no more than the burst after a second.
        assert_eq!(line.enqueue(at_us(240), packet(3, 1_500)), Verdict::Taken);
        assert_eq!(drain(&mut line, at_us(1_000)), [(240, 3)]);
        for i in 4..7 {
            assert_eq!(line.enqueue(at_us(1_000_000), packet(i, 1_500)), Verdict::Taken);
        }
        assert!(line.dequeue(at_us(1_000_000)).is_some() && line.dequeue(at_us(1_000_000)).is_some());
        assert_eq!(line.dequeue(at_us(1_000_119)), None);
        assert_eq!(line.dequeue(at_us(1_000_120)), Some(packet(6, 1_500)));
    }

    #[test]
    fn a_new_rate_holds_from_its_time_on() {
        let mut line = line(0, u64::MAX);
        for i in 0..3 {
            assert_eq!(line.enqueue(START, packet(i, 1_500)), Verdict::Taken);
        }
        assert_eq!(drain(&mut line, at_us(179)), [(120, 0)]);
        // Half of the second packet has its tokens; the other 750 bytes take 400 ns each at 20 Mbit/s.
        line.set_rate(at_us(180), "20mbit".parse().unwrap());
        assert_eq!(drain(&mut line, at_us(10_000)), [(480, 1), (1_080, 2)]);
    }

    #[test]
    fn a_super_packet_leaves_whole_when_its_last_byte_would_have() {
        let mut line = line(1_500, u64::MAX);
        assert_eq!(line.enqueue(START, Packet { segs: 43, ..packet(0, 64_500) }), Verdict::Taken);
        assert_eq!(line.enqueue(START, packet(1, 1_500)), Verdict::Taken);
        // 63,000 bytes more than the burst, at 80 ns each.
        assert_eq!(drain(&mut line, at_us(10_000)), [(5_040, 0), (5_160, 1)]);
        assert_eq!((line.stats().sent_packets, line.stats().sent_bytes), (44, 66_000));
    }

    #[test]
    fn a_late_driver_makes_up_for_as_much_as_the_burst() {
        let mut exact = line(0, u64::MAX);
        let mut lenient = line(3_000, u64::MAX);
        for i in 0..10 {
            assert_eq!(exact.enqueue(START, packet(i, 1_500)), Verdict::Taken);
            assert_eq!(lenient.enqueue(START, packet(i, 1_500)), Verdict::Taken);
        }
        // The driver came 1 ms late: the time of twelve packets.
        let count = |line: &mut Tbf<u32>| (0..).take_while(|_| line.dequeue(at_us(1_000)).is_some()).count();
        assert_eq!(count(&mut exact), 1);
        assert_eq!(count(&mut lenient), 3);
    }

    #[test]
    fn the_limit_counts_what_waits_at_the_head_too() {
        let mut line = line(0, 3_000);
        assert_eq!(line.enqueue(START, packet(0, 1_500)), Verdict::Taken);
        assert_eq!(line.enqueue(START, packet(1, 1_500)), Verdict::Taken);
        assert!(matches!(line.enqueue(START, packet(2, 1)), Verdict::Dropped(_)));
        assert_eq!((line.backlog_bytes(), line.backlog_packets()), (3_000, 2));
        assert_eq!(line.dequeue(at_us(119)), None);
        let stats = line.stats();
        assert_eq!((stats.dropped, stats.overlimits), (1, 1));
    }

    #[test]
    fn latency_is_a_limit_in_time() {
        // 50 ms of 12.5 MB/s, and the burst.
        let line = Tbf::<u32>::with_latency("100mbit".parse().unwrap(), 1_500, Duration::from_millis(50));
        assert_eq!(line.limit_bytes, 626_500);
    }

    #[test]
    fn what_the_child_drops_is_given_back_and_counted() {
        let mut line = Tbf::over("100mbit".parse().unwrap(), 0, u64::MAX, Fifo::packets(1));
        // The first packet goes to the head, so the child has room for another.
        assert_eq!(line.enqueue(START, packet(0, 1_500)), Verdict::Taken);
        assert_eq!(line.enqueue(START, packet(1, 1_500)), Verdict::Taken);
        assert_eq!(line.enqueue(START, packet(2, 1_500)), Verdict::Dropped(packet(2, 1_500)));
        assert_eq!(line.stats().dropped, 1);
    }

    #[test]
    fn the_rate_holds_to_the_byte_over_time() {
        // A rate at which no packet's time is a whole number of nanoseconds.
        let rate = Rate::from_bytes_per_second(7_777_777).unwrap();
        let mut line = Tbf::new(rate, 9_000, u64::MAX);
        assert_eq!(line.enqueue(START, packet(0, 9_000)), Verdict::Taken);
        assert!(line.dequeue(START).is_some(), "the bucket is empty now");
        let mut sent = 0u64;
        let mut at = START;
        while sent < 10_000_000 {
            assert_eq!(line.enqueue(at, packet(0, 1_499)), Verdict::Taken);
            // The driver is 30 µs late each time.
            at = line.next().unwrap() + Duration::from_micros(30);
            sent += u64::from(line.dequeue(at).unwrap().len);
        }
        let due = rate.bytes_in(at.since(START));
        // All of it except the bytes of the last 30 µs, 233, and a byte of rounding.
        assert!(sent <= due && due - sent <= 234, "sent {sent} of {due}");
    }
}
