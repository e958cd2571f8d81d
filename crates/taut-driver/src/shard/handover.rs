//! Packets that arrived at the wrong shard, on their way to the right one.
//!
//! The kernel keeps a flow on the queue of a TUN interface that last sent a packet of it. But it forgets the
//! flow after three seconds of silence, remembers only some thousands of flows, and does not know a flow at
//! its first packet. Such a packet may arrive on any queue. Its owner follows from the packet alone
//! ([`taut_core::Steering`]); a shard that gets another shard's packet puts it into that shard's inbox. When
//! the owner has answered, the kernel knows its queue again.
//!
//! An inbox has a lock of its own, which is held only for a push or a swap and for announcing the first
//! packet or silencing the announcement; no other lock is taken under it. It is bounded, like a device's
//! queue: packets that do not fit are lost, and the sender's TCP retransmits them. Called by `shard.rs`.

use std::collections::VecDeque;
use std::sync::Arc;

use taut_core::RxChecksum;

use crate::device::Received;
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, lock};
use crate::wake::call::Call;

/// Most packets that wait for a shard.
const PACKETS_MAX: usize = 4_096;
/// Most bytes that wait for a shard: some hundred super-packets.
const BYTES_MAX: usize = 8 << 20;

/// A packet that was handed over.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) bytes: Vec<u8>,
    pub(crate) checksum: RxChecksum,
    pub(crate) gso_size: u16,
}

#[derive(Debug, Default)]
struct Waiting {
    packets: VecDeque<Handed>,
    bytes: usize,
}

/// The inbox of a shard, into which other shards put packets.
#[derive(Debug)]
pub(crate) struct Inbox {
    waiting: Mutex<Waiting>,
    /// Packets wait; changed under the lock. When none wait, the owner need not take the lock.
    filled: AtomicBool,
    /// Made while packets wait, and drained under the lock, or it could stay readable after they were taken.
    event: Arc<Call>,
}

impl Inbox {
    /// An empty inbox, which announces packets with `event`.
    pub(crate) fn new(event: Arc<Call>) -> Self {
        Self { waiting: Mutex::default(), filled: AtomicBool::new(false), event }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.waiting)
    }

    /// Copies a packet in. False when there is no room.
    pub(crate) fn put(&self, packet: &[u8], received: &Received) -> bool {
        let handed =
            Handed { bytes: packet.to_vec(), checksum: received.checksum, gso_size: received.gso_size };
        let mut waiting = self.lock();
        if waiting.packets.len() >= PACKETS_MAX || waiting.bytes + packet.len() > BYTES_MAX {
            return false;
        }
        waiting.bytes += packet.len();
        waiting.packets.push_back(handed);
        if waiting.packets.len() == 1 {
            self.filled.store(true, Ordering::SeqCst);
            self.event.signal();
        }
        true
    }

    /// Takes the oldest waiting packets, at most `most`. If there are more, they stay announced.
    pub(crate) fn take(&self, most: usize) -> VecDeque<Handed> {
        if !self.filled.load(Ordering::SeqCst) {
            return VecDeque::new();
        }
        let mut waiting = self.lock();
        if waiting.packets.len() > most {
            let taken: VecDeque<_> = waiting.packets.drain(..most).collect();
            waiting.bytes -= taken.iter().map(|handed| handed.bytes.len()).sum::<usize>();
            return taken;
        }
        self.filled.store(false, Ordering::SeqCst);
        self.event.drain();
        std::mem::take(&mut *waiting).packets
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Barrier;

    use super::*;

    fn received(len: usize) -> Received {
        Received { range: 0..len, checksum: RxChecksum::Verified, gso_size: 0 }
    }

    #[test]
    fn is_bounded_in_packets_and_bytes_and_keeps_the_order() {
        let inbox = Inbox::new(Arc::default());
        for number in 0..PACKETS_MAX {
            assert!(inbox.put(&number.to_ne_bytes(), &received(8)));
        }
        assert!(!inbox.put(&[1], &received(1)));
        let taken = inbox.take(PACKETS_MAX);
        assert!(
            taken
                .iter()
                .map(|handed| handed.bytes.clone())
                .eq((0..PACKETS_MAX).map(|n| n.to_ne_bytes().to_vec()))
        );
        assert!(inbox.take(PACKETS_MAX).is_empty());
        let large = vec![0; 65_000];
        let fitted = (0..1_000).take_while(|_| inbox.put(&large, &received(65_000))).count();
        assert_eq!(fitted, BYTES_MAX / 65_000);
    }

    #[test]
    fn a_part_leaves_the_rest_announced_and_room_for_more() {
        let inbox = Inbox::new(Arc::default());
        let large = vec![0; BYTES_MAX / 4];
        for _ in 0..4 {
            assert!(inbox.put(&large, &received(large.len())));
        }
        assert!(!inbox.put(&large, &received(large.len())));
        assert_eq!(inbox.take(3).len(), 3);
        assert!(inbox.filled.load(Ordering::SeqCst));
        for _ in 0..3 {
            assert!(inbox.put(&large, &received(large.len())));
        }
        assert!(!inbox.put(&large, &received(large.len())));
        assert_eq!(inbox.take(3).len(), 3);
        assert!(inbox.event.drain(), "the event is still there");
        inbox.event.signal();
        assert_eq!(inbox.take(3).len(), 1);
        assert!(!inbox.filled.load(Ordering::SeqCst) && !inbox.event.drain());
    }

    #[test]
    fn a_packet_comes_out_as_it_went_in() {
        let inbox = Inbox::new(Arc::default());
        for (checksum, gso_size) in [(RxChecksum::Unverified, 0), (RxChecksum::Verified, 1_448)] {
            assert!(inbox.put(&[1, 2, 3], &Received { range: 5..8, checksum, gso_size }));
            let handed = inbox.take(PACKETS_MAX).pop_front().unwrap();
            assert_eq!((handed.bytes, handed.checksum, handed.gso_size), (vec![1, 2, 3], checksum, gso_size));
        }
    }

    #[test]
    fn what_was_taken_is_no_longer_announced() {
        // A descriptor that stays readable would keep the driver busy for nothing.
        let (inbox, barrier) = (Inbox::new(Arc::default()), Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..5_000 {
                    assert!(inbox.put(&[1], &received(1)));
                    barrier.wait();
                    barrier.wait();
                }
            });
            // Asserted when both have finished: a panic here would leave the other thread waiting.
            let announced = (0..5_000).filter(|_| {
                while inbox.take(PACKETS_MAX).is_empty() {
                    std::hint::spin_loop();
                }
                barrier.wait();
                let is_announced = inbox.event.drain();
                barrier.wait();
                is_announced
            });
            assert_eq!(announced.count(), 0);
        });
    }
}
