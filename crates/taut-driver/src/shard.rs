//! One stack, its device and its timer behind one lock, and what may be done with them: turn, access, poll.
//!
//! Each use ends in the same way: [`settle`](Shard::settle) hands packets out and wakes waiters under the
//! lock (`departures.rs`), then [`depart`](Shard::depart) sends what a slow device is to send, much of it with
//! the lock (`bulk.rs`). What arrives is in `arrivals.rs`, what other shards received for this one in
//! `handover.rs`, and how one waits in `polling.rs`.

mod arrivals;
mod bulk;
pub(crate) mod closed;
mod crowd;
mod departures;
pub(crate) mod handover;
mod memory;
mod placed;
mod polling;
mod reader_turn;
pub(crate) mod waiters;

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;

use taut_core::{BUFFER_BYTES, ConnId, Duration, Event, Instant, NetworkChange, NetworkError, State};
use taut_link::{LinkSpec, QdiscSpec};
use taut_replay::Taped;

use crate::below::host_queue::{HostQueue, LinkReport, QdiscEntry};
use crate::below::outbox::Outbox;
use crate::clock::Clock;
use crate::device::{Device, RxDevice};
use crate::lead::GRACE;
use crate::poller::Poller;
use crate::sync::{AtomicBool, AtomicUsize, Mutex, MutexGuard, Ordering, lock, try_lock, yield_now};
use crate::wake::announce::Announcer;
use closed::{CloseOnPanic, Closed};
use crowd::Crowd;
use handover::Inbox;
use memory::{OwnMemory, SharedMemory};
pub(crate) use placed::ReadInto;
use waiters::{Interest, WaitKey, Waiters, wake};

/// A thread or task that writes takes what has arrived when it has sent so much since that was last done: a
/// writer whose ACKs wait fills its queue, and stops. One that sends little would find little.
const SERVE_BYTES: usize = 32 << 10;

/// And at most so often, which is short compared with the time that packets travel.
const WRITER_SERVES_EVERY: Duration = Duration::from_micros(20);

/// The same for all others, while they keep the driver asleep. A reader takes packets anyway when it has read
/// everything; if it took them earlier, they would wait and fall out of the cache.
const READER_SERVES_EVERY: Duration = Duration::from_micros(250);

/// One stack with its device. Any thread may use it.
pub struct Shard {
    inner: Mutex<Inner>,
    pub(crate) clock: Clock,
    /// Tells a driver that there is something to do.
    pub(crate) announcer: Announcer,
    closed: Closed,
    /// Where packets wait for a device whose sends take long.
    outbox: Option<Arc<Outbox>>,
    /// Application threads that wait for the lock: the driver gives way to them.
    waiting: AtomicUsize,
    /// Several threads wait whose packets arrive by turns: none of them should lead.
    crowded: AtomicBool,
    /// What other shards received for this one.
    inbox: Inbox,
    /// All shards on the queues of this device, by index; empty when this is the only one.
    peers: OnceLock<Vec<Weak<Self>>>,
    /// What all of them hold.
    shared_memory: OnceLock<Arc<SharedMemory>>,
    /// Set when a [`DriverThread`](crate::DriverThread) drives.
    pub(crate) poller: OnceLock<Poller>,
    /// How long one that waits looks for packets again and again before it sleeps.
    pub(crate) busy_poll: Duration,
    /// Its end was an event.
    #[cfg(feature = "tracing")]
    ended: std::sync::Once,
}

struct Inner {
    stack: Taped,
    /// The way out for packets: the device, and the host queue in front of it.
    tx: HostQueue,
    rx: Box<dyn RxDevice>,
    /// The announcer watches for room.
    watches_room: bool,
    waiters: Waiters,
    crowd: Crowd,
    /// Lent to the device for each packet; [`BUFFER_BYTES`] between packets.
    buffer: Vec<u8>,
    /// What the timer is armed for. It may be earlier than the next deadline, never later.
    armed: Instant,
    /// When the device was last asked for packets.
    served: Instant,
    /// Bytes sent since then.
    sent_bytes: usize,
    /// Bytes of the packets that are about to [depart](Shard::depart), and whether they answer a super-packet.
    departing: usize,
    took_bulk: bool,
    turn: bulk::Turn,
    early_end: arrivals::EarlyEnd,
    /// The last packet was a super-packet.
    is_bulk: bool,
    /// It was short: a request or an answer.
    is_short: bool,
    looks: arrivals::Looks,
    reader_turn: reader_turn::ReaderTurn,
    /// The attempt that is under way has said that it [waits](Access::wait_after).
    waits_after: bool,
    /// When tickets in the outbox must be collected, because a connection waits for them.
    collect_at: Option<Instant>,
    /// How long they may wait for a turn or a writer to collect them.
    patience: Duration,
    /// This shard's part of what all shards hold.
    memory: OwnMemory,
}

