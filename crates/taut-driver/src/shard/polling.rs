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
        let may_look = match who {
            Who::Task => inner.reader_turn.may_look(),
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Who::Leader => !(self.is_crowded() && inner.is_short && matches!(interest, Interest::Read(_))),
        } && result.is_pending()
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

#[cfg(all(test, target_os = "linux", not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use taut_core::{
        ConnOptions, Duration, LinkCaps, ListenOptions, RxChecksum, Stack, StackConfig, TxPacket, TxTicket,
    };

    use super::*;
    use crate::device::{Device, News, Received, RxDevice, Sent, TxDevice};
    use crate::lead::{Lead, Leave};
    use crate::poller::Descriptors;
    use crate::shard::Until;

    /// A device that counts how often it is polled, and has at most one packet, of so many bytes.
    #[derive(Clone, Default)]
    struct Asked {
        count: Arc<AtomicUsize>,
        packet: Arc<AtomicUsize>,
    }

    impl Asked {
        fn take(&self) -> usize {
            self.count.swap(0, Ordering::Relaxed)
        }
    }

    impl TxDevice for Asked {
        fn news(&mut self, _: &Waker) -> io::Result<News> {
            Ok(News::Waker)
        }

        fn send(&mut self, _: &TxPacket<'_>, ticket: TxTicket) -> Sent {
            Sent::Left(ticket)
        }
    }

    impl RxDevice for Asked {
        fn news(&mut self, _: &Waker) -> io::Result<News> {
            Ok(News::Waker)
        }

        fn recv(&mut self, _: &mut Vec<u8>) -> io::Result<Option<Received>> {
            self.count.fetch_add(1, Ordering::Relaxed);
            let len = self.packet.swap(0, Ordering::Relaxed);
            let packet = Received { range: 0..len, checksum: RxChecksum::Verified, gso_size: 0 };
            Ok((len > 0).then_some(packet))
        }
    }

    /// A shard, its device, and what a reader and an acceptor wait for.
    fn shard() -> (Shard, Asked, [Interest; 2]) {
        let config = StackConfig::default().with(|config| config.addresses.push("10.0.0.1".parse().unwrap()));
        let (caps, asked) = (LinkCaps::plain(1_500), Asked::default());
        let stack = Stack::new(Arc::new(config), caps, [1; 32]);
        let shard = Shard::new(stack, Device::new(caps, asked.clone(), asked.clone())).unwrap();
        let interests = shard.access(|access| {
            let conn =
                access.stack.connect(access.now, "10.0.0.2:7".parse().unwrap(), &ConnOptions::default());
            let listener = access.stack.listen("10.0.0.1:7".parse().unwrap(), ListenOptions::default());
            [Interest::Read(conn.unwrap()), Interest::Accept(listener.unwrap())]
        });
        assert_eq!(asked.take(), 0);
        (shard, asked, interests)
    }

    #[test]
    fn dev_25_no_reader_of_short_packets_looks_in_a_crowd() {
        // Looks of a reader's thread, and of an acceptor's.
        let cases = [(false, true, [1, 1]), (true, true, [0, 1]), (true, false, [1, 1])];
        for (crowded, is_short, by_thread) in cases {
            for (nth, by_thread) in by_thread.into_iter().enumerate() {
                for (who, expected) in [(Who::Leader, by_thread), (Who::Task, 1)] {
                    let (shard, asked, [read, accept]) = shard();
                    shard.crowded.store(crowded, crate::sync::Ordering::Relaxed);
                    shard.lock().is_short = is_short;
                    let interest = [read, accept][nth];
                    let (waiter, place) = ((WaitKey::unique(), Waker::noop()), &mut ReadInto::default());
                    let (result, _) =
                        shard.poll_as(who, interest, waiter, place, |_| Poll::<io::Result<()>>::Pending);
                    assert!(result.is_pending());
                    assert_eq!(
                        asked.take(),
                        expected,
                        "{interest:?}, {who:?}, crowd: {crowded}, short: {is_short}"
                    );
                }
            }
        }
        for (len, is_short) in [(575, true), (576, false)] {
            let (shard, asked, _) = shard();
            asked.packet.store(len, Ordering::Relaxed);
            shard.turn(Until::Batch, &mut ReadInto::default(), &mut Vec::new());
            assert_eq!((shard.lock().is_short, asked.packet.load(Ordering::Relaxed)), (is_short, 0), "{len}");
        }
    }

    /// A thread that finds its data by looks does not lead: it is back all the same.
    #[test]
    fn dev_26_a_look_follows_a_leader() {
        let (shard, _, [Interest::Read(conn), _]) = shard() else { unreachable!() };
        let poller = Lead::new(Descriptors::new(&shard.announcer).unwrap(), false);
        shard.poller.set(poller).unwrap();
        let poller = shard.poller.get().unwrap();
        // Later than any look here, which thus comes soon.
        let now = shard.clock.now() + Duration::from_secs(3_600);
        for nth in 0..=100 {
            poller.leave(Leave::InGrace { now, others_wait: true });
            assert_eq!(poller.extend_grace(now), nth == 100, "{nth}");
            // The answer to a SYN is always looked for.
            let waiter = (WaitKey::POLL, Waker::noop());
            let place = &mut ReadInto::default();
            let (result, _) = shard.poll_as(Who::Leader, Interest::Write(conn), waiter, place, |_| {
                Poll::<io::Result<()>>::Pending
            });
            assert!(result.is_pending());
        }
    }
}
