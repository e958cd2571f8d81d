//! One sample for all who watch, made when one of them wants it.
//!
//! ```text
//!   page ── wants the next ──▶ ┌──────┐   waits its pause   ┌───────┐
//!   page ── wants the next ──▶ │ Feed │ ──────────────────▶ │ Watch │ ──▶ the stacks
//!   page ◀── the newest ────── └──────┘ ◀─── a sample ───── └───────┘
//! ```
//!
//! A watcher asks for the next sample when it has taken the last one, so nothing is asked of a stack while
//! nobody watches, and a watcher that takes nothing asks for nothing. It gets the newest sample, which all
//! watchers share: one that is slow misses some, and the feed keeps one, whoever is slow. Called by
//! `server.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, watch};

/// The most watchers at a time.
pub const WATCHERS_MAX: usize = 16;

/// A source of samples.
pub trait Make: Send + 'static {
    /// How long it is to wait before the next sample.
    fn wait(&self) -> Duration;
    /// A sample, as it is sent to watchers. May block.
    fn make(&mut self) -> Bytes;
}

#[derive(Debug)]
struct Shared {
    newest: watch::Sender<Bytes>,
    wanted: Notify,
    watchers: AtomicUsize,
}

/// Where to get samples. Clones are the same feed.
#[derive(Clone, Debug)]
pub struct Feed(Arc<Shared>);

impl Feed {
    /// A feed, made by a task of this runtime until the last clone and the last watcher are gone.
    #[must_use]
    pub fn new(mut source: impl Make) -> Self {
        let (newest, _) = watch::channel(Bytes::new());
        let feed = Self(Arc::new(Shared { newest, wanted: Notify::new(), watchers: AtomicUsize::new(0) }));
        let shared = Arc::downgrade(&feed.0);
        tokio::spawn(async move {
            while let Some(shared) = shared.upgrade() {
                // Looks from time to time whether the feed is still there.
                if tokio::time::timeout(Duration::from_secs(1), shared.wanted.notified()).await.is_err() {
                    continue;
                }
                tokio::time::sleep(source.wait()).await;
                let made = tokio::task::spawn_blocking(move || (source.make(), source)).await;
                let Ok((sample, back)) = made else { return };
                source = back;
                shared.newest.send_replace(sample);
            }
        });
        feed
    }

    /// Begins to watch; `None` if [`WATCHERS_MAX`] do.
    #[must_use]
    pub fn watch(&self) -> Option<Watcher> {
        let more = |watchers| (watchers < WATCHERS_MAX).then_some(watchers + 1);
        self.0.watchers.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(Watcher { newest: self.0.newest.subscribe(), shared: Arc::clone(&self.0) })
    }
}

/// One who watches, until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    newest: watch::Receiver<Bytes>,
    shared: Arc<Shared>,
}

impl Watcher {
    /// The newest sample that this watcher has not had; asks for one. `None` when no more will come.
    pub async fn next(&mut self) -> Option<Bytes> {
        if !self.newest.has_changed().ok()? {
            self.shared.wanted.notify_one();
            self.newest.changed().await.ok()?;
        }
        Some(self.newest.borrow_and_update().clone())
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.watchers.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers; counts how often it is asked.
    struct Numbers(Arc<AtomicUsize>);

    impl Make for Numbers {
        fn wait(&self) -> Duration {
            Duration::from_millis(20)
        }

        fn make(&mut self) -> Bytes {
            Bytes::from((self.0.fetch_add(1, Ordering::SeqCst) + 1).to_string())
        }
    }

    fn number(sample: Option<Bytes>) -> usize {
        std::str::from_utf8(&sample.unwrap()).unwrap().parse().unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn dash_06_a_stack_is_asked_once_for_all_and_not_while_nobody_watches() {
        let asked = Arc::new(AtomicUsize::new(0));
        let feed = Feed::new(Numbers(Arc::clone(&asked)));
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(asked.load(Ordering::SeqCst), 0, "nobody watches");

        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..WATCHERS_MAX {
            let mut watcher = feed.watch().unwrap();
            tasks.spawn(async move {
                let mut had = 0;
                while had < 10 {
                    let next = number(watcher.next().await);
                    assert!(next > had, "{next} after {had}");
                    had = next;
                }
            });
        }
        assert!(feed.watch().is_none(), "more than {WATCHERS_MAX}");
        tasks.join_all().await;
        // One more at most is asked for when the last watcher leaves, and one by those who were behind.
        let when_done = asked.load(Ordering::SeqCst);
        assert!((10..=12).contains(&when_done), "{when_done} samples for {WATCHERS_MAX} watchers of 10");
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(asked.load(Ordering::SeqCst) <= when_done + 1);
        assert!(feed.watch().is_some(), "places are given back");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn dash_07_a_watcher_that_takes_nothing_asks_for_nothing_and_a_slow_one_misses_some() {
        let asked = Arc::new(AtomicUsize::new(0));
        let feed = Feed::new(Numbers(Arc::clone(&asked)));
        let mut slow = feed.watch().unwrap();
        assert_eq!(number(slow.next().await), 1);
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(asked.load(Ordering::SeqCst), 1);

        let mut fast = feed.watch().unwrap();
        let mut had = 0;
        while had < 6 {
            had = number(fast.next().await);
        }
        let next = number(slow.next().await);
        assert!(next >= 6, "{next}: not one of those that were missed");
        // One who comes late does not get what was made before.
        let mut late = feed.watch().unwrap();
        assert!(number(late.next().await) > next);
    }
}
