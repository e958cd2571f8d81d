//! Driving a shard from a thread of its own, and from threads that have to wait anyway.
//!
//! ```text
//!   DriverThread ──waits on──▶ outer { notify, check, ready }     the leader ──waits on──▶ ready
//!                                                       │
//!                                                       └─▶ ready { device, timer, inbox, lead }
//! ```
//!
//! A reader that finds no data looks at the device once. If its data is not there either, it becomes the
//! leader, if there is none, and drives the shard until its data has arrived: a reply thus wakes only one
//! thread, the one that waits for it. In a crowd (`crowd.rs`) nobody leads. `lead.rs` says who leads and when
//! the driver thread takes over; masking `ready` in `outer` lets it sleep meanwhile.

use std::cell::LazyCell;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Wake, Waker};
use std::thread::{self, Thread};

use taut_core::{Duration, Instant};

use crate::driver_thread::DriverThread;
use crate::lead::{Lead, Leave};
use crate::poller::{CHECK, Descriptors, LEAD, NOTIFY, Poller, READY};
use crate::shard::closed::CloseOnExit;
use crate::shard::waiters::{Interest, WaitKey, wake};
use crate::shard::{Access, ReadInto, Shard, Until};
use crate::wake::bell::Bell;

/// Leadership; given back when dropped.
struct Leading<'a> {
    poller: &'a Poller,
    parker: &'a Parker,
    leave: Leave,
}

impl<'a> Leading<'a> {
    /// Makes this thread the leader, if there is none.
    fn new(poller: &'a Poller, parker: &'a Parker, now: Instant) -> Option<Self> {
        poller.try_lead(now).then(|| {
            parker.lead_on(Some(Arc::clone(&poller.sleeper.signal)));
            Self { poller, parker, leave: Leave::ToDriver }
        })
    }
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        self.parker.lead_on(None);
        self.poller.leave(self.leave);
    }
}

impl DriverThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread or no descriptor left, or [`io::ErrorKind::InvalidInput`] when the shard already has a
    /// driver.
    pub fn spawn(shard: Arc<Shard>, name: &str) -> io::Result<Self> {
        Self::spawn_with(shard, name, None::<fn() -> io::Result<()>>)
    }

    /// [`spawn`](Self::spawn) for a thread that first does `prepare`, which gives it a priority. No other one
    /// drives the shard in its place, as that one would not have the priority.
    ///
    /// # Errors
    /// Those of `spawn`, or that of `prepare`; then the shard is closed.
    pub fn spawn_prepared(
        shard: Arc<Shard>,
        name: &str,
        prepare: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        Self::spawn_with(shard, name, Some(prepare))
    }

    fn spawn_with(
        shard: Arc<Shard>,
        name: &str,
        prepare: Option<impl FnOnce() -> io::Result<()> + Send + 'static>,
    ) -> io::Result<Self> {
        let poller = Lead::new(Descriptors::new(&shard.announcer)?, prepare.is_some());
        shard.poller.set(poller).map_err(|_| io::ErrorKind::InvalidInput)?;
        let prepare = move |shard: &Shard| {
            let closer = CloseOnExit(shard);
            prepare.map_or(Ok(()), |prepare| prepare())?;
            std::mem::forget(closer);
            Ok(())
        };
        Self::start(shard, name, prepare, |shard, ()| {
            if let Some(poller) = shard.poller.get() {
                drive(shard, poller);
            }
        })
    }
}

fn drive(shard: &Shard, poller: &Poller) {
    let mut wakers = Vec::new();
    while !shard.is_closed() {
        let Ok(events) = poller.sleeper.outer.wait(None) else { return };
        if events.contains(NOTIFY) {
            shard.announcer.notify.drain();
        }
        if events.contains(CHECK) {
            poller.hand_back(shard.clock.now());
        }
        if !events.contains(READY) {
            continue;
        }
        // A leader that has left does not need it any more.
        let _ = poller.sleeper.signal.silence();
        shard.turn_while_more(&mut wakers);
    }
}

