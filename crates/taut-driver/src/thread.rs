//! Driving a shard from a thread of its own, and from threads that have to wait anyway.
//!
//! ```text
//!   DriverThread ──waits on──▶ outer { notify, handback, ready }     a blocked reader ──waits on──▶ ready
//!                                                        │
//!                                                        └─▶ ready { device, timer, inbox, lead }
//! ```
//!
//! A reader that finds no data becomes the leader, if there is none: it masks `ready` in `outer`, so that the driver
//! thread keeps sleeping, and drives the shard itself until its own data has arrived. A reply thus wakes only one
//! thread, the one that waits for it.
//!
//! A leader that leaves is often back soon: after its next write, or to read more. So if no other thread
//! waits and no deadline is near, it leaves `ready` masked for [`GRACE`] after it last used the shard; then
//! the handback timer wakes the driver thread, which takes over. While the former leader keeps reading or
//! writing, it also serves the device. In all other cases it unmasks `ready` immediately.

use std::cell::LazyCell;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Poll, Wake, Waker};
use std::thread::{self, JoinHandle, Thread};

use taut_core::{Duration, Instant};

use crate::shard::{Access, Shard, wake};
use crate::sys::{Epoll, EventFd, Interest as Readiness, TimerFd};
use crate::waiters::{Interest, WaitKey};

/// A key in `Announcer::ready`, in addition to the keys of that set.
const LEAD: u64 = 16;
/// In `outer`.
const READY: u64 = 0;
const NOTIFY: u64 = 1;
const HANDBACK: u64 = 2;

/// How long packets may wait for a leader to come back. Well below any timer of a peer (delayed ACKs take 40 ms),
/// and long enough that an active reader costs the driver thread no more than 2,000 wake-ups per second.
pub(crate) const GRACE: Duration = Duration::from_micros(500);

/// The interval doubles up to 4 ms for a thread that was back at each check. When that thread stops, packets
/// may once wait that long, which is a tenth of a delayed ACK; each check costs the busy thread tens of µs if
/// they share a core.
const GRACE_DOUBLINGS: u32 = 3;

/// The descriptors on which the driver thread and a leader wait.
#[derive(Debug)]
pub(crate) struct Poller {
    /// `Announcer::ready`.
    ready: Arc<Epoll>,
    outer: Epoll,
    lead: Arc<Signal>,
    /// Ends the grace.
    handback: TimerFd,
    lead_state: Mutex<LeadState>,
    /// A hint, so that callers of [`end_grace`](Self::end_grace) need not take the lock when there is no grace.
    in_grace: AtomicBool,
    /// When, in nanoseconds, the last leader left or a thread last served the shard in its place.
    left_ns: AtomicU64,
    /// No thread leads: the driver thread has another priority, and no one may take its place.
    alone: bool,
}

#[derive(Debug, Default)]
struct LeadState {
    /// There is a leader.
    led: bool,
    /// `Announcer::ready` is masked in `outer`: always while there is a leader, and in the grace after it.
    masked: bool,
    /// The handback timer is armed.
    handing_back: bool,
    /// How many times in a row it found that a thread had been back.
    found_back: u32,
}

impl LeadState {
    /// The time until the next check by the handback timer.
    fn wait(&self) -> Duration {
        GRACE * (1 << self.found_back)
    }
}

/// Wakes the leader.
#[derive(Debug)]
struct Signal {
    event: EventFd,
    /// Saves a system call when the event was not signalled. Set after the event, so that an event is never
    /// overlooked, at worst checked twice.
    raised: AtomicBool,
}

impl Signal {
    fn new() -> io::Result<Self> {
        Ok(Self { event: EventFd::new()?, raised: AtomicBool::new(false) })
    }

    fn raise(&self) {
        self.event.signal();
        self.raised.store(true, Ordering::SeqCst);
    }

    fn lower(&self) {
        if self.raised.swap(false, Ordering::SeqCst) {
            self.event.drain();
        }
    }
}

impl Poller {
    fn new(shard: &Shard, alone: bool) -> io::Result<Self> {
        let (ready, outer, lead) =
            (Arc::clone(&shard.announcer.ready), Epoll::new()?, Arc::new(Signal::new()?));
        ready.add(lead.event.as_fd(), LEAD, Readiness::Readable)?;
        outer.add(ready.as_fd(), READY, Readiness::Readable)?;
        outer.add(shard.announcer.notify.as_fd(), NOTIFY, Readiness::Readable)?;
        let handback = TimerFd::new()?;
        outer.add(handback.as_fd(), HANDBACK, Readiness::Readable)?;
        let (lead_state, in_grace, left_ns) = (Mutex::default(), AtomicBool::new(false), AtomicU64::new(0));
        Ok(Self { ready, outer, lead, handback, lead_state, in_grace, left_ns, alone })
    }