/// The stack and the time, for the length of a call under the lock.
#[derive(Debug)]
pub struct Access<'a> {
    /// The stack. Calls that change it are noted, if it is recorded.
    pub stack: &'a mut Taped,
    /// The time at which the lock was had.
    pub now: Instant,
    waiters: &'a mut Waiters,
    wakers: &'a mut Vec<Waker>,
    waits_after: &'a mut bool,
    /// The memory of a reader; empty for all others.
    pub into: &'a mut [u8],
    /// So many of them are there.
    pub filled: usize,
}

impl Access<'_> {
    /// This attempt took all that there is. Its task is woken by what comes next even if the attempt is
    /// ready, and need not take the lock once more to wait. For attempts with [`WaitKey::POLL`].
    pub fn wait_after(&mut self) {
        *self.waits_after = true;
    }

    /// Wakes the waiters for `interest` when no event of the stack does, such as after a shutdown of reading.
    pub fn wake(&mut self, interest: Interest) {
        self.waiters.wake_one(interest, self.wakers);
    }
}

/// What a [turn](Shard::turn) left; the default for a shard that is closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Turned {
    /// The batch was full: there may be more.
    pub(crate) more: bool,
    /// It took packets from the device.
    pub(crate) received: bool,
    /// When the turn ended, if nothing is due before [`GRACE`] has passed.
    pub(crate) calm_at: Option<Instant>,
    /// Threads or tasks wait for something.
    pub(crate) others_wait: bool,
}

/// What ends a batch of input early, besides an answer that must leave.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// Nothing: the batch is taken whole.
    Batch,
    /// A small packet that brings what one waiter waits for. It has its data sooner, and the device is not
    /// asked once more for nothing. A super-packet ends no batch: more of them follow, and one ACK answers
    /// all.
    Met(Interest),
}

impl Until {
    fn is_met_by(self, event: &Event) -> bool {
        matches!(self, Self::Met(interest) if interest.is_met_by(event))
    }
}

impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shard").field("closed", &self.closed).finish_non_exhaustive()
    }
}

