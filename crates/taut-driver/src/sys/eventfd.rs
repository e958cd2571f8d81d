//! A descriptor that another thread can make readable. `eventfd(2)`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{EventfdFlags, eventfd};

/// Readable from [`signal`](Self::signal) until [`drain`](Self::drain).
#[derive(Debug)]
pub struct EventFd(File);

impl EventFd {
    /// A new event, not signalled.
    ///
    /// # Errors
    /// No descriptor or no memory left.
    pub fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(File::from(fd)))
    }

    /// Makes it readable. All signals before the next [`drain`](Self::drain) count as one.
    pub fn signal(&self) {
        // Fails only when 2⁶⁴ − 2 signals are pending, and then it is readable.
        let _ = (&self.0).write(&1_u64.to_ne_bytes());
    }

    /// Makes it unreadable again; returns whether it was signalled.
    pub fn drain(&self) -> bool {
        (&self.0).read(&mut [0; 8]).is_ok()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_merge() {
        let event = EventFd::new().unwrap();
        assert!(!event.drain());
        event.signal();
        event.signal();
        assert!(event.drain());
        assert!(!event.drain());
    }
}
