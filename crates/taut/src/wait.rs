//! Attempts and how one waits for them: futures that wait for a shard, and a thread that waits for several.
//! Called by the sockets and by `stack.rs`.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use taut_driver::{Access, Interest, Shard, WaitKey};

/// What an attempt comes to: ready, pending, or failed.
pub(crate) type Attempt<T> = Poll<io::Result<T>>;

/// The result of an attempt that must not wait.
pub(crate) fn now_or_would_block<T>(attempt: Attempt<T>) -> io::Result<T> {
    match attempt {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// Whether an attempt that left a waker is ready.
pub(crate) fn is_ready(attempt: Attempt<()>) -> io::Result<bool> {
    match attempt {
        Poll::Ready(result) => result.map(|()| true),
        Poll::Pending => Ok(false),
    }
}

/// Waits until `attempt` is ready.
pub(crate) async fn until<T>(
    shard: &Shard,
    interest: Interest,
    mut attempt: impl FnMut(&mut Access<'_>) -> Attempt<T>,
) -> io::Result<T> {
    let mut waiting = Waiting::new(shard, interest);
    poll_fn(|cx| waiting.poll(cx, &mut attempt)).await
}

/// Blocks the thread until `look` finds something. It is called at the beginning, and whenever addresses or
/// routes of a shard change. `None` after `timeout`, or when a shard has ended.
pub(crate) fn block_until<T>(
    shards: &[Arc<Shard>],
    timeout: Duration,
    mut look: impl FnMut() -> Option<T>,
) -> Option<T> {
    let waker = Unpark::here();
    let mut cx = Context::from_waker(&waker);
    let mut waits: Vec<_> = shards.iter().map(|shard| Waiting::new(shard, Interest::Network)).collect();
    let clock = shards.first()?.clock();
    let until = clock.now() + timeout.into();
    loop {
        // Registered before the look, so that no change is missed.
        let mut has_ended = false;
        for wait in &mut waits {
            has_ended |= wait.poll::<Infallible>(&mut cx, &mut |_| Poll::Pending).is_ready();
        }
        let found = look();
        let now = clock.now();
        if found.is_some() || has_ended || now >= until {
            return found;
        }
        thread::park_timeout(until.since(now).into());
    }
}

/// Wakes a thread that parks while it waits in several shards.
pub(crate) struct Unpark(Thread);

impl Unpark {
    /// A waker of this thread.
    pub(crate) fn here() -> Waker {
        Waker::from(Arc::new(Self(thread::current())))
    }
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The registration of one waiting future; removed when this is dropped.
pub(crate) struct Waiting<'a> {
    shard: &'a Shard,
    interest: Interest,
    key: Option<WaitKey>,
}

impl<'a> Waiting<'a> {
    pub(crate) const fn new(shard: &'a Shard, interest: Interest) -> Self {
        Self { shard, interest, key: None }
    }

    pub(crate) fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        attempt: &mut impl FnMut(&mut Access<'_>) -> Attempt<T>,
    ) -> Attempt<T> {
        let key = *self.key.get_or_insert_with(WaitKey::unique);
        let result = self.shard.poll(self.interest, key, cx.waker(), attempt);
        if result.is_ready() {
            // No longer registered.
            self.key = None;
        }
        result
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.shard.cancel(self.interest, key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::Stack;
    use crate::device::{LinkCaps, pipe};
    use crate::network::{Network, NetworkChange};

    /// Longer than anything here takes on a machine that is not stuck.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Nothing else is a reason to look: no time that passes, and no other use of the stack.
    #[test]
    fn a_change_of_the_network_is_one_look() {
        let (near, _far) = pipe(LinkCaps::plain(1500), 1 << 16).unwrap();
        let stack = Stack::builder().device(near).address("10.0.0.1/24").build().unwrap();
        let own = Network { address: [10, 0, 0, 2].into(), prefix: 24 };
        let (looked, looks) = mpsc::channel();
        let count = thread::scope(|scope| {
            let look = || {
                looked.send(()).unwrap();
                stack.networks().contains(&own).then_some(())
            };
            let waits = scope.spawn({
                let shards = stack.shards();
                move || block_until(shards, PATIENCE, look)
            });
            looks.recv().unwrap();
            thread::sleep(Duration::from_millis(100));
            assert_eq!(stack.connections(), 0);
            stack.change_network(NetworkChange::AddAddress(own)).unwrap();
            assert_eq!(waits.join().unwrap(), Some(()));
            1 + looks.try_iter().count()
        });
        // A thread that parks may be woken for no reason; one that polls would have looked dozens of times.
        assert!((2..=3).contains(&count), "{count} looks");
    }
}
