//! Driving a shard from a task of a tokio runtime.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::shard::{Shard, Until, wake};
use crate::sys::{Epoll, Interest as Readiness};
use crate::thread::CloseOnExit;

/// Consecutive turns while input keeps arriving, before other tasks get to run.
const TURNS_BEFORE_YIELD: usize = 4;

/// A key in `Announcer::ready`, in addition to the keys of that set.
const NOTIFY: u64 = 16;

/// Drives `shard` until it is closed. Needs a runtime with its IO driver enabled. When the future is dropped the
/// shard is closed.
///
/// # Errors
/// No descriptors left.
pub async fn run(shard: Arc<Shard>) -> io::Result<()> {
    let _closer = CloseOnExit(&shard);
    shard.announcer.ready.add(shard.announcer.notify.as_fd(), NOTIFY, Readiness::Readable)?;
    let ready = registered(Arc::clone(&shard.announcer.ready))?;
    let mut wakers = Vec::new();
    while !shard.is_closed() {
        let mut guard = ready.readable().await?;
        let more = (0..TURNS_BEFORE_YIELD).all(|_| {
            let turned = shard.turn(Until::Batch, &mut wakers);
            wake(&mut wakers);
            turned.more
        });
        if more {
            tokio::task::yield_now().await;
        } else {
            // Events since the task was woken are not lost: they make the guard ready again.
            guard.clear_ready();
        }
    }
    Ok(())
}

/// Registers the set with the current runtime.
fn registered(set: Arc<Epoll>) -> io::Result<AsyncFd<Arc<Epoll>>> {
    #[expect(deprecated, reason = "an Epoll keeps its descriptor for life; the successor is unsafe")]
    AsyncFd::with_interest(set, Interest::READABLE)
}
