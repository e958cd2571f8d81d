//! One stack, its device and its timer behind one lock, and what may be done with them: turn, access, poll.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};
use std::task::{Poll, Waker};

use taut_core::{BUFFER_BYTES, Duration, Fate, Frame, Instant, RxPacket, Stack, Steering, Transmit};
use taut_link::{LinkSpec, QdiscSpec};

use crate::announce::Announcer;
use crate::clock::Clock;
use crate::closed::Closed;
use crate::device::{Device, Received, RxDevice, Sent, TxDevice};
use crate::handover::Inbox;
use crate::host_queue::{HostQueue, LinkReport, QdiscEntry};
use crate::losses::Losses;
use crate::thread::{GRACE, Poller};
use crate::waiters::{Interest, WaitKey, Waiters};

/// Most packets taken from the device before the stack may send and others may have the lock. Sixteen of 64 KB
/// still lie in a core's cache when the application reads them.
const BATCH_PACKETS: usize = 16;

/// How often a writer that keeps the driver asleep serves the device. Long enough that an exchange of small messages
/// never checks the device without result, and short compared with the time that packets travel.
const WRITER_SERVES_EVERY: Duration = Duration::from_micros(20);

/// The same for all others. A reader takes packets anyway when it has read everything; if it took them earlier, they
/// would wait and fall out of the cache.
const READER_SERVES_EVERY: Duration = Duration::from_micros(250);

/// One stack with its device. Any thread may use it.
pub struct Shard {
    inner: Mutex<Inner>,
    pub(crate) clock: Clock,
    /// Tells a driver that there is something to do.
    pub(crate) announcer: Announcer,
    closed: Closed,
    /// Application threads that wait for the lock: the driver gives way to them.
    waiting: AtomicUsize,
    /// What other shards received for this one.
    inbox: Inbox,
    /// All shards on the queues of this device, by index; empty when this is the only one.
    peers: OnceLock<Vec<Weak<Self>>>,
    /// Set when a [`DriverThread`](crate::DriverThread) drives.
    pub(crate) poller: OnceLock<Poller>,
}

struct Inner {
    stack: Stack,
    /// The way out for packets: the device, and the host queue in front of it.
    tx: HostQueue,
    rx: Box<dyn RxDevice>,
    /// The device honours departure times by itself.
    device_paces: bool,
    /// The announcer watches for room.
    watches_room: bool,
    waiters: Waiters,
    /// Lent to the device for each packet; [`BUFFER_BYTES`] between packets.
    buffer: Vec<u8>,
    /// What the timer is armed for. It may be earlier than the next deadline, never later.
    armed: Instant,
    /// When the device was last asked for packets.
    served: Instant,
}

/// The stack and the time, for the length of a call under the lock.
#[derive(Debug)]
pub struct Access<'a> {
    /// The stack.
    pub stack: &'a mut Stack,
    /// The time at which the lock was had.
    pub now: Instant,
    waiters: &'a mut Waiters,
    wakers: &'a mut Vec<Waker>,
}

impl Access<'_> {
    /// Wakes the waiters for `interest` when no event of the stack does, such as after a shutdown of reading.
    pub fn wake(&mut self, interest: Interest) {
        self.waiters.wake_one(interest, self.wakers);
    }
}

/// What a [turn](Shard::turn) left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turned {
    /// The batch was full: there may be more.
    pub(crate) more: bool,
    /// When the turn ended, if no caller waits and nothing is due before [`GRACE`] has passed.
    pub(crate) calm_at: Option<Instant>,
}

impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shard").field("closed", &self.closed).finish_non_exhaustive()
    }
}

