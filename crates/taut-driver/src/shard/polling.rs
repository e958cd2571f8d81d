//! Attempts: a use of the stack that is made at once, and again when its thread or task has been woken.
//! Called by sockets, and by the threads that wait.

use std::io;
use std::task::{Poll, Waker};

use taut_core::Instant;

use super::waiters::{Interest, WaitKey};
use super::{Access, Inner, ReadInto, Shard};

/// Who polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// A task, which shares its thread with others.
    Task,
    /// A thread, which only Linux's driver has.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    Leader,
}

impl Shard {
    /// Like [`access`](Self::access); when `attempt` is pending, `waker` is called once the event of
    /// `interest` may have happened. When it is ready, the waker that this key left earlier is dropped,
    /// unless the key is [`WaitKey::POLL`].
    ///
    /// # Errors
    /// Those of `attempt`, or why the shard is [closed](Self::closed).
    pub fn poll<T>(
        &self,
        interest: Interest,
        key: WaitKey,
        waker: &Waker,
        attempt: impl FnMut(&mut Access<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        self.poll_place(interest, key, waker, &mut ReadInto::default(), attempt)
    }

    /// [`poll`](Self::poll), with memory for what is read.
    pub(crate) fn poll_place<T>(
        &self,
        interest: Interest,
        key: WaitKey,
        waker: &Waker,
        place: &mut ReadInto<'_>,
        attempt: impl FnMut(&mut Access<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let (result, is_turn_over) = self.poll_as(Who::Task, interest, (key, waker), place, attempt);
        if is_turn_over {
            // After those that it has woken.
            waker.wake_by_ref();
        } else if result.is_pending() {
            self.end_grace();
        }
        result
    }

    /// [`poll`](Self::poll) for a thread that, if the attempt is pending, drives the shard or makes sure that
    /// another thread does.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn poll_as_leader<T>(
        &self,
        interest: Interest,
        waiter: (WaitKey, &Waker),
        place: &mut ReadInto<'_>,
        attempt: impl FnMut(&mut Access<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        self.poll_as(Who::Leader, interest, waiter, place, attempt).0
    }

    /// Returns also whether the turn of this task is over: then it does not wait, but lets others run.
    fn poll_as<T>(
        &self,
        who: Who,
        interest: Interest,
        (key, waker): (WaitKey, &Waker),
        place: &mut ReadInto<'_>,
        attempt: impl FnMut(&mut Access<'_>) -> Poll<io::Result<T>>,
    ) -> (Poll<io::Result<T>>, bool) {
        let (result, is_turn_over, _replaced) = self.locked(|inner, wakers| {
            // Under the lock: closing wakes those that wait by then.
            if let Some(error) = self.closed() {
                return (Poll::Ready(Err(error)), false, None);
            }
            inner.reader_turn.note_poll(interest);
            let (mut now, result, is_turn_over) =
                self.attempt_or_look(inner, who, interest, place, wakers, attempt);
            let replaced = if is_turn_over {
                // It looks again when the others have run.
                None
            } else if result.is_pending() || inner.waits_after {
                inner.wait(interest, key, waker)
            } else if key != WaitKey::POLL {
                // It may be ready before it was woken. Under the shared key, another task may wait.
                inner.waiters.remove(interest, key)
            } else {
                None
            };
            // A call that wrote nothing is over at once; a batch that was taken meanwhile had the time of
            // each packet.
            let wrote = result.is_ready() && matches!(interest, Interest::Write(_) | Interest::SendTo(_));
            if wrote || inner.served >= now {
                now = self.clock.now();
            }
            self.settle(inner, now, wakers);
            inner.reader_turn.note_woken(wakers.len());
            self.note_crowd(inner);
            (result, is_turn_over, replaced)
        });
        (result, is_turn_over)
    }

    /// Makes the attempt, and once more if it is pending and a look at the device finds something. Returns
    /// the time of the last attempt, its result, and whether the turn of this task is over.
    fn attempt_or_look<T>(
        &self,
        inner: &mut Inner,
        who: Who,
        interest: Interest,
        place: &mut ReadInto<'_>,
        wakers: &mut Vec<Waker>,
        mut attempt: impl FnMut(&mut Access<'_>) -> Poll<io::Result<T>>,
    ) -> (Instant, Poll<io::Result<T>>, bool) {
        let now = self.begin(inner, wakers, Some(interest));
        let result = self.used(inner, now, wakers, place, &mut attempt);
        let may_look = result.is_pending()
            && (who != Who::Task || inner.reader_turn.may_look())
            && inner.may_look(interest);
        // The packet is often in the device already.
        let found = if may_look { self.look(inner, interest, place, wakers) } else { 0 };
        if found == 0 {
            return (now, result, false);
        }
        if who == Who::Task && place.is_empty() && inner.reader_turn.is_over(interest, found, wakers.len()) {
            return (now, result, true);
        }
        let now = self.clock.now();
        (now, self.used(inner, now, wakers, place, &mut attempt), false)
    }

    /// [`poll`](Self::poll) for callers that will not wait.
    ///
    /// # Errors
    /// Those of `attempt`, or why the shard is [closed](Self::closed).
    pub fn attempt<T>(
        &self,
        attempt: impl FnOnce(&mut Access<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Some(error) = self.closed() {
            return Poll::Ready(Err(error));
        }
        self.access(attempt)
    }

    /// Removes the waker that a pending [`poll`](Self::poll) left.
    pub fn cancel(&self, interest: Interest, key: WaitKey) {
        let removed = self.lock().waiters.remove(interest, key);
        drop(removed);
    }
}
