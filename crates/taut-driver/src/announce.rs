//! How a driver learns that a shard has something to do: the device has news, a deadline has come, another shard has
//! handed something over, or the shard has ended. Owned by `shard.rs`; the drivers wait on it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::task::Waker;

use taut_core::Instant;

use crate::bell::Bell;
use crate::device::{News, RxDevice, TxDevice};
use crate::sys::{Epoll, EventFd, Interest as Readiness, TimerFd};

/// What [`Announcer::ready`] waits on, besides what a driver adds.
const RX: u64 = 0;
const TX: u64 = 1;
const BELL: u64 = 2;
const TIMER: u64 = 3;
const INBOX: u64 = 4;

/// The announcements of one shard.
#[derive(Debug)]
pub(crate) struct Announcer {
    /// Readable when there is something for a driver to do: the device has news, the timer has expired, other shards
    /// have handed something over.
    pub(crate) ready: Arc<Epoll>,
    /// Makes the driver check whether the shard is closed.
    pub(crate) notify: EventFd,
    /// Readable when the stack has something to do at that time.
    timer: TimerFd,
    /// Kept open for as long as it is in `ready`.
    _rx: Option<OwnedFd>,
    tx: Option<OwnedFd>,
    bell: Option<Arc<Bell>>,
}

impl Announcer {
    /// Asks the two halves of a device how they announce their news, and listens to them.
    pub(crate) fn new(tx: &mut dyn TxDevice, rx: &mut dyn RxDevice) -> io::Result<Self> {
        let (ready, timer) = (Epoll::new()?, TimerFd::new()?);
        ready.add(timer.as_fd(), TIMER, Readiness::Readable)?;
        let bell = Arc::new(Bell::new()?);
        let waker = Waker::from(Arc::clone(&bell));
        let (rx, tx) = (rx.news(&waker)?, tx.news(&waker)?);
        let rings = matches!(rx, News::Waker) || matches!(tx, News::Waker);
        let (rx, tx) = (descriptor(rx), descriptor(tx));
        if let Some(fd) = &rx {
            ready.add(fd.as_fd(), RX, Readiness::Readable)?;
        }
        if let Some(fd) = &tx {
            // Errors are reported in any case: tickets in a socket's error queue.
            ready.add(fd.as_fd(), TX, Readiness::Nothing)?;
        }
        if rings {
            ready.add(bell.as_fd(), BELL, Readiness::Readable)?;
        }
        let bell = rings.then_some(bell);
        Ok(Self { ready: Arc::new(ready), notify: EventFd::new()?, timer, _rx: rx, tx, bell })
    }

    /// An event with which the shard's inbox announces packets.
    pub(crate) fn inbox_event(&self) -> io::Result<EventFd> {
        let event = EventFd::new()?;
        self.ready.add(event.as_fd(), INBOX, Readiness::Readable)?;
        Ok(event)
    }

    /// Announces `at`, in place of an earlier or later time.
    pub(crate) fn arm(&self, at: Instant) {
        self.timer.arm(at.as_nanos());
    }

    /// No deadline is announced.
    pub(crate) fn disarm(&self) {
        self.timer.disarm();
    }

    /// Whether a device without room announces that it has room again. A device that rings the bell always does.
    pub(crate) fn watch_room(&self, watch: bool) {
        if let Some(fd) = &self.tx {
            let readiness = if watch { Readiness::Writable } else { Readiness::Nothing };
            // Cannot fail: the descriptor is in the set.
            let _ = self.ready.modify(fd.as_fd(), TX, readiness);
        }
    }

    /// Silences a device's bell, and returns whether it was rung. The caller must check for news afterwards.
    #[must_use]
    pub(crate) fn silence(&self) -> bool {
        self.bell.as_ref().is_some_and(|bell| bell.silence())
    }

    /// Makes the driver check whether the shard is closed.
    pub(crate) fn notify(&self) {
        self.notify.signal();
    }
}

fn descriptor(news: News) -> Option<OwnedFd> {
    match news {
        News::Fd(fd) => Some(fd),
        News::Waker => None,
    }
}
