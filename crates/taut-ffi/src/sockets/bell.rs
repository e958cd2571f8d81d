//! The descriptor of a socket: an eventfd that the socket's wakers make readable. `eventfd(2)`; called by
//! `socket.rs`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::task::{Wake, Waker};

use taut::device::sys::EventFd;

/// Polls readable once it was rung, until it is cleared.
#[derive(Clone)]
pub(super) struct Bell(Arc<Rung>);

struct Rung(EventFd);

impl Wake for Rung {
    fn wake(self: Arc<Self>) {
        self.0.signal();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.signal();
    }
}

impl Bell {
    /// One that was rung: the first poll of its socket says what is ready.
    pub(super) fn new() -> io::Result<Self> {
        let bell = Self(Arc::new(Rung(EventFd::new()?)));
        bell.ring();
        Ok(bell)
    }

    pub(super) fn fd(&self) -> RawFd {
        self.0.0.as_fd().as_raw_fd()
    }

    pub(super) fn ring(&self) {
        self.0.0.signal();
    }

    pub(super) fn clear(&self) {
        self.0.0.drain();
    }

    pub(super) fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.0))
    }
}