impl Shard {
    /// A shard of `stack`, a [`Stack`](taut_core::Stack) or one that is recorded, and `device`. Nothing
    /// happens until it is driven.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn new(stack: impl Into<Taped>, device: Device) -> io::Result<Self> {
        Self::with_link(stack, device, None)
    }

    /// [`new`](Self::new), with a queue in front of the device.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn with_link(stack: impl Into<Taped>, device: Device, link: Option<LinkSpec>) -> io::Result<Self> {
        let Device { caps, mut tx, mut rx } = device;
        let announcer = Announcer::new(&mut *tx, &mut *rx)?;
        let inbox = Inbox::new(announcer.inbox_event()?);
        let tx = HostQueue::new(tx, caps, link);
        let outbox = tx.outbox().cloned();
        let mut stack = stack.into();
        stack.set_link_completes_on_departure(tx.completes_on_departure());
        Ok(Self {
            inner: Mutex::new(Inner {
                stack,
                tx,
                rx,
                watches_room: false,
                waiters: Waiters::default(),
                crowd: Crowd::default(),
                buffer: vec![0; BUFFER_BYTES],
                armed: Instant::NEVER,
                served: Instant::ZERO,
                sent_bytes: 0,
                departing: 0,
                took_bulk: false,
                turn: bulk::Turn::default(),
                early_end: arrivals::EarlyEnd::default(),
                is_bulk: false,
                is_short: false,
                looks: arrivals::Looks::default(),
                reader_turn: reader_turn::ReaderTurn::default(),
                waits_after: false,
                collect_at: None,
                patience: departures::COLLECT_AFTER,
                memory: OwnMemory::default(),
            }),
            clock: Clock,
            announcer,
            outbox,
            closed: Closed::default(),
            waiting: AtomicUsize::new(0),
            crowded: AtomicBool::new(false),
            inbox,
            peers: OnceLock::new(),
            shared_memory: OnceLock::new(),
            poller: OnceLock::new(),
            busy_poll: Duration::ZERO,
            #[cfg(feature = "tracing")]
            ended: std::sync::Once::new(),
        })
    }

    /// A thread that waits, and a task that drives, look for packets so long before they sleep.
    #[must_use]
    pub const fn busy_poll(mut self, most: Duration) -> Self {
        self.busy_poll = most;
        self
    }

    /// Makes shards each other's peers: `shards[i]` has index i of `shards.len()` in
    /// [`Steering`](taut_core::Steering)'s terms. Call it once, before they are driven. `seed` must be
    /// random.
    pub fn set_peers(shards: &[Arc<Self>], seed: &[u8; 32]) {
        let count = u16::try_from(shards.len()).unwrap_or(u16::MAX);
        if count < 2 {
            return;
        }
        let memory = Arc::default();
        for (index, shard) in (0..count).zip(shards) {
            // Set once: a second call changes nothing.
            let _ = shard.shared_memory.set(Arc::clone(&memory));
            if shard.peers.set(shards.iter().map(Arc::downgrade).collect()).is_ok() {
                shard.lock().stack.set_steering(seed, index, count);
            }
        }
    }

    /// The stack's clock.
    #[must_use]
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// A report on the queue in front of the device, if there is one.
    #[must_use]
    pub fn link_report(&self) -> Option<LinkReport> {
        self.lock().tx.report()
    }

    /// The reason that the device gave when it last said that it will [never](crate::Sent::Never) take a
    /// packet. The counter `TautDeviceErrors` is the number of such packets.
    #[must_use]
    pub fn last_device_error(&self) -> Option<io::Error> {
        // A system error keeps its number, which says more than a text.
        let copy = |error: &io::Error| match error.raw_os_error() {
            Some(number) => io::Error::from_raw_os_error(number),
            None => io::Error::new(error.kind(), error.to_string()),
        };
        self.lock().tx.last_error(copy)
    }

    /// The queue disciplines in front of the device, the root first; none if packets go straight to the
    /// device.
    #[must_use]
    pub fn qdiscs(&self) -> Vec<QdiscEntry> {
        self.lock().tx.qdiscs()
    }

    /// Puts a queue discipline in front of the device, in place of the one that is there; with `None`, that
    /// of the link it was made with, if any. What waits stays in order, and nothing is lost. While the root
    /// is `fq`, which holds packets until their departure time, the stack does not pace by itself.
    pub fn set_qdisc(&self, spec: Option<&QdiscSpec>) {
        self.locked(|inner, wakers| {
            let now = self.clock.now();
            let Inner { stack, tx, .. } = &mut *inner;
            tx.set_now(now);
            // Any number will do that is another each time.
            tx.set_qdisc(spec, now.as_nanos());
            stack.set_link_paces(tx.paces());
            stack.set_link_completes_on_departure(tx.completes_on_departure());
            self.settle(inner, now, wakers);
        });
        self.end_grace();
    }

    /// Ends it: its driver returns, every waiter gets the reason, and every later [`poll`](Self::poll) fails.
    pub fn close(&self) {
        let mut wakers = Vec::new();
        let recorded = {
            let mut inner = self.lock();
            self.closed.shut_down();
            inner.waiters.wake_all(&mut wakers);
            inner.stack.stop_recording()
        };
        self.announcer.notify();
        wake(&mut wakers);
        // Without the lock: it waits for the disk.
        drop(recorded);
        #[cfg(feature = "tracing")]
        self.ended.call_once(|| {
            if let Some(why) = self.closed() {
                tracing::info!(%why, "stack ended");
            }
        });
    }

    /// A thread panicked under the lock.
    pub(crate) fn close_after_panic(&self) {
        self.closed.panicked();
        self.close();
    }

    /// Whether it has ended: [`close`](Self::close) was called, the device is gone, or the driver is.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.is_set()
    }

    /// Why it has ended, if it has.
    #[must_use]
    pub fn closed(&self) -> Option<io::Error> {
        self.closed.error()
    }

    /// The device is gone, and with it everything on its other queues. The drivers notice this and
    /// [`close`](Self::close) their shards, so that every waiter gets the reason.
    fn end(&self, why: io::Error) {
        let why = Arc::new(why);
        let peers = self.peers.get().into_iter().flatten().filter_map(Weak::upgrade);
        for peer in peers {
            if peer.closed.device_gone(&why) {
                peer.announcer.notify();
            }
        }
        self.closed.device_gone(&why);
        self.announcer.notify();
    }

    /// Runs `use_stack` under the lock, then transmits what that made ready, on this thread.
    pub fn access<R>(&self, use_stack: impl FnOnce(&mut Access<'_>) -> R) -> R {
        self.locked(|inner, wakers| {
            let now = self.begin(inner, wakers, None);
            let result = self.used(inner, now, wakers, &mut ReadInto::default(), use_stack);
            self.settle(inner, self.clock.now(), wakers);
            result
        })
    }

    /// Changes addresses, routes or the MTU of the stack and the link, which may check an address first.
    ///
    /// # Errors
    /// See [`NetworkError`]; after an error nothing has changed.
    pub fn change_network(&self, change: NetworkChange) -> Result<(), NetworkError> {
        self.locked(|inner, wakers| {
            let now = self.begin(inner, wakers, None);
            let is_now = inner.rx.change_network(change);
            let result = if is_now { inner.stack.change_network(now, change) } else { Ok(()) };
            inner.waiters.wake_one(Interest::Network, wakers);
            self.settle(inner, self.clock.now(), wakers);
            result
        })
    }

    /// The beginning of a use of the stack, by a thread or task that waits for `interest` or does not wait.
    /// Collects old tickets, and takes a batch of input if that is this thread's part.
    fn begin(&self, inner: &mut Inner, wakers: &mut Vec<Waker>, interest: Option<Interest>) -> Instant {
        let now = self.clock.now();
        if self.outbox.as_ref().is_some_and(|outbox| outbox.is_ripe(now)) {
            self.collect_for_writer(inner);
        }
        let wrote_much = matches!(interest, Some(Interest::Write(_) | Interest::SendTo(_)))
            && inner.sent_bytes >= SERVE_BYTES;
        let (serves, every) = match self.poller.get() {
            // A writer keeps the driver thread asleep, and does its work.
            Some(poller) if wrote_much => {
                (poller.write_serves(now, inner.armed > now + GRACE), WRITER_SERVES_EVERY)
            }
            Some(poller) => (poller.extend_grace(now), READER_SERVES_EVERY),
            None => (wrote_much, WRITER_SERVES_EVERY),
        };
        if serves && now.since(inner.served) > every {
            self.take_batch(inner, now, Until::Batch, &mut ReadInto::default(), wakers);
        }
        now
    }

    /// Lets `use_stack` have the stack.
    fn used<R>(
        &self,
        inner: &mut Inner,
        now: Instant,
        wakers: &mut Vec<Waker>,
        place: &mut ReadInto<'_>,
        use_stack: impl FnOnce(&mut Access<'_>) -> R,
    ) -> R {
        let Inner { stack, waiters, waits_after, .. } = inner;
        *waits_after = false;
        let (into, filled) = place.parts();
        use_stack(&mut Access { stack, now, waiters, wakers, waits_after, into, filled })
    }

    /// One turn: a batch of input, due timers, output, events. The wakers are for the caller to wake, without
    /// the lock.
    pub(crate) fn turn(&self, until: Until, place: &mut ReadInto<'_>, wakers: &mut Vec<Waker>) -> Turned {
        let mut turned = self.locked_into(wakers, |inner, wakers| {
            if self.is_closed() {
                return Turned::default();
            }
            // Whatever woke the driver, the device may have room again.
            inner.tx.retry();
            let begun = self.clock.now();
            let taken = self.take_batch(inner, begun, until, place, wakers);
            // After the bell was silenced, so that no news is missed.
            self.note_news();
            let now = self.clock.now();
            self.collect_in_turn(inner, until, now);
            self.settle(inner, now, wakers);
            inner.crowd.note(wakers);
            inner.reader_turn.note_driver();
            inner.reader_turn.note_woken(wakers.len());
            self.note_crowd(inner);
            let is_calm = inner.armed > now + GRACE && !inner.tx.is_full();
            Turned {
                more: taken.more,
                received: taken.packets > 0,
                calm_at: is_calm.then_some(now),
                others_wait: inner.waiters.count() > 0,
            }
        });
        if self.outbox.as_ref().is_some_and(|outbox| outbox.is_full()) {
            turned.calm_at = None;
        }
        turned
    }

    /// Turns until there is no more input.
    pub(crate) fn turn_while_more(&self, wakers: &mut Vec<Waker>) {
        loop {
            let turned = self.turn(Until::Batch, &mut ReadInto::default(), wakers);
            wake(wakers);
            if !turned.more || self.is_closed() {
                return;
            }
            self.give_way();
        }
    }

    /// A use of the shard: under the lock by `use_inner`, which [settles](Self::settle) at its end; then,
    /// packets depart, and waiters are woken without the lock.
    fn locked<R>(&self, use_inner: impl FnOnce(&mut Inner, &mut Vec<Waker>) -> R) -> R {
        let mut wakers = Vec::new();
        let result = self.locked_into(&mut wakers, use_inner);
        wake(&mut wakers);
        result
    }

    /// The same for a caller that wakes them.
    fn locked_into<R>(
        &self,
        wakers: &mut Vec<Waker>,
        use_inner: impl FnOnce(&mut Inner, &mut Vec<Waker>) -> R,
    ) -> R {
        let on_panic = CloseOnPanic(self);
        let mut inner = self.lock();
        let result = use_inner(&mut inner, wakers);
        self.depart(inner, wakers);
        std::mem::forget(on_panic);
        result
    }

    fn note_crowd(&self, inner: &Inner) {
        let crowded = inner.crowd.is_crowd() && inner.waiters.count() > 1;
        if self.crowded.load(Ordering::Relaxed) != crowded {
            self.crowded.store(crowded, Ordering::Relaxed);
        }
    }

    /// Whether the driver thread should serve, rather than one of the threads that wait.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded.load(Ordering::Relaxed)
    }

    /// The driver is needed now, even if a leader is about to come back.
    pub(crate) fn end_grace(&self) {
        if let Some(poller) = self.poller.get() {
            poller.end_grace();
        }
    }

    /// A panic under the lock closes the shard ([`CloseOnPanic`]): what it leaves behind is only ever torn
    /// down.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        try_lock(&self.inner).unwrap_or_else(|| {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let inner = lock(&self.inner);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            inner
        })
    }

    /// Lets application threads that wait for the lock have it before the next turn: the lock itself is not
    /// fair.
    pub(crate) fn give_way(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            yield_now();
        }
    }
}

