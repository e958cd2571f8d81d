//! The primitives that threads share in the parts of this crate that a model checker runs: `std`'s, or loom's
//! with `--cfg loom` (`make model`).

#[cfg(not(loom))]
pub(crate) use std::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering},
    },
    thread::yield_now,
};

#[cfg(loom)]
pub(crate) use loom::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering},
    },
    thread::yield_now,
};

/// Takes a lock. A panic under a lock closes the shard, so what it leaves behind is only ever torn down.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The same, if no other thread has it.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(std::sync::TryLockError::WouldBlock) => None,
    }
}

/// Where a thread sleeps until it is called: only the thread that made it, but any thread may call, also in
/// advance.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct Place {
    thread: std::thread::Thread,
    called: AtomicBool,
}

#[cfg(not(loom))]
impl Place {
    pub(crate) fn here() -> Self {
        Self { thread: std::thread::current(), called: AtomicBool::new(false) }
    }

    pub(crate) fn call(&self) {
        self.called.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }

    /// Whether it was called since this was last asked.
    pub(crate) fn take_call(&self) -> bool {
        self.called.swap(false, Ordering::SeqCst)
    }

    /// Sleeps until a call, or until `left` has passed. May end without reason.
    #[expect(clippy::unused_self, reason = "the place is this thread's")]
    pub(crate) fn park(&self, left: Option<taut_core::Duration>) {
        match left {
            None => std::thread::park(),
            Some(left) => std::thread::park_timeout(left.into()),
        }
    }
}

/// The same for loom, in which a call of a parked thread may be lost, and an exchange may return a value that
/// was replaced. Time does not pass, so only a call ends a sleep.
#[cfg(loom)]
#[derive(Debug)]
pub(crate) struct Place(Mutex<bool>, loom::sync::Condvar);

#[cfg(loom)]
impl Place {
    pub(crate) fn here() -> Self {
        Self(Mutex::new(false), loom::sync::Condvar::new())
    }

    pub(crate) fn call(&self) {
        *lock(&self.0) = true;
        self.1.notify_one();
    }

    pub(crate) fn take_call(&self) -> bool {
        std::mem::take(&mut *lock(&self.0))
    }

    pub(crate) fn park(&self, _: Option<taut_core::Duration>) {
        let mut called = lock(&self.0);
        while !*called {
            called = self.1.wait(called).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}
