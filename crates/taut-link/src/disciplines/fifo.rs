//! First in, first out, with a limit: Linux's `bfifo` and `pfifo` (`tc-pfifo(8)`, `tc-bfifo(8)`). Alone it is
//! a queue in front of a device that sets its own pace; inside [`Tbf`](crate::Tbf) it holds the waiting
//! packets.
//!
//! A packet that would make the backlog exceed the limit is refused (tail drop). Waiting packets keep their
//! order.

use alloc::collections::VecDeque;

use taut_core::Instant;

use crate::qdisc::{Packet, Qdisc, QdiscStats, Verdict};

/// A queue limited in bytes (`bfifo`) or in packets (`pfifo`).
#[derive(Debug)]
pub struct Fifo<T> {
    packets: VecDeque<Packet<T>>,
    /// Sum of the lengths of `packets`.
    bytes: u64,
    limit_bytes: u64,
    limit_packets: usize,
    stats: QdiscStats,
}

impl<T> Fifo<T> {
    /// Linux's `bfifo`: holds up to `limit` bytes.
    #[must_use]
    pub fn bytes(limit: u64) -> Self {
        Self::new(limit, usize::MAX)
    }

    /// Linux's `pfifo`: holds up to `limit` packets; a super-packet counts once.
    #[must_use]
    pub fn packets(limit: usize) -> Self {
        Self::new(u64::MAX, limit)
    }

    /// A queue without a limit.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::new(u64::MAX, usize::MAX)
    }

    fn new(limit_bytes: u64, limit_packets: usize) -> Self {
        Self { packets: VecDeque::new(), bytes: 0, limit_bytes, limit_packets, stats: QdiscStats::default() }
    }
}

impl<T> Qdisc<T> for Fifo<T> {
    #[inline]
    fn enqueue(&mut self, _now: Instant, packet: Packet<T>) -> Verdict<T> {
        let bytes = self.bytes + u64::from(packet.len);
        if bytes > self.limit_bytes || self.packets.len() >= self.limit_packets {
            self.stats.count_dropped(&packet);
            return Verdict::Dropped(packet);
        }
        self.bytes = bytes;
        self.packets.push_back(packet);
        Verdict::Taken
    }

    #[inline]
    fn dequeue(&mut self, _now: Instant) -> Option<Packet<T>> {
        self.evict().inspect(|packet| self.stats.count_sent(packet))
    }

    #[inline]
    fn next(&self) -> Option<Instant> {
        (!self.packets.is_empty()).then_some(Instant::ZERO)
    }

    #[inline]
    fn evict(&mut self) -> Option<Packet<T>> {
        let packet = self.packets.pop_front()?;
        self.bytes -= u64::from(packet.len);
        Some(packet)
    }

    fn backlog_bytes(&self) -> u64 {
        self.bytes
    }

    fn backlog_packets(&self) -> usize {
        self.packets.len()
    }

    fn stats(&self) -> QdiscStats {
        self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::packet;

    const NOW: Instant = Instant::from_nanos(5);

    #[test]
    fn a_byte_limit_is_reached_exactly_and_not_exceeded() {
        let mut fifo = Fifo::bytes(3_000);
        assert_eq!(fifo.next(), None);
        assert_eq!(fifo.enqueue(NOW, packet(1, 1_500)), Verdict::Taken);
        assert_eq!(fifo.enqueue(NOW, packet(2, 1_500)), Verdict::Taken);
        assert_eq!(fifo.enqueue(NOW, packet(3, 1)), Verdict::Dropped(packet(3, 1)));
        assert_eq!((fifo.backlog_bytes(), fifo.backlog_packets()), (3_000, 2));
        assert!(fifo.next().is_some_and(|at| at <= NOW));
        assert_eq!(fifo.dequeue(NOW), Some(packet(1, 1_500)));
        assert_eq!(fifo.enqueue(NOW, packet(4, 1_500)), Verdict::Taken);
        assert_eq!(fifo.dequeue(NOW), Some(packet(2, 1_500)));
        assert_eq!(fifo.dequeue(NOW), Some(packet(4, 1_500)));
        assert_eq!((fifo.dequeue(NOW), fifo.next(), fifo.backlog_bytes()), (None, None, 0));
        let stats = fifo.stats();
        assert_eq!((stats.sent_bytes, stats.sent_packets, stats.dropped), (4_500, 3, 1));
    }

    #[test]
    fn a_packet_limit_counts_a_super_packet_once_and_its_segments_in_the_stats() {
        let mut fifo = Fifo::packets(1);
        assert_eq!(fifo.enqueue(NOW, Packet { segs: 44, ..packet(1, 66_000) }), Verdict::Taken);
        assert!(matches!(fifo.enqueue(NOW, Packet { segs: 3, ..packet(2, 4_500) }), Verdict::Dropped(_)));
        assert_eq!(fifo.dequeue(NOW).map(|packet| packet.item), Some(1));
        let stats = fifo.stats();
        assert_eq!((stats.sent_packets, stats.dropped), (44, 3));
    }

    #[test]
    fn an_unlimited_one_takes_everything() {
        let mut fifo = Fifo::unlimited();
        assert!((0..10_000).all(|i| fifo.enqueue(NOW, packet(i, 65_536)) == Verdict::Taken));
    }
}