    fn state(&self) -> MutexGuard<'_, LeadState> {
        self.lead_state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mask(&self, state: &mut LeadState, mask: bool) {
        if state.masked != mask {
            let readiness = if mask { Readiness::Nothing } else { Readiness::Readable };
            // Cannot fail: the descriptor is in the set.
            let _ = self.outer.modify(self.ready.as_fd(), READY, readiness);
            state.masked = mask;
        }
    }

    fn try_lead(&self) -> Option<Lead<'_>> {
        if self.alone {
            return None;
        }
        let mut state = self.state();
        if state.led {
            return None;
        }
        state.led = true;
        self.in_grace.store(false, Ordering::SeqCst);
        self.mask(&mut state, true);
        Some(Lead { poller: self, grace_from: None })
    }

    /// An application thread uses the shard: in the grace, that counts as being back. Returns whether it is
    /// in the grace.
    pub(crate) fn extend_grace(&self, now: Instant) -> bool {
        let in_grace = self.in_grace.load(Ordering::SeqCst);
        if in_grace {
            self.left_ns.store(now.as_nanos(), Ordering::Relaxed);
        }
        in_grace
    }

    /// Wakes the driver thread, if it sleeps only because a leader may come back.
    pub(crate) fn end_grace(&self) {
        if self.in_grace.load(Ordering::SeqCst) {
            let mut state = self.state();
            if !state.led {
                self.in_grace.store(false, Ordering::SeqCst);
                self.mask(&mut state, false);
            }
        }
    }

    /// The handback timer has fired.
    fn hand_back(&self, now: Instant) {
        let mut state = self.state();
        let over = Instant::from_nanos(self.left_ns.load(Ordering::Relaxed)) + GRACE;
        if state.led || now < over {
            // It has been back since the timer was armed, and probably will be again: check less and less often.
            state.found_back = (state.found_back + 1).min(GRACE_DOUBLINGS);
            state.handing_back = !state.led;
            if state.led {
                // The leader arms the timer again when it leaves.
                self.handback.disarm();
            } else {
                self.handback.arm((now + state.wait()).as_nanos());
            }
            return;
        }
        self.handback.disarm();
        state.handing_back = false;
        state.found_back = 0;
        self.in_grace.store(false, Ordering::SeqCst);
        self.mask(&mut state, false);
    }
}

/// Leadership; given back when dropped.
struct Lead<'a> {
    poller: &'a Poller,
    /// The present time, if nothing needs the driver thread before [`GRACE`] is over.
    grace_from: Option<Instant>,
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut state = self.poller.state();
        state.led = false;
        let Some(now) = self.grace_from else {
            self.poller.mask(&mut state, false);
            return;
        };
        self.poller.left_ns.store(now.as_nanos(), Ordering::Relaxed);
        if !state.handing_back {
            state.handing_back = true;
            self.poller.handback.arm((now + state.wait()).as_nanos());
        }
        self.poller.in_grace.store(true, Ordering::SeqCst);
    }
}

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
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread or no descriptor left, or [`io::ErrorKind::InvalidInput`] when the shard already has a driver.
    pub fn spawn(shard: Arc<Shard>, name: &str) -> io::Result<Self> {
        Self::start(shard, name, None::<fn() -> io::Result<()>>)
    }

    /// [`spawn`](Self::spawn) for a thread that first does `prepare`, which gives it a priority. No other one drives
    /// the shard in its place, as that one would not have the priority.
    ///
    /// # Errors
    /// Those of `spawn`, or that of `prepare`; then the shard is closed.
    pub fn spawn_prepared(
        shard: Arc<Shard>,
        name: &str,
        prepare: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        Self::start(shard, name, Some(prepare))
    }

    fn start(
        shard: Arc<Shard>,
        name: &str,
        prepare: Option<impl FnOnce() -> io::Result<()> + Send + 'static>,
    ) -> io::Result<Self> {
        let poller = Poller::new(&shard, prepare.is_some())?;
        shard.poller.set(poller).map_err(|_| io::ErrorKind::InvalidInput)?;
        let theirs = Arc::clone(&shard);
        let (prepared, wait) = mpsc::sync_channel(1);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            let _closer = CloseOnExit(&theirs);
            let result = prepare.map_or(Ok(()), |prepare| prepare());
            let is_ready = result.is_ok();
            // The other end waits.
            let _ = prepared.send(result);
            if let Some(poller) = theirs.poller.get().filter(|_| is_ready) {
                drive(&theirs, poller);
            }
        })?;
        let driver = Self { shard, thread: Some(thread) };
        // It says nothing only if `prepare` panicked.
        wait.recv().unwrap_or_else(|_| Err(io::Error::other("the driver thread ended before it began")))?;
        Ok(driver)
    }
}

