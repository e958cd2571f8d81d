//! One stack, its device and its timer behind one lock, and what may be done with them: turn, access, poll.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};
use std::task::{Poll, Waker};

use taut_core::{BUFFER_BYTES, Duration, Fate, Frame, Instant, RxPacket, Stack, Steering, Transmit};
use taut_device::sys::{EventFd, TimerFd};
use taut_device::{Device, Received};
use taut_link::{LinkSpec, QdiscSpec};

use crate::clock::Clock;
use crate::front::{Front, LinkReport, QdiscEntry, is_congestion};
use crate::handover::Inbox;
use crate::thread::{GRACE, Poller};
use crate::waiters::{Interest, WaitKey, Waiters};

/// Most packets taken from the device before the stack may send and others may have the lock. Sixteen of 64 KB
/// still lie in a core's cache when the application reads them.
const BATCH_PACKETS: usize = 16;

/// How long a writer that keeps the driver asleep leaves the device alone. Long enough that an exchange of small
/// messages never looks in vain, and short beside the time that packets travel.
const WRITER_SERVES_EVERY: Duration = Duration::from_micros(20);

/// The same for everybody else. A reader takes packets anyway when it has read all there is; sooner, they would lie
/// and grow cold.
const READER_SERVES_EVERY: Duration = Duration::from_micros(250);

/// When to offer a packet again to a device that was out of memory rather than out of room, since nothing
/// announces memory.
const NOMEM_RETRY: Duration = Duration::from_millis(1);

/// "Not armed".
const NEVER: Instant = Instant::from_nanos(u64::MAX);

/// One stack with its device. Any thread may use it.
pub struct Shard<D: Device> {
    inner: Mutex<Inner<D>>,
    pub(crate) clock: Clock,
    /// Readable when the stack has something to do at that time.
    pub(crate) timer: TimerFd,
    /// Makes whoever drives look at `closed` and at [`Shard::wants_writable`].
    pub(crate) notify: EventFd,
    /// The device's descriptor, to wait on without the lock.
    pub(crate) device_fd: OwnedFd,
    polls_writable: bool,
    closed: AtomicBool,
    tx_blocked: AtomicBool,
    /// Application threads that wait for the lock: the driver lets them go first.
    waiting: AtomicUsize,
    /// What other shards received for this one.
    pub(crate) inbox: Inbox,
    /// All shards on the queues of this device, by index; empty when this is the only one.
    peers: OnceLock<Vec<Weak<Self>>>,
    /// Set when a [`DriverThread`](crate::DriverThread) drives.
    pub(crate) poller: OnceLock<Poller>,
}

struct Inner<D> {
    stack: Stack,
    device: D,
    /// A queue of our own in front of the device.
    front: Option<Box<Front>>,
    waiters: Waiters,
    /// Lent to the device for each packet; [`BUFFER_BYTES`] bytes between packets.
    buffer: Vec<u8>,
    /// What the timer is armed for. It may be earlier than the next deadline, never later.
    armed: Instant,
    /// When to try the device again, if it was out of memory.
    retry: Option<Instant>,
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
    /// Wakes who waits for `interest` although no event of the stack says so, as after a shutdown of reading.
    pub fn wake(&mut self, interest: Interest) {
        self.waiters.wake_one(interest, self.wakers);
    }
}

/// What a [turn](Shard::turn) left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turned {
    /// The batch was full: there may be more.
    pub(crate) more: bool,
    /// When the turn ended, if nobody waits and nothing is due before [`GRACE`] has passed.
    pub(crate) calm_at: Option<Instant>,
}

impl<D: Device> fmt::Debug for Shard<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shard").field("closed", &self.closed).finish_non_exhaustive()
    }
}

