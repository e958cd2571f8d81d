//! CoDel, controlled delay: when a queue has persisted for too long, it drops packets, more and more often
//! until the queue is gone. RFC 8289 (2018; Linux 3.5, 2012), called by [`FqCodel`](crate::FqCodel) for each
//! of its queues.
//!
//! **Problem.** A long queue is good if it is a burst that drains, and bad if it persists: a sender with too
//! large a window keeps a bottleneck's queue full for ever, and every packet waits for all of it. Length does
//! not distinguish the two, and the length that is too much depends on the rate.
//!
//! **Rule.** Measure time. A packet's *sojourn* is known when it leaves, whatever the rate. If it has not
//! been below the target (5 ms) for a whole interval (100 ms, a large round trip), the queue is not a burst
//! but a standing queue. Then
//!
//! ```text
//!   drop the packet at the head          the sender learns of it a queue's length sooner than from the tail
//!   next drop at  t + interval/√count    count = drops since dropping began
//! ```
//!
//! until one packet's sojourn is below the target, or less than a packet's worth of bytes is left. A TCP's
//! rate falls with the square root of the loss rate, so drops at this growing rate reduce throughput
//! linearly: the loop finds the rate that keeps the queue at its target. If dropping must begin again soon
//! after, it continues with most of its previous count.
//!
//! **Marks.** A packet whose sender understands marks is marked instead. With `ce_threshold`, every packet
//! that waited longer than that is marked, as DCTCP requires.
//!
//! **Numbers.** 5 ms is 5 % of the interval: less wastes throughput, more gains almost nothing. The square
//! root is an integer root here, exact to a nanosecond.

use alloc::collections::VecDeque;

use taut_core::{Duration, Instant};

use crate::qdisc::Packet;

/// If dropping begins again within this many intervals, the count continues. RFC 8289 §5.6.
const RESUME_INTERVALS: u64 = 16;

/// The parameters of CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) target: Duration,
    pub(crate) interval: Duration,
    pub(crate) ecn: bool,
    pub(crate) ce_threshold: Option<Duration>,
    /// Nothing is dropped while no more bytes than this are left.
    pub(crate) mtu_bytes: u64,
}

/// Packets with their times of arrival.
#[derive(Debug)]
pub(crate) struct AgedQueue<T> {
    pub(crate) packets: VecDeque<(Instant, Packet<T>)>,
    pub(crate) bytes: u64,
}

impl<T> AgedQueue<T> {
    pub(crate) const fn new() -> Self {
        Self { packets: VecDeque::new(), bytes: 0 }
    }

    pub(crate) fn push(&mut self, now: Instant, packet: Packet<T>) {
        self.bytes += u64::from(packet.len);
        self.packets.push_back((now, packet));
    }

    pub(crate) fn pop(&mut self) -> Option<(Instant, Packet<T>)> {
        let (at, packet) = self.packets.pop_front()?;
        self.bytes -= u64::from(packet.len);
        Some((at, packet))
    }
}

/// The packets dropped or marked on the way to the next one.
#[derive(Debug)]
pub(crate) struct Outcome<T> {
    pub(crate) dropped: VecDeque<Packet<T>>,
    /// Bytes in all queues together.
    pub(crate) backlog_bytes: u64,
    /// Packets marked instead of dropped.
    pub(crate) ecn_mark: u64,
    /// Packets marked by `ce_threshold`.
    pub(crate) ce_mark: u64,
}

/// The state of one queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Codel {
    /// Drops since dropping began.
    pub(crate) count: u32,
    /// The value of `count` when dropping last began.
    last_count: u32,
    is_dropping: bool,
    /// When the sojourn will have been above target for an interval.
    standing_at: Option<Instant>,
    drop_next: Instant,
}

