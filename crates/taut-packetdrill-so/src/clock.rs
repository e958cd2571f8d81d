//! The stack, its time, and the two threads of the tool.
//!
//! The tool's main thread injects and receives packets, lets time pass, and makes calls that return at once. A second
//! thread makes the calls that may block. Time is virtual: it passes only when the main thread waits (`usleep`,
//! `netdev_receive`), and 1 µs with each look at the clock, so that no loop of the tool stands still.
//!
//! Two rules keep the script's times exact:
//! - After anything has happened, time does not pass on before every blocked call was made again.
//! - A blocked call that has returned looks at the clock next. Until it has, time stands still.
//!
//! A blocked thread sleeps on a condition variable: the tool looks whether it sleeps.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration as RealTime;

use taut_core::{Duration, Instant};
use taut_script::sockets::{Called, Sockets, Stop};

use crate::settings;

/// How long the main thread waits for the other one, in real time, before it goes on regardless: the tool may have
/// given up the call.
const PATIENCE: RealTime = RealTime::from_millis(200);
/// What one look at the clock takes.
const LOOK: Duration = Duration::from_micros(1);
/// The time of the first look at the clock, in microseconds since 1970.
pub(crate) const EPOCH_US: u64 = 1_700_000_000_000_000;

/// The stack and what the threads must know about each other.
pub(crate) struct Shared {
    pub(crate) sockets: Sockets,
    /// Whether the sysctls of the namespace are read when a socket is made.
    pub(crate) reads_sysctls: bool,
    /// Grows with everything that happens.
    news: u64,
    /// Calls that block.
    blocked: Vec<Blocked>,
    /// Threads whose call has returned and that have not looked at the clock since.
    woken: Vec<ThreadId>,
    /// The number of the next descriptor.
    pub(crate) next_fd: i32,
}

struct Blocked {
    thread: ThreadId,
    /// The news that it has seen.
    seen: u64,
    /// When it gives up.
    deadline: Instant,
}

static SHARED: Mutex<Option<Shared>> = Mutex::new(None);
static CHANGED: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, Option<Shared>> {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Far above what the kernel gives out, so that the two never collide.
const FIRST_FD: i32 = 100_000;

pub(crate) fn make_stack(flags: &str) -> Result<(), String> {
    let (host, reads_sysctls) = settings::host(flags)?;
    *lock() = Some(Shared {
        sockets: Sockets::new(host),
        reads_sysctls,
        news: 0,
        blocked: Vec::new(),
        woken: Vec::new(),
        next_fd: FIRST_FD,
    });
    Ok(())
}

pub(crate) fn drop_stack() {
    *lock() = None;
    CHANGED.notify_all();
}

/// Does something at once; `None` if there is no stack.
pub(crate) fn with<T>(f: impl FnOnce(&mut Shared) -> T) -> Option<T> {
    let mut guard = lock();
    let shared = guard.as_mut()?;
    let result = f(shared);
    shared.sockets.settle();
    shared.news += 1;
    CHANGED.notify_all();
    Some(result)
}

/// Makes a call until it returns. Between two attempts this thread sleeps until something has happened. The call says
/// until when it waits, if not for ever.
pub(crate) fn until_done<T>(
    mut call: impl FnMut(&mut Shared, &mut Instant) -> Called<T>,
) -> Option<Called<T>> {
    let me = thread::current().id();
    let mut deadline = Instant::NEVER;
    let mut was_blocked = false;
    let mut guard = lock();
    loop {
        let shared = guard.as_mut()?;
        let result = call(shared, &mut deadline);
        shared.sockets.settle();
        shared.blocked.retain(|blocked| blocked.thread != me);
        if !matches!(result, Err(Stop::Blocks)) {
            if was_blocked {
                shared.woken.push(me);
            }
            shared.news += 1;
            CHANGED.notify_all();
            return Some(result);
        }
        was_blocked = true;
        let seen = shared.news;
        shared.blocked.push(Blocked { thread: me, seen, deadline });
        CHANGED.notify_all();
        while guard.as_ref().is_some_and(|shared| shared.news == seen) {
            guard = CHANGED.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Waits until the other thread has seen all news, and until it has looked at the clock if its call has returned.
fn wait_for_the_other(mut guard: MutexGuard<'static, Option<Shared>>) -> MutexGuard<'static, Option<Shared>> {
    let me = thread::current().id();
    while let Some(shared) = guard.as_mut() {
        let news = shared.news;
        let behind = shared.blocked.iter().any(|blocked| blocked.thread != me && blocked.seen < news);
        let woken = shared.woken.iter().any(|&thread| thread != me);
        if !behind && !woken {
            break;
        }
        let (next, waited) = CHANGED.wait_timeout(guard, PATIENCE).unwrap_or_else(PoisonError::into_inner);
        guard = next;
        if waited.timed_out() {
            if let Some(shared) = guard.as_mut() {
                shared.woken.clear();
            }
            break;
        }
    }
    guard
}

/// One look at the clock: microseconds since 1970. It takes 1 µs.
pub(crate) fn look() -> u64 {
    let me = thread::current().id();
    let mut guard = lock();
    let Some(shared) = guard.as_mut() else { return EPOCH_US };
    let now = shared.sockets.host.now().as_micros();
    let before = shared.woken.len();
    shared.woken.retain(|thread| *thread != me);
    if shared.woken.len() < before {
        CHANGED.notify_all();
        return EPOCH_US + now;
    }
    let mut guard = wait_for_the_other(guard);
    let Some(shared) = guard.as_mut() else { return EPOCH_US + now };
    let limit = shared.sockets.host.now() + LOOK;
    step(shared, limit);
    EPOCH_US + now
}

/// Lets time pass up to `limit`, or to the first event before it: a timer, a packet of a queue, a call that gives up.
fn step(shared: &mut Shared, limit: Instant) {
    let now = shared.sockets.host.now();
    let gives_up = shared.blocked.iter().map(|blocked| blocked.deadline).filter(|&at| at > now).min();
    let limit = gives_up.map_or(limit, |at| at.min(limit));
    // An error means that timers are due again and again; the tool will see that nothing comes.
    let _ = shared.sockets.host.step(limit);
    shared.sockets.settle();
    shared.news += 1;
    CHANGED.notify_all();
}

/// Lets this many microseconds pass.
pub(crate) fn sleep_us(us: u64) {
    let mut guard = wait_for_the_other(lock());
    let Some(limit) = guard.as_ref().map(|shared| shared.sockets.host.now() + Duration::from_micros(us))
    else {
        return;
    };
    while let Some(shared) = guard.as_mut().filter(|shared| shared.sockets.host.now() < limit) {
        step(shared, limit);
        guard = wait_for_the_other(guard);
    }
}

/// The next packet that the stack sends, and when. Time passes until there is one; `None` if there never will be.
pub(crate) fn receive() -> Option<(Vec<u8>, u64)> {
    let mut guard = wait_for_the_other(lock());
    loop {
        let shared = guard.as_mut()?;
        if let Some(sent) = shared.sockets.host.take_sent() {
            return Some((sent.bytes, EPOCH_US + sent.at.as_micros()));
        }
        let gives_up =
            shared.blocked.iter().map(|blocked| blocked.deadline).filter(|&at| at != Instant::NEVER);
        let at = shared.sockets.host.next_wake().into_iter().chain(gives_up).min()?;
        step(shared, at);
        guard = wait_for_the_other(guard);
    }
}
