//! Driving a shard from a thread that parks, on systems without epoll and timerfd. Used by `lib.rs` there; on
//! Linux, where `thread.rs` does better, only by tests.
//!
//! The thread sleeps until the next deadline at the latest. A device wakes it by its waker, other threads
//! when a deadline becomes earlier. A thread that blocks in a read parks as well: nobody drives in another's
//! place.

use std::io;
use std::sync::Arc;
use std::task::{Wake, Waker};

use taut_core::Instant;

use crate::driver_thread::DriverThread;
use crate::shard::Shard;
use crate::sync::Place;

/// Starts a thread that parks.
///
/// # Errors
/// No thread left; [`io::ErrorKind::InvalidInput`] when the shard already has a driver;
/// [`io::ErrorKind::Unsupported`] when the device announces news by a descriptor: this thread waits on
/// none.
pub fn spawn(shard: Arc<Shard>, name: &str) -> io::Result<DriverThread> {
    #[cfg(unix)]
    if shard.announcer.news().any() {
        let message = "a device that announces its news by a descriptor needs a tokio runtime here: use one, or a device \
                       that calls a waker";
        return Err(io::Error::new(io::ErrorKind::Unsupported, message));
    }
    let attach = |shard: &Shard| {
        let me = Arc::new(Parked::here());
        shard.announcer.attach(&Waker::from(Arc::clone(&me)), None)?;
        Ok(me)
    };
    DriverThread::start(shard, name, attach, |shard, me| drive(shard, &me))
}

/// Drives `shard` until it is closed, on a thread whose waker was attached to it.
pub(crate) fn drive(shard: &Shard, me: &Parked) {
    let mut wakers = Vec::new();
    while !shard.is_closed() {
        shard.turn_while_more(&mut wakers);
        me.sleep(|| {
            let now = shard.clock.now();
            shard
                .announcer
                .sleep(now)
                .map(|sleep| (sleep.until != Instant::NEVER).then(|| sleep.until.since(now)))
        });
        shard.announcer.awake();
    }
}

/// A thread that sleeps until it is called.
#[derive(Debug)]
pub(crate) struct Parked(Place);

impl Parked {
    /// This thread.
    pub(crate) fn here() -> Self {
        Self(Place::here())
    }

    /// Sleeps until it is called, or `left` returns `None`; else that is how long to sleep at most.
    pub(crate) fn sleep(&self, mut left: impl FnMut() -> Option<Option<taut_core::Duration>>) {
        while !self.0.take_call() {
            match left() {
                None => return,
                Some(left) => self.0.park(left),
            }
        }
    }
}

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.call();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.call();
    }
}

/// What replaces the threads that drive in each other's place.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod no_leaders {
    use std::cell::LazyCell;
    use std::task::Poll;

    use super::*;
    use crate::shard::waiters::{Interest, WaitKey};
    use crate::shard::{Access, ReadInto};

    impl DriverThread {
        /// Starts the thread.
        ///
        /// # Errors
        /// Those of [`spawn`].
        pub fn spawn(shard: Arc<Shard>, name: &str) -> io::Result<Self> {
            spawn(shard, name)
        }
    }

    impl Shard {
        /// [`wait`](Self::wait), with memory for what is read.
        pub(crate) fn wait_place<T>(
            &self,
            interest: Interest,
            deadline: Option<Instant>,
            place: &mut ReadInto<'_>,
            mut attempt: impl FnMut(&mut Access<'_>) -> Poll<io::Result<T>>,
        ) -> Option<io::Result<T>> {
            ME.with(|me| {
                let (key, parked, waker) = &**me;
                loop {
                    parked.0.take_call();
                    if let Poll::Ready(result) = self.poll_place(interest, *key, waker, place, &mut attempt) {
                        return Some(result);
                    }
                    let mut is_over = false;
                    parked.sleep(|| {
                        let now = self.clock.now();
                        is_over = deadline.is_some_and(|deadline| deadline <= now);
                        (!is_over).then(|| deadline.map(|deadline| deadline.since(now)))
                    });
                    if is_over {
                        self.cancel(interest, *key);
                        return None;
                    }
                }
            })
        }
    }

    thread_local! {
        /// This thread as a waiter.
        static ME: LazyCell<(WaitKey, Arc<Parked>, Waker)> = LazyCell::new(|| {
            let parked = Arc::new(Parked::here());
            (WaitKey::unique(), Arc::clone(&parked), Waker::from(parked))
        });
    }
}