impl Shard {
    /// [`wait`](Self::wait) with memory for the bytes that are read. If a [`DriverThread`] drives the shard,
    /// this thread drives it while it waits, unless another thread already does.
    pub(crate) fn wait_place<T>(
        &self,
        interest: Interest,
        deadline: Option<Instant>,
        place: &mut ReadInto<'_>,
        mut attempt: impl FnMut(&mut Access<'_>) -> Poll<io::Result<T>>,
    ) -> Option<io::Result<T>> {
        ME.with(|me| {
            let Me { key, parker, waker } = &**me;
            loop {
                parker.notified.store(false, Ordering::SeqCst);
                if let Poll::Ready(result) = self.poll_as_leader(interest, (*key, waker), place, &mut attempt)
                {
                    return Some(result);
                }
                let mut may_lead = true;
                while !parker.notified.load(Ordering::SeqCst) && place.is_empty() {
                    let now = self.clock.now();
                    if deadline.is_some_and(|deadline| deadline <= now) {
                        self.cancel(interest, *key);
                        return None;
                    }
                    let left = deadline.map(|deadline| deadline.since(now));
                    if self.is_crowded() {
                        may_lead = false;
                        self.end_grace();
                    }
                    match self
                        .poller
                        .get()
                        .filter(|_| may_lead)
                        .and_then(|poller| Leading::new(poller, parker, now))
                    {
                        Some(leading) => may_lead = self.lead(leading, interest, waker, left, place),
                        None => match left {
                            Some(left) => thread::park_timeout(left.into()),
                            None => thread::park(),
                        },
                    }
                }
            }
        })
    }

    /// Drives the shard until this thread is notified or `left` has passed. Returns false if it gave the lead
    /// up, because the traffic is that of other threads.
    fn lead(
        &self,
        mut leading: Leading<'_>,
        interest: Interest,
        own: &Waker,
        left: Option<Duration>,
        place: &mut ReadInto<'_>,
    ) -> bool {
        let Leading { poller, parker, .. } = leading;
        let Descriptors { ready, signal, .. } = &poller.sleeper;
        let mut wakers = Vec::new();
        let until = left.map(|left| self.clock.now() + left);
        while !parker.notified.load(Ordering::SeqCst) {
            let left = until.map(|until| until.since(self.clock.now()));
            if left.is_some_and(Duration::is_zero) || self.is_closed() {
                break;
            }
            let look =
                || ready.wait(Some(std::time::Duration::ZERO)).ok().filter(|events| !events.is_empty());
            let found = spin(self.busy_poll, left, || self.clock.now(), look);
            let Ok(events) = found.map_or_else(|| ready.wait(left.map(Into::into)), Ok) else { break };
            if events.contains(LEAD) {
                let _ = signal.silence();
            }
            let turned = self.turn(Until::Met(interest), place, &mut wakers);
            leading.leave = match turned.calm_at {
                _ if self.is_crowded() => Leave::ToDriver,
                Some(now) => Leave::InGrace { now, others_wait: turned.others_wait },
                None => Leave::ToDriver,
            };
            let is_mine = wakers.iter().any(|waker| waker.will_wake(own));
            let is_others =
                !wakers.is_empty() || (turned.received && poller.is_busy_writer(self.clock.now()));
            if !is_mine && is_others {
                // Without the lead, this thread no longer slows down those that it wakes.
                drop(leading);
                wake(&mut wakers);
                return false;
            }
            wake(&mut wakers);
        }
        true
    }
}

/// Looks again and again until something is found, the time is over (SO_BUSY_POLL), or none is left of the
/// caller's: a thread that sleeps is woken tens of microseconds after its packet has come.
fn spin<T>(
    most: Duration,
    left: Option<Duration>,
    now: impl Fn() -> Instant,
    mut look: impl FnMut() -> Option<T>,
) -> Option<T> {
    let most = left.map_or(most, |left| left.min(most));
    if most.is_zero() {
        return None;
    }
    let until = now() + most;
    loop {
        let found = look();
        if found.is_some() || now() >= until {
            return found;
        }
    }
}

/// Wakes one thread in [`Shard::wait`], whether it leads or sleeps.
#[derive(Debug)]
struct Parker {
    thread: Thread,
    notified: AtomicBool,
    /// The signal on which the thread waits while it leads.
    leads: Mutex<Option<Arc<Bell>>>,
}

impl Parker {
    /// The thread leads, and waits on this signal, or it no longer does.
    fn lead_on(&self, signal: Option<Arc<Bell>>) {
        *self.leads.lock().unwrap_or_else(PoisonError::into_inner) = signal;
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.notified.store(true, Ordering::SeqCst);
        if thread::current().id() == self.thread.id() {
            return; // the leader's own turn brought its data
        }
        // Woken without the lock: a thread that begins or ends to lead takes it, and may run before this one
        // goes on.
        let lead = self.leads.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match lead {
            Some(lead) => lead.ring(),
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn dev_21_a_spin_ends_with_what_it_finds_or_with_its_time() {
        // Each look takes 10 µs.
        let looks_with = |most: u64, left: Option<u64>, found_at: Option<u32>| {
            let (at, count) = (Cell::new(0), Cell::new(0));
            let now = || Instant::from_nanos(at.get());
            let found = spin(Duration::from_micros(most), left.map(Duration::from_micros), now, || {
                at.set(at.get() + 10_000);
                count.set(count.get() + 1);
                (Some(count.get()) == found_at).then_some(())
            });
            (found.is_some(), count.get())
        };
        let looks = |most, found_at| looks_with(most, None, found_at);
        assert_eq!(looks(0, Some(1)), (false, 0), "off");
        assert_eq!(looks(50, Some(3)), (true, 3));
        assert_eq!(looks(50, Some(5)), (true, 5), "what the last look finds counts");
        assert_eq!(looks(50, Some(6)), (false, 5));
        assert_eq!(looks(50, None), (false, 5));
        assert_eq!(looks_with(50, Some(20), None), (false, 2), "the caller's time is over");
        assert_eq!(looks_with(50, Some(90), None), (false, 5));
    }
}
