//! What the threads of one measurement share: the counter that they advance, the signal to stop, and which threads are
//! not the stack's.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use hdrhistogram::Histogram;

use crate::cpu;

/// Shared by the stack's threads, the peer's thread and the one that watches the clock.
#[derive(Default)]
pub struct Probe {
    /// Bytes, connections or round trips, depending on the measurement; counted at their end.
    count: AtomicU64,
    stop: AtomicBool,
    /// Whether the warm-up is over; latencies before that are not kept.
    measuring: AtomicBool,
    /// Threads that are not the measured stack's: the peer's, and those that existed before.
    others: Mutex<BTreeSet<i32>>,
    error: Mutex<Option<anyhow::Error>>,
    latencies_ns: Mutex<Option<Histogram<u64>>>,
}

/// What was counted between two readings of the clock.
pub struct Window {
    pub count: u64,
    pub seconds: f64,
    /// CPU-seconds of the stack's threads, application included.
    pub cpu_stack: f64,
    /// CPU-seconds of the whole process, the peer included.
    pub cpu_all: f64,
    /// Cores that other processes kept busy meanwhile, the hypervisor's other guests included.
    pub disturbance: f64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Probe {
    /// Called by the thread that watches the clock, which belongs to neither side.
    pub fn new() -> Self {
        let probe = Self::default();
        probe.not_the_stack();
        probe
    }

    /// Notes that the calling thread is not part of the measured stack.
    pub fn not_the_stack(&self) {
        lock(&self.others).insert(cpu::tid());
    }

    pub fn add(&self, count: u64) {
        self.count.fetch_add(count, Relaxed);
    }

    pub fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    pub fn stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    pub fn measuring(&self) -> bool {
        self.measuring.load(Relaxed)
    }

    /// Ends the measurement with an error; the first one is kept.
    pub fn fail(&self, error: anyhow::Error) {
        lock(&self.error).get_or_insert(error);
        self.stop();
    }

    pub fn keep_latencies(&self, latencies_ns: Histogram<u64>) {
        *lock(&self.latencies_ns) = Some(latencies_ns);
    }

    pub fn take_latencies(&self) -> Option<Histogram<u64>> {
        lock(&self.latencies_ns).take()
    }

    pub fn take_error(&self) -> Option<anyhow::Error> {
        lock(&self.error).take()
    }

    /// Waits for the warm-up, measures for `span`, then tells all threads to stop.
    pub fn watch(&self, warm_up: Duration, span: Duration) -> Result<Window> {
        let begun = Instant::now();
        while self.count() == 0 && !self.stopped() {
            if begun.elapsed() > Duration::from_secs(5) {
                self.stop();
                bail!("nothing moved in five seconds");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(warm_up);
        let machine_before = cpu::of_machine()?;
        let before = self.look()?;
        self.measuring.store(true, Relaxed);
        std::thread::sleep(span);
        let after = self.look()?;
        let machine_after = cpu::of_machine()?;
        self.stop();
        if let Some(error) = self.take_error() {
            return Err(error);
        }
        Ok(Window {
            count: after.1 - before.1,
            seconds: (after.0 - before.0).as_secs_f64(),
            cpu_stack: (after.2.saturating_sub(before.2)).as_secs_f64(),
            cpu_all: (after.3 - before.3).as_secs_f64(),
            disturbance: (machine_after - machine_before - (after.3 - before.3).as_secs_f64()).max(0.0)
                / (after.0 - before.0).as_secs_f64(),
        })
    }

    fn look(&self) -> Result<(Instant, u64, Duration, Duration)> {
        let others = lock(&self.others).clone();
        Ok((Instant::now(), self.count(), cpu::of_threads_except(&others)?, cpu::of_process()))
    }
}

/// Round-trip times from 1 ns to 10 s, to three digits.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("constant bounds are valid")
}
