//! Driving a shard from a task of a tokio runtime.
//!
//! The task waits for a [`Notify`], which the device's waker, other shards and earlier deadlines call; for
//! the device's descriptors, if it has any (`tokio/sources.rs`); and for the next deadline by tokio's time.
//! That is exact only to a millisecond, so on Linux a timer of the kernel takes its place.

mod sources;

use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use taut_core::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::{consume_budget, yield_now};

use self::sources::{Heard, Sources};
use crate::shard::closed::CloseOnExit;
use crate::shard::waiters::wake;
use crate::shard::{ReadInto, Shard, Until};
use crate::wake::announce::{FineTimer, Sleep};

/// Consecutive turns while input keeps arriving, before other tasks get to run.
const TURNS_BEFORE_YIELD: usize = 4;

/// Longer waits are divided, as tokio's time ends in some years.
const LONGEST: Duration = Duration::from_secs(3_600);

/// Drives `shard` until it is closed. Needs a runtime whose IO driver is enabled, and elsewhere than on Linux
/// its time driver. When the future is dropped the shard is closed.
///
/// # Errors
/// No descriptors left, or [`io::ErrorKind::InvalidInput`] when the shard already has a driver.
pub async fn run(shard: Arc<Shard>) -> io::Result<()> {
    drive(shard, sources::fine_timer()).await
}

/// [`run`] as on a system without fine timers: by tokio's time alone. For tests of that on Linux.
///
/// # Errors
/// Those of [`run`].
#[doc(hidden)]
pub async fn run_portable(shard: Arc<Shard>) -> io::Result<()> {
    drive(shard, Ok(None)).await
}

async fn drive(shard: Arc<Shard>, fine: io::Result<Option<FineTimer>>) -> io::Result<()> {
    let fine = fine.inspect_err(|_| shard.close())?;
    let called = Arc::new(Called(Notify::new()));
    let handle = sources::handle(fine.as_ref());
    shard.announcer.attach(&Waker::from(Arc::clone(&called)), fine)?;
    let _closer = CloseOnExit(&shard);
    let sources = Sources::new(&shard.announcer, handle)?;
    let (mut timer, mut wakers) = (Timer::default(), Vec::new());
    while !shard.is_closed() {
        let heard = next(&shard, &called.0, &sources, &mut timer).await?;
        shard.announcer.awake();
        let mut turn = || {
            let turned = shard.turn(Until::Batch, &mut ReadInto::default(), &mut wakers);
            wake(&mut wakers);
            turned
        };
        while (0..TURNS_BEFORE_YIELD).all(|_| turn().more) {
            yield_now().await;
        }
        // News that came since is not lost: it makes them ready again.
        heard.clear();
        if !shard.busy_poll.is_zero() {
            let mut since = shard.clock.now();
            while shard.clock.now().since(since) < shard.busy_poll && !shard.is_closed() {
                yield_now().await;
                if turn().received {
                    since = shard.clock.now();
                }
            }
        }
    }
    Ok(())
}

/// Waits until there is something to do.
async fn next<'a>(
    shard: &Shard,
    called: &Notify,
    sources: &'a Sources<'_>,
    timer: &mut Timer,
) -> io::Result<Heard<'a>> {
    let Some(Sleep { watch_room, .. }) = shard.announcer.sleep(shard.clock.now()) else {
        // Deadlines that are always due must not keep other tasks waiting.
        consume_budget().await;
        return Ok(Heard::default());
    };
    let (mut called, mut heard) = (pin!(called.notified()), pin!(sources.heard(watch_room)));
    poll_fn(|cx| {
        let is_called = called.as_mut().poll(cx).is_ready();
        match heard.as_mut().poll(cx) {
            Poll::Pending if is_called => return Poll::Ready(Ok(Heard::default())),
            Poll::Pending => {}
            ready => return ready,
        }
        loop {
            let now = shard.clock.now();
            let Some(Sleep { until, .. }) = shard.announcer.sleep(now) else {
                return Poll::Ready(Ok(Heard::default()));
            };
            if timer.poll(cx, now, until).is_pending() {
                return Poll::Pending;
            }
        }
    })
    .await
}

/// A wait by tokio's time.
#[derive(Default)]
struct Timer {
    sleep: Option<Pin<Box<tokio::time::Sleep>>>,
    /// What it waits for; [`Instant::ZERO`] for nothing.
    until: Instant,
}

impl Timer {
    fn poll(&mut self, cx: &mut Context<'_>, now: Instant, until: Instant) -> Poll<()> {
        if until == Instant::NEVER {
            return Poll::Pending;
        }
        let end = || tokio::time::Instant::now() + until.since(now).min(LONGEST).into();
        let sleep = match &mut self.sleep {
            Some(sleep) => {
                if self.until != until {
                    sleep.as_mut().reset(end());
                }
                sleep
            }
            none => none.insert(Box::pin(tokio::time::sleep_until(end()))),
        };
        self.until = until;
        let over = sleep.as_mut().poll(cx);
        if over.is_ready() {
            self.until = Instant::ZERO;
        }
        over
    }
}

/// Calls the task, whoever polls it.
struct Called(Notify);

impl Wake for Called {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.notify_one();
    }
}