impl Drop for DriverThread {
    fn drop(&mut self) {
        self.shard.close();
        if let Some(thread) = self.thread.take() {
            // A waker that owns the last handle runs on the driver thread itself, which ends when that returns.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

/// Closes the shard however the driver ends, even by a panic, so that no thread waits for it.
pub(crate) struct CloseOnExit<'a>(pub(crate) &'a Shard);

impl Drop for CloseOnExit<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn drive(shard: &Shard, poller: &Poller) {
    let mut wakers = Vec::new();
    while !shard.is_closed() {
        let Ok(events) = poller.outer.wait(None) else { return };
        if events.contains(NOTIFY) {
            shard.announcer.notify.drain();
        }
        if events.contains(HANDBACK) {
            poller.hand_back(shard.clock.now());
        }
        if !events.contains(READY) {
            continue;
        }
        poller.lead.lower();
        loop {
            let turned = shard.turn(&mut wakers);
            wake(&mut wakers);
            if !turned.more || shard.is_closed() {
                break;
            }
            shard.give_way();
        }
    }
}

impl Shard {
    /// Blocks this thread until `attempt` is ready; `None` when `deadline` passes first. If a
    /// [`DriverThread`] drives the shard, this thread drives it while it waits, unless another thread already
    /// does.
    pub fn wait<T>(
        &self,
        interest: Interest,
        deadline: Option<Instant>,
        mut attempt: impl FnMut(&mut Access<'_>) -> Poll<io::Result<T>>,
    ) -> Option<io::Result<T>> {
        ME.with(|me| {
            let Me { key, parker, waker } = &**me;
            loop {
                parker.notified.store(false, Ordering::SeqCst);
                if let Poll::Ready(result) = self.poll_as_leader(interest, *key, waker, &mut attempt) {
                    return Some(result);
                }
                while !parker.notified.load(Ordering::SeqCst) {
                    let now = self.clock.now();
                    if deadline.is_some_and(|deadline| deadline <= now) {
                        self.cancel(interest, *key);
                        return None;
                    }
                    let left = deadline.map(|deadline| deadline.since(now).into());
                    match self.poller.get().and_then(Poller::try_lead) {
                        Some(lead) => self.lead(lead, parker, left),
                        None => match left {
                            Some(left) => thread::park_timeout(left),
                            None => thread::park(),
                        },
                    }
                }
            }
        })
    }

    /// Drives the shard until this thread is notified or `left` has passed.
    fn lead(&self, mut lead: Lead<'_>, parker: &Parker, left: Option<std::time::Duration>) {
        let poller = lead.poller;
        let _leading = parker.leads(&poller.lead);
        let mut wakers = Vec::new();
        let until = left.map(|left| self.clock.now() + left.into());
        while !parker.notified.load(Ordering::SeqCst) {
            let left = until.map(|until| until.since(self.clock.now()));
            if left.is_some_and(Duration::is_zero) || self.is_closed() {
                return;
            }
            let Ok(events) = poller.ready.wait(left.map(Into::into)) else { return };
            if events.contains(LEAD) {
                poller.lead.lower();
            }
            let turned = self.turn(&mut wakers);
            wake(&mut wakers);
            lead.grace_from = turned.calm_at;
        }
    }
}

/// Wakes one thread in [`Shard::wait`], whether it leads or sleeps.
#[derive(Debug)]
struct Parker {
    thread: Thread,
    notified: AtomicBool,
    /// The signal on which the thread waits while it leads.
    leads: Mutex<Option<Arc<Signal>>>,
}

impl Parker {
    fn leads(&self, lead: &Arc<Signal>) -> Leading<'_> {
        *self.leads.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(lead));
        Leading(self)
    }
}

struct Leading<'a>(&'a Parker);

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        *self.0.leads.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.notified.store(true, Ordering::SeqCst);
        if thread::current().id() == self.thread.id() {
            return; // the leader's own turn brought its data
        }
        match &*self.leads.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(lead) => lead.raise(),
            None => self.thread.unpark(),
        }
    }
}

/// This thread as a waiter.
struct Me {
    key: WaitKey,
    parker: Arc<Parker>,
    waker: Waker,
}

thread_local! {
    static ME: LazyCell<Me> = LazyCell::new(|| {
        let parker = Arc::new(Parker {
            thread: thread::current(),
            notified: AtomicBool::new(false),
            leads: Mutex::new(None),
        });
        Me { key: WaitKey::unique(), waker: Waker::from(Arc::clone(&parker)), parker }
    });
}
