//! A thread that drives a shard. Started by `thread.rs`, and elsewhere than on Linux by `park.rs`.

use std::fmt;
use std::io;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use crate::shard::Shard;
use crate::shard::closed::CloseOnExit;

/// A thread that drives a shard until this is dropped or the shard is closed.
pub struct DriverThread {
    shard: Arc<Shard>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for DriverThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriverThread").field("shard", &self.shard).finish_non_exhaustive()
    }
}

impl DriverThread {
    /// Starts a thread that makes what it drives with by `prepare`, and then runs `drive`. An error of
    /// `prepare` leaves the shard as it is: it may have another driver.
    pub(crate) fn start<T>(
        shard: Arc<Shard>,
        name: &str,
        prepare: impl FnOnce(&Shard) -> io::Result<T> + Send + 'static,
        drive: impl FnOnce(&Shard, T) + Send + 'static,
    ) -> io::Result<Self> {
        let theirs = Arc::clone(&shard);
        let (prepared, wait) = mpsc::sync_channel(1);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            let (result, with) = match prepare(&theirs) {
                Ok(with) => (Ok(()), Some(with)),
                Err(error) => (Err(error), None),
            };
            // The other end waits.
            let _ = prepared.send(result);
            if let Some(with) = with {
                let _closer = CloseOnExit(&theirs);
                drive(&theirs, with);
            }
        })?;
        // The thread says nothing only if `prepare` panicked.
        wait.recv().unwrap_or_else(|_| Err(io::Error::other("the driver thread ended before it began")))?;
        Ok(Self { shard, thread: Some(thread) })
    }
}

impl Drop for DriverThread {
    fn drop(&mut self) {
        self.shard.close();
        if let Some(thread) = self.thread.take() {
            // A waker that owns the last handle runs on the driver thread itself, which ends when that
            // returns.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}
