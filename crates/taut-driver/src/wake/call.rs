//! A call to the driver of a shard: another thread has something for it. Each call is heard once, also by a
//! driver that comes later. Owned by `announce.rs`, `bell.rs` and `handover.rs`.

use std::task::Waker;

use crate::sync::{Mutex, MutexGuard, lock};
#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::sys::EventFd;

/// Calls are rare, one for each time that a driver sleeps: so they may take a lock.
#[derive(Debug)]
pub(crate) struct Call(Mutex<Ear>);

/// What the driver listens with.
#[derive(Debug)]
pub(crate) enum Ear {
    /// There is no driver yet.
    Nobody {
        /// There was a call, which a driver must hear when it comes.
        called: bool,
    },
    /// Readable from a call until it is drained.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    Event(EventFd),
    /// Woken by each call.
    Waker(Waker),
}

impl Default for Call {
    fn default() -> Self {
        Self(Mutex::new(Ear::Nobody { called: false }))
    }
}

impl Call {
    fn ear(&self) -> MutexGuard<'_, Ear> {
        lock(&self.0)
    }

    /// Calls the driver.
    pub(crate) fn signal(&self) {
        self.signal_and(|| ());
    }

    /// Calls the driver, and `noted`: before a waker, which is heard once, and after what stays.
    pub(crate) fn signal_and(&self, noted: impl FnOnce()) {
        match &mut *self.ear() {
            Ear::Nobody { called } => {
                *called = true;
                noted();
            }
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Ear::Event(event) => {
                event.signal();
                noted();
            }
            Ear::Waker(waker) => {
                noted();
                waker.wake_by_ref();
            }
        }
    }

    /// Forgets calls that a descriptor still shows; returns whether it showed any.
    pub(crate) fn drain(&self) -> bool {
        match &mut *self.ear() {
            Ear::Nobody { called } => std::mem::take(called),
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Ear::Event(event) => event.drain(),
            Ear::Waker(_) => false,
        }
    }

    /// Waits for a call that has begun.
    pub(crate) fn settle(&self) {
        drop(self.ear());
    }

    /// The driver listens from now on, and hears what came before.
    pub(crate) fn listen(&self, ear: Ear) {
        let before = std::mem::replace(&mut *self.ear(), ear);
        if matches!(before, Ear::Nobody { called: true }) {
            self.signal();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_driver_hears_what_came_before_it() {
        for calls in 0..3 {
            let (call, count) = (Call::default(), Arc::new(Count::default()));
            (0..calls).for_each(|_| call.signal());
            call.listen(Ear::Waker(Waker::from(Arc::clone(&count))));
            assert_eq!(count.0.load(Ordering::SeqCst), calls.min(1));
            call.signal();
            assert_eq!(count.0.load(Ordering::SeqCst), calls.min(1) + 1);
        }
    }

    #[test]
    fn what_was_drained_is_not_heard_later() {
        let (call, count) = (Call::default(), Arc::new(Count::default()));
        call.signal();
        assert!(call.drain() && !call.drain());
        call.listen(Ear::Waker(Waker::from(Arc::clone(&count))));
        assert_eq!(count.0.load(Ordering::SeqCst), 0);
    }
}
