//! Two stacks whose packets pass one by one, when the test says so.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part")]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use taut::Stack;
use taut::device::{FarEnd, LinkCaps, channel};

pub const NEAR: &str = "10.0.0.1:7";
pub const FAR: &str = "10.0.0.2:7";

/// Waits are counted in naps, not in time: a process that is stopped and goes on later has not waited
/// meanwhile.
const NAP: Duration = Duration::from_micros(50);
/// Longer than anything here takes on a machine that is not stuck: half a minute at least.
const PATIENCE_NAPS: u32 = 400_000;
/// Longer than an ACK is delayed: 60 ms at least. A step for which no packet comes takes so long.
const DELAYED_NAPS: u32 = 1_200;

/// The near stack, which is tested, and its peer.
pub struct Wire {
    pub near: Stack,
    pub far: Stack,
    /// The far ends of the near stack's devices, one for each shard; and of the far stack's.
    ends: Vec<FarEnd>,
}

impl Wire {
    /// The near stack has so many shards.
    pub fn new(shards: usize) -> Self {
        let (devices, mut ends): (Vec<_>, Vec<_>) =
            (0..shards).map(|_| channel(LinkCaps::plain(1_500), 4 << 20)).unzip();
        let (device, end) = channel(LinkCaps::plain(1_500), 4 << 20);
        ends.push(end);
        let near = Stack::builder().queues(devices).address("10.0.0.1/24").build().unwrap();
        let far = Stack::builder().device(device).address("10.0.0.2/24").build().unwrap();
        Self { near, far, ends }
    }

    /// One packet passes, if there is one, and has arrived when this returns.
    pub fn pass(&self) -> bool {
        for (index, end) in self.ends.iter().enumerate() {
            let Some(parcel) = end.try_recv() else { continue };
            let is_fars = index + 1 == self.ends.len();
            let (to, at) = if is_fars { (&self.near, 0) } else { (&self.far, self.ends.len() - 1) };
            let before = to.counters().in_receives;
            assert!(self.ends[at].put(&parcel.packet()));
            drop(parcel);
            eventually("a packet arrives", || to.counters().in_receives > before);
            return true;
        }
        false
    }

    /// [`pass`](Self::pass), which waits for a packet for as long as an ACK may be delayed.
    pub fn step(&self) {
        for _ in 0..DELAYED_NAPS {
            if self.pass() {
                return;
            }
            std::thread::sleep(NAP);
        }
    }

    /// The near stack's devices are gone.
    pub fn cut(&mut self) {
        self.ends.clear();
    }

    /// Runs a future to its end, while packets pass.
    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        let (called, mut naps) = (Arc::new(Called::default()), 0);
        let waker = Waker::from(Arc::clone(&called));
        loop {
            // Polled only when it was woken: one whose call is lost never ends.
            if called.take()
                && let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker))
            {
                return value;
            }
            if !self.pass() {
                naps += 1;
                assert!(naps < PATIENCE_NAPS, "it took too long");
                std::thread::sleep(NAP);
            }
        }
    }

    /// Lets packets pass until both stacks have no connection.
    pub fn expect_empty(&self) {
        eventually("all connections end", || {
            self.pass();
            self.near.connections() + self.far.connections() == 0
        });
    }
}

pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let mut naps = 0;
    while !is_so() {
        naps += 1;
        assert!(naps < PATIENCE_NAPS, "it took too long until {what}");
        std::thread::sleep(NAP);
    }
}

/// A waker's task: called once, to be polled for the first time.
#[derive(Debug)]
pub struct Called(AtomicBool);

impl Default for Called {
    fn default() -> Self {
        Self(AtomicBool::new(true))
    }
}

impl Called {
    /// Whether it was called since this was last asked.
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::SeqCst)
    }
}

impl Wake for Called {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A task that polls a future so many times, with a step of the wire after each, and then drops it.
pub struct Task {
    called: Arc<Called>,
    polls: usize,
}

impl Task {
    pub fn new(polls: usize) -> Self {
        Self { called: Arc::default(), polls }
    }

    /// The future's value, if it was ready by then.
    pub fn run<T>(&self, wire: &Wire, mut future: Pin<Box<dyn Future<Output = T> + '_>>) -> Option<T> {
        let waker = Waker::from(Arc::clone(&self.called));
        for _ in 0..self.polls {
            if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Some(value);
            }
            wire.step();
        }
        None
    }

    /// Nobody holds its waker any more.
    #[track_caller]
    pub fn expect_forgotten(&self) {
        eventually("the waker is gone", || Arc::strong_count(&self.called) == 1);
    }
}

/// Calls `run` with a task for every number of polls, until a future was ready. Returns how many numbers
/// those were.
pub fn every_poll(mut run: impl FnMut(&Task) -> bool) -> usize {
    const MOST: usize = 400;
    for polls in 0..MOST {
        if run(&Task::new(polls)) {
            return polls;
        }
    }
    panic!("not ready after {MOST} polls");
}