impl Shard {
    /// A shard of `stack` and `device`. Nothing happens until it is driven.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn new(stack: Stack, device: Device) -> io::Result<Self> {
        Self::with_link(stack, device, None)
    }

    /// [`new`](Self::new), with a queue in front of the device.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn with_link(stack: Stack, device: Device, link: Option<LinkSpec>) -> io::Result<Self> {
        let Device { caps, mut tx, mut rx } = device;
        let announcer = Announcer::new(&mut *tx, &mut *rx)?;
        let inbox = Inbox::new(announcer.inbox_event()?);
        Ok(Self {
            inner: Mutex::new(Inner {
                stack,
                tx: HostQueue::new(tx, link),
                rx,
                device_paces: caps.paces,
                watches_room: false,
                waiters: Waiters::default(),
                buffer: vec![0; BUFFER_BYTES],
                armed: Instant::NEVER,
                served: Instant::ZERO,
            }),
            clock: Clock,
            announcer,
            closed: Closed::default(),
            waiting: AtomicUsize::new(0),
            inbox,
            peers: OnceLock::new(),
            poller: OnceLock::new(),
        })
    }

    /// Makes shards each other's peers: `shards[i]` has index i of `shards.len()` in [`Steering`]'s terms.
    /// Call it once, before they are driven. `seed` must be random.
    pub fn set_peers(shards: &[Arc<Self>], seed: &[u8; 32]) {
        let count = u16::try_from(shards.len()).unwrap_or(u16::MAX);
        if count < 2 {
            return;
        }
        for (index, shard) in (0..count).zip(shards) {
            // Set once: a second call changes nothing.
            if shard.peers.set(shards.iter().map(Arc::downgrade).collect()).is_ok() {
                shard.lock().stack.set_steering(Steering::new(seed, index, count));
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

    /// The reason that the device gave when it last said that it will [never](Sent::Never) take a packet. The counter
    /// `TautDeviceErrors` is the number of such packets.
    #[must_use]
    pub fn last_device_error(&self) -> Option<io::Error> {
        // A system error keeps its number, which says more than a text.
        let copy = |error: &io::Error| match error.raw_os_error() {
            Some(number) => io::Error::from_raw_os_error(number),
            None => io::Error::new(error.kind(), error.to_string()),
        };
        self.lock().tx.last_error().map(copy)
    }

    /// The queue disciplines in front of the device, the root first; none if packets go straight to the device.
    #[must_use]
    pub fn qdiscs(&self) -> Vec<QdiscEntry> {
        self.lock().tx.qdiscs()
    }

    /// Puts a queue discipline in front of the device, in place of the one that is there; with `None`, that
    /// of the link it was made with, if any. What waits stays in order, and nothing is lost. While the root
    /// is `fq`, which holds packets until their departure time, the stack does not pace by itself.
    pub fn set_qdisc(&self, spec: Option<&QdiscSpec>) {
        let mut wakers = Vec::new();
        let mut inner = self.lock();
        let now = self.clock.now();
        let Inner { stack, tx, device_paces, .. } = &mut *inner;
        tx.set_now(now);
        // Any number will do that is another each time.
        tx.set_qdisc(spec, now.as_nanos());
        stack.set_link_paces(*device_paces || spec.is_some_and(QdiscSpec::paces));
        self.settle(&mut inner, now, &mut wakers);
        drop(inner);
        self.end_grace();
        wake(&mut wakers);
    }

    /// Ends it: its driver returns, every waiter gets the reason, and every later [`poll`](Self::poll) fails.
    pub fn close(&self) {
        let mut wakers = Vec::new();
        {
            let mut inner = self.lock();
            self.closed.shut_down();
            inner.waiters.wake_all(&mut wakers);
        }
        self.announcer.notify();
        wake(&mut wakers);
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
        let mut wakers = Vec::new();
        let mut inner = self.lock();
        let result = self.access_locked(&mut inner, &mut wakers, READER_SERVES_EVERY, use_stack);
        drop(inner);
        wake(&mut wakers);
        result
    }

    /// Like [`access`](Self::access); when `attempt` is pending, `waker` is called once the event of
    /// `interest` may have happened.
    ///
    /// # Errors
    /// Those of `attempt`, or why the shard is [closed](Self::closed).
    pub fn poll<T>(
        &self,
        interest: Interest,
        key: WaitKey,
        waker: &Waker,
        attempt: impl FnOnce(&mut Access<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let result = self.poll_as_leader(interest, key, waker, attempt);
        if result.is_pending() {
            self.end_grace();
        }
        result
    }

    /// [`poll`](Self::poll) for a thread that, if the attempt is pending, drives the shard or makes sure that another
    /// thread does.
    pub(crate) fn poll_as_leader<T>(
        &self,
        interest: Interest,
        key: WaitKey,
        waker: &Waker,
        attempt: impl FnOnce(&mut Access<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let mut wakers = Vec::new();
        let mut replaced = None;
        let mut inner = self.lock();
        if let Some(error) = self.closed() {
            return Poll::Ready(Err(error));
        }
        let serve_every = match interest {
            Interest::Write(_) => WRITER_SERVES_EVERY,
            _ => READER_SERVES_EVERY,
        };
        let result = self.access_locked(&mut inner, &mut wakers, serve_every, |access| {
            let result = attempt(access);
            if result.is_pending() {
                replaced = access.waiters.add(interest, key, waker);
            }
            result
        });
        drop(inner);
        drop(replaced);
        wake(&mut wakers);
        result
    }

    /// [`poll`](Self::poll) for callers that will not wait.
    ///
    /// # Errors
    /// Those of `attempt`, or why the shard is [closed](Self::closed).
    pub fn attempt<T>(
        &self,
        attempt: impl FnOnce(&mut Access<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Some(error) = self.closed() {
            return Poll::Ready(Err(error));
        }
        self.access(attempt)
    }

    /// Removes the waker that a pending [`poll`](Self::poll) left.
    pub fn cancel(&self, interest: Interest, key: WaitKey) {
        let removed = self.lock().waiters.remove(interest, key);
        drop(removed);
    }

    fn access_locked<R>(
        &self,
        inner: &mut Inner,
        wakers: &mut Vec<Waker>,
        serve_every: Duration,
        use_stack: impl FnOnce(&mut Access<'_>) -> R,
    ) -> R {
        let now = self.clock.now();
        // A thread that keeps the driver asleep does the driver's work.
        if self.poller.get().is_some_and(|poller| poller.extend_grace(now))
            && now.since(inner.served) > serve_every
        {
            self.take_batch(inner, now);
        }
        let Inner { stack, waiters, .. } = &mut *inner;
        let result = use_stack(&mut Access { stack, now, waiters, wakers });
        self.settle(inner, now, wakers);
        result
    }

    /// One turn: a batch of input, due timers, output, events. The wakers are for the caller to wake, without the
    /// lock.
    pub(crate) fn turn(&self, wakers: &mut Vec<Waker>) -> Turned {
        let mut inner = self.lock_as_driver();
        if self.is_closed() {
            return Turned { more: false, calm_at: None };
        }
        // Whatever woke the driver, the device may have room again.
        inner.tx.retry();
        let more = self.take_batch(&mut inner, self.clock.now());
        let now = self.clock.now();
        self.settle(&mut inner, now, wakers);
        let calm = inner.armed > now + GRACE && !inner.tx.is_full() && !inner.waiters.any();
        Turned { more, calm_at: calm.then_some(now) }
    }

    /// Takes a batch of packets from the device, no longer than the stack has an answer to wait for. Whether
    /// there may be more.
    fn take_batch(&self, inner: &mut Inner, now: Instant) -> bool {
        inner.served = now;
        self.take_handed(inner);
        for _ in 0..BATCH_PACKETS {
            if !self.receive(inner) && !self.look_again(inner) {
                return false;
            }
            if inner.stack.must_answer() {
                break;
            }
        }
        true
    }

    /// Takes what other shards received for this one.
    fn take_handed(&self, inner: &mut Inner) {
        for handed in self.inbox.take() {
            let frame = Frame::Slice(&handed.bytes);
            let packet = RxPacket { frame, checksum: handed.checksum, gso_size: handed.gso_size };
            inner.stack.handle_packet(self.clock.now(), packet);
        }
    }

    /// Gives a packet to the shard that owns it. False if that is this shard.
    fn hand_over(&self, stack: &mut Stack, buffer: &[u8], received: &Received) -> bool {
        let Some(peers) = self.peers.get() else { return false };
        let packet = buffer.get(received.range.clone()).unwrap_or_default();
        let Some(owner) = stack.owner_elsewhere(packet) else { return false };
        let peer = peers.get(owner).and_then(Weak::upgrade);
        if peer.as_ref().is_some_and(|peer| peer.inbox.put(packet, received)) {
            // No other event wakes it.
            peer.iter().for_each(|peer| peer.end_grace());
        } else {
            stack.note_steered_lost();
        }
        true
    }

    /// A device that rings a bell may have done so just before it was silenced.
    fn look_again(&self, inner: &mut Inner) -> bool {
        self.announcer.silence() && self.receive(inner)
    }

    /// Takes one packet from the device. False when there was none.
    fn receive(&self, inner: &mut Inner) -> bool {
        let Inner { stack, rx, buffer, .. } = inner;
        if self.is_closed() {
            return false;
        }
        let received = match rx.recv(buffer) {
            Ok(Some(received)) => received,
            Ok(None) => return false,
            Err(why) => {
                self.end(why);
                return false;
            }
        };
        if self.hand_over(stack, buffer, &received) {
            return true;
        }
        let frame = Frame::Lend { buffer: &mut *buffer, range: received.range };
        let packet = RxPacket { frame, checksum: received.checksum, gso_size: received.gso_size };
        stack.handle_packet(self.clock.now(), packet);
        if buffer.len() < BUFFER_BYTES {
            // The stack has kept the buffer and had none to spare.
            *buffer = vec![0; BUFFER_BYTES];
        }
        true
    }

    /// Follows every use of the stack: handles due timers, output and events, and arms the timer for the next
    /// deadline.
    fn settle(&self, inner: &mut Inner, now: Instant, wakers: &mut Vec<Waker>) {
        if inner.stack.poll_timeout().is_some_and(|(at, _)| at <= now) {
            inner.stack.handle_timeout(now);
        }
        self.transmit(inner);
        while let Some(event) = inner.stack.poll_event() {
            inner.waiters.wake(event, wakers);
        }
        self.arm(inner, now);
    }

    /// Gives the device the packets that the stack has and that the queue in front releases, and the stack
    /// its tickets.
    fn transmit(&self, inner: &mut Inner) {
        loop {
            self.send_batch(inner);
            let Inner { stack, tx, .. } = inner;
            let (moved, now) = (tx.release(), self.clock.now());
            tx.set_now(now);
            let mut any_done = false;
            while let Some(ticket) = tx.poll_done() {
                stack.handle_tx(now, ticket, Fate::Left);
                any_done = true;
            }
            // Packets that left may have made room for more of their connections.
            if !moved && !any_done {
                break;
            }
        }
        let Losses { drops, errors } = inner.tx.take_losses();
        inner.stack.note_device_losses(drops, errors);
        self.watch_room(inner);
    }

    /// Sends what the stack has, as long as there is room.
    fn send_batch(&self, inner: &mut Inner) {
        let Inner { stack, tx, .. } = inner;
        loop {
            let now = self.clock.now();
            tx.set_now(now);
            if !tx.has_room() {
                return;
            }
            let Some(Transmit { packet, ticket }) = stack.poll_transmit(now) else { return };
            match tx.send(&packet, ticket) {
                // A packet that the device will never take has left, too: `losses.rs` says why, and counts it.
                Sent::Left(ticket) | Sent::Never(ticket, _) => stack.handle_tx(now, ticket, Fate::Left),
                Sent::Kept => {}
                Sent::Full(ticket) => stack.handle_tx(now, ticket, Fate::Refused),
                Sent::Dropped(ticket) => stack.handle_tx(now, ticket, Fate::Dropped),
            }
            while let Some(conn) = tx.poll_congested() {
                stack.handle_tx_congestion(now, conn);
            }
        }
    }

    /// Makes sure that a device without room is asked again when it has room.
    fn watch_room(&self, inner: &mut Inner) {
        let watch = inner.tx.is_full();
        if watch == inner.watches_room {
            return;
        }
        inner.watches_room = watch;
        self.announcer.watch_room(watch);
        if watch {
            self.end_grace();
        }
    }

    /// Moves the timer, if the next deadline is earlier than what it is armed for or that has passed. A later
    /// deadline is left to the next expiry: it costs one idle turn instead of a system call for each ACK.
    fn arm(&self, inner: &mut Inner, now: Instant) {
        let deadline = inner.stack.poll_timeout().map(|(at, _)| at);
        let next = deadline.into_iter().chain(inner.tx.next()).min();
        let expired = inner.armed <= now;
        match next {
            Some(next) if expired || next < inner.armed => {
                self.announcer.arm(next);
                inner.armed = next;
                if next <= now + GRACE {
                    self.end_grace();
                }
            }
            None if expired => {
                self.announcer.disarm();
                inner.armed = Instant::NEVER;
            }
            _ => {}
        }
    }

    /// The driver is needed now, even if a leader is about to come back.
    fn end_grace(&self) {
        if let Some(poller) = self.poller.get() {
            poller.end_grace();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.waiting.fetch_add(1, Ordering::Relaxed);
                let inner = self.lock_as_driver();
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                inner
            }
        }
    }

    /// A panic under the lock closes the shard ([`DriverThread`](crate::DriverThread)), so what it leaves behind is
    /// only ever torn down.
    fn lock_as_driver(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets application threads that wait for the lock have it before the next turn: the lock itself is not fair.
    pub(crate) fn give_way(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
    }
}

pub(crate) fn wake(wakers: &mut Vec<Waker>) {
    for waker in wakers.drain(..) {
        waker.wake();
    }
}