impl Codel {
    /// Takes the next packet of the queue that is not dropped.
    pub(crate) fn dequeue<T>(
        &mut self,
        now: Instant,
        rules: &Rules,
        queue: &mut AgedQueue<T>,
        out: &mut Outcome<T>,
    ) -> Option<Packet<T>> {
        let (mut next, mut stands) = self.take(now, rules, queue, out);
        if self.is_dropping {
            self.is_dropping = stands;
            while self.is_dropping && now >= self.drop_next {
                self.count = self.count.saturating_add(1);
                if next.as_mut().is_some_and(|(_, packet)| rules.ecn && packet.mark()) {
                    out.ecn_mark += 1;
                    self.drop_next = self.control_law(self.drop_next, rules);
                    break;
                }
                out.dropped.extend(next.map(|(_, packet)| packet));
                (next, stands) = self.take(now, rules, queue, out);
                self.is_dropping = stands;
                if stands {
                    self.drop_next = self.control_law(self.drop_next, rules);
                }
            }
        } else if stands {
            if next.as_mut().is_some_and(|(_, packet)| rules.ecn && packet.mark()) {
                out.ecn_mark += 1;
            } else {
                out.dropped.extend(next.map(|(_, packet)| packet));
                (next, _) = self.take(now, rules, queue, out);
            }
            self.is_dropping = true;
            let since_last = now.since(self.drop_next);
            let went_on = self.count.saturating_sub(self.last_count);
            let resumes = went_on > 1 && since_last < rules.interval * RESUME_INTERVALS;
            self.count = if resumes { went_on } else { 1 };
            self.last_count = self.count;
            self.drop_next = self.control_law(now, rules);
        }
        let (came, mut packet) = next?;
        if rules.ce_threshold.is_some_and(|threshold| now.since(came) > threshold) && packet.mark() {
            out.ce_mark += 1;
        }
        Some(packet)
    }

    /// RFC 8289 §5.6 `dodequeue`: the next packet, and whether the sojourn has been above target for an
    /// interval.
    fn take<T>(
        &mut self,
        now: Instant,
        rules: &Rules,
        queue: &mut AgedQueue<T>,
        out: &mut Outcome<T>,
    ) -> (Option<(Instant, Packet<T>)>, bool) {
        let Some((came, packet)) = queue.pop() else {
            self.standing_at = None;
            return (None, false);
        };
        out.backlog_bytes -= u64::from(packet.len);
        if now.since(came) < rules.target || out.backlog_bytes <= rules.mtu_bytes {
            self.standing_at = None;
            return (Some((came, packet)), false);
        }
        let stands = match self.standing_at {
            Some(at) => now > at,
            None => {
                self.standing_at = Some(now + rules.interval);
                false
            }
        };
        (Some((came, packet)), stands)
    }

