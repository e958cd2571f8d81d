//! The bytes that wait in the queue of one of the kernel's interfaces, read from time to time while a run
//! lasts. Called by `live.rs`; the senders report the latest value.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use taut_device::Interface;
use taut_testbed::{Kernel, Raise};

/// The number of bytes before the first look.
const UNKNOWN: u64 = u64::MAX;

/// An interface's backlog.
pub(super) struct Backlog {
    interface: Interface,
    bytes: AtomicU64,
}

impl Backlog {
    /// That of the interface with this name.
    pub(super) fn new(kernel: &Kernel, interface: &str) -> io::Result<Self> {
        let interface = kernel.enter(|| Interface::open(interface))??;
        Ok(Self { interface, bytes: AtomicU64::new(UNKNOWN) })
    }

    /// The bytes at the last look.
    pub(super) fn bytes(&self) -> Option<u64> {
        Some(self.bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes != UNKNOWN)
    }

    /// Looks at each interval while `work` runs.
    pub(super) fn watch<R>(&self, interval: Duration, work: impl FnOnce() -> R) -> R {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    if let Ok(bytes) = self.interface.backlog_bytes() {
                        self.bytes.store(bytes, Ordering::Relaxed);
                    }
                    thread::sleep(interval);
                }
            });
            let _over = Raise(&over);
            work()
        })
    }
}
