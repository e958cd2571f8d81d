//! A wire with a fixed delay: every packet comes out a fixed time after it went in, in order, like Linux's
//! `netem delay` (`tc-netem(8)`) without jitter. It belongs behind a shaper, in the place of the wire.
//!
//! It holds the packets on the wire. They do not queue here, so a limit is only a guard (`netem` has 1000
//! packets).

use alloc::collections::VecDeque;

use taut_core::{Duration, Instant};

use crate::qdisc::{Packet, Qdisc, QdiscStats, Verdict};

/// A wire with a given delay.
#[derive(Debug)]
pub struct Delay<T> {
    delay: Duration,
    /// With the time at which each packet comes out.
    packets: VecDeque<(Instant, Packet<T>)>,
    bytes: u64,
    limit_packets: usize,
    stats: QdiscStats,
}

impl<T> Delay<T> {
    /// A wire with this delay.
    #[must_use]
    pub fn new(delay: Duration) -> Self {
        Self::with_limit(delay, usize::MAX)
    }

    /// A wire that drops packets while `limit_packets` are on it.
    #[must_use]
    pub fn with_limit(delay: Duration, limit_packets: usize) -> Self {
        Self { delay, packets: VecDeque::new(), bytes: 0, limit_packets, stats: QdiscStats::default() }
    }
}

impl<T> Qdisc<T> for Delay<T> {
    fn enqueue(&mut self, now: Instant, packet: Packet<T>) -> Verdict<T> {
        if self.packets.len() >= self.limit_packets {
            self.stats.count_dropped(&packet);
            return Verdict::Dropped(packet);
        }
        self.bytes += u64::from(packet.len);
        self.packets.push_back((now + self.delay, packet));
        Verdict::Taken
    }

    fn dequeue(&mut self, now: Instant) -> Option<Packet<T>> {
        self.packets.front().filter(|(at, _)| *at <= now)?;
        self.evict().inspect(|packet| self.stats.count_sent(packet))
    }

    fn next(&self) -> Option<Instant> {
        self.packets.front().map(|(at, _)| *at)
    }

    fn evict(&mut self) -> Option<Packet<T>> {
        let (_, packet) = self.packets.pop_front()?;
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

    fn ms(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn everything_comes_out_a_fixed_time_later() {
        let mut wire = Delay::new(Duration::from_millis(40));
        assert_eq!(wire.next(), None);
        assert_eq!(wire.enqueue(ms(10), packet(0, 1_500)), Verdict::Taken);
        assert_eq!(wire.enqueue(ms(30), packet(1, 100)), Verdict::Taken);
        assert_eq!((wire.next(), wire.backlog_bytes()), (Some(ms(50)), 1_600));
        assert_eq!(wire.dequeue(ms(49)), None);
        assert_eq!(wire.dequeue(ms(50)), Some(packet(0, 1_500)));
        assert_eq!((wire.dequeue(ms(50)), wire.next()), (None, Some(ms(70))));
        assert_eq!(wire.dequeue(ms(100)), Some(packet(1, 100)));
        assert_eq!((wire.backlog_packets(), wire.backlog_bytes()), (0, 0));
    }

    #[test]
    fn a_limit_is_a_guard() {
        let mut wire = Delay::with_limit(Duration::from_millis(1), 1);
        assert_eq!(wire.enqueue(ms(1), packet(0, 1)), Verdict::Taken);
        assert_eq!(wire.enqueue(ms(1), packet(1, 1)), Verdict::Dropped(packet(1, 1)));
        assert_eq!(wire.stats().dropped, 1);
    }
}
