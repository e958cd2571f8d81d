//! What the threads of one measurement share: the counter that they advance, the signal to stop, and which
//! threads are not the stack's.

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
    /// Set after `stop`, when those that others wait for have ended by themselves.
    over: AtomicBool,
    /// Whether the warm-up is over; latencies before that are not kept.
    measuring: AtomicBool,
    /// Threads that are not the measured stack's: the peer's, and those that existed before.
    others: Mutex<BTreeSet<i32>>,
    error: Mutex<Option<anyhow::Error>>,
    latencies_ns: Mutex<Option<Histogram<u64>>>,
    /// Called when the measurement is over: they wake threads that would wait for ever.
    wakers: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
    /// The stack's counters at its end.
    counters: Mutex<Option<Counters>>,
}

/// Counters of a stack, from its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// `TcpExtTCPAutoCorking`.
    pub autocorking: u64,
    /// taut's `TautTsqThrottled`; the kernel does not count this.
    pub tsq_throttled: u64,
    /// taut's ledger: 99 of 100 bytes were in the device for no longer than this.
    pub below_p99: Option<Duration>,
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

    /// Whether the measurement is over and everything has to end.
    pub fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    /// Ends everything that is left.
    pub fn end(&self) {
        self.stop();
        self.over.store(true, Relaxed);
        let wakers = std::mem::take(&mut *lock(&self.wakers));
        wakers.into_iter().for_each(|wake| wake());
    }

    /// Calls `wake` when the measurement is over.
    pub fn at_end(&self, wake: impl FnOnce() + Send + 'static) {
        let mut wakers = lock(&self.wakers);
        // Read under the lock: `end` sets it before it takes the lock.
        if self.is_over() {
            drop(wakers);
            wake();
        } else {
            wakers.push(Box::new(wake));
        }
    }

    pub fn measuring(&self) -> bool {
        self.measuring.load(Relaxed)
    }

    /// Ends the measurement with an error; the first one is kept.
    pub fn fail(&self, error: anyhow::Error) {
        lock(&self.error).get_or_insert(error);
        self.stop();
    }

    /// Adds the latencies that one thread or task measured to those of the others.
    pub fn keep_latencies(&self, latencies_ns: Histogram<u64>) {
        let mut kept = lock(&self.latencies_ns);
        match &mut *kept {
            // All have the bounds of `histogram`.
            Some(all) => all.add(&latencies_ns).expect("histograms have the same bounds"),
            None => *kept = Some(latencies_ns),
        }
    }

    /// Adds one latency: for thousands of tasks on one thread, whose own histograms would fill the cache.
    pub fn record_latency(&self, taken: Duration) {
        let ns = taken.as_nanos() as u64;
        lock(&self.latencies_ns).get_or_insert_with(histogram).saturating_record(ns);
    }

    pub fn keep_counters(&self, counters: Counters) {
        *lock(&self.counters) = Some(counters);
    }

    pub fn take_counters(&self) -> Option<Counters> {
        lock(&self.counters).take()
    }

    pub fn take_latencies(&self) -> Option<Histogram<u64>> {
        lock(&self.latencies_ns).take()
    }

    pub fn take_error(&self) -> Option<anyhow::Error> {
        lock(&self.error).take()
    }

    /// Waits for the warm-up, measures for `span`, then tells all threads to stop.
    pub fn watch(&self, warm_up: Duration, span: Duration) -> Result<Window> {
        self.watch_with(warm_up, span, || Ok(()))
    }

    /// [`watch`](Self::watch), with a further reading at the beginning and at the end of the window.
    pub fn watch_with(
        &self,
        warm_up: Duration,
        span: Duration,
        mut read: impl FnMut() -> Result<()>,
    ) -> Result<Window> {
        // Counted by sleeps, not by the clock: the whole process may be stopped for a while.
        let mut slept_ms = 0;
        while self.count() == 0 && !self.stopped() {
            if slept_ms > 5_000 {
                self.stop();
                bail!("nothing moved in five seconds");
            }
            std::thread::sleep(Duration::from_millis(1));
            slept_ms += 1;
        }
        std::thread::sleep(warm_up);
        let machine_before = cpu::of_machine()?;
        let before = self.look()?;
        read()?;
        self.measuring.store(true, Relaxed);
        std::thread::sleep(span);
        let after = self.look()?;
        read()?;
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn latencies_of_several_threads_are_added() {
        let probe = Probe::new();
        for value in [1_000, 3_000] {
            let mut taken_ns = histogram();
            taken_ns.record(value).unwrap();
            probe.keep_latencies(taken_ns);
        }
        let all = probe.take_latencies().unwrap();
        assert_eq!((all.len(), all.max() / 1_000), (2, 3));
        assert!(probe.take_latencies().is_none());
    }

    #[test]
    fn a_waker_is_called_once_even_if_it_comes_late() {
        let (probe, calls) = (Probe::new(), Arc::new(AtomicU64::new(0)));
        let count = |calls: &Arc<AtomicU64>| {
            let calls = Arc::clone(calls);
            move || _ = calls.fetch_add(1, Relaxed)
        };
        probe.at_end(count(&calls));
        assert_eq!(calls.load(Relaxed), 0);
        probe.end();
        probe.end();
        assert_eq!(calls.load(Relaxed), 1);
        probe.at_end(count(&calls));
        assert_eq!(calls.load(Relaxed), 2);
        assert!(probe.stopped());
    }
}
