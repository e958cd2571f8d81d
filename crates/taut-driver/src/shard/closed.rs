//! The reason why a stack has ended, which every socket reports. Set once, by `shard.rs`.

use std::io;
use std::sync::{Arc, OnceLock};

use crate::shard::Shard;

/// Open, or closed for a reason that never changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Closed(OnceLock<Reason>);

#[derive(Clone, Debug)]
enum Reason {
    /// Its owner shut it down.
    ShutDown,
    /// Its device is gone.
    DeviceGone(Arc<io::Error>),
    /// A thread panicked while it had the stack.
    Panicked,
}

impl Closed {
    /// Its owner shuts it down, unless it has already ended.
    pub(crate) fn shut_down(&self) {
        let _ = self.0.set(Reason::ShutDown);
    }

    /// Its device is gone. Returns whether it had not ended before.
    pub(crate) fn device_gone(&self, why: &Arc<io::Error>) -> bool {
        self.0.set(Reason::DeviceGone(Arc::clone(why))).is_ok()
    }

    pub(crate) fn panicked(&self) {
        let _ = self.0.set(Reason::Panicked);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    /// The reason, if it is closed.
    pub(crate) fn error(&self) -> Option<io::Error> {
        self.0.get().map(|reason| match reason {
            Reason::ShutDown => io::Error::new(io::ErrorKind::NotConnected, "the stack was shut down"),
            Reason::Panicked => io::Error::other(
                "the stack has ended because a thread panicked while using it; build a new stack to continue",
            ),
            Reason::DeviceGone(why) => io::Error::new(
                io::ErrorKind::NetworkDown,
                format!(
                    "the stack has ended because its device is gone: {why}; build a new stack to continue"
                ),
            ),
        })
    }
}

/// Closes the shard however the driver ends, even by a panic, so that no thread waits for it.
pub(crate) struct CloseOnExit<'a>(pub(crate) &'a Shard);

impl Drop for CloseOnExit<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Closes the shard if a thread panics while it has the stack, which may be half changed then. Made before
/// the lock is taken, so that it is dropped after the lock is free; forgotten when all went well.
pub(crate) struct CloseOnPanic<'a>(pub(crate) &'a Shard);

impl Drop for CloseOnPanic<'_> {
    fn drop(&mut self) {
        self.0.close_after_panic();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_stays() {
        let closed = Closed::default();
        assert!(!closed.is_set() && closed.error().is_none());
        assert!(closed.device_gone(&Arc::new(io::Error::other("unplugged"))));
        closed.shut_down();
        assert!(!closed.device_gone(&Arc::new(io::Error::other("again"))));
        let error = closed.error().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::NetworkDown);
        assert!(error.to_string().contains("unplugged"), "{error}");
    }
}