impl<D: Device> Shard<D> {
    /// A shard of `stack` and `device`. Nothing happens until it is driven.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn new(stack: Stack, device: D) -> io::Result<Self> {
        Self::with_link(stack, device, None)
    }

    /// [`new`](Self::new), with a queue in front of the device.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn with_link(stack: Stack, device: D, link: Option<LinkSpec>) -> io::Result<Self> {
        let device_fd = device.as_fd().try_clone_to_owned()?;
        let polls_writable = device.polls_writable();
        Ok(Self {
            inner: Mutex::new(Inner {
                stack,
                device,
                front: link.map(Front::new),
                waiters: Waiters::default(),
                buffer: vec![0; BUFFER_BYTES],
                armed: NEVER,
                retry: None,
                served: Instant::ZERO,
            }),
            clock: Clock,
            timer: TimerFd::new()?,
            notify: EventFd::new()?,
            device_fd,
            polls_writable,
            closed: AtomicBool::new(false),
            tx_blocked: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            inbox: Inbox::new()?,
            peers: OnceLock::new(),
            poller: OnceLock::new(),
        })
    }

    /// Makes shards each other's peers: `shards[i]` has index i of `shards.len()` in [`Steering`]'s terms. To be called
    /// before they are driven, once. `seed` is random.
    pub fn set_peers(shards: &[Arc<Self>], seed: &[u8; 32]) {
        let count = u16::try_from(shards.len()).unwrap_or(u16::MAX);
        if count < 2 {
            return;
        }
        for (index, shard) in (0..count).zip(shards) {
            // Set once: whoever calls it twice has the first.
            if shard.peers.set(shards.iter().map(Arc::downgrade).collect()).is_ok() {
                shard.lock().stack.set_steering(Steering::new(seed, index, count));
            }
        }
    }

    /// The clock that the stack lives by.
    #[must_use]
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// How the queue in front of the device is, if there is one.
    #[must_use]
    pub fn link_report(&self) -> Option<LinkReport> {
        self.lock().front.as_ref().map(|front| front.report())
    }

    /// The queue disciplines in front of the device, the root first; none when packets go there at once.
    #[must_use]
    pub fn qdiscs(&self) -> Vec<QdiscEntry> {
        self.lock().front.as_ref().map(|front| front.qdiscs()).unwrap_or_default()
    }

    /// Puts a queue discipline in front of the device, in place of the one that is there; with `None`, that of the link
    /// it was made with, if any. What waits stays in order, and nothing is lost. While the root is `fq`, which holds
    /// packets until their departure time, the stack does not pace by itself.
    pub fn set_qdisc(&self, spec: Option<&QdiscSpec>) {
        let mut wakers = Vec::new();
        let mut inner = self.lock();
        let now = self.clock.now();
        let Inner { stack, device, front, .. } = &mut *inner;
        let paces = spec.is_some_and(QdiscSpec::paces) || device.caps().paces;
        // Any number will do that is another each time.
        let seed = now.as_nanos();
        match (front.as_mut(), spec) {
            (Some(front), Some(spec)) => front.replace(now, stack, spec, seed),
            (Some(front), None) => front.restore(now, stack),
            (None, Some(spec)) => *front = Some(Front::with_qdisc(spec, seed)),
            (None, None) => {}
        }
        stack.set_link_paces(paces);
        self.settle(&mut inner, now, &mut wakers);
        drop(inner);
        self.end_grace();
        wake(&mut wakers);
    }

    /// Ends it: whoever drives it returns, whoever waits is told, and every later [`poll`](Self::poll) fails.
    pub fn close(&self) {
        let mut wakers = Vec::new();
        {
            let mut inner = self.lock();
            self.closed.store(true, Ordering::SeqCst);
            inner.waiters.wake_all(&mut wakers);
        }
        self.notify.signal();
        wake(&mut wakers);
    }

    /// Whether [`close`](Self::close) was called or the driver is gone.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
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

    /// As [`access`](Self::access); when `attempt` is pending, `waker` is called once `interest` may have come
    /// true.
    ///
    /// # Errors
    /// Those of `attempt`, or [`io::ErrorKind::NotConnected`] when the shard is closed.
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

    /// [`poll`](Self::poll) for a thread that, if it is pending, drives or sees to it that somebody does.
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
        if self.is_closed() {
            return Poll::Ready(Err(closed_error()));
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
    /// Those of `attempt`, or [`io::ErrorKind::NotConnected`] when the shard is closed.
    pub fn attempt<T>(
        &self,
        attempt: impl FnOnce(&mut Access<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if self.is_closed() {
            return Poll::Ready(Err(closed_error()));
        }
        self.access(attempt)
    }

    /// Takes back what a pending [`poll`](Self::poll) left.
    pub fn cancel(&self, interest: Interest, key: WaitKey) {
        let removed = self.lock().waiters.remove(interest, key);
        drop(removed);
    }

    fn access_locked<R>(
        &self,
        inner: &mut Inner<D>,
        wakers: &mut Vec<Waker>,
        serve_every: Duration,
        use_stack: impl FnOnce(&mut Access<'_>) -> R,
    ) -> R {
        let now = self.clock.now();
        // Who keeps the driver asleep does its work.
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
        if self.tx_blocked.swap(false, Ordering::SeqCst) {
            inner.retry = None;
            self.watch_writable(false);
        }
        let more = self.take_batch(&mut inner, self.clock.now());
        let now = self.clock.now();
        self.settle(&mut inner, now, wakers);
        let calm =
            inner.armed > now + GRACE && !self.tx_blocked.load(Ordering::SeqCst) && !inner.waiters.any();
        Turned { more, calm_at: calm.then_some(now) }
    }

    /// Takes a batch of packets from the device, no longer than the stack has an answer to wait for. Whether there may be
    /// more.
    fn take_batch(&self, inner: &mut Inner<D>, now: Instant) -> bool {
        inner.served = now;
        self.take_handed(inner);
        for _ in 0..BATCH_PACKETS {
            if !self.receive(inner) {
                return false;
            }
            if inner.stack.must_answer() {
                break;
            }
        }
        true
    }

    /// Takes what other shards received for this one.
    fn take_handed(&self, inner: &mut Inner<D>) {
        for handed in self.inbox.take() {
            let frame = Frame::Slice(&handed.bytes);
            let packet = RxPacket { frame, checksum: handed.checksum, gso_size: handed.gso_size };
            inner.stack.handle_packet(self.clock.now(), packet);
        }
    }

    /// Gives a packet to the shard that it is for. False when that is this one.
    fn hand_over(&self, stack: &mut Stack, buffer: &[u8], received: &Received) -> bool {
        let Some(peers) = self.peers.get() else { return false };
        let packet = buffer.get(received.range.clone()).unwrap_or_default();
        let Some(owner) = stack.owner_elsewhere(packet) else { return false };
        let peer = peers.get(owner).and_then(Weak::upgrade);
        if peer.as_ref().is_some_and(|peer| peer.inbox.put(packet, received)) {
            // Nobody else wakes it.
            peer.iter().for_each(|peer| peer.end_grace());
        } else {
            stack.note_steered_lost();
        }
        true
    }

    /// Takes one packet from the device. False when there was none.
    fn receive(&self, inner: &mut Inner<D>) -> bool {
        let Inner { stack, device, buffer, .. } = inner;
        let Ok(received) = device.recv(buffer) else {
            // Empty; or the interface is down, which the retransmission timers will tell the connections.
            return false;
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

    /// What follows every use of the stack: due timers, output, events, and the timer armed for what is next.
    fn settle(&self, inner: &mut Inner<D>, now: Instant, wakers: &mut Vec<Waker>) {
        if inner.stack.poll_timeout().is_some_and(|(at, _)| at <= now) {
            inner.stack.handle_timeout(now);
        }
        self.transmit(inner);
        while let Some(event) = inner.stack.poll_event() {
            inner.waiters.wake(event, wakers);
        }
        self.arm(inner, now);
    }

    /// Hands the device whatever the stack has for it.
    fn transmit(&self, inner: &mut Inner<D>) {
        if inner.front.is_some() {
            return self.transmit_through_front(inner);
        }
        if self.tx_blocked.load(Ordering::SeqCst) {
            return;
        }
        let Inner { stack, device, .. } = inner;
        loop {
            let now = self.clock.now();
            let Some(Transmit { packet, ticket }) = stack.poll_transmit(now) else { return };
            match device.send(&packet) {
                Err(error) if is_congestion(&error) => {
                    stack.handle_tx(now, ticket, Fate::Refused);
                    self.on_full(&mut inner.retry, now, &error);
                    return;
                }
                // A packet that the device will never take is lost like any other: retransmission answers for it.
                // Refusing it would offer it again at once, for ever.
                Ok(()) | Err(_) => stack.handle_tx(now, ticket, Fate::Left),
            }
        }
    }

    /// Puts whatever the stack has into the queue in front of the device, and hands the device what that lets go.
    fn transmit_through_front(&self, inner: &mut Inner<D>) {
        let Inner { stack, device, front: Some(front), retry, .. } = inner else { return };
        loop {
            let now = self.clock.now();
            front.tell(now, stack);
            front.take(now, stack);
            let has_room = !self.tx_blocked.load(Ordering::SeqCst);
            match front.release(now, stack, device, has_room) {
                // What left may have made room for more of its connection.
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return self.on_full(retry, now, &error),
            }
        }
        if front.is_over() {
            inner.front = None;
            self.transmit(inner);
        }
    }

    /// The device has no room: see to it that it is asked again when it has.
    fn on_full(&self, retry: &mut Option<Instant>, now: Instant, error: &io::Error) {
        self.tx_blocked.store(true, Ordering::SeqCst);
        if error.kind() == io::ErrorKind::WouldBlock {
            self.watch_writable(true);
        } else {
            *retry = Some(now + NOMEM_RETRY);
        }
    }

    /// Moves the timer, if the next deadline is earlier than what it is armed for or that has passed. A later
    /// deadline is left to the next expiry: it costs one idle turn instead of a system call for each ACK.
    fn arm(&self, inner: &mut Inner<D>, now: Instant) {
        let deadline = inner.stack.poll_timeout().map(|(at, _)| at);
        let front = inner.front.as_ref().and_then(|front| front.next());
        let next = [deadline, inner.retry, front].into_iter().flatten().min();
        let expired = inner.armed <= now;
        match next {
            Some(next) if expired || next < inner.armed => {
                self.timer.arm(next.as_nanos());
                inner.armed = next;
                if next <= now + GRACE {
                    self.end_grace();
                }
            }
            None if expired => {
                self.timer.disarm();
                inner.armed = NEVER;
            }
            _ => {}
        }
    }

    /// Whether the driver is to wait for the device to have room.
    #[cfg(feature = "tokio")]
    pub(crate) fn wants_writable(&self) -> bool {
        self.polls_writable && self.tx_blocked.load(Ordering::SeqCst)
    }

    /// The driver is needed now, even if a leader is about to come back.
    fn end_grace(&self) {
        if let Some(poller) = self.poller.get() {
            poller.end_grace();
        }
    }

    fn watch_writable(&self, watch: bool) {
        if watch {
            self.end_grace();
        }
        if !self.polls_writable {
            return;
        }
        match self.poller.get() {
            Some(poller) => poller.watch_writable(self.device_fd.as_fd(), watch),
            None if watch => self.notify.signal(),
            None => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<D>> {
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
    fn lock_as_driver(&self) -> MutexGuard<'_, Inner<D>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets application threads that wait for the lock have it before the next turn: the lock itself is not fair.
    pub(crate) fn give_way(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
    }
}

pub(crate) fn closed_error() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the stack was shut down")
}

pub(crate) fn wake(wakers: &mut Vec<Waker>) {
    for waker in wakers.drain(..) {
        waker.wake();
    }
}
