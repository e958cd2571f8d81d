//! Much at a time, and the shard's lock. taut's own; used by `departures.rs` when a slow device is to send.
//!
//! **Problem.** While a packet is sent without the lock (`outbox.rs`), other threads write into the buffers
//! of their connections. If many write much, the device is what they wait for: their bytes lie in these
//! buffers, which are larger than a cache, and are sent by the thread that has the device, which may be on
//! another processor than the one that copied them. Of 64 threads on two processors, a byte took 2.1 to 2.9
//! times the processor time that it takes the kernel.
//!
//! **Rule.** While other threads wait for the lock, packets of [`BULK_BYTES`] that one use of the shard has
//! made leave under it, and so do the answers to a super-packet. A thread that writes much thus waits until
//! its bytes can leave, and sends them itself. Little leaves without the lock: for a request, the lock is
//! what others wait for. So does all where a runtime's task drives: a thread of a runtime that waits for the
//! lock keeps all of its tasks waiting.
//!
//! **Turns.** The lock is not fair: a thread that gives it back and takes it again has it before one that
//! must wake up, and Jain's index of 64 writers was 0.5. So a thread that has moved much again and again lets
//! those that wait have it, when it has had its part of [`ROUND`].

use std::thread::ThreadId;

use taut_core::{Duration, Instant};

/// Bytes with headers: half a super-packet.
pub(super) const BULK_BYTES: usize = 32 << 10;

/// The time in which each of the threads that wait for the lock has it once. With 64 of them, a part is 0.25
/// ms: half of it costs a seventh more processor time, and with four times as much Jain's index of a second's
/// shares is 0.89 instead of 0.92.
const ROUND: Duration = Duration::from_millis(16);

/// The turn of the thread that moves much.
#[derive(Debug, Default)]
pub(super) struct Turn {
    thread: Option<ThreadId>,
    since: Instant,
}

impl Turn {
    /// A thread has moved much while so many waited for the lock. Whether it should let them have it.
    pub(super) fn is_over(&mut self, thread: ThreadId, now: Instant, waiting: usize) -> bool {
        if self.thread != Some(thread) {
            *self = Self { thread: Some(thread), since: now };
        }
        let part = ROUND.as_nanos() / waiting.max(1) as u64;
        let is_over = waiting > 0 && now.since(self.since).as_nanos() >= part;
        if is_over {
            self.thread = None;
        }
        is_over
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn dev_24_a_thread_has_its_part_of_a_round() {
        let at = |us: u64| Instant::from_nanos(1_000_000 + us * 1_000);
        let me = std::thread::current().id();
        let other = std::thread::spawn(|| std::thread::current().id()).join().unwrap();
        // 16 ms among those that wait.
        for (waiting, part) in [(1, 16_000), (8, 2_000), (64, 250)] {
            let mut turn = Turn::default();
            let mut is_over = |thread, us| turn.is_over(thread, at(us), waiting);
            assert!(!is_over(me, 0), "it begins");
            assert!(!is_over(me, part - 1));
            assert!(is_over(me, part));
            assert!(!is_over(me, part + 1), "the same thread begins a new turn");
            assert!(!is_over(other, part + 2), "another's turn");
            assert!(!is_over(me, 2 * part + 1), "and then a new turn of this thread");
            assert!(is_over(me, 3 * part + 1));
        }
        let mut turn = Turn::default();
        assert!(!turn.is_over(me, at(0), 0) && !turn.is_over(me, at(1_000_000), 0), "no thread waits");
    }
}
