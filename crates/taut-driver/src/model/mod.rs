//! Models of what threads share in this crate, run by loom through every order of their steps: `make model`.
//!
//! They run the crate's own code. Time stands still (`clock.rs`), so no timer makes good for a call that is
//! lost: the thread that misses it sleeps for ever, and loom says that all threads are blocked.

mod announce;
mod bell;
mod inbox;
mod lead;
mod outbox;
mod shard;

use std::sync::Arc;
use std::task::Waker;

use loom::thread::{self, JoinHandle};

use crate::park::Parked;

/// This thread as a driver or a waiter, and its waker.
fn here() -> (Arc<Parked>, Waker) {
    let me = Arc::new(Parked::here());
    (Arc::clone(&me), Waker::from(me))
}

/// Sleeps until called.
fn sleep(me: &Parked) {
    me.sleep(|| Some(None));
}

/// Words of the stack of a thread that has a stack of TCP on it.
const STACK_WORDS: usize = 1 << 16;

/// A thread with room for a stack of TCP.
fn spawn<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    thread::Builder::new().stack_size(STACK_WORDS).spawn(run).unwrap()
}

/// Checks every order with at most `preemptions` switches between threads that could go on.
fn check(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    let run = Arc::new(run);
    builder.check(move || {
        let run = Arc::clone(&run);
        spawn(move || run()).join().unwrap();
    });
}
