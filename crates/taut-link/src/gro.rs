//! Generic receive offload: packets of a flow that arrive together become one. Linux 2.6.29 (2009), called by
//! [`Nic`](crate::Nic) for the packets of one interrupt.
//!
//! **Problem.** At 10 Gbit/s 800,000 packets arrive in a second, and the stack spends as much on each as on 64 KB.
//!
//! **Rule.** Packets taken in one interrupt are held for a moment. A packet that continues a held one of its flow is
//! added to it; one that does not lets the held one go first, so that a flow keeps its order. All are let go when the
//! interrupt's packets are through, so nothing waits for packets that may not come. What *continues* means only the item
//! knows ([`Merge`]): for TCP, the next sequence number with the same flags and options.
//!
//! **Numbers.** A merged packet has at most 65,536 bytes. Flows are held in 8 buckets of 8 packets each (Linux:
//! `GRO_HASH_BUCKETS`, `MAX_GRO_SKBS`); the oldest of a full bucket is let go.
//!
//! **Side effects.** One packet is one ACK: receivers acknowledge less often, in larger steps, and senders send in
//! larger bursts. What `tx-usecs` and `rx-usecs` collect is what can be merged.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::qdisc::Packet;

/// Most bytes of a merged packet. Linux: `GRO_LEGACY_MAX_SIZE`.
const MAX_BYTES: u32 = 65_536;
/// Linux: `GRO_HASH_BUCKETS`.
const BUCKETS: u64 = 8;
/// Packets held in a bucket. Linux: `MAX_GRO_SKBS`.
const HELD_MAX: usize = 8;

/// What may be merged.
pub trait Merge: Sized {
    /// Whether `next` continues this one. Their flows are the same.
    fn can_merge(&self, next: &Self) -> bool;

    /// Adds it.
    fn merge(&mut self, next: Self);

    /// Whether nothing can follow in the same packet, as after a PSH or a short segment; then it goes up at once.
    fn is_complete(&self) -> bool;
}

/// For models that count, no more: the number that follows continues, and replaces.
impl Merge for u32 {
    fn can_merge(&self, next: &Self) -> bool {
        self.checked_add(1) == Some(*next)
    }
    fn merge(&mut self, next: Self) {
        *self = next;
    }
    fn is_complete(&self) -> bool {
        false
    }
}

/// The packets held, and those let go.
#[derive(Debug)]
pub struct Gro<T> {
    buckets: [Vec<Packet<T>>; BUCKETS as usize],
    ready: VecDeque<Packet<T>>,
}

impl<T> Default for Gro<T> {
    fn default() -> Self {
        Self { buckets: core::array::from_fn(|_| Vec::new()), ready: VecDeque::new() }
    }
}

impl<T: Merge> Gro<T> {
    /// A packet arrived.
    pub fn push(&mut self, packet: Packet<T>) {
        let bucket = &mut self.buckets[(packet.flow % BUCKETS) as usize];
        if let Some(index) = bucket.iter().position(|held| held.flow == packet.flow) {
            let held = &mut bucket[index];
            if fits(held, &packet) && held.item.can_merge(&packet.item) {
                held.len += packet.len;
                held.segs = held.segs.saturating_add(packet.segs);
                held.item.merge(packet.item);
                if held.item.is_complete() {
                    self.ready.push_back(bucket.remove(index));
                }
                return;
            }
            self.ready.push_back(bucket.remove(index));
        }
        if packet.corrupt.is_some() || packet.item.is_complete() {
            self.ready.push_back(packet);
            return;
        }
        if bucket.len() == HELD_MAX {
            self.ready.push_back(bucket.remove(0));
        }
        bucket.push(packet);
    }

    /// No more packets arrive for now.
    pub fn flush(&mut self) {
        self.ready.extend(self.buckets.iter_mut().flat_map(|bucket| bucket.drain(..)));
    }
}

impl<T> Gro<T> {
    /// A packet to hand up.
    #[must_use = "a packet that was received must go somewhere"]
    pub fn pop(&mut self) -> Option<Packet<T>> {
        self.ready.pop_front()
    }

    /// Whether there is one to hand up.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }
}

/// What holds for any item. A checksum is looked at before packets are merged, and a mark must not be lost or spread.
fn fits<T>(held: &Packet<T>, next: &Packet<T>) -> bool {
    next.corrupt.is_none()
        && held.ecn == next.ecn
        && held.len.checked_add(next.len).is_some_and(|len| len <= MAX_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qdisc::Ecn;
    use crate::tests::packet;

    fn of(flow: u64, item: u32) -> Packet<u32> {
        Packet { flow, ..packet(item, 1_500) }
    }

    /// What goes up, as flow, last number, segments.
    fn up(gro: &mut Gro<u32>) -> Vec<(u64, u32, u16)> {
        core::iter::from_fn(|| gro.pop()).map(|packet| (packet.flow, packet.item, packet.segs)).collect()
    }

    #[test]
    fn what_follows_is_merged_and_flows_stay_apart() {
        let mut gro = Gro::default();
        for (flow, item) in [(1, 10), (2, 70), (1, 11), (2, 71), (1, 12)] {
            gro.push(of(flow, item));
        }
        assert_eq!(up(&mut gro), [], "held until the interrupt's packets are through");
        gro.flush();
        assert_eq!(up(&mut gro), [(1, 12, 3), (2, 71, 2)]);
    }

    #[test]
    fn what_does_not_follow_keeps_the_order_of_its_flow() {
        let mut gro = Gro::default();
        for item in [10, 11, 13, 12] {
            gro.push(of(1, item));
        }
        gro.flush();
        assert_eq!(up(&mut gro), [(1, 11, 2), (1, 13, 1), (1, 12, 1)]);
    }

    #[test]
    fn no_more_than_64_kb_and_no_mark_is_lost() {
        let mut gro = Gro::default();
        (0..50).for_each(|item| gro.push(of(1, item)));
        gro.push(Packet { ecn: Ecn::Marked, ..of(1, 50) });
        gro.push(Packet { corrupt: Some(1), ..of(1, 51) });
        gro.flush();
        // 43 of 1500 bytes fit into 65,536.
        assert_eq!(up(&mut gro), [(1, 42, 43), (1, 49, 7), (1, 50, 1), (1, 51, 1)]);
    }

    #[test]
    fn a_full_bucket_lets_its_oldest_go() {
        let mut gro = Gro::default();
        // All in one bucket.
        (0..9).for_each(|flow| gro.push(of(flow * BUCKETS, 0)));
        assert_eq!(up(&mut gro), [(0, 0, 1)]);
    }
}