    /// `t + interval/√count`.
    fn control_law(&self, at: Instant, rules: &Rules) -> Instant {
        let interval = u128::from(rules.interval.as_nanos());
        let gap = (interval * interval / u128::from(self.count.max(1))).isqrt();
        at + Duration::from_nanos(u64::try_from(gap).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::qdisc::Ecn;
    use crate::tests::packet;

    const RULES: Rules = Rules {
        target: Duration::from_millis(5),
        interval: Duration::from_millis(100),
        ecn: false,
        ce_threshold: None,
        mtu_bytes: 1_514,
    };

    fn ms(ms: u64) -> Instant {
        Instant::from_nanos(1_000_000_000 + ms * 1_000_000)
    }

    struct World {
        codel: Codel,
        queue: AgedQueue<u32>,
        out: Outcome<u32>,
        rules: Rules,
    }

    impl World {
        fn new(rules: Rules) -> Self {
            let out = Outcome { dropped: VecDeque::new(), backlog_bytes: 0, ecn_mark: 0, ce_mark: 0 };
            Self { codel: Codel::default(), queue: AgedQueue::new(), out, rules }
        }

        fn enqueue(&mut self, now: Instant, packet: Packet<u32>) {
            self.out.backlog_bytes += u64::from(packet.len);
            self.queue.push(now, packet);
        }

        fn dequeue(&mut self, now: Instant) -> Option<Packet<u32>> {
            self.codel.dequeue(now, &self.rules, &mut self.queue, &mut self.out)
        }

        /// A packet leaves each millisecond after waiting for `sojourn` ms. Returns the times of drops or
        /// marks, in ms.
        fn stand(&mut self, from: u64, until: u64, sojourn: u64, ecn: Ecn) -> Vec<u64> {
            let mut events = Vec::new();
            for now in from..until {
                while self.queue.packets.len() < 100 {
                    self.enqueue(
                        ms(now).saturating_sub(Duration::from_millis(sojourn)),
                        Packet { ecn, ..packet(0, 1_514) },
                    );
                }
                // The waiting packets have waited that long.
                let came = ms(now).saturating_sub(Duration::from_millis(sojourn));
                self.queue.packets.iter_mut().for_each(|(at, _)| *at = came);
                let before = self.out.dropped.len() as u64 + self.out.ecn_mark;
                assert!(self.dequeue(ms(now)).is_some());
                let happened = self.out.dropped.len() as u64 + self.out.ecn_mark - before;
                events.extend((0..happened).map(|_| now - from));
            }
            events
        }
    }

    #[test]
    fn drops_come_ever_sooner_after_an_interval() {
        let mut world = World::new(RULES);
        // Above target since 0: the first drop comes after more than 100 ms, the next 100/√1 later, then
        // 100/√2, 100/√3, 100/√4: at 101, 201, 271.7, 329.4, 379.4.
        assert_eq!(world.stand(0, 400, 20, Ecn::Capable), [101, 201, 272, 330, 380]);
    }

    #[test]
    fn a_burst_that_drains_is_left_alone() {
        let mut world = World::new(RULES);
        assert_eq!(world.stand(0, 100, 20, Ecn::NotCapable), []);
        assert_eq!(world.stand(100, 101, 4, Ecn::NotCapable), [], "once below target");
        assert_eq!(world.stand(101, 201, 20, Ecn::NotCapable), [], "the interval starts again");
    }

    #[test]
    fn it_goes_on_where_it_was_if_it_begins_again_soon() {
        let mut world = World::new(RULES);
        world.stand(0, 400, 20, Ecn::NotCapable);
        assert_eq!(world.codel.count, 5);
        world.stand(400, 401, 1, Ecn::NotCapable);
        // Five drops, four more than at the beginning: the next ones come 100/√4 and 100/√5 after the first.
        assert_eq!(world.stand(500, 700, 20, Ecn::NotCapable), [101, 151, 196]);
        // Much later the count begins at one.
        world.stand(700, 701, 1, Ecn::NotCapable);
        assert_eq!(world.stand(5_000, 5_210, 20, Ecn::NotCapable), [101, 201]);
    }

    #[test]
    fn senders_that_understand_are_told_by_marks() {
        let mut world = World::new(Rules { ecn: true, ..RULES });
        assert_eq!(world.stand(0, 280, 20, Ecn::Capable), [101, 201, 272]);
        assert_eq!((world.out.ecn_mark, world.out.dropped.len()), (3, 0));
        let mut world = World::new(Rules { ecn: true, ..RULES });
        assert_eq!(world.stand(0, 280, 20, Ecn::NotCapable), [101, 201, 272]);
        assert_eq!((world.out.ecn_mark, world.out.dropped.len()), (0, 3));
    }

    #[test]
    fn a_threshold_marks_every_packet_beyond_it() {
        let mut world = World::new(Rules { ce_threshold: Some(Duration::from_millis(1)), ..RULES });
        for (sojourn, ecn) in [(1, Ecn::Capable), (2, Ecn::Marked)] {
            world.enqueue(ms(0), Packet { ecn: Ecn::Capable, ..packet(0, 100) });
            assert_eq!(world.dequeue(ms(sojourn)).map(|packet| packet.ecn), Some(ecn));
        }
        assert_eq!(world.out.ce_mark, 1);
    }

    #[test]
    fn the_last_packets_are_not_dropped() {
        let mut world = World::new(RULES);
        for i in 0..300 {
            world.enqueue(ms(0), packet(i, 1_514));
        }
        // Two seconds late each time: it drops as much as it may.
        let left = (0..).map_while(|i| world.dequeue(ms(2_000 + i * 200))).count();
        assert_eq!(left + world.out.dropped.len(), 300);
        assert_eq!(world.queue.bytes, 0);
        assert_eq!(world.out.backlog_bytes, 0);
        // A single packet may wait for any time.
        for i in 0..50 {
            world.enqueue(ms(10_000 + i * 1_000), packet(0, 1_514));
            assert!(world.dequeue(ms(10_500 + i * 1_000)).is_some());
        }
    }
}
