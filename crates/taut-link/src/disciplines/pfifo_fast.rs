//! Three queues, served in order of urgency: Linux's `pfifo_fast` (`tc-pfifo_fast(8)`), the default of an
//! interface since 1995. Called as any [`Qdisc`].
//!
//! **Problem.** One queue makes a keystroke wait behind a backup.
//!
//! **Rule.** A packet's [priority](Packet::priority) selects one of three bands by
//! [`PRIOMAP`](crate::PRIOMAP). No packet leaves a band while a band of lower number holds one. Within a band
//! packets keep the order of arrival. Each band holds up to 1000 packets (`txqueuelen`); further packets are
//! refused.
//!
//! **Not done here.** An urgent flow can starve the rest, flows of a band are not served fairly, and
//! departure times are ignored: a sender that wants its packets spaced must do it itself. At a gigabit, 1000
//! super-packets of 64 KB take half a second; TCP Small Queues keep this queue short from above, and
//! `fq_codel` and `fq` were written to replace it.
//!
//! **History.** Before Linux 4.16 the three bands shared one limit; since then they are three lock-free
//! rings, each with its own limit.

use taut_core::Instant;

use crate::disciplines::fifo::Fifo;
use crate::qdisc::{BANDS, Packet, Qdisc, QdiscStats, Verdict, band};

/// Packets that a band can hold. Linux: `DEFAULT_TX_QUEUE_LEN`.
const LIMIT_PACKETS: usize = 1_000;

/// Three bands, selected by priority.
#[derive(Debug)]
pub struct PfifoFast<T> {
    bands: [Fifo<T>; BANDS],
}

impl<T> PfifoFast<T> {
    /// A queue with Linux's limit of 1000 packets per band.
    #[must_use]
    pub fn new() -> Self {
        Self::with_limit(LIMIT_PACKETS)
    }

    /// A queue with a limit of `packets` per band; a super-packet counts once.
    #[must_use]
    pub fn with_limit(packets: usize) -> Self {
        Self { bands: core::array::from_fn(|_| Fifo::packets(packets)) }
    }
}

impl<T> Default for PfifoFast<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Qdisc<T> for PfifoFast<T> {
    fn enqueue(&mut self, now: Instant, packet: Packet<T>) -> Verdict<T> {
        self.bands[band(packet.priority)].enqueue(now, packet)
    }

    fn dequeue(&mut self, now: Instant) -> Option<Packet<T>> {
        self.bands.iter_mut().find_map(|band| band.dequeue(now))
    }

    fn next(&self) -> Option<Instant> {
        self.bands.iter().find_map(Qdisc::next)
    }

    fn evict(&mut self) -> Option<Packet<T>> {
        self.bands.iter_mut().find_map(Qdisc::evict)
    }

    fn backlog_bytes(&self) -> u64 {
        self.bands.iter().map(Qdisc::backlog_bytes).sum()
    }

    fn backlog_packets(&self) -> usize {
        self.bands.iter().map(Qdisc::backlog_packets).sum()
    }

    fn stats(&self) -> QdiscStats {
        self.bands.iter().fold(QdiscStats::default(), |sum, band| sum.plus(&band.stats()))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::tests::packet;

    const NOW: Instant = Instant::from_nanos(5);

    fn of(priority: u8, item: u32) -> Packet<u32> {
        Packet { priority, ..packet(item, 100) }
    }

    #[test]
    fn the_lowest_band_goes_first_and_each_keeps_its_order() {
        let mut queue = PfifoFast::new();
        // Bulk (2) is in the last band, best effort (0) in the middle, control (7) and interactive (6) in the
        // first.
        for (item, priority) in (0..).zip([2, 0, 7, 0, 6, 2]) {
            assert_eq!(queue.enqueue(NOW, of(priority, item)), Verdict::Taken);
        }
        assert_eq!((queue.backlog_packets(), queue.backlog_bytes()), (6, 600));
        let order: Vec<_> = core::iter::from_fn(|| queue.dequeue(NOW)).map(|packet| packet.item).collect();
        assert_eq!(order, [2, 4, 1, 3, 0, 5]);
        assert_eq!((queue.next(), queue.stats().sent_packets), (None, 6));
    }

    #[test]
    fn a_thousand_packets_a_band() {
        let mut queue = PfifoFast::new();
        let mut room =
            |priority| (0..).take_while(|&i| queue.enqueue(NOW, of(priority, i)) == Verdict::Taken).count();
        assert_eq!((room(0), room(0), room(7)), (1_000, 0, 1_000));
        assert_eq!(queue.stats().dropped, 3);
    }

    #[test]
    fn departure_times_are_not_its_business() {
        let mut queue = PfifoFast::new();
        let late = Packet { departure: Instant::from_nanos(u64::MAX), ..of(0, 1) };
        assert_eq!(queue.enqueue(NOW, late), Verdict::Taken);
        assert_eq!(queue.dequeue(NOW), Some(late));
    }
}
