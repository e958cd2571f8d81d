//! Turns of writers: a task that writes and always finds room lets the other tasks of its thread run in
//! between. taut's own; called by every asynchronous write.
//!
//! **Problem.** A task that writes sends its own packets and takes its own ACKs, so it may find room for as
//! long as it writes, and never waits. A runtime runs the next task only when this one waits: of many senders
//! in one thread, some sent a hundred times as much as others.
//!
//! **Rule.** When a connection has taken [`TURN_BYTES`] without having been out of room, its next write is
//! pending once, and wakes its task at once: it runs again after all others that are ready. Smaller turns
//! would be as fair, and would lose what is in the cache more often: the memory of the packets that were just
//! acknowledged.

use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use crate::wait::Attempt;

/// How much a connection takes in one turn: a few hundred microseconds of a fast device, and what a core's
/// cache holds.
const TURN_BYTES: u32 = 1 << 20;

/// The bytes that a connection has taken in this turn.
#[derive(Debug, Default)]
pub(crate) struct Turn(AtomicU32);

impl Turn {
    /// Whether the turn is over. Then the write is pending, and its task is woken already.
    pub(crate) fn is_over(&self, cx: &Context<'_>) -> bool {
        let is_over = self.0.load(Ordering::Relaxed) >= TURN_BYTES;
        if is_over {
            self.0.store(0, Ordering::Relaxed);
            cx.waker().wake_by_ref();
        }
        is_over
    }

    /// A write took `bytes`, or it waits, which ends the turn.
    pub(crate) fn note<T>(&self, write: &Attempt<T>, bytes: usize) {
        let taken = match write {
            Poll::Ready(_) => {
                let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                self.0.load(Ordering::Relaxed).saturating_add(bytes)
            }
            Poll::Pending => 0,
        };
        self.0.store(taken, Ordering::Relaxed);
    }

    /// A write that returns how many bytes it took.
    pub(crate) fn write(&self, cx: &Context<'_>, write: impl FnOnce() -> Attempt<usize>) -> Attempt<usize> {
        if self.is_over(cx) {
            return Poll::Pending;
        }
        let result = write();
        self.note(&result, if let Poll::Ready(Ok(count)) = result { count } else { 0 });
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::{Wake, Waker};

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn turn_03_a_writer_that_waited_has_a_whole_turn() {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let (turn, cx) = (Turn::default(), Context::from_waker(&waker));
        let write = |bytes| turn.write(&cx, || Poll::Ready(Ok(bytes)));
        assert!(write(TURN_BYTES as usize - 1).is_ready());
        assert!(turn.write(&cx, || Poll::Pending).is_pending());
        assert!(write(TURN_BYTES as usize - 1).is_ready(), "the turn began with the wait");
        assert!(write(1).is_ready());
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
        // A turn that is over is over once.
        assert!(write(1).is_pending());
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(write(1).is_ready());
    }
}