impl Inner {
    fn is_connecting(&self, conn: ConnId) -> bool {
        self.stack.conn(conn).is_some_and(|conn| conn.state() == State::SynSent)
    }

    /// One waits for `interest`. Returns the waker that it left earlier.
    fn wait(&mut self, interest: Interest, key: WaitKey, waker: &Waker) -> Option<Waker> {
        self.reader_turn.note_wait();
        // Nothing more will be written behind what autocorking holds back.
        self.collect_if_awaited();
        self.waiters.add(interest, key, waker)
    }

    /// Whether one that waits for `interest` should look at the device first.
    fn may_look(&mut self, interest: Interest) -> bool {
        let may_find = match interest {
            Interest::Read(_) | Interest::Accept(_) | Interest::RecvFrom(_) => true,
            // The answer to a SYN is often there when the SYN has been sent. A look in vain costs little
            // beside the rest of a connection, and says nothing about the next one: another thread may still
            // be sending this SYN.
            Interest::Write(conn) if self.is_connecting(conn) => return true,
            // ACKs.
            Interest::Write(_) | Interest::SendTo(_) => self.sent_bytes >= SERVE_BYTES,
            Interest::Flow(_) | Interest::Network | Interest::Idle | Interest::End => false,
        };
        may_find && self.looks.may_look()
    }
}
