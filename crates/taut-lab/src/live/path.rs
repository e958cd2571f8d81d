//! The emulated path of a live run, and the counts of what it carries. Called by `live.rs`.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use taut_testbed::{Emulator, Port, Taken, Watch, Ways};

use super::carried::Carried;

impl Watch for Carried {
    fn on_taken(&mut self, packet: &Taken) {
        self.take(packet);
    }

    fn on_dropped(&mut self, packets: u64) {
        self.dropped += packets;
    }
}

fn lock(counts: &Mutex<Carried>) -> MutexGuard<'_, Carried> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A path; it ends when this is dropped.
pub(super) struct Path {
    emulator: Emulator,
    /// Counts of the direction to the receiver, and back.
    counts: [Arc<Mutex<Carried>>; 2],
}

impl Path {
    /// Joins two ports.
    pub(super) fn start(near: Port, far: Port, ways: Ways) -> io::Result<Self> {
        let counts = <[Arc<Mutex<Carried>>; 2]>::default();
        let [there, back] = counts.clone();
        let emulator = Emulator::start(near, far, ways, [there, back])?;
        Ok(Self { emulator, counts })
    }

    /// Whether it has real-time priority: without it, the path waits for other work on the machine.
    pub(super) const fn is_realtime(&self) -> bool {
        self.emulator.is_realtime()
    }

    /// From now on, the time of the line's steps runs.
    pub(super) fn run_steps(&self) {
        self.emulator.begin();
    }

    /// Resets the counts.
    pub(super) fn begin(&self) {
        self.counts.iter().for_each(|counts| lock(counts).begin());
    }

    /// The counts since then, to the receiver and back.
    pub(super) fn carried(&self) -> [Carried; 2] {
        self.counts.each_ref().map(|counts| lock(counts).clone())
    }
}
